/* instrument/verify.h: what the verifications of the families share. */
#ifndef SSM_INSTRUMENT_VERIFY_H
#define SSM_INSTRUMENT_VERIFY_H

#include <ssmscope/instrument.h>

/* One call of ssm_verify, checked. */
typedef struct ssm__verification {
    const ssm_model *model;
    const ssm_corpus *corpus;
    const ssm_verify_options *options;
    const int64_t *budgets;
    int64_t n_budgets;
    ssm_verify_result *out; /* arrays to be filled */
} ssm__verification;

/* Fills out's arrays for a model of Mamba-2. Errors: as ssm_verify. */
ssm_status ssm__verify_heads(const ssm__verification *verification, ssm_error *err);

/* Window w: the domains take turns. */
const int32_t *ssm__verify_ids(const ssm__verification *verification, int64_t w);
/* Every window from the zero state, embedded, through every layer. The function moves the session's
 * stream through its layer. Errors: the function's, INTERRUPTED. */
typedef ssm_status ssm__verify_layer_fn(void *context, int64_t layer, int64_t window,
                                        ssm_error *err);
ssm_status ssm__verify_windows(const ssm__verification *verification, ssm_session *session,
                               ssm__verify_layer_fn *verify_layer, void *context, ssm_error *err);
/* Σ (a − b)², Σ a² in float64. */
double ssm__square_distance(const float *a, const float *b, int64_t count);
double ssm__square_norm(const float *a, int64_t count);
/* sqrt(a / b); 0 when a vanishes. */
double ssm__relative(double a, double b);

#endif
