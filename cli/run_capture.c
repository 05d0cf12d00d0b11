#include "run_capture.h"

#include <stdlib.h>
#include <string.h>

#include "messages.h"

static size_t element_size(const cli_capture *capture)
{
    return capture->reference ? sizeof(double) : sizeof(float);
}

/* Room for planes × rows × width numbers; one byte for none. */
static ssm_status reserve(const cli_capture *capture, const char *what, int64_t planes,
                          int64_t rows, int64_t width, void **out, ssm_error *err)
{
    size_t bytes = 0;
    bool overflow = __builtin_mul_overflow((size_t)planes, (size_t)rows, &bytes) ||
                    __builtin_mul_overflow(bytes, (size_t)width, &bytes) ||
                    __builtin_mul_overflow(bytes, element_size(capture), &bytes);
    *out = overflow ? NULL : malloc(bytes == 0 ? 1 : bytes);
    if (*out != NULL) {
        return SSM_STATUS_OK;
    }
    char text[32];
    cli_format_bytes((double)planes * (double)rows * (double)width * (double)element_size(capture),
                     text);
    return cli_fail(err, SSM_STATUS_MEMORY, NULL,
                    "out of memory: the %s of %lld tokens take %s; give fewer tokens", what,
                    (long long)rows, text);
}

ssm_status cli_capture_create(const ssm_config *config, const ssm_ids *ids, bool logits,
                              bool hidden, bool reference, cli_capture *out, ssm_error *err)
{
    const int64_t tokens = ids->count;
    *out =
        (cli_capture){.config = config, .ids = ids->data, .tokens = tokens, .reference = reference};
    ssm_status status = SSM_STATUS_OK;
    if (logits) {
        status = reserve(out, "logits", 1, tokens, config->vocab_size, &out->logits, err);
    }
    if (status == SSM_STATUS_OK && hidden) {
        status = reserve(out, "hidden states", config->n_layers + 1, tokens, config->d_model,
                         &out->hidden, err);
    }
    return status;
}

void cli_capture_free(cli_capture *capture)
{
    free(capture->logits);
    free(capture->hidden);
    *capture = (cli_capture){0};
}

void cli_capture_logits(cli_capture *capture, int64_t first, int64_t tokens, const float *logits)
{
    int64_t width = capture->config->vocab_size;
    memcpy((float *)capture->logits + (capture->offset + first) * width, logits,
           (size_t)(tokens * width) * sizeof(float));
}

/* hidden.0 is the embedding, hidden.k the stream after block k − 1. */
static void read_tap(void *context, const ssm_tap *tap)
{
    const cli_capture *capture = context;
    int64_t plane = tap->point == SSM_TAP_EMBED ? 0 : tap->layer + 1;
    int64_t row = plane * capture->tokens + tap->position - capture->start;
    ssm_tap_copy(tap, (float *)capture->hidden + row * capture->config->d_model);
}

const ssm_observer *cli_capture_observer(cli_capture *capture)
{
    if (capture->hidden == NULL) {
        return NULL;
    }
    capture->observer = (ssm_observer){.context = capture,
                                       .points = (UINT64_C(1) << SSM_TAP_EMBED) |
                                                 (UINT64_C(1) << SSM_TAP_RESID_POST),
                                       .read = read_tap};
    return &capture->observer;
}

/* ---- files ----------------------------------------------------------------------------------- */

static ssm_tensor view(const cli_capture *capture, const char *name, const void *data,
                       int64_t width)
{
    return (ssm_tensor){.name = name,
                        .dtype = capture->reference ? SSM_DTYPE_F64 : SSM_DTYPE_F32,
                        .n_dims = 2,
                        .dims = {capture->tokens, width},
                        .data = data,
                        .bytes = (size_t)(capture->tokens * width) * element_size(capture),
                        .file_offset = -1};
}

/* The ids that were run stand in every file, so that it can be compared with by itself. */
static ssm_tensor ids_view(const cli_capture *capture)
{
    return (ssm_tensor){.name = "ids",
                        .dtype = SSM_DTYPE_I32,
                        .n_dims = 1,
                        .dims = {capture->tokens},
                        .data = capture->ids,
                        .bytes = (size_t)capture->tokens * sizeof(int32_t),
                        .file_offset = -1};
}

static ssm_status write_file(const cli_context *context, const char *model_digest, const char *path,
                             const ssm_tensor *tensors, int64_t count, ssm_error *err)
{
    const ssm_metadata metadata[] = {{"command", context->canonical},
                                     {"model_digest", model_digest},
                                     {"program_version", ssm_version()}};
    return ssm_safetensors_write(path, tensors, count, metadata, sizeof metadata / sizeof *metadata,
                                 err);
}

static ssm_status write_hidden(const cli_capture *capture, const cli_context *context,
                               const char *model_digest, const char *path, ssm_error *err)
{
    int64_t planes = capture->config->n_layers + 1;
    int64_t width = capture->config->d_model;
    ssm_tensor *tensors = calloc((size_t)planes + 1, sizeof *tensors);
    char(*names)[32] = calloc((size_t)planes, sizeof *names);
    ssm_status status = SSM_STATUS_OK;
    if (tensors == NULL || names == NULL) {
        status = cli_no_memory(err);
    }
    for (int64_t k = 0; status == SSM_STATUS_OK && k < planes; k++) {
        size_t start = (size_t)(k * capture->tokens * width) * element_size(capture);
        snprintf(names[k], sizeof names[k], "hidden.%lld", (long long)k);
        tensors[k] = view(capture, names[k], (const char *)capture->hidden + start, width);
    }
    if (status == SSM_STATUS_OK) {
        tensors[planes] = ids_view(capture);
        status = write_file(context, model_digest, path, tensors, planes + 1, err);
    }
    free(names);
    free(tensors);
    return status;
}

ssm_status cli_capture_write(const cli_capture *capture, const cli_context *context,
                             const char *model_digest, const char *logits_path,
                             const char *hidden_path, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    if (logits_path != NULL) {
        const ssm_tensor tensors[] = {
            view(capture, "logits", capture->logits, capture->config->vocab_size),
            ids_view(capture)};
        status = write_file(context, model_digest, logits_path, tensors, 2, err);
    }
    if (status == SSM_STATUS_OK && hidden_path != NULL) {
        status = write_hidden(capture, context, model_digest, hidden_path, err);
    }
    return status;
}
