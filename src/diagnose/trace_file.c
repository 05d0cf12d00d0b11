/* diagnose/trace_file.c: hidden states and logits that a file holds. */
#include "diagnose/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "safetensors/dtype.h"

typedef struct reader {
    const char *path;
    const ssm_safetensors *file;
    const char *sequence; /* or NULL */
    ssm_trace *out;
} reader;

static const ssm_tensor *find(const reader *r, const char *name)
{
    char full[64];
    if (r->sequence == NULL) {
        return ssm_safetensors_find(r->file, name);
    }
    snprintf(full, sizeof full, "%s.%s", name, r->sequence);
    return ssm_safetensors_find(r->file, full);
}

static bool is_real(ssm_dtype dtype)
{
    return dtype == SSM_DTYPE_F32 || dtype == SSM_DTYPE_F64 || dtype == SSM_DTYPE_F16 ||
           dtype == SSM_DTYPE_BF16;
}

/* n_dims dimensions, of which those of a batch of one may be missing in `expected`. */
static ssm_status check_form(const reader *r, const ssm_tensor *tensor, int n_dims,
                             const char *expected, ssm_error *err)
{
    if (is_real(tensor->dtype) && tensor->n_dims == n_dims) {
        return SSM_STATUS_OK;
    }
    char shape[256];
    ssm__shape_text(tensor->dims, tensor->n_dims, shape, sizeof shape);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(r->path, tensor->name),
                     "the tensor is %s %s; expected %s in F32, F64, F16 or BF16",
                     ssm_dtype_name(tensor->dtype), shape, expected);
}

/* The first tensor says how many tokens there are; all others must agree. */
static ssm_status check_tokens(const reader *r, const ssm_tensor *tensor, int64_t tokens,
                               ssm_error *err)
{
    if (r->out->tokens == 0) {
        r->out->tokens = tokens;
    }
    if (tokens > 0 && r->out->tokens == tokens) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(r->path, tensor->name),
                     "the tensor has %" PRId64 " tokens, others have %" PRId64
                     "; all must be of one text of at least one token",
                     tokens, r->out->tokens);
}

static ssm_status reserve_hidden(const reader *r, int64_t count, ssm_error *err)
{
    void *list = NULL;
    SSM__TRY(ssm__trace_reserve(1, 1, count, sizeof(ssm_tensor), "the hidden states", &list, err));
    r->out->hidden = list;
    r->out->n_hidden = count;
    return SSM_STATUS_OK;
}

/* hidden [n_layers+1, L, d_model] cut into its planes. */
static ssm_status read_stack(const reader *r, const ssm_tensor *stack, ssm_error *err)
{
    SSM__TRY(check_form(r, stack, 3, "[n_layers + 1, tokens, d_model]", err));
    SSM__TRY(check_tokens(r, stack, stack->dims[1], err));
    SSM__TRY(reserve_hidden(r, stack->dims[0], err));
    const int64_t rows = stack->dims[1], width = stack->dims[2];
    for (int64_t k = 0; k < stack->dims[0]; k++) {
        ssm_tensor plane = ssm__trace_view(stack->name, stack->dtype, NULL, rows, width);
        plane.data = (const char *)stack->data + (size_t)k * plane.bytes;
        plane.file = stack->file;
        r->out->hidden[k] = plane;
    }
    return SSM_STATUS_OK;
}

static const ssm_tensor *plane_at(const reader *r, int64_t k)
{
    char name[32];
    snprintf(name, sizeof name, "hidden.%" PRId64, k);
    return ssm_safetensors_find(r->file, name);
}

/* hidden.0, hidden.1, … [L, d_model] each. */
static ssm_status read_planes(const reader *r, ssm_error *err)
{
    int64_t count = 0;
    while (plane_at(r, count) != NULL) {
        count++;
    }
    SSM__TRY(reserve_hidden(r, count, err));
    for (int64_t k = 0; k < count; k++) {
        const ssm_tensor *plane = plane_at(r, k);
        SSM__TRY(check_form(r, plane, 2, "[tokens, d_model]", err));
        SSM__TRY(check_tokens(r, plane, plane->dims[0], err));
        if (plane->dims[1] != plane_at(r, 0)->dims[1]) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(r->path, plane->name),
                             "the hidden state is %" PRId64 " wide, that of the embedding %" PRId64,
                             plane->dims[1], plane_at(r, 0)->dims[1]);
        }
        r->out->hidden[k] = *plane;
    }
    return SSM_STATUS_OK;
}

static ssm_status read_hidden(const reader *r, ssm_error *err)
{
    const ssm_tensor *stack = find(r, "hidden_float64");
    if (stack == NULL) {
        stack = find(r, "hidden");
    }
    /* hidden.0 is a plane when it has two dimensions, a sequence's stack when it has three. */
    if (stack != NULL && (r->sequence == NULL || stack->n_dims == 3)) {
        return read_stack(r, stack, err);
    }
    return r->sequence == NULL && plane_at(r, 0) != NULL ? read_planes(r, err) : SSM_STATUS_OK;
}

static ssm_status read_logits(const reader *r, ssm_error *err)
{
    const ssm_tensor *logits = find(r, "logits_float64");
    if (logits == NULL) {
        logits = find(r, "logits");
    }
    if (logits == NULL) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(check_form(r, logits, 2, "[tokens, vocab_size]", err));
    SSM__TRY(check_tokens(r, logits, logits->dims[0], err));
    r->out->logits = *logits;
    return SSM_STATUS_OK;
}

static ssm_status read_ids(const reader *r, ssm_error *err)
{
    const ssm_tensor *ids = find(r, "ids");
    if (ids == NULL) {
        return SSM_STATUS_OK;
    }
    const int64_t count = ssm_tensor_count(ids);
    void *memory = NULL;
    SSM__TRY(check_tokens(r, ids, count, err));
    SSM__TRY(ssm__trace_reserve(1, 1, count, sizeof *r->out->ids, "the ids", &memory, err));
    r->out->ids = memory;
    for (int64_t i = 0; i < count; i++) {
        const double value = ssm_tensor_get(ids, i);
        if (!(value >= 0 && value <= INT32_MAX) || value != floor(value)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(r->path, ids->name),
                             "element %" PRId64 " is %g; expected a token id", i, value);
        }
        r->out->ids[i] = (int32_t)value;
    }
    return SSM_STATUS_OK;
}

static ssm_status read_all(reader *r, const char *logits_path, ssm_error *err)
{
    SSM__TRY(ssm_safetensors_open(r->path, false, &r->out->file, err));
    r->file = r->out->file;
    SSM__TRY(read_hidden(r, err));
    SSM__TRY(read_ids(r, err));
    if (logits_path != NULL) {
        r->path = logits_path;
        SSM__TRY(ssm_safetensors_open(logits_path, false, &r->out->logits_file, err));
        r->file = r->out->logits_file;
    }
    SSM__TRY(read_logits(r, err));
    if (r->out->n_hidden == 0 && r->out->logits.data == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(r->path),
                         "the file has neither hidden states (hidden.0, hidden.1, …, or hidden or "
                         "hidden_float64 [n_layers + 1, tokens, d_model]) nor logits%s; where it "
                         "holds several sequences, name one (--sequence 0)",
                         r->sequence != NULL ? " of this sequence" : "");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_trace_read(const char *path, const char *logits_path, const char *sequence,
                          ssm_trace *out, ssm_error *err)
{
    *out = (ssm_trace){0};
    reader r = {.path = path, .sequence = sequence, .out = out};
    const ssm_status status = read_all(&r, logits_path, err);
    if (status != SSM_STATUS_OK) {
        ssm_trace_free(out);
    }
    return status;
}
