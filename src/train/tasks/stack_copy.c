/* "$abc|cba.": the string from its end. The format is ours. */
#include "train/tasks/letters.h"

static void example(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                    ssm__letters_text *text)
{
    ssm__letters_draw(task, rng, count, string);
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_BOS), false);
    for (int64_t i = 0; i < count; i++) {
        ssm__letters_add(text, string[i], false);
    }
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_SEPARATOR), false);
    for (int64_t i = count - 1; i >= 0; i--) {
        ssm__letters_add(text, string[i], true);
    }
    ssm__letters_add(text, ssm__letters_symbol(task, SSM__LETTERS_EOS), true);
}

/* 2n + 3 tokens, of which the last is only to be given. */
static int64_t length(const ssm_train_task *task, int64_t size)
{
    (void)task;
    return 2 * size + 2;
}

static void row(const ssm_train_task *task, ssm__row *out)
{
    ssm__letters_row(task, example, out);
}

static void one(const ssm_train_task *task, int64_t size, ssm__row *out)
{
    ssm__letters_one(task, size, example, out);
}

static const ssm__setting settings[] = {SSM__LETTERS_SETTINGS("5")};

const ssm__task_kind ssm__task_stack_copy = {
    .name = "stack-copy",
    .summary = "repeat a string of letters from its end: $abc|cba.",
    .size = "letters",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(ssm__letters_task),
    .open = ssm__letters_open,
    .range = ssm__letters_range,
    .length = length,
    .scratch = ssm__letters_scratch,
    .row = row,
    .example = one,
    .token = ssm__letters_token,
};
