/* tokenizer/added_tokens.c: leftmost-longest search with lstrip, rstrip and single_word. */
#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int compare_patterns(const void *left, const void *right)
{
    const ssm__added_token *a = *(const ssm__added_token *const *)left;
    const ssm__added_token *b = *(const ssm__added_token *const *)right;
    size_t shorter = a->pattern_bytes < b->pattern_bytes ? a->pattern_bytes : b->pattern_bytes;
    int order = memcmp(a->pattern, b->pattern, shorter);
    if (order != 0) {
        return order;
    }
    return (a->pattern_bytes > b->pattern_bytes) - (a->pattern_bytes < b->pattern_bytes);
}

/* Fills the tables of the first and of the first two bytes. */
static void index_starts(ssm__matcher *matcher)
{
    int64_t i = 0;
    for (int byte = 0; byte < 256; byte++) {
        matcher->first[byte] = i;
        while (i < matcher->count && (unsigned char)matcher->tokens[i]->pattern[0] == byte) {
            const ssm__added_token *token = matcher->tokens[i];
            if (token->pattern_bytes == 1) {
                memset(&matcher->second[byte << 8], 1, 256);
            } else {
                matcher->second[byte << 8 | (unsigned char)token->pattern[1]] = true;
            }
            i++;
        }
    }
    matcher->first[256] = i;
}

static ssm_status build(const char *path, const ssm__added_tokens *added, bool normalized,
                        ssm__matcher **out, ssm_error *err)
{
    int64_t count = 0;
    for (int64_t i = 0; i < added->count; i++) {
        count += added->tokens[i].normalized == normalized;
    }
    if (count == 0) {
        return SSM_STATUS_OK;
    }
    ssm__matcher *matcher = calloc(1, sizeof *matcher);
    if (matcher == NULL) {
        return ssm__fail_memory(err, "the added tokens", sizeof *matcher);
    }
    *out = matcher;
    matcher->tokens = malloc((size_t)count * sizeof *matcher->tokens);
    if (matcher->tokens == NULL) {
        return ssm__fail_memory(err, "the added tokens", (size_t)count * sizeof *matcher->tokens);
    }
    for (int64_t i = 0; i < added->count; i++) {
        if (added->tokens[i].normalized == normalized) {
            matcher->tokens[matcher->count++] = &added->tokens[i];
        }
    }
    qsort(matcher->tokens, (size_t)count, sizeof *matcher->tokens, compare_patterns);
    for (int64_t i = 1; i < count; i++) {
        if (compare_patterns(&matcher->tokens[i - 1], &matcher->tokens[i]) == 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "added_tokens"),
                             "added_tokens %d and %d are the same text \"%.100s\" after "
                             "normalisation",
                             matcher->tokens[i - 1]->id, matcher->tokens[i]->id,
                             matcher->tokens[i]->pattern);
        }
    }
    index_starts(matcher);
    return SSM_STATUS_OK;
}

ssm_status ssm__added_tokens_index(const char *path, ssm__added_tokens *added, ssm_error *err)
{
    SSM__TRY(build(path, added, false, &added->raw, err));
    return build(path, added, true, &added->normalized, err);
}

static void matcher_free(ssm__matcher *matcher)
{
    if (matcher != NULL) {
        free(matcher->tokens);
        free(matcher);
    }
}

void ssm__added_tokens_free(ssm__added_tokens *added)
{
    matcher_free(added->raw);
    matcher_free(added->normalized);
    for (int64_t i = 0; i < added->count; i++) {
        free(added->tokens[i].content);
        free(added->tokens[i].pattern);
    }
    free(added->tokens);
    *added = (ssm__added_tokens){0};
}

/* The first pattern in [low, high) whose byte at `depth` is at least `byte`. Patterns that end
 * there come first. */
static int64_t lower_bound(const ssm__matcher *matcher, int64_t low, int64_t high, size_t depth,
                           int byte)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const ssm__added_token *token = matcher->tokens[middle];
        int here = token->pattern_bytes > depth ? (unsigned char)token->pattern[depth] : -1;
        if (here < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest pattern that begins at text, or NULL. */
static const ssm__added_token *match_here(const ssm__matcher *matcher, const unsigned char *text,
                                          size_t bytes)
{
    const ssm__added_token *longest = NULL;
    int64_t low = matcher->first[text[0]];
    int64_t high = matcher->first[text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (matcher->tokens[low]->pattern_bytes == depth) {
            longest = matcher->tokens[low];
        }
        if (depth == bytes) {
            break;
        }
        low = lower_bound(matcher, low, high, depth, text[depth]);
        high = lower_bound(matcher, low, high, depth, text[depth] + 1);
    }
    return longest;
}

static const ssm__added_token *search(const ssm__matcher *matcher, const unsigned char *text,
                                      size_t bytes, size_t *at)
{
    for (size_t i = *at; i < bytes; i++) {
        unsigned next = i + 1 < bytes ? text[i + 1] : 0;
        if (!matcher->second[(unsigned)text[i] << 8 | next] &&
            !(i + 1 == bytes && matcher->first[text[i]] < matcher->first[text[i] + 1])) {
            continue;
        }
        const ssm__added_token *token = match_here(matcher, text + i, bytes - i);
        if (token != NULL) {
            *at = i;
            return token;
        }
    }
    return NULL;
}

static bool class_before(const ssm__cutter *cutter, size_t end, uint8_t bits)
{
    uint32_t c;
    ssm__utf8_read(cutter->text + ssm__utf8_back(cutter->text, end), &c);
    return ssm__char_class(cutter->unicode, c) & bits;
}

static bool class_behind(const ssm__cutter *cutter, size_t start, uint8_t bits, size_t *length)
{
    uint32_t c;
    *length = ssm__utf8_read(cutter->text + start, &c);
    return ssm__char_class(cutter->unicode, c) & bits;
}

static bool stands_alone(const ssm__cutter *cutter, size_t start, size_t end)
{
    size_t length;
    return !(start > 0 && class_before(cutter, start, SSM__CHAR_WORD)) &&
           !(end < cutter->bytes && class_behind(cutter, end, SSM__CHAR_WORD, &length));
}

ssm__cut ssm__cutter_next(ssm__cutter *cutter)
{
    size_t start = cutter->search;
    const ssm__added_token *token = NULL;
    while (cutter->matcher != NULL) {
        token = search(cutter->matcher, cutter->text, cutter->bytes, &start);
        if (token == NULL) {
            break;
        }
        cutter->search = start + token->pattern_bytes;
        bool as_text = cutter->special_as_text && token->special;
        if (!as_text && !(token->single_word && !stands_alone(cutter, start, cutter->search))) {
            break;
        }
        /* A match that is passed over still hides what lies inside it. */
        start = cutter->search;
    }
    ssm__cut cut = {cutter->covered, cutter->bytes, token};
    if (token == NULL) {
        return cut;
    }
    size_t end = cutter->search;
    if (token->lstrip) {
        while (start > cutter->covered && class_before(cutter, start, SSM__CHAR_SPACE)) {
            start = ssm__utf8_back(cutter->text, start);
        }
    }
    size_t length;
    while (token->rstrip && end < cutter->bytes &&
           class_behind(cutter, end, SSM__CHAR_SPACE, &length)) {
        end += length;
    }
    /* The next match may lie inside the white space that rstrip took; its token is still given. */
    cut.before_end = start > cutter->covered ? start : cutter->covered;
    cutter->covered = end;
    return cut;
}
