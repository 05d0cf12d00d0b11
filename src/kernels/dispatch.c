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
