#include "train/work.h"

static const ssm__parameter *own(const ssm__run *run, int64_t which)
{
    return &run->parameters[run->branch->own[which]];
}

const float *ssm__own_value(const ssm__run *run, int64_t which)
{
    return run->values + own(run, which)->at;
}

float *ssm__own_gradient(const ssm__run *run, int64_t which)
{
    return run->gradients + own(run, which)->at;
}

ssm__matrix ssm__own_matrix(const ssm__run *run, int64_t which)
{
    const ssm__parameter *p = own(run, which);
    return (ssm__matrix){run->values + p->at, SSM_DTYPE_F32, p->dims[0], p->dims[1]};
}

ssm__matrix ssm__own_part(const ssm__run *run, int64_t which, int64_t part, int64_t parts)
{
    ssm__matrix m = ssm__own_matrix(run, which);
    m.rows /= parts;
    m.data = (const float *)m.data + part * m.rows * m.cols;
    return m;
}

void ssm__project_rows(const ssm__run *run, const ssm__matrix *w, ssm__view in, ssm__view out,
                       int64_t tokens)
{
    for (int64_t row = 0; row < w->rows; row += SSM__WORK_ROWS) {
        run->kernels->linear(w, NULL, in, out, tokens, row,
                             ssm__least(row + SSM__WORK_ROWS, w->rows));
    }
}

void ssm__project_groups(const ssm__run *run, const ssm__matrix *w, const float *in, int64_t stride,
                         ssm__wide out, int64_t sequence, int64_t first, int64_t end)
{
    const int64_t row = first * SSM__LANES, row_end = ssm__least(end * SSM__LANES, w->rows);
    const float *rows = in + sequence * run->length * stride;
    for (int64_t t = 0; t < run->length && row < row_end; t += SSM__WORK_TOKENS) {
        run->kernels->linear(w, NULL, ssm__rows_view(rows + t * stride, stride),
                             ssm__wide_view(out, sequence, t),
                             ssm__least(SSM__WORK_TOKENS, run->length - t), row, row_end);
    }
}

void ssm__project_groups_back(const ssm__run *run, const ssm__matrix *w, ssm__wide d,
                              int64_t sequence, int64_t first, int64_t end)
{
    const float *rows = run->dout + sequence * run->length * w->rows;
    for (int64_t t = 0; t < run->length; t += SSM__WORK_TOKENS) {
        run->kernels->training->linear_input_gradient(
            w, ssm__rows_view(rows + t * w->rows, w->rows), ssm__wide_view(d, sequence, t),
            ssm__least(SSM__WORK_TOKENS, run->length - t), first * SSM__LANES,
            ssm__least(end * SSM__LANES, w->cols), false);
    }
}

void ssm__project_back(const ssm__run *run, const ssm__matrix *w, ssm__wide d, int64_t sequence,
                       int64_t token, int64_t tokens, bool add)
{
    float *din = run->din + (sequence * run->length + token) * w->cols;
    run->kernels->training->linear_input_gradient(w, ssm__wide_view(d, sequence, token),
                                                  ssm__rows_view(din, w->cols), tokens, 0, w->cols,
                                                  add);
}

ssm__view ssm__side_view(const ssm__side *side, int64_t length, int64_t sequence, int64_t token)
{
    if (side->wide.data != NULL) {
        return ssm__wide_view(side->wide, sequence, token);
    }
    return ssm__rows_view(side->rows + (sequence * length + token) * side->stride, side->stride);
}

typedef struct products {
    const ssm__run *run;
    const ssm__weight_product *list;
    int count;
    int64_t block; /* rows of a task, a multiple of 16 */
    int64_t blocks[SSM__WORK_PRODUCTS];
    int64_t total;
} products;

/* Which block stands at place `task` when block i of a product with n blocks has the key
 * (2i + 1)/2n and keys rise; of equal keys the earlier product's first. */
static void find_block(const products *all, int64_t task, int *product, int64_t *block)
{
    int64_t next[SSM__WORK_PRODUCTS] = {0};
    for (int64_t place = 0;; place++) {
        int best = -1;
        for (int p = 0; p < all->count; p++) {
            const bool left = next[p] < all->blocks[p];
            if (left && (best < 0 || (2 * next[p] + 1) * all->blocks[best] <
                                         (2 * next[best] + 1) * all->blocks[p])) {
                best = p;
            }
        }
        if (place == task) {
            *product = best;
            *block = next[best];
            return;
        }
        next[best]++;
    }
}

static void product_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const products *all = context;
    int number;
    int64_t block;
    find_block(all, task, &number, &block);
    const ssm__weight_product *product = &all->list[number];
    const int64_t row = block * all->block;
    const int64_t end = ssm__least(row + all->block, product->rows);
    const int64_t length = all->run->length;
    for (int64_t s = 0; s < all->run->sequences; s++) {
        all->run->kernels->training->linear_weight_gradient(
            ssm__side_view(&product->dy, length, s, 0), ssm__side_view(&product->x, length, s, 0),
            length, product->cols, product->dw, row, end);
    }
}

void ssm__weight_products(const ssm__run *run, const ssm__weight_product *list, int count)
{
    products all = {.run = run, .list = list, .count = count, .block = SSM__WORK_ROWS};
    for (int p = 0; p < count; p++) {
        all.blocks[p] = ssm__divide_up(list[p].rows, all.block);
        all.total += all.blocks[p];
    }
    ssm__pool_run(run->pool, product_task, &all, all.total);
}
