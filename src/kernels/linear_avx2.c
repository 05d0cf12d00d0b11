/* kernels/linear_avx2.c: the summation law with two 8-lane halves.
 *
 * Sixteen registers hold a 3 × 4 tile of 8-lane accumulators, three tokens by four weight rows, so
 * a block of columns is walked twice: lanes 0–7, then lanes 8–15. Blocks are short enough that a
 * panel of ROWS_ROWS rows stays in L1 while all tokens pass it; the accumulators of both halves are
 * kept in memory between blocks. The first step of the tree adds the halves; the rest goes by
 * transposition, four sums at once. Meanwhile the next rows are prefetched into L2. Rows past
 * row_end repeat the last one and are not stored: one tile serves every edge. */
#include "kernels/linear.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <string.h>

enum {
    HALF = SSM__LANES / 2,
    ROWS = 4,          /* weight rows of a tile */
    TOKENS = 3,        /* tokens of a tile */
    PANEL_ROWS = 8,    /* weight rows that stay in L1 while tokens pass */
    BLOCK_GROUPS = 32, /* most groups of 16 columns in a block: 16 KiB of a float32 panel */
    SHORT_GROUPS = 64, /* up to here a row is one block and a panel has ROWS rows */
    TOKEN_BLOCK = 66,  /* tokens whose rows of x stay in L2 while all of w passes */
    BLOCK_TILES = TOKEN_BLOCK / TOKENS * PANEL_ROWS / ROWS,
    AHEAD_ROWS = 16, /* how far ahead rows are prefetched when one token makes memory the limit */
    LINE = 64        /* bytes of a cache line */
};

/* The accumulators of one tile between two blocks of columns. */
typedef struct kept_sums {
    __m256 low[TOKENS * ROWS], high[TOKENS * ROWS];
} kept_sums;

/* One product, as its tiles see it. */
typedef struct product {
    const unsigned char *w;
    size_t row_bytes;
    const float *bias; /* or NULL */
    ssm__view x, y;
    int64_t groups;       /* whole groups of 16 columns */
    int64_t block_groups; /* of them in a block */
    int64_t panel_rows;
    int tail; /* columns of the last, partial group; 0: none */
    int64_t row_end;
} product;

SSM__INLINE size_t group_bytes(ssm_dtype dtype)
{
    return SSM__LANES * (dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

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

/* Bytes of w still to be prefetched. */
typedef struct prefetch {
    const unsigned char *next, *end;
} prefetch;

/* sum += the products of `groups` groups in the eight lanes that w and x point to. Each step
 * prefetches one line. */
SSM__INLINE void walk(const unsigned char *const w[ROWS], const float *const x[TOKENS],
                      ptrdiff_t x_step, int64_t groups, int tokens, ssm_dtype dtype,
                      prefetch *ahead, __m256 total[TOKENS * ROWS])
{
    /* Nothing left: a line that is in L1 anyway; a page that is not there would cost a page walk.
     */
    const bool left = ahead->next < ahead->end;
    const unsigned char *next = left ? ahead->next : w[0];
    const size_t line = left ? LINE : 0;
    size_t w_offset = 0;
    ptrdiff_t x_offset = 0;
    __m256 sum[TOKENS * ROWS];
    SSM__UNROLL
    for (int i = 0; i < tokens * ROWS; i++) {
        sum[i] = total[i];
    }
    for (int64_t group = 0; group < groups; group++) {
        __m256 value[TOKENS];
        SSM__UNROLL
        for (int r = 0; r < tokens; r++) {
            value[r] = _mm256_loadu_ps(x[r] + x_offset);
        }
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            const __m256 weight = load_weights(w[c] + w_offset, dtype);
            SSM__UNROLL
            for (int r = 0; r < tokens; r++) {
                sum[ROWS * r + c] = _mm256_fmadd_ps(value[r], weight, sum[ROWS * r + c]);
            }
        }
        _mm_prefetch((const char *)next, _MM_HINT_T1);
        next += line;
        w_offset += group_bytes(dtype);
        x_offset += x_step;
    }
    ahead->next += line * (size_t)groups;
    SSM__UNROLL
    for (int i = 0; i < tokens * ROWS; i++) {
        total[i] = sum[i];
    }
}

/* Both halves of `groups` groups. */
SSM__INLINE void walk_twice(const unsigned char *const w[ROWS], const float *const x[TOKENS],
                            ptrdiff_t x_step, int64_t groups, int tokens, ssm_dtype dtype,
                            prefetch *ahead, __m256 low[TOKENS * ROWS], __m256 high[TOKENS * ROWS])
{
    const unsigned char *w_high[ROWS];
    const float *x_high[TOKENS];
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        w_high[c] = w[c] + group_bytes(dtype) / 2;
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        x_high[r] = x[r] + HALF;
    }
    walk(w, x, x_step, groups, tokens, dtype, ahead, low);
    walk(w_high, x_high, x_step, groups, tokens, dtype, ahead, high);
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
SSM__INLINE void add_tail(const product *p, const unsigned char *const w[ROWS],
                          const float *const x[TOKENS], int tokens, ssm_dtype dtype,
                          __m256 low[TOKENS * ROWS], __m256 high[TOKENS * ROWS])
{
    unsigned char w_tail[ROWS][SSM__LANES * sizeof(float)] = {{0}};
    float x_tail[TOKENS][SSM__LANES] = {{0.0f}};
    const unsigned char *w_padded[ROWS];
    const float *x_padded[TOKENS];
    prefetch nothing = {w_tail[0], w_tail[0]};
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        memcpy(w_tail[c], w[c] + (size_t)p->groups * group_bytes(dtype),
               (size_t)p->tail * group_bytes(dtype) / SSM__LANES);
        w_padded[c] = w_tail[c];
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        memcpy(x_tail[r], x[r] + p->groups * p->x.group_stride, (size_t)p->tail * sizeof(float));
        x_padded[r] = x_tail[r];
    }
    walk_twice(w_padded, x_padded, 0, 1, tokens, dtype, &nothing, low, high);
}

SSM__INLINE void store(const product *p, int64_t n, int64_t rows, float *y, __m128 result)
{
    if (rows >= ROWS) {
        if (p->bias != NULL) {
            result = _mm_add_ps(result, _mm_loadu_ps(p->bias + n));
        }
        _mm_storeu_ps(y, result);
        return;
    }
    float values[ROWS];
    _mm_storeu_ps(values, result);
    for (int64_t c = 0; c < rows; c++) {
        y[c] = p->bias != NULL ? values[c] + p->bias[n + c] : values[c];
    }
}

/* y[t][n … n + rows) of a tile from its sums. */
SSM__INLINE void finish(const product *p, int64_t n, int64_t rows, int64_t first, int tokens,
                        const __m256 low[TOKENS * ROWS], const __m256 high[TOKENS * ROWS])
{
    float *y =
        p->y.data + first * p->y.row_stride + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        __m256 v[ROWS];
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            v[c] = _mm256_add_ps(low[ROWS * r + c], high[ROWS * r + c]);
        }
        store(p, n, rows, y + r * p->y.row_stride, sum_lanes(v));
    }
}

/* Groups [begin, end) of the tile of rows n … n+3 and `tokens` tokens from `first` on; the last
 * block writes y. `kept` carries the sums from block to block. */
SSM__INLINE void tile(const product *p, int64_t n, int64_t first, int tokens, int64_t begin,
                      int64_t end, ssm_dtype dtype, prefetch *ahead, kept_sums *kept)
{
    const int64_t rows = p->row_end - n < ROWS ? p->row_end - n : ROWS;
    const unsigned char *w[ROWS], *w_block[ROWS];
    const float *x[TOKENS], *x_block[TOKENS];
    __m256 low[TOKENS * ROWS], high[TOKENS * ROWS];
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        w[c] = p->w + (size_t)(n + (c < rows ? c : rows - 1)) * p->row_bytes;
        w_block[c] = w[c] + (size_t)begin * group_bytes(dtype);
    }
    SSM__UNROLL
    for (int r = 0; r < tokens; r++) {
        x[r] = p->x.data + (first + r) * p->x.row_stride;
        x_block[r] = x[r] + begin * p->x.group_stride;
    }
    SSM__UNROLL
    for (int i = 0; i < tokens * ROWS; i++) {
        low[i] = begin != 0 ? kept->low[i] : _mm256_setzero_ps();
        high[i] = begin != 0 ? kept->high[i] : _mm256_setzero_ps();
    }
    walk_twice(w_block, x_block, p->x.group_stride, end - begin, tokens, dtype, ahead, low, high);
    if (end == p->groups) {
        if (p->tail != 0) {
            add_tail(p, w, x, tokens, dtype, low, high);
        }
        finish(p, n, rows, first, tokens, low, high);
        return;
    }
    SSM__UNROLL
    for (int i = 0; i < tokens * ROWS; i++) {
        kept->low[i] = low[i];
        kept->high[i] = high[i];
    }
}

/* y[n … n+4) of one token: four rows of w, both halves at once. The rows are one run of memory; the
 * run AHEAD_ROWS later is prefetched in order, which is what keeps a memory channel busy. */
SSM__INLINE void four_rows(const product *p, int64_t n, ssm_dtype dtype)
{
    const size_t group = group_bytes(dtype);
    const bool last = n + AHEAD_ROWS + ROWS > p->row_end;
    const unsigned char *w = p->w + (size_t)n * p->row_bytes;
    const unsigned char *ahead = last ? w : w + AHEAD_ROWS * p->row_bytes;
    const size_t ahead_step = last ? 0 : ROWS * group;
    const float *x = p->x.data;
    __m256 low[ROWS], high[ROWS];
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        low[c] = high[c] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < p->groups; k++) {
        const __m256 x_low = _mm256_loadu_ps(x), x_high = _mm256_loadu_ps(x + HALF);
        SSM__UNROLL
        for (int c = 0; c < ROWS; c++) {
            const unsigned char *data = w + (size_t)c * p->row_bytes;
            low[c] = _mm256_fmadd_ps(x_low, load_weights(data, dtype), low[c]);
            high[c] = _mm256_fmadd_ps(x_high, load_weights(data + group / 2, dtype), high[c]);
            if ((size_t)c * LINE < ROWS * group) {
                _mm_prefetch((const char *)(ahead + c * LINE), _MM_HINT_T1);
            }
        }
        ahead += ahead_step;
        w += group;
        x += p->x.group_stride;
    }
    SSM__UNROLL
    for (int c = 0; c < ROWS; c++) {
        low[c] = _mm256_add_ps(low[c], high[c]);
    }
    float *y = p->y.data + n / SSM__LANES * p->y.group_stride + n % SSM__LANES;
    store(p, n, ROWS, y, sum_lanes(low));
}

/* The tiles of rows n … panel_end and `tokens` tokens (1 … 3) from `first` on, one block. */
SSM__INLINE kept_sums *some_tokens(const product *p, int64_t n, int64_t panel_end, int64_t first,
                                   int tokens, int64_t begin, int64_t end, ssm_dtype dtype,
                                   prefetch *ahead, kept_sums *kept)
{
    for (; n < panel_end; n += ROWS) {
        tile(p, n, first, tokens, begin, end, dtype, ahead, kept);
        kept += p->block_groups < p->groups ? 1 : 0;
    }
    return kept;
}

/* Rows n … panel_end of tokens first … block_end, at most TOKEN_BLOCK of them. */
SSM__INLINE void panel(const product *p, int64_t n, int64_t panel_end, int64_t first,
                       int64_t block_end, ssm_dtype dtype)
{
    kept_sums kept[BLOCK_TILES];
    const int64_t next_end =
        panel_end + p->panel_rows < p->row_end ? panel_end + p->panel_rows : p->row_end;
    prefetch ahead = {p->w + (size_t)panel_end * p->row_bytes,
                      p->w + (size_t)next_end * p->row_bytes};
    int64_t begin = 0;
    do {
        const int64_t end =
            begin + p->block_groups < p->groups ? begin + p->block_groups : p->groups;
        kept_sums *sums = kept;
        int64_t token = first;
        for (; token + TOKENS <= block_end; token += TOKENS) {
            sums = some_tokens(p, n, panel_end, token, TOKENS, begin, end, dtype, &ahead, sums);
        }
        if (block_end - token == 2) {
            some_tokens(p, n, panel_end, token, 2, begin, end, dtype, &ahead, sums);
        } else if (block_end - token == 1) {
            some_tokens(p, n, panel_end, token, 1, begin, end, dtype, &ahead, sums);
        }
        begin = end;
    } while (begin < p->groups);
}

SSM__INLINE void all_panels(const product *p, int64_t tokens, int64_t row_begin, ssm_dtype dtype)
{
    int64_t n_begin = row_begin;
    while (tokens == 1 && p->tail == 0 && n_begin + ROWS <= p->row_end) {
        four_rows(p, n_begin, dtype);
        n_begin += ROWS;
    }
    for (int64_t first = 0; first < tokens; first += TOKEN_BLOCK) {
        const int64_t block_end = first + TOKEN_BLOCK < tokens ? first + TOKEN_BLOCK : tokens;
        for (int64_t n = n_begin; n < p->row_end; n += p->panel_rows) {
            const int64_t panel_end =
                n + p->panel_rows < p->row_end ? n + p->panel_rows : p->row_end;
            panel(p, n, panel_end, first, block_end, dtype);
        }
    }
}

void ssm__linear_avx2(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                      int64_t tokens, int64_t row_begin, int64_t row_end)
{
    const size_t bytes = w->dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    const int64_t groups = w->cols / SSM__LANES;
    const int64_t blocks = groups <= SHORT_GROUPS ? 1 : (groups + BLOCK_GROUPS - 1) / BLOCK_GROUPS;
    const product p = {
        .w = w->data,
        .row_bytes = (size_t)w->cols * bytes,
        .bias = bias,
        .x = x,
        .y = y,
        .groups = groups,
        .block_groups = (groups + blocks - 1) / blocks,
        .panel_rows = blocks == 1 ? ROWS : PANEL_ROWS,
        .tail = (int)(w->cols % SSM__LANES),
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
