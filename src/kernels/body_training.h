/* kernels/body_training.h: all bodies of training, and the table of them. A training_<isa>.c
 * includes its vec_<isa>.h, then this. */
#ifndef SSM_KERNELS_BODY_TRAINING_H
#define SSM_KERNELS_BODY_TRAINING_H

#include "kernels/body_products.h"
#include "kernels/body_norm_backward.h"
#include "kernels/body_conv_backward.h"
#include "kernels/body_scan_backward.h"
#include "kernels/body_ssd_backward.h"
#include "kernels/body_gated_norm_backward.h"
#include "kernels/body_gate.h"
#include "kernels/body_h3.h"
#include "kernels/body_attention_backward.h"
#include "kernels/body_loss.h"
#include "kernels/body_optimiser.h"

/* Initialiser of a ssm__training_kernels. */
/* clang-format off */
#define SSM__TRAINING_TABLE                                                                        \
    {                                                                                              \
        .linear_input_gradient = kernel_linear_input_gradient,                                     \
        .linear_weight_gradient = kernel_linear_weight_gradient,                                   \
        .column_sums = kernel_column_sums,                                                         \
        .sum_parts = kernel_sum_parts,                                                             \
        .rmsnorm_input_gradient = kernel_rmsnorm_input_gradient,                                   \
        .rmsnorm_weight_gradient = kernel_rmsnorm_weight_gradient,                                 \
        .layernorm_input_gradient = kernel_layernorm_input_gradient,                               \
        .layernorm_weight_gradient = kernel_layernorm_weight_gradient,                             \
        .conv_silu_backward = kernel_conv_silu_backward,                                           \
        .conv_backward = kernel_conv_backward,                                                     \
        .scan_backward = kernel_scan_backward,                                                     \
        .silu_mul_backward = kernel_silu_mul_backward,                                             \
        .attend_backward = kernel_attend_backward,                                                 \
        .row_products = kernel_row_products,                                                       \
        .embedding_gradient = kernel_embedding_gradient,                                           \
        .cross_entropy = kernel_cross_entropy,                                                     \
        .adamw = kernel_adamw,                                                                     \
        .squared_norm = kernel_squared_norm,                                                       \
        .ssd = {                                                                                   \
            .state_backward = kernel_ssd_state_backward,                                           \
            .backward = kernel_ssd_backward,                                                       \
            .gated_norm = kernel_training_gated_norm,                                              \
            .gated_norm_backward = kernel_gated_norm_backward,                                     \
            .lane_products = kernel_lane_products,                                                 \
            .softplus_backward = kernel_softplus_backward,                                         \
            .to_lanes = kernel_to_lanes,                                                           \
            .gate = kernel_gate,                                                                   \
            .gate_backward = kernel_gate_backward,                                                 \
            .scale_state = kernel_scale_state,                                                     \
            .state_products = kernel_state_products,                                               \
        },                                                                                         \
        .h3 = {                                                                                    \
            .forward = kernel_h3,                                                                  \
            .backward = kernel_h3_backward,                                                        \
        },                                                                                         \
    }
/* clang-format on */

#endif
