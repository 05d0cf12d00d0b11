#include "select_output.h"

#include <math.h>
#include <stdio.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

/* {"1": E, "2": E, …}, or of a mask the number alone. */
static void put_errors(cli_json *json, json_t *object, const char *key, const cli_curve *curve,
                       const double *errors)
{
    if (curve->mask != NULL) {
        cli_json_real(json, object, key, errors[0]);
        return;
    }
    json_t *by_budget = cli_json_object(json, object, key);
    for (int64_t b = 0; b < curve->errors.n_budgets; b++) {
        char budget[32];
        snprintf(budget, sizeof budget, "%lld", (long long)curve->errors.budgets[b]);
        cli_json_real(json, by_budget, budget, errors[b]);
    }
}

static ssm_status print_json(const cli_context *context, const cli_curve *curve, ssm_error *err)
{
    const ssm_error_curve *e = &curve->errors;
    cli_json json = cli_json_create(context, "select");
    json_t *recording = cli_json_object(&json, json.root, "recording");
    cli_json_text(&json, recording, "path", curve->recording);
    cli_json_text(&json, recording, "digest", curve->digest);
    if (curve->mask != NULL) {
        json_t *mask = cli_json_object(&json, json.root, "mask");
        cli_json_text(&json, mask, "path", curve->mask);
        cli_json_text(&json, mask, "digest", curve->mask_digest);
        cli_json_text(&json, mask, "rule", curve->rule);
        cli_json_text(&json, mask, "scope", curve->scope);
        cli_json_integer(&json, mask, "budget", e->budgets[0]);
    }
    json_t *object = cli_json_object(&json, json.root, "curve");
    if (curve->mask == NULL) {
        cli_json_text(&json, object, "rule", curve->rule);
        cli_json_text(&json, object, "scope", curve->scope);
        cli_json_integer(&json, object, "seed", curve->seed);
        if (!isnan(curve->ridge)) {
            cli_json_real(&json, object, "ridge", curve->ridge);
        }
    }
    cli_json_text(&json, object, "windows", curve->windows);
    put_errors(&json, object, "mean_error", curve, e->mean);
    json_t *layers = cli_json_array(&json, object, "layers");
    for (int64_t l = 0; l < e->n_layers; l++) {
        json_t *layer = json_object();
        cli_json_push(&json, layers, layer);
        cli_json_integer(&json, layer, "layer", e->layers[l]);
        put_errors(&json, layer, "error", curve, e->error + l * e->n_budgets);
    }
    return cli_json_print(&json, err);
}

/* ---- for people ------------------------------------------------------------------------------ */

enum { DECIMALS = 5 };

static ssm_status print_mask(const cli_curve *curve, ssm_error *err)
{
    static const char *const headings[] = {"layer", "E"};
    const ssm_error_curve *e = &curve->errors;
    cli_table table = cli_table_create(headings, "rr");
    for (int64_t l = 0; l < e->n_layers; l++) {
        cli_table_cell(&table, "%lld", (long long)e->layers[l]);
        cli_table_number(&table, e->error[l], DECIMALS);
    }
    cli_table_cell(&table, "mean");
    cli_table_number(&table, e->mean[0], DECIMALS);
    printf("%s: rule %s, scope %s, on the %s windows of %s\n", curve->mask, curve->rule,
           curve->scope, curve->windows, curve->recording);
    return cli_table_print(&table, stdout, err);
}

/* The lowest and the highest of a budget over the layers. */
static void range_of(const ssm_error_curve *e, int64_t budget, int64_t *low, int64_t *high)
{
    *low = 0;
    *high = 0;
    for (int64_t l = 1; l < e->n_layers; l++) {
        const double error = e->error[l * e->n_budgets + budget];
        *low = error < e->error[*low * e->n_budgets + budget] ? l : *low;
        *high = error > e->error[*high * e->n_budgets + budget] ? l : *high;
    }
}

static ssm_status print_rule(const cli_curve *curve, ssm_error *err)
{
    static const char *const headings[] = {"r", "mean E", "lowest", "layer", "highest", "layer"};
    const ssm_error_curve *e = &curve->errors;
    cli_table table = cli_table_create(headings, "rrrrrr");
    for (int64_t b = 0; b < e->n_budgets; b++) {
        int64_t low;
        int64_t high;
        range_of(e, b, &low, &high);
        cli_table_cell(&table, "%lld", (long long)e->budgets[b]);
        cli_table_number(&table, e->mean[b], DECIMALS);
        cli_table_number(&table, e->error[low * e->n_budgets + b], DECIMALS);
        cli_table_cell(&table, "%lld", (long long)e->layers[low]);
        cli_table_number(&table, e->error[high * e->n_budgets + b], DECIMALS);
        cli_table_cell(&table, "%lld", (long long)e->layers[high]);
    }
    printf("rule %s, scope %s, on the %s windows of %s\n", curve->rule, curve->scope,
           curve->windows, curve->recording);
    return cli_table_print(&table, stdout, err);
}

ssm_status cli_curve_print(const cli_context *context, const cli_curve *curve, ssm_error *err)
{
    if (context->globals.json) {
        return print_json(context, curve, err);
    }
    const ssm_status status = curve->mask != NULL ? print_mask(curve, err) : print_rule(curve, err);
    if (status == SSM_STATUS_OK) {
        cli_footnote("E: error of a layer's output, relative to the output's own size, when its "
                     "sets are applied there alone; from Grams, without a forward pass.");
    }
    return status;
}
