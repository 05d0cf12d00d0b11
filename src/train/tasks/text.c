#include "train/tasks/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "tokenizer/growable.h"

enum { BYTES = 256 };

ssm_status ssm__alphabet_open(ssm_train_task *task, const char *name, ssm__alphabet *out,
                              ssm_error *err)
{
    *out = (ssm__alphabet){.vocab_size = BYTES};
    if (strcmp(name, "bytes") == 0) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(ssm_tokenizer_open(name, &out->tokenizer, err));
    out->vocab_size = ssm_tokenizer_vocab_size(out->tokenizer);
    return ssm__task_add_digest(task, ssm_tokenizer_digest(out->tokenizer), err);
}

void ssm__alphabet_close(ssm__alphabet *alphabet)
{
    ssm_tokenizer_free(alphabet->tokenizer);
    *alphabet = (ssm__alphabet){0};
}

ssm_status ssm__alphabet_encode(const ssm__alphabet *alphabet, const char *text, size_t bytes,
                                ssm_ids *ids, ssm_error *err)
{
    if (alphabet->tokenizer != NULL) {
        const ssm_encode_options options = {.invalid_utf8 = SSM_INVALID_UTF8_ERROR};
        return ssm_tokenizer_encode(alphabet->tokenizer, text, bytes, &options, ids, err);
    }
    SSM__TRY(ssm__ids_reserve(ids, (int64_t)bytes, err));
    for (size_t i = 0; i < bytes; i++) {
        ids->data[ids->count++] = (unsigned char)text[i];
    }
    return SSM_STATUS_OK;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_text(const char *text, size_t bytes, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < bytes;) {
        char piece[8];
        const size_t length = ssm__utf8_length(text + i, bytes - i);
        const char escape = text[i] == '\n'   ? 'n'
                            : text[i] == '\t' ? 't'
                            : text[i] == '\r' ? 'r'
                                              : '\0';
        if (escape != '\0') {
            snprintf(piece, sizeof piece, "\\%c", escape);
        } else if (text[i] == ' ') {
            snprintf(piece, sizeof piece, "␣");
        } else if (length == 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7F) {
            snprintf(piece, sizeof piece, "\\x%02x", (unsigned char)text[i]);
        } else {
            snprintf(piece, sizeof piece, "%.*s", (int)length, text + i);
        }
        if (used + strlen(piece) + 1 > size) {
            return; /* never half a character */
        }
        memcpy(out + used, piece, strlen(piece) + 1);
        used += strlen(piece);
        i += length == 0 ? 1 : length;
    }
}

void ssm__alphabet_token(const ssm__alphabet *alphabet, int32_t id, char *out, size_t size)
{
    if (alphabet->tokenizer == NULL) {
        const char byte = (char)(unsigned char)id;
        print_text(&byte, 1, out, size);
        return;
    }
    ssm_text text = {0};
    if (ssm_tokenizer_decode(alphabet->tokenizer, &id, 1, false, &text, NULL) == SSM_STATUS_OK &&
        text.data != NULL) {
        print_text(text.data, text.bytes, out, size);
    } else {
        snprintf(out, size, "%d", (int)id);
    }
    ssm_text_free(&text);
}

ssm_status ssm__task_add_digest(ssm_train_task *task, const char *digest, ssm_error *err)
{
    const size_t used = task->files_digest == NULL ? 0 : strlen(task->files_digest);
    const size_t bytes = used + strlen(digest) + 2;
    char *grown = realloc(task->files_digest, bytes);
    if (grown == NULL) {
        return ssm__fail_memory(err, "a list of digests", bytes);
    }
    task->files_digest = grown;
    snprintf(grown + used, bytes - used, "%s\n", digest);
    return SSM_STATUS_OK;
}

/* ---- shuffles -------------------------------------------------------------------------------- */

static uint64_t feistel(const ssm_rng *stream, uint64_t epoch, int half, uint64_t value)
{
    enum { ROUNDS = 4 };
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        /* The stream's hash goes into the key, the epoch and the half into the counter. */
        const uint32_t key[2] = {stream->key[0] ^ (uint32_t)stream->stream,
                                 stream->key[1] ^ (uint32_t)(stream->stream >> 32)};
        const uint32_t counter[4] = {(uint32_t)right, round, (uint32_t)epoch,
                                     (uint32_t)(epoch >> 32)};
        uint32_t block[4];
        ssm__philox(counter, key, block);
        const uint64_t mixed = left ^ (block[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t ssm__task_shuffle(const ssm_train_task *task, const char *what, uint64_t epoch, int64_t n,
                          int64_t i)
{
    const ssm_rng stream = ssm__task_stream(task, what);
    int half = 1; /* 2^(2 half) ≥ n, at most four times as many */
    while (half < 31 && (int64_t)1 << (2 * half) < n) {
        half++;
    }
    uint64_t value = (uint64_t)i;
    do {
        value = feistel(&stream, epoch, half, value);
    } while (value >= (uint64_t)n);
    return (int64_t)value;
}
