/* cli/rules.c: rules of every kind by name, and what one makes of a recording. */
#include "rules.h"

#include <stdio.h>
#include <string.h>

#include "masks.h"
#include "messages.h"

enum { RULE_NAMES_MAX = 48 };

const char *const *cli_rule_names(void)
{
    static const char *names[RULE_NAMES_MAX];
    if (names[0] == NULL) {
        const char *const *const lists[] = {cli_mask_rule_names(), ssm_adapt_rules()};
        size_t n = 0;
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
            for (size_t i = 0; lists[k][i] != NULL && n + 1 < RULE_NAMES_MAX; i++) {
                names[n++] = lists[k][i];
            }
        }
    }
    return names;
}

bool cli_is_rule(const char *name)
{
    return ssm_select_is_rule(name) || ssm_adapt_is_rule(name) || cli_is_ghost(name);
}

ssm_status cli_rule_check(const char *rule, ssm_error *err)
{
    const char *const *names = cli_rule_names();
    const size_t length = strcspn(rule, ":");
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], rule, length) == 0) {
            if (cli_is_rule(rule)) {
                return SSM_STATUS_OK;
            }
            if (strchr(rule, ':') != NULL && strncmp(rule, "prefix", 6) == 0) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL,
                                "rule '%s': expected a number of tokens, or several with commas "
                                "between them, behind the colon",
                                rule);
            }
            if (ssm_adapt_is_rule(names[i]) || cli_is_ghost(names[i])) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL,
                                "rule %s takes nothing behind its name, found '%.64s'", names[i],
                                rule + length + 1);
            }
            return SSM_STATUS_OK; /* what is wrong with its parameter the rule says itself */
        }
    }
    const char *near = ssm_nearest(rule, names);
    if (near != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "there is no rule '%.64s'; did you mean '%s'?",
                        rule, near);
    }
    char list[320];
    size_t at = 0;
    for (size_t i = 0; names[i] != NULL && at < sizeof list; i++) {
        const char *join = i == 0 ? "" : names[i + 1] == NULL ? " or " : ", ";
        const int wrote = snprintf(list + at, sizeof list - at, "%s%s", join, names[i]);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL, "there is no rule '%.64s'; expected %s", rule,
                    list);
}

/* ---- what a rule makes ----------------------------------------------------------------------- */

ssm_status cli_rule_adapter(cli_context *context, const cli_source *source,
                            const ssm_corpus *corpus, ssm_recording *recording,
                            const cli_rule_request *request, ssm_adapter **out, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(context, &pool, err);
    const ssm_adapt_options options = {.rule = request->rule,
                                       .budget = request->budget,
                                       .scope = request->scope,
                                       .window = request->window,
                                       .exact_chunks = request->exact_chunks,
                                       .pool = pool};
    return status == SSM_STATUS_OK
               ? ssm_adapt_create(source->model, corpus, recording, &options, out, err)
               : status;
}

ssm_status cli_rule_mask(cli_context *context, const cli_source *source, ssm_recording *recording,
                         const cli_rule_request *request, ssm_mask *out, ssm_error *err)
{
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(context, &pool, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    if (cli_is_ghost(request->rule)) {
        return cli_mask_ghost(context, recording, source, request->scope, request->budget, out,
                              err);
    }
    const ssm_select_options options = {.rule = request->rule,
                                        .budget = request->budget,
                                        .scope = request->scope,
                                        .seed = (uint64_t)request->seed,
                                        .ridge = request->ridge,
                                        .pool = pool,
                                        .isa = (ssm_isa)context->globals.isa};
    return ssm_select(recording, &options, out, err);
}

void cli_note_overlap(cli_context *context, const ssm_recording *recording,
                      const ssm_corpus *corpus, int64_t window, int64_t offset)
{
    int64_t last = 0;
    for (int64_t i = 0; i < ssm_recording_window_count(recording); i++) {
        const ssm_recording_window *recorded = ssm_recording_get_window(recording, i);
        const int64_t end = recorded->token_offset + recorded->tokens;
        for (int64_t d = 0; recorded->role == SSM_ROLE_CALIBRATION && d < corpus->n_domains; d++) {
            if (strcmp(corpus->domains[d].name, recorded->domain) == 0 && end > last) {
                last = end;
            }
        }
    }
    const int64_t wanted = (last + window - 1) / window;
    if (offset < wanted) {
        cli_note(context,
                 "note: the recording was calibrated on the first windows of domains of these "
                 "names; if the texts are the same, --offset %lld leaves them out",
                 (long long)wanted);
    }
}
