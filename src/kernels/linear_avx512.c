/* kernels/linear_avx512.c: the summation law with one 16-lane register a sum.
 *
 * A panel of PANEL weight rows stays in L1 while groups of TOKENS tokens stream past it; each of
 * the TOKENS × PANEL sums is one register. Sixteen sums at once go through the tree by
 * transposition, so that the tree costs three operations a result. One token alone takes sixteen
 * rows at once instead. Rows past row_end repeat the last one and are not stored: one tile serves
 * every edge. */
#include "kernels/linear.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum {
    PANEL = 4,         /* weight rows of a tile */
    TOKENS = 4,        /* tokens of a tile; PANEL · TOKENS = 16 sums for one transposition */
    TOKEN_BLOCK = 128, /* tokens whose rows of x stay in L2 while all of w passes */
    AHEAD = 1024       /* bytes of w prefetched ahead when one token makes memory the limit */
};

/* One product, as its tiles see it. */
typedef struct product {
    const unsigned char *w;
    size_t row_bytes;
    const float *bias; /* or NULL */
    ssm__view x, y;
    int64_t groups; /* whole groups of 16 columns */
    __mmask16 tail; /* columns of the last, partial group; 0: none */
    int64_t row_end;
} product;

/* Sixteen weights as float32, exactly; `mask` picks the ones that are there. */
INLINE __m512 load_weights(const unsigned char *data, ssm_dtype dtype)
{
    if (dtype == SSM_DTYPE_F32) {
        return _mm512_loadu_ps(data);
    }
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)data);
    if (dtype == SSM_DTYPE_F16) {
        return _mm512_cvtph_ps(half);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE __m512 load_weights_masked(const unsigned char *data, ssm_dtype dtype, __mmask16 mask)
{
    if (dtype == SSM_DTYPE_F32) {
        return _mm512_maskz_loadu_ps(mask, data);
    }
    const __m256i half = _mm256_maskz_loadu_epi16(mask, data);
    if (dtype == SSM_DTYPE_F16) {
        return _mm512_cvtph_ps(half);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE size_t group_bytes(ssm_dtype dtype)
{
    return SSM__LANES * (dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* a + b where the halves of both were exchanged so that the sum is [a.lo + a.hi, b.lo + b.hi]. */
INLINE __m512 add_eighths(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* Quarters: [a0 + a1, a2 + a3, b0 + b1, b2 + b3]. */
INLINE __m512 add_quarters(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* The tree for sixteen sums: lane i of the result is the sum of the lanes of v[i]. */
INLINE __m512 sum_lanes(const __m512 v[16])
{
    __m512 q[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = add_quarters(add_eighths(v[i], v[4 + i]), add_eighths(v[8 + i], v[12 + i]));
    }
    /* Each quarter k of q[i] now holds four lanes of sum 4k + i; two steps remain in the quarter.
     */
    const __m512 p0 =
        _mm512_add_ps(_mm512_shuffle_ps(q[0], q[1], 0x44), _mm512_shuffle_ps(q[0], q[1], 0xee));
    const __m512 p1 =
        _mm512_add_ps(_mm512_shuffle_ps(q[2], q[3], 0x44), _mm512_shuffle_ps(q[2], q[3], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(p0, p1, 0x88), _mm512_shuffle_ps(p0, p1, 0xdd));
}

/* Not a masked store: gcc 12 folds one of an extracted quarter into vextractf32x4, which touches
 * the masked bytes too. */
INLINE void store_row(float *y, int64_t rows, __m128 result)
{
    if (rows >= PANEL) {
        _mm_storeu_ps(y, result);
        return;
    }
    float values[PANEL];
    _mm_storeu_ps(values, result);
    memcpy(y, values, (size_t)rows * sizeof *y);
}

/* y[t][n … n+4) for `tokens` tokens. x points to the first of them; n is a multiple of 4. */
INLINE void tile(const product *p, int64_t n, int64_t first, int tokens, ssm_dtype dtype)
{
    const int64_t rows = p->row_end - n < PANEL ? p->row_end - n : PANEL;
    const unsigned char *w[PANEL];
    UNROLL
    for (int c = 0; c < PANEL; c++) {
        w[c] = p->w + (size_t)(n + (c < rows ? c : rows - 1)) * p->row_bytes;
    }
    const float *x[TOKENS];
    UNROLL
    for (int r = 0; r < tokens; r++) {
        x[r] = p->x.data + (first + r) * p->x.row_stride;
    }
    __m512 sum[TOKENS * PANEL];
    UNROLL
    for (int i = 0; i < TOKENS * PANEL; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    size_t w_offset = 0;
    ptrdiff_t x_offset = 0;
    for (int64_t group = 0; group < p->groups; group++) {
        __m512 weight[PANEL];
        UNROLL
        for (int c = 0; c < PANEL; c++) {
            weight[c] = load_weights(w[c] + w_offset, dtype);
        }
        UNROLL
        for (int r = 0; r < tokens; r++) {
            const __m512 value = _mm512_loadu_ps(x[r] + x_offset);
            UNROLL
            for (int c = 0; c < PANEL; c++) {
                sum[PANEL * r + c] = _mm512_fmadd_ps(value, weight[c], sum[PANEL * r + c]);
            }
        }
        w_offset += group_bytes(dtype);
        x_offset += p->x.group_stride;
    }
    if (p->tail != 0) {
        UNROLL
        for (int c = 0; c < PANEL; c++) {
            const __m512 weight = load_weights_masked(w[c] + w_offset, dtype, p->tail);
            UNROLL
            for (int r = 0; r < tokens; r++) {
                const __m512 value = _mm512_maskz_loadu_ps(p->tail, x[r] + x_offset);
                sum[PANEL * r + c] = _mm512_fmadd_ps(value, weight, sum[PANEL * r + c]);
            }
        }
    }
    __m512 result = sum_lanes(sum);
    const __mmask8 stored = (__mmask8)((1u << rows) - 1u);
    if (p->bias != NULL) {
        const __m128 bias = _mm_maskz_loadu_ps(stored, p->bias + n);
        result = _mm512_add_ps(result, _mm512_broadcast_f32x4(bias));
    }
    float *y =
        p->y.data + first * p->y.row_stride + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    UNROLL
    for (int r = 0; r < tokens; r++) {
        store_row(y + r * p->y.row_stride, rows, _mm512_castps512_ps128(result));
        result = _mm512_shuffle_f32x4(result, result, 0x39);
    }
}

/* y[n … n+16) of one token; sixteen rows of w stream side by side. */
INLINE void sixteen_rows(const product *p, int64_t n, int64_t token, ssm_dtype dtype)
{
    const int64_t rows = p->row_end - n < SSM__LANES ? p->row_end - n : SSM__LANES;
    const unsigned char *w[SSM__LANES];
    UNROLL
    for (int c = 0; c < SSM__LANES; c++) {
        w[c] = p->w + (size_t)(n + (c < rows ? c : rows - 1)) * p->row_bytes;
    }
    const float *x = p->x.data + token * p->x.row_stride;
    __m512 sum[SSM__LANES];
    UNROLL
    for (int c = 0; c < SSM__LANES; c++) {
        sum[c] = _mm512_setzero_ps();
    }
    size_t w_offset = 0;
    for (int64_t group = 0; group < p->groups; group++) {
        const __m512 value = _mm512_loadu_ps(x);
        UNROLL
        for (int c = 0; c < SSM__LANES; c++) {
            _mm_prefetch((const char *)(w[c] + w_offset + AHEAD), _MM_HINT_T0);
            sum[c] = _mm512_fmadd_ps(value, load_weights(w[c] + w_offset, dtype), sum[c]);
        }
        w_offset += group_bytes(dtype);
        x += p->x.group_stride;
    }
    if (p->tail != 0) {
        const __m512 value = _mm512_maskz_loadu_ps(p->tail, x);
        UNROLL
        for (int c = 0; c < SSM__LANES; c++) {
            sum[c] = _mm512_fmadd_ps(value, load_weights_masked(w[c] + w_offset, dtype, p->tail),
                                     sum[c]);
        }
    }
    __m512 result = sum_lanes(sum);
    const __mmask16 stored = (__mmask16)((1u << rows) - 1u);
    if (p->bias != NULL) {
        result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(stored, p->bias + n));
    }
    float *y = p->y.data + token * p->y.row_stride + n / SSM__LANES * p->y.group_stride;
    _mm512_mask_storeu_ps(y, stored, result);
}

INLINE void token_group(const product *p, int64_t n, int64_t first, int64_t tokens, ssm_dtype dtype)
{
    switch (tokens) {
    case 1:
        tile(p, n, first, 1, dtype);
        break;
    case 2:
        tile(p, n, first, 2, dtype);
        break;
    case 3:
        tile(p, n, first, 3, dtype);
        break;
    default:
        tile(p, n, first, TOKENS, dtype);
        break;
    }
}

INLINE void all_tiles(const product *p, int64_t tokens, int64_t row_begin, ssm_dtype dtype)
{
    if (tokens == 1) {
        for (int64_t n = row_begin; n < p->row_end; n += SSM__LANES) {
            sixteen_rows(p, n, 0, dtype);
        }
        return;
    }
    for (int64_t block = 0; block < tokens; block += TOKEN_BLOCK) {
        const int64_t block_end = block + TOKEN_BLOCK < tokens ? block + TOKEN_BLOCK : tokens;
        for (int64_t n = row_begin; n < p->row_end; n += PANEL) {
            for (int64_t first = block; first < block_end; first += TOKENS) {
                token_group(p, n, first, block_end - first, dtype);
            }
        }
    }
}

void ssm__linear_avx512(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                        int64_t tokens, int64_t row_begin, int64_t row_end)
{
    const size_t bytes = w->dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    const product p = {
        .w = w->data,
        .row_bytes = (size_t)w->cols * bytes,
        .bias = bias,
        .x = x,
        .y = y,
        .groups = w->cols / SSM__LANES,
        .tail = (__mmask16)((1u << (w->cols % SSM__LANES)) - 1u),
        .row_end = row_end,
    };
    if (w->dtype == SSM_DTYPE_F32) {
        all_tiles(&p, tokens, row_begin, SSM_DTYPE_F32);
    } else if (w->dtype == SSM_DTYPE_F16) {
        all_tiles(&p, tokens, row_begin, SSM_DTYPE_F16);
    } else {
        all_tiles(&p, tokens, row_begin, SSM_DTYPE_BF16);
    }
}
