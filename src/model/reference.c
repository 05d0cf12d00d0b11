/* model/reference.c: the float64 oracle over a loaded model. */
#include "model/model.h"

#include "reference/reference.h"

ssm_status ssm_reference_forward(const ssm_model *model, const int32_t *ids, int64_t count,
                                 double *logits, double *hidden, ssm_error *err)
{
    return ssm__ref_forward(model->config, ssm__checkpoint_weights(model->checkpoint), NULL, ids,
                            count, logits, hidden, err);
}
