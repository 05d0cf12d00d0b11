/* select/rule.h: what a rule is. One file a rule: add it, declare its rule below, list it in
 * RULES of select.c. */
#ifndef SSM_SELECT_RULE_H
#define SSM_SELECT_RULE_H

#include <ssmscope/select.h>

/* Fills out->keep (made with all modes kept; a row is a set of out->scope). options are checked
 * already. */
typedef ssm_status ssm__rule_fn(ssm_recording *recording, const ssm_select_options *options,
                                ssm_mask *out, ssm_error *err);

/* The scope that options ask for. */
ssm_scope ssm__select_scope(const ssm_select_options *options);

typedef struct ssm__rule {
    const char *name;
    bool needs_calibration;
    ssm__rule_fn *fill;
} ssm__rule;

extern const ssm__rule ssm__rule_static;

#endif
