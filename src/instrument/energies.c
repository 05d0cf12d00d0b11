/* instrument/energies.c: the energies of all modes over a text, and nothing else: what a set that
 * is chosen anew for every text needs. One pass without logits and without Grams; a layer's sums
 * are read when it has seen the text, so that one layer's are in memory at a time. */
#include <ssmscope/instrument.h>

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "instrument/accumulator.h"
#include "instrument/head_sums.h"

struct ssm_energies {
    const ssm_model *model;
    ssm_session *session;
    int64_t window; /* most tokens */
    int64_t rows;   /* of a layer */
    int64_t tokens; /* of the text under way */
    bool by_head;   /* the model is Mamba-2 */
    bool has_sums, by_channel;
    ssm__accumulator sums;
    ssm__head_sums heads;
    ssm__mode_sink sink;
    double *out; /* of the text under way */
};

/* ---- a layer has seen the text --------------------------------------------------------------- */

/* The blocks in rising order, as a recording's are summed. */
static void add_blocks(const ssm_energies *e, const float *blocks, double *out)
{
    const int64_t width = e->rows * e->model->config->d_state;
    const int64_t n_blocks = (e->tokens + SSM__TILE - 1) / SSM__TILE;
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t b = 0; b < n_blocks; b++) {
        for (int64_t i = 0; i < width; i++) {
            out[i] += (double)blocks[b * width + i];
        }
    }
}

static ssm_status finished(void *context, int64_t layer, int64_t end, ssm_error *err)
{
    (void)end;
    (void)err;
    ssm_energies *e = context;
    const int64_t N = e->model->config->d_state;
    double *out = e->out + layer * e->rows * N;
    if (!e->by_head) {
        add_blocks(e, e->sums.layers[layer].energy_blocks, out);
        ssm__accumulator_begin_layer(&e->sums, layer);
        return SSM_STATUS_OK;
    }
    if (!e->by_channel) {
        add_blocks(e, e->heads.energy_blocks, out);
    }
    for (int64_t i = 0; e->by_channel && i < e->rows * N; i++) {
        /* Through float32, as recordings store them: the same numbers rank the same. */
        out[i] = (double)(float)ssm__head_sums_at(&e->heads, i % N, i / N);
    }
    ssm__head_sums_begin(&e->heads, e->tokens);
    return SSM_STATUS_OK;
}

static void enter(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args)
{
    const ssm_energies *e = context;
    e->sums.sink.enter(e->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args)
{
    const ssm_energies *e = context;
    e->sums.sink.leave(e->sums.sink.context, layer, group, position, args);
}

static void enter_head(void *context, int64_t layer, int64_t group, int thread,
                       ssm__head_scan_args *args)
{
    const ssm_energies *e = context;
    e->heads.sink.enter_head(e->heads.sink.context, layer, group, thread, args);
}

static void leave_head(void *context, int64_t layer, int64_t group, int64_t position,
                       const ssm__head_scan_args *args)
{
    const ssm_energies *e = context;
    e->heads.sink.leave_head(e->heads.sink.context, layer, group, position, args);
}

/* ---- the object ------------------------------------------------------------------------------ */

static ssm_status create_sums(ssm_energies *e, ssm_pool *pool, ssm_error *err)
{
    if (e->by_head) {
        SSM__TRY(ssm__head_sums_create(e->model, e->window, false, NULL, pool, &e->heads, err));
    } else {
        const ssm__accumulator_options options = {
            .window = e->window, .whole_blocks = true, .one_layer = true, .pool = pool};
        SSM__TRY(ssm__accumulator_create(e->model, &options, &e->sums, err));
    }
    e->has_sums = true;
    e->sink = (ssm__mode_sink){.context = e,
                               .enter = enter,
                               .leave = leave,
                               .enter_head = enter_head,
                               .leave_head = leave_head,
                               .finished = finished,
                               .layers = e->by_head ? e->heads.recorded : e->sums.recorded};
    ssm__session_set_sink(e->session, &e->sink);
    return SSM_STATUS_OK;
}

static ssm_status create(ssm_energies *e, const ssm_energies_options *options, ssm_error *err)
{
    const ssm_config *c = ssm_model_config(e->model);
    SSM__TRY(ssm__require_states(e->model, err));
    if (options->window < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "energies of %lld tokens: expected at least 1",
                         (long long)options->window);
    }
    if (options->scope == SSM_SCOPE_HEAD && !e->by_head) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "scope head: %s has no heads; its energies are per channel",
                         ssm_family_name(c->family));
    }
    e->by_channel = e->by_head && options->scope != SSM_SCOPE_HEAD;
    e->rows = !e->by_head ? c->d_inner : e->by_channel ? c->n_heads * c->head_dim : c->n_heads;
    const ssm_session_options session = {
        .pool = options->pool, .exact_chunks = options->exact_chunks, .max_chunk = options->window};
    SSM__TRY(ssm_session_create(e->model, &session, &e->session, err));
    return create_sums(e, options->pool, err);
}

ssm_status ssm_energies_create(const ssm_model *model, const ssm_energies_options *options,
                               ssm_energies **out, ssm_error *err)
{
    *out = NULL;
    ssm_energies *e = calloc(1, sizeof *e);
    if (!e) {
        return ssm__fail_memory(err, "energies", sizeof *e);
    }
    e->model = model;
    e->window = options->window;
    e->by_head = ssm_model_config(model)->family == SSM_FAMILY_MAMBA2;
    const ssm_status status = create(e, options, err);
    if (status != SSM_STATUS_OK) {
        ssm_energies_free(e);
        return status;
    }
    *out = e;
    return SSM_STATUS_OK;
}

void ssm_energies_free(ssm_energies *energies)
{
    if (!energies) {
        return;
    }
    if (energies->has_sums && energies->by_head) {
        ssm__head_sums_free(&energies->heads);
    } else if (energies->has_sums) {
        ssm__accumulator_free(&energies->sums);
    }
    ssm_session_free(energies->session);
    free(energies);
}

int64_t ssm_energies_rows(const ssm_energies *energies)
{
    return energies->rows;
}

ssm_status ssm_energies_run(ssm_energies *energies, const int32_t *ids, int64_t count, double *out,
                            ssm_error *err)
{
    ssm_energies *e = energies;
    const ssm_config *c = e->model->config;
    if (count < 1 || count > e->window) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "energies of a text of %lld tokens: expected 1 … %lld", (long long)count,
                         (long long)e->window);
    }
    e->tokens = count;
    e->out = out;
    memset(out, 0, (size_t)(c->n_layers * e->rows * c->d_state) * sizeof *out);
    if (e->by_head) {
        ssm__head_sums_begin(&e->heads, count);
    } else {
        ssm__accumulator_begin(&e->sums, count);
    }
    ssm_session_reset(e->session);
    return ssm_session_forward(e->session, ids, count, SSM_LOGITS_NONE, NULL, NULL, err);
}
