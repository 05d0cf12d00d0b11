/* kernels/body_table.h: all bodies, and the table of them. A variant file includes its vec_<isa>.h,
 * then this. */
#ifndef SSM_KERNELS_BODY_TABLE_H
#define SSM_KERNELS_BODY_TABLE_H

#include "kernels/body_math.h"
#include "kernels/body_elementwise.h"
#include "kernels/body_scan.h"
#include "kernels/body_scan_kept.h"
#include "kernels/body_head_scan.h"
#include "kernels/body_ssd.h"
#include "kernels/body_gated_norm.h"
#include "kernels/body_gram.h"
#include "kernels/body_rows.h"
#include "kernels/body_dropped.h"
#include "kernels/body_subsets.h"
#include "kernels/body_attention.h"

/* Initialiser of a ssm__kernels; every instruction set brings a linear of its own. */
/* clang-format off */
#define SSM__KERNEL_TABLE(set, linear_kernel, training_table)                                      \
    {                                                                                              \
        .isa = (set),                                                                              \
        .linear = (linear_kernel),                                                                 \
        .rmsnorm = kernel_rmsnorm,                                                                 \
        .layernorm = kernel_layernorm,                                                             \
        .gated_norm = kernel_gated_norm,                                                           \
        .conv_silu = kernel_conv_silu,                                                             \
        .conv = kernel_conv,                                                                       \
        .softplus_bias = kernel_softplus_bias,                                                     \
        .silu = kernel_silu,                                                                       \
        .silu_mul = kernel_silu_mul,                                                               \
        .exp = kernel_exp,                                                                         \
        .decay = kernel_decay,                                                                     \
        .add = kernel_add,                                                                         \
        .scan = kernel_scan,                                                                       \
        .scan_kept = kernel_scan_kept,                                                             \
        .head_scan = kernel_head_scan,                                                             \
        .head_reads = kernel_head_reads,                                                           \
        .ssd = kernel_ssd,                                                                         \
        .gram = kernel_gram,                                                                       \
        .energy = kernel_energy,                                                                   \
        .mode_rows = kernel_mode_rows,                                                             \
        .gram_rows = kernel_gram_rows,                                                             \
        .dropped = kernel_dropped,                                                                 \
        .least_dropped = kernel_least_dropped,                                                     \
        .attend = kernel_attend,                                                                   \
        .logsumexp = kernel_logsumexp,                                                             \
        .flush = kernel_flush,                                                                     \
        .training = (training_table),                                                              \
    }
/* clang-format on */

#endif
