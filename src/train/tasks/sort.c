/* "$cab|abc.": the letters of the string in order. The format is ours. */
#include "train/tasks/letters.h"

static void example(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                    ssm__letters_text *text)
{
    int64_t counts[26] = {0};
    ssm__letters_draw(task, rng, count, string);
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_BOS), false);
    for (int64_t i = 0; i < count; i++) {
        counts[string[i]]++;
    }
    ssm__letters_put(task, text, string, count, false, SSM__LETTERS_SEPARATOR);
    for (int32_t letter = 0; letter < 26; letter++) {
        for (int64_t i = 0; i < counts[letter]; i++) {
            ssm__letters_add(text, letter, true);
        }
    }
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_EOS), true);
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    return ssm__letters_open(task, example, err);
}

static const ssm__setting settings[] = {SSM__LETTERS_SETTINGS("5")};

const ssm__task_kind ssm__task_sort = {
    .name = "sort",
    .summary = "give the letters of a string in order: $cab|abc.",
    .length = ssm__letters_twice,
    SSM__LETTERS_KIND,
};
