/* cli/sweep_plan.c: which cells a sweep has. Every rule has its own protocol, as eval settles it:
 * one that chooses on the first tokens of a window is scored behind them. So that each stands
 * beside models scored on the same tokens, every protocol has its unpruned model and its `static`,
 * and its `scheduled` where that was asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "protocol.h"
#include "sweep.h"
#include "values.h"

static const char fixed[] = "static";
static const char oracle[] = "scheduled";

/* ---- rules ----------------------------------------------------------------------------------- */

static ssm_status add_rule(cli_sweep *sweep, const char *name, size_t bytes, bool of_all,
                           ssm_error *err)
{
    cli_sweep_rule *rules = realloc(sweep->rules, (size_t)(sweep->n_rules + 1) * sizeof *rules);
    if (rules == NULL) {
        return cli_no_memory(err);
    }
    sweep->rules = rules;
    rules[sweep->n_rules] = (cli_sweep_rule){.name = strndup(name, bytes), .of_all = of_all};
    if (rules[sweep->n_rules].name == NULL) {
        return cli_no_memory(err);
    }
    const char *added = rules[sweep->n_rules++].name;
    for (int64_t i = 0; i + 1 < sweep->n_rules; i++) {
        if (strcmp(rules[i].name, added) == 0) {
            const bool twice = !of_all && !rules[i].of_all;
            rules[i].of_all = rules[i].of_all && of_all; /* all, and by name: by name */
            free(rules[--sweep->n_rules].name);
            return twice ? cli_fail(err, SSM_STATUS_USAGE, NULL, "--rules: %s is given twice",
                                    rules[i].name)
                         : SSM_STATUS_OK;
        }
    }
    return SSM_STATUS_OK;
}

static bool is_number(const char *text, size_t bytes)
{
    return bytes > 0 && strspn(text, "0123456789") >= bytes;
}

/* "prefix:64,128" is prefix:64 and prefix:128: a number goes with the prefix in front of it. */
static ssm_status add_number(cli_sweep *sweep, const char *text, size_t bytes, ssm_error *err)
{
    const char *last = sweep->n_rules == 0 ? "" : sweep->rules[sweep->n_rules - 1].name;
    const char *colon = strchr(last, ':');
    char name[96];
    if (strncmp(last, "prefix", 6) != 0 || colon == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--rules: %.*s is no rule; numbers stand behind prefix: or prefix-ramp: "
                        "only",
                        (int)bytes, text);
    }
    const int length = snprintf(name, sizeof name, "%.*s:%.*s", (int)(colon - last), last,
                                (int)(bytes < 32 ? bytes : 32), text);
    return add_rule(sweep, name, (size_t)length, false, err);
}

static ssm_status list_rules(cli_sweep *sweep, ssm_error *err)
{
    const char *const *all = cli_rule_names();
    ssm_status status = SSM_STATUS_OK;
    for (const char *at = sweep->args->rules; at != NULL && status == SSM_STATUS_OK;) {
        const size_t bytes = strcspn(at, ",");
        if (bytes == 0) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "--rules: a name is missing: expected names with commas between them, "
                            "or all");
        }
        if (bytes == 3 && strncmp(at, "all", 3) == 0) {
            for (size_t i = 0; all[i] != NULL && status == SSM_STATUS_OK; i++) {
                status = add_rule(sweep, all[i], strlen(all[i]), true, err);
            }
        } else {
            status = is_number(at, bytes) ? add_number(sweep, at, bytes, err)
                                          : add_rule(sweep, at, bytes, false, err);
        }
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    return status;
}

/* Of rules of select what is wrong with a parameter the rule says itself. */
static ssm_status check_rule(cli_sweep *sweep, const char *rule, ssm_error *err)
{
    ssm_mask mask = {0};
    ssm_status status = cli_rule_check(rule, err);
    if (status != SSM_STATUS_OK || cli_is_rule(rule)) {
        return status;
    }
    const ssm_select_options options = {.rule = rule, .budget = 1};
    status = ssm_select(sweep->recording, &options, &mask, err);
    ssm_mask_free(&mask);
    return status;
}

/* The protocol of a rule; *keep false: not named, and not for windows of this length. */
static ssm_status settle_rule(cli_sweep *sweep, int64_t continuation, cli_sweep_rule *rule,
                              bool *keep, ssm_error *err)
{
    int64_t seen = 0;
    ssm_status status = check_rule(sweep, rule->name, err);
    *keep = true;
    if (status == SSM_STATUS_OK && ssm_adapt_is_rule(rule->name)) {
        ssm_error why;
        ssm_error_clear(&why);
        status = ssm_adapt_tokens(rule->name, sweep->args->window, &seen, &why);
        if (status == SSM_STATUS_USAGE && rule->of_all) {
            cli_note(sweep->context, "left out: %s", why.message);
            *keep = false;
            status = SSM_STATUS_OK;
        } else if (status != SSM_STATUS_OK) {
            *err = why;
        }
    }
    rule->scored = seen > 0 ? seen : -1;
    if (strcmp(sweep->args->protocol, "auto") != 0) {
        rule->scored = continuation;
        if (seen > continuation && *keep) {
            cli_note(sweep->context,
                     "note: %s chooses on the first %lld tokens, and some of them are scored: a "
                     "prefix is credited with what it has seen; --protocol auto does not",
                     rule->name, (long long)seen);
        }
    }
    return status;
}

static ssm_status settle_rules(cli_sweep *sweep, ssm_error *err)
{
    cli_protocol protocol = CLI_PROTOCOL_FULL;
    int64_t continuation = -1;
    ssm_status status = cli_protocol_parse(sweep->args->protocol, &protocol, &continuation, err);
    if (status == SSM_STATUS_OK && protocol >= CLI_PROTOCOL_ROLLING) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--protocol %s scores documents, a sweep windows: expected auto, full or "
                        "continuation:T",
                        sweep->args->protocol);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < sweep->n_rules && status == SSM_STATUS_OK; i++) {
        bool keep = true;
        status = settle_rule(sweep, continuation, &sweep->rules[i], &keep, err);
        const cli_sweep_rule moved = sweep->rules[i];
        if (keep) {
            sweep->rules[i] = sweep->rules[kept];
            sweep->rules[kept++] = moved;
        }
    }
    for (int64_t i = kept; i < sweep->n_rules && status == SSM_STATUS_OK; i++) {
        free(sweep->rules[i].name);
    }
    sweep->n_rules = status == SSM_STATUS_OK ? kept : sweep->n_rules;
    return status;
}

static cli_sweep_rule *find_rule(const cli_sweep *sweep, const char *name)
{
    for (int64_t i = 0; i < sweep->n_rules; i++) {
        if (strcmp(sweep->rules[i].name, name) == 0) {
            return &sweep->rules[i];
        }
    }
    return NULL;
}

/* What every difference is taken from. */
static ssm_status add_baseline(cli_sweep *sweep, ssm_error *err)
{
    if (find_rule(sweep, fixed) != NULL) {
        return SSM_STATUS_OK;
    }
    const int64_t scored = sweep->n_rules > 0 ? sweep->rules[0].scored : -1;
    ssm_status status = add_rule(sweep, fixed, strlen(fixed), false, err);
    if (status == SSM_STATUS_OK) {
        sweep->rules[sweep->n_rules - 1].scored = scored; /* no protocol of its own */
    }
    return status;
}

/* ---- scopes, budgets, domains ---------------------------------------------------------------- */

static ssm_status add_scope(cli_sweep *sweep, const char *name, size_t bytes, ssm_error *err)
{
    static const char *const names[] = {"channel", "head", "group", "layer", NULL};
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) != bytes || strncmp(names[i], name, bytes) != 0) {
            continue;
        }
        for (int64_t k = 0; k < sweep->n_scopes; k++) {
            if (sweep->scopes[k] == names[i]) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL, "--scopes: %s is given twice",
                                names[i]);
            }
        }
        sweep->scopes[sweep->n_scopes++] = names[i];
        return SSM_STATUS_OK;
    }
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)bytes, name);
    const char *near = ssm_nearest(text, names);
    return cli_fail(err, SSM_STATUS_USAGE, NULL,
                    "--scopes: expected channel, layer or, for Mamba-2, head or group, or all "
                    "alone, found '%s'%s%s%s",
                    text, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?" : "");
}

static ssm_status list_scopes(cli_sweep *sweep, ssm_error *err)
{
    const bool heads = sweep->source.config->family == SSM_FAMILY_MAMBA2;
    const char *text = sweep->args->scopes;
    if (strcmp(text, "all") == 0) {
        text = heads ? "channel,head,group,layer" : "channel,layer";
    }
    ssm_status status = SSM_STATUS_OK;
    while (text != NULL && status == SSM_STATUS_OK) {
        const size_t bytes = strcspn(text, ",");
        status = add_scope(sweep, text, bytes, err);
        text = text[bytes] == ',' ? text + bytes + 1 : NULL;
    }
    return status;
}

static ssm_status list_budgets(cli_sweep *sweep, ssm_error *err)
{
    const int64_t d_state = sweep->source.config->d_state;
    sweep->budgets = sweep->args->budgets.values;
    sweep->n_budgets = sweep->args->budgets.count;
    if (sweep->n_budgets == 0) {
        sweep->budgets = sweep->default_budgets;
        sweep->n_budgets = ssm_default_budgets(d_state, sweep->default_budgets);
    }
    for (int64_t i = 0; i < sweep->n_budgets; i++) {
        if (sweep->budgets[i] < 1 || sweep->budgets[i] > d_state) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "--budgets: %lld is outside 1 … %lld, the modes of a channel",
                            (long long)sweep->budgets[i], (long long)d_state);
        }
    }
    return sweep->n_budgets > 0
               ? SSM_STATUS_OK
               : cli_fail(err, SSM_STATUS_USAGE, NULL,
                          "a channel has one mode: there is no budget; give --budgets");
}

/* `static` stands beside every cell: where it cannot choose, no sweep can. */
static ssm_status check_recording(const cli_sweep *sweep, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < sweep->n_scopes && status == SSM_STATUS_OK; i++) {
        const ssm_select_options options = {
            .rule = fixed, .budget = sweep->budgets[0], .scope = sweep->scopes[i]};
        ssm_mask mask = {0};
        status = ssm_select(sweep->recording, &options, &mask, err);
        ssm_mask_free(&mask);
    }
    return status;
}

static bool is_calibrated(const cli_sweep *sweep, const char *domain)
{
    for (int64_t i = 0; i < ssm_recording_window_count(sweep->recording); i++) {
        const ssm_recording_window *window = ssm_recording_get_window(sweep->recording, i);
        if (window->role == SSM_ROLE_CALIBRATION && strcmp(window->domain, domain) == 0) {
            return true;
        }
    }
    return false;
}

/* A rule with a set for every domain that was asked for by name needs them all. */
static ssm_status check_domains(const cli_sweep *sweep, ssm_error *err)
{
    const cli_sweep_rule *regime = find_rule(sweep, "regime");
    for (int64_t d = 0; regime != NULL && !regime->of_all && d < sweep->corpus.n_domains; d++) {
        if (!is_calibrated(sweep, sweep->corpus.domains[d].name)) {
            return cli_fail(err, SSM_STATUS_USAGE, sweep->args->recording,
                            "rule regime has a set for every domain, and '%s' is not among those "
                            "with calibration windows: name the texts as they were recorded "
                            "(DOMAIN=PATH), or leave regime out",
                            sweep->corpus.domains[d].name);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static ssm_status list_protocols(cli_sweep *sweep, ssm_error *err)
{
    sweep->protocols = malloc((size_t)sweep->n_rules * sizeof *sweep->protocols);
    if (sweep->protocols == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t i = 0; i < sweep->n_rules; i++) {
        const int64_t scored = sweep->rules[i].scored;
        int64_t at = 0;
        while (at < sweep->n_protocols && sweep->protocols[at] < scored) {
            at++;
        }
        if (at < sweep->n_protocols && sweep->protocols[at] == scored) {
            continue;
        }
        memmove(sweep->protocols + at + 1, sweep->protocols + at,
                (size_t)(sweep->n_protocols - at) * sizeof *sweep->protocols);
        sweep->protocols[at] = scored;
        sweep->n_protocols++;
    }
    return SSM_STATUS_OK;
}

static bool belongs(const cli_sweep *sweep, const cli_sweep_rule *rule, int64_t protocol)
{
    return rule->scored == sweep->protocols[protocol] || strcmp(rule->name, fixed) == 0 ||
           strcmp(rule->name, oracle) == 0;
}

static void add_cell(cli_sweep *sweep, int64_t protocol, const char *rule, const char *scope,
                     int64_t budget)
{
    sweep->cells[sweep->n_cells++] = (cli_sweep_cell){.rule = rule,
                                                      .scope = scope,
                                                      .budget = budget,
                                                      .protocol = protocol,
                                                      .error = (double)NAN,
                                                      .calibration_error = (double)NAN,
                                                      .kept = (double)NAN};
}

/* static first, then the rules as they were given. */
static void add_rules(cli_sweep *sweep, int64_t protocol, const char *scope, int64_t budget)
{
    add_cell(sweep, protocol, find_rule(sweep, fixed)->name, scope, budget);
    for (int64_t i = 0; i < sweep->n_rules; i++) {
        const cli_sweep_rule *rule = &sweep->rules[i];
        if (belongs(sweep, rule, protocol) && strcmp(rule->name, fixed) != 0) {
            add_cell(sweep, protocol, rule->name, scope, budget);
        }
    }
}

static ssm_status list_cells(cli_sweep *sweep, ssm_error *err)
{
    const int64_t most =
        sweep->n_protocols * (1 + sweep->n_scopes * sweep->n_budgets * sweep->n_rules);
    sweep->cells = calloc((size_t)most, sizeof *sweep->cells);
    if (sweep->cells == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t p = 0; p < sweep->n_protocols; p++) {
        add_cell(sweep, p, "unpruned", NULL, 0);
        for (int64_t s = 0; s < sweep->n_scopes; s++) {
            for (int64_t b = 0; b < sweep->n_budgets; b++) {
                add_rules(sweep, p, sweep->scopes[s], sweep->budgets[b]);
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status count_windows(cli_sweep *sweep, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (int64_t p = 0; p < sweep->n_protocols && status == SSM_STATUS_OK; p++) {
        const ssm_score_options options = {.window = sweep->args->window,
                                           .windows = sweep->args->windows,
                                           .offset = sweep->args->offset,
                                           .continuation = sweep->protocols[p]};
        status = ssm_score_count(&sweep->corpus, &options, &sweep->windows, err);
    }
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void put_texts(const cli_sweep *sweep, cli_json *json)
{
    json_t *texts = cli_json_array(json, json->root, "text");
    for (int64_t i = 0; i < sweep->corpus.n_files; i++) {
        json_t *text = json_object();
        cli_json_text(json, text, "domain", sweep->corpus.files[i].domain);
        cli_json_text(json, text, "digest", sweep->corpus.files[i].digest);
        cli_json_push(json, texts, text);
    }
}

static ssm_status make_plan(cli_sweep *sweep, ssm_error *err)
{
    const cli_sweep_arguments *args = sweep->args;
    cli_json json = {.root = json_object()};
    json.failed = json.root == NULL;
    cli_json_text(&json, json.root, "schema", "ssmscope.sweep-plan/1");
    cli_json_text(&json, json.root, "program_version", ssm_version());
    cli_json_text(&json, json.root, "model", sweep->source.digest);
    cli_json_integer(&json, json.root, "norm_groups", args->load.norm_groups);
    cli_json_bool(&json, json.root, "exact_chunks", args->load.exact_chunks);
    cli_json_text(&json, json.root, "recording", ssm_recording_get_info(sweep->recording)->digest);
    cli_sweep_json_lists(sweep, &json);
    put_texts(sweep, &json);
    cli_json_text(&json, json.root, "protocol", args->protocol);
    cli_json_integer(&json, json.root, "window", args->window);
    cli_json_integer(&json, json.root, "windows", args->windows);
    cli_json_integer(&json, json.root, "offset", args->offset);
    cli_json_integer(&json, json.root, "bootstrap", args->bootstrap);
    cli_json_integer(&json, json.root, "seed", args->seed);
    cli_json_real(&json, json.root, "ridge", args->ridge);
    size_t bytes = 0;
    return cli_json_dump(&json, &sweep->plan, &bytes, err);
}

ssm_status cli_sweep_plan(cli_sweep *sweep, ssm_error *err)
{
    ssm_status (*const steps[])(cli_sweep *, ssm_error *) = {
        list_rules,     settle_rules,  add_baseline, list_scopes, list_budgets,
        list_protocols, count_windows, list_cells,   make_plan};
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == SSM_STATUS_OK; i++) {
        status = steps[i](sweep, err);
    }
    status = status == SSM_STATUS_OK ? check_recording(sweep, err) : status;
    return status == SSM_STATUS_OK ? check_domains(sweep, err) : status;
}

void cli_sweep_plan_free(cli_sweep *sweep)
{
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        cli_sweep_cell *cell = &sweep->cells[i];
        cli_scored_free(&cell->scored);
        free(cell->note);
        free(cell->difference);
        free(cell->from_static);
        free(cell->capture);
    }
    for (int64_t i = 0; i < sweep->n_rules; i++) {
        free(sweep->rules[i].name);
    }
    free(sweep->cells);
    free(sweep->rules);
    free(sweep->protocols);
    free(sweep->plan);
}
