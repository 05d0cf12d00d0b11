#include "values.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { LIST_MAX = 1 << 16 };

/* ---- growing strings ------------------------------------------------------------------------- */

static bool string_reserve(cli_string *string, size_t bytes)
{
    if (string->failed || bytes >= SIZE_MAX / 2 - string->bytes) {
        string->failed = true;
        return false;
    }
    size_t wanted = string->bytes + bytes + 1;
    if (wanted <= string->capacity) {
        return true;
    }
    size_t capacity = wanted < 128 ? 128 : wanted * 2;
    char *data = realloc(string->data, capacity);
    if (data == NULL) {
        string->failed = true;
        return false;
    }
    string->data = data;
    string->capacity = capacity;
    return true;
}

void cli_string_append(cli_string *string, const char *data, size_t bytes)
{
    if (string_reserve(string, bytes)) {
        memcpy(string->data + string->bytes, data, bytes);
        string->bytes += bytes;
        string->data[string->bytes] = '\0';
    }
}

void cli_string_add(cli_string *string, const char *text)
{
    cli_string_append(string, text, strlen(text));
}

void cli_string_format(cli_string *string, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 || !string_reserve(string, (size_t)length)) {
        string->failed = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(string->data + string->bytes, (size_t)length + 1, format, arguments);
    va_end(arguments);
    string->bytes += (size_t)length;
}

/* ---- from text ------------------------------------------------------------------------------- */

static void *field(const cli_option *option, void *arguments)
{
    return (char *)arguments + option->into;
}

static const void *const_field(const cli_option *option, const void *arguments)
{
    return (const char *)arguments + option->into;
}

/* Reads decimal digits with an optional minus; *end is the first byte after them, as it was where
 * there are none. False also for a number beyond 64 bits. */
static bool read_integer(const char *text, const char **end, int64_t *out)
{
    const char *digits = text + (text[0] == '-');
    if (digits[0] < '0' || digits[0] > '9') {
        return false;
    }
    errno = 0;
    char *after = NULL;
    long long value = strtoll(text, &after, 10);
    *end = after;
    *out = value;
    return errno == 0;
}

static ssm_status set_integer(const cli_option *option, const char *text, int64_t *out,
                              ssm_error *err)
{
    const char *end = NULL;
    const bool fits = read_integer(text, &end, out);
    if (end == NULL || *end != '\0') {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: expected a whole number, found '%s'",
                        option->name, text);
    }
    if (!fits || *out < option->min || *out > option->max) {
        if (fits && option->max == INT64_MAX) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "--%s: expected a whole number of at least %lld, found '%s'",
                            option->name, (long long)option->min, text);
        }
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--%s: expected a whole number from %lld to %lld, found '%s'", option->name,
                        (long long)option->min, (long long)option->max, text);
    }
    return SSM_STATUS_OK;
}

static ssm_status set_real(const cli_option *option, const char *text, double *out, ssm_error *err)
{
    char *end = NULL;
    *out = strtod(text, &end);
    if (text[0] == ' ' || end == text || *end != '\0' || !isfinite(*out)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: expected a number, found '%s'",
                        option->name, text);
    }
    if (*out < option->low || *out > option->high) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--%s: expected a number from %g to %g, found '%s'", option->name,
                        option->low, option->high, text);
    }
    return SSM_STATUS_OK;
}

/* Copies choice number `index` to `out`; false when there is none. */
static bool choice_at(const char *choices, int64_t index, char out[64])
{
    const char *start = choices;
    for (int64_t i = 0; start != NULL; i++) {
        const char *bar = strchr(start, '|');
        size_t length = bar == NULL ? strlen(start) : (size_t)(bar - start);
        if (i == index) {
            snprintf(out, 64, "%.*s", (int)length, start);
            return true;
        }
        start = bar == NULL ? NULL : bar + 1;
    }
    return false;
}

static ssm_status set_choice(const cli_option *option, const char *text, int64_t *out,
                             ssm_error *err)
{
    enum { CHOICES_MAX = 16 };
    char words[CHOICES_MAX][64];
    const char *names[CHOICES_MAX + 1] = {NULL};
    for (int64_t i = 0; i < CHOICES_MAX && choice_at(option->choices, i, words[i]); i++) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return SSM_STATUS_OK;
        }
        names[i] = words[i];
    }
    const char *nearest = ssm_nearest(text, names);
    return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: expected %s, found '%s'%s%s%s",
                    option->name, option->choices, text, nearest == NULL ? "" : "; did you mean '",
                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
}

static int compare_integers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Reads "first" or "first-last" and checks both against the option's range. */
static ssm_status read_range(const cli_option *option, const char *text, const char **cursor,
                             int64_t *first, int64_t *last, ssm_error *err)
{
    bool good = **cursor != '-' && read_integer(*cursor, cursor, first);
    *last = *first;
    if (good && **cursor == '-') {
        good = (*cursor)[1] != '-' && read_integer(*cursor + 1, cursor, last);
    }
    if (!good || (**cursor != ',' && **cursor != '\0')) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--%s: expected a list such as 1,2,5-7, found '%s'", option->name, text);
    }
    if (*last < *first) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: the range %lld-%lld in '%s' is empty",
                        option->name, (long long)*first, (long long)*last, text);
    }
    if (*first < option->min || *last > option->max) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--%s: expected numbers from %lld to %lld, found '%s'", option->name,
                        (long long)option->min, (long long)option->max, text);
    }
    return SSM_STATUS_OK;
}

/* Appends first … last; the list holds at most LIST_MAX numbers. */
static ssm_status list_extend(const cli_option *option, cli_list *list, int64_t first, int64_t last,
                              ssm_error *err)
{
    if (last - first >= LIST_MAX - list->count) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: the list has more than %d numbers",
                        option->name, (int)LIST_MAX);
    }
    int64_t more = last - first + 1;
    int64_t *values = realloc(list->values, (size_t)(list->count + more) * sizeof *values);
    if (values == NULL) {
        return cli_no_memory(err);
    }
    list->values = values;
    for (int64_t i = 0; i < more; i++) {
        values[list->count + i] = first + i;
    }
    list->count += more;
    return SSM_STATUS_OK;
}

static ssm_status set_list(const cli_option *option, const char *text, cli_list *list,
                           ssm_error *err)
{
    const char *cursor = text;
    for (;;) {
        int64_t first = 0;
        int64_t last = 0;
        ssm_status status = read_range(option, text, &cursor, &first, &last, err);
        if (status == SSM_STATUS_OK) {
            status = list_extend(option, list, first, last, err);
        }
        if (status != SSM_STATUS_OK) {
            return status;
        }
        if (*cursor == '\0') {
            break;
        }
        cursor++;
    }
    qsort(list->values, (size_t)list->count, sizeof *list->values, compare_integers);
    for (int64_t i = 1; i < list->count; i++) {
        if (list->values[i] == list->values[i - 1]) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: %lld stands twice in '%s'",
                            option->name, (long long)list->values[i], text);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status add_text(cli_texts *texts, const char *text, ssm_error *err)
{
    const char **values =
        realloc((void *)texts->values, (size_t)(texts->count + 1) * sizeof *values);
    if (values == NULL) {
        return cli_no_memory(err);
    }
    values[texts->count++] = text;
    texts->values = values;
    return SSM_STATUS_OK;
}

/* A path cannot be empty; other texts, such as a prompt, may be. */
static bool names_a_file(const cli_option *option)
{
    return (option->flags & CLI_OUTPUT) != 0 || cli_names_have("MASK,FILE,REC", option->argument);
}

ssm_status cli_value_set(const cli_option *option, const char *text, void *arguments,
                         ssm_error *err)
{
    void *into = field(option, arguments);
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)into = true;
        return SSM_STATUS_OK;
    case CLI_TEXT:
        if (text[0] == '\0' && names_a_file(option)) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s: the path is empty", option->name);
        }
        *(const char **)into = text;
        return SSM_STATUS_OK;
    case CLI_TEXTS:
        if (text[0] == '\0') {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s is empty", option->name);
        }
        return add_text(into, text, err);
    case CLI_INTEGER:
        return set_integer(option, text, into, err);
    case CLI_REAL:
        return set_real(option, text, into, err);
    case CLI_CHOICE:
        return set_choice(option, text, into, err);
    case CLI_LIST:
        return set_list(option, text, into, err);
    }
    return SSM_STATUS_OK;
}

void cli_value_unset(const cli_option *option, void *arguments)
{
    void *into = field(option, arguments);
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)into = false;
        break;
    case CLI_TEXT:
        *(const char **)into = NULL;
        break;
    case CLI_TEXTS:
        *(cli_texts *)into = (cli_texts){NULL, 0};
        break;
    case CLI_INTEGER:
    case CLI_CHOICE:
        *(int64_t *)into = CLI_UNSET;
        break;
    case CLI_REAL:
        *(double *)into = (double)NAN;
        break;
    case CLI_LIST:
        *(cli_list *)into = (cli_list){NULL, 0};
        break;
    }
}

void cli_value_free(const cli_option *option, void *arguments)
{
    void *into = field(option, arguments);
    if (option->kind == CLI_TEXTS) {
        free((void *)((cli_texts *)into)->values);
    } else if (option->kind == CLI_LIST) {
        free(((cli_list *)into)->values);
    }
}

/* ---- back to text ---------------------------------------------------------------------------- */

/* $'\xNN', as bash has it: results name the command, and they hold UTF-8 only. */
static void quote_bytes(cli_string *out, const char *word)
{
    cli_string_add(out, "$'");
    for (const char *cursor = word; *cursor != '\0'; cursor++) {
        const unsigned byte = (unsigned char)*cursor;
        const bool bare = byte >= 0x20 && byte < 0x7F && byte != '\'' && byte != '\\';
        cli_string_format(out, bare ? "%c" : "\\x%02x", byte);
    }
    cli_string_add(out, "'");
}

void cli_quote(cli_string *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        cli_string_add(out, word);
        return;
    }
    json_t *text = json_string(word);
    json_decref(text);
    if (text == NULL) {
        quote_bytes(out, word);
        return;
    }
    cli_string_add(out, "'");
    for (const char *cursor = word; *cursor != '\0'; cursor++) {
        if (*cursor == '\'') {
            cli_string_add(out, "'\\''");
        } else {
            cli_string_append(out, cursor, 1);
        }
    }
    cli_string_add(out, "'");
}

/* The shortest decimal that reads back as the same number. */
static void print_real(double value, cli_string *out)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    cli_string_add(out, text);
}

static void print_list(const cli_list *list, cli_string *out)
{
    for (int64_t i = 0; i < list->count;) {
        int64_t last = i;
        while (last + 1 < list->count && list->values[last + 1] == list->values[last] + 1) {
            last++;
        }
        cli_string_format(out, "%s%lld", i == 0 ? "" : ",", (long long)list->values[i]);
        if (last > i) {
            cli_string_format(out, "%s%lld", last > i + 1 ? "-" : ",",
                              (long long)list->values[last]);
        }
        i = last + 1;
    }
}

void cli_value_print(const cli_option *option, const void *arguments, cli_string *out)
{
    const void *from = const_field(option, arguments);
    char word[64] = "";
    switch (option->kind) {
    case CLI_FLAG:
        break;
    case CLI_TEXT:
        cli_quote(out, *(const char *const *)from);
        break;
    case CLI_TEXTS:
        for (int64_t i = 0; i < ((const cli_texts *)from)->count; i++) {
            cli_string_format(out, "%s", i == 0 ? "" : " ");
            cli_quote(out, ((const cli_texts *)from)->values[i]);
        }
        break;
    case CLI_INTEGER:
        cli_string_format(out, "%lld", (long long)*(const int64_t *)from);
        break;
    case CLI_REAL:
        print_real(*(const double *)from, out);
        break;
    case CLI_CHOICE:
        choice_at(option->choices, *(const int64_t *)from, word);
        cli_string_add(out, word);
        break;
    case CLI_LIST:
        print_list(from, out);
        break;
    }
}
