/* Any bytes as tokenizer.json: refused with a message, or a tokenizer that encodes and decodes. */
#include <stdint.h>

#include <string.h>

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        __builtin_trap();
    }
}

static void try_tokenizer(const ssm_tokenizer *tokenizer)
{
    static const char text[] = "the-final  countdown's 12 caf\xC3\xA9 e\xCC\x81<|endoftext|>\n\n x";
    const ssm_encode_options options = {.add_special_tokens = true};
    ssm_ids ids = {0};
    ssm_text out = {0};
    ssm_error err = {0};
    ssm_status status =
        ssm_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &ids, &err);
    /* A Split pattern may need more steps than allowed. */
    require(status == SSM_STATUS_OK || status == SSM_STATUS_FAILED);
    for (int64_t i = 0; i < ids.count; i++) {
        require(ids.data[i] >= 0 && ids.data[i] < ssm_tokenizer_vocab_size(tokenizer));
    }
    require(ssm_tokenizer_decode(tokenizer, ids.data, ids.count, false, &out, &err) ==
            SSM_STATUS_OK);
    require(ssm__utf8_valid((const unsigned char *)out.data, out.bytes) == out.bytes);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    ssm_status status =
        ssm__tokenizer_from_memory("fuzz.json", (const char *)data, size, &tokenizer, &err);
    if (status != SSM_STATUS_OK) {
        require(tokenizer == NULL && err.message[0] != '\0');
        return 0;
    }
    try_tokenizer(tokenizer);
    ssm_tokenizer_free(tokenizer);
    return 0;
}
