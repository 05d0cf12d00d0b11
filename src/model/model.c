/* model/model.c: a model of an open checkpoint. */
#include "model/layout.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "checkpoint/tensor.h"

/* What a layer keeps between tokens. */
static void measure_state(const ssm_config *c, ssm__block *block)
{
    const int64_t groups = ssm__scan_groups(c);
    const int64_t bc = block->kind == SSM_LAYER_MAMBA2 ? ssm__bc_groups(c) : 0;
    if (block->kind == SSM_LAYER_ATTENTION) {
        const int64_t past = c->attention_conv > 0 ? c->attention_conv - 1 : 0;
        block->conv_count =
            (ssm__attention_rows(c) + SSM__LANES - 1) / SSM__LANES * SSM__LANES * past;
        return;
    }
    block->conv_count = (groups + bc) * (c->d_conv - 1) * SSM__LANES;
    block->state_count = groups * c->d_state * SSM__LANES;
}

static void layout_block(ssm__arena *arena, ssm_model *model, const ssm__layer_weights *w,
                         ssm__block *out)
{
    const ssm_config *c = model->config;
    ssm__block b = {.kind = w->kind, .conv_at = model->conv_count, .state_at = model->state_count};
    measure_state(c, &b);
    b.norm = ssm__copy_dense(arena, &w->norm);
    b.norm_bias = ssm__copy_dense(arena, &w->norm_bias);
    if (w->kind == SSM_LAYER_MAMBA2) {
        ssm__mamba2_layout(arena, c, w, &b.mamba2);
    } else if (w->kind == SSM_LAYER_ATTENTION) {
        ssm__attention_layout(arena, c, w, &b.attention);
        b.attention.cache_index = model->n_attention++;
    } else {
        ssm__mamba_layout(arena, c, w, &b.mamba);
    }
    if (c->d_mlp > 0) {
        ssm__mlp_layout(arena, w, &b.mlp);
    }
    model->conv_count += b.conv_count;
    model->state_count += b.state_count;
    if (arena->memory) {
        *out = b;
    }
}

/* Everything the model owns beside the checkpoint; run twice (see base/arena.h). */
static void layout(ssm__arena *arena, ssm_model *model, const ssm__weights *weights)
{
    const ssm_config *c = model->config;
    model->conv_count = 0;
    model->state_count = 0;
    model->n_attention = 0;
    model->blocks = SSM__TAKE(arena, ssm__block, c->n_layers);
    model->norm_f = ssm__copy_dense(arena, &weights->norm_f);
    model->norm_f_bias = ssm__copy_dense(arena, &weights->norm_f_bias);
    model->rotary_turns = SSM__TAKE(arena, double, c->rotary_dim / 2);
    for (int64_t i = 0; model->rotary_turns && i < c->rotary_dim / 2; i++) {
        model->rotary_turns[i] = pow(c->rotary_base, -2.0 * (double)i / (double)c->rotary_dim);
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        layout_block(arena, model, &weights->layers[i], model->blocks ? &model->blocks[i] : NULL);
    }
}

/* A_log is finite, but exp of it must be so too: A = -inf gives 0 · inf where a step is 0. */
static ssm_status check_decay(const ssm_tensor *A_log, ssm_error *err)
{
    for (int64_t i = 0; A_log->data && i < ssm_tensor_count(A_log); i++) {
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
    model->n_groups16 = ssm__scan_groups(model->config);
    model->embedding = ssm__matrix_of(&weights->embedding);
    model->lm_head = ssm__matrix_of(&weights->lm_head);
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
    const ssm__matrix row = ssm__matrix_rows(model->embedding, id, 1);
    const ssm_tensor view = {.name = "embedding row",
                             .dtype = row.dtype,
                             .n_dims = 1,
                             .dims = {row.cols},
                             .data = row.data,
                             .bytes = (size_t)row.cols * ssm_dtype_size(row.dtype)};
    ssm__tensor_to_f32(&view, out);
}
