/* cli/plan.h: how many bytes work will take, before it begins. */
#ifndef SSM_CLI_PLAN_H
#define SSM_CLI_PLAN_H

#include <ssmscope/checkpoint.h>

/* All but those of attention. */
int64_t cli_plan_layers_with_states(const ssm_checkpoint *checkpoint);
/* What one stream of text carries along: per layer states and the last inputs of the convolution,
 * float32. */
int64_t cli_plan_state_bytes(const ssm_checkpoint *checkpoint);
/* The part of it that one mode of every channel takes: under a mask that keeps r of N modes in
 * every channel (Mamba-2: the same in all channels of a head) the state is N − r of these smaller.
 */
int64_t cli_plan_mode_bytes(const ssm_checkpoint *checkpoint);
/* What it grows by with every token: keys and values. */
int64_t cli_plan_token_bytes(const ssm_checkpoint *checkpoint);

typedef struct cli_plan_recording {
    int64_t window_bytes;      /* a window's file without its Grams */
    int64_t window_gram_bytes; /* the Grams of a window, or of a domain's sum */
} cli_plan_recording;

/* The recording of windows of `window` tokens over `n_layers` layers (docs/recording.md). Tensor
 * data only; headers add a few kB a file. */
cli_plan_recording cli_plan_record(const ssm_config *config, int64_t n_layers, int64_t window);

#endif
