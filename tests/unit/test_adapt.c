/* Rules that choose for every window against a second, naive implementation: energies are read from
 * recordings of just the tokens that a rule may look at, a mode is kept when fewer than r of its
 * set have more. And what follows from the definitions: all modes kept is unpruned, later tokens do
 * not show in a prefix, threads do not show at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/adapt.h>

#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 150, CALIBRATION = 2, WINDOWS = 2, DOMAINS = 2, TOKENS = 620 };

typedef struct subject_case {
    const char *model;
    const char *scope;
    bool heads; /* Mamba-2, rows are heads */
} subject_case;
static const subject_case cases[] = {
    {"toy", "channel", false},    {"toy", "layer", false},
    {"falcon", "channel", false}, {"toy heads", "channel", false},
    {"toy heads", "head", true},  {"toy heads", "group", true},
    {"toy heads", "layer", true}, {"hybrid/mamba2-attention", "head", true},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct fixture {
    const subject_case *about;
    record_subject subject;
    const ssm_config *config;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording;
    int64_t rows, sets;
} fixture;

static record_subject open_subject(const char *model)
{
    const ssm_config heads = toy_config_heads();
    if (strcmp(model, "toy") == 0) {
        return record_toy(SSM_ISA_AUTO, DOMAINS, TOKENS);
    }
    if (strcmp(model, "toy heads") == 0) {
        return record_random(test_model_toy(&heads, SSM_DTYPE_F32, 3, SSM_ISA_AUTO, NULL), DOMAINS,
                             TOKENS, 70);
    }
    return record_golden(model, SSM_ISA_AUTO, DOMAINS, TOKENS);
}

static void set_up(fixture *f, const subject_case *about)
{
    const ssm_record_options options = {.window = WINDOW, .calibration_windows = CALIBRATION};
    *f = (fixture){.about = about, .subject = open_subject(about->model)};
    f->config = ssm_model_config(f->subject.model);
    const bool mamba2 = f->config->family == SSM_FAMILY_MAMBA2;
    f->rows = !mamba2 ? f->config->d_inner : about->heads ? f->config->n_heads : f->config->d_ssm;
    f->sets = strcmp(about->scope, "layer") == 0   ? 1
              : strcmp(about->scope, "group") == 0 ? f->config->n_groups
                                                   : f->rows;
    f->recording = record_and_open(&f->subject, &options, f->directory);
}

static void tear_down(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->directory);
    record_subject_free(&f->subject);
}

static ssm_adapt_options options_of(const fixture *f, const char *rule, int64_t budget)
{
    return (ssm_adapt_options){
        .rule = rule, .budget = budget, .scope = f->about->scope, .window = WINDOW};
}

static ssm_adapter *create(const fixture *f, const ssm_adapt_options *options)
{
    ssm_adapter *adapter = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_adapt_create(f->subject.model, &f->subject.corpus, f->recording, options, &adapter,
                         &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", options->rule, err.message);
    }
    return adapter;
}

static const int32_t *ids_at(const fixture *f, int64_t domain, int64_t window)
{
    return f->subject.corpus.domains[domain].ids.data + window * WINDOW;
}

/* ---- the second implementation --------------------------------------------------------------- */

/* out[layers][rows][N] += energies of `tokens` ids from the zero state, as a recording of nothing
 * else has them. */
static void add_recorded(const fixture *f, const int32_t *ids, int64_t tokens, double *out)
{
    record_subject one = record_random(f->subject.model, 1, tokens, 0);
    const ssm_record_options options = {.window = tokens, .evaluation_windows = 1, .no_gram = true};
    const bool channels = f->config->family == SSM_FAMILY_MAMBA2 && !f->about->heads;
    const int64_t width = f->rows * f->config->d_state;
    const int64_t blocks = channels ? 1 : (tokens + 63) / 64;
    char root[TEST_PATH_MAX];
    memcpy(one.corpus.domains[0].ids.data, ids, (size_t)tokens * sizeof *ids);
    ssm_recording *recording = record_and_open(&one, &options, root);
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    for (int64_t k = 0; k < info->n_recorded; k++) {
        double *energies = record_field(recording, 0, info->layers[k],
                                        channels ? "energy" : "energy_blocks", blocks * width);
        for (int64_t i = 0; i < blocks * width; i++) {
            out[info->layers[k] * width + i % width] += energies[i];
        }
        free(energies);
    }
    ssm_recording_close(recording);
    test_remove_directory(root);
    free(one.corpus.domains[0].ids.data);
    free(one.corpus.domains);
}

/* What a rule scores the modes of a window with. */
static double *naive_scores(const fixture *f, const char *rule, int64_t domain, int64_t window)
{
    const int64_t count = f->config->n_layers * f->rows * f->config->d_state;
    double *scores = test_doubles(count);
    if (strcmp(rule, "regime") == 0) {
        for (int64_t w = 0; w < CALIBRATION; w++) {
            add_recorded(f, ids_at(f, domain, w), WINDOW, scores);
        }
        return scores;
    }
    const int64_t tokens = strcmp(rule, "scheduled") == 0   ? WINDOW
                           : strcmp(rule, "half") == 0      ? WINDOW / 2
                           : strcmp(rule, "prefix:37") == 0 ? 37
                                                            : 64;
    add_recorded(f, ids_at(f, domain, window), tokens, scores);
    if (strcmp(rule, "prefix-ramp:64") == 0) {
        double *whole = test_doubles(count);
        double *first = test_doubles(count);
        for (int64_t w = 0; w < DOMAINS * CALIBRATION; w++) {
            const int32_t *ids = ids_at(f, w / CALIBRATION, w % CALIBRATION);
            add_recorded(f, ids, WINDOW, whole);
            add_recorded(f, ids, 64, first);
        }
        for (int64_t i = 0; i < count; i++) {
            scores[i] *= first[i] > 0.0 ? whole[i] / first[i] : 1.0;
        }
        free(whole);
        free(first);
    }
    return scores;
}

static double set_score(const fixture *f, const double *layer, int64_t set, int64_t mode)
{
    const int64_t per_set = f->rows / f->sets;
    double sum = 0.0;
    for (int64_t row = set * per_set; row < (set + 1) * per_set; row++) {
        sum += layer[row * f->config->d_state + mode];
    }
    return sum;
}

/* How many modes differ from the naive choice. */
static int64_t wrong_modes(const fixture *f, const double *scores, int64_t r, const ssm_mask *mask)
{
    const int64_t N = f->config->d_state;
    int64_t wrong = 0;
    for (int64_t i = 0; i < f->config->n_layers * f->rows * N; i++) {
        const int64_t layer = i / (f->rows * N);
        const int64_t set = i / N % f->rows / (f->rows / f->sets);
        const double *of_layer = scores + layer * f->rows * N;
        const double own = set_score(f, of_layer, set, i % N);
        int64_t above = 0;
        if (ssm_checkpoint_layer_kind(ssm_model_checkpoint(f->subject.model), layer) ==
            SSM_LAYER_ATTENTION) {
            continue; /* not looked at */
        }
        for (int64_t k = 0; k < N; k++) {
            const double other = set_score(f, of_layer, set, k);
            above += other > own || (other == own && k < i % N);
        }
        wrong += mask->keep[i] != (above < r);
    }
    return wrong;
}

static const char *const rules[] = {"scheduled", "half",   "prefix:37",
                                    "prefix:64", "regime", "prefix-ramp:64"};
enum { RULES = sizeof rules / sizeof *rules };

static bool is_defined(const fixture *f, const char *rule)
{
    return strcmp(rule, "prefix-ramp:64") != 0 || f->config->family != SSM_FAMILY_MAMBA2 ||
           f->about->heads;
}

static void rules_keep_what_a_naive_choice_keeps(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        fixture f;
        set_up(&f, &cases[c]);
        for (int k = 0; k < RULES; k++) {
            if (!is_defined(&f, rules[k])) {
                continue;
            }
            const ssm_adapt_options options = options_of(&f, rules[k], 2);
            ssm_adapter *adapter = create(&f, &options);
            const ssm_chooser *chooser = ssm_adapt_chooser(adapter);
            for (int64_t domain = 0; domain < DOMAINS; domain++) {
                const ssm_mask *mask = NULL;
                double *scores = naive_scores(&f, rules[k], domain, CALIBRATION);
                assert_int_equal(chooser->choose(chooser->context, domain,
                                                 ids_at(&f, domain, CALIBRATION), WINDOW, &mask,
                                                 NULL),
                                 SSM_STATUS_OK);
                assert_int_equal(mask->n_channels, f.rows);
                const int64_t wrong = wrong_modes(&f, scores, 2, mask);
                if (wrong != 0) {
                    fail_msg("%s, scope %s, %s: %lld modes differ", cases[c].model, cases[c].scope,
                             rules[k], (long long)wrong);
                }
                free(scores);
            }
            ssm_adapt_free(adapter);
        }
        tear_down(&f);
    }
}

/* The numbers of a recorded window, to the bit: with Grams, too. */
static void energies_are_those_of_a_recording(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        fixture f;
        set_up(&f, &cases[c]);
        const int64_t width = f.rows * f.config->d_state;
        const bool channels = f.config->family == SSM_FAMILY_MAMBA2 && !cases[c].heads;
        const int64_t blocks = channels ? 1 : (WINDOW + 63) / 64;
        const ssm_energies_options options = {
            .window = WINDOW, .scope = cases[c].heads ? SSM_SCOPE_HEAD : SSM_SCOPE_CHANNEL};
        double *found = test_doubles(f.config->n_layers * width);
        ssm_energies *energies = NULL;
        assert_int_equal(ssm_energies_create(f.subject.model, &options, &energies, NULL),
                         SSM_STATUS_OK);
        assert_int_equal(ssm_energies_rows(energies), f.rows);
        assert_int_equal(ssm_energies_run(energies, ids_at(&f, 0, 0), 3, found, NULL), 0);
        assert_int_equal(ssm_energies_run(energies, ids_at(&f, 0, 1), WINDOW, found, NULL), 0);
        const ssm_recording_info *info = ssm_recording_get_info(f.recording);
        for (int64_t k = 0; k < info->n_recorded; k++) {
            double *want = record_field(f.recording, 1, info->layers[k],
                                        channels ? "energy" : "energy_blocks", blocks * width);
            for (int64_t i = 0; i < width; i++) {
                for (int64_t b = 1; b < blocks; b++) {
                    want[i] += want[b * width + i];
                }
                assert_true(found[info->layers[k] * width + i] == want[i]);
            }
            free(want);
        }
        ssm_energies_free(energies);
        free(found);
        tear_down(&f);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

static ssm_window_score *score(const fixture *f, const ssm_adapt_options *options,
                               int64_t continuation, ssm_pool *pool)
{
    ssm_adapter *adapter = options ? create(f, options) : NULL;
    const ssm_score_options how = {.window = WINDOW,
                                   .windows = WINDOWS,
                                   .offset = CALIBRATION,
                                   .continuation = continuation,
                                   .pool = pool,
                                   .chooser = adapter ? ssm_adapt_chooser(adapter) : NULL};
    ssm_window_score *scores = NULL;
    int64_t count = 0;
    assert_int_equal(
        ssm_score_windows(f->subject.model, &f->subject.corpus, NULL, &how, &scores, &count, NULL),
        SSM_STATUS_OK);
    assert_int_equal(count, DOMAINS * WINDOWS);
    ssm_adapt_free(adapter);
    return scores;
}

static void expect_same(const ssm_window_score *got, const ssm_window_score *want, bool same)
{
    bool equal = true;
    for (int64_t i = 0; i < DOMAINS * WINDOWS; i++) {
        assert_int_equal(got[i].tokens, want[i].tokens);
        equal = equal && got[i].nll == want[i].nll;
    }
    assert_true(equal == same);
}

static void all_modes_kept_is_unpruned(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        fixture f;
        set_up(&f, &cases[c]);
        ssm_window_score *unpruned = score(&f, NULL, -1, NULL);
        for (int k = 0; k < RULES; k++) {
            for (int64_t r = f.config->d_state; is_defined(&f, rules[k]) && r > 0;
                 r -= f.config->d_state - 1) {
                const ssm_adapt_options options = options_of(&f, rules[k], r);
                ssm_window_score *found = score(&f, &options, -1, NULL);
                expect_same(found, unpruned, r == f.config->d_state);
                ssm_scores_free(found);
            }
        }
        ssm_scores_free(unpruned);
        tear_down(&f);
    }
}

/* `half` by hand: the set of the first half, in force from the first token on, and only what comes
 * after the first half is scored. */
static void half_scores_the_second_half_only(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, &cases[0]);
    const ssm_adapt_options options = options_of(&f, "half", 2);
    int64_t tokens = 0;
    assert_int_equal(ssm_adapt_tokens("half", WINDOW, &tokens, NULL), SSM_STATUS_OK);
    assert_int_equal(tokens, 75);
    ssm_window_score *found = score(&f, &options, tokens, NULL);
    ssm_session *session = test_session_create(f.subject.model, NULL, 0);
    for (int64_t i = 0; i < DOMAINS * WINDOWS; i++) {
        const int64_t domain = i / WINDOWS;
        const int32_t *ids = ids_at(&f, domain, CALIBRATION + i % WINDOWS);
        double *scores = naive_scores(&f, "half", domain, CALIBRATION + i % WINDOWS);
        float nll[WINDOW];
        double sum = 0.0;
        ssm_mask mask;
        assert_int_equal(
            ssm_mask_create(f.config->n_layers, f.rows, f.config->d_state, &mask, NULL), 0);
        for (int64_t k = 0; k < f.config->n_layers * f.rows; k++) {
            const double *own = scores + k * f.config->d_state;
            for (int64_t n = 0; n < f.config->d_state; n++) {
                int above = 0;
                for (int64_t j = 0; j < f.config->d_state; j++) {
                    above += own[j] > own[n];
                }
                mask.keep[k * f.config->d_state + n] = above < 2;
            }
        }
        ssm_session_reset(session);
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        assert_int_equal(ssm_session_nll(session, ids, WINDOW, nll, NULL), SSM_STATUS_OK);
        for (int64_t t = 75; t < WINDOW; t++) {
            sum += (double)nll[t - 1];
        }
        assert_int_equal(found[i].tokens, 75);
        assert_true(found[i].nll == sum);
        ssm_mask_free(&mask);
        free(scores);
    }
    ssm_session_free(session);
    ssm_scores_free(found);
    tear_down(&f);
}

static void a_prefix_does_not_see_what_follows(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, &cases[0]);
    const ssm_adapt_options options = options_of(&f, "prefix:64", 2);
    const size_t modes = (size_t)(f.config->n_layers * f.rows * f.config->d_state);
    ssm_adapter *adapter = create(&f, &options);
    const ssm_chooser *chooser = ssm_adapt_chooser(adapter);
    int32_t ids[WINDOW];
    const ssm_mask *mask = NULL;
    uint8_t *keep = malloc(modes);
    assert_non_null(keep);
    memcpy(ids, ids_at(&f, 0, 0), sizeof ids);
    assert_int_equal(chooser->choose(chooser->context, 0, ids, WINDOW, &mask, NULL), 0);
    memcpy(keep, mask->keep, modes);
    for (int t = 64; t < WINDOW; t++) {
        ids[t] = (ids[t] + 5) % (int32_t)f.config->vocab_size;
    }
    assert_int_equal(chooser->choose(chooser->context, 0, ids, WINDOW, &mask, NULL), 0);
    assert_memory_equal(mask->keep, keep, modes);
    ids[63] = (ids[63] + 5) % (int32_t)f.config->vocab_size;
    ids[20] = (ids[20] + 7) % (int32_t)f.config->vocab_size;
    assert_int_equal(chooser->choose(chooser->context, 0, ids, WINDOW, &mask, NULL), 0);
    assert_memory_not_equal(mask->keep, keep, modes);
    free(keep);
    ssm_adapt_free(adapter);
    tear_down(&f);
}

static void threads_do_not_show(void **state)
{
    (void)state;
    ssm_pool *pool = test_pool_create(3);
    for (int c = 0; c < CASES; c += 4) {
        fixture f;
        set_up(&f, &cases[c]);
        ssm_adapt_options options = options_of(&f, "scheduled", 2);
        ssm_window_score *alone = score(&f, &options, -1, NULL);
        options.pool = pool;
        ssm_window_score *together = score(&f, &options, -1, pool);
        expect_same(together, alone, true);
        ssm_scores_free(alone);
        ssm_scores_free(together);
        tear_down(&f);
    }
    ssm_pool_free(pool);
}

/* One pass for both models: the same bits as one after the other. */
static void the_divergence_chooses_likewise(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, &cases[0]);
    const ssm_adapt_options options = options_of(&f, "scheduled", 2);
    const ssm_bootstrap_options bootstrap = {.resamples = 20};
    ssm_adapter *adapter = create(&f, &options);
    const ssm_score_options how = {.window = WINDOW,
                                   .windows = WINDOWS,
                                   .offset = CALIBRATION,
                                   .continuation = -1,
                                   .chooser = ssm_adapt_chooser(adapter)};
    ssm_window_score *alone = score(&f, &options, -1, NULL);
    ssm_window_score *unpruned = score(&f, NULL, -1, NULL);
    ssm_window_score *base = NULL;
    ssm_window_score *pruned = NULL;
    int64_t count = 0;
    ssm_divergence divergence;
    assert_int_equal(ssm_score_divergence(f.subject.model, &f.subject.corpus, NULL, &how,
                                          &bootstrap, &base, &pruned, &count, &divergence, NULL),
                     SSM_STATUS_OK);
    expect_same(pruned, alone, true);
    expect_same(base, unpruned, true);
    assert_true(divergence.kl > 0.0);
    ssm_scores_free(alone);
    ssm_scores_free(unpruned);
    ssm_scores_free(base);
    ssm_scores_free(pruned);
    ssm_adapt_free(adapter);
    tear_down(&f);
}

/* ---- requests that are refused --------------------------------------------------------------- */

static void expect_refused(const fixture *f, ssm_recording *recording, ssm_adapt_options options,
                           const char *part)
{
    ssm_adapter *adapter = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(
        ssm_adapt_create(f->subject.model, &f->subject.corpus, recording, &options, &adapter, &err),
        SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("'%s' does not say '%s'", err.message, part);
    }
    assert_null(adapter);
}

static void requests_that_cannot_be_met_are_refused(void **state)
{
    (void)state;
    fixture f;
    fixture heads;
    set_up(&f, &cases[0]);
    set_up(&heads, &cases[3]);
    ssm_adapt_options o = options_of(&f, "shedule", 2);
    expect_refused(&f, f.recording, o, "there is no rule 'shedule'");
    expect_refused(&f, f.recording, options_of(&f, "prefix:", 2), "'prefix:'");
    expect_refused(&f, f.recording, options_of(&f, "prefix:-3", 2), "'prefix:-3'");
    expect_refused(&f, f.recording, options_of(&f, "half:64", 2), "'half:64'");
    expect_refused(&f, f.recording, options_of(&f, "prefix:0", 2), "prefix:0 chooses on");
    expect_refused(&f, f.recording, options_of(&f, "prefix:150", 2), "a window of 150 (1 … 149)");
    expect_refused(&f, f.recording, options_of(&f, "prefix", 2), "the first 256 tokens");
    expect_refused(&f, f.recording, options_of(&f, "scheduled", 0), "1 … 5; found 0");
    expect_refused(&f, f.recording, options_of(&f, "scheduled", 6), "1 … 5; found 6");
    expect_refused(&f, NULL, options_of(&f, "regime", 2), "rule regime needs a recording");
    expect_refused(&f, heads.recording, options_of(&f, "regime", 2), "the recording is of");
    expect_refused(&f, f.recording, options_of(&f, "prefix-ramp:65", 2), "a multiple of that");
    o = options_of(&f, "prefix-ramp:64", 2);
    o.window = 151;
    expect_refused(&f, f.recording, o, "have 150 tokens, these have 151");
    o = options_of(&f, "scheduled", 2);
    o.scope = "head";
    expect_refused(&f, f.recording, o, "for a channel, or a layer");
    o = options_of(&heads, "prefix-ramp:64", 2);
    expect_refused(&heads, heads.recording, o, "per head, not per channel");
    f.subject.corpus.domains[1].name = "poetry";
    expect_refused(&f, f.recording, options_of(&f, "regime", 2), "'poetry' is not among");
    tear_down(&f);
    tear_down(&heads);
}

static void a_recording_of_some_layers_is_refused(void **state)
{
    (void)state;
    const int64_t layers[] = {0, 2};
    const ssm_record_options options = {
        .window = WINDOW, .calibration_windows = 1, .layers = layers, .n_layers = 2};
    const ssm_record_options evaluation = {.window = WINDOW, .evaluation_windows = 1};
    fixture f;
    char path[2 * TEST_PATH_MAX];
    ssm_recording *partial = NULL;
    set_up(&f, &cases[0]);
    snprintf(path, sizeof path, "%s/partial", f.directory);
    record_into(&f.subject, path, &options);
    assert_int_equal(ssm_recording_open(path, &partial, NULL), SSM_STATUS_OK);
    expect_refused(&f, partial, options_of(&f, "prefix-ramp:64", 2), "layer 1 was not recorded");
    ssm_recording_close(partial);
    snprintf(path, sizeof path, "%s/evaluation", f.directory);
    record_into(&f.subject, path, &evaluation);
    assert_int_equal(ssm_recording_open(path, &partial, NULL), SSM_STATUS_OK);
    expect_refused(&f, partial, options_of(&f, "regime", 2), "the recording has none");
    ssm_recording_close(partial);
    tear_down(&f);
}

static void names_are_parsed(void **state)
{
    (void)state;
    int64_t tokens = -1;
    assert_true(ssm_adapt_is_rule("scheduled") && ssm_adapt_is_rule("prefix:9") &&
                ssm_adapt_is_rule("prefix") && ssm_adapt_is_rule("prefix-ramp:128"));
    assert_false(ssm_adapt_is_rule("static") || ssm_adapt_is_rule("prefix:9x") ||
                 ssm_adapt_is_rule("regime:2") || ssm_adapt_is_rule("") ||
                 ssm_adapt_is_rule("prefix:99999999999999999999"));
    assert_int_equal(ssm_adapt_tokens("prefix", 1024, &tokens, NULL), SSM_STATUS_OK);
    assert_int_equal(tokens, 256);
    assert_int_equal(ssm_adapt_tokens("prefix-ramp:192", 1024, &tokens, NULL), SSM_STATUS_OK);
    assert_int_equal(tokens, 192);
    assert_int_equal(ssm_adapt_tokens("regime", 1024, &tokens, NULL), SSM_STATUS_OK);
    assert_int_equal(tokens, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_keep_what_a_naive_choice_keeps),
        cmocka_unit_test(energies_are_those_of_a_recording),
        cmocka_unit_test(all_modes_kept_is_unpruned),
        cmocka_unit_test(half_scores_the_second_half_only),
        cmocka_unit_test(a_prefix_does_not_see_what_follows),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(the_divergence_chooses_likewise),
        cmocka_unit_test(requests_that_cannot_be_met_are_refused),
        cmocka_unit_test(a_recording_of_some_layers_is_refused),
        cmocka_unit_test(names_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
