/* kernels/body_math.h: exp, softplus, SiLU on 16 lanes. Written once over vec_<isa>.h.
 *
 * Coefficients: minimax (Remez, relative error), constant terms fixed at 1 so that a decay near 1
 * has no bias: a slow mode multiplies a thousand of them. Errors measured over all float32 inputs
 * by tests/unit/test_exp.c; bounds are stated in docs/numerics.md. */
#ifndef SSM_KERNELS_BODY_MATH_H
#define SSM_KERNELS_BODY_MATH_H

#ifndef SSM_KERNELS_VEC_H
#include "kernels/vec_portable.h" /* read alone; a variant has included its own */
#endif

/* 2^p for p ≤ 0; p below −126 counts as −126, so the result is never denormal. NaN stays NaN. */
static inline v16 v16_exp2_decay(v16 p)
{
    p = v16_max(v16_set(-126.0f), p);
    const v16 n = v16_round(p);
    const v16 f = v16_sub(p, n);
    v16 q = v16_set(1.5353362e-04f);
    q = v16_fma(q, f, v16_set(1.3398874e-03f));
    q = v16_fma(q, f, v16_set(9.618437e-03f));
    q = v16_fma(q, f, v16_set(5.5503324e-02f));
    q = v16_fma(q, f, v16_set(2.4022648e-01f));
    q = v16_fma(q, f, v16_set(6.931472e-01f));
    q = v16_fma(q, f, v16_set(1.0f));
    return v16_scale(q, n);
}

/* e^x for any x. Below 2^−126 (x < −87.3365) the result is +0, above FLT_MAX +inf; NaN stays NaN.
 */
static inline v16 v16_exp(v16 x)
{
    const v16 lowest = v16_set(-87.33654f);
    const v16 c = v16_max(lowest, v16_min(v16_set(88.72284f), x));
    const v16 n = v16_round(v16_mul(c, v16_set(1.44269504f)));
    v16 r = v16_fnma(n, v16_set(6.93359375e-01f), c);
    r = v16_fnma(n, v16_set(-2.12194440e-04f), r);
    v16 q = v16_set(1.3814599e-03f);
    q = v16_fma(q, r, v16_set(8.368717e-03f));
    q = v16_fma(q, r, v16_set(4.166839e-02f));
    q = v16_fma(q, r, v16_set(1.6666521e-01f));
    q = v16_fma(q, r, v16_set(4.9999994e-01f));
    q = v16_fma(v16_mul(r, r), q, r);
    q = v16_add(q, v16_set(1.0f));
    /* n reaches 128: one factor of two is applied as a product, which rounds to inf correctly. */
    const v16 top = v16_where_less(v16_set(127.5f), n, v16_set(2.0f), v16_set(1.0f));
    const v16 e = v16_scale(q, v16_where_less(v16_set(127.5f), n, v16_set(127.0f), n));
    v16 result = v16_mul(e, top);
    result = v16_where_less(x, lowest, v16_set(0.0f), result);
    return v16_where_less(v16_set(88.72284f), x, v16_set(__builtin_inff()), result);
}

/* log(1 + t) for t in [0, 1] by 2·atanh(s), s = t/(2+t) ≤ 1/3. */
static inline v16 v16_log1p_unit(v16 t)
{
    const v16 s = v16_div(t, v16_add(t, v16_set(2.0f)));
    const v16 z = v16_mul(s, s);
    v16 q = v16_set(2.4416919e-01f);
    q = v16_fma(q, z, v16_set(2.1409306e-01f));
    q = v16_fma(q, z, v16_set(2.8617033e-01f));
    q = v16_fma(q, z, v16_set(3.999895e-01f));
    q = v16_fma(q, z, v16_set(6.6666675e-01f));
    const v16 twice = v16_add(s, s);
    return v16_fma(v16_mul(s, z), q, twice);
}

/* log(1 + e^x) = max(x, 0) + log1p(e^−|x|): no overflow, full relative accuracy on both sides. */
static inline v16 v16_softplus(v16 x)
{
    const v16 t = v16_exp(v16_sub(v16_set(0.0f), v16_abs(x)));
    return v16_add(v16_max(v16_set(0.0f), x), v16_log1p_unit(t));
}

/* x / (1 + e^−x). */
static inline v16 v16_silu(v16 x)
{
    return v16_div(x, v16_add(v16_set(1.0f), v16_exp(v16_sub(v16_set(0.0f), x))));
}

/* σ(x) = 1/(1 + e^−x). */
static inline v16 v16_sigmoid(v16 x)
{
    const v16 one = v16_set(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_sub(v16_set(0.0f), x))));
}

/* SiLU'(x) = σ + x·σ·(1 − σ), σ being σ(x). Where 1 − σ has lost its digits, the first term is near
 * 1 and the second near 0. */
static inline v16 v16_silu_slope(v16 x, v16 sigmoid)
{
    const v16 rest = v16_sub(v16_set(1.0f), sigmoid);
    return v16_fma(v16_mul(x, sigmoid), rest, sigmoid);
}

/* 1/√(mean + eps) of a norm over `width` numbers whose squares have that sum. NaN where they
 * overflow: over infinity the row would become zeros, which pass for an output. */
static inline float norm_scale(float squares, int64_t width, float eps)
{
    const float mean = squares / (float)width;
    return mean < __builtin_inff() ? 1.0f / __builtin_sqrtf(mean + eps) : __builtin_nanf("");
}

/* Of 16 sums in float64 the sum, by the tree; they are used up. */
static inline double f64_tree(double sum[16])
{
    for (int half = 8; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            sum[j] += sum[j + half];
        }
    }
    return sum[0];
}

#endif
