/* cli/run_capture.h: logits and hidden states of `run`, kept in memory and written as safetensors.
 */
#ifndef SSM_CLI_RUN_CAPTURE_H
#define SSM_CLI_RUN_CAPTURE_H

#include "load.h"

/* Rows of the prompt: logits [tokens][vocab_size], hidden [n_layers + 1][tokens][d_model]. float32,
 * or float64 from the reference. NULL where not wanted. */
typedef struct cli_capture {
    const ssm_config *config;
    const int32_t *ids; /* [tokens], borrowed */
    int64_t tokens;
    bool reference;
    void *logits, *hidden;
    int64_t offset; /* tokens of the prompt run before the forward call under way */
    int64_t start;  /* position of the prompt's first token: more than 0 after --state-in */
    ssm_observer observer;
} cli_capture;

/* Errors: MEMORY, with the bytes that were wanted. */
ssm_status cli_capture_create(const ssm_config *config, const ssm_ids *ids, bool logits,
                              bool hidden, bool reference, cli_capture *out, ssm_error *err);
void cli_capture_free(cli_capture *capture);
/* Keeps rows of a forward call. */
void cli_capture_logits(cli_capture *capture, int64_t first, int64_t tokens, const float *logits);
/* For ssm_session_set_observer; NULL when hidden states are not wanted. */
const ssm_observer *cli_capture_observer(cli_capture *capture);
/* Writes what was kept; paths may be NULL. */
ssm_status cli_capture_write(const cli_capture *capture, const cli_context *context,
                             const char *model_digest, const char *logits_path,
                             const char *hidden_path, ssm_error *err);

#endif
