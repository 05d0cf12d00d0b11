/* kernels/variant_avx512.c: the kernels over vec_avx512.h. */
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/training.h"
#include "kernels/vec_avx512.h"
#include "kernels/body_table.h"

const ssm__kernels ssm__kernels_avx512 =
    SSM__KERNEL_TABLE(SSM_ISA_AVX512, ssm__linear_avx512, &ssm__training_avx512);
