#include "masks.h"

#include <math.h>
#include <string.h>

#include <ssmscope/adapt.h>

#include "messages.h"

static const char ghost[] = "ghost";

bool cli_is_ghost(const char *name)
{
    return strcmp(name, ghost) == 0;
}

const char *const *cli_mask_rule_names(void)
{
    enum { NAMES_MAX = 32 };
    static const char *names[NAMES_MAX];
    const char *const *rules = ssm_select_rules();
    size_t n = 0;
    for (; rules[n] != NULL && n + 2 < NAMES_MAX; n++) {
        names[n] = rules[n];
    }
    names[n] = ghost;
    return names;
}

/* A digest that is not there (an old or hand-made file) cannot disagree. */
static ssm_status check_digest(const char *path, const char *what, const char *digest,
                               const cli_source *source, const char *advice, ssm_error *err)
{
    if (digest[0] == '\0' || strcmp(digest, source->digest) == 0) {
        return SSM_STATUS_OK;
    }
    return cli_fail(err, SSM_STATUS_FILE, path, "%s model %s, but %s is model %s: %s", what, digest,
                    source->argument, source->digest, advice);
}

ssm_status cli_mask_read(const char *path, const cli_source *source, ssm_mask *out, ssm_error *err)
{
    ssm_status status = ssm_mask_read(path, out, err);
    if (status == SSM_STATUS_OK) {
        status = check_digest(path, "the mask is for", out->model_digest, source,
                              "select makes one from a recording of this model", err);
    }
    const ssm_config *c = source->config;
    const int64_t channels = c->n_heads > 0 ? c->d_ssm : c->d_inner;
    if (status == SSM_STATUS_OK &&
        (out->n_layers != c->n_layers || out->d_state != c->d_state ||
         (out->n_channels != channels &&
          (c->n_heads == 0 || out->n_channels != c->n_heads || out->head_dim > 0)))) {
        status = cli_fail(
            err, SSM_STATUS_FILE, path,
            "the mask is for %lld layers of %lld channels with %lld modes, but %s has "
            "%lld of %lld with %lld; make a mask from a recording of this model",
            (long long)out->n_layers, (long long)out->n_channels, (long long)out->d_state,
            source->argument, (long long)c->n_layers, (long long)channels, (long long)c->d_state);
        ssm_mask_free(out);
    }
    return status;
}

ssm_status cli_recording_check(const char *path, const ssm_recording *recording,
                               const cli_source *source, ssm_error *err)
{
    return check_digest(path, "the recording is of",
                        ssm_recording_get_info(recording)->model_digest, source,
                        "give the model that was recorded, or record this one", err);
}

ssm_status cli_recording_open(const char *recording, const cli_source *source, ssm_recording **out,
                              ssm_error *err)
{
    *out = NULL;
    ssm_status status = ssm_recording_open(recording, out, err);
    return status == SSM_STATUS_OK ? cli_recording_check(recording, *out, source, err) : status;
}

cli_mask_sums cli_mask_count(const ssm_mask *mask, const ssm_recording *recording)
{
    const int64_t attention = ssm_recording_get_info(recording)->n_attention;
    const int64_t per_layer = mask->n_channels * mask->d_state;
    cli_mask_sums sums = {.layers = mask->n_layers - attention, .kept = -attention * per_layer};
    sums.modes = sums.layers * per_layer;
    for (int64_t i = 0; i < mask->n_layers * per_layer; i++) {
        sums.kept += mask->keep[i] != 0;
    }
    return sums;
}

ssm_status cli_mask_error(ssm_recording *recording, const ssm_mask *mask, ssm_role role,
                          double *out, ssm_error *err)
{
    ssm_error_curve curve = {0};
    ssm_error found;
    ssm_error_clear(&found);
    const ssm_status status = ssm_select_error(recording, mask, role, &curve, &found);
    *out = status == SSM_STATUS_OK ? curve.mean[0] : (double)NAN;
    ssm_error_curve_free(&curve);
    if (status == SSM_STATUS_OK || status == SSM_STATUS_USAGE) {
        return SSM_STATUS_OK;
    }
    *err = found;
    return status;
}

ssm_status cli_mask_ghost(cli_context *context, ssm_recording *recording, const cli_source *source,
                          const char *scope, int64_t budget, ssm_mask *out, ssm_error *err)
{
    ssm_pool *pool = NULL;
    double zeroed = 0.0;
    const bool defined = source->config->family == SSM_FAMILY_MAMBA2 &&
                         ssm_recording_get_info(recording)->n_attention == 0;
    /* Its sets are those of groups: at another --scope it would not be what stands beside it. Where
     * it is not defined at all, no scope helps, and ssm_ghost_select says why. */
    if (defined && strcmp(scope, "group") != 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "rule ghost keeps sets of groups of heads: give --scope group");
    }
    ssm_status status = cli_pool(context, &pool, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_ghost_select(source->model, recording, budget, pool, out, &zeroed, err);
    }
    if (status == SSM_STATUS_OK) {
        cli_note(context, "ghost: %.2f %% of the state is zeroed, layer after layer",
                 100.0 * zeroed);
    }
    return status;
}
