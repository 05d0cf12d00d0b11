#include "train/mimetic_edit.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

enum { PIECES = 10 };

/* Consecutive elements of one tensor that change. */
typedef struct piece {
    int slot;
    int64_t first, count;
    float *values;
    bool present; /* in the layer at hand */
} piece;

struct ssm__mimetic_edit {
    ssm__mimetic_job job;
    ssm__arena arena;
    piece pieces[PIECES];
    int n_pieces;
    int64_t layer; /* whose values the pieces hold; −1: none */
};

static void add(ssm__mimetic_edit *edit, int slot, int64_t first, int64_t count)
{
    edit->pieces[edit->n_pieces++] = (piece){.slot = slot, .first = first, .count = count};
}

static void list_mamba(ssm__mimetic_edit *edit)
{
    const ssm_mimetic *mimetic = edit->job.mimetic;
    const ssm_config *c = edit->job.config;
    if (mimetic->A) {
        add(edit, SSM__SLOT_A_log, 0, c->d_inner * c->d_state);
    }
    if (mimetic->delta) {
        add(edit, SSM__SLOT_dt_proj, 0, c->d_inner * c->dt_rank);
        add(edit, SSM__SLOT_dt_proj_bias, 0, c->d_inner);
    }
    if (mimetic->correlation) {
        add(edit, SSM__SLOT_x_proj, c->dt_rank * c->d_inner, c->d_state * c->d_inner);
        add(edit, SSM__SLOT_x_proj, (c->dt_rank + c->d_state) * c->d_inner,
            c->d_state * c->d_inner);
    }
    if (mimetic->conv) {
        add(edit, SSM__SLOT_conv1d, 0, c->d_inner * c->d_conv);
        add(edit, SSM__SLOT_conv1d_bias, 0, c->d_inner);
    }
}

static void list_mamba2(ssm__mimetic_edit *edit)
{
    const ssm_mimetic *mimetic = edit->job.mimetic;
    const ssm_config *c = edit->job.config;
    const int64_t states = c->n_groups * c->d_state;
    const int64_t B = 2 * c->d_inner; /* first row */
    if (mimetic->A) {
        add(edit, SSM__SLOT_A_log, 0, c->n_heads);
    }
    if (mimetic->delta) {
        add(edit, SSM__SLOT_in_proj, (B + 2 * states) * c->d_model, c->n_heads * c->d_model);
        add(edit, SSM__SLOT_in_proj_bias, B + 2 * states, c->n_heads);
        add(edit, SSM__SLOT_dt_bias, 0, c->n_heads);
    }
    if (mimetic->correlation) {
        add(edit, SSM__SLOT_in_proj, B * c->d_model, states * c->d_model);
        add(edit, SSM__SLOT_in_proj, (B + states) * c->d_model, states * c->d_model);
        add(edit, SSM__SLOT_in_proj_bias, B, states);
        add(edit, SSM__SLOT_in_proj_bias, B + states, states);
    }
    if (mimetic->conv) {
        const int64_t channels = c->d_ssm + 2 * states;
        add(edit, SSM__SLOT_conv1d, 0, channels * c->d_conv);
        add(edit, SSM__SLOT_conv1d_bias, 0, channels);
    }
}

static void lay_out(ssm__mimetic_edit *edit, ssm__arena *arena)
{
    for (int i = 0; i < edit->n_pieces; i++) {
        edit->pieces[i].values = SSM__TAKE(arena, float, edit->pieces[i].count);
    }
}

ssm_status ssm__mimetic_edit_create(const ssm__mimetic_job *job, ssm__mimetic_edit **out,
                                    ssm_error *err)
{
    *out = NULL;
    SSM__TRY(ssm__mimetic_check(job->mimetic, job->config, job->kinds, err));
    ssm__mimetic_edit *edit = calloc(1, sizeof *edit);
    if (edit == NULL) {
        return ssm__fail_memory(err, "mimetic initialisation", sizeof *edit);
    }
    edit->job = *job;
    edit->layer = -1;
    if (job->config->family == SSM_FAMILY_MAMBA2) {
        list_mamba2(edit);
    } else {
        list_mamba(edit);
    }
    ssm__arena counting = {0};
    lay_out(edit, &counting);
    ssm_status status = ssm__arena_create(&edit->arena, counting.used, err);
    if (status != SSM_STATUS_OK) {
        free(edit);
        return status;
    }
    lay_out(edit, &edit->arena);
    *out = edit;
    return SSM_STATUS_OK;
}

void ssm__mimetic_edit_free(ssm__mimetic_edit *edit)
{
    if (edit != NULL) {
        ssm__arena_free(&edit->arena);
        free(edit);
    }
}

static ssm_layer_kind kind_of(const ssm__mimetic_edit *edit, int64_t layer)
{
    return edit->job.kinds == NULL ? SSM_LAYER_MAMBA : edit->job.kinds[layer];
}

bool ssm__mimetic_edit_concerns(const ssm__mimetic_edit *edit, ssm__slot_place place)
{
    if (place.layer < 0 ||
        !ssm__mimetic_has_layer(edit->job.mimetic, place.layer, kind_of(edit, place.layer))) {
        return false;
    }
    for (int i = 0; i < edit->n_pieces; i++) {
        if (edit->pieces[i].slot == place.id) {
            return true;
        }
    }
    return false;
}

/* The values of the piece that begins at this element, NULL where the layer has none. */
static float *values_of(const ssm__mimetic_edit *edit, int slot, int64_t first)
{
    for (int i = 0; i < edit->n_pieces; i++) {
        const piece *own = &edit->pieces[i];
        if (own->slot == slot && own->first == first && own->present) {
            return own->values;
        }
    }
    return NULL;
}

static ssm__mimetic_parts parts_of(const ssm__mimetic_edit *edit)
{
    const ssm_config *c = edit->job.config;
    ssm__mimetic_parts parts = {.A_log = values_of(edit, SSM__SLOT_A_log, 0),
                                .conv1d = values_of(edit, SSM__SLOT_conv1d, 0),
                                .conv1d_bias = values_of(edit, SSM__SLOT_conv1d_bias, 0)};
    if (c->family == SSM_FAMILY_MAMBA2) {
        const int64_t states = c->n_groups * c->d_state;
        const int64_t B = 2 * c->d_inner;
        parts.dt_bias = values_of(edit, SSM__SLOT_dt_bias, 0);
        parts.W_B = values_of(edit, SSM__SLOT_in_proj, B * c->d_model);
        parts.W_C = values_of(edit, SSM__SLOT_in_proj, (B + states) * c->d_model);
        parts.dt_weight = values_of(edit, SSM__SLOT_in_proj, (B + 2 * states) * c->d_model);
        parts.b_B = values_of(edit, SSM__SLOT_in_proj_bias, B);
        parts.b_C = values_of(edit, SSM__SLOT_in_proj_bias, B + states);
        parts.dt_weight_bias = values_of(edit, SSM__SLOT_in_proj_bias, B + 2 * states);
    } else {
        parts.dt_weight = values_of(edit, SSM__SLOT_dt_proj, 0);
        parts.dt_bias = values_of(edit, SSM__SLOT_dt_proj_bias, 0);
        parts.W_B = values_of(edit, SSM__SLOT_x_proj, c->dt_rank * c->d_inner);
        parts.W_C = values_of(edit, SSM__SLOT_x_proj, (c->dt_rank + c->d_state) * c->d_inner);
    }
    return parts;
}

static ssm_status prepare(ssm__mimetic_edit *edit, int64_t layer, ssm_error *err)
{
    if (edit->layer == layer) {
        return SSM_STATUS_OK;
    }
    edit->layer = -1;
    for (int i = 0; i < edit->n_pieces; i++) {
        piece *own = &edit->pieces[i];
        const ssm__slot_place place = {own->slot, layer};
        own->present = edit->job.read(edit->job.source, place, own->first, own->count, own->values);
    }
    const ssm__mimetic_parts parts = parts_of(edit);
    SSM__TRY(ssm__mimetic_apply_parts(edit->job.mimetic, edit->job.config, layer, edit->job.seed,
                                      &parts, err));
    edit->layer = layer;
    return SSM_STATUS_OK;
}

ssm_status ssm__mimetic_edit_block(ssm__mimetic_edit *edit, ssm__slot_place place, int64_t first,
                                   int64_t count, float *block, ssm_error *err)
{
    SSM__TRY(prepare(edit, place.layer, err));
    for (int i = 0; i < edit->n_pieces; i++) {
        const piece *own = &edit->pieces[i];
        const int64_t from = own->first > first ? own->first : first;
        const int64_t own_end = own->first + own->count;
        const int64_t end = own_end < first + count ? own_end : first + count;
        if (own->slot == place.id && own->present && from < end) {
            memcpy(block + (from - first), own->values + (from - own->first),
                   (size_t)(end - from) * sizeof *block);
        }
    }
    return SSM_STATUS_OK;
}
