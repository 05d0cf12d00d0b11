/* tokenizer/bpe_load.c: options and merges out of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

enum { MOST_MERGES = (1 << 24) - 1, AFFIX_MOST = 256 };

static const char WHERE[] = "model";

void ssm__bpe_put(ssm__bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(hash >> 32) & (bpe->n_slots - 1);
    while (bpe->merges[slot].key != UINT64_MAX && bpe->merges[slot].key != key) {
        slot = (slot + 1) & (bpe->n_slots - 1);
    }
    bpe->merges[slot] = (ssm__merge){key, rank, id};
}

/* ---- options --------------------------------------------------------------------------------- */

static bool is_absent(const json_t *spec, const char *name)
{
    const json_t *value = json_object_get(spec, name);
    return value == NULL || json_is_null(value);
}

/* An empty affix and an absent one are the same. */
static ssm_status parse_affix(const char *path, const json_t *spec, const char *name,
                              ssm_text *affix, ssm_error *err)
{
    if (is_absent(spec, name)) {
        return SSM_STATUS_OK;
    }
    const json_t *value;
    SSM__TRY(ssm__field_string(path, WHERE, spec, name, &value, err));
    size_t bytes = json_string_length(value);
    if (bytes > AFFIX_MOST) {
        return ssm__fail_field(path, WHERE, err, "%s has %zu bytes, expected at most %d", name,
                               bytes, AFFIX_MOST);
    }
    return ssm__text_append(affix, json_string_value(value), bytes, err);
}

static ssm_status parse_options(const char *path, const json_t *spec, ssm__bpe *bpe, ssm_error *err)
{
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    const json_t *dropout = json_object_get(spec, "dropout");
    if (!is_absent(spec, "dropout") &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0.0)) {
        return ssm__fail_field(path, WHERE, err,
                               "dropout is not supported: its ids would be random");
    }
    SSM__TRY(parse_affix(path, spec, "continuing_subword_prefix", &bpe->prefix, err));
    SSM__TRY(parse_affix(path, spec, "end_of_word_suffix", &bpe->suffix, err));
    SSM__TRY(
        ssm__field_bool_or(path, WHERE, spec, "byte_fallback", false, &bpe->byte_fallback, err));
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "fuse_unk", false, &bpe->fuse_unk, err));
    return ssm__field_bool_or(path, WHERE, spec, "ignore_merges", false, &bpe->ignore_merges, err);
}

static ssm_status parse_unk(const char *path, const json_t *spec, ssm__bpe *bpe, ssm_error *err)
{
    bpe->unk = -1;
    if (is_absent(spec, "unk_token")) {
        return SSM_STATUS_OK;
    }
    return ssm__vocab_field(path, spec, "unk_token", bpe->vocab, &bpe->unk, err);
}

/* The token of each byte's character in the byte alphabet. */
static void find_byte_ids(ssm__bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        unsigned char text[4];
        size_t bytes = ssm__utf8_write(ssm__byte_to_char((unsigned char)byte), text);
        bpe->byte_ids[byte] = ssm__string_map_get(bpe->vocab, (const char *)text, bytes);
    }
    ssm__vocab_byte_tokens(bpe->vocab, bpe->fallback_ids);
}

/* ---- merges ---------------------------------------------------------------------------------- */

typedef struct text_pair {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} text_pair;

/* "left right" with one blank, or ["left", "right"]. */
static bool read_pair(const json_t *entry, bool listed, text_pair *out)
{
    if (listed) {
        const json_t *left = json_array_get(entry, 0);
        const json_t *right = json_array_get(entry, 1);
        if (json_array_size(entry) != 2 || !json_is_string(left) || !json_is_string(right)) {
            return false;
        }
        *out = (text_pair){json_string_value(left), json_string_value(right),
                           json_string_length(left), json_string_length(right)};
        return true;
    }
    const char *line = json_string_value(entry);
    if (line == NULL) {
        return false;
    }
    size_t bytes = json_string_length(entry);
    const char *blank = memchr(line, ' ', bytes);
    if (blank == NULL || memchr(blank + 1, ' ', bytes - (size_t)(blank + 1 - line)) != NULL) {
        return false;
    }
    *out = (text_pair){line, blank + 1, (size_t)(blank - line), bytes - (size_t)(blank + 1 - line)};
    return true;
}

static ssm_status fail_missing(const char *path, size_t index, const char *token, ssm_error *err)
{
    return ssm__fail_field(path, WHERE, err, "merges[%zu]: \"%.100s\" is not in the vocabulary",
                           index, token);
}

static ssm_status add_merge(const char *path, size_t index, const text_pair *pair, uint32_t rank,
                            ssm__bpe *bpe, ssm_error *err)
{
    int32_t left = ssm__string_map_get(bpe->vocab, pair->left, pair->left_bytes);
    if (left < 0 || pair->left_bytes == 0) {
        char *copy = strndup(pair->left, pair->left_bytes);
        ssm_status status = fail_missing(path, index, copy == NULL ? "" : copy, err);
        free(copy);
        return status;
    }
    int32_t right = ssm__string_map_get(bpe->vocab, pair->right, pair->right_bytes);
    if (right < 0 || pair->right_bytes == 0) {
        return fail_missing(path, index, pair->right, err);
    }
    /* "a" and "##b" make "ab": the right side loses as many bytes as the prefix has. */
    if (pair->right_bytes < bpe->prefix.bytes) {
        return ssm__fail_field(path, WHERE, err,
                               "merges[%zu]: \"%.100s\" is shorter than the "
                               "continuing_subword_prefix",
                               index, pair->right);
    }
    size_t rest = pair->right_bytes - bpe->prefix.bytes;
    size_t bytes;
    if (!ssm__add_size(pair->left_bytes, rest, &bytes)) {
        return ssm__fail_memory(err, "a merge", SIZE_MAX);
    }
    char *merged = malloc(bytes + 1);
    if (merged == NULL) {
        return ssm__fail_memory(err, "a merge", bytes);
    }
    memcpy(merged, pair->left, pair->left_bytes);
    memcpy(merged + pair->left_bytes, pair->right + bpe->prefix.bytes, rest);
    merged[bytes] = '\0';
    int32_t id = ssm__string_map_get(bpe->vocab, merged, bytes);
    ssm_status status = id < 0 ? fail_missing(path, index, merged, err) : SSM_STATUS_OK;
    free(merged);
    if (status == SSM_STATUS_OK) {
        ssm__bpe_put(bpe, left, right, rank, id);
        bpe->n_merges++;
    }
    return status;
}

static ssm_status allocate_merges(size_t count, ssm__bpe *bpe, ssm_error *err)
{
    size_t n_slots = 16;
    while (n_slots < 2 * count) {
        n_slots *= 2;
    }
    bpe->merges = malloc(n_slots * sizeof *bpe->merges);
    if (bpe->merges == NULL) {
        return ssm__fail_memory(err, "the merges", n_slots * sizeof *bpe->merges);
    }
    bpe->n_slots = n_slots;
    for (size_t i = 0; i < n_slots; i++) {
        bpe->merges[i].key = UINT64_MAX;
    }
    return SSM_STATUS_OK;
}

static ssm_status parse_merges(const char *path, const json_t *spec, ssm__bpe *bpe, ssm_error *err)
{
    static const char version[] = "#version";
    const json_t *merges = json_object_get(spec, "merges");
    size_t count = json_array_size(merges);
    if (!json_is_array(merges) || count > MOST_MERGES) {
        return ssm__fail_field(path, WHERE, err,
                               "needs a list \"merges\" of at most %d entries, which may be none; "
                               "found %zu",
                               MOST_MERGES, count);
    }
    SSM__TRY(allocate_merges(count, bpe, err));
    bool listed = json_is_array(json_array_get(merges, 0));
    uint32_t rank = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(merges, i);
        if (!listed && json_is_string(entry) &&
            strncmp(json_string_value(entry), version, sizeof version - 1) == 0) {
            continue; /* the first line of an old merges.txt, which has no rank */
        }
        text_pair pair;
        if (!read_pair(entry, listed, &pair)) {
            return ssm__fail_field(path, WHERE, err, "merges[%zu] is not %s", i,
                                   listed ? "a pair [\"left\", \"right\"]"
                                          : "two tokens with one blank between");
        }
        SSM__TRY(add_merge(path, i, &pair, rank, bpe, err));
        rank++;
    }
    if (bpe->n_merges == 0 && count > 0) {
        return ssm__fail_field(path, WHERE, err, "merges has no entry but \"#version\"");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__bpe_parse(const char *path, const json_t *spec, const ssm__string_map *vocab,
                          ssm__bpe *out, ssm_error *err)
{
    out->vocab = vocab;
    find_byte_ids(out);
    SSM__TRY(parse_options(path, spec, out, err));
    SSM__TRY(parse_unk(path, spec, out, err));
    return parse_merges(path, spec, out, err);
}

void ssm__bpe_free(ssm__bpe *bpe)
{
    ssm_text_free(&bpe->prefix);
    ssm_text_free(&bpe->suffix);
    free(bpe->merges);
    bpe->merges = NULL;
}
