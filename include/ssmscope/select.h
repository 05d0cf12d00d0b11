/* ssmscope/select.h: a recording → kept sets. */
#ifndef SSMSCOPE_SELECT_H
#define SSMSCOPE_SELECT_H

#include <ssmscope/model.h>
#include <ssmscope/recording.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_select_options {
    const char *rule;  /* "static" */
    int64_t budget;    /* r kept modes a channel or head, 1 … N */
    const char *scope; /* "channel" (default when NULL); Mamba-2: or "head" */
    uint64_t seed;     /* of rules that draw */
} ssm_select_options;

/* Names of the rules, NULL-terminated. */
SSM_API const char *const *ssm_select_rules(void);
/* Ties go to the lower index. Owner of *out: the caller, ssm_mask_free. Errors: USAGE (unknown rule
 * with the nearest name, another scope, a budget out of range, no calibration windows, a recording
 * of only some layers: the other layers' sets are unknown), FILE, MEMORY. */
SSM_API ssm_status ssm_select(ssm_recording *recording, const ssm_select_options *options,
                              ssm_mask *out, ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
