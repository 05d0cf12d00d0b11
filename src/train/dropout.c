/* train/dropout.c: masks of dropout from counters.
 *
 * Element e = token·D + coordinate of branch b in batch number k has word e mod 4 of the Philox
 * block with the counter (e / 4, b, low and high half of k), the key being the first two numbers of
 * the stream "dropout" of the seed; it is kept when the word is at least share·2³². So a mask does
 * not depend on slabs or threads, and backward makes the same one again. */
#include "base/rng.h"
#include "train/inside.h"
#include "train/work.h"

typedef struct dropout_job {
    const ssm__network *network;
    uint32_t key[2], branch, number[2];
    uint32_t threshold;
    float scale;
    int64_t first, tokens;
    float *x;
} dropout_job;

static void dropout_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const dropout_job *job = context;
    const int64_t D = job->network->config.shape.d_model, token = task * SSM__WORK_TOKENS;
    const int64_t count = ssm__least(SSM__WORK_TOKENS, job->tokens - token) * D;
    const uint64_t element = (uint64_t)((job->first + token) * D);
    float *x = job->x + token * D;
    uint32_t words[4] = {0};
    for (int64_t i = 0; i < count; i++) {
        const uint64_t at = element + (uint64_t)i;
        if (i == 0 || at % 4 == 0) {
            const uint32_t counter[4] = {(uint32_t)(at / 4), job->branch, job->number[0],
                                         job->number[1]};
            ssm__philox(counter, job->key, words);
        }
        x[i] = words[at % 4] >= job->threshold ? x[i] * job->scale : 0.0f;
    }
}

void ssm__dropout_apply(const ssm__network *network, const ssm__dropout *dropout, int64_t branch,
                        int64_t first, int64_t tokens, float *x)
{
    const double share = network->config.dropout;
    if (dropout == NULL || share <= 0) {
        return;
    }
    ssm_rng rng = ssm_rng_create(dropout->seed, "dropout");
    dropout_job job = {.network = network,
                       .branch = (uint32_t)branch,
                       .number = {(uint32_t)dropout->number, (uint32_t)(dropout->number >> 32)},
                       .threshold = (uint32_t)(share * 4294967296.0),
                       .scale = (float)(1 / (1 - share)),
                       .first = first,
                       .tokens = tokens,
                       .x = x};
    job.key[0] = ssm_rng_u32(&rng);
    job.key[1] = ssm_rng_u32(&rng);
    ssm__pool_run(network->pool, dropout_task, &job, ssm__divide_up(tokens, SSM__WORK_TOKENS));
}
