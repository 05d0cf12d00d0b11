#include "test_text_generator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_paths.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"

json_t *read_json_lines(const char *name)
{
    char relative[TEST_PATH_MAX];
    char path[TEST_PATH_MAX];
    snprintf(relative, sizeof relative, "tokenizer/%s", name);
    FILE *file = fopen(test_golden_path(path, relative), "rb");
    assert_non_null(file);
    json_t *lines = json_array();
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    while ((bytes = getline(&line, &capacity, file)) > 0) {
        json_error_t error;
        json_t *value = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, &error);
        assert_non_null(value);
        assert_int_equal(json_array_append_new(lines, value), 0);
    }
    free(line);
    fclose(file);
    return lines;
}

static void add(text_generator *generator, const void *data, size_t bytes)
{
    assert_int_equal(ssm__text_append(&generator->text, data, bytes, NULL), SSM_STATUS_OK);
}

/* The fragment as hexadecimal digits. */
static ssm_text read_fragment(const char *hex)
{
    ssm_text text = {0};
    for (size_t i = 0; hex[i] != '\0'; i += 2) {
        char digits[3] = {hex[i], hex[i + 1], '\0'};
        unsigned char byte = (unsigned char)strtoul(digits, NULL, 16);
        assert_int_equal(ssm__text_append(&text, &byte, 1, NULL), SSM_STATUS_OK);
    }
    return text;
}

text_generator text_generator_create(void)
{
    json_t *lines = read_json_lines("generator.json");
    text_generator generator = {.spec = json_incref(json_array_get(lines, 0))};
    json_decref(lines);
    generator.seed = strtoull(json_string_value(json_object_get(generator.spec, "seed")), NULL, 16);
    generator.strings = json_integer_value(json_object_get(generator.spec, "strings"));
    generator.block = json_integer_value(json_object_get(generator.spec, "block"));
    generator.ranges = json_object_get(generator.spec, "ranges");
    const json_t *fragments = json_object_get(generator.spec, "fragments");
    generator.n_fragments = json_array_size(fragments);
    generator.fragments = calloc(generator.n_fragments + 1, sizeof *generator.fragments);
    assert_non_null(generator.fragments);
    assert_true(generator.n_fragments > 0 && json_array_size(generator.ranges) > 0);
    for (size_t i = 0; i < generator.n_fragments; i++) {
        generator.fragments[i] = read_fragment(json_string_value(json_array_get(fragments, i)));
    }
    return generator;
}

void text_generator_free(text_generator *generator)
{
    for (size_t i = 0; i < generator->n_fragments; i++) {
        ssm_text_free(&generator->fragments[i]);
    }
    free(generator->fragments);
    ssm_text_free(&generator->text);
    json_decref(generator->spec);
}

uint64_t text_generator_next(text_generator *generator)
{
    generator->state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = generator->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t below(text_generator *generator, uint64_t count)
{
    return text_generator_next(generator) % count;
}

static uint32_t code_point(text_generator *generator)
{
    const json_t *range =
        json_array_get(generator->ranges, below(generator, json_array_size(generator->ranges)));
    uint64_t low = (uint64_t)json_integer_value(json_array_get(range, 0));
    uint64_t high = (uint64_t)json_integer_value(json_array_get(range, 1));
    return (uint32_t)(low + below(generator, high - low + 1));
}

static void add_code_point(text_generator *generator, uint32_t c)
{
    unsigned char bytes[4];
    add(generator, bytes, ssm__utf8_write(c, bytes));
}

static void add_part(text_generator *generator)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t choice = below(generator, 16);
    const ssm_text *fragment = NULL;
    uint32_t repeated = 0;
    if (choice <= 7 || choice == 14) {
        fragment = &generator->fragments[below(generator, generator->n_fragments)];
    } else if (choice == 15) {
        repeated = code_point(generator);
        add(generator, "e", 1);
    }
    static const uint64_t most[] = {1, 1, 1, 1, 1, 1, 1, 1, 60, 7, 12, 6, 5, 5, 40, 3};
    uint64_t times = choice <= 7 ? 1 : 1 + below(generator, most[choice]);
    for (uint64_t i = 0; i < times; i++) {
        if (fragment != NULL) {
            add(generator, fragment->data, fragment->bytes);
        } else if (choice == 8) {
            add(generator, " ", 1);
        } else if (choice == 9) {
            add(generator, &"0123456789"[below(generator, 10)], 1);
        } else if (choice == 10) {
            add(generator, &letters[below(generator, 52)], 1);
        } else if (choice == 11) {
            add_code_point(generator, (uint32_t)(0x20 + below(generator, 95)));
        } else {
            add_code_point(generator, choice == 15 ? repeated : code_point(generator));
        }
    }
}

const ssm_text *text_generator_string(text_generator *generator, int64_t index)
{
    generator->state = generator->seed + (uint64_t)index;
    generator->text.bytes = 0;
    uint64_t parts = 1 + below(generator, 12);
    for (uint64_t i = 0; i < parts; i++) {
        add_part(generator);
    }
    return &generator->text;
}

uint64_t fnv_add(uint64_t state, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < bytes; i++) {
        state = (state ^ from[i]) * UINT64_C(0x100000001B3);
    }
    return state;
}

uint64_t fnv_add_u32(uint64_t state, uint32_t number)
{
    unsigned char bytes[4] = {(unsigned char)number, (unsigned char)(number >> 8),
                              (unsigned char)(number >> 16), (unsigned char)(number >> 24)};
    return fnv_add(state, bytes, sizeof bytes);
}
