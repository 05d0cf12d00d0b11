/* ssmscope/adapt.h: rules that choose a set anew for every window of text, or for every domain. */
#ifndef SSMSCOPE_ADAPT_H
#define SSMSCOPE_ADAPT_H

#include <ssmscope/evaluate.h>
#include <ssmscope/recording.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every rule keeps, of each set's modes, the `budget` of highest score (ties to the lower index):
 *   scheduled      the window's own energies Σ_t m²: what is scored was looked at first
 *   half           the energies of the first ⌊window/2⌋ tokens
 *   prefix:T       of the first T tokens, 256 when T is not given
 *   prefix-ramp:T  those times, for every mode, Σ of its energies over whole calibration windows
 *                  divided by Σ over their first T tokens (1 where that is 0)
 *   regime         Σ of the energies of the calibration windows of the window's domain
 * Energies are those of the unpruned model. The set is in force from the window's first token on,
 * as that of `static`, so that only the tokens it was chosen on differ. */

typedef struct ssm_adapt_options {
    const char *rule;  /* as above */
    int64_t budget;    /* 1 … d_state */
    const char *scope; /* "channel" (default when NULL) or "layer"; Mamba-2: or "head", "group" */
    int64_t window;    /* most tokens of a window; `half` and `prefix` choose inside it */
    bool exact_chunks; /* of the session */
    ssm_pool *pool;
} ssm_adapt_options;

/* Names of the rules without T, NULL-terminated. */
SSM_API const char *const *ssm_adapt_rules(void);
/* True for a name of a rule, with or without its T. */
SSM_API bool ssm_adapt_is_rule(const char *rule);
/* The tokens that a rule chooses on and that a fair score leaves out: T, of `half` ⌊window/2⌋; 0:
 * none (regime), or all (scheduled). Errors: USAGE (no such rule, T not inside the window). */
SSM_API ssm_status ssm_adapt_tokens(const char *rule, int64_t window, int64_t *out, ssm_error *err);

typedef struct ssm_adapter ssm_adapter;
/* corpus: whose domains `regime` must find in the recording; used by the chooser's numbers only.
 * recording: of the same model (the caller compares digests); read here, not kept. May be NULL for
 * rules that look at the window alone. Errors: USAGE (as ssm_adapt_tokens; a budget out of range, a
 * scope that the family does not have; a domain without calibration windows; prefix-ramp: windows
 * of another length, T no multiple of 64, channels of Mamba-2, of which no blocks are recorded; a
 * recording of only some layers, or of another shape), FILE, MEMORY. */
SSM_API ssm_status ssm_adapt_create(const ssm_model *model, const ssm_corpus *corpus,
                                    ssm_recording *recording, const ssm_adapt_options *options,
                                    ssm_adapter **out, ssm_error *err);
SSM_API void ssm_adapt_free(ssm_adapter *adapter);
/* For ssm_score_options. Runs the model over what the rule looks at. */
SSM_API const ssm_chooser *ssm_adapt_chooser(const ssm_adapter *adapter);

/* GHOST (arXiv 2602.11408), for Mamba-2: one mask, its layers chosen one after the other, each on
 * the calibration windows as the pruned layers before it give them. The score of a group's mode is
 * the root mean square of C_n x over heads, channels and tokens; a layer keeps the budget ·
 * n_groups highest of all its groups' modes (so a group's budget is `budget` in the mean). *zeroed:
 * share of the modes that the engine's own factors drop. recording: as above. Owner of *out: the
 * caller, ssm_mask_free. Errors: USAGE (another family, layers of attention, budget, no calibration
 * windows), FILE, FAILED (a layer was not pruned as asked), MEMORY (all calibration windows'
 * streams are held). */
SSM_API ssm_status ssm_ghost_select(const ssm_model *model, ssm_recording *recording,
                                    int64_t budget, ssm_pool *pool, ssm_mask *out, double *zeroed,
                                    ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
