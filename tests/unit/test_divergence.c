/* Divergence from the unpruned model: against a naive computation from all logits, one model at a
 * time against several in one pass, and resumed between two of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_numbers.h"
#include "test_place.h"
#include "test_session.h"
#include "test_subject.h"

enum { WINDOW = 150, WINDOWS = 3 };

static const ssm_bootstrap_options few = {.resamples = 100, .seed = 1};

static ssm_corpus open_corpus(const subject *s)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_corpus corpus;
    const char *const argument = TEST_TASK_GOLDEN "/wiki.txt";
    ok(ssm_corpus_open(s->tokenizer, &argument, 1, SSM_INVALID_UTF8_ERROR, &corpus, &err), &err);
    return corpus;
}

/* Keeps the modes whose index leaves `rest` when divided by `step`; step 1: all. */
static ssm_mask create_mask(const subject *s, int64_t step, int64_t rest)
{
    const ssm_config *config = ssm_model_config(s->model);
    const int64_t channels = config->n_heads > 0 ? config->d_ssm : config->d_inner;
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(config->n_layers, channels, config->d_state, &mask, NULL),
                     SSM_STATUS_OK);
    for (int64_t i = 0; i < config->n_layers * channels * config->d_state; i++) {
        mask.keep[i] = i % step == rest;
    }
    return mask;
}

/* ---- against the definition ------------------------------------------------------------------ */

typedef struct naive {
    double kl, agreement, change, squares, kl_max;
    int64_t tokens;
} naive;

static double log_softmax(const float *row, int64_t n, int64_t of)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)row[i] - (double)row[of]);
    }
    return -log(sum);
}

static int64_t most_probable(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

static void add_naive(naive *sums, const float *base, const float *pruned, int64_t n, int32_t next)
{
    const double base_first = log_softmax(base, n, 0);
    const double pruned_first = log_softmax(pruned, n, 0);
    double kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double log_p = base_first + (double)base[i] - (double)base[0];
        const double log_q = pruned_first + (double)pruned[i] - (double)pruned[0];
        kl += exp(log_p) * (log_p - log_q);
    }
    const double change = exp(log_softmax(pruned, n, next)) - exp(log_softmax(base, n, next));
    sums->kl += kl;
    sums->kl_max = kl > sums->kl_max ? kl : sums->kl_max;
    sums->agreement += most_probable(base, n) == most_probable(pruned, n) ? 1.0 : 0.0;
    sums->change += change;
    sums->squares += change * change;
    sums->tokens++;
}

/* KL is kept as float32 and both normalisers are a kernel's, within 1e-7 of the sum. */
static void divergence_is_what_its_formula_says(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    subject s = subject_open(TEST_TINY);
    ssm_corpus corpus = open_corpus(&s);
    ssm_mask mask = create_mask(&s, 2, 0);
    const int64_t n = ssm_model_config(s.model)->vocab_size;
    const int64_t first = 40; /* the first scored token: position 39 predicts it */
    const ssm_score_options options = {.window = WINDOW, .windows = WINDOWS, .continuation = first};
    ssm_session *base = test_session_create(s.model, NULL, 0);
    ssm_session *pruned = test_session_create(s.model, NULL, 0);
    ok(ssm_session_set_mask(pruned, &mask, -1, &err), &err);
    naive sums = {0};
    for (int64_t w = 0; w < WINDOWS; w++) {
        const int32_t *ids = corpus.domains[0].ids.data + w * WINDOW;
        ssm_session_reset(base);
        ssm_session_reset(pruned);
        float *p = test_logits(base, s.model, ids, WINDOW, 0);
        float *q = test_logits(pruned, s.model, ids, WINDOW, 0);
        for (int64_t t = first - 1; t + 1 < WINDOW; t++) {
            add_naive(&sums, p + t * n, q + t * n, n, ids[t + 1]);
        }
        free(p);
        free(q);
    }
    ssm_window_score *a = NULL;
    ssm_window_score *b = NULL;
    int64_t count = 0;
    ssm_divergence d;
    ok(ssm_score_divergence(s.model, &corpus, &mask, &options, &few, &a, &b, &count, &d, &err),
       &err);
    const double tokens = (double)sums.tokens;
    assert_int_equal(d.tokens, sums.tokens);
    near(d.kl, sums.kl / tokens, 1e-6 * d.kl, "KL");
    near(d.kl_max, sums.kl_max, 1e-6 * d.kl_max, "largest KL");
    near(d.agreement, sums.agreement / tokens, 1e-12, "agreement");
    near(d.probability_change, sums.change / tokens, 1e-7, "change of p");
    near(d.probability_change_rms, sqrt(sums.squares / tokens), 1e-7, "root mean square");
    assert_true(d.agreement < 1.0 && d.kl > 1e-3);
    ssm_scores_free(a);
    ssm_scores_free(b);
    ssm_session_free(base);
    ssm_session_free(pruned);
    ssm_mask_free(&mask);
    ssm_corpus_free(&corpus);
    subject_close(&s);
}

/* ---- against passes of each model alone ------------------------------------------------------ */

static void check_divergence(const subject *s, double least)
{
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_config *config = ssm_model_config(s->model);
    ssm_corpus corpus = open_corpus(s);
    const ssm_score_options options = {.window = WINDOW, .windows = WINDOWS, .continuation = -1};
    for (int pruned = 0; pruned < 2; pruned++) {
        ssm_mask mask = create_mask(s, 1 + pruned, 0);
        ssm_window_score *a = NULL;
        ssm_window_score *b = NULL;
        ssm_window_score *alone[2] = {NULL, NULL};
        int64_t count = 0;
        ssm_divergence d;
        ok(ssm_score_divergence(s->model, &corpus, &mask, &options, &few, &a, &b, &count, &d, &err),
           &err);
        ok(ssm_score_windows(s->model, &corpus, NULL, &options, &alone[0], &count, &err), &err);
        ok(ssm_score_windows(s->model, &corpus, &mask, &options, &alone[1], &count, &err), &err);
        assert_int_equal(count, WINDOWS);
        for (int64_t i = 0; i < count; i++) {
            assert_true(a[i].nll == alone[0][i].nll && b[i].nll == alone[1][i].nll);
        }
        assert_int_equal(d.tokens, WINDOWS * (WINDOW - 1));
        if (pruned) {
            assert_true(d.kl > least && d.agreement <= 1.0 && d.agreement > 0.0);
            assert_true(d.kl_interval.lo <= d.kl && d.kl <= d.kl_interval.hi);
            assert_true(d.kl_quantiles[4] <= d.kl_quantiles[8] && d.kl_quantiles[8] <= d.kl_max);
        } else if (config->n_heads == 0) { /* the same model: nothing lies between */
            assert_true(d.kl == 0.0 && d.kl_max == 0.0 && d.agreement == 1.0);
            assert_true(d.probability_change == 0.0 && d.probability_change_rms == 0.0);
        } else {
            /* With a mask Mamba-2 may sum in another order: logits within 2e-6 of their largest. KL
             * is quadratic in that, but both normalisers are rounded: measured 2e-9, times four. */
            assert_true(d.kl < 1e-8 && d.kl_max < 1e-8 && d.agreement > 0.98);
        }
        ssm_scores_free(a);
        ssm_scores_free(b);
        ssm_scores_free(alone[0]);
        ssm_scores_free(alone[1]);
        ssm_mask_free(&mask);
    }
    ssm_corpus_free(&corpus);
}

static void divergence_agrees_with_two_passes(void **state)
{
    (void)state;
    subject s = subject_open(TEST_TINY);
    check_divergence(&s, 1e-3);
    subject_close(&s);
}

/* Mamba-2 runs several tokens in chunks, attention keeps its text: both must not be seen. */
static void other_families_do_the_same(void **state)
{
    static const char *const shapes[] = {"tiny-mamba2", "tiny-mamba2attn", "tiny-falcon-mamba"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        subject s = subject_of_shape(shapes[i], place_path(*state, shapes[i]));
        check_divergence(&s, 0.0);
        subject_close(&s);
    }
}

/* ---- several models in one pass -------------------------------------------------------------- */

/* A chooser that takes turns, so that windows differ. */
typedef struct turns {
    ssm_mask *masks;
    int64_t at;
} turns;

static ssm_status choose_in_turn(void *context, int64_t domain, const int32_t *ids, int64_t count,
                                 const ssm_mask **mask, ssm_error *err)
{
    (void)domain;
    (void)ids;
    (void)count;
    (void)err;
    turns *this = context;
    *mask = &this->masks[this->at++ % 2];
    return SSM_STATUS_OK;
}

typedef struct fixture {
    subject subject;
    ssm_corpus corpus;
    ssm_mask masks[2];
    turns turns;
    ssm_chooser chooser;
    ssm_pruned models[3]; /* a mask, a chooser, all modes */
} fixture;

static void set_up(fixture *f)
{
    *f = (fixture){.subject = subject_open(TEST_TINY)};
    f->corpus = open_corpus(&f->subject);
    f->masks[0] = create_mask(&f->subject, 2, 0);
    f->masks[1] = create_mask(&f->subject, 3, 1);
    f->turns = (turns){.masks = f->masks};
    f->chooser = (ssm_chooser){&f->turns, choose_in_turn};
    f->models[0] = (ssm_pruned){.mask = &f->masks[0], .series = "a"};
    f->models[1] = (ssm_pruned){.chooser = &f->chooser, .series = "b"};
    f->models[2] = (ssm_pruned){.series = "c"};
}

static void tear_down(fixture *f)
{
    ssm_mask_free(&f->masks[0]);
    ssm_mask_free(&f->masks[1]);
    ssm_corpus_free(&f->corpus);
    subject_close(&f->subject);
}

static void free_models(ssm_pruned *models, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        ssm_scores_free(models[i].scores);
    }
}

static void expect_same(const ssm_pruned *a, const ssm_pruned *b)
{
    for (int64_t w = 0; w < WINDOWS; w++) {
        assert_true(a->scores[w].nll == b->scores[w].nll);
        assert_int_equal(a->scores[w].tokens, b->scores[w].tokens);
    }
    assert_memory_equal(&a->divergence, &b->divergence, sizeof a->divergence);
}

static void several_models_have_the_bits_of_each_alone(void **state)
{
    (void)state;
    fixture f;
    ssm_error err;
    ssm_error_clear(&err);
    set_up(&f);
    ssm_pool *pool = test_pool_create(3);
    const ssm_score_options alone = {.window = WINDOW, .windows = WINDOWS, .continuation = -1};
    ssm_score_options together = alone;
    together.pool = pool;
    ssm_window_score *base = NULL;
    int64_t count = 0;
    ok(ssm_score_divergences(f.subject.model, &f.corpus, f.models, 3, &together, &few, &base,
                             &count, &err),
       &err);
    assert_int_equal(count, WINDOWS);
    assert_int_equal(f.turns.at, WINDOWS);
    for (int i = 0; i < 3; i++) {
        ssm_pruned one = f.models[i];
        ssm_window_score *again = NULL;
        f.turns.at = 0;
        ok(ssm_score_divergences(f.subject.model, &f.corpus, &one, 1, &alone, &few, &again, &count,
                                 &err),
           &err);
        expect_same(&f.models[i], &one);
        assert_memory_equal(base, again, WINDOWS * sizeof *base);
        ssm_scores_free(again);
        ssm_scores_free(one.scores);
    }
    assert_true(f.models[2].divergence.kl == 0.0);
    assert_true(f.models[0].divergence.kl > 0.0);
    assert_true(f.models[1].divergence.kl != f.models[0].divergence.kl);
    ssm_scores_free(base);
    free_models(f.models, 3);
    ssm_pool_free(pool);
    tear_down(&f);
}

static void no_model_is_refused(void **state)
{
    (void)state;
    fixture f;
    ssm_window_score *base = NULL;
    int64_t count = 0;
    const ssm_score_options how = {.window = WINDOW, .windows = WINDOWS, .continuation = -1};
    set_up(&f);
    assert_int_equal(ssm_score_divergences(f.subject.model, &f.corpus, f.models, 0, &how, &few,
                                           &base, &count, NULL),
                     SSM_STATUS_USAGE);
    assert_null(base);
    tear_down(&f);
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* The bytes of a file up to the end of its line `lines`; 0: all of it. For free(). */
static char *read_lines(const char *path, int64_t lines, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    assert_true(size > 0);
    rewind(file);
    char *text = malloc((size_t)size);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    *bytes = (size_t)size;
    for (size_t i = 0; lines > 0 && i < (size_t)size; i++) {
        lines -= text[i] == '\n';
        *bytes = i + 1;
    }
    return text;
}

static void write_bytes(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void run_with_journal(fixture *f, const char *path, int64_t resumed)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_journal *journal = NULL;
    ssm_window_score *base = NULL;
    int64_t count = 0;
    ok(ssm_journal_open(path, "work", true, &journal, &err), &err);
    assert_int_equal(ssm_journal_resumed(journal), resumed);
    const ssm_score_options how = {
        .window = WINDOW, .windows = WINDOWS, .continuation = -1, .journal = journal};
    ok(ssm_score_divergences(f->subject.model, &f->corpus, f->models, 2, &how, &few, &base, &count,
                             &err),
       &err);
    ok(ssm_journal_close(journal, true, &err), &err);
    ssm_scores_free(base);
}

/* Three windows of two models are six lines: stopped behind any of them, also between the two
 * models of a window, the end is the same. */
static void a_stopped_pass_resumes_to_the_same_bytes(void **state)
{
    fixture f;
    char path[TEST_PATH_MAX];
    char partial[TEST_PATH_MAX + 16];
    ssm_pruned whole[2];
    size_t bytes;
    size_t kept;
    set_up(&f);
    f.models[1] = (ssm_pruned){.mask = &f.masks[1], .series = "b"};
    snprintf(path, sizeof path, "%s", place_path(*state, "items.jsonl"));
    snprintf(partial, sizeof partial, "%s.partial", path);
    run_with_journal(&f, path, 0);
    memcpy(whole, f.models, sizeof whole);
    char *all = read_lines(path, 0, &bytes);
    for (int64_t lines = 1; lines <= 1 + 2 * WINDOWS; lines++) {
        size_t again;
        char *text = read_lines(path, lines, &kept);
        assert_true(lines == 1 + 2 * WINDOWS ? kept == bytes : kept < bytes);
        write_bytes(partial, text, kept);
        run_with_journal(&f, path, lines - 1);
        free(text);
        text = read_lines(path, 0, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(text, all, bytes);
        expect_same(&f.models[0], &whole[0]);
        expect_same(&f.models[1], &whole[1]);
        free_models(f.models, 2);
        free(text);
    }
    free_models(whole, 2);
    free(all);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergence_is_what_its_formula_says),
        cmocka_unit_test(divergence_agrees_with_two_passes),
        cmocka_unit_test_setup_teardown(other_families_do_the_same, place_set_up, place_tear_down),
        cmocka_unit_test(several_models_have_the_bits_of_each_alone),
        cmocka_unit_test(no_model_is_refused),
        cmocka_unit_test_setup_teardown(a_stopped_pass_resumes_to_the_same_bytes, place_set_up,
                                        place_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
