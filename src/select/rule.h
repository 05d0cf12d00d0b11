/* select/rule.h: what a rule is. One file a rule: add it, declare its rule below, list it in
 * RULES of select.c.
 *
 * A rule is pure: it reads a recording and gives sets. Rules that need forward passes do not
 * belong here: `ghost`, which calibrates every layer anew on the pruned ones before it, and rules
 * that choose per window (`scheduled`, `half`, `prefix`, `regime`) stand in adapt/, above. */
#ifndef SSM_SELECT_RULE_H
#define SSM_SELECT_RULE_H

#include <ssmscope/select.h>

typedef struct ssm__rule ssm__rule;

/* A checked request. Rows are those of the mask: channels, or heads; a set is shared by
 * rows_per_set neighbours. Where Grams or moments are used, rows are the recorded ones. */
typedef struct ssm__selection {
    ssm_recording *recording;
    const ssm_recording_info *info;
    const ssm_select_options *options;
    const ssm__rule *rule;
    const char *parameter; /* of the rule, behind its colon; NULL: none */
    int64_t parameter_at;  /* which of rule->parameters; −1: none */
    ssm_scope row_scope;   /* CHANNEL or HEAD */
    int64_t rows, sets, rows_per_set, d_state;
    double ridge;
} ssm__selection;

/* scores [sets][N] of a layer, ≥ 0 and finite: the budget's highest are kept. */
typedef ssm_status ssm__score_fn(const ssm__selection *selection, int64_t layer, double *scores,
                                 ssm_error *err);
/* keep [sets][N] of a layer, each with `budget` modes; made with all kept. */
typedef ssm_status ssm__choose_fn(const ssm__selection *selection, int64_t layer, int64_t budget,
                                  uint8_t *keep, ssm_error *err);

enum {
    SSM__NEEDS_CALIBRATION = 1,
    SSM__NEEDS_GRAM = 2,  /* Mamba-2: of heads, so not for channels */
    SSM__BY_ROW = 4,      /* moments: the same */
    SSM__NO_HEADS = 8,    /* not defined for Mamba-2 */
    SSM__GLOBAL = 16,     /* one threshold for all layers: budgets differ (ssm__last_counts) */
    SSM__SHARED_SETS = 32 /* sets of layers, or of groups of heads */
};

struct ssm__rule {
    const char *name;
    unsigned needs;
    const char *const *parameters; /* that may stand behind the colon, NULL-terminated; or NULL */
    /* One of the two; neither: weights on the sets of the rule that is its parameter. */
    ssm__score_fn *score;
    ssm__choose_fn *choose;
};

extern const ssm__rule ssm__rule_static, ssm__rule_hankel, ssm__rule_hankel_adjoint, ssm__rule_last,
    ssm__rule_activity, ssm__rule_random, ssm__rule_optimal, ssm__rule_greedy_swap,
    ssm__rule_compensated, ssm__rule_compensated_shared;

/* ---- select.c -------------------------------------------------------------------------------- */

/* Resolves and checks everything but the budget. */
ssm_status ssm__selection_create(ssm_recording *recording, const ssm_select_options *options,
                                 ssm__selection *out, ssm_error *err);
/* The rule whose sets `compensated` weighs; the selection's own otherwise. */
const ssm__rule *ssm__base_rule(const ssm__selection *selection);
/* Every mask row of a checked selection at a budget, weights included. */
ssm_status ssm__selection_mask(const ssm__selection *selection, int64_t budget, ssm_mask *out,
                               ssm_error *err);
bool ssm__has_windows(const ssm_recording *recording, ssm_role role);

/* ---- rule_hankel.c --------------------------------------------------------------------------- */

/* [sets][N] √ of the mean over a set's rows of P·Q, P = mean x², Q = the mean of `read`. */
ssm_status ssm__hankel_scores(const ssm__selection *selection, int64_t layer, const char *read,
                              double *scores, ssm_error *err);

/* ---- rule_last.c ----------------------------------------------------------------------------- */

/* counts[layer][set][budget]: how many of a set's highest scores (all of scores: [layers][sets][N])
 * stay when the layers keep budget·sets·layers modes together, budget = 0 … N. */
ssm_status ssm__last_counts(const double *scores, int64_t layers, int64_t sets, int64_t d_state,
                            int32_t *counts, ssm_error *err);

/* ---- rule_compensated.c ---------------------------------------------------------------------- */

/* Weights of the kept modes and of f for one row: out[N + 1], 0 where dropped. gram: upper triangle
 * of (m, f); matrix [(N+1)²] and vector [N+1]: scratch. See rule_compensated.c for the formula. */
void ssm__compensate(const double *gram, int64_t d_state, const uint8_t *keep, double ridge,
                     double *matrix, double *vector, float *out);
/* Gives the mask its weights. */
ssm_status ssm__add_compensation(const ssm__selection *selection, ssm_mask *mask, ssm_error *err);
/* Solves A x = b in place by Cholesky, A [k][k] lower. A variable whose pivot is nothing but
 * rounding is left out: its x is 0. */
void ssm__solve_positive(double *A, int64_t k, double *b);

/* ---- rule_compensated_shared.c --------------------------------------------------------------- */

/* Gives the mask the weights that a checkpoint has places for. */
ssm_status ssm__add_shared_compensation(const ssm__selection *selection, ssm_mask *mask,
                                        ssm_error *err);

#endif
