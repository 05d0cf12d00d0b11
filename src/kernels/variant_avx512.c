/* kernels/variant_avx512.c: the kernels over vec_avx512.h. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/vec_avx512.h"
#include "kernels/body_math.h"
#include "kernels/body_elementwise.h"
#include "kernels/body_scan.h"
#include "kernels/body_gram.h"

const ssm__kernels ssm__kernels_avx512 = {
    .isa = SSM_ISA_AVX512,
    .linear = ssm__linear_avx512,
    .rmsnorm = kernel_rmsnorm,
    .conv_silu = kernel_conv_silu,
    .softplus_bias = kernel_softplus_bias,
    .silu = kernel_silu,
    .exp = kernel_exp,
    .decay = kernel_decay,
    .add = kernel_add,
    .scan = kernel_scan,
    .gram = kernel_gram,
    .energy = kernel_energy,
    .logsumexp = kernel_logsumexp,
    .flush = kernel_flush,
};
