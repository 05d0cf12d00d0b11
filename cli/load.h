/* cli/load.h: models, tokenizers and texts that commands work on, and how results name them. */
#ifndef SSM_CLI_LOAD_H
#define SSM_CLI_LOAD_H

#include <ssmscope/model.h>
#include <ssmscope/tokenizer.h>

#include "context.h"
#include "model_argument.h"
#include "output.h"

/* What a command needs beside the checkpoint. */
enum {
    CLI_WANT_MODEL = 1,     /* weights checked, ready for sessions */
    CLI_WANT_DIGEST = 2,    /* reads every weight once */
    CLI_WANT_TOKENIZER = 4, /* an error when there is none */
    CLI_TRY_TOKENIZER = 8   /* NULL when there is none */
};

/* How a checkpoint is read: the options of CLI_LOAD_ENTRIES. */
typedef struct cli_load {
    bool lenient, ignore_index;
    int64_t norm_groups; /* 0: those of the checkpoint */
    bool exact_chunks;   /* CLI_EXACT_CHUNKS_ENTRY: of the sessions */
} cli_load;

typedef struct cli_source {
    const char *argument; /* MODEL as it was given */
    cli_model_path where;
    const ssm_checkpoint *checkpoint; /* owned here, or by the model */
    ssm_model *model;                 /* NULL unless wanted */
    const ssm_config *config;
    char digest[64];
    ssm_tokenizer *tokenizer;
    ssm_checkpoint *owned;
} cli_source;

/* Opens MODEL. load may be NULL. Owner: the caller, cli_source_close, also after an error. */
ssm_status cli_source_open(cli_context *context, const char *argument, const cli_load *load,
                           unsigned wants, cli_source *out, ssm_error *err);
void cli_source_close(cli_source *source);

/* Path of the tokenizer.json that belongs to a model file or directory. */
void cli_tokenizer_path(const char *model, char out[PATH_MAX]);

/* The tokenizer of the published models with so many rows, as a remark in brackets with a space in
 * front; "" where none is known. */
const char *cli_usual_tokenizer(const ssm_config *config);

/* Ids below this can be sampled: rows of the embedding that the tokenizer knows or, without one
 * (NULL), that config.json names. */
int64_t cli_valid_ids(const ssm_checkpoint *checkpoint, const ssm_tokenizer *tokenizer);

/* `model` {path, digest}, name for one given by name, commit for one from the Hugging Face cache.
 */
void cli_json_source(cli_json *json, const cli_source *source);
/* `text` [{domain, path, digest, tokens}]. */
void cli_json_corpus(cli_json *json, const ssm_corpus *corpus);

/* Says how many bytes of text became no id; nothing for 0. */
void cli_note_dropped(cli_context *context, int64_t bytes);

/* Texts of the command line, tokenized; says how many bad sequences were replaced, how many bytes
 * dropped. */
ssm_status cli_corpus_open(cli_context *context, const cli_source *source, const cli_texts *texts,
                           int64_t invalid_utf8, ssm_corpus *out, ssm_error *err);

/* A model ready for sessions, its tokenizer and digest, and the texts in its tokens: what commands
 * that work on texts begin with. Owner: the caller, cli_source_close and ssm_corpus_free, also
 * after an error. */
ssm_status cli_open_with_texts(cli_context *context, const char *model, const cli_load *load,
                               const cli_texts *texts, int64_t invalid_utf8, cli_source *source,
                               ssm_corpus *corpus, ssm_error *err);

/* Table entries that several commands share; `type` is the struct of their arguments, which has a
 * cli_load `load` for CLI_LOAD_ENTRIES. */
#define CLI_MODEL_ENTRY(type)                                                                      \
    {                                                                                              \
        .name = "MODEL", .into = offsetof(type, model), .flags = CLI_REQUIRED,                     \
        .help = "Directory, file, name in the Hugging Face cache, tiny or tiny2."                  \
    }
#define CLI_LOAD_ENTRIES(type)                                                                     \
    {.name = "lenient",                                                                            \
     .kind = CLI_FLAG,                                                                             \
     .into = offsetof(type, load.lenient),                                                         \
     .help = "Accept bytes behind the last tensor of a safetensors file."},                        \
        {.name = "ignore-index",                                                                   \
         .kind = CLI_FLAG,                                                                         \
         .into = offsetof(type, load.ignore_index),                                                \
         .help = "Read all weight files of the directory (of the index's kind) instead of those "  \
                 "that its index names, when they fill every slot."},                              \
    {                                                                                              \
        .name = "norm-groups", .kind = CLI_INTEGER, .into = offsetof(type, load.norm_groups),      \
        .argument = "G", .fallback = "0", .min = 0, .max = 1 << 20,                                \
        .help = "Groups of the gated norm of a Mamba-2 model; 0: as many as n_groups; 1 is what "  \
                "Hugging Face transformers computes."                                              \
    }
#define CLI_EXACT_CHUNKS_ENTRY(type)                                                               \
    {                                                                                              \
        .name = "exact-chunks", .kind = CLI_FLAG, .into = offsetof(type, load.exact_chunks),       \
        .help = "Run a Mamba-2 model by its recurrence, token after token, never in chunks: "      \
                "slower, but the bits do not depend on how a text is cut."                         \
    }
#define CLI_TEXT_ENTRY(type)                                                                       \
    {                                                                                              \
        .name = "TEXT", .into = offsetof(type, texts), .flags = CLI_REQUIRED | CLI_REPEATED,       \
        .help = "Text files, as PATH or DOMAIN=PATH."                                              \
    }
#define CLI_SPECIAL_ENTRY(type)                                                                    \
    {                                                                                              \
        .name = "special", .kind = CLI_CHOICE, .into = offsetof(type, special),                    \
        .choices = "parse|text", .fallback = "parse",                                              \
        .help = "What special tokens such as <|endoftext|> in the text are: parse makes them "     \
                "their ids, text leaves them text (for text that is not trusted)."                 \
    }
#define CLI_INVALID_UTF8_ENTRY(type)                                                               \
    {                                                                                              \
        .name = "invalid-utf8", .kind = CLI_CHOICE, .into = offsetof(type, invalid_utf8),          \
        .choices = "error|replace", .fallback = "error",                                           \
        .help = "What to do with text that is not UTF-8: error stops at its byte, replace puts "   \
                "U+FFFD there."                                                                    \
    }

#endif
