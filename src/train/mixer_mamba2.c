/* train/mixer_mamba2.c: the mixers of Mamba-2's block. */
#include "train/mamba2_block.h"

#define BLOCK_MIXER(id, kind)                                                                      \
    static bool id##_accepts(const ssm__network_config *config, char *why, size_t size)            \
    {                                                                                              \
        return ssm__block_accepts(config, kind, why, size);                                        \
    }                                                                                              \
    static void id##_declare(ssm__declaration *list, const ssm__network_config *config,            \
                             int64_t layer)                                                        \
    {                                                                                              \
        ssm__block_declare(list, config, layer, kind);                                             \
    }                                                                                              \
    static void *id##_weights(ssm__arena *arena, const ssm__network_config *config)                \
    {                                                                                              \
        return ssm__block_take_weights(arena, config, kind);                                       \
    }                                                                                              \
    static void *id##_kept(ssm__arena *arena, const ssm__network_config *config, int64_t length,   \
                           int64_t sequences, bool backward)                                       \
    {                                                                                              \
        (void)backward;                                                                            \
        return ssm__block_take_kept(arena, config, length, sequences, kind);                       \
    }                                                                                              \
    static void *id##_scratch(ssm__arena *arena, const ssm__network_config *config,                \
                              int64_t length, int64_t sequences, int threads, bool backward)       \
    {                                                                                              \
        return ssm__block_take_scratch(arena, config, length, sequences, threads, backward, kind); \
    }                                                                                              \
    const ssm__mixer ssm__mixer_##id = {                                                           \
        .accepts = id##_accepts,                                                                   \
        .declare = id##_declare,                                                                   \
        .weights = id##_weights,                                                                   \
        .kept = id##_kept,                                                                         \
        .scratch = id##_scratch,                                                                   \
        .prepare = ssm__block_prepare,                                                             \
        .forward = ssm__block_forward,                                                             \
        .backward = ssm__block_backward,                                                           \
        .finish = ssm__block_finish,                                                               \
    }

BLOCK_MIXER(mamba2, SSM__MIXER_MAMBA2);
BLOCK_MIXER(linear_attention, SSM__MIXER_LINEAR_ATTENTION);
BLOCK_MIXER(gla, SSM__MIXER_GLA);
