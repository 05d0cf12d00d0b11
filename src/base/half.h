/* base/half.h: f16 and bf16 ↔ f32. Conversions to a narrower type round to nearest even and keep
 * NaN quiet; conversions to a wider type are exact. */
#ifndef SSM_BASE_HALF_H
#define SSM_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ssm__f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t ssm__bits_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float ssm__f32_from_bf16(uint16_t h)
{
    return ssm__f32_from_bits((uint32_t)h << 16);
}
float ssm__f32_from_f16(uint16_t h);
uint16_t ssm__f16_from_f32(float value);
uint16_t ssm__bf16_from_f32(float value);

#endif
