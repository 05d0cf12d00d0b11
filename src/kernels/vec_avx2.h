/* kernels/vec_avx2.h: the 16-lane vector as two AVX2 registers; see vec_portable.h. */
#ifndef SSM_KERNELS_VEC_H
#define SSM_KERNELS_VEC_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "this file needs -mavx2 -mfma"
#endif
#include <immintrin.h>
#include <stdint.h>

#include "kernels/unroll.h"

typedef struct v16 {
    __m256 lo, hi; /* lanes 0–7, 8–15 */
} v16;

enum { SCAN_MODES = 2, HEAD_MODES = 4, GRAM_ROWS = 2, GRAM_COLS = 2, ROWS_TILE = 6 };
enum { SSD_ROWS = 6, SSD_COLS = 1 };
enum { PRODUCT_ROWS = 6, PRODUCT_COLS = 1 };
enum { DROPPED_SETS = 1 };

static inline v16 v16_set(float a)
{
    return (v16){_mm256_set1_ps(a), _mm256_set1_ps(a)};
}
static inline v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline __m256i avx2_mask(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < 0 ? 0 : n)), lane);
}
static inline v16 v16_load_n(const float *p, int64_t n)
{
    return (v16){_mm256_maskload_ps(p, avx2_mask(n)), _mm256_maskload_ps(p + 8, avx2_mask(n - 8))};
}
static inline void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    _mm256_maskstore_ps(p, avx2_mask(n), a.lo);
    _mm256_maskstore_ps(p + 8, avx2_mask(n - 8), a.hi);
}
static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline v16 v16_min(v16 a, v16 b)
{
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline v16 v16_sqrt(v16 a)
{
    return (v16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
static inline v16 v16_abs(v16 a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
static inline v16 v16_round(v16 a)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (v16){_mm256_round_ps(a.lo, NEAREST), _mm256_round_ps(a.hi, NEAREST)};
}
static inline __m256 avx2_scale(__m256 a, __m256 n)
{
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
}
static inline v16 v16_scale(v16 a, v16 n)
{
    return (v16){avx2_scale(a.lo, n.lo), avx2_scale(a.hi, n.hi)};
}
static inline __m256 avx2_where_less(__m256 x, __m256 limit, __m256 a, __m256 b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_LT_OQ));
}
static inline v16 v16_where_less(v16 x, v16 limit, v16 a, v16 b)
{
    return (v16){avx2_where_less(x.lo, limit.lo, a.lo, b.lo),
                 avx2_where_less(x.hi, limit.hi, a.hi, b.hi)};
}
static inline float v16_sum(v16 a)
{
    const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
/* v16_sum of each of eight vectors. */
static inline __m256 avx2_sums(const v16 v[8])
{
    __m256 four[4], two[2];
    SSM__UNROLL
    for (int i = 0; i < 4; i++) { /* sums i and i + 4 in the halves */
        const __m256 a = _mm256_add_ps(v[i].lo, v[i].hi);
        const __m256 b = _mm256_add_ps(v[i + 4].lo, v[i + 4].hi);
        four[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    SSM__UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256 a = four[2 * i], b = four[2 * i + 1];
        two[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88),
                         _mm256_shuffle_ps(two[0], two[1], 0xdd));
}
/* Lane i: v16_sum(v[i]). */
static inline v16 v16_sums(const v16 v[16])
{
    return (v16){avx2_sums(v), avx2_sums(v + 8)};
}
static inline void avx2_add_to_f64(double *out, __m256 a)
{
    const __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    const __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    _mm256_storeu_pd(out, _mm256_add_pd(_mm256_loadu_pd(out), lo));
    _mm256_storeu_pd(out + 4, _mm256_add_pd(_mm256_loadu_pd(out + 4), hi));
}
static inline void v16_add_to_f64(double *out, v16 a)
{
    avx2_add_to_f64(out, a.lo);
    avx2_add_to_f64(out + 8, a.hi);
}

static inline void avx2_transpose(__m256 r[8])
{
    __m256 a[8], b[8];
    SSM__UNROLL
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    SSM__UNROLL
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    SSM__UNROLL
    for (int k = 0; k < 4; k++) {
        r[k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x20);
        r[4 + k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x31);
    }
}
/* v[i] lane j <-> v[j] lane i. */
static inline void v16_transpose(v16 v[16])
{
    __m256 lo[2][8], hi[2][8]; /* of rows 0 to 7 and 8 to 15 */
    SSM__UNROLL
    for (int i = 0; i < 16; i++) {
        lo[i / 8][i % 8] = v[i].lo;
        hi[i / 8][i % 8] = v[i].hi;
    }
    avx2_transpose(lo[0]);
    avx2_transpose(lo[1]);
    avx2_transpose(hi[0]);
    avx2_transpose(hi[1]);
    SSM__UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = (v16){lo[0][i], lo[1][i]};
        v[8 + i] = (v16){hi[0][i], hi[1][i]};
    }
}

typedef struct i16 {
    __m256i lo, hi;
} i16;
typedef struct m16 {
    __m256 lo, hi;
} m16;

static inline i16 i16_load(const uint16_t *p)
{
    const __m128i *at = (const __m128i *)(const void *)p;
    return (i16){_mm256_cvtepu16_epi32(_mm_loadu_si128(at)),
                 _mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1))};
}
static inline __m256 avx2_pick(v16 row, __m256i index)
{
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)); /* bit 3 to the sign */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(row.lo, index),
                            _mm256_permutevar8x32_ps(row.hi, index), upper);
}
static inline v16 v16_pick(v16 row, i16 index)
{
    return (v16){avx2_pick(row, index.lo), avx2_pick(row, index.hi)};
}
/* Tables of 16, one after the other. */
static inline __m256 avx2_pick_wide(const float *row, int64_t n, __m256i index)
{
    const __m256i table = _mm256_srli_epi32(index, 4);
    __m256 picked = _mm256_setzero_ps();
    for (int64_t k = 0; k < n; k += 16) {
        const __m256i here = _mm256_cmpeq_epi32(table, _mm256_set1_epi32((int)(k / 16)));
        picked = _mm256_blendv_ps(picked, avx2_pick(v16_load_n(row + k, n - k), index),
                                  _mm256_castsi256_ps(here));
    }
    return picked;
}
static inline v16 v16_pick_wide(const float *row, int64_t n, i16 index)
{
    return (v16){avx2_pick_wide(row, n, index.lo), avx2_pick_wide(row, n, index.hi)};
}
static inline __m256 avx2_lanes(int lanes)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(lanes), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit));
}
static inline m16 m16_set(uint16_t lanes)
{
    return (m16){avx2_lanes(lanes), avx2_lanes(lanes >> 8)};
}
static inline v16 v16_add_where(m16 where, v16 a, v16 b)
{
    return (v16){_mm256_blendv_ps(a.lo, _mm256_add_ps(a.lo, b.lo), where.lo),
                 _mm256_blendv_ps(a.hi, _mm256_add_ps(a.hi, b.hi), where.hi)};
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
    avx2_add_to_f64(out, a.v);
}

/* Eight numbers in float64; d8_where_less: lane-wise x < limit ? a : b. */
typedef struct d8 {
    __m256d lo, hi;
} d8;

static inline d8 d8_set(double a)
{
    return (d8){_mm256_set1_pd(a), _mm256_set1_pd(a)};
}
static inline d8 d8_load(const double *p)
{
    return (d8){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)};
}
static inline void d8_store(double *p, d8 a)
{
    _mm256_storeu_pd(p, a.lo);
    _mm256_storeu_pd(p + 4, a.hi);
}
static inline d8 d8_add(d8 a, d8 b)
{
    return (d8){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
}
static inline d8 d8_where_less(d8 x, d8 limit, d8 a, d8 b)
{
    return (d8){_mm256_blendv_pd(b.lo, a.lo, _mm256_cmp_pd(x.lo, limit.lo, _CMP_LT_OQ)),
                _mm256_blendv_pd(b.hi, a.hi, _mm256_cmp_pd(x.hi, limit.hi, _CMP_LT_OQ))};
}

#endif
