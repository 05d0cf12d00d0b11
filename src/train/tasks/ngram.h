/* train/tasks/ngram.h: what the two tasks of looking up an n-gram have in common. */
#ifndef SSM_TRAIN_TASKS_NGRAM_H
#define SSM_TRAIN_TASKS_NGRAM_H

#include "train/tasks/letters.h"

/* Draws a string of `count` letters and an n-gram of it. *start is where the n-gram first stands,
 * *answer how many letters behind it are asked for. */
void ssm__ngram_draw(const ssm__letters_task *task, ssm_rng *rng, int64_t count, int32_t *string,
                     int64_t *start, int64_t *answer);
/* Letters of the longest answer to a string of `count` letters. */
int64_t ssm__ngram_longest(const ssm__letters_task *task, int64_t count);

#endif
