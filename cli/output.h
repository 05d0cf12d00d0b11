/* cli/output.h: aligned tables, numbers and pictures for people, JSON for programs. */
#ifndef SSM_CLI_OUTPUT_H
#define SSM_CLI_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include <ssmscope/evaluate.h>

#include "context.h"

/* ---- words ----------------------------------------------------------------------------------- */

enum { CLI_LINE_WIDTH = 80 };

/* Stands for a space at which a line is not broken. */
#define CLI_HARD_SPACE "\001"

/* Words of ours: symbols such as ρ, τ and … become rho, tau and ... unless the locale is UTF-8. So
 * do headings of tables and wrapped words. */
void cli_put(FILE *out, const char *text);
/* Wrapped and indented by two, on stdout: what stands under a table. */
void cli_footnote(const char *text);
/* Words, wrapped at CLI_LINE_WIDTH, from column `indent` on, and a newline; the cursor stands at
 * column `column`. A newline in the text begins a paragraph. */
void cli_print_wrapped(FILE *out, const char *text, int indent, int column);

/* ---- tables ---------------------------------------------------------------------------------- */

/* Cells in row-major order. After a failed allocation it stays failed, which printing reports. */
typedef struct cli_table {
    const char *const *headings; /* one a column; NULL: no heading line */
    const char *alignment;       /* 'l' or 'r' a column */
    char **cells;
    size_t n_cells, capacity;
    bool failed;
} cli_table;

/* headings: one string a column, borrowed; alignment as long as there are columns. */
cli_table cli_table_create(const char *const *headings, const char *alignment);
void cli_table_cell(cli_table *table, const char *format, ...) SSM_PRINTF(2, 3);
/* A number with so many decimals; "-" for NaN. */
void cli_table_number(cli_table *table, double value, int decimals);
/* "LO to HI" likewise; sign: with + where they are not negative. */
void cli_table_interval(cli_table *table, ssm_interval interval, int decimals, bool sign);
/* Prints and frees. Errors: MEMORY. */
ssm_status cli_table_print(cli_table *table, FILE *out, ssm_error *err);
/* The same as a table of Markdown. */
ssm_status cli_table_print_markdown(cli_table *table, FILE *out, ssm_error *err);

/* "1.2 MB", "812 B": powers of 1000. */
void cli_format_bytes(double bytes, char out[32]);
/* Thousands separated by commas. */
void cli_format_count(int64_t count, char out[32]);
/* "40 s", "12 min", "2.1 h" */
void cli_format_seconds(double seconds, char out[32]);

/* ---- pictures -------------------------------------------------------------------------------- */

/* One line a value: label, number and a bar of at most `width` characters, full at `top`. Eighths
 * of a block in a UTF-8 terminal, '#' elsewhere. */
void cli_bar(FILE *out, double value, double top, int width, bool utf8);
/* True when the locale of the environment is a UTF-8 one. */
bool cli_utf8(void);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* One JSON object under construction. Any failed allocation is remembered, and printing fails. */
typedef struct cli_json {
    json_t *root;
    bool failed;
} cli_json;

/* Starts {schema "ssmscope.<name>/1", program_version, command}. */
cli_json cli_json_create(const cli_context *context, const char *name);
/* New members of `object`; they take ownership of `value`. */
void cli_json_put(cli_json *json, json_t *object, const char *key, json_t *value);
void cli_json_push(cli_json *json, json_t *array, json_t *value);
/* A new object or array under key, for further members. */
json_t *cli_json_object(cli_json *json, json_t *object, const char *key);
json_t *cli_json_array(cli_json *json, json_t *object, const char *key);
/* Numbers: NaN and infinities become null. */
void cli_json_real(cli_json *json, json_t *object, const char *key, double value);
void cli_json_integer(cli_json *json, json_t *object, const char *key, int64_t value);
/* Text that may not be UTF-8 (a path) has its bad bytes replaced by U+FFFD. */
void cli_json_text(cli_json *json, json_t *object, const char *key, const char *value);
void cli_json_bool(cli_json *json, json_t *object, const char *key, bool value);
/* The object as text of `*length` bytes that ends with a newline, for free(); frees the object.
 * Errors: MEMORY. */
ssm_status cli_json_dump(cli_json *json, char **out, size_t *length, ssm_error *err);
/* Prints the object on stdout and frees it. Errors: MEMORY, FAILED. */
ssm_status cli_json_print(cli_json *json, ssm_error *err);
void cli_json_free(cli_json *json);

json_t *cli_json_number(double value); /* a real, or null */

#endif
