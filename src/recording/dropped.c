/* Top-r sets of one order are nested, so one pass from the last mode of the order to the first
 * gives the error at every r: adding mode i to the dropped ones D adds G_ii + 2 Σ_{j∈D} G_ij. */
#include "recording/dropped.h"

#include <math.h>

#include "recording/schema.h"

void ssm__dropped_errors(const float *gram, int64_t n, const int32_t *order, double *error)
{
    error[n] = 0.0;
    for (int64_t r = n - 1; r >= 0; r--) {
        int64_t added = order[r];
        double cross = 0.0;
        for (int64_t k = r + 1; k < n; k++) {
            int64_t other = order[k];
            int64_t low = added < other ? added : other;
            int64_t high = added < other ? other : added;
            cross += (double)gram[ssm__gram_index(low, high, n)];
        }
        error[r] = error[r + 1] + (double)gram[ssm__gram_index(added, added, n)] + 2.0 * cross;
    }
}

double ssm__relative_error(double dropped, double output)
{
    return output > 0.0 ? sqrt(fmax(dropped, 0.0) / output) : (double)NAN;
}
