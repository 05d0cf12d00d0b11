/* evaluate/python_text.h: text as Python's str sees it, for data prepared by Python programs.
 * All texts are valid UTF-8; `bytes` excludes a closing NUL. */
#ifndef SSM_EVALUATE_PYTHON_TEXT_H
#define SSM_EVALUATE_PYTHON_TEXT_H

#include <ssmscope/tokenizer.h>

/* str.isspace of one character: the bidirectional classes WS, B, S or category Zs; it has U+001C to
 * U+001F, which the property White_Space has not. */
bool ssm__python_space(uint32_t code_point);
/* Bytes of white space at the beginning and at the end. */
size_t ssm__space_before(const char *text, size_t bytes);
size_t ssm__space_after(const char *text, size_t bytes);
/* len(re.split(r"\s+", text)): one more than there are runs of white space. The text may be invalid
 * UTF-8: a byte that begins no character is no white space. */
int64_t ssm__count_words(const char *text, size_t bytes);
/* len(text). */
int64_t ssm__count_characters(const char *text);
/* text.replace(from, to), in place. Errors: MEMORY. */
ssm_status ssm__text_replace(ssm_text *text, const char *from, const char *to, ssm_error *err);
/* Appends text.capitalize(): the first character in title case, the others in lower case. Errors:
 * MEMORY. */
ssm_status ssm__text_capitalize(ssm_text *out, const char *text, ssm_error *err);
/* Appends several strings, up to a NULL. Errors: MEMORY. */
ssm_status ssm__text_join(ssm_text *out, ssm_error *err, ...) __attribute__((sentinel));

#endif
