/* Recording at the edges: windows longer than a session's default chunk, one domain of several
 * files, names of domains, subsets of layers, no calibration or no evaluation windows, memory, and
 * every option that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/metrics.h>
#include <ssmscope/recording.h>

#include "base/file.h"
#include "instrument/accumulator.h"
#include "test_numbers.h"
#include "test_record.h"

/* A directory for one test, and a recording in it. */
typedef struct scratch {
    char directory[TEST_PATH_MAX], recording[TEST_PATH_MAX + 8];
} scratch;

static scratch scratch_create(void)
{
    scratch s;
    snprintf(s.recording, sizeof s.recording, "%s/rec", test_make_directory(s.directory));
    return s;
}

static ssm_recording *open_recording(const scratch *s)
{
    ssm_recording *recording = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_recording_open(s->recording, &recording, &err) != SSM_STATUS_OK) {
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

/* ---- windows --------------------------------------------------------------------------------- */

/* Longer than the 1024 tokens that a session takes at once by default; no multiple of 64. */
static void test_a_window_of_3000_tokens(void **state)
{
    (void)state;
    const int64_t layers[] = {3};
    ssm_record_options options = {
        .window = 3000, .evaluation_windows = 1, .layers = layers, .n_layers = 1};
    record_subject subject = record_tiny(SSM_ISA_AUTO, 1);
    const record_files whole = record_and_list(&subject, &options);
    options.chunk = 700;
    const record_files cut = record_and_list(&subject, &options);
    record_assert_same("3000 tokens in calls of 700", &cut, &whole);

    scratch s = scratch_create();
    options.chunk = 0;
    record_into(&subject, s.recording, &options);
    ssm_recording *recording = open_recording(&s);
    assert_int_equal(tensor_of(recording, 0, 3, "energy_blocks")->dims[0], 47); /* ⌈3000/64⌉ */
    const ssm_tensor *nll = tensor_of(recording, 0, -1, "nll");
    assert_int_equal(nll->dims[0], 2999);

    ssm_session *session = test_session_create(subject.model, NULL, 0);
    float *want = test_floats(2999);
    assert_int_equal(ssm_session_nll(session, subject.corpus.domains[0].ids.data, 3000, want, NULL),
                     SSM_STATUS_OK);
    assert_memory_equal(nll->data, want, 2999 * sizeof *want);
    free(want);
    ssm_session_free(session);
    ssm_recording_close(recording);
    test_remove_directory(s.directory);
    record_subject_free(&subject);
}

static void test_a_window_of_two_tokens(void **state)
{
    (void)state;
    record_subject subject = record_toy(SSM_ISA_AUTO, 1, 20);
    scratch s = scratch_create();
    const ssm_record_options options = {
        .window = 2, .calibration_windows = 4, .evaluation_windows = 6};
    record_into(&subject, s.recording, &options);
    ssm_recording *recording = open_recording(&s);
    assert_int_equal(ssm_recording_window_count(recording), 10);
    assert_int_equal(tensor_of(recording, 9, 0, "energy_blocks")->dims[0], 1);
    assert_int_equal(tensor_of(recording, 9, -1, "nll")->dims[0], 1);
    const int32_t *ids = tensor_of(recording, 9, -1, "ids")->data;
    assert_int_equal(ids[0], subject.corpus.domains[0].ids.data[18]);
    assert_int_equal(ids[1], subject.corpus.domains[0].ids.data[19]);
    ssm_recording_close(recording);
    test_remove_directory(s.directory);
    record_subject_free(&subject);
}

/* ---- domains --------------------------------------------------------------------------------- */

/* Files of one domain are one stream: a window lies across the place where they meet. */
static void test_files_of_one_domain_are_joined(void **state)
{
    (void)state;
    const char *const texts[] = {"d=" SSM_SOURCE_DIR "/examples/text/README.md",
                                 "d=" SSM_SOURCE_DIR "/examples/text/README.md"};
    record_subject subject = {.model =
                                  test_model_open(SSM_SOURCE_DIR "/models/tiny", SSM_ISA_AUTO)};
    ssm_tokenizer *tokenizer = NULL;
    assert_int_equal(ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny", &tokenizer, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(
        ssm_corpus_open(tokenizer, texts, 2, SSM_INVALID_UTF8_ERROR, &subject.corpus, NULL),
        SSM_STATUS_OK);
    ssm_tokenizer_free(tokenizer);
    assert_int_equal(subject.corpus.n_domains, 1);
    const int64_t half = subject.corpus.files[0].tokens;
    assert_int_equal(subject.corpus.domains[0].ids.count, 2 * half);
    const int64_t window = 2 * half - 1;

    scratch s = scratch_create();
    const ssm_record_options options = {.window = window, .evaluation_windows = 1, .no_gram = true};
    record_into(&subject, s.recording, &options);
    ssm_recording *recording = open_recording(&s);
    const int32_t *ids = tensor_of(recording, 0, -1, "ids")->data;
    assert_memory_equal(ids, ids + half, (size_t)(half - 1) * sizeof *ids);
    ssm_recording_close(recording);
    test_remove_directory(s.directory);
    record_subject_free(&subject);
}

/* A domain's name is free; in a file's name its odd bytes become '_'. */
static void test_odd_names_of_domains(void **state)
{
    (void)state;
    static char names[][32] = {"..", "a/b c", "Prosa: äöü", "x\"y'\\", "%s%n"};
    static const char *const files[] = {
        "calibration....safetensors", "calibration.a_b_c.safetensors",
        "calibration.Prosa________.safetensors", "calibration.x_y__.safetensors",
        "calibration._s_n.safetensors"};
    for (int i = 0; i < 5; i++) {
        record_subject subject = record_toy(SSM_ISA_AUTO, 1, 20);
        subject.corpus.domains[0].name = names[i];
        scratch s = scratch_create();
        const ssm_record_options options = {
            .window = 10, .calibration_windows = 1, .evaluation_windows = 1};
        record_into(&subject, s.recording, &options);
        assert_true(ssm__holds_file(s.recording, files[i]));
        ssm_recording *recording = open_recording(&s);
        assert_string_equal(ssm_recording_get_window(recording, 0)->domain, names[i]);
        const ssm_tensor *sum = NULL;
        assert_int_equal(ssm_recording_calibration_gram(recording, names[i], 0, &sum, NULL),
                         SSM_STATUS_OK);
        ssm_recording_close(recording);
        test_remove_directory(s.directory);
        record_subject_free(&subject);
    }
}

/* ---- what metrics make of it ----------------------------------------------------------------- */

static ssm_status metrics_of(const record_subject *subject, const ssm_record_options *options,
                             ssm_metrics *out, ssm_error *err)
{
    scratch s = scratch_create();
    record_into(subject, s.recording, options);
    ssm_recording *recording = open_recording(&s);
    const ssm_status status =
        ssm_metrics_compute(recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, out, err);
    ssm_recording_close(recording);
    test_remove_directory(s.directory);
    return status;
}

/* Layers in any order, one twice: recorded once each, rising. */
static void test_some_layers(void **state)
{
    (void)state;
    const int64_t layers[] = {2, 0, 2};
    const ssm_record_options options = {.window = 70,
                                        .calibration_windows = 2,
                                        .evaluation_windows = 2,
                                        .layers = layers,
                                        .n_layers = 3};
    record_subject subject = record_toy(SSM_ISA_AUTO, 2, 300);
    ssm_metrics metrics = {0};
    assert_int_equal(metrics_of(&subject, &options, &metrics, NULL), SSM_STATUS_OK);
    assert_int_equal(metrics.n_layers, 2);
    assert_int_equal(metrics.layers[0].layer, 0);
    assert_int_equal(metrics.layers[1].layer, 2);
    assert_true(metrics.layers[1].budgets[0].rho > 0.0);
    ssm_metrics_free(&metrics);
    record_subject_free(&subject);
}

static void test_no_calibration_windows(void **state)
{
    (void)state;
    const ssm_record_options options = {.window = 70, .evaluation_windows = 3};
    record_subject subject = record_toy(SSM_ISA_AUTO, 2, 300);
    ssm_metrics metrics = {0};
    assert_int_equal(metrics_of(&subject, &options, &metrics, NULL), SSM_STATUS_OK);
    assert_true(metrics.layers[0].budgets[0].rho != metrics.layers[0].budgets[0].rho); /* NaN */
    assert_true(metrics.layers[0].participation_median >= 1.0);
    ssm_metrics_free(&metrics);
    record_subject_free(&subject);
}

static void test_no_evaluation_windows(void **state)
{
    (void)state;
    const ssm_record_options options = {.window = 70, .calibration_windows = 3};
    record_subject subject = record_toy(SSM_ISA_AUTO, 2, 300);
    ssm_metrics metrics = {0};
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(metrics_of(&subject, &options, &metrics, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "no evaluation windows"));
    record_subject_free(&subject);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The sums of a whole-window pass take one layer's memory, whatever the number of layers. */
static void test_memory_of_the_sums(void **state)
{
    (void)state;
    record_subject subject = record_tiny(SSM_ISA_AUTO, 1);
    const ssm_config *c = ssm_model_config(subject.model);
    ssm__accumulator_options options = {.window = 1024, .gram = true, .whole_blocks = true};
    ssm__accumulator sums = {0};
    assert_int_equal(ssm__accumulator_create(subject.model, &options, &sums, NULL), SSM_STATUS_OK);
    const size_t all = sums.arena.size;
    ssm__accumulator_free(&sums);
    options.one_layer = true;
    assert_int_equal(ssm__accumulator_create(subject.model, &options, &sums, NULL), SSM_STATUS_OK);
    assert_true(sums.arena.size * 7 < all); /* of 8 layers */
    assert_ptr_equal(sums.layers[0].gram, sums.layers[c->n_layers - 1].gram);
    ssm__accumulator_free(&sums);
    record_subject_free(&subject);
}

/* ---- refused --------------------------------------------------------------------------------- */

/* The directory is not even made. */
static void refuse(const record_subject *subject, ssm_record_options options, const char *message)
{
    scratch s = scratch_create();
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_status status =
        ssm_record(subject->model, &subject->corpus, s.recording, &options, &err);
    if (status != SSM_STATUS_USAGE || err.status != status || !strstr(err.message, message)) {
        fail_msg("expected '%s', got status %d: %s", message, (int)status, err.message);
    }
    assert_false(ssm__is_directory(s.recording));
    test_remove_directory(s.directory);
}

static void test_refused_options(void **state)
{
    (void)state;
    record_subject subject = record_toy(SSM_ISA_AUTO, 2, 100);
    const ssm_record_options good = {
        .window = 20, .calibration_windows = 2, .evaluation_windows = 3};
    const int64_t numbers[] = {0, 4, 5, 4, 3, -1};
    ssm_record_options bad = good;
    bad.window = 1;
    refuse(&subject, bad, "window 1 tokens, 2 calibration and 3 evaluation windows");
    bad = good;
    bad.calibration_windows = -1;
    refuse(&subject, bad, "-1 calibration");
    bad.calibration_windows = bad.evaluation_windows = 0;
    refuse(&subject, bad, "at least 2 tokens and one window");
    bad = good;
    bad.window = 21;
    refuse(&subject, bad, "domain a has 100 tokens, that is 4 windows of 21; 5 are wanted");
    bad = good;
    bad.budgets = numbers;
    bad.n_budgets = 1;
    refuse(&subject, bad, "budget 0 is outside 1 … 4 (d_state is 5)");
    bad.budgets = numbers + 1;
    bad.n_budgets = 2;
    refuse(&subject, bad, "budget 5 is outside 1 … 4");
    bad.budgets = numbers + 3;
    bad.n_budgets = 1;
    record_and_list(&subject, &bad); /* 4 is fine */
    const int64_t twice[] = {2, 3, 2};
    bad.budgets = twice;
    bad.n_budgets = 3;
    refuse(&subject, bad, "budget 2 is given twice");
    bad = good;
    bad.layers = numbers + 4;
    bad.n_layers = 1;
    refuse(&subject, bad, "layer 3 is not one of 0 … 2");
    bad.layers = numbers + 5;
    refuse(&subject, bad, "layer -1 is not one of 0 … 2");
    bad.n_layers = 0;
    refuse(&subject, bad, "the list of layers is empty");
    bad = good;
    bad.no_gram = bad.keep_window_gram = true;
    refuse(&subject, bad, "both kept and left out");
    record_subject empty = subject;
    empty.corpus.n_domains = 0;
    refuse(&empty, good, "the list of texts is empty");
    record_subject_free(&subject);
}

static void test_another_recording_is_not_resumed(void **state)
{
    (void)state;
    record_subject subject = record_toy(SSM_ISA_AUTO, 1, 100);
    scratch s = scratch_create();
    ssm_record_options options = {.window = 20, .calibration_windows = 1, .evaluation_windows = 1};
    record_into(&subject, s.recording, &options);
    const record_files before = record_list(s.recording);
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_record(subject.model, &subject.corpus, s.recording, &options, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "holds a recording already"));
    options.resume = true;
    options.evaluation_windows = 2;
    ssm_error_clear(&err);
    assert_int_equal(ssm_record(subject.model, &subject.corpus, s.recording, &options, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "windows"));
    options.evaluation_windows = 1;
    record_into(&subject, s.recording, &options); /* finished already: nothing changes */
    const record_files after = record_list(s.recording);
    record_assert_same("resumed when finished", &after, &before);
    test_remove_directory(s.directory);
    record_subject_free(&subject);
}

/* An id that the model does not have stops the recording; nothing of that window is left. */
static void test_an_id_outside_the_vocabulary(void **state)
{
    (void)state;
    record_subject subject = record_toy(SSM_ISA_AUTO, 1, 100);
    subject.corpus.domains[0].ids.data[25] = 31;
    scratch s = scratch_create();
    const ssm_record_options options = {.window = 20, .evaluation_windows = 2};
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_record(subject.model, &subject.corpus, s.recording, &options, &err),
                     SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "id 31 (number 5 of the input) is outside"));
    const record_files files = record_list(s.recording);
    assert_int_equal(files.count, 3); /* recording.json, model, the first window */
    assert_string_equal(files.files[2].name, "windows/00000.safetensors");
    test_remove_directory(s.directory);
    record_subject_free(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_of_3000_tokens),
        cmocka_unit_test(test_a_window_of_two_tokens),
        cmocka_unit_test(test_files_of_one_domain_are_joined),
        cmocka_unit_test(test_odd_names_of_domains),
        cmocka_unit_test(test_some_layers),
        cmocka_unit_test(test_no_calibration_windows),
        cmocka_unit_test(test_no_evaluation_windows),
        cmocka_unit_test(test_memory_of_the_sums),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_another_recording_is_not_resumed),
        cmocka_unit_test(test_an_id_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
