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

/* Whatever the stages hold back, the pieces join to the whole. */
static void check_streaming(const ssm_tokenizer *tokenizer, const ssm_ids *ids,
                            const ssm_text *whole)
{
    ssm_decoder *decoder = NULL;
    ssm_text joined = {0};
    require(ssm_decoder_create(tokenizer, false, &decoder, NULL) == SSM_STATUS_OK);
    for (int64_t i = 0; i < ids->count; i++) {
        require(ssm_decoder_push(decoder, ids->data[i], &joined, NULL) == SSM_STATUS_OK);
    }
    require(ssm_decoder_finish(decoder, &joined, NULL) == SSM_STATUS_OK);
    require(joined.bytes == whole->bytes && memcmp(joined.data, whole->data, whole->bytes) == 0);
    ssm_decoder_free(decoder);
    ssm_text_free(&joined);
}

static void try_tokenizer(const ssm_tokenizer *tokenizer)
{
    /* Marks in the wrong order, four-byte characters, a control, a byte that is not UTF-8, and a
     * word longer than what is merged without a queue. */
    static const char text[] =
        "the-final  countdown's they'll 12 caf\xC3\xA9 e\xCC\x81 a\xCC\x87\xCC\xA3 "
        "\xC4\xB0<|endoftext|>\n\n"
        " x \xE4\xB8\x96\xE2\x96\x81!\xF0\x9F\x98\x80\xF0\xA0\x80\x80\x01\xFF "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaathetheaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const ssm_encode_options options = {.add_special_tokens = true,
                                        .invalid_utf8 = SSM_INVALID_UTF8_REPLACE};
    ssm_ids ids = {0};
    ssm_text out = {0};
    ssm_error err = {0};
    ssm_status status =
        ssm_tokenizer_encode(tokenizer, text, sizeof text - 1, &options, &ids, &err);
    /* A pattern may need more steps than allowed. */
    require(status == SSM_STATUS_OK || status == SSM_STATUS_FAILED);
    for (int64_t i = 0; i < ids.count; i++) {
        require(ids.data[i] >= 0 && ids.data[i] < ssm_tokenizer_vocab_size(tokenizer));
    }
    status = ssm_tokenizer_decode(tokenizer, ids.data, ids.count, false, &out, &err);
    require(status == SSM_STATUS_OK || status == SSM_STATUS_FAILED);
    require(ssm__utf8_valid((const unsigned char *)out.data, out.bytes) == out.bytes);
    if (status == SSM_STATUS_OK) {
        check_streaming(tokenizer, &ids, &out);
    }
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
