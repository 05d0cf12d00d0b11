/* instrument/head_errors.c: see the header. */
#include "instrument/head_errors.h"

#include <string.h>

#include "base/error.h"
#include "recording/energies.h"

static int64_t n_groups(const ssm__head_errors *e)
{
    return e->sums->n_heads * e->sums->head_groups;
}

static void layout(ssm__arena *arena, ssm__head_errors *e)
{
    const int64_t lanes = e->n_sets * SSM__LANES;
    e->factors = SSM__TAKE(arena, float, lanes *n_groups(e) * e->sums->d_state);
    e->errors = SSM__TAKE(arena, double, lanes *n_groups(e));
    e->thread_errors = SSM__TAKE(arena, float, lanes * e->sums->head_groups * e->sums->threads);
}

ssm_status ssm__head_errors_create(const ssm__head_sums *sums, int64_t n_sets,
                                   ssm__head_errors *out, ssm_error *err)
{
    *out = (ssm__head_errors){.sums = sums, .n_sets = n_sets};
    ssm__arena count = {0};
    layout(&count, out);
    if (count.overflow) {
        return ssm__fail_memory(err, "the sets of all channels", SIZE_MAX);
    }
    SSM__TRY(ssm__arena_create(&out->arena, count.used, err));
    layout(&out->arena, out);
    return SSM_STATUS_OK;
}

void ssm__head_errors_free(ssm__head_errors *errors)
{
    ssm__arena_free(&errors->arena);
}

void ssm__head_errors_keep(ssm__head_errors *errors, int64_t set, const uint16_t *ranks,
                           int64_t budget)
{
    const ssm_config *c = errors->sums->model->config;
    const int64_t N = errors->sums->d_state;
    float *out = errors->factors + set * n_groups(errors) * N * SSM__LANES;
    memset(out, 0, (size_t)(n_groups(errors) * N * SSM__LANES) * sizeof *out);
    for (int64_t channel = 0; channel < ssm__scan_channels(c); channel++) {
        const int64_t lane = ssm__lane_of(c, channel);
        float *to = out + lane / SSM__LANES * N * SSM__LANES + lane % SSM__LANES;
        for (int64_t n = 0; n < N; n++) {
            to[n * SSM__LANES] = ranks[channel * N + n] >= budget ? 1.0f : 0.0f;
        }
    }
}

void ssm__head_errors_begin(ssm__head_errors *errors)
{
    memset(errors->errors, 0,
           (size_t)(n_groups(errors) * errors->n_sets * SSM__LANES) * sizeof *errors->errors);
}

void ssm__head_errors_add(const ssm__head_errors *errors, int64_t group, int64_t position,
                          int64_t window, const ssm__head_scan_args *args)
{
    const ssm__head_sums *s = errors->sums;
    const ssm__kernels *k = s->model->kernels;
    const int64_t N = s->d_state;
    const int64_t count = errors->n_sets * SSM__LANES;
    const int64_t thread = ssm__head_sums_thread(s, args);
    float *block =
        errors->thread_errors + (thread * s->head_groups + group % s->head_groups) * count;
    k->dropped(args->modes, args->tokens, N, errors->n_sets,
               errors->factors + group * N * SSM__LANES,
               (ptrdiff_t)(n_groups(errors) * N * SSM__LANES), block);
    const int64_t end = position + args->tokens;
    if (end % SSM__TILE == 0 || end == window) {
        k->flush(block, errors->errors + group * count, count);
    }
}

double ssm__head_errors_total(const ssm__head_errors *errors, int64_t set)
{
    double total = 0.0; /* padding channels have none */
    for (int64_t group = 0; group < n_groups(errors); group++) {
        const double *lanes = errors->errors + (group * errors->n_sets + set) * SSM__LANES;
        for (int64_t lane = 0; lane < SSM__LANES; lane++) {
            total += lanes[lane];
        }
    }
    return total;
}

void ssm__head_ranks(const ssm_config *config, const double *energies, int32_t *order,
                     uint16_t *ranks)
{
    const int64_t N = config->d_state;
    for (int64_t channel = 0; channel < ssm__scan_channels(config); channel++) {
        ssm__rank_modes(energies + channel * N, N, order);
        for (int64_t k = 0; k < N; k++) {
            ranks[channel * N + order[k]] = (uint16_t)k;
        }
    }
}
