/* A session under a mask carries and computes the kept modes only: same bits as one that computes
 * all modes and multiplies the dropped ones by 0; half the state; masks changed in mid-stream;
 * saved states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/packing.h"
#include "model/session.h"
#include "test_numbers.h"
#include "test_session.h"

enum { COUNT = 150, SHAPES = 5 };

/* Odd dimensions, one register of modes, more than one, more than two. */
static const struct {
    int64_t d_inner, d_state;
} shapes[SHAPES] = {{36, 5}, {64, 16}, {50, 4}, {33, 20}, {48, 64}};

static ssm_model *make_model(int shape, ssm_isa isa)
{
    ssm_config config = toy_config();
    config.d_inner = shapes[shape].d_inner;
    config.d_state = shapes[shape].d_state;
    return test_model_toy(&config, SSM_DTYPE_F32, 21, isa, NULL);
}

typedef enum kind { EACH, LAYER, RAGGED, KINDS } kind;

/* r modes of every channel, one set of r for a layer, or any number of every channel (also none,
 * and all); weights between 0.5 and 1.5 for both parts. */
static ssm_mask draw(const ssm_config *c, kind how, int64_t r, bool weighted, uint64_t seed)
{
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(c->n_layers, c->d_inner, c->d_state, &mask, NULL), 0);
    ssm_rng rng = ssm_rng_create(seed, "test/packed");
    for (int64_t row = 0; row < c->n_layers * c->d_inner; row++) {
        uint8_t *keep = mask.keep + row * c->d_state;
        if (how == LAYER && row % c->d_inner > 0) {
            memcpy(keep, keep - c->d_state, (size_t)c->d_state);
            continue;
        }
        int64_t left = how == RAGGED ? (int64_t)ssm_rng_below(&rng, (uint64_t)c->d_state + 1) : r;
        for (int64_t n = 0; n < c->d_state; n++) {
            keep[n] = (int64_t)ssm_rng_below(&rng, (uint64_t)(c->d_state - n)) < left;
            left -= keep[n];
        }
    }
    if (weighted) {
        assert_int_equal(ssm_mask_add_weights(&mask, NULL), 0);
        for (int64_t i = 0; i < c->n_layers * c->d_inner * c->d_state; i++) {
            mask.weight[i] *= 0.5f + (float)ssm_rng_below(&rng, 1000) / 1000.0f;
        }
        for (int64_t i = 0; i < c->n_layers * c->d_inner; i++) {
            mask.skip_weight[i] = 0.5f + (float)ssm_rng_below(&rng, 1000) / 1000.0f;
        }
    }
    return mask;
}

static ssm_session *make_session(const ssm_model *model, ssm_pool *pool, bool full)
{
    const ssm_session_options options = {.pool = pool, .full_state = full};
    ssm_session *session = NULL;
    assert_int_equal(ssm_session_create(model, &options, &session, NULL), SSM_STATUS_OK);
    return session;
}

static float *masked_logits(const ssm_model *model, const ssm_mask *mask, ssm_pool *pool, bool full,
                            const int32_t *ids, int64_t chunk)
{
    ssm_session *session = make_session(model, pool, full);
    assert_int_equal(ssm_session_set_mask(session, mask, -1, NULL), SSM_STATUS_OK);
    if (!full) {
        assert_true(session->packing->packed[0]);
    }
    float *logits = test_logits(session, model, ids, COUNT, chunk);
    ssm_session_free(session);
    return logits;
}

/* Every shape, budget and scope, with and without weights, on every instruction set. */
static void packed_is_masked_to_the_bit(void **state)
{
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++) {
        ssm_model *models[3] = {NULL};
        int n_models = 0;
        for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
            if (ssm_isa_supported((ssm_isa)isa)) {
                models[n_models++] = make_model(shape, (ssm_isa)isa);
            }
        }
        const ssm_config *c = ssm_model_config(models[0]);
        const int64_t size = COUNT * c->vocab_size;
        int32_t ids[COUNT];
        toy_ids(c, 6, ids, COUNT);
        for (int64_t r = 1; r<c->d_state; r += c->d_state> 20 ? 15 : 1) {
            for (int how = 0; how < 2 * KINDS; how++) {
                ssm_mask mask = draw(c, (kind)(how / 2), r, how % 2 == 1, (uint64_t)r);
                if (how / 2 == RAGGED) { /* some channels keep all: only their group stays whole */
                    for (int64_t row = 0; row < c->n_layers * c->d_inner; row++) {
                        mask.keep[row * c->d_state] &= row % c->d_inner >= SSM__LANES;
                    }
                }
                float *want = masked_logits(models[n_models - 1], &mask, NULL, true, ids, 0);
                for (int m = r == c->d_state / 2 ? 0 : n_models - 1; m < n_models; m++) {
                    float *got = masked_logits(models[m], &mask, NULL, false, ids, 0);
                    test_assert_same_bits("packed", got, want, size);
                    free(got);
                }
                free(want);
                ssm_mask_free(&mask);
            }
        }
        for (int m = 0; m < n_models; m++) {
            ssm_model_free(models[m]);
        }
    }
}

static void threads_and_chunks_do_not_show(void **state)
{
    (void)state;
    ssm_model *model = make_model(1, SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    int32_t ids[COUNT];
    toy_ids(c, 6, ids, COUNT);
    ssm_mask mask = draw(c, EACH, 7, true, 3);
    ssm_pool *pool = test_pool_create(3);
    float *want = masked_logits(model, &mask, NULL, true, ids, 0);
    const int64_t chunks[] = {0, 1, 7, 64, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *got = masked_logits(model, &mask, i % 2 == 0 ? pool : NULL, false, ids, chunks[i]);
        test_assert_same_bits("cut", got, want, COUNT * c->vocab_size);
        free(got);
    }
    free(want);
    ssm_mask_free(&mask);
    ssm_pool_free(pool);
    ssm_model_free(model);
}

/* What is saved, and what the session holds, is half of the states and all of the convolution. */
static void half_the_modes_are_half_the_state(void **state)
{
    (void)state;
    ssm_model *model = make_model(1, SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    const size_t modes = (size_t)(c->n_layers * c->d_inner * c->d_state) * sizeof(float);
    ssm_session *session = make_session(model, NULL, false);
    const size_t whole = ssm_session_state_size(session);
    const size_t held = session->state_memory.size;
    assert_int_equal(held, modes);
    for (int how = 0; how < 2; how++) {
        ssm_mask mask = draw(c, (kind)how, c->d_state / 2, false, 1);
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        assert_int_equal(session->state_memory.size, held / 2);
        assert_int_equal(ssm_session_state_size(session), whole - modes / 2);
        assert_int_equal(ssm_session_set_mask(session, &mask, 1, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_session_state_size(session), whole - modes / 6);
        assert_int_equal(ssm_session_set_mask(session, NULL, -1, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_session_state_size(session), whole);
        ssm_mask_free(&mask);
    }
    ssm_session_free(session);
    ssm_model_free(model);
}

/* A text that begins unpruned and goes on pruned: the kept modes' states go along. The way back
 * would need states that are gone. */
static void masks_change_in_mid_stream(void **state)
{
    (void)state;
    enum { CUT = 37 };
    ssm_model *model = make_model(1, SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    const int64_t V = c->vocab_size;
    int32_t ids[COUNT];
    toy_ids(c, 6, ids, COUNT);
    for (int how = 0; how < KINDS; how++) {
        ssm_mask mask = draw(c, (kind)how, 8, how == 0, 5);
        ssm_mask fewer = draw(c, (kind)how, 8, false, 5);
        for (int64_t i = 0; i < c->n_layers * c->d_inner; i++) { /* one mode less */
            uint8_t *first = memchr(fewer.keep + i * c->d_state, 1, (size_t)c->d_state);
            if (first) {
                *first = 0;
            }
        }
        ssm_session *both[2] = {make_session(model, NULL, false), make_session(model, NULL, true)};
        float *logits[2][3];
        for (int s = 0; s < 2; s++) {
            logits[s][0] = test_logits(both[s], model, ids, CUT, 0);
            assert_int_equal(ssm_session_set_mask(both[s], &mask, -1, NULL), SSM_STATUS_OK);
            logits[s][1] = test_logits(both[s], model, ids + CUT, CUT, 0);
            assert_int_equal(ssm_session_set_mask(both[s], &fewer, -1, NULL), SSM_STATUS_OK);
            logits[s][2] = test_logits(both[s], model, ids + 2 * CUT, CUT, 0);
        }
        for (int part = 0; part < 3; part++) {
            test_assert_same_bits("goes on", logits[0][part], logits[1][part], CUT * V);
        }
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_session_set_mask(both[0], NULL, -1, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "reset the session first"));
        assert_int_equal(ssm_session_set_mask(both[0], &mask, -1, NULL), SSM_STATUS_USAGE);
        for (int s = 0; s < 2; s++) { /* nothing has changed */
            free(logits[s][0]);
            logits[s][0] = test_logits(both[s], model, ids, CUT, 0);
        }
        test_assert_same_bits("after a refusal", logits[0][0], logits[1][0], CUT * V);
        assert_int_equal(ssm_session_set_mask(both[1], NULL, -1, NULL), SSM_STATUS_OK);
        ssm_session_reset(both[0]);
        assert_int_equal(ssm_session_set_mask(both[0], NULL, -1, NULL), SSM_STATUS_OK);
        for (int s = 0; s < 2; s++) {
            for (int part = 0; part < 3; part++) {
                free(logits[s][part]);
            }
            ssm_session_free(both[s]);
        }
        ssm_mask_free(&mask);
        ssm_mask_free(&fewer);
    }
    ssm_model_free(model);
}

static void *save(const ssm_session *session, size_t *bytes)
{
    *bytes = ssm_session_state_size(session);
    void *block = malloc(*bytes);
    assert_non_null(block);
    ssm_session_save(session, block);
    return block;
}

static void states_are_saved_under_a_mask(void **state)
{
    (void)state;
    enum { CUT = 70 };
    ssm_model *model = make_model(1, SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    const int64_t size = (COUNT - CUT) * c->vocab_size;
    int32_t ids[COUNT];
    toy_ids(c, 6, ids, COUNT);
    ssm_mask mask = draw(c, EACH, 8, false, 5);
    ssm_mask other = draw(c, EACH, 8, false, 6);
    ssm_session *packed = make_session(model, NULL, false);
    ssm_session *fresh = make_session(model, NULL, false);
    size_t bytes;
    size_t whole_bytes;
    ssm_error err;
    ssm_error_clear(&err);

    free(test_logits(fresh, model, ids, CUT, 0));
    void *whole = save(fresh, &whole_bytes);
    ssm_session_reset(fresh);
    assert_int_equal(ssm_session_set_mask(packed, &mask, -1, NULL), SSM_STATUS_OK);
    free(test_logits(packed, model, ids, CUT, 0));
    void *block = save(packed, &bytes);
    float *want = test_logits(packed, model, ids + CUT, COUNT - CUT, 0);

    /* Not where other modes, or all, are carried; there where the same are. */
    assert_int_equal(ssm_session_restore(fresh, block, bytes, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "the modes of another mask"));
    assert_int_equal(ssm_session_set_mask(fresh, &other, -1, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_restore(fresh, block, bytes, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_session_set_mask(fresh, &mask, -1, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_restore(fresh, block, bytes - 1, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_session_restore(fresh, block, bytes, NULL), SSM_STATUS_OK);
    float *got = test_logits(fresh, model, ids + CUT, COUNT - CUT, 0);
    test_assert_same_bits("restored", got, want, size);
    free(got);
    free(want);

    /* An unpruned prefix that was saved goes on under any mask, as if it had just been run. */
    ssm_session_reset(packed);
    assert_int_equal(ssm_session_set_mask(packed, NULL, -1, NULL), SSM_STATUS_OK);
    free(test_logits(packed, model, ids, CUT, 0));
    assert_int_equal(ssm_session_set_mask(packed, &other, -1, NULL), SSM_STATUS_OK);
    want = test_logits(packed, model, ids + CUT, COUNT - CUT, 0);
    ssm_session_reset(fresh);
    assert_int_equal(ssm_session_set_mask(fresh, &other, -1, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_restore(fresh, whole, whole_bytes, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_position(fresh), CUT);
    got = test_logits(fresh, model, ids + CUT, COUNT - CUT, 0);
    test_assert_same_bits("prefix", got, want, size);
    free(got);
    free(want);
    free(block);
    free(whole);
    ssm_session_free(packed);
    ssm_session_free(fresh);
    ssm_mask_free(&mask);
    ssm_mask_free(&other);
    ssm_model_free(model);
}

/* The instrument looks at all modes: a layer that lacks some is refused, one that has them is not.
 */
static void no_recording_of_what_is_not_there(void **state)
{
    (void)state;
    ssm_model *model = make_model(0, SSM_ISA_AUTO);
    const ssm_config *c = ssm_model_config(model);
    const bool layers[3] = {false, true, false};
    const ssm__mode_sink sink = {.layers = layers};
    const int32_t ids[2] = {1, 2};
    ssm_mask mask = draw(c, EACH, 2, false, 5);
    ssm_session *session = make_session(model, NULL, false);
    ssm__session_set_sink(session, &sink);
    assert_int_equal(ssm_session_set_mask(session, &mask, 0, NULL), SSM_STATUS_OK);
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_session_set_mask(session, &mask, 1, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_forward(session, ids, 2, SSM_LOGITS_NONE, NULL, NULL, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "layer 1 is to be recorded under a mask"));
    ssm_session_free(session);
    ssm_mask_free(&mask);
    ssm_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_is_masked_to_the_bit),
        cmocka_unit_test(threads_and_chunks_do_not_show),
        cmocka_unit_test(half_the_modes_are_half_the_state),
        cmocka_unit_test(masks_change_in_mid_stream),
        cmocka_unit_test(states_are_saved_under_a_mask),
        cmocka_unit_test(no_recording_of_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
