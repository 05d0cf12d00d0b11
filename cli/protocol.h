/* cli/protocol.h: which tokens of a text are scored. */
#ifndef SSM_CLI_PROTOCOL_H
#define SSM_CLI_PROTOCOL_H

#include <ssmscope/base.h>

typedef enum cli_protocol {
    CLI_PROTOCOL_FULL,
    CLI_PROTOCOL_CONTINUATION,
    CLI_PROTOCOL_ROLLING,
    CLI_PROTOCOL_STATEFUL
} cli_protocol;

/* "auto" (full, until the rules are known), "full", "continuation:T" with T ≥ 1, "rolling" or
 * "stateful". *continuation: T, or −1. Errors: USAGE. */
ssm_status cli_protocol_parse(const char *text, cli_protocol *protocol, int64_t *continuation,
                              ssm_error *err);
/* "full" for −1, else "continuation:T". */
void cli_protocol_name(int64_t continuation, char out[48]);

#endif
