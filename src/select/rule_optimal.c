/* optimal [ours; no paper has it]: per set, of all kept sets of `budget` modes the one with the
 * least error on the calibration Gram Ḡ (summed over the domains and over the set's rows)
 *   Σ_{i,j dropped} Ḡ_ij,
 * by looking at every one of them, for N ≤ 20. Of equal errors the set that drops the higher mode
 * at the first difference, seen from the highest mode down: lower modes stay. Mode 16 channels a
 * task of the pool; C(16, 8) = 12,870 sets a channel. */
#include "select/rule.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "recording/schema.h"
#include "select/calibration.h"

typedef struct search {
    const ssm__kernels *kernels;
    int64_t sets, d_state, budget;
    double *lanes; /* [⌈sets/16⌉][N(N+1)/2][16] */
    uint8_t *keep; /* [sets][N] */
} search;

static void search_group(void *context, int64_t group, int thread)
{
    (void)thread;
    const search *s = context;
    const int64_t N = s->d_state;
    const int64_t entries = N * (N + 1) / 2;
    uint32_t dropped[SSM__LANES];
    double errors[SSM__LANES];
    s->kernels->least_dropped(s->lanes + group * entries * SSM__LANES, N, N - s->budget, dropped,
                              errors);
    for (int64_t lane = 0; lane < SSM__LANES && group * SSM__LANES + lane < s->sets; lane++) {
        for (int64_t n = 0; n < N; n++) {
            s->keep[(group * SSM__LANES + lane) * N + n] = (dropped[lane] >> n & 1) == 0;
        }
    }
}

/* Rows of the Gram of (m, f) → lanes without f; the lanes beyond the last set stay zero. */
static void to_lanes(const double *gram, search *s)
{
    const int64_t N = s->d_state;
    const int64_t entries = N * (N + 1) / 2;
    for (int64_t set = 0; set < s->sets; set++) {
        double *lane = s->lanes + set / SSM__LANES * entries * SSM__LANES + set % SSM__LANES;
        for (int64_t i = 0; i < N; i++) {
            for (int64_t j = i; j < N; j++, lane += SSM__LANES) {
                *lane = gram[set * ssm__gram_entries(N) + ssm__gram_index(i, j, N)];
            }
        }
    }
}

static ssm_status choose(const ssm__selection *selection, int64_t layer, int64_t budget,
                         uint8_t *keep, ssm_error *err)
{
    const int64_t N = selection->d_state;
    if (N > SSM__SUBSET_MODES) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule optimal looks at every set, which is for at most %d modes; this "
                         "recording has %lld: use greedy-swap",
                         SSM__SUBSET_MODES, (long long)N);
    }
    const int64_t groups = (selection->sets + SSM__LANES - 1) / SSM__LANES;
    const size_t lanes = (size_t)(groups * N * (N + 1) / 2 * SSM__LANES);
    const size_t entries = (size_t)(selection->sets * ssm__gram_entries(N));
    search s = {.kernels = ssm__kernels_for(selection->options->isa),
                .sets = selection->sets,
                .d_state = N,
                .budget = budget,
                .lanes = calloc(lanes, sizeof *s.lanes),
                .keep = keep};
    double *gram = malloc(entries * sizeof *gram);
    ssm_status status = s.lanes == NULL || gram == NULL
                            ? ssm__fail_memory(err, "a layer's Grams", entries * sizeof *gram)
                            : ssm__calibration_gram(selection->recording, layer,
                                                    selection->rows_per_set, gram, err);
    if (status == SSM_STATUS_OK) {
        to_lanes(gram, &s);
        ssm__pool_run(selection->options->pool, search_group, &s, groups);
    }
    free(s.lanes);
    free(gram);
    return status;
}

const ssm__rule ssm__rule_optimal = {
    .name = "optimal", .needs = SSM__NEEDS_CALIBRATION | SSM__NEEDS_GRAM, .choose = choose};
