/* Any bytes as text, through a few pipelines: valid text encodes, its decoding is a fixed point,
 * and streaming gives the same. The first byte chooses the options, the second the pipeline. */
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

/* SentencePiece's BPE with a token for every byte, as Llama and Mistral have it. */
#define LLAMA_HEAD                                                                                 \
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"   \
    "\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "                                     \
    "\"},\"content\":\"_\"}]},\"decoder\":{"                                                       \
    "\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},"    \
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","      \
    "\"content\":\" "                                                                              \
    "\",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\","            \
    "\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0"

/* Whole files: what each stage makes of any text is defined, and streaming agrees. */
static const char *const files[] = {
    "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"_\","
    "\"prepend_scheme\":\"first\",\"split\":true},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
    "{\"type\":"
    "\"ByteFallback\"},{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}]"
    "},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],"
    "[\"_\",-2],[\"a\",-3],[\"aa\",-4],[\"aaa\",-5.5],[\"_th\",-2.5],[\"e\",-3],[\"<0xC3>\",-9],"
    "[\"<0xA9>\",-9],[\"the\",-3]]}}",
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":"
    "true,"
    "\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"model\":{\"type\":"
    "\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_"
    "word\":20,"
    "\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"the\":3,\"##e\":4,\".\":5,\"'\":6,\"t\":7,\"##\":8}}}",
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"},{\"type\":\"NFKD\"}"
    ",{\"type\":"
    "\"StripAccents\"},{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":"
    "\"Replace\","
    "\"pattern\":{\"Regex\":\"\\\\s+|aa\"},\"content\":\" "
    "\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\","
    "\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":\"MergedWithNext\"},{\"type\":"
    "\"Digits\","
    "\"individual_digits\":true},{\"type\":\"Whitespace\"}]},\"decoder\":{\"type\":\"BPEDecoder\","
    "\"suffix\":"
    "\"</w>\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"#\","
    "\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"u\":0,\"a\":1,\"#a\":2,\"aa\":3,\"#a</"
    "w>\":4,\"aa</w>\":5,"
    "\"1</w>\":6},\"merges\":[\"a #a\",\"a #a</w>\"]}}",
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\","
    "\"behavior\":"
    "\"Contiguous\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true},{"
    "\"type\":"
    "\"Digits\",\"individual_digits\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-"
    "9][0-9]\"},"
    "\"behavior\":\"Isolated\",\"invert\":false}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":"
    "[{\"type\":"
    "\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"b\"},{\"type\":"
    "\"Strip\","
    "\"content\":\"b\",\"start\":2,\"stop\":2}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
    "\"b\":1,"
    "\"\xC4\xA0\":2,\"\xC4\xA0\x61\":3,\"1\":4},\"merges\":[\"\xC4\xA0 a\"]}}",
};
enum { N_FILES = sizeof files / sizeof files[0] };

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

static ssm_tokenizer *build_llama(void)
{
    static char text[16384];
    int used = snprintf(text, sizeof text, "%s", LLAMA_HEAD);
    for (int byte = 0; byte < 256; byte++) {
        used += snprintf(text + used, sizeof text - (size_t)used, ",\"<0x%02X>\":%d",
                         (unsigned)byte, byte + 1);
    }
    used += snprintf(
        text + used, sizeof text - (size_t)used,
        ",\"_\":257,\"a\":258,\"t\":259,\"_t\":260,\"aa\":261,\"\xC3\xA9\":262},\"merges\":"
        "[\"_ t\",\"a a\"]}}");
    ssm_tokenizer *tokenizer = NULL;
    require(ssm__tokenizer_from_memory("fuzz", text, (size_t)used, &tokenizer, NULL) ==
            SSM_STATUS_OK);
    return tokenizer;
}

/* The pipelines that are lossless or nearly so, then Llama's, then the files. */
enum { LLAMA = N_PIPELINES, FIRST_FILE, N_CHOICES = FIRST_FILE + N_FILES };

static ssm_tokenizer *build_choice(size_t choice)
{
    if (choice < N_PIPELINES) {
        return build(pipelines[choice]);
    }
    if (choice == LLAMA) {
        return build_llama();
    }
    const char *file = files[choice - FIRST_FILE];
    ssm_tokenizer *tokenizer = NULL;
    require(ssm__tokenizer_from_memory("fuzz", file, strlen(file), &tokenizer, NULL) ==
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
    static ssm_tokenizer *tokenizers[N_CHOICES];
    if (size < 2) {
        return 0;
    }
    size_t choice = data[1] % N_CHOICES;
    if (tokenizers[choice] == NULL) {
        tokenizers[choice] = build_choice(choice);
    }
    const ssm_encode_options options = {.special_as_text = data[0] & 0x10,
                                        .add_special_tokens = data[0] & 0x20,
                                        .invalid_utf8 = data[0] & 0x40 ? SSM_INVALID_UTF8_REPLACE
                                                                       : SSM_INVALID_UTF8_ERROR};
    const char *text = (const char *)data + 2;
    size_t bytes = size - 2;
    /* Without a normalizer and stripping tokens nothing may be lost; Llama's loses the difference
     * between its mark and a blank. */
    bool lossless = (choice >= 2 && choice < N_PIPELINES) ||
                    (choice == LLAMA && memchr(text, '_', bytes) == NULL &&
                     memmem(text, bytes, "<unk>", 5) == NULL);
    check_text(tokenizers[choice], &options, text, bytes, lossless);
    return 0;
}
