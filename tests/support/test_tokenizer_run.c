#include "test_tokenizer_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/tokenizer.h"

void golden_run_free(golden_run *r)
{
    ssm_ids_free(&r->ids);
    ssm_text_free(&r->text);
    ssm_tokenizer_free(r->tokenizer);
}

static void encode(golden_run *r, const char *text, size_t bytes)
{
    ssm_error err = {0};
    r->ids.count = 0;
    if (ssm_tokenizer_encode(r->tokenizer, text, bytes, &r->options, &r->ids, &err) !=
        SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

static void decode(golden_run *r, bool skip_special)
{
    ssm_error err = {0};
    r->text.bytes = 0;
    if (ssm_tokenizer_decode(r->tokenizer, r->ids.data, r->ids.count, skip_special, &r->text,
                             &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
}

/* Digests of `count` generated strings from `first` on. */
golden_digests golden_digest(golden_run *r, text_generator *generator, int64_t first, int64_t count)
{
    golden_digests state = {FNV_START, FNV_START};
    for (int64_t i = first; i < first + count; i++) {
        const ssm_text *text = text_generator_string(generator, i);
        encode(r, text->data, text->bytes);
        decode(r, false);
        state.ids = fnv_add_u32(state.ids, (uint32_t)r->ids.count);
        for (int64_t k = 0; k < r->ids.count; k++) {
            state.ids = fnv_add_u32(state.ids, (uint32_t)r->ids.data[k]);
        }
        state.decoded = fnv_add_u32(state.decoded, (uint32_t)r->text.bytes);
        state.decoded = fnv_add(state.decoded, r->text.data, r->text.bytes);
    }
    return state;
}

static void check_text(const ssm_text *got, const json_t *expected, const char *name, size_t index)
{
    if (got->bytes != json_string_length(expected) ||
        memcmp(got->data, json_string_value(expected), got->bytes) != 0) {
        fail_msg("%s case %zu decodes to \"%s\"", name, index, got->data);
    }
}

void golden_check_case(golden_run *r, const json_t *spec, const char *name, size_t index)
{
    const json_t *text = json_object_get(spec, "text");
    const json_t *ids = json_object_get(spec, "ids");
    encode(r, json_string_value(text), json_string_length(text));
    if ((size_t)r->ids.count != json_array_size(ids)) {
        fail_msg("%s case %zu \"%s\": %lld ids, expected %zu", name, index, json_string_value(text),
                 (long long)r->ids.count, json_array_size(ids));
    }
    for (int64_t k = 0; k < r->ids.count; k++) {
        if (r->ids.data[k] != json_integer_value(json_array_get(ids, (size_t)k))) {
            fail_msg("%s case %zu \"%s\": id %lld is %d, expected %lld", name, index,
                     json_string_value(text), (long long)k, r->ids.data[k],
                     (long long)json_integer_value(json_array_get(ids, (size_t)k)));
        }
    }
    decode(r, false);
    check_text(&r->text, json_object_get(spec, "decoded"), name, index);
    decode(r, true);
    check_text(&r->text, json_object_get(spec, "skipped"), name, index);
}

/* The same text in pieces. */
static void check_streaming(golden_run *r, const char *name, bool skip_special)
{
    ssm_error err = {0};
    ssm_decoder *decoder = NULL;
    ssm_text joined = {0};
    assert_int_equal(ssm_decoder_create(r->tokenizer, skip_special, &decoder, &err), 0);
    for (int64_t i = 0; i < r->ids.count; i++) {
        assert_int_equal(ssm_decoder_push(decoder, r->ids.data[i], &joined, &err), 0);
    }
    assert_int_equal(ssm_decoder_finish(decoder, &joined, &err), 0);
    if (joined.bytes != r->text.bytes || memcmp(joined.data, r->text.data, joined.bytes) != 0) {
        fail_msg("%s: streaming gives \"%s\", not \"%s\"", name, joined.data, r->text.data);
    }
    ssm_decoder_free(decoder);
    ssm_text_free(&joined);
}

void golden_check_random(golden_run *r, const char *name, const char *expected)
{
    enum { LISTS = 400, LOW = 260 };
    text_generator numbers = {0};
    uint64_t state = FNV_START;
    uint64_t size = (uint64_t)ssm_tokenizer_vocab_size(r->tokenizer);
    for (uint64_t index = 0; index < LISTS; index++) {
        static int32_t list[16];
        numbers.state = index;
        int64_t draws = 1 + (int64_t)(text_generator_next(&numbers) % 16);
        int64_t count = 0;
        for (int64_t i = 0; i < draws; i++) {
            bool low = text_generator_next(&numbers) % 2 == 0;
            int32_t id =
                (int32_t)(text_generator_next(&numbers) % (low && size > LOW ? LOW : size));
            if (r->tokenizer->tokens[id].present) { /* tokenizers passes over the others */
                list[count++] = id;
            }
        }
        ssm_ids kept = r->ids;
        r->ids = (ssm_ids){list, count, 16};
        decode(r, index % 2 == 1);
        check_streaming(r, name, index % 2 == 1);
        r->ids = kept;
        state = fnv_add_u32(state, (uint32_t)r->text.bytes);
        state = fnv_add(state, r->text.data, r->text.bytes);
    }
    char hex[40];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)state);
    if (strcmp(hex, expected) != 0) {
        fail_msg("%s: texts of random ids differ", name);
    }
}
