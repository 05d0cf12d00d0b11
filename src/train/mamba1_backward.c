/* train/mamba1_backward.c: Mamba-1's mixer backwards. */
#include "kernels/training.h"
#include "train/mamba1.h"
#include "train/work.h"

/* dy of a few channel groups of a sequence: out_proj's input gradient. */
static void back_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__MAMBA1_OUT_PROJ);
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, s->dy.groups, &first, &end);
    ssm__project_groups_back(run, &w, s->dy, sequence, first, end);
}

/* One group of all sequences through the scan: the sums of its parameters are this task's. */
static void back_scan(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_weights *w = run->weights;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    const int64_t stride = ssm__mamba1_x_rows(c), N = c->d_state, lanes = task * SSM__LANES;
    for (int64_t sequence = 0; sequence < run->sequences; sequence++) {
        const float *rows = k->x_proj + sequence * run->length * stride;
        float *parts = s->parts + (task * run->sequences + sequence) * run->length * 2 * N;
        ssm__mamba1_convolve(run, sequence, task);
        const ssm__scan_backward_args args = {
            .tokens = run->length,
            .d_state = N,
            .u = ssm__wide_group(s->u, sequence, task),
            .dt = ssm__wide_group(k->dt, sequence, task),
            .dt_bias = w->dt_bias + lanes,
            .z = ssm__wide_group(k->z, sequence, task),
            .B = rows + c->dt_rank,
            .C = rows + c->dt_rank + N,
            .bc_stride = (ptrdiff_t)stride,
            .A2 = w->A2 + lanes * N,
            .D = w->D + lanes,
            .starts = ssm__mamba1_starts(k, sequence, task),
            .dy = ssm__wide_group(s->dy, sequence, task),
            .y = ssm__wide_group(s->y, sequence, task),
            .du = ssm__wide_group(s->dy, sequence, task),
            .ddt = ssm__wide_group(s->ddt, sequence, task),
            .dz = ssm__wide_group(s->dz, sequence, task),
            .dB = parts,
            .dC = parts + N,
            .dbc_stride = (ptrdiff_t)(2 * N),
            .dA_log = w->dA_log + lanes * N,
            .dD = w->dD + lanes,
            .ddt_bias = w->ddt_bias + lanes,
            .scratch = s->scan + thread * s->scan_floats,
        };
        run->kernels->training->scan_backward(&args);
    }
}

/* A tile of tokens: (dt, B, C)'s gradients, and what they add to du. */
static void back_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__training_kernels *kernels = run->kernels->training;
    const ssm__matrix dt_proj = ssm__own_matrix(run, SSM__MAMBA1_DT_PROJ),
                      x_proj = ssm__own_matrix(run, SSM__MAMBA1_X_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    const int64_t first = sequence * run->length + t, width = 2 * c->d_state;
    float *rows = s->dx_proj + first * ssm__mamba1_x_rows(c);
    const ssm__view view = ssm__rows_view(rows, ssm__mamba1_x_rows(c));
    kernels->sum_parts(s->parts + first * width, s->dy.groups,
                       (ptrdiff_t)(run->sequences * run->length * width), tokens, width,
                       rows + c->dt_rank, (ptrdiff_t)ssm__mamba1_x_rows(c));
    if (run->config->time_invariant) {
        return;
    }
    kernels->linear_input_gradient(&dt_proj, ssm__wide_view(s->ddt, sequence, t), view, tokens, 0,
                                   dt_proj.cols, false);
    kernels->linear_input_gradient(&x_proj, view, ssm__wide_view(s->dy, sequence, t), tokens, 0,
                                   x_proj.cols, true);
}

/* One group of all sequences through the convolution; dxs takes the place of du. */
static void back_conv(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_weights *w = run->weights;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    ssm__convolve_back(run, &w->conv, task, k->xs, s->dy, task);
}

static void back_in(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__matrix xs = ssm__own_part(run, SSM__MAMBA1_IN_PROJ, 0, 2);
    const ssm__matrix z = ssm__own_part(run, SSM__MAMBA1_IN_PROJ, 1, 2);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    ssm__project_back(run, &xs, s->dy, sequence, t, tokens, false);
    ssm__project_back(run, &z, s->dz, sequence, t, tokens, true);
}

/* B and C that are parameters: sums over all tokens. */
static void fixed_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_scratch *s = run->scratch;
    const int64_t N = c->d_state, tokens = run->sequences * run->length;
    const float *rows = s->dx_proj + c->dt_rank;
    run->kernels->training->column_sums(ssm__rows_view(rows, ssm__mamba1_x_rows(c)), tokens,
                                        ssm__own_gradient(run, SSM__MAMBA1_X_PROJ), 0, N);
    run->kernels->training->column_sums(ssm__rows_view(rows + N, ssm__mamba1_x_rows(c)), tokens,
                                        ssm__own_gradient(run, SSM__MAMBA1_DT_PROJ), 0, N);
}

static void weight_gradients(const ssm__run *run)
{
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    const int64_t D = c->d_model, E = c->d_inner, R = c->dt_rank, rows = ssm__mamba1_x_rows(c);
    const ssm__side in = {.rows = run->in, .stride = D};
    float *din_proj = ssm__own_gradient(run, SSM__MAMBA1_IN_PROJ);
    const ssm__weight_product products[] = {
        {.dy = {.wide = s->dy}, .x = in, .rows = E, .cols = D, .dw = din_proj},
        {.dy = {.wide = s->dz}, .x = in, .rows = E, .cols = D, .dw = din_proj + E * D},
        {.dy = {.rows = run->dout, .stride = D},
         .x = {.wide = s->y},
         .rows = D,
         .cols = E,
         .dw = ssm__own_gradient(run, SSM__MAMBA1_OUT_PROJ)},
        {.dy = {.rows = s->dx_proj, .stride = rows},
         .x = {.wide = s->u},
         .rows = rows,
         .cols = E,
         .dw = ssm__own_gradient(run, SSM__MAMBA1_X_PROJ)},
        {.dy = {.wide = s->ddt},
         .x = {.rows = k->x_proj, .stride = rows},
         .rows = E,
         .cols = R,
         .dw = ssm__own_gradient(run, SSM__MAMBA1_DT_PROJ)},
    };
    const int count = (int)(sizeof products / sizeof products[0]);
    ssm__weight_products(run, products, run->config->time_invariant ? count - 2 : count);
}

void ssm__mamba1_backward(const ssm__run *run)
{
    const int64_t groups = ssm__lane_groups(run->config->shape.d_inner);
    void *context = (void *)(uintptr_t)run;
    ssm__pool_run(run->pool, back_out, context, ssm__group_tasks(run, groups));
    ssm__pool_run(run->pool, back_scan, context, groups);
    ssm__pool_run(run->pool, back_selective, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
    ssm__pool_run(run->pool, back_conv, context, groups);
    weight_gradients(run);
    if (run->config->time_invariant) {
        fixed_gradients(run);
    }
    ssm__pool_run(run->pool, back_in, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}
