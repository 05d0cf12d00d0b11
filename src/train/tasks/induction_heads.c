/* Induction heads: a special id stands once in a random sequence and again at its end; what stood
 * behind it is to be given.
 *
 * Source: Gu, Dao: Mamba (arXiv 2312.00752), section 4.1.2: vocabulary 16, training at 256, tests
 * at other lengths. Where the special id may stand is ours: anywhere. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "train/tasks/kind.h"

enum { LENGTH_MAX = 1 << 22 };

typedef struct induction_task {
    ssm_train_task base;
    int64_t vocab, length;
} induction_task;

static const induction_task *of(const ssm_train_task *task)
{
    return (const induction_task *)task;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t factors[] = {1, 2, 4};
    ssm__task_gives_ids(task, of(task)->vocab, of(task)->length);
    return ssm__task_default_sizes(task, of(task)->length, factors, 3, err);
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    (void)task;
    *low = 3;
    *high = LENGTH_MAX;
}

static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    const int32_t special = (int32_t)of(task)->vocab - 1;
    for (int64_t t = 0; t < size; t++) {
        row->ids[t] = (int32_t)ssm_rng_below(&row->rng, (uint64_t)special);
    }
    const int64_t first = ssm__row_between(&row->rng, 0, size - 3);
    row->ids[first] = special;
    row->ids[size - 1] = special;
    row->labels[size - 1] = row->ids[first + 1];
    *row->used = (int32_t)size;
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    example(task, of(task)->length, row);
}

static void token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    if (id == of(task)->vocab - 1) {
        snprintf(out, size, "*");
    } else {
        snprintf(out, size, "%" PRId32, id);
    }
}

static const ssm__setting settings[] = {
    {.key = "vocab",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(induction_task, vocab),
     .fallback = "16",
     .min = 2,
     .max = 1 << 20,
     .help = "ids, the last of which is the special one"},
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(induction_task, length),
     .fallback = "256",
     .min = 3,
     .max = LENGTH_MAX / 4,
     .help = "positions of a training row"},
    SSM__EVALUATE(3, LENGTH_MAX, "lengths at evaluation; 1, 2, 4 times length when not given"),
};

const ssm__task_kind ssm__task_induction_heads = {
    .name = "induction-heads",
    .summary = "what stood behind a special id when it was first seen",
    .size = "tokens",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(induction_task),
    .open = open,
    .range = range,
    .length = ssm__task_size_is_length,
    .row = train_row,
    .example = example,
    .token = token,
};
