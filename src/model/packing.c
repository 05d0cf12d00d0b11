/* model/packing.c: see the header. */
#include "model/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"

/* ---- the slots of one group ------------------------------------------------------------------ */

ssm__kept_modes ssm__kept_count(const float *factors, int64_t d_state)
{
    ssm__kept_modes kept = {.shared = true};
    int64_t fewest = d_state; /* even, or odd, modes of any channel */
    for (int64_t lane = 0; lane < SSM__LANES; lane++) {
        int64_t count[2] = {0, 0};
        for (int64_t n = 0; n < d_state; n++) {
            const bool here = factors[n * SSM__LANES + lane] != 0.0f;
            count[n % 2] += here;
            kept.shared = kept.shared && here == (factors[n * SSM__LANES] != 0.0f);
        }
        const int64_t both = count[0] + count[1];
        kept.slots = both > kept.slots ? both : kept.slots;
        fewest = count[0] < fewest ? count[0] : fewest;
        fewest = count[1] < fewest ? count[1] : fewest;
    }
    kept.pairs = 2 * fewest;
    return kept;
}

/* The next mode from n on of the parity of n that a lane keeps; ≥ N: none. */
static int64_t next_kept(const float *factors, int64_t d_state, int64_t lane, int64_t n)
{
    while (n < d_state && factors[n * SSM__LANES + lane] == 0.0f) {
        n += 2;
    }
    return n;
}

void ssm__kept_fill(const float *factors, int64_t d_state, const ssm__kept_modes *kept,
                    uint16_t *modes, uint16_t *even, uint16_t *odd)
{
    memset(even, 0, (size_t)kept->slots * sizeof *even);
    memset(odd, 0, (size_t)kept->slots * sizeof *odd);
    for (int64_t lane = 0; lane < SSM__LANES; lane++) {
        int64_t next[2] = {next_kept(factors, d_state, lane, 0),
                           next_kept(factors, d_state, lane, 1)};
        for (int64_t s = 0; s < kept->slots; s++) {
            const int turn = s < kept->pairs ? (int)(s % 2) : next[0] < d_state ? 0 : 1;
            const int64_t n = next[turn];
            const bool here = n < d_state;
            modes[s * SSM__LANES + lane] = (uint16_t)(here ? n : 0);
            uint16_t *lanes = turn == 0 ? even : odd;
            lanes[s] = (uint16_t)(lanes[s] | (unsigned)here << lane);
            next[turn] = here ? next_kept(factors, d_state, lane, n + 2) : n;
        }
    }
}

void ssm__kept_gather(const ssm__kept_modes *kept, const float *in, float *out)
{
    for (int64_t i = 0; i < kept->slots * SSM__LANES; i++) {
        out[i] = in[kept->modes[i] * SSM__LANES + i % SSM__LANES];
    }
}

/* The slot of a lane's mode, −1: it has none. */
static int64_t slot_of(const ssm__packed_group *group, int64_t lane, int64_t mode)
{
    if (!group->packed) {
        return mode;
    }
    for (int64_t s = 0; s < group->rows; s++) {
        const unsigned lanes = (unsigned)group->kept.even[s] | group->kept.odd[s];
        if ((lanes >> lane & 1) != 0 && group->kept.modes[s * SSM__LANES + lane] == mode) {
            return s;
        }
    }
    return -1;
}

/* ---- groups of a model ----------------------------------------------------------------------- */

static int64_t groups_of(const ssm_model *model)
{
    const int64_t N = model->config->d_state;
    return N > 0 ? model->state_count / (N * SSM__LANES) : 0;
}

static int64_t first_group(const ssm_model *model, int64_t layer)
{
    const int64_t N = model->config->d_state;
    return N > 0 ? model->blocks[layer].state_at / (N * SSM__LANES) : 0;
}

static int64_t layer_groups(const ssm_model *model, int64_t layer)
{
    const int64_t N = model->config->d_state;
    return N > 0 ? model->blocks[layer].state_count / (N * SSM__LANES) : 0;
}

/* Channels of group `group` of a layer, and the first; the lanes behind them are padding. */
static int64_t channels_of(const ssm_config *c, int64_t group, int64_t *first)
{
    const int64_t per_head = ssm__groups_per_head(c);
    const int64_t width = c->n_heads > 0 ? c->head_dim : c->d_inner;
    const int64_t inside = group % per_head * SSM__LANES;
    *first = group / per_head * width + inside;
    return width - inside < SSM__LANES ? width - inside : SSM__LANES;
}

int64_t ssm__packing_rows(const ssm_model *model, const ssm__packing *packing)
{
    return packing ? packing->rows : groups_of(model) * model->config->d_state;
}

float *ssm__packing_state(const ssm_model *model, const ssm__packing *packing, float *states,
                          int64_t layer, int64_t group)
{
    const int64_t at = first_group(model, layer) + group;
    const int64_t row = packing ? packing->groups[at].row : at * model->config->d_state;
    return states + row * SSM__LANES;
}

const ssm__packed_group *ssm__packing_group(const ssm_model *model, const ssm__packing *packing,
                                            int64_t layer, int64_t group)
{
    return &packing->groups[first_group(model, layer) + group];
}

const float *ssm__packing_skip(const ssm_model *model, const ssm__packing *packing, int64_t layer,
                               int64_t group)
{
    return packing->skip + (first_group(model, layer) + group) * SSM__LANES;
}

float ssm__packing_factor(const ssm_model *model, const ssm__packing *packing, int64_t layer,
                          int64_t lane, int64_t mode)
{
    if (!packing || !packing->masked[layer]) {
        return 1.0f;
    }
    const ssm__packed_group *group = ssm__packing_group(model, packing, layer, lane / SSM__LANES);
    const int64_t slot = slot_of(group, lane % SSM__LANES, mode);
    if (slot < 0 || !group->keep) {
        return slot < 0 ? 0.0f : 1.0f;
    }
    return group->keep[slot * SSM__LANES + lane % SSM__LANES];
}

/* ---- building -------------------------------------------------------------------------------- */

typedef struct builder {
    const ssm_model *model;
    const ssm_mask *mask;
    int64_t layer; /* the masked one, −1: all */
    bool full;
    float *factors; /* [N][16] of the group at hand */
} builder;

static bool is_masked(const builder *b, int64_t layer)
{
    return b->model->blocks[layer].kind != SSM_LAYER_ATTENTION &&
           (b->layer == -1 || b->layer == layer);
}

static float factor_of(const ssm_mask *mask, int64_t row, int64_t n)
{
    const int64_t at = row * mask->d_state + n;
    return mask->keep[at] == 0 ? 0.0f : mask->weight ? mask->weight[at] : 1.0f;
}

/* A row of the mask is a channel, or a head with all its channels. Padding lanes do as the first.
 */
static void read_factors(const builder *b, int64_t layer, int64_t group)
{
    const ssm_config *c = b->model->config;
    const ssm_mask *mask = b->mask;
    const int64_t N = c->d_state;
    const int64_t per_row = ssm__scan_channels(c) / mask->n_channels;
    int64_t first;
    const int64_t count = channels_of(c, group, &first);
    for (int64_t lane = 0; lane < SSM__LANES; lane++) {
        const int64_t channel = first + (lane < count ? lane : 0);
        const int64_t row = layer * mask->n_channels + channel / per_row;
        for (int64_t n = 0; n < N; n++) {
            b->factors[n * SSM__LANES + lane] = factor_of(mask, row, n);
        }
    }
}

/* Whether all factors, or (kept_only) all of kept modes, are 1. */
static bool are_ones(const builder *b, bool kept_only)
{
    bool ones = true;
    for (int64_t i = 0; i < b->model->config->d_state * SSM__LANES; i++) {
        ones = ones && (b->factors[i] == 1.0f || (kept_only && b->factors[i] == 0.0f));
    }
    return ones;
}

/* Whether two rows of the mask keep the same modes, and (factors) with the same factors. */
static bool same_rows(const ssm_mask *mask, int64_t a, int64_t b, bool factors)
{
    bool same = true;
    for (int64_t n = 0; n < mask->d_state && same; n++) {
        const float one = factor_of(mask, a, n);
        const float other = factor_of(mask, b, n);
        same = (one == 0.0f) == (other == 0.0f) && (!factors || one == other);
    }
    return same;
}

/* Rows of the mask of one head of Mamba-2: the first, and how many. */
static int64_t head_rows(const builder *b, int64_t layer, int64_t head, int64_t *first)
{
    const int64_t count = b->mask->n_channels / b->model->config->n_heads;
    *first = layer * b->mask->n_channels + head * count;
    return count;
}

static bool is_uniform(const builder *b, int64_t layer, int64_t head, bool factors)
{
    int64_t first;
    const int64_t count = head_rows(b, layer, head, &first);
    bool same = true;
    for (int64_t row = first + 1; row < first + count && same; row++) {
        same = same_rows(b->mask, first, row, factors);
    }
    return same;
}

static bool can_pack(const builder *b, int64_t layer, int64_t group, const ssm__kept_modes *kept)
{
    const ssm_config *c = b->model->config;
    if (b->full || kept->slots >= c->d_state || c->d_state > UINT16_MAX) {
        return false;
    }
    return b->model->blocks[layer].kind == SSM_LAYER_MAMBA ||
           is_uniform(b, layer, group / ssm__groups_per_head(c), false);
}

/* Tables only where the arena has memory; row is left to the caller. */
static ssm__packed_group pack_group(ssm__arena *arena, const builder *b, int64_t layer,
                                    int64_t index)
{
    const bool rates = b->model->blocks[layer].kind == SSM_LAYER_MAMBA; /* one a mode */
    const int64_t N = b->model->config->d_state;
    read_factors(b, layer, index);
    ssm__packed_group group = {.kept = ssm__kept_count(b->factors, N), .rows = N};
    group.packed = can_pack(b, layer, index, &group.kept);
    if (!group.packed) {
        group.keep = are_ones(b, false) ? NULL : SSM__TAKE(arena, float, N *SSM__LANES);
        if (arena->memory && group.keep) {
            memcpy(group.keep, b->factors, (size_t)(N * SSM__LANES) * sizeof(float));
        }
    } else {
        const int64_t slots = group.rows = group.kept.slots;
        uint16_t *modes = SSM__TAKE(arena, uint16_t, slots * SSM__LANES);
        uint16_t *lanes = SSM__TAKE(arena, uint16_t, 2 * slots);
        group.A2 = rates ? SSM__TAKE(arena, float, slots *SSM__LANES) : NULL;
        group.keep = are_ones(b, true) ? NULL : SSM__TAKE(arena, float, slots *SSM__LANES);
        if (arena->memory) {
            ssm__kept_fill(b->factors, N, &group.kept, modes, lanes, lanes + slots);
            group.kept.modes = modes;
            group.kept.even = lanes;
            group.kept.odd = lanes + slots;
            if (group.A2) {
                const float *A2 = b->model->blocks[layer].mamba.A2 + index * N * SSM__LANES;
                ssm__kept_gather(&group.kept, A2, group.A2);
            }
            if (group.keep) {
                ssm__kept_gather(&group.kept, b->factors, group.keep);
            }
        }
    }
    return group;
}

/* Begins the heads of a masked layer of Mamba-2. */
static ssm__packed_heads begin_heads(ssm__arena *arena, const builder *b, int64_t layer)
{
    const int64_t count = b->model->config->n_heads;
    ssm__packed_heads heads = {.chunked = !b->full, .last = -1};
    heads.units = SSM__TAKE(arena, ssm__packed_unit, count);
    heads.unit_of = SSM__TAKE(arena, int32_t, count);
    for (int64_t head = 0; head < count && heads.chunked; head++) {
        heads.chunked = is_uniform(b, layer, head, true);
    }
    return heads;
}

/* A head reads what the head before it reads, or columns of its own, or B and C as they are.
 * `group`: its first. */
static void add_head(const builder *b, int64_t layer, int64_t head, const ssm__packed_group *group,
                     ssm__packed_heads *heads)
{
    const ssm_config *c = b->model->config;
    const int64_t per_group = c->n_heads / c->n_groups;
    int64_t unit = -1;
    if (group->packed || (heads->chunked && b->mask->weight)) {
        int64_t row;
        const int64_t rows = head_rows(b, layer, head, &row);
        const bool joins = head % per_group > 0 && heads->last == head - 1 &&
                           same_rows(b->mask, row - rows, row, heads->chunked);
        heads->last = head;
        unit = joins ? heads->n_units - 1 : heads->n_units++;
        if (!joins) {
            heads->bc_floats += 2 * SSM__TILE * group->rows;
        }
        if (!joins && heads->units) {
            heads->units[unit] =
                (ssm__packed_unit){.bc_group = head / per_group,
                                   .slots = group->rows,
                                   .modes = group->packed ? group->kept.modes : NULL,
                                   .factors = group->keep,
                                   .bc_at = heads->bc_floats - 2 * SSM__TILE * group->rows};
        }
    }
    heads->whole = heads->whole || unit < 0;
    if (heads->unit_of) {
        heads->unit_of[head] = (int32_t)unit;
    }
}

/* D of a layer, times the weights of the feed-through. */
static void set_skip(const builder *b, int64_t layer, float *skip)
{
    const ssm_config *c = b->model->config;
    const ssm__block *block = &b->model->blocks[layer];
    const ssm_mask *mask = b->mask;
    const int64_t per_row = ssm__scan_channels(c) / mask->n_channels;
    const float *D = block->kind == SSM_LAYER_MAMBA2 ? block->mamba2.D : block->mamba.D;
    memcpy(skip, D, (size_t)(layer_groups(b->model, layer) * SSM__LANES) * sizeof *skip);
    for (int64_t h = 0; mask->skip_weight && h < ssm__scan_channels(c); h++) {
        skip[ssm__lane_of(c, h)] *= mask->skip_weight[layer * mask->n_channels + h / per_row];
    }
}

/* All groups of one masked layer. */
static void pack_layer(ssm__arena *arena, const builder *b, int64_t layer,
                       ssm__packed_group *groups, ssm__packed_heads *out)
{
    const int64_t per_head = ssm__groups_per_head(b->model->config);
    const bool of_heads = b->model->blocks[layer].kind == SSM_LAYER_MAMBA2;
    ssm__packed_heads heads = {0};
    if (of_heads) {
        heads = begin_heads(arena, b, layer);
    }
    for (int64_t g = 0; g < layer_groups(b->model, layer); g++) {
        const ssm__packed_group group = pack_group(arena, b, layer, g);
        if (of_heads && g % per_head == 0) {
            add_head(b, layer, g / per_head, &group, &heads);
        }
        if (groups) {
            groups[g] = group;
        }
    }
    *out = heads;
}

/* Where the rows of a layer's groups are among those of all. */
static void place_layer(ssm__packing *packing, ssm__packed_group *groups, int64_t layer,
                        int64_t count)
{
    for (int64_t g = 0; g < count; g++) {
        groups[g].row = packing->rows;
        packing->rows += groups[g].rows;
        packing->packed[layer] = packing->packed[layer] || groups[g].packed;
    }
}

/* Run twice (see base/arena.h). */
static void layout(ssm__arena *arena, const builder *b, ssm__packing *packing)
{
    const ssm_model *model = b->model;
    const int64_t count = groups_of(model);
    packing->groups = SSM__TAKE(arena, ssm__packed_group, count);
    packing->masked = SSM__TAKE(arena, bool, model->config->n_layers);
    packing->packed = SSM__TAKE(arena, bool, model->config->n_layers);
    packing->skip = SSM__TAKE(arena, float, count *SSM__LANES);
    packing->heads = SSM__TAKE(arena, ssm__packed_heads, model->config->n_layers);
    packing->rows = 0;
    int64_t most_units = 0;
    int64_t most_floats = 0;
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        const int64_t first = first_group(model, layer);
        ssm__packed_group *groups = arena->memory ? packing->groups + first : NULL;
        ssm__packed_heads heads = {0};
        const bool masked = is_masked(b, layer);
        for (int64_t g = 0; groups && g < layer_groups(model, layer); g++) {
            groups[g] = (ssm__packed_group){.rows = model->config->d_state};
        }
        if (masked) {
            pack_layer(arena, b, layer, groups, &heads);
        }
        most_units = heads.n_units > most_units ? heads.n_units : most_units;
        most_floats = heads.bc_floats > most_floats ? heads.bc_floats : most_floats;
        if (groups) {
            packing->masked[layer] = masked;
            packing->heads[layer] = heads;
            place_layer(packing, groups, layer, layer_groups(model, layer));
        }
        if (groups && masked) {
            set_skip(b, layer, packing->skip + first * SSM__LANES);
        }
    }
    packing->unit_bc = SSM__TAKE(arena, float, most_floats);
    packing->unit_products = SSM__TAKE(arena, float, most_units *SSM__TILE *SSM__TILE);
}

/* Two packings with the same digest have the same mode in every place of their states. */
static ssm_status set_digest(const ssm_model *model, ssm__packing *packing, ssm_error *err)
{
    if (packing->rows == ssm__packing_rows(model, NULL)) {
        return SSM_STATUS_OK;
    }
    ssm__digest *digest = NULL;
    SSM__TRY(ssm__digest_create(&digest, err));
    for (int64_t i = 0; i < groups_of(model); i++) {
        const ssm__packed_group *group = &packing->groups[i];
        ssm__digest_add(digest, &group->rows, sizeof group->rows);
        if (group->packed) {
            const size_t rows = (size_t)group->rows * sizeof(uint16_t);
            ssm__digest_add(digest, group->kept.modes, rows * SSM__LANES);
            ssm__digest_add(digest, group->kept.even, rows);
            ssm__digest_add(digest, group->kept.odd, rows);
        }
    }
    ssm__digest_finish(digest, packing->digest);
    return SSM_STATUS_OK;
}

ssm_status ssm__packing_create(const ssm_model *model, const ssm_mask *mask, int64_t layer,
                               bool full, ssm__packing **out, ssm_error *err)
{
    builder b = {.model = model, .mask = mask, .layer = layer, .full = full};
    const size_t bytes = (size_t)(model->config->d_state * SSM__LANES) * sizeof *b.factors;
    ssm__packing *packing = calloc(1, sizeof *packing);
    b.factors = malloc(bytes + sizeof *b.factors);
    *out = NULL;
    ssm_status status =
        packing && b.factors ? SSM_STATUS_OK : ssm__fail_memory(err, "a mask", bytes);
    if (status == SSM_STATUS_OK) {
        ssm__arena count = {0};
        layout(&count, &b, packing);
        status = ssm__arena_create(&packing->arena, count.used, err);
    }
    if (status == SSM_STATUS_OK) {
        layout(&packing->arena, &b, packing);
        status = set_digest(model, packing, err);
    }
    free(b.factors);
    if (status != SSM_STATUS_OK) {
        ssm__packing_free(packing);
        return status;
    }
    *out = packing;
    return SSM_STATUS_OK;
}

void ssm__packing_free(ssm__packing *packing)
{
    if (packing) {
        ssm__arena_free(&packing->arena);
        free(packing);
    }
}

/* ---- from one packing to another ------------------------------------------------------------- */

static ssm__packed_group group_at(const ssm_model *model, const ssm__packing *packing, int64_t at)
{
    const int64_t N = model->config->d_state;
    return packing ? packing->groups[at] : (ssm__packed_group){.row = at * N, .rows = N};
}

static ssm_status convert_group(const ssm_model *model, int64_t layer, int64_t index,
                                const ssm__packed_group *from, const float *from_states,
                                const ssm__packed_group *to, float *to_states, ssm_error *err)
{
    int64_t first;
    const int64_t lanes = channels_of(model->config, index, &first);
    for (int64_t lane = 0; lane < lanes; lane++) {
        for (int64_t n = 0; n < model->config->d_state; n++) {
            const int64_t at = slot_of(to, lane, n);
            const int64_t old = slot_of(from, lane, n);
            if (at >= 0 && old < 0) {
                return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                 "layer %lld, channel %lld: mode %lld is kept now, but its state "
                                 "was not carried under the mask before; reset the session first, "
                                 "or create it with full_state",
                                 (long long)layer, (long long)(first + lane), (long long)n);
            }
            if (at >= 0) {
                to_states[(to->row + at) * SSM__LANES + lane] =
                    from_states[(from->row + old) * SSM__LANES + lane];
            }
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__packing_convert(const ssm_model *model, const ssm__packing *from,
                                const float *from_states, const ssm__packing *to, float *to_states,
                                ssm_error *err)
{
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t g = 0; g < layer_groups(model, layer); g++) {
            const int64_t at = first_group(model, layer) + g;
            const ssm__packed_group old = group_at(model, from, at);
            const ssm__packed_group next = group_at(model, to, at);
            SSM__TRY(convert_group(model, layer, g, &old, from_states, &next, to_states, err));
        }
    }
    return SSM_STATUS_OK;
}
