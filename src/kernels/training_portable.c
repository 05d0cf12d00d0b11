/* kernels/training_portable.c: the kernels of training over vec_portable.h. */
#include "kernels/training.h"
#include "kernels/vec_portable.h"
#include "kernels/body_training.h"

const ssm__training_kernels ssm__training_portable = SSM__TRAINING_TABLE;
