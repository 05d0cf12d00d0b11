/* train/recipe_compare.c: what two recipes differ in, and how many digits one needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/recipe.h"

static bool exact(double value, size_t digits)
{
    char text[64];
    snprintf(text, sizeof text, "%.*g", (int)digits, value);
    return strtod(text, NULL) == value;
}

/* Not recursive: a recipe is two deep. */
size_t ssm__json_digits(const json_t *root)
{
    size_t digits = 6;
    const char *key;
    json_t *section_value;
    json_object_foreach((json_t *)(uintptr_t)root, key, section_value)
    {
        const char *inner;
        json_t *value;
        json_object_foreach(section_value, inner, value)
        {
            while (json_is_real(value) && digits < 17 && !exact(json_real_value(value), digits)) {
                digits++;
            }
        }
    }
    return digits;
}

static void print_value(const json_t *value, char out[96])
{
    char *text =
        value == NULL
            ? NULL
            : ssm__json_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    snprintf(out, 96, "%s", value == NULL ? "not set" : text == NULL ? "?" : text);
    free(text);
}

static void note(const char *section_name, const char *key, const json_t *was, const json_t *is,
                 char *out, size_t size)
{
    char old[96], new[96];
    const size_t used = strlen(out);
    if (json_equal((json_t *)(uintptr_t)was, (json_t *)(uintptr_t)is)) {
        return;
    }
    print_value(was, old);
    print_value(is, new);
    snprintf(out + used, size - used, "%s%s%s%s is %s, was %s", used == 0 ? "" : "; ", section_name,
             section_name[0] == '\0' ? "" : ".", key, new, old);
}

static void compare_objects(const char *name, const json_t *was, const json_t *is, char *out,
                            size_t size)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)is, key, value)
    {
        const json_t *old = json_object_get(was, key);
        if (!json_is_object(value) || !json_is_object(old)) {
            note(name, key, old, value, out, size);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)was, key, value)
    {
        if (json_object_get(is, key) == NULL) {
            note(name, key, value, NULL, out, size);
        }
    }
}

bool ssm__recipe_differs(const json_t *was, const json_t *is, char *out, size_t size)
{
    const char *key;
    json_t *value;
    out[0] = '\0';
    compare_objects("", was, is, out, size);
    json_object_foreach((json_t *)(uintptr_t)is, key, value)
    {
        const json_t *old = json_object_get(was, key);
        if (json_is_object(value) && json_is_object(old)) {
            compare_objects(key, old, value, out, size);
        }
    }
    return out[0] != '\0';
}
