/* base/digest.c: XXH3-128 digests as text. */
#include "base/digest.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct ssm__digest {
    XXH3_state_t *state;
};

/* High half first: the canonical order of the XXH128 specification, as `xxhsum -H2` prints it. */
static void write_text(XXH128_hash_t hash, char out[64])
{
    snprintf(out, 64, "xxh3-128:%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

ssm_status ssm__digest_create(ssm__digest **out, ssm_error *err)
{
    *out = NULL;
    ssm__digest *digest = malloc(sizeof *digest);
    if (digest == NULL) {
        return ssm__fail_memory(err, "a digest", sizeof *digest);
    }
    digest->state = XXH3_createState();
    if (digest->state == NULL) {
        free(digest);
        return ssm__fail_memory(err, "the state of a digest", 0);
    }
    XXH3_128bits_reset(digest->state);
    *out = digest;
    return SSM_STATUS_OK;
}

void ssm__digest_add(ssm__digest *digest, const void *data, size_t bytes)
{
    if (bytes > 0) {
        XXH3_128bits_update(digest->state, data, bytes);
    }
}

void ssm__digest_add_string(ssm__digest *digest, const char *text)
{
    size_t bytes = strlen(text);
    unsigned char length[8]; /* little-endian, the same on every machine */
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)((uint64_t)bytes >> (8 * i));
    }
    ssm__digest_add(digest, text, bytes);
    ssm__digest_add(digest, length, sizeof length);
}

void ssm__digest_finish(ssm__digest *digest, char out[64])
{
    if (digest == NULL) {
        return;
    }
    if (out != NULL) {
        write_text(XXH3_128bits_digest(digest->state), out);
    }
    XXH3_freeState(digest->state);
    free(digest);
}

void ssm__digest_bytes(const void *data, size_t bytes, char out[64])
{
    write_text(XXH3_128bits(bytes > 0 ? data : "", bytes), out);
}
