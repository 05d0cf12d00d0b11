/* Gradients of the mixers beside Mamba-1 against the reference; bits of threads, instruction sets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_network.h"
#include "test_session.h"
#include "train/checkpointing.h"

/* float32 against float64: chains of a few hundred terms whose roundings are 6e-8 each; measured
 * below 9e-6. */
static const double bound = 2e-5;

/* Wider heads and states, one group: other tails in every kernel. */
static void widen(ssm__network_config *config)
{
    config->shape.n_groups = config->shape.norm_groups = 1;
    config->shape.d_inner = config->shape.d_ssm = 192;
    config->shape.head_dim = 48;
    config->shape.d_state = 32;
}

static void same_bits(const ssm__network_config *config);

static void compare(const ssm__network_config *config, int64_t rows, int64_t length)
{
    ssm__network *network = toy_network_create(config, SSM_ISA_AUTO, NULL);
    ssm_train_batch batch = toy_batch(config, rows, length);
    check_against_reference(network, &batch, bound);
    toy_batch_free(&batch);
    ssm__network_free(network);
}

/* Four heads of 9 channels, 5 modes, two groups: no size is a multiple of 16. */
static ssm__network_config toy_block(const ssm__mixer_kind *mixers, int64_t layers)
{
    ssm__network_config config = toy_network();
    config.mixers = mixers;
    config.shape.family = SSM_FAMILY_MAMBA2;
    config.shape.n_layers = layers;
    config.shape.n_heads = 4;
    config.shape.head_dim = 9;
    config.shape.d_ssm = 36;
    config.shape.n_groups = 2;
    config.shape.norm_groups = 2;
    config.shape.gated_norm = true;
    config.shape.mixer_norm_eps = 1e-5;
    config.shape.dt_limit_high = (double)INFINITY;
    return config;
}

static const ssm__mixer_kind mamba2_layers[] = {SSM__MIXER_MAMBA2, SSM__MIXER_MAMBA2,
                                                SSM__MIXER_MAMBA2};

static void test_mamba2_lengths(void **state)
{
    (void)state;
    const ssm__network_config config = toy_block(mamba2_layers, 2);
    compare(&config, 5, 37);
    compare(&config, 2, 2);
    compare(&config, 3, 64);
    compare(&config, 7, 300);
}

/* Heads of one and of three groups of lanes that are used without a copy, 1, 2 and 4 groups. */
static void test_mamba2_groups(void **state)
{
    (void)state;
    for (int64_t groups = 1; groups <= 4; groups *= 2) {
        ssm__network_config config = toy_block(mamba2_layers, 2);
        config.shape.n_groups = config.shape.norm_groups = groups;
        compare(&config, 3, 70);
        config.shape.d_inner = config.shape.d_ssm = 192;
        config.shape.head_dim = 48;
        config.shape.d_state = 32;
        compare(&config, 2, 70);
    }
}

static void test_mamba2_forms(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(mamba2_layers, 2);
    config.shape.norm_before_gate = true;
    compare(&config, 3, 70);
    config.shape.norm_groups = 1;
    compare(&config, 3, 70);
    config.shape.norm_before_gate = false;
    compare(&config, 3, 70);
    config.shape.gated_norm = false;
    config.shape.D_per_channel = true;
    compare(&config, 3, 70);
    config.shape.dt_limit_low = 0.02;
    config.shape.dt_limit_high = 0.05;
    compare(&config, 3, 70);
}

static const ssm__mixer_kind linear_layers[] = {SSM__MIXER_LINEAR_ATTENTION,
                                                SSM__MIXER_LINEAR_ATTENTION};

static void test_linear_attention(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(linear_layers, 2);
    compare(&config, 5, 37);
    compare(&config, 3, 150);
    same_bits(&config);
    widen(&config);
    compare(&config, 3, 70);
    same_bits(&config);
}

static const ssm__mixer_kind gla_layers[] = {SSM__MIXER_GLA, SSM__MIXER_GLA};

static void test_gla(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(gla_layers, 2);
    compare(&config, 5, 37);
    compare(&config, 2, 2);
    compare(&config, 3, 150);
    config.gate_groups = 4; /* a gate a head */
    config.gate_rank = 3;
    compare(&config, 3, 70);
    same_bits(&config);
    config.gate_groups = 0;
    config.gate_divisor = 0.5; /* gates around a quarter */
    compare(&config, 3, 70);
    config.gate_divisor = 40;
    compare(&config, 3, 70);
    widen(&config);
    compare(&config, 3, 70);
    same_bits(&config);
}

/* Gates that forget all at once, as rows of W2 far from 0 make them. */
static void test_gla_fast(void **state)
{
    (void)state;
    const double scales[] = {-60, -400, -3000, -400}; /* the last time of all modes */
    for (int i = 0; i < 4; i++) {
        ssm__network_config config = toy_block(gla_layers, 1);
        ssm__network *network = toy_network_create(&config, SSM_ISA_AUTO, NULL);
        ssm_train_batch batch = toy_batch(&config, 3, 150);
        const ssm__parameter *p =
            ssm__network_find(network, "backbone.layers.0.mixer.gate_proj.1.bias");
        assert_non_null(p);
        for (int64_t k = 0; k < p->count; k++) {
            ssm__network_values(network)[p->at + k] = (float)(i == 3 || k % 3 == 0 ? scales[i] : 1);
        }
        check_against_reference(network, &batch, bound);
        toy_batch_free(&batch);
        ssm__network_free(network);
    }
}

static void test_time_invariant(void **state)
{
    (void)state;
    ssm__network_config first = toy_network();
    first.time_invariant = true;
    compare(&first, 5, 37);
    compare(&first, 3, 150);
    same_bits(&first);
    ssm__network_config config = toy_block(mamba2_layers, 2);
    config.time_invariant = true;
    compare(&config, 5, 37);
    compare(&config, 3, 150);
    widen(&config);
    compare(&config, 3, 70);
    same_bits(&config);
}

/* u = SiLU(xs): no taps and no biases. */
static void test_no_convolution(void **state)
{
    (void)state;
    const ssm__mixer_kind *const layers[] = {mamba2_layers, linear_layers, gla_layers};
    ssm__network_config first = toy_network();
    first.shape.d_conv = 0;
    compare(&first, 5, 37);
    compare(&first, 2, 2);
    same_bits(&first);
    first.time_invariant = true;
    compare(&first, 3, 70);
    for (int i = 0; i < 3; i++) {
        ssm__network_config config = toy_block(layers[i], 2);
        config.shape.d_conv = 0;
        compare(&config, 3, 70);
        same_bits(&config);
        widen(&config);
        compare(&config, 3, 70);
    }
    ssm__network_config config = toy_block(mamba2_layers, 2);
    config.shape.d_conv = 0;
    config.time_invariant = true;
    compare(&config, 3, 70);
}

/* Three query heads to a key head, of 6 coordinates, of which 4 are turned. */
static ssm__network_config toy_attention(const ssm__mixer_kind *mixers, int64_t layers)
{
    ssm__network_config config = toy_block(mixers, layers);
    config.shape.n_query_heads = 6;
    config.shape.n_kv_heads = 2;
    config.shape.attention_head_dim = 6;
    config.shape.rotary_dim = 4;
    config.shape.rotary_base = 100;
    config.shape.softmax_scale = 0.7;
    return config;
}

static const ssm__mixer_kind hybrid_layers[] = {SSM__MIXER_MAMBA2, SSM__MIXER_ATTENTION,
                                                SSM__MIXER_MAMBA2};
static const ssm__mixer_kind attention_layers[] = {SSM__MIXER_ATTENTION, SSM__MIXER_ATTENTION};

static void test_attention(void **state)
{
    (void)state;
    ssm__network_config config = toy_attention(attention_layers, 2);
    compare(&config, 5, 37);
    compare(&config, 2, 2);
    compare(&config, 3, 64);
    compare(&config, 7, 300);
    config.shape.attention_conv = 4;
    config.shape.rotary_interleaved = true;
    compare(&config, 3, 70);
    config.shape.rotary_dim = 0;
    config.shape.n_query_heads = config.shape.n_kv_heads = 3;
    config.shape.attention_head_dim = 32;
    compare(&config, 3, 70);
}

static void test_hybrid(void **state)
{
    (void)state;
    ssm__network_config config = toy_attention(hybrid_layers, 3);
    compare(&config, 3, 70);
    config.shape.d_mlp = 17;
    config.norm = SSM__NORM_LAYER;
    compare(&config, 3, 70);
}

static const ssm__mixer_kind h3_layers[] = {SSM__MIXER_H3, SSM__MIXER_H3};

/* Heads of a part of a group, of a whole one, of two; the last group is not full. */
static void test_h3(void **state)
{
    (void)state;
    const int64_t widths[] = {1, 2, 4, 8, 16, 32};
    for (int i = 0; i < 6; i++) {
        ssm__network_config config = toy_block(h3_layers, 2);
        config.shape.head_dim = widths[i];
        config.shape.n_heads = i < 4 ? 40 / widths[i] : 2;
        config.shape.d_inner = config.shape.d_ssm = config.shape.n_heads * widths[i];
        config.shape.d_state = i == 3 ? 16 : 5;
        compare(&config, 3, 70);
    }
}

static ssm__network_config toy_h3(const ssm__mixer_kind *mixers, int64_t layers)
{
    ssm__network_config config = toy_block(mixers, layers);
    config.shape.head_dim = 4;
    config.shape.n_heads = 10;
    config.shape.d_inner = config.shape.d_ssm = 40;
    return config;
}

static void test_h3_lengths(void **state)
{
    (void)state;
    const ssm__network_config config = toy_h3(h3_layers, 2);
    compare(&config, 2, 2);
    compare(&config, 5, 37);
    compare(&config, 3, 64);
    compare(&config, 7, 300);
    same_bits(&config);
}

/* Beside Mamba-1, an MLP behind each; with Mamba-2 and attention. */
static void test_h3_hybrids(void **state)
{
    (void)state;
    const ssm__mixer_kind with_mamba[] = {SSM__MIXER_H3, SSM__MIXER_MAMBA1, SSM__MIXER_H3};
    ssm__network_config config = toy_h3(with_mamba, 3);
    config.shape.d_mlp = 17;
    config.norm = SSM__NORM_LAYER;
    compare(&config, 3, 70);
    const ssm__mixer_kind with_heads[] = {SSM__MIXER_MAMBA2, SSM__MIXER_H3, SSM__MIXER_ATTENTION};
    config = toy_attention(with_heads, 3);
    config.shape.head_dim = 4;
    config.shape.n_heads = 10;
    config.shape.d_inner = config.shape.d_ssm = 40;
    compare(&config, 3, 70);
    same_bits(&config);
}

/* Shapes that are none for H3 are refused, and the message says which there are. */
static void test_h3_refused(void **state)
{
    (void)state;
    ssm__network *network = NULL;
    ssm_error err;
    ssm__network_config config = toy_block(h3_layers, 2); /* heads of 9 */
    assert_int_equal(
        ssm__network_create(&config, ssm__kernels_for(SSM_ISA_AUTO), NULL, &network, &err),
        SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "head_dim is 9; expected 1, 2, 4, 8 or a multiple of 16"));
    config = toy_h3(h3_layers, 2);
    config.time_invariant = true;
    assert_int_equal(
        ssm__network_create(&config, ssm__kernels_for(SSM_ISA_AUTO), NULL, &network, &err),
        SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "h3"));
    config = toy_h3(h3_layers, 2);
    config.shape.d_conv = 0; /* the shift SSM is one */
    assert_int_equal(
        ssm__network_create(&config, ssm__kernels_for(SSM_ISA_AUTO), NULL, &network, &err),
        SSM_STATUS_USAGE);
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* Gradients of one pass, for free(). */
static float *gradients_of(const ssm__network_config *config, ssm_isa isa, int threads,
                           size_t *bytes)
{
    ssm_pool *pool = NULL;
    assert_int_equal(ssm_pool_create(threads, &pool, NULL), SSM_STATUS_OK);
    ssm__network *network = toy_network_create(config, isa, pool);
    ssm_train_batch batch = toy_batch(config, 9, 150);
    toy_gradients(network, &batch, NULL);
    *bytes = (size_t)ssm__network_floats(network) * sizeof(float);
    float *copy = malloc(*bytes);
    assert_non_null(copy);
    memcpy(copy, ssm__network_gradients(network), *bytes);
    toy_batch_free(&batch);
    ssm__network_free(network);
    ssm_pool_free(pool);
    return copy;
}

static void same_bits(const ssm__network_config *config)
{
    const ssm_isa isas[] = {SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512};
    size_t bytes;
    float *wanted = gradients_of(config, SSM_ISA_AUTO, 1, &bytes);
    for (int threads = 2; threads <= 4; threads++) {
        float *other = gradients_of(config, SSM_ISA_AUTO, threads, &bytes);
        assert_memory_equal(wanted, other, bytes);
        free(other);
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (ssm_isa_supported(isas[i])) {
            float *other = gradients_of(config, isas[i], 2, &bytes);
            assert_memory_equal(wanted, other, bytes);
            free(other);
        }
    }
    free(wanted);
}

static void test_mamba2_bits(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(mamba2_layers, 2);
    same_bits(&config);
    widen(&config);
    same_bits(&config);
}

/* ---- what is trained is what is run ---------------------------------------------------------- */

/* −log p of every next token, by the engine that loads the written directory and by the pass.
 * 4e-6: both are float32 sums of about a hundred terms, cut differently. */
static void engine_agrees(const ssm__network_config *config)
{
    enum { LENGTH = 70 };
    char directory[TEST_PATH_MAX];
    ssm_error err;
    ssm__network *network = toy_network_create(config, SSM_ISA_AUTO, NULL);
    ssm_train_batch batch = toy_batch(config, 1, LENGTH);
    test_make_directory(directory);
    assert_int_equal(ssm__write_model(network, directory, &err), SSM_STATUS_OK);
    ssm_model *model = test_model_open(directory, SSM_ISA_AUTO);
    ssm_session *session = test_session_create(model, NULL, 0);
    float nll[LENGTH];
    assert_int_equal(ssm_session_nll(session, batch.ids, LENGTH, nll, &err), SSM_STATUS_OK);
    ssm__pass *pass;
    assert_int_equal(ssm__pass_create(network, LENGTH, false, &pass, &err), SSM_STATUS_OK);
    double worst = 0, largest = 0;
    for (int t = 0; t + 1 < LENGTH; t++) {
        ssm__loss loss;
        for (int i = 0; i < LENGTH; i++) {
            batch.labels[i] = i == t ? batch.ids[t + 1] : -1;
        }
        ssm__pass_evaluate(pass, &batch, &loss, NULL, NULL);
        worst = fmax(worst, fabs(loss.sum - (double)nll[t]));
        largest = fmax(largest, fabs(loss.sum));
    }
    print_message("engine: off by %.2g of %.3g\n", worst, largest);
    assert_true(largest > 1);
    assert_true(worst <= 4e-6 * largest);
    ssm__pass_free(pass);
    ssm_session_free(session);
    ssm_model_free(model);
    test_remove_directory(directory);
    toy_batch_free(&batch);
    ssm__network_free(network);
}

static void test_attention_bits(void **state)
{
    (void)state;
    ssm__network_config config = toy_attention(hybrid_layers, 3);
    config.shape.attention_conv = 4;
    same_bits(&config);
}

static void test_mamba2_engine(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(mamba2_layers, 3);
    engine_agrees(&config);
    config.shape.n_groups = config.shape.norm_groups = 1;
    config.shape.tied = true;
    engine_agrees(&config);
    config.norm = SSM__NORM_LAYER; /* the authors' layout */
    config.shape.d_mlp = 17;
    engine_agrees(&config);
}

static void test_hybrid_engine(void **state)
{
    (void)state;
    ssm__network_config config = toy_attention(hybrid_layers, 3);
    engine_agrees(&config);
    config.shape.attention_conv = 4;
    engine_agrees(&config);
}

/* ---- numbers that are too large -------------------------------------------------------------- */

/* Every value of a parameter times a factor: what the pass then says. */
static void refused(const ssm__network_config *config, const char *name, float factor,
                    const char *words)
{
    ssm__network *network = toy_network_create(config, SSM_ISA_AUTO, NULL);
    ssm_train_batch batch = toy_batch(config, 3, 20);
    ssm__pass *pass;
    ssm__loss loss;
    ssm_error err;
    char bad[256] = "";
    int scaled = 0;
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = 0; k < p->count && strcmp(p->name, name) == 0; k++, scaled++) {
            ssm__network_values(network)[p->at + k] *= factor;
        }
    }
    assert_true(scaled > 0);
    assert_int_equal(ssm__pass_create(network, batch.length, true, &pass, &err), SSM_STATUS_OK);
    ssm__pass_train(pass, &batch, 1.0, NULL, &loss);
    assert_true(!isfinite(loss.sum));
    assert_true(ssm__pass_not_finite(pass, bad, sizeof bad));
    if (strstr(bad, words) != bad) {
        fail_msg("%s: found '%s', expected '%s'", name, bad, words);
    }
    ssm__pass_free(pass);
    toy_batch_free(&batch);
    ssm__network_free(network);
}

/* Finite numbers whose squares are not: a norm over infinity would make zeros of them, a branch
 * that adds nothing and a loss that looks like one. In the gated norm, in the norm before a branch
 * and in the last one. */
static void test_squares_that_overflow(void **state)
{
    (void)state;
    ssm__network_config config = toy_block(mamba2_layers, 2);
    for (int i = 0; i < 4; i++) {
        config.shape.norm_before_gate = i % 2 == 1;
        config.norm = i / 2 == 1 ? SSM__NORM_LAYER : SSM__NORM_RMS;
        refused(&config, "backbone.layers.0.mixer.D", 1e25F, "the mixer of block 0 gives nan");
        refused(&config, "backbone.embeddings.weight", 1e22F, "the first row of the stream is ");
        refused(&config, "backbone.layers.1.mixer.out_proj.weight", 1e22F,
                "the mixer of block 1 gives ");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mamba2_lengths),
        cmocka_unit_test(test_mamba2_groups),
        cmocka_unit_test(test_mamba2_forms),
        cmocka_unit_test(test_mamba2_bits),
        cmocka_unit_test(test_mamba2_engine),
        cmocka_unit_test(test_linear_attention),
        cmocka_unit_test(test_gla),
        cmocka_unit_test(test_gla_fast),
        cmocka_unit_test(test_time_invariant),
        cmocka_unit_test(test_no_convolution),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_h3),
        cmocka_unit_test(test_h3_lengths),
        cmocka_unit_test(test_h3_hybrids),
        cmocka_unit_test(test_h3_refused),
        cmocka_unit_test(test_attention_bits),
        cmocka_unit_test(test_hybrid_engine),
        cmocka_unit_test(test_squares_that_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
