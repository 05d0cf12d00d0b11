/* static [paper]: one set per channel, the `budget` modes of highest mean energy over the
 * calibration windows. score(h, i) = mean over windows of e_{h,i} = Σ_t m². [ours] Per head: h is a
 * head of Mamba-2 and e is summed over its channels. */
#include "select/rule.h"

#include <stdlib.h>

#include "base/error.h"
#include "recording/energies.h"

static ssm_status fill_layers(ssm_recording *recording, ssm_scope scope, int64_t budget,
                              double *mean, double *scratch, int32_t *order, ssm_mask *out,
                              ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    int64_t width = out->n_channels * out->d_state;
    for (int64_t i = 0; i < info->n_recorded; i++) { /* layers of attention stay whole */
        const int64_t layer = info->layers[i];
        int64_t windows = 0;
        SSM__TRY(ssm__calibration_energies(recording, scope, layer, mean, scratch, &windows, err));
        ssm__keep_top(mean, out->n_channels, out->d_state, budget, order,
                      out->keep + layer * width);
    }
    return SSM_STATUS_OK;
}

static ssm_status fill(ssm_recording *recording, const ssm_select_options *options, ssm_mask *out,
                       ssm_error *err)
{
    size_t width = (size_t)(out->n_channels * out->d_state);
    double *mean = malloc(width * sizeof *mean);
    double *scratch = malloc(width * sizeof *scratch);
    int32_t *order = malloc((size_t)out->d_state * sizeof *order);
    ssm_status status = mean == NULL || scratch == NULL || order == NULL
                            ? ssm__fail_memory(err, "mode energies", 2 * width * sizeof *mean)
                            : fill_layers(recording, ssm__select_scope(options), options->budget,
                                          mean, scratch, order, out, err);
    free(mean);
    free(scratch);
    free(order);
    return status;
}

const ssm__rule ssm__rule_static = {"static", true, fill};
