/* ssmscope/compare.h: two models, or a model and a file of hidden states, beside each other. */
#ifndef SSMSCOPE_COMPARE_H
#define SSMSCOPE_COMPARE_H

#include <ssmscope/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How far two arrays of numbers are apart. Not finite on one side only, or otherwise than on the
 * other, counts as a difference of infinity. */
typedef struct ssm_deviation {
    int64_t count;      /* numbers compared */
    int64_t differing;  /* those that are not equal */
    double max_abs;     /* largest |a − b| */
    double scale;       /* largest finite |a| or |b| */
    double relative;    /* max_abs / scale; 0 where nothing differs */
    double relative_l2; /* ‖a − b‖ / max(‖a‖, ‖b‖), 0 where both are 0 */
    double cosine;      /* of the angle between a and b, 1 where both are 0 */
    int64_t at;         /* index of the largest difference, −1: none */
    double a, b;        /* the two numbers there */
} ssm_deviation;

/* ---- weights --------------------------------------------------------------------------------- */

typedef enum ssm_weight_relation {
    SSM_WEIGHT_SAME,      /* the same bits */
    SSM_WEIGHT_CONVERTED, /* dtypes differ, and nothing but their rounding does */
    SSM_WEIGHT_DIFFERENT, /* other numbers */
    SSM_WEIGHT_RESHAPED,  /* other shapes; not compared */
    SSM_WEIGHT_ONLY_A,
    SSM_WEIGHT_ONLY_B,
    SSM_WEIGHT_RELATIONS
} ssm_weight_relation;

/* "same", "converted", "different", "reshaped", "only_a", "only_b" */
SSM_API const char *ssm_weight_relation_name(ssm_weight_relation relation);

enum { SSM_WEIGHT_NAME_MAX = 96 };

/* One slot of the two models. */
typedef struct ssm_weight_comparison {
    char name[SSM_WEIGHT_NAME_MAX]; /* Hugging Face spelling, whatever the files call it */
    int64_t layer;                  /* −1: of the whole model */
    ssm_weight_relation relation;
    const ssm_tensor *a, *b; /* NULL: not there. Of the checkpoints, valid while they are open */
    ssm_deviation deviation; /* zero unless converted or different */
} ssm_weight_comparison;

/* Every slot that one of the two fills, in the order embedding, layers, final norm, head; a tied
 * head is compared as the embedding it is. pool and progress may be NULL.
 * Errors: MEMORY, INTERRUPTED. Owner of *out: the caller, ssm_weight_comparisons_free. */
SSM_API ssm_status ssm_compare_weights(const ssm_checkpoint *a, const ssm_checkpoint *b,
                                       ssm_pool *pool, const ssm_progress *progress,
                                       ssm_weight_comparison **out, int64_t *count, ssm_error *err);
SSM_API void ssm_weight_comparisons_free(ssm_weight_comparison *comparisons);

/* ---- traces: hidden states and logits of one text -------------------------------------------- */

/* Views into memory or a mapped file; absent parts have data NULL. */
typedef struct ssm_trace {
    int64_t tokens;      /* L */
    int64_t n_hidden;    /* n_layers + 1, or 0 */
    ssm_tensor *hidden;  /* [n_hidden] of [L, d_model]: embedding, stream after each block */
    ssm_tensor ln_final; /* [L, d_model] the last of them normed; never of a file */
    ssm_tensor logits;   /* [L, vocab_size] */
    int32_t *ids;        /* [L], or NULL where a file has none */
    ssm_safetensors *file, *logits_file;
    void *memory;
} ssm_trace;

/* One pass of count ≥ 1 ids from the zero state. Errors: USAGE (an id outside the vocabulary),
 * MEMORY, FAILED (not finite), INTERRUPTED. Owner: the caller, ssm_trace_free. */
SSM_API ssm_status ssm_trace_run(const ssm_model *model, const int32_t *ids, int64_t count,
                                 ssm_pool *pool, const ssm_progress *progress, ssm_trace *out,
                                 ssm_error *err);
/* The same by the float64 reference; no ln_final. */
SSM_API ssm_status ssm_trace_reference(const ssm_model *model, const int32_t *ids, int64_t count,
                                       ssm_trace *out, ssm_error *err);
/* A safetensors file that another program or `run --hidden` wrote. Hidden states: hidden.0,
 * hidden.1, … [L, d_model] each, or `hidden` or hidden_float64 [n_layers+1, L, d_model]; logits or
 * logits_float64 [L, vocab_size]; ids [L]. sequence: the suffix of a file with several sequences
 * ("0": hidden_float64.0, logits_float64.0, ids.0), NULL: none. logits_path: another file for the
 * logits, or NULL. Floating-point dtypes. Errors: FILE (nothing of it there, or shapes that do not
 * fit together), MEMORY. */
SSM_API ssm_status ssm_trace_read(const char *path, const char *logits_path, const char *sequence,
                                  ssm_trace *out, ssm_error *err);
SSM_API void ssm_trace_free(ssm_trace *trace);

/* ---- traces beside each other ---------------------------------------------------------------- */

typedef struct ssm_trace_comparison {
    double tolerance;
    int64_t n_hidden;      /* 0: one side has no hidden states */
    ssm_deviation *hidden; /* [n_hidden] */
    bool has_logits;       /* both sides have them, of one vocabulary */
    ssm_deviation logits;
    int64_t same_argmax; /* rows of the logits whose largest is at the same id */
    bool last_is_normed; /* one side's last state stands behind the final norm, as transformers
                            gives it; it was compared with the other's ln_final */
    /* First that is apart by more than the tolerance, relative to the largest number: k of
     * hidden.k, n_hidden for the logits, −1 for none. */
    int64_t first;
} ssm_trace_comparison;

/* Errors: USAGE (the sides have different sizes, or nothing in common), MEMORY. Owner: the caller,
 * ssm_trace_comparison_free. */
SSM_API ssm_status ssm_compare_traces(const ssm_trace *a, const ssm_trace *b, double tolerance,
                                      ssm_trace_comparison *out, ssm_error *err);
SSM_API void ssm_trace_comparison_free(ssm_trace_comparison *comparison);

/* What rounding alone may make of a difference, relative to the largest number: 1e-5 for the
 * order of float32 sums, or eight unit roundoffs of F16 or BF16 where the weights of one side or
 * the numbers of a file went through that type and the other side's did not. weights and traces
 * may be NULL. */
SSM_API double ssm_compare_tolerance(const ssm_weight_comparison *weights, int64_t count,
                                     const ssm_trace *a, const ssm_trace *b);

/* ---- inside one layer ------------------------------------------------------------------------ */

typedef struct ssm_tap_comparison {
    ssm_tap_point point;
    int64_t width_a, width_b; /* different widths are not compared; 0: does not fire there */
    ssm_deviation deviation;
} ssm_tap_comparison;

/* Every tap of `layer` in both models on the same ids, in the order in which they fire. Errors: as
 * ssm_trace_run. */
SSM_API ssm_status ssm_compare_taps(const ssm_model *a, const ssm_model *b, const int32_t *ids,
                                    int64_t count, int64_t layer, ssm_pool *pool,
                                    ssm_tap_comparison out[SSM_TAP_COUNT], int64_t *n_taps,
                                    ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
