/* As test_packed.c for Mamba-2: heads that keep the same modes in all channels run with fewer
 * columns of B and C, step by step with the same bits as with factors, in chunks within 2e-6. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/session.h"
#include "test_numbers.h"
#include "test_session.h"

enum { COUNT = 150, SHAPES = 3 };

static ssm_config shape(int i)
{
    ssm_config config = i == 0 ? toy_config_heads() : toy_config_wide_heads(i == 2);
    if (i == 1) { /* whole vectors of modes, and one group of B and C */
        config.d_state = 32;
        config.n_groups = 1;
    }
    return config;
}

typedef enum kind { HEAD, GROUP, LAYER, RAGGED, CHANNEL, MIXED_WEIGHTS, KINDS } kind;

/* r modes of every head, group of heads or layer; RAGGED: any number of every head, none and all
 * too; CHANNEL: every channel draws; MIXED_WEIGHTS: a set a head, a factor a channel. */
static ssm_mask draw(const ssm_config *c, kind how, int64_t r, bool weighted, uint64_t seed)
{
    const bool channels = how == CHANNEL || how == MIXED_WEIGHTS || (how == HEAD && r % 2 == 0);
    const int64_t per_head = channels ? c->head_dim : 1;
    const int64_t rows = c->n_heads * per_head;
    const int64_t per_set = how == LAYER     ? rows
                            : how == GROUP   ? rows / c->n_groups
                            : how == CHANNEL ? 1
                                             : per_head;
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(c->n_layers, rows, c->d_state, &mask, NULL), 0);
    mask.head_dim = channels ? c->head_dim : 0;
    weighted = weighted || how == MIXED_WEIGHTS;
    if (weighted) {
        assert_int_equal(ssm_mask_add_weights(&mask, NULL), 0);
    }
    ssm_rng rng = ssm_rng_create(seed, "test/packed-heads");
    for (int64_t row = 0; row < c->n_layers * rows; row++) {
        const int64_t at = row * c->d_state;
        const int64_t set = row - row % per_set;
        int64_t left = how == RAGGED ? (int64_t)ssm_rng_below(&rng, (uint64_t)c->d_state + 1) : r;
        for (int64_t n = 0; n < c->d_state && row == set; n++) {
            mask.keep[at + n] = (int64_t)ssm_rng_below(&rng, (uint64_t)(c->d_state - n)) < left;
            left -= mask.keep[at + n];
        }
        memmove(mask.keep + at, mask.keep + set * c->d_state, (size_t)c->d_state);
        for (int64_t n = 0; n < c->d_state && weighted; n++) {
            const float drawn = 0.5f + (float)ssm_rng_below(&rng, 1000) / 1000.0f;
            const bool own = how == MIXED_WEIGHTS || row == set;
            mask.weight[at + n] = !mask.keep[at + n] ? 0.0f
                                  : own              ? drawn
                                                     : mask.weight[set * c->d_state + n];
        }
        if (weighted) {
            mask.skip_weight[row] = 0.5f + (float)ssm_rng_below(&rng, 1000) / 1000.0f;
        }
    }
    return mask;
}

static ssm_session *make_session(const ssm_model *model, ssm_pool *pool, bool full, bool exact)
{
    const ssm_session_options options = {.pool = pool, .full_state = full, .exact_chunks = exact};
    ssm_session *session = NULL;
    assert_int_equal(ssm_session_create(model, &options, &session, NULL), SSM_STATUS_OK);
    return session;
}

static float *run(const ssm_model *model, const ssm_mask *mask, ssm_pool *pool, bool full,
                  bool exact, const int32_t *ids, int64_t chunk)
{
    ssm_session *session = make_session(model, pool, full, exact);
    assert_int_equal(ssm_session_set_mask(session, mask, -1, NULL), SSM_STATUS_OK);
    float *logits = test_logits(session, model, ids, COUNT, chunk);
    ssm_session_free(session);
    return logits;
}

static void fewer_columns_give_what_factors_give(void **state)
{
    (void)state;
    double worst = 0.0;
    for (int i = 0; i < SHAPES; i++) {
        const ssm_config config = shape(i);
        ssm_pool *pool = test_pool_create(3);
        ssm_model *models[3] = {NULL};
        int n_models = 0;
        for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
            if (ssm_isa_supported((ssm_isa)isa)) {
                models[n_models++] = test_model_toy(&config, SSM_DTYPE_F32, 8, (ssm_isa)isa, NULL);
            }
        }
        const int64_t size = COUNT * config.vocab_size;
        int32_t ids[COUNT];
        toy_ids(&config, 5, ids, COUNT);
        for (int64_t r = 1; r<config.d_state; r += config.d_state> 5 ? 4 : 1) {
            for (int how = 0; how < 2 * KINDS; how++) {
                ssm_mask mask = draw(&config, (kind)(how / 2), r, how % 2 == 1, (uint64_t)r);
                float *want = run(models[n_models - 1], &mask, NULL, true, true, ids, 0);
                double *wide = test_doubles(size);
                for (int64_t k = 0; k < size; k++) {
                    wide[k] = (double)want[k];
                }
                for (int m = r == 1 ? 0 : n_models - 1; m < n_models; m++) { /* each once */
                    float *exact = run(models[m], &mask, NULL, false, true, ids, m == 0 ? 7 : 0);
                    test_assert_same_bits("recurrence", exact, want, size);
                    free(exact);
                    float *chunked = run(models[m], &mask, m == 0 ? NULL : pool, false, false, ids,
                                         r == 9 ? 50 : 0);
                    const double off = test_relative_f32(chunked, wide, size);
                    worst = off > worst ? off : worst;
                    /* as the toys against the reference (test_mamba2.c): their norms divide by
                     * little; measured 2.8e-6 */
                    test_assert_near_f32("chunks", chunked, wide, size, 5e-6);
                    free(chunked);
                }
                free(wide);
                free(want);
                ssm_mask_free(&mask);
            }
        }
        for (int m = 0; m < n_models; m++) {
            ssm_model_free(models[m]);
        }
        ssm_pool_free(pool);
    }
    printf("in chunks: off by %.1e\n", worst);
}

/* The bound that is promised, on a model whose outputs are not made of cancellation. */
static void chunks_of_a_golden_model(void **state)
{
    (void)state;
    ssm_model *model =
        test_model_open(SSM_SOURCE_DIR "/tests/golden/hf-tiny/mamba2-g4-limit", SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    const int64_t size = COUNT * c->vocab_size;
    int32_t ids[COUNT];
    toy_ids(c, 5, ids, COUNT);
    double worst = 0.0;
    for (int how = 0; how < 2 * KINDS; how++) {
        ssm_mask mask = draw(c, (kind)(how / 2), c->d_state / 2, how % 2 == 1, 3);
        float *exact = run(model, &mask, NULL, true, true, ids, 0);
        float *chunked = run(model, &mask, NULL, false, false, ids, 0);
        double *want = test_doubles(size);
        for (int64_t k = 0; k < size; k++) {
            want[k] = (double)exact[k];
        }
        worst = fmax(worst, test_relative_f32(chunked, want, size));
        test_assert_near_f32("chunks", chunked, want, size, 2e-6);
        free(want);
        free(exact);
        free(chunked);
        ssm_mask_free(&mask);
    }
    printf("golden model, in chunks: off by %.1e\n", worst);
    ssm_model_free(model);
}

/* The modes of a head, a group and a layer are left out of the state; those that differ between the
 * channels of a head are not. */
static void the_state_is_what_is_kept(void **state)
{
    (void)state;
    const ssm_config config = shape(1);
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 8, SSM_ISA_AUTO, NULL);
    ssm_session *session = make_session(model, NULL, false, false);
    const size_t whole = ssm_session_state_size(session);
    const size_t held = session->state_memory.size;
    for (int how = 0; how < KINDS; how++) {
        ssm_mask mask = draw(&config, (kind)how, config.d_state / 2, false, 1);
        if (how == RAGGED) {
            ssm_mask_free(&mask);
            continue;
        }
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        assert_int_equal(session->state_memory.size, how == CHANNEL ? held : held / 2);
        assert_int_equal(whole - ssm_session_state_size(session), how == CHANNEL ? 0 : held / 2);
        assert_int_equal(session->packing->heads[0].n_units, how == CHANNEL ? 0
                                                             : how == GROUP || how == LAYER
                                                                 ? config.n_groups
                                                                 : config.n_heads);
        assert_int_equal(session->packing->heads[0].chunked,
                         how != CHANNEL && how != MIXED_WEIGHTS);
        ssm_mask_free(&mask);
    }
    ssm_session_free(session);
    ssm_model_free(model);
}

/* Unpruned, then pruned, then saved and restored. */
static void states_go_along(void **state)
{
    (void)state;
    enum { CUT = 70 };
    const ssm_config config = shape(2);
    const int64_t V = config.vocab_size;
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 8, SSM_ISA_AUTO, NULL);
    ssm_mask mask = draw(&config, HEAD, 7, true, 1);
    float *logits[2];
    for (int full = 0; full < 2; full++) {
        ssm_session *session = make_session(model, NULL, full == 1, true);
        free(test_logits(session, model, ids, CUT, 0));
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        const size_t bytes = ssm_session_state_size(session);
        void *block = malloc(bytes);
        assert_non_null(block);
        ssm_session_save(session, block);
        logits[full] = test_logits(session, model, ids + CUT, COUNT - CUT, 0);
        assert_int_equal(ssm_session_restore(session, block, bytes, NULL), SSM_STATUS_OK);
        float *again = test_logits(session, model, ids + CUT, COUNT - CUT, 0);
        test_assert_same_bits("restored", again, logits[full], (COUNT - CUT) * V);
        assert_int_equal(ssm_session_set_mask(session, NULL, -1, NULL),
                         full ? SSM_STATUS_OK : SSM_STATUS_USAGE);
        free(again);
        free(block);
        ssm_session_free(session);
    }
    test_assert_same_bits("goes on", logits[0], logits[1], (COUNT - CUT) * V);
    free(logits[0]);
    free(logits[1]);
    ssm_mask_free(&mask);
    ssm_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_columns_give_what_factors_give),
        cmocka_unit_test(chunks_of_a_golden_model),
        cmocka_unit_test(the_state_is_what_is_kept),
        cmocka_unit_test(states_go_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
