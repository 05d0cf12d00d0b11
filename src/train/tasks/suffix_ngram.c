/* "$abcde|bcde.": what follows the n-gram that is given behind the string. */
#include "train/tasks/ngram.h"

static void example(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                    ssm__letters_text *text)
{
    int64_t start = 0;
    int64_t answer = 0;
    ssm__ngram_draw(task, rng, count, string, &start, &answer);
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_BOS), false);
    ssm__letters_put(task, text, string, count, false, SSM__LETTERS_SEPARATOR);
    for (int64_t i = 0; i < task->ngram + answer; i++) {
        ssm__letters_add(text, string[start + i], i >= task->ngram);
    }
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_EOS), true);
}

static int64_t length(const ssm_train_task *task, int64_t size)
{
    const ssm__letters_task *own = (const ssm__letters_task *)task;
    return size + own->ngram + ssm__ngram_longest(own, size) + 2;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    return ssm__letters_open(task, example, err);
}

static const ssm__setting settings[] = {SSM__LETTERS_SETTINGS("10"), SSM__LETTERS_NGRAM_SETTINGS};

const ssm__task_kind ssm__task_suffix_ngram = {
    .name = "suffix-ngram",
    .summary = "what follows an n-gram that is given last: $abcdef|bcdef.",
    .length = length,
    SSM__LETTERS_KIND,
};
