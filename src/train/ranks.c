#include "train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/work.h"

enum {
    PIECE = 1 << 20, /* floats that are on their way at once */
    LINE = 16        /* what a network's parameters are padded to */
};

ssm_status ssm__ranks_open(const ssm_train_ranks *table, ssm__ranks *out, ssm_error *err)
{
    *out = (ssm__ranks){.size = 1};
    if (table == NULL || table->size == 1) {
        return SSM_STATUS_OK;
    }
    if (table->size < 1 || table->size > SSM_TRAIN_RANKS_MOST || table->rank < 0 ||
        table->rank >= table->size) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rank %d of %d; expected one of at most %d", table->rank, table->size,
                         SSM_TRAIN_RANKS_MOST);
    }
    *out = (ssm__ranks){.table = table, .rank = table->rank, .size = table->size};
    out->out = calloc(PIECE, sizeof *out->out);
    out->in = calloc(PIECE, sizeof *out->in);
    if (out->out == NULL ||
        out->in == NULL) { /* the others will hear it: meetings need no memory */
        return ssm__fail_memory(err, "gradients of other ranks", 2 * PIECE * sizeof *out->in);
    }
    return SSM_STATUS_OK;
}

void ssm__ranks_close(ssm__ranks *ranks)
{
    free(ranks->out);
    free(ranks->in);
    ranks->out = ranks->in = NULL;
}

static ssm_status lost(ssm__ranks *ranks, ssm_error *err)
{
    ranks->lost = true;
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "rank %d has lost the connection to the other %d; the run can be resumed from "
                     "its last checkpoint",
                     ranks->rank, ranks->size - 1);
}

/* ---- meetings -------------------------------------------------------------------------------- */

typedef struct message {
    int64_t status, stop, not_finite, count;
    double sum;
} message;

/* The error of rank `from`, which says whose it is, becomes everybody's. */
static ssm_status adopt(ssm__ranks *ranks, int from, ssm_status status, ssm_error *err)
{
    ssm_error record;
    ssm_error_clear(&record);
    if (ranks->rank == from && err != NULL) {
        record = *err;
    }
    if (!ranks->table->broadcast(ranks->table->context, from, &record, sizeof record)) {
        return lost(ranks, err);
    }
    if (err != NULL) {
        *err = record;
        err->status = status;
        err->message[sizeof err->message - 1] = '\0';
        if (from > 0) {
            snprintf(err->message, sizeof err->message, "rank %d: %.*s", from,
                     (int)sizeof err->message - 24, record.message);
        }
    }
    return status;
}

static void add_note(const message *from, ssm__rank_note *all)
{
    all->stop = all->stop || from->stop != 0;
    all->not_finite = all->not_finite || from->not_finite != 0;
    all->count += from->count;
    all->sum += from->sum;
}

ssm_status ssm__ranks_meet(ssm__ranks *ranks, ssm_status own, const ssm__rank_note *note,
                           ssm__rank_note *all, ssm_error *err)
{
    message said = {.status = own};
    if (note != NULL) {
        said.stop = note->stop;
        said.not_finite = note->not_finite;
        said.count = note->count;
        said.sum = note->sum;
    }
    ssm__rank_note nobody = {0};
    all = all == NULL ? &nobody : all;
    if (ranks->table == NULL || ranks->lost) {
        add_note(&said, all);
        return own;
    }
    message heard[SSM_TRAIN_RANKS_MOST];
    if (!ranks->table->gather(ranks->table->context, &said, heard, sizeof said)) {
        return lost(ranks, err);
    }
    int failed = -1;
    for (int k = 0; k < ranks->size; k++) {
        add_note(&heard[k], all);
        if (failed < 0 && heard[k].status != SSM_STATUS_OK) {
            failed = k;
        }
    }
    return failed < 0 ? SSM_STATUS_OK : adopt(ranks, failed, (ssm_status)heard[failed].status, err);
}

ssm_status ssm_train_agree(const ssm_train_ranks *table, ssm_status own, ssm_error *err)
{
    ssm__ranks ranks = {.table = table, .size = 1};
    if (table == NULL || table->size == 1) {
        return own;
    }
    ranks.rank = table->rank;
    ranks.size = table->size;
    return ssm__ranks_meet(&ranks, own, NULL, NULL, err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

ssm_status ssm__ranks_copy(ssm__ranks *ranks, void *data, size_t bytes, ssm_error *err)
{
    const size_t most = PIECE * sizeof(float);
    for (size_t at = 0; ranks->table != NULL && at < bytes; at += most) {
        const size_t count = bytes - at < most ? bytes - at : most;
        if (!ranks->table->broadcast(ranks->table->context, 0, (char *)data + at, count)) {
            return lost(ranks, err);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ranks_alike(ssm__ranks *ranks, const char *what, const char digest[64],
                            ssm_error *err)
{
    char first[64];
    ssm_status status = SSM_STATUS_OK;
    snprintf(first, sizeof first, "%s", digest);
    SSM__TRY(ssm__ranks_copy(ranks, first, sizeof first, err));
    first[sizeof first - 1] = '\0';
    if (strcmp(first, digest) != 0) {
        status = ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                           "%s is not that of rank 0: %s, there %s", what, digest, first);
    }
    return ssm__ranks_meet(ranks, status, NULL, NULL, err);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A stretch of the floats that travels at once: [size][block], of which the last blocks may be
 * shorter, or empty. */
typedef struct piece {
    int64_t at, floats, block;
} piece;

static piece piece_at(const ssm__ranks *ranks, int64_t at, int64_t floats)
{
    const int64_t most = PIECE / LINE / ranks->size * LINE * ranks->size;
    const int64_t count = ssm__least(most, floats - at);
    return (piece){at, count, ssm__divide_up(count / LINE, ranks->size) * LINE};
}

/* Where this rank's block begins in all floats, and how many there are in it. */
static int64_t own_block(const ssm__ranks *ranks, const piece *p, int64_t *count)
{
    const int64_t begin = ssm__least(ranks->rank * p->block, p->floats);
    *count = ssm__least(p->block, p->floats - begin);
    return p->at + begin;
}

static void add_one(const ssm__kernels *kernels, const float *from, bool first, float *sum,
                    int64_t count)
{
    if (first) {
        memcpy(sum, from, (size_t)count * sizeof *sum);
    } else {
        kernels->add(from, sum, count);
    }
}

ssm_status ssm__ranks_add(ssm__ranks *ranks, const ssm__kernels *kernels, const float *gradients,
                          bool first, float *sum, int64_t floats, ssm_error *err)
{
    if (ranks->table == NULL) {
        add_one(kernels, gradients, first, sum, floats);
        return SSM_STATUS_OK;
    }
    for (int64_t at = 0; at < floats;) {
        const piece p = piece_at(ranks, at, floats);
        int64_t count;
        float *own = sum + own_block(ranks, &p, &count);
        memcpy(ranks->out, gradients + at, (size_t)p.floats * sizeof *gradients);
        if (!ranks->table->exchange(ranks->table->context, ranks->out, ranks->in,
                                    (size_t)p.block * sizeof *gradients)) {
            return lost(ranks, err);
        }
        for (int k = 0; k < ranks->size; k++) {
            add_one(kernels, ranks->in + k * p.block, first && k == 0, own, count);
        }
        at += p.floats;
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ranks_gather(ssm__ranks *ranks, float *sum, int64_t floats, ssm_error *err)
{
    for (int64_t at = 0; ranks->table != NULL && at < floats;) {
        const piece p = piece_at(ranks, at, floats);
        int64_t count;
        const float *own = sum + own_block(ranks, &p, &count);
        memcpy(ranks->out, own, (size_t)count * sizeof *own);
        if (!ranks->table->gather(ranks->table->context, ranks->out, ranks->in,
                                  (size_t)p.block * sizeof *own)) {
            return lost(ranks, err);
        }
        memcpy(sum + at, ranks->in, (size_t)p.floats * sizeof *sum);
        at += p.floats;
    }
    return SSM_STATUS_OK;
}
