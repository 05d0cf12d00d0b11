#include "train/experiment_tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* Does any run have the measure at this size? */
static bool is_measured(const ssm__tables *t, const char *measure, int64_t size)
{
    for (int64_t i = 0; i < t->n_runs; i++) {
        const ssm__experiment_run *run = &t->runs[i];
        if (run->done && run->failure == NULL &&
            !isnan(ssm__measured(run, measure, t->sizes[size]))) {
            return true;
        }
    }
    return false;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

/* RFC 4180: quoted where it has to be. */
static void print_field(ssm__text *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        ssm__text_add(out, text);
        return;
    }
    ssm__text_add(out, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            ssm__text_add(out, "\"");
        }
        ssm__text_format(out, "%c", *text);
    }
    ssm__text_add(out, "\"");
}

/* A setting's value; false: no memory. */
static bool print_value(ssm__text *out, const json_t *value,
                        void (*print)(ssm__text *, const char *))
{
    char *text = ssm__value_text(value);
    if (text == NULL) {
        return false;
    }
    print(out, text);
    free(text);
    return true;
}

static const json_t *tuned_value(const ssm__tables *t, int64_t arm, int64_t cell)
{
    const ssm_experiment *e = t->experiment;
    const int64_t tuned = ssm__tuned(e, t->all, t->n_all, arm, cell);
    return tuned < 0 ? NULL : json_array_get(e->tune.values, (size_t)tuned);
}

/* Every measure of every size of a run, a line each. */
static bool print_run(ssm__text *out, const ssm__tables *t, const ssm__experiment_run *run)
{
    const ssm_experiment *e = t->experiment;
    const int64_t measures = (int64_t)json_array_size(e->measures);
    bool good = true;
    for (int64_t i = 0; i < measures * t->n_sizes && good; i++) {
        const char *measure =
            json_string_value(json_array_get(e->measures, (size_t)(i / t->n_sizes)));
        const char *size = t->sizes[i % t->n_sizes];
        const double value = ssm__measured(run, measure, size);
        if (!is_measured(t, measure, i % t->n_sizes)) {
            continue;
        }
        print_field(out, e->arm_names[run->arm]);
        for (int64_t k = 0; k < e->n_keys && good; k++) {
            ssm__text_add(out, ",");
            good = print_value(out, ssm__cell_value(e, run->cell, k), print_field);
        }
        const json_t *tuned = tuned_value(t, run->arm, run->cell);
        if (e->tune.key != NULL) {
            ssm__text_add(out, ",");
            good = good && (tuned == NULL || print_value(out, tuned, print_field));
        }
        ssm__text_format(out, ",%" PRId64 ",", run->seed);
        print_field(out, size);
        ssm__text_format(out, ",%s,", measure);
        if (isfinite(value)) {
            ssm__text_format(out, "%.9g", value);
        }
        ssm__text_add(out, "\n");
    }
    return good;
}

static bool print_csv(ssm__text *out, const ssm__tables *t)
{
    const ssm_experiment *e = t->experiment;
    bool good = true;
    ssm__text_add(out, "arm");
    for (int64_t k = 0; k < e->n_keys; k++) {
        ssm__text_add(out, ",");
        print_field(out, e->keys[k]);
    }
    if (e->tune.key != NULL) {
        ssm__text_add(out, ",");
        print_field(out, e->tune.key);
    }
    ssm__text_add(out, ",seed,size,measure,value\n");
    for (int64_t i = 0; i < t->n_runs && good; i++) {
        good = !t->runs[i].done || print_run(out, t, &t->runs[i]);
    }
    return good;
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void print_cell(ssm__text *out, const char *text)
{
    ssm__text_add(out, " ");
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            ssm__text_add(out, "\\");
        }
        ssm__text_format(out, "%c", *text);
    }
    ssm__text_add(out, " |");
}

static void print_band(ssm__text *out, const ssm__band *band, bool difference)
{
    char text[96];
    if (band->n == 0) {
        print_cell(out, "-");
        return;
    }
    const char *format = difference ? "%+.3f [%+.3f, %+.3f]%s" : "%.3f [%.3f, %.3f]%s";
    const bool apart = difference && band->n > 1 && (band->low > 0 || band->high < 0);
    snprintf(text, sizeof text, format, band->mean, band->low, band->high, apart ? " *" : "");
    print_cell(out, text);
}

static void print_head(ssm__text *out, const ssm__tables *t, const char *measure)
{
    const ssm_experiment *e = t->experiment;
    ssm__text_add(out, "| arm |");
    for (int64_t k = 0; k < e->n_keys; k++) {
        print_cell(out, e->keys[k]);
    }
    if (e->tune.key != NULL) {
        print_cell(out, e->tune.key);
    }
    ssm__text_add(out, " n |");
    int64_t columns = 2 + e->n_keys + (e->tune.key != NULL);
    for (int64_t i = 0; i < t->n_sizes; i++) {
        if (is_measured(t, measure, i)) {
            print_cell(out, t->sizes[i]);
            columns++;
        }
    }
    ssm__text_add(out, "\n|");
    for (int64_t i = 0; i < columns; i++) {
        ssm__text_add(out, "---|");
    }
    ssm__text_add(out, "\n");
}

static ssm_status print_row(ssm__text *out, const ssm__tables *t, const ssm__cell *row,
                            ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    ssm__cell cell = *row;
    int64_t n = 0;
    bool good = true;
    ssm__text_add(out, "|");
    print_cell(out, e->arm_names[row->arm]);
    for (int64_t k = 0; k < e->n_keys && good; k++) {
        good = print_value(out, ssm__cell_value(e, row->cell, k), print_cell);
    }
    const json_t *tuned = tuned_value(t, row->arm, row->cell);
    if (e->tune.key != NULL && tuned == NULL) {
        print_cell(out, "-");
    } else if (e->tune.key != NULL) {
        good = good && print_value(out, tuned, print_cell);
    }
    if (!good) {
        return ssm__fail_memory(err, "a table", 0);
    }
    for (int pass = 0; pass < 2; pass++) { /* the number of seeds stands in front */
        for (int64_t i = 0; i < t->n_sizes; i++) {
            ssm__band band;
            if (!is_measured(t, row->measure, i)) {
                continue;
            }
            cell.size = t->sizes[i];
            SSM__TRY(ssm__table_band(t, &cell, &band, err));
            n = band.n > n ? band.n : n;
            if (pass == 1) {
                print_band(out, &band, row->against >= 0);
            }
        }
        if (pass == 0) {
            ssm__text_format(out, " %" PRId64 " |", n);
        }
    }
    ssm__text_add(out, "\n");
    return SSM_STATUS_OK;
}

static ssm_status print_table(ssm__text *out, const ssm__tables *t, const char *measure,
                              int64_t against, ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    ssm__text_format(out, "\n## %s", measure);
    if (against >= 0) {
        ssm__text_format(out, ": difference to %s, seed by seed", e->arm_names[against]);
    }
    ssm__text_add(out, "\n\n");
    print_head(out, t, measure);
    for (int64_t i = 0; i < e->n_arms * e->n_cells; i++) {
        const ssm__cell row = {
            .arm = i / e->n_cells, .cell = i % e->n_cells, .against = against, .measure = measure};
        if (row.arm != against) {
            SSM__TRY(print_row(out, t, &row, err));
        }
    }
    return SSM_STATUS_OK;
}

static void print_words(ssm__text *out, const ssm__tables *t)
{
    const ssm_experiment *e = t->experiment;
    ssm__text_format(out, "# %s\n", e->name);
    if (e->about[0] != '\0') {
        ssm__text_format(out, "\n%s\n", e->about);
    }
    ssm__text_format(out, "\n%" PRId64 " of %" PRId64 " runs are done", t->done, t->n_all);
    if (t->n_failed > 0) {
        ssm__text_format(
            out, ", %" PRId64 " of them were no longer finite (accuracy 0, left out of losses)",
            t->n_failed);
    }
    if (e->band == SSM__BAND_RANGE) {
        ssm__text_add(out, ". Mean over n seeds [lowest, highest].");
    } else {
        ssm__text_format(out, ". Mean over n seeds [%g %% bootstrap interval of the mean].",
                         100 * e->level);
    }
    ssm__text_add(out, t->against >= 0 ? " *: the band excludes zero.\n" : "\n");
}

static ssm_status print_markdown(ssm__text *out, const ssm__tables *t, ssm_error *err)
{
    const ssm_experiment *e = t->experiment;
    print_words(out, t);
    for (size_t m = 0; m < json_array_size(e->measures); m++) {
        const char *measure = json_string_value(json_array_get(e->measures, m));
        SSM__TRY(print_table(out, t, measure, -1, err));
        if (t->against >= 0 && e->n_arms > 1) {
            SSM__TRY(print_table(out, t, measure, t->against, err));
        }
    }
    return SSM_STATUS_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

ssm_status ssm__table_csv(const ssm__tables *t, char **out, ssm_error *err)
{
    ssm__text text = {0};
    const bool good = print_csv(&text, t);
    text.failed = text.failed || !good;
    return ssm__text_take(&text, out, err);
}

ssm_status ssm__table_markdown(const ssm__tables *t, char **out, ssm_error *err)
{
    ssm__text text = {0};
    const ssm_status status = print_markdown(&text, t, err);
    text.failed = text.failed || status != SSM_STATUS_OK;
    const ssm_status taken = ssm__text_take(&text, out, err);
    return status != SSM_STATUS_OK ? status : taken;
}
