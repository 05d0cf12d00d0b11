/* kernels/training_avx512.c: the kernels of training over vec_avx512.h. */
#include "kernels/training.h"
#include "kernels/vec_avx512.h"
#include "kernels/body_training.h"

const ssm__training_kernels ssm__training_avx512 = SSM__TRAINING_TABLE;
