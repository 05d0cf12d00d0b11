/* adapt/ghost.c: GHOST (arXiv 2602.11408) for Mamba-2. Layer after layer, each calibrated on what
 * the pruned layers before it give: score(group, n) = sqrt( mean over the group's heads, channels
 * and tokens of x² C_n² ), all modes of the layer in one pool, of which budget · groups are kept.
 *
 * The streams of all calibration windows go through a layer twice: unpruned to measure, then
 * pruned, and the pruned output is the next layer's input. For the measurement the scan is told
 * that there is no gate, so that the summands are C_n x; nothing else of that pass is kept. */
#include <ssmscope/adapt.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "instrument/head_sums.h"
#include "recording/energies.h"

typedef struct ghost {
    const ssm_model *model;
    const ssm_config *config;
    ssm_recording *recording;
    int64_t budget, window, n_windows;
    ssm_session *session;
    ssm__head_sums sums;
    ssm__mode_sink sink;
    float *streams; /* [n_windows][window][d_model] into the layer at hand */
    float *before;  /* [window][d_model] the first window behind the unpruned layer */
    double *scores; /* [groups][N] */
    int32_t *order; /* [groups · N] */
    ssm_mask *mask;
    int64_t zeroed; /* modes of channels that the engine's factors drop */
} ghost;

static void enter(void *context, int64_t layer, int64_t group, int thread,
                  ssm__head_scan_args *args)
{
    const ghost *g = context;
    args->z = NULL;
    g->sums.sink.enter_head(g->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__head_scan_args *args)
{
    const ghost *g = context;
    g->sums.sink.leave_head(g->sums.sink.context, layer, group, position, args);
}

static size_t stream_floats(const ghost *g)
{
    return (size_t)(g->window * g->config->d_model);
}

/* One window through one layer, from the zero state. */
static ssm_status run_layer(ghost *g, int64_t window, int64_t layer, ssm_error *err)
{
    memcpy(g->session->stream, g->streams + (size_t)window * stream_floats(g),
           stream_floats(g) * sizeof(float));
    ssm__session_reset_layer(g->session, layer);
    return ssm__session_layer(g->session, layer, g->window, err);
}

static ssm_status measure(ghost *g, int64_t layer, ssm_error *err)
{
    const int64_t N = g->config->d_state;
    const int64_t heads = g->config->n_heads;
    const int64_t per_group = heads / g->config->n_groups;
    const int64_t blocks = (g->window + SSM__TILE - 1) / SSM__TILE;
    const double count =
        (double)(per_group * g->config->head_dim) * (double)(g->window * g->n_windows);
    memset(g->scores, 0, (size_t)(g->config->n_groups * N) * sizeof *g->scores);
    ssm__session_set_sink(g->session, &g->sink);
    ssm_status status = SSM_STATUS_OK;
    for (int64_t w = 0; w < g->n_windows && status == SSM_STATUS_OK; w++) {
        ssm__head_sums_begin(&g->sums, g->window);
        status = run_layer(g, w, layer, err);
        for (int64_t i = 0; i < blocks * heads * N; i++) {
            g->scores[i / N % heads / per_group * N + i % N] += (double)g->sums.energy_blocks[i];
        }
    }
    for (int64_t i = 0; i < g->config->n_groups * N; i++) {
        g->scores[i] = sqrt(g->scores[i] / count);
    }
    ssm__session_set_sink(g->session, NULL);
    return status;
}

static void choose(ghost *g, int64_t layer)
{
    const int64_t N = g->config->d_state;
    const int64_t heads = g->config->n_heads;
    const int64_t per_group = heads / g->config->n_groups;
    uint8_t *keep = g->mask->keep + layer * heads * N;
    memset(keep, 0, (size_t)(heads * N));
    ssm__rank_modes(g->scores, g->config->n_groups * N, g->order);
    for (int64_t k = 0; k < g->budget * g->config->n_groups; k++) {
        const int64_t group = g->order[k] / N;
        for (int64_t head = group * per_group; head < (group + 1) * per_group; head++) {
            keep[head * N + g->order[k] % N] = 1;
        }
    }
}

/* Reads the factors that the scan of this layer multiplies with: what is really zeroed. */
static int64_t count_zeroed(const ghost *g, int64_t layer)
{
    const int64_t N = g->config->d_state;
    const ssm_session *s = g->session;
    int64_t zeroed = 0;
    for (int64_t i = 0; i < g->config->d_ssm * N; i++) {
        const int64_t lane = ssm__lane_of(g->config, i / N);
        zeroed += ssm__packing_factor(g->model, s->packing, layer, lane, i % N) == 0.0F;
    }
    return zeroed;
}

/* A layer that was to lose modes and whose output has not moved was not pruned. */
static ssm_status check_pruned(ghost *g, int64_t layer, ssm_error *err)
{
    const int64_t N = g->config->d_state;
    const int64_t zeroed = count_zeroed(g, layer);
    int64_t wanted = 0;
    for (int64_t i = 0; i < g->config->n_heads * N; i++) {
        wanted += g->mask->keep[layer * g->config->n_heads * N + i] ? 0 : g->config->head_dim;
    }
    const bool moved = memcmp(g->session->stream, g->before, stream_floats(g) * sizeof(float)) != 0;
    g->zeroed += zeroed;
    if (zeroed == wanted && (wanted == 0 || moved)) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "ghost: layer %lld was to lose %lld modes and lost %lld; its output has%s "
                     "changed",
                     (long long)layer, (long long)wanted, (long long)zeroed, moved ? "" : " not");
}

static ssm_status prune_layer(ghost *g, int64_t layer, ssm_error *err)
{
    SSM__TRY(run_layer(g, 0, layer, err));
    memcpy(g->before, g->session->stream, stream_floats(g) * sizeof(float));
    choose(g, layer);
    SSM__TRY(ssm_session_set_mask(g->session, g->mask, -1, err));
    for (int64_t w = 0; w < g->n_windows; w++) {
        SSM__TRY(run_layer(g, w, layer, err));
        if (w == 0) {
            SSM__TRY(check_pruned(g, layer, err));
        }
        memcpy(g->streams + (size_t)w * stream_floats(g), g->session->stream,
               stream_floats(g) * sizeof(float));
    }
    return SSM_STATUS_OK;
}

/* ---- the request ----------------------------------------------------------------------------- */

static ssm_status check(ghost *g, ssm_error *err)
{
    const ssm_config *c = g->config;
    const ssm_recording_info *info = ssm_recording_get_info(g->recording);
    if (c->family != SSM_FAMILY_MAMBA2 || g->model->n_attention > 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule ghost scores the modes of a group of heads: it is defined for "
                         "Mamba-2%s, not for %s",
                         c->family == SSM_FAMILY_MAMBA2 ? " without layers of attention" : "",
                         c->family == SSM_FAMILY_MAMBA2 ? "hybrids" : ssm_family_name(c->family));
    }
    if (g->budget < 1 || g->budget > c->d_state) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the budget is the number of kept modes a channel, 1 … %lld; found %lld",
                         (long long)c->d_state, (long long)g->budget);
    }
    if (!info->has_calibration) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule 'ghost' learns on calibration windows, and the recording has none: "
                         "record with --calibration-windows");
    }
    g->window = info->window;
    for (int64_t w = 0; w < ssm_recording_window_count(g->recording); w++) {
        g->n_windows += ssm_recording_get_window(g->recording, w)->role == SSM_ROLE_CALIBRATION;
    }
    return SSM_STATUS_OK;
}

/* The embedded calibration windows. */
static ssm_status embed(ghost *g, ssm_error *err)
{
    int64_t done = 0;
    int32_t *ids = malloc((size_t)g->window * sizeof *ids);
    ssm_status status = ids ? SSM_STATUS_OK : ssm__fail_memory(err, "ids", (size_t)g->window * 4);
    for (int64_t w = 0; w < ssm_recording_window_count(g->recording) && status == SSM_STATUS_OK;
         w++) {
        const ssm_tensor *tensor = NULL;
        if (ssm_recording_get_window(g->recording, w)->role != SSM_ROLE_CALIBRATION) {
            continue;
        }
        status = ssm_recording_tensor(g->recording, w, -1, "ids", &tensor, err);
        for (int64_t t = 0; t < g->window && status == SSM_STATUS_OK; t++) {
            memcpy(&ids[t], (const char *)tensor->data + (size_t)t * sizeof *ids, sizeof *ids);
            if (ids[t] < 0 || ids[t] >= g->config->vocab_size) {
                status = ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(tensor->file, tensor->name),
                                   "id %d is outside the vocabulary of %lld", (int)ids[t],
                                   (long long)g->config->vocab_size);
            }
        }
        if (status == SSM_STATUS_OK) {
            ssm__session_embed(g->session, ids, g->window);
            memcpy(g->streams + (size_t)done++ * stream_floats(g), g->session->stream,
                   stream_floats(g) * sizeof(float));
        }
    }
    free(ids);
    return status;
}

static ssm_status prepare(ghost *g, ssm_pool *pool, ssm_error *err)
{
    const ssm_session_options session = {
        .pool = pool, .max_chunk = g->window, .exact_chunks = true};
    const size_t modes = (size_t)(g->config->n_groups * g->config->d_state);
    size_t bytes;
    if (!ssm__mul_size(stream_floats(g) * sizeof(float), (size_t)g->n_windows, &bytes)) {
        return ssm__fail_memory(err, "the calibration windows", SIZE_MAX);
    }
    g->streams = malloc(bytes);
    g->before = malloc(stream_floats(g) * sizeof(float));
    g->scores = malloc(modes * sizeof *g->scores);
    g->order = malloc(modes * sizeof *g->order);
    if (!g->streams || !g->before || !g->scores || !g->order) {
        return ssm__fail_memory(err, "the calibration windows", bytes);
    }
    SSM__TRY(ssm_session_create(g->model, &session, &g->session, err));
    SSM__TRY(ssm__head_sums_create(g->model, g->window, false, NULL, pool, &g->sums, err));
    g->sink = (ssm__mode_sink){
        .context = g, .enter_head = enter, .leave_head = leave, .layers = g->sums.recorded};
    return SSM_STATUS_OK;
}

static ssm_status create_mask(ghost *g, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(g->recording);
    const ssm_config *c = g->config;
    SSM__TRY(ssm_mask_create(c->n_layers, c->n_heads, c->d_state, g->mask, err));
    snprintf(g->mask->rule, sizeof g->mask->rule, "ghost");
    snprintf(g->mask->scope, sizeof g->mask->scope, "group");
    g->mask->budget = g->budget;
    g->mask->mean_budget = c->n_groups > 1;
    memcpy(g->mask->model_digest, info->model_digest, sizeof g->mask->model_digest);
    memcpy(g->mask->recording_digest, info->digest, sizeof g->mask->recording_digest);
    return SSM_STATUS_OK;
}

static ssm_status run(ghost *g, ssm_pool *pool, ssm_error *err)
{
    SSM__TRY(check(g, err));
    SSM__TRY(create_mask(g, err));
    SSM__TRY(prepare(g, pool, err));
    SSM__TRY(embed(g, err));
    for (int64_t layer = 0; layer < g->config->n_layers; layer++) {
        SSM__TRY(measure(g, layer, err));
        SSM__TRY(prune_layer(g, layer, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_ghost_select(const ssm_model *model, ssm_recording *recording, int64_t budget,
                            ssm_pool *pool, ssm_mask *out, double *zeroed, ssm_error *err)
{
    *out = (ssm_mask){0};
    ghost g = {.model = model,
               .config = ssm_model_config(model),
               .recording = recording,
               .budget = budget,
               .mask = out};
    const ssm_status status = run(&g, pool, err);
    ssm__head_sums_free(&g.sums);
    ssm_session_free(g.session);
    free(g.streams);
    free(g.before);
    free(g.scores);
    free(g.order);
    if (status != SSM_STATUS_OK) {
        ssm_mask_free(out);
        return status;
    }
    *zeroed = (double)g.zeroed /
              ((double)g.config->n_layers * (double)(g.config->d_ssm * g.config->d_state));
    return SSM_STATUS_OK;
}
