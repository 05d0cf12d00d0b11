/* cli/state_file.h: the state of a stream of text in a safetensors file, from which a later `run`
 * goes on with the same bits as if it had never stopped. */
#ifndef SSM_CLI_STATE_FILE_H
#define SSM_CLI_STATE_FILE_H

#include "load.h"

/* Writes `state` U8 [bytes] (the block of ssm_session_save) and `ids` I32 [position], the tokens
 * that led to it; metadata: model_digest, command, program_version. ids: as many as the session's
 * position. Errors: FAILED, MEMORY. */
ssm_status cli_state_write(const char *path, const ssm_session *session, const ssm_ids *ids,
                           const cli_context *context, const char *model_digest, ssm_error *err);

/* Restores the session and appends the tokens to ids. Errors: FILE (of another model, damaged),
 * MEMORY. */
ssm_status cli_state_read(const char *path, const cli_source *source, ssm_session *session,
                          ssm_ids *ids, ssm_error *err);

#endif
