/* kernels/dispatch.c: from an instruction set to its table. */
#include "kernels/kernels.h"

const ssm__kernels *ssm__kernels_for(ssm_isa isa)
{
    switch (isa == SSM_ISA_AUTO ? ssm_isa_best() : isa) {
#if defined(__x86_64__)
    case SSM_ISA_AVX512:
        return &ssm__kernels_avx512;
    case SSM_ISA_AVX2:
        return &ssm__kernels_avx2;
#endif
    default:
        return &ssm__kernels_portable;
    }
}

ssm__mode_rows ssm__mode_rows_of(int64_t d_state, bool gram)
{
    ssm__mode_rows rows = {.n_gram = gram ? (d_state + 1) * (d_state + 2) / 2 : 0};
    rows.energy = 0;
    rows.state = gram ? rows.n_gram : d_state;
    rows.read = rows.state + d_state;
    rows.adjoint = rows.read + d_state;
    rows.delta = rows.adjoint + d_state;
    rows.output = rows.delta + 1;
    rows.count = rows.output + 1;
    return rows;
}

/* Doubles of the panels of rows before panel i. */
static int64_t panels_before(int64_t i, int64_t n_panels)
{
    return 16 * 16 * (i * n_panels - i * (i - 1) / 2);
}

int64_t ssm__rows_gram_count(int64_t n_modes)
{
    const int64_t n_panels = (n_modes + 15) / 16;
    return panels_before(n_panels, n_panels) + n_panels * 16 + 1;
}

int64_t ssm__rows_gram_at(int64_t i, int64_t j, int64_t n_modes)
{
    const int64_t n_panels = (n_modes + 15) / 16;
    if (j == n_modes) {
        return panels_before(n_panels, n_panels) + (i == n_modes ? n_panels * 16 : i);
    }
    const int64_t panel = i / 16;
    return panels_before(panel, n_panels) + i % 16 * (n_panels - panel) * 16 + (j - panel * 16);
}
