/* ssmscope/examine.h: what is odd about a checkpoint, in plain sentences. */
#ifndef SSMSCOPE_EXAMINE_H
#define SSMSCOPE_EXAMINE_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ssm_finding_kind {
    SSM_FINDING_OK,     /* as expected; said because people ask */
    SSM_FINDING_NOTE,   /* odd; the model runs */
    SSM_FINDING_PROBLEM /* wrong results, or none */
} ssm_finding_kind;

SSM_API const char *ssm_finding_kind_name(ssm_finding_kind kind); /* "ok", "note", "problem" */

typedef struct ssm_finding {
    ssm_finding_kind kind;
    const char *topic; /* "load", "dtypes", "numbers", "steps", "decay", "norms", … ; static */
    char tensor[96];   /* the one that it is about, or "" */
    char *text;        /* one sentence, UTF-8 */
} ssm_finding;

/* A growing list. Start from {0}; ssm_findings_free releases it. */
typedef struct ssm_findings {
    ssm_finding *items;
    int64_t count, capacity;
} ssm_findings;

/* Appends one. tensor may be NULL. Errors: MEMORY. */
SSM_API ssm_status ssm_findings_add(ssm_findings *findings, ssm_finding_kind kind,
                                    const char *topic, const char *tensor, ssm_error *err,
                                    const char *format, ...) SSM_PRINTF(6, 7);
SSM_API int64_t ssm_findings_of(const ssm_findings *findings, ssm_finding_kind kind);
SSM_API void ssm_findings_free(ssm_findings *findings);

/* Reads every weight once and appends what there is to say: notes of the load, names, dtypes a
 * class of tensors, numbers that are not finite or are subnormal, zero and constant rows, layers
 * that are the same, step sizes and decay rates, norm weights, rows of the embedding, traces of an
 * initialisation that was never trained away. A note or a problem for what is odd, ok for what was
 * looked at and is not. pool and progress may be NULL.
 * Errors: MEMORY, INTERRUPTED; what is wrong with the checkpoint is a finding, not an error. */
SSM_API ssm_status ssm_examine(const ssm_checkpoint *checkpoint, ssm_pool *pool,
                               const ssm_progress *progress, ssm_findings *findings,
                               ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
