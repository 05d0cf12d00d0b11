#include "evaluate/mersenne.h"

enum { N = SSM__MERSENNE_WORDS, MIDDLE = 397 };

static void start(ssm__mersenne *g, uint32_t seed)
{
    g->words[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        const uint32_t before = g->words[i - 1];
        g->words[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
}

/* The generator's "init_by_array" with the one-word key {seed}. */
void ssm__mersenne_seed(ssm__mersenne *g, uint32_t seed)
{
    start(g, 19650218u);
    uint32_t i = 1;
    for (int k = 0; k < N; k++) {
        const uint32_t before = g->words[i - 1];
        g->words[i] = (g->words[i] ^ ((before ^ (before >> 30)) * 1664525u)) + seed;
        if (++i == N) {
            g->words[0] = g->words[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        const uint32_t before = g->words[i - 1];
        g->words[i] = (g->words[i] ^ ((before ^ (before >> 30)) * 1566083941u)) - i;
        if (++i == N) {
            g->words[0] = g->words[N - 1];
            i = 1;
        }
    }
    g->words[0] = 0x80000000u;
    g->next = N;
}

static void twist(ssm__mersenne *g)
{
    for (int i = 0; i < N; i++) {
        const uint32_t y = (g->words[i] & 0x80000000u) | (g->words[(i + 1) % N] & 0x7FFFFFFFu);
        g->words[i] = g->words[(i + MIDDLE) % N] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908B0DFu : 0u);
    }
    g->next = 0;
}

uint32_t ssm__mersenne_u32(ssm__mersenne *g)
{
    if (g->next == N) {
        twist(g);
    }
    uint32_t y = g->words[g->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
}

double ssm__mersenne_uniform(ssm__mersenne *g)
{
    const uint32_t high = ssm__mersenne_u32(g) >> 5;
    const uint32_t low = ssm__mersenne_u32(g) >> 6;
    return ((double)high * 67108864.0 + (double)low) / 9007199254740992.0;
}
