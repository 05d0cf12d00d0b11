/* The table of rules, and what all of them share: checking the request, describing the mask. */
#include <ssmscope/select.h>

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "select/rule.h"

/* The rules of this version; one line a rule. */
#define RULES(X) X(static)

#define RULE_ENTRY(name) &ssm__rule_##name,
static const ssm__rule *const rules[] = {RULES(RULE_ENTRY)};
#undef RULE_ENTRY
#define RULE_NAME(name) #name,
static const char *const rule_names[] = {RULES(RULE_NAME) NULL};
#undef RULE_NAME

const char *const *ssm_select_rules(void)
{
    return rule_names;
}

static ssm_status find_rule(const char *name, const ssm__rule **out, ssm_error *err)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i]->name, name) == 0) {
            *out = rules[i];
            return SSM_STATUS_OK;
        }
    }
    const char *nearest = ssm_nearest(name, rule_names);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "there is no rule '%.64s'%s%s%s", name,
                     nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                     nearest == NULL ? "" : "'?");
}

ssm_scope ssm__select_scope(const ssm_select_options *options)
{
    return options->scope != NULL && strcmp(options->scope, "head") == 0 ? SSM_SCOPE_HEAD
                                                                         : SSM_SCOPE_CHANNEL;
}

static bool has_calibration(const ssm_recording *recording)
{
    for (int64_t w = 0; w < ssm_recording_window_count(recording); w++) {
        if (ssm_recording_get_window(recording, w)->role == SSM_ROLE_CALIBRATION) {
            return true;
        }
    }
    return false;
}

static ssm_status check(const ssm_recording *recording, const ssm_select_options *options,
                        const ssm__rule *rule, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    if (options->scope != NULL && strcmp(options->scope, "channel") != 0 &&
        strcmp(options->scope, "head") != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "scope '%.64s' is not known: this version selects per 'channel' and, for "
                         "Mamba-2, per 'head'",
                         options->scope);
    }
    SSM__TRY(ssm__check_scope(info, ssm__select_scope(options), err));
    if (options->budget < 1 || options->budget > info->d_state) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the budget is the number of kept modes a channel, 1 … %lld; found %lld",
                         (long long)info->d_state, (long long)options->budget);
    }
    const int64_t with_states = info->n_layers - info->n_attention;
    if (info->n_recorded != with_states) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a mask is for all %lld layers%s but the recording has only %lld: record "
                         "without --layers",
                         (long long)with_states, info->n_attention > 0 ? " that have states" : "",
                         (long long)info->n_recorded);
    }
    if (rule->needs_calibration && !has_calibration(recording)) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "rule '%s' ranks modes on calibration windows, and the recording has none: "
            "record with --calibration-windows",
            rule->name);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_select(ssm_recording *recording, const ssm_select_options *options, ssm_mask *out,
                      ssm_error *err)
{
    const ssm__rule *rule = NULL;
    *out = (ssm_mask){0};
    SSM__TRY(find_rule(options->rule, &rule, err));
    SSM__TRY(check(recording, options, rule, err));
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const ssm_scope scope = ssm__select_scope(options);
    const int64_t rows = ssm_recording_sets(info, scope);
    SSM__TRY(ssm_mask_create(info->n_layers, rows, info->d_state, out, err));
    out->head_dim = rows > ssm_recording_channels(info) ? info->head_dim : 0;
    snprintf(out->rule, sizeof out->rule, "%s", rule->name);
    snprintf(out->scope, sizeof out->scope, "%s", ssm_scope_name(scope));
    memcpy(out->model_digest, info->model_digest, sizeof out->model_digest);
    memcpy(out->recording_digest, info->digest, sizeof out->recording_digest);
    out->budget = options->budget;
    out->seed = options->seed;
    ssm_status status = rule->fill(recording, options, out, err);
    if (status != SSM_STATUS_OK) {
        ssm_mask_free(out);
    }
    return status;
}
