#include "doctor.h"

#include <string.h>
#include <sys/stat.h>

#include "messages.h"

/* Appends a finding; forwards its failure. */
#define FIND(kind, ...)                                                                            \
    do {                                                                                           \
        ssm_status found_ =                                                                        \
            ssm_findings_add(findings, SSM_FINDING_##kind, "tokenizer", NULL, err, __VA_ARGS__);   \
        if (found_ != SSM_STATUS_OK) {                                                             \
            return found_;                                                                         \
        }                                                                                          \
    } while (0)

static ssm_status compare_sizes(const ssm_tokenizer *tokenizer, int64_t rows,
                                ssm_findings *findings, ssm_error *err)
{
    int64_t ids = ssm_tokenizer_vocab_size(tokenizer);
    if (ids > rows) {
        FIND(PROBLEM,
             "the tokenizer has %lld ids, the embedding %lld rows: it belongs to another model",
             (long long)ids, (long long)rows);
    } else if (rows - ids >= 1024) { /* vocabularies are padded to multiples of 8 to 512 */
        FIND(NOTE,
             "the tokenizer has %lld ids, the embedding %lld rows: more than padding explains; is "
             "it this model's tokenizer?",
             (long long)ids, (long long)rows);
    } else if (ids < rows) {
        FIND(OK,
             "tokenizer with %lld ids for %lld rows: the last %lld rows are padding, which is "
             "never sampled",
             (long long)ids, (long long)rows, (long long)(rows - ids));
    } else {
        FIND(OK, "tokenizer with %lld ids, one for each row of the embedding", (long long)ids);
    }
    return SSM_STATUS_OK;
}

static ssm_status examine_special(const char *what, int64_t id, const ssm_tokenizer *tokenizer,
                                  ssm_findings *findings, ssm_error *err)
{
    if (id < 0 || tokenizer == NULL) {
        return SSM_STATUS_OK;
    }
    if (id >= ssm_tokenizer_vocab_size(tokenizer)) {
        FIND(NOTE, "%s is id %lld, which the tokenizer does not have", what, (long long)id);
        return SSM_STATUS_OK;
    }
    int32_t one = (int32_t)id;
    ssm_text text = {0};
    ssm_status status = ssm_tokenizer_decode(tokenizer, &one, 1, false, &text, err);
    if (status == SSM_STATUS_OK) {
        /* Falcon's config.json names >>TITLE<< as the beginning of text. */
        bool falcon = text.bytes > 4 && memcmp(text.data, ">>", 2) == 0;
        status = ssm_findings_add(
            findings, falcon ? SSM_FINDING_NOTE : SSM_FINDING_OK, "tokenizer", NULL, err,
            "%s is id %lld, '%.*s'%s", what, (long long)id,
            (int)(text.bytes < 64 ? text.bytes : 64), text.data == NULL ? "" : text.data,
            falcon ? ": no such token; it is not put in front of a text" : "");
    }
    ssm_text_free(&text);
    return status;
}

ssm_status cli_doctor_tokenizer(const cli_source *source, ssm_tokenizer **out,
                                ssm_findings *findings, ssm_error *err)
{
    const ssm_config *config = source->config;
    char path[PATH_MAX];
    struct stat info;
    ssm_error found;
    *out = NULL;
    cli_tokenizer_path(source->where.path, path);
    if (stat(path, &info) != 0) {
        FIND(NOTE, "no %s: the model runs with --ids only until one is put there%s", path,
             cli_usual_tokenizer(config));
    } else {
        ssm_error_clear(&found);
        ssm_status status = ssm_tokenizer_open(path, out, &found);
        if (status == SSM_STATUS_MEMORY) {
            *err = found;
            return status;
        }
        if (status != SSM_STATUS_OK) {
            FIND(PROBLEM, "%s: %s", path, found.message);
        } else {
            status = compare_sizes(*out, config->vocab_size, findings, err);
            if (status != SSM_STATUS_OK) {
                return status;
            }
        }
    }
    if (config->eos_id < 0) {
        FIND(NOTE, "config.json names no end-of-text token: generation stops at -n only");
    }
    ssm_status status = examine_special("the end of text", config->eos_id, *out, findings, err);
    return status == SSM_STATUS_OK
               ? examine_special("the beginning of text", config->bos_id, *out, findings, err)
               : status;
}
