/* cli/metrics_output.h: what `metrics` prints, for people and for programs. */
#ifndef SSM_CLI_METRICS_OUTPUT_H
#define SSM_CLI_METRICS_OUTPUT_H

#include <ssmscope/metrics.h>

#include "output.h"

/* The diagonal identity is algebra: a larger violation means that ranking, sets or sums are wrong.
 */
static const double cli_identity_bound = 1e-6;

ssm_status cli_metrics_print(const char *path, const ssm_recording *recording,
                             const ssm_metrics *metrics, ssm_error *err);
ssm_status cli_metrics_json(const cli_context *context, const char *path,
                            const ssm_recording *recording, const ssm_metrics *metrics,
                            ssm_error *err);

#endif
