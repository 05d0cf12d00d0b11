/* tokenizer/vocab.c: a table of tokens out of tokenizer.json. */
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"

static const char WHERE[] = "model";

static ssm_status check_ids_distinct(const char *path, const ssm__string_map *vocab, ssm_error *err)
{
    int32_t largest = 0;
    for (size_t i = 0; i < vocab->count; i++) {
        largest = vocab->entries[i].value > largest ? vocab->entries[i].value : largest;
    }
    size_t size = ((size_t)largest + 1) * sizeof(uint32_t);
    uint32_t *owner = calloc((size_t)largest + 1, sizeof(uint32_t));
    if (owner == NULL) {
        return ssm__fail_memory(err, "the vocabulary", size);
    }
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < vocab->count && status == SSM_STATUS_OK; i++) {
        uint32_t *taken = &owner[vocab->entries[i].value];
        if (*taken != 0) {
            status = ssm__fail_field(
                path, WHERE, err, "vocab gives the id %d to \"%.100s\" and to \"%.100s\"",
                vocab->entries[i].value, ssm__string_map_text(vocab, *taken - 1),
                ssm__string_map_text(vocab, i));
        }
        *taken = (uint32_t)i + 1;
    }
    free(owner);
    return status;
}

ssm_status ssm__vocab_parse(const char *path, const json_t *spec, ssm__string_map *out,
                            ssm_error *err)
{
    const json_t *vocab = json_object_get(spec, "vocab");
    if (!json_is_object(vocab) || json_object_size(vocab) == 0) {
        return ssm__fail_field(path, WHERE, err, "needs a non-empty object \"vocab\"");
    }
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > SSM__LARGEST_ID) {
            return ssm__fail_field(path, WHERE, err, "vocab \"%.100s\" needs an id from 0 to %d",
                                   token, SSM__LARGEST_ID);
        }
        SSM__TRY(ssm__string_map_add(out, token, strlen(token), (int32_t)id, err));
    }
    return check_ids_distinct(path, out, err);
}

ssm_status ssm__vocab_field(const char *path, const json_t *spec, const char *name,
                            const ssm__string_map *vocab, int32_t *id, ssm_error *err)
{
    const json_t *token;
    SSM__TRY(ssm__field_string(path, WHERE, spec, name, &token, err));
    *id = ssm__string_map_get(vocab, json_string_value(token), json_string_length(token));
    return *id >= 0 ? SSM_STATUS_OK
                    : ssm__fail_field(path, WHERE, err, "%s \"%.100s\" is not in the vocabulary",
                                      name, json_string_value(token));
}

void ssm__vocab_byte_tokens(const ssm__string_map *vocab, int32_t ids[256])
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char token[8];
        int bytes = snprintf(token, sizeof token, "<0x%02X>", byte);
        ids[byte] = ssm__string_map_get(vocab, token, (size_t)bytes);
    }
}
