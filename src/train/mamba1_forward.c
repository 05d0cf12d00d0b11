/* train/mamba1_forward.c: Mamba-1's mixer forwards. */
#include <string.h>

#include "kernels/training.h"
#include "train/mamba1.h"
#include "train/work.h"

enum { X_PROJ_TOKENS = 32 };

/* in_proj, convolution and SiLU of a few channel groups of a sequence. */
static void project_and_convolve(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_kept *k = run->kept;
    const int64_t D = run->config->shape.d_model;
    const ssm__matrix xs = ssm__own_part(run, SSM__MAMBA1_IN_PROJ, 0, 2),
                      z = ssm__own_part(run, SSM__MAMBA1_IN_PROJ, 1, 2);
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, k->xs.groups, &first, &end);
    ssm__project_groups(run, &xs, run->in, D, k->xs, sequence, first, end);
    ssm__project_groups(run, &z, run->in, D, k->z, sequence, first, end);
    for (int64_t group = first; group < end; group++) {
        ssm__mamba1_convolve(run, sequence, group);
    }
}

/* B and C of a token that are parameters. */
static void put_fixed(const ssm__run *run, int64_t tokens, float *rows)
{
    const ssm_config *c = &run->config->shape;
    const size_t bytes = (size_t)c->d_state * sizeof(float);
    for (int64_t t = 0; t < tokens; t++, rows += ssm__mamba1_x_rows(c)) {
        memcpy(rows + c->dt_rank, ssm__own_value(run, SSM__MAMBA1_X_PROJ), bytes);
        memcpy(rows + c->dt_rank + c->d_state, ssm__own_value(run, SSM__MAMBA1_DT_PROJ), bytes);
    }
}

static void project_selective(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__MAMBA1_X_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, X_PROJ_TOKENS, &sequence, &t);
    float *rows =
        k->x_proj + (sequence * run->length + t) * ssm__mamba1_x_rows(&run->config->shape);
    if (run->config->time_invariant) {
        put_fixed(run, tokens, rows);
        return;
    }
    run->kernels->linear(&w, NULL, ssm__wide_view(s->u, sequence, t), ssm__rows_view(rows, w.rows),
                         tokens, 0, w.rows);
}

/* The scan in pieces, the state before each being kept. */
static void scan_pieces(const ssm__run *run, const ssm__scan_args *args, float *starts)
{
    const int64_t floats = args->d_state * SSM__LANES;
    for (int64_t t = 0; t < args->tokens; t += SSM__SCAN_PIECE) {
        ssm__scan_args piece = *args;
        piece.tokens = ssm__least(SSM__SCAN_PIECE, args->tokens - t);
        piece.u += t * SSM__LANES;
        piece.delta += t * SSM__LANES;
        piece.z += t * SSM__LANES;
        piece.y += t * SSM__LANES;
        piece.B += t * args->bc_stride;
        piece.C += t * args->bc_stride;
        memcpy(starts + t / SSM__SCAN_PIECE * floats, args->state, (size_t)floats * sizeof(float));
        run->kernels->scan(&piece);
    }
}

/* Δ and scan of a group; y takes the place of u. */
static void scan_group(const ssm__run *run, int64_t sequence, int64_t group, float *state)
{
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_weights *w = run->weights;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    const int64_t stride = ssm__mamba1_x_rows(c);
    const float *rows = k->x_proj + sequence * run->length * stride;
    const float *dt = ssm__wide_group(k->dt, sequence, group);
    float *u = ssm__wide_group(s->u, sequence, group);
    float delta[SSM__TILE * SSM__LANES];
    memset(state, 0, (size_t)(c->d_state * SSM__LANES) * sizeof *state);
    for (int64_t t = 0; t < run->length; t += SSM__TILE) {
        const int64_t tokens = ssm__least(SSM__TILE, run->length - t);
        run->kernels->softplus_bias(dt + t * SSM__LANES, w->dt_bias + group * SSM__LANES, delta,
                                    tokens);
        const ssm__scan_args args = {
            .tokens = tokens,
            .d_state = c->d_state,
            .u = u + t * SSM__LANES,
            .delta = delta,
            .z = ssm__wide_group(k->z, sequence, group) + t * SSM__LANES,
            .B = rows + t * stride + c->dt_rank,
            .C = rows + t * stride + c->dt_rank + c->d_state,
            .bc_stride = (ptrdiff_t)stride,
            .A2 = w->A2 + group * c->d_state * SSM__LANES,
            .D = w->D + group * SSM__LANES,
            .state = state,
            .y = u + t * SSM__LANES,
        };
        if (k->starts != NULL) {
            scan_pieces(run, &args, ssm__mamba1_starts(k, sequence, group) + t * c->d_state);
        } else {
            run->kernels->scan(&args);
        }
    }
}

/* dt_proj and scan of a few channel groups of a sequence. */
static void discretise_and_scan(void *context, int64_t task, int thread)
{
    const ssm__run *run = context;
    const ssm_config *c = &run->config->shape;
    const ssm__mamba1_kept *k = run->kept;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__MAMBA1_DT_PROJ);
    const int64_t stride = ssm__mamba1_x_rows(c);
    int64_t first, end;
    const int64_t sequence = ssm__groups_of(task, k->dt.groups, &first, &end);
    if (!run->config->time_invariant) {
        ssm__project_groups(run, &w, k->x_proj, stride, k->dt, sequence, first, end);
    }
    for (int64_t group = first; group < end; group++) {
        scan_group(run, sequence, group, s->states + thread * c->d_state * SSM__LANES);
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__run *run = context;
    const ssm__mamba1_scratch *s = run->scratch;
    const ssm__matrix w = ssm__own_matrix(run, SSM__MAMBA1_OUT_PROJ);
    int64_t sequence, t;
    const int64_t tokens = ssm__tile_of(run, task, SSM__WORK_TOKENS, &sequence, &t);
    const ssm__view out = ssm__rows_view(run->out + (sequence * run->length + t) * w.rows, w.rows);
    ssm__project_rows(run, &w, ssm__wide_view(s->u, sequence, t), out, tokens);
}

void ssm__mamba1_forward(const ssm__run *run)
{
    const int64_t channel_tasks =
        ssm__group_tasks(run, ssm__lane_groups(run->config->shape.d_inner));
    void *context = (void *)(uintptr_t)run; /* tasks read it alone */
    ssm__pool_run(run->pool, project_and_convolve, context, channel_tasks);
    ssm__pool_run(run->pool, project_selective, context, ssm__tile_tasks(run, X_PROJ_TOKENS));
    ssm__pool_run(run->pool, discretise_and_scan, context, channel_tasks);
    ssm__pool_run(run->pool, project_out, context, ssm__tile_tasks(run, SSM__WORK_TOKENS));
}
