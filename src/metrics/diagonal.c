/* Diagonal identity [paper: a theorem; this is its algebra]. With energies only and |S| = |S_w| =
 * r, Ê²_static − Ê²_diag = Σ_{i∈S_w∖S} e_i − Σ_{j∈S∖S_w} e_j ≥ 0 in every channel and window. The
 * two sides are computed on two ways here: the left one from the nested sums of gap.c, the right
 * one from the sets. What is not equal up to float64 rounding, or is negative, is a mistake in
 * ranking, sets or sums.
 *
 * Energy-weighted churn [ours] = Σ_w Σ_h Σ_{i∈S_w∖S} e_i / Σ_w Σ_h Σ_i e_i. */
#include "metrics/measures.h"

#include <math.h>

double ssm__entering_energy(const double *energy, const uint64_t *in, const uint64_t *out,
                            int64_t words)
{
    double sum = 0.0;
    for (int64_t w = 0; w < words; w++) {
        for (uint64_t rest = in[w] & ~out[w]; rest != 0; rest &= rest - 1) {
            sum += energy[w * 64 + __builtin_ctzll(rest)];
        }
    }
    return sum;
}

double ssm__identity_violation(double fixed, double diag, double entering, double leaving)
{
    double left = fixed - diag;
    double violation = fmax(fabs(left - (entering - leaving)), -left);
    if (violation == 0.0) {
        return 0.0;
    }
    return fixed > 0.0 ? violation / fixed : (double)INFINITY;
}
