/* kernels/linear_avx2.c: the summation law with two 8-lane halves.
 *
 * Sixteen registers hold a 3 × 4 tile of 8-lane accumulators, three tokens by four weight rows, so
 * a block of columns is walked twice: lanes 0–7, then lanes 8–15. The accumulators of both halves
 * are kept between blocks of columns; a block is short enough that its second walk finds all in L1.
 * The first step of the tree adds the halves; the rest goes by transposition, eight sums at once.
 * Rows past row_end repeat the last one and are not stored: one tile serves every edge. */
#include "kernels/linear.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <string.h>

enum {
    HALF = SSM__LANES / 2,
    PANEL = 4,         /* weight rows of a tile */
    TOKENS = 3,        /* tokens of a tile */
    TOKEN_BLOCK = 96,  /* tokens whose rows of x stay in L2 while all of w passes */
    BLOCK_GROUPS = 32, /* groups of 16 columns between the two walks */
    AHEAD = 1024       /* bytes of w prefetched ahead when one token makes memory the limit */
};

/* One product, as its tiles see it. */
typedef struct product {
    const unsigned char *w;
    size_t row_bytes, group_bytes;
    const float *bias; /* or NULL */
    ssm__view x, y;
    int64_t groups; /* whole groups of 16 columns */
    int tail;       /* columns of the last, partial group; 0: none */
    int64_t row_end;
} product;

/* Eight weights as float32, exactly. */
SSM__INLINE __m256 load_weights(const unsigned char *data, ssm_dtype dtype)
{
    if (dtype == SSM_DTYPE_F32) {
        return _mm256_loadu_ps((const float *)(const void *)data);
    }
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)data);
    if (dtype == SSM_DTYPE_F16) {
        return _mm256_cvtph_ps(half);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* sum[i] += the products of `groups` groups in the eight lanes that w and x point to. */
SSM__INLINE void add_products(const unsigned char *const w[PANEL], const float *const x[TOKENS],
                              ptrdiff_t x_step, int64_t groups, int tokens, ssm_dtype dtype,
                              __m256 sum[TOKENS * PANEL])
{
    const size_t w_step = SSM__LANES * (dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
    size_t w_offset = 0;
    ptrdiff_t x_offset = 0;
    for (int64_t group = 0; group < groups; group++) {
        __m256 value[TOKENS];
        SSM__UNROLL
        for (int r = 0; r < tokens; r++) {
            value[r] = _mm256_loadu_ps(x[r] + x_offset);
        }
        SSM__UNROLL
        for (int c = 0; c < PANEL; c++) {
            const __m256 weight = load_weights(w[c] + w_offset, dtype);
            SSM__UNROLL
            for (int r = 0; r < tokens; r++) {
                sum[PANEL * r + c] = _mm256_fmadd_ps(value[r], weight, sum[PANEL * r + c]);
            }
        }
        w_offset += w_step;
        x_offset += x_step;
    }
}

/* One walk of one half over a run of groups, from and to memory. */
SSM__INLINE void walk(const product *p, const unsigned char *const w[PANEL],
                      const float *const x[TOKENS], int64_t groups, int half, int tokens,
                      ssm_dtype dtype, __m256 total[TOKENS * PANEL])
{
    const unsigned char *w_half[PANEL];
    const float *x_half[TOKENS];
    __m256 sum[TOKENS * PANEL];
    SSM__UNROLL
    for (int c = 0; c < PANEL; c++) {
        w_half[c] = w[c] + (half != 0 ? p->group_bytes / 2 : 0);
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        x_half[r] = x[r] + half * HALF;
    }
    SSM__UNROLL
    for (int i = 0; i < tokens * PANEL; i++) {
        sum[i] = total[i];
    }
    add_products(w_half, x_half, p->x.group_stride, groups, tokens, dtype, sum);
    SSM__UNROLL
    for (int i = 0; i < tokens * PANEL; i++) {
        total[i] = sum[i];
    }
}

/* The rest of the tree for four sums of eight lanes. */
SSM__INLINE __m128 sum_lanes(const __m256 v[4])
{
    __m128 q[4];
    SSM__UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
    }
    const __m128 p0 =
        _mm_add_ps(_mm_shuffle_ps(q[0], q[1], 0x44), _mm_shuffle_ps(q[0], q[1], 0xee));
    const __m128 p1 =
        _mm_add_ps(_mm_shuffle_ps(q[2], q[3], 0x44), _mm_shuffle_ps(q[2], q[3], 0xee));
    return _mm_add_ps(_mm_shuffle_ps(p0, p1, 0x88), _mm_shuffle_ps(p0, p1, 0xdd));
}

/* The partial last group, copied with its +0 so that nothing is read past a row. */
SSM__INLINE void add_tail(const product *p, const unsigned char *const w[PANEL],
                          const float *const x[TOKENS], int tokens, ssm_dtype dtype,
                          __m256 total[2][TOKENS * PANEL])
{
    unsigned char w_tail[PANEL][SSM__LANES * sizeof(float)] = {{0}};
    float x_tail[TOKENS][SSM__LANES] = {{0.0f}};
    const unsigned char *w_padded[PANEL];
    const float *x_padded[TOKENS];
    SSM__UNROLL
    for (int c = 0; c < PANEL; c++) {
        memcpy(w_tail[c], w[c], (size_t)p->tail * p->group_bytes / SSM__LANES);
        w_padded[c] = w_tail[c];
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        memcpy(x_tail[r], x[r], (size_t)p->tail * sizeof(float));
        x_padded[r] = x_tail[r];
    }
    walk(p, w_padded, x_padded, 1, 0, tokens, dtype, total[0]);
    walk(p, w_padded, x_padded, 1, 1, tokens, dtype, total[1]);
}

SSM__INLINE void store(const product *p, int64_t n, int64_t rows, float *y, __m128 result)
{
    if (rows >= PANEL) {
        if (p->bias != NULL) {
            result = _mm_add_ps(result, _mm_loadu_ps(p->bias + n));
        }
        _mm_storeu_ps(y, result);
        return;
    }
    float values[PANEL];
    _mm_storeu_ps(values, result);
    for (int64_t c = 0; c < rows; c++) {
        y[c] = p->bias != NULL ? values[c] + p->bias[n + c] : values[c];
    }
}

/* y[t][n … n+4) for `tokens` tokens from `first` on; n is a multiple of 4. */
SSM__INLINE void tile(const product *p, int64_t n, int64_t first, int tokens, ssm_dtype dtype)
{
    const int64_t rows = p->row_end - n < PANEL ? p->row_end - n : PANEL;
    const unsigned char *w[PANEL];
    const float *x[TOKENS];
    __m256 total[2][TOKENS * PANEL];
    SSM__UNROLL
    for (int c = 0; c < PANEL; c++) {
        w[c] = p->w + (size_t)(n + (c < rows ? c : rows - 1)) * p->row_bytes;
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        x[r] = p->x.data + (first + r) * p->x.row_stride;
    }
    SSM__UNROLL
    for (int i = 0; i < tokens * PANEL; i++) {
        total[0][i] = total[1][i] = _mm256_setzero_ps();
    }
    for (int64_t group = 0; group < p->groups; group += BLOCK_GROUPS) {
        const int64_t groups = p->groups - group < BLOCK_GROUPS ? p->groups - group : BLOCK_GROUPS;
        walk(p, w, x, groups, 0, tokens, dtype, total[0]);
        walk(p, w, x, groups, 1, tokens, dtype, total[1]);
        SSM__UNROLL
        for (int c = 0; c < PANEL; c++) {
            w[c] += (size_t)groups * p->group_bytes;
        }
        SSM__UNROLL
        for (int r = 0; r < tokens; r++) {
            x[r] += groups * p->x.group_stride;
        }
    }
    if (p->tail != 0) {
        add_tail(p, w, x, tokens, dtype, total);
    }
    float *y =
        p->y.data + first * p->y.row_stride + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        __m256 v[PANEL];
        SSM__UNROLL
        for (int c = 0; c < PANEL; c++) {
            v[c] = _mm256_add_ps(total[0][PANEL * r + c], total[1][PANEL * r + c]);
        }
        store(p, n, rows, y + r * p->y.row_stride, sum_lanes(v));
    }
}

/* y[n … n+4) of one token: four rows of w stream side by side, both halves at once. */
SSM__INLINE void four_rows(const product *p, int64_t n, ssm_dtype dtype)
{
    const unsigned char *w[PANEL];
    __m256 low[PANEL], high[PANEL];
    SSM__UNROLL
    for (int c = 0; c < PANEL; c++) {
        w[c] = p->w + (size_t)(n + c) * p->row_bytes;
        low[c] = high[c] = _mm256_setzero_ps();
    }
    const size_t w_step = SSM__LANES * (dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
    const float *x = p->x.data;
    size_t w_offset = 0;
    for (int64_t group = 0; group < p->groups; group++) {
        const __m256 x_low = _mm256_loadu_ps(x), x_high = _mm256_loadu_ps(x + HALF);
        SSM__UNROLL
        for (int c = 0; c < PANEL; c++) {
            const unsigned char *data = w[c] + w_offset;
            _mm_prefetch((const char *)(data + AHEAD), _MM_HINT_T0);
            low[c] = _mm256_fmadd_ps(x_low, load_weights(data, dtype), low[c]);
            high[c] = _mm256_fmadd_ps(x_high, load_weights(data + w_step / 2, dtype), high[c]);
        }
        w_offset += w_step;
        x += p->x.group_stride;
    }
    SSM__UNROLL
    for (int c = 0; c < PANEL; c++) {
        low[c] = _mm256_add_ps(low[c], high[c]);
    }
    float *y = p->y.data + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    store(p, n, PANEL, y, sum_lanes(low));
}

SSM__INLINE void all_tiles(const product *p, int64_t tokens, int64_t row_begin, ssm_dtype dtype)
{
    if (tokens == 1 && p->tail == 0) {
        int64_t n = row_begin;
        for (; n + PANEL <= p->row_end; n += PANEL) {
            four_rows(p, n, dtype);
        }
        if (n < p->row_end) {
            tile(p, n, 0, 1, dtype);
        }
        return;
    }
    for (int64_t block = 0; block < tokens; block += TOKEN_BLOCK) {
        const int64_t block_end = block + TOKEN_BLOCK < tokens ? block + TOKEN_BLOCK : tokens;
        for (int64_t n = row_begin; n < p->row_end; n += PANEL) {
            int64_t first = block;
            for (; first + TOKENS <= block_end; first += TOKENS) {
                tile(p, n, first, TOKENS, dtype);
            }
            for (; first < block_end; first++) {
                tile(p, n, first, 1, dtype);
            }
        }
    }
}

void ssm__linear_avx2(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                      int64_t tokens, int64_t row_begin, int64_t row_end)
{
    const size_t bytes = w->dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    const product p = {
        .w = w->data,
        .row_bytes = (size_t)w->cols * bytes,
        .group_bytes = SSM__LANES * bytes,
        .bias = bias,
        .x = x,
        .y = y,
        .groups = w->cols / SSM__LANES,
        .tail = (int)(w->cols % SSM__LANES),
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
