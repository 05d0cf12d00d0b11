/* kernels/training.c: what the kernels of training need to be given. */
#include "kernels/training.h"

int64_t ssm__scan_backward_scratch(int64_t tokens, int64_t d_state)
{
    /* States at the pieces' beginnings; states and decays within one piece; what the recurrence
     * carries back. */
    const int64_t pieces = (tokens + SSM__SCAN_PIECE - 1) / SSM__SCAN_PIECE;
    return (pieces + 2 * SSM__SCAN_PIECE + 2) * d_state * 16;
}

int64_t ssm__ssd_backward_scratch(int64_t d_state, int64_t groups)
{
    /* three tiles of pairs; u, S and h with tokens or modes in the lanes; four tiles of lanes */
    return 3 * SSM__TILE * SSM__TILE + groups * 16 * (SSM__TILE + 2 * d_state) +
           4 * SSM__TILE * SSM__LANES;
}

int64_t ssm__h3_scratch(int64_t d_state)
{
    return d_state * 16; /* the state */
}

int64_t ssm__h3_backward_scratch(int64_t tokens, int64_t d_state)
{
    /* States before the pieces and behind the last; states around the tokens of a piece; carry. */
    const int64_t pieces = (tokens + SSM__SCAN_PIECE - 1) / SSM__SCAN_PIECE;
    return (pieces + 1 + SSM__SCAN_PIECE + 1 + 1) * d_state * 16;
}
