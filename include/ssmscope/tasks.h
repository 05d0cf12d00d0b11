/* ssmscope/tasks.h: log-likelihoods of continuations, tasks of questions with choices, rolling
 * perplexity: what lm-evaluation-harness computes, with its numbers. docs/evaluate.md has the
 * conventions. */
#ifndef SSMSCOPE_TASKS_H
#define SSMSCOPE_TASKS_H

#include <ssmscope/evaluate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the token in front ---------------------------------------------------------------------- */

/* The id that stands where there is no context: BOS of tokenizer_config.json (or
 * special_tokens_map.json) in `directory`, else its EOS, else <|endoftext|> of the vocabulary;
 * *source says which ("bos_token", "eos_token", "<|endoftext|>"). *id = −1 when there is none of
 * them. The ids of config.json are not looked at: they are wrong in published models. Errors: FILE
 * (damaged JSON), MEMORY. */
SSM_API ssm_status ssm_prefix_token(const ssm_tokenizer *tokenizer, const char *directory,
                                    int32_t *id, const char **source, ssm_error *err);

/* ---- continuations of a context -------------------------------------------------------------- */

typedef struct ssm_scorer_options {
    int64_t max_length; /* most tokens of an input; 2048 */
    int32_t prefix_id;  /* context of a continuation that has none; −1: an error */
    bool exact_chunks;  /* of the session */
    ssm_pool *pool;
    /* NULL: the scorer's mask; else a mask for every input, chosen on all its ids that are run, the
     * continuation but for its last id included (domain −1). Contexts are then not shared. */
    const ssm_chooser *chooser;
} ssm_scorer_options;

typedef struct ssm_continuation_score {
    double log_likelihood; /* Σ log softmax, nats */
    int64_t tokens;        /* scored */
    int64_t truncated;     /* tokens of the context that were cut off on the left */
    bool greedy;           /* every scored token is the most probable one (lowest id of equals) */
} ssm_continuation_score;

/* A model with a mask (NULL: unpruned; copied), its tokenizer (borrowed) and one session. */
typedef struct ssm_scorer ssm_scorer;
SSM_API ssm_status ssm_scorer_create(const ssm_model *model, const ssm_tokenizer *tokenizer,
                                     const ssm_mask *mask, const ssm_scorer_options *options,
                                     ssm_scorer **out, ssm_error *err);
SSM_API void ssm_scorer_free(ssm_scorer *scorer);
/* Scores each of `count` continuations after the same context, UTF-8, as the harness does:
 * trailing white space of the context moves to the front of the continuation; the ids are those of
 * the whole, cut where the ids of the context alone end; an input of more than max_length + 1 ids
 * loses its first ones. The context runs once and its state is restored for each continuation; the
 * bits are those of one call a continuation. Errors: FAILED (a continuation that has no tokens or
 * more than max_length), USAGE (no context and no prefix), FILE (not UTF-8), MEMORY. */
SSM_API ssm_status ssm_scorer_score(ssm_scorer *scorer, const char *context,
                                    const char *const *continuations, int64_t count,
                                    ssm_continuation_score *out, ssm_error *err);

/* ---- tasks ----------------------------------------------------------------------------------- */

/* What a task reports. Name in results, in the harness, whether more is better. */
#define SSM_TASK_METRICS(X)                                                                        \
    X(ACC, "acc", true)                /* share of items whose likeliest choice is the gold */     \
    X(ACC_NORM, "acc_norm", true)      /* the same, log-likelihood per character of the choice */  \
    X(ACC_BYTES, "acc_bytes", true)    /* the same, per byte */                                    \
    X(PERPLEXITY, "perplexity", false) /* exp(−mean log-likelihood): per word of LAMBADA */

typedef enum ssm_task_metric {
#define SSM_METRIC_ENUM(name, text, higher) SSM_METRIC_##name,
    SSM_TASK_METRICS(SSM_METRIC_ENUM)
#undef SSM_METRIC_ENUM
        SSM_METRIC_COUNT
} ssm_task_metric;
SSM_API const char *ssm_task_metric_name(ssm_task_metric metric);
SSM_API bool ssm_task_metric_higher(ssm_task_metric metric);

typedef struct ssm_task {
    const char *name;         /* "lambada" */
    const char *harness_name; /* "lambada_openai"; accepted as a name too */
    const char *dataset;      /* of the harness: path, a blank, configuration */
    const char *fields;       /* of an item, for messages */
    unsigned metrics;         /* bit 1 << ssm_task_metric */
    unsigned harness_metrics; /* those that the harness reports */
    int version;              /* of the harness's task */
} ssm_task;

/* NULL-terminated. */
SSM_API const char *const *ssm_task_names(void);
/* Errors: USAGE (unknown; the nearest is named). */
SSM_API ssm_status ssm_task_find(const char *name, const ssm_task **out, ssm_error *err);

/* One question. One context for all choices, or one each (WinoGrande). */
typedef struct ssm_task_item {
    int64_t line;         /* in the file, from 1 */
    int64_t n_choices;    /* LAMBADA: 1, which must be what the model would say */
    int64_t gold;         /* index of the right choice */
    bool own_contexts;    /* a context for every choice */
    char **contexts;      /* [n_choices], or [1] */
    char **continuations; /* [n_choices] */
    char **choices;       /* [n_choices]; their lengths normalise */
} ssm_task_item;

typedef struct ssm_task_data {
    const ssm_task *task;
    ssm_task_item *items;
    int64_t count;
    int64_t total;   /* items of the file, beyond a limit too (lines that are not blank) */
    char digest[64]; /* of the whole file */
} ssm_task_data;

/* Reads a file of JSON lines: the fields of the harness's data set, or query, choices, gold. limit:
 * the first so many items; 0: all. Blank lines are skipped. Errors: FILE (with the line: broken
 * JSON, a field missing, no gold, an empty choice; no items at all), MEMORY. Owner: the caller,
 * ssm_task_data_free. */
SSM_API ssm_status ssm_task_read(const ssm_task *task, const char *path, int64_t limit,
                                 ssm_task_data *out, ssm_error *err);
SSM_API void ssm_task_data_free(ssm_task_data *data);

typedef struct ssm_task_score {
    int64_t n_choices;
    ssm_continuation_score *choices; /* [n_choices] */
    bool right[SSM_METRIC_COUNT];    /* acc, acc_norm, acc_bytes; first maximum wins */
} ssm_task_score;

typedef struct ssm_task_options {
    ssm_scorer_options scorer;
    const ssm_progress *progress;
    ssm_journal *journal; /* NULL: none; finished items are taken from it and written to it */
    const char *series;   /* of the journal */
} ssm_task_options;

/* Scores all items: *scores [data->count], for ssm_task_scores_free. Errors: of ssm_scorer_score
 * (with the item's line), INTERRUPTED, FAILED (the journal cannot be written), MEMORY. */
SSM_API ssm_status ssm_task_run(const ssm_model *model, const ssm_tokenizer *tokenizer,
                                const ssm_mask *mask, const ssm_task_data *data,
                                const ssm_task_options *options, ssm_task_score **scores,
                                ssm_error *err);
SSM_API void ssm_task_scores_free(ssm_task_score *scores, int64_t count);

/* A metric with its errors. */
typedef struct ssm_task_result {
    double value;
    double stderr_; /* of a mean: sample sd / √n; of perplexity: of the harness's bootstrap */
    ssm_interval interval; /* 95 %, percentiles over resampled items */
} ssm_task_result;

/* Of items: the metric on the first `count` scores. harness_iterations: resamples of the standard
 * error of perplexity, which are Python's (random.Random seeded with the chunk's number, chunks of
 * 1000), 100000 in the harness; 0: NaN. Errors: USAGE (no items), MEMORY. */
SSM_API ssm_status ssm_task_result_of(const ssm_task_score *scores, int64_t count,
                                      ssm_task_metric metric,
                                      const ssm_bootstrap_options *bootstrap,
                                      int64_t harness_iterations, ssm_task_result *out,
                                      ssm_error *err);

/* Two models on the same items. */
typedef struct ssm_task_difference {
    double value;          /* other − base */
    double stderr_;        /* of paired differences; NaN: perplexity */
    ssm_interval interval; /* the same resamples for both */
    int64_t both_right, only_base, only_other, both_wrong; /* of a share */
} ssm_task_difference;
SSM_API ssm_status ssm_task_difference_of(const ssm_task_score *base, const ssm_task_score *other,
                                          int64_t count, ssm_task_metric metric,
                                          const ssm_bootstrap_options *bootstrap,
                                          ssm_task_difference *out, ssm_error *err);

/* Of what pruning by fixed sets costs, the share that a rule recovers:
 * (rule − fixed) / (unpruned − fixed), on the same items and resamples. NaN where the fixed sets
 * cost nothing; the interval as in ssm_capture. */
SSM_API ssm_status ssm_task_recovered_of(const ssm_task_score *fixed, const ssm_task_score *rule,
                                         const ssm_task_score *unpruned, int64_t count,
                                         ssm_task_metric metric,
                                         const ssm_bootstrap_options *bootstrap, double *share,
                                         ssm_interval *interval, ssm_error *err);

/* ---- the harness's output file ----------------------------------------------------------------
 */

typedef struct ssm_harness_metric {
    const char *name; /* "acc" */
    double value;
    double stderr_; /* NaN: "N/A" */
    bool higher_is_better;
} ssm_harness_metric;

/* A run as results_….json of lm-evaluation-harness describes it. Strings may be NULL: null. */
typedef struct ssm_harness_run {
    const char *task, *dataset; /* names of the harness; dataset: path, a blank, configuration */
    const char *output_type;    /* "multiple_choice", "loglikelihood", "loglikelihood_rolling" */
    int version;
    const ssm_harness_metric *metrics;
    int64_t n_metrics;
    int64_t items, total; /* scored; of the data */
    int64_t limit;        /* 0: none */
    const char *model_path, *model_args;
    int32_t prefix_id; /* −1: none */
    int64_t max_length;
    int64_t bootstrap_iterations;
    int64_t started; /* seconds since 1970 */
    double seconds;
} ssm_harness_run;

/* Writes the file whole or not at all. Errors: FAILED, MEMORY. */
SSM_API ssm_status ssm_harness_write(const ssm_harness_run *run, const char *path, ssm_error *err);

/* ---- rolling perplexity ---------------------------------------------------------------------- */

/* How a file is cut into documents. */
typedef enum ssm_documents_form {
    SSM_DOCUMENTS_FILE,    /* one document a file, as it is */
    SSM_DOCUMENTS_WIKITEXT /* a page each, cut before lines "= Title =", detokenised to be scored */
} ssm_documents_form;

typedef struct ssm_document {
    int64_t domain;
    char *text; /* what is scored, NUL-terminated */
    size_t text_bytes;
    int64_t words, bytes; /* of the original: pieces between white space; bytes of UTF-8 */
} ssm_document;

typedef struct ssm_documents {
    ssm_document *items;
    int64_t count;
} ssm_documents;

/* Documents of the corpus's files. Errors: FILE (missing, empty), MEMORY. */
SSM_API ssm_status ssm_documents_open(const ssm_corpus *corpus, ssm_documents_form form,
                                      ssm_documents *out, ssm_error *err);
SSM_API void ssm_documents_free(ssm_documents *documents);
/* The text of a WikiText page as the harness scores it, appended to *out. Errors: MEMORY. */
SSM_API ssm_status ssm_wikitext_detokenize(const char *page, size_t bytes, ssm_text *out,
                                           ssm_error *err);

typedef struct ssm_rolling_options {
    int64_t max_length; /* tokens of a window */
    int32_t prefix_id; /* stands before the first token; −1: none, and that token is not scored */
    bool stateful;     /* one stream a document: the state is carried through, no windows */
    ssm_invalid_utf8 invalid_utf8;
    bool exact_chunks;
    ssm_pool *pool;
    const ssm_progress *progress;
    ssm_journal *journal;
    const char *series;
} ssm_rolling_options;

typedef struct ssm_document_score {
    int64_t domain;
    double log_likelihood;
    int64_t tokens, words, bytes; /* tokens: scored */
} ssm_document_score;

/* Scores every document in windows of max_length inputs with one token of context, as the harness
 * does: the first predicts max_length tokens after the prefix, the following ones the next
 * max_length each; the last has as much context on its left as fits. No token is scored twice and
 * none is left out. *scores [documents->count], for free(). Errors: FILE (not UTF-8), INTERRUPTED,
 * FAILED, USAGE, MEMORY. */
SSM_API ssm_status ssm_score_documents(const ssm_model *model, const ssm_tokenizer *tokenizer,
                                       const ssm_mask *mask, const ssm_documents *documents,
                                       const ssm_rolling_options *options,
                                       ssm_document_score **scores, ssm_error *err);
SSM_API void ssm_document_scores_free(ssm_document_score *scores);

/* What a log-likelihood is divided by. */
typedef enum ssm_denominator { SSM_PER_TOKEN, SSM_PER_WORD, SSM_PER_BYTE } ssm_denominator;
/* The scores as those of windows, whose `tokens` are the denominator: for ssm_perplexity_of and
 * ssm_difference_of. out [count]. */
SSM_API void ssm_document_windows(const ssm_document_score *scores, int64_t count,
                                  ssm_denominator denominator, ssm_window_score *out);

#ifdef __cplusplus
}
#endif
#endif
