#include "protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

ssm_status cli_protocol_parse(const char *text, cli_protocol *protocol, int64_t *continuation,
                              ssm_error *err)
{
    static const char *const names[] = {"full", "continuation", "rolling", "stateful", NULL};
    text = strcmp(text, "auto") == 0 ? "full" : text; /* settled with the rules */
    static const char prefix[] = "continuation:";
    *continuation = -1;
    for (int i = 0; names[i] != NULL; i++) {
        if (i != CLI_PROTOCOL_CONTINUATION && strcmp(text, names[i]) == 0) {
            *protocol = (cli_protocol)i;
            return SSM_STATUS_OK;
        }
    }
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        const char *digits = text + sizeof prefix - 1;
        char *end = NULL;
        errno = 0;
        long long value = strtoll(digits, &end, 10);
        if (digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && errno == 0 && value >= 1) {
            *protocol = CLI_PROTOCOL_CONTINUATION;
            *continuation = value;
            return SSM_STATUS_OK;
        }
    }
    static const char *const forms[] = {"auto",    "full",     "continuation:T",
                                        "rolling", "stateful", NULL};
    const char *near = strchr(text, ':') == NULL ? ssm_nearest(text, forms) : NULL;
    return cli_fail(err, SSM_STATUS_USAGE, NULL,
                    "--protocol: expected auto, full, continuation:T with T at least 1, rolling or "
                    "stateful, found '%s'%s%s%s",
                    text, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?" : "");
}

void cli_protocol_name(int64_t continuation, char out[48])
{
    snprintf(out, 48, continuation < 0 ? "full" : "continuation:%lld", (long long)continuation);
}
