/* Does the head share the embedding? Decided by the flag, the presence of lm_head.weight and its
 * equality with the embedding; never by a default that nobody sees.
 *
 *   flag       lm_head absent      equal to the embedding     different
 *   true       tied                tied, one copy used        error
 *   not given  tied (noted)        tied, one copy used        error: the flag must be written
 *   false      error               untied, as the flag says   untied
 *
 * Of Hugging Face's mamba2 and of Mistral's params.json the absent flag means false, so that a
 * different head is used there. */
#include "checkpoint/internal.h"

#include <string.h>

#include "base/error.h"

static bool same_values(const ssm_tensor *a, const ssm_tensor *b)
{
    if (a->dtype == b->dtype) {
        return a->bytes == b->bytes &&
               (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
    }
    int64_t count = ssm_tensor_count(a);
    for (int64_t i = 0; i < count; i++) {
        if (ssm_tensor_get(a, i) != ssm_tensor_get(b, i)) {
            return false;
        }
    }
    return true;
}

/* The embedding serves; the entry of an equal lm_head is not used. */
static void tie(ssm_checkpoint *checkpoint)
{
    const char *head = checkpoint->weights.lm_head.name;
    for (int64_t i = 0; head != NULL && i < checkpoint->n_entries; i++) {
        if (checkpoint->entries[i].tensor->name == head) { /* the same text: the same entry */
            checkpoint->entries[i].used = false;
        }
    }
    checkpoint->weights.lm_head = checkpoint->weights.embedding;
    checkpoint->config.tied = true;
}

/* What the code that the configuration was written for takes an absent flag for. */
static bool default_is_tied(const ssm_checkpoint *checkpoint)
{
    return checkpoint->config.family != SSM_FAMILY_MAMBA2 ||
           checkpoint->claims.schema == SSM__SCHEMA_ORIGINAL;
}

static ssm_status decide_absent(ssm_checkpoint *checkpoint, const ssm__claim_flag *flag,
                                ssm_error *err)
{
    if (flag->key != NULL && !flag->value) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->path, "lm_head.weight"),
                         "config.json says %s = false, but there is no lm_head.weight; the head "
                         "cannot be made up",
                         flag->key);
    }
    tie(checkpoint);
    if (flag->key != NULL) {
        return ssm__note(&checkpoint->notes, err,
                         "The head is tied: config.json says %s = true and there is no "
                         "lm_head.weight, so the embedding is the head.",
                         flag->key);
    }
    return ssm__note(&checkpoint->notes, err,
                     "The head is tied: there is no lm_head.weight and config.json does not say "
                     "tie_word_embeddings (the family's default is %s), so the embedding is the "
                     "head.",
                     default_is_tied(checkpoint) ? "true" : "false");
}

static ssm_status decide_equal(ssm_checkpoint *checkpoint, const ssm__claim_flag *flag,
                               ssm_error *err)
{
    if (flag->key != NULL && !flag->value) {
        checkpoint->config.tied = false;
        return ssm__note(&checkpoint->notes, err,
                         "The head is untied: config.json says %s = false; lm_head.weight is used "
                         "(its values equal the embedding's).",
                         flag->key);
    }
    tie(checkpoint);
    return ssm__note(&checkpoint->notes, err,
                     "The head is tied: config.json %s %s%s and lm_head.weight equals the "
                     "embedding, so one copy is used.",
                     flag->key != NULL ? "says" : "does not say",
                     flag->key != NULL ? flag->key : "tie_word_embeddings",
                     flag->key != NULL ? " = true" : "");
}

static ssm_status decide_different(ssm_checkpoint *checkpoint, const ssm__claim_flag *flag,
                                   ssm_error *err)
{
    const ssm_tensor *head = &checkpoint->weights.lm_head;
    if (flag->key == NULL && !default_is_tied(checkpoint)) {
        checkpoint->config.tied = false;
        return ssm__note(&checkpoint->notes, err,
                         "The head is untied: config.json does not say tie_word_embeddings (the "
                         "family's default is false) and lm_head.weight is used.");
    }
    if (flag->key == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(head->file, head->name),
                         "lm_head.weight differs from the embedding and config.json does not say "
                         "tie_word_embeddings (others read that as true and drop this head); write "
                         "\"tie_word_embeddings\": false to use it");
    }
    if (flag->value) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(head->file, head->name),
                         "config.json says %s = true, but lm_head.weight differs from the "
                         "embedding; write false to use this head, or remove the tensor",
                         flag->key);
    }
    checkpoint->config.tied = false;
    return ssm__note(&checkpoint->notes, err,
                     "The head is untied: config.json says %s = false and lm_head.weight is used.",
                     flag->key);
}

ssm_status ssm__decide_head(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim_flag *flag = &checkpoint->claims.tied;
    const ssm__weights *weights = &checkpoint->weights;
    if (weights->lm_head.name == NULL) {
        return decide_absent(checkpoint, flag, err);
    }
    return same_values(&weights->lm_head, &weights->embedding)
               ? decide_equal(checkpoint, flag, err)
               : decide_different(checkpoint, flag, err);
}
