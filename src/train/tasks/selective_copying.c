/* Selective copying: ids to remember at random places among noise, then as many markers, at which
 * they are to be given in their order.
 *
 * Source: Gu, Dao: Mamba (arXiv 2312.00752), section 4.1.1, and the copying generator of S4 with
 * variable places: id 0 is noise, the last id the marker, those between are remembered; vocabulary
 * 16, 16 ids, 4096 positions. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "train/tasks/kind.h"

enum { LENGTH_MAX = 1 << 22 };

typedef struct selective_task {
    ssm_train_task base;
    int64_t vocab, tokens, length;
} selective_task;

static const selective_task *of(const ssm_train_task *task)
{
    return (const selective_task *)task;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t factors[] = {1, 2, 4};
    const selective_task *own = of(task);
    if (own->length < 2 * own->tokens) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "selective-copying: length is %" PRId64 " with %" PRId64
                         " ids to remember; expected at least 2 · tokens = %" PRId64,
                         own->length, own->tokens, 2 * own->tokens);
    }
    ssm__task_gives_ids(task, own->vocab, own->length);
    return ssm__task_default_sizes(task, own->length, factors, 3, err);
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    *low = 2 * of(task)->tokens;
    *high = LENGTH_MAX;
}

/* Places by selection sampling: going through the positions, one is taken with the probability
 * (still to take) / (still to come), so that every set of places is as likely as any other. */
static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    const selective_task *own = of(task);
    const int64_t context = size - own->tokens;
    int64_t taken = 0;
    for (int64_t t = 0; t < context; t++) {
        row->ids[t] = 0;
        const int64_t left = own->tokens - taken;
        if (left > 0 && ssm__row_between(&row->rng, 0, context - t - 1) < left) {
            row->ids[t] = (int32_t)ssm__row_between(&row->rng, 1, own->vocab - 2);
            row->labels[context + taken++] = row->ids[t];
        }
    }
    for (int64_t t = context; t < size; t++) {
        row->ids[t] = (int32_t)own->vocab - 1;
    }
    *row->used = (int32_t)size;
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    example(task, of(task)->length, row);
}

static void token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    if (id == 0) {
        snprintf(out, size, "·");
    } else if (id == of(task)->vocab - 1) {
        snprintf(out, size, "?");
    } else {
        snprintf(out, size, "%" PRId32, id);
    }
}

static const ssm__setting settings[] = {
    {.key = "vocab",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(selective_task, vocab),
     .fallback = "16",
     .min = 3,
     .max = 1 << 20,
     .help = "ids: noise, those that are remembered, the marker"},
    {.key = "tokens",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(selective_task, tokens),
     .fallback = "16",
     .min = 1,
     .max = 1 << 16,
     .help = "ids to remember, and markers"},
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(selective_task, length),
     .fallback = "256",
     .min = 2,
     .max = LENGTH_MAX / 4,
     .help = "positions of a training row, markers included"},
    SSM__EVALUATE(2, LENGTH_MAX, "lengths at evaluation; 1, 2, 4 times length when not given"),
};

const ssm__task_kind ssm__task_selective_copying = {
    .name = "selective-copying",
    .summary = "ids scattered in noise, given again in their order",
    .size = "tokens",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(selective_task),
    .open = open,
    .range = range,
    .length = ssm__task_size_is_length,
    .row = train_row,
    .example = example,
    .token = token,
};
