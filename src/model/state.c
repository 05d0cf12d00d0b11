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
    char modes[64];                  /* which modes the states are of; "": all (packing.h) */
} state_header;

/* Of a block of a session under a packing, NULL: with all modes. */
static state_header header_of(const ssm_session *session, const ssm__packing *packing)
{
    const ssm_config *c = session->model->config;
    state_header header = {.magic = "ssmstat3",
                           .n_layers = c->n_layers,
                           .d_inner = c->d_inner,
                           .d_state = c->d_state,
                           .d_conv = c->d_conv,
                           .position = session->position,
                           .conv_count = session->model->conv_count,
                           .state_count = ssm__packing_rows(session->model, packing) * SSM__LANES,
                           .cache_width = ssm__cache_width(session->model)};
    if (packing) {
        memcpy(header.modes, packing->digest, sizeof header.modes);
    }
    return header;
}

static size_t conv_bytes(const ssm_session *session)
{
    return (size_t)session->model->conv_count * sizeof(float);
}

static size_t cache_bytes(const ssm_session *session, int64_t position)
{
    return (size_t)(position * ssm__cache_width(session->model)) * sizeof(float);
}

static size_t ssm_bytes(const state_header *header)
{
    return (size_t)header->state_count * sizeof(float);
}

static size_t size_of(const ssm_session *session, const state_header *header)
{
    return sizeof *header + conv_bytes(session) + ssm_bytes(header) +
           cache_bytes(session, header->position);
}

size_t ssm_session_state_size(const ssm_session *session)
{
    const state_header header = header_of(session, session->packing);
    return size_of(session, &header);
}

void ssm_session_save(const ssm_session *session, void *out)
{
    unsigned char *bytes = out;
    const state_header header = header_of(session, session->packing);
    memcpy(bytes, &header, sizeof header);
    bytes += sizeof header;
    memcpy(bytes, session->conv_history, conv_bytes(session));
    bytes += conv_bytes(session);
    memcpy(bytes, session->ssm_state, ssm_bytes(&header));
    ssm__cache_copy_out(session, session->position, bytes + ssm_bytes(&header));
}

/* Whether a block has this header, whatever its position. */
static bool is_header(const state_header *header, const state_header *expected)
{
    state_header placed = *expected;
    placed.position = header->position;
    return memcmp(header, &placed, sizeof placed) == 0;
}

/* The header of a block that this session can go on from. Its position says how long the block is;
 * it is believed only as far as the bytes go, and no text comes near the end of the integers. */
static ssm_status read_header(const ssm_session *session, const void *block, size_t bytes,
                              state_header *out, ssm_error *err)
{
    const state_header own = header_of(session, session->packing);
    const state_header whole = header_of(session, NULL);
    state_header expected = own;
    if (bytes >= sizeof *out) {
        memcpy(out, block, sizeof *out);
        const int64_t width = ssm__cache_width(session->model);
        const int64_t most = width > 0 ? (int64_t)(bytes / sizeof(float)) / width : INT64_MAX / 4;
        state_header all = *out;
        all.state_count = whole.state_count;
        memset(all.modes, 0, sizeof all.modes);
        if (out->position < 0 || out->position > most || !is_header(&all, &whole)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "the saved state is not one of this model (shape or header differ)");
        }
        if (!is_header(out, &own) && !is_header(out, &whole)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "the saved state has the modes of another mask: only the mask it was "
                             "saved under can go on from it (a state saved without a mask goes on "
                             "under any)");
        }
        expected = *out;
    } else {
        expected.position = 0;
    }
    if (bytes != size_of(session, &expected)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a saved state of this model has %zu bytes, this one %zu",
                         size_of(session, &expected), bytes);
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

/* States of a block into the session's, its header having been looked at. */
static ssm_status put_states(ssm_session *session, const state_header *header,
                             const unsigned char *data, ssm_error *err)
{
    const bool packed = session->packing && session->packing->digest[0] != '\0';
    if (!packed || header->modes[0] != '\0') {
        memcpy(session->ssm_state, data, ssm_bytes(header));
        return SSM_STATUS_OK;
    }
    ssm__arena memory; /* a block may lie anywhere */
    SSM__TRY(ssm__arena_create(&memory, ssm_bytes(header), err));
    float *states = SSM__TAKE(&memory, float, header->state_count);
    memcpy(states, data, ssm_bytes(header));
    const ssm_status status = ssm__packing_convert(session->model, NULL, states, session->packing,
                                                   session->ssm_state, err);
    ssm__arena_free(&memory);
    return status;
}

ssm_status ssm_session_restore(ssm_session *session, const void *block, size_t bytes,
                               ssm_error *err)
{
    state_header header;
    SSM__TRY(read_header(session, block, bytes, &header, err));
    const unsigned char *data = (const unsigned char *)block + sizeof header;
    SSM__TRY(check_finite(data, bytes - sizeof header, err));
    SSM__TRY(ssm__cache_reserve(session, header.position, err));
    SSM__TRY(put_states(session, &header, data + conv_bytes(session), err));
    memcpy(session->conv_history, data, conv_bytes(session));
    ssm__cache_copy_in(session, header.position, data + conv_bytes(session) + ssm_bytes(&header));
    session->position = header.position;
    return SSM_STATUS_OK;
}
