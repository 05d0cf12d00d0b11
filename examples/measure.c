/* The whole chain through the library, from a checkpoint to the price of half a state:
 *
 *     cc -std=c11 measure.c $(pkg-config --cflags --libs ssmscope) -o measure
 *     ./measure MODEL NEW-DIRECTORY TEXT …
 *
 * loads the model and its tokenizer, generates a few words, records windows of every text, prints
 * how far the important states move with the input, keeps the best half of every channel's modes,
 * and says what that costs on windows that had no say in it. Every call can fail; what went wrong
 * is in the error record. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ssmscope/ssmscope.h>

enum { WINDOW = 256, WINDOWS = 4, NEW_TOKENS = 16 };

/* Everything that has to be released; all zero at first, so that releasing always works. */
typedef struct chain {
    ssm_pool *pool;
    ssm_tokenizer *tokenizer;
    ssm_model *model;
    ssm_session *session;
    ssm_sampler *sampler;
    ssm_ids prompt;
    int32_t newest; /* the token that was generated last */
    ssm_text text;
    ssm_corpus corpus;
    ssm_recording *recording;
    ssm_metrics metrics;
    ssm_mask mask;
} chain;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        ssm_status status_ = (call);                                                               \
        if (status_ != SSM_STATUS_OK) {                                                            \
            return status_;                                                                        \
        }                                                                                          \
    } while (0)

static ssm_status load(chain *c, const char *path, ssm_error *err)
{
    ssm_checkpoint *checkpoint = NULL;
    TRY(ssm_pool_create(0, &c->pool, err));
    TRY(ssm_checkpoint_open(path, NULL, &checkpoint, err));
    TRY(ssm_model_create(checkpoint, SSM_ISA_AUTO, &c->model, err)); /* takes the checkpoint */
    TRY(ssm_tokenizer_open(path, &c->tokenizer, err));
    const ssm_config *config = ssm_model_config(c->model);
    printf("%s: %" PRId64 " layers, d_model %" PRId64 ", d_state %" PRId64 "\n",
           ssm_family_name(config->family), config->n_layers, config->d_model, config->d_state);
    return SSM_STATUS_OK;
}

/* SSM_LOGITS_LAST gives one row: the logits behind the last token. */
static void choose(void *context, int64_t first, int64_t tokens, const float *logits)
{
    chain *c = context;
    (void)first, (void)tokens;
    c->newest = ssm_sampler_next(c->sampler, logits);
}

static ssm_status run(chain *c, ssm_error *err)
{
    static const char prompt[] = "In the beginning";
    const ssm_session_options options = {.pool = c->pool};
    const ssm_sampling greedy = {.top_p = 1.0};
    const int64_t rows = ssm_model_config(c->model)->vocab_size;
    TRY(ssm_session_create(c->model, &options, &c->session, err));
    TRY(ssm_sampler_create(&greedy, rows, ssm_tokenizer_vocab_size(c->tokenizer), &c->sampler,
                           err));
    TRY(ssm_tokenizer_encode(c->tokenizer, prompt, strlen(prompt), NULL, &c->prompt, err));
    /* The prompt at once, then token by token: the session carries the state. */
    TRY(ssm_session_forward(c->session, c->prompt.data, c->prompt.count, SSM_LOGITS_LAST, choose, c,
                            err));
    for (int i = 0; i < NEW_TOKENS; i++) {
        const int32_t id = c->newest;
        TRY(ssm_tokenizer_decode(c->tokenizer, &id, 1, false, &c->text, err));
        TRY(ssm_session_forward(c->session, &id, 1, SSM_LOGITS_LAST, choose, c, err));
    }
    printf("%s%.*s\n", prompt, (int)c->text.bytes, c->text.data);
    return SSM_STATUS_OK;
}

static ssm_status record(chain *c, const char *directory, const char *const *texts, int64_t n_texts,
                         ssm_error *err)
{
    const ssm_record_options options = {.window = WINDOW,
                                        .calibration_windows = WINDOWS,
                                        .evaluation_windows = WINDOWS,
                                        .command = "measure",
                                        .tokenizer_digest = ssm_tokenizer_digest(c->tokenizer),
                                        .pool = c->pool};
    TRY(ssm_corpus_open(c->tokenizer, texts, n_texts, SSM_INVALID_UTF8_ERROR, &c->corpus, err));
    TRY(ssm_record(c->model, &c->corpus, directory, &options, err));
    TRY(ssm_recording_open(directory, &c->recording, err));
    TRY(ssm_metrics_compute(c->recording, SSM_SCOPE_DEFAULT, NULL, 0, NULL, &c->metrics, err));
    const int64_t half = c->metrics.n_budgets / 2; /* N/4, N/2, 3N/4 */
    for (int64_t i = 0; i < c->metrics.n_layers; i++) {
        printf("layer %" PRId64 ": migration gap %.3f\n", c->metrics.layers[i].layer,
               c->metrics.layers[i].budgets[half].rho);
    }
    return SSM_STATUS_OK;
}

static ssm_status evaluate(chain *c, ssm_error *err)
{
    const ssm_select_options select = {.rule = "static",
                                       .budget = ssm_model_config(c->model)->d_state / 2};
    const ssm_score_options options = {.window = WINDOW,
                                       .windows = WINDOWS,
                                       .offset = 2 * WINDOWS, /* behind what was recorded */
                                       .continuation = -1,
                                       .pool = c->pool};
    const ssm_bootstrap_options bootstrap = {.resamples = 1000, .seed = 1};
    ssm_window_score *whole = NULL, *pruned = NULL;
    int64_t count = 0;
    ssm_difference cost;
    TRY(ssm_select(c->recording, &select, &c->mask, err));
    ssm_status status =
        ssm_score_windows(c->model, &c->corpus, NULL, &options, &whole, &count, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_score_windows(c->model, &c->corpus, &c->mask, &options, &pruned, &count, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_difference_of(whole, pruned, count, c->corpus.n_domains, -1, &bootstrap, &cost,
                                   err);
    }
    if (status == SSM_STATUS_OK) {
        printf("half of the state: perplexity %+.3f (95 %% %+.3f to %+.3f)\n", cost.perplexity,
               cost.interval_window.lo, cost.interval_window.hi);
    }
    ssm_scores_free(whole);
    ssm_scores_free(pruned);
    return status;
}

static void release(chain *c)
{
    ssm_mask_free(&c->mask);
    ssm_metrics_free(&c->metrics);
    ssm_recording_close(c->recording);
    ssm_corpus_free(&c->corpus);
    ssm_text_free(&c->text);
    ssm_ids_free(&c->prompt);
    ssm_sampler_free(c->sampler);
    ssm_session_free(c->session);
    ssm_model_free(c->model);
    ssm_tokenizer_free(c->tokenizer);
    ssm_pool_free(c->pool);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: measure MODEL NEW-DIRECTORY TEXT ...\n");
        return SSM_STATUS_USAGE;
    }
    chain c = {0};
    ssm_error err;
    ssm_error_clear(&err);
    ssm_status status = load(&c, argv[1], &err);
    status = status == SSM_STATUS_OK ? run(&c, &err) : status;
    status = status == SSM_STATUS_OK
                 ? record(&c, argv[2], (const char *const *)(argv + 3), argc - 3, &err)
                 : status;
    status = status == SSM_STATUS_OK ? evaluate(&c, &err) : status;
    if (status != SSM_STATUS_OK) {
        fprintf(stderr, "measure: %s%s%s\n", err.file, err.file[0] == '\0' ? "" : ": ",
                err.message);
    }
    release(&c);
    return (int)status;
}
