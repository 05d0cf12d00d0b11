/* train/mamba2_forward.c: Mamba-2's block forwards: projection, convolution, the chunked form of
 * the recurrence head by head, gated norm, projection. */
#include <string.h>

#include "train/mamba2_block.h"

/* ---- inputs of the recurrence ------------------------------------------------------------------
 */

static void convolve(const ssm__block_run *r, int64_t sequence, int64_t conv_group, int thread)
{
    ssm__convolve(r->run, &r->w->conv, conv_group,
                  ssm__wide_group(r->k->in, sequence, r->b.x_group + conv_group),
                  ssm__wide_group(r->s->u, sequence, conv_group),
                  r->s->threads + thread * r->s->thread_floats);
}

/* Sixteen modes of B or C of all tokens into the rows of their group; constants where they are
 * fixed. */
static void put_rows(const ssm__block_run *r, int64_t sequence, int64_t conv_group)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t number = conv_group - b->x_group; /* of the groups of B, then of C */
    const int64_t which = number / b->mode_groups % b->bc_groups;
    const bool is_C = number >= b->bc_groups * b->mode_groups;
    float *rows = ssm__block_bc(r, sequence, which) + (is_C ? r->run->length * b->padded_N : 0) +
                  number % b->mode_groups * SSM__LANES;
    const float *from = b->fixed ? r->w->fixed + number * SSM__LANES
                                 : ssm__wide_group(r->s->u, sequence, conv_group);
    const int64_t step = b->fixed ? 0 : SSM__LANES;
    for (int64_t t = 0; t < r->run->length; t++) {
        memcpy(rows + t * b->padded_N, from + t * step, SSM__LANES * sizeof(float));
    }
}

/* Δ of the sixteen heads of a group. */
static void put_steps(const ssm__block_run *r, int64_t sequence, int64_t dt_group, int thread)
{
    const ssm_config *c = &r->run->config->shape;
    const float low = (float)c->dt_limit_low, high = (float)c->dt_limit_high;
    const int64_t first = dt_group * SSM__LANES, length = r->run->length;
    const int64_t heads = ssm__least(SSM__LANES, r->b.H - first);
    float *lanes = r->s->threads + thread * r->s->thread_floats;
    r->run->kernels->softplus_bias(ssm__wide_group(r->k->in, sequence, r->b.dt_group + dt_group),
                                   r->w->dt_bias + first, lanes, length);
    for (int64_t i = 0; i < heads; i++) {
        float *steps = ssm__block_steps(r, r->s->delta, sequence, first + i);
        for (int64_t t = 0; t < length; t++) {
            const float step = lanes[t * SSM__LANES + i];
            steps[t] = step < low ? low : step > high ? high : step;
        }
    }
}

void ssm__block_inputs(const ssm__block_run *r, int64_t sequence, int64_t first, int64_t end,
                       int thread)
{
    const ssm__block_sizes *b = &r->b;
    for (int64_t group = first; group < end; group++) {
        if (group >= b->dt_group) {
            put_steps(r, sequence, group - b->dt_group, thread);
        } else if (group >= b->x_group) {
            if (group - b->x_group < b->convolved) {
                convolve(r, sequence, group - b->x_group, thread);
            }
            if (group >= b->bc_group) {
                put_rows(r, sequence, group - b->x_group);
            }
        }
    }
}

static void project(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const ssm__matrix w = ssm__block_in_matrix(r);
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, r->b.groups, &first, &end);
    ssm__project_groups(r->run, &w, r->run->in, r->b.d_model, r->k->in, sequence, first, end);
    ssm__block_inputs(r, sequence, first, end, thread);
}

/* ---- recurrence --------------------------------------------------------------------------------
 */

/* Products of the tokens from `token` on, into rows from `out` on. */
static void multiply(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token,
                     int64_t tokens, float *out)
{
    const int64_t N = r->b.padded_N;
    const float *B = ssm__block_seen(r, sequence, key) + token * N;
    const float *C = B + r->run->length * N;
    const ssm__matrix rows = {B, SSM_DTYPE_F32, tokens, N};
    for (int64_t t = 0; t < tokens; t += 16) { /* what is above the diagonal is not needed */
        const int64_t end = ssm__least(t + 16, tokens);
        r->run->kernels->linear(&rows, NULL, ssm__rows_view(C + t * N, N),
                                ssm__rows_view(out + t * SSM__TILE, SSM__TILE), end - t, 0, end);
    }
}

void ssm__block_multiply(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const int64_t key = task % r->b.keys, rest = task / r->b.keys;
    const int64_t chunk = rest % r->chunks, sequence = rest / r->chunks;
    const int64_t first = chunk * SSM__TILE, end = ssm__least(first + SSM__TILE, r->run->length);
    float *out = ssm__block_products(r, sequence, chunk, key);
    for (int64_t t = first, tokens; t < end; t += tokens) {
        tokens = r->b.gate_rank > 0 ? *ssm__gla_counts(r, sequence, key, t) : end - first;
        multiply(r, sequence, key, t, tokens, out + (t - first) * SSM__TILE);
    }
}

static void copy_groups(const float *from, ptrdiff_t from_stride, float *to, ptrdiff_t to_stride,
                        int64_t groups, int64_t tokens)
{
    for (int64_t g = 0; g < groups; g++) {
        memcpy(to + g * to_stride, from + g * from_stride,
               (size_t)(tokens * SSM__LANES) * sizeof *to);
    }
}

/* Tokens of one chunk, or of a piece of it, in tiles from those of u and y on. */
static void run_tokens(const ssm__block_run *r, int64_t sequence, int64_t head, int64_t token,
                       int64_t tokens, float *state, const float *u, float *y)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t key = ssm__block_key(b, head), row = token % SSM__TILE;
    const float *B = ssm__block_seen(r, sequence, key) + token * b->padded_N;
    const ssm__ssd_args args = {
        .tokens = tokens,
        .d_state = b->padded_N,
        .groups = b->head_groups,
        .u = u,
        .delta = ssm__block_steps(r, r->s->delta, sequence, head) + token,
        .A2 = r->w->A2[head],
        .B = B,
        .C = B + r->run->length * b->padded_N,
        .bc_stride = (ptrdiff_t)b->padded_N,
        .products = ssm__block_products(r, sequence, token / SSM__TILE, key) + row * SSM__TILE,
        .D = r->w->D + head * b->head_groups * SSM__LANES,
        .state = state,
        .y = y};
    if (b->gate_rank > 0) {
        ssm__gla_enter(r, sequence, key, token, state, state);
    }
    r->run->kernels->ssd(&args);
}

static void run_chunk(const ssm__block_run *r, int64_t sequence, int64_t head, int64_t chunk,
                      float *state, float *tiles)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t token = chunk * SSM__TILE, key = ssm__block_key(b, head);
    const int64_t end = ssm__least(token + SSM__TILE, r->run->length);
    const int64_t first = head * b->head_groups, at = token * SSM__LANES;
    const ptrdiff_t tile = SSM__TILE_ROWS * SSM__LANES;
    const ptrdiff_t stride = (ptrdiff_t)(r->s->u.rows * SSM__LANES);
    float *y = tiles + b->head_groups * tile;
    copy_groups(ssm__wide_group(r->s->u, sequence, first) + at, stride, tiles, tile, b->head_groups,
                end - token);
    for (int64_t t = token, tokens; t < end; t += tokens) {
        const int64_t row = (t - token) * SSM__LANES;
        tokens = b->gate_rank > 0 ? *ssm__gla_counts(r, sequence, key, t) : end - token;
        run_tokens(r, sequence, head, t, tokens, state, tiles + row, y + row);
    }
    copy_groups(y, tile, ssm__wide_group(r->k->v, sequence, first) + at, stride, b->head_groups,
                end - token);
}

/* A head of a sequence; leaves the state before every chunk. */
static void run_head(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const int64_t head = task % r->b.H, sequence = task / r->b.H;
    const int64_t floats = r->b.head_groups * r->b.padded_N * SSM__LANES;
    float *state = r->s->threads + thread * r->s->thread_floats;
    memset(state, 0, (size_t)floats * sizeof *state);
    for (int64_t chunk = 0; chunk < r->chunks; chunk++) {
        memcpy(ssm__block_state(r, r->k->states, sequence, chunk, head), state,
               (size_t)floats * sizeof *state);
        run_chunk(r, sequence, head, chunk, state, state + floats);
    }
}

/* ---- outputs -----------------------------------------------------------------------------------
 */

ssm__gated_norm_args ssm__block_norm(const ssm__block_run *r, int64_t sequence, int64_t token,
                                     int64_t tokens, int64_t norm)
{
    const ssm__block_sizes *b = &r->b;
    const ssm_config *c = &r->run->config->shape;
    const int64_t groups = b->x_group / b->norms, at = token * SSM__LANES;
    const int64_t first = norm * groups;
    return (ssm__gated_norm_args){
        .tokens = tokens,
        .groups = groups,
        .width = b->H * b->P / b->norms,
        .eps = (float)c->mixer_norm_eps,
        .norm_first = c->norm_before_gate,
        .weight = c->gated_norm ? r->w->norm + first * SSM__LANES : NULL,
        .v = ssm__wide_group(r->k->v, sequence, first) + at,
        .z = ssm__wide_group(r->k->in, sequence, first) + at,
        .v_stride = (ptrdiff_t)(r->k->v.rows * SSM__LANES),
        .z_stride = (ptrdiff_t)(r->k->in.rows * SSM__LANES),
    };
}

static void project_out(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const ssm__run *run = r->run;
    const ssm__matrix w = ssm__block_out_matrix(r);
    const ptrdiff_t stride = SSM__TILE_ROWS * SSM__LANES;
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, run->length - token);
    float *tile = r->s->threads + thread * r->s->thread_floats;
    for (int64_t norm = 0; norm < r->b.norms; norm++) {
        ssm__gated_norm_args args = ssm__block_norm(r, sequence, token, tokens, norm);
        args.y = tile + norm * args.groups * stride;
        args.y_stride = stride;
        run->kernels->training->ssd.gated_norm(&args);
    }
    float *out = run->out + (sequence * run->length + token) * w.rows;
    ssm__project_rows(run, &w, (ssm__view){tile, SSM__LANES, stride}, ssm__rows_view(out, w.rows),
                      tokens);
}

void ssm__block_unit_steps(const ssm__block_run *r)
{
    for (int64_t i = 0; i < r->run->sequences * r->b.H * r->chunks * SSM__TILE; i++) {
        r->s->delta[i] = 1.0f;
    }
}

void ssm__block_forward(const ssm__run *run)
{
    ssm__block_run r = ssm__block_run_of(run);
    if (!r.b.has_steps) {
        ssm__block_unit_steps(&r);
    }
    const int64_t chunks = run->sequences * r.chunks;
    ssm__pool_run(run->pool, project, &r, ssm__group_tasks(run, r.b.groups));
    if (r.b.gate_rank > 0) {
        ssm__pool_run(run->pool, ssm__gla_gates, &r, chunks);
    }
    ssm__pool_run(run->pool, ssm__block_multiply, &r, chunks * r.b.keys);
    ssm__pool_run(run->pool, run_head, &r, run->sequences * r.b.H);
    ssm__pool_run(run->pool, project_out, &r, chunks);
}
