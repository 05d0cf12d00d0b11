/* select/rule.h: what a rule is. One file a rule: add it, declare its rule below, list it in
 * rules[] of select.c. */
#ifndef SSM_SELECT_RULE_H
#define SSM_SELECT_RULE_H

#include <ssmscope/select.h>

/* Fills out->keep (made with all modes kept). options are checked already. */
typedef ssm_status ssm__rule_fn(ssm_recording *recording, const ssm_select_options *options,
                                ssm_mask *out, ssm_error *err);

typedef struct ssm__rule {
    const char *name;
    bool needs_calibration;
    ssm__rule_fn *fill;
} ssm__rule;

extern const ssm__rule ssm__rule_static;

/* Keeps the `budget` highest scores of every channel of a layer: scores[H][N], keep[H][N],
 * order[N]. Ties go to the lower index. */
void ssm__keep_top(const double *scores, int64_t channels, int64_t d_state, int64_t budget,
                   int32_t *order, uint8_t *keep);

#endif
