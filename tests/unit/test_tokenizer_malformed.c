/* Broken tokenizer.json files, named by the rule they break, each with its own message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_messages.h"
#include "test_paths.h"
#include "tokenizer/growable.h"
#include "tokenizer/tokenizer.h"

typedef struct field {
    const char *key;
    const char *json;
} field;

#define VOCAB  "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3,\"\\u0120\":4}"
#define MERGES "\"merges\":[[\"a\",\"b\"]]"
#define TOKEN(id, content, rest)                                                                   \
    "{\"id\":" id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":false,"           \
    "\"rstrip\":false,\"normalized\":false" rest "}"

static const field valid[] = {
    {"version", "\"1.0\""},
    {"truncation", "null"},
    {"padding", "null"},
    {"added_tokens", "[" TOKEN("3", "<e>", ",\"special\":true") "]"},
    {"normalizer", "{\"type\":\"NFC\"}"},
    {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"},
    {"post_processor", "null"},
    {"decoder", "{\"type\":\"ByteLevel\"}"},
    {"model", "{\"type\":\"BPE\"," VOCAB "," MERGES "}"},
};
enum { N_FIELDS = sizeof valid / sizeof valid[0] };

/* The valid file with one field replaced; json NULL leaves it out; an unknown key is added. */
static ssm_text build(const char *key, const char *json)
{
    ssm_text text = {0};
    char field_text[4096];
    const char *separator = "{";
    bool known = false;
    for (int i = 0; i < N_FIELDS; i++) {
        bool replaced = strcmp(valid[i].key, key) == 0;
        known = known || replaced;
        const char *value = replaced ? json : valid[i].json;
        if (value == NULL) {
            continue;
        }
        snprintf(field_text, sizeof field_text, "%s\"%s\":%s", separator, valid[i].key, value);
        ssm__text_append(&text, field_text, strlen(field_text), NULL);
        separator = ",";
    }
    if (!known) {
        snprintf(field_text, sizeof field_text, ",\"%s\":%s", key, json);
        ssm__text_append(&text, field_text, strlen(field_text), NULL);
    }
    ssm__text_append(&text, "}", 1, NULL);
    return text;
}

typedef struct broken {
    const char *rule;
    const char *key;
    const char *json;
    const char *message;
} broken;

#define SPLIT(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define MODEL(options) "{\"type\":\"BPE\"," options VOCAB "," MERGES "}"
#define TEMPLATE(single, special)                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":" single                                          \
    ",\"pair\":[],\"special_tokens\":" special "}"
#define PART_A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define PART_S "{\"SpecialToken\":{\"id\":\"s\",\"type_id\":0}}"

#define NFC4           "{\"type\":\"NFC\"},{\"type\":\"NFD\"},{\"type\":\"NFKC\"},{\"type\":\"NFKD\"}"
#define NFC12          NFC4 "," NFC4 "," NFC4
#define WORDS          "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3}"
#define PIECES(fields) "{\"type\":\"WordPiece\"," WORDS fields "}"
#define UNIGRAM(vocab, unk)                                                                        \
    "{\"type\":\"Unigram\",\"unk_id\":" unk ",\"byte_fallback\":false,\"vocab\":" vocab "}"
#define BERT4                                                                                      \
    "{\"type\":\"BertPreTokenizer\"},{\"type\":\"BertPreTokenizer\"},"                             \
    "{\"type\":\"BertPreTokenizer\"},{\"type\":\"BertPreTokenizer\"}"
#define META16       BERT4 "," BERT4 /* two stages each */
#define META(fields) "{\"type\":\"Metaspace\"" fields "}"

static const broken table[] = {
    /* the file */
    {"unknown field", "extra", "1", "unknown field \"extra\""},
    {"another version", "version", "\"2.0\"", "version \"2.0\""},
    {"version is no string", "version", "1", "expected \"1.0\""},
    {"truncation", "truncation", "{\"max_length\":8}", "truncation is not supported"},
    {"padding", "padding", "{\"strategy\":\"BatchLongest\"}", "padding is not supported"},
    /* normalizer */
    {"unknown normalizer", "normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}",
     "normalizer Precompiled is not supported"},
    {"normalizer is a string", "normalizer", "\"NFC\"", "must be an object"},
    {"normalizer without type", "normalizer", "{}", "no string \"type\""},
    {"normalizer with a field", "normalizer", "{\"type\":\"NFC\",\"form\":\"D\"}",
     "unknown field \"form\""},
    {"normalizer sequence of nothing", "normalizer", "{\"type\":\"Sequence\"}",
     "needs a list \"normalizers\""},
    {"unknown normalizer in a sequence", "normalizer",
     "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Uppercase\"}]}",
     "normalizer Uppercase is not supported"},
    {"Lowercase with a field", "normalizer", "{\"type\":\"Lowercase\",\"locale\":\"tr\"}",
     "unknown field \"locale\""},
    {"Replace without content", "normalizer",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}}",
     "normalizer needs a string \"content\""},
    {"Replace without a pattern", "normalizer",
     "{\"type\":\"Replace\",\"pattern\":\" \",\"content\":\"\"}", "Replace needs \"pattern\""},
    {"Replace with a word boundary", "normalizer",
     "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\b\"},\"content\":\"\"}",
     "normalizer Replace: the escape \\b at byte 0"},
    {"Replace with an empty pattern", "normalizer",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}",
     "normalizer Replace: the pattern has 0 bytes"},
    {"Prepend of a number", "normalizer", "{\"type\":\"Prepend\",\"prepend\":1}",
     "needs a string \"prepend\""},
    {"Strip without a side", "normalizer", "{\"type\":\"Strip\",\"strip_left\":true}",
     "needs \"strip_right\""},
    {"BertNormalizer without a field", "normalizer",
     "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"lowercase\":true}",
     "needs \"handle_chinese_chars\""},
    {"BertNormalizer with accents of a string", "normalizer",
     "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
     "\"lowercase\":true,\"strip_accents\":\"no\"}",
     "needs \"strip_accents\": true or false"},
    {"too many normalizers", "normalizer",
     "{\"type\":\"Sequence\",\"normalizers\":[" NFC12 "," NFC12 ",{\"type\":\"NFC\"}]}",
     "normalizer has more than 24 stages"},
    {"ByteLevel normalizer with a field", "normalizer",
     "{\"type\":\"ByteLevel\",\"use_regex\":true}", "unknown field \"use_regex\""},
    /* pre-tokenizer */
    {"unknown pre-tokenizer", "pre_tokenizer", "{\"type\":\"UnicodeScripts\"}",
     "pre_tokenizer UnicodeScripts is not supported yet"},
    {"unknown pre-tokenizer in a sequence", "pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"FixedLength\",\"length\":5}]}",
     "pre_tokenizer FixedLength is not supported yet"},
    {"Punctuation with another behavior", "pre_tokenizer",
     "{\"type\":\"Punctuation\",\"behavior\":\"isolated\"}",
     "Punctuation: behavior \"isolated\" is not known"},
    {"Punctuation with a field", "pre_tokenizer",
     "{\"type\":\"Punctuation\",\"behaviour\":\"Isolated\"}", "unknown field \"behaviour\""},
    {"Digits without its flag", "pre_tokenizer", "{\"type\":\"Digits\"}",
     "needs \"individual_digits\""},
    {"Whitespace with a field", "pre_tokenizer", "{\"type\":\"Whitespace\",\"split\":true}",
     "unknown field \"split\""},
    {"delimiter of two characters", "pre_tokenizer",
     "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}",
     "needs \"delimiter\": a string of one character"},
    {"Metaspace has a replacement (none)", "pre_tokenizer", META(""), "needs \"replacement\""},
    {"Metaspace has a replacement (empty)", "pre_tokenizer", META(",\"replacement\":\"\""),
     "needs \"replacement\": a string of one character"},
    {"Metaspace with another scheme", "pre_tokenizer",
     META(",\"replacement\":\"_\",\"prepend_scheme\":\"last\""),
     "prepend_scheme must be always, first or never"},
    {"Metaspace against itself", "pre_tokenizer",
     META(",\"replacement\":\"_\",\"add_prefix_space\":false,\"prepend_scheme\":\"first\""),
     "contradicts \"prepend_scheme\": \"first\""},
    {"Metaspace first behind ByteLevel", "pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
     "," META(",\"replacement\":\"_\",\"prepend_scheme\":\"first\"") "]}",
     "behind ByteLevel is not supported"},
    {"too many pre-tokenizers", "pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[" META16 ",{\"type\":\"Whitespace\"}]}",
     "pre_tokenizer has more than 16 stages"},
    {"ByteLevel without add_prefix_space", "pre_tokenizer", "{\"type\":\"ByteLevel\"}",
     "needs \"add_prefix_space\""},
    {"ByteLevel with a field", "pre_tokenizer",
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"regex\":1}", "unknown field \"regex\""},
    {"Split without invert", "pre_tokenizer",
     "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\"}",
     "needs \"invert\""},
    {"Split with another behavior", "pre_tokenizer",
     "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Both\",\"invert\":false}",
     "behavior \"Both\""},
    {"Split without a pattern", "pre_tokenizer",
     "{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\",\"invert\":false}",
     "needs \"pattern\""},
    {"Split with an empty pattern", "pre_tokenizer", SPLIT(""), "0 bytes"},
    {"Split with an open group", "pre_tokenizer", SPLIT("(a"), "does not compile"},
    {"Split with an open set", "pre_tokenizer", SPLIT("[ab"), "a set without its end"},
    {"Split with a set in a set", "pre_tokenizer", SPLIT("[a[bc]]"), "a set in a set"},
    {"Split with an intersection", "pre_tokenizer", SPLIT("[a&&b]"), "intersection"},
    {"Split with a word boundary", "pre_tokenizer", SPLIT("\\\\bword"), "\\b at byte 0"},
    {"Split with a back reference", "pre_tokenizer", SPLIT("(a)\\\\1"), "\\1 at byte 3"},
    {"Split with hexadecimal class", "pre_tokenizer", SPLIT("\\\\h+"), "\\h at byte 0"},
    {"Split with an option in the middle", "pre_tokenizer", SPLIT("a(?i)b"), "this kind of group"},
    {"Split with a named group", "pre_tokenizer", SPLIT("(?<n>a)"), "this kind of group"},
    {"Split with {,n}", "pre_tokenizer", SPLIT("a{,3}"), "a brace"},
    {"Split with {n}+", "pre_tokenizer", SPLIT("a{3}+"), "second quantifier"},
    {"Split with \\W in a set", "pre_tokenizer", SPLIT("[\\\\W_]"), "\\W in a set"},
    {"Split with a range to a class", "pre_tokenizer", SPLIT("[a-\\\\s]"), "behind a hyphen"},
    {"Split with a lone backslash", "pre_tokenizer", SPLIT("a\\\\"), "backslash at the end"},
    {"Sequences too deep", "pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Sequence\",\"pretokenizers\":[]}]}]}]}]}]}]}]}]}",
     "deep"},
    /* post-processor */
    {"unknown post-processor", "post_processor", "{\"type\":\"T5Processing\"}",
     "post_processor T5Processing is not supported yet"},
    {"BertProcessing without sep", "post_processor",
     "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0]}", "needs \"sep\": [\"token\", id]"},
    {"BertProcessing with an id first", "post_processor",
     "{\"type\":\"BertProcessing\",\"cls\":[0,\"a\"],\"sep\":[\"a\",0]}",
     "needs \"cls\": [\"token\", id]"},
    {"BertProcessing with an id outside", "post_processor",
     "{\"type\":\"BertProcessing\",\"cls\":[\"a\",77],\"sep\":[\"a\",0]}",
     "id 77, which is not in"},
    {"BertProcessing with a field of Roberta", "post_processor",
     "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0],\"trim_offsets\":true}",
     "unknown field \"trim_offsets\""},
    {"template with a pair of one text", "post_processor",
     "{\"type\":\"TemplateProcessing\",\"single\":[" PART_A "],\"pair\":[" PART_A
     "],\"special_tokens\":{}}",
     "\"pair\" must be a list of SpecialToken and one Sequence A and one B"},
    {"a template has ids for its tokens (pair)", "post_processor",
     "{\"type\":\"TemplateProcessing\",\"single\":[" PART_A "],\"pair\":[" PART_S
     "],\"special_tokens\":{}}",
     "no ids for \"s\""},
    {"a template has the text once (not at all)", "post_processor",
     TEMPLATE("[" PART_S "]", "{\"s\":{\"ids\":[3]}}"), "one Sequence A"},
    {"a template has the text once (twice)", "post_processor",
     TEMPLATE("[" PART_A "," PART_A "]", "{}"), "one Sequence A"},
    {"a template has the text once (another)", "post_processor",
     TEMPLATE("[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}]", "{}"), "one Sequence A"},
    {"a template has ids for its tokens (single)", "post_processor",
     TEMPLATE("[" PART_S "," PART_A "]", "{}"), "no ids for \"s\""},
    {"template with a negative id", "post_processor",
     TEMPLATE("[" PART_S "," PART_A "]", "{\"s\":{\"ids\":[-1]}}"), "no number of a token"},
    {"template with an id outside", "post_processor",
     TEMPLATE("[" PART_S "," PART_A "]", "{\"s\":{\"ids\":[99]}}"), "id 99, which is not in"},
    /* decoder */
    {"unknown decoder", "decoder",
     "{\"type\":\"CTC\",\"pad_token\":\"a\",\"word_delimiter_token\":\"b\",\"cleanup\":true}",
     "decoder CTC is not supported yet"},
    {"decoder sequence with a stage that is null", "decoder",
     "{\"type\":\"Sequence\",\"decoders\":[null]}", "decoder must be an object"},
    {"WordPiece decoder without a prefix", "decoder", "{\"type\":\"WordPiece\",\"cleanup\":true}",
     "decoder needs a string \"prefix\""},
    {"WordPiece decoder without cleanup", "decoder", "{\"type\":\"WordPiece\",\"prefix\":\"##\"}",
     "decoder needs \"cleanup\""},
    {"Strip decoder without a count", "decoder",
     "{\"type\":\"Strip\",\"content\":\" \",\"start\":1}", "Strip needs \"stop\""},
    {"Strip decoder with a negative count", "decoder",
     "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}", "Strip needs \"start\""},
    {"Strip decoder of two characters", "decoder",
     "{\"type\":\"Strip\",\"content\":\"  \",\"start\":1,\"stop\":0}",
     "decoder needs \"content\": a string of one character"},
    {"BPEDecoder with an empty suffix", "decoder", "{\"type\":\"BPEDecoder\",\"suffix\":\"\"}",
     "a \"suffix\" that is not empty"},
    {"Fuse with a field", "decoder", "{\"type\":\"Fuse\",\"by\":\"\"}", "unknown field \"by\""},
    {"ByteFallback with a field", "decoder", "{\"type\":\"ByteFallback\",\"lossy\":true}",
     "unknown field \"lossy\""},
    {"Metaspace decoder without replacement", "decoder", META(""), "decoder needs \"replacement\""},
    {"Replace decoder with an open set", "decoder",
     "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a\"},\"content\":\"\"}",
     "decoder Replace: a set without its end"},
    /* model */
    {"no model", "model", NULL, "model must be an object"},
    {"unknown model", "model", "{\"type\":\"Tokenmonster\",\"vocab\":{}}",
     "model Tokenmonster is not supported"},
    {"model without type or merges", "model", "{\"vocab\":{\"a\":0}}", "no string \"type\""},
    {"dropout", "model", MODEL("\"dropout\":0.1,"), "dropout is not supported"},
    {"the prefix is a string (number)", "model", MODEL("\"continuing_subword_prefix\":2,"),
     "needs a string \"continuing_subword_prefix\""},
    {"merge shorter than the prefix", "model", MODEL("\"continuing_subword_prefix\":\"##\","),
     "merges[0]: \"b\" is shorter than the continuing_subword_prefix"},
    {"merge whose result lacks the prefix", "model",
     "{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\",\"vocab\":{\"a\":0,\"##b\":1,"
     "\"a##b\":2},\"merges\":[\"a ##b\"]}",
     "merges[0]: \"ab\" is not in the vocabulary"},
    {"byte_fallback is no boolean", "model", MODEL("\"byte_fallback\":1,"),
     "needs \"byte_fallback\": true or false"},
    {"unk_token is a string (WordPiece, none)", "model",
     PIECES(",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100"),
     "needs a string \"unk_token\""},
    {"WordPiece with an unk_token outside", "model",
     PIECES(",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
            "\"max_input_chars_per_word\":100"),
     "unk_token \"[UNK]\" is not in the vocabulary"},
    {"the prefix is a string (none)", "model",
     PIECES(",\"unk_token\":\"<e>\",\"max_input_chars_per_word\":100"),
     "needs a string \"continuing_subword_prefix\""},
    {"WordPiece with a negative limit", "model",
     PIECES(",\"unk_token\":\"<e>\",\"continuing_subword_prefix\":\"##\","
            "\"max_input_chars_per_word\":-1"),
     "needs \"max_input_chars_per_word\""},
    {"unk_token is a string (WordLevel, none)", "model", "{\"type\":\"WordLevel\"," WORDS "}",
     "needs a string \"unk_token\""},
    {"WordLevel with merges", "model",
     "{\"type\":\"WordLevel\"," WORDS ",\"unk_token\":\"<e>\"," MERGES "}",
     "unknown field \"merges\""},
    {"Unigram without a vocabulary", "model", UNIGRAM("{}", "0"), "Unigram needs a list \"vocab\""},
    {"Unigram has an unk_id (none)", "model", UNIGRAM("[[\"a\",-1]]", "null"),
     "Unigram needs an \"unk_id\""},
    {"Unigram has an unk_id (outside)", "model", UNIGRAM("[[\"a\",-1]]", "1"),
     "\"unk_id\" from 0 to 0"},
    {"Unigram with a token without score", "model", UNIGRAM("[[\"a\",-1],[\"b\"]]", "0"),
     "vocab[1] is not a pair"},
    {"Unigram with a score that is text", "model", UNIGRAM("[[\"a\",\"-1\"]]", "0"),
     "vocab[0] is not a pair"},
    {"Unigram with an empty token", "model", UNIGRAM("[[\"\",-1]]", "0"),
     "vocab[0] is an empty token"},
    {"Unigram with a token twice", "model", UNIGRAM("[[\"a\",-1],[\"a\",-2]]", "0"),
     "vocab[1] \"a\" is there twice"},
    {"unknown model option", "model", MODEL("\"cache\":1,"), "unknown field \"cache\""},
    {"fuse_unk is no boolean", "model", MODEL("\"fuse_unk\":1,"), "needs \"fuse_unk\""},
    {"unk_token outside", "model", MODEL("\"unk_token\":\"<unk>\","),
     "unk_token \"<unk>\" is not in the vocabulary"},
    {"unk_token is a string (number)", "model", MODEL("\"unk_token\":0,"),
     "needs a string \"unk_token\""},
    {"there is a vocabulary (none)", "model", "{\"type\":\"BPE\"," MERGES "}",
     "non-empty object \"vocab\""},
    {"there is a vocabulary (empty)", "model", "{\"type\":\"BPE\",\"vocab\":{}," MERGES "}",
     "non-empty object"},
    {"ids are small whole numbers (negative)", "model",
     "{\"type\":\"BPE\",\"vocab\":{\"a\":-1}," MERGES "}", "\"a\" needs an id"},
    {"ids are small whole numbers (fractional)", "model",
     "{\"type\":\"BPE\",\"vocab\":{\"a\":0.5}," MERGES "}", "needs an id"},
    {"ids are small whole numbers (huge)", "model",
     "{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647}," MERGES "}", "needs an id"},
    {"one id twice", "model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0}," MERGES "}",
     "gives the id 0"},
    {"there are merges (none)", "model", "{\"type\":\"BPE\"," VOCAB "}", "\"merges\""},
    {"there are merges (no list)", "model", "{\"type\":\"BPE\"," VOCAB ",\"merges\":{}}",
     "list \"merges\""},
    {"merges of a version only", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"#version: 1\"]}", "no entry but"},
    {"merge of one token", "model", "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"ab\"]}",
     "merges[0] is not two tokens"},
    {"merge of three tokens", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\",\"a b ab\"]}", "merges[1] is not two tokens"},
    {"merge list of three", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",\"b\",\"ab\"]]}", "merges[0] is not a pair"},
    {"merge forms mixed", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",\"b\"],\"a b\"]}", "merges[1] is not a pair"},
    {"merges are of known tokens (left)", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"x b\"]}",
     "merges[0]: \"x\" is not in the vocabulary"},
    {"merges are of known tokens (right)", "model",
     "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a x\"]}",
     "merges[0]: \"x\" is not in the vocabulary"},
    {"merge result outside", "model", "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\",\"b a\"]}",
     "merges[1]: \"ba\" is not in the vocabulary"},
    {"merge with an empty side", "model", "{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"\",\"b\"]]}",
     "merges[0]: \"\" is not in the vocabulary"},
    /* added tokens */
    {"added_tokens is no list", "added_tokens", "{}", "must be a list"},
    {"added token without content", "added_tokens", "[{\"id\":3}]", "needs a string \"content\""},
    {"added token without a flag", "added_tokens", "[" TOKEN("3", "<e>", "") "]",
     "needs \"special\""},
    {"added token with a field", "added_tokens",
     "[" TOKEN("3", "<e>", ",\"special\":true,\"score\":1") "]", "unknown field \"score\""},
    {"empty added token", "added_tokens", "[" TOKEN("3", "", ",\"special\":true") "]", "0 bytes"},
    {"added token twice", "added_tokens",
     "[" TOKEN("3", "<e>", ",\"special\":true") "," TOKEN("3", "<e>", ",\"special\":true") "]",
     "has \"<e>\" twice"},
    {"added token against the vocabulary", "added_tokens",
     "[" TOKEN("5", "<e>", ",\"special\":true") "]", "must have the id 3"},
    {"added token behind a gap", "added_tokens", "[" TOKEN("9", "<f>", ",\"special\":true") "]",
     "must have the id 5 (the next free one), found 9"},
    {"added token without id", "added_tokens", "[" TOKEN("null", "<f>", ",\"special\":true") "]",
     "must have the id 5"},
    {"added tokens equal after NFC", "added_tokens",
     "[{\"id\":5,\"content\":\"\\u00e9\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
     "\"normalized\":true,\"special\":false},"
     "{\"id\":6,\"content\":\"e\\u0301\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
     "\"normalized\":true,\"special\":false}]",
     "the same text"},
};
enum { N_BROKEN = sizeof table / sizeof table[0] };

static void check_refused(const char *rule, const char *text, size_t bytes, const char *message)
{
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    ssm_status status = ssm__tokenizer_from_memory("t.json", text, bytes, &tokenizer, &err);
    if (status != SSM_STATUS_FILE) {
        ssm_tokenizer_free(tokenizer);
        fail_msg("%s: status %d, expected a FILE error", rule, status);
    }
    assert_null(tokenizer);
    if (strstr(err.message, message) == NULL) {
        fail_msg("%s: \"%s\" does not hold \"%s\"", rule, err.message, message);
    }
    assert_string_equal(err.file, "t.json");
    if (strcmp(rule, "cut off") != 0) {
        message_log(rule, &err);
    }
}

static void each_rule(void **state)
{
    (void)state;
    assert_true(N_BROKEN >= 25);
    for (int i = 0; i < N_BROKEN; i++) {
        ssm_text text = build(table[i].key, table[i].json);
        check_refused(table[i].rule, text.data, text.bytes, table[i].message);
        ssm_text_free(&text);
    }
}

/* Two stages that do not fit together. */
static void empty_after_normalisation(void **state)
{
    (void)state;
    static const char text[] =
        "{\"normalizer\":{\"type\":\"StripAccents\"},\"added_tokens\":[{\"id\":5,\"content\":"
        "\"\\u0301\","
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
        "\"special\":false}],\"model\":{\"type\":\"BPE\"," VOCAB "," MERGES "}}";
    check_refused("added token of nothing", text, sizeof text - 1, "is empty after normalisation");
}

static void not_json(void **state)
{
    (void)state;
    check_refused("empty file", "", 0, "");
    check_refused("a list", "[]", 2, "must be an object");
    const char duplicate[] = "{\"version\":\"1.0\",\"version\":\"1.0\"}";
    check_refused("duplicate key", duplicate, strlen(duplicate), "duplicate");
    enum { DEPTH = 100000 };
    static char nested[DEPTH + 1];
    memset(nested, '[', DEPTH);
    check_refused("recursive JSON", nested, DEPTH, "nested too deeply");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\nsize 2113710\n";
    check_refused("a Git LFS pointer", pointer, strlen(pointer),
                  "not the file of 2113710 bytes that it stands for");
    static const char page[] = "<!DOCTYPE html><html><title>Sign in</title></html>";
    check_refused("a web page", page, strlen(page), "this is a web page");
    ssm_text text = build("", "0");
    for (size_t cut = 1; cut < text.bytes; cut += 7) {
        check_refused("cut off", text.data, cut, "");
    }
    ssm_text_free(&text);
}

/* The table means nothing unless the file it starts from is good. */
static void base_is_valid(void **state)
{
    (void)state;
    ssm_text text = build("version", "\"1.0\"");
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    if (ssm__tokenizer_from_memory("t.json", text.data, text.bytes, &tokenizer, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    ssm_ids ids = {0};
    assert_int_equal(ssm_tokenizer_encode(tokenizer, "ab<e>b a", 8, NULL, &ids, &err), 0);
    const int32_t expected[] = {2, 3, 1, 4, 0};
    assert_int_equal(ids.count, 5);
    assert_memory_equal(ids.data, expected, sizeof expected);
    ssm_ids_free(&ids);
    ssm_tokenizer_free(tokenizer);
    ssm_text_free(&text);
}

/* Both merge forms, with and without the version line, and a model without its type. */
static void accepted_forms(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}",
        "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"#version: 0.2\",\"a b\"]}",
        "{" VOCAB "," MERGES "}",
        MODEL("\"dropout\":0.0,\"unk_token\":null,\"end_of_word_suffix\":\"\",\"fuse_unk\":null,"),
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ssm_text text = build("model", models[i]);
        ssm_error err = {0};
        ssm_tokenizer *tokenizer = NULL;
        if (ssm__tokenizer_from_memory("t.json", text.data, text.bytes, &tokenizer, &err) !=
            SSM_STATUS_OK) {
            fail_msg("model %zu: %s", i, err.message);
        }
        ssm_ids ids = {0};
        assert_int_equal(ssm_tokenizer_encode(tokenizer, "ab", 2, NULL, &ids, &err), 0);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.data[0], 2);
        ssm_ids_free(&ids);
        ssm_tokenizer_free(tokenizer);
        ssm_text_free(&text);
    }
}

static void paths(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    test_make_directory(directory);
    ssm_error err = {0};
    ssm_tokenizer *tokenizer = NULL;
    assert_int_equal(ssm_tokenizer_open(directory, &tokenizer, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "EleutherAI/gpt-neox-20b"));
    char missing[TEST_PATH_MAX + 32];
    snprintf(missing, sizeof missing, "%s/missing.json", directory);
    ssm_error_clear(&err);
    assert_int_equal(ssm_tokenizer_open(missing, &tokenizer, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.file, "missing.json"));
    assert_null(tokenizer);
    test_remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_is_valid), cmocka_unit_test(accepted_forms),
        cmocka_unit_test(each_rule),     cmocka_unit_test(empty_after_normalisation),
        cmocka_unit_test(not_json),      cmocka_unit_test(paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
