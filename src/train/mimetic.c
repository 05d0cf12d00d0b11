/* Source: Trockman, Harutyunyan, Kolter, Kumar, Bhojanapalli: Mimetic Initialization Helps State
 * Space Models Learn to Recall (arXiv 2410.11135) and its public discussion. */
#include "train/mimetic.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/orthogonal.h"

ssm_mimetic ssm_mimetic_default(void)
{
    return (ssm_mimetic){.A = true,
                         .delta = true,
                         .correlation = true,
                         .conv = true,
                         .mode = SSM_MIMETIC_HALF,
                         .c = 8,
                         .noise = 0.1};
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *const switches[] = {"all", "A", "delta", "BC", "conv", NULL};
static const char *const modes[] = {"half", "equal", "orthogonal", NULL};

/* Index of a word of `bytes` bytes, −1 for none. */
static int find_word(const char *const *words, const char *word, size_t bytes)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strlen(words[i]) == bytes && memcmp(words[i], word, bytes) == 0) {
            return i;
        }
    }
    return -1;
}

static ssm_status fail_word(const char *const *words, const char *what, const char *word,
                            const char *expected, ssm_error *err)
{
    const char *nearest = ssm_nearest(word, words);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s \"%.60s\"%s%s%s; expected %s", what,
                     word, nearest == NULL ? "" : ", did you mean ", nearest == NULL ? "" : nearest,
                     nearest == NULL ? "" : "?", expected);
}

ssm_status ssm_mimetic_parse_switches(const char *text, ssm_mimetic *out, ssm_error *err)
{
    bool on[5] = {false};
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, ",");
        const int found = find_word(switches, at, bytes);
        if (found < 0) {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)(bytes < 60 ? bytes : 60), at);
            return fail_word(switches, "unknown switch", word,
                             "all, or some of A, delta, BC, conv, separated by commas", err);
        }
        on[found] = true;
        at += bytes;
        if (*at == '\0') {
            break;
        }
    }
    out->A = on[0] || on[1];
    out->delta = on[0] || on[2];
    out->correlation = on[0] || on[3];
    out->conv = on[0] || on[4];
    return SSM_STATUS_OK;
}

ssm_status ssm_mimetic_parse_mode(const char *text, ssm_mimetic_mode *out, ssm_error *err)
{
    const int found = find_word(modes, text, strlen(text));
    if (found < 0) {
        return fail_word(modes, "unknown correlation", text, "half, equal or orthogonal", err);
    }
    *out = (ssm_mimetic_mode)found;
    return SSM_STATUS_OK;
}

const char *ssm_mimetic_mode_name(ssm_mimetic_mode mode)
{
    return modes[mode];
}

static void append(char *out, size_t size, const char *text)
{
    const size_t used = strlen(out);
    snprintf(out + used, size - used, "%s", text);
}

static void append_list(char *out, size_t size, const char *what, const int64_t *values,
                        int64_t count)
{
    append(out, size, what);
    append(out, size, values == NULL ? " all" : "");
    for (int64_t i = 0; values != NULL && i < count; i++) {
        char number[32];
        snprintf(number, sizeof number, " %" PRId64, values[i]);
        append(out, size, number);
    }
}

void ssm__mimetic_describe(const ssm_mimetic *mimetic, char *out, size_t size)
{
    const bool on[] = {false, mimetic->A, mimetic->delta, mimetic->correlation, mimetic->conv};
    char numbers[96];
    out[0] = '\0';
    for (int i = 1; i < 5; i++) {
        if (on[i]) {
            append(out, size, out[0] == '\0' ? "" : ",");
            append(out, size, switches[i]);
        }
    }
    snprintf(numbers, sizeof numbers, "; BC %s; c %g; noise %g", modes[mimetic->mode], mimetic->c,
             mimetic->noise);
    append(out, size, numbers);
    append_list(out, size, "; layers", mimetic->layers, mimetic->n_layers);
    append_list(out, size, "; heads", mimetic->heads, mimetic->n_heads);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Lists are rising, so their ends tell. */
static ssm_status check_list(const char *what, const int64_t *values, int64_t count, int64_t bound,
                             ssm_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (values[i] < 0 || values[i] >= bound || (i > 0 && values[i] <= values[i - 1])) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "mimetic initialisation of %s %" PRId64 "; expected a rising list of "
                             "0 … %" PRId64,
                             what, values[i], bound - 1);
        }
    }
    return count > 0 ? SSM_STATUS_OK
                     : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                 "mimetic initialisation of no %s: the list is empty", what);
}

static ssm_status check_layers(const ssm_mimetic *mimetic, const ssm_config *config,
                               const ssm_layer_kind *kinds, ssm_error *err)
{
    if (mimetic->layers == NULL) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(check_list("layer", mimetic->layers, mimetic->n_layers, config->n_layers, err));
    for (int64_t i = 0; kinds != NULL && i < mimetic->n_layers; i++) {
        if (kinds[mimetic->layers[i]] == SSM_LAYER_ATTENTION) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "layer %" PRId64 " is one of attention; mimetic initialisation is for "
                             "layers with a state",
                             mimetic->layers[i]);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_heads(const ssm_mimetic *mimetic, const ssm_config *config, ssm_error *err)
{
    if (mimetic->heads == NULL) {
        return SSM_STATUS_OK;
    }
    if (config->n_heads == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a list of heads was given, and a %s model has none",
                         ssm_family_name(config->family));
    }
    return check_list("head", mimetic->heads, mimetic->n_heads, config->n_heads, err);
}

ssm_status ssm__mimetic_check(const ssm_mimetic *mimetic, const ssm_config *config,
                              const ssm_layer_kind *kinds, ssm_error *err)
{
    if (!mimetic->A && !mimetic->delta && !mimetic->correlation && !mimetic->conv) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "mimetic initialisation with every switch off; expected some of A, delta, "
                         "BC, conv");
    }
    /* Beyond 80, exp(−c) leaves float32's normal range. */
    if (!(mimetic->c > 0 && mimetic->c <= 80)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "c is %g; expected a number above 0, at most 80", mimetic->c);
    }
    if (!(mimetic->noise >= 0 && mimetic->noise <= 10)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "noise is %g; expected a number in 0 … 10", mimetic->noise);
    }
    if (mimetic->conv && config->d_conv == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the model has no convolution; leave the switch conv out");
    }
    SSM__TRY(check_layers(mimetic, config, kinds, err));
    SSM__TRY(check_heads(mimetic, config, err));
    const bool limited =
        config->family == SSM_FAMILY_MAMBA2 &&
        (config->dt_limit_low > 1 || (config->dt_limit_high > 0 && config->dt_limit_high < 1));
    if (mimetic->delta && limited) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the model clamps delta to %g … %g, which does not let it be 1; leave the "
                         "switch delta out",
                         config->dt_limit_low, config->dt_limit_high);
    }
    return SSM_STATUS_OK;
}

static bool in_list(const int64_t *values, int64_t count, int64_t wanted)
{
    for (int64_t i = 0; i < count; i++) {
        if (values[i] == wanted) {
            return true;
        }
    }
    return false;
}

bool ssm__mimetic_has_layer(const ssm_mimetic *mimetic, int64_t layer, ssm_layer_kind kind)
{
    return kind != SSM_LAYER_ATTENTION &&
           (mimetic->layers == NULL || in_list(mimetic->layers, mimetic->n_layers, layer));
}

static bool has_head(const ssm_mimetic *mimetic, int64_t head)
{
    return mimetic->heads == NULL || in_list(mimetic->heads, mimetic->n_heads, head);
}

/* Of `heads` heads, as a group of B and C, or a gate of GLA. */
static bool has_group(const ssm_mimetic *mimetic, int64_t heads, int64_t group)
{
    for (int64_t head = group * heads; head < (group + 1) * heads; head++) {
        if (has_head(mimetic, head)) {
            return true;
        }
    }
    return false;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void fill(float *values, int64_t count, double value)
{
    for (int64_t i = 0; values != NULL && i < count; i++) {
        values[i] = (float)value;
    }
}

/* Root mean square of the norms of the rows. */
static double row_size(const float *W, int64_t rows, int64_t cols)
{
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        sum += (double)W[i] * (double)W[i];
    }
    return sqrt(sum / (double)rows);
}

/* W ← size · (Q + noise/√cols · normal): an element of Q has the rms 1/√cols. */
static void set_rows(const double *Q, double size, double noise, ssm_rng *rng, int64_t rows,
                     int64_t cols, float *W)
{
    const double sd = noise / sqrt((double)cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        const double added = noise > 0 ? sd * ssm_rng_normal(rng) : 0;
        W[i] = (float)(size * (Q[i] + added));
    }
}

static ssm_status orthogonal(double noise, ssm_rng *rng, int64_t rows, int64_t cols, float *W_B,
                             float *W_C, ssm_error *err)
{
    const double size_B = row_size(W_B, rows, cols);
    const double size_C = row_size(W_C, rows, cols);
    double *Q = malloc((size_t)(rows * cols) * sizeof *Q);
    if (Q == NULL) {
        return ssm__fail_memory(err, "an orthogonal matrix", (size_t)(rows * cols) * sizeof *Q);
    }
    for (int64_t first = 0; first < rows; first += cols) {
        const int64_t count = rows - first < cols ? rows - first : cols;
        ssm__orthonormal_rows(rng, count, cols, Q + first * cols);
    }
    set_rows(Q, size_B, noise, rng, rows, cols, W_B);
    set_rows(Q, size_C, noise, rng, rows, cols, W_C);
    free(Q);
    return SSM_STATUS_OK;
}

ssm_status ssm__mimetic_correlate(ssm_mimetic_mode mode, double noise, ssm_rng *rng, int64_t rows,
                                  int64_t cols, float *W_B, float *W_C, ssm_error *err)
{
    if (mode == SSM_MIMETIC_ORTHOGONAL) {
        return orthogonal(noise, rng, rows, cols, W_B, W_C, err);
    }
    for (int64_t i = 0; i < rows * cols; i++) {
        W_C[i] = mode == SSM_MIMETIC_EQUAL ? W_B[i] : 0.5F * W_C[i] + 0.5F * W_B[i];
    }
    return SSM_STATUS_OK;
}

void ssm__mimetic_identity(int64_t first, int64_t count, int64_t taps, float *conv, float *bias)
{
    for (int64_t channel = first; channel < first + count; channel++) {
        fill(conv + channel * taps, taps, 0);
        conv[channel * taps + taps - 1] = 1;
        if (bias != NULL) {
            bias[channel] = 0;
        }
    }
}

void ssm__mimetic_gate(int64_t count, float *W_2, int64_t n_bias, float *b)
{
    fill(W_2, count, 0);
    fill(b, n_bias, 10);
}

/* ---- one layer ------------------------------------------------------------------------------- */

static ssm_rng layer_stream(uint64_t seed, int64_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "mimetic.layers.%" PRId64, layer);
    return ssm_rng_create(seed, name);
}

static float *at(float *array, int64_t offset)
{
    return array == NULL ? NULL : array + offset;
}

static ssm_status apply_mamba(const ssm_mimetic *mimetic, const ssm_config *config, ssm_rng *rng,
                              const ssm__mimetic_parts *parts, ssm_error *err)
{
    const int64_t E = config->d_inner;
    if (mimetic->A) {
        fill(parts->A_log, E * config->d_state, -mimetic->c);
    }
    if (mimetic->delta) {
        fill(parts->dt_weight, E * config->dt_rank, 0);
        fill(parts->dt_bias, E, SSM__MIMETIC_DT_BIAS);
    }
    if (mimetic->conv && parts->conv1d != NULL) {
        ssm__mimetic_identity(0, E, config->d_conv, parts->conv1d, parts->conv1d_bias);
    }
    if (mimetic->correlation && parts->W_B != NULL) {
        return ssm__mimetic_correlate(mimetic->mode, mimetic->noise, rng, config->d_state, E,
                                      parts->W_B, parts->W_C, err);
    }
    return SSM_STATUS_OK;
}

static void apply_head(const ssm_mimetic *mimetic, const ssm_config *config, int64_t head,
                       const ssm__mimetic_parts *parts)
{
    if (mimetic->A) {
        fill(at(parts->A_log, head), 1, -mimetic->c);
    }
    if (mimetic->delta) {
        fill(at(parts->dt_weight, head * config->d_model), config->d_model, 0);
        fill(at(parts->dt_weight_bias, head), 1, 0);
        fill(at(parts->dt_bias, head), 1, SSM__MIMETIC_DT_BIAS);
    }
    if (mimetic->conv && parts->conv1d != NULL) {
        ssm__mimetic_identity(head * config->head_dim, config->head_dim, config->d_conv,
                              parts->conv1d, parts->conv1d_bias);
    }
}

/* B and C of a group: their convolutions too, which stand behind that of x. */
static ssm_status apply_group(const ssm_mimetic *mimetic, const ssm_config *config, int64_t group,
                              ssm_rng *rng, const ssm__mimetic_parts *parts, ssm_error *err)
{
    const int64_t N = config->d_state;
    const int64_t D = config->d_model;
    for (int of_C = 0; of_C < 2 && mimetic->conv && parts->conv1d != NULL; of_C++) {
        const int64_t first = config->d_ssm + (of_C * config->n_groups + group) * N;
        ssm__mimetic_identity(first, N, config->d_conv, parts->conv1d, parts->conv1d_bias);
    }
    if (!mimetic->correlation) {
        return SSM_STATUS_OK;
    }
    for (int64_t i = group * N; parts->b_B != NULL && i < (group + 1) * N; i++) {
        parts->b_C[i] = mimetic->mode == SSM_MIMETIC_HALF
                            ? 0.5F * parts->b_C[i] + 0.5F * parts->b_B[i]
                            : parts->b_B[i];
    }
    return parts->W_B == NULL ? SSM_STATUS_OK
                              : ssm__mimetic_correlate(mimetic->mode, mimetic->noise, rng, N, D,
                                                       parts->W_B + group * N * D,
                                                       parts->W_C + group * N * D, err);
}

static void apply_gates(const ssm_mimetic *mimetic, const ssm_config *config,
                        const ssm__mimetic_parts *parts)
{
    const int64_t N = config->d_state;
    const int64_t weights = N * parts->gate_rank;
    for (int64_t gate = 0; mimetic->A && gate < parts->n_gates; gate++) {
        if (has_group(mimetic, config->n_heads / parts->n_gates, gate)) {
            ssm__mimetic_gate(weights, parts->gate_W_2 + gate * weights, N,
                              parts->gate_b + gate * N);
        }
    }
}

ssm_status ssm__mimetic_apply_parts(const ssm_mimetic *mimetic, const ssm_config *config,
                                    int64_t layer, uint64_t seed, const ssm__mimetic_parts *parts,
                                    ssm_error *err)
{
    if (!ssm__mimetic_has_layer(mimetic, layer, SSM_LAYER_MAMBA)) {
        return SSM_STATUS_OK;
    }
    ssm_rng rng = layer_stream(seed, layer);
    if (config->family != SSM_FAMILY_MAMBA2) {
        return apply_mamba(mimetic, config, &rng, parts, err);
    }
    for (int64_t head = 0; head < config->n_heads; head++) {
        if (has_head(mimetic, head)) {
            apply_head(mimetic, config, head, parts);
        }
    }
    apply_gates(mimetic, config, parts);
    for (int64_t group = 0; group < config->n_groups; group++) {
        if (has_group(mimetic, config->n_heads / config->n_groups, group)) {
            SSM__TRY(apply_group(mimetic, config, group, &rng, parts, err));
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__mimetic_apply(const ssm_mimetic *mimetic, const ssm_config *config, int64_t layer,
                              uint64_t seed, const ssm__mimetic_arrays *arrays, ssm_error *err)
{
    const int64_t N = config->d_state;
    ssm__mimetic_parts parts = {.A_log = arrays->A_log,
                                .dt_bias = arrays->dt_proj_bias,
                                .conv1d = arrays->conv1d,
                                .conv1d_bias = arrays->conv1d_bias,
                                .gate_W_2 = arrays->gate_W_2,
                                .gate_b = arrays->gate_b,
                                .n_gates = arrays->n_gates,
                                .gate_rank = arrays->gate_rank};
    if (config->family == SSM_FAMILY_MAMBA2) {
        const int64_t first = 2 * config->d_inner;
        const int64_t states = config->n_groups * N;
        const int64_t D = config->d_model;
        parts.W_B = at(arrays->in_proj, first * D);
        parts.W_C = at(arrays->in_proj, (first + states) * D);
        parts.dt_weight = arrays->stepless ? NULL : at(arrays->in_proj, (first + 2 * states) * D);
        parts.b_B = at(arrays->in_proj_bias, first);
        parts.b_C = at(arrays->in_proj_bias, first + states);
        parts.dt_weight_bias =
            arrays->stepless ? NULL : at(arrays->in_proj_bias, first + 2 * states);
    } else {
        parts.W_B = at(arrays->x_proj, config->dt_rank * config->d_inner);
        parts.W_C = at(arrays->x_proj, (config->dt_rank + N) * config->d_inner);
        parts.dt_weight = arrays->dt_proj;
    }
    return ssm__mimetic_apply_parts(mimetic, config, layer, seed, &parts, err);
}
