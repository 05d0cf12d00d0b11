#include "load.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "messages.h"

void cli_tokenizer_path(const char *model, char out[PATH_MAX])
{
    static const char name[] = "tokenizer.json";
    struct stat info;
    size_t room = PATH_MAX - sizeof name - 1;
    if (stat(model, &info) == 0 && S_ISDIR(info.st_mode)) {
        snprintf(out, PATH_MAX, "%.*s/%s", (int)room, model, name);
        return;
    }
    const char *slash = strrchr(model, '/');
    int length = slash == NULL ? 0 : (int)(slash - model + 1);
    snprintf(out, PATH_MAX, "%.*s%s", length < (int)room ? length : (int)room, model, name);
}

const char *cli_usual_tokenizer(const ssm_config *config)
{
    if (config->vocab_size >= 50277 && config->vocab_size <= 50304) {
        return " (by its size the vocabulary is that of EleutherAI/gpt-neox-20b)";
    }
    if (config->vocab_size == 65024 && config->family == SSM_FAMILY_FALCON_MAMBA) {
        return " (by its size the vocabulary is that of tiiuae/falcon-mamba-7b)";
    }
    if (config->vocab_size == 32768 && config->family == SSM_FAMILY_MAMBA2) {
        return " (by its size the vocabulary may be that of mistralai/Mamba-Codestral-7B-v0.1)";
    }
    return "";
}

static ssm_status missing_tokenizer(const char *path, const ssm_config *config, ssm_error *err)
{
    return cli_fail(err, SSM_STATUS_FILE, path,
                    "text needs this file and it is not there: put the model's tokenizer.json "
                    "into its directory%s; without it only token ids work (--ids)",
                    cli_usual_tokenizer(config));
}

/* Where a tokenizer is not needed, one that cannot be read is as good as none, but not silently. */
static ssm_status open_tokenizer(cli_context *context, cli_source *source, bool required,
                                 ssm_error *err)
{
    char path[PATH_MAX];
    struct stat info;
    cli_tokenizer_path(source->where.path, path);
    if (stat(path, &info) != 0) {
        return required ? missing_tokenizer(path, source->config, err) : SSM_STATUS_OK;
    }
    ssm_status status = ssm_tokenizer_open(path, &source->tokenizer, err);
    if (status == SSM_STATUS_FILE && !required) {
        cli_note(context, "%s: not used: %s", path, err->message);
        ssm_error_clear(err);
        return SSM_STATUS_OK;
    }
    if (status != SSM_STATUS_OK) {
        return status;
    }
    int64_t ids = ssm_tokenizer_vocab_size(source->tokenizer);
    if (required && ids > source->config->vocab_size) {
        return cli_fail(err, SSM_STATUS_FILE, path,
                        "the tokenizer has %lld ids, but the embedding of the model has %lld rows: "
                        "it is not this model's tokenizer",
                        (long long)ids, (long long)source->config->vocab_size);
    }
    return SSM_STATUS_OK;
}

ssm_status cli_source_open(cli_context *context, const char *argument, const cli_load *load,
                           unsigned wants, cli_source *out, ssm_error *err)
{
    ssm_checkpoint_options options = {0};
    if (load != NULL) {
        options = (ssm_checkpoint_options){.lenient = load->lenient,
                                           .ignore_index = load->ignore_index,
                                           .norm_groups = load->norm_groups};
    }
    *out = (cli_source){.argument = argument};
    ssm_status status = cli_resolve_model(argument, &out->where, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_checkpoint_open(out->where.path, &options, &out->owned, err);
    }
    if (status != SSM_STATUS_OK) {
        return status;
    }
    out->checkpoint = out->owned;
    out->config = ssm_checkpoint_config(out->owned);
    if ((wants & (CLI_WANT_TOKENIZER | CLI_TRY_TOKENIZER)) != 0) {
        status = open_tokenizer(context, out, (wants & CLI_WANT_TOKENIZER) != 0, err);
    }
    if (status == SSM_STATUS_OK && (wants & CLI_WANT_MODEL) != 0) {
        ssm_checkpoint *checkpoint = out->owned;
        out->owned = NULL; /* the model takes it, also when it fails */
        status = ssm_model_create(checkpoint, (ssm_isa)context->globals.isa, &out->model, err);
    }
    if (status == SSM_STATUS_OK && (wants & CLI_WANT_DIGEST) != 0) {
        status = ssm_checkpoint_digest(out->checkpoint, out->digest, err);
    }
    return status;
}

void cli_source_close(cli_source *source)
{
    ssm_model_free(source->model);
    ssm_checkpoint_close(source->owned);
    ssm_tokenizer_free(source->tokenizer);
    *source = (cli_source){0};
}

int64_t cli_valid_ids(const ssm_checkpoint *checkpoint, const ssm_tokenizer *tokenizer)
{
    const int64_t rows = ssm_checkpoint_config(checkpoint)->vocab_size;
    const int64_t known = tokenizer == NULL ? ssm_checkpoint_named_ids(checkpoint)
                                            : ssm_tokenizer_vocab_size(tokenizer);
    return known < rows ? known : rows;
}

void cli_json_source(cli_json *json, const cli_source *source)
{
    json_t *model = cli_json_object(json, json->root, "model");
    cli_json_text(json, model, "path", source->where.path);
    cli_json_text(json, model, "digest", source->digest[0] == '\0' ? NULL : source->digest);
    if (source->where.name[0] != '\0') {
        cli_json_text(json, model, "name", source->where.name);
    }
    if (source->where.commit[0] != '\0') {
        cli_json_text(json, model, "commit", source->where.commit);
    }
}

void cli_json_corpus(cli_json *json, const ssm_corpus *corpus)
{
    json_t *texts = cli_json_array(json, json->root, "text");
    for (int64_t i = 0; i < corpus->n_files; i++) {
        json_t *text = json_object();
        cli_json_text(json, text, "domain", corpus->files[i].domain);
        cli_json_text(json, text, "path", corpus->files[i].path);
        cli_json_text(json, text, "digest", corpus->files[i].digest);
        cli_json_integer(json, text, "tokens", corpus->files[i].tokens);
        cli_json_push(json, texts, text);
    }
}

void cli_note_dropped(cli_context *context, int64_t bytes)
{
    if (bytes > 0) {
        cli_note(context,
                 "%lld bytes of the text have no token in the vocabulary and were dropped, as "
                 "Hugging Face tokenizers does",
                 (long long)bytes);
    }
}

/* A text that was meant is not there: the windows of its domain would be those of other files. */
static ssm_status check_not_empty(const ssm_corpus *corpus, ssm_error *err)
{
    for (int64_t i = 0; i < corpus->n_files; i++) {
        if (corpus->files[i].tokens == 0) {
            return cli_fail(err, SSM_STATUS_FILE, corpus->files[i].path,
                            "expected text, found no token of it (domain '%s'): is the file empty, "
                            "or another one meant?",
                            corpus->files[i].domain);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status cli_corpus_open(cli_context *context, const cli_source *source, const cli_texts *texts,
                           int64_t invalid_utf8, ssm_corpus *out, ssm_error *err)
{
    ssm_status status = ssm_corpus_open(source->tokenizer, texts->values, texts->count,
                                        (ssm_invalid_utf8)invalid_utf8, out, err);
    if (status == SSM_STATUS_OK && out->replaced > 0) {
        cli_note(context, "%lld invalid UTF-8 sequences were replaced by U+FFFD",
                 (long long)out->replaced);
    }
    if (status == SSM_STATUS_OK) {
        cli_note_dropped(context, out->dropped);
        status = check_not_empty(out, err);
    }
    return status;
}

ssm_status cli_open_with_texts(cli_context *context, const char *model, const cli_load *load,
                               const cli_texts *texts, int64_t invalid_utf8, cli_source *source,
                               ssm_corpus *corpus, ssm_error *err)
{
    *corpus = (ssm_corpus){0};
    ssm_status status = cli_source_open(
        context, model, load, CLI_WANT_MODEL | CLI_WANT_TOKENIZER | CLI_WANT_DIGEST, source, err);
    return status == SSM_STATUS_OK
               ? cli_corpus_open(context, source, texts, invalid_utf8, corpus, err)
               : status;
}
