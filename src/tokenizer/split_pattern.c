/* tokenizer/split_pattern.c: compiling and matching with PCRE2 under limits. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/split_pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/unicode.h"

enum {
    MATCH_LIMIT = 20 * 1000 * 1000, /* steps of one search; a second or two */
    HEAP_LIMIT_KIB = 64 * 1024,
    JIT_STACK_FIRST = 32 * 1024,
    JIT_STACK_MOST = 8 * 1024 * 1024,
    PATTERN_MOST = 64 * 1024
};

struct ssm__pattern {
    pcre2_code *code; /* NULL for a literal */
    char *literal;    /* searched byte by byte: in UTF-8 that is the same */
    size_t literal_bytes;
    bool some_start;    /* a match can only begin with a byte of `starts` */
    uint8_t starts[32]; /* bits */
};

struct ssm__pattern_run {
    const ssm__pattern *pattern;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- compiling ------------------------------------------------------------------------------- */

static bool is_letter(uint32_t c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* Most pieces hold no byte that a match could begin with; to see that is faster than a search. */
static void find_starts(ssm__pattern *pattern)
{
    const uint8_t *bits = NULL;
    uint32_t kind = 0;
    uint32_t unit = 0;
    if (pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTBITMAP, &bits) == 0 && bits != NULL) {
        memcpy(pattern->starts, bits, sizeof pattern->starts);
        pattern->some_start = true;
    } else if (pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTCODETYPE, &kind) == 0 &&
               kind == 1 &&
               pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTCODEUNIT, &unit) == 0 &&
               unit < 0x80 && !is_letter(unit)) {
        /* A letter may stand for its other cases, some of them outside ASCII. */
        pattern->starts[unit / 8] |= (uint8_t)(1u << unit % 8);
        pattern->some_start = true;
    }
}

static ssm_status compile(ssm__pattern_place place, const char *text, size_t bytes,
                          ssm__pattern *pattern, ssm_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        return ssm__fail_memory(err, "a pattern", bytes);
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE offset = 0;
    /* Ruby's ^ and $ stand at every line. */
    pattern->code = pcre2_compile((PCRE2_SPTR)text, bytes, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                  &code, &offset, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL) {
        char reason[160] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED) {
            return ssm__fail_memory(err, "a pattern", bytes);
        }
        return ssm__fail_field(place.path, place.where, err, "%s: the pattern does not compile: %s",
                               place.type, reason);
    }
    /* Without JIT the interpreter gives the same matches. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    find_starts(pattern);
    return SSM_STATUS_OK;
}

static ssm_status keep_literal(const char *text, size_t bytes, ssm__pattern *pattern,
                               ssm_error *err)
{
    pattern->literal = malloc(bytes);
    if (pattern->literal == NULL) {
        return ssm__fail_memory(err, "a pattern", bytes);
    }
    memcpy(pattern->literal, text, bytes);
    pattern->literal_bytes = bytes;
    return SSM_STATUS_OK;
}

ssm_status ssm__pattern_compile(ssm__pattern_place place, const char *text, size_t bytes,
                                bool literal, ssm__pattern **out, ssm_error *err)
{
    if (bytes == 0 || bytes > PATTERN_MOST) {
        return ssm__fail_field(place.path, place.where, err,
                               "%s: the pattern has %zu bytes, expected 1 to %d", place.type, bytes,
                               PATTERN_MOST);
    }
    ssm__pattern *pattern = calloc(1, sizeof *pattern);
    if (pattern == NULL) {
        return ssm__fail_memory(err, "a pattern", sizeof *pattern);
    }
    *out = pattern;
    if (literal) {
        return keep_literal(text, bytes, pattern, err);
    }
    ssm_text translated = {0};
    ssm_status status = ssm__pattern_translate(place, text, bytes, &translated, err);
    if (status == SSM_STATUS_OK) {
        status = compile(place, translated.data, translated.bytes, pattern, err);
    }
    ssm_text_free(&translated);
    return status;
}

ssm_status ssm__pattern_parse(const char *path, const char *where, const char *type,
                              const json_t *spec, ssm__pattern **out, ssm_error *err)
{
    const json_t *pattern = json_object_get(spec, "pattern");
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = literal != NULL ? literal : regex;
    if (json_object_size(pattern) != 1 || !json_is_string(text)) {
        return ssm__fail_field(path, where, err,
                               "%s needs \"pattern\": {\"Regex\": …} or {\"String\": …}", type);
    }
    return ssm__pattern_compile((ssm__pattern_place){path, where, type}, json_string_value(text),
                                json_string_length(text), literal != NULL, out, err);
}

void ssm__pattern_free(ssm__pattern *pattern)
{
    if (pattern != NULL) {
        pcre2_code_free(pattern->code);
        free(pattern->literal);
        free(pattern);
    }
}

bool ssm__pattern_is_character(const ssm__pattern *pattern)
{
    uint32_t c;
    return pattern->literal != NULL &&
           ssm__utf8_read((const unsigned char *)pattern->literal, &c) == pattern->literal_bytes;
}

/* ---- matching -------------------------------------------------------------------------------- */

ssm_status ssm__pattern_run_create(const ssm__pattern *pattern, ssm__pattern_run **out,
                                   ssm_error *err)
{
    ssm__pattern_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "a pattern match", sizeof *run);
    }
    run->pattern = pattern;
    if (pattern->literal != NULL) {
        *out = run;
        return SSM_STATUS_OK;
    }
    run->data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    run->context = pcre2_match_context_create(NULL);
    if (run->data == NULL || run->context == NULL) {
        ssm__pattern_run_free(run);
        return ssm__fail_memory(err, "a pattern match", 0);
    }
    pcre2_set_match_limit(run->context, MATCH_LIMIT);
    pcre2_set_heap_limit(run->context, HEAP_LIMIT_KIB);
    /* NULL (no JIT, or no memory) leaves the machine stack's 32 KiB, whose end is an error too. */
    run->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
    if (run->stack != NULL) {
        pcre2_jit_stack_assign(run->context, NULL, run->stack);
    }
    *out = run;
    return SSM_STATUS_OK;
}

void ssm__pattern_run_free(ssm__pattern_run *run)
{
    if (run != NULL) {
        pcre2_match_data_free(run->data);
        pcre2_match_context_free(run->context);
        pcre2_jit_stack_free(run->stack);
        free(run);
    }
}

static ssm_status fail_match(int code, size_t from, ssm_error *err)
{
    if (code == PCRE2_ERROR_NOMEMORY) {
        return ssm__fail_memory(err, "a pattern match", 0);
    }
    char reason[160] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return ssm__fail(err, SSM_STATUS_FAILED, SSM__NOWHERE,
                     "a pattern of the tokenizer gave up %zu bytes into a piece: %s", from, reason);
}

static bool find_literal(const ssm__pattern *pattern, const unsigned char *subject, size_t bytes,
                         size_t from, size_t *start, size_t *end)
{
    size_t length = pattern->literal_bytes;
    while (bytes - from >= length) {
        const unsigned char *at =
            memchr(subject + from, pattern->literal[0], bytes - from - length + 1);
        if (at == NULL) {
            return false;
        }
        from = (size_t)(at - subject);
        if (memcmp(at, pattern->literal, length) == 0) {
            *start = from;
            *end = from + length;
            return true;
        }
        from++;
    }
    return false;
}

/* The first place from `from` on where a match could begin; `bytes` when there is none. */
static size_t skip_to_start(const ssm__pattern *pattern, const unsigned char *subject, size_t bytes,
                            size_t from)
{
    while (from < bytes && !(pattern->starts[subject[from] / 8] >> subject[from] % 8 & 1)) {
        from++;
    }
    return from;
}

ssm_status ssm__pattern_find(ssm__pattern_run *run, const unsigned char *subject, size_t bytes,
                             size_t from, size_t last_end, bool *found, size_t *start, size_t *end,
                             ssm_error *err)
{
    const ssm__pattern *pattern = run->pattern;
    if (pattern->literal != NULL) {
        *found = from <= bytes && find_literal(pattern, subject, bytes, from, start, end);
        return SSM_STATUS_OK;
    }
    *found = false;
    while (from <= bytes) {
        if (pattern->some_start) {
            from = skip_to_start(pattern, subject, bytes, from);
            if (from == bytes) {
                return SSM_STATUS_OK;
            }
        }
        int code = pcre2_match(pattern->code, (PCRE2_SPTR)subject, bytes, from, PCRE2_NO_UTF_CHECK,
                               run->data, run->context);
        if (code == PCRE2_ERROR_NOMATCH) {
            return SSM_STATUS_OK;
        }
        if (code < 0) {
            return fail_match(code, from, err);
        }
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(run->data);
        *start = match[0];
        *end = match[1];
        if (*end != *start || *end != last_end) {
            *found = true;
            return SSM_STATUS_OK;
        }
        if (*start == bytes) {
            return SSM_STATUS_OK;
        }
        uint32_t c;
        from = *start + ssm__utf8_read(subject + *start, &c);
    }
    return SSM_STATUS_OK;
}
