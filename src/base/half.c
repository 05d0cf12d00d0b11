/* base/half.c: f16 (IEEE 754 binary16) and bf16 ↔ f32, by integer arithmetic on the bits.
 *
 * NaN keeps its sign and the top of its payload and becomes quiet in both directions, as the F16C
 * instructions do it, so that portable and vector code give the same bits. */
#include "base/half.h"

float ssm__f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1Fu;
    uint32_t mantissa = h & 0x3FFu;
    if (exponent == 0x1F) { /* infinity or NaN */
        uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
        return ssm__f32_from_bits(sign | 0x7F800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* zero or subnormal: mantissa × 2^−24, exact in f32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return ssm__f32_from_bits(sign | ssm__bits_from_f32(magnitude));
    }
    return ssm__f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

/* value >> shift, rounded to nearest, ties to even; 1 ≤ shift ≤ 31. */
static uint32_t shift_round_even(uint32_t value, uint32_t shift)
{
    uint32_t kept = value >> shift;
    uint32_t rest = value & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u) != 0));
}

uint16_t ssm__f16_from_f32(float value)
{
    uint32_t bits = ssm__bits_from_f32(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) { /* NaN */
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    }
    if (magnitude >= 0x47800000u) { /* ≥ 2^16, infinity included */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (magnitude >= 0x38800000u) {
        /* Normal in f16. Rounding may carry into the exponent, up to infinity: the bits then spell
         * the right number by themselves. */
        return (uint16_t)(sign | shift_round_even(magnitude - 0x38000000u, 13));
    }
    if (magnitude < 0x33000000u) { /* < 2^−25: rounds to zero */
        return (uint16_t)sign;
    }
    uint32_t exponent = magnitude >> 23; /* 102 … 112 */
    uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(mantissa, 126 - exponent));
}

uint16_t ssm__bf16_from_f32(float value)
{
    uint32_t bits = ssm__bits_from_f32(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) { /* NaN */
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)shift_round_even(bits, 16);
}
