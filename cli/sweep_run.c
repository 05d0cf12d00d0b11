/* cli/sweep_run.c: masks, scores and statistics of the cells of a sweep, in the order of the table.
 * A run that was stopped finds its windows in the journal and its masks as files, and goes on. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "masks.h"
#include "messages.h"
#include "protocol.h"
#include "sweep.h"

/* ---- progress: one line for the whole sweep -------------------------------------------------- */

typedef struct whole_progress {
    ssm_progress progress; /* what scoring is given */
    const ssm_progress *line;
    int64_t before, total, resumed; /* windows: of earlier cells, of all, from the journal */
    const cli_sweep_cell *cell;     /* the first of those that are scored */
    int64_t n_parts;                /* how many they are */
} whole_progress;

/* What was taken from the journal took no time, so the estimate leaves it out. */
static bool report(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    const whole_progress *w = context;
    char words[128] = "windows; unpruned";
    const int64_t now = w->before + done * w->n_parts - w->resumed;
    (void)what;
    (void)total;
    (void)unit;
    if (w->cell->scope != NULL) {
        snprintf(words, sizeof words, "windows; %.64s, r = %lld, %s", w->cell->rule,
                 (long long)w->cell->budget, w->cell->scope);
    }
    return w->line->report(w->line->context, "sweep", now > 0 ? now : 0, w->total - w->resumed,
                           words);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* "masks/last-squared.channel.8.safetensors" */
static void mask_name(const cli_sweep_cell *cell, char out[320])
{
    snprintf(out, 320, "masks/%.200s.%s.%lld.safetensors", cell->rule, cell->scope,
             (long long)cell->budget);
    for (char *at = out; *at != '\0'; at++) {
        *at = *at == ':' ? '-' : *at;
    }
}

static ssm_status mask_path(const cli_sweep *sweep, const cli_sweep_cell *cell, char out[PATH_MAX],
                            ssm_error *err)
{
    const int length = snprintf(out, PATH_MAX, "%s/%s", sweep->args->output, cell->mask);
    return length < PATH_MAX
               ? SSM_STATUS_OK
               : cli_fail(err, SSM_STATUS_USAGE, sweep->args->output, "the path is too long");
}

/* From the directory, where a run before this one, or another protocol, has left it. */
static ssm_status read_mask(const cli_sweep *sweep, const cli_sweep_cell *cell, const char *path,
                            ssm_mask *out, ssm_error *err)
{
    const char *digest = ssm_recording_get_info(sweep->recording)->digest;
    ssm_status status = cli_mask_read(path, &sweep->source, out, err);
    if (status == SSM_STATUS_OK &&
        (strcmp(out->rule, cell->rule) != 0 || strcmp(out->scope, cell->scope) != 0 ||
         out->budget != cell->budget || strcmp(out->recording_digest, digest) != 0)) {
        status = cli_fail(err, SSM_STATUS_FILE, path,
                          "the mask is of rule %s, budget %lld and scope %s, or of another "
                          "recording: delete it and it is made again",
                          out->rule, (long long)out->budget, out->scope);
    }
    return status;
}

static ssm_status make_mask(cli_sweep *sweep, cli_sweep_cell *cell, const cli_rule_request *request,
                            ssm_mask *out, ssm_error *err)
{
    char path[PATH_MAX];
    struct stat info;
    mask_name(cell, cell->mask);
    ssm_status status = mask_path(sweep, cell, path, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    if (stat(path, &info) == 0) {
        status = read_mask(sweep, cell, path, out, err);
    } else {
        status = cli_rule_mask(sweep->context, &sweep->source, sweep->recording, request, out, err);
        status = status == SSM_STATUS_OK ? ssm_mask_write(out, path, sweep->context->canonical, err)
                                         : status;
    }
    status = status == SSM_STATUS_OK ? ssm_file_digest(path, cell->mask_digest, err) : status;
    if (status == SSM_STATUS_OK) {
        const cli_mask_sums sums = cli_mask_count(out, sweep->recording);
        cell->kept = (double)sums.kept / (double)sums.modes;
    } else {
        cell->mask[0] = '\0';
    }
    return status;
}

static ssm_status offline_errors(const cli_sweep *sweep, cli_sweep_cell *cell, const ssm_mask *mask,
                                 ssm_error *err)
{
    ssm_status status =
        cli_mask_error(sweep->recording, mask, SSM_ROLE_EVALUATION, &cell->error, err);
    return status == SSM_STATUS_OK ? cli_mask_error(sweep->recording, mask, SSM_ROLE_CALIBRATION,
                                                    &cell->calibration_error, err)
                                   : status;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* The cells that differ in nothing but the protocol: one pass scores them all. */
typedef struct part_list {
    cli_sweep_cell **cells; /* [n_protocols] */
    ssm_score_part *parts;  /* the same */
    char (*series)[300];
    int64_t n;
} part_list;

static ssm_status list_parts(const cli_sweep *sweep, const cli_sweep_cell *cell, part_list *out,
                             ssm_error *err)
{
    const size_t most = (size_t)sweep->n_protocols;
    *out = (part_list){.cells = calloc(most, sizeof *out->cells),
                       .parts = calloc(most, sizeof *out->parts),
                       .series = calloc(most, sizeof *out->series)};
    if (out->cells == NULL || out->parts == NULL || out->series == NULL) {
        return cli_no_memory(err);
    }
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        cli_sweep_cell *other = &sweep->cells[i];
        char protocol[48], *series = out->series[out->n];
        if (other->scope != cell->scope || other->budget != cell->budget ||
            strcmp(other->rule, cell->rule) != 0) {
            continue;
        }
        cli_protocol_name(sweep->protocols[other->protocol], protocol);
        snprintf(series, sizeof *out->series, cell->scope == NULL ? "%s/%s" : "%s/%s/%s/%lld",
                 protocol, cell->rule, cell->scope, (long long)cell->budget);
        out->parts[out->n] =
            (ssm_score_part){.continuation = sweep->protocols[other->protocol], .series = series};
        out->cells[out->n++] = other;
    }
    return SSM_STATUS_OK;
}

static void free_parts(part_list *list)
{
    free((void *)list->cells);
    free(list->parts);
    free(list->series);
}

static ssm_status score(cli_sweep *sweep, part_list *list, whole_progress *progress,
                        const ssm_mask *mask, const ssm_adapter *adapter, ssm_error *err)
{
    int64_t count = 0;
    ssm_pool *pool = NULL;
    ssm_status status = cli_pool(sweep->context, &pool, err);
    progress->cell = list->cells[0];
    progress->n_parts = list->n;
    const ssm_score_options options = {.window = sweep->args->window,
                                       .windows = sweep->args->windows,
                                       .offset = sweep->args->offset,
                                       .exact_chunks = sweep->args->load.exact_chunks,
                                       .pool = pool,
                                       .progress = &progress->progress,
                                       .journal = sweep->journal,
                                       .chooser =
                                           adapter != NULL ? ssm_adapt_chooser(adapter) : NULL};
    if (status == SSM_STATUS_OK) {
        status = ssm_score_parts(sweep->source.model, &sweep->corpus, mask, &options, list->parts,
                                 list->n, &count, err);
    }
    for (int64_t i = 0; i < list->n; i++) {
        list->cells[i]->scored.scores = list->parts[i].scores;
        list->cells[i]->scored.count = count;
    }
    progress->before += sweep->windows * list->n;
    return status;
}

/* The rule is not defined here: the cells say why, and the sweep goes on. */
static ssm_status leave_out(cli_sweep *sweep, part_list *list, whole_progress *progress,
                            const ssm_error *why, ssm_error *err)
{
    for (int64_t i = 0; i < list->n; i++) {
        list->cells[i]->note = strdup(why->message);
        progress->total -= sweep->windows;
        if (list->cells[i]->note == NULL) {
            return cli_no_memory(err);
        }
    }
    return SSM_STATUS_OK;
}

/* What a mask is known by stands in every cell of it. */
static void share_mask(part_list *list)
{
    const cli_sweep_cell *first = list->cells[0];
    for (int64_t i = 1; i < list->n; i++) {
        cli_sweep_cell *cell = list->cells[i];
        cell->error = first->error;
        cell->calibration_error = first->calibration_error;
        cell->kept = first->kept;
        memcpy(cell->mask, first->mask, sizeof cell->mask);
        memcpy(cell->mask_digest, first->mask_digest, sizeof cell->mask_digest);
    }
}

static ssm_status run_rule(cli_sweep *sweep, part_list *list, whole_progress *progress,
                           ssm_error *err)
{
    const cli_sweep_arguments *args = sweep->args;
    cli_sweep_cell *cell = list->cells[0];
    const cli_rule_request request = {.rule = cell->rule,
                                      .budget = cell->budget,
                                      .scope = cell->scope,
                                      .seed = args->seed,
                                      .ridge = args->ridge,
                                      .window = args->window,
                                      .exact_chunks = args->load.exact_chunks};
    const bool adapts = ssm_adapt_is_rule(cell->rule);
    ssm_mask mask = {0};
    ssm_adapter *adapter = NULL;
    ssm_error why;
    ssm_error_clear(&why);
    ssm_status status = adapts ? cli_rule_adapter(sweep->context, &sweep->source, &sweep->corpus,
                                                  sweep->recording, &request, &adapter, &why)
                               : make_mask(sweep, cell, &request, &mask, &why);
    if (status == SSM_STATUS_USAGE) {
        return leave_out(sweep, list, progress, &why, err);
    }
    if (status != SSM_STATUS_OK) {
        *err = why;
    }
    if (status == SSM_STATUS_OK && !adapts) {
        status = offline_errors(sweep, cell, &mask, err);
        share_mask(list);
    }
    if (status == SSM_STATUS_OK) {
        status = score(sweep, list, progress, adapts ? NULL : &mask, adapter, err);
    }
    ssm_mask_free(&mask);
    ssm_adapt_free(adapter);
    return status;
}

/* With all that stands beside it under other protocols; those find it done when their turn comes.
 */
static ssm_status run_cell(cli_sweep *sweep, cli_sweep_cell *cell, whole_progress *progress,
                           ssm_error *err)
{
    part_list list;
    if (cell->note != NULL || cell->scored.scores != NULL) {
        return SSM_STATUS_OK;
    }
    ssm_status status = list_parts(sweep, cell, &list, err);
    if (status == SSM_STATUS_OK) {
        status = cell->scope == NULL ? score(sweep, &list, progress, NULL, NULL, err)
                                     : run_rule(sweep, &list, progress, err);
    }
    free_parts(&list);
    return status;
}

static ssm_status run_cells(cli_sweep *sweep, ssm_error *err)
{
    whole_progress progress = {.line = cli_progress_start(sweep->context),
                               .total = sweep->n_cells * sweep->windows,
                               .resumed = ssm_journal_resumed(sweep->journal)};
    progress.progress = (ssm_progress){.context = &progress, .report = report};
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; i < sweep->n_cells && status == SSM_STATUS_OK; i++) {
        status = run_cell(sweep, &sweep->cells[i], &progress, err);
        if (status == SSM_STATUS_OK && cli_interrupted()) {
            status = SSM_STATUS_INTERRUPTED; /* between windows, while a mask was made */
        }
    }
    cli_progress_clear(sweep->context);
    return status;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* The cell of a rule beside `cell`: of the same protocol, budget and scope; NULL: none is defined.
 * rule NULL: the unpruned model. */
static const cli_sweep_cell *beside(const cli_sweep *sweep, const cli_sweep_cell *cell,
                                    const char *rule)
{
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        const cli_sweep_cell *other = &sweep->cells[i];
        const bool found = rule == NULL
                               ? other->scope == NULL
                               : other->scope == cell->scope && other->budget == cell->budget &&
                                     strcmp(other->rule, rule) == 0;
        if (other->protocol == cell->protocol && found) {
            return other->note == NULL ? other : NULL;
        }
    }
    return NULL;
}

static ssm_bootstrap_options bootstrap_of(const cli_sweep *sweep)
{
    return (ssm_bootstrap_options){.resamples = sweep->args->bootstrap,
                                   .seed = (uint64_t)sweep->args->seed};
}

/* cell − base of every domain and all together. */
static ssm_status take_difference(const cli_sweep *sweep, const cli_sweep_cell *cell,
                                  const cli_sweep_cell *base, ssm_difference **out, ssm_error *err)
{
    const int64_t n = sweep->corpus.n_domains;
    const ssm_bootstrap_options bootstrap = bootstrap_of(sweep);
    *out = calloc((size_t)n + 1, sizeof **out);
    ssm_status status = *out == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    for (int64_t d = 0; d <= n && status == SSM_STATUS_OK; d++) {
        status = ssm_difference_of(base->scored.scores, cell->scored.scores, cell->scored.count, n,
                                   d == n ? -1 : d, &bootstrap, &(*out)[d], err);
    }
    return status;
}

static ssm_status take_capture(const cli_sweep *sweep, cli_sweep_cell *cell,
                               const cli_sweep_cell *fixed, const cli_sweep_cell *best,
                               ssm_error *err)
{
    const int64_t n = sweep->corpus.n_domains;
    const ssm_bootstrap_options bootstrap = bootstrap_of(sweep);
    cell->capture = calloc((size_t)n + 1, sizeof *cell->capture);
    ssm_status status = cell->capture == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    for (int64_t d = 0; d <= n && status == SSM_STATUS_OK; d++) {
        status = ssm_capture_of(fixed->scored.scores, cell->scored.scores, best->scored.scores,
                                cell->scored.count, n, d == n ? -1 : d, &bootstrap,
                                &cell->capture[d], err);
    }
    return status;
}

static ssm_status summarise(cli_sweep *sweep, cli_sweep_cell *cell, ssm_error *err)
{
    const ssm_bootstrap_options bootstrap = bootstrap_of(sweep);
    ssm_status status = cli_scored_summarise(&cell->scored, &sweep->corpus, &bootstrap, err);
    if (status != SSM_STATUS_OK || cell->scope == NULL) {
        return status;
    }
    const cli_sweep_cell *fixed = beside(sweep, cell, "static");
    const cli_sweep_cell *best = beside(sweep, cell, "scheduled");
    const cli_sweep_cell *unpruned = beside(sweep, cell, NULL);
    status = take_difference(sweep, cell, unpruned, &cell->difference, err);
    if (status == SSM_STATUS_OK && fixed != NULL && fixed != cell) {
        status = take_difference(sweep, cell, fixed, &cell->from_static, err);
    }
    if (status == SSM_STATUS_OK && fixed != NULL && best != NULL && fixed != cell && best != cell) {
        status = take_capture(sweep, cell, fixed, best, err);
    }
    return status;
}

/* A rule that nobody named, and that is defined nowhere in this sweep, is not shown. */
static void hide_undefined(cli_sweep *sweep)
{
    for (int64_t r = 0; r < sweep->n_rules; r++) {
        const cli_sweep_rule *rule = &sweep->rules[r];
        const char *why = NULL;
        bool defined = !rule->of_all;
        for (int64_t i = 0; i < sweep->n_cells; i++) {
            const cli_sweep_cell *cell = &sweep->cells[i];
            const bool its = cell->rule == rule->name;
            defined = defined || (its && cell->note == NULL);
            why = its && cell->note != NULL ? cell->note : why;
        }
        for (int64_t i = 0; i < sweep->n_cells && !defined; i++) {
            sweep->cells[i].hidden = sweep->cells[i].hidden || sweep->cells[i].rule == rule->name;
        }
        if (!defined && why != NULL) {
            cli_note(sweep->context, "left out, not defined here: %s", why);
        }
    }
}

ssm_status cli_sweep_run(cli_sweep *sweep, ssm_error *err)
{
    ssm_status status = ssm_results_folder(sweep->results, "masks", err);
    status = status == SSM_STATUS_OK ? run_cells(sweep, err) : status;
    for (int64_t i = 0; i < sweep->n_cells && status == SSM_STATUS_OK; i++) {
        if (sweep->cells[i].note == NULL) {
            status = summarise(sweep, &sweep->cells[i], err);
        }
    }
    if (status == SSM_STATUS_OK) {
        hide_undefined(sweep);
    }
    return status;
}
