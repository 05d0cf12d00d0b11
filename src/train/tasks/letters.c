/* Source: the code of the benchmark of Jelassi, Brandfonbrener, Kakade, Malach: Repeat After Me
 * (arXiv 2402.01032): alphabet, symbols, packing, the positions that have a loss, the metrics. */
#include "train/tasks/letters.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"

static const ssm__letters_task *of(const ssm_train_task *task)
{
    return (const ssm__letters_task *)task;
}

void ssm__letters_add(ssm__letters_text *text, int32_t id, bool learned)
{
    text->ids[text->count] = id;
    text->learned[text->count++] = learned;
}

void ssm__letters_put(const ssm__letters_task *task, ssm__letters_text *text, const int32_t *ids,
                      int64_t count, bool learned, int symbol)
{
    for (int64_t i = 0; i < count; i++) {
        ssm__letters_add(text, ids[i], learned);
    }
    ssm__letters_add(text, ssm__letters_symbol(task, symbol), learned);
}

int32_t ssm__letters_symbol(const ssm__letters_task *task, int symbol)
{
    return (int32_t)task->letters + symbol;
}

void ssm__letters_draw(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = (int32_t)ssm_rng_below(rng, (uint64_t)task->letters);
    }
}

/* The shortest string that an example can be made of. */
static int64_t shortest(const ssm__letters_task *task)
{
    return task->ngram == 0 ? 1 : task->ngram + task->answer + 3;
}

ssm_status ssm__letters_open(ssm_train_task *task, ssm__letters_example *example, ssm_error *err)
{
    static const int64_t factors[] = {1, 2, 4, 6};
    ssm__letters_task *own = (ssm__letters_task *)task;
    const char *name = task->kind->name;
    own->example = example;
    if (own->min > own->max) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: min is %" PRId64 " and max %" PRId64 "; expected min ≤ max", name,
                         own->min, own->max);
    }
    if (own->min < shortest(own)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: min is %" PRId64 "; a string with an n-gram of %" PRId64
                         " and an answer of %" PRId64 " needs at least %" PRId64 " letters",
                         name, own->min, own->ngram, own->answer, shortest(own));
    }
    const int64_t needed = task->kind->length(task, own->max);
    if (own->length < needed) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: length is %" PRId64 "; an example of max %" PRId64
                         " letters needs %" PRId64 " positions",
                         name, own->length, own->max, needed);
    }
    ssm__task_gives_ids(task, own->letters + SSM__LETTERS_SYMBOLS, own->length);
    task->padding = ssm__letters_symbol(own, SSM__LETTERS_PAD);
    task->uncounted = ssm__letters_symbol(own, SSM__LETTERS_EOS);
    return ssm__task_default_sizes(task, own->max, factors, 4, err);
}

void ssm__letters_range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    *low = shortest(of(task));
    *high = SSM__LETTERS_MAX;
}

void ssm__letters_token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    const int64_t letters = of(task)->letters;
    const char text[2] = {id < 0                                ? '?'
                          : id < letters                        ? (char)('a' + id)
                          : id < letters + SSM__LETTERS_SYMBOLS ? "$|.*"[id - letters]
                                                                : '?',
                          '\0'};
    snprintf(out, size, "%s", text);
}

/* ---- room: ids, the string of the example at hand, learned ----------------------------------- */

/* Tokens of a row and of an example that no longer fits. */
static int64_t room(const ssm_train_task *task, int64_t length)
{
    return length + 1 + task->kind->length(task, of(task)->max) + 1;
}

size_t ssm__letters_scratch(const ssm_train_task *task, int64_t length)
{
    return (size_t)room(task, length) * (2 * sizeof(int32_t) + sizeof(bool));
}

static ssm__letters_text text_of(const ssm_train_task *task, const ssm__row *row, int32_t **string)
{
    const int64_t tokens = room(task, row->length);
    int32_t *ids = row->scratch;
    *string = ids + tokens;
    return (ssm__letters_text){.ids = ids, .learned = (bool *)(ids + 2 * tokens)};
}

void ssm__letters_row(const ssm_train_task *task, ssm__row *row)
{
    const ssm__letters_task *own = of(task);
    const int64_t context = row->length + 1;
    int32_t *string = NULL;
    ssm__letters_text text = text_of(task, row, &string);
    while (text.count < context) {
        const int64_t first = text.count;
        own->example(own, &row->rng, ssm__row_between(&row->rng, own->min, own->max), string,
                     &text);
        for (int64_t i = first; text.count > context && i < text.count; i++) {
            text.learned[i] = false; /* the last one is cut off: nothing of it is learned */
        }
    }
    ssm__row_shift(row, text.ids, text.learned, context);
}

void ssm__letters_one(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    int32_t *string = NULL;
    ssm__letters_text text = text_of(task, row, &string);
    of(task)->example(of(task), &row->rng, size, string, &text);
    ssm__row_shift(row, text.ids, text.learned, text.count);
}

int64_t ssm__letters_twice(const ssm_train_task *task, int64_t size)
{
    (void)task;
    return 2 * size + 2;
}
