/* kernels/linear_avx512.c: the summation law with one 16-lane register a sum.
 *
 * ROWS weight rows stay in L1 or L2 while tokens stream past them in groups of TOKENS; each of the
 * TOKENS × ROWS sums of a tile is one register. Sixteen sums at once go through the tree by
 * transposition, so that the tree costs three operations a result. Meanwhile the next rows are
 * prefetched into L2. One token alone takes sixteen rows at once instead. Rows past row_end repeat
 * the last one and are not stored: one tile serves every edge. docs/kernels/linear.md has the
 * figures. */
#include "kernels/linear.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <string.h>

enum {
    ROWS = 4,          /* weight rows of a tile */
    TOKENS = 4,        /* tokens of a tile; ROWS · TOKENS = 16 sums for one transposition */
    TOKEN_BLOCK = 128, /* tokens whose rows of x stay in L2 while all of w passes */
    LINE = 64          /* bytes of a cache line */
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

/* Bytes of w still to be prefetched. */
typedef struct prefetch {
    const unsigned char *next, *end;
} prefetch;

/* Sixteen weights as float32, exactly; `mask` picks the ones that are there. */
SSM__INLINE __m512 load_weights(const unsigned char *data, ssm_dtype dtype)
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

SSM__INLINE __m512 load_weights_masked(const unsigned char *data, ssm_dtype dtype, __mmask16 mask)
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

SSM__INLINE size_t group_bytes(ssm_dtype dtype)
{
    return SSM__LANES * (dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* One step of the tree for two sums side by side: [a.lo + a.hi, b.lo + b.hi], where lo and hi are
 * halves of the register. A blend is cheaper than a shuffle; addition commutes. */
SSM__INLINE __m512 add_eighths(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* The next step, quarters: [a0 + a1, a2 + a3, b0 + b1, b2 + b3]. */
SSM__INLINE __m512 add_quarters(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* The next step, pairs within each quarter: [a0 + a2, a1 + a3, b0 + b2, b1 + b3]. */
SSM__INLINE __m512 add_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
}

/* The tree for sixteen sums: lane i of the result is the sum of the lanes of v[i]. Quarter k of
 * q[i] holds four lanes of sum 4k + i. */
SSM__INLINE __m512 sum_lanes(const __m512 v[16])
{
    __m512 q[4];
    SSM__UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = add_quarters(add_eighths(v[i], v[4 + i]), add_eighths(v[8 + i], v[12 + i]));
    }
    const __m512 p0 = add_pairs(q[0], q[1]), p1 = add_pairs(q[2], q[3]);
    return _mm512_add_ps(_mm512_shuffle_ps(p0, p1, 0x88), _mm512_shuffle_ps(p0, p1, 0xdd));
}

/* Not a masked store: gcc 12 folds one of an extracted quarter into vextractf32x4, which touches
 * the masked bytes too. */
SSM__INLINE void store_row(float *y, int64_t rows, __m128 result)
{
    if (rows >= ROWS) {
        _mm_storeu_ps(y, result);
        return;
    }
    float values[ROWS];
    _mm_storeu_ps(values, result);
    memcpy(y, values, (size_t)rows * sizeof *y);
}

/* sum += the products of the whole groups of a tile. Each step prefetches one line. */
SSM__INLINE void add_products(const product *p, const unsigned char *const w[ROWS],
                              const float *const x[TOKENS], int tokens, ssm_dtype dtype,
                              prefetch *ahead, __m512 sum[TOKENS * ROWS])
{
    /* Nothing left: a line that is in L1 anyway; a page that is not there would cost a page walk.
     */
    const bool left = ahead->next < ahead->end;
    const unsigned char *next = left ? ahead->next : w[0];
    const size_t line = left ? LINE : 0;
    size_t w_offset = 0;
    ptrdiff_t x_offset = 0;
    for (int64_t group = 0; group < p->groups; group++) {
        __m512 weight[ROWS];
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            weight[c] = load_weights(w[c] + w_offset, dtype);
        }
        SSM__UNROLL
        for (int r = 0; r < tokens; r++) {
            const __m512 value = _mm512_loadu_ps(x[r] + x_offset);
            SSM__UNROLL
            for (int c = 0; c < ROWS; c++) {
                sum[ROWS * r + c] = _mm512_fmadd_ps(value, weight[c], sum[ROWS * r + c]);
            }
        }
        _mm_prefetch((const char *)next, _MM_HINT_T1);
        next += line;
        w_offset += group_bytes(dtype);
        x_offset += p->x.group_stride;
    }
    ahead->next += line * (size_t)p->groups;
}

SSM__INLINE void add_tail(const product *p, const unsigned char *const w[ROWS],
                          const float *const x[TOKENS], int tokens, ssm_dtype dtype,
                          __m512 sum[TOKENS * ROWS])
{
    const size_t w_offset = (size_t)p->groups * group_bytes(dtype);
    const ptrdiff_t x_offset = p->groups * p->x.group_stride;
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        const __m512 weight = load_weights_masked(w[c] + w_offset, dtype, p->tail);
        SSM__UNROLL
        for (int r = 0; r < tokens; r++) {
            const __m512 value = _mm512_maskz_loadu_ps(p->tail, x[r] + x_offset);
            sum[ROWS * r + c] = _mm512_fmadd_ps(value, weight, sum[ROWS * r + c]);
        }
    }
}

/* y[t][n … n + rows) of a tile from its sums. */
SSM__INLINE void finish(const product *p, int64_t n, int64_t rows, int64_t first, int tokens,
                        const __m512 sum[TOKENS * ROWS])
{
    __m512 result = sum_lanes(sum);
    if (p->bias != NULL) {
        const __mmask8 present = (__mmask8)((1u << rows) - 1u);
        const __m128 bias = _mm_maskz_loadu_ps(present, p->bias + n);
        result = _mm512_add_ps(result, _mm512_broadcast_f32x4(bias));
    }
    float *y =
        p->y.data + first * p->y.row_stride + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        store_row(y + r * p->y.row_stride, rows, _mm512_castps512_ps128(result));
        result = _mm512_shuffle_f32x4(result, result, 0x39);
    }
}

/* y[t][n … n+4) for `tokens` tokens from `first` on; n is a multiple of 4. */
SSM__INLINE void tile(const product *p, int64_t n, int64_t first, int tokens, ssm_dtype dtype,
                      prefetch *ahead)
{
    const int64_t rows = p->row_end - n < ROWS ? p->row_end - n : ROWS;
    const unsigned char *w[ROWS];
    const float *x[TOKENS];
    __m512 sum[TOKENS * ROWS];
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        w[c] = p->w + (size_t)(n + (c < rows ? c : rows - 1)) * p->row_bytes;
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        x[r] = p->x.data + (first + r) * p->x.row_stride;
    }
    SSM__UNROLL
    for (int i = 0; i < TOKENS * ROWS; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    add_products(p, w, x, tokens, dtype, ahead, sum);
    if (p->tail != 0) {
        add_tail(p, w, x, tokens, dtype, sum);
    }
    finish(p, n, rows, first, tokens, sum);
}

/* The sums of four rows and one token. The rows are one run of memory; `ahead` is a later run, of
 * which as much is prefetched, in order, which is what keeps a memory channel busy. */
SSM__INLINE void four_rows(const product *p, const unsigned char *w, const unsigned char *ahead,
                           size_t ahead_step, ssm_dtype dtype, __m512 out[ROWS])
{
    const size_t group = group_bytes(dtype);
    const float *x = p->x.data;
    __m512 sum[ROWS];
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        sum[c] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < p->groups; k++) {
        const __m512 value = _mm512_loadu_ps(x);
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            sum[c] =
                _mm512_fmadd_ps(value, load_weights(w + (size_t)c * p->row_bytes, dtype), sum[c]);
            if ((size_t)c * LINE < ROWS * group) {
                _mm_prefetch((const char *)(ahead + c * LINE), _MM_HINT_T1);
            }
        }
        ahead += ahead_step;
        w += group;
        x += p->x.group_stride;
    }
    if (p->tail != 0) {
        const __m512 value = _mm512_maskz_loadu_ps(p->tail, x);
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            const __m512 weight = load_weights_masked(w + (size_t)c * p->row_bytes, dtype, p->tail);
            sum[c] = _mm512_fmadd_ps(value, weight, sum[c]);
        }
    }
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        out[c] = sum[c];
    }
}

/* y[n … n+16) of one token. */
SSM__INLINE void sixteen_rows(const product *p, int64_t n, ssm_dtype dtype)
{
    const unsigned char *w = p->w + (size_t)n * p->row_bytes;
    const bool last = n + 2 * SSM__LANES > p->row_end;
    const size_t run = last ? 0 : SSM__LANES * p->row_bytes;
    const size_t step = last ? 0 : ROWS * group_bytes(dtype);
    __m512 sum[SSM__LANES];
    for (int c = 0; c < SSM__LANES; c += ROWS) {
        four_rows(p, w, w + run, step, dtype, sum + c);
        w += ROWS * p->row_bytes;
    }
    __m512 result = sum_lanes(sum);
    if (p->bias != NULL) {
        result = _mm512_add_ps(result, _mm512_loadu_ps(p->bias + n));
    }
    _mm512_storeu_ps(p->y.data + n / SSM__LANES * p->y.group_stride, result);
}

/* Rows n … n+3 of all tokens of a block; meanwhile prefetches the next rows. */
SSM__INLINE void panel(const product *p, int64_t n, int64_t first, int64_t block_end,
                       ssm_dtype dtype)
{
    const int64_t next = n + ROWS < p->row_end ? n + ROWS : p->row_end;
    const int64_t next_end = next + ROWS < p->row_end ? next + ROWS : p->row_end;
    prefetch ahead = {p->w + (size_t)next * p->row_bytes, p->w + (size_t)next_end * p->row_bytes};
    for (; first + TOKENS <= block_end; first += TOKENS) {
        tile(p, n, first, TOKENS, dtype, &ahead);
    }
    switch (block_end - first) {
    case 1:
        tile(p, n, first, 1, dtype, &ahead);
        break;
    case 2:
        tile(p, n, first, 2, dtype, &ahead);
        break;
    case 3:
        tile(p, n, first, 3, dtype, &ahead);
        break;
    default:
        break;
    }
}

SSM__INLINE void all_panels(const product *p, int64_t tokens, int64_t row_begin, ssm_dtype dtype)
{
    int64_t n_begin = row_begin;
    while (tokens == 1 && n_begin + SSM__LANES <= p->row_end) {
        sixteen_rows(p, n_begin, dtype);
        n_begin += SSM__LANES;
    }
    for (int64_t first = 0; first < tokens; first += TOKEN_BLOCK) {
        const int64_t block_end = first + TOKEN_BLOCK < tokens ? first + TOKEN_BLOCK : tokens;
        for (int64_t n = n_begin; n < p->row_end; n += ROWS) {
            panel(p, n, first, block_end, dtype);
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
        all_panels(&p, tokens, row_begin, SSM_DTYPE_F32);
    } else if (w->dtype == SSM_DTYPE_F16) {
        all_panels(&p, tokens, row_begin, SSM_DTYPE_F16);
    } else {
        all_panels(&p, tokens, row_begin, SSM_DTYPE_BF16);
    }
}
