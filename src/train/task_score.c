/* String and character accuracy, mean squared error. */
#include <math.h>

#include "train/task.h"
#include "train/tasks/kind.h"

void ssm_train_score_add(ssm_train_score *score, const ssm_train_task *task,
                         const ssm_train_batch *batch, const int32_t *predictions)
{
    const int64_t labels = task->info.loss == SSM_TRAIN_CLASSES ? 1 : batch->length;
    for (int64_t b = 0; b < batch->rows; b++) {
        int64_t counted = 0;
        int64_t right = 0;
        for (int64_t t = b * labels; t < (b + 1) * labels; t++) {
            if (batch->labels[t] >= 0 && batch->labels[t] != task->uncounted) {
                counted++;
                right += predictions[t] == batch->labels[t];
            }
        }
        score->strings += counted > 0;
        score->strings_right += counted > 0 && right == counted;
        score->characters += counted;
        score->characters_right += right;
    }
}

void ssm_train_score_add_vectors(ssm_train_score *score, const ssm_train_task *task,
                                 const ssm_train_batch *batch, const float *outputs)
{
    const int64_t width = task->info.output_width;
    for (int64_t b = 0; b < batch->rows; b++) {
        const int64_t first = b * batch->length * width;
        for (int64_t i = 0; i < batch->used[b] * width; i++) {
            const double error = (double)outputs[first + i] - (double)batch->targets[first + i];
            score->squared_error += error * error;
        }
        score->components += batch->used[b] * width;
    }
}

static double share(double part, int64_t whole)
{
    return whole > 0 ? part / (double)whole : (double)NAN;
}

double ssm_train_string_accuracy(const ssm_train_score *score)
{
    return share((double)score->strings_right, score->strings);
}

double ssm_train_character_accuracy(const ssm_train_score *score)
{
    return share((double)score->characters_right, score->characters);
}

double ssm_train_mean_squared_error(const ssm_train_score *score)
{
    return share(score->squared_error, score->components);
}
