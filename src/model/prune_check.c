/* Which masks a checkpoint can hold: one state size, one set of modes wherever B and C are shared,
 * and weights that have a place among the parameters. Everything else is refused with the layer and
 * what to do about it. */
#include "model/prune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { NAME_BYTES = 64 };

/* The place of a layer's tensor in the mask; name holds its text. */
static ssm__place place_of(const ssm__pruning *p, int64_t layer, const char *what,
                           char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "layers.%lld.%s", (long long)layer, what);
    return SSM__TENSOR(p->options->mask_path, name);
}

/* What a row of the mask is called. */
static const char *row_word(const ssm__pruning *p)
{
    const ssm_config *c = p->config;
    return c->n_heads > 0 && p->mask->head_dim == 0 && p->mask->n_channels == c->n_heads
               ? "head"
               : "channel";
}

static const uint8_t *keep_of(const ssm__pruning *p, int64_t layer, int64_t row)
{
    return p->mask->keep + (layer * p->mask->n_channels + row) * p->mask->d_state;
}

/* ---- is it a mask of this model? ------------------------------------------------------------- */

static ssm_status check_model(const ssm__pruning *p, ssm_error *err)
{
    const ssm_config *c = p->config;
    const ssm_mask *mask = p->mask;
    const char *digest = p->options->model_digest;
    if (c->d_state == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "no layer of this model has a state: there is nothing to prune");
    }
    if (mask->model_digest[0] != '\0' && strcmp(mask->model_digest, digest) != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(p->options->mask_path),
                         "the mask is for model %s, this is model %s", mask->model_digest, digest);
    }
    const int64_t channels = c->n_heads > 0 ? c->d_ssm : c->d_inner;
    const bool by_head = c->n_heads > 0 && mask->n_channels == c->n_heads && mask->head_dim == 0;
    if (mask->n_layers != c->n_layers || mask->d_state != c->d_state ||
        (mask->n_channels != channels && !by_head)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(p->options->mask_path),
                         "the mask is for %lld layers of %lld channels with %lld modes, the model "
                         "has %lld of %lld with %lld; make a mask from a recording of this model",
                         (long long)mask->n_layers, (long long)mask->n_channels,
                         (long long)mask->d_state, (long long)c->n_layers, (long long)channels,
                         (long long)c->d_state);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_family(const ssm__pruning *p, ssm_error *err)
{
    const bool falcon = p->config->family == SSM_FAMILY_FALCON_MAMBA;
    if (falcon && !p->options->renormalised) {
        return ssm__fail(
            err, SSM_STATUS_USAGE, SSM__NOWHERE,
            "Falcon-Mamba norms B and C over all %lld modes: with fewer of them the "
            "norms are others and so is the model. Run the mask (run --mask, eval "
            "--mask), or write that different model with --renormalised and measure it",
            (long long)p->config->d_state);
    }
    if (!falcon && p->options->renormalised) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "--renormalised is for Falcon-Mamba; B and C of this model (%s) have no "
                         "norms",
                         ssm_family_name(p->config->family));
    }
    return SSM_STATUS_OK;
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* All rows of a group keep what its first row keeps. */
static ssm_status check_same_set(const ssm__pruning *p, int64_t layer, int64_t first, int64_t rows,
                                 ssm_error *err)
{
    const int64_t N = p->mask->d_state;
    const uint8_t *keep = keep_of(p, layer, first);
    for (int64_t row = first + 1; row < first + rows; row++) {
        const uint8_t *other = keep_of(p, layer, row);
        for (int64_t i = 0; i < N; i++) {
            if ((keep[i] != 0) != (other[i] != 0)) {
                char name[NAME_BYTES];
                const bool grouped = p->groups > 1;
                const ssm__place place = place_of(p, layer, "keep", name);
                return ssm__fail(err, SSM_STATUS_USAGE, place,
                                 "%s %lld %s mode %lld and %s %lld %s it, but they share B and C, "
                                 "so a checkpoint keeps the same modes in both; make the mask with "
                                 "select --scope layer%s, or run this one (run --mask, eval "
                                 "--mask)",
                                 row_word(p), (long long)first, keep[i] ? "keeps" : "drops",
                                 (long long)i, row_word(p), (long long)row,
                                 other[i] ? "keeps" : "drops", grouped ? " or --scope group" : "");
            }
        }
    }
    return SSM_STATUS_OK;
}

static int64_t count_kept(const uint8_t *keep, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        count += keep[i] != 0;
    }
    return count;
}

/* Counts the modes of every group; the first one that has a state gives r. */
static ssm_status check_budgets(ssm__pruning *p, ssm_error *err)
{
    const int64_t rows = p->mask->n_channels / p->groups;
    int64_t first_layer = -1;
    char name[NAME_BYTES];
    for (int64_t layer = 0; layer < p->config->n_layers; layer++) {
        for (int64_t g = 0; g < p->groups && ssm__pruning_cuts(p, layer); g++) {
            const ssm__place place = place_of(p, layer, "keep", name);
            SSM__TRY(check_same_set(p, layer, g * rows, rows, err));
            const int64_t count = count_kept(keep_of(p, layer, g * rows), p->mask->d_state);
            if (count == 0) {
                return ssm__fail(err, SSM_STATUS_USAGE, place,
                                 "layer %lld keeps no mode; a checkpoint has at least one",
                                 (long long)layer);
            }
            if (first_layer >= 0 && count != p->r) {
                return ssm__fail(err, SSM_STATUS_USAGE, place,
                                 "layer %lld keeps %lld modes (%s %lld), layer %lld keeps %lld "
                                 "(%s 0), but a checkpoint has one state size for all; choose with "
                                 "a rule that gives every set the same budget (not last or ghost), "
                                 "or run this mask (run --mask, eval --mask)",
                                 (long long)layer, (long long)count, row_word(p),
                                 (long long)(g * rows), (long long)first_layer, (long long)p->r,
                                 row_word(p));
            }
            first_layer = first_layer < 0 ? layer : first_layer;
            p->r = count;
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status list_kept(ssm__pruning *p, ssm_error *err)
{
    const int64_t rows = p->mask->n_channels / p->groups;
    const size_t count = (size_t)(p->config->n_layers * p->groups * p->r);
    p->kept = calloc(count, sizeof *p->kept);
    if (p->kept == NULL) {
        return ssm__fail_memory(err, "the kept modes", count * sizeof *p->kept);
    }
    for (int64_t layer = 0; layer < p->config->n_layers; layer++) {
        for (int64_t g = 0; g < p->groups && ssm__pruning_cuts(p, layer); g++) {
            const uint8_t *keep = keep_of(p, layer, g * rows);
            int64_t *to = p->kept + (layer * p->groups + g) * p->r;
            for (int64_t i = 0; i < p->mask->d_state; i++) {
                if (keep[i] != 0) {
                    *to++ = i;
                }
            }
        }
    }
    return SSM_STATUS_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

#define RUN_IT "run this mask (run --mask, eval --mask), or choose one by a rule without weights"

/* In Mamba-1 C is a row of x_proj, the same for all channels of a layer. */
static ssm_status check_equal_weights(const ssm__pruning *p, int64_t layer, ssm_error *err)
{
    const int64_t rows = p->mask->n_channels;
    const float *weight = p->mask->weight + layer * rows * p->mask->d_state;
    for (int64_t k = 0; k < p->r; k++) {
        const int64_t i = p->kept[layer * p->r + k];
        for (int64_t h = 1; h < rows; h++) {
            const float other = weight[h * p->mask->d_state + i];
            if (other != weight[i]) {
                char name[NAME_BYTES];
                return ssm__fail(err, SSM_STATUS_USAGE, place_of(p, layer, "weight", name),
                                 "mode %lld has weight %.9g in channel 0 and %.9g in channel %lld, "
                                 "but a checkpoint has one row of C for all channels of a layer: "
                                 "only weights equal in all of them fold into it; " RUN_IT,
                                 (long long)i, (double)weight[i], (double)other, (long long)h);
            }
        }
    }
    return SSM_STATUS_OK;
}

/* In Mamba-2 C goes through SiLU, in Falcon-Mamba through a norm, after its last parameter. */
static ssm_status check_no_weights(const ssm__pruning *p, int64_t layer, ssm_error *err)
{
    const int64_t rows = p->mask->n_channels;
    const int64_t N = p->mask->d_state;
    const char *through = p->config->n_heads > 0 ? "the convolution and SiLU" : "a norm";
    for (int64_t h = 0; h < rows; h++) {
        const int64_t row = layer * rows + h;
        for (int64_t i = 0; i < N; i++) {
            const float weight = p->mask->weight[row * N + i];
            if (p->mask->keep[row * N + i] != 0 && weight != 1.0F) {
                char name[NAME_BYTES];
                return ssm__fail(err, SSM_STATUS_USAGE, place_of(p, layer, "weight", name),
                                 "%s %lld weighs mode %lld with %.9g, but C of this family passes "
                                 "through %s, and no parameter scales it behind that; " RUN_IT,
                                 row_word(p), (long long)h, (long long)i, (double)weight, through);
            }
        }
    }
    return SSM_STATUS_OK;
}

/* D of heads has one number for all channels of a head; the mask may have one for each channel. */
static ssm_status check_skip(const ssm__pruning *p, int64_t layer, ssm_error *err)
{
    const ssm_config *c = p->config;
    const int64_t rows = p->mask->n_channels;
    if (c->n_heads == 0 || rows == c->n_heads || c->D_per_channel) {
        return SSM_STATUS_OK;
    }
    const float *skip = p->mask->skip_weight + layer * rows;
    for (int64_t h = 0; h < rows; h++) {
        const int64_t first = h / c->head_dim * c->head_dim;
        if (skip[h] != skip[first]) {
            char name[NAME_BYTES];
            return ssm__fail(err, SSM_STATUS_USAGE, place_of(p, layer, "skip_weight", name),
                             "channels %lld and %lld of one head have weights %.9g and %.9g, but "
                             "the head has one D; " RUN_IT,
                             (long long)first, (long long)h, (double)skip[first], (double)skip[h]);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_weights(const ssm__pruning *p, ssm_error *err)
{
    for (int64_t layer = 0; layer < p->config->n_layers && p->mask->weight != NULL; layer++) {
        if (ssm__pruning_cuts(p, layer)) {
            SSM__TRY(p->config->family == SSM_FAMILY_MAMBA ? check_equal_weights(p, layer, err)
                                                           : check_no_weights(p, layer, err));
            SSM__TRY(check_skip(p, layer, err));
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__pruning_check(ssm__pruning *p, ssm_error *err)
{
    SSM__TRY(check_model(p, err));
    SSM__TRY(check_family(p, err));
    p->groups = p->config->n_heads > 0 ? p->config->n_groups : 1;
    SSM__TRY(check_budgets(p, err));
    SSM__TRY(list_kept(p, err));
    return check_weights(p, err);
}
