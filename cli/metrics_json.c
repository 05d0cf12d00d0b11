#include <stddef.h>
#include <stdio.h>

#include "metrics_output.h"

/* Numbers that a layer has once a budget, and where they stand. */
static const struct {
    const char *name;
    size_t offset;
} by_budget[] = {
    {"rho", offsetof(ssm_budget_metrics, rho)},
    {"rho_diag", offsetof(ssm_budget_metrics, rho_diag)},
    {"error_static", offsetof(ssm_budget_metrics, error_static)},
    {"error_diag", offsetof(ssm_budget_metrics, error_diag)},
    {"churn_within", offsetof(ssm_budget_metrics, churn_within)},
    {"churn_cross", offsetof(ssm_budget_metrics, churn_cross)},
    {"churn_null", offsetof(ssm_budget_metrics, churn_null)},
    {"set_churn", offsetof(ssm_budget_metrics, set_churn)},
    {"energy_weighted_churn", offsetof(ssm_budget_metrics, energy_weighted_churn)},
};

static void budget_key(int64_t budget, char out[24])
{
    snprintf(out, 24, "%lld", (long long)budget);
}

static void put_reals(cli_json *json, json_t *object, const char *key, const double *values,
                      int64_t count)
{
    json_t *array = cli_json_array(json, object, key);
    for (int64_t i = 0; i < count; i++) {
        cli_json_push(json, array, cli_json_number(values[i]));
    }
}

static void put_decorrelation(cli_json *json, json_t *object, const char *key,
                              const ssm_budget_metrics *budget)
{
    json_t *array = cli_json_array(json, object, key);
    for (int64_t i = 0; i < budget->n_lags; i++) {
        json_t *entry = json_object();
        cli_json_integer(json, entry, "lag", budget->decorrelation[i].lag);
        cli_json_real(json, entry, "jaccard", budget->decorrelation[i].jaccard);
        cli_json_real(json, entry, "cosine", budget->decorrelation[i].cosine);
        cli_json_push(json, array, entry);
    }
}

static void put_budgets(cli_json *json, json_t *object, const ssm_layer_metrics *layer,
                        int64_t n_budgets)
{
    char key[24];
    for (size_t i = 0; i < sizeof by_budget / sizeof *by_budget; i++) {
        json_t *values = cli_json_object(json, object, by_budget[i].name);
        for (int64_t b = 0; b < n_budgets; b++) {
            const char *from = (const char *)&layer->budgets[b] + by_budget[i].offset;
            budget_key(layer->budgets[b].budget, key);
            cli_json_real(json, values, key, *(const double *)(const void *)from);
        }
    }
    json_t *ratio = cli_json_object(json, object, "churn_ratio");
    json_t *margin = cli_json_object(json, object, "churn_margin");
    json_t *decorrelation = cli_json_object(json, object, "decorrelation");
    json_t *instability = cli_json_object(json, object, "instability_by_decile");
    for (int64_t b = 0; b < n_budgets; b++) {
        const ssm_budget_metrics *budget = &layer->budgets[b];
        budget_key(budget->budget, key);
        cli_json_real(json, ratio, key, budget->churn_cross / budget->churn_within);
        cli_json_real(json, margin, key, budget->churn_cross - budget->churn_null);
        put_decorrelation(json, decorrelation, key, budget);
        put_reals(json, instability, key, budget->instability_by_decile, SSM_DECILES);
    }
}

static json_t *layer_object(cli_json *json, const ssm_layer_metrics *layer, int64_t n_budgets)
{
    json_t *object = json_object();
    cli_json_integer(json, object, "layer", layer->layer);
    put_budgets(json, object, layer, n_budgets);
    json_t *participation = cli_json_object(json, object, "participation_ratio");
    cli_json_real(json, participation, "median", layer->participation_median);
    cli_json_real(json, participation, "p10", layer->participation_p10);
    cli_json_real(json, participation, "p90", layer->participation_p90);
    json_t *time_constant = cli_json_object(json, object, "time_constant");
    cli_json_real(json, time_constant, "median", layer->time_constant_median);
    put_reals(json, time_constant, "deciles", layer->time_constant_deciles, SSM_DECILES - 1);
    return object;
}

/* A number from 0 on; a negative one stands for none. */
static void put_count(cli_json *json, json_t *object, const char *key, int64_t value)
{
    cli_json_put(json, object, key, value < 0 ? json_null() : json_integer(value));
}

static void put_across(cli_json *json, json_t *object, const ssm_across_layers *across)
{
    char key[24];
    budget_key(across->budget, key);
    json_t *entry = cli_json_object(json, object, key);
    cli_json_real(json, entry, "pearson_rho_diag_rho", across->pearson_rho_diag_rho);
    cli_json_real(json, entry, "spearman_energy_churn", across->spearman_energy_churn);
    cli_json_real(json, entry, "spearman_set_churn", across->spearman_set_churn);
    cli_json_real(json, entry, "min_rho", across->min_rho);
    put_count(json, entry, "min_rho_layer", across->min_rho_layer);
    json_t *migrating = cli_json_array(json, entry, "migrating_layers");
    for (int64_t i = 0; i < across->n_migrating; i++) {
        cli_json_push(json, migrating, json_integer(across->migrating_layers[i]));
    }
    cli_json_real(json, entry, "band_median", across->band_median);
    json_t *geometry = cli_json_object(json, entry, "geometry");
    cli_json_text(json, geometry, "kind",
                  across->n_migrating == 0 ? NULL
                  : across->contiguous     ? "contiguous"
                                           : "punctuated");
    cli_json_real(json, geometry, "hull_share", across->hull_share);
    put_reals(json, geometry, "relative_depths", across->migrating_depths, across->n_migrating);
    put_count(json, entry, "static_tail", across->static_tail);
    put_count(json, entry, "layers_cross_above_within", across->layers_cross_above_within);
    put_reals(json, entry, "instability_by_decile", across->instability_by_decile, SSM_DECILES);
}

ssm_status cli_metrics_json(const cli_context *context, const char *path,
                            const ssm_recording *recording, const ssm_metrics *metrics,
                            ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    cli_json json = cli_json_create(context, "metrics");
    json_t *model = cli_json_object(&json, json.root, "model");
    cli_json_text(&json, model, "digest", info->model_digest);
    json_t *source = cli_json_object(&json, json.root, "recording");
    cli_json_text(&json, source, "path", path);
    cli_json_text(&json, source, "digest", info->digest);
    cli_json_text(&json, json.root, "scope", ssm_scope_name(metrics->scope));
    json_t *budgets = cli_json_array(&json, json.root, "budgets");
    for (int64_t b = 0; b < metrics->n_budgets; b++) {
        cli_json_push(&json, budgets, json_integer(metrics->across[b].budget));
    }
    json_t *layers = cli_json_array(&json, json.root, "layers");
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        cli_json_push(&json, layers, layer_object(&json, &metrics->layers[i], metrics->n_budgets));
    }
    json_t *across = cli_json_object(&json, json.root, "across_layers");
    for (int64_t b = 0; b < metrics->n_budgets; b++) {
        put_across(&json, across, &metrics->across[b]);
    }
    cli_json_real(&json, json.root, "diagonal_identity_max_violation",
                  metrics->diagonal_identity_max_violation);
    cli_json_real(&json, json.root, "gram_diagonal_max_deviation",
                  metrics->gram_diagonal_max_deviation);
    return cli_json_print(&json, err);
}
