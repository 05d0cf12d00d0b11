/* Shapes of the published models, and of the built-in one. Mamba-1: state-spaces/mamba-{130m
 * … 2.8b}, whose vocabulary of 50277 is padded to 50280 rows, and tiiuae/falcon-mamba-7b; d_state
 * 16, d_conv 4, expand 2, dt_rank = ceil(d_model / 16). Mamba-2: state-spaces/mamba2-{130m … 2.7b},
 * 50288 rows, and mistralai/Mamba-Codestral-7B; d_state 128, heads of 64 channels. */
#include <ssmscope/init.h>

#include <math.h>
#include <string.h>

#include "base/error.h"

/* name, family, n_layers, d_model, rows of the embedding, n_groups (Mamba-2), tied head */
#define SHAPES(X)                                                                                  \
    X("tiny", MAMBA, 8, 192, 4096, 0, true)                                                        \
    X("mamba-130m", MAMBA, 24, 768, 50280, 0, true)                                                \
    X("mamba-370m", MAMBA, 48, 1024, 50280, 0, true)                                               \
    X("mamba-790m", MAMBA, 48, 1536, 50280, 0, true)                                               \
    X("mamba-1.4b", MAMBA, 48, 2048, 50280, 0, true)                                               \
    X("mamba-2.8b", MAMBA, 64, 2560, 50280, 0, true)                                               \
    X("falcon-mamba-7b", FALCON_MAMBA, 64, 4096, 65024, 0, false)                                  \
    X("mamba2-130m", MAMBA2, 24, 768, 50288, 1, true)                                              \
    X("mamba2-370m", MAMBA2, 48, 1024, 50288, 1, true)                                             \
    X("mamba2-780m", MAMBA2, 48, 1536, 50288, 1, true)                                             \
    X("mamba2-1.3b", MAMBA2, 48, 2048, 50288, 1, true)                                             \
    X("mamba2-2.7b", MAMBA2, 64, 2560, 50288, 1, true)                                             \
    X("mamba-codestral-7b", MAMBA2, 64, 4096, 32768, 8, false)

typedef struct shape {
    const char *name;
    ssm_family family;
    int64_t n_layers, d_model, vocab_size, n_groups;
    bool tied;
} shape;

static const shape shapes[] = {
#define SHAPE(name, family, ...) {name, SSM_FAMILY_##family, __VA_ARGS__},
    SHAPES(SHAPE)
#undef SHAPE
};

static const char *const names[] = {
#define SHAPE_NAME(name, ...) name,
    SHAPES(SHAPE_NAME)
#undef SHAPE_NAME
        NULL};

const char *const *ssm_shape_names(void)
{
    return names;
}

static void fill_mamba2(const shape *found, ssm_config *out)
{
    out->d_state = 128;
    out->dt_rank = 0;
    out->head_dim = 64;
    out->d_ssm = out->d_inner;
    out->n_heads = out->d_ssm / out->head_dim;
    out->n_groups = found->n_groups;
    out->norm_groups = found->n_groups;
    out->gated_norm = true;
    out->dt_limit_high = (double)INFINITY;
    out->mixer_norm_eps = 1e-5;
}

ssm_status ssm_shape_config(const char *name, ssm_config *out, ssm_error *err)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *found = &shapes[i];
        if (strcmp(name, found->name) == 0) {
            *out = (ssm_config){.family = found->family,
                                .vocab_size = found->vocab_size,
                                .d_model = found->d_model,
                                .n_layers = found->n_layers,
                                .d_inner = 2 * found->d_model,
                                .d_state = 16,
                                .d_conv = 4,
                                .dt_rank = (found->d_model + 15) / 16,
                                .norm_eps = 1e-5,
                                .mixer_norm_eps = found->family == SSM_FAMILY_MAMBA ? 0.0 : 1e-6,
                                .tied = found->tied};
            if (found->family == SSM_FAMILY_MAMBA2) {
                fill_mamba2(found, out);
            }
            return SSM_STATUS_OK;
        }
    }
    const char *nearest = ssm_nearest(name, names);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "unknown shape \"%s\"%s%s%s", name,
                     nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest,
                     nearest == NULL
                         ? "; expected tiny, mamba-130m … mamba-2.8b, mamba2-130m … mamba2-2.7b"
                         : "?");
}
