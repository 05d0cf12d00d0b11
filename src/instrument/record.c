/* instrument/record.c: windows of text → a recording, one forward pass a window.
 *
 * The pass goes through the layers one after the other, and a layer's numbers are on their way to
 * the disk before the next one starts: a whole-window pass holds one layer's sums, however many
 * layers there are. Only passes that are cut into calls (options.chunk) hold all of them. */
#include <ssmscope/instrument.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/tensor.h"
#include "instrument/accumulator.h"
#include "instrument/record_heads.h"
#include "recording/schema.h"
#include "recording/writer.h"

enum { FIELDS = 6, NAME_MAX_BYTES = 48 }; /* tensors of a layer beside its Gram */

typedef struct recorder {
    const ssm_model *model;
    const ssm_config *config;
    const ssm_corpus *corpus;
    const ssm_record_options *options;
    ssm_recording_window *windows;
    int64_t n_windows;
    int64_t *layers; /* the recorded ones, rising */
    int64_t n_layers;
    bool *recorded; /* config->n_layers */
    ssm__recording_writer *writer;
    ssm_session *session;
    const int64_t *budgets;
    int64_t n_budgets, default_budgets[3];
    bool by_head; /* Mamba-2 */
    ssm__head_recorder heads;
    ssm__accumulator sums;
    bool has_sums; /* heads or sums */
    ssm__mode_sink sink;
    float *values; /* [E][3N + 2] output, state, read, delta, adjoint of one layer */
    float *nll;    /* [window] */
} recorder;

/* Tensors of one layer, or of the window, on their way to the disk. */
typedef struct tensor_list {
    int64_t count;
    ssm_tensor tensors[FIELDS];
    char names[FIELDS][NAME_MAX_BYTES];
} tensor_list;

/* ---- the plan ------------------------------------------------------------------------------- */

/* recording.json is JSON, so what it names must be UTF-8. */
static ssm_status check_name(const char *what, const char *name, ssm_error *err)
{
    return ssm__is_utf8(name)
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "the %s '%.300s' is not UTF-8, and recording.json must name it: "
                           "rename it or give it by another path",
                           what, name);
}

static ssm_status check_names(const recorder *r, ssm_error *err)
{
    for (int64_t i = 0; i < r->corpus->n_files; i++) {
        SSM__TRY(check_name("domain", r->corpus->files[i].domain, err));
        SSM__TRY(check_name("path", r->corpus->files[i].path, err));
    }
    return r->options->command ? check_name("command", r->options->command, err) : SSM_STATUS_OK;
}

static ssm_status check_options(const recorder *r, ssm_error *err)
{
    const ssm_record_options *o = r->options;
    int64_t wanted;
    if (o->no_gram && o->keep_window_gram) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the windows' Grams cannot be both kept and left out");
    }
    if (r->corpus->n_domains < 1 || (o->layers && o->n_layers < 1)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "nothing to record: the list of %s is empty",
                         r->corpus->n_domains < 1 ? "texts" : "layers");
    }
    if (o->window < 2 || o->calibration_windows < 0 || o->evaluation_windows < 0 ||
        __builtin_add_overflow(o->calibration_windows, o->evaluation_windows, &wanted) ||
        wanted == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "nothing to record: window %lld tokens, %lld calibration and %lld "
                         "evaluation windows a domain; at least 2 tokens and one window are needed",
                         (long long)o->window, (long long)o->calibration_windows,
                         (long long)o->evaluation_windows);
    }
    if (o->budgets) {
        SSM__TRY(ssm__check_budgets(o->budgets, o->n_budgets, r->config->d_state, err));
    }
    SSM__TRY(check_names(r, err));
    for (int64_t d = 0; d < r->corpus->n_domains; d++) {
        const ssm_domain *domain = &r->corpus->domains[d];
        if (domain->ids.count / o->window < wanted) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "domain %s has %lld tokens, that is %lld windows of %lld; %lld are "
                             "wanted (calibration %lld, evaluation %lld): give more text or fewer "
                             "windows",
                             domain->name, (long long)domain->ids.count,
                             (long long)(domain->ids.count / o->window), (long long)o->window,
                             (long long)wanted, (long long)o->calibration_windows,
                             (long long)o->evaluation_windows);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status plan_layers(recorder *r, ssm_error *err)
{
    const ssm_record_options *o = r->options;
    const int64_t n = r->config->n_layers;
    r->recorded = calloc((size_t)n, sizeof *r->recorded);
    r->layers = calloc((size_t)n, sizeof *r->layers);
    if (!r->recorded || !r->layers) {
        return ssm__fail_memory(err, "the list of layers", (size_t)n * sizeof *r->layers);
    }
    for (int64_t i = 0; o->layers && i < o->n_layers; i++) {
        if (o->layers[i] < 0 || o->layers[i] >= n) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "layer %lld is not one of 0 … %lld", (long long)o->layers[i],
                             (long long)n - 1);
        }
        if (!ssm__has_states(r->model, o->layers[i])) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "layer %lld is attention: it has no states to record",
                             (long long)o->layers[i]);
        }
        r->recorded[o->layers[i]] = true;
    }
    for (int64_t layer = 0; layer < n; layer++) {
        const bool has_states = ssm__has_states(r->model, layer);
        r->recorded[layer] = r->recorded[layer] || (!o->layers && has_states);
        if (r->recorded[layer]) {
            r->layers[r->n_layers++] = layer;
        }
    }
    return SSM_STATUS_OK;
}

/* Window i of the plan: each domain's calibration windows, then its evaluation windows, one domain
 * after the other. Mamba-2: the calibration windows of all domains come first, because the static
 * sets of channels must be known when an evaluation window is run. */
static ssm_recording_window planned(const recorder *r, int64_t i, int64_t *domain)
{
    const int64_t calibration = r->options->calibration_windows;
    const int64_t evaluation = r->options->evaluation_windows;
    const int64_t first = calibration * r->corpus->n_domains; /* evaluation window */
    int64_t k;
    if (!r->by_head) {
        *domain = i / (calibration + evaluation);
        k = i % (calibration + evaluation);
    } else if (i < first) {
        *domain = i / calibration;
        k = i % calibration;
    } else {
        *domain = (i - first) / evaluation;
        k = calibration + (i - first) % evaluation;
    }
    return (ssm_recording_window){.domain = r->corpus->domains[*domain].name,
                                  .role =
                                      k < calibration ? SSM_ROLE_CALIBRATION : SSM_ROLE_EVALUATION,
                                  .token_offset = k * r->options->window,
                                  .tokens = r->options->window};
}

static ssm_status plan_windows(recorder *r, ssm_error *err)
{
    const ssm_record_options *o = r->options;
    r->n_windows = (o->calibration_windows + o->evaluation_windows) * r->corpus->n_domains;
    r->windows = calloc((size_t)r->n_windows + 1, sizeof *r->windows);
    if (!r->windows) {
        return ssm__fail_memory(err, "the windows", (size_t)r->n_windows * sizeof *r->windows);
    }
    for (int64_t i = 0; i < r->n_windows; i++) {
        int64_t domain;
        r->windows[i] = planned(r, i, &domain);
    }
    return SSM_STATUS_OK;
}

/* The text of the recording: its files. NULL: out of memory. */
static json_t *text_field(const recorder *r)
{
    json_t *text = json_array();
    int failed = text == NULL;
    for (int64_t i = 0; i < r->corpus->n_files; i++) {
        const ssm_text_file *file = &r->corpus->files[i];
        failed |=
            json_array_append_new(text, json_pack("{s:s, s:s, s:s}", "domain", file->domain, "path",
                                                  file->path, "digest", file->digest));
    }
    if (failed != 0) {
        json_decref(text);
        return NULL;
    }
    return text;
}

static json_t *budgets_field(const recorder *r)
{
    json_t *budgets = json_array();
    int failed = budgets == NULL;
    for (int64_t i = 0; i < r->n_budgets; i++) {
        failed |= json_array_append_new(budgets, json_integer(r->budgets[i]));
    }
    if (failed != 0) {
        json_decref(budgets);
        return NULL;
    }
    return budgets;
}

/* Fields of recording.json that the writer does not know. NULL: out of memory. */
static json_t *extra_fields(const recorder *r)
{
    const char *command = r->options->command;
    json_t *text = text_field(r);
    json_t *budgets = budgets_field(r);
    json_t *extra = json_pack("{s:O, s:O, s:s, s:s}", "text", text, "budgets", budgets,
                              "program_version", ssm_version(), "command", command ? command : "");
    json_decref(text);
    json_decref(budgets);
    return extra;
}

static ssm_status create_recording(recorder *r, const char *directory, ssm_error *err)
{
    const ssm_config *c = r->config;
    const ssm_record_options *o = r->options;
    ssm__recording_plan plan = {.info = {.family = c->family,
                                         .n_layers = c->n_layers,
                                         .d_model = c->d_model,
                                         .d_inner = c->d_inner,
                                         .d_state = c->d_state,
                                         .n_heads = c->n_heads,
                                         .head_dim = c->head_dim,
                                         .n_groups = c->n_groups,
                                         .n_attention = r->model->n_attention,
                                         .window = o->window,
                                         .layers = r->layers,
                                         .n_recorded = r->n_layers,
                                         .has_gram = !o->no_gram,
                                         .has_window_gram = o->keep_window_gram && !o->no_gram},
                                .windows = r->windows,
                                .n_windows = r->n_windows,
                                .resume = o->resume};
    SSM__TRY(ssm_checkpoint_digest(ssm_model_checkpoint(r->model), plan.info.model_digest, err));
    snprintf(plan.info.tokenizer_digest, sizeof plan.info.tokenizer_digest, "%s",
             o->tokenizer_digest ? o->tokenizer_digest : "");
    plan.extra = extra_fields(r);
    if (!plan.extra) {
        return ssm__fail_memory(err, "recording.json", 0);
    }
    const ssm_status status = ssm__recording_create(directory, &plan, &r->writer, err);
    json_decref(plan.extra);
    return status;
}

/* Numbers of one layer's A: one a mode, or one a head. */
static int64_t count_A(const recorder *r)
{
    const ssm_config *c = r->config;
    return r->by_head ? c->n_heads : c->d_inner * c->d_state;
}

/* One layer's A = −exp(A_log), so that time constants need no checkpoint. */
static void layer_A(const recorder *r, int64_t index, float *A, ssm_tensor *tensor, char *name)
{
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(r->model));
    const ssm_config *c = r->config;
    const int64_t count = count_A(r);
    if (r->by_head) {
        ssm__head_recorder_A(r->model, r->layers[index], A);
    } else {
        ssm__tensor_to_f32(&weights->layers[r->layers[index]].A_log, A);
        for (int64_t k = 0; k < count; k++) {
            A[k] = (float)-exp((double)A[k]);
        }
    }
    snprintf(name, NAME_MAX_BYTES, "layers.%lld.A", (long long)r->layers[index]);
    *tensor = (ssm_tensor){.name = name,
                           .dtype = SSM_DTYPE_F32,
                           .n_dims = r->by_head ? 1 : 2,
                           .dims = {r->by_head ? c->n_heads : c->d_inner, c->d_state},
                           .data = A,
                           .bytes = (size_t)count * sizeof *A};
}

static ssm_status put_model(recorder *r, ssm_error *err)
{
    const int64_t count = count_A(r);
    const size_t layers = (size_t)r->n_layers;
    float *values = calloc((size_t)count * layers + 1, sizeof *values);
    ssm_tensor *tensors = calloc(layers + 1, sizeof *tensors);
    char(*names)[NAME_MAX_BYTES] = calloc(layers + 1, sizeof *names);
    ssm_status status;
    if (!values || !tensors || !names) {
        status = ssm__fail_memory(err, "A", (size_t)count * layers * sizeof *values);
    } else {
        for (int64_t i = 0; i < r->n_layers; i++) {
            layer_A(r, i, values + i * count, &tensors[i], names[i]);
        }
        status = ssm__recording_put_model(r->writer, tensors, r->n_layers, err);
    }
    free(values);
    free(tensors);
    free(names);
    return status;
}

/* ---- one window ------------------------------------------------------------------------------ */

static ssm_status run_window(recorder *r, const int32_t *ids, ssm_error *err)
{
    const int64_t T = r->options->window;
    const int64_t chunk = r->options->chunk > 0 && !r->by_head ? r->options->chunk : T;
    ssm_session_reset(r->session);
    if (!r->by_head) {
        ssm__accumulator_begin(&r->sums, T);
    }
    for (int64_t done = 0; done < T; done += chunk) {
        const int64_t tokens = chunk < T - done ? chunk : T - done;
        const int64_t scored = done + tokens == T ? tokens - 1 : tokens;
        SSM__TRY(ssm__session_nll(r->session, ids + done, tokens, scored, r->nll + done, err));
    }
    return SSM_STATUS_OK;
}

/* Appends one tensor of a layer (or of the window, layer −1). */
static void add_tensor(tensor_list *list, int64_t layer, const char *field, ssm_tensor tensor)
{
    char *name = list->names[list->count];
    if (layer < 0) {
        snprintf(name, NAME_MAX_BYTES, "%s", field);
    } else {
        snprintf(name, NAME_MAX_BYTES, "layers.%lld.%s", (long long)layer, field);
    }
    tensor.name = name;
    tensor.bytes = (size_t)ssm_tensor_count(&tensor) * ssm_dtype_size(tensor.dtype);
    list->tensors[list->count++] = tensor;
}

/* Means over the window of `rows` rows a channel, [E][rows]. */
static void means(const recorder *r, int64_t layer, int64_t first_row, int64_t rows, double tokens,
                  float *out)
{
    for (int64_t h = 0; h < r->config->d_inner; h++) {
        for (int64_t n = 0; n < rows; n++) {
            out[h * rows + n] =
                (float)(ssm__accumulator_moment(&r->sums, layer, first_row + n, h) / tokens);
        }
    }
}

static void layer_tensors(const recorder *r, int64_t layer, tensor_list *list)
{
    const int64_t E = r->config->d_inner;
    const int64_t N = r->config->d_state;
    const double T = (double)r->options->window;
    const ssm__mode_rows *rows = &r->sums.rows;
    float *output = r->values;
    float *state = output + E;
    float *read = state + E * N;
    float *delta = read + E * N;
    float *adjoint = delta + E;
    means(r, layer, rows->output, 1, 1.0, output);
    means(r, layer, rows->state, N, T, state);
    means(r, layer, rows->read, N, T, read);
    means(r, layer, rows->delta, 1, T, delta);
    means(r, layer, rows->adjoint, N, T, adjoint);

    const int64_t blocks = ssm__energy_blocks(r->options->window);
    const ssm_tensor channel = {.dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {E}};
    const ssm_tensor mode = {.dtype = SSM_DTYPE_F32, .n_dims = 2, .dims = {E, N}};
    ssm_tensor t = {.dtype = SSM_DTYPE_F32, .n_dims = 3, .dims = {blocks, E, N}};
    t.data = r->sums.layers[layer].energy_blocks;
    add_tensor(list, layer, "energy_blocks", t);
    t = channel;
    t.data = output;
    add_tensor(list, layer, "output_energy", t);
    t = mode;
    t.data = state;
    add_tensor(list, layer, "state_moment", t);
    t.data = read;
    add_tensor(list, layer, "read_moment", t);
    t = channel;
    t.data = delta;
    add_tensor(list, layer, "delta_mean", t);
    t = mode;
    t.data = adjoint;
    add_tensor(list, layer, "adjoint_moment", t);
}

/* The layer has seen `end` tokens; when that is the whole window it goes to the disk. */
static ssm_status layer_finished(void *context, int64_t layer, int64_t end, ssm_error *err)
{
    recorder *r = context;
    if (end < r->options->window) {
        return SSM_STATUS_OK;
    }
    char name[NAME_MAX_BYTES];
    tensor_list list = {0};
    layer_tensors(r, layer, &list);
    const bool has_gram = !r->options->no_gram;
    ssm_tensor gram = {.name = name,
                       .dtype = SSM_DTYPE_F64,
                       .n_dims = 2,
                       .dims = {r->config->d_inner, r->sums.rows.n_gram}};
    if (has_gram) {
        snprintf(name, sizeof name, "layers.%lld.gram", (long long)layer);
        ssm__accumulator_transpose(&r->sums, layer);
        gram.data = r->sums.layers[layer].gram;
        gram.bytes = (size_t)ssm_tensor_count(&gram) * sizeof(double);
    }
    SSM__TRY(ssm__recording_put_layer(r->writer, list.tensors, list.count, has_gram ? &gram : NULL,
                                      err));
    if (r->sums.one_layer) {
        ssm__accumulator_begin_layer(&r->sums, layer);
    }
    return SSM_STATUS_OK;
}

static void enter(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args)
{
    const recorder *r = context;
    r->sums.sink.enter(r->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args)
{
    const recorder *r = context;
    r->sums.sink.leave(r->sums.sink.context, layer, group, position, args);
}

static ssm_status record_window(recorder *r, int64_t window, const int32_t *ids, ssm_error *err)
{
    const int64_t T = r->options->window;
    tensor_list list = {0};
    if (r->by_head) {
        SSM__TRY(ssm__head_recorder_begin(&r->heads, r->windows[window].role, err));
    }
    SSM__TRY(ssm__recording_begin_window(r->writer, window, err));
    SSM__TRY(run_window(r, ids, err));
    add_tensor(&list, -1, "nll",
               (ssm_tensor){.dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {T - 1}, .data = r->nll});
    add_tensor(&list, -1, "ids",
               (ssm_tensor){.dtype = SSM_DTYPE_I32, .n_dims = 1, .dims = {T}, .data = ids});
    return ssm__recording_end_window(r->writer, list.tensors, list.count, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ssm_status prepare_heads(recorder *r, ssm_error *err)
{
    const ssm_record_options *o = r->options;
    const ssm__head_recorder_options options = {.window = o->window,
                                                .layers = r->layers,
                                                .n_layers = r->n_layers,
                                                .budgets = r->budgets,
                                                .n_budgets = r->n_budgets,
                                                .recorded = r->recorded,
                                                .has_calibration = o->calibration_windows > 0,
                                                .has_gram = !o->no_gram,
                                                .pool = o->pool};
    SSM__TRY(ssm__head_recorder_create(r->model, r->session, r->writer, &options, &r->heads, err));
    r->has_sums = true;
    return SSM_STATUS_OK;
}

static ssm_status prepare_sums(recorder *r, bool whole, ssm_error *err)
{
    const ssm_config *c = r->config;
    const int64_t chunk = r->options->chunk;
    const size_t values = (size_t)(c->d_inner * (3 * c->d_state + 2));
    r->values = malloc(values * sizeof *r->values);
    if (!r->values) {
        return ssm__fail_memory(err, "a layer's means", values * sizeof *r->values);
    }
    const ssm__accumulator_options sums = {.window = r->options->window,
                                           .gram = !r->options->no_gram,
                                           .whole_blocks = whole || chunk % SSM__TILE == 0,
                                           .one_layer = whole,
                                           .recorded = r->recorded,
                                           .pool = r->options->pool};
    SSM__TRY(ssm__accumulator_create(r->model, &sums, &r->sums, err));
    r->has_sums = true;
    r->sink = (ssm__mode_sink){.context = r,
                               .enter = enter,
                               .leave = leave,
                               .finished = layer_finished,
                               .layers = r->sums.recorded};
    ssm__session_set_sink(r->session, &r->sink);
    return SSM_STATUS_OK;
}

static ssm_status prepare(recorder *r, ssm_error *err)
{
    const int64_t window = r->options->window;
    const int64_t chunk = r->options->chunk;
    const bool whole = r->by_head || chunk <= 0 || chunk >= window;
    r->nll = malloc((size_t)window * sizeof *r->nll);
    if (!r->nll) {
        return ssm__fail_memory(err, "a window's scores", (size_t)window * sizeof *r->nll);
    }
    const ssm_session_options session = {.pool = r->options->pool,
                                         .exact_chunks = r->options->exact_chunks,
                                         .max_chunk = whole ? window : chunk};
    SSM__TRY(ssm_session_create(r->model, &session, &r->session, err));
    return r->by_head ? prepare_heads(r, err) : prepare_sums(r, whole, err);
}

static ssm_status record_windows(recorder *r, ssm_error *err)
{
    const ssm_progress *progress = r->options->progress;
    for (int64_t i = 0; i < r->n_windows; i++) {
        if (!ssm__recording_has(r->writer, i)) {
            int64_t domain;
            planned(r, i, &domain);
            const int32_t *ids = r->corpus->domains[domain].ids.data + r->windows[i].token_offset;
            SSM__TRY(record_window(r, i, ids, err));
        }
        if (progress &&
            !progress->report(progress->context, "recording", i + 1, r->n_windows, "windows")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "stopped after %lld of %lld windows; --resume goes on from here",
                             (long long)i + 1, (long long)r->n_windows);
        }
    }
    return ssm__recording_finish(r->writer, err);
}

static ssm_status record_all(recorder *r, const char *directory, ssm_error *err)
{
    SSM__TRY(ssm__require_states(r->model, err));
    SSM__TRY(check_options(r, err));
    SSM__TRY(plan_layers(r, err));
    SSM__TRY(plan_windows(r, err));
    SSM__TRY(create_recording(r, directory, err));
    SSM__TRY(prepare(r, err));
    SSM__TRY(put_model(r, err));
    return record_windows(r, err);
}

ssm_status ssm_record(const ssm_model *model, const ssm_corpus *corpus, const char *directory,
                      const ssm_record_options *options, ssm_error *err)
{
    recorder r = {
        .model = model, .config = ssm_model_config(model), .corpus = corpus, .options = options};
    r.by_head = r.config->family == SSM_FAMILY_MAMBA2;
    r.budgets = options->budgets ? options->budgets : r.default_budgets;
    r.n_budgets = options->budgets ? options->n_budgets
                                   : ssm_default_budgets(r.config->d_state, r.default_budgets);
    const ssm_status status = record_all(&r, directory, err);
    if (r.has_sums && r.by_head) {
        ssm__head_recorder_free(&r.heads);
    } else if (r.has_sums) {
        ssm__accumulator_free(&r.sums);
    }
    ssm_session_free(r.session);
    ssm__recording_writer_free(r.writer);
    free(r.windows);
    free(r.layers);
    free(r.recorded);
    free(r.values);
    free(r.nll);
    return status;
}
