/* hankel [paper's modal Hankel singular value; the formula is ours]:
 *   score(h, i) = √(P Q),  P = mean_t x²,  Q = mean_t (g C)²
 * over the calibration windows. [ours] A set that rows share: √ of the mean over its rows of P Q,
 * so that every row counts by the energy that its product stands for. */
#include "select/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "select/calibration.h"

ssm_status ssm__hankel_scores(const ssm__selection *s, int64_t layer, const char *read,
                              double *scores, ssm_error *err)
{
    const int64_t width = s->rows * s->d_state;
    const int64_t per_set = s->rows_per_set * s->d_state;
    double *P = malloc((size_t)width * sizeof *P);
    double *Q = malloc((size_t)width * sizeof *Q);
    ssm_status status = P == NULL || Q == NULL
                            ? ssm__fail_memory(err, "moments", 2 * (size_t)width * sizeof *P)
                            : ssm__calibration_mean(s->recording, layer, "state_moment", P, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__calibration_mean(s->recording, layer, read, Q, err);
    }
    if (status == SSM_STATUS_OK) {
        memset(scores, 0, (size_t)(s->sets * s->d_state) * sizeof *scores);
        for (int64_t i = 0; i < width; i++) {
            scores[i / per_set * s->d_state + i % s->d_state] += P[i] * Q[i];
        }
        for (int64_t i = 0; i < s->sets * s->d_state; i++) {
            scores[i] = sqrt(scores[i] / (double)s->rows_per_set);
        }
    }
    free(P);
    free(Q);
    return status;
}

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    return ssm__hankel_scores(s, layer, "read_moment", scores, err);
}

const ssm__rule ssm__rule_hankel = {
    .name = "hankel", .needs = SSM__NEEDS_CALIBRATION | SSM__BY_ROW, .score = score};
