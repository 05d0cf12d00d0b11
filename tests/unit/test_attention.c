/* Blocks with attention and MLPs through their taps: which points there are, and what they hold
 * together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "test_golden.h"
#include "test_numbers.h"
#include "test_session.h"

enum { COUNT = 80, LAYERS_MAX = 4 };

typedef struct captured {
    int64_t width[SSM_TAP_COUNT][LAYERS_MAX], tokens[SSM_TAP_COUNT][LAYERS_MAX];
    float *data[SSM_TAP_COUNT][LAYERS_MAX]; /* [COUNT][width] */
} captured;

static void take(void *context, const ssm_tap *tap)
{
    captured *c = context;
    const int64_t layer = tap->layer < 0 ? 0 : tap->layer;
    assert_true(layer < LAYERS_MAX);
    if (!c->data[tap->point][layer]) {
        c->data[tap->point][layer] = test_floats(COUNT * tap->width);
        c->width[tap->point][layer] = tap->width;
    }
    assert_int_equal(c->width[tap->point][layer], tap->width);
    assert_int_equal(c->tokens[tap->point][layer], tap->position); /* every token once, in order */
    c->tokens[tap->point][layer] += tap->tokens;
    ssm_tap_copy(tap, c->data[tap->point][layer] + tap->position * tap->width);
}

static captured *capture(const ssm_model *model, int64_t chunk)
{
    captured *c = calloc(1, sizeof *c);
    assert_non_null(c);
    const ssm_observer observer = {
        .context = c, .points = (UINT64_C(1) << SSM_TAP_COUNT) - 1, .read = take};
    int32_t ids[COUNT];
    toy_ids(ssm_model_config(model), 9, ids, COUNT);
    ssm_session *session = test_session_create(model, NULL, 0);
    float *plain = test_logits(session, model, ids, COUNT, chunk);
    ssm_session_reset(session);
    ssm_session_set_observer(session, &observer);
    float *seen = test_logits(session, model, ids, COUNT, chunk);
    test_assert_same_bits("observers move nothing", seen, plain,
                          COUNT * ssm_model_config(model)->vocab_size);
    free(plain);
    free(seen);
    ssm_session_free(session);
    return c;
}

static void release(captured *c)
{
    for (int point = 0; point < SSM_TAP_COUNT; point++) {
        for (int layer = 0; layer < LAYERS_MAX; layer++) {
            free(c->data[point][layer]);
        }
    }
    free(c);
}

/* Width of a point in a block, 0 where it does not exist. */
static int64_t width_of(const ssm_config *c, ssm_layer_kind kind, ssm_tap_point point)
{
    const int64_t rows = (c->n_query_heads + 2 * c->n_kv_heads) * c->attention_head_dim;
    const bool attention = kind == SSM_LAYER_ATTENTION;
    switch (point) {
    case SSM_TAP_IN_PROJ:
    case SSM_TAP_CONV1D:
        return attention ? rows : -1; /* others: test_taps.c */
    case SSM_TAP_ATTENTION_OUT:
        return attention ? c->n_query_heads * c->attention_head_dim : 0;
    case SSM_TAP_RESID_MID:
    case SSM_TAP_MLP_IN:
    case SSM_TAP_MLP_OUT:
        return c->d_mlp > 0 ? c->d_model : 0;
    case SSM_TAP_RESID_PRE:
    case SSM_TAP_MIXER_IN:
    case SSM_TAP_MIXER_OUT:
    case SSM_TAP_RESID_POST:
        return c->d_model;
    default:
        return attention ? 0 : -1;
    }
}

static void check_points(const ssm_model *model, const captured *c)
{
    const ssm_config *config = ssm_model_config(model);
    for (int point = SSM_TAP_RESID_PRE; point < SSM_TAP_LN_FINAL; point++) {
        for (int64_t layer = 0; layer < config->n_layers; layer++) {
            const ssm_layer_kind kind =
                ssm_checkpoint_layer_kind(ssm_model_checkpoint(model), layer);
            const int64_t width = width_of(config, kind, (ssm_tap_point)point);
            if (width >= 0 && (c->width[point][layer] != width ||
                               c->tokens[point][layer] != (width > 0 ? COUNT : 0))) {
                fail_msg("%s, layer %d: width %d, %d tokens", ssm_tap_name((ssm_tap_point)point),
                         (int)layer, (int)c->width[point][layer], (int)c->tokens[point][layer]);
            }
        }
    }
}

static void assert_sum(const captured *c, int64_t layer, ssm_tap_point a, ssm_tap_point b,
                       ssm_tap_point sum)
{
    for (int64_t i = 0; i < COUNT * c->width[sum][layer]; i++) {
        assert_true(c->data[a][layer][i] + c->data[b][layer][i] == c->data[sum][layer][i]);
    }
}

static void taps_of_blocks(void **state)
{
    (void)state;
    static const char *const names[] = {"hybrid/mamba2-attention", "hybrid/transformer",
                                        "hybrid/mamba-attention"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[TEST_PATH_MAX];
        ssm_model *model = test_model_open(golden_model_path(path, names[i]), SSM_ISA_AUTO);
        const ssm_config *config = ssm_model_config(model);
        static const int64_t chunks[] = {0, 1, 33};
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
            captured *c = capture(model, chunks[k]);
            check_points(model, c);
            for (int64_t layer = 0; layer < config->n_layers; layer++) {
                const bool mlp = config->d_mlp > 0;
                assert_sum(c, layer, SSM_TAP_RESID_PRE, SSM_TAP_MIXER_OUT,
                           mlp ? SSM_TAP_RESID_MID : SSM_TAP_RESID_POST);
                if (mlp) {
                    assert_sum(c, layer, SSM_TAP_RESID_MID, SSM_TAP_MLP_OUT, SSM_TAP_RESID_POST);
                }
            }
            release(c);
        }
        ssm_model_free(model);
    }
}

/* The first token attends to itself alone: the heads give its values, in the order of the heads'
 * groups. */
static void first_token_is_its_value(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    ssm_model *model =
        test_model_open(golden_model_path(path, "hybrid/mamba2-attention"), SSM_ISA_AUTO);
    const ssm_config *config = ssm_model_config(model);
    captured *c = capture(model, 0);
    const int64_t dh = config->attention_head_dim, layer = 1;
    assert_true(config->n_kv_heads < config->n_query_heads && config->n_kv_heads > 1);
    const float *values =
        c->data[SSM_TAP_CONV1D][layer] + (config->n_query_heads + config->n_kv_heads) * dh;
    for (int64_t head = 0; head < config->n_query_heads; head++) {
        const int64_t group = head / (config->n_query_heads / config->n_kv_heads);
        assert_memory_equal(c->data[SSM_TAP_ATTENTION_OUT][layer] + head * dh, values + group * dh,
                            (size_t)dh * sizeof(float));
    }
    release(c);
    ssm_model_free(model);
}

/* Matrices are read where the file was mapped, in their stored dtype: a float32 copy of the weights
 * would triple the memory of a bf16 model. */
static void matrices_are_not_copied(void **state)
{
    (void)state;
    static const char *const names[] = {"falcon", "mamba2-g4-limit", "hybrid/mamba2-attention"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[TEST_PATH_MAX];
        ssm_model *model = test_model_open(golden_model_path(path, names[i]), SSM_ISA_AUTO);
        const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(model));
        size_t matrices = 0;
        for (int64_t n = 0; n < ssm_model_config(model)->n_layers; n++) {
            const ssm__layer_weights *w = &weights->layers[n];
            const ssm__block *b = &model->blocks[n];
            matrices += w->in_proj.bytes + w->out_proj.bytes + w->x_proj.bytes + w->dt_proj.bytes +
                        w->fc1.bytes + w->fc2.bytes;
            assert_ptr_equal(b->kind == SSM_LAYER_MAMBA       ? b->mamba.in_proj_x.data
                             : b->kind == SSM_LAYER_ATTENTION ? b->attention.in_proj.data
                                                              : b->mamba2.in_proj.data,
                             w->in_proj.data);
            assert_int_equal(w->in_proj.dtype, SSM_DTYPE_BF16);
            assert_ptr_equal(b->mlp.fc1_y.data, w->fc1.data);
            assert_ptr_equal(b->mlp.fc2.data, w->fc2.data);
        }
        assert_ptr_equal(model->embedding.data, weights->embedding.data);
        assert_ptr_equal(model->lm_head.data, weights->lm_head.data);
        /* What the model owns is small beside them, also in these tiny models. */
        assert_true(model->arena.used < matrices);
        ssm_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taps_of_blocks),
        cmocka_unit_test(first_token_is_its_value),
        cmocka_unit_test(matrices_are_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
