/* kernels/variant_avx2.c: the kernels over vec_avx2.h. */
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/training.h"
#include "kernels/vec_avx2.h"
#include "kernels/body_table.h"

const ssm__kernels ssm__kernels_avx2 =
    SSM__KERNEL_TABLE(SSM_ISA_AVX2, ssm__linear_avx2, &ssm__training_avx2);
