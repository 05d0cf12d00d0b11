/* kernels/training_avx2.c: the kernels of training over vec_avx2.h. */
#include "kernels/training.h"
#include "kernels/vec_avx2.h"
#include "kernels/body_training.h"

const ssm__training_kernels ssm__training_avx2 = SSM__TRAINING_TABLE;
