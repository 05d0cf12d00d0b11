/* instrument/accumulator.c: see the header. */
#include "instrument/accumulator.h"

#include <string.h>

#include "base/error.h"
#include "recording/schema.h"

_Static_assert((int)SSM__TILE == (int)SSM__BLOCK_TOKENS, "a tile is an energy block");

static void enter(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args)
{
    const ssm__accumulator *a = context;
    const int64_t N = args->d_state;
    const int64_t block = a->rows.count * SSM__LANES;
    const ssm__layer_sums *sums = &a->layers[layer];
    float *rows = sums->partial ? sums->partial + group * block : a->thread_block + thread * block;
    args->modes = a->thread_modes + (int64_t)thread * SSM__SUBTILE * (N + 1) * SSM__LANES;
    args->moments = rows + a->rows.state * SSM__LANES;
    args->adjoint = sums->adjoint + group * N * SSM__LANES;
}

/* The block is whole: its energies go into their place, its sums into the window's. */
static void finish_block(const ssm__accumulator *a, const ssm__layer_sums *sums, int64_t group,
                         int64_t block, float *rows, int64_t N)
{
    const ssm_config *c = a->model->config;
    float *energies = sums->energy_blocks + block * c->d_inner * N;
    for (int64_t lane = 0; lane < SSM__LANES && group * SSM__LANES + lane < c->d_inner; lane++) {
        float *out = energies + (group * SSM__LANES + lane) * N;
        for (int64_t n = 0; n < N; n++) {
            const int64_t row = a->rows.n_gram ? ssm__gram_index(n, n, N) : a->rows.energy + n;
            out[n] = rows[row * SSM__LANES + lane];
        }
    }
    const int64_t n_gram = a->rows.n_gram;
    const int64_t n_moments = a->rows.count - n_gram;
    const ssm__kernels *k = a->model->kernels;
    k->flush(rows, sums->gram + group * n_gram * SSM__LANES, n_gram * SSM__LANES);
    k->flush(rows + n_gram * SSM__LANES, sums->moments + group * n_moments * SSM__LANES,
             n_moments * SSM__LANES);
}

/* Asks for a group's float64 sums while the last tokens of its block are still to come: they have
 * left the second-level cache since the last block, and adding to them would wait for memory. */
static void prefetch_sums(const ssm__accumulator *a, const ssm__layer_sums *sums, int64_t group)
{
    enum { LINE = 64 / sizeof(double) };
    const int64_t n_gram = a->rows.n_gram * SSM__LANES;
    const int64_t n_moments = (a->rows.count - a->rows.n_gram) * SSM__LANES;
    for (int64_t i = 0; i < n_gram; i += LINE) {
        __builtin_prefetch(sums->gram + group * n_gram + i, 1, 2);
    }
    for (int64_t i = 0; i < n_moments; i += LINE) {
        __builtin_prefetch(sums->moments + group * n_moments + i, 1, 2);
    }
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args)
{
    const ssm__accumulator *a = context;
    const ssm__kernels *k = a->model->kernels;
    float *rows = args->moments - a->rows.state * SSM__LANES;
    if (a->rows.n_gram) {
        k->gram(args->modes, args->tokens, args->d_state, rows);
    } else {
        k->energy(args->modes, args->tokens, args->d_state, rows + a->rows.energy * SSM__LANES);
    }
    const int64_t end = position + args->tokens;
    if (end % SSM__TILE == 0 || end == a->tokens) {
        finish_block(a, &a->layers[layer], group, (end - 1) / SSM__TILE, rows, args->d_state);
    } else if (end % SSM__TILE == SSM__TILE - SSM__SUBTILE) {
        prefetch_sums(a, &a->layers[layer], group);
    }
}

static void layout_layer(ssm__arena *arena, const ssm__accumulator *a, ssm__layer_sums *sums)
{
    const ssm_config *c = a->model->config;
    const int64_t lanes = a->model->n_groups16 * SSM__LANES;
    ssm__layer_sums s = {0};
    s.gram = SSM__TAKE(arena, double, lanes * a->rows.n_gram);
    s.moments = SSM__TAKE(arena, double, lanes *(a->rows.count - a->rows.n_gram));
    s.adjoint = SSM__TAKE(arena, float, lanes * c->d_state);
    s.partial = a->keeps_partial ? SSM__TAKE(arena, float, lanes * a->rows.count) : NULL;
    s.energy_blocks =
        SSM__TAKE(arena, float, ssm__energy_blocks(a->window) * c->d_inner * c->d_state);
    if (arena->memory) {
        *sums = s;
    }
}

static void layout(ssm__arena *arena, ssm__accumulator *a, const bool *recorded)
{
    const ssm_config *c = a->model->config;
    a->layers = SSM__TAKE(arena, ssm__layer_sums, c->n_layers);
    a->recorded = SSM__TAKE(arena, bool, c->n_layers);
    a->thread_modes =
        SSM__TAKE(arena, float, a->threads *SSM__SUBTILE *(c->d_state + 1) * SSM__LANES);
    a->thread_block = SSM__TAKE(arena, float, a->threads * a->rows.count * SSM__LANES);
    a->transpose = SSM__TAKE(arena, double, a->rows.n_gram *SSM__LANES);
    int64_t first = -1; /* recorded layer */
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        const bool wanted = ssm__has_states(a->model, layer) && (!recorded || recorded[layer]);
        if (arena->memory) {
            a->recorded[layer] = wanted;
        }
        if (wanted && (first < 0 || !a->one_layer)) {
            layout_layer(arena, a, a->layers ? &a->layers[layer] : NULL);
            first = layer;
        } else if (wanted && arena->memory) {
            a->layers[layer] = a->layers[first];
        }
    }
}

ssm_status ssm__require_states(const ssm_model *model, ssm_error *err)
{
    const int64_t n_layers = model->config->n_layers;
    if (model->n_attention < n_layers) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(
        err, SSM_STATUS_USAGE, SSM__IN_FILE(ssm_checkpoint_path(ssm_model_checkpoint(model))),
        "all %lld layers are attention: there are no states to look at", (long long)n_layers);
}

ssm_status ssm__accumulator_create(const ssm_model *model, const ssm__accumulator_options *options,
                                   ssm__accumulator *out, ssm_error *err)
{
    *out = (ssm__accumulator){.model = model,
                              .rows = ssm__mode_rows_of(model->config->d_state, options->gram),
                              .window = options->window,
                              .keeps_partial = !options->whole_blocks,
                              .one_layer = options->one_layer,
                              .threads = options->pool ? ssm_pool_threads(options->pool) : 1};
    ssm__arena count = {0};
    layout(&count, out, options->recorded);
    if (count.overflow) {
        return ssm__fail_memory(err, "the sums of a window", SIZE_MAX);
    }
    SSM__TRY(ssm__arena_create(&out->arena, count.used, err));
    layout(&out->arena, out, options->recorded);
    out->sink =
        (ssm__mode_sink){.context = out, .enter = enter, .leave = leave, .layers = out->recorded};
    return SSM_STATUS_OK;
}

void ssm__accumulator_free(ssm__accumulator *accumulator)
{
    ssm__arena_free(&accumulator->arena);
}

void ssm__accumulator_begin_layer(ssm__accumulator *a, int64_t layer)
{
    const ssm_config *c = a->model->config;
    const size_t lanes = (size_t)(a->model->n_groups16 * SSM__LANES);
    const ssm__layer_sums *s = &a->layers[layer];
    memset(s->gram, 0, lanes * (size_t)a->rows.n_gram * sizeof *s->gram);
    memset(s->moments, 0, lanes * (size_t)(a->rows.count - a->rows.n_gram) * sizeof *s->moments);
    memset(s->adjoint, 0, lanes * (size_t)c->d_state * sizeof *s->adjoint);
    if (s->partial) {
        memset(s->partial, 0, lanes * (size_t)a->rows.count * sizeof *s->partial);
    }
}

void ssm__accumulator_begin(ssm__accumulator *a, int64_t tokens)
{
    a->tokens = tokens;
    bool cleared = false;
    for (int64_t layer = 0; layer < a->model->config->n_layers; layer++) {
        if (a->recorded[layer] && !(a->one_layer && cleared)) {
            ssm__accumulator_begin_layer(a, layer);
            cleared = true;
        }
    }
}

void ssm__accumulator_transpose(ssm__accumulator *a, int64_t layer)
{
    const int64_t n_gram = a->rows.n_gram;
    for (int64_t group = 0; group < a->model->n_groups16; group++) {
        double *block = a->layers[layer].gram + group * n_gram * SSM__LANES;
        memcpy(a->transpose, block, (size_t)(n_gram * SSM__LANES) * sizeof *block);
        for (int64_t row = 0; row < n_gram; row++) {
            for (int64_t lane = 0; lane < SSM__LANES; lane++) {
                block[lane * n_gram + row] = a->transpose[row * SSM__LANES + lane];
            }
        }
    }
}

double ssm__accumulator_moment(const ssm__accumulator *a, int64_t layer, int64_t row,
                               int64_t channel)
{
    const int64_t n_gram = a->rows.n_gram;
    const int64_t per_group = (a->rows.count - n_gram) * SSM__LANES;
    return a->layers[layer].moments[channel / SSM__LANES * per_group + (row - n_gram) * SSM__LANES +
                                    channel % SSM__LANES];
}

double ssm__accumulator_gram(const ssm__accumulator *a, int64_t layer, int64_t channel, int64_t i,
                             int64_t j)
{
    const int64_t row = i <= j ? ssm__gram_index(i, j, a->model->config->d_state)
                               : ssm__gram_index(j, i, a->model->config->d_state);
    const int64_t group = channel / SSM__LANES;
    return a->layers[layer]
        .gram[(group * a->rows.n_gram + row) * SSM__LANES + channel % SSM__LANES];
}
