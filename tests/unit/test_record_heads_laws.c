/* Recordings of Mamba-2: what metrics and select make of them, and what must not show in their
 * bytes. Against the reference: test_record_heads.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/metrics.h>
#include <ssmscope/select.h>

#include "test_golden.h"
#include "test_record.h"

enum { WINDOW = 150, CALIBRATION = 2, EVALUATION = 2, DOMAINS = 2, TOKENS = 700 };

static const char wide_heads[] =
    "wide heads"; /* the toy, whose heads fill two vectors and a half */
static const char *const models[] = {"mamba2-g1-chunks",        "mamba2-g4-limit",
                                     "hybrid/mamba2-attention", "hybrid/mamba2-no-norm",
                                     "hybrid/mamba2-wide",      wide_heads};
enum { MODELS = sizeof models / sizeof *models, WIDE = 4 };

static record_subject open_subject(const char *name, ssm_isa isa)
{
    char path[TEST_PATH_MAX];
    const ssm_config toy = toy_config_wide_heads(false);
    ssm_model *model = name == wide_heads ? test_model_toy(&toy, SSM_DTYPE_F32, 3, isa, NULL)
                                          : test_model_open(golden_model_path(path, name), isa);
    return record_random(model, DOMAINS, TOKENS, 70);
}

static ssm_record_options options_of(void)
{
    return (ssm_record_options){
        .window = WINDOW, .calibration_windows = CALIBRATION, .evaluation_windows = EVALUATION};
}

typedef struct fixture {
    record_subject subject;
    const ssm_config *config;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording;
} fixture;

static fixture fixture_create(const char *model)
{
    char path[TEST_PATH_MAX + 8];
    fixture f = {.subject = open_subject(model, SSM_ISA_AUTO)};
    const ssm_record_options options = options_of();
    f.config = ssm_model_config(f.subject.model);
    snprintf(path, sizeof path, "%s/rec", test_make_directory(f.directory));
    record_into(&f.subject, path, &options);
    assert_int_equal(ssm_recording_open(path, &f.recording, NULL), SSM_STATUS_OK);
    return f;
}

static void fixture_free(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->directory);
    record_subject_free(&f->subject);
}

/* ---- metrics and masks ----------------------------------------------------------------------- */

/* At the scope of channels ρ is what was recorded; its sets are those that select chooses. */
static void metrics_read_what_was_recorded(void **state)
{
    (void)state;
    fixture f = fixture_create(models[1]);
    ssm_metrics channel = {0}, head = {0};
    assert_int_equal(
        ssm_metrics_compute(f.recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &channel, NULL),
        SSM_STATUS_OK);
    assert_int_equal(ssm_metrics_compute(f.recording, SSM_SCOPE_HEAD, NULL, 0, NULL, &head, NULL),
                     SSM_STATUS_OK);
    assert_true(channel.scope == SSM_SCOPE_CHANNEL && head.scope == SSM_SCOPE_HEAD);
    const int64_t n_budgets = ssm_recording_get_info(f.recording)->n_budgets;
    assert_int_equal(channel.n_budgets, n_budgets);
    assert_true(channel.diagonal_identity_max_violation <= 1e-12);
    assert_true(head.diagonal_identity_max_violation <= 1e-12);
    assert_true(head.gram_diagonal_max_deviation <= 1e-6 &&
                isnan(channel.gram_diagonal_max_deviation));
    for (int64_t layer = 0; layer < channel.n_layers; layer++) {
        double output = 0.0;
        double sums[2][8] = {{0}};
        for (int64_t w = DOMAINS * CALIBRATION; w < DOMAINS * (CALIBRATION + EVALUATION); w++) {
            double *fixed = record_field(f.recording, w, layer, "channel_error_static", n_budgets);
            double *diag = record_field(f.recording, w, layer, "channel_error_diag", n_budgets);
            double *energy =
                record_field(f.recording, w, layer, "output_energy", f.config->n_heads);
            for (int64_t h = 0; h < f.config->n_heads; h++) {
                output += energy[h];
            }
            for (int64_t b = 0; b < n_budgets; b++) {
                sums[0][b] += fixed[b];
                sums[1][b] += diag[b];
            }
            free(fixed);
            free(diag);
            free(energy);
        }
        for (int64_t b = 0; b < n_budgets; b++) {
            const ssm_budget_metrics *got = &channel.layers[layer].budgets[b];
            assert_true(fabs(got->rho - sqrt(sums[1][b] / sums[0][b])) <= 1e-12);
            assert_true(fabs(got->error_static - sqrt(sums[0][b] / output)) <= 1e-12);
            assert_true(got->churn_null > 0.0 && got->churn_cross > 0.0 && got->n_lags == 0);
            /* a set for every channel fits better than one for all channels of a head */
            assert_true(got->error_diag < head.layers[layer].budgets[b].error_diag);
        }
        assert_true(channel.layers[layer].time_constant_median ==
                    head.layers[layer].time_constant_median);
    }
    ssm_metrics_free(&channel);
    ssm_metrics_free(&head);
    fixture_free(&f);
}

/* Sets of select go through their file into a pass, and change it. */
static void masks_of_both_scopes_run(void **state)
{
    (void)state;
    static const char *const scopes[] = {"channel", "head"};
    fixture f = fixture_create(models[0]);
    const ssm_config *c = f.config;
    char path[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/mask", f.directory);
    for (int i = 0; i < 2; i++) {
        const ssm_select_options options = {
            .rule = "static", .budget = c->d_state / 2, .scope = scopes[i]};
        ssm_mask chosen = {0}, mask = {0};
        assert_int_equal(ssm_select(f.recording, &options, &chosen, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_mask_write(&chosen, path, NULL, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_mask_read(path, &mask, NULL), SSM_STATUS_OK);
        assert_string_equal(mask.scope, scopes[i]);
        assert_int_equal(mask.head_dim, i == 0 ? c->head_dim : 0);
        assert_int_equal(mask.n_channels, i == 0 ? c->d_ssm : c->n_heads);
        assert_memory_equal(mask.keep, chosen.keep,
                            (size_t)(mask.n_layers * mask.n_channels * mask.d_state));
        ssm_session *session = test_session_create(f.subject.model, NULL, 0);
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        float *pruned =
            test_logits(session, f.subject.model, f.subject.corpus.domains[0].ids.data, WINDOW, 0);
        float *whole =
            test_model_logits(f.subject.model, f.subject.corpus.domains[0].ids.data, WINDOW, 0);
        assert_memory_not_equal(pruned, whole, (size_t)(WINDOW * c->vocab_size) * sizeof *whole);
        free(pruned);
        free(whole);
        ssm_session_free(session);
        ssm_mask_free(&mask);
        ssm_mask_free(&chosen);
    }
    fixture_free(&f);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void threads_chunks_and_processors_do_not_show(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        record_subject subject = open_subject(models[i], SSM_ISA_AUTO);
        ssm_record_options options = options_of();
        const record_files want = record_and_list(&subject, &options);
        if (i == 1 || i == WIDE) {
            char name[96], digest[64];
            snprintf(name, sizeof name, "%s.recording.%d", models[i], WINDOW);
            record_digest(&want, digest);
            record_check_golden(name, digest);
        }
        for (int threads = 1; threads <= 3; threads++) {
            options.pool = test_pool_create(threads);
            options.chunk = threads * 37;
            const record_files got = record_and_list(&subject, &options);
            record_assert_same("threads and chunks", &got, &want);
            ssm_pool_free(options.pool);
        }
        record_subject_free(&subject);
        options = options_of();
        for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
            if (ssm_isa_supported((ssm_isa)isa)) {
                subject = open_subject(models[i], (ssm_isa)isa);
                const record_files got = record_and_list(&subject, &options);
                record_assert_same(ssm_isa_name((ssm_isa)isa), &got, &want);
                record_subject_free(&subject);
            }
        }
    }
}

typedef struct stopper {
    int64_t stop_at;
} stopper;

static bool stop(void *context, const char *stage, int64_t done, int64_t total, const char *unit)
{
    (void)stage;
    (void)total;
    (void)unit;
    return done < ((const stopper *)context)->stop_at;
}

/* Stopped after any window, also one of evaluation: the static sets are those of the files. */
static void a_stop_and_a_resume_do_not_show(void **state)
{
    (void)state;
    record_subject subject = open_subject(models[0], SSM_ISA_AUTO);
    ssm_record_options options = options_of();
    const record_files want = record_and_list(&subject, &options);
    char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 8];
    for (int64_t at = 1; at < DOMAINS * (CALIBRATION + EVALUATION); at++) {
        stopper stopping = {at};
        const ssm_progress progress = {.context = &stopping, .report = stop};
        snprintf(path, sizeof path, "%s/rec", test_make_directory(directory));
        options = options_of();
        options.progress = &progress;
        assert_int_equal(ssm_record(subject.model, &subject.corpus, path, &options, NULL),
                         SSM_STATUS_INTERRUPTED);
        options.progress = NULL;
        options.resume = true;
        record_into(&subject, path, &options);
        const record_files got = record_list(path);
        record_assert_same("a stop and a resume", &got, &want);
        test_remove_directory(directory);
    }
    record_subject_free(&subject);
}

static void without_gram_or_calibration(void **state)
{
    (void)state;
    record_subject subject = open_subject(models[0], SSM_ISA_AUTO);
    for (int i = 0; i < 2; i++) {
        char directory[TEST_PATH_MAX], path[TEST_PATH_MAX + 8];
        ssm_record_options options = options_of();
        ssm_recording *recording = NULL;
        const ssm_tensor *tensor = NULL;
        ssm_metrics metrics = {0};
        options.no_gram = i == 0;
        options.calibration_windows = i == 0 ? CALIBRATION : 0;
        snprintf(path, sizeof path, "%s/rec", test_make_directory(directory));
        record_into(&subject, path, &options);
        assert_int_equal(ssm_recording_open(path, &recording, NULL), SSM_STATUS_OK);
        const int64_t last = ssm_recording_window_count(recording) - 1;
        assert_int_equal(
            ssm_recording_tensor(recording, last, 0, "channel_error_static", &tensor, NULL),
            SSM_STATUS_USAGE);
        assert_int_equal(
            ssm_recording_tensor(recording, last, 0, "channel_error_diag", &tensor, NULL),
            i == 0 ? SSM_STATUS_USAGE : SSM_STATUS_OK);
        assert_int_equal(
            ssm_metrics_compute(recording, SSM_SCOPE_CHANNEL, NULL, 0, NULL, &metrics, NULL),
            SSM_STATUS_OK);
        const ssm_budget_metrics *got = &metrics.layers[0].budgets[0];
        assert_true(isnan(got->rho) && isnan(got->error_static));
        assert_true(isnan(got->rho_diag) == (i == 1) && isnan(got->error_diag) == (i == 0));
        assert_true(isnan(got->churn_null) == (i == 0) && !isnan(got->churn_cross));
        ssm_metrics_free(&metrics);
        ssm_recording_close(recording);
        test_remove_directory(directory);
    }
    record_subject_free(&subject);
}

/* Energies and moments are the same numbers whether the summands are stored or not. */
static void the_gram_moves_nothing(void **state)
{
    (void)state;
    static const char *const fields[] = {"energy",       "energy_blocks", "output_energy",
                                         "state_moment", "read_moment",   "adjoint_moment",
                                         "delta_mean"};
    fixture f = fixture_create(wide_heads);
    const ssm_config *c = f.config;
    const int64_t modes = c->n_heads * c->d_state, blocks = (WINDOW + 63) / 64;
    const int64_t counts[] = {
        c->d_ssm * c->d_state, blocks * modes, c->n_heads, modes, modes, modes, c->n_heads};
    char path[TEST_PATH_MAX + 8];
    ssm_record_options options = options_of();
    ssm_recording *bare = NULL;
    options.no_gram = true;
    snprintf(path, sizeof path, "%s/bare", f.directory);
    record_into(&f.subject, path, &options);
    assert_int_equal(ssm_recording_open(path, &bare, NULL), SSM_STATUS_OK);
    for (int64_t w = 0; w < ssm_recording_window_count(bare); w++) {
        for (int64_t k = 0; k < c->n_layers * 7; k++) {
            const int64_t layer = k / 7, count = counts[k % 7];
            double *with = record_field(f.recording, w, layer, fields[k % 7], count);
            double *without = record_field(bare, w, layer, fields[k % 7], count);
            assert_memory_equal(with, without, (size_t)count * sizeof *with);
            free(with);
            free(without);
        }
    }
    ssm_recording_close(bare);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_read_what_was_recorded),
        cmocka_unit_test(masks_of_both_scopes_run),
        cmocka_unit_test(threads_chunks_and_processors_do_not_show),
        cmocka_unit_test(a_stop_and_a_resume_do_not_show),
        cmocka_unit_test(without_gram_or_calibration),
        cmocka_unit_test(the_gram_moves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
