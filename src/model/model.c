/* model/model.c: from the slots of a checkpoint to what the kernels read. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "checkpoint/tensor.h"

static ssm__matrix matrix_of(const ssm_tensor *tensor)
{
    return (ssm__matrix){tensor->data, tensor->dtype, tensor->dims[0], tensor->dims[1]};
}

/* Rows [first, first + rows) of a matrix. */
static ssm__matrix matrix_rows(ssm__matrix matrix, int64_t first, int64_t rows)
{
    const size_t row_bytes = (size_t)matrix.cols * ssm_dtype_size(matrix.dtype);
    matrix.data = (const char *)matrix.data + (size_t)first * row_bytes;
    matrix.rows = rows;
    return matrix;
}

/* A dense float32 copy, NULL for an absent tensor. While counting only takes the memory. */
static float *copy_dense(ssm__arena *arena, const ssm_tensor *tensor)
{
    if (!tensor->data) {
        return NULL;
    }
    float *out = SSM__TAKE(arena, float, ssm_tensor_count(tensor));
    if (out) {
        ssm__tensor_to_f32(tensor, out);
    }
    return out;
}

/* [channels][width] → [G][width][16]; an absent tensor gives zeros. */
static float *copy_grouped(ssm__arena *arena, const ssm_tensor *tensor, int64_t groups,
                           int64_t width)
{
    float *out = SSM__TAKE(arena, float, groups *width *SSM__LANES);
    if (out && tensor->data) {
        const int64_t channels = ssm_tensor_count(tensor) / width;
        for (int64_t channel = 0; channel < channels; channel++) {
            for (int64_t k = 0; k < width; k++) {
                const int64_t at = (channel / SSM__LANES * width + k) * SSM__LANES;
                out[at + channel % SSM__LANES] = (float)ssm_tensor_get(tensor, channel * width + k);
            }
        }
    }
    return out;
}

/* A_log → A·log2(e) in float64, rounded once: 2^(Δ·A2) = exp(Δ·A). */
static void decay_rates(float *A2, int64_t count)
{
    for (int64_t i = 0; A2 && i < count; i++) {
        A2[i] = (float)(-exp((double)A2[i]) * 1.4426950408889634);
    }
}

static void layout_layer(ssm__arena *arena, const ssm_config *c, int64_t groups,
                         const ssm__layer_weights *w, ssm__mamba_layer *layer)
{
    ssm__mamba_layer l = {0};
    const ssm__matrix in_proj = matrix_of(&w->in_proj);
    l.in_proj_x = matrix_rows(in_proj, 0, c->d_inner);
    l.in_proj_z = matrix_rows(in_proj, c->d_inner, c->d_inner);
    l.x_proj = matrix_of(&w->x_proj);
    l.dt_proj = matrix_of(&w->dt_proj);
    l.out_proj = matrix_of(&w->out_proj);
    l.norm = copy_dense(arena, &w->norm);
    l.in_proj_bias = copy_dense(arena, &w->in_proj_bias);
    l.out_proj_bias = copy_dense(arena, &w->out_proj_bias);
    l.conv_weight = copy_grouped(arena, &w->conv1d, groups, c->d_conv);
    l.conv_bias = copy_grouped(arena, &w->conv1d_bias, groups, 1);
    l.dt_bias = copy_grouped(arena, &w->dt_proj_bias, groups, 1);
    l.A2 = copy_grouped(arena, &w->A_log, groups, c->d_state);
    decay_rates(l.A2, groups * c->d_state * SSM__LANES);
    l.D = copy_grouped(arena, &w->D, groups, 1);
    if (arena->memory) {
        *layer = l;
    }
}

/* Everything the model owns beside the checkpoint; run twice (see base/arena.h). */
static void layout(ssm__arena *arena, ssm_model *model, const ssm__weights *weights)
{
    const ssm_config *c = model->config;
    model->layers = SSM__TAKE(arena, ssm__mamba_layer, c->n_layers);
    model->norm_f = copy_dense(arena, &weights->norm_f);
    for (int64_t i = 0; i < c->n_layers; i++) {
        layout_layer(arena, c, model->n_groups16, &weights->layers[i],
                     model->layers ? &model->layers[i] : NULL);
    }
}

/* A_log is finite, but exp of it must be so too: A = -inf gives 0 · inf where a step is 0. */
static ssm_status check_decay(const ssm_tensor *A_log, ssm_error *err)
{
    for (int64_t i = 0; i < ssm_tensor_count(A_log); i++) {
        const double value = ssm_tensor_get(A_log, i);
        if (value > 88.0) {
            const int64_t offset = A_log->file_offset + i * (int64_t)ssm_dtype_size(A_log->dtype);
            return ssm__fail(err, SSM_STATUS_FILE, ((ssm__place){A_log->file, A_log->name, offset}),
                             "element %lld is %g: its exponential overflows float32 (expected at "
                             "most 88); the checkpoint is damaged or was badly converted",
                             (long long)i, value);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status build(ssm_model *model, ssm_error *err)
{
    const ssm__weights *weights = ssm__checkpoint_weights(model->checkpoint);
    model->config = ssm_checkpoint_config(model->checkpoint);
    model->n_groups16 = (model->config->d_inner + SSM__LANES - 1) / SSM__LANES;
    model->embedding = matrix_of(&weights->embedding);
    model->lm_head = matrix_of(&weights->lm_head);
    for (int64_t i = 0; i < model->config->n_layers; i++) {
        SSM__TRY(check_decay(&weights->layers[i].A_log, err));
    }

    ssm__arena count = {0};
    layout(&count, model, weights);
    if (count.overflow) {
        return ssm__fail_memory(err, "the model's small tensors", SIZE_MAX);
    }
    SSM__TRY(ssm__arena_create(&model->arena, count.used, err));
    layout(&model->arena, model, weights);
    return SSM_STATUS_OK;
}

ssm_status ssm_model_create(ssm_checkpoint *checkpoint, ssm_isa isa, ssm_model **out,
                            ssm_error *err)
{
    *out = NULL;
    ssm_model *model = calloc(1, sizeof *model);
    if (!model) {
        ssm_checkpoint_close(checkpoint);
        return ssm__fail_memory(err, "a model", sizeof *model);
    }
    model->checkpoint = checkpoint;
    ssm_status status = SSM_STATUS_OK;
    if (!ssm_isa_supported(isa)) {
        status = ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "instruction set %s is not supported by this processor; the best here "
                           "is %s",
                           ssm_isa_name(isa), ssm_isa_name(ssm_isa_best()));
    }
    if (status == SSM_STATUS_OK) {
        model->kernels = ssm__kernels_for(isa);
        status = ssm_checkpoint_check_finite(checkpoint, err);
    }
    if (status == SSM_STATUS_OK) {
        status = build(model, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_model_free(model);
        return status;
    }
    *out = model;
    return SSM_STATUS_OK;
}

void ssm_model_free(ssm_model *model)
{
    if (!model) {
        return;
    }
    ssm__arena_free(&model->arena);
    ssm_checkpoint_close(model->checkpoint);
    free(model);
}

const ssm_config *ssm_model_config(const ssm_model *model)
{
    return model->config;
}

const ssm_checkpoint *ssm_model_checkpoint(const ssm_model *model)
{
    return model->checkpoint;
}

ssm_isa ssm_model_isa(const ssm_model *model)
{
    return model->kernels->isa;
}

void ssm__embed(const ssm_model *model, int32_t id, float *out)
{
    const ssm__matrix row = matrix_rows(model->embedding, id, 1);
    const ssm_tensor view = {.name = "embedding row",
                             .dtype = row.dtype,
                             .n_dims = 1,
                             .dims = {row.cols},
                             .data = row.data,
                             .bytes = (size_t)row.cols * ssm_dtype_size(row.dtype)};
    ssm__tensor_to_f32(&view, out);
}
