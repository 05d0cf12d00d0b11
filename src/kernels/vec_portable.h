/* kernels/vec_portable.h: the 16-lane vector in portable C.
 *
 * The three vec_*.h files define the same operations with the same rounding, lane by lane, so that
 * a body written over them has the same bits everywhere. fmaf rounds once, as the instruction does.
 * v16_max and v16_min return their second operand when either is NaN, as the x86 instructions do.
 */
#ifndef SSM_KERNELS_VEC_H
#define SSM_KERNELS_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct v16 {
    float lane[16];
} v16;

/* Modes a pass of the scan, rows and columns of a block of the Gram: what the registers hold. Here
 * nothing stays in registers, so small blocks: they compile fast. */
enum { SCAN_MODES = 2, HEAD_MODES = 2, GRAM_ROWS = 1, GRAM_COLS = 1, ROWS_TILE = 1 };
enum { SSD_ROWS = 2, SSD_COLS = 1 };
enum { PRODUCT_ROWS = 2, PRODUCT_COLS = 1 };
enum { DROPPED_SETS = 1 };

#define V16_EACH(expression)                                                                       \
    v16 r;                                                                                         \
    for (int i = 0; i < 16; i++) {                                                                 \
        r.lane[i] = (expression);                                                                  \
    }                                                                                              \
    return r

static inline v16 v16_set(float a)
{
    V16_EACH(a);
}
static inline v16 v16_load(const float *p)
{
    v16 r;
    memcpy(r.lane, p, sizeof r.lane);
    return r;
}
/* The first n ≥ 0 lanes, the others +0; n of 16 or more: all. */
static inline v16 v16_load_n(const float *p, int64_t n)
{
    V16_EACH(i < n ? p[i] : 0.0f);
}
static inline void v16_store(float *p, v16 a)
{
    memcpy(p, a.lane, sizeof a.lane);
}
static inline void v16_store_n(float *p, v16 a, int64_t n)
{
    memcpy(p, a.lane, (size_t)n * sizeof(float));
}
static inline v16 v16_add(v16 a, v16 b)
{
    V16_EACH(a.lane[i] + b.lane[i]);
}
static inline v16 v16_sub(v16 a, v16 b)
{
    V16_EACH(a.lane[i] - b.lane[i]);
}
static inline v16 v16_mul(v16 a, v16 b)
{
    V16_EACH(a.lane[i] * b.lane[i]);
}
static inline v16 v16_div(v16 a, v16 b)
{
    V16_EACH(a.lane[i] / b.lane[i]);
}
/* a·b + c and c − a·b, rounded once. */
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_EACH(fmaf(a.lane[i], b.lane[i], c.lane[i]));
}
static inline v16 v16_fnma(v16 a, v16 b, v16 c)
{
    V16_EACH(fmaf(-a.lane[i], b.lane[i], c.lane[i]));
}
static inline v16 v16_max(v16 a, v16 b)
{
    V16_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
static inline v16 v16_min(v16 a, v16 b)
{
    V16_EACH(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
static inline v16 v16_sqrt(v16 a)
{
    V16_EACH(sqrtf(a.lane[i]));
}
static inline v16 v16_abs(v16 a)
{
    V16_EACH(fabsf(a.lane[i]));
}
/* Nearest integer, ties to even (the default rounding mode). */
static inline v16 v16_round(v16 a)
{
    V16_EACH(rintf(a.lane[i]));
}
/* a·2^n for integer-valued n in [−252, 252]; exact when the result is normal or overflows. */
static inline float portable_scale(float a, float n)
{
    if (!(fabsf(n) <= 252.0f)) {
        return a; /* NaN went through the reduction: a is NaN already */
    }
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&a, &bits, sizeof bits);
    return a;
}
/* a·2^n where a and the result are normal: adds n to the exponent field. */
static inline v16 v16_scale(v16 a, v16 n)
{
    V16_EACH(portable_scale(a.lane[i], n.lane[i]));
}
/* lane-wise x < limit ? a : b. */
static inline v16 v16_where_less(v16 x, v16 limit, v16 a, v16 b)
{
    V16_EACH(x.lane[i] < limit.lane[i] ? a.lane[i] : b.lane[i]);
}
/* The fixed tree of the summation law. */
static inline float v16_sum(v16 a)
{
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            a.lane[i] += a.lane[i + half];
        }
    }
    return a.lane[0];
}
/* Lane i: v16_sum(v[i]). */
static inline v16 v16_sums(const v16 v[16])
{
    V16_EACH(v16_sum(v[i]));
}
/* out[lane] += a in float64. */
static inline void v16_add_to_f64(double *out, v16 a)
{
    for (int i = 0; i < 16; i++) {
        out[i] += (double)a.lane[i];
    }
}

/* v[i] lane j <-> v[j] lane i. */
static inline void v16_transpose(v16 v[16])
{
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < i; j++) {
            const float moved = v[i].lane[j];
            v[i].lane[j] = v[j].lane[i];
            v[j].lane[i] = moved;
        }
    }
}

/* Sixteen indices, and a choice of lanes (bit i of `lanes`: lane i). */
typedef struct i16 {
    uint16_t lane[16];
} i16;
typedef struct m16 {
    uint16_t lanes;
} m16;

static inline i16 i16_load(const uint16_t *p)
{
    i16 r;
    memcpy(r.lane, p, sizeof r.lane);
    return r;
}
/* Lane i is lane index[i] < 16 of row. */
static inline v16 v16_pick(v16 row, i16 index)
{
    V16_EACH(row.lane[index.lane[i] % 16]);
}
/* Lane i is row[index[i]]; the row has n > max index numbers, and no more is read. */
static inline v16 v16_pick_wide(const float *row, int64_t n, i16 index)
{
    (void)n;
    V16_EACH(row[index.lane[i]]);
}
static inline m16 m16_set(uint16_t lanes)
{
    return (m16){lanes};
}
/* a + b in the chosen lanes, a in the others. */
static inline v16 v16_add_where(m16 where, v16 a, v16 b)
{
    V16_EACH(where.lanes >> i & 1 ? a.lane[i] + b.lane[i] : a.lane[i]);
}

/* Half a vector. */
typedef struct v8 {
    float lane[8];
} v8;

static inline v8 v8_set(float a)
{
    v8 r;
    for (int i = 0; i < 8; i++) {
        r.lane[i] = a;
    }
    return r;
}
static inline v8 v8_load(const float *p)
{
    v8 r;
    memcpy(r.lane, p, sizeof r.lane);
    return r;
}
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    for (int i = 0; i < 8; i++) {
        c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
    }
    return c;
}
static inline void v8_add_to_f64(double *out, v8 a)
{
    for (int i = 0; i < 8; i++) {
        out[i] += (double)a.lane[i];
    }
}

/* Eight numbers in float64; d8_where_less: lane-wise x < limit ? a : b. */
typedef struct d8 {
    double lane[8];
} d8;

static inline d8 d8_set(double a)
{
    d8 r;
    for (int i = 0; i < 8; i++) {
        r.lane[i] = a;
    }
    return r;
}
static inline d8 d8_load(const double *p)
{
    d8 r;
    memcpy(r.lane, p, sizeof r.lane);
    return r;
}
static inline void d8_store(double *p, d8 a)
{
    memcpy(p, a.lane, sizeof a.lane);
}
static inline d8 d8_add(d8 a, d8 b)
{
    for (int i = 0; i < 8; i++) {
        a.lane[i] += b.lane[i];
    }
    return a;
}
static inline d8 d8_where_less(d8 x, d8 limit, d8 a, d8 b)
{
    for (int i = 0; i < 8; i++) {
        a.lane[i] = x.lane[i] < limit.lane[i] ? a.lane[i] : b.lane[i];
    }
    return a;
}

#undef V16_EACH
#endif
