/* train/orthogonal.h: random matrices with orthonormal rows. */
#ifndef SSM_TRAIN_ORTHOGONAL_H
#define SSM_TRAIN_ORTHOGONAL_H

#include <ssmscope/base.h>

/* Q [rows][cols], rows ≤ cols: Gram-Schmidt, twice, on a matrix of normal numbers, which makes the
 * row space and the rows uniformly distributed. rows · cols numbers are drawn. */
void ssm__orthonormal_rows(ssm_rng *rng, int64_t rows, int64_t cols, double *Q);

#endif
