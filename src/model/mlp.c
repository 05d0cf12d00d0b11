/* model/mlp.c: the gated MLP of a block over one tile of at most 64 tokens (docs/hybrid.md):
 * (y, gate) = fc1 x;  out = fc2 (y·SiLU(gate)). */
#include "model/session.h"

#include "base/pool.h"
#include "model/layout.h"

enum {
    BLOCK_GROUPS = 3, /* groups of 16 rows that a task of a linear has */
    BLOCK_ROWS = BLOCK_GROUPS * SSM__LANES
};

void ssm__mlp_layout(ssm__arena *arena, const ssm__layer_weights *w, ssm__mlp *out)
{
    const ssm__matrix fc1 = ssm__matrix_of(&w->fc1);
    *out = (ssm__mlp){.fc1_y = ssm__matrix_rows(fc1, 0, fc1.rows / 2),
                      .fc1_gate = ssm__matrix_rows(fc1, fc1.rows / 2, fc1.rows / 2),
                      .fc2 = ssm__matrix_of(&w->fc2)};
    out->fc1_bias = ssm__copy_dense(arena, &w->fc1_bias);
    out->fc2_bias = ssm__copy_dense(arena, &w->fc2_bias);
    out->norm = ssm__copy_dense(arena, &w->norm2);
    out->norm_bias = ssm__copy_dense(arena, &w->norm2_bias);
}

void ssm__mlp_take_scratch(ssm__arena *arena, const ssm_model *model, ssm__mlp_scratch *out)
{
    const int64_t tile =
        ssm__ceil_div(model->config->d_mlp, SSM__LANES) * SSM__TILE_ROWS * SSM__LANES;
    out->y_tile = SSM__TAKE(arena, float, tile);
    out->gate_tile = SSM__TAKE(arena, float, tile);
}

typedef struct mlp_run {
    ssm_session *session;
    const ssm__mlp *mlp;
    int64_t tokens;
} mlp_run;

static void project_and_gate(void *context, int64_t task, int thread)
{
    (void)thread;
    const mlp_run *run = context;
    const ssm__mlp *m = run->mlp;
    const ssm_session *s = run->session;
    const ssm__kernels *k = s->model->kernels;
    const int64_t M = m->fc1_y.rows, row = task * BLOCK_ROWS;
    const int64_t row_end = ssm__smaller(row + BLOCK_ROWS, M);
    const ssm__view x = ssm__dense(s->normed, s->model->config->d_model);
    k->linear(&m->fc1_y, m->fc1_bias, x, ssm__tiled(s->mlp.y_tile), run->tokens, row, row_end);
    k->linear(&m->fc1_gate, m->fc1_bias ? m->fc1_bias + M : NULL, x, ssm__tiled(s->mlp.gate_tile),
              run->tokens, row, row_end);
    for (int64_t g = task * BLOCK_GROUPS; g * SSM__LANES < row_end; g++) {
        float *y = ssm__group_of(s->mlp.y_tile, g);
        k->silu_mul(y, ssm__group_of(s->mlp.gate_tile, g), y, run->tokens * SSM__LANES);
    }
}

static void project_out(void *context, int64_t task, int thread)
{
    (void)thread;
    const mlp_run *run = context;
    const ssm__matrix *w = &run->mlp->fc2;
    const ssm_session *s = run->session;
    s->model->kernels->linear(w, run->mlp->fc2_bias, ssm__tiled(s->mlp.y_tile),
                              ssm__dense(s->mixed, w->rows), run->tokens, task * BLOCK_ROWS,
                              ssm__smaller((task + 1) * BLOCK_ROWS, w->rows));
}

void ssm__mlp_run(ssm_session *session, int64_t layer, int64_t position, int64_t tokens)
{
    mlp_run run = {session, &session->model->blocks[layer].mlp, tokens};
    const int64_t D = session->model->config->d_model;
    ssm__session_tap(session, SSM_TAP_MLP_IN, layer, position, tokens, D,
                     ssm__dense(session->normed, D));
    ssm__pool_run(session->pool, project_and_gate, &run,
                  ssm__ceil_div(run.mlp->fc1_y.rows, BLOCK_ROWS));
    ssm__pool_run(session->pool, project_out, &run, ssm__ceil_div(D, BLOCK_ROWS));
    ssm__session_tap(session, SSM_TAP_MLP_OUT, layer, position, tokens, D,
                     ssm__dense(session->mixed, D));
}
