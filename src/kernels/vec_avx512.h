/* kernels/vec_avx512.h: the 16-lane vector as one AVX-512 register; see vec_portable.h. */
#ifndef SSM_KERNELS_VEC_H
#define SSM_KERNELS_VEC_H

#if !defined(__AVX512F__) || !defined(__AVX512DQ__)
#error "this file needs -mavx512f -mavx512dq"
#endif
#include <immintrin.h>
#include <stdint.h>

#include "kernels/unroll.h"

typedef struct v16 {
    __m512 v;
} v16;

enum { SCAN_MODES = 4, HEAD_MODES = 8, GRAM_ROWS = 4, GRAM_COLS = 4, ROWS_TILE = 16 };
enum { SSD_ROWS = 8, SSD_COLS = 2 };
enum { PRODUCT_ROWS = 8, PRODUCT_COLS = 3 };
enum { DROPPED_SETS = 6 };

static inline v16 v16_set(float a)
{
    return (v16){_mm512_set1_ps(a)};
}
static inline v16 v16_load(const float *p)
{
    return (v16){_mm512_loadu_ps(p)};
}
static inline __mmask16 avx512_mask(int64_t n)
{
    return n >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << n) - 1u);
}
static inline v16 v16_load_n(const float *p, int64_t n)
{
    return (v16){_mm512_maskz_loadu_ps(avx512_mask(n), p)};
}
static inline void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a.v);
}
static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    _mm512_mask_storeu_ps(p, avx512_mask(n), a.v);
}
static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm512_add_ps(a.v, b.v)};
}
static inline v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm512_sub_ps(a.v, b.v)};
}
static inline v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm512_mul_ps(a.v, b.v)};
}
static inline v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm512_div_ps(a.v, b.v)};
}
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}
static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
static inline v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm512_max_ps(a.v, b.v)};
}
static inline v16 v16_min(v16 a, v16 b)
{
    return (v16){_mm512_min_ps(a.v, b.v)};
}
static inline v16 v16_sqrt(v16 a)
{
    return (v16){_mm512_sqrt_ps(a.v)};
}
static inline v16 v16_abs(v16 a)
{
    return (v16){_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)};
}
static inline v16 v16_round(v16 a)
{
    return (v16){_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline v16 v16_scale(v16 a, v16 n)
{
    return (v16){_mm512_scalef_ps(a.v, n.v)};
}
static inline v16 v16_where_less(v16 x, v16 limit, v16 a, v16 b)
{
    return (v16){_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ), b.v, a.v)};
}
static inline float v16_sum(v16 a)
{
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline __m512 avx512_add_quarters(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
/* Lane i: v16_sum(v[i]). Four sums stand in the quarters of a register before lanes are mixed. */
static inline v16 v16_sums(const v16 v[16])
{
    __m512 four[4], two[2];
    SSM__UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 half[2];
        SSM__UNROLL
        for (int j = 0; j < 2; j++) {
            const __m512 a = v[8 * j + i].v, b = v[8 * j + 4 + i].v;
            half[j] =
                _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        }
        four[i] = avx512_add_quarters(half[0], half[1]);
    }
    SSM__UNROLL
    for (int i = 0; i < 2; i++) {
        const __m512 a = four[2 * i], b = four[2 * i + 1];
        two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    }
    return (v16){_mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88),
                               _mm512_shuffle_ps(two[0], two[1], 0xdd))};
}
static inline void v16_add_to_f64(double *out, v16 a)
{
    const __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(a.v));
    const __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1));
    _mm512_storeu_pd(out, _mm512_add_pd(_mm512_loadu_pd(out), lo));
    _mm512_storeu_pd(out + 8, _mm512_add_pd(_mm512_loadu_pd(out + 8), hi));
}

/* v[i] lane j <-> v[j] lane i. */
static inline void v16_transpose(v16 v[16])
{
    __m512 a[16], b[16];
    SSM__UNROLL
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_ps(v[2 * i].v, v[2 * i + 1].v);
        a[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i].v, v[2 * i + 1].v);
    }
    SSM__UNROLL
    for (int i = 0; i < 4; i++) { /* quarter q of b[4i + k]: column 4q + k of rows 4i to 4i+3 */
        b[4 * i] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    SSM__UNROLL
    for (int k = 0; k < 4; k++) { /* quarters 0 and 2, then 1 and 3, of half of the rows */
        a[k] = _mm512_shuffle_f32x4(b[k], b[4 + k], 0x88);
        a[4 + k] = _mm512_shuffle_f32x4(b[k], b[4 + k], 0xdd);
        a[8 + k] = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0x88);
        a[12 + k] = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0xdd);
    }
    SSM__UNROLL
    for (int k = 0; k < 4; k++) {
        v[k].v = _mm512_shuffle_f32x4(a[k], a[8 + k], 0x88);
        v[8 + k].v = _mm512_shuffle_f32x4(a[k], a[8 + k], 0xdd);
        v[4 + k].v = _mm512_shuffle_f32x4(a[4 + k], a[12 + k], 0x88);
        v[12 + k].v = _mm512_shuffle_f32x4(a[4 + k], a[12 + k], 0xdd);
    }
}

typedef struct i16 {
    __m512i v;
} i16;
typedef struct m16 {
    __mmask16 m;
} m16;

static inline i16 i16_load(const uint16_t *p)
{
    return (i16){_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p))};
}
static inline v16 v16_pick(v16 row, i16 index)
{
    return (v16){_mm512_permutexvar_ps(index.v, row.v)};
}
/* Tables of 32 in two registers, one after the other. */
static inline v16 v16_pick_wide(const float *row, int64_t n, i16 index)
{
    const __m512i table = _mm512_srli_epi32(index.v, 5);
    __m512 picked = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += 32) {
        const __m512 low = v16_load_n(row + k, n - k).v;
        const __m512 high = n - k > 16 ? v16_load_n(row + k + 16, n - k - 16).v : low;
        const __mmask16 here = _mm512_cmpeq_epi32_mask(table, _mm512_set1_epi32((int)(k / 32)));
        picked = _mm512_mask_mov_ps(picked, here, _mm512_permutex2var_ps(low, index.v, high));
    }
    return (v16){picked};
}
static inline m16 m16_set(uint16_t lanes)
{
    return (m16){(__mmask16)lanes};
}
static inline v16 v16_add_where(m16 where, v16 a, v16 b)
{
    return (v16){_mm512_mask_add_ps(a.v, where.m, a.v, b.v)};
}

/* Half a vector. */
typedef struct v8 {
    __m256 v;
} v8;

static inline v8 v8_set(float a)
{
    return (v8){_mm256_set1_ps(a)};
}
static inline v8 v8_load(const float *p)
{
    return (v8){_mm256_loadu_ps(p)};
}
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    return (v8){_mm256_fmadd_ps(a.v, b.v, c.v)};
}
static inline void v8_add_to_f64(double *out, v8 a)
{
    _mm512_storeu_pd(out, _mm512_add_pd(_mm512_loadu_pd(out), _mm512_cvtps_pd(a.v)));
}

/* Eight numbers in float64; d8_where_less: lane-wise x < limit ? a : b. */
typedef struct d8 {
    __m512d v;
} d8;

static inline d8 d8_set(double a)
{
    return (d8){_mm512_set1_pd(a)};
}
static inline d8 d8_load(const double *p)
{
    return (d8){_mm512_loadu_pd(p)};
}
static inline void d8_store(double *p, d8 a)
{
    _mm512_storeu_pd(p, a.v);
}
static inline d8 d8_add(d8 a, d8 b)
{
    return (d8){_mm512_add_pd(a.v, b.v)};
}
static inline d8 d8_where_less(d8 x, d8 limit, d8 a, d8 b)
{
    return (d8){_mm512_mask_blend_pd(_mm512_cmp_pd_mask(x.v, limit.v, _CMP_LT_OQ), b.v, a.v)};
}

#endif
