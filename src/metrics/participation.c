/* Effective order [paper]: participation ratio PR_h = (Σ_i e_{h,i})² / Σ_i e_{h,i}², 1 ≤ PR ≤ N,
 * the number of modes that carry the channel's energy. [ours] Taken once per channel on the
 * energies summed over the evaluation windows; a channel without energy has none and is left out.
 */
#include "metrics/measures.h"

#include <math.h>

double ssm__participation_ratio(const double *energy, int64_t n)
{
    double sum = 0.0;
    double square = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += energy[i];
        square += energy[i] * energy[i];
    }
    return square > 0.0 ? sum * sum / square : (double)NAN;
}
