/* model/state.c: saving and restoring the recurrent state as one block of bytes. */
#include "model/session.h"

#include <string.h>

#include "base/error.h"

/* What a block begins with: the shape it belongs to and the position. */
typedef struct state_header {
    char magic[8];
    int64_t n_layers, d_inner, d_state, d_conv, position;
} state_header;

static state_header header_of(const ssm_session *session)
{
    const ssm_config *c = session->model->config;
    return (state_header){.magic = "ssmstat1",
                          .n_layers = c->n_layers,
                          .d_inner = c->d_inner,
                          .d_state = c->d_state,
                          .d_conv = c->d_conv,
                          .position = session->position};
}

static size_t conv_bytes(const ssm_session *session)
{
    return (size_t)session->model->conv_count * sizeof(float);
}

static size_t ssm_bytes(const ssm_session *session)
{
    return (size_t)session->model->state_count * sizeof(float);
}

size_t ssm_session_state_size(const ssm_session *session)
{
    return sizeof(state_header) + conv_bytes(session) + ssm_bytes(session);
}

void ssm_session_save(const ssm_session *session, void *out)
{
    unsigned char *bytes = out;
    const state_header header = header_of(session);
    memcpy(bytes, &header, sizeof header);
    bytes += sizeof header;
    memcpy(bytes, session->conv_history, conv_bytes(session));
    memcpy(bytes + conv_bytes(session), session->ssm_state, ssm_bytes(session));
}

ssm_status ssm_session_restore(ssm_session *session, const void *block, size_t bytes,
                               ssm_error *err)
{
    if (bytes != ssm_session_state_size(session)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a saved state of this model has %zu bytes, this one %zu",
                         ssm_session_state_size(session), bytes);
    }
    const unsigned char *data = block;
    state_header header;
    memcpy(&header, data, sizeof header);
    state_header expected = header_of(session);
    expected.position = header.position;
    if (header.position < 0 || memcmp(&header, &expected, sizeof header) != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the saved state is not one of this model (shape or header differ)");
    }
    data += sizeof header;
    memcpy(session->conv_history, data, conv_bytes(session));
    memcpy(session->ssm_state, data + conv_bytes(session), ssm_bytes(session));
    session->position = header.position;
    return SSM_STATUS_OK;
}
