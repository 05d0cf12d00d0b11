/* Models and decoders on their own: against naive forms of themselves, and on texts whose length
 * would show a square. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_paths.h"
#include "test_text_generator.h"
#include "tokenizer/tokenizer.h"

static ssm_tokenizer *open_golden(const char *name)
{
    char relative[128];
    char path[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "tokenizers/%s.json", name);
    ssm_tokenizer *tokenizer = NULL;
    ssm_error err = {0};
    if (ssm_tokenizer_open(test_golden_path(path, relative), &tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    return tokenizer;
}

static ssm_tokenizer *from_text(const char *text)
{
    ssm_tokenizer *tokenizer = NULL;
    ssm_error err = {0};
    if (ssm__tokenizer_from_memory("t", text, strlen(text), &tokenizer, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return tokenizer;
}

/* ---- Unigram --------------------------------------------------------------------------------- */

/* The best score over all cuts, by trying every token at every place. */
static double best_score(const ssm__unigram *unigram, const char *text, size_t bytes)
{
    double best[64];
    for (size_t end = 1; end <= bytes; end++) {
        best[end] = -1e300;
    }
    best[0] = 0.0;
    for (size_t start = 0; start < bytes; start++) {
        for (size_t end = start + 1; end <= bytes; end++) {
            int32_t id = ssm__string_map_get(unigram->vocab, text + start, end - start);
            double score = id >= 0            ? unigram->scores[id]
                           : end == start + 1 ? unigram->unk_score
                                              : -1e300;
            if (best[start] + score > best[end]) {
                best[end] = best[start] + score;
            }
        }
    }
    return best[bytes];
}

static void unigram_is_best(void **state)
{
    (void)state;
    ssm_tokenizer *tokenizer = from_text(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-2.1],"
        "[\"b\",-2.9],[\"ab\",-3.3],[\"aba\",-5.2],[\"bb\",-4.4],[\"abab\",-6.05],"
        "[\"baab\",-7.7],[\"aa\",-4.3]]}}");
    text_generator numbers = {.state = 9};
    ssm_ids ids = {0};
    for (int round = 0; round < 4000; round++) {
        char text[48];
        size_t bytes = 1 + text_generator_next(&numbers) % sizeof text;
        for (size_t i = 0; i < bytes; i++) {
            text[i] = "aabbabc"[text_generator_next(&numbers) % (round % 3 ? 6 : 7)];
        }
        ids.count = 0;
        assert_int_equal(ssm_tokenizer_encode(tokenizer, text, bytes, NULL, &ids, NULL), 0);
        double score = 0.0;
        size_t unknown = 0;
        for (size_t i = 0; i < bytes; i++) {
            unknown += text[i] == 'c';
        }
        for (int64_t i = 0; i < ids.count; i++) {
            score += ids.data[i] == 0 ? 0.0 : tokenizer->model.unigram.scores[ids.data[i]];
        }
        score += (double)unknown * tokenizer->model.unigram.unk_score;
        double expected = best_score(&tokenizer->model.unigram, text, bytes);
        /* 48 additions of numbers below 1000 in two orders */
        assert_true(score > expected - 1e-10 && score < expected + 1e-10);
    }
    ssm_ids_free(&ids);
    ssm_tokenizer_free(tokenizer);
}

/* The scores are those of serde_json: digits divided by a power of ten. */
static void unigram_scores(void **state)
{
    (void)state;
    ssm_tokenizer *tokenizer =
        from_text("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\","
                  "-7.2859859300951255],[\"b\",-7.3126197386021925],[\"c\",-30.0],[\"d\",-1],["
                  "\"e\",1.5e-7]]}}");
    const double *scores = tokenizer->model.unigram.scores;
    assert_true(scores[1] == -7.285985930095125 && scores[1] != -7.2859859300951255);
    assert_true(scores[2] == -7.312619738602192);
    assert_true(scores[3] == -30.0 && scores[4] == -1.0 && scores[5] == 15.0 / 1e8);
    assert_true(tokenizer->model.unigram.unk_score == -40.0);
    ssm_tokenizer_free(tokenizer);
}

static void prefix_tree(void **state)
{
    (void)state;
    ssm__prefix_tree tree = {0};
    assert_null(ssm__prefix_tree_step(&tree, 0, 'a'));
    for (int32_t i = 0; i < 3000; i++) {
        char key[16];
        int bytes = snprintf(key, sizeof key, "%d", i);
        assert_int_equal(ssm__prefix_tree_add(&tree, key, (size_t)bytes, i, NULL), 0);
    }
    for (int32_t i = 0; i < 4000; i++) {
        char key[16];
        int bytes = snprintf(key, sizeof key, "%d", i);
        uint32_t node = 0;
        const ssm__edge *edge = NULL;
        for (int k = 0; k < bytes; k++) {
            edge = ssm__prefix_tree_step(&tree, node, (unsigned char)key[k]);
            if (edge == NULL) {
                break;
            }
            node = edge->child;
        }
        assert_int_equal(edge == NULL ? -1 : edge->value, i < 3000 ? i : -1);
    }
    ssm__prefix_tree_free(&tree);
}

/* ---- long texts ------------------------------------------------------------------------------ */

/* One line of 1 MB that no pre-tokenizer cuts: minutes if the cost were its square. */
static void long_lines(void **state)
{
    (void)state;
    enum { BYTES = 1000000 };
    static const char *const names[] = {
        "llama",      "llama_legacy", "mistral",   "unigram_fallback", "unigram_holes",
        "bert_cased", "gpt",          "continued", "falcon3",          "word_level"};
    char *text = malloc(BYTES);
    assert_non_null(text);
    ssm_ids ids = {0};
    ssm_text out = {0};
    text_generator numbers = {.state = 5};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        ssm_tokenizer *tokenizer = open_golden(names[n]);
        for (size_t i = 0; i < BYTES; i++) {
            text[i] = n % 2 ? "etaoinshr"[text_generator_next(&numbers) % 9] : " the"[i % 4];
        }
        ids.count = 0;
        out.bytes = 0;
        assert_int_equal(ssm_tokenizer_encode(tokenizer, text, BYTES, NULL, &ids, NULL), 0);
        assert_int_equal(ssm_tokenizer_decode(tokenizer, ids.data, ids.count, false, &out, NULL),
                         0);
        if (n == 0 || n == 2) { /* lossless, but for the blank in front that Strip takes */
            size_t lost = BYTES - out.bytes;
            assert_int_equal(lost, n == 0 ? 0 : 1);
            assert_memory_equal(out.data, text + lost, BYTES - lost);
        }
        ssm_tokenizer_free(tokenizer);
    }
    free(text);
    ssm_ids_free(&ids);
    ssm_text_free(&out);
}

/* ---- dropped bytes --------------------------------------------------------------------------- */

static int64_t dropped(const ssm_tokenizer *tokenizer, const char *text)
{
    int64_t count = 0;
    ssm_ids ids = {0};
    ssm_encode_options options = {.dropped_bytes = &count};
    assert_int_equal(ssm_tokenizer_encode(tokenizer, text, strlen(text), &options, &ids, NULL), 0);
    ssm_ids_free(&ids);
    return count;
}

/* Bytes of the text, whatever the pipeline turned them into; from the cache too. */
static void dropped_bytes(void **state)
{
    (void)state;
    static const char model[] = "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                                "\"merges\":[\"a b\"]}}";
    char text[1024];
    snprintf(text, sizeof text, "{%s", model);
    ssm_tokenizer *plain = from_text(text);
    assert_int_equal(dropped(plain, "ab\xC3\xA9z"), 3);
    ssm_tokenizer_free(plain);
    snprintf(text, sizeof text,
             "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},%s", model);
    ssm_tokenizer *bytes = from_text(text);
    assert_int_equal(dropped(bytes, "ab\xC3\xA9z"), 3);
    assert_int_equal(dropped(bytes, "\xC3\xA9 \xC3\xA9 \xC3\xA9"), 8);
    ssm_tokenizer_free(bytes);
    snprintf(text, sizeof text,
             "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
             "\"add_prefix_space\":false},{\"type\":\"Digits\",\"individual_digits\":false}]},%s",
             model);
    ssm_tokenizer *mapped = from_text(text);
    assert_int_equal(dropped(mapped, "ab\xC3\xA9z ab\xC3\xA9z"), 7);
    ssm_tokenizer_free(mapped);
    ssm_tokenizer *llama = open_golden("llama");
    assert_int_equal(dropped(llama, "\xF0\x9F\x90\x8D \xE4\xB8\x96"), 0);
    ssm_tokenizer_free(llama);
}

/* ---- decoders -------------------------------------------------------------------------------- */

typedef struct step {
    const char *token;
    const char *text; /* what has appeared so far */
} step;

static void check_steps(const ssm_tokenizer *tokenizer, const step *steps, size_t count,
                        const char *whole)
{
    ssm_decoder *decoder = NULL;
    ssm_text text = {0};
    assert_int_equal(ssm_decoder_create(tokenizer, false, &decoder, NULL), 0);
    for (int round = 0; round < 2; round++) { /* a finished decoder starts again */
        text.bytes = 0;
        for (size_t i = 0; i < count; i++) {
            int32_t id = ssm_tokenizer_id(tokenizer, steps[i].token, strlen(steps[i].token));
            assert_true(id >= 0);
            assert_int_equal(ssm_decoder_push(decoder, id, &text, NULL), 0);
            assert_string_equal(text.data, steps[i].text);
        }
        assert_int_equal(ssm_decoder_finish(decoder, &text, NULL), 0);
        assert_string_equal(text.data, whole);
    }
    ssm_decoder_free(decoder);
    ssm_text_free(&text);
}

#define MARK "\xE2\x96\x81"

/* Byte tokens show when their run ends, because one bad byte spoils all of it. */
static void byte_fallback_streams(void **state)
{
    (void)state;
    ssm_tokenizer *llama = open_golden("llama");
    static const step good[] = {{MARK "the", "the"},
                                {"<0xE2>", "the"},
                                {"<0x82>", "the"},
                                {"<0xAC>", "the"},
                                {"e", "the\xE2\x82\xAC"
                                      "e"},
                                {MARK, "the\xE2\x82\xAC"
                                       "e "}};
    check_steps(llama, good, 6,
                "the\xE2\x82\xAC"
                "e ");
    static const step bad[] = {{"<0x41>", ""}, {"<0xE2>", ""}, {"<0x82>", ""}};
    check_steps(llama, bad, 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    static const step last[] = {{MARK, ""}, {MARK, " "}, {"<0x41>", " "}};
    check_steps(llama, last, 3, " A");
    ssm_tokenizer_free(llama);
}

/* The last token of BPEDecoder keeps no blank, so one token waits. */
static void bpe_decoder_streams(void **state)
{
    (void)state;
    ssm_tokenizer *tokenizer =
        from_text("{\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"},\"model\":{\"type\":"
                  "\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a</w>\":1,\"b\":2}}}");
    static const step steps[] = {{"a</w>", ""}, {"b", "a "}, {"a</w>", "a b"}};
    check_steps(tokenizer, steps, 3, "a ba");
    ssm_tokenizer_free(tokenizer);
}

/* What needs the whole fused text waits for it; a single character does not. */
static void fused_stages(void **state)
{
    (void)state;
    static const char model[] = "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{"
                                "\"u\":0,\"x\":1,\"xy\":2,\"y\":3,\"  \":4}}}";
    char text[1024];
    snprintf(text, sizeof text,
             "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
             "\"Replace\","
             "\"pattern\":{\"String\":\"xx\"},\"content\":\"-\"}]},%s",
             model);
    ssm_tokenizer *tokenizer = from_text(text);
    static const step held[] = {{"x", ""}, {"xy", ""}, {"y", ""}};
    check_steps(tokenizer, held, 3, "-yy");
    ssm_tokenizer_free(tokenizer);

    snprintf(
        text, sizeof text,
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"String\":\"x\"},\"content\":\"ab\"},{\"type\":\"Strip\",\"content\":\" \","
        "\"start\":3,\"stop\":0}]},%s",
        model);
    tokenizer = from_text(text);
    static const step prompt[] = {{"  ", ""}, {"  ", " "}, {"xy", " aby"}, {"  ", " aby  "}};
    check_steps(tokenizer, prompt, 4, " aby  ");
    ssm_tokenizer_free(tokenizer);

    /* tokenizers has a panic where there is less to take off than the counts say. */
    snprintf(
        text, sizeof text,
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\","
        "\"content\":\" \",\"start\":1,\"stop\":9}]},%s",
        model);
    tokenizer = from_text(text);
    static const step both[] = {{"  ", ""}, {"  ", ""}, {"y", ""}, {"  ", ""}};
    check_steps(tokenizer, both, 4, "   y");
    static const step blanks[] = {{"  ", ""}};
    check_steps(tokenizer, blanks, 1, "");
    ssm_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unigram_is_best),     cmocka_unit_test(unigram_scores),
        cmocka_unit_test(prefix_tree),         cmocka_unit_test(long_lines),
        cmocka_unit_test(dropped_bytes),       cmocka_unit_test(byte_fallback_streams),
        cmocka_unit_test(bpe_decoder_streams), cmocka_unit_test(fused_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
