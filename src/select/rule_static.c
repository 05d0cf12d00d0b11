/* static [paper]: one set per channel, the `budget` modes of highest mean energy over the
 * calibration windows. score(h, i) = mean over windows of e_{h,i} = Σ_t m². [ours] A set that rows
 * share: the energies are summed over its rows; a head's are those of its channels. */
#include "select/rule.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    const int64_t width = s->rows * s->d_state;
    const int64_t per_set = s->rows_per_set * s->d_state;
    double *mean = malloc((size_t)width * sizeof *mean);
    double *scratch = malloc((size_t)width * sizeof *scratch);
    int64_t windows = 0;
    ssm_status status =
        mean == NULL || scratch == NULL
            ? ssm__fail_memory(err, "mode energies", 2 * (size_t)width * sizeof *mean)
            : ssm__calibration_energies(s->recording, s->row_scope, layer, mean, scratch, &windows,
                                        err);
    if (status == SSM_STATUS_OK) {
        memset(scores, 0, (size_t)(s->sets * s->d_state) * sizeof *scores);
        for (int64_t i = 0; i < width; i++) {
            scores[i / per_set * s->d_state + i % s->d_state] += mean[i];
        }
    }
    free(mean);
    free(scratch);
    return status;
}

const ssm__rule ssm__rule_static = {
    .name = "static", .needs = SSM__NEEDS_CALIBRATION, .score = score};
