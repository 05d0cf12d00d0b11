/* diagnose/examine.c: reads every weight once, then asks one question after the other. */
#include "diagnose/examine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"

/* ---- summaries ------------------------------------------------------------------------------- */

typedef struct batch {
    const ssm__examination *x;
    int64_t first;
} batch;

static void summarize_task(void *context, int64_t task, int thread)
{
    const batch *b = context;
    const ssm__examination *x = b->x;
    const int64_t place = b->first + task;
    (void)thread;
    const ssm_tensor *tensor = ssm__place_tensor(x->checkpoint, x->config->n_layers, place);
    if (tensor != NULL && ssm_tensor_count(tensor) > 0) {
        double *norms = place == 0               ? x->embedding_norms
                        : place == x->places - 1 ? x->head_norms
                                                 : NULL;
        ssm__summarize(tensor, norms, &x->summaries[place]);
    }
}

static ssm_status summarize(const ssm__examination *x, ssm_pool *pool, const ssm_progress *progress,
                            ssm_error *err)
{
    enum { BATCH = 4 * SSM__LAYER_SLOTS }; /* places between two reports */
    /* A tied head is the embedding: its summary is copied. */
    const int64_t count = x->config->tied ? x->places - 1 : x->places;
    for (int64_t first = 0; first < count; first += BATCH) {
        batch b = {x, first};
        const int64_t n = count - first < BATCH ? count - first : BATCH;
        ssm__pool_run(pool, summarize_task, &b, n);
        if (progress != NULL &&
            !progress->report(progress->context, "weights", first + n, count, "tensors")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "stopped after %" PRId64 " of %" PRId64 " weights", first + n, count);
        }
    }
    if (x->config->tied) {
        x->summaries[x->places - 1] = x->summaries[0];
    }
    return SSM_STATUS_OK;
}

/* ---- the load -------------------------------------------------------------------------------- */

/* What stands before the name proper in the files, where that is unusual. */
static ssm_status say_prefix(const ssm__examination *x, ssm_error *err)
{
    const char *name = x->weights->norm_f.name;
    const char *end = name == NULL ? NULL : strstr(name, "norm");
    if (end == NULL || end == name || strncmp(name, "backbone.norm", 13) == 0) {
        return SSM_STATUS_OK;
    }
    SSM__FIND(x, NOTE, "load", NULL, "names in the files begin with %.*s instead of backbone.",
              (int)(end - name), name);
    return SSM_STATUS_OK;
}

ssm_status ssm__examine_load(const ssm__examination *x, ssm_error *err)
{
    int64_t files = 0, unused = 0;
    const char *last = NULL, *first_unused = NULL;
    for (int64_t i = 0; i < ssm_checkpoint_count(x->checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(x->checkpoint, i);
        files += last == NULL || (tensor->file != NULL && strcmp(tensor->file, last) != 0);
        last = tensor->file != NULL ? tensor->file : "";
        if (!ssm_checkpoint_used(x->checkpoint, i)) {
            first_unused = unused++ == 0 ? tensor->name : first_unused;
        }
    }
    SSM__FIND(x, OK, "load", NULL, "%" PRId64 " tensors in %" PRId64 " file%s",
              ssm_checkpoint_count(x->checkpoint), files, files == 1 ? "" : "s");
    SSM__TRY(say_prefix(x, err));
    if (unused > 0) {
        SSM__FIND(x, NOTE, "load", first_unused,
                  "%" PRId64 " tensor%s of the files %s not used, the first is %s", unused,
                  unused == 1 ? "" : "s", unused == 1 ? "is" : "are", first_unused);
    }
    for (int64_t i = 0; i < ssm_checkpoint_note_count(x->checkpoint); i++) {
        SSM__FIND(x, NOTE, "load", NULL, "%s", ssm_checkpoint_note(x->checkpoint, i));
    }
    return SSM_STATUS_OK;
}

/* A file that is not what its own checksums say is a problem to report with all others. */
static ssm_status examine_sums(const ssm__examination *x, ssm_error *err)
{
    ssm_error damage = {.offset = -1};
    ssm_status status = ssm__checkpoint_check_sums(x->checkpoint, &damage);
    if (status == SSM_STATUS_FILE) {
        SSM__FIND(x, PROBLEM, "load", NULL, "%s: %s: %s", damage.file, damage.tensor,
                  damage.message);
        return SSM_STATUS_OK;
    }
    if (status != SSM_STATUS_OK && err != NULL) {
        *err = damage;
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static ssm_status examine_all(const ssm__examination *x, ssm_pool *pool,
                              const ssm_progress *progress, ssm_error *err)
{
    SSM__TRY(summarize(x, pool, progress, err));
    SSM__TRY(ssm__examine_load(x, err));
    SSM__TRY(examine_sums(x, err));
    SSM__TRY(ssm__examine_dtypes(x, err));
    SSM__TRY(ssm__examine_numbers(x, err));
    SSM__TRY(ssm__examine_steps(x, err));
    SSM__TRY(ssm__examine_decay(x, err));
    SSM__TRY(ssm__examine_norms(x, err));
    SSM__TRY(ssm__examine_layers(x, err));
    return ssm__examine_rows(x, err);
}

ssm_status ssm_examine(const ssm_checkpoint *checkpoint, ssm_pool *pool,
                       const ssm_progress *progress, ssm_findings *findings, ssm_error *err)
{
    ssm__examination x = {.checkpoint = checkpoint,
                          .config = ssm_checkpoint_config(checkpoint),
                          .weights = ssm__checkpoint_weights(checkpoint),
                          .findings = findings};
    x.places = ssm__slot_count(x.config->n_layers);
    const size_t rows = (size_t)x.config->vocab_size;
    x.summaries = calloc((size_t)x.places, sizeof *x.summaries);
    x.embedding_norms = calloc(rows, sizeof *x.embedding_norms);
    x.head_norms = calloc(rows, sizeof *x.head_norms);
    ssm_status status = SSM_STATUS_OK;
    if (x.summaries == NULL || x.embedding_norms == NULL || x.head_norms == NULL) {
        status = ssm__fail_memory(err, "summaries of the weights",
                                  (size_t)x.places * sizeof *x.summaries);
    }
    if (status == SSM_STATUS_OK) {
        status = examine_all(&x, pool, progress, err);
    }
    free(x.summaries);
    free(x.embedding_norms);
    free(x.head_norms);
    return status;
}
