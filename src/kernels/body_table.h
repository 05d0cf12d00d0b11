/* kernels/body_table.h: all bodies, and the table of them. A variant file includes its vec_<isa>.h,
 * then this. */
#ifndef SSM_KERNELS_BODY_TABLE_H
#define SSM_KERNELS_BODY_TABLE_H

#include "kernels/body_math.h"
#include "kernels/body_elementwise.h"
#include "kernels/body_scan.h"
#include "kernels/body_gram.h"
#include "kernels/body_rows.h"
#include "kernels/body_attention.h"

/* Initialiser of a ssm__kernels; every instruction set brings a linear of its own. */
#define SSM__KERNEL_TABLE(set, linear_kernel)                                                      \
    {                                                                                              \
        .isa = (set), .linear = (linear_kernel), .rmsnorm = kernel_rmsnorm,                        \
        .conv_silu = kernel_conv_silu, .softplus_bias = kernel_softplus_bias, .silu = kernel_silu, \
        .exp = kernel_exp, .decay = kernel_decay, .add = kernel_add, .scan = kernel_scan,          \
        .gram = kernel_gram, .energy = kernel_energy, .logsumexp = kernel_logsumexp,               \
        .flush = kernel_flush, .mode_rows = kernel_mode_rows, .gram_rows = kernel_gram_rows,       \
        .layernorm = kernel_layernorm, .conv = kernel_conv, .silu_mul = kernel_silu_mul,           \
        .attend = kernel_attend,                                                                   \
    }

#endif
