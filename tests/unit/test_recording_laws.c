/* What must give the same recording, byte for byte: any number of threads, any cut into forward
 * calls, any instruction set, a stop and a resume; and the goldens of `tiny`.
 *
 * The goldens stand in tests/golden/digests.txt. A change of bits that is meant (another kernel
 * order, another model) moves them: the failing test prints the line to put there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/recording.h>

#include "base/digest.h"
#include "test_record.h"

enum { GOLDEN_IDS = 200, DOMAINS = 2 };

static const int64_t some_layers[] = {1, 4, 7};
static const int64_t toy_layers[] = {2};

/* What is recorded; everything else must not show. */
typedef struct recorded_case {
    const char *what;
    bool toy, every_variant;
    ssm_record_options options;
} recorded_case;

static const recorded_case cases[] = {
    {"tiny, whole blocks",
     false,
     true,
     {.window = 192, .calibration_windows = 1, .evaluation_windows = 1}},
    {"tiny, a last block of 22, all Grams",
     false,
     false,
     {.window = 150, .calibration_windows = 1, .evaluation_windows = 1, .keep_window_gram = true}},
    {"tiny, three layers, no Gram",
     false,
     false,
     {.window = 150,
      .calibration_windows = 1,
      .evaluation_windows = 1,
      .no_gram = true,
      .layers = some_layers,
      .n_layers = 3}},
    {"toy, odd shapes",
     true,
     true,
     {.window = 150, .calibration_windows = 2, .evaluation_windows = 2, .keep_window_gram = true}},
    {"toy, one layer",
     true,
     true,
     {.window = 65,
      .calibration_windows = 3,
      .evaluation_windows = 1,
      .layers = toy_layers,
      .n_layers = 1}},
    {"toy, no Gram",
     true,
     true,
     {.window = 130, .calibration_windows = 1, .evaluation_windows = 2, .no_gram = true}},
    {"toy, two tokens",
     true,
     true,
     {.window = 2, .calibration_windows = 2, .evaluation_windows = 3}},
};
enum { CASES = sizeof cases / sizeof *cases };

static record_subject open_subject(const recorded_case *one, ssm_isa isa)
{
    return one->toy ? record_toy(isa, DOMAINS, 700) : record_tiny(isa, DOMAINS);
}

/* The recording of a case with this pool and chunk against the plain one. */
static void check_variant(const recorded_case *one, const record_subject *subject, int threads,
                          int64_t chunk, const record_files *want)
{
    char what[160];
    ssm_pool *pool = test_pool_create(threads);
    ssm_record_options options = one->options;
    options.pool = pool;
    options.chunk = chunk;
    const record_files got = record_and_list(subject, &options);
    snprintf(what, sizeof what, "%s; %d threads, chunk %lld", one->what, threads, (long long)chunk);
    record_assert_same(what, &got, want);
    ssm_pool_free(pool);
}

static void test_threads_and_chunks(void **state)
{
    (void)state;
    /* Every number of threads and every chunk, not every pair; two pairs for the costly cases. */
    static const struct {
        int threads;
        int64_t chunk;
    } variants[] = {{8, 64}, {3, 3}, {2, 0}, {1, 1}, {2, 1000}};
    for (int i = 0; i < CASES; i++) {
        record_subject subject = open_subject(&cases[i], SSM_ISA_AUTO);
        const record_files want = record_and_list(&subject, &cases[i].options);
        assert_true(want.count >= 2 + DOMAINS * 2);
        const size_t count = cases[i].every_variant ? sizeof variants / sizeof *variants : 2;
        for (size_t v = 0; v < count; v++) {
            check_variant(&cases[i], &subject, variants[v].threads, variants[v].chunk, &want);
        }
        record_subject_free(&subject);
    }
}

static void test_instruction_sets(void **state)
{
    (void)state;
    static const ssm_isa sets[] = {SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512};
    for (int i = 0; i < CASES; i++) {
        if (!cases[i].every_variant) {
            continue;
        }
        record_subject best = open_subject(&cases[i], SSM_ISA_AUTO);
        const record_files want = record_and_list(&best, &cases[i].options);
        record_subject_free(&best);
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
            if (!ssm_isa_supported(sets[s])) {
                printf("skipped: %s is not supported here\n", ssm_isa_name(sets[s]));
                continue;
            }
            record_subject subject = open_subject(&cases[i], sets[s]);
            assert_int_equal(ssm_model_isa(subject.model), sets[s]);
            check_variant(&cases[i], &subject, 2, 0, &want);
            record_subject_free(&subject);
        }
    }
}

/* ---- stop and resume ------------------------------------------------------------------------- */

static bool stop_after(void *context, const char *what, int64_t done, int64_t total,
                       const char *unit)
{
    (void)what;
    (void)total;
    assert_string_equal(unit, "windows");
    return done < *(const int64_t *)context;
}

/* Stopped after every window in turn, each time going on from what is there. */
static void test_stopped_and_resumed(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        if (!cases[i].toy) {
            continue;
        }
        char directory[TEST_PATH_MAX], recording[TEST_PATH_MAX + 8];
        record_subject subject = open_subject(&cases[i], SSM_ISA_AUTO);
        const record_files want = record_and_list(&subject, &cases[i].options);
        const int64_t windows =
            DOMAINS * (cases[i].options.calibration_windows + cases[i].options.evaluation_windows);
        snprintf(recording, sizeof recording, "%s/rec", test_make_directory(directory));
        int64_t last = 0;
        const ssm_progress progress = {.context = &last, .report = stop_after};
        ssm_record_options options = cases[i].options;
        options.progress = &progress;
        for (last = 1; last < windows; last++) {
            options.chunk = last; /* neither does the cut show */
            ssm_error err;
            ssm_error_clear(&err);
            assert_int_equal(ssm_record(subject.model, &subject.corpus, recording, &options, &err),
                             SSM_STATUS_INTERRUPTED);
            options.resume = true;
        }
        options.progress = NULL;
        record_into(&subject, recording, &options);
        const record_files got = record_list(recording);
        record_assert_same(cases[i].what, &got, &want);
        test_remove_directory(directory);
        record_subject_free(&subject);
    }
}

/* ---- options choose what is kept, never its values ------------------------------------------- */

static ssm_recording *open_recording(const char *directory)
{
    ssm_recording *recording = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_recording_open(directory, &recording, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", err.file, err.message);
    }
    return recording;
}

static const ssm_tensor *tensor_of(ssm_recording *recording, int64_t window, int64_t layer,
                                   const char *field)
{
    const ssm_tensor *tensor = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_recording_tensor(recording, window, layer, field, &tensor, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", field, err.message);
    }
    return tensor;
}

static void assert_same_tensor(const ssm_tensor *got, const ssm_tensor *want)
{
    assert_string_equal(got->name, want->name);
    assert_int_equal(got->bytes, want->bytes);
    assert_memory_equal(got->data, want->data, want->bytes);
}

static const char *const fields[] = {"energy_blocks", "output_energy", "state_moment",
                                     "read_moment",   "delta_mean",    "adjoint_moment"};

/* A recording of one layer without Grams holds what the full one holds of that layer; the sum of
 * one calibration window is that window's Gram. */
static void test_options_do_not_change_values(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX], full_path[TEST_PATH_MAX + 8], part_path[TEST_PATH_MAX + 8];
    record_subject subject = record_toy(SSM_ISA_AUTO, DOMAINS, 700);
    test_make_directory(directory);
    snprintf(full_path, sizeof full_path, "%s/full", directory);
    snprintf(part_path, sizeof part_path, "%s/part", directory);
    ssm_record_options options = {
        .window = 150, .calibration_windows = 1, .evaluation_windows = 1, .keep_window_gram = true};
    record_into(&subject, full_path, &options);
    options.keep_window_gram = false;
    options.no_gram = true;
    options.layers = toy_layers;
    options.n_layers = 1;
    record_into(&subject, part_path, &options);

    ssm_recording *full = open_recording(full_path);
    ssm_recording *part = open_recording(part_path);
    for (int64_t w = 0; w < ssm_recording_window_count(full); w++) {
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
            assert_same_tensor(tensor_of(part, w, toy_layers[0], fields[f]),
                               tensor_of(full, w, toy_layers[0], fields[f]));
        }
        assert_same_tensor(tensor_of(part, w, -1, "nll"), tensor_of(full, w, -1, "nll"));
        assert_same_tensor(tensor_of(part, w, -1, "ids"), tensor_of(full, w, -1, "ids"));
        const ssm_recording_window *window = ssm_recording_get_window(full, w);
        if (window->role == SSM_ROLE_CALIBRATION) {
            const ssm_tensor *sum = NULL;
            ssm_error err;
            assert_int_equal(ssm_recording_calibration_gram(full, window->domain, 1, &sum, &err),
                             SSM_STATUS_OK);
            assert_same_tensor(tensor_of(full, w, 1, "gram"), sum);
        }
    }
    ssm_recording_close(full);
    ssm_recording_close(part);
    test_remove_directory(directory);
    record_subject_free(&subject);
}

/* ---- goldens --------------------------------------------------------------------------------- */

static void test_golden_logits(void **state)
{
    (void)state;
    char digest[64];
    record_subject subject = record_tiny(SSM_ISA_AUTO, 1);
    float *logits =
        test_model_logits(subject.model, subject.corpus.domains[0].ids.data, GOLDEN_IDS, 0);
    const int64_t vocab_size = ssm_model_config(subject.model)->vocab_size;
    ssm__digest_bytes(logits, (size_t)(GOLDEN_IDS * vocab_size) * sizeof *logits, digest);
    record_check_golden("tiny.logits", digest);
    free(logits);
    record_subject_free(&subject);
}

static void test_golden_recordings(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny.recording.192", "tiny.recording.150"};
    for (int i = 0; i < 2; i++) {
        char digest[64];
        record_subject subject = open_subject(&cases[i], SSM_ISA_AUTO);
        const record_files files = record_and_list(&subject, &cases[i].options);
        record_digest(&files, digest);
        record_check_golden(names[i], digest);
        record_subject_free(&subject);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_chunks),
        cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_stopped_and_resumed),
        cmocka_unit_test(test_options_do_not_change_values),
        cmocka_unit_test(test_golden_logits),
        cmocka_unit_test(test_golden_recordings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
