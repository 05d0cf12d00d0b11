#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "input.h"
#include "load.h"
#include "messages.h"

typedef struct tokenize_arguments {
    const char *model, *input, *text, *ids, *jsonl;
    int64_t special, invalid_utf8;
    bool decode, skip_special, add_special;
} tokenize_arguments;

/* What the functions of one run share. */
typedef struct tokenize_run {
    const cli_context *context;
    const ssm_tokenizer *tokenizer;
    const tokenize_arguments *args;
    int64_t dropped; /* bytes of text without a token */
} tokenize_run;

/* MODEL: as everywhere, or a tokenizer.json, or a directory that only holds one. */
static ssm_status open_tokenizer(const char *argument, ssm_tokenizer **out, ssm_error *err)
{
    cli_model_path where;
    ssm_status status = cli_resolve_model(argument, &where, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    size_t length = strlen(where.path);
    if (length > 5 && strcmp(where.path + length - 5, ".json") == 0) {
        return ssm_tokenizer_open(where.path, out, err);
    }
    char path[PATH_MAX];
    cli_tokenizer_path(where.path, path);
    return ssm_tokenizer_open(path, out, err);
}

static ssm_encode_options encode_options(tokenize_run *run)
{
    const tokenize_arguments *args = run->args;
    return (ssm_encode_options){.special_as_text = args->special == 1,
                                .add_special_tokens = args->add_special,
                                .invalid_utf8 = (ssm_invalid_utf8)args->invalid_utf8,
                                .dropped_bytes = &run->dropped};
}

/* ---- one text -------------------------------------------------------------------------------- */

static void print_ids(const ssm_ids *ids)
{
    for (int64_t i = 0; i < ids->count; i++) {
        printf("%s%d", i == 0 ? "" : " ", ids->data[i]);
    }
    putchar('\n');
}

static ssm_status print_json(const cli_context *context, const ssm_tokenizer *tokenizer,
                             const ssm_ids *ids, const ssm_text *decoded, ssm_error *err)
{
    cli_json json = cli_json_create(context, "tokenize");
    json_t *object = cli_json_object(&json, json.root, "tokenizer");
    cli_json_integer(&json, object, "vocab_size", ssm_tokenizer_vocab_size(tokenizer));
    cli_json_text(&json, object, "digest", ssm_tokenizer_digest(tokenizer));
    cli_json_integer(&json, json.root, "tokens", ids->count);
    json_t *array = cli_json_array(&json, json.root, "ids");
    for (int64_t i = 0; i < ids->count; i++) {
        cli_json_push(&json, array, json_integer(ids->data[i]));
    }
    if (decoded != NULL) {
        cli_json_put(&json, json.root, "decoded",
                     json_stringn(decoded->data == NULL ? "" : decoded->data, decoded->bytes));
    }
    return cli_json_print(&json, err);
}

static ssm_status encode_file(tokenize_run *run, ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    const char *path = args->text != NULL ? args->text : args->input != NULL ? args->input : "-";
    ssm_text text = {0};
    ssm_ids ids = {0};
    const ssm_encode_options options = encode_options(run);
    ssm_status status = cli_read_input(path, &text, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_tokenizer_encode(run->tokenizer, text.data, text.bytes, &options, &ids, err);
        if (status != SSM_STATUS_OK && err->file[0] == '\0') {
            snprintf(err->file, sizeof err->file, "%s", cli_input_name(path));
        }
    }
    if (status == SSM_STATUS_OK) {
        if (run->context->globals.json) {
            status = print_json(run->context, run->tokenizer, &ids, NULL, err);
        } else {
            print_ids(&ids);
        }
    }
    ssm_text_free(&text);
    ssm_ids_free(&ids);
    return status;
}

/* An id outside the vocabulary is a fault of the file that holds it. */
static ssm_status of_file(const char *path, ssm_status status, ssm_error *err)
{
    if (status != SSM_STATUS_USAGE) {
        return status;
    }
    snprintf(err->file, sizeof err->file, "%s", cli_input_name(path));
    err->status = SSM_STATUS_FILE;
    return SSM_STATUS_FILE;
}

static ssm_status decode_file(const tokenize_run *run, ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    const char *path = args->ids != NULL ? args->ids : args->input != NULL ? args->input : "-";
    ssm_ids ids = {0};
    ssm_text text = {0};
    ssm_status status = cli_read_ids(path, &ids, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_tokenizer_decode(run->tokenizer, ids.data, ids.count, args->skip_special,
                                      &text, err);
        status = of_file(path, status, err);
    }
    if (status == SSM_STATUS_OK) {
        if (run->context->globals.json) {
            status = print_json(run->context, run->tokenizer, &ids, &text, err);
        } else if (text.bytes > 0) {
            fwrite(text.data, 1, text.bytes, stdout);
        }
    }
    ssm_ids_free(&ids);
    ssm_text_free(&text);
    return status;
}

/* ---- lines of JSON --------------------------------------------------------------------------- */

static ssm_status bad_line(const char *path, int64_t line, const char *what, ssm_error *err)
{
    return cli_fail(err, SSM_STATUS_FILE, cli_input_name(path), "line %lld: %s", (long long)line,
                    what);
}

/* The status of work on a line, with the place added to the library's message. */
static ssm_status at_line(const char *path, int64_t line, ssm_status status, ssm_error *err)
{
    if (status != SSM_STATUS_OK && status != SSM_STATUS_MEMORY) {
        char message[SSM_ERROR_MESSAGE_MAX];
        snprintf(message, sizeof message, "%s", err->message);
        ssm_error_clear(err);
        status = status == SSM_STATUS_USAGE ? SSM_STATUS_FILE : status;
        cli_fail(err, status, cli_input_name(path), "line %lld: %.900s", (long long)line, message);
    }
    return status;
}

static ssm_status encode_line(tokenize_run *run, const json_t *value, int64_t line, ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    const json_t *text = json_object_get(value, "text");
    if (!json_is_string(text)) {
        return bad_line(args->jsonl, line, "expected {\"text\": \"…\"}", err);
    }
    ssm_ids ids = {0};
    const ssm_encode_options options = encode_options(run);
    ssm_status status = ssm_tokenizer_encode(run->tokenizer, json_string_value(text),
                                             json_string_length(text), &options, &ids, err);
    if (status == SSM_STATUS_OK) {
        fputs("{\"ids\": [", stdout);
        for (int64_t i = 0; i < ids.count; i++) {
            printf("%s%d", i == 0 ? "" : ", ", ids.data[i]);
        }
        fputs("]}\n", stdout);
    }
    ssm_ids_free(&ids);
    return at_line(args->jsonl, line, status, err);
}

static ssm_status ids_of_array(const json_t *array, ssm_ids *ids, const char *path, int64_t line,
                               ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; status == SSM_STATUS_OK && i < json_array_size(array); i++) {
        const json_t *id = json_array_get(array, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value > INT32_MAX) {
            return bad_line(path, line, "an id is not a whole number from 0 on", err);
        }
        status = cli_ids_push(ids, (int32_t)value, err);
    }
    return status;
}

static ssm_status decode_line(const tokenize_run *run, const json_t *value, int64_t line,
                              ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    const json_t *array = json_object_get(value, "ids");
    if (!json_is_array(array)) {
        return bad_line(args->jsonl, line, "expected {\"ids\": […]}", err);
    }
    ssm_ids ids = {0};
    ssm_text text = {0};
    ssm_status status = ids_of_array(array, &ids, args->jsonl, line, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_tokenizer_decode(run->tokenizer, ids.data, ids.count, args->skip_special,
                                      &text, err);
        status = at_line(args->jsonl, line, status, err);
    }
    if (status == SSM_STATUS_OK) {
        json_t *object = json_pack("{s:o?}", "text",
                                   json_stringn(text.data == NULL ? "" : text.data, text.bytes));
        bool good = object != NULL && json_dumpf(object, stdout, 0) == 0;
        putchar('\n');
        json_decref(object);
        status = good ? SSM_STATUS_OK : cli_no_memory(err);
    }
    ssm_ids_free(&ids);
    ssm_text_free(&text);
    return status;
}

static ssm_status run_line(tokenize_run *run, const char *text, size_t bytes, int64_t line,
                           ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    json_error_t problem;
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &problem);
    if (value == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, cli_input_name(args->jsonl), "line %lld: %s",
                        (long long)line, problem.text);
    }
    ssm_status status =
        args->decode ? decode_line(run, value, line, err) : encode_line(run, value, line, err);
    json_decref(value);
    return status;
}

static ssm_status run_lines(tokenize_run *run, ssm_error *err)
{
    const tokenize_arguments *args = run->args;
    FILE *file = NULL;
    ssm_status status = cli_open_input(args->jsonl, &file, err);
    char *text = NULL;
    size_t capacity = 0;
    int64_t line = 0;
    while (status == SSM_STATUS_OK) {
        errno = 0;
        ssize_t bytes = getline(&text, &capacity, file);
        if (bytes < 0) {
            if (ferror(file) != 0 || errno == ENOMEM) {
                status =
                    cli_fail(err, errno == ENOMEM ? SSM_STATUS_MEMORY : SSM_STATUS_FILE,
                             cli_input_name(args->jsonl), "cannot be read: %s", strerror(errno));
            }
            break;
        }
        line++;
        status = run_line(run, text, (size_t)bytes, line, err);
    }
    free(text);
    cli_close_input(file);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Combinations that the table cannot say. */
static ssm_status check_arguments(const cli_context *context, const tokenize_arguments *args,
                                  ssm_error *err)
{
    if (args->ids != NULL && !args->decode) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--ids needs --decode");
    }
    if (args->text != NULL && args->decode) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--text and --decode cannot be given together; ids come from --ids FILE");
    }
    if (args->skip_special && !args->decode) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--skip-special needs --decode");
    }
    if (args->input != NULL && (args->text != NULL || args->ids != NULL || args->jsonl != NULL)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "the input is given twice: '%s' and an option that names another",
                        args->input);
    }
    if (args->jsonl != NULL && context->globals.json) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--jsonl and --json cannot be given together: --jsonl prints one object a "
                        "line");
    }
    return SSM_STATUS_OK;
}

static ssm_status run_tokenize(cli_context *context, const void *arguments, ssm_error *err)
{
    const tokenize_arguments *args = arguments;
    ssm_tokenizer *tokenizer = NULL;
    ssm_status status = check_arguments(context, args, err);
    status = status == SSM_STATUS_OK ? open_tokenizer(args->model, &tokenizer, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    tokenize_run run = {.context = context, .tokenizer = tokenizer, .args = args};
    if (args->jsonl != NULL) {
        status = run_lines(&run, err);
    } else if (args->decode) {
        status = decode_file(&run, err);
    } else {
        status = encode_file(&run, err);
    }
    cli_note_dropped(context, run.dropped);
    ssm_tokenizer_free(tokenizer);
    return status;
}

static const cli_positional tokenize_positionals[] = {
    {.name = "MODEL",
     .into = offsetof(tokenize_arguments, model),
     .flags = CLI_REQUIRED,
     .help = "A model, or a tokenizer.json alone."},
    {.name = "INPUT",
     .into = offsetof(tokenize_arguments, input),
     .help = "The input, when no option names it; - is standard input, which is the default."},
};

static const cli_option tokenize_options[] = {
    {.name = "text",
     .kind = CLI_TEXT,
     .into = offsetof(tokenize_arguments, text),
     .argument = "FILE",
     .conflicts = "ids,jsonl",
     .help = "Text to encode; - is standard input."},
    CLI_SPECIAL_ENTRY(tokenize_arguments),
    {.name = "add-special",
     .kind = CLI_FLAG,
     .into = offsetof(tokenize_arguments, add_special),
     .help = "Add the tokens that the tokenizer's post-processor adds, such as a first token."},
    CLI_INVALID_UTF8_ENTRY(tokenize_arguments),
    {.name = "decode",
     .kind = CLI_FLAG,
     .into = offsetof(tokenize_arguments, decode),
     .help = "From ids to text."},
    {.name = "skip-special",
     .kind = CLI_FLAG,
     .into = offsetof(tokenize_arguments, skip_special),
     .help = "Leave special tokens out of decoded text."},
    {.name = "ids",
     .kind = CLI_TEXT,
     .into = offsetof(tokenize_arguments, ids),
     .argument = "FILE",
     .conflicts = "jsonl",
     .help = "Ids to decode: decimal, separated by white space; - is standard input."},
    {.name = "jsonl",
     .kind = CLI_TEXT,
     .into = offsetof(tokenize_arguments, jsonl),
     .argument = "FILE",
     .help = "Many texts: lines {\"text\": …} in, lines {\"ids\": […]} out; with --decode the "
             "other way round."},
};

static const char *const tokenize_examples[] = {
    "echo 'Hello, world!' | ssmscope tokenize tiny", "The ids of a text, on one line.",
    "ssmscope tokenize tiny --text book.txt | ssmscope tokenize tiny --decode",
    "There and back: the same bytes.", NULL};

const cli_command cli_command_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids and back",
    .description = "Encodes a text with the tokenizer.json of a model and prints the ids on one "
                   "line, or decodes ids and prints the text, byte for byte.",
    .examples = tokenize_examples,
    .positionals = tokenize_positionals,
    .n_positionals = sizeof tokenize_positionals / sizeof *tokenize_positionals,
    .options = tokenize_options,
    .n_options = sizeof tokenize_options / sizeof *tokenize_options,
    .arguments_size = sizeof(tokenize_arguments),
    .run = run_tokenize,
};
