/* The pieces of the reference that Mamba-2 and attention add, by hand and by their laws. Whole
 * models: test_reference_model.c. */
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

static void test_layernorm_by_hand(void **state)
{
    (void)state;
    const double x[] = {1, 5, 3, 3}, weights[] = {2, -1}, biases[] = {10, 20};
    const ssm_tensor weight = tensor_of(weights, 2, 0), bias = tensor_of(biases, 2, 0);
    const ssm_tensor absent = {0};
    double out[4];
    ssm__ref_layernorm(x, &weight, &bias, out, 2, 2, 2.25); /* 4 + 2.25 = 2.5² */
    test_assert_near("layernorm", out, (double[]){10 - 1.6, 20 - 0.8, 10, 20}, 4, 1e-15);
    ssm__ref_layernorm(x, &weight, &absent, out, 1, 2, 2.25);
    test_assert_near("no bias", out, (double[]){-1.6, -0.8}, 2, 1e-15);
}

/* Two heads of two channels in two groups, decays a half and a quarter in a unit of time. */
static void test_scan2_by_hand(void **state)
{
    (void)state;
    const double u[] = {1, 2, 3, 4, 1, 0, 0, 1}, delta[] = {1, 2, 1, 0.5};
    const double A[] = {-log(2.0), -log(4.0)};
    const double B[] = {1, -1, 2, 2}, C[] = {1, 3, 5, 10}; /* [token][group], N = 1 */
    const double D[] = {10, 100, 1000, 10000};
    double x[4] = {0}, y[8], modes[16];
    ssm__ref_scan2_args args = {.tokens = 2,
                                .n_heads = 2,
                                .head_dim = 2,
                                .n_groups = 2,
                                .d_state = 1,
                                .u = u,
                                .delta = delta,
                                .A = A,
                                .B = B,
                                .C = C,
                                .D_skip = D,
                                .state = x,
                                .y = y,
                                .modes = modes};
    ssm__ref_scan2(&args);
    /* x_1 = (1, 2, −6, −8); x_2 = (1/2 + 2, 1, −3, −4 + 1) */
    test_assert_near("state", x, (double[]){2.5, 1, -3, -3}, 4, 1e-15);
    test_assert_near("modes", modes,
                     (double[]){1, 10, 2, 20, -18, 300, -24, 400, 12.5, 10, 5, 0, -30, 0, -30, 100},
                     16, 1e-15);
    test_assert_near("y", y, (double[]){11, 22, 282, 376, 22.5, 5, -30, 70}, 8, 1e-15);

    /* D of every channel, one group for both heads, a gate of 1 in each but the first channel. */
    const double one = 1.2784645427610738; /* SiLU(one) = 1 */
    const double z[] = {0, one, one, one};
    args.D_per_channel = true;
    args.n_groups = 1;
    args.tokens = 1;
    args.z = z;
    memset(x, 0, sizeof x);
    ssm__ref_scan2(&args);
    test_assert_near("y", y, (double[]){0, 2 + 200, 6 + 3000, 8 + 40000}, 4, 1e-14);
}

/* Where all modes of a head decay alike and all heads share B and C, Mamba-1 is Mamba-2. */
static void test_scan2_is_scan(void **unused)
{
    (void)unused;
    enum { L = 19, H = 3, P = 4, G = 1, N = 5, S = H * P };
    double *u = normals("u", L * S), *z = normals("z", L * S), *delta = normals("delta", L * H);
    double *A = normals("A", H), *B = normals("B", L * N), *C = normals("C", L * N);
    double *D = normals("D", H), wide_delta[L * S], wide_A[S * N], wide_D[S];
    double first[S * N] = {0}, second[S * N] = {0}, y1[L * S], y2[L * S];
    uint8_t keep[S * N];
    for (int i = 0; i < S * N; i++) {
        A[i / (P * N)] = -fabs(A[i / (P * N)]);
        wide_A[i] = A[i / (P * N)];
        keep[i] = i % 3 != 0;
    }
    for (int i = 0; i < L * S; i++) {
        wide_delta[i] = delta[i / P] = fabs(delta[i / P]);
    }
    for (int i = 0; i < S; i++) {
        wide_D[i] = D[i / P];
    }
    double *modes1 = test_doubles(L * S * (N + 1)), *modes2 = test_doubles(L * S * (N + 1));
    ssm__ref_scan(&(ssm__ref_scan_args){L, S, N, u, wide_delta, z, wide_A, B, C, wide_D, keep,
                                        first, y1, modes1});
    ssm__ref_scan2(&(ssm__ref_scan2_args){L, H, P, G, N, u, delta, z, A, B, C, D, false, keep,
                                          second, y2, modes2});
    assert_memory_equal(y1, y2, sizeof y1);
    assert_memory_equal(first, second, sizeof first);
    assert_memory_equal(modes1, modes2, L * S * (N + 1) * sizeof *modes1);
    double *all[] = {u, z, delta, A, B, C, D, modes1, modes2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* Rotations keep lengths, do nothing at position 0, leave the coordinates behind rotary_dim alone,
 * and products of two rotated vectors depend on their distance only. */
static void test_rotary_laws(void **unused)
{
    (void)unused;
    enum { HEADS = 2, DH = 7, ROTARY = 6, COUNT = HEADS * DH };
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        const ssm_config config = {.attention_head_dim = DH,
                                   .rotary_dim = ROTARY,
                                   .rotary_base = 50.0,
                                   .rotary_interleaved = interleaved != 0};
        double products[3];
        for (int turn = 0; turn < 3; turn++) { /* positions 0 and 5, 3 and 8, 40 and 45 */
            const int64_t position = (int64_t[]){0, 3, 40}[turn];
            double *q = normals("q", COUNT), *k = normals("k", COUNT);
            const double rest = q[DH - 1];
            double length = 0.0, rotated = 0.0;
            products[turn] = 0.0;
            for (int i = 0; i < COUNT; i++) {
                length += q[i] * q[i];
            }
            const double first = q[0];
            ssm__ref_rotary(&config, q, 1, HEADS, position);
            ssm__ref_rotary(&config, k, 1, HEADS, position + 5);
            for (int i = 0; i < COUNT; i++) {
                rotated += q[i] * q[i];
                products[turn] += q[i] * k[i];
            }
            assert_true(q[DH - 1] == rest);
            assert_true((q[0] == first) == (position == 0));
            assert_true(fabs(rotated / length - 1.0) <= 1e-14);
            free(q);
            free(k);
        }
        assert_true(fabs(products[1] - products[0]) <= 1e-14 * COUNT);
        assert_true(fabs(products[2] - products[0]) <= 1e-14 * COUNT);
    }
}

/* Which coordinates turn together: a quarter turn of the first pair. */
static void test_rotary_pairs(void **unused)
{
    (void)unused;
    const double quarter = 1.5707963267948966;
    ssm_config config = {.attention_head_dim = 4, .rotary_dim = 4, .rotary_base = 1e300};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        double x[8] = {0, 0, 0, 0, 1, 2, 3, 4}; /* token 1 turns its first pair by 1 radian */
        config.rotary_interleaved = interleaved != 0;
        ssm__ref_rotary(&config, x, 2, 1, 0);
        const double c = sin(quarter - 1.0), s = sin(1.0);
        const double halves[] = {c - 3 * s, 2, 3 * c + s, 4};
        const double neighbours[] = {c - 2 * s, 2 * c + s, 3, 4};
        test_assert_near("rotary", x + 4, interleaved ? neighbours : halves, 4, 1e-15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm_by_hand), cmocka_unit_test(test_scan2_by_hand),
        cmocka_unit_test(test_scan2_is_scan),     cmocka_unit_test(test_rotary_laws),
        cmocka_unit_test(test_rotary_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
