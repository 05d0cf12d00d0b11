/* cli/values.h: one value of an option, from text and back to one spelling of it. */
#ifndef SSM_CLI_VALUES_H
#define SSM_CLI_VALUES_H

#include "options.h"

/* A byte string that grows; starts from {0}. After a failed allocation it stays failed. */
typedef struct cli_string {
    char *data; /* NUL-terminated, or NULL */
    size_t bytes, capacity;
    bool failed;
} cli_string;

void cli_string_append(cli_string *string, const char *data, size_t bytes);
void cli_string_add(cli_string *string, const char *text);
void cli_string_format(cli_string *string, const char *format, ...) SSM_PRINTF(2, 3);

/* Parses `text` as the value of `option` and writes it to its field in `arguments`.
 * Errors: USAGE (what was expected and what was found), MEMORY. */
ssm_status cli_value_set(const cli_option *option, const char *text, void *arguments,
                         ssm_error *err);
/* Field of an option that is not given and has no fallback. */
void cli_value_unset(const cli_option *option, void *arguments);
void cli_value_free(const cli_option *option, void *arguments);
/* Appends the value in `arguments` in its canonical spelling. */
void cli_value_print(const cli_option *option, const void *arguments, cli_string *out);
/* Appends a word as a shell needs it, in UTF-8 whatever its bytes are. */
void cli_quote(cli_string *out, const char *word);

#endif
