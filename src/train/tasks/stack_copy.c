/* "$abc|cba.": the string from its end. The format is ours. */
#include "train/tasks/letters.h"

static void example(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                    ssm__letters_text *text)
{
    ssm__letters_draw(task, rng, count, string);
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_BOS), false);
    ssm__letters_put(task, text, string, count, false, SSM__LETTERS_SEPARATOR);
    for (int64_t i = count - 1; i >= 0; i--) {
        ssm__letters_add(text, string[i], true);
    }
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_EOS), true);
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    return ssm__letters_open(task, example, err);
}

static const ssm__setting settings[] = {SSM__LETTERS_SETTINGS("5")};

const ssm__task_kind ssm__task_stack_copy = {
    .name = "stack-copy",
    .summary = "repeat a string of letters from its end: $abc|cba.",
    .length = ssm__letters_twice,
    SSM__LETTERS_KIND,
};
