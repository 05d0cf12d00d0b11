/* instrument/record_heads.c: see the header. */
#include "instrument/record_heads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/tensor.h"
#include "recording/energies.h"
#include "recording/schema.h"

enum { FIELDS = 10, NAME_MAX_BYTES = 48 };

static int64_t n_channels(const ssm__head_recorder *r)
{
    return ssm__scan_channels(r->model->config);
}

static int64_t n_groups(const ssm__head_recorder *r)
{
    return r->sums.n_heads * r->sums.head_groups;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Mean energies of the calibration windows, from their files: a resumed run has no others, and
 * select ranks the same numbers. */
static ssm_status rank_static(ssm__head_recorder *r, ssm_error *err)
{
    const int64_t count = n_channels(r) * r->sums.d_state;
    for (int64_t i = 0; i < r->n_layers; i++) {
        SSM__TRY(ssm__recording_mean_energy(r->writer, r->layers[i], r->energies,
                                            r->energies + count, err));
        ssm__head_ranks(r->model->config, r->energies, r->order, r->static_rank + i * count);
    }
    r->ranked = true;
    return SSM_STATUS_OK;
}

/* ---- the second pass ------------------------------------------------------------------------- */

static void enter_errors(void *context, int64_t layer, int64_t group, int thread,
                         ssm__head_scan_args *args)
{
    const ssm__head_recorder *r = context;
    r->sums.sink.enter_head(r->sums.sink.context, layer, group, thread, args);
}

static void leave_errors(void *context, int64_t layer, int64_t group, int64_t position,
                         const ssm__head_scan_args *args)
{
    (void)layer;
    const ssm__head_recorder *r = context;
    ssm__head_errors_add(&r->errors, group, position, r->window, args);
}

static ssm_status measure_errors(ssm__head_recorder *r, int64_t layer, int64_t index,
                                 ssm_error *err)
{
    const int64_t ranks = n_channels(r) * r->sums.d_state;
    const int64_t statics = r->has_calibration ? r->n_budgets : 0;
    for (int64_t b = 0; b < r->n_budgets; b++) {
        if (r->has_calibration) {
            ssm__head_errors_keep(&r->errors, b, r->static_rank + index * ranks, r->budgets[b]);
        }
        ssm__head_errors_keep(&r->errors, statics + b, r->own_rank, r->budgets[b]);
    }
    ssm__head_errors_begin(&r->errors);
    memset(r->sums.adjoint, 0, (size_t)(n_groups(r) * SSM__LANES) * sizeof *r->sums.adjoint);
    memcpy(r->session->stream, r->layer_in,
           (size_t)(r->window * r->model->config->d_model) * sizeof(float));
    ssm__session_reset_layer(r->session, layer);
    ssm_session_set_observer(r->session, NULL);
    ssm__session_set_sink(r->session, &r->error_sink);
    const ssm_status status = ssm__session_layer(r->session, layer, r->window, err);
    ssm__session_set_sink(r->session, &r->record_sink);
    ssm_session_set_observer(r->session, &r->observer);
    for (int64_t b = 0; b < r->n_budgets; b++) {
        r->channel[b] = r->has_calibration ? ssm__head_errors_total(&r->errors, b) : 0.0;
        r->channel[r->n_budgets + b] = ssm__head_errors_total(&r->errors, statics + b);
    }
    ssm__head_sums_drop_blocks(&r->sums); /* the second pass left its energies there */
    return status;
}

/* ---- the null -------------------------------------------------------------------------------- */

/* Mean over channels of the Jaccard distance between the top sets of the window's two halves. */
static double null_distance(const ssm__head_recorder *r, const double *halves, int64_t budget)
{
    const int64_t N = r->sums.d_state;
    const int64_t count = n_channels(r) * N;
    double sum = 0.0;
    for (int64_t channel = 0; channel < n_channels(r); channel++) {
        int64_t common = 0;
        ssm__rank_modes(halves + channel * N, N, r->order);
        memset(r->in_half, 0, (size_t)N);
        for (int64_t k = 0; k < budget; k++) {
            r->in_half[r->order[k]] = 1;
        }
        ssm__rank_modes(halves + count + channel * N, N, r->order);
        for (int64_t k = 0; k < budget; k++) {
            common += r->in_half[r->order[k]];
        }
        sum += 1.0 - (double)common / (double)(2 * budget - common);
    }
    return sum / (double)n_channels(r);
}

/* energies must hold the window's; both halves take its place. */
static void measure_null(ssm__head_recorder *r)
{
    const int64_t N = r->sums.d_state;
    const int64_t count = n_channels(r) * N;
    double *null = r->channel + 2 * r->n_budgets;
    memset(null, 0, (size_t)r->n_budgets * sizeof *null);
    if (ssm__energy_blocks(r->window) < 2) {
        return; /* no halves */
    }
    for (int64_t i = 0; i < count; i++) {
        const double first = ssm__head_sums_half(&r->sums, i % N, i / N);
        r->energies[count + i] = ssm__head_sums_at(&r->sums, i % N, i / N) - first;
        r->energies[i] = first;
    }
    for (int64_t b = 0; b < r->n_budgets; b++) {
        null[b] = null_distance(r, r->energies, r->budgets[b]);
    }
}

/* ---- a layer's tensors ----------------------------------------------------------------------- */

typedef struct tensor_list {
    int64_t layer, count;
    ssm_tensor tensors[FIELDS];
    char names[FIELDS][NAME_MAX_BYTES];
} tensor_list;

static void add_tensor(tensor_list *list, const char *field, ssm_dtype dtype, const void *data,
                       int n_dims, const int64_t dims[3])
{
    char *name = list->names[list->count];
    ssm_tensor *tensor = &list->tensors[list->count++];
    snprintf(name, NAME_MAX_BYTES, "layers.%lld.%s", (long long)list->layer, field);
    *tensor = (ssm_tensor){.name = name, .dtype = dtype, .n_dims = n_dims, .data = data};
    memcpy(tensor->dims, dims, (size_t)n_dims * sizeof *dims);
    tensor->bytes = (size_t)ssm_tensor_count(tensor) * ssm_dtype_size(dtype);
}

/* Row `row` summed over the head's channels. */
static double head_sum(const ssm__head_recorder *r, int64_t row, int64_t head)
{
    const int64_t P = r->model->config->head_dim;
    double sum = 0.0;
    for (int64_t channel = head * P; channel < (head + 1) * P; channel++) {
        sum += ssm__head_sums_at(&r->sums, row, channel);
    }
    return sum;
}

/* Means over tokens and channels of N numbers a head, [H][N]. */
static void put_moments(const ssm__head_recorder *r, float *state, float *read, float *adjoint)
{
    const int64_t N = r->sums.d_state;
    const double count = (double)(r->window * r->model->config->head_dim);
    for (int64_t i = 0; i < r->sums.n_heads * N; i++) {
        state[i] = (float)(head_sum(r, N + i % N, i / N) / count);
        read[i] = (float)(ssm__head_sums_read(&r->sums, false, i % N, i / N) / count);
        adjoint[i] = (float)(ssm__head_sums_read(&r->sums, true, i % N, i / N) / count);
    }
}

/* The tensors that every window has. The window's energies stay in r->energies as they are stored.
 */
static void layer_tensors(ssm__head_recorder *r, tensor_list *list)
{
    const int64_t H = r->sums.n_heads;
    const int64_t N = r->sums.d_state;
    const int64_t P = r->model->config->head_dim;
    float *energy = r->values;
    float *output = energy + n_channels(r) * N;
    float *state = output + H;
    float *read = state + H * N;
    float *adjoint = read + H * N;
    float *delta = adjoint + H * N;
    for (int64_t i = 0; i < n_channels(r) * N; i++) {
        energy[i] = (float)ssm__head_sums_at(&r->sums, i % N, i / N);
        r->energies[i] = (double)energy[i];
    }
    for (int64_t head = 0; head < H; head++) {
        output[head] = (float)head_sum(r, 2 * N, head);
        delta[head] = (float)(r->sums.delta[head] / (double)r->window);
    }
    put_moments(r, state, read, adjoint);
    const int64_t blocks[3] = {ssm__energy_blocks(r->window), H, N};
    const int64_t channels[3] = {H, P, N};
    const int64_t modes[3] = {H, N};
    add_tensor(list, "energy_blocks", SSM_DTYPE_F32, r->sums.energy_blocks, 3, blocks);
    add_tensor(list, "energy", SSM_DTYPE_F32, energy, 3, channels);
    add_tensor(list, "output_energy", SSM_DTYPE_F32, output, 1, modes);
    add_tensor(list, "state_moment", SSM_DTYPE_F32, state, 2, modes);
    add_tensor(list, "read_moment", SSM_DTYPE_F32, read, 2, modes);
    add_tensor(list, "delta_mean", SSM_DTYPE_F32, delta, 1, modes);
    add_tensor(list, "adjoint_moment", SSM_DTYPE_F32, adjoint, 2, modes);
}

/* What an evaluation window has besides. */
static ssm_status channel_tensors(ssm__head_recorder *r, int64_t index, tensor_list *list,
                                  ssm_error *err)
{
    const int64_t dims[3] = {r->n_budgets};
    ssm__head_ranks(r->model->config, r->energies, r->order, r->own_rank);
    measure_null(r);
    SSM__TRY(measure_errors(r, list->layer, index, err));
    if (r->has_calibration) {
        add_tensor(list, "channel_error_static", SSM_DTYPE_F64, r->channel, 1, dims);
    }
    add_tensor(list, "channel_error_diag", SSM_DTYPE_F64, r->channel + r->n_budgets, 1, dims);
    add_tensor(list, "channel_churn_null", SSM_DTYPE_F64, r->channel + 2 * r->n_budgets, 1, dims);
    return SSM_STATUS_OK;
}

/* The layer has seen the whole window: it goes to the disk. */
static ssm_status layer_finished(void *context, int64_t layer, int64_t end, ssm_error *err)
{
    (void)end;
    ssm__head_recorder *r = context;
    tensor_list list = {.layer = layer};
    char name[NAME_MAX_BYTES];
    int64_t index = 0;
    while (r->layers[index] != layer) {
        index++;
    }
    layer_tensors(r, &list);
    if (r->evaluation && r->has_gram) {
        SSM__TRY(channel_tensors(r, index, &list, err));
    }
    ssm_tensor gram = {.name = name,
                       .dtype = SSM_DTYPE_F64,
                       .n_dims = 2,
                       .dims = {r->sums.n_heads, ssm__gram_entries(r->sums.d_state)},
                       .data = r->sums.gram};
    if (r->has_gram) {
        snprintf(name, sizeof name, "layers.%lld.gram", (long long)layer);
        ssm__head_sums_pack(&r->sums);
        gram.bytes = (size_t)ssm_tensor_count(&gram) * sizeof(double);
    }
    SSM__TRY(ssm__recording_put_layer(r->writer, list.tensors, list.count,
                                      r->has_gram ? &gram : NULL, err));
    ssm__head_sums_begin(&r->sums, r->window);
    return SSM_STATUS_OK;
}

static void capture_input(void *context, const ssm_tap *tap)
{
    const ssm__head_recorder *r = context;
    if (r->evaluation && r->has_gram && r->sums.recorded[tap->layer]) {
        ssm_tap_copy(tap, r->layer_in + tap->position * tap->width);
    }
}

static void enter(void *context, int64_t layer, int64_t group, int thread,
                  ssm__head_scan_args *args)
{
    const ssm__head_recorder *r = context;
    r->sums.sink.enter_head(r->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__head_scan_args *args)
{
    const ssm__head_recorder *r = context;
    r->sums.sink.leave_head(r->sums.sink.context, layer, group, position, args);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void layout(ssm__arena *arena, ssm__head_recorder *r)
{
    const int64_t modes = n_channels(r) * r->sums.d_state;
    const int64_t H = r->sums.n_heads;
    const int64_t values = modes + H * (3 * r->sums.d_state + 2);
    r->energies = SSM__TAKE(arena, double, 2 * modes);
    r->order = SSM__TAKE(arena, int32_t, r->sums.d_state);
    r->in_half = SSM__TAKE(arena, uint8_t, r->sums.d_state);
    r->values = SSM__TAKE(arena, float, values);
    r->channel = SSM__TAKE(arena, double, 3 * r->n_budgets);
    if (!r->has_gram) {
        return; /* no second pass */
    }
    r->static_rank = SSM__TAKE(arena, uint16_t, r->has_calibration ? r->n_layers * modes : 0);
    r->own_rank = SSM__TAKE(arena, uint16_t, modes);
    r->layer_in = SSM__TAKE(arena, float, r->window * r->model->config->d_model);
}

ssm_status ssm__head_recorder_create(const ssm_model *model, ssm_session *session,
                                     ssm__recording_writer *writer,
                                     const ssm__head_recorder_options *options,
                                     ssm__head_recorder *out, ssm_error *err)
{
    *out = (ssm__head_recorder){.model = model,
                                .session = session,
                                .writer = writer,
                                .layers = options->layers,
                                .n_layers = options->n_layers,
                                .budgets = options->budgets,
                                .n_budgets = options->n_budgets,
                                .window = options->window,
                                .has_calibration = options->has_calibration,
                                .has_gram = options->has_gram};
    SSM__TRY(ssm__head_sums_create(model, options->window, options->has_gram, options->recorded,
                                   options->pool, &out->sums, err));
    ssm__arena count = {0};
    layout(&count, out);
    const int64_t sets = options->n_budgets * (options->has_calibration ? 2 : 1);
    ssm_status status =
        ssm__head_errors_create(&out->sums, out->has_gram ? sets : 0, &out->errors, err);
    if (status == SSM_STATUS_OK) {
        status = count.overflow ? ssm__fail_memory(err, "the sets of all channels", SIZE_MAX)
                                : ssm__arena_create(&out->arena, count.used, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm__head_recorder_free(out);
        return status;
    }
    layout(&out->arena, out);
    out->record_sink = (ssm__mode_sink){.context = out,
                                        .enter_head = enter,
                                        .leave_head = leave,
                                        .finished = layer_finished,
                                        .layers = out->sums.recorded};
    out->error_sink = (ssm__mode_sink){.context = out,
                                       .enter_head = enter_errors,
                                       .leave_head = leave_errors,
                                       .layers = out->sums.recorded};
    out->observer = (ssm_observer){
        .context = out, .points = UINT64_C(1) << SSM_TAP_RESID_PRE, .read = capture_input};
    ssm__session_set_sink(session, &out->record_sink);
    ssm_session_set_observer(session, &out->observer);
    return SSM_STATUS_OK;
}

void ssm__head_recorder_free(ssm__head_recorder *recorder)
{
    ssm__head_errors_free(&recorder->errors);
    ssm__head_sums_free(&recorder->sums);
    ssm__arena_free(&recorder->arena);
}

ssm_status ssm__head_recorder_begin(ssm__head_recorder *recorder, ssm_role role, ssm_error *err)
{
    recorder->evaluation = role == SSM_ROLE_EVALUATION;
    if (recorder->evaluation && recorder->has_gram && recorder->has_calibration &&
        !recorder->ranked) {
        SSM__TRY(rank_static(recorder, err));
    }
    ssm__head_sums_begin(&recorder->sums, recorder->window);
    return SSM_STATUS_OK;
}

void ssm__head_recorder_A(const ssm_model *model, int64_t layer, float *out)
{
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(model));
    ssm__tensor_to_f32(&weights->layers[layer].A_log, out);
    for (int64_t head = 0; head < model->config->n_heads; head++) {
        out[head] = (float)-exp((double)out[head]);
    }
}
