/* model/state.c: saving and restoring the recurrent state as one block of bytes. */
#include "model/session.h"

#include <string.h>

#include "base/error.h"

/* What a block begins with: the shape it belongs to and the position. */
typedef struct state_header {
    char magic[8];
    int64_t n_layers, d_inner, d_state, d_conv, position;
    int64_t conv_count, state_count; /* numbers of all layers */
    int64_t cache_width;             /* numbers of one position in the layers of attention */
} state_header;

static state_header header_of(const ssm_session *session)
{
    const ssm_config *c = session->model->config;
    return (state_header){.magic = "ssmstat2",
                          .n_layers = c->n_layers,
                          .d_inner = c->d_inner,
                          .d_state = c->d_state,
                          .d_conv = c->d_conv,
                          .position = session->position,
                          .conv_count = session->model->conv_count,
                          .state_count = session->model->state_count,
                          .cache_width = ssm__cache_width(session->model)};
}

static size_t conv_bytes(const ssm_session *session)
{
    return (size_t)session->model->conv_count * sizeof(float);
}

static size_t ssm_bytes(const ssm_session *session)
{
    return (size_t)session->model->state_count * sizeof(float);
}

static size_t cache_bytes(const ssm_session *session, int64_t position)
{
    return (size_t)(position * ssm__cache_width(session->model)) * sizeof(float);
}

static size_t size_at(const ssm_session *session, int64_t position)
{
    return sizeof(state_header) + conv_bytes(session) + ssm_bytes(session) +
           cache_bytes(session, position);
}

size_t ssm_session_state_size(const ssm_session *session)
{
    return size_at(session, session->position);
}

void ssm_session_save(const ssm_session *session, void *out)
{
    unsigned char *bytes = out;
    const state_header header = header_of(session);
    memcpy(bytes, &header, sizeof header);
    bytes += sizeof header;
    memcpy(bytes, session->conv_history, conv_bytes(session));
    bytes += conv_bytes(session);
    memcpy(bytes, session->ssm_state, ssm_bytes(session));
    ssm__cache_copy_out(session, session->position, bytes + ssm_bytes(session));
}

/* The header of a block that this model can go on from. Its position says how long the block is;
 * it is believed only as far as the bytes go, and no text comes near the end of the integers. */
static ssm_status read_header(const ssm_session *session, const void *block, size_t bytes,
                              state_header *out, ssm_error *err)
{
    const size_t least = size_at(session, 0);
    if (bytes >= least) {
        memcpy(out, block, sizeof *out);
        state_header expected = header_of(session);
        expected.position = out->position;
        const int64_t width = ssm__cache_width(session->model);
        const int64_t most = width > 0 ? (int64_t)(bytes / sizeof(float)) / width : INT64_MAX / 4;
        if (out->position < 0 || out->position > most ||
            memcmp(out, &expected, sizeof expected) != 0) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "the saved state is not one of this model (shape or header differ)");
        }
    }
    const size_t expected = bytes >= least ? size_at(session, out->position) : least;
    if (bytes != expected) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a saved state of this model has %zu bytes, this one %zu", expected,
                         bytes);
    }
    return SSM_STATUS_OK;
}

/* A pass refuses what is not finite, so no session saved such a state: said here, where the block
 * is at fault, and not by a layer that could only blame the weights. */
static ssm_status check_finite(const unsigned char *data, size_t bytes, ssm_error *err)
{
    const uint32_t exponent = UINT32_C(0x7f800000);
    for (size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
        uint32_t bits;
        memcpy(&bits, data + at, sizeof bits);
        if ((bits & exponent) == exponent) {
            float value;
            memcpy(&value, data + at, sizeof value);
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "number %zu of the saved state is %g; expected a finite number: the "
                             "state is damaged",
                             at / sizeof(float), (double)value);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_session_restore(ssm_session *session, const void *block, size_t bytes,
                               ssm_error *err)
{
    state_header header;
    SSM__TRY(read_header(session, block, bytes, &header, err));
    const unsigned char *data = (const unsigned char *)block + sizeof header;
    SSM__TRY(check_finite(data, bytes - sizeof header, err));
    SSM__TRY(ssm__cache_reserve(session, header.position, err));
    memcpy(session->conv_history, data, conv_bytes(session));
    data += conv_bytes(session);
    memcpy(session->ssm_state, data, ssm_bytes(session));
    data += ssm_bytes(session);
    ssm__cache_copy_in(session, header.position, data);
    session->position = header.position;
    return SSM_STATUS_OK;
}
