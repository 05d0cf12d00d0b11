#include "state_file.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "messages.h"

/* ---- writing --------------------------------------------------------------------------------- */

ssm_status cli_state_write(const char *path, const ssm_session *session, const ssm_ids *ids,
                           const cli_context *context, const char *model_digest, ssm_error *err)
{
    const size_t bytes = ssm_session_state_size(session);
    void *block = malloc(bytes);
    if (block == NULL) {
        return cli_no_memory(err);
    }
    ssm_session_save(session, block);
    const ssm_tensor tensors[] = {{.name = "state",
                                   .dtype = SSM_DTYPE_U8,
                                   .n_dims = 1,
                                   .dims = {(int64_t)bytes},
                                   .data = block,
                                   .bytes = bytes},
                                  {.name = "ids",
                                   .dtype = SSM_DTYPE_I32,
                                   .n_dims = 1,
                                   .dims = {ids->count},
                                   .data = ids->data,
                                   .bytes = (size_t)ids->count * sizeof *ids->data}};
    const ssm_metadata metadata[] = {{"command", context->canonical},
                                     {"model_digest", model_digest},
                                     {"program_version", ssm_version()}};
    const ssm_status status = ssm_safetensors_write(path, tensors, 2, metadata, 3, err);
    free(block);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static ssm_status find(const ssm_safetensors *file, const char *path, const char *name,
                       ssm_dtype dtype, const ssm_tensor **out, ssm_error *err)
{
    *out = ssm_safetensors_find(file, name);
    if (*out != NULL && (*out)->dtype == dtype && (*out)->n_dims == 1) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, SSM_STATUS_FILE, path,
                    "the file has no %s %s [·]: it is no state; --state-out writes one", name,
                    ssm_dtype_name(dtype));
}

static ssm_status check_digest(const ssm_safetensors *file, const char *path,
                               const cli_source *source, ssm_error *err)
{
    const char *digest = ssm_safetensors_metadata(file, "model_digest");
    if (digest != NULL && strcmp(digest, source->digest) == 0) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, SSM_STATUS_FILE, path, "the state is of model %s, but %s is model %s",
                    digest == NULL ? "(not named)" : digest, source->argument, source->digest);
}

static ssm_status read_ids(const ssm_tensor *tensor, const char *path, int64_t rows, ssm_ids *ids,
                           ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < ssm_tensor_count(tensor); i++) {
        const double id = ssm_tensor_get(tensor, i);
        if (id < 0 || id >= (double)rows) {
            return cli_fail(err, SSM_STATUS_FILE, path,
                            "id %.0f (number %lld of the file) is outside the vocabulary of %lld "
                            "ids",
                            id, (long long)i + 1, (long long)rows);
        }
        status = cli_ids_push(ids, (int32_t)id, err);
    }
    return status;
}

/* What does not fit the model is a fault of the file. */
static ssm_status restore(const ssm_tensor *state, const char *path, ssm_session *session,
                          ssm_error *err)
{
    ssm_error found;
    ssm_error_clear(&found);
    const ssm_status status = ssm_session_restore(session, state->data, state->bytes, &found);
    if (status == SSM_STATUS_OK) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, status == SSM_STATUS_USAGE ? SSM_STATUS_FILE : status, path, "%s",
                    found.message);
}

static ssm_status read_file(const ssm_safetensors *file, const char *path, const cli_source *source,
                            ssm_session *session, ssm_ids *ids, ssm_error *err)
{
    const ssm_tensor *state = NULL;
    const ssm_tensor *tokens = NULL;
    ssm_status status = find(file, path, "state", SSM_DTYPE_U8, &state, err);
    status =
        status == SSM_STATUS_OK ? find(file, path, "ids", SSM_DTYPE_I32, &tokens, err) : status;
    status = status == SSM_STATUS_OK ? check_digest(file, path, source, err) : status;
    status = status == SSM_STATUS_OK ? restore(state, path, session, err) : status;
    if (status == SSM_STATUS_OK && ssm_session_position(session) != ssm_tensor_count(tokens)) {
        status =
            cli_fail(err, SSM_STATUS_FILE, path,
                     "the state stands behind %lld tokens, but the file has %lld ids: it is "
                     "damaged",
                     (long long)ssm_session_position(session), (long long)ssm_tensor_count(tokens));
    }
    return status == SSM_STATUS_OK ? read_ids(tokens, path, source->config->vocab_size, ids, err)
                                   : status;
}

ssm_status cli_state_read(const char *path, const cli_source *source, ssm_session *session,
                          ssm_ids *ids, ssm_error *err)
{
    ssm_safetensors *file = NULL;
    ssm_status status = ssm_safetensors_open(path, false, &file, err);
    if (status == SSM_STATUS_OK) {
        status = read_file(file, path, source, session, ids, err);
    }
    ssm_safetensors_close(file);
    return status;
}
