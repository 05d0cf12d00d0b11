/* checkpoint/claims.h: what config.json says about a model. Claims, not facts: the shapes decide.
 */
#ifndef SSM_CHECKPOINT_CLAIMS_H
#define SSM_CHECKPOINT_CLAIMS_H

#include <ssmscope/checkpoint.h>

#include "checkpoint/notes.h"

/* key is the spelling found in the file (static text), NULL when nothing is claimed. */
typedef struct ssm__claim {
    const char *key;
    int64_t value;
} ssm__claim;

typedef struct ssm__claim_number {
    const char *key;
    double value;
} ssm__claim_number;

typedef struct ssm__claim_flag {
    const char *key;
    bool value;
} ssm__claim_flag;

typedef struct ssm__claims {
    ssm__claim hidden_size, n_layers, intermediate_size, state_size, conv_kernel, vocab_size;
    ssm__claim dt_rank;
    bool dt_rank_auto; /* "auto": ceil(d_model / 16); dt_rank.value is not set */
    ssm__claim_number expand, norm_eps;
    ssm__claim_flag use_bias, use_conv_bias, tied;
    ssm__claim bos_id, eos_id, pad_id;
} ssm__claims;

/* Reads a config.json of Hugging Face's `mamba`. Other families and schemas, and settings that
 * would change the numbers in a way this library does not compute, are refused by name; settings
 * that do not matter here are ignored, unknown ones are noted. Errors: FILE, MEMORY. */
ssm_status ssm__claims_read(const char *path, ssm__claims *out, ssm__notes *notes, ssm_error *err);
/* The same from `bytes` bytes of text; path is for messages. */
ssm_status ssm__claims_parse(const char *path, const char *text, size_t bytes, ssm__claims *out,
                             ssm__notes *notes, ssm_error *err);

#endif
