/* A smaller checkpoint from a mask: which rows and columns of which tensors are written.
 *
 * y_h = Σ_i C_i x_{h,i} + D_h u_h, where mode i of every channel is written by B_i and read by C_i.
 * Without mode i in all channels that share them, the rows that make B_i and C_i have nothing left
 * to do, and leaving them out changes no other number. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/internal.h"
#include "model/prune.h"

/* The cuts of all layers. Rows are those of x_proj (Mamba-1) or in_proj (Mamba-2). */
typedef struct cuts {
    ssm__pruning of;
    int64_t n_rows, n_channels, n_skip; /* in one layer, of what is written */
    int64_t *rows;                      /* [n_layers][n_rows] */
    int64_t *channels;                  /* [n_layers][n_channels], of conv1d; Mamba-2 */
    float *factors; /* [n_layers][n_rows] of x_proj; NULL: none differs from 1 */
    float *skip;    /* [n_layers][n_skip], of D; NULL likewise */
} cuts;

/* ---- rows ------------------------------------------------------------------------------------ */

static int64_t *push_range(int64_t *to, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        *to++ = first + i;
    }
    return to;
}

/* The kept ones among rows [groups][d_state] from `first` on. */
static int64_t *push_kept(int64_t *to, const ssm__pruning *p, int64_t layer, int64_t first)
{
    for (int64_t g = 0; g < p->groups; g++) {
        for (int64_t k = 0; k < p->r; k++) {
            *to++ = first + g * p->config->d_state + p->kept[(layer * p->groups + g) * p->r + k];
        }
    }
    return to;
}

/* The order of rows is that of checkpoint/weights.h. */
static void list_rows(cuts *all, int64_t layer)
{
    const ssm__pruning *p = &all->of;
    const ssm_config *c = p->config;
    const int64_t states = p->groups * c->d_state; /* rows of B, and of C */
    int64_t *to = all->rows + layer * all->n_rows;
    if (c->n_heads == 0) {
        to = push_range(to, 0, c->dt_rank);
        to = push_kept(to, p, layer, c->dt_rank);
        push_kept(to, p, layer, c->dt_rank + states);
        return;
    }
    to = push_range(to, 0, 2 * c->d_inner);
    to = push_kept(to, p, layer, 2 * c->d_inner);
    to = push_kept(to, p, layer, 2 * c->d_inner + states);
    push_range(to, 2 * c->d_inner + 2 * states, c->n_heads);
    to = push_range(all->channels + layer * all->n_channels, 0, c->d_ssm);
    to = push_kept(to, p, layer, c->d_ssm);
    push_kept(to, p, layer, c->d_ssm + states);
}

static ssm_status make_rows(cuts *all, ssm_error *err)
{
    const ssm_config *c = all->of.config;
    const int64_t states = 2 * all->of.groups * all->of.r;
    const size_t n_layers = (size_t)c->n_layers;
    all->n_rows = (c->n_heads == 0 ? c->dt_rank : 2 * c->d_inner + c->n_heads) + states;
    all->n_channels = c->n_heads == 0 ? 0 : c->d_ssm + states;
    all->rows = calloc(n_layers * (size_t)all->n_rows, sizeof *all->rows);
    all->channels = calloc(n_layers * (size_t)all->n_channels + 1, sizeof *all->channels);
    if (all->rows == NULL || all->channels == NULL) {
        return ssm__fail_memory(err, "lists of rows",
                                n_layers * (size_t)(all->n_rows + all->n_channels) *
                                    sizeof *all->rows);
    }
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        if (ssm__pruning_cuts(&all->of, layer)) {
            list_rows(all, layer);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* `count` ones for every layer; NULL: out of memory. */
static float *make_ones(int64_t count)
{
    float *ones = malloc((size_t)count * sizeof *ones);
    for (int64_t i = 0; ones != NULL && i < count; i++) {
        ones[i] = 1.0F;
    }
    return ones;
}

/* Frees factors that are all 1. */
static void drop_ones(float **factors, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if ((*factors)[i] != 1.0F) {
            return;
        }
    }
    free(*factors);
    *factors = NULL;
}

/* The weights that ssm__pruning_check found to be foldable: a mode's of channel 0 is everyone's. */
static void fill_weights(cuts *all, int64_t layer)
{
    const ssm__pruning *p = &all->of;
    const int64_t rows = p->mask->n_channels;
    const float *weight = p->mask->weight + layer * rows * p->mask->d_state;
    const float *skip = p->mask->skip_weight + layer * rows;
    if (p->config->family == SSM_FAMILY_MAMBA) {
        float *factors = all->factors + layer * all->n_rows + p->config->dt_rank + p->r;
        for (int64_t k = 0; k < p->r; k++) {
            factors[k] = weight[p->kept[layer * p->r + k]];
        }
    }
    for (int64_t i = 0; i < all->n_skip; i++) { /* one row of the mask for several of D, or back */
        all->skip[layer * all->n_skip + i] = skip[i * rows / all->n_skip];
    }
}

static ssm_status make_weights(cuts *all, ssm_error *err)
{
    const ssm_config *c = all->of.config;
    if (all->of.mask->weight == NULL) {
        return SSM_STATUS_OK;
    }
    all->n_skip = c->n_heads == 0 ? c->d_inner : c->D_per_channel ? c->d_ssm : c->n_heads;
    all->factors = make_ones(c->n_layers * all->n_rows);
    all->skip = make_ones(c->n_layers * all->n_skip);
    if (all->factors == NULL || all->skip == NULL) {
        return ssm__fail_memory(err, "a mask's weights",
                                (size_t)(c->n_layers * (all->n_rows + all->n_skip)) *
                                    sizeof *all->skip);
    }
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        if (ssm__pruning_cuts(&all->of, layer)) {
            fill_weights(all, layer);
        }
    }
    drop_ones(&all->factors, c->n_layers * all->n_rows);
    drop_ones(&all->skip, c->n_layers * all->n_skip);
    return SSM_STATUS_OK;
}

/* ---- what is written ------------------------------------------------------------------------- */

static void cut_mamba(const cuts *all, ssm__slot_place place, ssm__cut *out)
{
    const ssm__pruning *p = &all->of;
    const int64_t at = place.layer * all->n_rows;
    if (place.id == SSM__SLOT_x_proj) {
        *out = (ssm__cut){.count = all->n_rows, .from = all->rows + at};
        out->factor = all->factors != NULL ? all->factors + at : NULL;
    } else if (place.id == SSM__SLOT_A_log) {
        *out = (ssm__cut){.axis = 1, .count = p->r, .from = p->kept + place.layer * p->r};
    }
}

static void cut_mamba2(const cuts *all, ssm__slot_place place, ssm__cut *out)
{
    if (place.id == SSM__SLOT_in_proj || place.id == SSM__SLOT_in_proj_bias) {
        *out = (ssm__cut){.count = all->n_rows, .from = all->rows + place.layer * all->n_rows};
    } else if (place.id == SSM__SLOT_conv1d || place.id == SSM__SLOT_conv1d_bias) {
        const int64_t *from = all->channels + place.layer * all->n_channels;
        *out = (ssm__cut){.count = all->n_channels, .from = from};
    }
}

static void cut(const void *context, ssm__slot_place place, ssm__cut *out)
{
    const cuts *all = context;
    if (place.layer < 0 || !ssm__pruning_cuts(&all->of, place.layer)) {
        return;
    }
    if (place.id == SSM__SLOT_D && all->skip != NULL) {
        *out = (ssm__cut){.count = all->n_skip, .factor = all->skip + place.layer * all->n_skip};
    } else if (all->of.config->n_heads == 0) {
        cut_mamba(all, place, out);
    } else {
        cut_mamba2(all, place, out);
    }
}

static const char *text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static ssm_status write_cuts(const cuts *all, const ssm_checkpoint *checkpoint,
                             const char *directory, const ssm_progress *progress,
                             ssm_prune_result *result, ssm_error *err)
{
    const ssm__pruning *p = &all->of;
    ssm_config config = *p->config;
    config.d_state = p->r;
    char before[32];
    char after[32];
    snprintf(before, sizeof before, "%lld", (long long)p->config->d_state);
    snprintf(after, sizeof after, "%lld", (long long)p->r);
    const ssm_metadata metadata[] = {{"schema", "ssmscope.pruned/1"},
                                     {"model_digest", p->options->model_digest},
                                     {"mask_digest", text_or_empty(p->options->mask_digest)},
                                     {"rule", p->mask->rule},
                                     {"recording_digest", p->mask->recording_digest},
                                     {"d_state_before", before},
                                     {"d_state", after},
                                     {"renormalised", p->options->renormalised ? "true" : "false"},
                                     {"program_version", ssm_version()},
                                     {"command", text_or_empty(p->options->command)}};
    const ssm__changes changes = {.task = "prune",
                                  .config = &config,
                                  .cut = cut,
                                  .context = all,
                                  .metadata = metadata,
                                  .n_metadata = (int64_t)(sizeof metadata / sizeof metadata[0]),
                                  .metadata_file = "pruned.json"};
    ssm_convert_options options = {.dtype = SSM_DTYPE_COUNT};
    SSM__TRY(ssm__convert_keep_layout(checkpoint, &options, err));
    if (result != NULL) {
        *result = (ssm_prune_result){.layout = options.layout,
                                     .container = options.container,
                                     .d_state = p->r,
                                     .folded = all->factors != NULL || all->skip != NULL};
    }
    return ssm__convert(checkpoint, &options, &changes, directory, progress, err);
}

ssm_status ssm_prune(const ssm_checkpoint *checkpoint, const ssm_mask *mask,
                     const ssm_prune_options *options, const char *directory,
                     const ssm_progress *progress, ssm_prune_result *result, ssm_error *err)
{
    char digest[64];
    ssm_prune_options own = *options;
    if (own.model_digest == NULL) {
        SSM__TRY(ssm_checkpoint_digest(checkpoint, digest, err));
        own.model_digest = digest;
    }
    cuts all = {.of = {.config = ssm_checkpoint_config(checkpoint),
                       .weights = ssm__checkpoint_weights(checkpoint),
                       .mask = mask,
                       .options = &own}};
    ssm_status status = ssm__pruning_check(&all.of, err);
    status = status == SSM_STATUS_OK ? make_rows(&all, err) : status;
    status = status == SSM_STATUS_OK ? make_weights(&all, err) : status;
    if (status == SSM_STATUS_OK) {
        status = write_cuts(&all, checkpoint, directory, progress, result, err);
    }
    free(all.of.kept);
    free(all.rows);
    free(all.channels);
    free(all.factors);
    free(all.skip);
    return status;
}
