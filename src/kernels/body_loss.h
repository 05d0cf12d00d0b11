/* kernels/body_loss.h: softmax cross-entropy over a tile of logits, and the embedding's gradient.
 */
#ifndef SSM_KERNELS_BODY_LOSS_H
#define SSM_KERNELS_BODY_LOSS_H

#include <math.h>

#include "kernels/training.h"
#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif
#include "kernels/body_lanes.h"
#include "kernels/body_softmax.h"

static void loss_scale(float *x, int64_t count, float factor)
{
    const v16 f = v16_set(factor);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        v16_store(x + i, v16_mul(v16_load(x + i), f));
    }
    v16_store_n(x + i, v16_mul(v16_load_n(x + i, count - i), f), count - i);
}

static double kernel_cross_entropy(float *logits, const int32_t *labels, int64_t rows,
                                   int64_t count, float scale, bool dlogits, double *nll)
{
    double total = 0.0;
    for (int64_t row = 0; row < rows; row++, logits += count) {
        double loss = 0.0;
        if (labels[row] >= 0) {
            const float maximum = row_maximum(logits, count);
            const double target = (double)logits[labels[row]];
            const double sum = row_exponentials(logits, count, maximum, dlogits ? logits : NULL);
            loss = (double)maximum + log(sum) - target;
            if (dlogits) {
                loss_scale(logits, count, (float)((double)scale / sum));
                logits[labels[row]] -= scale;
            }
        } else if (dlogits) {
            for (int64_t i = 0; i < count; i++) {
                logits[i] = 0.0f;
            }
        }
        if (nll) {
            nll[row] = loss;
        }
        total += loss;
    }
    return total;
}

static void kernel_embedding_gradient(const int32_t *ids, const float *dy, float *dweight,
                                      int64_t tokens, int64_t width, int64_t id_begin,
                                      int64_t id_end)
{
    for (int64_t t = 0; t < tokens; t++, dy += width) {
        if (ids[t] < id_begin || ids[t] >= id_end) {
            continue;
        }
        float *row = dweight + ids[t] * width;
        for (int64_t k = 0; k < width; k += 16) {
            const int64_t left = width - k;
            v16_put(row + k, v16_add(v16_take(row + k, left), v16_take(dy + k, left)), left);
        }
    }
}

#endif
