/* Gradients of whole networks against the reference; bits of threads and instruction sets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_network.h"

/* float32 against float64: sums of a few hundred terms whose roundings are 6e-8 each; measured
 * below 2e-6. */
static const double bound = 1e-5;

static void compare(const ssm__network_config *config, int64_t rows, int64_t length)
{
    ssm__network *network = toy_network_create(config, SSM_ISA_AUTO, NULL);
    ssm_train_batch batch = toy_batch(config, rows, length);
    check_against_reference(network, &batch, bound);
    toy_batch_free(&batch);
    ssm__network_free(network);
}

static void test_language_model(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    compare(&config, 5, 37);
    compare(&config, 2, 2);   /* shorter than the convolution */
    compare(&config, 7, 300); /* three slabs */
}

static void test_tied(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.shape.tied = true;
    compare(&config, 3, 65);
}

static void test_shared_layers(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.shape.n_layers = 3;
    config.shared_layers = true;
    compare(&config, 3, 40);
}

static void test_norms(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.norm = SSM__NORM_LAYER;
    compare(&config, 3, 33);
    config.norm = SSM__NORM_NONE;
    compare(&config, 3, 33);
}

static void test_mlp(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.shape.d_mlp = 27;
    compare(&config, 3, 70);
    config.shared_layers = true;
    config.norm = SSM__NORM_LAYER;
    compare(&config, 3, 70);
}

static void test_vectors(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.loss = SSM_TRAIN_VECTORS;
    config.n_inputs = 3;
    config.n_outputs = 2;
    config.shape.vocab_size = 0;
    compare(&config, 4, 50);
}

static void test_classes(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    config.loss = SSM_TRAIN_CLASSES;
    config.n_outputs = 4;
    compare(&config, 6, 21);
}

/* Mean loss at values + distance·direction, with the masks of one batch; [floats] each. */
static double loss_along(ssm__network *network, const ssm_train_batch *batch,
                         const ssm__dropout *dropout, const float *values, const float *direction,
                         double distance)
{
    for (int64_t i = 0; i < ssm__network_floats(network); i++) {
        ssm__network_values(network)[i] =
            (float)((double)values[i] + distance * (double)direction[i]);
    }
    const ssm__loss loss = toy_gradients(network, batch, dropout);
    return loss.sum / (double)loss.count;
}

/* Along its own gradient the loss rises by |g|². Other masks on the way back than on the way there
 * would be 10 % and more off; the difference of two losses of 3 that are 2e-3 apart is good to
 * 1e-3, and so is the curvature on the way. */
static void test_dropout(void **state)
{
    (void)state;
    ssm__network_config config = toy_network();
    const ssm__dropout dropout = {.seed = 5, .number = 11};
    config.dropout = 0.25;
    config.shape.d_mlp = 27;
    ssm__network *network = toy_network_create(&config, SSM_ISA_AUTO, NULL);
    ssm_train_batch batch = toy_batch(&config, 3, 40);
    const size_t bytes = (size_t)ssm__network_floats(network) * sizeof(float);
    float *values = malloc(bytes), *direction = malloc(bytes);
    assert_true(values != NULL && direction != NULL);
    toy_gradients(network, &batch, &dropout);
    memcpy(values, ssm__network_values(network), bytes);
    memcpy(direction, ssm__network_gradients(network), bytes);
    double square = 0;
    for (int64_t i = 0; i < ssm__network_floats(network); i++) {
        square += (double)direction[i] * (double)direction[i];
    }
    const double distance = 1e-3 / square;
    const double rise = loss_along(network, &batch, &dropout, values, direction, distance) -
                        loss_along(network, &batch, &dropout, values, direction, -distance);
    assert_true(fabs(rise / (2 * distance) / square - 1) < 0.01);
    free(values);
    free(direction);
    toy_batch_free(&batch);
    ssm__network_free(network);
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* Gradients of one pass, for free(). */
static float *gradients_of(ssm_isa isa, int threads, int64_t length, const ssm__dropout *dropout,
                           double *sum)
{
    ssm__network_config config = toy_network();
    ssm_pool *pool = NULL;
    config.shape.n_layers = 3;
    config.dropout = dropout != NULL ? 0.25 : 0;
    assert_int_equal(ssm_pool_create(threads, &pool, NULL), SSM_STATUS_OK);
    ssm__network *network = toy_network_create(&config, isa, pool);
    ssm_train_batch batch = toy_batch(&config, 9, length);
    *sum = toy_gradients(network, &batch, dropout).sum;
    const size_t bytes = (size_t)ssm__network_floats(network) * sizeof(float);
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, ssm__network_gradients(network), bytes);
    toy_batch_free(&batch);
    ssm__network_free(network);
    ssm_pool_free(pool);
    return copy;
}

static size_t bytes_of(void)
{
    ssm__network_config config = toy_network();
    config.shape.n_layers = 3;
    ssm__network *network = toy_network_create(&config, SSM_ISA_AUTO, NULL);
    const size_t bytes = (size_t)ssm__network_floats(network) * sizeof(float);
    ssm__network_free(network);
    return bytes;
}

static void test_same_bits(void **state)
{
    (void)state;
    const ssm__dropout dropout = {.seed = 5, .number = 11};
    const ssm_isa isas[] = {SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512};
    double sum, other_sum;
    float *wanted = gradients_of(SSM_ISA_AUTO, 1, 150, &dropout, &sum);
    for (int threads = 2; threads <= 4; threads++) {
        float *other = gradients_of(SSM_ISA_AUTO, threads, 150, &dropout, &other_sum);
        assert_memory_equal(wanted, other, bytes_of());
        assert_true(sum == other_sum);
        free(other);
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (ssm_isa_supported(isas[i])) {
            float *other = gradients_of(isas[i], 2, 150, &dropout, &other_sum);
            assert_memory_equal(wanted, other, bytes_of());
            assert_true(sum == other_sum);
            free(other);
        }
    }
    free(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_model), cmocka_unit_test(test_tied),
        cmocka_unit_test(test_shared_layers),  cmocka_unit_test(test_norms),
        cmocka_unit_test(test_vectors),        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_classes),        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
