/* cli/rules.h: rules of every kind by name, and what one makes of a recording: a mask, or a chooser
 * of masks for windows. */
#ifndef SSM_CLI_RULES_H
#define SSM_CLI_RULES_H

#include <ssmscope/adapt.h>
#include <ssmscope/select.h>

#include "load.h"

/* What is asked of a rule. */
typedef struct cli_rule_request {
    const char *rule;
    int64_t budget;
    const char *scope;
    int64_t seed;
    double ridge;      /* of rules with weights */
    int64_t window;    /* most tokens that a rule which chooses anew looks at */
    bool exact_chunks; /* of its sessions */
} cli_rule_request;

/* Names of all rules, without parameters, NULL-terminated. */
const char *const *cli_rule_names(void);
/* A rule of `select`, one that chooses for every window, or ghost; with its parameter. */
bool cli_is_rule(const char *name);
/* Errors: USAGE (no rule of that name, with the nearest; a prefix without a number). What else is
 * wrong with a parameter the rule says itself. */
ssm_status cli_rule_check(const char *rule, ssm_error *err);

/* A rule that chooses for every window. The recording is of this model. Owner of *out: the caller,
 * ssm_adapt_free. Errors: as ssm_adapt_create. */
ssm_status cli_rule_adapter(cli_context *context, const cli_source *source,
                            const ssm_corpus *corpus, ssm_recording *recording,
                            const cli_rule_request *request, ssm_adapter **out, ssm_error *err);
/* The one mask of a rule: of `select`, or ghost, which runs the model. Owner of *out: the caller,
 * ssm_mask_free. Errors: as ssm_select and ssm_ghost_select. */
ssm_status cli_rule_mask(cli_context *context, const cli_source *source, ssm_recording *recording,
                         const cli_rule_request *request, ssm_mask *out, ssm_error *err);

/* Windows on which a set was chosen say little about what it costs elsewhere: says so when the
 * first `offset` windows do not cover the calibration's tokens in domains of the same names. */
void cli_note_overlap(cli_context *context, const ssm_recording *recording,
                      const ssm_corpus *corpus, int64_t window, int64_t offset);

/* Table entry of rules with weights; `type` has a double `ridge`. */
#define CLI_RIDGE_ENTRY(type)                                                                      \
    {                                                                                              \
        .name = "ridge", .kind = CLI_REAL, .into = offsetof(type, ridge), .argument = "X",         \
        .fallback = "0.0001", .low = 1e-12, .high = 1e6,                                           \
        .help = "Ridge of compensated, relative to the energy of each summand that is weighed."    \
    }

#endif
