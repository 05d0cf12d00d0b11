/* tokenizer/growable.c: the public growable lists and the helper that grows arrays. */
#include "tokenizer/growable.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

ssm_status ssm__grow(void **data, size_t *capacity, size_t wanted, size_t size, const char *what,
                     ssm_error *err)
{
    if (wanted <= *capacity) {
        return SSM_STATUS_OK;
    }
    size_t larger = *capacity < 8 ? 8 : *capacity;
    if (!ssm__add_size(larger, *capacity, &larger) || larger < wanted) {
        larger = wanted;
    }
    size_t bytes;
    if (!ssm__mul_size(larger, size, &bytes)) {
        return ssm__fail_memory(err, what, SIZE_MAX);
    }
    void *moved = realloc(*data, bytes);
    if (moved == NULL) {
        return ssm__fail_memory(err, what, bytes);
    }
    *data = moved;
    *capacity = larger;
    return SSM_STATUS_OK;
}

ssm_status ssm__ids_reserve(ssm_ids *ids, int64_t more, ssm_error *err)
{
    void *data = ids->data;
    size_t capacity = (size_t)ids->capacity;
    SSM__TRY(ssm__grow(&data, &capacity, (size_t)ids->count + (size_t)more, sizeof *ids->data,
                       "a list of token ids", err));
    ids->data = data;
    ids->capacity = (int64_t)capacity;
    return SSM_STATUS_OK;
}

ssm_status ssm__ids_append(ssm_ids *ids, const int32_t *data, int64_t count, ssm_error *err)
{
    if (count == 0) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(ssm__ids_reserve(ids, count, err));
    memcpy(ids->data + ids->count, data, (size_t)count * sizeof *data);
    ids->count += count;
    return SSM_STATUS_OK;
}

void ssm_ids_free(ssm_ids *ids)
{
    if (ids != NULL) {
        free(ids->data);
        *ids = (ssm_ids){0};
    }
}

ssm_status ssm__text_reserve(ssm_text *text, size_t more, ssm_error *err)
{
    size_t wanted;
    if (!ssm__add_size(text->bytes, more, &wanted) || !ssm__add_size(wanted, 1, &wanted)) {
        return ssm__fail_memory(err, "text", SIZE_MAX);
    }
    void *data = text->data;
    SSM__TRY(ssm__grow(&data, &text->capacity, wanted, 1, "text", err));
    text->data = data;
    return SSM_STATUS_OK;
}

ssm_status ssm__text_append(ssm_text *text, const void *data, size_t bytes, ssm_error *err)
{
    SSM__TRY(ssm__text_reserve(text, bytes, err));
    if (bytes > 0) {
        memcpy(text->data + text->bytes, data, bytes);
        text->bytes += bytes;
    }
    text->data[text->bytes] = '\0';
    return SSM_STATUS_OK;
}

void ssm_text_free(ssm_text *text)
{
    if (text != NULL) {
        free(text->data);
        *text = (ssm_text){0};
    }
}
