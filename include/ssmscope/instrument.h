/* ssmscope/instrument.h: record state usage exactly, and verify that it is exact. */
#ifndef SSMSCOPE_INSTRUMENT_H
#define SSMSCOPE_INSTRUMENT_H

#include <ssmscope/model.h>
#include <ssmscope/recording.h>
#include <ssmscope/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_record_options {
    int64_t window;              /* tokens, ≥ 2 */
    int64_t calibration_windows; /* per domain, ≥ 0 */
    int64_t evaluation_windows;  /* per domain, ≥ 0 */
    bool no_gram;
    bool exact_chunks;     /* of the session; for the layers that are not recorded */
    bool keep_window_gram; /* keep the calibration windows' Grams too */
    bool resume;           /* go on with a recording that was stopped; refuse another one's */
    const int64_t *layers; /* NULL: all that have states, so not those of attention */
    int64_t n_layers;
    const int64_t *budgets; /* NULL: N/4, N/2, 3N/4 */
    int64_t n_budgets;
    int64_t chunk; /* tokens a forward call; 0 = the window. For tests: the bytes do not change.
                    * Mamba-2 takes whole windows, because a layer of an evaluation window is run
                    * twice. */
    const char *command;          /* canonical command line, stored */
    const char *tokenizer_digest; /* stored */
    ssm_pool *pool;
    const ssm_progress *progress;
} ssm_record_options;

/* Records the windows of corpus into `directory` (created). One forward pass per window.
 * A whole-window pass (chunk 0) needs memory for one layer's sums and one window's residual stream.
 * Errors: USAGE (a domain has too few tokens: both numbers; no text, window or layer; a layer or
 * budget that the model does not have, a layer of attention, a model of nothing else, a budget
 * twice; no_gram with keep_window_gram; directory exists without resume; resume of something else),
 * FAILED (disk), MEMORY, INTERRUPTED (resumable).
 */
SSM_API ssm_status ssm_record(const ssm_model *model, const ssm_corpus *corpus,
                              const char *directory, const ssm_record_options *options,
                              ssm_error *err);

/* ---- energies -------------------------------------------------------------------------------- */

/* The energies of all modes over texts, Σ_t m², as a recording has them, in one pass a text without
 * Grams and without logits. Not shared. */
typedef struct ssm_energies ssm_energies;
typedef struct ssm_energies_options {
    int64_t window;    /* most tokens of a text */
    ssm_scope scope;   /* rows: channels (DEFAULT), or HEAD of Mamba-2 */
    bool exact_chunks; /* of the session, for layers that have no states */
    ssm_pool *pool;
} ssm_energies_options;
/* All memory is taken here. Owner: the caller. Errors: USAGE (a window below 1, heads of a model
 * that has none, a model without states), MEMORY. */
SSM_API ssm_status ssm_energies_create(const ssm_model *model, const ssm_energies_options *options,
                                       ssm_energies **out, ssm_error *err);
SSM_API void ssm_energies_free(ssm_energies *energies);
/* Rows of a layer: d_inner; Mamba-2 n_heads·head_dim or n_heads. */
SSM_API int64_t ssm_energies_rows(const ssm_energies *energies);
/* out[n_layers][rows][d_state] of `count` ≤ window tokens from the zero state, unpruned; 0 in
 * layers of attention. The numbers of a recorded window, to the bit. Errors: USAGE (count, an id),
 * FAILED (not finite), MEMORY. */
SSM_API ssm_status ssm_energies_run(ssm_energies *energies, const int32_t *ids, int64_t count,
                                    double *out, ssm_error *err);

/* ---- verify ---------------------------------------------------------------------------------- */

typedef struct ssm_verify_reconstruction {
    int64_t layer, window;
    double rel_l2, rel_l2_reference;
    double rel_l2_after_norm; /* Mamba-2: the summands' sum after the gated norm; NaN without one */
} ssm_verify_reconstruction;

typedef struct ssm_verify_deployment {
    int64_t layer, window, budget;
    ssm_scope scope; /* Mamba-2: a set for every channel, then one for every head */
    double predicted, actual, relative_deviation;
    /* relative L2 error of the layer's output by pruning: where the set was judged (Mamba-2: the
     * norm's input), and after the gated norm, which couples modes: measured, NaN without one */
    double error, error_after_norm;
} ssm_verify_deployment;

typedef struct ssm_verify_options {
    int64_t window;  /* tokens */
    int64_t windows; /* in all, spread over the domains in turn */
    const int64_t *budgets;
    int64_t n_budgets;
    bool exact_chunks; /* of the session */
    ssm_pool *pool;
    const ssm_progress *progress;
} ssm_verify_options;

typedef struct ssm_verify_result {
    ssm_verify_reconstruction *reconstruction; /* windows × layers that have states */
    int64_t n_reconstruction;
    ssm_verify_deployment *deployment; /* the same × n_budgets; Mamba-2: × 2 scopes */
    int64_t n_deployment;
    double reconstruction_max, reconstruction_reference_max;
    double deployment_median, deployment_max;
    /* the bounds that `passed` was judged by */
    double bound_reconstruction, bound_reference, bound_deployment_median, bound_deployment_max;
    bool passed;
} ssm_verify_result;

/* Both checks of docs/instrument.md. A bound that does not hold is passed = false, not an error.
 * Owner of *out: the caller, ssm_verify_result_free. */
SSM_API ssm_status ssm_verify(const ssm_model *model, const ssm_corpus *corpus,
                              const ssm_verify_options *options, ssm_verify_result *out,
                              ssm_error *err);
SSM_API void ssm_verify_result_free(ssm_verify_result *result);

#ifdef __cplusplus
}
#endif
#endif
