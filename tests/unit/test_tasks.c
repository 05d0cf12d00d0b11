/* Continuations, tasks, rolling windows: by hand, and cut in other ways. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "test_place.h"
#include "test_subject.h"

static const char *write_file(place *here, const char *name, const char *text, size_t bytes)
{
    const char *path = place_path(here, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* ---- one by one, in batches, cut differently --------------------------------------------------
 */

static void check_one_by_one(const subject *s)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_scorer *scorer = NULL;
    const ssm_scorer_options options = {.max_length = 24, .prefix_id = s->prefix};
    const char *const many[] = {" door", " the old house by the river and the sea", " a", " door",
                                "  two blanks"};
    static const char *const contexts[] = {
        "The man went to the", "", "  ", "The man went to the ",
        ("One of the longer contexts, which does not fit into the twenty-four tokens that an input "
         "may have here, so that it loses its beginning for the long continuation and not for "
         "all")};
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
        ssm_continuation_score together[5];
        ok(ssm_scorer_create(s->model, s->tokenizer, NULL, &options, &scorer, &err), &err);
        ok(ssm_scorer_score(scorer, contexts[c], many, 5, together, &err), &err);
        ssm_scorer_free(scorer);
        for (int i = 0; i < 5; i++) {
            ssm_continuation_score alone;
            ok(ssm_scorer_create(s->model, s->tokenizer, NULL, &options, &scorer, &err), &err);
            ok(ssm_scorer_score(scorer, contexts[c], many + i, 1, &alone, &err), &err);
            ssm_scorer_free(scorer);
            assert_true(alone.log_likelihood == together[i].log_likelihood);
            assert_int_equal(alone.tokens, together[i].tokens);
            assert_int_equal(alone.truncated, together[i].truncated);
            assert_int_equal(alone.greedy, together[i].greedy);
        }
        assert_true(together[0].log_likelihood == together[3].log_likelihood);
        assert_int_equal(together[1].truncated > 0, c == 4);
    }
}

/* The sum over a continuation is the sum of the text's own negative log-likelihoods. */
static void a_continuation_scores_as_the_text_does(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    subject s = subject_open(TEST_TINY);
    ssm_ids ids = {0};
    ssm_ids context = {0};
    ssm_session *session = NULL;
    ssm_scorer *scorer = NULL;
    static const char whole[] = "The man went to the door of the house";
    const char *const rest = " door of the house";
    ok(ssm_tokenizer_encode(s.tokenizer, whole, strlen(whole), &(ssm_encode_options){0}, &ids,
                            &err),
       &err);
    ok(ssm_tokenizer_encode(s.tokenizer, whole, strlen(whole) - strlen(rest),
                            &(ssm_encode_options){0}, &context, &err),
       &err);
    float nll[64];
    assert_true(ids.count < 64);
    ok(ssm_session_create(s.model, &(ssm_session_options){0}, &session, &err), &err);
    ok(ssm_session_nll(session, ids.data, ids.count, nll, &err), &err);
    double sum = 0.0;
    for (int64_t t = context.count; t < ids.count; t++) {
        sum -= (double)nll[t - 1];
    }
    ssm_continuation_score score;
    const ssm_scorer_options options = {.max_length = 2048, .prefix_id = -1};
    ok(ssm_scorer_create(s.model, s.tokenizer, NULL, &options, &scorer, &err), &err);
    ok(ssm_scorer_score(scorer, "The man went to the", &rest, 1, &score, &err), &err);
    assert_int_equal(score.tokens, ids.count - context.count);
    near(score.log_likelihood, sum, 1e-5, "continuation"); /* nll is rounded to float32 */
    /* Without a prefix an empty context has nothing to begin with. */
    assert_int_equal(ssm_scorer_score(scorer, "", &rest, 1, &score, &err), SSM_STATUS_USAGE);
    ssm_scorer_free(scorer);
    ssm_session_free(session);
    ssm_ids_free(&ids);
    ssm_ids_free(&context);
    subject_close(&s);
}

/* ---- rolling windows by hand ----------------------------------------------------------------- */

static double rolling_of(const subject *s, const char *text, int64_t max_length, int32_t prefix,
                         bool stateful, int64_t *tokens)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_document document = {.text = (char *)(uintptr_t)text, .text_bytes = strlen(text)};
    const ssm_documents documents = {&document, 1};
    ssm_document_score *scores = NULL;
    const ssm_rolling_options options = {
        .max_length = max_length, .prefix_id = prefix, .stateful = stateful};
    ok(ssm_score_documents(s->model, s->tokenizer, NULL, &documents, &options, &scores, &err),
       &err);
    const double sum = scores[0].log_likelihood;
    *tokens = scores[0].tokens;
    ssm_document_scores_free(scores);
    return sum;
}

/* −Σ nll of targets ids[first … count − 1] after ids[0 … first − 1]. */
static double sum_after(const subject *s, const int32_t *ids, int64_t first, int64_t count)
{
    ssm_error err;
    ssm_error_clear(&err);
    ssm_session *session = NULL;
    float nll[256];
    ok(ssm_session_create(s->model, &(ssm_session_options){0}, &session, &err), &err);
    ok(ssm_session_nll(session, ids, count, nll, &err), &err);
    double sum = 0.0;
    for (int64_t t = first; t < count; t++) {
        sum -= (double)nll[t - 1];
    }
    ssm_session_free(session);
    return sum;
}

static void windows_score_every_token_once(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    subject s = subject_open(TEST_TINY);
    static const char text[] = "In the beginning the house was empty, and the man who came to it "
                               "by the river road said nothing of the night before.";
    ssm_ids ids = {0};
    int32_t with[256] = {s.prefix};
    ok(ssm_tokenizer_encode(s.tokenizer, text, strlen(text), &(ssm_encode_options){0}, &ids, &err),
       &err);
    const int64_t n = ids.count;
    assert_true(n > 20 && n < 200);
    memcpy(with + 1, ids.data, (size_t)n * sizeof *with);
    int64_t tokens;
    /* All in one window, exactly and with room. */
    const double whole = sum_after(&s, with, 1, n + 1);
    near(rolling_of(&s, text, n, s.prefix, false, &tokens), whole, 1e-12, "one window");
    assert_int_equal(tokens, n);
    near(rolling_of(&s, text, 2048, s.prefix, false, &tokens), whole, 1e-12, "room");
    near(rolling_of(&s, text, 5, s.prefix, true, &tokens), whole, 1e-12, "stateful");
    /* One token more than fits: the second window predicts that token with all the context that
     * fits, from the first token of the text on. */
    const double two = sum_after(&s, with, 1, n) + sum_after(&s, with + 1, n - 1, n);
    near(rolling_of(&s, text, n - 1, s.prefix, false, &tokens), two, 1e-12, "one too many");
    assert_int_equal(tokens, n);
    /* Windows of 8: prefix + 8; then each with one token of context; the last one filled up. */
    double sum = sum_after(&s, with, 1, 9);
    int64_t done = 8;
    for (; done + 8 <= n; done += 8) {
        sum += sum_after(&s, with + done, 1, 9);
    }
    if (done < n) {
        sum += sum_after(&s, with + n - 8, 9 - (n - done), 9);
    }
    near(rolling_of(&s, text, 8, s.prefix, false, &tokens), sum, 1e-12, "windows of 8");
    assert_int_equal(tokens, n);
    /* Without a prefix the first token is context only. */
    near(rolling_of(&s, text, 2048, -1, false, &tokens), sum_after(&s, ids.data, 1, n), 1e-12,
         "no prefix");
    assert_int_equal(tokens, n - 1);
    ssm_ids_free(&ids);
    subject_close(&s);
}

static void wikitext_is_detokenised_as_in_the_harness(void **state)
{
    (void)state;
    static const struct {
        const char *page, *text;
    } cases[] = {
        {" = A = \n \n The kings ' 1 @,@ 000 men , half @-@ dead . ",
         " = A =\n\nThe kings' 1,000 men, half-dead. "},
        {"he said \" yes \" ( or  no ) [ x ] { y }", "he said \"yes\" (or  no) [x] {y}"},
        {"= = B = =\n it 's N times ; 3 @.@ 5 \u00b0 C : so ! why ? ",
         "== B ==\nit's 1 times; 3.5\u00b0C: so! why? "},
        {"= = = = C", "==== C"},
        {"/' 5/", "/'[0-9]/"},
        {"( open", "( open"},
        {"(   )", "()"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ssm_text out = {0};
        assert_int_equal(ssm_wikitext_detokenize(cases[i].page, strlen(cases[i].page), &out, NULL),
                         SSM_STATUS_OK);
        assert_string_equal(out.data, cases[i].text);
        ssm_text_free(&out);
    }
}

/* The pages of the test set as the data set of the harness has them: 62, and what
 * len(re.split(r"\\s+", page)) and the bytes of UTF-8 come to. */
static void wikitext_2_has_62_pages(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/text/wikitext-2-raw-test.txt")) {
        skip();
    }
    ssm_error err;
    ssm_error_clear(&err);
    ssm_documents documents;
    ssm_text_file file = {.domain = (char *)(uintptr_t) "wiki", .path = path};
    ssm_domain domain = {.name = file.domain};
    const ssm_corpus corpus = {.files = &file, .n_files = 1, .domains = &domain, .n_domains = 1};
    ok(ssm_documents_open(&corpus, SSM_DOCUMENTS_WIKITEXT, &documents, &err), &err);
    int64_t words = 0;
    int64_t bytes = 0;
    for (int64_t i = 0; i < documents.count; i++) {
        words += documents.items[i].words;
        bytes += documents.items[i].bytes;
    }
    assert_int_equal(documents.count, 62);
    assert_int_equal(words, 241335);
    assert_int_equal(bytes, 1290527);
    ssm_documents_free(&documents);
}

/* ---- statistics by hand ---------------------------------------------------------------------- */

static void errors_are_those_of_the_formulas(void **state)
{
    (void)state;
    ssm_continuation_score lls[4] = {{.log_likelihood = -1},
                                     {.log_likelihood = -2},
                                     {.log_likelihood = -3},
                                     {.log_likelihood = -6}};
    ssm_task_score scores[4];
    for (int i = 0; i < 4; i++) {
        scores[i] = (ssm_task_score){.n_choices = 1, .choices = &lls[i]};
        scores[i].right[SSM_METRIC_ACC] = i != 2;
    }
    const ssm_bootstrap_options few = {.resamples = 2000, .seed = 3};
    ssm_task_result result;
    assert_int_equal(ssm_task_result_of(scores, 4, SSM_METRIC_ACC, &few, 0, &result, NULL),
                     SSM_STATUS_OK);
    assert_true(result.value == 0.75);
    near(result.stderr_, sqrt(0.75 / 3.0) / 2.0, 1e-15, "stderr of 1, 1, 0, 1");
    assert_true(result.interval.lo >= 0.0 && result.interval.lo <= 0.5 &&
                result.interval.hi == 1.0);
    assert_int_equal(ssm_task_result_of(scores, 4, SSM_METRIC_PERPLEXITY, &few, 0, &result, NULL),
                     SSM_STATUS_OK);
    near(result.value, exp(3.0), 1e-12, "perplexity");
    assert_true(isnan(result.stderr_));
    /* Python: random.Random(0).choices draws; sd of exp(3 resamples) by lm_eval's formula. */
    assert_int_equal(ssm_task_result_of(scores, 4, SSM_METRIC_PERPLEXITY, &few, 3, &result, NULL),
                     SSM_STATUS_OK);
    near(result.stderr_, 14.972494262565142, 1e-9, "bootstrapped stderr");
    assert_int_equal(ssm_task_result_of(scores, 0, SSM_METRIC_ACC, &few, 0, &result, NULL),
                     SSM_STATUS_USAGE);
}

static void differences_are_paired(void **state)
{
    (void)state;
    ssm_continuation_score ll = {0};
    ssm_task_score a[5];
    ssm_task_score b[5];
    static const bool right[2][5] = {{true, true, false, false, true},
                                     {true, false, false, true, false}};
    for (int i = 0; i < 5; i++) {
        a[i] = (ssm_task_score){.n_choices = 1, .choices = &ll};
        b[i] = a[i];
        a[i].right[SSM_METRIC_ACC] = right[0][i];
        b[i].right[SSM_METRIC_ACC] = right[1][i];
    }
    const ssm_bootstrap_options few = {.resamples = 500, .seed = 3};
    ssm_task_difference d;
    assert_int_equal(ssm_task_difference_of(a, b, 5, SSM_METRIC_ACC, &few, &d, NULL),
                     SSM_STATUS_OK);
    near(d.value, -0.2, 1e-15, "difference");
    /* Differences 0, −1, 0, 1, −1: mean −0.2, squares sum 2.8. */
    near(d.stderr_, sqrt(2.8 / 4.0 / 5.0), 1e-15, "paired stderr");
    assert_int_equal(d.both_right, 1);
    assert_int_equal(d.only_base, 2);
    assert_int_equal(d.only_other, 1);
    assert_int_equal(d.both_wrong, 1);
    /* A model against itself has no difference in any resample. */
    assert_int_equal(ssm_task_difference_of(a, a, 5, SSM_METRIC_ACC, &few, &d, NULL),
                     SSM_STATUS_OK);
    assert_true(d.value == 0.0 && d.stderr_ == 0.0 && d.interval.lo == 0.0 && d.interval.hi == 0.0);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void general_items_read_as_the_harness_writes_them(void **state)
{
    place *here = *state;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_task *task = NULL;
    ssm_task_data data;
    static const char lines[] =
        "{\"query\": \" Question: why?\\n\", \"choices\": [\"so\", \"not\"], \"gold\": 1}\n"
        "  \r\n"
        "{\"query\": \"Question: how?\\nAnswer:\", \"choices\": [\"é\", \"bb\"], \"gold\": 0}";
    ok(ssm_task_find("piqa", &task, &err), &err);
    ok(ssm_task_read(task, write_file(here, "general", lines, sizeof lines - 1), 0, &data, &err),
       &err);
    assert_int_equal(data.count, 2);
    assert_string_equal(data.items[0].contexts[0], "Question: why?\nAnswer:");
    assert_string_equal(data.items[1].contexts[0], "Question: how?\nAnswer:");
    assert_string_equal(data.items[0].continuations[1], " not");
    assert_int_equal(data.items[0].gold, 1);
    assert_int_equal(data.items[1].line, 3);
    ssm_task_data_free(&data);
    ok(ssm_task_read(task, place_path(here, "general"), 1, &data, &err), &err);
    assert_int_equal(data.count, 1);
    assert_int_equal(data.total, 2);
    ssm_task_data_free(&data);
}

static void broken_data_is_named_by_its_line(void **state)
{
    place *here = *state;
    static const struct {
        const char *task, *text, *says;
    } cases[] = {
        {"lambada", "{\"text\": \"a b\"}\n{\"text\": \n", "line 2: not valid JSON"},
        {"lambada", "{\"text\": \"a b\"}\n[1]\n", "line 2: expected an object with text"},
        {"lambada", "{\"txt\": \"a b\"}\n", "line 1: expected a string \"text\""},
        {"lambada", "{\"text\": \"a b \"}\n", "line 1: text ends with a blank"},
        {"lambada", "\n \n", "has no items"},
        {"lambada", "", "has no items"},
        {"lambada", "{\"text\": \"a \xff\"}\n", "line 1: not UTF-8 at its byte 12"},
        {"piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\"}\n",
         "line 1: the item has no"},
        {"piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": -1}\n", "no gold"},
        {"piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 2}\n",
         "\"label\" is 2, but there are 2 choices"},
        {"piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"\", \"label\": 0}\n",
         "line 1: choice 1 has no characters"},
        {"piqa", "{\"query\": \"g\", \"choices\": [], \"gold\": 0}\n", "a list of strings"},
        {"arc_easy",
         "{\"question\": \"q\", \"choices\": {\"text\": [\"a\"], \"label\": [\"A\"]}, "
         "\"answerKey\": \"B\"}\n",
         "answerKey \"B\" is not one of"},
        {"arc_easy", "{\"question\": \"q\", \"choices\": {\"text\": [\"a\"], \"label\": []}}\n",
         "list of strings \"label\""},
        {"winogrande",
         "{\"sentence\": \"no blank\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": "
         "\"1\"}\n",
         "no '_'"},
        {"winogrande",
         "{\"sentence\": \"the _ is\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": \"\"}\n",
         "no gold"},
        {"hellaswag",
         "{\"activity_label\": \"a\", \"ctx_a\": \"b\", \"ctx_b\": \"\", \"endings\": [\"[x]\"], "
         "\"label\": \"0\"}\n",
         "choice 0 has no characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ssm_error err;
        ssm_error_clear(&err);
        const ssm_task *task = NULL;
        ssm_task_data data;
        ok(ssm_task_find(cases[i].task, &task, &err), &err);
        const char *path = write_file(here, "broken", cases[i].text, strlen(cases[i].text));
        assert_int_equal(ssm_task_read(task, path, 0, &data, &err), SSM_STATUS_FILE);
        if (!strstr(err.message, cases[i].says) || strcmp(err.file, path) != 0) {
            fail_msg("\"%s\" of %s does not say \"%s\"", err.message, err.file, cases[i].says);
        }
    }
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_task *task = NULL;
    assert_int_equal(ssm_task_find("hellaswga", &task, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "did you mean 'hellaswag'"));
}

/* ---- the journal ----------------------------------------------------------------------------- */

typedef struct stopper {
    int64_t at;
} stopper;

static bool stop(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    (void)what;
    (void)total;
    (void)unit;
    return done != ((stopper *)context)->at;
}

static void an_interrupted_task_resumes_to_the_same_bits(void **state)
{
    place *here = *state;
    ssm_error err;
    ssm_error_clear(&err);
    subject s = subject_open(TEST_TINY);
    const ssm_task *task = NULL;
    ssm_task_data data;
    ssm_task_score *whole = NULL;
    ssm_task_score *resumed = NULL;
    ssm_journal *journal = NULL;
    ok(ssm_task_find("piqa", &task, &err), &err);
    ok(ssm_task_read(task, TEST_TASK_GOLDEN "/piqa.jsonl", 8, &data, &err), &err);
    ssm_task_options options = {.scorer = {.max_length = 64, .prefix_id = s.prefix},
                                .series = "unpruned"};
    ok(ssm_task_run(s.model, s.tokenizer, NULL, &data, &options, &whole, &err), &err);
    stopper third = {3};
    const ssm_progress progress = {&third, stop};
    options.progress = &progress;
    char path[TEST_PATH_MAX]; /* place_path keeps one at a time */
    snprintf(path, sizeof path, "%s", place_path(here, "items.jsonl"));
    ok(ssm_journal_open(path, "work", false, &journal, &err), &err);
    options.journal = journal;
    assert_int_equal(ssm_task_run(s.model, s.tokenizer, NULL, &data, &options, &resumed, &err),
                     SSM_STATUS_INTERRUPTED);
    ssm_error_clear(&err);
    ok(ssm_journal_close(journal, false, &err), &err);
    struct stat info;
    assert_int_not_equal(stat(path, &info), 0); /* nothing under the name yet */
    /* A line that was being written when the power went. */
    FILE *file = fopen(place_path(here, "items.jsonl.partial"), "ab");
    assert_non_null(file);
    fputs("{\"series\": \"unpr", file);
    fclose(file);
    assert_int_equal(ssm_journal_open(path, "other work", true, &journal, &err), SSM_STATUS_FILE);
    ssm_error_clear(&err);
    ok(ssm_journal_open(path, "work", true, &journal, &err), &err);
    assert_int_equal(ssm_journal_resumed(journal), 3);
    options.journal = journal;
    options.progress = NULL;
    ok(ssm_task_run(s.model, s.tokenizer, NULL, &data, &options, &resumed, &err), &err);
    ok(ssm_journal_close(journal, true, &err), &err);
    assert_int_equal(stat(path, &info), 0);
    assert_int_not_equal(stat(place_path(here, "items.jsonl.partial"), &info), 0);
    for (int64_t i = 0; i < data.count; i++) {
        for (int k = 0; k < 2; k++) {
            assert_true(whole[i].choices[k].log_likelihood == resumed[i].choices[k].log_likelihood);
        }
        assert_int_equal(whole[i].right[SSM_METRIC_ACC_NORM],
                         resumed[i].right[SSM_METRIC_ACC_NORM]);
    }
    ssm_task_scores_free(whole, data.count);
    ssm_task_scores_free(resumed, data.count);
    ssm_task_data_free(&data);
    subject_close(&s);
}

/* ---- the same of every family ------------------------------------------------------------------
 */

static void continuations_of_a_context_score_as_one_by_one(void **state)
{
    (void)state;
    subject s = subject_open(TEST_TINY);
    check_one_by_one(&s);
    subject_close(&s);
}

/* Mamba-2 runs several tokens in chunks, attention keeps its text: both must not be seen. */
static void other_families_do_the_same(void **state)
{
    static const char *const shapes[] = {"tiny-mamba2", "tiny-mamba2attn", "tiny-falcon-mamba"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        subject s = subject_of_shape(shapes[i], place_path(*state, shapes[i]));
        check_one_by_one(&s);
        subject_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continuations_of_a_context_score_as_one_by_one),
        cmocka_unit_test_setup_teardown(other_families_do_the_same, place_set_up, place_tear_down),
        cmocka_unit_test(a_continuation_scores_as_the_text_does),
        cmocka_unit_test(windows_score_every_token_once),
        cmocka_unit_test(wikitext_is_detokenised_as_in_the_harness),
        cmocka_unit_test(wikitext_2_has_62_pages),
        cmocka_unit_test(errors_are_those_of_the_formulas),
        cmocka_unit_test(differences_are_paired),
        cmocka_unit_test_setup_teardown(general_items_read_as_the_harness_writes_them, place_set_up,
                                        place_tear_down),
        cmocka_unit_test_setup_teardown(broken_data_is_named_by_its_line, place_set_up,
                                        place_tear_down),
        cmocka_unit_test_setup_teardown(an_interrupted_task_resumes_to_the_same_bits, place_set_up,
                                        place_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
