/* test_network.h: networks with random weights, random batches, and the reference's gradients. */
#ifndef TEST_NETWORK_H
#define TEST_NETWORK_H

#include "train/network.h"

/* Sizes odd to the vectors: d_model 20, d_inner 36, d_state 5, dt_rank 3, d_conv 3, vocabulary 31,
 * two layers of mamba1, untied, RMSNorm. */
ssm__network_config toy_network(void);
/* Created, and every parameter random: no ones, no zeros, no arange. Fails the test on an error. */
ssm__network *toy_network_create(const ssm__network_config *config, ssm_isa isa, ssm_pool *pool);
/* ids, labels (a third of them −1) or vectors; rows of different lengths. Freed by toy_batch_free.
 */
ssm_train_batch toy_batch(const ssm__network_config *config, int64_t rows, int64_t length);
void toy_batch_free(ssm_train_batch *batch);

/* One pass from zero gradients with scale 1/count. */
ssm__loss toy_gradients(ssm__network *network, const ssm_train_batch *batch,
                        const ssm__dropout *dropout);
/* The loss and all gradients against the reference: per parameter, max |g − r| / max |r| ≤ bound.
 */
void check_against_reference(ssm__network *network, const ssm_train_batch *batch, double bound);

#endif
