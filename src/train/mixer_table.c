#include <string.h>

#include "train/mixer.h"

static const ssm__mixer *const mixers[SSM__MIXERS] = {
    [SSM__MIXER_MAMBA1] = &ssm__mixer_mamba1,
    [SSM__MIXER_MAMBA2] = &ssm__mixer_mamba2,
    [SSM__MIXER_ATTENTION] = &ssm__mixer_attention,
    [SSM__MIXER_LINEAR_ATTENTION] = &ssm__mixer_linear_attention,
    [SSM__MIXER_GLA] = &ssm__mixer_gla,
    [SSM__MIXER_H3] = &ssm__mixer_h3,
    [SSM__MIXER_MLP] = &ssm__mixer_mlp,
};

/* As recipes spell them. */
static const char *const names[] = {[SSM__MIXER_MAMBA1] = "mamba1",
                                    [SSM__MIXER_MAMBA2] = "mamba2",
                                    [SSM__MIXER_ATTENTION] = "attention",
                                    [SSM__MIXER_LINEAR_ATTENTION] = "linear_attention",
                                    [SSM__MIXER_GLA] = "gla",
                                    [SSM__MIXER_H3] = "h3",
                                    [SSM__MIXER_MLP] = NULL};

const ssm__mixer *ssm__mixer_of(ssm__mixer_kind kind)
{
    return mixers[kind];
}

const char *const *ssm__mixer_names(void)
{
    return names;
}

bool ssm__mixer_parse(const char *name, ssm__mixer_kind *out)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (ssm__mixer_kind)i;
            return true;
        }
    }
    return false;
}
