/* instrument/head_sums.c: see the header. */
#include "instrument/head_sums.h"

#include <string.h>

#include "base/error.h"
#include "recording/schema.h"

/* Most rows of a float32 chain, unless a token has more: they stay in the second-level cache. */
enum { CHAIN_ROWS = 256 };

/* ---- the sink -------------------------------------------------------------------------------- */

static int64_t modes_count(const ssm__head_sums *s)
{
    return SSM__SUBTILE * (s->d_state + 1) * SSM__LANES;
}

int64_t ssm__head_sums_thread(const ssm__head_sums *sums, const ssm__head_scan_args *args)
{
    return (args->gates - sums->thread_gates) / (SSM__SUBTILE * (SSM__LANES + 1));
}

static int64_t n_rows(const ssm__head_sums *s)
{
    return 2 * s->d_state + 1;
}

static int64_t padded_modes(const ssm__head_sums *s)
{
    return ssm__ceil_div(s->d_state, SSM__LANES) * SSM__LANES;
}

static float *group_block(const ssm__head_sums *s, int64_t thread, int64_t group)
{
    const int64_t block = n_rows(s) * SSM__LANES;
    return s->thread_block + (thread * s->head_groups + group % s->head_groups) * block;
}

static void enter_head(void *context, int64_t layer, int64_t group, int thread,
                       ssm__head_scan_args *args)
{
    (void)layer;
    const ssm__head_sums *s = context;
    args->modes = s->has_gram ? s->thread_modes + thread * modes_count(s) : NULL;
    args->moments = group_block(s, thread, group);
    args->gates = s->thread_gates + thread * (SSM__LANES + 1) * SSM__SUBTILE;
    args->weights = args->gates + SSM__SUBTILE * SSM__LANES;
    if (group % s->head_groups == 0) {
        memset(args->gates, 0, (size_t)(args->tokens * SSM__LANES) * sizeof(float));
    }
    args->adjoint = s->adjoint + group * SSM__LANES;
}

/* All rows of at most 16 tokens are there: the head's Gram grows by them. */
static void add_gram(const ssm__head_sums *s, int64_t head, const float *panels, const float *last,
                     int64_t tokens)
{
    double *gram = s->gram + head * ssm__rows_gram_count(s->d_state);
    for (int64_t t = 0; t < tokens; t += s->call_tokens) {
        const int64_t row = t * s->head_rows;
        const int64_t rows = ssm__smaller(s->call_tokens, tokens - t) * s->head_rows;
        s->model->kernels->gram_rows(panels + row * SSM__LANES, (ptrdiff_t)s->panel_stride,
                                     last + row, rows, s->d_state, gram);
    }
}

/* All groups have added their gates: what the head reads. */
static void add_reads(const ssm__head_sums *s, int64_t head, int64_t thread,
                      const ssm__head_scan_args *args)
{
    const int64_t width = padded_modes(s);
    float *reads = s->thread_reads + thread * 2 * width;
    if (!args->z) { /* the gate is 1, also in the padding */
        const float share = (float)s->model->config->head_dim / (float)SSM__LANES;
        for (int64_t i = 0; i < args->tokens * SSM__LANES; i++) {
            args->gates[i] = share;
        }
    }
    s->model->kernels->head_reads(args->C, args->bc_stride, args->gates, args->weights,
                                  args->tokens, s->d_state, reads, reads + width);
    for (int64_t t = 0; t < args->tokens; t++) {
        s->delta[head] += (double)args->delta[t];
    }
}

/* The block of a head is whole: its energies go into their place, its sums into the window's. */
static void finish_block(const ssm__head_sums *s, int64_t head, int64_t block, float *rows)
{
    const int64_t N = s->d_state;
    const int64_t per_group = n_rows(s) * SSM__LANES;
    double *sums = s->sums + head * s->head_groups * per_group;
    for (int64_t n = 0; n < N; n++) {
        double energy = 0.0; /* padding channels have none */
        for (int64_t g = 0; g < s->head_groups; g++) {
            const float *lanes = rows + g * per_group + n * SSM__LANES;
            for (int64_t lane = 0; lane < SSM__LANES; lane++) {
                energy += (double)lanes[lane];
            }
        }
        s->energy_blocks[(block * s->n_heads + head) * N + n] = (float)energy;
    }
    s->model->kernels->flush(rows, sums, s->head_groups * per_group);
    if (block + 1 == ssm__energy_blocks(s->tokens) / 2) {
        for (int64_t g = 0; g < s->head_groups; g++) {
            memcpy(s->half + (head * s->head_groups + g) * N * SSM__LANES, sums + g * per_group,
                   (size_t)(N * SSM__LANES) * sizeof *sums);
        }
    }
}

static void leave_head(void *context, int64_t layer, int64_t group, int64_t position,
                       const ssm__head_scan_args *args)
{
    (void)layer;
    const ssm__head_sums *s = context;
    const int64_t thread = ssm__head_sums_thread(s, args);
    const int64_t head = group / s->head_groups;
    const int64_t within = group % s->head_groups;
    float *panels = s->thread_rows + thread * s->row_floats;
    float *last = panels + s->row_floats - SSM__SUBTILE * s->head_rows;
    if (s->has_gram) {
        s->model->kernels->mode_rows(args->modes, args->tokens, s->d_state, s->head_rows,
                                     panels + within * SSM__LANES * SSM__LANES,
                                     (ptrdiff_t)s->panel_stride, last + within * SSM__LANES);
    }
    if (within + 1 < s->head_groups) {
        return;
    }
    if (s->has_gram) {
        add_gram(s, head, panels, last, args->tokens);
    }
    add_reads(s, head, thread, args);
    const int64_t end = position + args->tokens;
    if (end % SSM__TILE == 0 || end == s->tokens) {
        const int64_t width = 2 * padded_modes(s);
        finish_block(s, head, (end - 1) / SSM__TILE, group_block(s, thread, head * s->head_groups));
        s->model->kernels->flush(s->thread_reads + thread * width, s->reads + head * width, width);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void layout(ssm__arena *arena, ssm__head_sums *s, const bool *recorded)
{
    const ssm_config *c = s->model->config;
    const int64_t groups = s->n_heads * s->head_groups;
    const int64_t N = s->d_state;
    s->recorded = SSM__TAKE(arena, bool, c->n_layers);
    s->gram = SSM__TAKE(arena, double, s->has_gram ? s->n_heads *ssm__rows_gram_count(N) : 0);
    s->sums = SSM__TAKE(arena, double, groups *n_rows(s) * SSM__LANES);
    s->reads = SSM__TAKE(arena, double, s->n_heads * 2 * padded_modes(s));
    s->delta = SSM__TAKE(arena, double, s->n_heads);
    s->half = SSM__TAKE(arena, double, groups *N *SSM__LANES);
    s->adjoint = SSM__TAKE(arena, float, groups *SSM__LANES);
    s->energy_blocks = SSM__TAKE(arena, float, ssm__energy_blocks(s->window) * s->n_heads * N);
    s->thread_modes = SSM__TAKE(arena, float, s->has_gram ? s->threads *modes_count(s) : 0);
    s->thread_block = SSM__TAKE(arena, float, s->threads * s->head_groups * n_rows(s) * SSM__LANES);
    s->thread_reads = SSM__TAKE(arena, float, s->threads * 2 * padded_modes(s));
    s->thread_gates = SSM__TAKE(arena, float, s->threads *SSM__SUBTILE *(SSM__LANES + 1));
    s->thread_rows = SSM__TAKE(arena, float, s->has_gram ? s->threads * s->row_floats : 0);
    for (int64_t layer = 0; arena->memory && layer < c->n_layers; layer++) {
        s->recorded[layer] =
            s->model->blocks[layer].kind == SSM_LAYER_MAMBA2 && (!recorded || recorded[layer]);
    }
}

ssm_status ssm__head_sums_create(const ssm_model *model, int64_t window, bool gram,
                                 const bool *recorded, ssm_pool *pool, ssm__head_sums *out,
                                 ssm_error *err)
{
    const ssm_config *c = model->config;
    const int64_t head_groups = ssm__groups_per_head(c);
    *out = (ssm__head_sums){.model = model,
                            .has_gram = gram,
                            .n_heads = c->n_heads,
                            .head_groups = head_groups,
                            .d_state = c->d_state,
                            .head_rows = head_groups * SSM__LANES,
                            .call_tokens = SSM__SUBTILE,
                            .window = window,
                            .threads = pool ? ssm_pool_threads(pool) : 1};
    while (out->call_tokens > 1 && out->call_tokens * out->head_rows > CHAIN_ROWS) {
        out->call_tokens /= 2;
    }
    const int64_t rows = SSM__SUBTILE * out->head_rows;
    out->panel_stride = (rows + 1) * SSM__LANES; /* odd: a row's lines in different cache sets */
    out->row_floats = ssm__ceil_div(c->d_state, SSM__LANES) * out->panel_stride + rows;
    ssm__arena count = {0};
    layout(&count, out, recorded);
    if (count.overflow) {
        return ssm__fail_memory(err, "the sums of a window", SIZE_MAX);
    }
    SSM__TRY(ssm__arena_create(&out->arena, count.used, err));
    layout(&out->arena, out, recorded);
    out->sink = (ssm__mode_sink){.context = out,
                                 .enter_head = enter_head,
                                 .leave_head = leave_head,
                                 .layers = out->recorded};
    return SSM_STATUS_OK;
}

void ssm__head_sums_free(ssm__head_sums *sums)
{
    ssm__arena_free(&sums->arena);
}

void ssm__head_sums_begin(ssm__head_sums *s, int64_t tokens)
{
    const size_t groups = (size_t)(s->n_heads * s->head_groups);
    const size_t gram = (size_t)(s->n_heads * ssm__rows_gram_count(s->d_state));
    s->tokens = tokens;
    memset(s->gram, 0, s->has_gram ? gram * sizeof *s->gram : 0);
    memset(s->sums, 0, groups * (size_t)n_rows(s) * SSM__LANES * sizeof *s->sums);
    memset(s->reads, 0, (size_t)(s->n_heads * 2 * padded_modes(s)) * sizeof *s->reads);
    memset(s->delta, 0, (size_t)s->n_heads * sizeof *s->delta);
    memset(s->half, 0, groups * (size_t)s->d_state * SSM__LANES * sizeof *s->half);
    memset(s->adjoint, 0, groups * SSM__LANES * sizeof *s->adjoint);
}

void ssm__head_sums_drop_blocks(ssm__head_sums *s)
{
    memset(s->thread_block, 0,
           (size_t)(s->threads * s->head_groups * n_rows(s) * SSM__LANES) * sizeof(float));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Entry k of a dense triangle never lies behind its place in the padded one: rows only shrink. */
void ssm__head_sums_pack(ssm__head_sums *s)
{
    const int64_t N = s->d_state;
    double *out = s->gram;
    for (int64_t head = 0; head < s->n_heads; head++) {
        const double *in = s->gram + head * ssm__rows_gram_count(N);
        for (int64_t i = 0; i <= N; i++) {
            for (int64_t j = i; j <= N; j++) {
                *out++ = in[ssm__rows_gram_at(i, j, N)];
            }
        }
    }
}

static int64_t lane_place(const ssm__head_sums *s, int64_t rows, int64_t row, int64_t channel)
{
    const int64_t lane = ssm__lane_of(s->model->config, channel);
    return (lane / SSM__LANES * rows + row) * SSM__LANES + lane % SSM__LANES;
}

double ssm__head_sums_at(const ssm__head_sums *sums, int64_t row, int64_t channel)
{
    return sums->sums[lane_place(sums, n_rows(sums), row, channel)];
}

double ssm__head_sums_half(const ssm__head_sums *sums, int64_t n, int64_t channel)
{
    return sums->half[lane_place(sums, sums->d_state, n, channel)];
}

double ssm__head_sums_read(const ssm__head_sums *sums, bool weighted, int64_t n, int64_t head)
{
    return sums->reads[(2 * head + (weighted ? 1 : 0)) * padded_modes(sums) + n];
}
