/* model/taps.c: names of the taps, firing, dense copies. */
#include "model/session.h"

#include <string.h>

#include "base/error.h"

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

static const char block_start[] = "blocks.";

/* What stands behind "blocks.LAYER", and the layer; NULL: the name is not of that form. */
static const char *behind_layer(const char *name, int64_t *layer)
{
    enum { DIGITS = 9 }; /* no model has more layers */
    if (strncmp(name, block_start, sizeof block_start - 1) != 0) {
        return NULL;
    }
    const char *first = name + sizeof block_start - 1;
    const size_t digits = strspn(first, "0123456789");
    if (digits == 0 || digits > DIGITS || (digits > 1 && first[0] == '0')) {
        return NULL;
    }
    *layer = 0;
    for (size_t i = 0; i < digits; i++) {
        *layer = 10 * *layer + (first[i] - '0');
    }
    return first + digits;
}

ssm_status ssm_tap_parse(const char *name, ssm_tap_point *point, int64_t *layer, ssm_error *err)
{
    static const struct {
        const char *rest;
        ssm_tap_point point;
    } aliases[] = {{".hook_in_proj", SSM_TAP_IN_PROJ},
                   {".hook_conv", SSM_TAP_CONV1D},
                   {".hook_x_proj", SSM_TAP_X_PROJ},
                   {".hook_dt_proj", SSM_TAP_DT_PROJ},
                   {".hook_ssm_out", SSM_TAP_SSM_OUT},
                   {".hook_inner_norm", SSM_TAP_INNER_NORM},
                   {".mixer.out_proj.hook_out", SSM_TAP_MIXER_OUT}};
    static const char pattern[] = "blocks.{i}";
    *layer = -1;
    const char *rest = behind_layer(name, layer);
    for (int i = 0; i < SSM_TAP_COUNT; i++) {
        const char *known = ssm_tap_name((ssm_tap_point)i);
        const bool of_block = strncmp(known, pattern, sizeof pattern - 1) == 0;
        if (of_block ? rest != NULL && strcmp(rest, known + sizeof pattern - 1) == 0
                     : strcmp(name, known) == 0) {
            *point = (ssm_tap_point)i;
            return SSM_STATUS_OK;
        }
    }
    for (size_t i = 0; rest != NULL && i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(rest, aliases[i].rest) == 0) {
            *point = aliases[i].point;
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "there is no tap '%.100s'; expected a name such as embed, "
                     "blocks.0.hook_resid_post or blocks.0.mixer.in_proj.hook_out",
                     name);
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
