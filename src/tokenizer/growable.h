/* tokenizer/growable.h: appending to the public growable lists. */
#ifndef SSM_TOKENIZER_GROWABLE_H
#define SSM_TOKENIZER_GROWABLE_H

#include <ssmscope/tokenizer.h>

/* Makes room for `more` ids beyond count. Errors: MEMORY. */
ssm_status ssm__ids_reserve(ssm_ids *ids, int64_t more, ssm_error *err);
ssm_status ssm__ids_append(ssm_ids *ids, const int32_t *data, int64_t count, ssm_error *err);
/* Appends one id; the room is there in all but log(count) calls. */
static inline ssm_status ssm__ids_push(ssm_ids *ids, int32_t id, ssm_error *err)
{
    if (ids->count == ids->capacity) {
        ssm_status status = ssm__ids_reserve(ids, 1, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
    }
    ids->data[ids->count++] = id;
    return SSM_STATUS_OK;
}

/* Makes room for `more` bytes and the terminating NUL. Errors: MEMORY. */
ssm_status ssm__text_reserve(ssm_text *text, size_t more, ssm_error *err);
/* Appends bytes and keeps the NUL behind them; bytes may be 0. */
ssm_status ssm__text_append(ssm_text *text, const void *data, size_t bytes, ssm_error *err);

/* Grows *data (elements of `size` bytes) so that `wanted` fit; at least doubles. Errors: MEMORY. */
ssm_status ssm__grow(void **data, size_t *capacity, size_t wanted, size_t size, const char *what,
                     ssm_error *err);

#endif
