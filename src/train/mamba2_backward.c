/* train/mamba2_backward.c: Mamba-2's block backwards. The gradient of the state behind every chunk
 * goes from chunk to chunk, head by head; all else of a chunk stands alone, so that its heads are
 * worked on by one task, which sums what they give to B and C. */
#include <string.h>

#include "train/mamba2_block.h"

static int64_t input_groups(const ssm__block_sizes *b)
{
    return b->groups - b->x_group;
}

/* What forward computed behind in_proj, again. */
static void inputs_again(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const int64_t before = r->b.x_group;
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, input_groups(&r->b), &first, &end);
    ssm__block_inputs(r, sequence, before + first, before + end, thread);
}

/* A tile of tokens through out_proj and the norm: y, dv, dz, and the parts of the norm's weight,
 * which wait in the place of du. */
static void back_out(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const ssm__run *run = r->run;
    const ssm__block_scratch *s = r->s;
    const ssm__matrix w = ssm__block_out_matrix(r);
    const ptrdiff_t tile = SSM__TILE_ROWS * SSM__LANES;
    const ptrdiff_t stride = (ptrdiff_t)(s->d.rows * SSM__LANES);
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, run->length - token), at = token * SSM__LANES;
    float *dy = s->threads + thread * s->thread_floats;
    const float *dout = run->dout + (sequence * run->length + token) * w.rows;
    run->kernels->training->linear_input_gradient(&w, ssm__rows_view(dout, w.rows),
                                                  (ssm__view){dy, SSM__LANES, tile}, tokens, 0,
                                                  w.cols, false);
    for (int64_t norm = 0; norm < r->b.norms; norm++) {
        ssm__gated_norm_args args = ssm__block_norm(r, sequence, token, tokens, norm);
        const int64_t first = norm * args.groups;
        args.dy = dy + first * tile;
        args.dy_stride = tile;
        args.y = ssm__wide_group(s->y, sequence, first) + at;
        args.dv = ssm__wide_group(s->dv, sequence, first) + at;
        args.dz = ssm__wide_group(s->d, sequence, first) + at;
        args.dw = ssm__wide_group(s->d, sequence, r->b.x_group + first) + at;
        args.y_stride = args.dv_stride = args.dz_stride = args.dw_stride = stride;
        run->kernels->training->ssd.gated_norm_backward(&args);
    }
}

ssm__ssd_chunk ssm__block_chunk(const ssm__block_run *r, int64_t sequence, int64_t token,
                                int64_t tokens, int64_t head)
{
    const ssm__block_sizes *b = &r->b;
    const float *B = ssm__block_seen(r, sequence, ssm__block_key(b, head)) + token * b->padded_N;
    return (ssm__ssd_chunk){
        .tokens = tokens,
        .d_state = b->padded_N,
        .groups = b->head_groups,
        .delta = ssm__block_steps(r, r->s->delta, sequence, head) + token,
        .A2 = r->w->A2[head],
        .B = B,
        .C = B + r->run->length * b->padded_N,
        .bc_stride = (ptrdiff_t)b->padded_N,
        .dv = ssm__wide_group(r->s->dv, sequence, head * b->head_groups) + token * SSM__LANES,
        .dv_stride = (ptrdiff_t)(r->s->dv.rows * SSM__LANES),
    };
}

/* A head of all sequences: sums of D and of the norm's weight, and the gradients of its states. */
static void back_head(void *context, int64_t head, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const ssm__block_sizes *b = &r->b;
    const ssm__training_kernels *kernels = r->run->kernels->training;
    const int64_t floats = b->head_groups * b->padded_N * SSM__LANES, length = r->run->length;
    for (int64_t sequence = 0; sequence < r->run->sequences; sequence++) {
        for (int64_t i = 0; i < b->head_groups; i++) {
            const int64_t group = head * b->head_groups + i;
            kernels->ssd.lane_products(ssm__wide_group(r->s->dv, sequence, group),
                                       ssm__wide_group(r->s->u, sequence, group), length,
                                       r->w->dD + group * SSM__LANES);
            if (b->index[SSM__BLOCK_NORM] >= 0) {
                const float *parts = ssm__wide_group(r->s->d, sequence, b->x_group + group);
                kernels->column_sums(ssm__rows_view(parts, SSM__LANES), length,
                                     r->w->dnorm + group * SSM__LANES, 0, SSM__LANES);
            }
        }
        float *behind = ssm__block_state(r, r->s->dstates, sequence, r->chunks - 1, head);
        memset(behind, 0, (size_t)floats * sizeof *behind);
        for (int64_t chunk = r->chunks - 1; chunk > 0; chunk--) {
            const int64_t token = chunk * SSM__TILE, tokens = ssm__least(SSM__TILE, length - token);
            float *before = ssm__block_state(r, r->s->dstates, sequence, chunk - 1, head);
            if (b->gate_rank > 0) {
                memcpy(before, behind, (size_t)floats * sizeof *before);
                ssm__gla_state_backward(r, sequence, head, token, tokens, before);
            } else {
                const ssm__ssd_chunk c = ssm__block_chunk(r, sequence, token, tokens, head);
                kernels->ssd.state_backward(&c, behind, before);
            }
            behind = before;
        }
    }
}

/* dB and dC [2][64][N] of a chunk, in rows, into lanes. */
static void put_lanes(const ssm__block_run *r, int64_t sequence, int64_t token, int64_t tokens,
                      int64_t group, const float *rows)
{
    const ssm__block_sizes *b = &r->b;
    for (int64_t part = 0; part < 2; part++) {
        for (int64_t i = 0; i < b->mode_groups; i++) {
            const int64_t to = b->bc_group + (part * b->bc_groups + group) * b->mode_groups + i;
            float *lanes = ssm__wide_group(r->s->d, sequence, to) + token * SSM__LANES;
            const float *from = rows + part * SSM__TILE * b->padded_N + i * SSM__LANES;
            for (int64_t t = 0; t < tokens; t++) {
                memcpy(lanes + t * SSM__LANES, from + t * b->padded_N, SSM__LANES * sizeof *lanes);
            }
        }
    }
}

void ssm__block_back_products(const ssm__block_run *r, const ssm__ssd_chunk *chunk,
                              float *dproducts, float *dB, float *dC)
{
    const int64_t N = r->b.padded_N, tokens = chunk->tokens;
    const ssm__training_kernels *kernels = r->run->kernels->training;
    const ssm__matrix B = {chunk->B, SSM_DTYPE_F32, tokens, N};
    const ssm__view d = ssm__rows_view(dproducts, SSM__TILE);
    kernels->linear_input_gradient(&B, d, ssm__rows_view(dC, N), tokens, 0, N, true);
    kernels->linear_weight_gradient(d, ssm__rows_view(chunk->C, N), tokens, N, dB, 0, tokens);
}

ssm__ssd_backward_args ssm__block_chunk_args(const ssm__block_run *r, int64_t sequence,
                                             int64_t token, int64_t tokens, int64_t head)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t first = head * b->head_groups, at = token * SSM__LANES;
    const float *products =
        ssm__block_products(r, sequence, token / SSM__TILE, ssm__block_key(b, head));
    return (ssm__ssd_backward_args){
        .chunk = ssm__block_chunk(r, sequence, token, tokens, head),
        .u = ssm__wide_group(r->s->u, sequence, first) + at,
        .u_stride = (ptrdiff_t)(r->s->u.rows * SSM__LANES),
        .products = products + token % SSM__TILE * SSM__TILE,
        .D = r->w->D + first * SSM__LANES,
        .du = ssm__wide_group(r->s->d, sequence, b->x_group + first) + at,
        .du_stride = (ptrdiff_t)(r->s->d.rows * SSM__LANES),
        .ddelta = ssm__block_steps(r, r->s->ddelta, sequence, head) + token,
        .rates = b->has_steps ? ssm__block_steps(r, r->s->rates, sequence, head) + token : NULL,
        .dbc_stride = (ptrdiff_t)b->padded_N};
}

/* The heads that share B and C. dB: [2][64][N] zero, to be summed into; memory: zero for the
 * products, then scratch. */
static void back_heads(const ssm__block_run *r, int64_t sequence, int64_t chunk, int64_t group,
                       float *dB, float *memory)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t token = chunk * SSM__TILE, tokens = ssm__least(SSM__TILE, r->run->length - token);
    const int64_t heads = b->H / b->bc_groups;
    float *dC = dB + SSM__TILE * b->padded_N;
    for (int64_t head = group * heads; head < (group + 1) * heads; head++) {
        ssm__ssd_backward_args args = ssm__block_chunk_args(r, sequence, token, tokens, head);
        args.state = ssm__block_state(r, r->k->states, sequence, chunk, head);
        args.dstate = ssm__block_state(r, r->s->dstates, sequence, chunk, head);
        args.dproducts = memory;
        args.dB = dB;
        args.dC = dC;
        args.scratch = memory + SSM__TILE * SSM__TILE;
        r->run->kernels->training->ssd.backward(&args);
    }
    const ssm__ssd_chunk any = ssm__block_chunk(r, sequence, token, tokens, group * heads);
    ssm__block_back_products(r, &any, memory, dB, dC);
}

/* A chunk of all heads that share B and C. */
static void back_chunk(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const int64_t group = task % r->b.bc_groups, rest = task / r->b.bc_groups;
    const int64_t chunk = rest % r->chunks, sequence = rest / r->chunks;
    const int64_t token = chunk * SSM__TILE, tokens = ssm__least(SSM__TILE, r->run->length - token);
    const int64_t sums = 2 * SSM__TILE * r->b.padded_N;
    float *rows = r->s->threads + thread * r->s->thread_floats, *memory = rows + sums;
    memset(rows, 0, (size_t)(sums + SSM__TILE * SSM__TILE) * sizeof *rows);
    if (r->b.gate_rank > 0) {
        ssm__gla_back_chunk(r, sequence, token, tokens, group, rows, memory);
    } else {
        back_heads(r, sequence, chunk, group, rows, memory);
    }
    put_lanes(r, sequence, token, tokens, group, rows);
}

/* Where the clamp acts, it passes nothing. */
static void back_limits(const ssm__block_run *r, const float *delta, float *ddelta)
{
    const ssm_config *c = &r->run->config->shape;
    const float low = (float)c->dt_limit_low, high = (float)c->dt_limit_high;
    for (int64_t t = 0; t < r->run->length; t++) {
        if ((delta[t] <= low && low > 0.0f) || delta[t] >= high) {
            ddelta[t] = 0.0f;
        }
    }
}

/* Sixteen heads of all sequences: ddt, and the sums of A and of dt's bias. */
static void back_steps(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const ssm__training_kernels *kernels = r->run->kernels->training;
    const int64_t first = task * SSM__LANES, length = r->run->length;
    const int64_t heads = ssm__least(SSM__LANES, r->b.H - first);
    const float *bias = r->w->dt_bias + first;
    for (int64_t sequence = 0; sequence < r->run->sequences; sequence++) {
        for (int64_t head = first; head < first + heads; head++) {
            const float *delta = ssm__block_steps(r, r->s->delta, sequence, head);
            const float *rates = ssm__block_steps(r, r->s->rates, sequence, head);
            double sum = r->w->dA[head];
            for (int64_t t = 0; t < length; t++) {
                sum += (double)rates[t] * (double)delta[t];
            }
            r->w->dA[head] = sum;
            back_limits(r, delta, ssm__block_steps(r, r->s->ddelta, sequence, head));
        }
        float *ddt = ssm__wide_group(r->s->d, sequence, r->b.dt_group + task);
        kernels->ssd.to_lanes(ssm__block_steps(r, r->s->ddelta, sequence, first),
                              (ptrdiff_t)(r->chunks * SSM__TILE), heads, length, ddt);
        kernels->ssd.softplus_backward(ssm__wide_group(r->k->in, sequence, r->b.dt_group + task),
                                       bias, ddt, ddt, length);
        kernels->column_sums(ssm__rows_view(ddt, SSM__LANES), length, r->w->ddt_bias + first, 0,
                             SSM__LANES);
    }
}

/* One group of all sequences through the convolution, in place. */
static void back_conv(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    ssm__convolve_back(r->run, &r->w->conv, task, r->k->in, r->s->d, r->b.x_group + task);
}

/* Sixteen modes of B or C that are constants: sums over all tokens. */
static void back_fixed(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    for (int64_t sequence = 0; sequence < r->run->sequences; sequence++) {
        const float *d = ssm__wide_group(r->s->d, sequence, r->b.bc_group + task);
        r->run->kernels->training->column_sums(ssm__rows_view(d, SSM__LANES), r->run->length,
                                               r->w->dfixed + task * SSM__LANES, 0, SSM__LANES);
    }
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const ssm__run *run = r->run;
    const ssm__matrix w = ssm__block_in_matrix(r);
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, run->length - token);
    ssm__project_back(run, &w, r->s->d, sequence, token, tokens, false);
    if (r->b.gate_rank > 0) {
        ssm__gla_back_in(r, sequence, token, tokens);
    }
}

static void weight_gradients(const ssm__block_run *r)
{
    const ssm__run *run = r->run;
    const int64_t D = r->b.d_model;
    const ssm__weight_product products[] = {
        {.dy = {.wide = r->s->d},
         .x = {.rows = run->in, .stride = D},
         .rows = r->b.rows,
         .cols = D,
         .dw = ssm__block_gradient(r, SSM__BLOCK_IN_PROJ)},
        {.dy = {.rows = run->dout, .stride = D},
         .x = {.wide = r->s->y},
         .rows = D,
         .cols = r->b.channels,
         .dw = ssm__block_gradient(r, SSM__BLOCK_OUT_PROJ)},
    };
    ssm__weight_products(run, products, sizeof products / sizeof products[0]);
}

void ssm__block_backward(const ssm__run *run)
{
    ssm__block_run r = ssm__block_run_of(run);
    const int64_t chunks = run->sequences * r.chunks;
    if (!r.b.has_steps) {
        ssm__block_unit_steps(&r);
    }
    ssm__pool_run(run->pool, inputs_again, &r, ssm__group_tasks(run, input_groups(&r.b)));
    if (r.b.gate_rank > 0) {
        ssm__pool_run(run->pool, ssm__gla_gates_again, &r, chunks);
    }
    ssm__pool_run(run->pool, ssm__block_multiply, &r, chunks * r.b.keys);
    ssm__pool_run(run->pool, back_out, &r, chunks);
    ssm__pool_run(run->pool, back_head, &r, r.b.H);
    ssm__pool_run(run->pool, back_chunk, &r, chunks * r.b.bc_groups);
    if (r.b.has_steps) {
        ssm__pool_run(run->pool, back_steps, &r, ssm__lane_groups(r.b.H));
    }
    ssm__pool_run(run->pool, back_conv, &r, r.b.convolved);
    if (r.b.fixed) {
        ssm__pool_run(run->pool, back_fixed, &r, r.b.conv_groups - r.b.convolved);
    }
    weight_gradients(&r);
    if (r.b.gate_rank > 0) {
        ssm__gla_gradients(&r);
    }
    ssm__pool_run(run->pool, back_in, &r, chunks);
}
