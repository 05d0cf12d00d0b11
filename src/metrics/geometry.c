/* Geometry over depth [ours; the paper describes it in words]. At one budget:
 *   migrating layers  ρ ≤ (1 + min ρ)/2
 *   depth             layer / (n_layers − 1), 0 = first
 *   band median       median of ρ over the migrating layers
 *   hull              the layers from the first migrating one to the last; contiguous: all of them
 *                     migrate, else punctuated; hull_share = migrating / layers of the hull
 *   static tail       how many layers at the end have ρ ≥ 0.95 without a break
 * A recording of some layers: hull and tail are over the recorded ones. Layers whose ρ is NaN do
 * not migrate and end a tail. */
#include "metrics/measures.h"

#include <math.h>

#include "base/quantile.h"

static const double static_rho = 0.95;

static void find_minimum(const double *rho, const int64_t *layers, int64_t n,
                         ssm_across_layers *out)
{
    out->min_rho = (double)NAN;
    out->min_rho_layer = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(rho[i]) && !(rho[i] >= out->min_rho)) {
            out->min_rho = rho[i];
            out->min_rho_layer = layers[i];
        }
    }
}

void ssm__geometry(const double *rho, const int64_t *layers, int64_t n, int64_t n_layers,
                   double *scratch, ssm_across_layers *out)
{
    find_minimum(rho, layers, n, out);
    double threshold = (1.0 + out->min_rho) / 2.0;
    int64_t first = 0;
    int64_t last = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (rho[i] <= threshold) {
            first = count == 0 ? i : first;
            last = i;
            scratch[count] = rho[i];
            out->migrating_layers[count] = layers[i];
            out->migrating_depths[count] =
                n_layers > 1 ? (double)layers[i] / (double)(n_layers - 1) : 0.0;
            count++;
        }
    }
    out->n_migrating = count;
    ssm__sort(scratch, count);
    out->band_median = ssm__quantile(scratch, count, 0.5);
    out->hull_share = count > 0 ? (double)count / (double)(last - first + 1) : (double)NAN;
    out->contiguous = count > 0 && count == last - first + 1;
    out->static_tail = 0;
    while (out->static_tail < n && rho[n - 1 - out->static_tail] >= static_rho) {
        out->static_tail++;
    }
    if (isnan(out->min_rho)) {
        out->static_tail = -1;
    }
}
