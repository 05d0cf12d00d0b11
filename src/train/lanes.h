/* train/lanes.h: channels in groups of 16: of parameters, and of the wide arrays of a pass.
 *
 * A wide array of E channels holds, sequence after sequence, ⌈E/16⌉ groups of [rows][16] floats;
 * rows is the length made odd, so that the lines of one token do not share a cache set. The lanes
 * beyond E stay zero. */
#ifndef SSM_TRAIN_LANES_H
#define SSM_TRAIN_LANES_H

#include "base/arena.h"
#include "kernels/kernels.h"

static inline int64_t ssm__lane_groups(int64_t channels)
{
    return (channels + SSM__LANES - 1) / SSM__LANES;
}

static inline int64_t ssm__wide_rows(int64_t length)
{
    return length | 1;
}

typedef struct ssm__wide {
    float *data;
    int64_t groups, rows;
} ssm__wide;

/* Taken from the arena; data is NULL while it counts. */
ssm__wide ssm__wide_take(ssm__arena *arena, int64_t channels, int64_t length, int64_t sequences);

/* [rows][16] of one group of one sequence. */
static inline float *ssm__wide_group(ssm__wide wide, int64_t sequence, int64_t group)
{
    return wide.data + (sequence * wide.groups + group) * wide.rows * SSM__LANES;
}

/* A sequence from token `token` on, as a view. */
static inline ssm__view ssm__wide_view(ssm__wide wide, int64_t sequence, int64_t token)
{
    return (ssm__view){ssm__wide_group(wide, sequence, 0) + token * SSM__LANES, SSM__LANES,
                       (ptrdiff_t)(wide.rows * SSM__LANES)};
}

/* Rows of `width` floats. */
static inline ssm__view ssm__rows_view(const float *rows, int64_t width)
{
    return (ssm__view){(float *)(uintptr_t)rows, (ptrdiff_t)width, SSM__LANES};
}

/* dense [channels][width] → lanes [groups][width][16], zero beyond the channels. */
void ssm__lanes_put(const float *dense, int64_t channels, int64_t width, float *lanes);
/* dense += lanes. */
void ssm__lanes_add(const float *lanes, int64_t channels, int64_t width, float *dense);

#endif
