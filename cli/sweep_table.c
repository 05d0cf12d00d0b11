/* cli/sweep_table.c: a sweep for people: one table for every protocol and scope, as aligned text
 * with one interval a number, and as Markdown with both and the domains. */
#include <math.h>
#include <string.h>

#include "protocol.h"
#include "sweep.h"

enum { COLUMNS_MAX = 20, BLOCK_WINDOWS = 4 };

/* One table under way. */
typedef struct view {
    const cli_sweep *sweep;
    FILE *out;
    bool markdown;
    bool windows, blocks; /* which intervals */
    bool captures;
    int64_t protocol;
    const char *scope;
} view;

/* In order; the unpruned model belongs to every scope. */
static const cli_sweep_cell *next_cell(const view *v, int64_t *at)
{
    while (*at < v->sweep->n_cells) {
        const cli_sweep_cell *cell = &v->sweep->cells[(*at)++];
        if (cell->protocol == v->protocol && !cell->hidden &&
            (cell->scope == NULL || cell->scope == v->scope)) {
            return cell;
        }
    }
    return NULL;
}

static int64_t fewest_windows(const cli_sweep *sweep)
{
    int64_t fewest = INT64_MAX;
    const cli_scored *scored = &sweep->cells[0].scored; /* the unpruned model */
    for (int64_t d = 0; d < sweep->corpus.n_domains; d++) {
        int64_t windows = 0;
        for (int64_t i = 0; i < scored->count; i++) {
            windows += scored->scores[i].domain == d;
        }
        fewest = windows < fewest ? windows : fewest;
    }
    return fewest;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void add_dash(const view *v, cli_table *table)
{
    cli_table_cell(table, v->markdown ? "—" : "-");
}

static void add_interval(const view *v, cli_table *table, ssm_interval interval, const char *format)
{
    if (isnan(interval.lo) || isnan(interval.hi)) {
        add_dash(v, table);
        return;
    }
    char lo[32], hi[32];
    snprintf(lo, sizeof lo, format, interval.lo);
    snprintf(hi, sizeof hi, format, interval.hi);
    cli_table_cell(table, "%s to %s", lo, hi);
}

/* A number and the intervals of this view. */
static void add_estimate(const view *v, cli_table *table, double value, ssm_interval window,
                         ssm_interval block, const char *format)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    if (isnan(value)) {
        add_dash(v, table);
    } else {
        cli_table_cell(table, "%s", text);
    }
    if (v->windows) {
        add_interval(v, table, window, format);
    }
    if (v->blocks) {
        add_interval(v, table, block, format);
    }
}

static void add_nothing(const view *v, cli_table *table)
{
    for (int i = 0; i < 1 + v->windows + v->blocks; i++) {
        cli_table_cell(table, "%s", "");
    }
}

static void add_difference(const view *v, cli_table *table, const ssm_difference *differences)
{
    if (differences == NULL) {
        add_nothing(v, table);
        return;
    }
    const ssm_difference *all = &differences[v->sweep->corpus.n_domains];
    add_estimate(v, table, all->perplexity, all->interval_window, all->interval_block, "%+.3f");
}

static ssm_interval percent(ssm_interval interval)
{
    return (ssm_interval){100.0 * interval.lo, 100.0 * interval.hi};
}

static void add_name(cli_table *table, const cli_sweep_cell *cell)
{
    cli_table_cell(table, "%s", cell->rule);
    if (cell->scope == NULL) {
        cli_table_cell(table, "%s", "");
    } else {
        cli_table_cell(table, "%lld", (long long)cell->budget);
    }
}

/* The gain of following the text is a question to rules that follow it; of others it is a number
 * for the files. */
static bool has_capture(const cli_sweep_cell *cell)
{
    return cell->capture != NULL && ssm_adapt_is_rule(cell->rule);
}

static void add_row(const view *v, cli_table *table, const cli_sweep_cell *cell)
{
    add_name(table, cell);
    if (cell->note != NULL) {
        const int numbers = 1 + v->windows + v->blocks;
        const int cells = numbers * (v->captures ? 4 : 3) + 1;
        for (int i = 0; i < cells; i++) {
            if (i % numbers == 0) {
                add_dash(v, table);
            } else {
                cli_table_cell(table, "%s", "");
            }
        }
        return;
    }
    const int64_t n = v->sweep->corpus.n_domains;
    const ssm_perplexity *all = &cell->scored.results[n];
    add_estimate(v, table, all->perplexity, all->interval_window, all->interval_block, "%.3f");
    add_difference(v, table, cell->difference);
    add_difference(v, table, cell->from_static);
    if (v->captures && !has_capture(cell)) {
        add_nothing(v, table);
    } else if (v->captures) {
        const ssm_capture *c = &cell->capture[n];
        add_estimate(v, table, 100.0 * c->fraction, percent(c->interval_window),
                     percent(c->interval_block), "%.1f");
    }
    if (cell->mask[0] == '\0') {
        cli_table_cell(table, "%s", "");
    } else if (isnan(cell->error)) {
        add_dash(v, table);
    } else {
        cli_table_cell(table, "%.4f", cell->error);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static ssm_status print_table(const view *v, cli_table *table, ssm_error *err)
{
    return v->markdown ? cli_table_print_markdown(table, v->out, err)
                       : cli_table_print(table, v->out, err);
}

/* The name of an estimate and of its intervals. */
static int add_heading(const view *v, const char *headings[COLUMNS_MAX], int at, const char *name)
{
    headings[at++] = name;
    if (v->windows) {
        headings[at++] = v->blocks ? "95 % windows" : "95 %";
    }
    if (v->blocks) {
        headings[at++] = v->windows ? "95 % blocks" : "95 %";
    }
    return at;
}

static ssm_status print_cells(const view *v, ssm_error *err)
{
    const char *headings[COLUMNS_MAX] = {"rule", "r"};
    char alignment[COLUMNS_MAX] = "l";
    int columns = add_heading(v, headings, 2, "perplexity");
    columns = add_heading(v, headings, columns, "- unpruned");
    columns = add_heading(v, headings, columns, "- static");
    columns = v->captures ? add_heading(v, headings, columns, "captured, %") : columns;
    headings[columns++] = "E";
    memset(alignment + 1, 'r', (size_t)columns - 1);
    cli_table table = cli_table_create(headings, alignment);
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        add_row(v, &table, cell);
    }
    return print_table(v, &table, err);
}

/* Perplexity of every domain with the interval of blocks. */
static ssm_status print_domains(const view *v, ssm_error *err)
{
    const ssm_corpus *corpus = &v->sweep->corpus;
    const int64_t shown =
        corpus->n_domains < (COLUMNS_MAX - 2) / 2 ? corpus->n_domains : (COLUMNS_MAX - 2) / 2;
    const char *headings[COLUMNS_MAX] = {"rule", "r"};
    char alignment[COLUMNS_MAX] = "l";
    for (int64_t d = 0; d < shown; d++) {
        headings[2 + 2 * d] = corpus->domains[d].name;
        headings[3 + 2 * d] = "95 % blocks";
    }
    memset(alignment + 1, 'r', (size_t)(1 + 2 * shown));
    cli_table table = cli_table_create(headings, alignment);
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        if (cell->note != NULL) {
            continue;
        }
        add_name(&table, cell);
        for (int64_t d = 0; d < shown; d++) {
            cli_table_cell(&table, "%.3f", cell->scored.results[d].perplexity);
            add_interval(v, &table, cell->scored.results[d].interval_block, "%.3f");
        }
    }
    return print_table(v, &table, err);
}

/* Why cells are missing, every rule and reason once. */
static void print_notes(const view *v)
{
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        bool said = cell->note == NULL;
        const cli_sweep_cell *earlier;
        for (int64_t k = 0; !said && (earlier = next_cell(v, &k)) != NULL && earlier < cell;) {
            said = earlier->note != NULL && strcmp(earlier->rule, cell->rule) == 0 &&
                   strcmp(earlier->note, cell->note) == 0;
        }
        if (said) {
            continue;
        }
        fprintf(v->out, v->markdown ? "- %s:" : "  %s:", cell->rule);
        cli_print_wrapped(v->out, cell->note, 4, (int)strlen(cell->rule) + 3);
    }
}

static bool has_captures(const view *v)
{
    bool any = false;
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        any = any || has_capture(cell);
    }
    return any;
}

static void print_heading(const view *v)
{
    char protocol[48];
    const int64_t continuation = v->sweep->protocols[v->protocol];
    cli_protocol_name(continuation, protocol);
    fprintf(v->out, "\n%s%s, scope %s: ", v->markdown ? "### " : "", protocol, v->scope);
    if (continuation < 0) {
        fputs("every token of a window but the first is scored\n", v->out);
    } else {
        fprintf(v->out, "tokens are scored from %lld on\n", (long long)continuation);
    }
    fputs(v->markdown ? "\n" : "", v->out);
}

static bool has_rules(const view *v)
{
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        if (cell->scope != NULL) {
            return true;
        }
    }
    return false;
}

static ssm_status print_section(view *v, ssm_error *err)
{
    if (!has_rules(v)) {
        return SSM_STATUS_OK;
    }
    v->captures = has_captures(v);
    print_heading(v);
    ssm_status status = print_cells(v, err);
    if (v->markdown && status == SSM_STATUS_OK && v->sweep->corpus.n_domains > 1) {
        fputs("\nPerplexity by domain:\n\n", v->out);
        status = print_domains(v, err);
    }
    fputs(v->markdown ? "\n" : "", v->out);
    print_notes(v);
    return status;
}

static ssm_status print_sections(view *v, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    for (v->protocol = 0; v->protocol < v->sweep->n_protocols; v->protocol++) {
        for (int64_t s = 0; s < v->sweep->n_scopes && status == SSM_STATUS_OK; s++) {
            v->scope = v->sweep->scopes[s];
            status = print_section(v, err);
        }
    }
    return status;
}

ssm_status cli_sweep_print_text(const cli_sweep *sweep, FILE *out, ssm_error *err)
{
    const bool blocks = fewest_windows(sweep) > BLOCK_WINDOWS;
    view v = {.sweep = sweep, .out = out, .windows = !blocks, .blocks = blocks};
    fprintf(out, "%s: %lld windows of %lld tokens in %lld domain%s; %lld resamples, seed %lld\n",
            sweep->source.argument, (long long)sweep->windows, (long long)sweep->args->window,
            (long long)sweep->corpus.n_domains, sweep->corpus.n_domains == 1 ? "" : "s",
            (long long)sweep->args->bootstrap, (long long)sweep->args->seed);
    ssm_status status = print_sections(&v, err);
    cli_footnote(blocks ? "95 %: percentile intervals from resampled runs of four windows, within "
                          "each domain; those from resampled single windows, and every domain's "
                          "numbers, stand in table.md, sweep.csv and sweep.json."
                        : "95 %: percentile intervals from resampled windows, within each domain; "
                          "for runs of four windows there are too few. Every domain's numbers "
                          "stand in table.md, sweep.csv and sweep.json.");
    cli_footnote(
        "Differences are paired: both models on the same windows and resamples. E: offline "
        "error of the layers' outputs on the recording's evaluation windows, mean over "
        "the layers; - where Grams do not tell.");
    return status;
}

ssm_status cli_sweep_print_markdown(const cli_sweep *sweep, FILE *out, ssm_error *err)
{
    view v = {.sweep = sweep, .out = out, .markdown = true, .windows = true, .blocks = true};
    fprintf(out,
            "%lld windows of %lld tokens in %lld domain%s; 95 %% percentile intervals from %lld "
            "resamples, seed %lld, of windows and of runs of four windows within each domain. "
            "Model %s, recording %s.\n",
            (long long)sweep->windows, (long long)sweep->args->window,
            (long long)sweep->corpus.n_domains, sweep->corpus.n_domains == 1 ? "" : "s",
            (long long)sweep->args->bootstrap, (long long)sweep->args->seed, sweep->source.digest,
            ssm_recording_get_info(sweep->recording)->digest);
    return print_sections(&v, err);
}
