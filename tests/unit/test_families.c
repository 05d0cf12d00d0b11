/* Models of every family on the fast path: goldens, and the laws that all of them obey: any
 * chunking, any thread count, any processor, saved states, lengths around the convolution. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_golden.h"
#include "test_numbers.h"
#include "test_session.h"

/* What design promises against float64: 2e-6 of the largest value; measured below 6e-7. */
#define GOLDEN_TOLERANCE 2e-6

typedef struct family_model {
    const char *name;    /* below tests/golden */
    int64_t norm_groups; /* that its goldens are for; 0: the model's own */
} family_model;

static const family_model models[] = {
    {"mamba-tied", 0},
    {"falcon", 0},
    {"mamba2-g1-chunks", 0},
    {"mamba2-g4-limit", 1},
    {"hybrid/mamba-attention", 0},
    {"hybrid/mamba2-attention", 0},
    {"hybrid/transformer", 0},
    {"hybrid/mamba2-wide", 0},
    {"hybrid/mamba2-no-norm", 0},
};
enum { MODELS = sizeof models / sizeof models[0] };

static ssm_model *open_model(const family_model *m, ssm_isa isa)
{
    char path[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint = NULL;
    ssm_model *model = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_checkpoint_options options = {.norm_groups = m->norm_groups};
    if (ssm_checkpoint_open(golden_model_path(path, m->name), &options, &checkpoint, &err) !=
            SSM_STATUS_OK ||
        ssm_model_create(checkpoint, isa, &model, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", m->name, err.message);
    }
    return model;
}

/* ---- goldens --------------------------------------------------------------------------------- */

typedef struct hidden_states {
    float *data; /* [n_layers+1][count][D] */
    int64_t count, d_model;
} hidden_states;

static void take_hidden(void *context, const ssm_tap *tap)
{
    hidden_states *h = context;
    const int64_t row = tap->point == SSM_TAP_EMBED ? 0 : tap->layer + 1;
    ssm_tap_copy(tap, h->data + (row * h->count + tap->position) * h->d_model);
}

static void check_golden(const family_model *m, ssm_isa isa)
{
    ssm_model *model = open_model(m, isa);
    ssm_session *session = test_session_create(model, NULL, 0);
    for (int sequence = 0; sequence < GOLDEN_SEQUENCES; sequence++) {
        golden_sequence want = golden_read(m->name, sequence);
        hidden_states h = {.data = test_floats(want.n_hidden),
                           .count = want.count,
                           .d_model = ssm_model_config(model)->d_model};
        const ssm_observer observer = {.context = &h,
                                       .points = 1U << SSM_TAP_EMBED | 1U << SSM_TAP_RESID_POST,
                                       .read = take_hidden};
        ssm_session_reset(session);
        ssm_session_set_observer(session, &observer);
        float *logits = test_logits(session, model, want.ids, want.count, 0);
        test_assert_near_f32(m->name, logits, want.logits, want.n_logits, GOLDEN_TOLERANCE);
        const int64_t stream = want.count * h.d_model;
        for (int64_t begin = 0; begin < want.n_hidden; begin += stream) {
            test_assert_near_f32(m->name, h.data + begin, want.hidden + begin, stream,
                                 GOLDEN_TOLERANCE);
        }
        free(logits);
        free(h.data);
        golden_free(&want);
    }
    ssm_session_free(session);
    ssm_model_free(model);
}

static void goldens(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        check_golden(&models[i], SSM_ISA_AUTO);
        check_golden(&models[i], SSM_ISA_PORTABLE);
    }
}

/* Without the option every group of channels has a norm of its own. */
static void grouped_norm(void **state)
{
    (void)state;
    const family_model m = {"mamba2-g4-limit", 0};
    ssm_model *model = open_model(&m, SSM_ISA_AUTO);
    for (int sequence = 0; sequence < GOLDEN_SEQUENCES; sequence++) {
        golden_sequence full = golden_read(m.name, sequence);
        int64_t count = 0;
        double *want = golden_grouped_logits(m.name, sequence, &count);
        float *logits = test_model_logits(model, full.ids, full.count, 0);
        test_assert_near_f32(m.name, logits, want, count, GOLDEN_TOLERANCE);
        free(logits);
        free(want);
        golden_free(&full);
    }
    ssm_model_free(model);
}

/* ---- laws ------------------------------------------------------------------------------------ */

enum { LONG = 150 }; /* more than two tiles and two blocks of the cache */

typedef struct text {
    ssm_model *model;
    int32_t ids[LONG];
    float *whole; /* logits of one call */
    int64_t V;
    bool exact; /* sessions have exact_chunks */
} text;

static ssm_session *session_of(const text *t, const ssm_model *model, ssm_pool *pool,
                               int64_t max_chunk)
{
    const ssm_session_options options = {
        .pool = pool, .max_chunk = max_chunk, .exact_chunks = t->exact};
    ssm_session *session = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_session_create(model, &options, &session, &err) != SSM_STATUS_OK) {
        fail_msg("session: %s", err.message);
    }
    return session;
}

static text text_create(const family_model *m, bool exact)
{
    text t = {.model = open_model(m, SSM_ISA_AUTO), .exact = exact};
    t.V = ssm_model_config(t.model)->vocab_size;
    toy_ids(ssm_model_config(t.model), 17, t.ids, LONG);
    ssm_session *session = session_of(&t, t.model, NULL, 0);
    t.whole = test_logits(session, t.model, t.ids, LONG, 0);
    ssm_session_free(session);
    return t;
}

static void text_free(text *t)
{
    free(t->whole);
    ssm_model_free(t->model);
}

/* Layers of Mamba-2 go chunk by chunk unless told otherwise, which rounds by where the text is cut;
 * all others keep the bits. */
static void assert_law(const text *t, const char *what, const float *got, const float *want,
                       int64_t rows)
{
    if (t->exact || ssm_model_config(t->model)->n_heads == 0) {
        test_assert_same_bits(what, got, want, rows * t->V);
        return;
    }
    double *expected = test_doubles(rows * t->V);
    for (int64_t i = 0; i < rows * t->V; i++) {
        expected[i] = (double)want[i];
    }
    test_assert_near_f32(what, got, expected, rows * t->V, GOLDEN_TOLERANCE);
    free(expected);
}

static void any_chunking(void **state)
{
    (void)state;
    static const struct {
        int64_t max_chunk, call;
    } ways[] = {{0, 1}, {0, 3}, {0, 64}, {0, 100}, {1, 0}, {5, 0}, {64, 33}, {100, 0}};
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
            ssm_session *session = session_of(&t, t.model, NULL, ways[way].max_chunk);
            float *got = test_logits(session, t.model, t.ids, LONG, ways[way].call);
            assert_law(&t, models[i / 2].name, got, t.whole, LONG);
            free(got);
            ssm_session_free(session);
        }
        text_free(&t);
    }
}

/* Lengths around the width of the convolution, cut everywhere. */
static void short_texts(void **state)
{
    (void)state;
    enum { MOST = 9 };
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        ssm_session *session = session_of(&t, t.model, NULL, 0);
        for (int64_t count = 0; count <= MOST; count++) {
            for (int64_t cut = 0; cut <= count; cut++) {
                ssm_session_reset(session);
                float *first = test_logits(session, t.model, t.ids, cut, 0);
                float *second = test_logits(session, t.model, t.ids + cut, count - cut, 0);
                assert_int_equal(ssm_session_position(session), count);
                assert_law(&t, models[i / 2].name, first, t.whole, cut);
                assert_law(&t, models[i / 2].name, second, t.whole + cut * t.V, count - cut);
                free(first);
                free(second);
            }
        }
        ssm_session_free(session);
        text_free(&t);
    }
}

static void any_thread_count(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 7, 16};
    for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
        ssm_pool *pool = test_pool_create(threads[k]);
        for (int i = 0; i < 2 * MODELS; i++) {
            text t = text_create(&models[i / 2], i % 2 != 0);
            ssm_session *session = session_of(&t, t.model, pool, 0);
            float *got = test_logits(session, t.model, t.ids, LONG, 0);
            test_assert_same_bits(models[i / 2].name, got, t.whole, LONG * t.V);
            ssm_session_reset(session);
            float *decoded = test_logits(session, t.model, t.ids, 5, 1);
            assert_law(&t, models[i / 2].name, decoded, t.whole, 5);
            free(decoded);
            free(got);
            ssm_session_free(session);
            text_free(&t);
        }
        ssm_pool_free(pool);
    }
}

static void any_processor(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
            if (!ssm_isa_supported((ssm_isa)isa)) {
                continue;
            }
            ssm_model *model = open_model(&models[i / 2], (ssm_isa)isa);
            ssm_session *session = session_of(&t, model, NULL, 0);
            float *got = test_logits(session, model, t.ids, LONG, 0);
            ssm_session_free(session);
            test_assert_same_bits(models[i / 2].name, got, t.whole, LONG * t.V);
            free(got);
            ssm_model_free(model);
        }
        text_free(&t);
    }
}

/* ---- saved states ---------------------------------------------------------------------------- */

static unsigned char *save(const ssm_session *session, size_t *bytes)
{
    *bytes = ssm_session_state_size(session);
    unsigned char *block = malloc(*bytes);
    assert_non_null(block);
    ssm_session_save(session, block);
    return block;
}

/* Into a session that has seen another text, longer or shorter. */
static void check_saved(const text *t, const char *name, int64_t at, int64_t before)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_session *from = session_of(t, t->model, NULL, 0);
    ssm_session *to = session_of(t, t->model, NULL, 0);
    free(test_logits(from, t->model, t->ids, at, 0));
    free(test_logits(to, t->model, t->ids + 7, before, 0));
    size_t bytes;
    unsigned char *block = save(from, &bytes);
    assert_int_equal(ssm_session_restore(to, block, bytes, &err), SSM_STATUS_OK);
    assert_int_equal(ssm_session_position(to), at);
    float *want = test_logits(from, t->model, t->ids + at, LONG - at, 0);
    float *got = test_logits(to, t->model, t->ids + at, LONG - at, 0);
    test_assert_same_bits(name, got, want, (LONG - at) * t->V);
    free(want);
    free(got);
    free(block);
    ssm_session_free(from);
    ssm_session_free(to);
}

static void saved_states(void **state)
{
    (void)state;
    static const int64_t places[] = {0, 1, 5, 64, 70, 130};
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            check_saved(&t, models[i / 2].name, places[k], 3);
            check_saved(&t, models[i / 2].name, places[k], LONG - 7);
        }
        text_free(&t);
    }
}

/* A block that is cut, or whose position claims more than it holds, leaves the session as it was.
 */
static void damaged_states(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        ssm_session *session = session_of(&t, t.model, NULL, 0);
        free(test_logits(session, t.model, t.ids, 5, 0));
        size_t bytes;
        unsigned char *block = save(session, &bytes);
        for (size_t cut = 1; cut <= bytes; cut = 3 * cut + 1) {
            assert_int_equal(ssm_session_restore(session, block, bytes - cut, &err),
                             SSM_STATUS_USAGE);
        }
        static const int64_t claims[] = {-1, 6, 1 << 20, INT64_MAX / 2, INT64_MAX};
        for (size_t k = 0; k < sizeof claims / sizeof claims[0]; k++) {
            unsigned char *bad = malloc(bytes);
            assert_non_null(bad);
            memcpy(bad, block, bytes);
            int64_t position = 5; /* behind magic, n_layers, d_inner, d_state, d_conv */
            assert_memory_equal(bad + 40, &position, sizeof position);
            memcpy(bad + 40, &claims[k], sizeof claims[k]);
            const bool tied = ssm_session_token_size(t.model) > 0; /* position and size */
            if (tied || claims[k] < 0 || claims[k] >= INT64_MAX / 2) {
                assert_int_equal(ssm_session_restore(session, bad, bytes, &err), SSM_STATUS_USAGE);
            }
            free(bad);
        }
        assert_int_equal(ssm_session_position(session), 5);
        float *got = test_logits(session, t.model, t.ids + 5, 5, 0);
        assert_law(&t, models[i / 2].name, got, t.whole + 5 * t.V, 5);
        free(got);
        free(block);
        ssm_session_free(session);
        text_free(&t);
    }
}

/* Only layers of attention make a state grow, by the keys and values of a token. */
static void state_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MODELS; i++) {
        text t = text_create(&models[i / 2], i % 2 != 0);
        const ssm_config *c = ssm_model_config(t.model);
        int64_t attention = 0;
        for (int64_t layer = 0; layer < c->n_layers; layer++) {
            attention += ssm_checkpoint_layer_kind(ssm_model_checkpoint(t.model), layer) ==
                         SSM_LAYER_ATTENTION;
        }
        const size_t token =
            (size_t)(attention * 2 * c->n_kv_heads * c->attention_head_dim) * sizeof(float);
        ssm_session *session = session_of(&t, t.model, NULL, 0);
        const size_t empty = ssm_session_state_size(session);
        assert_int_equal(ssm_session_token_size(t.model), token);
        free(test_logits(session, t.model, t.ids, 70, 0));
        assert_int_equal(ssm_session_state_size(session), empty + 70 * token);
        ssm_session_reset(session);
        assert_int_equal(ssm_session_state_size(session), empty);
        ssm_session_free(session);
        text_free(&t);
    }
}

/* ---- settings that must not matter ----------------------------------------------------------- */

/* The model's directory with another time_step_min in config.json, which may hold a bare Infinity:
 * it is edited as text. */
static void copy_with_time_step_min(const char *from, const char *directory)
{
    char path[TEST_PATH_MAX + 32], link[TEST_PATH_MAX + 32], json[4096];
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    json[fread(json, 1, sizeof json - 1, file)] = '\0';
    fclose(file);
    static const char old[] = "\"time_step_min\": 0.001,", new[] = "\"time_step_min\": 0.999,";
    char *at = strstr(json, old);
    assert_non_null(at);
    memcpy(at, new, sizeof new - 1);
    snprintf(path, sizeof path, "%s/config.json", directory);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    snprintf(link, sizeof link, "%s/model.safetensors", directory);
    assert_int_equal(symlink(path, link), 0);
}

/* It is for initialisation only. */
static void time_step_min_changes_nothing(void **state)
{
    (void)state;
    static const char *const hf[] = {"mamba-tied", "falcon", "mamba2-g1-chunks", "mamba2-g4-limit"};
    for (size_t i = 0; i < sizeof hf / sizeof hf[0]; i++) {
        const family_model m = {hf[i], 0};
        text t = text_create(&m, false);
        char path[TEST_PATH_MAX], directory[TEST_PATH_MAX];
        test_make_directory(directory);
        copy_with_time_step_min(golden_model_path(path, hf[i]), directory);
        ssm_model *model = test_model_open(directory, SSM_ISA_AUTO);
        float *got = test_model_logits(model, t.ids, LONG, 0);
        test_assert_same_bits(hf[i], got, t.whole, LONG * t.V);
        free(got);
        ssm_model_free(model);
        test_remove_directory(directory);
        text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),          cmocka_unit_test(grouped_norm),
        cmocka_unit_test(any_chunking),     cmocka_unit_test(short_texts),
        cmocka_unit_test(any_thread_count), cmocka_unit_test(any_processor),
        cmocka_unit_test(saved_states),     cmocka_unit_test(damaged_states),
        cmocka_unit_test(state_sizes),      cmocka_unit_test(time_step_min_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
