/* Any bytes as text, through a few pipelines: valid text encodes, its decoding is a fixed point,
 * and streaming gives the same. The first byte chooses the pipeline and the options. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD                                                                                       \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<e>\",\"single_word\":false,\"lstrip\":false,"     \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}"
#define ADDED                                                                                      \
    ",{\"id\":263,\"content\":\"[T]\",\"single_word\":true,\"lstrip\":true,\"rstrip\":true,"       \
    "\"normalized\":true,\"special\":false},{\"id\":264,\"content\":\"  \",\"single_word\":false," \
    "\"lstrip\":false,\"rstrip\":false,\"normalized\":true,\"special\":false}"
#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"              \
    "regex\":" regex "}"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}"           \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static const char *const pipelines[] = {
    HEAD "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" BYTE_LEVEL("true"),
    HEAD ADDED "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" BYTE_LEVEL("true"),
    HEAD "],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"" LLAMA3
         "\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL("false") "]}",
    HEAD "],\"pre_tokenizer\":" BYTE_LEVEL("false"),
};
enum { N_PIPELINES = sizeof pipelines / sizeof pipelines[0] };

static void require(bool holds)
{
    if (!holds) {
        __builtin_trap();
    }
}

/* The pipeline with a model of 256 bytes and six merges. */
static ssm_tokenizer *build(const char *pipeline)
{
    static const char merges[] =
        "\"merges\":[\"a a\",\"aa aa\",\"t h\",\"th e\",\"\xC4\xA0 the\",\"\xC3\x8C \xC4\xA3\"]}}";
    static const char *const merged[] = {"aa",  "aaaa",        "th",
                                         "the", "\xC4\xA0the", "\xC3\x8C\xC4\xA3"};
    static char text[32768];
    int used = snprintf(text, sizeof text,
                        "%s,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
                        "\"BPE\",\"vocab\":{\"<e>\":0",
                        pipeline);
    for (int byte = 0; byte < 256; byte++) {
        unsigned char letter[5] = {0};
        letter[ssm__utf8_write(ssm__byte_to_char((unsigned char)byte), letter)] = 0;
        bool escaped = byte == '"' || byte == '\\';
        used += snprintf(text + used, sizeof text - (size_t)used, ",\"%s%s\":%d",
                         escaped ? "\\" : "", (char *)letter, byte + 1);
    }
    for (int i = 0; i < 6; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, ",\"%s\":%d", merged[i], 257 + i);
    }
    used += snprintf(text + used, sizeof text - (size_t)used, "},%s", merges);
    ssm_tokenizer *tokenizer = NULL;
    require(ssm__tokenizer_from_memory("fuzz", text, (size_t)used, &tokenizer, NULL) ==
            SSM_STATUS_OK);
    return tokenizer;
}

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

static void check_text(const ssm_tokenizer *tokenizer, const ssm_encode_options *options,
                       const char *text, size_t bytes, bool lossless)
{
    ssm_ids ids = {0};
    ssm_text out = {0};
    ssm_error err = {0};
    ssm_status status = ssm_tokenizer_encode(tokenizer, text, bytes, options, &ids, &err);
    bool valid = ssm__utf8_valid((const unsigned char *)text, bytes) == bytes;
    if (!valid && options->invalid_utf8 == SSM_INVALID_UTF8_ERROR) {
        require(status == SSM_STATUS_FILE && err.offset >= 0 && err.offset < (int64_t)bytes);
        require(ids.count == 0);
        ssm_ids_free(&ids);
        return;
    }
    require(status == SSM_STATUS_OK);
    require(ssm_tokenizer_decode(tokenizer, ids.data, ids.count, false, &out, NULL) ==
            SSM_STATUS_OK);
    check_streaming(tokenizer, &ids, &out);
    if (valid && lossless) {
        require(out.bytes == bytes && memcmp(out.data, text, bytes) == 0);
    }
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ssm_tokenizer *tokenizers[N_PIPELINES];
    if (size == 0) {
        return 0;
    }
    size_t choice = data[0] % N_PIPELINES;
    if (tokenizers[choice] == NULL) {
        tokenizers[choice] = build(pipelines[choice]);
    }
    const ssm_encode_options options = {.special_as_text = data[0] & 0x10,
                                        .add_special_tokens = data[0] & 0x20,
                                        .invalid_utf8 = data[0] & 0x40 ? SSM_INVALID_UTF8_REPLACE
                                                                       : SSM_INVALID_UTF8_ERROR};
    /* Without a normalizer and stripping tokens nothing may be lost. */
    check_text(tokenizers[choice], &options, (const char *)data + 1, size - 1, choice >= 2);
    return 0;
}
