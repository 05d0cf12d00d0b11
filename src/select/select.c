/* The table of rules, and what all of them share: checking the request, from sets to the mask. */
#include <ssmscope/select.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "select/ranking.h"

/* The rules of this version; one line a rule. */
#define RULES(X)                                                                                   \
    X(static, "static")                                                                            \
    X(hankel, "hankel")                                                                            \
    X(hankel_adjoint, "hankel-adjoint")                                                            \
    X(last, "last")                                                                                \
    X(activity, "activity")                                                                        \
    X(random, "random")                                                                            \
    X(optimal, "optimal")                                                                          \
    X(greedy_swap, "greedy-swap")                                                                  \
    X(compensated, "compensated")                                                                  \
    X(compensated_shared, "compensated-shared")

#define RULE_ENTRY(identifier, name) &ssm__rule_##identifier,
static const ssm__rule *const rules[] = {RULES(RULE_ENTRY)};
#undef RULE_ENTRY
#define RULE_NAME(identifier, name) name,
static const char *const rule_names[] = {RULES(RULE_NAME) NULL};
#undef RULE_NAME

const char *const *ssm_select_rules(void)
{
    return rule_names;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The rule of the first `length` bytes of a name, or NULL. */
static const ssm__rule *rule_of(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strlen(rules[i]->name) == length && memcmp(rules[i]->name, name, length) == 0) {
            return rules[i];
        }
    }
    return NULL;
}

/* "static, hankel or last" of a list. */
static void list_names(const char *const *names, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; names[i] != NULL && at < size; i++) {
        const char *join = i == 0 ? "" : names[i + 1] == NULL ? " or " : ", ";
        const int length = snprintf(out + at, size - at, "%s%s", join, names[i]);
        at += length > 0 ? (size_t)length : 0;
    }
}

static ssm_status find_rule(const char *name, ssm__selection *out, ssm_error *err)
{
    const size_t length = strcspn(name, ":");
    out->rule = rule_of(name, length);
    out->parameter = name[length] == ':' ? name + length + 1 : NULL;
    out->parameter_at = -1;
    if (out->rule == NULL) {
        const char *nearest = ssm_nearest(name, rule_names);
        char list[160];
        list_names(rule_names, list, sizeof list);
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "there is no rule '%.64s'; %s%s%s",
                         name, nearest == NULL ? "expected " : "did you mean '",
                         nearest == NULL ? list : nearest, nearest == NULL ? "" : "'?");
    }
    const char *const *known = out->rule->parameters;
    for (int64_t i = 0; out->parameter != NULL && known != NULL && known[i] != NULL; i++) {
        out->parameter_at = strcmp(known[i], out->parameter) == 0 ? i : out->parameter_at;
    }
    if (out->parameter == NULL || out->parameter_at >= 0) {
        return SSM_STATUS_OK;
    }
    char list[160];
    list_names(known == NULL ? (const char *const[]){NULL} : known, list, sizeof list);
    return ssm__fail(
        err, SSM_STATUS_USAGE, SSM__NOWHERE, "rule %s%s%s, found '%.64s'", out->rule->name,
        known == NULL ? " takes nothing behind its name" : ": expected ", list, out->parameter);
}

bool ssm_select_is_rule(const char *rule)
{
    ssm__selection found = {0};
    return find_rule(rule, &found, NULL) == SSM_STATUS_OK;
}

const ssm__rule *ssm__base_rule(const ssm__selection *selection)
{
    const ssm__rule *rule = selection->rule;
    if (rule->score != NULL || rule->choose != NULL) {
        return rule;
    }
    return selection->parameter == NULL
               ? &ssm__rule_static
               : rule_of(selection->parameter, strlen(selection->parameter));
}

/* ---- the request ----------------------------------------------------------------------------- */

/* "channel" … → rows and sets. */
static ssm_status find_scope(const char *scope, ssm__selection *out, ssm_error *err)
{
    const ssm_recording_info *info = out->info;
    const bool heads = info->family == SSM_FAMILY_MAMBA2;
    scope = scope == NULL ? "channel" : scope;
    out->row_scope = heads && strcmp(scope, "channel") != 0 ? SSM_SCOPE_HEAD : SSM_SCOPE_CHANNEL;
    out->rows = ssm_recording_sets(info, out->row_scope);
    if (strcmp(scope, "channel") == 0 || (heads && strcmp(scope, "head") == 0)) {
        out->sets = out->rows;
    } else if (heads && strcmp(scope, "group") == 0) {
        out->sets = info->n_groups;
    } else if (strcmp(scope, "layer") == 0) {
        out->sets = 1;
    } else if (strcmp(scope, "head") == 0 || strcmp(scope, "group") == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "scope %s: the recording is of a %s model, which has no %ss; its sets are "
                         "per channel or per layer",
                         scope, ssm_family_name(info->family), scope);
    } else {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "scope '%.64s' is not known: expected channel, layer or, for Mamba-2, "
                         "head or group",
                         scope);
    }
    out->rows_per_set = out->rows / out->sets;
    return SSM_STATUS_OK;
}

bool ssm__has_windows(const ssm_recording *recording, ssm_role role)
{
    for (int64_t w = 0; w < ssm_recording_window_count(recording); w++) {
        if (ssm_recording_get_window(recording, w)->role == role) {
            return true;
        }
    }
    return false;
}

/* What a rule needs and the recording or the scope does not give. */
static ssm_status check_needs(const ssm__selection *s, const ssm__rule *rule, ssm_error *err)
{
    const ssm_recording_info *info = s->info;
    const bool heads = info->family == SSM_FAMILY_MAMBA2;
    if ((rule->needs & SSM__NO_HEADS) != 0 && heads) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s ranks modes by their own A; a head of %s has one for all its "
                         "modes, so they all tie: not defined for this family",
                         rule->name, ssm_family_name(info->family));
    }
    if ((rule->needs & (SSM__NEEDS_GRAM | SSM__BY_ROW)) != 0 && heads &&
        s->row_scope == SSM_SCOPE_CHANNEL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s needs %s, which a recording of %s has per head, not per channel: "
                         "choose --scope head, group or layer",
                         rule->name, (rule->needs & SSM__BY_ROW) != 0 ? "moments" : "the Gram",
                         ssm_family_name(info->family));
    }
    const char *scope = s->options->scope == NULL ? "channel" : s->options->scope;
    if ((rule->needs & SSM__SHARED_SETS) != 0 && strcmp(scope, "layer") != 0 &&
        strcmp(scope, "group") != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s gives weights that a smaller checkpoint has places for, and a "
                         "checkpoint has sets of a layer (Mamba-2: or group) only: choose --scope "
                         "layer, or rule compensated",
                         rule->name);
    }
    if ((rule->needs & SSM__NEEDS_CALIBRATION) != 0 &&
        !ssm__has_windows(s->recording, SSM_ROLE_CALIBRATION)) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "rule '%s' ranks modes on calibration windows, and the recording has none: "
            "record with --calibration-windows",
            rule->name);
    }
    if ((rule->needs & SSM__NEEDS_GRAM) != 0 && !info->has_gram) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s needs Grams, and the recording was made with --no-gram: record "
                         "without it",
                         rule->name);
    }
    return SSM_STATUS_OK;
}

/* A mask needs the sets of all layers, and one threshold their scores. */
static ssm_status check_complete(const ssm__selection *s, const char *what, ssm_error *err)
{
    const int64_t with_states = s->info->n_layers - s->info->n_attention;
    if (s->info->n_recorded == with_states) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "%s is for all %lld layers%s but the recording has only %lld: record without "
                     "--layers",
                     what, (long long)with_states,
                     s->info->n_attention > 0 ? " that have states" : "",
                     (long long)s->info->n_recorded);
}

ssm_status ssm__selection_create(ssm_recording *recording, const ssm_select_options *options,
                                 ssm__selection *out, ssm_error *err)
{
    *out = (ssm__selection){.recording = recording,
                            .info = ssm_recording_get_info(recording),
                            .options = options,
                            .ridge = options->ridge == 0.0 ? SSM_DEFAULT_RIDGE : options->ridge};
    out->d_state = out->info->d_state;
    SSM__TRY(find_rule(options->rule, out, err));
    SSM__TRY(find_scope(options->scope, out, err));
    if (!(out->ridge > 0.0 && out->ridge <= 1e6)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the ridge is relative to a summand's energy, above 0 and at most 1e6; "
                         "found %g",
                         options->ridge);
    }
    const ssm__rule *base = ssm__base_rule(out);
    SSM__TRY(check_needs(out, out->rule, err));
    SSM__TRY(check_needs(out, base, err));
    return (base->needs & SSM__GLOBAL) != 0 ? check_complete(out, "one threshold", err)
                                            : SSM_STATUS_OK;
}

/* ---- from sets to the mask ------------------------------------------------------------------- */

/* keep [sets][N] of a layer into its rows. */
static void spread(const ssm__selection *s, const uint8_t *keep, int64_t layer, ssm_mask *mask)
{
    const size_t N = (size_t)s->d_state;
    for (int64_t row = 0; row < s->rows; row++) {
        memcpy(mask->keep + (size_t)(layer * s->rows + row) * N,
               keep + (size_t)(row / s->rows_per_set) * N, N);
    }
}

static ssm_status keep_ranked(const ssm__selection *s, const ssm__rule *rule, int64_t budget,
                              uint8_t *keep, ssm_mask *mask, ssm_error *err)
{
    ssm__ranking ranking;
    const int64_t N = s->d_state;
    ssm_status status = ssm__ranking_create(s, rule, &ranking, err);
    for (int64_t l = 0; status == SSM_STATUS_OK && l < s->info->n_recorded; l++) {
        memset(keep, 0, (size_t)(s->sets * N));
        for (int64_t set = 0; set < s->sets; set++) {
            const int32_t *order = ranking.orders + (l * s->sets + set) * N;
            for (int64_t k = 0; k < ssm__ranking_count(&ranking, l, set, budget); k++) {
                keep[set * N + order[k]] = 1;
            }
        }
        spread(s, keep, s->info->layers[l], mask);
    }
    ssm__ranking_free(&ranking);
    return status;
}

static ssm_status keep_chosen(const ssm__selection *s, const ssm__rule *rule, int64_t budget,
                              uint8_t *keep, ssm_mask *mask, ssm_error *err)
{
    for (int64_t l = 0; l < s->info->n_recorded; l++) {
        memset(keep, 1, (size_t)(s->sets * s->d_state));
        SSM__TRY(rule->choose(s, s->info->layers[l], budget, keep, err));
        spread(s, keep, s->info->layers[l], mask);
    }
    return SSM_STATUS_OK;
}

static ssm_status fill(const ssm__selection *s, int64_t budget, ssm_mask *mask, ssm_error *err)
{
    const ssm__rule *base = ssm__base_rule(s);
    const size_t size = (size_t)(s->sets * s->d_state);
    uint8_t *keep = malloc(size);
    if (keep == NULL) {
        return ssm__fail_memory(err, "sets of modes", size);
    }
    ssm_status status = base->score != NULL ? keep_ranked(s, base, budget, keep, mask, err)
                                            : keep_chosen(s, base, budget, keep, mask, err);
    free(keep);
    mask->mean_budget = (base->needs & SSM__GLOBAL) != 0;
    return status == SSM_STATUS_OK && s->rule != base ? ssm__add_compensation(s, mask, err)
                                                      : status;
}

ssm_status ssm__selection_mask(const ssm__selection *s, int64_t budget, ssm_mask *out,
                               ssm_error *err)
{
    const ssm_recording_info *info = s->info;
    SSM__TRY(ssm_mask_create(info->n_layers, s->rows, s->d_state, out, err));
    out->head_dim = s->rows > ssm_recording_channels(info) ? info->head_dim : 0;
    snprintf(out->rule, sizeof out->rule, "%s", s->options->rule);
    snprintf(out->scope, sizeof out->scope, "%s",
             s->options->scope == NULL ? "channel" : s->options->scope);
    memcpy(out->model_digest, info->model_digest, sizeof out->model_digest);
    memcpy(out->recording_digest, info->digest, sizeof out->recording_digest);
    out->budget = budget;
    out->seed = s->options->seed;
    ssm_status status = fill(s, budget, out, err);
    if (status != SSM_STATUS_OK) {
        ssm_mask_free(out);
    }
    return status;
}

ssm_status ssm_select(ssm_recording *recording, const ssm_select_options *options, ssm_mask *out,
                      ssm_error *err)
{
    ssm__selection selection;
    *out = (ssm_mask){0};
    SSM__TRY(ssm__selection_create(recording, options, &selection, err));
    if (options->budget < 1 || options->budget > selection.d_state) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the budget is the number of kept modes a channel, 1 … %lld; found %lld",
                         (long long)selection.d_state, (long long)options->budget);
    }
    SSM__TRY(check_complete(&selection, "a mask", err));
    return ssm__selection_mask(&selection, options->budget, out, err);
}
