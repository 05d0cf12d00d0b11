/* bench/scan.c: the selective scan of one layer alone, tile by tile: of all modes, and over the
 * modes that a mask keeps against that. Half of the modes are kept, drawn for every channel or for
 * the layer as a whole. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "bench.h"
#include "model/packing.h"
#include "model/session.h"

enum { TILE_FLOATS = SSM__TILE_ROWS * SSM__LANES };

typedef struct scan_run {
    const ssm_model *model;
    int64_t tiles;
    float *tile;           /* [G][4][65][16] u, Δ, z, y */
    float *bc;             /* [64][2N] */
    float *state;          /* [G][N][16] */
    ssm__packing *packing; /* of layer 0; NULL: no mask */
    double *ratio;         /* [G] seconds of the kept modes over those of all */
} scan_run;

/* All tokens of a group. */
static void scan_group(const scan_run *run, int64_t g, bool pruned)
{
    const ssm__mamba_layer *layer = &run->model->blocks[0].mamba;
    const int64_t N = run->model->config->d_state;
    const ssm__packed_group *group =
        pruned ? ssm__packing_group(run->model, run->packing, 0, g) : NULL;
    const bool packed = pruned && group->packed;
    float *tile = run->tile + g * 4 * TILE_FLOATS;
    const ssm__scan_args args = {.tokens = SSM__TILE,
                                 .d_state = N,
                                 .u = tile,
                                 .delta = tile + TILE_FLOATS,
                                 .z = tile + 2 * TILE_FLOATS,
                                 .B = run->bc,
                                 .C = run->bc + N,
                                 .bc_stride = (ptrdiff_t)(2 * N),
                                 .A2 = packed ? group->A2 : layer->A2 + g * N * SSM__LANES,
                                 .D = layer->D + g * SSM__LANES,
                                 .keep = pruned ? group->keep : NULL,
                                 .state = run->state + g * N * SSM__LANES,
                                 .y = tile + 3 * TILE_FLOATS};
    for (int64_t i = 0; i < run->tiles; i++) {
        if (packed) {
            run->model->kernels->scan_kept(&args, &group->kept);
        } else {
            run->model->kernels->scan(&args);
        }
    }
}

static void scan_task(void *context, int64_t g, int thread)
{
    (void)thread;
    scan_group(context, g, false);
}

static void pruned_task(void *context, int64_t g, int thread)
{
    (void)thread;
    scan_group(context, g, true);
}

/* One after the other, a few times, so that both have the same processor to themselves or not. */
static void ratio_task(void *context, int64_t g, int thread)
{
    enum { TIMES = 5 };
    (void)thread;
    const scan_run *run = context;
    double ratio[TIMES];
    scan_group(run, g, true);
    for (int i = 0; i < TIMES; i++) {
        const double start = bench_now();
        scan_group(run, g, false);
        const double full = bench_now();
        scan_group(run, g, true);
        ratio[i] = (bench_now() - full) / (full - start);
    }
    run->ratio[g] = bench_median(ratio, TIMES);
}

/* The first N/2 modes of a drawn order, for every channel or once for all. */
static ssm_status draw_mask(const ssm_model *model, bool shared, ssm_mask *mask, ssm_error *err)
{
    const ssm_config *c = model->config;
    SSM__TRY(ssm_mask_create(c->n_layers, c->d_inner, c->d_state, mask, err));
    ssm_rng rng = ssm_rng_create(0, "bench/pruned");
    for (int64_t h = 0; h < c->d_inner; h++) {
        uint8_t *keep = mask->keep + h * c->d_state;
        if (shared && h > 0) {
            memcpy(keep, mask->keep, (size_t)c->d_state);
            continue;
        }
        int64_t wanted = c->d_state / 2;
        for (int64_t n = 0; n < c->d_state; n++) {
            const int64_t left = c->d_state - n;
            keep[n] = (int64_t)ssm_rng_below(&rng, (uint64_t)left) < wanted;
            wanted -= keep[n];
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status prepare(const bench_run *bench, scan_run *run, ssm_error *err)
{
    const int64_t G = bench->model->n_groups16;
    const int64_t N = bench->model->config->d_state;
    const int64_t values = G * 4 * TILE_FLOATS;
    *run = (scan_run){.model = bench->model,
                      .tiles = (bench->tokens + SSM__TILE - 1) / SSM__TILE,
                      .tile = malloc((size_t)values * sizeof(float)),
                      .bc = malloc((size_t)(SSM__TILE * 2 * N) * sizeof(float)),
                      .state = calloc((size_t)(G * N * SSM__LANES), sizeof(float)),
                      .ratio = calloc((size_t)G, sizeof(double))};
    if (!run->tile || !run->bc || !run->state || !run->ratio) {
        return ssm__fail_memory(err, "the scan's arrays", (size_t)values * sizeof(float));
    }
    for (int64_t i = 0; i < values; i++) {
        run->tile[i] = 0.01f + 0.001f * (float)(i % 37);
    }
    for (int64_t i = 0; i < SSM__TILE * 2 * N; i++) {
        run->bc[i] = 0.1f * (float)(i % 7) - 0.3f;
    }
    return SSM_STATUS_OK;
}

static void release(scan_run *run)
{
    ssm__packing_free(run->packing);
    free(run->tile);
    free(run->bc);
    free(run->state);
    free(run->ratio);
}

ssm_status bench_sample_scan(bench_run *bench, const bench_limits *limits, bench_sample *out,
                             ssm_error *err)
{
    scan_run run;
    const ssm_status status = prepare(bench, &run, err);
    if (status == SSM_STATUS_OK) {
        const int64_t G = run.model->n_groups16;
        const double start = bench_now();
        ssm__pool_run(bench->pool, scan_task, &run, G);
        out->seconds = bench_now() - start;
        const int64_t modes = G * SSM__LANES * run.model->config->d_state;
        out->at_limit = (double)(run.tiles * SSM__TILE * modes) / limits->exp_per_s;
    }
    release(&run);
    return status;
}

static ssm_status pack(scan_run *run, bool shared, ssm_error *err)
{
    ssm_mask mask;
    SSM__TRY(draw_mask(run->model, shared, &mask, err));
    const ssm_status status = ssm__packing_create(run->model, &mask, 0, false, &run->packing, err);
    ssm_mask_free(&mask);
    return status;
}

/* Seconds of the pruned pass, and the median over groups of their ratio to a full pass. */
static ssm_status sample_pruned(const bench_run *bench, const bench_limits *limits, bool shared,
                                bench_sample *out, ssm_error *err)
{
    const ssm_config *c = bench->model->config;
    const int64_t G = bench->model->n_groups16;
    scan_run run;
    ssm_status status = prepare(bench, &run, err);
    if (status == SSM_STATUS_OK) {
        status = pack(&run, shared, err);
    }
    if (status == SSM_STATUS_OK) {
        ssm__pool_run(bench->pool, ratio_task, &run, G);
        out->ratio = bench_median(run.ratio, G);
        const double start = bench_now();
        ssm__pool_run(bench->pool, pruned_task, &run, G);
        out->seconds = bench_now() - start;
        const int64_t whole = (c->n_layers - 1) * G * c->d_state; /* of the other layers */
        const double exps =
            (double)((run.packing->rows - whole) * SSM__LANES) * (double)(run.tiles * SSM__TILE);
        out->at_limit = exps / limits->exp_per_s;
    }
    release(&run);
    return status;
}

ssm_status bench_sample_scan_pruned(bench_run *run, const bench_limits *limits, bench_sample *out,
                                    ssm_error *err)
{
    return sample_pruned(run, limits, false, out, err);
}

ssm_status bench_sample_scan_pruned_layer(bench_run *run, const bench_limits *limits,
                                          bench_sample *out, ssm_error *err)
{
    return sample_pruned(run, limits, true, out, err);
}
