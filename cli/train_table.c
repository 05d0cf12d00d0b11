#include "train_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { MOST_COLUMNS = 64, HEADING = 48 };

typedef struct column {
    char heading[HEADING];
    char size[24];
    const char *measure;
} column;

static json_t *parse(const char *evaluation)
{
    json_error_t error;
    return evaluation == NULL ? NULL : json_loads(evaluation, 0, &error);
}

static double measure_of(const json_t *evaluation, const char *size, const char *measure)
{
    const json_t *value = json_object_get(json_object_get(evaluation, size), measure);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* What the first run that was evaluated has of loss, strings and characters, size by size. */
static int choose_columns(const cli_trained *runs, int64_t n_runs, column *columns)
{
    static const char *const measures[] = {"loss", "strings", "characters"};
    int count = 0;
    for (int64_t i = 0; i < n_runs && count == 0; i++) {
        json_t *evaluation = parse(runs[i].result.evaluation);
        const char *size;
        json_t *value;
        json_object_foreach(evaluation, size, value)
        {
            for (int m = 0; m < 3 && count < MOST_COLUMNS; m++) {
                if (json_object_get(value, measures[m]) != NULL) {
                    columns[count].measure = measures[m];
                    snprintf(columns[count].size, sizeof columns[count].size, "%s", size);
                    snprintf(columns[count].heading, HEADING, "%s %s", measures[m], size);
                    count++;
                }
            }
        }
        json_decref(evaluation);
    }
    return count;
}

static void add_row(cli_table *table, const cli_trained *run, int64_t n_keys, const column *columns,
                    int n_columns)
{
    json_t *evaluation = parse(run->result.evaluation);
    for (int64_t k = 0; k < n_keys; k++) {
        cli_table_cell(table, "%s", run->values[k]);
    }
    cli_table_cell(table, "%lld", (long long)run->result.steps);
    if (run->failed) {
        cli_table_cell(table, "not finite");
    } else {
        cli_table_number(table, run->result.loss, 4);
    }
    for (int i = 0; i < n_columns; i++) {
        cli_table_number(table, measure_of(evaluation, columns[i].size, columns[i].measure), 4);
    }
    json_decref(evaluation);
}

ssm_status cli_trained_print(const char *const *keys, int64_t n_keys, const cli_trained *runs,
                             int64_t n_runs, ssm_error *err)
{
    column columns[MOST_COLUMNS];
    const int n_columns = choose_columns(runs, n_runs, columns);
    const size_t all = (size_t)n_keys + 2 + (size_t)n_columns;
    const char **headings = calloc(all + 1, sizeof *headings);
    char *alignment = calloc(all + 1, 1);
    if (headings == NULL || alignment == NULL) {
        free(headings);
        free(alignment);
        return cli_no_memory(err);
    }
    memset(alignment, 'r', all);
    for (int64_t k = 0; k < n_keys; k++) {
        headings[k] = keys[k];
    }
    headings[n_keys] = "steps";
    headings[n_keys + 1] = "loss";
    for (int i = 0; i < n_columns; i++) {
        headings[n_keys + 2 + i] = columns[i].heading;
    }
    cli_table table = cli_table_create(headings, alignment);
    for (int64_t i = 0; i < n_runs; i++) {
        add_row(&table, &runs[i], n_keys, columns, n_columns);
    }
    const ssm_status status = cli_table_print(&table, stdout, err);
    free(headings);
    free(alignment);
    return status;
}

void cli_trained_json(cli_json *json, json_t *array, const char *const *keys, int64_t n_keys,
                      const cli_trained *run)
{
    json_t *object = json_object();
    cli_json_push(json, array, object);
    cli_json_text(json, object, "directory", run->directory);
    for (int64_t k = 0; k < n_keys; k++) {
        cli_json_text(json, object, keys[k], run->values[k]);
    }
    if (run->failed) {
        cli_json_text(json, object, "error", run->message);
        return;
    }
    cli_json_integer(json, object, "steps", run->result.steps);
    cli_json_integer(json, object, "parameters", run->result.parameters);
    cli_json_integer(json, object, "tokens", run->result.tokens);
    cli_json_real(json, object, "loss", run->result.loss);
    json_t *evaluation = parse(run->result.evaluation);
    if (evaluation != NULL) {
        cli_json_put(json, object, "evaluation", evaluation);
    }
    cli_json_real(json, object, "seconds", run->result.seconds);
}

void cli_evaluation_print(const char *evaluation)
{
    json_t *sizes = parse(evaluation);
    const char *size;
    json_t *value;
    json_object_foreach(sizes, size, value)
    {
        const json_t *examples = json_object_get(value, "examples");
        printf("size %s, %lld examples: loss %.4f", size, (long long)json_integer_value(examples),
               measure_of(sizes, size, "loss"));
        if (json_object_get(value, "strings") != NULL) {
            printf(", strings right %.4f, characters right %.4f",
                   measure_of(sizes, size, "strings"), measure_of(sizes, size, "characters"));
        }
        printf("\n");
    }
    json_decref(sizes);
}
