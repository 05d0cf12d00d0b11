/* ssmscope/select.h: a recording → kept sets, and what sets cost. */
#ifndef SSMSCOPE_SELECT_H
#define SSMSCOPE_SELECT_H

#include <ssmscope/model.h>
#include <ssmscope/recording.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ridge of `compensated` when none is given, relative to each summand's energy. */
#define SSM_DEFAULT_RIDGE 1e-4

typedef struct ssm_select_options {
    const char *rule;  /* "static", "last:squared", "compensated:optimal" (docs/select.md) */
    int64_t budget;    /* r kept modes a channel or head, 1 … N; `last`: in the mean */
    const char *scope; /* "channel" (default when NULL) or "layer"; Mamba-2: or "head", "group" */
    uint64_t seed;     /* of rules that draw */
    double ridge;      /* of `compensated`, > 0; 0: SSM_DEFAULT_RIDGE */
    ssm_pool *pool;    /* for `optimal`; NULL: the calling thread. The sets are the same */
    ssm_isa isa;       /* of its kernel; AUTO: the best of this machine. The sets are the same */
} ssm_select_options;

/* Names of the rules, NULL-terminated. `last`, `compensated` and
 * `compensated-shared` take a parameter behind a colon. */
SSM_API const char *const *ssm_select_rules(void);
/* True for a name of a rule, with or without its parameter. */
SSM_API bool ssm_select_is_rule(const char *rule);
/* Ties go to the lower index. Owner of *out: the caller, ssm_mask_free. Errors: USAGE (unknown rule
 * with the nearest name, a scope or a family that the rule is not defined for, a budget out of
 * range, no calibration windows, no Gram, a recording of only some layers: the other layers' sets
 * are unknown), FILE, MEMORY. */
SSM_API ssm_status ssm_select(ssm_recording *recording, const ssm_select_options *options,
                              ssm_mask *out, ssm_error *err);

/* Relative error of the layers' outputs (before out_proj; Mamba-2: before the norm), from Grams:
 *   E = sqrt(Σ_w Σ_h Σ_ij c_i c_j G_ij / Σ_w Σ_h Σ_t y²)
 * over the windows of one role, with c = 1 for dropped modes, 0 for kept ones, and 1 − weight where
 * a mask has weights. Column k is what stands in budgets[k]. */
typedef struct ssm_error_curve {
    int64_t n_layers, n_budgets;
    int64_t *layers;  /* [n_layers] the recorded ones */
    int64_t *budgets; /* [n_budgets] 1 … N of a rule; of a mask its budget, 0: not stated */
    double *error;    /* [n_layers][n_budgets]; NaN where the output has no energy */
    double *mean;     /* [n_budgets] over the layers */
} ssm_error_curve;

/* The error of a rule at every budget at once (options->budget is not looked at), one set of Grams
 * and no forward pass. Owner of *out: the caller. Errors: as ssm_select, and USAGE when there are
 * no windows of the role or their Grams were not recorded for the rule's sets. */
SSM_API ssm_status ssm_select_curve(ssm_recording *recording, const ssm_select_options *options,
                                    ssm_role role, ssm_error_curve *out, ssm_error *err);
/* The exact error of any mask. Errors: USAGE (other dimensions, another model's mask, as above),
 * FILE, MEMORY. */
SSM_API ssm_status ssm_select_error(ssm_recording *recording, const ssm_mask *mask, ssm_role role,
                                    ssm_error_curve *out, ssm_error *err);
SSM_API void ssm_error_curve_free(ssm_error_curve *curve);

#ifdef __cplusplus
}
#endif
#endif
