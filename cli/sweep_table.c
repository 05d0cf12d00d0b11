/* cli/sweep_table.c: a sweep for people: one table for every protocol and scope, as aligned text
 * with one interval a number, and as Markdown with both and the domains. */
#include <math.h>
#include <string.h>

#include "protocol.h"
#include "sweep.h"

enum { COLUMNS_MAX = 20 };

/* One table under way. */
typedef struct view {
    const cli_sweep *sweep;
    FILE *out;
    bool markdown;
    bool windows, blocks; /* which intervals differences have */
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

/* ---- cells ----------------------------------------------------------------------------------- */

static void add_dash(const view *v, cli_table *table)
{
    cli_table_cell(table, v->markdown ? "—" : "-");
}

/* As many decimals as make five digits, three at most. */
static void format_number(char out[32], double value, bool sign)
{
    const double size = fabs(value);
    const int decimals = (size < 10.0     ? 3
                          : size < 100.0  ? 2
                          : size < 1000.0 ? 1
                                          : 0) +
                         (!sign && size >= 10.0 && size < 10000.0 ? 1 : 0);
    snprintf(out, 32, sign ? "%+.*f" : "%.*f", decimals, value);
}

static void add_interval(const view *v, cli_table *table, ssm_interval interval, bool sign)
{
    char lo[32], hi[32];
    if (isnan(interval.lo) || isnan(interval.hi)) {
        add_dash(v, table);
        return;
    }
    format_number(lo, interval.lo, sign);
    format_number(hi, interval.hi, sign);
    cli_table_cell(table, "%s to %s", lo, hi);
}

static void add_number(const view *v, cli_table *table, double value, bool sign)
{
    char text[32];
    format_number(text, value, sign);
    if (isnan(value)) {
        add_dash(v, table);
    } else {
        cli_table_cell(table, "%s", text);
    }
}

static void add_empty(cli_table *table, int count)
{
    for (int i = 0; i < count; i++) {
        cli_table_cell(table, "%s", "");
    }
}

static void add_name(cli_table *table, const cli_sweep_cell *cell)
{
    cli_table_cell(table, "%s", cell->rule);
    if (cell->scope == NULL) {
        add_empty(table, 1);
    } else {
        cli_table_cell(table, "%lld", (long long)cell->budget);
    }
}

static void add_perplexity(const view *v, cli_table *table, const cli_sweep_cell *cell)
{
    add_name(table, cell);
    if (cell->note != NULL) {
        add_dash(v, table);
        add_empty(table, 3);
        return;
    }
    const ssm_perplexity *all = &cell->scored.results[v->sweep->corpus.n_domains];
    add_number(v, table, all->perplexity, false);
    add_interval(v, table, all->interval_window, false);
    add_interval(v, table, all->interval_block, false);
    if (cell->mask[0] == '\0') {
        add_empty(table, 1);
    } else if (isnan(cell->error)) {
        add_dash(v, table);
    } else {
        cli_table_cell(table, "%.4f", cell->error);
    }
}

static void add_difference(const view *v, cli_table *table, const ssm_difference *differences)
{
    if (differences == NULL) {
        add_empty(table, 1 + v->windows + v->blocks);
        return;
    }
    const ssm_difference *all = &differences[v->sweep->corpus.n_domains];
    add_number(v, table, all->perplexity, true);
    if (v->windows) {
        add_interval(v, table, all->interval_window, true);
    }
    if (v->blocks) {
        add_interval(v, table, all->interval_block, true);
    }
}

/* The gain of following the text is a question to rules that follow it; of others it is a number
 * for the files. */
static bool has_capture(const cli_sweep_cell *cell)
{
    return cell->capture != NULL && ssm_adapt_is_rule(cell->rule);
}

static void add_percent(const view *v, cli_table *table, ssm_interval interval)
{
    if (isnan(interval.lo) || isnan(interval.hi)) {
        add_dash(v, table);
    } else {
        cli_table_cell(table, "%.1f to %.1f", 100.0 * interval.lo, 100.0 * interval.hi);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static ssm_status print_table(const view *v, cli_table *table, ssm_error *err)
{
    return v->markdown ? cli_table_print_markdown(table, v->out, err)
                       : cli_table_print(table, v->out, err);
}

static ssm_status print_perplexities(const view *v, ssm_error *err)
{
    static const char *const headings[] = {"rule",        "r", "perplexity", "95 % windows",
                                           "95 % blocks", "E", NULL};
    cli_table table = cli_table_create(headings, "lrrrrr");
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        add_perplexity(v, &table, cell);
    }
    return print_table(v, &table, err);
}

static ssm_status print_differences(const view *v, ssm_error *err)
{
    static const char *const names[] = {"-unpruned", "-static"};
    const char *headings[COLUMNS_MAX] = {"rule", "r"};
    char alignment[COLUMNS_MAX] = "l";
    int columns = 2;
    for (int i = 0; i < 2; i++) {
        headings[columns++] = names[i];
        if (v->windows) {
            headings[columns++] = "95 % windows";
        }
        if (v->blocks) {
            headings[columns++] = "95 % blocks";
        }
    }
    memset(alignment + 1, 'r', (size_t)columns - 1);
    cli_table table = cli_table_create(headings, alignment);
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        if (cell->note == NULL && cell->scope != NULL) {
            add_name(&table, cell);
            add_difference(v, &table, cell->difference);
            add_difference(v, &table, cell->from_static);
        }
    }
    return print_table(v, &table, err);
}

static ssm_status print_captures(const view *v, ssm_error *err)
{
    static const char *const headings[] = {"of static - scheduled", "r",           "captured, %",
                                           "95 % windows",          "95 % blocks", NULL};
    cli_table table = cli_table_create(headings, "lrrrr");
    const cli_sweep_cell *cell;
    for (int64_t i = 0; (cell = next_cell(v, &i)) != NULL;) {
        if (has_capture(cell)) {
            const ssm_capture *capture = &cell->capture[v->sweep->corpus.n_domains];
            add_name(&table, cell);
            cli_table_number(&table, 100.0 * capture->fraction, 1);
            add_percent(v, &table, capture->interval_window);
            add_percent(v, &table, capture->interval_block);
        }
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
            add_number(v, &table, cell->scored.results[d].perplexity, false);
            add_interval(v, &table, cell->scored.results[d].interval_block, false);
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
    print_heading(v);
    ssm_status status = print_perplexities(v, err);
    if (status == SSM_STATUS_OK) {
        fputs("\n", v->out);
        status = print_differences(v, err);
    }
    if (status == SSM_STATUS_OK && has_captures(v)) {
        fputs("\n", v->out);
        status = print_captures(v, err);
    }
    if (status == SSM_STATUS_OK && v->markdown && v->sweep->corpus.n_domains > 1) {
        fputs("\n", v->out);
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

static bool any_captures(const cli_sweep *sweep)
{
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        if (has_capture(&sweep->cells[i])) {
            return true;
        }
    }
    return false;
}

ssm_status cli_sweep_print_text(const cli_sweep *sweep, FILE *out, ssm_error *err)
{
    const bool blocks = cli_scored_has_blocks(&sweep->cells[0].scored, &sweep->corpus);
    view v = {.sweep = sweep, .out = out, .windows = !blocks, .blocks = blocks};
    fprintf(out, "%s: %lld windows of %lld tokens in %lld domain%s; %lld resamples, seed %lld\n",
            sweep->source.argument, (long long)sweep->windows, (long long)sweep->args->window,
            (long long)sweep->corpus.n_domains, sweep->corpus.n_domains == 1 ? "" : "s",
            (long long)sweep->args->bootstrap, (long long)sweep->args->seed);
    ssm_status status = print_sections(&v, err);
    cli_footnote(
        "95 %: percentile intervals from resampled windows and from resampled runs of four "
        "windows, within each domain. Differences are paired: both models on the same "
        "windows and resamples. E: offline error of the layers' outputs on the "
        "recording's evaluation windows, mean over the layers; - where Grams do not tell. "
        "table.md, sweep.csv and sweep.json have every interval and domain.");
    if (any_captures(sweep)) {
        cli_footnote_captures();
    }
    if (!blocks) {
        cli_footnote_blocks();
    }
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
