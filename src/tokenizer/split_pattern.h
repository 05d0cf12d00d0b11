/* tokenizer/split_pattern.h: the pattern of Split and Replace, matched by PCRE2. */
#ifndef SSM_TOKENIZER_SPLIT_PATTERN_H
#define SSM_TOKENIZER_SPLIT_PATTERN_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

/* A compiled pattern; may be shared by threads. */
typedef struct ssm__pattern ssm__pattern;

/* Where a pattern stands, for messages: the file, the stage ("pre_tokenizer"), its type. */
typedef struct ssm__pattern_place {
    const char *path;
    const char *where;
    const char *type;
} ssm__pattern_place;

/* Compiles an Oniguruma (Ruby syntax) expression. What PCRE2 reads differently is rewritten, what
 * it cannot express is refused by name. literal: the text itself. Errors: FILE, MEMORY. */
ssm_status ssm__pattern_compile(ssm__pattern_place place, const char *text, size_t bytes,
                                bool literal, ssm__pattern **out, ssm_error *err);
/* Compiles the field "pattern" of spec, {"Regex": …} or {"String": …}. Errors: FILE, MEMORY. */
ssm_status ssm__pattern_parse(const char *path, const char *where, const char *type,
                              const json_t *spec, ssm__pattern **out, ssm_error *err);
void ssm__pattern_free(ssm__pattern *pattern);
/* Is it one literal character? Then a text can be searched in parts. */
bool ssm__pattern_is_character(const ssm__pattern *pattern);

/* Match data of one call. Errors: MEMORY. */
typedef struct ssm__pattern_run ssm__pattern_run;
ssm_status ssm__pattern_run_create(const ssm__pattern *pattern, ssm__pattern_run **out,
                                   ssm_error *err);
void ssm__pattern_run_free(ssm__pattern_run *run);

/* The first match in subject[from …]; *found false when there is none. An empty match directly
 * behind the last match (last_end, SIZE_MAX when there is none) does not count. Errors: FAILED (the
 * pattern needs more steps or memory than the limit), MEMORY. */
ssm_status ssm__pattern_find(ssm__pattern_run *run, const unsigned char *subject, size_t bytes,
                             size_t from, size_t last_end, bool *found, size_t *start, size_t *end,
                             ssm_error *err);

/* The PCRE2 text of an Oniguruma expression, appended to *out. Errors: FILE, MEMORY. */
ssm_status ssm__pattern_translate(ssm__pattern_place place, const char *text, size_t bytes,
                                  ssm_text *out, ssm_error *err);

#endif
