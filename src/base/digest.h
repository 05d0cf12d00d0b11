/* base/digest.h: XXH3-128 digests, printed as "xxh3-128:<32 hex digits>". */
#ifndef SSM_BASE_DIGEST_H
#define SSM_BASE_DIGEST_H

#include <ssmscope/base.h>

typedef struct ssm__digest ssm__digest;
ssm_status ssm__digest_create(ssm__digest **out, ssm_error *err);
void ssm__digest_add(ssm__digest *digest, const void *data, size_t bytes);
/* Adds the bytes and the length, so that ("ab","c") ≠ ("a","bc"). */
void ssm__digest_add_string(ssm__digest *digest, const char *text);
/* Writes the text and frees the digest; out NULL: frees only. */
void ssm__digest_finish(ssm__digest *digest, char out[64]);
void ssm__digest_bytes(const void *data, size_t bytes, char out[64]);

#endif
