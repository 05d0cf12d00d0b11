#include "train/lanes.h"

ssm__wide ssm__wide_take(ssm__arena *arena, int64_t channels, int64_t length, int64_t sequences)
{
    ssm__wide wide = {.groups = ssm__lane_groups(channels), .rows = ssm__wide_rows(length)};
    wide.data = SSM__TAKE(arena, float, sequences *wide.groups *wide.rows *SSM__LANES);
    return wide;
}

void ssm__lanes_put(const float *dense, int64_t channels, int64_t width, float *lanes)
{
    const int64_t groups = ssm__lane_groups(channels);
    for (int64_t channel = 0; channel < groups * SSM__LANES; channel++) {
        float *to = lanes + channel / SSM__LANES * width * SSM__LANES + channel % SSM__LANES;
        for (int64_t k = 0; k < width; k++) {
            to[k * SSM__LANES] = channel < channels ? dense[channel * width + k] : 0.0f;
        }
    }
}

void ssm__lanes_add(const float *lanes, int64_t channels, int64_t width, float *dense)
{
    for (int64_t channel = 0; channel < channels; channel++) {
        const float *from =
            lanes + channel / SSM__LANES * width * SSM__LANES + channel % SSM__LANES;
        for (int64_t k = 0; k < width; k++) {
            dense[channel * width + k] += from[k * SSM__LANES];
        }
    }
}
