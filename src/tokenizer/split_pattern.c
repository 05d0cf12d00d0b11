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
    pcre2_code *code;
};

struct ssm__pattern_run {
    const ssm__pattern *pattern;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static ssm_status compile(const char *path, const char *text, size_t bytes, uint32_t options,
                          ssm__pattern *pattern, ssm_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        return ssm__fail_memory(err, "a pattern", bytes);
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE offset = 0;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, bytes, options, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL) {
        char reason[160] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED) {
            return ssm__fail_memory(err, "a pattern", bytes);
        }
        return ssm__fail_field(path, "pre_tokenizer", err,
                               "Split: the pattern does not compile: %s", reason);
    }
    /* Without JIT the interpreter gives the same matches. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return SSM_STATUS_OK;
}

ssm_status ssm__pattern_compile(const char *path, const char *text, size_t bytes, bool literal,
                                ssm__pattern **out, ssm_error *err)
{
    if (bytes == 0 || bytes > PATTERN_MOST) {
        return ssm__fail_field(path, "pre_tokenizer", err,
                               "Split: the pattern has %zu bytes, expected 1 to %d", bytes,
                               PATTERN_MOST);
    }
    ssm__pattern *pattern = calloc(1, sizeof *pattern);
    if (pattern == NULL) {
        return ssm__fail_memory(err, "a pattern", sizeof *pattern);
    }
    *out = pattern;
    if (literal) {
        return compile(path, text, bytes, PCRE2_UTF | PCRE2_LITERAL, pattern, err);
    }
    ssm_text translated = {0};
    ssm_status status = ssm__pattern_translate(path, text, bytes, &translated, err);
    if (status == SSM_STATUS_OK) {
        /* Ruby's ^ and $ stand at every line. */
        status = compile(path, translated.data, translated.bytes,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, pattern, err);
    }
    ssm_text_free(&translated);
    return status;
}

void ssm__pattern_free(ssm__pattern *pattern)
{
    if (pattern != NULL) {
        pcre2_code_free(pattern->code);
        free(pattern);
    }
}

ssm_status ssm__pattern_run_create(const ssm__pattern *pattern, ssm__pattern_run **out,
                                   ssm_error *err)
{
    ssm__pattern_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "a pattern match", sizeof *run);
    }
    run->pattern = pattern;
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
                     "the Split pattern of the tokenizer gave up %zu bytes into a piece: %s", from,
                     reason);
}

ssm_status ssm__pattern_find(ssm__pattern_run *run, const unsigned char *subject, size_t bytes,
                             size_t from, size_t last_end, bool *found, size_t *start, size_t *end,
                             ssm_error *err)
{
    *found = false;
    while (from <= bytes) {
        int code = pcre2_match(run->pattern->code, (PCRE2_SPTR)subject, bytes, from,
                               PCRE2_NO_UTF_CHECK, run->data, run->context);
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
