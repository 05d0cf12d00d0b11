#include "train/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void *field(const ssm__setting *setting, void *object)
{
    return (char *)object + setting->into;
}

static const void *field_const(const ssm__setting *setting, const void *object)
{
    return (const char *)object + setting->into;
}

/* ---- what is allowed ------------------------------------------------------------------------- */

/* Choice `index` of "a|b|c": its bytes, NULL beyond the last. */
static const char *choice_at(const char *choices, int64_t index, size_t *bytes)
{
    const char *at = choices;
    for (int64_t i = 0; i < index; i++) {
        at = strchr(at, '|');
        if (at == NULL) {
            return NULL;
        }
        at++;
    }
    *bytes = strcspn(at, "|");
    return at;
}

void ssm__setting_allowed(const ssm__setting *setting, char out[128])
{
    switch (setting->kind) {
    case SSM__SETTING_INTEGER:
        snprintf(out, 128, "a whole number in %" PRId64 " … %" PRId64, setting->min, setting->max);
        break;
    case SSM__SETTING_INTEGERS:
        snprintf(out, 128, "whole numbers in %" PRId64 " … %" PRId64 ", as 50,100", setting->min,
                 setting->max);
        break;
    case SSM__SETTING_REAL:
        snprintf(out, 128, "a number in %g … %g", setting->low, setting->high);
        break;
    case SSM__SETTING_CHOICE:
        snprintf(out, 128, "one of %s", setting->choices);
        break;
    case SSM__SETTING_TEXT:
    case SSM__SETTING_TEXTS:
        snprintf(out, 128, "a text that is not empty");
        break;
    }
}

static ssm_status fail_value(const ssm__setting_table *table, const ssm__setting *setting,
                             const char *value, ssm_error *err)
{
    char allowed[128];
    ssm__setting_allowed(setting, allowed);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s: %s is \"%.100s\"; expected %s",
                     table->owner, setting->key, value, allowed);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A decimal number that ends at one of `ends`, or at the end of the text. */
static bool parse_integer(const char *text, const char *ends, int64_t *out, const char **rest)
{
    char *end = NULL;
    if (*text != '-' && (*text < '0' || *text > '9')) {
        return false; /* strtoll also takes spaces and a plus */
    }
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || (*end != '\0' && strchr(ends, *end) == NULL)) {
        return false;
    }
    *out = value;
    *rest = end;
    return true;
}

static bool parse_real(const char *text, double *out)
{
    char *end = NULL;
    if (*text == '\0' || strchr("-.0123456789", *text) == NULL) {
        return false;
    }
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

static bool parse_choice(const char *choices, const char *text, int64_t *out)
{
    size_t bytes = 0;
    const char *choice = NULL;
    for (int64_t i = 0; (choice = choice_at(choices, i, &bytes)) != NULL; i++) {
        if (strlen(text) == bytes && memcmp(text, choice, bytes) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Keeps the list rising and without repetitions. */
static ssm_status insert(ssm__integers *list, int64_t value, ssm_error *err)
{
    int64_t at = 0;
    while (at < list->count && list->values[at] < value) {
        at++;
    }
    if (at < list->count && list->values[at] == value) {
        return SSM_STATUS_OK;
    }
    const size_t bytes = (size_t)(list->count + 1) * sizeof *list->values;
    int64_t *grown = realloc(list->values, bytes);
    if (grown == NULL) {
        return ssm__fail_memory(err, "a list of numbers", bytes);
    }
    memmove(grown + at + 1, grown + at, (size_t)(list->count - at) * sizeof *grown);
    grown[at] = value;
    *list = (ssm__integers){grown, list->count + 1};
    return SSM_STATUS_OK;
}

static ssm_status set_integers(const ssm__setting_table *table, const ssm__setting *setting,
                               const char *text, ssm__integers *list, ssm_error *err)
{
    for (const char *at = text;; at++) {
        int64_t value = 0;
        if (!parse_integer(at, ",", &value, &at) || value < setting->min || value > setting->max) {
            return fail_value(table, setting, text, err);
        }
        SSM__TRY(insert(list, value, err));
        if (*at == '\0') {
            return SSM_STATUS_OK;
        }
    }
}

static ssm_status add_text(const char *text, ssm__texts *list, ssm_error *err)
{
    const size_t bytes = (size_t)(list->count + 1) * sizeof *list->values;
    char **grown = realloc(list->values, bytes);
    if (grown == NULL) {
        return ssm__fail_memory(err, "a list of texts", bytes);
    }
    list->values = grown;
    grown[list->count] = strdup(text);
    if (grown[list->count] == NULL) {
        return ssm__fail_memory(err, "a text", strlen(text));
    }
    list->count++;
    return SSM_STATUS_OK;
}

static ssm_status set_text(const char *text, char **out, ssm_error *err)
{
    *out = strdup(text);
    return *out == NULL ? ssm__fail_memory(err, "a text", strlen(text)) : SSM_STATUS_OK;
}

static ssm_status set_value(const ssm__setting_table *table, const ssm__setting *setting,
                            const char *text, void *object, ssm_error *err)
{
    void *into = field(setting, object);
    const char *rest = NULL;
    int64_t integer = 0;
    double real = 0;
    switch (setting->kind) {
    case SSM__SETTING_INTEGER:
        if (!parse_integer(text, "", &integer, &rest) || integer < setting->min ||
            integer > setting->max) {
            return fail_value(table, setting, text, err);
        }
        *(int64_t *)into = integer;
        return SSM_STATUS_OK;
    case SSM__SETTING_REAL:
        if (!parse_real(text, &real) || real < setting->low || real > setting->high) {
            return fail_value(table, setting, text, err);
        }
        *(double *)into = real;
        return SSM_STATUS_OK;
    case SSM__SETTING_CHOICE:
        return parse_choice(setting->choices, text, into) ? SSM_STATUS_OK
                                                          : fail_value(table, setting, text, err);
    case SSM__SETTING_INTEGERS:
        return set_integers(table, setting, text, into, err);
    case SSM__SETTING_TEXT:
        return text[0] == '\0' ? fail_value(table, setting, text, err) : set_text(text, into, err);
    case SSM__SETTING_TEXTS:
        return text[0] == '\0' ? fail_value(table, setting, text, err) : add_text(text, into, err);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__settings_defaults(const ssm__setting_table *table, void *object, ssm_error *err)
{
    for (int64_t i = 0; i < table->count; i++) {
        const ssm__setting *setting = &table->settings[i];
        if (setting->fallback != NULL) {
            SSM__TRY(set_value(table, setting, setting->fallback, object, err));
        }
    }
    return SSM_STATUS_OK;
}

static void free_value(const ssm__setting *setting, void *object)
{
    void *into = field(setting, object);
    if (setting->kind == SSM__SETTING_INTEGERS) {
        ssm__integers *list = into;
        free(list->values);
        *list = (ssm__integers){0};
    } else if (setting->kind == SSM__SETTING_TEXT) {
        char **text = into;
        free(*text);
        *text = NULL;
    } else if (setting->kind == SSM__SETTING_TEXTS) {
        ssm__texts *list = into;
        for (int64_t i = 0; i < list->count; i++) {
            free(list->values[i]);
        }
        free(list->values);
        *list = (ssm__texts){0};
    }
}

void ssm__settings_free(const ssm__setting_table *table, void *object)
{
    for (int64_t i = 0; i < table->count; i++) {
        free_value(&table->settings[i], object);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

void ssm__list_names(const char *const *names, char *out, size_t size)
{
    out[0] = '\0';
    for (int i = 0; names[i] != NULL; i++) {
        const size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
}

static ssm_status fail_key(const char *what, const char *noun, const char *key,
                           const char *const *allowed, ssm_error *err)
{
    char list[512];
    const char *nearest = ssm_nearest(key, allowed);
    ssm__list_names(allowed, list, sizeof list);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "%s has no %s \"%.100s\"%s%s%s; expected %s", what, noun, key,
                     nearest == NULL ? "" : ", did you mean \"", nearest == NULL ? "" : nearest,
                     nearest == NULL ? "" : "\"?", list);
}

static ssm_status fail_setting(const ssm__setting_table *table, const char *key, ssm_error *err)
{
    enum { MAX = 32 };
    const char *keys[MAX + 1] = {NULL};
    for (int64_t i = 0; i < table->count && i < MAX; i++) {
        keys[i] = table->settings[i].key;
    }
    return fail_key(table->owner, "setting", key, keys, err);
}

ssm_status ssm__check_keys(const json_t *object, const char *what, const char *const *allowed,
                           ssm_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        int i = 0;
        while (allowed[i] != NULL && strcmp(allowed[i], key) != 0) {
            i++;
        }
        if (allowed[i] == NULL) {
            return fail_key(what, "key", key, allowed, err);
        }
    }
    return SSM_STATUS_OK;
}

static bool is_list(const ssm__setting *setting)
{
    return setting->kind == SSM__SETTING_INTEGERS || setting->kind == SSM__SETTING_TEXTS;
}

/* table->count: none has the key. */
static int64_t find_setting(const ssm__setting_table *table, const char *key)
{
    int64_t i = 0;
    while (i < table->count && strcmp(table->settings[i].key, key) != 0) {
        i++;
    }
    return i;
}

ssm_status ssm__settings_set(const ssm__setting_table *table, const char *key, const char *value,
                             bool *given, void *object, ssm_error *err)
{
    const int64_t i = find_setting(table, key);
    if (i == table->count) {
        return fail_setting(table, key, err);
    }
    const ssm__setting *setting = &table->settings[i];
    if (given[i] && !is_list(setting)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s: %s is given twice", table->owner,
                         key);
    }
    if (!given[i]) {
        free_value(setting, object);
    }
    given[i] = true;
    return set_value(table, setting, value, object, err);
}

static bool takes_numbers(const ssm__setting_table *table, const char *key)
{
    const int64_t i = find_setting(table, key);
    const ssm__setting_kind kind = i < table->count ? table->settings[i].kind : SSM__SETTING_TEXT;
    return kind == SSM__SETTING_INTEGER || kind == SSM__SETTING_REAL ||
           kind == SSM__SETTING_INTEGERS;
}

/* A value as it would stand on a command line. Numbers keep all their digits. */
static ssm_status set_scalar(const ssm__setting_table *table, const char *key, const json_t *value,
                             bool *given, void *object, ssm_error *err)
{
    char text[40];
    if (json_is_string(value)) {
        return ssm__settings_set(table, key, json_string_value(value), given, object, err);
    }
    if (json_is_integer(value)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
    } else if (json_is_boolean(value) && !takes_numbers(table, key)) {
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
    } else {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "%s: \"%.100s\" is neither a number nor a text; expected a number, a text or a "
            "list of them",
            table->owner, key);
    }
    return ssm__settings_set(table, key, text, given, object, err);
}

ssm_status ssm__settings_set_json(const ssm__setting_table *table, const char *key,
                                  const json_t *value, bool *given, void *object, ssm_error *err)
{
    const int64_t index = find_setting(table, key);
    if (index == table->count) {
        return fail_setting(table, key, err);
    }
    if (json_is_null(value)) { /* as a log or a recipe prints what is not set */
        return SSM_STATUS_OK;
    }
    if (!json_is_array(value)) {
        return set_scalar(table, key, value, given, object, err);
    }
    const ssm__setting *setting = &table->settings[index];
    const bool empty = json_array_size(value) == 0 && setting->fallback != NULL;
    if (!is_list(setting) || empty) {
        char allowed[128];
        ssm__setting_allowed(setting, allowed);
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s: %s is %s list; expected %s",
                         table->owner, key, empty ? "an empty" : "a", allowed);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        SSM__TRY(set_scalar(table, key, json_array_get(value, i), given, object, err));
    }
    return SSM_STATUS_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

static json_t *list_json(const ssm__setting *setting, const void *from)
{
    json_t *array = json_array();
    const ssm__integers *integers = from;
    const ssm__texts *texts = from;
    const bool of_integers = setting->kind == SSM__SETTING_INTEGERS;
    const int64_t count = of_integers ? integers->count : texts->count;
    for (int64_t i = 0; array != NULL && i < count; i++) {
        json_t *value =
            of_integers ? json_integer(integers->values[i]) : json_string(texts->values[i]);
        if (value == NULL || json_array_append_new(array, value) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *value_json(const ssm__setting *setting, const void *object)
{
    const void *from = field_const(setting, object);
    size_t bytes = 0;
    const char *text = NULL;
    switch (setting->kind) {
    case SSM__SETTING_INTEGER:
        return json_integer(*(const int64_t *)from);
    case SSM__SETTING_REAL:
        return json_real(*(const double *)from);
    case SSM__SETTING_CHOICE:
        text = choice_at(setting->choices, *(const int64_t *)from, &bytes);
        return json_stringn(text, bytes);
    case SSM__SETTING_TEXT:
        text = *(char *const *)from;
        return text == NULL ? json_null() : json_string(text);
    case SSM__SETTING_INTEGERS:
    case SSM__SETTING_TEXTS:
        break;
    }
    return list_json(setting, from);
}

json_t *ssm__settings_json(const ssm__setting_table *table, const void *object)
{
    json_t *out = json_object();
    for (int64_t i = 0; out != NULL && i < table->count; i++) {
        json_t *value = value_json(&table->settings[i], object);
        if (value == NULL || json_object_set_new(out, table->settings[i].key, value) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
