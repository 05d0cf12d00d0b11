/* base/rng.c: counter-based random numbers with named streams.
 *
 * Block b of the stream (seed, name) is Philox4x32-10 with the key = seed and the counter
 * (b low, b high, s low, s high), s = XXH3-64 of the name. */
#include "base/rng.h"

#include <ssmscope/base.h>

#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { PHILOX_ROUNDS = 10 };

/* The constants of Salmon et al., table 2: two multipliers and two Weyl increments of the key. */
static const uint32_t philox_multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t philox_weyl[2] = {0x9E3779B9u, 0xBB67AE85u};

void ssm__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t state[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t round_key[2] = {key[0], key[1]};
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product0 = (uint64_t)philox_multiplier[0] * state[0];
        uint64_t product1 = (uint64_t)philox_multiplier[1] * state[2];
        uint32_t next[4] = {
            (uint32_t)(product1 >> 32) ^ state[1] ^ round_key[0], (uint32_t)product1,
            (uint32_t)(product0 >> 32) ^ state[3] ^ round_key[1], (uint32_t)product0};
        memcpy(state, next, sizeof state);
        round_key[0] += philox_weyl[0];
        round_key[1] += philox_weyl[1];
    }
    memcpy(out, state, sizeof state);
}

ssm_rng ssm_rng_create(uint64_t seed, const char *stream)
{
    ssm_rng rng = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                   .stream = XXH3_64bits(stream, strlen(stream)),
                   .counter = 0,
                   .used = 4};
    return rng;
}

uint32_t ssm_rng_u32(ssm_rng *rng)
{
    if (rng->used >= 4) {
        const uint32_t counter[4] = {(uint32_t)rng->counter, (uint32_t)(rng->counter >> 32),
                                     (uint32_t)rng->stream, (uint32_t)(rng->stream >> 32)};
        ssm__philox(counter, rng->key, rng->buffer);
        rng->counter++;
        rng->used = 0;
    }
    return rng->buffer[rng->used++];
}

/* The first number drawn is the upper half. */
static uint64_t next_u64(ssm_rng *rng)
{
    uint64_t high = ssm_rng_u32(rng);
    return high << 32 | ssm_rng_u32(rng);
}

double ssm_rng_uniform(ssm_rng *rng)
{
    return (double)(next_u64(rng) >> 11) * 0x1p-53;
}

double ssm_rng_normal(ssm_rng *rng)
{
    /* Only the cosine half of the pair is used: every normal costs exactly one block of four
     * numbers, and the record holds no number between calls. 1 − u lies in (0, 1]. */
    const double two_pi = 6.283185307179586476925;
    double radius = sqrt(-2.0 * log(1.0 - ssm_rng_uniform(rng)));
    return radius * cos(two_pi * ssm_rng_uniform(rng));
}

uint64_t ssm_rng_below(ssm_rng *rng, uint64_t n)
{
    if (n <= 1) {
        return 0;
    }
    /* Draws above the largest multiple of n are thrown away; 2^64 mod n = (−n) mod n. */
    uint64_t excess = (0 - n) % n;
    uint64_t draw;
    do {
        draw = next_u64(rng);
    } while (draw > UINT64_MAX - excess);
    return draw % n;
}
