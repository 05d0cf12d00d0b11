/* What no shape says: epsilons, limits of the step size, the order and the groups of Mamba-2's
 * gated norm, token ids. A default that is used is noted. */
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"

static ssm_status check_id(const ssm_checkpoint *checkpoint, const ssm__claim *claim,
                           ssm_error *err)
{
    int64_t rows = checkpoint->config.vocab_size;
    if (claim->key == NULL || claim->value < rows) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(checkpoint->config_path, claim->key),
                     "config.json says %s = %" PRId64 ", but the embedding has %" PRId64 " rows",
                     claim->key, claim->value, rows);
}

static ssm_status take_ids(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claims *claims = &checkpoint->claims;
    ssm_config *config = &checkpoint->config;
    SSM__TRY(check_id(checkpoint, &claims->bos_id, err));
    SSM__TRY(check_id(checkpoint, &claims->eos_id, err));
    SSM__TRY(check_id(checkpoint, &claims->pad_id, err));
    config->bos_id = claims->bos_id.value;
    config->eos_id = claims->eos_id.value;
    config->pad_id = claims->pad_id.value;
    return SSM_STATUS_OK;
}

/* The original schema and params.json have no key for it: their code always uses 1e-5. */
static ssm_status take_norm_eps(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim_number *claim = &checkpoint->claims.norm_eps;
    checkpoint->config.norm_eps = claim->key != NULL ? claim->value : 1e-5;
    if (claim->key != NULL || checkpoint->claims.schema != SSM__SCHEMA_HF) {
        return SSM_STATUS_OK;
    }
    return ssm__note(&checkpoint->notes, err,
                     "config.json does not say layer_norm_epsilon; 1e-5, the family's published "
                     "default, is used.");
}

static ssm_status take_mixer_eps(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim_number *claim = &checkpoint->claims.mixer_eps;
    ssm_config *config = &checkpoint->config;
    switch (config->family) {
    case SSM_FAMILY_FALCON_MAMBA:
        config->mixer_norm_eps = claim->key != NULL ? claim->value : 1e-6;
        return claim->key != NULL
                   ? SSM_STATUS_OK
                   : ssm__note(&checkpoint->notes, err,
                               "config.json does not say mixer_rms_eps; 1e-6, the family's "
                               "published default, is used.");
    case SSM_FAMILY_MAMBA2:
        config->mixer_norm_eps = config->norm_eps;
        break;
    case SSM_FAMILY_MAMBA:
        break;
    }
    return claim->key == NULL
               ? SSM_STATUS_OK
               : ssm__refuse_claim(checkpoint, claim->key,
                                   "norms inside the mixer belong to model_type \"falcon_mamba\"",
                                   err);
}

static ssm_status take_limits(ssm_checkpoint *checkpoint, ssm_error *err)
{
    const ssm__claim_limits *claim = &checkpoint->claims.dt_limits;
    ssm_config *config = &checkpoint->config;
    bool mamba2 = config->family == SSM_FAMILY_MAMBA2;
    if (mamba2) {
        config->dt_limit_low = claim->key != NULL ? claim->low : 0;
        config->dt_limit_high = claim->key != NULL ? claim->high : (double)INFINITY;
        return SSM_STATUS_OK;
    }
    if (claim->key == NULL || (claim->low <= 0 && isinf(claim->high))) {
        return SSM_STATUS_OK;
    }
    return ssm__refuse_claim(checkpoint, claim->key,
                             "the mamba family has no limits on the time step", err);
}

/* The groups of the gated norm are those of B and C, unless the caller asks for others. */
static ssm_status take_norm_groups(ssm_checkpoint *checkpoint, int64_t asked, ssm_error *err)
{
    ssm_config *config = &checkpoint->config;
    if (config->family != SSM_FAMILY_MAMBA2 || !config->gated_norm) {
        return asked == 0 ? SSM_STATUS_OK
                          : ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(checkpoint->path),
                                      "the model has no gated norm whose groups could be chosen "
                                      "(norm groups = %" PRId64 " was asked for)",
                                      asked);
    }
    config->norm_groups = asked == 0 ? config->n_groups : asked;
    if (asked < 0 || config->n_heads % config->norm_groups != 0 ||
        config->d_ssm % config->norm_groups != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(checkpoint->path),
                         "norm groups = %" PRId64 " was asked for; expected a divisor of n_heads = "
                         "%" PRId64 " and d_ssm = %" PRId64,
                         asked, config->n_heads, config->d_ssm);
    }
    if (config->norm_groups == config->n_groups) {
        return SSM_STATUS_OK;
    }
    return ssm__note(&checkpoint->notes, err,
                     "The gated norm has %" PRId64 " groups, as asked, not n_groups = %" PRId64 ".",
                     config->norm_groups, config->n_groups);
}

ssm_status ssm__take_settings(ssm_checkpoint *checkpoint, const ssm_checkpoint_options *options,
                              ssm_error *err)
{
    SSM__TRY(take_ids(checkpoint, err));
    SSM__TRY(take_norm_eps(checkpoint, err));
    SSM__TRY(take_mixer_eps(checkpoint, err));
    SSM__TRY(take_limits(checkpoint, err));
    const ssm__claim_flag *before = &checkpoint->claims.norm_before_gate;
    checkpoint->config.norm_before_gate = checkpoint->config.gated_norm && before->value;
    return take_norm_groups(checkpoint, options->norm_groups, err);
}
