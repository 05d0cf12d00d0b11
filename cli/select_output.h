/* cli/select_output.h: what select prints about the errors of sets. */
#ifndef SSM_CLI_SELECT_OUTPUT_H
#define SSM_CLI_SELECT_OUTPUT_H

#include <ssmscope/select.h>

#include "output.h"

/* One curve, and what it is of. */
typedef struct cli_curve {
    const char *recording, *digest;     /* path and digest of the recording */
    const char *rule, *scope, *windows; /* windows: "evaluation" or "calibration" */
    int64_t seed;
    double ridge;            /* NaN: the rule has none */
    const char *mask;        /* a mask's path, or NULL: of a rule */
    const char *mask_digest; /* of the file */
    ssm_error_curve errors;
} cli_curve;

/* A table for people or, with --json, one object. */
ssm_status cli_curve_print(const cli_context *context, const cli_curve *curve, ssm_error *err);

#endif
