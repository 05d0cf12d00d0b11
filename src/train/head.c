/* train/head.c: last norm, head and loss, forward and backward, in tiles of rows.
 *
 * A row of the head is a token with a label (other tokens never reach it), a token of a regression,
 * or the mean of a sequence's tokens for a class. Logits of one tile are in memory at a time. */
#include <string.h>

#include "kernels/training.h"
#include "train/inside.h"
#include "train/work.h"

enum {
    TILE_FLOATS = 1 << 20, /* of logits */
    TILE_LEAST = 64,
    TILE_MOST = 512,
    VOCAB_ROWS = 96, /* rows of the head a task */
    LOSS_ROWS = 4,   /* rows of a tile a task */
    BACK_COLUMNS = 64
};

void ssm__head_layout(ssm__arena *arena, const ssm__network *network, int64_t tokens,
                      ssm__head *head)
{
    const int64_t D = network->config.shape.d_model;
    ssm__head h = {.width = network->config.loss == SSM_TRAIN_TOKENS
                                ? network->config.shape.vocab_size
                                : network->config.n_outputs};
    h.tile = TILE_FLOATS / h.width / TILE_LEAST * TILE_LEAST;
    h.tile = h.tile < TILE_LEAST ? TILE_LEAST : ssm__least(h.tile, TILE_MOST);
    h.token = SSM__TAKE(arena, int64_t, tokens);
    h.x = SSM__TAKE(arena, float, h.tile *D);
    h.h = SSM__TAKE(arena, float, h.tile *D);
    h.dh = SSM__TAKE(arena, float, h.tile *D);
    h.dx = SSM__TAKE(arena, float, h.tile *D);
    h.means = SSM__TAKE(arena, float, h.tile);
    h.scales = SSM__TAKE(arena, float, h.tile);
    h.out = SSM__TAKE(arena, float, h.tile *h.width);
    h.labels = SSM__TAKE(arena, int32_t, h.tile);
    h.nll = SSM__TAKE(arena, double, h.tile);
    h.best = SSM__TAKE(arena, int32_t, h.tile);
    *head = h;
}

typedef struct head_job {
    ssm__pass *pass;
    const ssm__network *network;
    const ssm_train_batch *batch;
    int64_t first; /* token of the batch that the slab begins with */
    int64_t row;   /* the tile's first row */
    int64_t rows;  /* in the tile */
    float scale;
    float *outputs;
} head_job;

static ssm__matrix head_matrix(const ssm__network *network)
{
    const ssm__parameter *p = &network->parameters[network->head];
    return (ssm__matrix){network->values + p->at, SSM_DTYPE_F32, p->dims[0], p->dims[1]};
}

static float *at_gradient(const ssm__network *network, int64_t number)
{
    return network->gradients + network->parameters[number].at;
}

/* ---- the products of a tile ------------------------------------------------------------------ */

static void product_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    const ssm__network *network = job->network;
    const ssm__head *head = &job->pass->head;
    const ssm__matrix w = head_matrix(network);
    const float *bias = network->head_bias < 0
                            ? NULL
                            : network->values + network->parameters[network->head_bias].at;
    const int64_t row = task * VOCAB_ROWS, end = ssm__least(row + VOCAB_ROWS, w.rows);
    for (int64_t t = 0; t < job->rows; t += SSM__WORK_TOKENS) {
        network->kernels->linear(&w, bias, ssm__rows_view(head->h + t * w.cols, w.cols),
                                 ssm__rows_view(head->out + t * w.rows, w.rows),
                                 ssm__least(SSM__WORK_TOKENS, job->rows - t), row, end);
    }
}

/* dh of some rows and columns. */
static void input_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    const ssm__head *head = &job->pass->head;
    const ssm__matrix w = head_matrix(job->network);
    const int64_t blocks = ssm__divide_up(w.cols, BACK_COLUMNS);
    const int64_t column = task % blocks * BACK_COLUMNS, t = task / blocks * SSM__WORK_TOKENS;
    job->network->kernels->training->linear_input_gradient(
        &w, ssm__rows_view(head->out + t * w.rows, w.rows),
        ssm__rows_view(head->dh + t * w.cols, w.cols), ssm__least(SSM__WORK_TOKENS, job->rows - t),
        column, ssm__least(column + BACK_COLUMNS, w.cols), false);
}

static void weight_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    const ssm__head *head = &job->pass->head;
    const ssm__matrix w = head_matrix(job->network);
    const ssm__view dout = ssm__rows_view(head->out, w.rows);
    const int64_t row = task * VOCAB_ROWS, end = ssm__least(row + VOCAB_ROWS, w.rows);
    job->network->kernels->training->linear_weight_gradient(
        dout, ssm__rows_view(head->h, w.cols), job->rows, w.cols,
        at_gradient(job->network, job->network->head), row, end);
    if (job->network->head_bias >= 0) {
        job->network->kernels->training->column_sums(
            dout, job->rows, at_gradient(job->network, job->network->head_bias), row, end);
    }
}

/* ---- the loss of a tile ---------------------------------------------------------------------- */

static int32_t best_of(const float *row, int64_t count)
{
    int32_t best = 0;
    for (int64_t k = 1; k < count; k++) {
        best = row[k] > row[best] ? (int32_t)k : best;
    }
    return best;
}

static void entropy_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    ssm__head *head = &job->pass->head;
    const int64_t end = ssm__least((task + 1) * LOSS_ROWS, job->rows);
    for (int64_t r = task * LOSS_ROWS; r < end; r++) {
        float *row = head->out + r * head->width;
        if (!job->pass->backward) {
            head->best[r] = best_of(row, head->width);
        }
        job->network->kernels->training->cross_entropy(
            row, head->labels + r, 1, head->width, job->scale, job->pass->backward, head->nll + r);
    }
}

/* out ← 2·scale·(out − target); nll is the row's Σ of squares. */
static void square_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    ssm__head *head = &job->pass->head;
    const int64_t end = ssm__least((task + 1) * LOSS_ROWS, job->rows);
    for (int64_t r = task * LOSS_ROWS; r < end; r++) {
        const int64_t token = job->first + head->token[job->row + r];
        const float *target = job->batch->targets + token * head->width;
        float *out = head->out + r * head->width;
        double sum = 0;
        if (job->outputs != NULL) {
            memcpy(job->outputs + token * head->width, out, (size_t)head->width * sizeof *out);
        }
        for (int64_t k = 0; k < head->width; k++) {
            const float error = out[k] - target[k];
            sum += (double)error * (double)error;
            out[k] = 2.0f * job->scale * error;
        }
        head->nll[r] = sum;
    }
}

/* h → loss, and with backward dh and the gradients of the head. */
static void run_tile(head_job *job, ssm__loss *loss)
{
    const ssm__network *network = job->network;
    const ssm__head *head = &job->pass->head;
    const bool squares = network->config.loss == SSM_TRAIN_VECTORS;
    const int64_t vocab_tasks = ssm__divide_up(head->width, VOCAB_ROWS);
    ssm__pool_run(network->pool, product_task, job, vocab_tasks);
    ssm__pool_run(network->pool, squares ? square_task : entropy_task, job,
                  ssm__divide_up(job->rows, LOSS_ROWS));
    for (int64_t r = 0; r < job->rows; r++) {
        loss->sum += head->nll[r];
    }
    loss->count += job->rows * (squares ? head->width : 1);
    if (job->pass->backward) {
        const int64_t columns = ssm__divide_up(network->config.shape.d_model, BACK_COLUMNS);
        ssm__pool_run(network->pool, input_task, job,
                      columns * ssm__divide_up(job->rows, SSM__WORK_TOKENS));
        ssm__pool_run(network->pool, weight_task, job, vocab_tasks);
    }
}

/* ---- tokens with a loss of their own --------------------------------------------------------- */

static void list_tokens(const head_job *job)
{
    const ssm__pass *pass = job->pass;
    ssm__head *head = &job->pass->head;
    const bool labels = job->network->config.loss == SSM_TRAIN_TOKENS;
    head->rows = 0;
    for (int64_t i = 0; i < pass->sequences * pass->length; i++) {
        const int64_t token = job->first + i;
        const bool scored = labels ? job->batch->labels[token] >= 0
                                   : token % pass->length < job->batch->used[token / pass->length];
        if (scored) {
            head->token[head->rows++] = i;
        }
    }
}

static void gather(const head_job *job)
{
    const ssm__pass *pass = job->pass;
    ssm__head *head = &job->pass->head;
    const int64_t D = job->network->config.shape.d_model;
    const float *stream = pass->stream[job->network->n_branches];
    for (int64_t r = 0; r < job->rows; r++) {
        const int64_t token = head->token[job->row + r];
        memcpy(head->x + r * D, stream + token * D, (size_t)D * sizeof *stream);
        if (job->network->config.loss == SSM_TRAIN_TOKENS) {
            head->labels[r] = job->batch->labels[job->first + token];
        }
    }
}

static void run_tokens(head_job *job, ssm__loss *loss, int32_t *predictions)
{
    const ssm__network *network = job->network;
    ssm__head *head = &job->pass->head;
    const int64_t D = network->config.shape.d_model;
    list_tokens(job);
    for (job->row = 0; job->row < head->rows; job->row += head->tile) {
        job->rows = ssm__least(head->tile, head->rows - job->row);
        gather(job);
        ssm__norm_forward(network, network->norm_f, network->norm_f_bias, head->x, head->h,
                          job->rows);
        run_tile(job, loss);
        for (int64_t r = 0; predictions != NULL && r < job->rows; r++) {
            predictions[job->first + head->token[job->row + r]] = head->best[r];
        }
        if (!job->pass->backward) {
            continue;
        }
        ssm__norm_backward(network, network->norm_f, network->norm_f_bias, head->x, head->dh,
                           head->dx, head->means, head->scales, job->rows, false);
        for (int64_t r = 0; r < job->rows; r++) {
            memcpy(job->pass->dstream + head->token[job->row + r] * D, head->dx + r * D,
                   (size_t)D * sizeof *head->dx);
        }
    }
}

/* ---- classes --------------------------------------------------------------------------------- */

/* One sequence: h ← mean of its normed tokens, or their gradient ← dh / used. */
static void pool_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    const ssm__pass *pass = job->pass;
    const int64_t D = job->network->config.shape.d_model, sequence = job->row + task;
    const int64_t used = job->batch->used[job->first / pass->length + sequence];
    const float *rows = pass->normed + sequence * pass->length * D;
    float *h = pass->head.h + task * D;
    memset(h, 0, (size_t)D * sizeof *h);
    for (int64_t t = 0; t < used; t++) {
        job->network->kernels->add(rows + t * D, h, D);
    }
    for (int64_t k = 0; k < D; k++) {
        h[k] /= (float)(used > 0 ? used : 1);
    }
}

static void spread_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const head_job *job = context;
    const ssm__pass *pass = job->pass;
    const int64_t D = job->network->config.shape.d_model, sequence = job->row + task;
    const int64_t used = job->batch->used[job->first / pass->length + sequence];
    const float *dh = pass->head.dh + task * D;
    float *rows = pass->din + sequence * pass->length * D;
    for (int64_t t = 0; t < pass->length; t++) {
        for (int64_t k = 0; k < D; k++) {
            rows[t * D + k] = t < used ? dh[k] / (float)used : 0.0f;
        }
    }
}

static void run_classes(head_job *job, ssm__loss *loss, int32_t *predictions)
{
    const ssm__network *network = job->network;
    ssm__pass *pass = job->pass;
    ssm__head *head = &pass->head;
    const int64_t tokens = pass->sequences * pass->length;
    const int64_t first = job->first / pass->length;
    const float *stream = pass->stream[network->n_branches];
    ssm__norm_forward(network, network->norm_f, network->norm_f_bias, stream, pass->normed, tokens);
    for (job->row = 0; job->row < pass->sequences; job->row += head->tile) {
        job->rows = ssm__least(head->tile, pass->sequences - job->row);
        memcpy(head->labels, job->batch->labels + first + job->row,
               (size_t)job->rows * sizeof *head->labels);
        ssm__pool_run(network->pool, pool_task, job, job->rows);
        run_tile(job, loss);
        for (int64_t r = 0; r < job->rows; r++) {
            loss->count -= head->labels[r] < 0;
            if (predictions != NULL && head->labels[r] >= 0) {
                predictions[first + job->row + r] = head->best[r];
            }
        }
        if (pass->backward) {
            ssm__pool_run(network->pool, spread_task, job, job->rows);
        }
    }
    if (pass->backward) {
        ssm__norm_backward(network, network->norm_f, network->norm_f_bias, stream, pass->din,
                           pass->dstream, pass->means, pass->scales, tokens, false);
    }
}

void ssm__head_run(ssm__pass *pass, const ssm_train_batch *batch, int64_t first, float scale,
                   ssm__loss *loss, int32_t *predictions, float *outputs)
{
    head_job job = {.pass = pass,
                    .network = pass->network,
                    .batch = batch,
                    .first = first * pass->length,
                    .scale = scale,
                    .outputs = outputs};
    if (pass->backward) {
        memset(pass->dstream, 0,
               (size_t)(pass->sequences * pass->length * pass->network->config.shape.d_model) *
                   sizeof *pass->dstream);
    }
    if (pass->network->config.loss == SSM_TRAIN_CLASSES) {
        run_classes(&job, loss, predictions);
    } else {
        run_tokens(&job, loss, predictions);
    }
}
