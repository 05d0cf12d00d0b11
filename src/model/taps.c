/* model/taps.c: names of the taps, firing, dense copies. */
#include "model/session.h"

const char *ssm_tap_name(ssm_tap_point point)
{
    switch (point) {
#define TAP_NAME(name, text)                                                                       \
    case SSM_TAP_##name:                                                                           \
        return text;
        SSM_TAPS(TAP_NAME)
#undef TAP_NAME
    case SSM_TAP_COUNT:
        break;
    }
    return NULL;
}

bool ssm__session_wants(const ssm_session *session, ssm_tap_point point)
{
    return session->observer && (session->observer->points >> point & 1) != 0;
}

void ssm__session_tap(const ssm_session *session, ssm_tap_point point, int64_t layer,
                      int64_t position, int64_t tokens, int64_t width, ssm__view view)
{
    if (!ssm__session_wants(session, point)) {
        return;
    }
    const ssm_tap tap = {.point = point,
                         .layer = layer,
                         .position = position,
                         .tokens = tokens,
                         .width = width,
                         .data = view.data,
                         .row_stride = view.row_stride,
                         .group_stride = view.group_stride};
    session->observer->read(session->observer->context, &tap);
}

void ssm_tap_copy(const ssm_tap *tap, float *out)
{
    for (int64_t t = 0; t < tap->tokens; t++) {
        for (int64_t k = 0; k < tap->width; k++) {
            out[t * tap->width + k] =
                tap->data[t * tap->row_stride + k / 16 * tap->group_stride + k % 16];
        }
    }
}
