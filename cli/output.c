#include "output.h"

#include <langinfo.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

/* ---- words -------------------------------------------------------------------------------- */

/* What stands for our symbols where the locale cannot show them. */
static const struct {
    const char *symbol, *plain;
} symbols[] = {{"ρ", "rho"}, {"τ", "tau"}, {"…", "..."}, {"≥", ">="},
               {"≤", "<="},  {"×", "x"},   {"–", "-"},   {"·", "*"}};

/* The next character of a text, or what stands for it; *bytes: how much of text that is. */
static const char *next_piece(const char *text, bool utf8, size_t *bytes, char raw[8])
{
    for (size_t i = 0; !utf8 && i < sizeof symbols / sizeof *symbols; i++) {
        const size_t length = strlen(symbols[i].symbol);
        if (strncmp(text, symbols[i].symbol, length) == 0) {
            *bytes = length;
            return symbols[i].plain;
        }
    }
    *bytes = 1;
    while (*bytes < 4 && ((unsigned char)text[*bytes] & 0xC0U) == 0x80U) {
        (*bytes)++;
    }
    memcpy(raw, text, *bytes);
    raw[*bytes] = '\0';
    return raw;
}

/* Characters of UTF-8 text: bytes that do not continue one. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xC0U) != 0x80U;
    }
    return width;
}

/* Writes `bytes` bytes of our own words; out NULL: only the width. */
static size_t put_words(FILE *out, const char *text, size_t bytes)
{
    const bool utf8 = cli_utf8();
    size_t width = 0;
    char raw[8];
    for (size_t i = 0, used = 0; i < bytes; i += used) {
        const char *piece = next_piece(text + i, utf8, &used, raw);
        width += width_of(piece);
        if (out != NULL) {
            fputs(piece[0] == CLI_HARD_SPACE[0] ? " " : piece, out);
        }
    }
    return width;
}

void cli_put(FILE *out, const char *text)
{
    put_words(out, text, strlen(text));
}

void cli_footnote(const char *text)
{
    fputs("  ", stdout);
    cli_print_wrapped(stdout, text, 2, 2);
}

void cli_print_wrapped(FILE *out, const char *text, int indent, int column)
{
    while (*text != '\0') {
        if (*text == '\n') {
            /* A blank line separates paragraphs. */
            fprintf(out, "\n\n%*s", indent, "");
            column = indent;
            text += strspn(text, "\n");
            continue;
        }
        text += strspn(text, " ");
        size_t bytes = strcspn(text, " \n");
        int width = (int)put_words(NULL, text, bytes);
        if (column > indent && column + 1 + width > CLI_LINE_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        put_words(out, text, bytes);
        column += width;
        text += bytes;
    }
    fputc('\n', out);
}

/* ---- tables ---------------------------------------------------------------------------------- */

cli_table cli_table_create(const char *const *headings, const char *alignment)
{
    return (cli_table){.headings = headings, .alignment = alignment};
}

static void add_cell(cli_table *table, char *cell)
{
    if (cell == NULL || table->failed) {
        table->failed = true;
        free(cell);
        return;
    }
    if (table->n_cells == table->capacity) {
        size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (cells == NULL) {
            table->failed = true;
            free(cell);
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    table->cells[table->n_cells++] = cell;
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    char *cell = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&cell, format, arguments) < 0) {
        cell = NULL;
    }
    va_end(arguments);
    add_cell(table, cell);
}

void cli_table_number(cli_table *table, double value, int decimals)
{
    if (isnan(value)) {
        cli_table_cell(table, "-");
    } else {
        cli_table_cell(table, "%.*f", decimals, value);
    }
}

void cli_table_interval(cli_table *table, ssm_interval interval, int decimals, bool sign)
{
    if (isnan(interval.lo) || isnan(interval.hi)) {
        cli_table_cell(table, "-");
    } else {
        cli_table_cell(table, sign ? "%+.*f to %+.*f" : "%.*f to %.*f", decimals, interval.lo,
                       decimals, interval.hi);
    }
}

/* Headings are words of ours, cells are data. */
static size_t width_of_text(const char *text, bool heading)
{
    return heading ? put_words(NULL, text, strlen(text)) : width_of(text);
}

/* A line of cells, two blanks between columns. Blanks are printed only in front of a text, so that
 * no line ends in them. */
static void print_line(const cli_table *table, FILE *out, const char *const *texts,
                       const size_t *widths, size_t columns, bool heading)
{
    size_t blanks = 0;
    for (size_t c = 0; c < columns; c++) {
        const size_t used = width_of_text(texts[c], heading);
        const size_t pad = widths[c] > used ? widths[c] - used : 0;
        const bool right = table->alignment[c] == 'r';
        blanks += right ? pad : 0;
        if (used > 0) {
            fprintf(out, "%*s", (int)blanks, "");
            blanks = 0;
            if (heading) {
                cli_put(out, texts[c]);
            } else {
                fputs(texts[c], out);
            }
        }
        blanks += (right ? 0 : pad) + 2;
    }
    fputc('\n', out);
}

static void print_rows(const cli_table *table, FILE *out, const size_t *widths, size_t columns)
{
    if (table->headings != NULL) {
        print_line(table, out, table->headings, widths, columns, true);
    }
    for (size_t i = 0; i + columns <= table->n_cells; i += columns) {
        print_line(table, out, (const char *const *)table->cells + i, widths, columns, false);
    }
}

static void print_aligned(const cli_table *table, FILE *out, size_t columns, size_t *widths)
{
    for (size_t c = 0; table->headings != NULL && c < columns; c++) {
        widths[c] = width_of_text(table->headings[c], true);
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = width_of(table->cells[i]);
        widths[i % columns] = width > widths[i % columns] ? width : widths[i % columns];
    }
    print_rows(table, out, widths, columns);
}

/* A bar ends a cell, unless it stands behind a backslash. */
static void put_markdown(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        fputs(*text == '|' ? "\\" : "", out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void print_markdown(const cli_table *table, FILE *out, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        fputs("| ", out);
        put_markdown(out, table->headings[c]);
        fputs(c + 1 == columns ? " |\n" : " ", out);
    }
    for (size_t c = 0; c < columns; c++) {
        fputs(table->alignment[c] == 'r' ? "|--:" : "|---", out);
    }
    fputs("|\n", out);
    for (size_t i = 0; i < table->n_cells; i++) {
        fputs("| ", out);
        put_markdown(out, table->cells[i]);
        fputs(i % columns + 1 == columns ? " |\n" : " ", out);
    }
}

static void free_cells(cli_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    *table = (cli_table){0};
}

ssm_status cli_table_print(cli_table *table, FILE *out, ssm_error *err)
{
    size_t columns = strlen(table->alignment);
    size_t *widths = calloc(columns, sizeof *widths);
    bool failed = table->failed || widths == NULL;
    if (!failed) {
        print_aligned(table, out, columns, widths);
    }
    free(widths);
    free_cells(table);
    return failed ? cli_no_memory(err) : SSM_STATUS_OK;
}

ssm_status cli_table_print_markdown(cli_table *table, FILE *out, ssm_error *err)
{
    bool failed = table->failed;
    if (!failed) {
        print_markdown(table, out, strlen(table->alignment));
    }
    free_cells(table);
    return failed ? cli_no_memory(err) : SSM_STATUS_OK;
}

void cli_format_bytes(double bytes, char out[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1000;
        unit++;
    }
    if (unit == 0) {
        snprintf(out, 32, "%.0f B", bytes);
    } else {
        snprintf(out, 32, "%.*f %s", bytes < 9.995 ? 2 : bytes < 99.95 ? 1 : 0, bytes, units[unit]);
    }
}

void cli_format_seconds(double seconds, char out[32])
{
    if (seconds < 90) {
        snprintf(out, 32, "%.0f s", seconds);
    } else if (seconds < 5400) {
        snprintf(out, 32, "%.0f min", seconds / 60);
    } else {
        snprintf(out, 32, "%.1f h", seconds / 3600);
    }
}

void cli_format_count(int64_t count, char out[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    int sign = digits[0] == '-';
    char *to = out;
    for (int i = 0; i < length; i++) {
        if (i > sign && (length - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
}

/* ---- pictures -------------------------------------------------------------------------------- */

bool cli_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void cli_bar(FILE *out, double value, double top, int width, bool utf8)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(value > 0) || !(top > 0)) {
        return;
    }
    double share = value < top ? value / top : 1.0;
    int units = (int)lround(share * width * (utf8 ? 8 : 1));
    int whole = utf8 ? units / 8 : units;
    for (int i = 0; i < whole; i++) {
        fputs(utf8 ? "█" : "#", out);
    }
    if (utf8) {
        fputs(eighths[units % 8], out);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

cli_json cli_json_create(const cli_context *context, const char *name)
{
    cli_json json = {.root = json_object()};
    char schema[64];
    snprintf(schema, sizeof schema, "ssmscope.%s/1", name);
    json.failed = json.root == NULL;
    cli_json_text(&json, json.root, "schema", schema);
    cli_json_text(&json, json.root, "program_version", ssm_version());
    cli_json_text(&json, json.root, "command", context->canonical);
    return json;
}

void cli_json_put(cli_json *json, json_t *object, const char *key, json_t *value)
{
    if (value == NULL || json_object_set_new(object, key, value) != 0) {
        json->failed = true;
    }
}

void cli_json_push(cli_json *json, json_t *array, json_t *value)
{
    if (value == NULL || json_array_append_new(array, value) != 0) {
        json->failed = true;
    }
}

json_t *cli_json_object(cli_json *json, json_t *object, const char *key)
{
    json_t *value = json_object();
    cli_json_put(json, object, key, value);
    return json->failed ? NULL : value;
}

json_t *cli_json_array(cli_json *json, json_t *object, const char *key)
{
    json_t *value = json_array();
    cli_json_put(json, object, key, value);
    return json->failed ? NULL : value;
}

json_t *cli_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_json_real(cli_json *json, json_t *object, const char *key, double value)
{
    cli_json_put(json, object, key, cli_json_number(value));
}

void cli_json_integer(cli_json *json, json_t *object, const char *key, int64_t value)
{
    cli_json_put(json, object, key, json_integer(value));
}

void cli_json_bool(cli_json *json, json_t *object, const char *key, bool value)
{
    cli_json_put(json, object, key, json_boolean(value));
}

/* Text that is not UTF-8 as a whole has every byte beyond ASCII replaced by U+FFFD. */
static json_t *text_value(const char *value)
{
    json_t *direct = json_string(value);
    if (direct != NULL) {
        return direct;
    }
    size_t length = strlen(value);
    char *clean = malloc(length * 3 + 1);
    if (clean == NULL) {
        return NULL;
    }
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)value[i] < 0x80) {
            clean[used++] = value[i];
        } else {
            memcpy(clean + used, "\xEF\xBF\xBD", 3);
            used += 3;
        }
    }
    clean[used] = '\0';
    json_t *replaced = json_string(clean);
    free(clean);
    return replaced;
}

void cli_json_text(cli_json *json, json_t *object, const char *key, const char *value)
{
    cli_json_put(json, object, key, value == NULL ? json_null() : text_value(value));
}

void cli_json_free(cli_json *json)
{
    json_decref(json->root);
    *json = (cli_json){0};
}

ssm_status cli_json_dump(cli_json *json, char **out, size_t *length, ssm_error *err)
{
    /* Not json_dumps, which does not look whether writing a key worked and gives a text without it;
     * into memory of the size that a first pass tells, writing cannot fail. */
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(17);
    size_t bytes = json->failed ? 0 : json_dumpb(json->root, NULL, 0, flags);
    char *text = bytes == 0 ? NULL : malloc(bytes + 2);
    bool whole = text != NULL && json_dumpb(json->root, text, bytes, flags) == bytes;
    cli_json_free(json);
    if (!whole) {
        free(text);
        return cli_no_memory(err);
    }
    text[bytes] = '\n';
    text[bytes + 1] = '\0';
    *out = text;
    *length = bytes + 1;
    return SSM_STATUS_OK;
}

ssm_status cli_json_print(cli_json *json, ssm_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    ssm_status status = cli_json_dump(json, &text, &bytes, err);
    if (status == SSM_STATUS_OK && fwrite(text, 1, bytes, stdout) != bytes) {
        status = cli_fail(err, SSM_STATUS_FAILED, NULL, "cannot write standard output");
    }
    free(text);
    return status;
}
