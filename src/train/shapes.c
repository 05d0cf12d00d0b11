/* Shapes of the published models. state-spaces/mamba-{130m,370m,790m,1.4b,2.8b}: a vocabulary of
 * 50277 in 50280 rows, d_state 16, d_conv 4, expand 2, dt_rank = ceil(d_model / 16).
 * state-spaces/mamba2-{130m,370m,780m,1.3b,2.7b} and mamba2attn-2.7b: 50288 rows, d_state 128,
 * heads of 64. tiiuae/falcon-mamba-7b, mistralai/Mamba-Codestral-7B. The small ones have every part
 * of their family and no more.
 */
#include <ssmscope/init.h>

#include <math.h>
#include <string.h>

#include "base/error.h"

enum { ATTENTION_LAYERS = 6 };

typedef struct shape {
    const char *name;
    ssm_config config;
    int64_t attention[ATTENTION_LAYERS]; /* n_attention layer numbers */
    int n_attention;
} shape;

#define MAMBA(NAME, LAYERS, WIDTH, ROWS)                                                           \
    {                                                                                              \
        .name = NAME, .config = {                                                                  \
            .family = SSM_FAMILY_MAMBA,                                                            \
            .vocab_size = (ROWS),                                                                  \
            .d_model = (WIDTH),                                                                    \
            .n_layers = (LAYERS),                                                                  \
            .d_inner = 2 * (WIDTH),                                                                \
            .d_state = 16,                                                                         \
            .d_conv = 4,                                                                           \
            .dt_rank = ((WIDTH) + 15) / 16,                                                        \
            .norm_eps = 1e-5,                                                                      \
            .tied = true                                                                           \
        }                                                                                          \
    }

#define FALCON(NAME, LAYERS, WIDTH, ROWS, EOS)                                                     \
    {                                                                                              \
        .name = NAME, .config = {                                                                  \
            .family = SSM_FAMILY_FALCON_MAMBA,                                                     \
            .vocab_size = (ROWS),                                                                  \
            .d_model = (WIDTH),                                                                    \
            .n_layers = (LAYERS),                                                                  \
            .d_inner = 2 * (WIDTH),                                                                \
            .d_state = 16,                                                                         \
            .d_conv = 4,                                                                           \
            .dt_rank = ((WIDTH) + 15) / 16,                                                        \
            .norm_eps = 1e-5,                                                                      \
            .mixer_norm_eps = 1e-6,                                                                \
            .tied = false,                                                                         \
            .eos_id = (EOS),                                                                       \
            .pad_id = (EOS)                                                                        \
        }                                                                                          \
    }

/* The members of a Mamba-2 config; heads of HEAD channels, GROUPS groups. */
#define MAMBA2_CONFIG(LAYERS, WIDTH, ROWS, STATE, HEAD, GROUPS)                                    \
    .family = SSM_FAMILY_MAMBA2, .vocab_size = (ROWS), .d_model = (WIDTH), .n_layers = (LAYERS),   \
    .d_inner = 2 * (WIDTH), .d_state = (STATE), .d_conv = 4, .n_heads = 2 * (WIDTH) / (HEAD),      \
    .head_dim = (HEAD), .n_groups = (GROUPS), .d_ssm = 2 * (WIDTH), .norm_groups = (GROUPS),       \
    .gated_norm = true, .dt_limit_high = (double)INFINITY, .norm_eps = 1e-5,                       \
    .mixer_norm_eps = 1e-5

#define MAMBA2(NAME, LAYERS, WIDTH)                                                                \
    {                                                                                              \
        .name = NAME, .config = { MAMBA2_CONFIG(LAYERS, WIDTH, 50288, 128, 64, 1), .tied = true }  \
    }

static const shape shapes[] = {
    MAMBA("tiny", 8, 192, 4096),
    MAMBA("mamba-130m", 24, 768, 50280),
    MAMBA("mamba-370m", 48, 1024, 50280),
    MAMBA("mamba-790m", 48, 1536, 50280),
    MAMBA("mamba-1.4b", 48, 2048, 50280),
    MAMBA("mamba-2.8b", 64, 2560, 50280),
    FALCON("falcon-mamba-7b", 64, 4096, 65024, 11),
    MAMBA2("mamba2-130m", 24, 768),
    MAMBA2("mamba2-370m", 48, 1024),
    MAMBA2("mamba2-780m", 48, 1536),
    MAMBA2("mamba2-1.3b", 48, 2048),
    MAMBA2("mamba2-2.7b", 64, 2560),
    {.name = "mamba-codestral-7b", .config = {MAMBA2_CONFIG(64, 4096, 32768, 128, 64, 8)}},
    {.name = "mamba2attn-2.7b",
     .config = {MAMBA2_CONFIG(64, 2560, 50288, 128, 64, 1), .tied = true, .n_query_heads = 30,
                .n_kv_heads = 30, .attention_head_dim = 128, .attention_conv = 4, .rotary_dim = 64,
                .rotary_base = 10000.0, .softmax_scale = 0.08838834764831845 /* 1/sqrt(128) */},
     .attention = {9, 18, 27, 36, 45, 56},
     .n_attention = 6},
    FALCON("tiny-falcon-mamba", 2, 64, 512, 0),
    {.name = "tiny-mamba2", .config = {MAMBA2_CONFIG(2, 64, 512, 32, 16, 2), .tied = true}},
    {.name = "tiny-mamba2attn",
     .config = {MAMBA2_CONFIG(4, 64, 512, 32, 16, 1), .tied = true, .n_query_heads = 4,
                .n_kv_heads = 2, .attention_head_dim = 16, .attention_conv = 4, .rotary_dim = 8,
                .rotary_base = 10000.0, .softmax_scale = 0.25, .d_mlp = 128},
     .attention = {1, 3},
     .n_attention = 2},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const char *const names[] = {"tiny",
                                    "mamba-130m",
                                    "mamba-370m",
                                    "mamba-790m",
                                    "mamba-1.4b",
                                    "mamba-2.8b",
                                    "falcon-mamba-7b",
                                    "mamba2-130m",
                                    "mamba2-370m",
                                    "mamba2-780m",
                                    "mamba2-1.3b",
                                    "mamba2-2.7b",
                                    "mamba-codestral-7b",
                                    "mamba2attn-2.7b",
                                    "tiny-falcon-mamba",
                                    "tiny-mamba2",
                                    "tiny-mamba2attn",
                                    NULL};
_Static_assert(sizeof names / sizeof names[0] == SHAPES + 1, "a name for every shape");

const char *const *ssm_shape_names(void)
{
    return names;
}

static ssm_status find_shape(const char *name, const shape **out, ssm_error *err)
{
    for (size_t i = 0; i < SHAPES; i++) {
        if (strcmp(name, shapes[i].name) == 0) {
            *out = &shapes[i];
            return SSM_STATUS_OK;
        }
    }
    const char *nearest = ssm_nearest(name, names);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "unknown shape \"%s\"%s%s%s", name,
                     nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest,
                     nearest == NULL ? "; expected tiny, mamba-130m … mamba-2.8b, falcon-mamba-7b, "
                                       "mamba2-130m … mamba2-2.7b, mamba-codestral-7b, "
                                       "mamba2attn-2.7b or tiny-falcon-mamba, …"
                                     : "?");
}

ssm_status ssm_shape_config(const char *name, ssm_config *out, ssm_error *err)
{
    const shape *found;
    SSM__TRY(find_shape(name, &found, err));
    *out = found->config;
    return SSM_STATUS_OK;
}

ssm_status ssm_shape_layers(const char *name, ssm_layer_kind *kinds, ssm_error *err)
{
    const shape *found;
    SSM__TRY(find_shape(name, &found, err));
    const bool mamba2 = found->config.family == SSM_FAMILY_MAMBA2;
    for (int64_t layer = 0; layer < found->config.n_layers; layer++) {
        kinds[layer] = mamba2 ? SSM_LAYER_MAMBA2 : SSM_LAYER_MAMBA;
    }
    for (int i = 0; i < found->n_attention; i++) {
        kinds[found->attention[i]] = SSM_LAYER_ATTENTION;
    }
    return SSM_STATUS_OK;
}
