/* Tasks: small examples whose rows are known, laws of every task, distributions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_task.h"

enum { TEXT = 4096 };

/* ---- rows that can be written down ----------------------------------------------------------- */

typedef struct known_row {
    const char *task, *settings;
    int64_t size;
    const char *ids, *labels;
} known_row;

/* One letter, one key, one place: nothing is left to chance. */
static const known_row certain[] = {
    {"copy", "letters=1", 3, "$aaa|aaa", "----aaa."},
    {"stack-copy", "letters=1", 2, "$aa|aa", "---aa."},
    {"sort", "letters=1", 2, "$aa|aa", "---aa."},
    {"prefix-ngram", "letters=1 ngram=2 answer=1", 6, "$aa|aaaaaa|a", "----------a."},
    {"suffix-ngram", "letters=1 ngram=2 answer=1", 6, "$aaaaaa|aaa", "---------a."},
    {"prefix-ngram", "letters=1 ngram=2", 5, "$aa|aaaaa|aaa", "---------aaa."},
    {"induction-heads", "vocab=2", 3, "*0*", "--0"},
    {"selective-copying", "vocab=3 tokens=2", 4, "11??", "--11"},
};

static void rows_without_chance(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof certain / sizeof certain[0]; i++) {
        const known_row *row = &certain[i];
        char text[TEXT];
        ssm_train_task *task = test_task(row->task, row->settings, 3);
        ssm_train_batch batch = test_task_examples(task, row->size, 7, 1);
        test_task_ids(task, &batch, 0, text, sizeof text);
        assert_string_equal(text, row->ids);
        test_task_labels(task, &batch, 0, text, sizeof text);
        assert_string_equal(text, row->labels);
        assert_int_equal(batch.used[0], batch.length);
        ssm_train_batch_free(&batch);
        ssm_train_task_free(task);
    }
}

/* The smallest MQAR: key 1, value 2 or 3, the query at position 2, a zero behind it. */
static void smallest_mqar(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("mqar", "vocab=4 pairs=1 length=4 fill=zero", 0);
    int64_t values[2] = {0};
    for (int64_t i = 0; i < 100; i++) {
        ssm_train_batch batch = test_task_rows(task, i, 1);
        const int32_t value = batch.ids[1];
        assert_true(value == 2 || value == 3);
        values[value - 2]++;
        const int32_t ids[] = {1, value, 1, 0};
        const int32_t labels[] = {-1, -1, value, -1};
        assert_memory_equal(batch.ids, ids, sizeof ids);
        assert_memory_equal(batch.labels, labels, sizeof labels);
        ssm_train_batch_free(&batch);
    }
    assert_true(values[0] > 20 && values[1] > 20); /* 6 sd from 50 */
    ssm_train_task_free(task);
}

/* Rows as this version of the program draws them: a change of the streams must be seen. */
static const known_row drawn[] = {
    {"copy", "", 10, "$fqyeamvxnt|fqyeamvxnt", "-----------fqyeamvxnt."},
    {"stack-copy", "", 10, "$acnuukzjgx|xgjzkuunca", "-----------xgjzkuunca."},
    {"sort", "", 10, "$pbiajzddur|abddijpruz", "-----------abddijpruz."},
    {"prefix-ngram", "ngram=2 answer=3", 14, "$zn|gizzuznwadmdvi|wad", "------------------wad."},
    {"suffix-ngram", "", 14, "$njuggzgljlhuvs|gljlhuvs", "------------------lhuvs."},
};

static void rows_of_seed_0(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        char text[TEXT];
        ssm_train_task *task = test_task(drawn[i].task, drawn[i].settings, 0);
        ssm_train_batch batch = test_task_examples(task, drawn[i].size, 0, 1);
        test_task_ids(task, &batch, 0, text, sizeof text);
        assert_string_equal(text, drawn[i].ids);
        test_task_labels(task, &batch, 0, text, sizeof text);
        assert_string_equal(text, drawn[i].labels);
        ssm_train_batch_free(&batch);
        ssm_train_task_free(task);
    }
}

/* ---- packed rows ----------------------------------------------------------------------------- */

/* Walks through "$s|answer." examples: the labels of the whole ones are the answer and the EOS, the
 * cut one at the end has none. Returns the letters of the first one. */
static int64_t check_packed(const char *ids, const char *labels, bool reversed)
{
    int64_t first = -1;
    for (const char *at = ids; *at != '\0';) {
        assert_true(*at == '$');
        const char *bar = strchr(at, '|');
        const int64_t letters = bar == NULL ? -1 : bar - at - 1;
        const char *mark = labels + (at - ids);
        const bool whole = bar != NULL && (int64_t)strlen(bar) > letters;
        for (const char *c = at; *c != '\0' && (!whole || c < bar); c++) {
            assert_true(labels[c - ids] == '-');
        }
        if (!whole) {
            return first;
        }
        for (int64_t i = 0; i < letters; i++) {
            assert_true(mark[letters + 1 + i] == at[1 + (reversed ? letters - 1 - i : i)]);
        }
        assert_true(mark[2 * letters + 1] == '.');
        at += 2 * letters + 2;
        assert_true(*at == '.' || *at == '\0'); /* the last EOS may only be a label */
        if (*at == '.') {
            assert_true(labels[at - ids] == '-');
            at++;
        }
        first = first < 0 ? letters : first;
    }
    return first;
}

static void packed_rows(void **state)
{
    (void)state;
    const char *const names[] = {"copy", "stack-copy"};
    for (int i = 0; i < 2; i++) {
        ssm_train_task *task = test_task(names[i], "min=1 max=9 length=50", 1);
        ssm_train_batch batch = test_task_rows(task, 0, 200);
        for (int64_t b = 0; b < batch.rows; b++) {
            char ids[TEXT];
            char labels[TEXT];
            test_task_ids(task, &batch, b, ids, sizeof ids);
            test_task_labels(task, &batch, b, labels, sizeof labels);
            assert_int_equal(strlen(ids), 50);
            const int64_t letters = check_packed(ids, labels, i == 1);
            assert_true(letters >= 1 && letters <= 9);
        }
        ssm_train_batch_free(&batch);
        ssm_train_task_free(task);
    }
}

static void sorted_answers(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("sort", "", 5);
    ssm_train_batch batch = test_task_examples(task, 40, 0, 20);
    for (int64_t b = 0; b < batch.rows; b++) {
        int64_t counts[26] = {0};
        const int32_t *ids = batch.ids + b * batch.length;
        const int32_t *labels = batch.labels + b * batch.length + 41;
        for (int i = 0; i < 40; i++) {
            counts[ids[1 + i]]++;
            counts[labels[i]]--;
            assert_true(i == 0 || labels[i - 1] <= labels[i]);
        }
        for (int i = 0; i < 26; i++) {
            assert_int_equal(counts[i], 0);
        }
    }
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

/* The answer stands in the string, behind the first place of the n-gram. Two letters, so that
 * n-grams repeat. */
static void answers_of_ngrams(void **state)
{
    (void)state;
    const char *const names[] = {"prefix-ngram", "suffix-ngram"};
    for (int i = 0; i < 2; i++) {
        ssm_train_task *task = test_task(names[i], "letters=2 ngram=3 answer=2", 2);
        ssm_train_batch batch = test_task_examples(task, 20, 0, 100);
        for (int64_t b = 0; b < batch.rows; b++) {
            char ids[TEXT];
            char labels[TEXT];
            test_task_ids(task, &batch, b, ids, sizeof ids);
            test_task_labels(task, &batch, b, labels, sizeof labels);
            char ngram[4] = "";
            char string[21] = "";
            memcpy(ngram, ids + (i == 0 ? 1 : 22), 3);
            memcpy(string, ids + (i == 0 ? 5 : 1), 20);
            const char *found = strstr(string, ngram);
            assert_non_null(found);
            assert_true(found - string <= 13); /* 20 − 3 − 2 − 1 − 1 starts are chosen from */
            assert_memory_equal(labels + strlen(labels) - 3, found + 3, 2);
            assert_int_equal(strspn(labels, "-"), i == 0 ? 25 : 24);
        }
        ssm_train_batch_free(&batch);
        ssm_train_task_free(task);
    }
}

/* ---- distributions: fixed seeds, limits that chance passes once in a thousand ---------------- */

static void lengths_and_letters_are_uniform(void **state)
{
    (void)state;
    enum { ROWS = 4000, LENGTHS = 10 };
    int64_t lengths[LENGTHS] = {0};
    int64_t letters[26] = {0};
    double expected[26];
    ssm_train_task *task = test_task("copy", "min=5 max=14 length=32", 11);
    ssm_train_batch batch = test_task_rows(task, 0, ROWS);
    int64_t total = 0;
    for (int64_t b = 0; b < ROWS; b++) {
        const int32_t *ids = batch.ids + b * batch.length;
        int64_t count = 0;
        while (ids[1 + count] < 26) {
            letters[ids[1 + count++]]++;
        }
        lengths[count - 5]++;
        total += count;
    }
    for (int i = 0; i < 26; i++) {
        expected[i] = i < LENGTHS ? ROWS / 10.0 : 0;
    }
    assert_true(test_chi_square(lengths, expected, LENGTHS) < 27.9); /* 9 degrees of freedom */
    for (int i = 0; i < 26; i++) {
        expected[i] = (double)total / 26;
    }
    assert_true(test_chi_square(letters, expected, 26) < 52.6); /* 25 */
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

enum { SLOTS = 8 };

/* Zoology's weights a g^(a − 1), normalised. */
static void slot_weights(double a, double out[SLOTS])
{
    double sum = 0;
    for (int g = 0; g < SLOTS; g++) {
        out[g] = a * pow(g + 1, a - 1);
        sum += out[g];
    }
    for (int g = 0; g < SLOTS; g++) {
        out[g] /= sum;
    }
}

/* Where pair j is asked for, in a row without fill. */
static int64_t slot_of(const ssm_train_batch *batch, int64_t b, int64_t pairs, int64_t j)
{
    const int32_t *ids = batch->ids + b * batch->length;
    for (int64_t g = 0; g < SLOTS; g++) {
        if (ids[2 * pairs + 2 * g] == ids[2 * j]) {
            return g;
        }
    }
    fail_msg("pair %d of row %d is not asked for", (int)j, (int)b);
    return -1;
}

static void slots_follow_the_power_law(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    double weights[SLOTS];
    int64_t single[SLOTS] = {0};
    int64_t both[SLOTS * SLOTS] = {0};
    int64_t seen[SLOTS * SLOTS];
    double expected[SLOTS * SLOTS];
    slot_weights(0.01, weights);
    ssm_train_task *task = test_task("mqar", "vocab=64 pairs=1 length=18 fill=zero", 4);
    ssm_train_batch batch = test_task_rows(task, 0, ROWS);
    for (int64_t b = 0; b < ROWS; b++) {
        single[slot_of(&batch, b, 1, 0)]++;
    }
    for (int g = 0; g < SLOTS; g++) {
        expected[g] = ROWS * weights[g];
    }
    assert_true(test_chi_square(single, expected, SLOTS) < 24.4); /* 7 degrees of freedom */
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);

    /* Two without replacement: the first i, then j of the rest. */
    task = test_task("mqar", "vocab=64 pairs=2 length=20 fill=zero", 4);
    batch = test_task_rows(task, 0, ROWS);
    for (int64_t b = 0; b < ROWS; b++) {
        both[slot_of(&batch, b, 2, 0) * SLOTS + slot_of(&batch, b, 2, 1)]++;
    }
    int64_t cells = 0;
    for (int i = 0; i < SLOTS; i++) {
        for (int j = 0; j < SLOTS; j++) {
            if (i != j) {
                expected[cells] = ROWS * weights[i] * weights[j] / (1 - weights[i]);
                seen[cells++] = both[i * SLOTS + j];
            }
        }
        assert_int_equal(both[i * SLOTS + i], 0);
    }
    assert_true(test_chi_square(seen, expected, cells) < 93.2); /* 55 */
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

static void keys_and_values(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("mqar", "vocab=40 pairs=19 length=76", 9);
    ssm_train_batch batch = test_task_rows(task, 0, 50);
    for (int64_t b = 0; b < batch.rows; b++) {
        const int32_t *ids = batch.ids + b * batch.length;
        const int32_t *labels = batch.labels + b * batch.length;
        bool seen[40] = {false};
        int64_t asked = 0;
        for (int64_t j = 0; j < 38; j++) {
            assert_true(j % 2 == 0 ? ids[j] >= 1 && ids[j] < 20 : ids[j] >= 20 && ids[j] < 40);
            assert_false(seen[ids[j]]);
            seen[ids[j]] = true;
            assert_int_equal(labels[j], -1);
        }
        for (int64_t t = 38; t < 76; t++) {
            asked += labels[t] >= 0;
            if (labels[t] >= 0) {
                int64_t j = 0;
                while (ids[2 * j] != ids[t]) {
                    j++;
                }
                assert_true(j < 19 && labels[t] == ids[2 * j + 1]);
                assert_true(t % 2 == 0);
            }
        }
        assert_int_equal(asked, 19);
    }
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

static void places_of_induction_and_selection_are_uniform(void **state)
{
    (void)state;
    enum { ROWS = 4000 };
    int64_t places[8] = {0};
    double expected[8];
    ssm_train_task *task = test_task("induction-heads", "length=10", 3);
    ssm_train_batch batch = test_task_rows(task, 0, ROWS);
    for (int64_t b = 0; b < ROWS; b++) {
        const int32_t *ids = batch.ids + b * 10;
        int64_t first = 0;
        while (ids[first] != 15) {
            first++;
        }
        places[first]++;
        assert_int_equal(ids[9], 15);
        assert_int_equal(batch.labels[b * 10 + 9], ids[first + 1]);
        for (int64_t t = 0; t < 9; t++) {
            assert_int_equal(batch.labels[b * 10 + t], -1);
            assert_true(t == first || ids[t] < 15);
        }
    }
    for (int i = 0; i < 8; i++) {
        expected[i] = ROWS / 8.0;
    }
    assert_true(test_chi_square(places, expected, 8) < 24.4); /* 7 degrees of freedom */
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);

    task = test_task("selective-copying", "length=10 tokens=2", 3);
    batch = test_task_rows(task, 0, ROWS);
    memset(places, 0, sizeof places);
    for (int64_t b = 0; b < ROWS; b++) {
        const int32_t *ids = batch.ids + b * 10;
        int64_t taken = 0;
        for (int64_t t = 0; t < 8; t++) {
            places[t] += ids[t] != 0;
            if (ids[t] != 0) {
                assert_true(ids[t] < 15);
                assert_int_equal(batch.labels[b * 10 + 8 + taken++], ids[t]);
            }
        }
        assert_int_equal(taken, 2);
        assert_int_equal(ids[8], 15);
    }
    for (int i = 0; i < 8; i++) {
        expected[i] = ROWS / 4.0;
    }
    /* Two of eight a row: the statistic is 6/7 of a χ² with 7 degrees of freedom. */
    assert_true(test_chi_square(places, expected, 8) < 24.4 * 6 / 7);
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

/* ---- the switched system --------------------------------------------------------------------- */

static void rotations(void **state)
{
    (void)state;
    /* Without decay there is no noise, and every plane turns by the regime's one angle: |x'| = |x|
     * and x·x' = |x|² cos θ. Float32 rounds the vectors, 6e-8 relative: 1e-5 leaves room for sums.
     */
    const double angles[2] = {0.3, 1.1};
    ssm_train_task *task =
        test_task("switched-linear",
                  "width=4 length=500 decay=1 slow_0=0.3 fast_0=0.3 slow_1=1.1 fast_1=1.1 "
                  "dwell_min=30 dwell_max=50",
                  8);
    ssm_train_batch batch = test_task_rows(task, 0, 4);
    for (int64_t b = 0; b < batch.rows; b++) {
        int64_t since = 0;
        int64_t switches = 0;
        for (int64_t t = 0; t < 500; t++) {
            const float *x = batch.inputs + (b * 500 + t) * 4;
            const float *next = batch.targets + (b * 500 + t) * 4;
            const int32_t regime = batch.regimes[b * 500 + t];
            double square = 0;
            double product = 0;
            double next_square = 0;
            for (int i = 0; i < 4; i++) {
                square += (double)x[i] * (double)x[i];
                product += (double)x[i] * (double)next[i];
                next_square += (double)next[i] * (double)next[i];
            }
            assert_true(fabs(next_square / square - 1) < 1e-5);
            assert_true(fabs(product / square - cos(angles[regime])) < 1e-5);
            assert_true(t == 499 || memcmp(next, x + 4, 4 * sizeof *x) == 0);
            if (t > 0 && regime != batch.regimes[b * 500 + t - 1]) {
                assert_true(t - since <= 50);
                assert_true(switches == 0 || t - since >= 30);
                since = t;
                switches++;
            }
        }
        assert_true(switches >= 9);
    }
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

static void noise_keeps_the_variance(void **state)
{
    (void)state;
    ssm_train_task *task = test_task("switched-linear", "length=2000", 2);
    ssm_train_batch batch = test_task_rows(task, 0, 16);
    const int64_t count = 16 * 2000 * 8;
    double square = 0;
    for (int64_t i = 0; i < count; i++) {
        square += (double)batch.targets[i] * (double)batch.targets[i] / (double)count;
    }
    /* Correlated over about 1/(1 − 0.98²) = 25 steps: 10^4 independent squares, sd sqrt(2/10^4). */
    assert_true(fabs(square - 1) < 0.06);
    ssm_train_batch_free(&batch);
    ssm_train_task_free(task);
}

/* ---- laws of all tasks ----------------------------------------------------------------------- */

static const char *const generated[][2] = {
    {"copy", ""},
    {"stack-copy", ""},
    {"sort", ""},
    {"prefix-ngram", ""},
    {"suffix_ngram", "answer=4"},
    {"mqar", ""},
    {"induction-heads", ""},
    {"selective-copying", ""},
    {"switched-linear", "length=64"},
};
enum { GENERATED = sizeof generated / sizeof generated[0] };

/* The bytes of row b. */
static void expect_same(const ssm_train_task *task, const ssm_train_batch *a, int64_t i,
                        const ssm_train_batch *b, int64_t j, bool same)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    const size_t length = (size_t)a->length;
    bool equal = a->used[i] == b->used[j];
    if (info->loss == SSM_TRAIN_VECTORS) {
        const size_t width = (size_t)info->input_width;
        equal =
            equal &&
            memcmp(a->inputs + (size_t)i * length * width, b->inputs + (size_t)j * length * width,
                   length * width * sizeof(float)) == 0 &&
            memcmp(a->targets + (size_t)i * length * width, b->targets + (size_t)j * length * width,
                   length * width * sizeof(float)) == 0;
    } else {
        equal =
            equal &&
            memcmp(a->ids + (size_t)i * length, b->ids + (size_t)j * length, length * 4) == 0 &&
            memcmp(a->labels + (size_t)i * length, b->labels + (size_t)j * length, length * 4) == 0;
    }
    assert_true(equal == same);
}

static void rows_are_functions_of_their_number(void **state)
{
    (void)state;
    for (int i = 0; i < GENERATED; i++) {
        ssm_train_task *task = test_task(generated[i][0], generated[i][1], 6);
        ssm_train_task *again = test_task(generated[i][0], generated[i][1], 6);
        ssm_train_task *other = test_task(generated[i][0], generated[i][1], 7);
        ssm_train_batch all = test_task_rows(task, 0, 6);
        assert_string_equal(ssm_train_task_digest(task), ssm_train_task_digest(again));
        assert_string_not_equal(ssm_train_task_digest(task), ssm_train_task_digest(other));
        for (int64_t b = 5; b >= 0; b--) {
            ssm_train_batch one = test_task_rows(again, b, 1);
            expect_same(task, &all, b, &one, 0, true);
            ssm_train_batch_free(&one);
            one = test_task_rows(other, b, 1);
            expect_same(task, &all, b, &one, 0, false);
            ssm_train_batch_free(&one);
            expect_same(task, &all, b, &all, (b + 1) % 6, false);
        }
        ssm_train_batch_free(&all);
        ssm_train_task_free(task);
        ssm_train_task_free(again);
        ssm_train_task_free(other);
    }
}

static void ids_and_labels_stay_in_range(void **state)
{
    (void)state;
    for (int i = 0; i < GENERATED; i++) {
        ssm_train_task *task = test_task(generated[i][0], generated[i][1], 1);
        const ssm_train_info *info = ssm_train_task_info(task);
        ssm_train_batch batch = test_task_examples(task, info->sizes[0], 0, 8);
        int64_t labels = 0;
        for (int64_t t = 0; batch.ids != NULL && t < batch.rows * batch.length; t++) {
            assert_true(batch.ids[t] >= 0 && batch.ids[t] < info->vocab_size);
            assert_true(batch.labels[t] >= -1 && batch.labels[t] < info->output_width);
            labels += batch.labels[t] >= 0;
        }
        assert_true(batch.ids == NULL || labels >= batch.rows);
        assert_int_equal(ssm_train_task_example_count(task, info->sizes[0]), -1);
        ssm_train_batch_free(&batch);

        /* A batch longer than the example: the rest is padding without loss. */
        int64_t length = 0;
        assert_int_equal(ssm_train_task_length(task, info->sizes[0], &length, NULL), 0);
        assert_int_equal(ssm_train_batch_create(task, 1, length + 5, &batch, NULL), 0);
        ssm_train_task_examples(task, info->sizes[0], 0, &batch);
        assert_true(batch.used[0] <= length && batch.used[0] > 0);
        for (int64_t t = batch.used[0]; batch.ids != NULL && t < batch.length; t++) {
            assert_int_equal(batch.labels[t], -1);
        }
        ssm_train_batch_free(&batch);
        ssm_train_task_free(task);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_chance),
        cmocka_unit_test(smallest_mqar),
        cmocka_unit_test(rows_of_seed_0),
        cmocka_unit_test(packed_rows),
        cmocka_unit_test(sorted_answers),
        cmocka_unit_test(answers_of_ngrams),
        cmocka_unit_test(lengths_and_letters_are_uniform),
        cmocka_unit_test(slots_follow_the_power_law),
        cmocka_unit_test(keys_and_values),
        cmocka_unit_test(places_of_induction_and_selection_are_uniform),
        cmocka_unit_test(rotations),
        cmocka_unit_test(noise_keeps_the_variance),
        cmocka_unit_test(rows_are_functions_of_their_number),
        cmocka_unit_test(ids_and_labels_stay_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
