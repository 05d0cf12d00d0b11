/* cli/sweep_output.c: a sweep for programs (sweep.json, sweep.csv), and its files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "protocol.h"
#include "sweep.h"

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_differences(const cli_sweep *sweep, cli_json *json, json_t *object,
                             const ssm_difference *differences)
{
    const int64_t n = sweep->corpus.n_domains;
    cli_json_difference(json, object, &differences[n]);
    json_t *domains = cli_json_object(json, object, "domains");
    for (int64_t d = 0; d < n; d++) {
        cli_json_difference(json, cli_json_object(json, domains, sweep->corpus.domains[d].name),
                            &differences[d]);
    }
}

static void json_captures(const cli_sweep *sweep, cli_json *json, json_t *object,
                          const ssm_capture *captures)
{
    const int64_t n = sweep->corpus.n_domains;
    cli_json_capture(json, object, &captures[n]);
    json_t *domains = cli_json_object(json, object, "domains");
    for (int64_t d = 0; d < n; d++) {
        cli_json_capture(json, cli_json_object(json, domains, sweep->corpus.domains[d].name),
                         &captures[d]);
    }
}

static void json_cell(const cli_sweep *sweep, cli_json *json, const cli_sweep_cell *cell)
{
    char protocol[48];
    json_t *object = json_object();
    cli_protocol_name(sweep->protocols[cell->protocol], protocol);
    cli_json_text(json, object, "protocol", protocol);
    cli_json_text(json, object, "scope", cell->scope);
    cli_json_text(json, object, "rule", cell->rule);
    cli_json_integer(json, object, "budget", cell->budget);
    if (cell->note != NULL) {
        cli_json_text(json, object, "note", cell->note);
        return (void)cli_json_push(json, json_object_get(json->root, "cells"), object);
    }
    cli_json_scored(json, object, &sweep->corpus, &cell->scored);
    json_differences(sweep, json, cli_json_object(json, object, "difference"), cell->difference);
    if (cell->from_static != NULL) {
        json_t *differences = cli_json_object(json, object, "differences");
        json_differences(sweep, json, cli_json_object(json, differences, "static"),
                         cell->from_static);
    }
    if (cell->capture != NULL) {
        json_captures(sweep, json, cli_json_object(json, object, "capture"), cell->capture);
    }
    if (cell->mask[0] != '\0') {
        cli_json_real(json, object, "offline_error", cell->error);
        cli_json_real(json, object, "offline_error_calibration", cell->calibration_error);
        json_t *mask = cli_json_object(json, object, "mask");
        cli_json_text(json, mask, "path", cell->mask);
        cli_json_text(json, mask, "digest", cell->mask_digest);
        cli_json_real(json, mask, "kept", cell->kept);
    }
    cli_json_push(json, json_object_get(json->root, "cells"), object);
}

/* Of the cells that are there, or say why they are not. */
static bool is_shown(const cli_sweep *sweep, const char *rule)
{
    bool shown = false;
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        shown = shown || (sweep->cells[i].rule == rule && !sweep->cells[i].hidden);
    }
    return shown;
}

void cli_sweep_json_lists(const cli_sweep *sweep, cli_json *json)
{
    json_t *rules = cli_json_array(json, json->root, "rules");
    for (int64_t i = 0; i < sweep->n_rules; i++) {
        if (is_shown(sweep, sweep->rules[i].name)) {
            cli_json_push(json, rules, json_string(sweep->rules[i].name));
        }
    }
    json_t *budgets = cli_json_array(json, json->root, "budgets");
    for (int64_t i = 0; i < sweep->n_budgets; i++) {
        cli_json_push(json, budgets, json_integer(sweep->budgets[i]));
    }
    json_t *scopes = cli_json_array(json, json->root, "scopes");
    for (int64_t i = 0; i < sweep->n_scopes; i++) {
        cli_json_push(json, scopes, json_string(sweep->scopes[i]));
    }
}

static void json_head(const cli_sweep *sweep, cli_json *json)
{
    const cli_sweep_arguments *args = sweep->args;
    cli_json_integer(json, json->root, "seed", args->seed);
    cli_json_source(json, &sweep->source);
    cli_json_corpus(json, &sweep->corpus);
    json_t *recording = cli_json_object(json, json->root, "recording");
    cli_json_text(json, recording, "path", args->recording);
    cli_json_text(json, recording, "digest", ssm_recording_get_info(sweep->recording)->digest);
    cli_json_integer(json, json->root, "window", args->window);
    cli_json_integer(json, json->root, "windows", sweep->windows);
    cli_json_integer(json, json->root, "offset", args->offset);
    cli_json_integer(json, json->root, "bootstrap", args->bootstrap);
    cli_json_real(json, json->root, "ridge", args->ridge);
    cli_sweep_json_lists(sweep, json);
}

static ssm_status write_json(const cli_sweep *sweep, char **text, size_t *bytes, ssm_error *err)
{
    cli_json json = cli_json_create(sweep->context, "sweep");
    json_head(sweep, &json);
    json_t *protocols = cli_json_array(&json, json.root, "protocols");
    cli_json_array(&json, json.root, "cells");
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        const cli_sweep_cell *cell = &sweep->cells[i];
        if (cell->scope != NULL && !cell->hidden) {
            json_cell(sweep, &json, cell);
        } else if (cell->scope == NULL) {
            char protocol[48];
            json_t *object = json_object();
            cli_protocol_name(sweep->protocols[cell->protocol], protocol);
            cli_json_text(&json, object, "protocol", protocol);
            cli_json_scored(&json, cli_json_object(&json, object, "unpruned"), &sweep->corpus,
                            &cell->scored);
            cli_json_push(&json, protocols, object);
        }
    }
    ssm_status status = cli_json_dump(&json, text, bytes, err);
    return status == SSM_STATUS_OK
               ? ssm_results_write(sweep->results, "sweep.json", *text, *bytes, err)
               : status;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

/* Commas between the domain and the note. */
enum { CSV_BETWEEN = 27 };

/* As RFC 4180 has it, but for the ends of lines. */
static void csv_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
    }
    fputc('"', out);
}

static void csv_number(FILE *out, double value)
{
    fputc(',', out);
    if (isfinite(value)) {
        fprintf(out, "%.17g", value);
    }
}

/* A value and its two intervals, or five empty fields. */
static void csv_estimate(FILE *out, bool there, double value, ssm_interval window,
                         ssm_interval block)
{
    const double numbers[] = {value, window.lo, window.hi, block.lo, block.hi};
    for (int i = 0; i < 5; i++) {
        csv_number(out, there ? numbers[i] : (double)NAN);
    }
}

static void csv_row(const cli_sweep *sweep, FILE *out, const cli_sweep_cell *cell, int64_t domain)
{
    const int64_t n = sweep->corpus.n_domains;
    static const ssm_difference no_difference;
    static const ssm_capture no_capture;
    char protocol[48];
    cli_protocol_name(sweep->protocols[cell->protocol], protocol);
    fprintf(out, "%s,%s,", protocol, cell->scope == NULL ? "" : cell->scope);
    csv_text(out, cell->rule);
    fprintf(out, cell->scope == NULL ? "," : ",%lld", (long long)cell->budget);
    fputc(',', out);
    csv_text(out, domain == n ? "" : sweep->corpus.domains[domain].name);
    if (cell->note != NULL) {
        for (int i = 0; i < CSV_BETWEEN; i++) {
            fputc(',', out);
        }
        csv_text(out, cell->note);
        fputc('\n', out);
        return;
    }
    int64_t windows = 0;
    for (int64_t i = 0; i < cell->scored.count; i++) {
        windows += domain == n || cell->scored.scores[i].domain == domain;
    }
    const ssm_perplexity *p = &cell->scored.results[domain];
    const ssm_difference *d = cell->difference ? &cell->difference[domain] : &no_difference;
    const ssm_difference *s = cell->from_static ? &cell->from_static[domain] : &no_difference;
    const ssm_capture *c = cell->capture ? &cell->capture[domain] : &no_capture;
    fprintf(out, ",%lld,%lld", (long long)windows, (long long)p->tokens);
    csv_estimate(out, true, p->perplexity, p->interval_window, p->interval_block);
    csv_estimate(out, cell->difference != NULL, d->perplexity, d->interval_window,
                 d->interval_block);
    csv_estimate(out, cell->from_static != NULL, s->perplexity, s->interval_window,
                 s->interval_block);
    csv_estimate(out, cell->capture != NULL, c->fraction, c->interval_window, c->interval_block);
    csv_number(out, cell->error);
    csv_number(out, cell->calibration_error);
    csv_number(out, cell->kept);
    fputc(',', out);
    csv_text(out, cell->mask);
    fputs(",\n", out);
}

static ssm_status print_csv(const cli_sweep *sweep, FILE *out, ssm_error *err)
{
    static const char *const estimates[] = {"perplexity", "difference", "difference_static",
                                            "capture"};
    (void)err;
    fputs("protocol,scope,rule,budget,domain,windows,tokens", out);
    for (size_t i = 0; i < sizeof estimates / sizeof *estimates; i++) {
        fprintf(out, ",%s,%s_window_lo,%s_window_hi,%s_block_lo,%s_block_hi", estimates[i],
                estimates[i], estimates[i], estimates[i], estimates[i]);
    }
    fputs(",offline_error,offline_error_calibration,kept,mask,note\n", out);
    for (int64_t i = 0; i < sweep->n_cells; i++) {
        const cli_sweep_cell *cell = &sweep->cells[i];
        const int64_t last = sweep->corpus.n_domains;
        for (int64_t d = cell->note != NULL ? last : 0; d <= last && !cell->hidden; d++) {
            csv_row(sweep, out, cell, d);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef ssm_status printer(const cli_sweep *sweep, FILE *out, ssm_error *err);

static ssm_status write_printed(const cli_sweep *sweep, const char *name, printer *print,
                                ssm_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return cli_no_memory(err);
    }
    ssm_status status = print(sweep, out, err);
    const bool failed = ferror(out) != 0;
    if ((fclose(out) != 0 || failed) && status == SSM_STATUS_OK) {
        status = cli_no_memory(err);
    }
    status = status == SSM_STATUS_OK ? ssm_results_write(sweep->results, name, text, bytes, err)
                                     : status;
    free(text);
    return status;
}

ssm_status cli_sweep_write(const cli_sweep *sweep, ssm_error *err)
{
    char *json = NULL;
    size_t bytes = 0;
    ssm_status status = write_printed(sweep, "sweep.csv", print_csv, err);
    status = status == SSM_STATUS_OK
                 ? write_printed(sweep, "table.md", cli_sweep_print_markdown, err)
                 : status;
    status = status == SSM_STATUS_OK ? write_json(sweep, &json, &bytes, err) : status;
    if (status == SSM_STATUS_OK && sweep->context->globals.json) {
        status = fwrite(json, 1, bytes, stdout) == bytes
                     ? SSM_STATUS_OK
                     : cli_fail(err, SSM_STATUS_FAILED, NULL, "cannot write standard output");
    } else if (status == SSM_STATUS_OK) {
        status = cli_sweep_print_text(sweep, stdout, err);
    }
    free(json);
    return status;
}
