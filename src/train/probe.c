#include "train/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/inside.h"

typedef struct probing {
    const ssm__network *network;
    const ssm_train_task *task;
    const ssm__probe_settings *settings;
    ssm__pass *pass;
    ssm_train_batch batch;
    int64_t length, n_layers, modes, most; /* windows at most */
    float *normed;                         /* [L][D] */
    double *row;                           /* [⌊L/window⌋][modes] */
    double *energies;                      /* [layers][most][modes] */
    int32_t *regime;                       /* [most] */
    int64_t *from;                         /* [most] rows */
    int64_t n;
} probing;

/* The window's regime; −1: it has several. */
static int32_t regime_of(const probing *p, int64_t window)
{
    const int32_t *regimes = p->batch.regimes + window * p->settings->window;
    for (int64_t t = 1; t < p->settings->window; t++) {
        if (regimes[t] != regimes[0]) {
            return -1;
        }
    }
    return regimes[0];
}

/* Energies of one layer in the windows of the row that lie in one regime. */
static ssm_status add_layer(probing *p, int64_t branch, int64_t layer, ssm_error *err)
{
    const ssm__branch *b = &p->network->branches[branch];
    int64_t at = p->n;
    ssm__norm_forward(p->network, b->norm, b->norm_bias, p->pass->stream[branch], p->normed,
                      p->length);
    SSM__TRY(ssm__mode_energies(p->network, b->layer, p->normed, p->length, p->settings->window,
                                p->row, err));
    for (int64_t i = 0; i < p->length / p->settings->window; i++) {
        if (regime_of(p, i) >= 0) {
            memcpy(p->energies + (layer * p->most + at++) * p->modes, p->row + i * p->modes,
                   (size_t)p->modes * sizeof *p->energies);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status add_row(probing *p, int64_t number, ssm_error *err)
{
    ssm__loss loss;
    int64_t layer = 0;
    ssm_train_task_examples(p->task, ssm_train_task_info(p->task)->sizes[0], number, &p->batch);
    ssm__pass_train(p->pass, &p->batch, 0, NULL, &loss); /* keeps the streams */
    for (int64_t b = 0; b < p->network->n_branches; b++) {
        if (p->network->branches[b].kind != SSM__MIXER_MLP) {
            SSM__TRY(add_layer(p, b, layer++, err));
        }
    }
    for (int64_t i = 0; i < p->length / p->settings->window; i++) {
        if (regime_of(p, i) >= 0) {
            p->regime[p->n] = regime_of(p, i);
            p->from[p->n++] = number;
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status put_layer(const probing *p, int64_t layer, json_t *into, ssm_error *err)
{
    const ssm_config *c = &ssm__network_config_of(p->network)->shape;
    const ssm__windows_of_layer windows = {.n = p->n,
                                           .channels = c->d_inner,
                                           .states = c->d_state,
                                           .regimes = 2,
                                           .energies = p->energies + layer * p->most * p->modes,
                                           .regime = p->regime,
                                           .row = p->from};
    ssm__probe_result r;
    char key[40];
    SSM__TRY(ssm__probe_windows(&windows, p->settings->budget, &r, err));
    snprintf(key, sizeof key, "layer %" PRId64, layer);
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "probe", r.accuracy, "probe_shuffled",
                  r.accuracy_shuffled, "churn_within", r.churn_within, "churn_cross", r.churn_cross,
                  "churn_margin", r.margin, "churn_margin_shuffled", r.margin_shuffled);
    return object == NULL || json_object_set_new(into, key, object) != 0
               ? ssm__fail_memory(err, "a probe", 0)
               : SSM_STATUS_OK;
}

static ssm_status open_probe(probing *p, ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(p->task);
    const ssm__network_config *config = ssm__network_config_of(p->network);
    const ssm_config *c = &config->shape;
    if (!info->regimes) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "probe: the task %s has no regimes; expected switched-linear", info->name);
    }
    SSM__TRY(ssm_train_task_length(p->task, info->sizes[0], &p->length, err));
    if (p->settings->window > p->length) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "probe: window is %" PRId64 " of %" PRId64 " positions",
                         p->settings->window, p->length);
    }
    SSM__TRY(ssm_train_batch_create(p->task, 1, p->length, &p->batch, err));
    SSM__TRY(ssm__pass_create(p->network, p->length, true, &p->pass, err));
    const size_t per_row = (size_t)(p->length / p->settings->window);
    p->n_layers = c->n_layers;
    p->modes = c->d_inner * c->d_state;
    p->most = p->settings->rows * (int64_t)per_row;
    p->normed = calloc((size_t)(p->length * c->d_model), sizeof *p->normed);
    p->row = calloc(per_row * (size_t)p->modes, sizeof *p->row);
    p->energies = calloc((size_t)(p->n_layers * p->most * p->modes), sizeof *p->energies);
    p->regime = calloc((size_t)p->most, sizeof *p->regime);
    p->from = calloc((size_t)p->most, sizeof *p->from);
    return p->normed == NULL || p->row == NULL || p->energies == NULL || p->regime == NULL ||
                   p->from == NULL
               ? ssm__fail_memory(err, "a probe",
                                  (size_t)(p->n_layers * p->most * p->modes) * sizeof *p->energies)
               : SSM_STATUS_OK;
}

static ssm_status run_rows(probing *p, json_t *into, ssm_error *err)
{
    SSM__TRY(open_probe(p, err));
    for (int64_t i = 0; i < p->settings->rows; i++) {
        SSM__TRY(add_row(p, i, err));
    }
    for (int64_t layer = 0; layer < p->n_layers; layer++) {
        SSM__TRY(put_layer(p, layer, into, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__probe_network(const ssm__network *network, const ssm_train_task *task,
                              const ssm__probe_settings *settings, json_t **out, ssm_error *err)
{
    probing p = {.network = network, .task = task, .settings = settings};
    json_t *into = json_object();
    ssm_status status =
        into == NULL ? ssm__fail_memory(err, "a probe", 0) : run_rows(&p, into, err);
    if (status == SSM_STATUS_OK) {
        *out = into;
    } else {
        json_decref(into);
    }
    ssm__pass_free(p.pass);
    ssm_train_batch_free(&p.batch);
    free(p.normed);
    free(p.row);
    free(p.energies);
    free(p.regime);
    free(p.from);
    return status;
}
