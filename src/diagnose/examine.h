/* diagnose/examine.h: what the parts of an examination share. Each part looks at one thing in all
 * layers and appends few sentences, however many layers there are. */
#ifndef SSM_DIAGNOSE_EXAMINE_H
#define SSM_DIAGNOSE_EXAMINE_H

#include <ssmscope/examine.h>

#include "base/error.h"
#include "diagnose/summary.h"
#include "diagnose/tensors.h"

typedef struct ssm__examination {
    const ssm_checkpoint *checkpoint;
    const ssm_config *config;
    const ssm__weights *weights;
    int64_t places;
    ssm__summary *summaries;              /* [places], zero where there is no tensor */
    double *embedding_norms, *head_norms; /* [vocab_size]; those of a tied head are not filled */
    ssm_findings *findings;
} ssm__examination;

/* The place of a field in a layer, and its summary (count 0: no such tensor). */
static inline int64_t ssm__field_place(int64_t layer, int field)
{
    return 1 + layer * SSM__LAYER_SLOTS + field;
}
static inline const ssm__summary *ssm__field_summary(const ssm__examination *x, int64_t layer,
                                                     int field)
{
    return &x->summaries[ssm__field_place(layer, field)];
}

/* Appends a finding; forwards its failure. */
#define SSM__FIND(x, kind, topic, tensor, ...)                                                     \
    SSM__TRY(ssm_findings_add((x)->findings, SSM_FINDING_##kind, topic, tensor, err, __VA_ARGS__))

ssm_status ssm__examine_load(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_dtypes(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_numbers(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_steps(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_decay(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_norms(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_layers(const ssm__examination *x, ssm_error *err);
ssm_status ssm__examine_rows(const ssm__examination *x, ssm_error *err);

#endif
