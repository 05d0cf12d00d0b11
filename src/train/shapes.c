/* Shapes of the published models: state-spaces/mamba-{130m,370m,790m,1.4b,2.8b}, whose vocabulary
 * of 50277 is padded to 50280 rows; and of the built-in model. d_state 16, d_conv 4, expand 2,
 * dt_rank = ceil(d_model / 16) everywhere. */
#include <ssmscope/init.h>

#include <string.h>

#include "base/error.h"

#define SHAPES(X)                                                                                  \
    X("tiny", 8, 192, 4096)                                                                        \
    X("mamba-130m", 24, 768, 50280)                                                                \
    X("mamba-370m", 48, 1024, 50280)                                                               \
    X("mamba-790m", 48, 1536, 50280)                                                               \
    X("mamba-1.4b", 48, 2048, 50280)                                                               \
    X("mamba-2.8b", 64, 2560, 50280)

typedef struct shape {
    const char *name;
    int64_t n_layers, d_model, vocab_size;
} shape;

static const shape shapes[] = {
#define SHAPE(name, n_layers, d_model, vocab_size) {name, n_layers, d_model, vocab_size},
    SHAPES(SHAPE)
#undef SHAPE
};

static const char *const names[] = {
#define SHAPE_NAME(name, n_layers, d_model, vocab_size) name,
    SHAPES(SHAPE_NAME)
#undef SHAPE_NAME
        NULL};

const char *const *ssm_shape_names(void)
{
    return names;
}

ssm_status ssm_shape_config(const char *name, ssm_config *out, ssm_error *err)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *found = &shapes[i];
        if (strcmp(name, found->name) == 0) {
            *out = (ssm_config){.family = SSM_FAMILY_MAMBA,
                                .vocab_size = found->vocab_size,
                                .d_model = found->d_model,
                                .n_layers = found->n_layers,
                                .d_inner = 2 * found->d_model,
                                .d_state = 16,
                                .d_conv = 4,
                                .dt_rank = (found->d_model + 15) / 16,
                                .norm_eps = 1e-5,
                                .tied = true};
            return SSM_STATUS_OK;
        }
    }
    const char *nearest = ssm_nearest(name, names);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "unknown shape \"%s\"%s%s%s", name,
                     nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest,
                     nearest == NULL ? "; expected tiny or mamba-130m … mamba-2.8b" : "?");
}
