/* toy_tokenizer.c: tokenizer.json files of a dozen tokens, made in code. */
#include "toy_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

#define BYTE_LEVEL(use_regex)                                                                      \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"              \
    "regex\":" use_regex "}"
#define SPLIT(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

/* U+0120 stands for the blank, as in every ByteLevel vocabulary; C3 A9 (é) is two tokens. */
#define VOCAB                                                                                      \
    "{\"<|end|>\":0,\"a\":1,\"b\":2,\"\\u0120\":3,\"ab\":4,\"ba\":5,\"\\u0120a\":6,"               \
    "\"abab\":7,\"aa\":8,\"aaaa\":9,\"\\u00c3\":10,\"\\u00a9\":11,\"bb\":12,\"\\u0120ab\":13}"

static const char *const normalizers[TOY_TOKENIZERS] = {
    "{\"type\":\"NFC\"}", "null",
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"}]}"};
static const char *const pretokenizers[TOY_TOKENIZERS] = {
    BYTE_LEVEL("true"),
    "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("\\\\p{N}{1,3}") "," SPLIT(
        " ?[^\\\\s]+|\\\\s+") "," BYTE_LEVEL("false") "]}",
    BYTE_LEVEL("true")};
static const char *const postprocessors[TOY_TOKENIZERS] = {
    BYTE_LEVEL("true"),
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"<|end|>\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\","
    "\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<|end|>\":"
    "{\"id\":\"<|end|>\",\"ids\":[0],\"tokens\":[\"<|end|>\"]}}}",
    BYTE_LEVEL("true")};
static const char as_strings[] =
    "[\"a b\",\"\\u0120 a\",\"b a\",\"ab ab\",\"a a\",\"aa aa\",\"b b\",\"\\u0120a b\"]";
static const char as_pairs[] = "[[\"a\",\"b\"],[\"\\u0120\",\"a\"],[\"b\",\"a\"],[\"ab\",\"ab\"],["
                               "\"a\",\"a\"],[\"aa\",\"aa\"],"
                               "[\"b\",\"b\"],[\"\\u0120a\",\"b\"]]";

void toy_tokenizer_write(const char *path, int kind)
{
    char text[8192];
    int bytes = snprintf(
        text, sizeof text,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
        "{\"id\":0,\"content\":\"<|end|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true},"
        "{\"id\":14,\"content\":\"<pad>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,"
        "\"normalized\":true,\"special\":false}],"
        "\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
        "\"byte_fallback\":false,\"vocab\":%s,\"merges\":%s}}",
        normalizers[kind], pretokenizers[kind], postprocessors[kind], BYTE_LEVEL("true"), VOCAB,
        kind == 1 ? as_pairs : as_strings);
    assert_true(bytes > 0 && (size_t)bytes < sizeof text);
    assert_int_equal(ssm__write_file(path, text, (size_t)bytes, NULL), SSM_STATUS_OK);
}
