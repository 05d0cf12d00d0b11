/* bench/gram_heads.c: the per-head Gram of one Mamba-2 layer as a recording pass makes it: the
 * modes of four tokens and all channels of a head become rows, the rows a Gram. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"

enum { TOKENS = 4 }; /* of a call */

typedef struct heads_run {
    const ssm__kernels *kernels;
    int64_t n_heads, head_dim, d_state, calls;
    float *modes;  /* [head_dim/16][TOKENS][N+1][16], the same for all heads */
    float *panels; /* [threads] panels, then last */
    double *gram;  /* [n_heads] */
    int64_t rows, panel_stride, per_thread;
} heads_run;

/* The model's heads, or those of mamba2-130m. */
static void shape_of(const ssm_config *c, heads_run *run)
{
    const bool has_heads = c->family == SSM_FAMILY_MAMBA2;
    run->n_heads = has_heads ? c->n_heads : 24;
    run->head_dim = has_heads ? (c->head_dim + SSM__LANES - 1) / SSM__LANES * SSM__LANES : 64;
    run->d_state = has_heads ? c->d_state : 128;
}

static void head_task(void *context, int64_t head, int thread)
{
    const heads_run *run = context;
    const int64_t N = run->d_state;
    const int64_t group = TOKENS * (N + 1) * SSM__LANES;
    float *panels = run->panels + thread * run->per_thread;
    float *last = panels + run->per_thread - run->rows;
    for (int64_t call = 0; call < run->calls; call++) {
        for (int64_t p = 0; p < run->head_dim; p += SSM__LANES) {
            run->kernels->mode_rows(run->modes + p / SSM__LANES * group, TOKENS, N, run->head_dim,
                                    panels + p * SSM__LANES, (ptrdiff_t)run->panel_stride,
                                    last + p);
        }
        run->kernels->gram_rows(panels, (ptrdiff_t)run->panel_stride, last, run->rows, N,
                                run->gram + head * ssm__rows_gram_count(N));
    }
}

ssm_status bench_sample_gram_heads(bench_run *bench, const bench_limits *limits, bench_sample *out,
                                   ssm_error *err)
{
    heads_run run = {.kernels = ssm__kernels_for(ssm_model_isa(bench->model)),
                     .calls = (bench->tokens + TOKENS - 1) / TOKENS};
    shape_of(ssm_model_config(bench->model), &run);
    const int64_t N = run.d_state;
    const int64_t modes = run.head_dim * TOKENS * (N + 1);
    run.rows = run.head_dim * TOKENS;
    run.panel_stride = (run.rows + 1) * SSM__LANES;
    run.per_thread = (N + 15) / 16 * run.panel_stride + run.rows;
    run.modes = malloc((size_t)modes * sizeof(float));
    run.panels = malloc((size_t)(run.per_thread * bench->threads) * sizeof(float));
    const size_t gram_bytes = (size_t)(run.n_heads * ssm__rows_gram_count(N)) * sizeof(double);
    run.gram = malloc(gram_bytes);
    ssm_status status = SSM_STATUS_OK;
    if (!run.modes || !run.panels || !run.gram) {
        status = ssm__fail_memory(err, "a head's modes", (size_t)modes * sizeof(float));
    } else {
        for (int64_t i = 0; i < modes; i++) {
            run.modes[i] = (float)(i % 251) * 0.01f - 1.0f;
        }
        memset(run.gram, 0, gram_bytes); /* its pages are there before the clock runs */
        const double start = bench_now();
        ssm__pool_run(bench->pool, head_task, &run, run.n_heads);
        out->seconds = bench_now() - start;
        const double entries = (double)(N + 1) * (double)(N + 2) / 2.0;
        out->at_limit =
            2e-9 * entries * (double)(run.calls * run.rows * run.n_heads) / limits->fma_gflops;
    }
    free(run.modes);
    free(run.panels);
    free(run.gram);
    return status;
}
