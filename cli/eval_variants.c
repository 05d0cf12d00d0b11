/* cli/eval_variants.c: the models that `eval` judges, its record of finished items, its prefix. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval_state.h"
#include "masks.h"
#include "messages.h"
#include "rules.h"
#include "values.h"

const char cli_unpruned[] = "unpruned";

/* ---- models ---------------------------------------------------------------------------------- */

/* name: of --against, or NULL for the mask or rule of the command. */
static ssm_status add_variant(cli_eval_state *state, const char *name, cli_variant *variants,
                              int64_t *count, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    const char *mask = name == NULL ? args->mask : NULL;
    const char *rule = name == NULL ? state->rule : NULL;
    if (name != NULL && strcmp(name, cli_unpruned) != 0) {
        *(cli_is_rule(name) ? &rule : &mask) = name;
    }
    cli_variant *variant = &variants[*count];
    variant->masked = mask != NULL || rule != NULL;
    variant->name = mask != NULL ? mask : rule != NULL ? rule : cli_unpruned;
    for (int64_t i = 0; i < *count; i++) {
        if (!variant->masked && !variants[i].masked) {
            return SSM_STATUS_OK; /* there already */
        }
    }
    (*count)++;
    if (rule != NULL) {
        return cli_eval_choose(state, rule, variant, err);
    }
    return mask != NULL ? cli_mask_read(mask, &state->source, &variant->mask, err) : SSM_STATUS_OK;
}

ssm_status cli_variants_open(cli_eval_state *state, cli_variant **out, int64_t *count,
                             ssm_error *err)
{
    const cli_texts *against = &state->against;
    *count = 0;
    *out = calloc((size_t)against->count + 2, sizeof **out);
    if (*out == NULL) {
        return cli_no_memory(err);
    }
    ssm_status status = add_variant(state, NULL, *out, count, err);
    if (status == SSM_STATUS_OK) {
        status = add_variant(state, cli_unpruned, *out, count, err);
    }
    for (int64_t i = state->first_against; i < against->count && status == SSM_STATUS_OK; i++) {
        status = add_variant(state, against->values[i], *out, count, err);
    }
    return status;
}

void cli_variants_free(cli_variant *variants, int64_t count)
{
    for (int64_t i = 0; variants != NULL && i < count; i++) {
        ssm_mask_free(&variants[i].mask);
        ssm_adapt_free(variants[i].adapter);
    }
    free(variants);
}

ssm_status cli_variants_json(cli_json *json, const cli_variant *variants, int64_t count,
                             const cli_variant_json *put, ssm_error *err)
{
    const int64_t first = variants[0].masked ? 2 : 1; /* of the others */
    ssm_status status = SSM_STATUS_OK;
    cli_json_text(json, json->root, "judged", variants[0].name);
    put->model(json, json->root, put->run, 0);
    if (variants[0].masked) {
        put->model(json, cli_json_object(json, json->root, "baseline"), put->run, 1);
        status = put->difference(json, cli_json_object(json, json->root, "difference"), put->run, 1,
                                 err);
    }
    json_t *others = count > first ? cli_json_object(json, json->root, "others") : NULL;
    json_t *differences = others ? cli_json_object(json, json->root, "differences") : NULL;
    for (int64_t i = first; i < count && status == SSM_STATUS_OK; i++) {
        put->model(json, cli_json_object(json, others, variants[i].name), put->run, i);
        status = put->difference(json, cli_json_object(json, differences, variants[i].name),
                                 put->run, i, err);
    }
    return status;
}

/* ---- finished items -------------------------------------------------------------------------- */

/* The digest of a mask file or of the recording that a rule chooses on. */
static ssm_status add_digest(const char *path, cli_string *out, ssm_error *err)
{
    char digest[64];
    struct stat info;
    if (path == NULL || stat(path, &info) != 0 || S_ISDIR(info.st_mode)) {
        return SSM_STATUS_OK;
    }
    ssm_status status = ssm_file_digest(path, digest, err);
    if (status == SSM_STATUS_OK) {
        cli_string_format(out, " | %s", digest);
    }
    return status;
}

ssm_status cli_eval_journal(cli_eval_state *state, const char *digest, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    if (args->items == NULL) {
        return SSM_STATUS_OK;
    }
    /* What the items depend on: the command, the model, the data, the masks. */
    cli_string work = {0};
    cli_string_format(&work, "%s | %s", state->context->canonical, state->source.digest);
    if (digest != NULL) {
        cli_string_format(&work, " | %s", digest);
    }
    for (int64_t i = 0; i < state->corpus.n_files; i++) {
        cli_string_format(&work, " | %s", state->corpus.files[i].digest);
    }
    ssm_status status = add_digest(args->mask, &work, err);
    for (int64_t i = 0; i < args->against.count && status == SSM_STATUS_OK; i++) {
        status = add_digest(args->against.values[i], &work, err);
    }
    if (args->recording != NULL && status == SSM_STATUS_OK) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/recording.json", args->recording);
        status = add_digest(path, &work, err);
    }
    if (status == SSM_STATUS_OK && (work.failed || work.data == NULL)) {
        status = cli_no_memory(err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_journal_open(args->items, work.data, args->resume, &state->journal, err);
    }
    free(work.data);
    if (status == SSM_STATUS_OK && ssm_journal_resumed(state->journal) > 0) {
        cli_note(state->context, "resuming: %lld items are there already",
                 (long long)ssm_journal_resumed(state->journal));
    }
    return status;
}

/* ---- the prefix ------------------------------------------------------------------------------ */

/* A token of the vocabulary, or an id. */
static ssm_status parse_token(cli_eval_state *state, const char *text, ssm_error *err)
{
    state->prefix_source = "--prefix-token";
    state->prefix_id = ssm_tokenizer_id(state->source.tokenizer, text, strlen(text));
    if (state->prefix_id < 0 && text[0] != '\0' && strspn(text, "0123456789") == strlen(text) &&
        strlen(text) < 10) {
        state->prefix_id = (int32_t)strtol(text, NULL, 10);
    }
    if (state->prefix_id < 0 || state->prefix_id >= state->source.config->vocab_size) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--prefix-token: expected auto, none, a token or an id below %lld, found "
                        "'%s'",
                        (long long)state->source.config->vocab_size, text);
    }
    return SSM_STATUS_OK;
}

ssm_status cli_eval_write_harness(const cli_eval_state *state, ssm_harness_run *run,
                                  const struct timespec *started, ssm_error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    run->model_path = state->source.argument;
    run->model_args = state->context->canonical;
    run->prefix_id = state->prefix_id;
    run->max_length = state->args->max_length;
    run->bootstrap_iterations = state->args->harness_bootstrap;
    run->started = (int64_t)started->tv_sec;
    run->seconds =
        (double)(now.tv_sec - started->tv_sec) + 1e-9 * (double)(now.tv_nsec - started->tv_nsec);
    return ssm_harness_write(run, state->args->harness_json, err);
}

ssm_status cli_eval_prefix(cli_eval_state *state, ssm_error *err)
{
    const char *text = state->args->prefix_token;
    state->prefix_id = -1;
    state->prefix_source = "none";
    if (strcmp(text, "none") == 0) {
        return SSM_STATUS_OK;
    }
    if (strcmp(text, "auto") != 0) {
        return parse_token(state, text, err);
    }
    char path[PATH_MAX];
    cli_tokenizer_path(state->source.where.path, path);
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    ssm_status status = ssm_prefix_token(state->source.tokenizer, slash == NULL ? "." : path,
                                         &state->prefix_id, &state->prefix_source, err);
    if (status == SSM_STATUS_OK && state->prefix_id < 0) {
        status = cli_fail(err, SSM_STATUS_USAGE, NULL,
                          "the tokenizer names neither a BOS nor an EOS token, and has no "
                          "<|endoftext|>: give --prefix-token (a token, an id, or none)");
    }
    return status;
}
