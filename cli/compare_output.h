/* cli/compare_output.h: what compare found, for people and for programs. */
#ifndef SSM_CLI_COMPARE_OUTPUT_H
#define SSM_CLI_COMPARE_OUTPUT_H

#include <ssmscope/compare.h>

#include "load.h"

typedef struct cli_comparison {
    cli_context *context;
    cli_source a, b; /* b: all zero where there is no second model */
    const char *hidden_path;
    bool reference;
    ssm_weight_comparison *weights;
    int64_t n_weights;
    ssm_ids ids;
    ssm_trace file;
    bool ran; /* false: the models have other widths or numbers of layers */
    double tolerance;
    ssm_trace_comparison traces;
    ssm_tap_comparison taps[SSM_TAP_COUNT]; /* of layer traces.first − 1 */
    int64_t n_taps;                         /* 0: not looked at */
} cli_comparison;

/* Tables, or the JSON object. Errors: CHECK when the two sides diverge, MEMORY. */
ssm_status cli_compare_print(const cli_comparison *comparison, ssm_error *err);

#endif
