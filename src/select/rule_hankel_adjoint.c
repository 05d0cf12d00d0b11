/* hankel-adjoint [ours; exact in the limit of a linear time-invariant system]: as hankel, with
 *   Q = mean_s (g_s C_s)² w_s,  w_s = 1 + ā_s² w_{s−1}
 * the adjoint Gramian in its forward form: w_s is what a unit state s tokens after the window's
 * begin would still have given to the outputs before, so one pass suffices. The instrument records
 * that mean (adjoint_moment). */
#include "select/rule.h"

static ssm_status score(const ssm__selection *s, int64_t layer, double *scores, ssm_error *err)
{
    return ssm__hankel_scores(s, layer, "adjoint_moment", scores, err);
}

const ssm__rule ssm__rule_hankel_adjoint = {
    .name = "hankel-adjoint", .needs = SSM__NEEDS_CALIBRATION | SSM__BY_ROW, .score = score};
