/* The forward passes that only training has (linear attention, GLA, H3, time-invariant mode, no
 * convolution) against the mixers that goldens vouch for, and against sums over pairs of tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/base.h>

#include "reference/ref_gla.h"
#include "test_layers.h"
#include "test_numbers.h"

enum { TOKENS = 9 };

/* Two float64 computations in different orders. */
static const double tolerance = 1e-12;

static const ssm_config mamba2 = {.family = SSM_FAMILY_MAMBA2,
                                  .d_model = 5,
                                  .d_inner = 14,
                                  .d_state = 3,
                                  .d_conv = 3,
                                  .n_heads = 4,
                                  .head_dim = 3,
                                  .n_groups = 2,
                                  .d_ssm = 12,
                                  .norm_groups = 2,
                                  .gated_norm = true,
                                  .dt_limit_low = 0.0,
                                  .dt_limit_high = INFINITY,
                                  .norm_eps = 1e-3,
                                  .mixer_norm_eps = 1e-3};

static const ssm_config mamba1 = {.family = SSM_FAMILY_MAMBA,
                                  .d_model = 5,
                                  .d_inner = 6,
                                  .d_state = 3,
                                  .d_conv = 3,
                                  .dt_rank = 2,
                                  .norm_eps = 1e-3};

static double *numbers_of(const ssm_tensor *tensor)
{
    return (double *)tensor->data;
}

static void fill(const ssm_tensor *tensor, int64_t first, int64_t count, double value)
{
    assert_true(first + count <= ssm_tensor_count(tensor));
    for (int64_t i = first; i < first + count; i++) {
        numbers_of(tensor)[i] = value;
    }
}

/* out [TOKENS][D] of the layer on the same random input every time. Owner: the caller, free. */
static double *run(const ssm__ref_layer *layer)
{
    const int64_t count = TOKENS * layer->config->d_model;
    double *x = test_doubles(count), *out = test_doubles(count);
    ssm_rng rng = ssm_rng_create(3, "x");
    for (int64_t i = 0; i < count; i++) {
        x[i] = ssm_rng_normal(&rng);
    }
    assert_int_equal(ssm__ref_mixer_forward(layer, x, TOKENS, out, NULL), SSM_STATUS_OK);
    free(x);
    return out;
}

static void check_same(const char *what, const ssm__ref_layer *got, const ssm__ref_layer *want)
{
    double *a = run(got), *b = run(want);
    test_assert_near(what, a, b, TOKENS * got->config->d_model, tolerance);
    free(a);
    free(b);
}

/* A Mamba-2 layer whose parameters of the same name are those of the others, with Δ = 1 and
 * exp(Δ A) = decay of every token and head. */
static ssm__ref_layer constant_mamba2(test_parameters *all, const ssm_config *config, double decay)
{
    const test_layer layer =
        test_layer_create(all, "", config, SSM__REF_MAMBA2, &(test_layer_options){0});
    const ssm__layer_weights *w = &layer.layer.w;
    const int64_t H = config->n_heads, rows = w->in_proj.dims[0];
    fill(&w->in_proj, (rows - H) * config->d_model, H * config->d_model, 0.0);
    fill(&w->dt_bias, 0, H, log(exp(1.0) - 1.0));
    fill(&w->A_log, 0, H, log(-log(decay)));
    return layer.layer;
}

static void test_linear_attention_is_mamba2_without_decay(void **unused)
{
    (void)unused;
    test_parameters *all = calloc(1, sizeof *all);
    ssm_config config = mamba2;
    for (int before = 0; before < 2; before++) {
        config.norm_before_gate = before != 0;
        const test_layer layer = test_layer_create(all, "", &config, SSM__REF_LINEAR_ATTENTION,
                                                   &(test_layer_options){0});
        const ssm__ref_layer want = constant_mamba2(all, &config, 1.0); /* A = −exp(−∞) = 0 */
        check_same("linear attention", &layer.layer, &want);
    }
    test_parameters_free(all);
    free(all);
}

static void test_gla_is_mamba2_with_a_constant_gate(void **unused)
{
    (void)unused;
    test_parameters *all = calloc(1, sizeof *all);
    test_layer layer = test_layer_create(all, "", &mamba2, SSM__REF_GLA,
                                         &(test_layer_options){.gate_rank = 2, .gate_groups = 2});
    const double bias = -1.3;
    layer.layer.gate_divisor = 4.0;
    fill(&layer.layer.gate_down, 0, 2 * mamba2.d_model, 0.0);
    fill(&layer.layer.gate_bias, 0, 2 * mamba2.d_state, bias);
    const ssm__ref_layer want =
        constant_mamba2(all, &mamba2, pow(ssm__ref_sigmoid(bias), 1.0 / 4.0));
    check_same("gated linear attention", &layer.layer, &want);
    test_parameters_free(all);
    free(all);
}

/* y_t = Σ_{j ≤ t} Σ_n C_t[n] (Π_{j < i ≤ t} α_i[n]) B_j[n] u_j for gates that change with token,
 * group of heads and mode. */
static void test_gla_is_a_sum_over_pairs(void **unused)
{
    (void)unused;
    enum { H = 4, P = 2, G = 4, J = 2, N = 3 };
    test_parameters *all = calloc(1, sizeof *all);
    double *unwanted = NULL;
    const double *u = test_parameter_create(all, "u", TOKENS * H * P, 0, 1.0, &unwanted).data;
    const double *B = test_parameter_create(all, "B", TOKENS * G * N, 0, 1.0, &unwanted).data;
    const double *C = test_parameter_create(all, "C", TOKENS * G * N, 0, 1.0, &unwanted).data;
    const ssm_tensor gates = test_parameter_create(all, "g", TOKENS * J * N, 0, 1.0, &unwanted);
    double *alpha = numbers_of(&gates), got[TOKENS * H * P], want[TOKENS * H * P] = {0};
    for (int i = 0; i < TOKENS * J * N; i++) {
        alpha[i] = ssm__ref_sigmoid(alpha[i]);
    }
    const ssm__ref_gla_args args = {.tokens = TOKENS,
                                    .n_heads = H,
                                    .head_dim = P,
                                    .n_groups = G,
                                    .gate_groups = J,
                                    .d_state = N,
                                    .u = u,
                                    .alpha = alpha,
                                    .B = B,
                                    .C = C,
                                    .y = got};
    assert_int_equal(ssm__ref_gla(&args, NULL), SSM_STATUS_OK);
    for (int i = 0; i < TOKENS * H * P * TOKENS * N; i++) {
        const int n = i % N, j = i / N % TOKENS, c = i / N / TOKENS % (H * P);
        const int t = i / N / TOKENS / (H * P), group = c / P, gate = c / P / 2;
        if (j > t) {
            continue;
        }
        double decay = 1.0;
        for (int k = j + 1; k <= t; k++) {
            decay *= alpha[(k * J + gate) * N + n];
        }
        want[t * H * P + c] +=
            C[(t * G + group) * N + n] * decay * B[(j * G + group) * N + n] * u[j * H * P + c];
    }
    test_assert_near("pairs", got, want, TOKENS * H * P, tolerance);
    test_parameters_free(all);
    free(all);
}

/* SiLU(x) = value ≥ 0, by bisection. */
static double silu_inverse(double value)
{
    double low = 0.0, high = 1.0 + value * 2.0;
    for (int i = 0; i < 200; i++) {
        const double middle = 0.5 * (low + high);
        *(ssm__ref_silu(middle) < value ? &low : &high) = middle;
    }
    return low;
}

/* The full mixer with no weight from the token to B, C and Δ: the convolution's biases are then
 * what B and C come from. */
static void test_time_invariant_mamba2(void **unused)
{
    (void)unused;
    test_parameters *all = calloc(1, sizeof *all);
    const test_layer fixed =
        test_layer_create(all, "", &mamba2, SSM__REF_MAMBA2, &(test_layer_options){.fixed = true});
    const test_layer full =
        test_layer_create(all, "", &mamba2, SSM__REF_MAMBA2, &(test_layer_options){0});
    const int64_t S = mamba2.d_ssm, GN = mamba2.n_groups * mamba2.d_state;
    const ssm__layer_weights *w = &full.layer.w;
    const int64_t first = fixed.layer.w.in_proj.dims[0] * mamba2.d_model;
    fill(&w->in_proj, first, ssm_tensor_count(&w->in_proj) - first, 0.0);
    double *B = numbers_of(&fixed.layer.B_fixed), *C = numbers_of(&fixed.layer.C_fixed);
    for (int64_t i = 0; i < GN; i++) {
        B[i] = fabs(B[i]);
        C[i] = fabs(C[i]);
        numbers_of(&w->conv1d_bias)[S + i] = silu_inverse(B[i]);
        numbers_of(&w->conv1d_bias)[S + GN + i] = silu_inverse(C[i]);
    }
    check_same("time-invariant mamba2", &fixed.layer, &full.layer);
    test_parameters_free(all);
    free(all);
}

/* Channel 0 carries a constant, and B and C read nothing but it. */
static void test_time_invariant_mamba(void **unused)
{
    (void)unused;
    test_parameters *all = calloc(1, sizeof *all);
    const test_layer fixed =
        test_layer_create(all, "", &mamba1, SSM__REF_MAMBA, &(test_layer_options){.fixed = true});
    const test_layer full =
        test_layer_create(all, "", &mamba1, SSM__REF_MAMBA, &(test_layer_options){0});
    const ssm__layer_weights *w = &full.layer.w;
    const int64_t E = mamba1.d_inner, N = mamba1.d_state, R = mamba1.dt_rank;
    fill(&w->dt_proj, 0, E * R, 0.0);
    fill(&w->x_proj, 0, (R + 2 * N) * E, 0.0);
    fill(&w->in_proj, 0, mamba1.d_model, 0.0);
    fill(&fixed.layer.w.in_proj, 0, mamba1.d_model, 0.0);
    fill(&w->conv1d_bias, 0, 1, 1.5);
    fill(&fixed.layer.w.conv1d_bias, 0, 1, 1.5);
    for (int64_t n = 0; n < N; n++) {
        const double constant = ssm__ref_silu(1.5);
        fill(&w->x_proj, (R + n) * E, 1, numbers_of(&fixed.layer.B_fixed)[n] / constant);
        fill(&w->x_proj, (R + N + n) * E, 1, numbers_of(&fixed.layer.C_fixed)[n] / constant);
    }
    check_same("time-invariant mamba", &fixed.layer, &full.layer);
    test_parameters_free(all);
    free(all);
}

static void check_no_conv(const char *what, const ssm_config *config, ssm__ref_mixer mixer)
{
    test_parameters *all = calloc(1, sizeof *all);
    const test_layer without =
        test_layer_create(all, "", config, mixer, &(test_layer_options){.no_conv = true});
    const test_layer identity =
        test_layer_create(all, "", config, mixer, &(test_layer_options){.no_conv_bias = true});
    const ssm_tensor *conv = &identity.layer.w.conv1d;
    for (int64_t i = 0; i < ssm_tensor_count(conv); i++) {
        numbers_of(conv)[i] = i % config->d_conv == config->d_conv - 1 ? 1.0 : 0.0;
    }
    check_same(what, &without.layer, &identity.layer);
    test_parameters_free(all);
    free(all);
}

static void test_no_convolution_is_the_identity(void **unused)
{
    (void)unused;
    check_no_conv("mamba", &mamba1, SSM__REF_MAMBA);
    check_no_conv("mamba2", &mamba2, SSM__REF_MAMBA2);
    check_no_conv("linear attention", &mamba2, SSM__REF_LINEAR_ATTENTION);
}

/* ---- H3 -------------------------------------------------------------------------------------- */

/* The output of an LTI system is a convolution: o_j[t] = Σ_i q_i[t] Σ_{s ≤ t} h[t−s] k̄_i[s] v_j[s]
 * with h[d] = Σ_n C[n] Δ exp(Δ A[n] d), plus D at d = 0, and k̄ by its taps. in_proj and out_proj
 * are identities here, so that q, k, v are the parts of the input. */
static void check_h3(int64_t n_heads, int64_t head_dim)
{
    enum { S = 6, N = 3, K = 3 };
    const ssm_config config = {.d_model = 3 * S,
                               .d_inner = S,
                               .d_ssm = S,
                               .n_heads = n_heads,
                               .head_dim = head_dim,
                               .d_state = N,
                               .d_conv = K};
    test_parameters *all = calloc(1, sizeof *all);
    const test_layer layer =
        test_layer_create(all, "", &config, SSM__REF_H3, &(test_layer_options){0});
    const ssm__layer_weights *w = &layer.layer.w;
    fill(&w->in_proj, 0, 9 * S * S, 0.0);
    fill(&w->out_proj, 0, 3 * S * S, 0.0);
    for (int64_t i = 0; i < 3 * S; i++) {
        fill(&w->in_proj, i * 3 * S + i, 1, 1.0);
    }
    for (int64_t i = 0; i < S; i++) {
        fill(&w->out_proj, i * S + i, 1, 1.0);
    }
    double *unwanted = NULL, out[TOKENS * 3 * S], want[TOKENS * 3 * S] = {0};
    const double *x = test_parameter_create(all, "x", TOKENS * 3 * S, 0, 1.0, &unwanted).data;
    assert_int_equal(ssm__ref_h3(&layer.layer, x, TOKENS, out, NULL), SSM_STATUS_OK);

    double shifted[TOKENS * S];
    for (int64_t at = 0; at < TOKENS * S; at++) {
        const int64_t t = at / S, c = at % S;
        shifted[at] = numbers_of(&w->conv1d_bias)[c];
        for (int64_t back = 0; back < K && back <= t; back++) {
            shifted[at] +=
                numbers_of(&w->conv1d)[c * K + K - 1 - back] * x[(t - back) * 3 * S + S + c];
        }
    }
    for (int64_t pair = 0; pair < n_heads * head_dim * head_dim; pair++) {
        const int64_t h = pair / (head_dim * head_dim);
        const int64_t i = h * head_dim + pair / head_dim % head_dim,
                      j = h * head_dim + pair % head_dim;
        const double delta = ssm__ref_softplus(numbers_of(&w->dt_bias)[h]);
        for (int64_t ts = 0; ts < TOKENS * TOKENS; ts++) {
            const int64_t t = ts / TOKENS, s = ts % TOKENS;
            double kernel = s == t ? numbers_of(&w->D)[h] : 0.0;
            for (int64_t n = 0; n < N; n++) {
                const double A = -exp(numbers_of(&w->A_log)[h * N + n]);
                kernel += numbers_of(&layer.layer.C_fixed)[h * N + n] * delta *
                          exp(delta * A * (double)(t - s));
            }
            if (s <= t) {
                want[t * 3 * S + j] +=
                    x[t * 3 * S + i] * kernel * shifted[s * S + i] * x[s * 3 * S + 2 * S + j];
            }
        }
    }
    test_assert_near("h3", out, want, TOKENS * 3 * S, tolerance);
    test_parameters_free(all);
    free(all);
}

static void test_h3_is_a_convolution(void **unused)
{
    (void)unused;
    check_h3(6, 1);
    check_h3(2, 3);
    check_h3(1, 6);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void check_refused(const ssm__ref_model *model, int32_t id, int32_t label, const char *what)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm__ref_loss loss;
    const ssm__ref_batch batch = {.sequences = 1, .tokens = 1, .ids = &id, .labels = &label};
    assert_int_equal(ssm__ref_model_loss(model, &batch, 1.0, NULL, &loss, NULL, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, what));
}

static void test_ids_and_labels_outside_are_refused(void **unused)
{
    (void)unused;
    const double weights[] = {1, 2, 3, 4};
    const ssm_tensor matrix = {.name = "m",
                               .dtype = SSM_DTYPE_F64,
                               .n_dims = 2,
                               .dims = {2, 2},
                               .data = weights,
                               .bytes = sizeof weights};
    const ssm_config config = {.d_model = 2, .vocab_size = 2};
    const ssm__ref_model model = {.config = &config, .embedding = matrix, .head = matrix};
    check_refused(&model, 2, 0, "id 2 of token 0");
    check_refused(&model, -1, 0, "id -1 of token 0");
    check_refused(&model, 1, 2, "label 2 of token 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_attention_is_mamba2_without_decay),
        cmocka_unit_test(test_gla_is_mamba2_with_a_constant_gate),
        cmocka_unit_test(test_gla_is_a_sum_over_pairs),
        cmocka_unit_test(test_time_invariant_mamba2),
        cmocka_unit_test(test_time_invariant_mamba),
        cmocka_unit_test(test_no_convolution_is_the_identity),
        cmocka_unit_test(test_h3_is_a_convolution),
        cmocka_unit_test(test_ids_and_labels_outside_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
