/* test_toy.h: small random Mamba-1 and Mamba-2 checkpoints, made in code. Their weights are random
 * everywhere (no zero biases, no ones, no arange in A_log), so that nothing a model does can go
 * unnoticed. */
#ifndef TEST_TOY_H
#define TEST_TOY_H

#include <ssmscope/checkpoint.h>

/* Every dimension odd to the vectors: d_model 20, d_inner 36, d_state 5, dt_rank 3, d_conv 3,
 * vocab_size 31, 3 layers, untied. */
ssm_config toy_config(void);

/* A Mamba-2 likewise: 4 heads of 10 channels in 2 groups, d_state 5. */
ssm_config toy_config_heads(void);
/* Heads that do not fit one vector: 4 heads of 40 channels in 2 groups, d_state 18. */
ssm_config toy_config_wide_heads(bool norm_before_gate);

typedef struct toy_options {
    bool no_proj_bias, no_conv_bias;
    int64_t claimed_vocab; /* vocab_size in config.json; 0: the rows of the embedding */
    const char *more_json; /* more members of config.json, e.g. ", \"time_step_min\": 0.5" */
    /* Called for every tensor before it is rounded to dtype; may be NULL. */
    void (*edit)(const char *name, float *values, int64_t count);
} toy_options;

/* Writes DIRECTORY/config.json and model.safetensors in Hugging Face layout
 * (Mamba-2: config.json of the original code); all tensors are stored
 * as dtype (F32, F16, BF16). Tensor values depend on seed and name only. The directory must exist.
 * options may be NULL. Fails the test on any error. */
void toy_checkpoint(const char *directory, const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                    const toy_options *options);
/* count ids below config->vocab_size, from a stream of the seed. */
void toy_ids(const ssm_config *config, uint64_t seed, int32_t *ids, int64_t count);

#endif
