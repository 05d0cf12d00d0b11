#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "input.h"
#include "load.h"
#include "masks.h"
#include "messages.h"
#include "run_capture.h"
#include "state_file.h"

enum { DEFAULT_CHUNK = 1024, DEFAULT_NEW_TOKENS = 64 };

typedef struct run_arguments {
    const char *model, *ids, *prompt, *text, *mask, *logits, *hidden;
    const char *state_in, *state_out;
    int64_t new_tokens, top_k, seed, chunk, special, invalid_utf8;
    double temperature, top_p;
    bool reference;
    cli_load load;
} run_arguments;

/* One run: what was read, what was made. */
typedef struct run_state {
    cli_context *context;
    const run_arguments *args;
    cli_source source;
    ssm_ids prompt, generated;
    ssm_ids seen;  /* all tokens that the state has seen; kept for --state-out only */
    ssm_text text; /* generated so far */
    ssm_mask mask;
    ssm_session *session;
    cli_capture capture;
    float *last_logits; /* [vocab_size] of the newest token */
    int64_t new_tokens;
    bool stopped_at_eos;
} run_state;

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static ssm_status encode_prompt(run_state *run, ssm_error *err)
{
    const run_arguments *args = run->args;
    int64_t dropped = 0;
    const ssm_encode_options options = {.special_as_text = args->special == 1,
                                        .invalid_utf8 = (ssm_invalid_utf8)args->invalid_utf8,
                                        .dropped_bytes = &dropped};
    ssm_text file = {0};
    ssm_status status = SSM_STATUS_OK;
    if (args->text != NULL) {
        status = cli_read_input(args->text, &file, err);
    }
    if (status == SSM_STATUS_OK) {
        const char *text = args->text != NULL ? file.data : args->prompt;
        size_t bytes = args->text != NULL ? file.bytes : strlen(args->prompt);
        status =
            ssm_tokenizer_encode(run->source.tokenizer, text, bytes, &options, &run->prompt, err);
        if (status != SSM_STATUS_OK && err->file[0] == '\0') {
            snprintf(err->file, sizeof err->file, "%s",
                     args->text != NULL ? cli_input_name(args->text) : "--prompt");
        }
    }
    cli_note_dropped(run->context, dropped);
    ssm_text_free(&file);
    return status;
}

/* Ids of a file are checked before anything is run: they may be of another model. */
static ssm_status check_ids(const run_state *run, ssm_error *err)
{
    int64_t rows = run->source.config->vocab_size;
    for (int64_t i = 0; i < run->prompt.count; i++) {
        if (run->prompt.data[i] < 0 || run->prompt.data[i] >= rows) {
            return cli_fail(err, SSM_STATUS_FILE, cli_input_name(run->args->ids),
                            "id %d (number %lld of the file) is outside the vocabulary of %lld ids",
                            run->prompt.data[i], (long long)i + 1, (long long)rows);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status read_prompt(run_state *run, ssm_error *err)
{
    ssm_status status = run->args->ids != NULL ? cli_read_ids(run->args->ids, &run->prompt, err)
                                               : encode_prompt(run, err);
    if (status == SSM_STATUS_OK && run->args->ids != NULL) {
        status = check_ids(run, err);
    }
    if (status == SSM_STATUS_OK && run->new_tokens > 0 && run->prompt.count == 0) {
        status = cli_fail(err, SSM_STATUS_USAGE, NULL,
                          "the prompt is empty; to go on from it at least one token is needed");
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static void on_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    run_state *run = context;
    int64_t width = run->source.config->vocab_size;
    if (run->capture.logits != NULL) {
        cli_capture_logits(&run->capture, first, tokens, logits);
    }
    if (tokens > 0) {
        memcpy(run->last_logits, logits + (tokens - 1) * width, (size_t)width * sizeof(float));
    }
}

static ssm_status run_prompt(run_state *run, ssm_error *err)
{
    const int64_t chunk = run->args->chunk > 0 ? run->args->chunk : DEFAULT_CHUNK;
    const ssm_progress *progress = cli_progress_start(run->context);
    ssm_status status = SSM_STATUS_OK;
    run->capture.start = ssm_session_position(run->session);
    ssm_session_set_observer(run->session, cli_capture_observer(&run->capture));
    for (int64_t done = 0; status == SSM_STATUS_OK && done < run->prompt.count;) {
        int64_t rest = run->prompt.count - done;
        int64_t count = rest < chunk ? rest : chunk;
        ssm_logits_want want = run->capture.logits != NULL            ? SSM_LOGITS_ALL
                               : run->new_tokens > 0 && count == rest ? SSM_LOGITS_LAST
                                                                      : SSM_LOGITS_NONE;
        run->capture.offset = done;
        status = ssm_session_forward(run->session, run->prompt.data + done, count, want, on_logits,
                                     run, err);
        done += count;
        if (status == SSM_STATUS_OK &&
            !progress->report(progress->context, "prompt", done, run->prompt.count, "tokens")) {
            status = cli_fail(err, SSM_STATUS_INTERRUPTED, NULL, "interrupted");
        }
    }
    cli_progress_clear(run->context);
    ssm_session_set_observer(run->session, NULL);
    return status;
}

/* Shows one more token: text as soon as its characters are whole, or the id. */
static ssm_status show_token(run_state *run, ssm_decoder *decoder, int32_t id, ssm_error *err)
{
    size_t before = run->text.bytes;
    ssm_status status =
        decoder == NULL ? SSM_STATUS_OK : ssm_decoder_push(decoder, id, &run->text, err);
    if (status != SSM_STATUS_OK || run->context->globals.json) {
        return status;
    }
    if (decoder == NULL) {
        printf("%s%d", run->generated.count == 1 ? "" : " ", id);
    } else if (run->text.bytes > before) {
        fwrite(run->text.data + before, 1, run->text.bytes - before, stdout);
    }
    fflush(stdout);
    return SSM_STATUS_OK;
}

static ssm_status finish_text(run_state *run, ssm_decoder *decoder, ssm_error *err)
{
    size_t before = run->text.bytes;
    ssm_status status =
        decoder == NULL ? SSM_STATUS_OK : ssm_decoder_finish(decoder, &run->text, err);
    if (!run->context->globals.json) {
        if (run->text.bytes > before) {
            fwrite(run->text.data + before, 1, run->text.bytes - before, stdout);
        }
        putchar('\n');
    }
    return status;
}

static ssm_status generate_tokens(run_state *run, ssm_sampler *sampler, ssm_decoder *decoder,
                                  ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    while (status == SSM_STATUS_OK && run->generated.count < run->new_tokens) {
        int32_t id = ssm_sampler_next(sampler, run->last_logits);
        if (id == run->source.config->eos_id) {
            run->stopped_at_eos = true;
            break;
        }
        status = cli_ids_push(&run->generated, id, err);
        status = status == SSM_STATUS_OK ? show_token(run, decoder, id, err) : status;
        if (status == SSM_STATUS_OK && run->generated.count < run->new_tokens) {
            status =
                ssm_session_forward(run->session, &id, 1, SSM_LOGITS_LAST, on_logits, run, err);
        }
        if (status == SSM_STATUS_OK && cli_interrupted()) {
            status = cli_fail(err, SSM_STATUS_INTERRUPTED, NULL, "interrupted");
        }
    }
    return status;
}

static ssm_status generate(run_state *run, ssm_error *err)
{
    const run_arguments *args = run->args;
    const ssm_sampling sampling = {.temperature = args->temperature,
                                   .top_k = args->top_k,
                                   .top_p = args->top_p,
                                   .seed = (uint64_t)args->seed};
    ssm_sampler *sampler = NULL;
    ssm_decoder *decoder = NULL;
    ssm_status status = ssm_sampler_create(
        &sampling, run->source.config->vocab_size,
        cli_valid_ids(run->source.checkpoint, run->source.tokenizer), &sampler, err);
    if (status == SSM_STATUS_OK && args->ids == NULL) {
        status = ssm_decoder_create(run->source.tokenizer, false, &decoder, err);
    }
    if (status == SSM_STATUS_OK) {
        status = generate_tokens(run, sampler, decoder, err);
        ssm_status finished = finish_text(run, decoder, status == SSM_STATUS_OK ? err : NULL);
        status = status == SSM_STATUS_OK ? finished : status;
    }
    ssm_decoder_free(decoder);
    ssm_sampler_free(sampler);
    return status;
}

/* ---- the state ------------------------------------------------------------------------------- */

static ssm_status read_state(run_state *run, ssm_error *err)
{
    return run->args->state_in == NULL
               ? SSM_STATUS_OK
               : cli_state_read(run->args->state_in, &run->source, run->session, &run->seen, err);
}

static ssm_status append_ids(ssm_ids *to, const ssm_ids *from, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < from->count; i++) {
        status = cli_ids_push(to, from->data[i], err);
    }
    return status;
}

/* The state behind everything that was read and generated: the last new token runs, too. */
static ssm_status write_state(run_state *run, ssm_error *err)
{
    if (run->args->state_out == NULL) {
        return SSM_STATUS_OK;
    }
    ssm_status status = append_ids(&run->seen, &run->prompt, err);
    status = status == SSM_STATUS_OK ? append_ids(&run->seen, &run->generated, err) : status;
    if (status == SSM_STATUS_OK && ssm_session_position(run->session) < run->seen.count) {
        status = ssm_session_forward(run->session, &run->seen.data[run->seen.count - 1], 1,
                                     SSM_LOGITS_NONE, NULL, NULL, err);
    }
    return status == SSM_STATUS_OK ? cli_state_write(run->args->state_out, run->session, &run->seen,
                                                     run->context, run->source.digest, err)
                                   : status;
}

/* ---- results --------------------------------------------------------------------------------- */

static ssm_status print_json(const run_state *run, ssm_error *err)
{
    const run_arguments *args = run->args;
    cli_json json = cli_json_create(run->context, "run");
    cli_json_source(&json, &run->source);
    if (args->temperature > 0) {
        cli_json_integer(&json, json.root, "seed", args->seed);
    }
    cli_json_integer(&json, json.root, "prompt_tokens", run->prompt.count);
    json_t *generated = cli_json_object(&json, json.root, "generated");
    json_t *ids = cli_json_array(&json, generated, "ids");
    for (int64_t i = 0; i < run->generated.count; i++) {
        cli_json_push(&json, ids, json_integer(run->generated.data[i]));
    }
    if (run->args->ids == NULL) {
        cli_json_put(&json, generated, "text",
                     json_stringn(run->text.data == NULL ? "" : run->text.data, run->text.bytes));
    }
    cli_json_text(&json, generated, "stopped", run->stopped_at_eos ? "eos" : "length");
    return cli_json_print(&json, err);
}

static ssm_status run_fast(run_state *run, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(run->context, &pool, err);
    const ssm_session_options options = {
        .pool = pool, .max_chunk = run->args->chunk, .exact_chunks = run->args->load.exact_chunks};
    if (status == SSM_STATUS_OK) {
        status = ssm_session_create(run->source.model, &options, &run->session, err);
    }
    if (status == SSM_STATUS_OK && run->args->mask != NULL) {
        status = cli_mask_read(run->args->mask, &run->source, &run->mask, err);
        status = status == SSM_STATUS_OK ? ssm_session_set_mask(run->session, &run->mask, -1, err)
                                         : status;
    }
    status = status == SSM_STATUS_OK ? read_state(run, err) : status;
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    status = status == SSM_STATUS_OK ? run_prompt(run, err) : status;
    double prompt_seconds = seconds_since(&start);
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (status == SSM_STATUS_OK && run->new_tokens > 0) {
        status = generate(run, err);
    }
    double new_seconds = seconds_since(&start);
    status = status == SSM_STATUS_OK ? write_state(run, err) : status;
    if (status == SSM_STATUS_OK) {
        cli_note(run->context, "prompt: %lld tokens, %.0f tokens/s", (long long)run->prompt.count,
                 (double)run->prompt.count / prompt_seconds);
        if (run->new_tokens > 0) {
            cli_note(run->context, "generated: %lld tokens, %.0f tokens/s",
                     (long long)run->generated.count, (double)run->generated.count / new_seconds);
        }
    }
    return status;
}

static ssm_status run_all(run_state *run, ssm_error *err)
{
    const run_arguments *args = run->args;
    unsigned wants = CLI_WANT_MODEL | (args->ids == NULL ? CLI_WANT_TOKENIZER : CLI_TRY_TOKENIZER);
    bool files = args->logits != NULL || args->hidden != NULL || args->state_in != NULL ||
                 args->state_out != NULL;
    if (files || args->mask != NULL || run->context->globals.json) {
        wants |= CLI_WANT_DIGEST;
    }
    ssm_status status =
        cli_source_open(run->context, args->model, &args->load, wants, &run->source, err);
    status = status == SSM_STATUS_OK ? read_prompt(run, err) : status;
    if (status == SSM_STATUS_OK) {
        run->last_logits = malloc((size_t)run->source.config->vocab_size * sizeof(float));
        status = run->last_logits == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    }
    if (status == SSM_STATUS_OK) {
        status = cli_capture_create(run->source.config, &run->prompt, args->logits != NULL,
                                    args->hidden != NULL, args->reference, &run->capture, err);
    }
    if (status == SSM_STATUS_OK) {
        status = args->reference
                     ? ssm_reference_forward(run->source.model, run->prompt.data, run->prompt.count,
                                             run->capture.logits, run->capture.hidden, err)
                     : run_fast(run, err);
    }
    if (status == SSM_STATUS_OK) {
        status = cli_capture_write(&run->capture, run->context, run->source.digest, args->logits,
                                   args->hidden, err);
    }
    return status == SSM_STATUS_OK && run->context->globals.json ? print_json(run, err) : status;
}

/* Combinations that the table cannot say. */
static ssm_status check_arguments(const run_arguments *args, ssm_error *err)
{
    if (args->reference && args->logits == NULL && args->hidden == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--reference needs --logits or --hidden");
    }
    if (args->reference && args->new_tokens != CLI_UNSET && args->new_tokens > 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--reference computes logits and hidden states of the prompt only: -n 0");
    }
    return SSM_STATUS_OK;
}

static ssm_status run_run(cli_context *context, const void *arguments, ssm_error *err)
{
    const run_arguments *args = arguments;
    run_state run = {.context = context, .args = args, .new_tokens = args->new_tokens};
    if (run.new_tokens == CLI_UNSET) {
        run.new_tokens = args->prompt != NULL && !args->reference ? DEFAULT_NEW_TOKENS : 0;
    }
    ssm_status status = check_arguments(args, err);
    status = status == SSM_STATUS_OK ? run_all(&run, err) : status;
    cli_capture_free(&run.capture);
    ssm_session_free(run.session);
    ssm_mask_free(&run.mask);
    free(run.last_logits);
    ssm_ids_free(&run.prompt);
    ssm_ids_free(&run.generated);
    ssm_ids_free(&run.seen);
    ssm_text_free(&run.text);
    cli_source_close(&run.source);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const cli_positional run_positionals[] = {CLI_MODEL_ENTRY(run_arguments)};

static const cli_option run_options[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, prompt),
     .argument = "TEXT",
     .help = "Text to go on from."},
    {.name = "text",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, text),
     .argument = "FILE",
     .help = "The same from a file; - is standard input."},
    {.name = "ids",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, ids),
     .argument = "FILE",
     .help = "Token ids (decimal, separated by white space) instead of text; then ids are printed "
             "too. Needs no tokenizer. - is standard input."},
    {.name = "new-tokens",
     .letter = 'n',
     .kind = CLI_INTEGER,
     .into = offsetof(run_arguments, new_tokens),
     .argument = "K",
     .min = 0,
     .max = INT32_MAX,
     .help = "Tokens to generate at most; stops at the end-of-text token. [default: 64 with "
             "--prompt, else 0]"},
    {.name = "temperature",
     .kind = CLI_REAL,
     .into = offsetof(run_arguments, temperature),
     .argument = "X",
     .fallback = "0",
     .low = 0,
     .high = 100,
     .help = "0 takes the likeliest token every time; larger draws more freely."},
    {.name = "top-k",
     .kind = CLI_INTEGER,
     .into = offsetof(run_arguments, top_k),
     .argument = "K",
     .fallback = "0",
     .min = 0,
     .max = INT32_MAX,
     .help = "Draw among the K likeliest tokens; 0 is all."},
    {.name = "top-p",
     .kind = CLI_REAL,
     .into = offsetof(run_arguments, top_p),
     .argument = "P",
     .fallback = "1",
     .low = 1e-9,
     .high = 1,
     .help = "Draw among the likeliest tokens that together have probability P."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(run_arguments, seed),
     .argument = "S",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of the drawing; the same seed gives the same text."},
    {.name = "mask",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, mask),
     .argument = "MASK",
     .conflicts = "reference",
     .help = "Run with only the modes that this mask keeps."},
    {.name = "logits",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, logits),
     .argument = "FILE",
     .flags = CLI_OUTPUT,
     .help = "Write the logits of every token of the prompt: logits [L, vocab_size] and ids [L], "
             "safetensors."},
    {.name = "hidden",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, hidden),
     .argument = "FILE",
     .flags = CLI_OUTPUT,
     .help = "Write the residual stream of the prompt: hidden.0 (embedding) to hidden.n_layers "
             "(after the last block), each [L, d_model], and ids [L], safetensors."},
    {.name = "state-in",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, state_in),
     .argument = "FILE",
     .conflicts = "reference",
     .help = "Go on from the state that --state-out wrote, with the same bits as if it had never "
             "stopped (Mamba-2: with --exact-chunks). The prompt is what comes next, and its text "
             "is tokenized by itself."},
    {.name = "state-out",
     .kind = CLI_TEXT,
     .into = offsetof(run_arguments, state_out),
     .argument = "FILE",
     .flags = CLI_OUTPUT,
     .conflicts = "reference",
     .help = "Write the state behind the prompt and what was generated: state [bytes], and ids "
             "of all tokens that led to it, safetensors."},
    {.name = "reference",
     .kind = CLI_FLAG,
     .into = offsetof(run_arguments, reference),
     .help = "Compute --logits and --hidden in float64 with the slow reference."},
    {.name = "chunk",
     .kind = CLI_INTEGER,
     .into = offsetof(run_arguments, chunk),
     .argument = "T",
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .flags = CLI_NEUTRAL,
     .help = "Tokens of the prompt that go through the model at once; 0 is 1024. The results are "
             "the same, but for the rounding of Mamba-2 (see --exact-chunks)."},
    CLI_SPECIAL_ENTRY(run_arguments),
    CLI_INVALID_UTF8_ENTRY(run_arguments),
    CLI_LOAD_ENTRIES(run_arguments),
    CLI_EXACT_CHUNKS_ENTRY(run_arguments),
};

static const char *const run_examples[] = {
    "ssmscope run tiny --prompt \"In the beginning\"",
    "Greedy: the same text every time.",
    "ssmscope run tiny --prompt \"func main\" -n 100 --temperature 0.8 --seed 7",
    "Draws; another seed gives another text.",
    "ssmscope run tiny --text book.txt --logits logits.safetensors",
    "Logits of every token of a file.",
    "echo 17 42 | ssmscope run tiny --ids - -n 5",
    "Without a tokenizer: ids in, ids out.",
    "ssmscope run tiny --text book.txt --state-out book.state",
    "Read a long text once; run --state-in book.state goes on from there.",
    NULL};

const cli_command cli_command_run = {
    .name = "run",
    .summary = "generate text, or write logits and hidden states",
    .description = "Runs a model on a prompt and prints what it generates, without the prompt, as "
                   "soon as it is there. Rows of the vocabulary that the tokenizer (without one: "
                   "config.json) does not know are never drawn.",
    .examples = run_examples,
    .positionals = run_positionals,
    .n_positionals = sizeof run_positionals / sizeof *run_positionals,
    .options = run_options,
    .n_options = sizeof run_options / sizeof *run_options,
    .one_of = "prompt,text,ids",
    .arguments_size = sizeof(run_arguments),
    .run = run_run,
};
