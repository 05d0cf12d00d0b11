/* train/recipe_compare.c: what two recipes or experiments differ in, and how many digits one
 * needs. */
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

/* As deep as the newer one is. */
static void describe(const char *place, const json_t *was, const json_t *is, char *out, size_t size)
{
    const json_t *both[] = {is, was};
    if (json_equal((json_t *)(uintptr_t)was, (json_t *)(uintptr_t)is)) {
        return;
    }
    if (!json_is_object(was) || !json_is_object(is)) {
        char old[96], new[96];
        const size_t used = strlen(out);
        print_value(was, old);
        print_value(is, new);
        snprintf(out + used, size - used, "%s%s is %s, was %s", used == 0 ? "" : "; ", place, new,
                 old);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)both[i], key, value)
        {
            char inner[256];
            if (i == 0 || json_object_get(is, key) == NULL) {
                snprintf(inner, sizeof inner, "%.120s%s%.120s", place, place[0] == '\0' ? "" : ".",
                         key);
                describe(inner, json_object_get(was, key), json_object_get(is, key), out, size);
            }
        }
    }
}

bool ssm__json_differs(const json_t *was, const json_t *is, char *out, size_t size)
{
    out[0] = '\0';
    describe("", was, is, out, size);
    return out[0] != '\0';
}
