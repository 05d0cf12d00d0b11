/* diagnose/trace.c: hidden states and logits of a pass of ours. */
#include "diagnose/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

ssm_status ssm__trace_reserve(int64_t planes, int64_t rows, int64_t width, size_t element,
                              const char *what, void **out, ssm_error *err)
{
    int64_t count = 0;
    size_t bytes = 0;
    *out = NULL;
    if (!ssm__mul_dim(planes, rows, &count) || !ssm__mul_dim(count, width, &count) ||
        !ssm__mul_size((size_t)count, element, &bytes)) {
        return ssm__fail_memory(err, what, SIZE_MAX);
    }
    *out = calloc(bytes == 0 ? 1 : bytes, 1);
    return *out != NULL ? SSM_STATUS_OK : ssm__fail_memory(err, what, bytes);
}

ssm_tensor ssm__trace_view(const char *name, ssm_dtype dtype, const void *data, int64_t rows,
                           int64_t width)
{
    return (ssm_tensor){.name = name,
                        .dtype = dtype,
                        .n_dims = 2,
                        .dims = {rows, width},
                        .data = data,
                        .bytes = (size_t)(rows * width) * ssm_dtype_size(dtype),
                        .file_offset = -1};
}

ssm_status ssm__trace_check_ids(const ssm_config *config, const int32_t *ids, int64_t count,
                                ssm_error *err)
{
    if (count < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "there is no token to compare on; at least one is needed");
    }
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= config->vocab_size) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "id %" PRId32 " (number %" PRId64
                             ") is outside the vocabulary of %" PRId64 " ids",
                             ids[i], i + 1, config->vocab_size);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__trace_forward(const ssm_model *model, const int32_t *ids, int64_t count,
                              ssm_pool *pool, const ssm_progress *progress,
                              const ssm_observer *observer, ssm_logits_fn *fn, void *context,
                              int64_t *offset, ssm_error *err)
{
    enum { PIECE = 256 };
    const ssm_session_options options = {.pool = pool, .max_chunk = count < PIECE ? count : PIECE};
    ssm_session *session = NULL;
    SSM__TRY(ssm_session_create(model, &options, &session, err));
    ssm_session_set_observer(session, observer);
    const ssm_logits_want want = fn != NULL ? SSM_LOGITS_ALL : SSM_LOGITS_NONE;
    ssm_status status = SSM_STATUS_OK;
    for (int64_t done = 0; status == SSM_STATUS_OK && done < count;) {
        const int64_t n = count - done < PIECE ? count - done : PIECE;
        if (offset != NULL) {
            *offset = done;
        }
        status = ssm_session_forward(session, ids + done, n, want, fn, context, err);
        done += n;
        if (status == SSM_STATUS_OK && progress != NULL &&
            !progress->report(progress->context, "forward", done, count, "tokens")) {
            status = ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                               "stopped after %" PRId64 " of %" PRId64 " tokens", done, count);
        }
    }
    ssm_session_free(session);
    return status;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* The numbers of a trace in one block: hidden states, ln_final, logits. */
typedef struct recorder {
    const ssm_config *config;
    int64_t tokens, offset;
    float *hidden, *ln_final, *logits;
} recorder;

static void read_tap(void *context, const ssm_tap *tap)
{
    recorder *r = context;
    const int64_t width = r->config->d_model;
    if (tap->point == SSM_TAP_LN_FINAL) {
        ssm_tap_copy(tap, r->ln_final + tap->position * width);
        return;
    }
    const int64_t plane = tap->point == SSM_TAP_EMBED ? 0 : tap->layer + 1;
    ssm_tap_copy(tap, r->hidden + (plane * r->tokens + tap->position) * width);
}

static void read_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    recorder *r = context;
    const int64_t width = r->config->vocab_size;
    memcpy(r->logits + (r->offset + first) * width, logits,
           (size_t)(tokens * width) * sizeof *logits);
}

/* hidden, ids and the views of a trace whose numbers stand in memory. */
static ssm_status set_up(const ssm_config *config, const int32_t *ids, int64_t count,
                         ssm_dtype dtype, ssm_trace *out, ssm_error *err)
{
    const int64_t planes = config->n_layers + 1;
    const size_t element = ssm_dtype_size(dtype);
    void *list = NULL, *copy = NULL;
    out->tokens = count;
    SSM__TRY(ssm__trace_reserve(1, 1, planes, sizeof(ssm_tensor), "the hidden states", &list, err));
    out->hidden = list;
    out->n_hidden = planes;
    SSM__TRY(ssm__trace_reserve(1, 1, count, sizeof *ids, "the ids", &copy, err));
    out->ids = copy;
    memcpy(out->ids, ids, (size_t)count * sizeof *ids);
    int64_t numbers = 0; /* a token's: hidden states, ln_final, logits */
    if (!ssm__mul_dim(planes + 1, config->d_model, &numbers)) {
        return ssm__fail_memory(err, "the hidden states", SIZE_MAX);
    }
    SSM__TRY(ssm__trace_reserve(count, numbers + config->vocab_size, 1, element,
                                "the hidden states and logits", &out->memory, err));
    char *at = out->memory;
    const size_t plane_bytes = (size_t)(count * config->d_model) * element;
    for (int64_t k = 0; k < planes; k++, at += plane_bytes) {
        out->hidden[k] = ssm__trace_view("hidden", dtype, at, count, config->d_model);
    }
    out->ln_final = ssm__trace_view("ln_final", dtype, at, count, config->d_model);
    out->logits = ssm__trace_view("logits", dtype, at + plane_bytes, count, config->vocab_size);
    return SSM_STATUS_OK;
}

static ssm_status finish(ssm_status status, ssm_trace *out)
{
    if (status != SSM_STATUS_OK) {
        ssm_trace_free(out);
    }
    return status;
}

ssm_status ssm_trace_run(const ssm_model *model, const int32_t *ids, int64_t count, ssm_pool *pool,
                         const ssm_progress *progress, ssm_trace *out, ssm_error *err)
{
    const ssm_config *config = ssm_model_config(model);
    *out = (ssm_trace){0};
    SSM__TRY(ssm__trace_check_ids(config, ids, count, err));
    ssm_status status = set_up(config, ids, count, SSM_DTYPE_F32, out, err);
    if (status == SSM_STATUS_OK) {
        float *numbers = out->memory;
        const int64_t planes = out->n_hidden * count * config->d_model;
        recorder r = {.config = config,
                      .tokens = count,
                      .hidden = numbers,
                      .ln_final = numbers + planes,
                      .logits = numbers + planes + count * config->d_model};
        const ssm_observer observer = {.context = &r,
                                       .points = UINT64_C(1) << SSM_TAP_EMBED |
                                                 UINT64_C(1) << SSM_TAP_RESID_POST |
                                                 UINT64_C(1) << SSM_TAP_LN_FINAL,
                                       .read = read_tap};
        status = ssm__trace_forward(model, ids, count, pool, progress, &observer, read_logits, &r,
                                    &r.offset, err);
    }
    return finish(status, out);
}

ssm_status ssm_trace_reference(const ssm_model *model, const int32_t *ids, int64_t count,
                               ssm_trace *out, ssm_error *err)
{
    const ssm_config *config = ssm_model_config(model);
    *out = (ssm_trace){0};
    SSM__TRY(ssm__trace_check_ids(config, ids, count, err));
    ssm_status status = set_up(config, ids, count, SSM_DTYPE_F64, out, err);
    if (status == SSM_STATUS_OK) {
        double *numbers = out->memory;
        const int64_t planes = (out->n_hidden + 1) * count * config->d_model;
        out->ln_final.data = NULL;
        status = ssm_reference_forward(model, ids, count, numbers + planes, numbers, err);
    }
    return finish(status, out);
}

void ssm_trace_free(ssm_trace *trace)
{
    free(trace->hidden);
    free(trace->ids);
    free(trace->memory);
    ssm_safetensors_close(trace->file);
    ssm_safetensors_close(trace->logits_file);
    *trace = (ssm_trace){0};
}
