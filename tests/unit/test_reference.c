/* The float64 reference against examples computed by hand and against the laws it must obey. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/base.h>

#include "reference/reference.h"
#include "test_numbers.h"

/* A float64 tensor over numbers of the test; cols 0: a vector. */
static ssm_tensor tensor_of(const double *data, int64_t rows, int64_t cols)
{
    ssm_tensor tensor = {.name = "test", .dtype = SSM_DTYPE_F64, .data = data};
    tensor.n_dims = cols > 0 ? 2 : 1;
    tensor.dims[0] = rows;
    tensor.dims[1] = cols;
    tensor.bytes = (size_t)(rows * (cols > 0 ? cols : 1)) * sizeof *data;
    return tensor;
}

static double *normals(const char *stream, int64_t count)
{
    double *out = test_doubles(count);
    ssm_rng rng = ssm_rng_create(7, stream);
    for (int64_t i = 0; i < count; i++) {
        out[i] = ssm_rng_normal(&rng);
    }
    return out;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void test_linear_by_hand(void **state)
{
    (void)state;
    const double weights[] = {1, 2, 3, -1, 0, 1}, biases[] = {10, 20};
    const double x[] = {1, 1, 1, 0, 2, -1};
    const ssm_tensor w = tensor_of(weights, 2, 3), bias = tensor_of(biases, 2, 0);
    const ssm_tensor absent = {0};
    double y[4];
    ssm__ref_linear(&w, &bias, x, y, 2);
    assert_memory_equal(y, ((double[]){16, 20, 11, 19}), sizeof y);
    ssm__ref_linear(&w, &absent, x, y, 2);
    assert_memory_equal(y, ((double[]){6, 0, 1, -1}), sizeof y);
}

/* Integers, so that every order of summation gives the same number: rows longer than the stretch
 * that is widened at once, and every count of tokens around the four that go together. */
static void test_linear_long_rows(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 600, TOKENS = 9 };
    double *weights = test_doubles(ROWS * COLS), *x = test_doubles(TOKENS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        weights[i] = (i * 7) % 23 - 11;
    }
    for (int i = 0; i < TOKENS * COLS; i++) {
        x[i] = (i * 5) % 19 - 9;
    }
    const ssm_tensor w = tensor_of(weights, ROWS, COLS);
    for (int tokens = 0; tokens <= TOKENS; tokens++) {
        double y[TOKENS * ROWS] = {0};
        ssm__ref_linear(&w, NULL, x, y, tokens);
        for (int t = 0; t < tokens; t++) {
            for (int row = 0; row < ROWS; row++) {
                double sum = 0;
                for (int k = 0; k < COLS; k++) {
                    sum += weights[row * COLS + k] * x[t * COLS + k];
                }
                assert_true(y[t * ROWS + row] == sum);
            }
        }
    }
    free(weights);
    free(x);
}

static void test_rmsnorm_by_hand(void **state)
{
    (void)state;
    const double x[] = {3, 4, 0, 0}, weights[] = {2, -1};
    const ssm_tensor weight = tensor_of(weights, 2, 0);
    double out[4];
    ssm__ref_rmsnorm(x, &weight, out, 2, 2, 0.25); /* 12.75 = (9 + 16) / 2 + 0.25 */
    const double scale = 1.0 / sqrt(12.75);
    test_assert_near("rmsnorm", out, (double[]){6 * scale, -4 * scale, 0, 0}, 4, 1e-15);
    ssm__ref_rmsnorm(x, NULL, out, 1, 2, 0.0);
    test_assert_near("rmsnorm", out, (double[]){3 / sqrt(12.5), 4 / sqrt(12.5)}, 2, 1e-15);
}

static void test_softplus_and_silu(void **state)
{
    (void)state;
    assert_true(fabs(ssm__ref_softplus(0.0) - log(2.0)) <= 2e-16);
    assert_true(ssm__ref_softplus(800.0) == 800.0);
    assert_true(ssm__ref_softplus(-800.0) == 0.0);
    /* log1p keeps the small end: log(1 + e⁻⁴⁰) is e⁻⁴⁰ to 17 digits; log(1 + x) would give 0. */
    assert_true(fabs(ssm__ref_softplus(-40.0) / exp(-40.0) - 1.0) <= 1e-15);
    for (double x = -50.0; x <= 50.0; x += 0.37) { /* both satisfy s(x) − s(−x) = x (SiLU: plus) */
        const double difference = ssm__ref_softplus(x) - ssm__ref_softplus(-x);
        assert_true(fabs(difference - x) <= 4e-16 * (1.0 + fabs(x)));
        const double sum = ssm__ref_silu(x) - ssm__ref_silu(-x);
        assert_true(fabs(sum - x) <= 4e-16 * (1.0 + fabs(x)));
    }
    assert_true(ssm__ref_silu(0.0) == 0.0);
    assert_true(fabs(ssm__ref_silu(log(3.0)) - 0.75 * log(3.0)) <= 2e-16);
    assert_true(ssm__ref_silu(-800.0) == 0.0 && ssm__ref_silu(800.0) == 800.0);
}

static void test_conv_by_hand(void **state)
{
    (void)state;
    /* Two channels, K = 3; tap 2 is the current token. */
    const double weight[] = {1, 10, 100, 0, 1, -1}, bias[] = {0.5, 0};
    const double x[] = {1, 5, 2, 6, 3, 8};
    const double sums[] = {100.5, -5, 210.5, -1, 321.5, -2};
    double want[6], out[6];
    for (int i = 0; i < 6; i++) {
        want[i] = ssm__ref_silu(sums[i]);
    }
    ssm__ref_conv_silu(x, weight, bias, out, 3, 2, 3);
    assert_memory_equal(out, want, sizeof out);
    want[0] = ssm__ref_silu(100);
    ssm__ref_conv_silu(x, weight, NULL, out, 1, 2, 3);
    assert_memory_equal(out, want, 2 * sizeof *out);
}

static void test_logsumexp(void **state)
{
    (void)state;
    const double x[] = {1000, 1000, 1000, 1000};
    assert_true(fabs(ssm__ref_logsumexp(x, 4) - (1000 + log(4.0))) <= 2e-13);
    assert_true(ssm__ref_logsumexp(x, 1) == 1000);
    const double y[] = {log(1.0), log(2.0), log(5.0), -INFINITY};
    assert_true(fabs(ssm__ref_logsumexp(y, 4) - log(8.0)) <= 1e-15);
}

/* ---- the scan -------------------------------------------------------------------------------- */

/* One channel, two modes that halve and quarter in a unit of time, two tokens. */
static void test_scan_by_hand(void **state)
{
    (void)state;
    const double u[] = {3, 1}, delta[] = {1, 2}, A[] = {-log(2.0), -log(4.0)};
    const double B[] = {1, 2, -1, 1}, C[] = {1, -1, 2, 4}, D[] = {0.5};
    double x[2] = {0}, y[2], modes[6];
    ssm__ref_scan_args args = {.tokens = 2,
                               .channels = 1,
                               .d_state = 2,
                               .u = u,
                               .delta = delta,
                               .A = A,
                               .B = B,
                               .C = C,
                               .D_skip = D,
                               .state = x,
                               .y = y,
                               .modes = modes};
    ssm__ref_scan(&args);
    /* x_1 = (3, 6); x_2 = (3/4 − 2, 6/16 + 2); y_1 = 3 − 6 + 1.5; y_2 = −2.5 + 9.5 + 0.5 */
    test_assert_near("state", x, (double[]){-1.25, 2.375}, 2, 1e-15);
    test_assert_near("modes", modes, (double[]){3, -6, 1.5, -2.5, 9.5, 0.5}, 6, 1e-15);
    test_assert_near("y", y, (double[]){-1.5, 7.5}, 2, 1e-15);

    /* The gate multiplies every summand: SiLU(ln 3) = 3/4 ln 3. */
    const double z[] = {log(3.0), log(3.0)}, gate = 0.75 * log(3.0);
    args.z = z;
    memset(x, 0, sizeof x);
    ssm__ref_scan(&args);
    test_assert_near("state", x, (double[]){-1.25, 2.375}, 2, 1e-15);
    test_assert_near("gated", y, (double[]){-1.5 * gate, 7.5 * gate}, 2, 1e-15);
    test_assert_near("gated f", &modes[5], (double[]){0.5 * gate}, 1, 1e-15);

    /* Without the second mode its state moves all the same. */
    const uint8_t keep[] = {1, 0};
    args.keep = keep;
    args.z = NULL;
    args.D_skip = NULL;
    memset(x, 0, sizeof x);
    ssm__ref_scan(&args);
    test_assert_near("state", x, (double[]){-1.25, 2.375}, 2, 1e-15);
    test_assert_near("masked", modes, (double[]){3, 0, 0, -2.5, 0, 0}, 6, 1e-15);
    test_assert_near("masked y", y, (double[]){3, -2.5}, 2, 1e-15);
}

enum { TOKENS = 23, CHANNELS = 5, N = 4, PAIRS = (N + 1) * (N + 2) / 2 };

/* A random scan; the pointers of `args` go into the arrays. */
typedef struct random_scan {
    double *u, *delta, *z, *A, *B, *C, *D_skip;
    double state[CHANNELS * N], y[TOKENS * CHANNELS], modes[TOKENS * CHANNELS * (N + 1)];
    ssm__ref_scan_args args;
} random_scan;

static random_scan *scan_create(void)
{
    random_scan *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->u = normals("u", TOKENS * CHANNELS);
    s->delta = normals("delta", TOKENS * CHANNELS);
    s->z = normals("z", TOKENS * CHANNELS);
    s->A = normals("A", CHANNELS * N);
    s->B = normals("B", TOKENS * N);
    s->C = normals("C", TOKENS * N);
    s->D_skip = normals("D", CHANNELS);
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        s->delta[i] = ssm__ref_softplus(s->delta[i] - 1.0);
    }
    for (int i = 0; i < CHANNELS * N; i++) {
        s->A[i] = -exp(s->A[i]);
    }
    s->args = (ssm__ref_scan_args){.tokens = TOKENS,
                                   .channels = CHANNELS,
                                   .d_state = N,
                                   .u = s->u,
                                   .delta = s->delta,
                                   .z = s->z,
                                   .A = s->A,
                                   .B = s->B,
                                   .C = s->C,
                                   .D_skip = s->D_skip,
                                   .state = s->state,
                                   .y = s->y,
                                   .modes = s->modes};
    return s;
}

static void scan_free(random_scan *s)
{
    double *all[] = {s->u, s->delta, s->z, s->A, s->B, s->C, s->D_skip};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    free(s);
}

static void test_scan_in_two_pieces(void **unused)
{
    (void)unused;
    random_scan *whole = scan_create();
    ssm__ref_scan(&whole->args);
    for (int64_t cut = 0; cut <= TOKENS; cut++) {
        random_scan *s = scan_create();
        ssm__ref_scan_args second = s->args;
        s->args.tokens = cut;
        ssm__ref_scan(&s->args);
        second.tokens = TOKENS - cut;
        second.u += cut * CHANNELS;
        second.delta += cut * CHANNELS;
        second.z += cut * CHANNELS;
        second.B += cut * N;
        second.C += cut * N;
        second.y += cut * CHANNELS;
        second.modes += cut * CHANNELS * (N + 1);
        ssm__ref_scan(&second);
        assert_memory_equal(s->y, whole->y, sizeof s->y);
        assert_memory_equal(s->state, whole->state, sizeof s->state);
        assert_memory_equal(s->modes, whole->modes, sizeof s->modes);
        scan_free(s);
    }
    scan_free(whole);
}

static void test_modes_sum_to_output(void **unused)
{
    (void)unused;
    random_scan *s = scan_create();
    ssm__ref_scan(&s->args);
    for (int te = 0; te < TOKENS * CHANNELS; te++) {
        double sum = 0.0, size = 0.0;
        for (int i = N; i >= 0; i--) { /* the other way round */
            sum += s->modes[te * (N + 1) + i];
            size += fabs(s->modes[te * (N + 1) + i]);
        }
        assert_true(fabs(s->y[te] - sum) <= 1e-15 * size);
    }
    scan_free(s);
}

/* Σ_t (y − ŷ)² of one channel, and what equation (4) says it is; *size: Σ |G|. */
static void errors_of(const random_scan *plain, const random_scan *masked, const double *gram,
                      const uint8_t *keep, int channel, double *error, double *predicted,
                      double *size)
{
    *error = *predicted = *size = 0.0;
    for (int t = 0; t < TOKENS; t++) {
        const double miss = plain->y[t * CHANNELS + channel] - masked->y[t * CHANNELS + channel];
        *error += miss * miss;
    }
    const double *g = gram + channel * PAIRS;
    keep += channel * N;
    for (int i = 0; i <= N; i++) {
        for (int j = i; j <= N; j++, g++) {
            const bool dropped = j < N && !keep[i] && !keep[j];
            *predicted += dropped ? (i == j ? *g : 2.0 * *g) : 0.0;
            *size += fabs(*g);
        }
    }
}

/* A mask takes summands out of y and nothing else, and equation (4): the error of any kept set is
 * the sum of the Gram over the dropped modes. All 16 sets, another one in every channel. */
static void test_mask_and_gram_predict_the_error(void **unused)
{
    (void)unused;
    random_scan *plain = scan_create();
    ssm__ref_scan(&plain->args);
    double *gram = test_doubles(CHANNELS * PAIRS);
    ssm__ref_gram(plain->modes, TOKENS, CHANNELS, N + 1, gram);
    for (unsigned set = 0; set < 1U << N; set++) {
        uint8_t keep[CHANNELS * N];
        for (int i = 0; i < CHANNELS * N; i++) {
            keep[i] = (uint8_t)((set + (unsigned)(i / N)) >> (i % N) & 1U);
        }
        random_scan *masked = scan_create();
        masked->args.keep = keep;
        ssm__ref_scan(&masked->args);
        assert_memory_equal(masked->state, plain->state, sizeof plain->state);
        for (int channel = 0; channel < CHANNELS; channel++) {
            double error, predicted, size;
            errors_of(plain, masked, gram, keep, channel, &error, &predicted, &size);
            assert_true(fabs(error - predicted) <= 1e-14 * size);
        }
        scan_free(masked);
    }
    free(gram);
    scan_free(plain);
}

static void test_gram_by_hand(void **state)
{
    (void)state;
    /* [token][channel][mode] */
    const double modes[] = {1, 2, 10, 0, 3, -1, 5, 1};
    double gram[6] = {-1, -1, -1, -1, -1, -1};
    ssm__ref_gram(modes, 2, 2, 2, gram);
    assert_memory_equal(gram, ((double[]){10, -1, 5, 125, 5, 1}), sizeof gram);
    ssm__ref_gram(modes, 0, 2, 2, gram);
    assert_memory_equal(gram, ((double[6]){0}), sizeof gram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_by_hand),
        cmocka_unit_test(test_linear_long_rows),
        cmocka_unit_test(test_rmsnorm_by_hand),
        cmocka_unit_test(test_softplus_and_silu),
        cmocka_unit_test(test_conv_by_hand),
        cmocka_unit_test(test_logsumexp),
        cmocka_unit_test(test_scan_by_hand),
        cmocka_unit_test(test_scan_in_two_pieces),
        cmocka_unit_test(test_modes_sum_to_output),
        cmocka_unit_test(test_mask_and_gram_predict_the_error),
        cmocka_unit_test(test_gram_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
