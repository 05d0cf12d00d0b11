/* Migration gap [paper].
 *   E(r) = sqrt( Σ_w Σ_h Σ_{i,j∉S_{w,h}} G^{(w)}_{h,ij} / Σ_w Σ_h Y^{(w)}_h )
 *   ρ(r) = E_diag / E_static
 * diag: S_w = the window's own r modes of highest energy; static: one S per channel, by mean energy
 * over the calibration windows. ρ ≈ 1: the important modes are fixed; small ρ: they move. The sums
 * of both are over the same windows and channels, so the output energy cancels in ρ.
 * The sums at all r at once: recording/dropped.c. */
#include "metrics/measures.h"

#include <math.h>

void ssm__dropped_energies(const double *energy, int64_t n, const int32_t *order, double *error)
{
    error[n] = 0.0;
    for (int64_t r = n - 1; r >= 0; r--) {
        error[r] = error[r + 1] + energy[order[r]];
    }
}

double ssm__migration_gap(double diag, double fixed)
{
    return fixed > 0.0 ? sqrt(fmax(diag, 0.0) / fixed) : (double)NAN;
}
