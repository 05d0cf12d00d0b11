/* test_text_generator.h: the strings of tools/make_tokenizer_goldens.py, drawn again.
 *
 * The script's opening comment states the generator; fragments and ranges are in
 * tests/golden/tokenizer/generator.json. */
#ifndef TEST_TEXT_GENERATOR_H
#define TEST_TEXT_GENERATOR_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

typedef struct text_generator {
    json_t *spec;
    uint64_t seed;
    uint64_t state;
    int64_t strings;
    int64_t block;
    ssm_text *fragments;
    size_t n_fragments;
    const json_t *ranges;
    ssm_text text; /* the last string */
} text_generator;

/* Fails the test when the file is not as expected. Owner: the caller, text_generator_free. */
text_generator text_generator_create(void);
void text_generator_free(text_generator *generator);
/* String `index`; valid until the next call. */
const ssm_text *text_generator_string(text_generator *generator, int64_t index);
/* The next number of the stream (splitmix64). */
uint64_t text_generator_next(text_generator *generator);

/* FNV-1a, 64 bits, continued from `state`; begin with FNV_START. */
#define FNV_START UINT64_C(0xCBF29CE484222325)
uint64_t fnv_add(uint64_t state, const void *data, size_t bytes);
/* Adds a number as four bytes, the lowest first. */
uint64_t fnv_add_u32(uint64_t state, uint32_t number);

/* A JSON file of tests/golden/tokenizer with one value a line; an array of them. NUL in strings is
 * allowed. Owner: the caller, json_decref. */
json_t *read_json_lines(const char *name);

#endif
