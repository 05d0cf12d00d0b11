/* model/layout.h: from the tensors of a checkpoint to what the kernels read.
 *
 * The copies are taken from the model's arena; while it counts they are NULL (see base/arena.h). */
#ifndef SSM_MODEL_LAYOUT_H
#define SSM_MODEL_LAYOUT_H

#include "model/model.h"

/* A matrix in the checkpoint's own memory. */
ssm__matrix ssm__matrix_of(const ssm_tensor *tensor);
/* Rows [first, first + rows) of a matrix. */
ssm__matrix ssm__matrix_rows(ssm__matrix matrix, int64_t first, int64_t rows);

/* A dense float32 copy, NULL for an absent tensor. */
float *ssm__copy_dense(ssm__arena *arena, const ssm_tensor *tensor);

/* Where rows of `width` numbers go when channels are put into groups of 16: channel first + i of
 * the tensor, i < count, into lane i mod `head` of its head, whose groups begin at
 * group + i / head · ⌈head/16⌉. */
typedef struct ssm__lane_map {
    int64_t first, count, head, group;
} ssm__lane_map;

/* Channels of a tensor [channels][width] → out [groups][width][16]; out NULL: nothing is done. */
void ssm__put_lanes(const ssm_tensor *tensor, int64_t width, ssm__lane_map map, float *out);

/* A_log → A·log2(e) in float64, rounded once: 2^(Δ·A2) = exp(Δ·A). values may be NULL. */
void ssm__decay_rates(float *values, int64_t count);

/* One layer's weights; *out is written only when the arena has memory. */
void ssm__mamba_layout(ssm__arena *arena, const ssm_config *config, const ssm__layer_weights *w,
                       ssm__mamba_layer *out);
void ssm__attention_layout(ssm__arena *arena, const ssm_config *config, const ssm__layer_weights *w,
                           ssm__attention_layer *out);
void ssm__mlp_layout(ssm__arena *arena, const ssm__layer_weights *w, ssm__mlp *out);
void ssm__mamba2_layout(ssm__arena *arena, const ssm_config *config, const ssm__layer_weights *w,
                        ssm__mamba2_layer *out);

#endif
