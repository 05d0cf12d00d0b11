/* What must give the same bits: any chunking, any number of threads, any instruction set, a state
 * saved and restored; and what a session promises about bad ids, lengths and blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_numbers.h"
#include "test_session.h"

enum { COUNT = 150, SHAPES = 3 };

/* One model of each weight dtype: odd dimensions, whole vectors, many channels. */
typedef struct subject {
    const char *what;
    ssm_dtype dtype;
    int64_t d_model, d_inner, d_state, d_conv, dt_rank, vocab_size;
    bool tied;
} subject;

static const subject subjects[SHAPES] = {
    {"odd f32", SSM_DTYPE_F32, 20, 36, 5, 3, 3, 31, false},
    {"whole bf16", SSM_DTYPE_BF16, 32, 64, 16, 4, 2, 64, true},
    {"many channels f16", SSM_DTYPE_F16, 37, 210, 8, 4, 17, 101, false},
};

static ssm_config config_of(const subject *s)
{
    ssm_config config = toy_config();
    config.d_model = s->d_model;
    config.d_inner = s->d_inner;
    config.d_state = s->d_state;
    config.d_conv = s->d_conv;
    config.dt_rank = s->dt_rank;
    config.vocab_size = s->vocab_size;
    config.tied = s->tied;
    return config;
}

/* A model, its ids and the logits of one forward call. */
typedef struct fixture {
    ssm_config config;
    ssm_model *model;
    int32_t ids[COUNT];
    float *whole;
    int64_t size;
} fixture;

static fixture fixture_create(const subject *s, ssm_isa isa)
{
    fixture f = {.config = config_of(s)};
    f.model = test_model_toy(&f.config, s->dtype, 21, isa, NULL);
    toy_ids(&f.config, 6, f.ids, COUNT);
    f.whole = test_model_logits(f.model, f.ids, COUNT, 0);
    f.size = COUNT * f.config.vocab_size;
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->whole);
    ssm_model_free(f->model);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_chunks_of_calls(void **state)
{
    (void)state;
    const int64_t chunks[] = {1, 2, 3, 5, 17, 63, 64, 65, 128, 149, 1000};
    for (int i = 0; i < SHAPES; i++) {
        fixture f = fixture_create(&subjects[i], SSM_ISA_AUTO);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            float *logits = test_model_logits(f.model, f.ids, COUNT, chunks[c]);
            test_assert_same_bits(subjects[i].what, logits, f.whole, f.size);
            free(logits);
        }
        fixture_free(&f);
    }
}

/* max_chunk cuts a call inside. */
static void test_chunks_of_the_session(void **state)
{
    (void)state;
    const int64_t chunks[] = {1, 3, 64, 100, 1000};
    for (int i = 0; i < SHAPES; i++) {
        fixture f = fixture_create(&subjects[i], SSM_ISA_AUTO);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            ssm_session *session = test_session_create(f.model, NULL, chunks[c]);
            float *logits = test_logits(session, f.model, f.ids, COUNT, 0);
            test_assert_same_bits(subjects[i].what, logits, f.whole, f.size);
            free(logits);
            ssm_session_reset(session);
            logits = test_logits(session, f.model, f.ids, COUNT, 7);
            test_assert_same_bits(subjects[i].what, logits, f.whole, f.size);
            free(logits);
            ssm_session_free(session);
        }
        fixture_free(&f);
    }
}

/* Lengths around d_conv, prefill then step: every prefix in one call, then one token at a time. */
static void test_short_lengths_then_steps(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        fixture f = fixture_create(&subjects[i], SSM_ISA_AUTO);
        for (int64_t length = 0; length <= 9; length++) {
            ssm_session *session = test_session_create(f.model, NULL, 0);
            float *prefix = test_logits(session, f.model, f.ids, length, 0);
            assert_int_equal(ssm_session_position(session), length);
            test_assert_same_bits("prefix", prefix, f.whole, length * f.config.vocab_size);
            float *rest = test_logits(session, f.model, f.ids + length, 12, 1);
            assert_int_equal(ssm_session_position(session), length + 12);
            test_assert_same_bits("steps", rest, f.whole + length * f.config.vocab_size,
                                  12 * f.config.vocab_size);
            free(rest);
            free(prefix);
            ssm_session_free(session);
        }
        fixture_free(&f);
    }
}

static void test_threads(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 3, 8};
    for (int i = 0; i < SHAPES; i++) {
        fixture f = fixture_create(&subjects[i], SSM_ISA_AUTO);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            ssm_pool *pool = test_pool_create(threads[t]);
            ssm_session *session = test_session_create(f.model, pool, 100);
            const int64_t chunks[] = {0, 1, 70};
            for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                ssm_session_reset(session);
                float *logits = test_logits(session, f.model, f.ids, COUNT, chunks[c]);
                test_assert_same_bits(subjects[i].what, logits, f.whole, f.size);
                free(logits);
            }
            ssm_session_free(session);
            ssm_pool_free(pool);
        }
        fixture_free(&f);
    }
}

static void test_instruction_sets(void **state)
{
    (void)state;
    const ssm_isa isas[] = {SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512};
    for (int i = 0; i < SHAPES; i++) {
        fixture portable = fixture_create(&subjects[i], SSM_ISA_PORTABLE);
        for (size_t j = 0; j < sizeof isas / sizeof *isas; j++) {
            if (!ssm_isa_supported(isas[j])) {
                print_message("skipped: %s is not here\n", ssm_isa_name(isas[j]));
                continue;
            }
            fixture f = fixture_create(&subjects[i], isas[j]);
            assert_int_equal(ssm_model_isa(f.model), isas[j]);
            test_assert_same_bits(subjects[i].what, f.whole, portable.whole, f.size);
            float *steps = test_model_logits(f.model, f.ids, COUNT, 1);
            test_assert_same_bits("steps", steps, portable.whole, f.size);
            free(steps);
            fixture_free(&f);
        }
        fixture_free(&portable);
    }
}

static void test_reset_and_two_sessions(void **state)
{
    (void)state;
    fixture f = fixture_create(&subjects[0], SSM_ISA_AUTO);
    const int64_t V = f.config.vocab_size;
    ssm_session *first = test_session_create(f.model, NULL, 0);
    ssm_session *second = test_session_create(f.model, NULL, 0);
    free(test_logits(first, f.model, f.ids + 40, 33, 0));
    ssm_session_reset(first);
    assert_int_equal(ssm_session_position(first), 0);
    for (int64_t t = 0; t < 20; t++) { /* in turn, with different texts */
        float *a = test_logits(first, f.model, f.ids + t, 1, 0);
        test_assert_same_bits("first", a, f.whole + t * V, V);
        free(test_logits(second, f.model, f.ids + COUNT - 1 - t, 1, 0));
        free(a);
    }
    ssm_session_free(second);
    ssm_session_free(first);
    fixture_free(&f);
}

/* ---- logits that are wanted ------------------------------------------------------------------ */

typedef struct seen {
    int64_t calls, first, tokens;
    float *row;
    int64_t vocab_size;
} seen;

static void take_last(void *context, int64_t first, int64_t tokens, const float *logits)
{
    seen *s = context;
    s->calls++;
    s->first = first;
    s->tokens = tokens;
    memcpy(s->row, logits, (size_t)s->vocab_size * sizeof *logits);
}

static void test_wanted_logits(void **state)
{
    (void)state;
    fixture f = fixture_create(&subjects[1], SSM_ISA_AUTO);
    const int64_t V = f.config.vocab_size;
    ssm_session *session = test_session_create(f.model, NULL, 20);
    seen s = {.row = test_floats(V), .vocab_size = V};
    assert_int_equal(ssm_session_forward(session, f.ids, 47, SSM_LOGITS_LAST, take_last, &s, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.first, 46);
    assert_int_equal(s.tokens, 1);
    test_assert_same_bits("last", s.row, f.whole + 46 * V, V);

    assert_int_equal(
        ssm_session_forward(session, f.ids + 47, 30, SSM_LOGITS_NONE, NULL, NULL, NULL),
        SSM_STATUS_OK);
    assert_int_equal(ssm_session_position(session), 77);
    /* Nothing is wanted of no tokens. */
    assert_int_equal(ssm_session_forward(session, NULL, 0, SSM_LOGITS_LAST, take_last, &s, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(s.calls, 1);
    float *rest = test_logits(session, f.model, f.ids + 77, COUNT - 77, 0);
    test_assert_same_bits("after none", rest, f.whole + 77 * V, (COUNT - 77) * V);
    free(rest);
    free(s.row);
    ssm_session_free(session);
    fixture_free(&f);
}

/* ---- state blocks ---------------------------------------------------------------------------- */

static void test_save_and_restore(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        fixture f = fixture_create(&subjects[i], SSM_ISA_AUTO);
        const int64_t V = f.config.vocab_size;
        for (int64_t cut = 0; cut <= 70; cut += cut < 5 ? 1 : 13) {
            ssm_session *session = test_session_create(f.model, NULL, 0);
            const size_t bytes = ssm_session_state_size(session);
            void *block = malloc(bytes);
            assert_non_null(block);
            free(test_logits(session, f.model, f.ids, cut, 0));
            ssm_session_save(session, block);
            float *on = test_logits(session, f.model, f.ids + cut, COUNT - cut, 0);
            test_assert_same_bits("saving moves nothing", on, f.whole + cut * V, (COUNT - cut) * V);
            free(on);

            ssm_session *other = test_session_create(f.model, NULL, 9);
            free(test_logits(other, f.model, f.ids + 3, 31, 0));
            ssm_session *both[] = {session, other};
            for (int b = 0; b < 2; b++) {
                assert_int_equal(ssm_session_restore(both[b], block, bytes, NULL), SSM_STATUS_OK);
                assert_int_equal(ssm_session_position(both[b]), cut);
                on = test_logits(both[b], f.model, f.ids + cut, COUNT - cut, 0);
                test_assert_same_bits("restored", on, f.whole + cut * V, (COUNT - cut) * V);
                free(on);
            }
            free(block);
            ssm_session_free(other);
            ssm_session_free(session);
        }
        fixture_free(&f);
    }
}

static void test_blocks_that_do_not_fit(void **state)
{
    (void)state;
    fixture f = fixture_create(&subjects[0], SSM_ISA_AUTO);
    fixture g = fixture_create(&subjects[1], SSM_ISA_AUTO);
    ssm_session *session = test_session_create(f.model, NULL, 0);
    ssm_session *foreign = test_session_create(g.model, NULL, 0);
    const size_t bytes = ssm_session_state_size(session);
    const size_t foreign_bytes = ssm_session_state_size(foreign);
    unsigned char *block = calloc(1, bytes + foreign_bytes);
    assert_non_null(block);
    free(test_logits(session, f.model, f.ids, 10, 0));

    ssm_error err;
    ssm_error_clear(&err);
    ssm_session_save(foreign, block);
    assert_int_equal(ssm_session_restore(session, block, foreign_bytes, &err), SSM_STATUS_USAGE);
    assert_true(err.message[0] != '\0');
    assert_int_equal(ssm_session_restore(session, block, bytes, NULL), SSM_STATUS_USAGE);
    ssm_session_save(session, block);
    assert_int_equal(ssm_session_restore(session, block, bytes - 1, NULL), SSM_STATUS_USAGE);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ssm_error_clear(&err);
        ssm_session_save(session, block);
        assert_int_equal(ssm_session_restore(session, block, bytes, &err), SSM_STATUS_OK);
        memcpy(block + bytes - sizeof *bad, &bad[i], sizeof *bad);
        assert_int_equal(ssm_session_restore(session, block, bytes, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "expected a finite number: the state is damaged"));
    }
    assert_int_equal(ssm_session_restore(session, block, bytes + 1, NULL), SSM_STATUS_USAGE);
    assert_int_equal(ssm_session_restore(session, block, 0, NULL), SSM_STATUS_USAGE);

    /* A refused block changed nothing. */
    assert_int_equal(ssm_session_position(session), 10);
    float *rest = test_logits(session, f.model, f.ids + 10, 20, 0);
    test_assert_same_bits("after refusal", rest, f.whole + 10 * f.config.vocab_size,
                          20 * f.config.vocab_size);
    free(rest);
    free(block);
    ssm_session_free(foreign);
    ssm_session_free(session);
    fixture_free(&g);
    fixture_free(&f);
}

/* ---- numbers that are too large -------------------------------------------------------------- */

/* An output of about 1e24: finite, but its square is not a float32. */
static void huge_out_proj(const char *name, float *values, int64_t count)
{
    for (int64_t i = 0; strstr(name, "layers.0.mixer.out_proj.weight") && i < count; i++) {
        values[i] *= 1e25F;
    }
}

/* One of about 1e14, whose square still is one. */
static void large_out_proj(const char *name, float *values, int64_t count)
{
    for (int64_t i = 0; strstr(name, "layers.0.mixer.out_proj.weight") && i < count; i++) {
        values[i] *= 1e15F;
    }
}

/* A norm over numbers whose squares overflow gives zeros, and the logits would be those of no text:
 * refused with the block that gave them, not passed on. */
static void test_squares_that_overflow(void **state)
{
    (void)state;
    const toy_options edits[] = {{.edit = huge_out_proj}, {.edit = large_out_proj}};
    const ssm_status expected[] = {SSM_STATUS_FAILED, SSM_STATUS_OK};
    const ssm_config config = config_of(&subjects[0]);
    int32_t ids[20];
    toy_ids(&config, 6, ids, 20);
    for (int i = 0; i < 2; i++) {
        ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 21, SSM_ISA_AUTO, &edits[i]);
        ssm_session *session = test_session_create(model, NULL, 0);
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_session_forward(session, ids, 20, SSM_LOGITS_NONE, NULL, NULL, &err),
                         expected[i]);
        if (expected[i] != SSM_STATUS_OK) {
            assert_non_null(strstr(err.message, "block 0 gives "));
            assert_non_null(strstr(err.message, "its square overflows float32 in the norm"));
            assert_int_equal(ssm_session_position(session), 0);
        }
        ssm_session_free(session);
        ssm_model_free(model);
    }
}

/* ---- bad ids --------------------------------------------------------------------------------- */

static void test_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    fixture f = fixture_create(&subjects[0], SSM_ISA_AUTO);
    const int32_t bad[] = {(int32_t)f.config.vocab_size, -1, INT32_MAX, INT32_MIN};
    ssm_session *session = test_session_create(f.model, NULL, 4);
    free(test_logits(session, f.model, f.ids, 10, 0));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t ids[20];
        memcpy(ids, f.ids + 10, sizeof ids);
        ids[17] = bad[i];
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_session_forward(session, ids, 20, SSM_LOGITS_NONE, NULL, NULL, &err),
                         SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "17"));
        assert_int_equal(ssm_session_position(session), 10);
    }
    float *rest = test_logits(session, f.model, f.ids + 10, 20, 0);
    test_assert_same_bits("nothing was run", rest, f.whole + 10 * f.config.vocab_size,
                          20 * f.config.vocab_size);
    free(rest);
    ssm_session_free(session);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_of_calls),
        cmocka_unit_test(test_chunks_of_the_session),
        cmocka_unit_test(test_short_lengths_then_steps),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_reset_and_two_sessions),
        cmocka_unit_test(test_wanted_logits),
        cmocka_unit_test(test_save_and_restore),
        cmocka_unit_test(test_blocks_that_do_not_fit),
        cmocka_unit_test(test_squares_that_overflow),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
