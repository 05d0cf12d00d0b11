/* Mimetic initialisation of networks in training: what each mixer has for each switch, to the
 * parameter; layers and heads of lists; refusals. Modes, and files: test_mimetic.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_network.h"
#include "train/mimetic_network.h"

enum { D = 48, E = 96, H = 6, P = 16, G = 2, N = 16, K = 4, J = 6, R = 5 };

/* 6 heads of 16 in 2 groups of B and C; GLA: 6 gates of rank 5. */
static ssm__network_config shape_of(const ssm__mixer_kind *mixers, int64_t n_layers)
{
    return (ssm__network_config){.shape = {.family = SSM_FAMILY_MAMBA2,
                                           .vocab_size = 11,
                                           .d_model = D,
                                           .n_layers = n_layers,
                                           .d_inner = E,
                                           .d_state = N,
                                           .d_conv = K,
                                           .dt_rank = 3,
                                           .n_heads = H,
                                           .head_dim = P,
                                           .n_groups = G,
                                           .norm_groups = G,
                                           .d_ssm = E,
                                           .gated_norm = true,
                                           .mixer_norm_eps = 1e-5,
                                           .dt_limit_high = (double)INFINITY,
                                           .n_query_heads = 3,
                                           .n_kv_heads = 3,
                                           .attention_head_dim = D / 3,
                                           .softmax_scale = 0.25,
                                           .norm_eps = 1e-5,
                                           .tied = true},
                                 .mixers = mixers,
                                 .gate_rank = R,
                                 .gate_groups = J,
                                 .loss = SSM_TRAIN_TOKENS};
}

/* A network, and its values before and after. */
typedef struct subject {
    ssm__network *network;
    float *before, *after;
} subject;

static subject create(const ssm__network_config *config)
{
    subject this = {0};
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__network_create(config, ssm__kernels_for(SSM_ISA_AUTO), NULL, &this.network, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    ssm__network_draw(this.network, 4);
    const size_t bytes = (size_t)ssm__network_floats(this.network) * sizeof(float);
    this.after = ssm__network_values(this.network);
    this.before = malloc(bytes);
    assert_non_null(this.before);
    memcpy(this.before, this.after, bytes);
    return this;
}

static subject make(const ssm__network_config *config, const ssm_mimetic *mimetic)
{
    subject this = create(config);
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__mimetic_network(this.network, mimetic, 4, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return this;
}

static void drop(subject *this)
{
    ssm__network_free(this->network);
    free(this->before);
}

static ssm_mimetic of_switches(const char *switches)
{
    ssm_mimetic mimetic = ssm_mimetic_default();
    assert_int_equal(ssm_mimetic_parse_switches(switches, &mimetic, NULL), SSM_STATUS_OK);
    return mimetic;
}

static const ssm__parameter *parameter(const subject *this, int64_t layer, const char *name)
{
    char whole[SSM__SLOT_NAME_MAX];
    snprintf(whole, sizeof whole, "backbone.layers.%d.mixer.%s", (int)layer, name);
    const ssm__parameter *p = ssm__network_find(this->network, whole);
    assert_non_null(p);
    return p;
}

static const float *after(const subject *this, int64_t layer, const char *name)
{
    return this->after + parameter(this, layer, name)->at;
}

static const float *before(const subject *this, int64_t layer, const char *name)
{
    return this->before + parameter(this, layer, name)->at;
}

static bool same_bits(const float *one, const float *other, int64_t count)
{
    return memcmp(one, other, (size_t)count * sizeof *one) == 0;
}

/* The layer's parameters whose bits changed, without the mixer's name: "A_log dt_bias ". Layer −1:
 * those outside the layers. */
static void list_changed(const subject *this, int64_t layer, char *out, size_t size)
{
    out[0] = '\0';
    for (int64_t i = 0; i < ssm__network_count(this->network); i++) {
        const ssm__parameter *p = ssm__network_at(this->network, i);
        if (p->layer == layer && !same_bits(this->before + p->at, this->after + p->at, p->count)) {
            const char *mixer = strstr(p->name, ".mixer.");
            const size_t used = strlen(out);
            snprintf(out + used, size - used, "%s ", mixer == NULL ? p->name : mixer + 7);
        }
    }
}

static void expect_changed(const subject *this, int64_t layer, const char *expected)
{
    char changed[512];
    list_changed(this, layer, changed, sizeof changed);
    assert_string_equal(changed, expected);
}

/* ---- each switch alone, each mixer ----------------------------------------------------------- */

static const ssm__mixer_kind gla[] = {SSM__MIXER_GLA, SSM__MIXER_GLA};
static const ssm__mixer_kind linear[] = {SSM__MIXER_LINEAR_ATTENTION, SSM__MIXER_LINEAR_ATTENTION};
static const ssm__mixer_kind mamba1[] = {SSM__MIXER_MAMBA1, SSM__MIXER_MAMBA1};
static const ssm__mixer_kind mamba2[] = {SSM__MIXER_MAMBA2, SSM__MIXER_MAMBA2};

static const struct {
    const ssm__mixer_kind *mixers;
    bool time_invariant;
    const char *switches, *changed;
} alone[] = {
    {gla, false, "A", "gate_proj.1.weight gate_proj.1.bias "},
    {gla, false, "BC", "in_proj.weight "},
    {gla, false, "conv", "conv1d.weight conv1d.bias "},
    {gla, false, "A,delta", "gate_proj.1.weight gate_proj.1.bias "},
    {gla, false, "all",
     "in_proj.weight conv1d.weight conv1d.bias gate_proj.1.weight gate_proj.1.bias "},
    {linear, false, "BC", "in_proj.weight "},
    {linear, false, "conv", "conv1d.weight conv1d.bias "},
    {linear, false, "all", "in_proj.weight conv1d.weight conv1d.bias "},
    {mamba1, false, "all",
     "conv1d.weight conv1d.bias x_proj.weight dt_proj.weight dt_proj.bias A_log "},
    {mamba2, false, "all", "in_proj.weight conv1d.weight conv1d.bias dt_bias A_log "},
    /* B, C and the step are constants: in_proj and the convolution end behind x. */
    {mamba1, true, "all", "conv1d.weight conv1d.bias dt_proj.bias A_log "},
    {mamba2, true, "all", "conv1d.weight conv1d.bias dt_bias A_log "},
    {mamba2, true, "BC,conv", "conv1d.weight conv1d.bias "},
};

static void what_changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
        ssm__network_config config = shape_of(alone[i].mixers, 2);
        const int64_t layer = 1;
        ssm_mimetic mimetic = of_switches(alone[i].switches);
        mimetic.layers = &layer;
        mimetic.n_layers = 1;
        config.time_invariant = alone[i].time_invariant;
        subject this = make(&config, &mimetic);
        expect_changed(&this, -1, "");
        expect_changed(&this, 0, "");
        expect_changed(&this, 1, alone[i].changed);
        drop(&this);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void expect_all(const float *values, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++) {
        assert_true(values[i] == value);
    }
}

/* Every token's gate: α = exp(logsigmoid(x W1 W2 + b)/16). */
static void expect_open_gates(const subject *this, int64_t layer)
{
    const float *W_1 = after(this, layer, "gate_proj.0.weight");
    const float *W_2 = after(this, layer, "gate_proj.1.weight");
    const float *b = after(this, layer, "gate_proj.1.bias");
    ssm_rng rng = ssm_rng_create(2, "tokens");
    assert_int_equal(parameter(this, layer, "gate_proj.1.bias")->count, J * N);
    for (int token = 0; token < 8; token++) {
        double low[R] = {0};
        for (int64_t d = 0; d < D; d++) {
            const double x = 10 * ssm_rng_normal(&rng);
            for (int64_t r = 0; r < R; r++) {
                low[r] += x * (double)W_1[r * D + d];
            }
        }
        assert_true(low[0] != 0); /* W1 is not zero: a gradient reaches W2 */
        for (int64_t n = 0; n < J * N; n++) {
            double p = (double)b[n];
            for (int64_t r = 0; r < R; r++) {
                p += low[r] * (double)W_2[n * R + r];
            }
            assert_true(exp(-log1p(exp(-p)) / 16) == exp(-log1p(exp(-10.0)) / 16));
        }
    }
}

/* Mean diagonal of W_Cᵀ W_B over the rms beside it. */
static double ratio_of(const float *W_B, const float *W_C)
{
    double diagonal = 0, beside = 0;
    for (int64_t i = 0; i < D; i++) {
        for (int64_t j = 0; j < D; j++) {
            double element = 0;
            for (int64_t n = 0; n < N; n++) {
                element += (double)W_C[n * D + i] * (double)W_B[n * D + j];
            }
            diagonal += i == j ? element / D : 0;
            beside += i == j ? 0 : element * element / (D * (D - 1));
        }
    }
    return diagonal / sqrt(beside);
}

/* For N rows of independent elements √(N/2) for half, √N for equal (test_mimetic.c), within 20 % of
 * 48 columns' sampling; orthogonal rows are nearer to the identity than those. Independent
 * matrices: 0 ± 1/√48. */
static void expect_correlated(const subject *this, int64_t layer, ssm_mimetic_mode mode)
{
    static const double expected[] = {2.83, 4, 4};
    const float *now = after(this, layer, "in_proj.weight");
    const float *then = before(this, layer, "in_proj.weight");
    for (int64_t g = 0; g < G; g++) {
        const int64_t B = (2 * E + g * N) * D, C = (2 * E + (G + g) * N) * D;
        const int64_t other = (2 * E + (G + 1 - g) * N) * D;
        const double ratio = ratio_of(now + B, now + C);
        assert_true(ratio > 0.8 * expected[mode]);
        assert_true(mode == SSM_MIMETIC_ORTHOGONAL || ratio < 1.2 * expected[mode]);
        assert_true(fabs(ratio_of(then + B, then + C)) < 5 / sqrt(D));
        assert_true(fabs(ratio_of(now + B, now + other)) < 5 / sqrt(D));
        assert_true(same_bits(now + B, then + B, N * D) == (mode != SSM_MIMETIC_ORTHOGONAL));
    }
    assert_true(same_bits(now, then, 2 * E * D)); /* rows of z and x */
    assert_int_equal(parameter(this, layer, "in_proj.weight")->count, (2 * E + 2 * G * N) * D);
}

static void expect_identity(const subject *this, int64_t layer)
{
    const float *conv = after(this, layer, "conv1d.weight");
    const int64_t channels = E + 2 * G * N;
    assert_int_equal(parameter(this, layer, "conv1d.weight")->count, channels * K);
    for (int64_t i = 0; i < channels * K; i++) {
        assert_true(conv[i] == (i % K == K - 1 ? 1 : 0));
    }
    expect_all(after(this, layer, "conv1d.bias"), channels, 0);
}

static void gla_and_linear_attention(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++) {
        for (int mode = 0; mode < 3; mode++) {
            const ssm__network_config config = shape_of(gated ? gla : linear, 2);
            ssm_mimetic mimetic = ssm_mimetic_default();
            mimetic.mode = (ssm_mimetic_mode)mode;
            subject this = make(&config, &mimetic);
            for (int64_t layer = 0; layer < 2; layer++) {
                if (gated) {
                    expect_open_gates(&this, layer);
                }
                expect_correlated(&this, layer, mimetic.mode);
                expect_identity(&this, layer);
            }
            drop(&this);
        }
    }
}

/* The gates begin without the token and need not stay so: W2's gradient is not zero, W1's is until
 * W2 has stepped. */
static void gates_learn(void **state)
{
    (void)state;
    const ssm__network_config config = shape_of(gla, 2);
    const ssm_mimetic mimetic = ssm_mimetic_default();
    subject this = make(&config, &mimetic);
    ssm_train_batch batch = toy_batch(&config, 3, 40);
    (void)toy_gradients(this.network, &batch, NULL);
    const float *gradients = ssm__network_gradients(this.network);
    const ssm__parameter *W_1 = parameter(&this, 1, "gate_proj.0.weight");
    const ssm__parameter *W_2 = parameter(&this, 1, "gate_proj.1.weight");
    expect_all(gradients + W_1->at, W_1->count, 0);
    for (int64_t i = 0; i < W_2->count; i++) {
        assert_true(gradients[W_2->at + i] != 0);
    }
    toy_batch_free(&batch);
    drop(&this);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Head 4 of 6 has gate 4, and is in group 1. With 2 gates: gate 1. */
static void one_head_of_gla(void **state)
{
    (void)state;
    for (int64_t gates = 2; gates <= 6; gates += 4) {
        ssm__network_config config = shape_of(gla, 2);
        const int64_t head = 4;
        ssm_mimetic mimetic = ssm_mimetic_default();
        mimetic.heads = &head;
        mimetic.n_heads = 1;
        config.gate_groups = gates == 2 ? 0 : gates; /* 0: n_groups */
        subject this = make(&config, &mimetic);
        const float *b = after(&this, 0, "gate_proj.1.bias");
        const float *W_2 = after(&this, 0, "gate_proj.1.weight");
        for (int64_t gate = 0; gate < gates; gate++) {
            const bool named = gate == (gates == 2 ? 1 : 4);
            expect_all(b + gate * N, N, named ? 10 : 0);
            assert_true((W_2[gate * N * R] == 0) == named);
        }
        const float *conv = after(&this, 0, "conv1d.weight");
        const float *old = before(&this, 0, "conv1d.weight");
        for (int64_t channel = 0; channel < E + 2 * G * N; channel++) { /* x; B; C */
            const bool of_head = channel >= 64 && channel < 80;
            const bool of_group = channel >= E && (channel - E) % (G * N) >= N;
            assert_true(same_bits(conv + channel * K, old + channel * K, K) ==
                        !(of_head || of_group));
        }
        const int64_t C = (2 * E + G * N) * D;
        const float *rows = after(&this, 0, "in_proj.weight") + C;
        const float *old_rows = before(&this, 0, "in_proj.weight") + C;
        assert_true(same_bits(rows, old_rows, N * D));
        assert_false(same_bits(rows + N * D, old_rows + N * D, N * D));
        drop(&this);
    }
}

/* Every mixer in one network: each by its own rule, attention and H3 as they were. */
static void a_hybrid_of_all(void **state)
{
    (void)state;
    static const ssm__mixer_kind mixers[] = {SSM__MIXER_ATTENTION, SSM__MIXER_GLA,
                                             SSM__MIXER_H3,        SSM__MIXER_LINEAR_ATTENTION,
                                             SSM__MIXER_MAMBA1,    SSM__MIXER_MAMBA2};
    ssm__network_config config = shape_of(mixers, 6);
    const ssm_mimetic mimetic = ssm_mimetic_default();
    config.shape.family = SSM_FAMILY_MAMBA; /* as of a recipe with a layer of Mamba-1 */
    subject this = make(&config, &mimetic);
    expect_changed(&this, -1, "");
    expect_changed(&this, 0, "");
    expect_changed(&this, 2, "");
    expect_open_gates(&this, 1);
    expect_correlated(&this, 1, SSM_MIMETIC_HALF);
    expect_identity(&this, 1);
    expect_correlated(&this, 3, SSM_MIMETIC_HALF);
    expect_identity(&this, 3);
    expect_all(after(&this, 4, "A_log"), E * N, -8);
    expect_all(after(&this, 5, "A_log"), H, -8);
    expect_identity(&this, 5);
    expect_changed(&this, 4,
                   "conv1d.weight conv1d.bias x_proj.weight dt_proj.weight dt_proj.bias A_log ");
    expect_changed(&this, 5, "in_proj.weight conv1d.weight conv1d.bias dt_bias A_log ");
    drop(&this);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const ssm__mixer_kind attention_gla[] = {SSM__MIXER_ATTENTION, SSM__MIXER_GLA};
static const ssm__mixer_kind h3[] = {SSM__MIXER_H3, SSM__MIXER_H3};
static const ssm__mixer_kind mamba1_gla[] = {SSM__MIXER_MAMBA1, SSM__MIXER_GLA};

static const struct {
    const ssm__mixer_kind *mixers;
    const char *switches;
    int64_t layer, head; /* −1: no list */
    const char *says;
} refused[] = {
    {gla, "delta", 1, -1,
     "layer 1 is one of gla, which has nothing for delta; expected some of the switches A, BC, "
     "conv,"},
    {linear, "A,delta", 0, -1,
     "layer 0 is one of linear_attention, which has nothing for A, delta; expected some of the "
     "switches BC, conv,"},
    {linear, "A,delta", -1, -1, "no layer has anything for the mimetic switches A, delta "},
    {gla, "delta", -1, -1, "no layer has anything for the mimetic switches delta "},
    {h3, "all", -1, -1, "no layer has anything for the mimetic switches A, delta, BC, conv "},
    {h3, "all", 1, -1, "layer 1 is one of h3, for which there is no mimetic initialisation"},
    {attention_gla, "all", 0, -1, "layer 0 is one of attention, for which there is no mimetic"},
    {gla, "all", 2, -1, "layer 2; expected a rising list of 0 … 1"},
    {gla, "all", -1, 6, "head 6; expected a rising list of 0 … 5"},
    {mamba1_gla, "all", -1, 0, "layer 0 is one of mamba1, which has none"},
};

static void expect_refusal(const ssm__network_config *config, const ssm_mimetic *mimetic,
                           const char *says)
{
    subject this = create(config);
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__mimetic_network(this.network, mimetic, 4, &err), SSM_STATUS_USAGE);
    if (strstr(err.message, says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, says);
    }
    assert_true(same_bits(this.before, this.after, ssm__network_floats(this.network)));
    drop(&this);
}

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const ssm__network_config config = shape_of(refused[i].mixers, 2);
        ssm_mimetic mimetic = of_switches(refused[i].switches);
        mimetic.layers = refused[i].layer < 0 ? NULL : &refused[i].layer;
        mimetic.heads = refused[i].head < 0 ? NULL : &refused[i].head;
        mimetic.n_layers = mimetic.n_heads = 1;
        expect_refusal(&config, &mimetic, refused[i].says);
    }
    const int64_t second = 1;
    ssm__network_config config = shape_of(gla, 2);
    ssm_mimetic mimetic = ssm_mimetic_default();
    mimetic.layers = &second;
    mimetic.n_layers = 1;
    config.shared_layers = true;
    expect_refusal(&config, &mimetic, "layer 1 has the weights of layer 0");
    config.shared_layers = false;
    config.shape.d_conv = 0;
    expect_refusal(&config, &mimetic, "the model has no convolution");
    mimetic.conv = false;
    subject this = make(&config, &mimetic);
    expect_changed(&this, 1, "in_proj.weight gate_proj.1.weight gate_proj.1.bias ");
    drop(&this);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes),    cmocka_unit_test(gla_and_linear_attention),
        cmocka_unit_test(gates_learn),     cmocka_unit_test(one_head_of_gla),
        cmocka_unit_test(a_hybrid_of_all), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
