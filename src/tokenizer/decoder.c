/* tokenizer/decoder.c: ids to text, whole or as they come. */
#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/growable.h"
#include "tokenizer/tokenizer.h"

struct ssm_decoder {
    const ssm_tokenizer *tokenizer;
    bool skip_special;
    bool begun;    /* some token was written */
    int64_t count; /* ids pushed, for messages */
    ssm__decoder_run run;
};

ssm_status ssm_decoder_create(const ssm_tokenizer *tokenizer, bool skip_special, ssm_decoder **out,
                              ssm_error *err)
{
    *out = NULL;
    ssm_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) {
        return ssm__fail_memory(err, "a decoder", sizeof *decoder);
    }
    decoder->tokenizer = tokenizer;
    decoder->skip_special = skip_special;
    ssm_status status = ssm__decoder_run_create(&tokenizer->decoder, &decoder->run, err);
    if (status != SSM_STATUS_OK) {
        ssm_decoder_free(decoder);
        return status;
    }
    *out = decoder;
    return SSM_STATUS_OK;
}

void ssm_decoder_free(ssm_decoder *decoder)
{
    if (decoder != NULL) {
        ssm__decoder_run_free(&decoder->run);
        free(decoder);
    }
}

ssm_status ssm_decoder_push(ssm_decoder *decoder, int32_t id, ssm_text *text, ssm_error *err)
{
    const ssm_tokenizer *tokenizer = decoder->tokenizer;
    if (id < 0 || id >= tokenizer->size || !tokenizer->tokens[id].present) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "id %d at place %lld is not in the vocabulary (ids 0 to %lld)", id,
                         (long long)decoder->count, (long long)tokenizer->size - 1);
    }
    decoder->count++;
    const ssm__token *token = &tokenizer->tokens[id];
    if (decoder->skip_special && token->special) {
        return ssm__text_append(text, "", 0, err);
    }
    if (decoder->begun && tokenizer->decoder.separated) {
        SSM__TRY(ssm__text_append(text, " ", 1, err));
    }
    decoder->begun = true;
    return ssm__decoder_run_push(&decoder->run, tokenizer->pool + token->offset, token->bytes, text,
                                 err);
}

ssm_status ssm_decoder_finish(ssm_decoder *decoder, ssm_text *text, ssm_error *err)
{
    decoder->begun = false;
    decoder->count = 0;
    return ssm__decoder_run_finish(&decoder->run, text, err);
}

ssm_status ssm_tokenizer_decode(const ssm_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                bool skip_special, ssm_text *text, ssm_error *err)
{
    ssm_decoder *decoder = NULL;
    SSM__TRY(ssm_decoder_create(tokenizer, skip_special, &decoder, err));
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        status = ssm_decoder_push(decoder, ids[i], text, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_decoder_finish(decoder, text, err);
    }
    ssm_decoder_free(decoder);
    return status;
}
