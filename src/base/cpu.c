/* base/cpu.c: which instruction sets this processor and this operating system can run. */
#include "base/error.h"

#include <string.h>

static const struct {
    ssm_isa isa;
    const char *name;
} isa_names[] = {
    {SSM_ISA_AUTO, "auto"},
    {SSM_ISA_PORTABLE, "portable"},
    {SSM_ISA_AVX2, "avx2"},
    {SSM_ISA_AVX512, "avx512"},
};
enum { ISA_COUNT = sizeof isa_names / sizeof isa_names[0] };

const char *ssm_isa_name(ssm_isa isa)
{
    for (int i = 0; i < ISA_COUNT; i++) {
        if (isa_names[i].isa == isa) {
            return isa_names[i].name;
        }
    }
    return "unknown";
}

ssm_status ssm_isa_parse(const char *name, ssm_isa *out, ssm_error *err)
{
    for (int i = 0; i < ISA_COUNT; i++) {
        if (strcmp(isa_names[i].name, name) == 0) {
            *out = isa_names[i].isa;
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "unknown instruction set \"%s\": expected auto, portable, avx2 or avx512",
                     name);
}

#if defined(__x86_64__)

typedef struct cpuid_result {
    uint32_t eax, ebx, ecx, edx;
} cpuid_result;

static cpuid_result cpuid(uint32_t leaf, uint32_t subleaf)
{
    cpuid_result result;
    __asm__ volatile("cpuid"
                     : "=a"(result.eax), "=b"(result.ebx), "=c"(result.ecx), "=d"(result.edx)
                     : "a"(leaf), "c"(subleaf));
    return result;
}

/* Extended control register 0: the register files that the operating system saves. Only legal where
 * CPUID says OSXSAVE. */
static uint32_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

static bool has_bits(uint32_t value, uint32_t bits)
{
    return (value & bits) == bits;
}

/* Bit numbers: Intel 64 and IA-32 manual, volume 2, CPUID; volume 1, chapter 13 (XCR0). */
ssm_isa ssm_isa_best(void)
{
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const uint32_t avx2 = 1u << 5;
    const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    const uint32_t saves_ymm = 0x6, saves_zmm = 0xE6;

    if (cpuid(0, 0).eax < 7 || !has_bits(cpuid(1, 0).ecx, fma | osxsave | avx | f16c)) {
        return SSM_ISA_PORTABLE;
    }
    uint32_t xcr0 = read_xcr0();
    uint32_t features = cpuid(7, 0).ebx;
    if (!has_bits(features, avx2) || !has_bits(xcr0, saves_ymm)) {
        return SSM_ISA_PORTABLE;
    }
    return has_bits(features, avx512) && has_bits(xcr0, saves_zmm) ? SSM_ISA_AVX512 : SSM_ISA_AVX2;
}

#else

ssm_isa ssm_isa_best(void)
{
    return SSM_ISA_PORTABLE;
}

#endif

/* The sets are nested, and ssm_isa lists them from the smallest on. */
bool ssm_isa_supported(ssm_isa isa)
{
    return isa == SSM_ISA_AUTO || isa == SSM_ISA_PORTABLE ||
           (isa > SSM_ISA_PORTABLE && isa <= ssm_isa_best());
}
