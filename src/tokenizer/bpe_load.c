/* tokenizer/bpe_load.c: vocabulary and merges out of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/fields.h"
#include "tokenizer/unicode.h"

enum {
    LARGEST_ID = (1 << 24) - 1, /* tables by id stay small whatever the file says */
    MOST_MERGES = (1 << 24) - 1
};

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
static ssm_status refuse_affix(const char *path, const json_t *spec, const char *name,
                               ssm_error *err)
{
    const json_t *value = json_object_get(spec, name);
    if (is_absent(spec, name) || (json_is_string(value) && json_string_length(value) == 0)) {
        return SSM_STATUS_OK;
    }
    return ssm__fail_unsupported(path, WHERE, name, err);
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
    SSM__TRY(refuse_affix(path, spec, "continuing_subword_prefix", err));
    SSM__TRY(refuse_affix(path, spec, "end_of_word_suffix", err));
    bool byte_fallback;
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "byte_fallback", false, &byte_fallback, err));
    if (byte_fallback) {
        return ssm__fail_unsupported(path, WHERE, "byte_fallback", err);
    }
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "fuse_unk", false, &bpe->fuse_unk, err));
    return ssm__field_bool_or(path, WHERE, spec, "ignore_merges", false, &bpe->ignore_merges, err);
}

static ssm_status parse_unk(const char *path, const json_t *spec, ssm__bpe *bpe, ssm_error *err)
{
    bpe->unk = -1;
    if (is_absent(spec, "unk_token")) {
        return SSM_STATUS_OK;
    }
    const json_t *unk;
    SSM__TRY(ssm__field_string(path, WHERE, spec, "unk_token", &unk, err));
    bpe->unk = ssm__string_map_get(&bpe->vocab, json_string_value(unk), json_string_length(unk));
    if (bpe->unk < 0) {
        return ssm__fail_field(path, WHERE, err, "unk_token \"%.100s\" is not in the vocabulary",
                               json_string_value(unk));
    }
    return SSM_STATUS_OK;
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static ssm_status check_ids_distinct(const char *path, const ssm__bpe *bpe, ssm_error *err)
{
    int32_t largest = 0;
    for (size_t i = 0; i < bpe->vocab.count; i++) {
        largest = bpe->vocab.entries[i].value > largest ? bpe->vocab.entries[i].value : largest;
    }
    size_t size = ((size_t)largest + 1) * sizeof(uint32_t);
    uint32_t *owner = calloc((size_t)largest + 1, sizeof(uint32_t));
    if (owner == NULL) {
        return ssm__fail_memory(err, "the vocabulary", size);
    }
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < bpe->vocab.count && status == SSM_STATUS_OK; i++) {
        uint32_t *taken = &owner[bpe->vocab.entries[i].value];
        if (*taken != 0) {
            status = ssm__fail_field(
                path, WHERE, err, "vocab gives the id %d to \"%.100s\" and to \"%.100s\"",
                bpe->vocab.entries[i].value, ssm__string_map_text(&bpe->vocab, *taken - 1),
                ssm__string_map_text(&bpe->vocab, i));
        }
        *taken = (uint32_t)i + 1;
    }
    free(owner);
    return status;
}

static ssm_status parse_vocab(const char *path, const json_t *spec, ssm__bpe *bpe, ssm_error *err)
{
    const json_t *vocab = json_object_get(spec, "vocab");
    if (!json_is_object(vocab) || json_object_size(vocab) == 0) {
        return ssm__fail_field(path, WHERE, err, "needs a non-empty object \"vocab\"");
    }
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        size_t bytes = strlen(token);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > LARGEST_ID) {
            return ssm__fail_field(path, WHERE, err, "vocab \"%.100s\" needs an id from 0 to %d",
                                   token, LARGEST_ID);
        }
        SSM__TRY(ssm__string_map_add(&bpe->vocab, token, bytes, (int32_t)id, err));
    }
    SSM__TRY(check_ids_distinct(path, bpe, err));
    for (int byte = 0; byte < 256; byte++) {
        unsigned char text[4];
        size_t bytes = ssm__utf8_write(ssm__byte_to_char((unsigned char)byte), text);
        bpe->byte_ids[byte] = ssm__string_map_get(&bpe->vocab, (const char *)text, bytes);
    }
    return SSM_STATUS_OK;
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
    int32_t left = ssm__string_map_get(&bpe->vocab, pair->left, pair->left_bytes);
    if (left < 0 || pair->left_bytes == 0) {
        char *copy = strndup(pair->left, pair->left_bytes);
        ssm_status status = fail_missing(path, index, copy == NULL ? "" : copy, err);
        free(copy);
        return status;
    }
    int32_t right = ssm__string_map_get(&bpe->vocab, pair->right, pair->right_bytes);
    if (right < 0 || pair->right_bytes == 0) {
        return fail_missing(path, index, pair->right, err);
    }
    size_t bytes;
    if (!ssm__add_size(pair->left_bytes, pair->right_bytes, &bytes)) {
        return ssm__fail_memory(err, "a merge", SIZE_MAX);
    }
    char *merged = malloc(bytes + 1);
    if (merged == NULL) {
        return ssm__fail_memory(err, "a merge", bytes);
    }
    memcpy(merged, pair->left, pair->left_bytes);
    memcpy(merged + pair->left_bytes, pair->right, pair->right_bytes);
    merged[bytes] = '\0';
    int32_t id = ssm__string_map_get(&bpe->vocab, merged, bytes);
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
    if (!json_is_array(merges) || count == 0 || count > MOST_MERGES) {
        return ssm__fail_field(path, WHERE, err,
                               "needs a list \"merges\" of 1 to %d entries, found %zu", MOST_MERGES,
                               count);
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
    if (bpe->n_merges == 0) {
        return ssm__fail_field(path, WHERE, err, "merges has no entry but \"#version\"");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__bpe_parse(const char *path, const json_t *spec, ssm__bpe *out, ssm_error *err)
{
    if (!json_is_object(spec)) {
        return ssm__fail_field(path, WHERE, err, "must be an object with \"vocab\" and \"merges\"");
    }
    /* Old files have no type; merges then tell BPE from the other models. */
    if (json_object_get(spec, "type") != NULL || json_object_get(spec, "merges") == NULL) {
        const char *type;
        SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
        if (strcmp(type, "BPE") != 0) {
            return ssm__fail_unsupported(path, WHERE, type, err);
        }
    }
    SSM__TRY(parse_options(path, spec, out, err));
    SSM__TRY(parse_vocab(path, spec, out, err));
    SSM__TRY(parse_unk(path, spec, out, err));
    return parse_merges(path, spec, out, err);
}

void ssm__bpe_free(ssm__bpe *bpe)
{
    ssm__string_map_free(&bpe->vocab);
    free(bpe->merges);
    bpe->merges = NULL;
}
