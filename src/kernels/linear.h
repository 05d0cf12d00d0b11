/* kernels/linear.h: y = x·Wᵀ + bias in every instruction set; the entry `linear` of ssm__kernels,
 * whose comment gives the shapes and the summation law. All three give the same bits (a NaN stays
 * a NaN; its payload is not promised). They read no byte outside the rows of w, the tokens of x and
 * bias[row_begin … row_end), and write y[t][n] for n in [row_begin, row_end) only. */
#ifndef SSM_KERNELS_LINEAR_H
#define SSM_KERNELS_LINEAR_H

#include "kernels/kernels.h"

void ssm__linear_portable(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                          int64_t tokens, int64_t row_begin, int64_t row_end);
#if defined(__x86_64__)
void ssm__linear_avx2(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                      int64_t tokens, int64_t row_begin, int64_t row_end);
void ssm__linear_avx512(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                        int64_t tokens, int64_t row_begin, int64_t row_end);
#endif

#endif
