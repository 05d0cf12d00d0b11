/* activity [paper's timestep activity, predicted to fail; the formula is ours]:
 *   score(h, i) = mean_t Δ_{h,t} · |A_{h,i}|
 * how fast a mode forgets, whatever it gives to the output. A set that rows share: the sum over its
 * rows. Mamba-2 has one A a head, so that all modes of a head would tie: refused. */
#include "select/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "select/calibration.h"

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    const int64_t N = s->d_state;
    const ssm_tensor *A = NULL;
    double *delta = malloc((size_t)s->rows * sizeof *delta);
    ssm_status status = delta == NULL
                            ? ssm__fail_memory(err, "time steps", (size_t)s->rows * sizeof *delta)
                            : ssm__calibration_mean(s->recording, layer, "delta_mean", delta, err);
    status = status == SSM_STATUS_OK ? ssm_recording_A(s->recording, layer, &A, err) : status;
    status = status == SSM_STATUS_OK ? ssm__check_finite(A, false, err) : status;
    if (status == SSM_STATUS_OK) {
        memset(scores, 0, (size_t)(s->sets * N) * sizeof *scores);
        for (int64_t i = 0; i < s->rows * N; i++) {
            float rate; /* the file gives no alignment */
            memcpy(&rate, (const char *)A->data + (size_t)i * sizeof rate, sizeof rate);
            scores[i / N / s->rows_per_set * N + i % N] += delta[i / N] * fabs((double)rate);
        }
    }
    free(delta);
    return status;
}

const ssm__rule ssm__rule_activity = {
    .name = "activity", .needs = SSM__NEEDS_CALIBRATION | SSM__NO_HEADS, .score = score};
