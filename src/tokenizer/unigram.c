/* tokenizer/unigram.c: Viterbi over the tokens that begin at each character.
 *
 * The score of a cut is the sum of its tokens' log probabilities; among equals the one found first
 * stays. A character that is no token costs the smallest score less 10. Neighbouring unknown
 * characters are one unknown text, which becomes its bytes with byte_fallback, else unk. */
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

static const char WHERE[] = "model";
#define UNK_PENALTY 10.0
#define NONE        UINT32_MAX

/* ---- loading --------------------------------------------------------------------------------- */

/* The number that tokenizers makes of the shortest decimal form of `score`: its reader (serde_json)
 * divides the digits, as one number, by a power of ten, which can be one unit off the nearest
 * number. That decides between cuts whose scores are equal but for rounding. */
static double read_score(double score)
{
    enum { MOST_DIGITS = 17 };
    char text[48];
    for (int digits = 1; digits <= MOST_DIGITS; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, fabs(score));
        if (strtod(text, NULL) != fabs(score)) {
            continue;
        }
        uint64_t significand = 0;
        const char *at = text;
        for (; *at != 'e'; at++) {
            if (*at >= '0' && *at <= '9') {
                significand = significand * 10 + (uint64_t)(*at - '0');
            }
        }
        long exponent = strtol(at + 1, NULL, 10) - (digits - 1);
        if (exponent >= 0 || exponent < -300) {
            break; /* whole numbers are exact, and no score is that small */
        }
        snprintf(text, sizeof text, "1e%ld", -exponent);
        return copysign((double)significand / strtod(text, NULL), score);
    }
    return score;
}

static ssm_status add_entry(const char *path, const json_t *entry, size_t index,
                            ssm__string_map *vocab, ssm__unigram *out, ssm_error *err)
{
    const json_t *token = json_array_get(entry, 0);
    const json_t *score = json_array_get(entry, 1);
    if (json_array_size(entry) != 2 || !json_is_string(token) || !json_is_number(score)) {
        return ssm__fail_field(path, WHERE, err, "vocab[%zu] is not a pair [\"token\", score]",
                               index);
    }
    const char *text = json_string_value(token);
    size_t bytes = json_string_length(token);
    if (bytes == 0) {
        return ssm__fail_field(path, WHERE, err, "vocab[%zu] is an empty token", index);
    }
    if (ssm__string_map_get(vocab, text, bytes) >= 0) {
        return ssm__fail_field(path, WHERE, err, "vocab[%zu] \"%.100s\" is there twice", index,
                               text);
    }
    out->scores[index] = read_score(json_number_value(score));
    SSM__TRY(ssm__string_map_add(vocab, text, bytes, (int32_t)index, err));
    return ssm__prefix_tree_add(&out->tree, text, bytes, (int32_t)index, err);
}

ssm_status ssm__unigram_parse(const char *path, const json_t *spec, ssm__string_map *vocab,
                              ssm__unigram *out, ssm_error *err)
{
    static const char *const known[] = {"type", "vocab", "unk_id", "byte_fallback", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(
        ssm__field_bool_or(path, WHERE, spec, "byte_fallback", false, &out->byte_fallback, err));
    const json_t *list = json_object_get(spec, "vocab");
    size_t count = json_array_size(list);
    if (count == 0 || count > SSM__LARGEST_ID) {
        return ssm__fail_field(path, WHERE, err,
                               "Unigram needs a list \"vocab\" of 1 to %d pairs, found %zu",
                               SSM__LARGEST_ID, count);
    }
    const json_t *unk = json_object_get(spec, "unk_id");
    if (!json_is_integer(unk) || json_integer_value(unk) < 0 ||
        json_integer_value(unk) >= (json_int_t)count) {
        return ssm__fail_field(path, WHERE, err,
                               "Unigram needs an \"unk_id\" from 0 to %zu: without one a text with "
                               "an unknown character has no ids",
                               count - 1);
    }
    out->unk = (int32_t)json_integer_value(unk);
    out->vocab = vocab;
    out->scores = malloc(count * sizeof *out->scores);
    if (out->scores == NULL) {
        return ssm__fail_memory(err, "the scores", count * sizeof *out->scores);
    }
    for (size_t i = 0; i < count; i++) {
        SSM__TRY(add_entry(path, json_array_get(list, i), i, vocab, out, err));
    }
    double least = out->scores[0];
    for (size_t i = 1; i < count; i++) {
        least = out->scores[i] < least ? out->scores[i] : least;
    }
    out->unk_score = least - UNK_PENALTY;
    ssm__vocab_byte_tokens(vocab, out->fallback_ids);
    return SSM_STATUS_OK;
}

void ssm__unigram_free(ssm__unigram *unigram)
{
    ssm__prefix_tree_free(&unigram->tree);
    free(unigram->scores);
    unigram->scores = NULL;
}

/* ---- encoding -------------------------------------------------------------------------------- */

void ssm__unigram_run_free(ssm__unigram_run *run)
{
    free(run->nodes);
    *run = (ssm__unigram_run){0};
}

static void offer(ssm__unigram_node *node, double score, size_t start, int32_t id)
{
    if (node->start == NONE || score > node->score) {
        *node = (ssm__unigram_node){score, (uint32_t)start, id};
    }
}

static void find_best(const ssm__unigram *unigram, ssm__unigram_node *nodes,
                      const unsigned char *piece, size_t bytes)
{
    for (size_t i = 0; i <= bytes; i++) {
        nodes[i] = (ssm__unigram_node){0.0, NONE, 0};
    }
    for (size_t start = 0; start < bytes;) {
        uint32_t c;
        size_t length = ssm__utf8_read(piece + start, &c);
        double here = nodes[start].score;
        bool known = false;
        uint32_t node = 0;
        for (size_t at = start; at < bytes; at++) {
            const ssm__edge *edge = ssm__prefix_tree_step(&unigram->tree, node, piece[at]);
            if (edge == NULL) {
                break;
            }
            node = edge->child;
            if (edge->value >= 0) {
                offer(&nodes[at + 1], unigram->scores[edge->value] + here, start, edge->value);
                known = known || at + 1 - start == length;
            }
        }
        if (!known) {
            offer(&nodes[start + length], unigram->unk_score + here, start, unigram->unk);
        }
        start += length;
    }
}

/* Appends the ids of an unknown text. Together its characters may be a token after all. */
static ssm_status push_unknown(const ssm__unigram *unigram, const unsigned char *text, size_t bytes,
                               ssm_ids *ids, ssm_error *err)
{
    int32_t id = ssm__string_map_get(unigram->vocab, (const char *)text, bytes);
    bool fallback = id < 0 && unigram->byte_fallback;
    for (size_t i = 0; i < bytes && fallback; i++) {
        fallback = unigram->fallback_ids[text[i]] >= 0;
    }
    if (!fallback) {
        return ssm__ids_push(ids, id >= 0 ? id : unigram->unk, err);
    }
    for (size_t i = 0; i < bytes; i++) {
        SSM__TRY(ssm__ids_push(ids, unigram->fallback_ids[text[i]], err));
    }
    return SSM_STATUS_OK;
}

/* Turns the links from each end to its start into links from each start to its end. */
static void reverse_links(ssm__unigram_node *nodes, size_t bytes)
{
    uint32_t end = (uint32_t)bytes;
    int32_t id = nodes[end].id;
    uint32_t start = nodes[end].start;
    for (;;) {
        ssm__unigram_node before = nodes[start];
        nodes[start].start = end;
        nodes[start].id = id;
        if (start == 0) {
            return;
        }
        end = start;
        id = before.id;
        start = before.start;
    }
}

ssm_status ssm__unigram_encode(const ssm__unigram *unigram, ssm__unigram_run *run,
                               const unsigned char *piece, size_t bytes, ssm_ids *ids,
                               ssm_error *err)
{
    if (bytes >= NONE) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                         "a piece of %zu bytes without a cut is too long to encode", bytes);
    }
    void *nodes = run->nodes;
    SSM__TRY(ssm__grow(&nodes, &run->capacity, bytes + 1, sizeof *run->nodes, "the cuts of a piece",
                       err));
    run->nodes = nodes;
    find_best(unigram, run->nodes, piece, bytes);
    reverse_links(run->nodes, bytes);
    for (size_t start = 0; start < bytes;) {
        size_t end = run->nodes[start].start;
        if (run->nodes[start].id != unigram->unk) {
            SSM__TRY(ssm__ids_push(ids, run->nodes[start].id, err));
            start = end;
            continue;
        }
        while (end < bytes && run->nodes[end].id == unigram->unk) {
            end = run->nodes[end].start;
        }
        SSM__TRY(push_unknown(unigram, piece + start, end - start, ids, err));
        start = end;
    }
    return SSM_STATUS_OK;
}
