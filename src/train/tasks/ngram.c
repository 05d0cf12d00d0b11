/* As the benchmark draws them: strings until one has an n-gram that stands once among the n-grams
 * looked at; then any of these, but for the last, and what follows its first place. */
#include "train/tasks/ngram.h"

#include <string.h>

enum { TRIES = 10 }; /* the benchmark gives up with an error; we take the last string */

/* Starts that are looked at: 0 … n − g − a − 2. */
static int64_t places(const ssm__letters_task *task, int64_t count)
{
    return count - task->ngram - task->answer - 1;
}

static bool same(const ssm__letters_task *task, const int32_t *string, int64_t i, int64_t j)
{
    return memcmp(string + i, string + j, (size_t)task->ngram * sizeof *string) == 0;
}

static bool has_unique(const ssm__letters_task *task, const int32_t *string, int64_t n_places)
{
    for (int64_t i = 0; i < n_places; i++) {
        int64_t found = 0;
        for (int64_t j = 0; j < n_places && found < 2; j++) {
            found += same(task, string, i, j);
        }
        if (found == 1) {
            return true;
        }
    }
    return false;
}

int64_t ssm__ngram_longest(const ssm__letters_task *task, int64_t count)
{
    return task->answer > 0 ? task->answer : count - task->ngram;
}

void ssm__ngram_draw(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                     int64_t *start, int64_t *answer)
{
    const int64_t n_places = places(task, count);
    for (int i = 0; i < TRIES; i++) {
        ssm__letters_draw(task, rng, count, string);
        if (has_unique(task, string, n_places)) {
            break;
        }
    }
    const int64_t chosen = (int64_t)ssm_rng_below(rng, (uint64_t)(n_places - 1));
    *start = 0;
    while (!same(task, string, *start, chosen)) {
        ++*start;
    }
    *answer = task->answer > 0 ? task->answer : count - *start - task->ngram;
}
