/* kernels/variant_portable.c: the kernels over vec_portable.h. */
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/training.h"
#include "kernels/vec_portable.h"
#include "kernels/body_table.h"

const ssm__kernels ssm__kernels_portable =
    SSM__KERNEL_TABLE(SSM_ISA_PORTABLE, ssm__linear_portable, &ssm__training_portable);
