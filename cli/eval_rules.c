/* cli/eval_rules.c: which models `eval` compares: lists of prefixes, what stands beside rules that
 * choose for every window, and the protocol under which all are scored. */
#include <stdlib.h>
#include <string.h>

#include "eval_state.h"
#include "masks.h"
#include "messages.h"
#include "rules.h"

/* ---- the list -------------------------------------------------------------------------------- */

static ssm_status add_name(cli_eval_state *state, char *name, ssm_error *err)
{
    cli_texts *against = &state->against;
    const char **values =
        realloc((void *)against->values, (size_t)(against->count + 1) * sizeof *values);
    if (values == NULL || name == NULL) {
        free(name);
        against->values = values != NULL ? values : against->values;
        return cli_no_memory(err);
    }
    against->values = values;
    for (int64_t i = 0; i < against->count; i++) {
        if (strcmp(values[i], name) == 0) {
            ssm_status status =
                cli_fail(err, SSM_STATUS_USAGE, NULL, "--against %s is given twice", name);
            free(name);
            return status;
        }
    }
    values[against->count++] = name;
    return SSM_STATUS_OK;
}

/* "prefix:64,128" is prefix:64 and prefix:128; all else is itself. */
static ssm_status add_expanded(cli_eval_state *state, const char *text, ssm_error *err)
{
    const size_t head = strcspn(text, ":") + 1;
    const bool list = (strncmp(text, "prefix:", head) == 0 && head == 7) ||
                      (strncmp(text, "prefix-ramp:", head) == 0 && head == 12);
    if (!list || strchr(text, ',') == NULL) {
        return add_name(state, strdup(text), err);
    }
    for (const char *at = text + head; at != NULL;) {
        const size_t length = strcspn(at, ",");
        char *name = malloc(head + length + 1);
        if (name != NULL) {
            memcpy(name, text, head);
            memcpy(name + head, at, length);
            name[head + length] = '\0';
        }
        ssm_status status = add_name(state, name, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return SSM_STATUS_OK;
}

static bool is_listed(const cli_eval_state *state, const char *name)
{
    bool found = false;
    for (int64_t i = 0; i < state->against.count; i++) {
        found = found || strcmp(state->against.values[i], name) == 0;
    }
    return found;
}

/* Results and --items tell models apart by name. */
static ssm_status check_is_utf8(const char *name, ssm_error *err)
{
    json_t *value = json_string(name);
    json_decref(value);
    return value != NULL ? SSM_STATUS_OK
                         : cli_fail(err, SSM_STATUS_USAGE, NULL,
                                    "the name of %s is not UTF-8, and models are told apart by "
                                    "name: give the file another one",
                                    name);
}

/* A mask file may not bear the name of another model. */
static ssm_status check_names(const cli_eval_state *state, ssm_error *err)
{
    const char *mask = state->args->mask;
    ssm_status status = mask != NULL ? check_is_utf8(mask, err) : SSM_STATUS_OK;
    for (int64_t i = 0; i < state->against.count && status == SSM_STATUS_OK; i++) {
        status = check_is_utf8(state->against.values[i], err);
    }
    if (status != SSM_STATUS_OK || mask == NULL ||
        (!is_listed(state, mask) && strcmp(mask, cli_unpruned) != 0)) {
        return status;
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL,
                    "--mask %s: another model of this command has that name, too; if they are not "
                    "the same, give the file as ./%s",
                    mask, mask);
}

/* The first of the expanded list is the rule to judge, the others are compared with. */
static ssm_status list_models(cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    ssm_status status = SSM_STATUS_OK;
    if (args->rule != NULL) {
        status = add_expanded(state, args->rule, err);
    }
    for (int64_t i = 0; status == SSM_STATUS_OK && i < args->against.count; i++) {
        status = add_expanded(state, args->against.values[i], err);
    }
    for (int64_t i = 0; status == SSM_STATUS_OK && i < state->against.count; i++) {
        const char *name = state->against.values[i];
        const bool named =
            strncmp(name, "prefix:", 7) == 0 || strncmp(name, "prefix-ramp:", 12) == 0;
        if ((i == 0 && args->rule != NULL) || named) {
            status = cli_rule_check(name, err);
        }
        state->evaluation.adapts = state->evaluation.adapts || ssm_adapt_is_rule(name);
    }
    if (status == SSM_STATUS_OK && state->evaluation.adapts && !is_listed(state, "static")) {
        status = add_name(state, strdup("static"), err);
    }
    if (status == SSM_STATUS_OK && args->rule != NULL) {
        state->first_against = 1;
        state->rule = state->against.values[0];
    }
    return status == SSM_STATUS_OK ? check_names(state, err) : status;
}

/* ---- the request ----------------------------------------------------------------------------- */

static ssm_status check_recording(const cli_eval_state *state, ssm_error *err)
{
    const cli_eval_arguments *args = state->args;
    bool needs_recording = false;
    for (int64_t i = 0; i < state->against.count; i++) {
        needs_recording = needs_recording || cli_is_rule(state->against.values[i]);
    }
    needs_recording = needs_recording || args->rule != NULL;
    if (needs_recording && args->recording == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "a rule needs --recording REC to choose on");
    }
    if (needs_recording && args->budget == CLI_UNSET) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "a rule needs --budget R: modes to keep");
    }
    if (!needs_recording && (args->recording != NULL || args->budget != CLI_UNSET)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--recording and --budget need --rule");
    }
    if (!needs_recording && args->scope != 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--scope is of the sets that a rule chooses: a mask has its own");
    }
    return SSM_STATUS_OK;
}

/* auto: from where no rule has chosen on what is scored, so that all are judged on the same tokens.
 * A shorter continuation counts tokens that some rule has seen: it is said. */
static ssm_status settle_protocol(cli_eval_state *state, ssm_error *err)
{
    int64_t seen = 0;
    const char *rule = NULL;
    for (int64_t i = 0; i < state->against.count; i++) {
        int64_t tokens = 0;
        if (!ssm_adapt_is_rule(state->against.values[i])) {
            continue;
        }
        ssm_status status =
            ssm_adapt_tokens(state->against.values[i], state->args->window, &tokens, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
        rule = tokens > seen ? state->against.values[i] : rule;
        seen = tokens > seen ? tokens : seen;
    }
    if (seen > 0 && strcmp(state->args->protocol, "auto") == 0) {
        state->protocol = CLI_PROTOCOL_CONTINUATION;
        state->evaluation.continuation = seen;
    } else if (seen > 0 && state->evaluation.continuation < seen) {
        cli_note(state->context,
                 "note: %s chooses on the first %lld tokens, and %s scores some of them: for all "
                 "models alike, but a prefix is credited with what it has seen; "
                 "continuation:%lld does not",
                 rule, (long long)seen, state->args->protocol, (long long)seen);
    }
    return SSM_STATUS_OK;
}

ssm_status cli_eval_plan(cli_eval_state *state, ssm_error *err)
{
    const bool windows = state->args->task == NULL && state->protocol < CLI_PROTOCOL_ROLLING;
    ssm_status status = list_models(state, err);
    status = status == SSM_STATUS_OK ? check_recording(state, err) : status;
    for (int64_t i = 0; i < state->against.count && status == SSM_STATUS_OK && !windows; i++) {
        const char *name = state->against.values[i];
        if (ssm_adapt_is_rule(name) &&
            (state->args->task == NULL || strcmp(name, "scheduled") != 0)) {
            status = cli_fail(err, SSM_STATUS_USAGE, NULL,
                              "rule %s chooses for every window of text: it is for --protocol full "
                              "or continuation:T (scheduled: for tasks, too)",
                              name);
        }
    }
    return status == SSM_STATUS_OK && windows ? settle_protocol(state, err) : status;
}

void cli_eval_plan_free(cli_eval_state *state)
{
    for (int64_t i = 0; i < state->against.count; i++) {
        free((void *)state->against.values[i]);
    }
    free((void *)state->against.values);
    state->against = (cli_texts){0};
}

/* ---- a model --------------------------------------------------------------------------------- */

ssm_status cli_eval_choose(cli_eval_state *state, const char *rule, cli_variant *out,
                           ssm_error *err)
{
    static const char *const scopes[] = {"channel", "head", "group", "layer"};
    const cli_eval_arguments *args = state->args;
    const cli_rule_request request = {.rule = rule,
                                      .budget = args->budget,
                                      .scope = scopes[args->scope],
                                      .seed = args->seed,
                                      .ridge = args->ridge,
                                      .window =
                                          args->task != NULL ? args->max_length : args->window,
                                      .exact_chunks = args->load.exact_chunks};
    ssm_recording *recording = NULL;
    ssm_status status = cli_recording_open(args->recording, &state->source, &recording, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_adapt_is_rule(rule)
                     ? cli_rule_adapter(state->context, &state->source, &state->corpus, recording,
                                        &request, &out->adapter, err)
                     : cli_rule_mask(state->context, &state->source, recording, &request,
                                     &out->mask, err);
    }
    ssm_recording_close(recording);
    return status;
}
