/* adapt/adapter.c: the rules that choose for every window. They need the instrument (a window's own
 * energies), a recording (calibration) and the evaluation (whose windows they prune), so they stand
 * above all three. */
#include <ssmscope/adapt.h>
#include <ssmscope/instrument.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/ramp.h"
#include "base/error.h"
#include "instrument/accumulator.h"
#include "recording/energies.h"
#include "recording/schema.h"

typedef enum adapt_kind { SCHEDULED, HALF, PREFIX, PREFIX_RAMP, REGIME } adapt_kind;
static const char *const names[] = {"scheduled", "half", "prefix", "prefix-ramp", "regime", NULL};
enum { DEFAULT_PREFIX = 256 };

struct ssm_adapter {
    const ssm_model *model;
    const ssm_config *config;
    ssm_recording *recording; /* while it is created */
    ssm_adapt_options options;
    adapt_kind kind;
    int64_t tokens; /* of HALF and PREFIX */
    ssm_scope row_scope;
    int64_t rows, sets, d_state;
    ssm_energies *first_pass;
    double *energies; /* [n_layers][rows][N] */
    double *ramp;     /* [n_layers][rows][N], or NULL */
    double *scores;   /* [rows][N], then sums of [sets][N] */
    double *scratch;  /* [rows][N] */
    uint8_t *keep;    /* [sets][N] */
    int32_t *order;   /* [N] */
    ssm_mask *masks;  /* one; REGIME: of every domain */
    int64_t n_masks;
    ssm_chooser chooser;
};

/* ---- names ----------------------------------------------------------------------------------- */

const char *const *ssm_adapt_rules(void)
{
    return names;
}

/* kind, and T behind a colon; −1: none is given. False: no such rule, or not that form. */
static bool parse(const char *rule, adapt_kind *kind, int64_t *tokens)
{
    const size_t length = strcspn(rule, ":");
    for (int i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], rule, length) != 0) {
            continue;
        }
        *kind = (adapt_kind)i;
        *tokens = -1;
        if (rule[length] == '\0') {
            return true;
        }
        const char *digits = rule + length + 1;
        const bool takes = *kind == PREFIX || *kind == PREFIX_RAMP;
        const bool plain = digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits);
        errno = 0;
        *tokens = plain ? strtoll(digits, NULL, 10) : 0;
        return takes && plain && errno == 0;
    }
    return false;
}

bool ssm_adapt_is_rule(const char *rule)
{
    adapt_kind kind;
    int64_t tokens;
    return parse(rule, &kind, &tokens);
}

static ssm_status resolve(const char *rule, int64_t window, adapt_kind *kind, int64_t *tokens,
                          ssm_error *err)
{
    if (!parse(rule, kind, tokens)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "there is no rule '%.64s' that chooses for every window: expected "
                         "scheduled, half, prefix:T, prefix-ramp:T or regime",
                         rule);
    }
    if (*kind == SCHEDULED || *kind == REGIME) {
        *tokens = 0;
        return SSM_STATUS_OK;
    }
    if (*tokens < 0) {
        *tokens = *kind == HALF ? window / 2 : DEFAULT_PREFIX;
    }
    if (*tokens >= 1 && *tokens < window) {
        return SSM_STATUS_OK;
    }
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "%.64s chooses on the first %lld tokens, which do not lie inside a window of "
                     "%lld (1 … %lld): give another T or a longer --window",
                     rule, (long long)*tokens, (long long)window, (long long)window - 1);
}

ssm_status ssm_adapt_tokens(const char *rule, int64_t window, int64_t *out, ssm_error *err)
{
    adapt_kind kind;
    return resolve(rule, window, &kind, out, err);
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* The highest of rows that share a set, of one layer: scores[rows][N] → the mask. */
static void keep_layer(ssm_adapter *a, int64_t layer, double *scores, ssm_mask *mask)
{
    const int64_t N = a->d_state;
    const int64_t per_set = a->rows / a->sets;
    for (int64_t row = 0; row < a->rows && per_set > 1; row++) {
        double *sum = scores + row / per_set * N;
        for (int64_t n = 0; n < N; n++) {
            /* In place: set k's sum lies where row k was, which is read before set k begins. */
            sum[n] = (row % per_set == 0 ? 0.0 : sum[n]) + scores[row * N + n];
        }
    }
    ssm__keep_top(scores, a->sets, N, a->options.budget, a->order, a->keep);
    for (int64_t row = 0; row < a->rows; row++) {
        memcpy(mask->keep + (layer * a->rows + row) * N, a->keep + row / per_set * N, (size_t)N);
    }
}

static ssm_status choose_fixed(void *context, int64_t domain, const int32_t *ids, int64_t count,
                               const ssm_mask **mask, ssm_error *err)
{
    const ssm_adapter *a = context;
    (void)ids;
    (void)count;
    if (domain < 0 || domain >= a->n_masks) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "there is no domain %lld",
                         (long long)domain);
    }
    *mask = &a->masks[domain];
    return SSM_STATUS_OK;
}

static ssm_status choose_anew(void *context, int64_t domain, const int32_t *ids, int64_t count,
                              const ssm_mask **mask, ssm_error *err)
{
    ssm_adapter *a = context;
    (void)domain;
    const int64_t width = a->rows * a->d_state;
    const int64_t tokens = a->kind == SCHEDULED ? count : a->tokens;
    if (tokens > count) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s chooses on the first %lld tokens, and the window has %lld",
                         a->options.rule, (long long)tokens, (long long)count);
    }
    SSM__TRY(ssm_energies_run(a->first_pass, ids, tokens, a->energies, err));
    for (int64_t layer = 0; layer < a->config->n_layers; layer++) {
        double *scores = a->energies + layer * width;
        if (!ssm__has_states(a->model, layer)) {
            continue;
        }
        for (int64_t i = 0; a->ramp && i < width; i++) {
            scores[i] *= a->ramp[layer * width + i];
        }
        keep_layer(a, layer, scores, a->masks);
    }
    *mask = a->masks;
    return SSM_STATUS_OK;
}

/* ---- the request ----------------------------------------------------------------------------- */

static ssm_status find_scope(ssm_adapter *a, ssm_error *err)
{
    const ssm_config *c = a->config;
    const char *scope = a->options.scope ? a->options.scope : "channel";
    const bool heads = c->family == SSM_FAMILY_MAMBA2;
    const bool channel = strcmp(scope, "channel") == 0;
    a->options.scope = scope;
    a->row_scope = heads && !channel ? SSM_SCOPE_HEAD : SSM_SCOPE_CHANNEL;
    a->rows = !heads ? c->d_inner : channel ? c->n_heads * c->head_dim : c->n_heads;
    if (channel || (heads && strcmp(scope, "head") == 0)) {
        a->sets = a->rows;
    } else if (heads && strcmp(scope, "group") == 0) {
        a->sets = c->n_groups;
    } else if (strcmp(scope, "layer") == 0) {
        a->sets = 1;
    } else {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "scope '%.64s': a set of %s is for a channel, %sor a layer", scope,
                         ssm_family_name(c->family), heads ? "a head, a group " : "");
    }
    return SSM_STATUS_OK;
}

static ssm_status check_recording(const ssm_adapter *a, ssm_error *err)
{
    const ssm_config *c = a->config;
    if (!a->recording) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s needs a recording: it chooses on calibration windows",
                         a->options.rule);
    }
    const ssm_recording_info *info = ssm_recording_get_info(a->recording);
    if (info->family != c->family || info->n_layers != c->n_layers || info->d_state != a->d_state ||
        ssm_recording_sets(info, a->row_scope) != a->rows) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the recording is of %lld layers of %s with %lld modes, the model has "
                         "%lld of %s with %lld",
                         (long long)info->n_layers, ssm_family_name(info->family),
                         (long long)info->d_state, (long long)c->n_layers,
                         ssm_family_name(c->family), (long long)a->d_state);
    }
    for (int64_t layer = 0, k = 0; layer < c->n_layers; layer++) {
        if (k < info->n_recorded && info->layers[k] == layer) {
            k++;
        } else if (ssm__has_states(a->model, layer)) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "rule %s chooses in all layers, but layer %lld was not recorded: "
                             "record without --layers",
                             a->options.rule, (long long)layer);
        }
    }
    return info->has_calibration
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "rule '%s' learns on calibration windows, and the recording has none: "
                           "record with --calibration-windows",
                           a->options.rule);
}

static ssm_status check_ramp(const ssm_adapter *a, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(a->recording);
    if (ssm__scope_is_finer(info, a->row_scope)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s needs energies of the first tokens, which a recording of %s has "
                         "per head, not per channel: choose --scope head, group or layer",
                         a->options.rule, ssm_family_name(info->family));
    }
    if (a->tokens % SSM__BLOCK_TOKENS != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s: recordings have energies of blocks of %d tokens, so T must be a "
                         "multiple of that; found %lld",
                         a->options.rule, (int)SSM__BLOCK_TOKENS, (long long)a->tokens);
    }
    if (info->window != a->options.window) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "rule %s learns how energies grow up to the window's end: the recording's "
                         "windows have %lld tokens, these have %lld",
                         a->options.rule, (long long)info->window, (long long)a->options.window);
    }
    return SSM_STATUS_OK;
}

/* ---- what is learned from the recording ------------------------------------------------------ */

static ssm_status learn_ramp(ssm_adapter *a, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(a->recording);
    const int64_t width = a->rows * a->d_state;
    const size_t bytes = (size_t)(a->config->n_layers * width) * sizeof *a->ramp;
    SSM__TRY(check_ramp(a, err));
    a->ramp = malloc(bytes);
    if (!a->ramp) {
        return ssm__fail_memory(err, "ramps of modes", bytes);
    }
    for (int64_t i = 0; i < info->n_recorded; i++) {
        const int64_t layer = info->layers[i];
        SSM__TRY(ssm__ramp(a->recording, layer, a->tokens / SSM__BLOCK_TOKENS,
                           a->ramp + layer * width, a->scratch, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status learn_regime(ssm_adapter *a, const char *domain, ssm_mask *mask, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(a->recording);
    for (int64_t i = 0; i < info->n_recorded; i++) {
        int64_t count = 0;
        SSM__TRY(ssm__domain_energies(a->recording, domain, a->row_scope, info->layers[i],
                                      a->scores, a->scratch, &count, err));
        if (count == 0) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "rule regime has a set for every domain of the recording, and '%s' is "
                             "not among those with calibration windows: name the texts as they "
                             "were recorded (DOMAIN=PATH)",
                             domain);
        }
        keep_layer(a, info->layers[i], a->scores, mask);
    }
    return SSM_STATUS_OK;
}

static ssm_status learn(ssm_adapter *a, const ssm_corpus *corpus, ssm_error *err)
{
    if (a->kind == PREFIX_RAMP) {
        return learn_ramp(a, err);
    }
    for (int64_t d = 0; a->kind == REGIME && d < corpus->n_domains; d++) {
        SSM__TRY(learn_regime(a, corpus->domains[d].name, &a->masks[d], err));
    }
    return SSM_STATUS_OK;
}

/* ---- the object ------------------------------------------------------------------------------ */

static ssm_status create_masks(ssm_adapter *a, ssm_error *err)
{
    a->masks = calloc((size_t)a->n_masks + 1, sizeof *a->masks);
    if (!a->masks) {
        return ssm__fail_memory(err, "masks", (size_t)a->n_masks * sizeof *a->masks);
    }
    for (int64_t i = 0; i < a->n_masks; i++) {
        ssm_mask *mask = &a->masks[i];
        SSM__TRY(ssm_mask_create(a->config->n_layers, a->rows, a->d_state, mask, err));
        mask->head_dim = a->config->family == SSM_FAMILY_MAMBA2 && a->row_scope != SSM_SCOPE_HEAD
                             ? a->config->head_dim
                             : 0;
        mask->budget = a->options.budget;
        snprintf(mask->rule, sizeof mask->rule, "%s", a->options.rule);
        snprintf(mask->scope, sizeof mask->scope, "%s", a->options.scope);
    }
    return SSM_STATUS_OK;
}

static ssm_status allocate(ssm_adapter *a, ssm_error *err)
{
    const size_t width = (size_t)(a->rows * a->d_state);
    const size_t layers = a->kind == REGIME ? 1 : (size_t)a->config->n_layers;
    a->energies = malloc(layers * width * sizeof *a->energies);
    a->scores = malloc(width * sizeof *a->scores);
    a->scratch = malloc(width * sizeof *a->scratch);
    a->keep = malloc(width);
    a->order = malloc((size_t)a->d_state * sizeof *a->order);
    return a->energies && a->scores && a->scratch && a->keep && a->order
               ? create_masks(a, err)
               : ssm__fail_memory(err, "energies of a window", layers * width * sizeof(double));
}

static ssm_status create(ssm_adapter *a, const ssm_corpus *corpus, ssm_error *err)
{
    const ssm_adapt_options *o = &a->options;
    SSM__TRY(resolve(o->rule, o->window, &a->kind, &a->tokens, err));
    SSM__TRY(ssm__require_states(a->model, err));
    SSM__TRY(find_scope(a, err));
    if (o->budget < 1 || o->budget > a->d_state) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the budget is the number of kept modes a channel, 1 … %lld; found %lld",
                         (long long)a->d_state, (long long)o->budget);
    }
    if (a->kind == REGIME || a->kind == PREFIX_RAMP) {
        SSM__TRY(check_recording(a, err));
    }
    a->n_masks = a->kind == REGIME ? corpus->n_domains : 1;
    a->chooser = (ssm_chooser){a, a->kind == REGIME ? choose_fixed : choose_anew};
    SSM__TRY(allocate(a, err));
    SSM__TRY(learn(a, corpus, err));
    if (a->kind == REGIME) {
        return SSM_STATUS_OK;
    }
    const ssm_energies_options energies = {
        .window = a->kind == SCHEDULED ? o->window : a->tokens,
        .scope = a->row_scope,
        .exact_chunks = o->exact_chunks,
        .pool = o->pool,
    };
    return ssm_energies_create(a->model, &energies, &a->first_pass, err);
}

ssm_status ssm_adapt_create(const ssm_model *model, const ssm_corpus *corpus,
                            ssm_recording *recording, const ssm_adapt_options *options,
                            ssm_adapter **out, ssm_error *err)
{
    *out = NULL;
    ssm_adapter *a = calloc(1, sizeof *a);
    if (!a) {
        return ssm__fail_memory(err, "a rule", sizeof *a);
    }
    a->model = model;
    a->config = ssm_model_config(model);
    a->recording = recording;
    a->options = *options;
    a->d_state = a->config->d_state;
    const ssm_status status = create(a, corpus, err);
    a->recording = NULL;
    if (status != SSM_STATUS_OK) {
        ssm_adapt_free(a);
        return status;
    }
    *out = a;
    return SSM_STATUS_OK;
}

void ssm_adapt_free(ssm_adapter *adapter)
{
    if (!adapter) {
        return;
    }
    for (int64_t i = 0; adapter->masks && i < adapter->n_masks; i++) {
        ssm_mask_free(&adapter->masks[i]);
    }
    ssm_energies_free(adapter->first_pass);
    free(adapter->masks);
    free(adapter->energies);
    free(adapter->ramp);
    free(adapter->scores);
    free(adapter->scratch);
    free(adapter->keep);
    free(adapter->order);
    free(adapter);
}

const ssm_chooser *ssm_adapt_chooser(const ssm_adapter *adapter)
{
    return &adapter->chooser;
}
