#include <math.h>
#include <stdio.h>
#include <string.h>

#include "metrics_output.h"

enum { BAR_WIDTH = 40 };

/* Index of the budget that the detailed tables are about: the middle one. */
static int64_t middle(const ssm_metrics *metrics)
{
    return metrics->n_budgets / 2;
}

static void print_head(const char *path, const ssm_recording *recording, const ssm_metrics *metrics)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    int64_t calibration = 0;
    int64_t evaluation = 0;
    int64_t n = ssm_recording_window_count(recording);
    for (int64_t i = 0; i < n; i++) {
        bool is_calibration = ssm_recording_get_window(recording, i)->role == SSM_ROLE_CALIBRATION;
        calibration += is_calibration;
        evaluation += !is_calibration;
    }
    printf("%s: %s, %lld layers of %lld %ss of %lld modes\n"
           "%lld calibration and %lld evaluation windows of %lld tokens\nmodel %s\n",
           path, ssm_family_name(info->family), (long long)info->n_recorded,
           (long long)ssm_recording_sets(info, metrics->scope), ssm_scope_name(metrics->scope),
           (long long)info->d_state, (long long)calibration, (long long)evaluation,
           (long long)info->window, info->model_digest);
}

/* The chart of ρ. One line a layer, a full bar is ρ = 1. */
static void print_chart(const ssm_metrics *metrics)
{
    bool utf8 = cli_utf8();
    int64_t b = middle(metrics);
    printf("\nMigration gap %s at r = %lld kept modes a %s (a full bar is 1)\n", utf8 ? "ρ" : "rho",
           (long long)metrics->across[b].budget, ssm_scope_name(metrics->scope));
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        double rho = metrics->layers[i].budgets[b].rho;
        printf("  layer %3lld  ", (long long)metrics->layers[i].layer);
        if (isnan(rho)) {
            puts("    -");
            continue;
        }
        printf("%.3f  ", rho);
        cli_bar(stdout, rho, 1.0, BAR_WIDTH, utf8);
        putchar('\n');
    }
    cli_footnote("Error with every window's own best modes / error with one fixed set. 1: the "
                 "important modes stay the same whatever the text; the lower, the more they move "
                 "with the input.");
}

static ssm_status print_errors(const ssm_metrics *metrics, int64_t b, ssm_error *err)
{
    static const char *const headings[] = {"layer", "ρ", "ρ diag", "E static", "E diag", NULL};
    printf("\nErrors at r = %lld\n", (long long)metrics->across[b].budget);
    cli_table table = cli_table_create(headings, "rrrrr");
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        const ssm_budget_metrics *m = &metrics->layers[i].budgets[b];
        cli_table_cell(&table, "%lld", (long long)metrics->layers[i].layer);
        cli_table_number(&table, m->rho, 3);
        cli_table_number(&table, m->rho_diag, 3);
        cli_table_number(&table, m->error_static, 3);
        cli_table_number(&table, m->error_diag, 3);
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    cli_footnote("E: relative error of the layer's output, static set / each window's own set.");
    return status;
}

static ssm_status print_churn(const ssm_metrics *metrics, int64_t b, ssm_error *err)
{
    static const char *const headings[] = {"layer",  "within", "cross",     "null", "ratio",
                                           "margin", "churn",  "churn (e)", NULL};
    printf("\nChurn at r = %lld\n", (long long)metrics->across[b].budget);
    cli_table table = cli_table_create(headings, "rrrrrrrr");
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        const ssm_budget_metrics *m = &metrics->layers[i].budgets[b];
        const double values[] = {m->churn_within,
                                 m->churn_cross,
                                 m->churn_null,
                                 m->churn_cross / m->churn_within,
                                 m->churn_cross - m->churn_null,
                                 m->set_churn,
                                 m->energy_weighted_churn};
        cli_table_cell(&table, "%lld", (long long)metrics->layers[i].layer);
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            cli_table_number(&table, values[k], 3);
        }
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    cli_footnote(
        "within, cross, null: how different two windows' top-r sets are (Jaccard distance) "
        "in the same domain, across domains, and in two halves of one window; ratio = "
        "cross / within, margin = cross - null. churn: share of a window's set that is not "
        "in the static set; (e): the same, weighted by energy.");
    return status;
}

static ssm_status print_orders(const ssm_metrics *metrics, ssm_error *err)
{
    static const char *const headings[] = {"layer",  "PR median", "PR p10", "PR p90",
                                           "τ fast", "τ median",  "τ slow", NULL};
    puts("\nEffective order and time constants");
    cli_table table = cli_table_create(headings, "rrrrrrr");
    for (int64_t i = 0; i < metrics->n_layers; i++) {
        const ssm_layer_metrics *layer = &metrics->layers[i];
        cli_table_cell(&table, "%lld", (long long)layer->layer);
        cli_table_number(&table, layer->participation_median, 2);
        cli_table_number(&table, layer->participation_p10, 2);
        cli_table_number(&table, layer->participation_p90, 2);
        cli_table_number(&table, layer->time_constant_deciles[0], 1);
        cli_table_number(&table, layer->time_constant_median, 1);
        cli_table_number(&table, layer->time_constant_deciles[SSM_DECILES - 2], 1);
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    cli_footnote(
        "PR: participation ratio, how many modes a channel really uses. τ: time constant in "
        "tokens of the fastest tenth, the median, the slowest tenth of the modes.");
    return status;
}

static void print_layers(char *out, size_t bytes, const ssm_across_layers *across)
{
    size_t used = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < across->n_migrating; i++) {
        int64_t last = i;
        while (last + 1 < across->n_migrating &&
               across->migrating_layers[last + 1] == across->migrating_layers[last] + 1) {
            last++;
        }
        int length = snprintf(out + used, bytes - used, last > i ? "%s%lld-%lld" : "%s%lld",
                              i == 0 ? "" : ",", (long long)across->migrating_layers[i],
                              (long long)across->migrating_layers[last]);
        used += (size_t)length;
        if (used >= bytes) {
            memcpy(out + bytes - 4, "...", sizeof "...");
            return;
        }
        i = last;
    }
}

static ssm_status print_across(const ssm_metrics *metrics, ssm_error *err)
{
    static const char *const headings[] = {"r",           "min ρ",          "layer",
                                           "band ρ",      "geometry",       "migrating",
                                           "static tail", "cross > within", NULL};
    puts("\nAcross layers");
    cli_table table = cli_table_create(headings, "rrrrllrr");
    for (int64_t b = 0; b < metrics->n_budgets; b++) {
        const ssm_across_layers *across = &metrics->across[b];
        char layers[64];
        print_layers(layers, sizeof layers, across);
        cli_table_cell(&table, "%lld", (long long)across->budget);
        cli_table_number(&table, across->min_rho, 3);
        cli_table_cell(&table, isnan(across->min_rho) ? "-" : "%lld",
                       (long long)across->min_rho_layer);
        cli_table_number(&table, across->band_median, 3);
        cli_table_cell(&table, "%s",
                       across->n_migrating == 0 ? "-"
                       : across->contiguous     ? "contiguous"
                                                : "punctuated");
        cli_table_cell(&table, "%s", layers[0] == '\0' ? "-" : layers);
        cli_table_cell(&table, across->static_tail < 0 ? "-" : "%lld",
                       (long long)across->static_tail);
        cli_table_cell(&table, across->layers_cross_above_within < 0 ? "-" : "%lld of %lld",
                       (long long)across->layers_cross_above_within, (long long)metrics->n_layers);
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    cli_footnote("migrating: layers with ρ at most half way between the smallest ρ and 1; band ρ: "
                 "their median; static tail: last layers with ρ of at least 0.95.");
    return status;
}

static ssm_status print_correlations(const ssm_metrics *metrics, ssm_error *err)
{
    static const char *const headings[] = {"r", "ρ diag ~ ρ", "churn (e) ~ 1-ρ", "churn ~ 1-ρ",
                                           NULL};
    puts("");
    cli_table table = cli_table_create(headings, "rrrr");
    for (int64_t b = 0; b < metrics->n_budgets; b++) {
        const ssm_across_layers *across = &metrics->across[b];
        cli_table_cell(&table, "%lld", (long long)across->budget);
        cli_table_number(&table, across->pearson_rho_diag_rho, 3);
        cli_table_number(&table, across->spearman_energy_churn, 3);
        cli_table_number(&table, across->spearman_set_churn, 3);
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    cli_footnote(
        "Correlations over layers: Pearson of ρ from energies alone with ρ; Spearman of each "
        "churn with 1 - ρ.");
    return status;
}

static ssm_status print_instability(const ssm_metrics *metrics, ssm_error *err)
{
    static const char *const headings[] = {"r", "fastest", "2", "3", "4",       "5",
                                           "6", "7",       "8", "9", "slowest", NULL};
    puts("\nInstability by decile of the time constant, all layers");
    cli_table table = cli_table_create(headings, "rrrrrrrrrrr");
    for (int64_t b = 0; b < metrics->n_budgets; b++) {
        cli_table_cell(&table, "%lld", (long long)metrics->across[b].budget);
        for (int d = 0; d < SSM_DECILES; d++) {
            cli_table_number(&table, metrics->across[b].instability_by_decile[d], 2);
        }
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    puts("  0: a mode is always or never among the top r; 1: in half of the windows.");
    return status;
}

ssm_status cli_metrics_print(const char *path, const ssm_recording *recording,
                             const ssm_metrics *metrics, ssm_error *err)
{
    print_head(path, recording, metrics);
    if (metrics->n_budgets == 0) {
        return print_orders(metrics, err);
    }
    print_chart(metrics);
    ssm_status status = print_errors(metrics, middle(metrics), err);
    status = status == SSM_STATUS_OK ? print_churn(metrics, middle(metrics), err) : status;
    status = status == SSM_STATUS_OK ? print_orders(metrics, err) : status;
    status = status == SSM_STATUS_OK ? print_across(metrics, err) : status;
    status = status == SSM_STATUS_OK ? print_correlations(metrics, err) : status;
    status = status == SSM_STATUS_OK ? print_instability(metrics, err) : status;
    if (!isnan(metrics->diagonal_identity_max_violation)) {
        printf("\nDiagonal identity: largest relative violation %.2g (must be at most %.0e)\n",
               metrics->diagonal_identity_max_violation, cli_identity_bound);
    }
    return status;
}
