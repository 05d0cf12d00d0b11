/* Tasks that read files: language modelling, classification, shuffles without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_paths.h"
#include "test_task.h"
#include "train/tasks/text.h"

enum { PATH = TEST_PATH_MAX + 32, WORDS = 4 * TEST_PATH_MAX };

typedef struct files {
    char directory[TEST_PATH_MAX];
    char text[PATH], other[PATH], lines[PATH], more_lines[PATH];
} files;

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static files make_files(void)
{
    files out;
    test_make_directory(out.directory);
    snprintf(out.text, sizeof out.text, "%s/text.txt", out.directory);
    snprintf(out.other, sizeof out.other, "%s/other.txt", out.directory);
    snprintf(out.lines, sizeof out.lines, "%s/lines.tsv", out.directory);
    snprintf(out.more_lines, sizeof out.more_lines, "%s/more.tsv", out.directory);
    write_file(out.text, "abcdefghij");
    write_file(out.other, "0123456789ABCDEF");
    write_file(out.lines, "sad\tone\nglad\ttwo\r\n\nmad\tthree\nsad\tfour");
    write_file(out.more_lines, "mad\tfive\nglad\tsix\n");
    return out;
}

static ssm_train_task *task_of(const char *name, uint64_t seed, const char *format, ...)
    SSM_PRINTF(3, 4);
static ssm_train_task *task_of(const char *name, uint64_t seed, const char *format, ...)
{
    char words[WORDS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return test_task(name, words, seed);
}

static void expect_refusal(const char *name, ssm_status expected, const char *part,
                           const char *format, ...) SSM_PRINTF(4, 5);
static void expect_refusal(const char *name, ssm_status expected, const char *part,
                           const char *format, ...)
{
    char words[WORDS];
    ssm_error err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    const ssm_status status = test_task_status(name, words, &err);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("%s %s: status %d, \"%s\" lacks \"%s\"", name, words, (int)status, err.message,
                 part);
    }
}

static void expect_row(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b,
                       const char *ids, const char *labels)
{
    char text[256];
    test_task_ids(task, batch, b, text, sizeof text);
    assert_string_equal(text, ids);
    test_task_labels(task, batch, b, text, sizeof text);
    assert_string_equal(text, labels);
}

/* ---- language -------------------------------------------------------------------------------- */

/* Ten bytes, half of them held out, in windows of two: by hand. */
static void evaluation_windows(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task = task_of("language", 0, "text=%s held_out=50 length=2", at.text);
    assert_int_equal(ssm_train_task_info(task)->vocab_size, 256);
    assert_int_equal(ssm_train_task_example_count(task, 2), 2); /* fgh, hij */
    assert_int_equal(ssm_train_task_example_count(task, 4), 1);
    assert_int_equal(ssm_train_task_example_count(task, 5), 0);
    ssm_train_batch batch = test_task_examples(task, 2, 0, 3);
    expect_row(task, &batch, 0, "fg", "gh");
    expect_row(task, &batch, 1, "hi", "ij");
    assert_int_equal(batch.used[2], 0); /* beyond the text */
    assert_int_equal(batch.labels[4], -1);
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);

    /* Two domains with texts of their own for evaluation: nothing is held out. */
    task = task_of("language", 0, "text=%s evaluation=a=%s evaluation=b=%s length=4", at.text,
                   at.other, at.text);
    assert_int_equal(ssm_train_task_example_count(task, 6), 2 + 1);
    batch = test_task_examples(task, 6, 0, 3);
    expect_row(task, &batch, 0, "012345", "123456");
    expect_row(task, &batch, 1, "6789AB", "789ABC");
    expect_row(task, &batch, 2, "abcdef", "bcdefg");
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

/* An epoch of windows of three from ten and sixteen bytes: 3 + 5 of them, each the text from its
 * place on, and every one once. */
static void epochs(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task =
        task_of("language", 5, "text=%s text=%s held_out=0 length=3", at.text, at.other);
    const char *const texts[] = {"abcdefghij", "0123456789ABCDEF"};
    int64_t orders = 0;
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        ssm_train_batch batch = test_task_rows(task, epoch * 8, 8);
        int64_t seen[2] = {0};
        bool starts[2][16] = {{false}};
        for (int64_t b = 0; b < 8; b++) {
            char ids[64];
            test_task_ids(task, &batch, b, ids, sizeof ids);
            const int of = ids[0] >= 'a' ? 0 : 1;
            const char *found = strstr(texts[of], ids);
            assert_non_null(found);
            char labels[64];
            test_task_labels(task, &batch, b, labels, sizeof labels);
            assert_memory_equal(labels, found + 1, 3);
            seen[of]++;
            orders += b == 0 && of == 0;
            const int64_t start = found - texts[of];
            assert_false(starts[of][start] && start != (of == 0 ? 6 : 12));
            starts[of][start] = true;
        }
        assert_int_equal(seen[0], 3);
        assert_int_equal(seen[1], 5);
        ssm_train_batch_free(&batch);
    }
    assert_true(orders > 1 && orders < 19); /* the order differs between epochs: 3/8 expected */
    ssm_train_task_free(task);

    /* Random windows: all 7 + 13 places come. */
    task = task_of("language", 5, "text=%s text=%s held_out=0 length=3 order=random", at.text,
                   at.other);
    ssm_train_batch batch = test_task_rows(task, 0, 4000);
    int64_t counts[20] = {0};
    double expected[20];
    for (int64_t b = 0; b < 4000; b++) {
        const int32_t first = batch.ids[b * 3];
        const char *digit = strchr(texts[1], first);
        counts[first >= 'a' ? first - 'a' : 7 + (digit - texts[1])]++;
    }
    for (int i = 0; i < 20; i++) {
        expected[i] = 200;
    }
    assert_true(test_chi_square(counts, expected, 20) < 43.8); /* 19 degrees of freedom, 0.001 */
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

/* Domains take turns; each goes through its own windows, every one once an epoch. */
static void even_shares(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task =
        task_of("language", 5, "text=%s text=%s held_out=0 length=3 order=even", at.text, at.other);
    const char *const texts[] = {"abcdefghij", "0123456789ABCDEF"};
    const int64_t windows[] = {3, 5};
    int64_t orders[2] = {0};
    for (int64_t of = 0; of < 2; of++) {
        for (int64_t epoch = 0; epoch < 20; epoch++) {
            bool starts[16] = {false};
            for (int64_t turn = 0; turn < windows[of]; turn++) {
                const int64_t number = 2 * (epoch * windows[of] + turn) + of;
                ssm_train_batch batch = test_task_rows(task, number, 1);
                char ids[64];
                test_task_ids(task, &batch, 0, ids, sizeof ids);
                const char *found = strstr(texts[of], ids);
                assert_non_null(found);
                const int64_t start = found - texts[of];
                const int64_t last = of == 0 ? 6 : 12; /* an epoch's last two may be the same */
                assert_false(starts[start] && start != last);
                starts[start] = true;
                orders[of] += turn == 0 && start < 3;
                ssm_train_batch_free(&batch);
            }
        }
        assert_true(orders[of] > 0 && orders[of] < 20); /* the first window is not always first */
    }
    ssm_train_task_free(task);

    /* A domain only to evaluate on has no turn. */
    task = task_of("language", 5, "text=%s evaluation=%s length=3 order=even", at.text, at.other);
    ssm_train_batch batch = test_task_rows(task, 0, 40);
    for (int64_t t = 0; t < 120; t++) {
        assert_true(batch.ids[t] >= 'a');
    }
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

static void tokenizers(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task =
        task_of("language", 0, "text=%s held_out=0 length=2 tokenizer=%s/models/tiny", at.text,
                SSM_SOURCE_DIR);
    assert_int_equal(ssm_train_task_info(task)->vocab_size, 4096);
    ssm_train_batch batch = test_task_rows(task, 0, 4);
    for (int64_t i = 0; i < 8; i++) {
        assert_true(batch.ids[i] >= 0 && batch.ids[i] < 4096);
    }
    ssm_train_batch_free(&batch);
    ssm_train_task *bytes = task_of("language", 0, "text=%s held_out=0 length=2", at.text);
    assert_string_not_equal(ssm_train_task_digest(task), ssm_train_task_digest(bytes));
    ssm_train_task_free(bytes);

    /* The digest is one of the contents. */
    bytes = task_of("language", 0, "text=%s held_out=0 length=2", at.text);
    char digest[64];
    snprintf(digest, sizeof digest, "%s", ssm_train_task_digest(bytes));
    ssm_train_task_free(bytes);
    write_file(at.text, "abcdefghiJ");
    bytes = task_of("language", 0, "text=%s held_out=0 length=2", at.text);
    assert_string_not_equal(ssm_train_task_digest(bytes), digest);
    ssm_train_task_free(bytes);
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

/* How ids of bytes are written for people. */
static void bytes_for_people(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task = task_of("language", 0, "text=%s length=2", at.text);
    const struct {
        int32_t id;
        const char *text;
    } expected[] = {{'a', "a"},   {'\n', "\\n"},   {'\t', "\\t"},   {'\r', "\\r"}, {' ', "␣"},
                    {0, "\\x00"}, {0x1F, "\\x1f"}, {0x7F, "\\x7f"}, {'%', "%"},    {0xC3, "\\xc3"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char text[16];
        ssm_train_task_token(task, expected[i].id, text, sizeof text);
        assert_string_equal(text, expected[i].text);
    }
    char narrow[3];
    ssm_train_task_token(task, 0, narrow, sizeof narrow);
    assert_string_equal(narrow, ""); /* never a part of it */
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

static void language_refusals(void **state)
{
    (void)state;
    files at = make_files();
    expect_refusal("language", SSM_STATUS_FILE, "has 10 tokens to train on; a row of length 10",
                   "text=%s held_out=0 length=10", at.text);
    expect_refusal("language", SSM_STATUS_FILE, "has 8 tokens to train on",
                   "text=%s held_out=20 length=8", at.text);
    expect_refusal("language", SSM_STATUS_FILE, "", "text=%s/absent length=2", at.directory);
    expect_refusal("language", SSM_STATUS_FILE, "", "text=%s length=2 tokenizer=%s", at.text,
                   at.directory);
    expect_refusal("language", SSM_STATUS_FILE, "", "text=%s length=2 evaluation=%s/absent",
                   at.text, at.directory);
    expect_refusal("language", SSM_STATUS_USAGE, "held_out is \"91\"",
                   "text=%s length=2 held_out=91", at.text);
    write_file(at.text, "");
    expect_refusal("language", SSM_STATUS_FILE, "has 0 tokens to train on", "text=%s length=1",
                   at.text);
    test_remove_directory(at.directory);
}

/* ---- classification -------------------------------------------------------------------------- */

static int64_t line_of(const ssm_train_batch *batch, int64_t b)
{
    static const char *const texts[] = {"one", "two", "three", "four"};
    static const int32_t labels[] = {2, 0, 1, 2}; /* glad, mad, sad */
    for (int64_t i = 0; i < 4; i++) {
        const size_t count = strlen(texts[i]) < 4 ? strlen(texts[i]) : 4;
        bool same = batch->used[b] == (int64_t)count;
        for (size_t t = 0; same && t < count; t++) {
            same = batch->ids[b * batch->length + (int64_t)t] == texts[i][t];
        }
        if (same) {
            assert_int_equal(batch->labels[b], labels[i]);
            return i;
        }
    }
    fail_msg("row %d is no line of the file", (int)b);
    return -1;
}

static void lines_by_label(void **state)
{
    (void)state;
    files at = make_files();
    ssm_train_task *task = task_of("classification", 3, "text=%s held_out=0 length=4", at.lines);
    const ssm_train_info *info = ssm_train_task_info(task);
    assert_int_equal(info->loss, SSM_TRAIN_CLASSES);
    assert_int_equal(info->output_width, 3);
    char label[16];
    ssm_train_task_label(task, 2, label, sizeof label);
    assert_string_equal(label, "sad");
    ssm_train_task_label(task, 3, label, sizeof label);
    assert_string_equal(label, "?");
    for (int64_t epoch = 0; epoch < 5; epoch++) { /* every line once */
        ssm_train_batch batch = test_task_rows(task, epoch * 4, 4);
        int64_t lines = 0;
        for (int64_t b = 0; b < 4; b++) {
            lines |= 1 << line_of(&batch, b);
        }
        assert_int_equal(lines, 15);
        ssm_train_batch_free(&batch);
    }
    assert_int_equal(ssm_train_task_example_count(task, 4), 0);
    ssm_train_task_free(task);

    /* Half held out: the two halves share no line. */
    task = task_of("classification", 3, "text=%s held_out=50 length=4", at.lines);
    assert_int_equal(ssm_train_task_example_count(task, 4), 2);
    ssm_train_batch train = test_task_rows(task, 0, 2);
    ssm_train_batch test = test_task_examples(task, 4, 0, 3);
    int64_t lines = 0;
    for (int64_t b = 0; b < 2; b++) {
        lines += (1 << line_of(&train, b)) + (1 << line_of(&test, b));
    }
    assert_int_equal(lines, 15);
    assert_int_equal(test.labels[2], -1);

    ssm_train_score score = {0};
    const int32_t predictions[] = {test.labels[0], (test.labels[1] + 1) % 3, 0};
    ssm_train_score_add(&score, task, &test, predictions);
    assert_int_equal(score.strings, 2);
    assert_true(ssm_train_character_accuracy(&score) == 0.5);
    ssm_train_batch_free(&train);
    ssm_train_batch_free(&test);
    ssm_train_task_free(task);

    /* Texts for evaluation, in their order, cut shorter. */
    task = task_of("classification", 3, "text=%s evaluation=%s length=4", at.lines, at.more_lines);
    assert_int_equal(ssm_train_task_example_count(task, 4), 2);
    test = test_task_examples(task, 2, 0, 2);
    assert_int_equal(test.labels[0], 1);
    assert_int_equal(test.labels[1], 0);
    assert_int_equal(test.used[0], 2);
    assert_int_equal(test.ids[0], 'f');
    ssm_train_batch_free(&test);
    ssm_train_task_free(task);
    test_remove_directory(at.directory);
}

static void classification_refusals(void **state)
{
    (void)state;
    const struct {
        const char *text, *part;
    } wrong[] = {
        {"", "0 labels"},
        {"one\ta\none\tb\n", "1 labels"},
        {"no tab\n", "a line without a label"},
        {"\ttext\n", "a line without a label"},
        {"one\t\ntwo\tb\n", "has no text"},
        {"one\t\r\ntwo\tb\n", "has no text"},
    };
    files at = make_files();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_file(at.text, wrong[i].text);
        expect_refusal("classification", SSM_STATUS_FILE, wrong[i].part, "text=%s", at.text);
    }
    write_file(at.text, "new\ttext\n");
    expect_refusal("classification", SSM_STATUS_FILE, "the label new is not among",
                   "text=%s evaluation=%s", at.lines, at.text);
    write_file(at.text, "one\t\xff\ntwo\tb\n");
    expect_refusal("classification", SSM_STATUS_FILE, "", "text=%s tokenizer=%s/models/tiny",
                   at.text, SSM_SOURCE_DIR);
    test_remove_directory(at.directory);
}

/* ---- shuffles -------------------------------------------------------------------------------- */

static void shuffles_are_bijections(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    ssm_train_task *task = test_task("copy", "", 2); /* any: the seed and the name matter */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            bool *seen = calloc((size_t)sizes[i], sizeof *seen);
            assert_non_null(seen);
            for (int64_t k = 0; k < sizes[i]; k++) {
                const int64_t at = ssm__task_shuffle(task, "test", epoch, sizes[i], k);
                assert_true(at >= 0 && at < sizes[i] && !seen[at]);
                seen[at] = true;
            }
            free(seen);
        }
    }
    /* Where the first of ten goes, over epochs: uniform. 9 degrees of freedom, 0.001. */
    int64_t counts[10] = {0};
    double expected[10];
    for (uint64_t epoch = 0; epoch < 2000; epoch++) {
        counts[ssm__task_shuffle(task, "test", epoch, 10, 0)]++;
    }
    for (int i = 0; i < 10; i++) {
        expected[i] = 200;
    }
    assert_true(test_chi_square(counts, expected, 10) < 27.9);
    ssm_train_task_free(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_windows),
        cmocka_unit_test(epochs),
        cmocka_unit_test(even_shares),
        cmocka_unit_test(tokenizers),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(language_refusals),
        cmocka_unit_test(lines_by_label),
        cmocka_unit_test(classification_refusals),
        cmocka_unit_test(shuffles_are_bijections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
