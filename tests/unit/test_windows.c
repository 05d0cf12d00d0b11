/* Windows counted under several protocols in one pass: the bits of one pass each; the journal. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_paths.h"
#include "test_subject.h"

enum { WINDOW = 70, WINDOWS = 3, PARTS = 3 };

typedef struct fixture {
    subject subject;
    ssm_corpus corpus;
    ssm_mask mask;
    char directory[TEST_PATH_MAX], journal[TEST_PATH_MAX + 32];
} fixture;

static const int64_t starts[PARTS] = {-1, 16, 69};
static const char *const names[PARTS] = {"full/a", "16/a", "69/a"};

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    ssm_error err;
    ssm_error_clear(&err);
    assert_non_null(f);
    f->subject = subject_open(TEST_TINY);
    const char *const argument = TEST_TASK_GOLDEN "/wiki.txt";
    ok(ssm_corpus_open(f->subject.tokenizer, &argument, 1, SSM_INVALID_UTF8_ERROR, &f->corpus,
                       &err),
       &err);
    const ssm_config *c = ssm_model_config(f->subject.model);
    ok(ssm_mask_create(c->n_layers, c->d_inner, c->d_state, &f->mask, &err), &err);
    for (int64_t i = 0; i < c->n_layers * c->d_inner * c->d_state; i++) {
        f->mask.keep[i] = i % 3 != 0;
    }
    test_make_directory(f->directory);
    snprintf(f->journal, sizeof f->journal, "%s/windows", f->directory);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ssm_mask_free(&f->mask);
    ssm_corpus_free(&f->corpus);
    subject_close(&f->subject);
    test_remove_directory(f->directory);
    free(f);
    return 0;
}

static ssm_score_options options_of(ssm_journal *journal)
{
    /* What the parts have of their own is not looked at. */
    return (ssm_score_options){.window = WINDOW,
                               .windows = WINDOWS,
                               .offset = 1,
                               .continuation = 5,
                               .journal = journal,
                               .series = "not looked at"};
}

static void score_parts(const fixture *f, const ssm_mask *mask, ssm_journal *journal,
                        ssm_score_part parts[PARTS])
{
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_score_options options = options_of(journal);
    int64_t count = 0;
    for (int i = 0; i < PARTS; i++) {
        parts[i] = (ssm_score_part){.continuation = starts[i], .series = names[i]};
    }
    ok(ssm_score_parts(f->subject.model, &f->corpus, mask, &options, parts, PARTS, &count, &err),
       &err);
    assert_int_equal(count, WINDOWS);
}

static void free_parts(ssm_score_part parts[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        ssm_scores_free(parts[i].scores);
    }
}

static void parts_are_passes_of_their_own(void **state)
{
    const fixture *f = *state;
    const ssm_mask *const masks[] = {NULL, &f->mask};
    for (int m = 0; m < 2; m++) {
        ssm_score_part parts[PARTS];
        score_parts(f, masks[m], NULL, parts);
        for (int i = 0; i < PARTS; i++) {
            ssm_score_options options = options_of(NULL);
            options.continuation = starts[i];
            ssm_window_score *alone = NULL;
            int64_t count = 0;
            assert_int_equal(ssm_score_windows(f->subject.model, &f->corpus, masks[m], &options,
                                               &alone, &count, NULL),
                             SSM_STATUS_OK);
            assert_int_equal(count, WINDOWS);
            for (int64_t w = 0; w < count; w++) {
                assert_true(alone[w].nll == parts[i].scores[w].nll);
                assert_int_equal(alone[w].tokens, parts[i].scores[w].tokens);
                assert_int_equal(alone[w].domain, 0);
            }
            assert_int_equal(alone[0].tokens, WINDOW - (starts[i] < 0 ? 1 : starts[i]));
            ssm_scores_free(alone);
        }
        assert_true(parts[0].scores[0].nll > parts[1].scores[0].nll);
        free_parts(parts);
    }
}

/* Lines that are there are taken, whatever they say, and only the others are scored. */
static void the_journal_has_a_line_a_part(void **state)
{
    const fixture *f = *state;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_journal *journal = NULL;
    char partial[TEST_PATH_MAX + 64];
    snprintf(partial, sizeof partial, "%s.partial", f->journal);
    FILE *file = fopen(partial, "w");
    assert_non_null(file);
    fputs("{\"schema\":\"ssmscope.journal/1\",\"work\":\"w\"}\n"
          "{\"series\":\"16/a\",\"index\":1,\"nll\":4.5,\"tokens\":54}\n",
          file);
    assert_int_equal(fclose(file), 0);
    ssm_score_part plain[PARTS], resumed[PARTS], again[PARTS];
    score_parts(f, &f->mask, NULL, plain);
    ok(ssm_journal_open(f->journal, "w", true, &journal, &err), &err);
    score_parts(f, &f->mask, journal, resumed);
    ok(ssm_journal_close(journal, false, &err), &err);
    for (int i = 0; i < PARTS; i++) {
        for (int w = 0; w < WINDOWS; w++) {
            const bool taken = i == 1 && w == 1;
            assert_true(resumed[i].scores[w].nll == (taken ? 4.5 : plain[i].scores[w].nll));
            assert_int_equal(resumed[i].scores[w].tokens, plain[i].scores[w].tokens);
        }
    }
    /* Now all lines are there. */
    ok(ssm_journal_open(f->journal, "w", true, &journal, &err), &err);
    assert_int_equal(ssm_journal_resumed(journal), PARTS * WINDOWS);
    score_parts(f, NULL, journal, again); /* another mask: nothing is scored */
    ok(ssm_journal_close(journal, true, &err), &err);
    for (int i = 0; i < PARTS; i++) {
        assert_memory_equal(again[i].scores, resumed[i].scores, WINDOWS * sizeof *again[i].scores);
    }
    free_parts(plain);
    free_parts(resumed);
    free_parts(again);
}

static void a_part_outside_the_window_is_refused(void **state)
{
    const fixture *f = *state;
    const ssm_score_options options = options_of(NULL);
    ssm_score_part parts[] = {{.continuation = -1}, {.continuation = WINDOW}};
    int64_t count = 1;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(
        ssm_score_parts(f->subject.model, &f->corpus, NULL, &options, parts, 2, &count, &err),
        SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "does not lie inside a window of 70"));
    assert_null(parts[0].scores);
    assert_null(parts[1].scores);
    assert_int_equal(count, 0);
}

static void windows_are_counted_as_they_are_scored(void **state)
{
    const fixture *f = *state;
    ssm_score_options options = options_of(NULL);
    int64_t count = 0;
    assert_int_equal(ssm_score_count(&f->corpus, &options, &count, NULL), SSM_STATUS_OK);
    assert_int_equal(count, WINDOWS);
    options.windows = 0;
    assert_int_equal(ssm_score_count(&f->corpus, &options, &count, NULL), SSM_STATUS_OK);
    assert_int_equal(count, f->corpus.domains[0].ids.count / WINDOW - 1);
    options.offset = 1 << 20;
    assert_int_equal(ssm_score_count(&f->corpus, &options, &count, NULL), SSM_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_passes_of_their_own),
        cmocka_unit_test(the_journal_has_a_line_a_part),
        cmocka_unit_test(a_part_outside_the_window_is_refused),
        cmocka_unit_test(windows_are_counted_as_they_are_scored),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
