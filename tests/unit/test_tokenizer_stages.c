/* Each stage of the tokenizer on its own, against a naive form of itself or another library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "test_text_generator.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_split.h"
#include "tokenizer/growable.h"
#include "tokenizer/merge_queue.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

static ssm__unicode unicode;

static int open_unicode(void **state)
{
    (void)state;
    return ssm__unicode_create(&unicode, NULL) == SSM_STATUS_OK ? 0 : -1;
}

static int close_unicode(void **state)
{
    (void)state;
    ssm__unicode_free(&unicode);
    return 0;
}

/* ---- UTF-8 and classes ----------------------------------------------------------------------- */

static void utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        unsigned char text[4];
        size_t length = ssm__utf8_write(c, text);
        uint32_t back;
        size_t scanned;
        assert_int_equal(ssm__utf8_read(text, &back), length);
        assert_int_equal(back, c);
        assert_int_equal(ssm__utf8_scan(text, length, &scanned), SSM__UTF8_VALID);
        assert_int_equal(scanned, length);
        for (size_t cut = 1; cut < length; cut++) {
            assert_int_equal(ssm__utf8_scan(text, cut, &scanned), SSM__UTF8_INCOMPLETE);
            assert_int_equal(scanned, cut);
        }
    }
}

/* Random bytes: the scan agrees with base/utf8 on what is a character. */
static void utf8_scan_random(void **state)
{
    (void)state;
    text_generator numbers = {.state = 1};
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = text_generator_next(&numbers);
        unsigned char text[4];
        for (int k = 0; k < 4; k++) {
            unsigned byte = (unsigned)(bits >> 8 * k & 0xFF);
            text[k] = (unsigned char)(bits >> (40 + k) & 1 ? 0x80 | (byte & 0x3F) : byte);
        }
        size_t length;
        bool valid = ssm__utf8_scan(text, 4, &length) == SSM__UTF8_VALID;
        size_t expected = ssm__utf8_length((const char *)text, 4);
        assert_int_equal(valid ? length : 0, expected);
        assert_true(length >= 1 && length <= 4);
    }
}

static void check_class(uint32_t c, unsigned bits)
{
    unsigned mask = SSM__CHAR_LETTER | SSM__CHAR_NUMBER | SSM__CHAR_SPACE | SSM__CHAR_WORD;
    if ((ssm__char_class(&unicode, c) & mask) != bits) {
        fail_msg("U+%04X has class %u, expected %u", c, ssm__char_class(&unicode, c) & mask, bits);
    }
}

static void classes(void **state)
{
    (void)state;
    const unsigned letter = SSM__CHAR_LETTER | SSM__CHAR_WORD;
    const unsigned number = SSM__CHAR_NUMBER | SSM__CHAR_WORD;
    check_class('a', letter);
    check_class('5', number);
    check_class('_', SSM__CHAR_WORD);
    check_class('-', 0);
    check_class(' ', SSM__CHAR_SPACE);
    check_class(0x1C, 0); /* Python calls it white space, Unicode does not */
    check_class(0x85, SSM__CHAR_SPACE);
    check_class(0x180E, 0); /* since Unicode 6.3 */
    check_class(0x200B, 0);
    check_class(0x200D, SSM__CHAR_WORD);
    check_class(0x2029, SSM__CHAR_SPACE);
    check_class(0x00B2, SSM__CHAR_NUMBER);
    check_class(0x2167, number);
    check_class(0x0301, SSM__CHAR_WORD);
    check_class(0x24B6, SSM__CHAR_WORD);
    check_class(0x4E2D, letter);
    check_class(0xAC00, letter);
    check_class(0x20000, letter);
    check_class(0x30000, letter); /* beyond the table */
    check_class(0xE0100, SSM__CHAR_WORD);
    check_class(0x10FFFF, 0);
    int spaces = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        spaces += (ssm__char_class(&unicode, c) & SSM__CHAR_SPACE) != 0;
    }
    assert_int_equal(spaces, 25); /* PropList.txt, White_Space */
}

/* ---- normalizer ------------------------------------------------------------------------------ */

/* Our NFC in stretches equals utf8proc's NFC of the whole text. */
static void check_nfc(const char *text, size_t bytes)
{
    utf8proc_uint8_t *expected = NULL;
    utf8proc_ssize_t expected_bytes =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &expected,
                     (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    assert_true(expected_bytes >= 0);
    const ssm__normalizer normalizer = {.stages = {{.kind = SSM__NORMALIZER_FORM}}, .count = 1};
    ssm__normalizer_run run = {0};
    const char *got;
    size_t got_bytes;
    bool keeps_start;
    assert_int_equal(ssm__normalizer_run_create(&normalizer, &unicode, &run, NULL), 0);
    assert_int_equal(ssm__normalize(&run, text, bytes, &got, &got_bytes, &keeps_start, NULL), 0);
    assert_true(keeps_start);
    assert_int_equal(got_bytes, expected_bytes);
    assert_memory_equal(got, expected, got_bytes);
    free(expected);
    ssm__normalizer_run_free(&run);
}

static void nfc_every_character(void **state)
{
    (void)state;
    static const uint32_t neighbours[] = {'a', 0x0301, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x09C7};
    for (uint32_t c = 1; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        for (size_t n = 0; n < sizeof neighbours / sizeof neighbours[0]; n++) {
            unsigned char text[16];
            size_t bytes = ssm__utf8_write(neighbours[n], text);
            bytes += ssm__utf8_write(c, text + bytes);
            bytes += ssm__utf8_write(0x0323, text + bytes);
            if (n == 0 || (ssm__char_class(&unicode, c) & SSM__CHAR_UNSAFE)) {
                check_nfc((const char *)text, bytes);
            }
        }
    }
}

static void nfc_generated(void **state)
{
    (void)state;
    text_generator generator = text_generator_create();
    for (int64_t i = 0; i < 3000; i++) {
        const ssm_text *text = text_generator_string(&generator, i);
        check_nfc(text->data, text->bytes);
    }
    text_generator_free(&generator);
}

/* A run of marks as long as the text must not cost its square. 400,000 marks: minutes if it did. */
static void nfc_long_run(void **state)
{
    (void)state;
    ssm_text text = {0};
    ssm__text_append(&text, "a", 1, NULL);
    for (int i = 0; i < 200000; i++) {
        ssm__text_append(&text, "\xCC\x81\xCC\xA3", 4, NULL);
    }
    ssm__code_points points = {0};
    ssm_text buffer = {0};
    bool same;
    assert_int_equal(ssm__unicode_form_write(SSM__FORM_NFC, &unicode,
                                             (const unsigned char *)text.data, text.bytes, &points,
                                             &buffer, &same, NULL),
                     0);
    assert_false(same);
    const char *got = buffer.data;
    size_t bytes = buffer.bytes;
    /* All U+0323 come first; the first joins a into U+1EA1, and the first U+0301 stays behind. */
    assert_int_equal(bytes, 3 + 2 * 199999 + 2 * 200000);
    assert_memory_equal(got, "\xE1\xBA\xA1\xCC\xA3", 5);
    assert_memory_equal(got + bytes - 2, "\xCC\x81", 2);
    ssm__code_points_free(&points);
    ssm_text_free(&buffer);
    ssm_text_free(&text);
}

/* ---- byte alphabet --------------------------------------------------------------------------- */

static void byte_alphabet(void **state)
{
    (void)state;
    assert_int_equal(ssm__byte_to_char(' '), 0x120);
    assert_int_equal(ssm__byte_to_char('\n'), 0x10A);
    assert_int_equal(ssm__byte_to_char(0xAD), 0x143);
    assert_int_equal(ssm__byte_to_char('A'), 'A');
    for (int byte = 0; byte < 256; byte++) {
        assert_int_equal(ssm__char_to_byte(ssm__byte_to_char((unsigned char)byte)), byte);
    }
    int known = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        known += ssm__char_to_byte(c) >= 0;
    }
    assert_int_equal(known, 256);
}

/* ---- pre-tokenizer --------------------------------------------------------------------------- */

/* The state machine against PCRE2 running the pattern as it is written. */
static void gpt2_pattern(void **state)
{
    (void)state;
    static const char regex[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    ssm__pattern *pattern = NULL;
    ssm__pattern_run *run = NULL;
    assert_int_equal(ssm__pattern_compile((ssm__pattern_place){"t", "pre_tokenizer", "Split"},
                                          regex, strlen(regex), false, &pattern, NULL),
                     0);
    assert_int_equal(ssm__pattern_run_create(pattern, &run, NULL), 0);
    text_generator generator = text_generator_create();
    for (int64_t i = 0; i < 5000; i++) {
        const ssm_text *text = text_generator_string(&generator, i);
        const unsigned char *subject = (const unsigned char *)text->data;
        for (size_t at = 0; at < text->bytes;) {
            bool found;
            size_t start;
            size_t end;
            assert_int_equal(ssm__pattern_find(run, subject, text->bytes, at, SIZE_MAX, &found,
                                               &start, &end, NULL),
                             0);
            assert_true(found);
            assert_int_equal(start, at);
            assert_int_equal(ssm__gpt2_match(&unicode, subject + at, text->bytes - at), end - at);
            at = end;
        }
    }
    text_generator_free(&generator);
    ssm__pattern_run_free(run);
    ssm__pattern_free(pattern);
}

static void check_behavior(ssm__split_behavior behavior, const char *expected)
{
    /* the-final--countdown at "-" */
    const ssm__stretch stretches[] = {{0, 3, false}, {3, 4, true},   {4, 9, false},
                                      {9, 10, true}, {10, 11, true}, {11, 20, false}};
    ssm__pieces pieces = {0};
    assert_int_equal(ssm__pieces_split(&pieces, stretches, 6, behavior, NULL), 0);
    char got[64] = "";
    size_t length = 0;
    for (size_t i = 0; i < pieces.count; i++) {
        length += (size_t)snprintf(got + length, sizeof got - length, "%.*s|",
                                   (int)(pieces.data[i].end - pieces.data[i].start),
                                   &"the-final--countdown"[pieces.data[i].start]);
    }
    assert_string_equal(got, expected);
    ssm__pieces_free(&pieces);
}

static void behaviors(void **state)
{
    (void)state;
    check_behavior(SSM__SPLIT_ISOLATED, "the|-|final|-|-|countdown|");
    check_behavior(SSM__SPLIT_REMOVED, "the|final|countdown|");
    check_behavior(SSM__SPLIT_CONTIGUOUS, "the|-|final|--|countdown|");
    check_behavior(SSM__SPLIT_MERGED_PREVIOUS, "the-|final-|-|countdown|");
    check_behavior(SSM__SPLIT_MERGED_NEXT, "the|-final|-|-countdown|");
}

static void check_translation(const char *from, const char *to)
{
    ssm_text out = {0};
    assert_int_equal(ssm__pattern_translate((ssm__pattern_place){"t", "pre_tokenizer", "Split"},
                                            from, strlen(from), &out, NULL),
                     0);
    assert_string_equal(out.data, to);
    ssm_text_free(&out);
}

static void translation(void **state)
{
    (void)state;
    check_translation("(?i:'s|'t)", "(?i:'s|'t)");
    check_translation("(?i)a", "(?i)a");
    check_translation("a{2}b{1,}?c{0,3}", "a{2}b{1,}?c{0,3}");
    check_translation("\\v[\\v]", "\\x{0B}[\\x{0B}]");
    check_translation("[^\\S]", "[^\\S\\x{180E}]");
    check_translation("\\p{^L}\\P{Nd}\\x{3000}", "\\p{^L}\\P{Nd}\\x{3000}");
    check_translation("\\.\\[\\ ", "\\.\\[\\ ");
    check_translation("x*+y?+z++", "x*+y?+z++");
    ssm_text out = {0};
    assert_int_equal(ssm__pattern_translate((ssm__pattern_place){"t", "pre_tokenizer", "Split"},
                                            "[\\s-]", 5, &out, NULL),
                     0);
    assert_non_null(strstr(out.data, "\\x{3000}\\-]"));
    ssm_text_free(&out);
}

/* A pattern that would run for ages is stopped with an error. */
static void pattern_limit(void **state)
{
    (void)state;
    static const char regex[] = "(?:a|aa|a(?=a))*bd"; /* d is there: no short cut */
    char subject[64];
    memset(subject, 'a', sizeof subject);
    subject[sizeof subject - 1] = 'd';
    ssm__pattern *pattern = NULL;
    ssm__pattern_run *run = NULL;
    ssm_error err = {0};
    assert_int_equal(ssm__pattern_compile((ssm__pattern_place){"t", "pre_tokenizer", "Split"},
                                          regex, strlen(regex), false, &pattern, &err),
                     0);
    assert_int_equal(ssm__pattern_run_create(pattern, &run, &err), 0);
    bool found;
    size_t start;
    size_t end;
    ssm_status status = ssm__pattern_find(run, (const unsigned char *)subject, sizeof subject, 0,
                                          SIZE_MAX, &found, &start, &end, &err);
    assert_int_equal(status, SSM_STATUS_FAILED);
    assert_non_null(strstr(err.message, "gave up"));
    ssm__pattern_run_free(run);
    ssm__pattern_free(pattern);
}

/* ---- BPE ------------------------------------------------------------------------------------- */

static int compare_keys(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Pushes and pops in any order give what a sorted array gives. */
static void queue_order(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static uint64_t model[MOST];
    text_generator numbers = {.state = 7};
    ssm__merge_queue queue = {0};
    for (int round = 0; round < 40; round++) {
        size_t count = 0;
        size_t pushes = 1 + text_generator_next(&numbers) % (round < 20 ? 60 : MOST);
        bool rising = round % 5 == 0;
        for (size_t i = 0; i < pushes; i++) {
            uint64_t key = rising ? i
                                  : ssm__merge_key((uint32_t)(text_generator_next(&numbers) % 300),
                                                   (uint32_t)(text_generator_next(&numbers) % 999));
            model[count++] = key;
            assert_int_equal(ssm__merge_queue_push(&queue, key, NULL), 0);
            if (!rising && text_generator_next(&numbers) % 3 == 0) {
                qsort(model, count, sizeof *model, compare_keys);
                uint64_t got;
                bool found;
                assert_int_equal(ssm__merge_queue_pop(&queue, &got, &found, NULL), 0);
                assert_true(found);
                assert_true(got == model[0]);
                memmove(model, model + 1, --count * sizeof *model);
            }
        }
        qsort(model, count, sizeof *model, compare_keys);
        for (size_t i = 0; i <= count; i++) {
            uint64_t got;
            bool found;
            assert_int_equal(ssm__merge_queue_pop(&queue, &got, &found, NULL), 0);
            assert_int_equal(found, i < count);
            assert_true(!found || got == model[i]);
        }
    }
    ssm__merge_queue_free(&queue);
}

/* The definition: merge the pair of lowest rank, the leftmost first, until there is none. */
static size_t merge_naive(const ssm__bpe *bpe, int32_t *ids, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            const ssm__merge *merge = ssm__bpe_find(bpe, ids[i], ids[i + 1]);
            if (merge != NULL && merge->rank < rank) {
                best = i;
                rank = merge->rank;
            }
        }
        if (best == SIZE_MAX) {
            return count;
        }
        ids[best] = ssm__bpe_find(bpe, ids[best], ids[best + 1])->id;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

static void merging(void **state)
{
    (void)state;
    enum { MOST = 300 };
    ssm_tokenizer *tokenizer = NULL;
    assert_int_equal(
        ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny/tokenizer.json", &tokenizer, NULL), 0);
    const ssm__bpe *bpe = &tokenizer->model.bpe;
    ssm__model_run *run = NULL;
    int64_t dropped = 0;
    assert_int_equal(ssm__model_run_create(&tokenizer->model, SSM__PIECE_BYTES, &run, NULL), 0);
    static const char *const alphabets[] = {"a", "the", " etaoinshr", "=-", " $(phchps)<->&"};
    text_generator numbers = {.state = 3};
    ssm_ids ids = {0};
    for (int i = 0; i < 3000; i++) {
        const char *alphabet = alphabets[i % 5];
        size_t bytes = 1 + text_generator_next(&numbers) % (i % 2 ? 20 : MOST);
        unsigned char piece[MOST];
        int32_t expected[MOST];
        for (size_t k = 0; k < bytes; k++) {
            piece[k] = (unsigned char)alphabet[text_generator_next(&numbers) % strlen(alphabet)];
            expected[k] = bpe->byte_ids[piece[k]];
        }
        size_t count = merge_naive(bpe, expected, bytes);
        for (int again = 0; again < 2; again++) { /* the second time out of the cache */
            ids.count = 0;
            assert_int_equal(ssm__model_encode(run, piece, bytes, &ids, &dropped, NULL), 0);
            assert_int_equal(ids.count, count);
            assert_memory_equal(ids.data, expected, count * sizeof *expected);
        }
    }
    ssm_ids_free(&ids);
    assert_int_equal(dropped, 0);
    ssm__model_run_free(run);
    ssm_tokenizer_free(tokenizer);
}

/* More words than the cache holds: entries vanish, none is ever wrong. */
static void cache_bound(void **state)
{
    (void)state;
    ssm__word_cache cache = {0};
    int hits = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < 150000; i++) {
            unsigned char key[8];
            int bytes = snprintf((char *)key, sizeof key, "%u", i);
            int32_t value = (int32_t)(3 * i);
            uint32_t hash;
            const ssm__cached_word *word = ssm__word_cache_get(&cache, key, (size_t)bytes, &hash);
            if (word != NULL) {
                hits++;
                assert_int_equal(word->count, 1);
                assert_int_equal(cache.ids.data[word->ids], value);
            } else {
                assert_int_equal(ssm__word_cache_put(&cache, key, (size_t)bytes, hash,
                                                     (ssm__word_ids){&value, 1, 0}, NULL),
                                 0);
                word = ssm__word_cache_get(&cache, key, (size_t)bytes, &hash);
                assert_non_null(word);
                assert_int_equal(cache.ids.data[word->ids], value);
            }
        }
    }
    assert_true(cache.n_slots <= 1 << 17);
    assert_true(hits < 150000);
    ssm__word_cache_free(&cache);
}

static void string_map(void **state)
{
    (void)state;
    ssm__string_map map = {0};
    assert_int_equal(ssm__string_map_get(&map, "a", 1), -1);
    for (int32_t i = 0; i < 5000; i++) {
        char key[16];
        int bytes = snprintf(key, sizeof key, "%d", i);
        assert_int_equal(ssm__string_map_add(&map, key, (size_t)bytes, i, NULL), 0);
    }
    assert_int_equal(ssm__string_map_add(&map, "a\0b", 3, 7777, NULL), 0);
    for (int32_t i = 0; i < 5000; i++) {
        char key[16];
        int bytes = snprintf(key, sizeof key, "%d", i);
        assert_int_equal(ssm__string_map_get(&map, key, (size_t)bytes), i);
    }
    assert_int_equal(ssm__string_map_get(&map, "a\0b", 3), 7777);
    assert_int_equal(ssm__string_map_get(&map, "a\0c", 3), -1);
    assert_int_equal(ssm__string_map_get(&map, "a", 1), -1);
    ssm__string_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_round_trip), cmocka_unit_test(utf8_scan_random),
        cmocka_unit_test(classes),         cmocka_unit_test(nfc_every_character),
        cmocka_unit_test(nfc_generated),   cmocka_unit_test(nfc_long_run),
        cmocka_unit_test(byte_alphabet),   cmocka_unit_test(gpt2_pattern),
        cmocka_unit_test(behaviors),       cmocka_unit_test(translation),
        cmocka_unit_test(pattern_limit),   cmocka_unit_test(queue_order),
        cmocka_unit_test(merging),         cmocka_unit_test(cache_bound),
        cmocka_unit_test(string_map),
    };
    return cmocka_run_group_tests(tests, open_unicode, close_unicode);
}
