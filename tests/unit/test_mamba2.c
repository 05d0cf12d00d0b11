/* Mamba-2 on the fast path: every shape against the float64 reference, in chunks and by the
 * recurrence; any length and any split; masks by head and by channel; the taps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "reference/reference.h"
#include "test_numbers.h"
#include "test_session.h"

/* Relative to the largest expected value. Toy weights are larger than trained ones and their
 * streams cancel more; measured below 2e-6. */
#define TOY_TOLERANCE 5e-6
/* The promise between two cuts of a text, or chunks and recurrence; measured below 1e-6. */
#define CUT_TOLERANCE 2e-6

static void check(ssm_status status, const ssm_error *err)
{
    if (status != SSM_STATUS_OK) {
        fail_msg("%s", err->message);
    }
}

static ssm_session *make_session(const ssm_model *model, bool exact)
{
    const ssm_session_options options = {.exact_chunks = exact};
    ssm_session *session = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_session_create(model, &options, &session, &err), &err);
    return session;
}

static float *logits_of(const ssm_model *model, const int32_t *ids, int64_t count, int64_t chunk,
                        bool exact)
{
    ssm_session *session = make_session(model, exact);
    float *out = test_logits(session, model, ids, count, chunk);
    ssm_session_free(session);
    return out;
}

/* keep [n_layers][S][N] or NULL. */
static double *reference_logits(const ssm_model *model, const int32_t *ids, int64_t count,
                                const uint8_t *keep)
{
    double *out = test_doubles(count * ssm_model_config(model)->vocab_size);
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(model));
    assert_int_equal(
        ssm__ref_forward(ssm_model_config(model), weights, keep, ids, count, out, NULL, NULL),
        SSM_STATUS_OK);
    return out;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void check_shape(const char *what, const ssm_config *config, ssm_dtype dtype,
                        const toy_options *options)
{
    enum { COUNT = 70 }; /* more than a tile */
    ssm_model *model = test_model_toy(config, dtype, 11, SSM_ISA_AUTO, options);
    const ssm_config *read = ssm_model_config(model);
    assert_int_equal(read->n_heads, config->n_heads);
    assert_int_equal(read->d_ssm, config->d_ssm);
    assert_int_equal(read->norm_groups, config->gated_norm ? config->n_groups : 0);
    assert_int_equal(read->norm_before_gate, config->gated_norm && config->norm_before_gate);
    assert_int_equal(read->gated_norm, config->gated_norm);
    assert_int_equal(read->D_per_channel, config->D_per_channel);
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    double *want = reference_logits(model, ids, COUNT, NULL);
    for (int exact = 0; exact < 2; exact++) {
        float *fast = logits_of(model, ids, COUNT, 0, exact != 0);
        test_assert_near_f32(what, fast, want, COUNT * config->vocab_size, TOY_TOLERANCE);
        free(fast);
    }
    free(want);
    ssm_model_free(model);
}

static void test_shapes(void **state)
{
    (void)state;
    const struct {
        const char *what;
        int64_t heads, head_dim, groups, d_state, d_conv, front;
        bool norm, before, per_channel;
        double low, high;
    } shapes[] = {
        {"odd everywhere", 4, 10, 2, 5, 3, 0, true, false, false, 0, INFINITY},
        {"ones", 1, 1, 1, 1, 1, 1, true, false, false, 0, INFINITY},
        {"whole vectors", 2, 32, 1, 32, 4, 0, true, false, false, 0, INFINITY},
        {"norm before the gate", 4, 16, 4, 16, 4, 0, true, true, false, 0, INFINITY},
        {"no norm", 4, 12, 2, 7, 2, 0, false, false, false, 0, INFINITY},
        {"no norm, order claimed", 2, 16, 1, 7, 2, 0, false, true, false, 0, INFINITY},
        {"D of channels", 4, 9, 1, 6, 4, 0, true, false, true, 0, INFINITY},
        {"channels past the scan", 3, 16, 1, 6, 4, 24, true, false, false, 0, INFINITY},
        {"the same, odd", 3, 5, 3, 9, 4, 7, true, true, true, 0, INFINITY},
        {"limits", 4, 8, 2, 16, 4, 0, true, false, false, 0.1, 0.5},
        {"eight groups", 8, 8, 8, 4, 4, 0, true, false, false, 0, INFINITY},
        {"heads of groups", 8, 20, 4, 12, 4, 0, true, true, false, 0, INFINITY},
        {"published", 2, 64, 1, 128, 4, 0, true, false, false, 0, INFINITY},
        {"wide state", 1, 80, 1, 256, 4, 0, true, false, false, 0, INFINITY},
        {"many heads", 35, 3, 5, 3, 4, 0, true, false, false, 0, INFINITY},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ssm_config config = toy_config_heads();
        config.n_heads = shapes[i].heads;
        config.head_dim = shapes[i].head_dim;
        config.n_groups = config.norm_groups = shapes[i].groups;
        config.d_ssm = config.n_heads * config.head_dim;
        config.d_inner = config.d_ssm + shapes[i].front;
        config.d_model = config.d_inner % 2 == 0 ? config.d_inner / 2 : config.d_inner;
        config.d_state = shapes[i].d_state;
        config.d_conv = shapes[i].d_conv;
        config.gated_norm = shapes[i].norm;
        config.norm_before_gate = shapes[i].before;
        config.D_per_channel = shapes[i].per_channel;
        config.dt_limit_low = shapes[i].low;
        config.dt_limit_high = shapes[i].high;
        config.tied = i % 2 == 0;
        check_shape(shapes[i].what, &config, SSM_DTYPE_F32, NULL);
    }
}

static void test_dtypes_and_biases(void **state)
{
    (void)state;
    const ssm_config config = toy_config_heads();
    const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        for (int biases = 0; biases < 4; biases++) {
            const toy_options options = {.no_proj_bias = biases & 1, .no_conv_bias = biases & 2};
            check_shape(ssm_dtype_name(dtypes[i]), &config, dtypes[i], &options);
        }
    }
}

/* ---- chunks and recurrence ------------------------------------------------------------------- */

enum { LONG = 600 };

/* Two layers of two heads: enough for a state error to show in later tokens. */
static ssm_model *small_model(int32_t ids[LONG])
{
    ssm_config config = toy_config_heads();
    config.n_layers = 2;
    config.n_heads = 2;
    config.head_dim = 16;
    config.d_ssm = config.d_inner = 32;
    config.d_model = 16;
    config.d_state = 16;
    config.n_groups = config.norm_groups = 1;
    toy_ids(&config, 6, ids, LONG);
    return test_model_toy(&config, SSM_DTYPE_F32, 21, SSM_ISA_AUTO, NULL);
}

static float largest(const float *values, int64_t count)
{
    float out = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        out = fmaxf(out, fabsf(values[i]));
    }
    return out;
}

/* Logits of consecutive tokens against those of the recurrence. */
typedef struct against {
    const float *exact;
    int64_t vocab_size, done;
    float scale, worst;
} against;

static void compare_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    against *a = context;
    const float *exact = a->exact + (a->done + first) * a->vocab_size;
    for (int64_t i = 0; i < tokens * a->vocab_size; i++) {
        a->worst = fmaxf(a->worst, fabsf(logits[i] - exact[i]) / a->scale);
    }
}

static void advance(ssm_session *session, against *a, const int32_t *ids, int64_t count,
                    ssm_logits_want want)
{
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_session_forward(session, ids + a->done, count, want, compare_rows, a, &err), &err);
    a->done += count;
}

static void test_every_length(void **state)
{
    (void)state;
    int32_t ids[LONG];
    ssm_model *model = small_model(ids);
    float *exact = logits_of(model, ids, LONG, 0, true);
    ssm_session *session = make_session(model, false);
    against a = {.exact = exact, .vocab_size = ssm_model_config(model)->vocab_size};
    a.scale = largest(exact, LONG * a.vocab_size);
    for (int64_t length = 1; length < LONG; length++) {
        ssm_session_reset(session);
        a.done = 0;
        advance(session, &a, ids, length, SSM_LOGITS_LAST);
        advance(session, &a, ids, 1, SSM_LOGITS_LAST); /* from the state that it left */
    }
    ssm_session_reset(session);
    a.done = 0;
    advance(session, &a, ids, LONG, SSM_LOGITS_ALL);
    printf("every length: %.2e\n", (double)a.worst);
    assert_true(a.worst <= CUT_TOLERANCE);
    assert_true(a.worst > 0.0f); /* or it was not the chunked form that ran */
    ssm_session_free(session);
    free(exact);
    ssm_model_free(model);
}

static void test_any_split(void **state)
{
    (void)state;
    int32_t ids[LONG];
    ssm_model *model = small_model(ids);
    float *exact = logits_of(model, ids, LONG, 0, true);
    ssm_session *session = make_session(model, false);
    against a = {.exact = exact, .vocab_size = ssm_model_config(model)->vocab_size};
    a.scale = largest(exact, LONG * a.vocab_size);
    ssm_rng rng = ssm_rng_create(1, "test/splits");
    for (int round = 0; round < 60; round++) {
        const uint64_t most = UINT64_C(1) << (1 + round % 8);
        ssm_session_reset(session);
        for (a.done = 0; a.done < LONG;) {
            const int64_t piece = 1 + (int64_t)ssm_rng_below(&rng, most);
            advance(session, &a, ids, piece < LONG - a.done ? piece : LONG - a.done,
                    SSM_LOGITS_ALL);
        }
    }
    printf("any split: %.2e\n", (double)a.worst);
    assert_true(a.worst <= CUT_TOLERANCE);
    ssm_session_free(session);
    free(exact);
    ssm_model_free(model);
}

/* With exact_chunks no bit depends on the cut; and a mask that keeps all changes none, either way.
 */
static void test_exact_chunks(void **state)
{
    (void)state;
    int32_t ids[LONG];
    ssm_model *model = small_model(ids);
    const int64_t size = LONG * ssm_model_config(model)->vocab_size;
    float *whole = logits_of(model, ids, LONG, 0, true);
    const int64_t chunks[] = {1, 3, 64, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *cut = logits_of(model, ids, LONG, chunks[i], true);
        test_assert_same_bits("exact chunks", cut, whole, size);
        free(cut);
    }
    const ssm_config *c = ssm_model_config(model);
    ssm_mask mask;
    assert_int_equal(ssm_mask_create(c->n_layers, c->n_heads, c->d_state, &mask, NULL),
                     SSM_STATUS_OK);
    for (int exact = 0; exact < 2; exact++) {
        ssm_session *session = make_session(model, exact == 1);
        assert_int_equal(ssm_session_set_mask(session, &mask, -1, NULL), SSM_STATUS_OK);
        float *masked = test_logits(session, model, ids, LONG, 0);
        float *unmasked = logits_of(model, ids, LONG, 0, exact == 1);
        test_assert_same_bits("a mask of ones", masked, unmasked, size);
        free(unmasked);
        free(masked);
        ssm_session_free(session);
    }
    ssm_mask_free(&mask);
    free(whole);
    ssm_model_free(model);
}

/* SSD in chunks of 64 as an independent implementation computed it in float32 (Photon-Mamba2-LLM):
 * decays are given as logarithms, x is multiplied by its step already. */
static bool read_npy(const char *name, int64_t count, float *out)
{
    char path[TEST_PATH_MAX], relative[64], header[128];
    snprintf(relative, sizeof relative, "data/vectors/photon-ssd/%s.npy", name);
    if (!test_shared_path(path, relative)) {
        return false;
    }
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(header, 1, sizeof header, file), sizeof header);
    assert_int_equal(fread(out, sizeof *out, (size_t)count, file), count);
    fclose(file);
    return true;
}

static void test_photon_ssd(void **state)
{
    (void)state;
    enum { L = 128, H = 2, P = 8, N = 16, T = SSM__TILE };
    static float A[L * H], X[L * H * P], B[L * H * N], C[L * H * N], Y[L * H * P], last[H * P * N];
    if (!read_npy("A", L * H, A) || !read_npy("X", L * H * P, X) || !read_npy("B", L * H * N, B) ||
        !read_npy("C", L * H * N, C) || !read_npy("Y", L * H * P, Y) ||
        !read_npy("final_state", H * P * N, last)) {
        skip();
    }
    const float D[16] = {0};
    double worst = 0.0, scale = 0.0;
    for (int64_t h = 0; h < H; h++) {
        float states[N * 16] = {0};
        for (int64_t first = 0; first < L; first += T) {
            float u[SSM__TILE_ROWS * 16] = {0}, y[SSM__TILE_ROWS * 16], delta[T], products[T * T];
            for (int64_t t = 0; t < T; t++) {
                const int64_t at = (first + t) * H + h;
                delta[t] = -A[at]; /* A = −1 */
                for (int64_t p = 0; p < P; p++) {
                    u[t * 16 + p] = X[at * P + p] / delta[t];
                }
                for (int64_t s = 0; s <= t; s++) {
                    double sum = 0.0;
                    for (int64_t n = 0; n < N; n++) {
                        sum += (double)C[at * N + n] * (double)B[((first + s) * H + h) * N + n];
                    }
                    products[t * T + s] = (float)sum;
                }
            }
            ssm__kernels_for(SSM_ISA_AUTO)
                ->ssd(&(ssm__ssd_args){.tokens = T,
                                       .d_state = N,
                                       .groups = 1,
                                       .u = u,
                                       .delta = delta,
                                       .A2 = -1.44269504f,
                                       .B = B + (first * H + h) * N,
                                       .C = C + (first * H + h) * N,
                                       .bc_stride = H * N,
                                       .products = products,
                                       .D = D,
                                       .state = states,
                                       .y = y});
            for (int64_t i = 0; i < T * P; i++) {
                const double want = (double)Y[((first + i / P) * H + h) * P + i % P];
                worst = fmax(worst, fabs((double)y[i / P * 16 + i % P] - want));
                scale = fmax(scale, fabs(want));
            }
        }
        for (int64_t i = 0; i < P * N; i++) { /* [p][n] */
            const double got = (double)states[i % N * 16 + i / N];
            worst = fmax(worst, fabs(got - (double)last[h * P * N + i]));
        }
    }
    printf("photon-ssd: %.2e of the largest\n", worst / scale);
    assert_true(worst <= CUT_TOLERANCE * scale);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Rows of a mask over heads or channels to the reference's [n_layers][S][N]. */
static uint8_t *keep_of(const ssm_config *c, const ssm_mask *mask, int64_t layer)
{
    const int64_t per_row = c->d_ssm / mask->n_channels, N = c->d_state;
    uint8_t *keep = malloc((size_t)(c->n_layers * c->d_ssm * N));
    assert_non_null(keep);
    for (int64_t i = 0; i < c->n_layers * c->d_ssm; i++) {
        const bool pruned = layer < 0 || layer == i / c->d_ssm;
        const int64_t row = i / c->d_ssm * mask->n_channels + i % c->d_ssm / per_row;
        for (int64_t n = 0; n < N; n++) {
            keep[i * N + n] = pruned ? mask->keep[row * N + n] : 1;
        }
    }
    return keep;
}

static void test_masks(void **state)
{
    (void)state;
    enum { COUNT = 70 };
    const ssm_config config = toy_config_heads();
    const int64_t size = COUNT * config.vocab_size;
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 4, SSM_ISA_AUTO, NULL);
    ssm_session *session = make_session(model, false);
    int32_t ids[COUNT];
    toy_ids(&config, 5, ids, COUNT);
    double *plain = reference_logits(model, ids, COUNT, NULL);
    const int64_t rows[] = {config.n_heads, config.d_ssm};
    for (size_t i = 0; i < 2; i++) {
        ssm_mask mask;
        assert_int_equal(ssm_mask_create(config.n_layers, rows[i], config.d_state, &mask, NULL),
                         SSM_STATUS_OK);
        ssm_rng rng = ssm_rng_create(i, "test/mask");
        for (int64_t k = 0; k < config.n_layers * rows[i] * config.d_state; k++) {
            mask.keep[k] = (uint8_t)ssm_rng_below(&rng, 2);
        }
        for (int64_t layer = -1; layer < config.n_layers; layer++) { /* −1: all layers */
            uint8_t *keep = keep_of(&config, &mask, layer);
            ssm_session_reset(session);
            assert_int_equal(ssm_session_set_mask(session, &mask, layer, NULL), SSM_STATUS_OK);
            float *fast = test_logits(session, model, ids, COUNT, 0);
            double *want = reference_logits(model, ids, COUNT, keep);
            test_assert_near_f32("masked", fast, want, size, TOY_TOLERANCE);
            assert_true(test_relative_f32(fast, plain, size) > 1e-3);
            free(want);
            free(fast);
            free(keep);
        }
        ssm_mask_free(&mask);
    }
    ssm_mask wrong;
    assert_int_equal(
        ssm_mask_create(config.n_layers, config.n_heads + 1, config.d_state, &wrong, NULL),
        SSM_STATUS_OK);
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_session_set_mask(session, &wrong, -1, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "4 heads"));
    ssm_mask_free(&wrong);
    free(plain);
    ssm_session_free(session);
    ssm_model_free(model);
}

/* ---- taps ------------------------------------------------------------------------------------ */

enum { TAPPED = 70 };

typedef struct captured {
    float *data[SSM_TAP_COUNT]; /* [TAPPED][width] of one layer */
    int64_t width[SSM_TAP_COUNT];
    int64_t layer;
} captured;

static void take(void *context, const ssm_tap *tap)
{
    captured *c = context;
    if (tap->layer != c->layer) {
        return;
    }
    if (!c->data[tap->point]) {
        c->data[tap->point] = test_floats(TAPPED * tap->width);
        c->width[tap->point] = tap->width;
    }
    assert_int_equal(tap->width, c->width[tap->point]);
    ssm_tap_copy(tap, c->data[tap->point] + tap->position * tap->width);
}

static double *as_doubles(const captured *c, ssm_tap_point point, int64_t width)
{
    assert_non_null(c->data[point]);
    assert_int_equal(c->width[point], width);
    double *out = test_doubles(TAPPED * width);
    for (int64_t i = 0; i < TAPPED * width; i++) {
        out[i] = (double)c->data[point][i];
    }
    return out;
}

static void near(const captured *c, ssm_tap_point point, const double *want)
{
    test_assert_near_f32(ssm_tap_name(point), c->data[point], want, TAPPED * c->width[point],
                         TOY_TOLERANCE);
}

/* Every tap against the reference run on the captured input of its step. */
static void check_taps(const captured *t, const ssm_config *c, const ssm__layer_weights *w)
{
    const int64_t S = c->d_ssm, bc = 2 * c->n_groups * c->d_state, conv = S + bc;
    const int64_t rows = 2 * c->d_inner + bc + c->n_heads, z_row = 2 * (c->d_inner - S);
    double *in = as_doubles(t, SSM_TAP_MIXER_IN, c->d_model);
    double *want = test_doubles(TAPPED * rows), *work = test_doubles(TAPPED * rows);
    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, in, want, TAPPED);
    near(t, SSM_TAP_IN_PROJ, want);

    double *projected = as_doubles(t, SSM_TAP_IN_PROJ, rows);
    double *z = test_doubles(TAPPED * S), *weight = test_doubles(conv * c->d_conv);
    double *bias = test_doubles(conv);
    for (int64_t i = 0; i < conv * c->d_conv; i++) {
        weight[i] = ssm_tensor_get(&w->conv1d, i);
        bias[i % conv] = ssm_tensor_get(&w->conv1d_bias, i % conv);
    }
    ssm__ref_columns(projected, TAPPED, rows, z_row, S, z);
    ssm__ref_columns(projected, TAPPED, rows, z_row + S, conv, work);
    ssm__ref_conv(work, weight, bias, want, TAPPED, conv, c->d_conv);
    near(t, SSM_TAP_CONV1D, want);
    ssm__ref_columns(want, TAPPED, conv, 0, S, work);
    for (int64_t i = 0; i < TAPPED * S; i++) {
        work[i] = ssm__ref_silu(work[i]);
    }
    assert_int_equal(t->width[SSM_TAP_U], S);
    near(t, SSM_TAP_U, work);

    ssm__ref_columns(projected, TAPPED, rows, rows - c->n_heads, c->n_heads, work);
    for (int64_t i = 0; i < TAPPED * c->n_heads; i++) {
        const double step =
            ssm__ref_softplus(work[i] + ssm_tensor_get(&w->dt_bias, i % c->n_heads));
        work[i] = fmin(fmax(step, c->dt_limit_low), c->dt_limit_high);
    }
    assert_int_equal(t->width[SSM_TAP_DELTA], c->n_heads);
    near(t, SSM_TAP_DELTA, work);

    double *v = test_doubles(TAPPED * S), *out = test_doubles(TAPPED * c->d_model);
    assert_int_equal(ssm__ref_mamba2_mixer(c, w, NULL, in, TAPPED, out, v, NULL, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(t->width[SSM_TAP_SSM_OUT], S);
    near(t, SSM_TAP_SSM_OUT, v);
    ssm__ref_gated_norm(c, &w->gate_norm, v, z, work, TAPPED);
    assert_int_equal(t->width[SSM_TAP_INNER_NORM], S);
    near(t, SSM_TAP_INNER_NORM, work);
    near(t, SSM_TAP_MIXER_OUT, out);
    assert_null(t->data[SSM_TAP_X_PROJ]); /* Mamba-1's */
    assert_null(t->data[SSM_TAP_DT_PROJ]);
    double *all[] = {in, want, work, projected, z, weight, bias, v, out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void test_taps(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        ssm_config config = toy_config_heads();
        config.norm_before_gate = variant % 2 == 1;
        config.gated_norm = variant != 2;
        config.d_inner += variant == 3 ? 20 : 0; /* z0, x0 */
        config.dt_limit_low = 0.05;
        config.dt_limit_high = 0.6;
        ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 9, SSM_ISA_AUTO, NULL);
        int32_t ids[TAPPED];
        toy_ids(&config, 5, ids, TAPPED);
        float *plain = logits_of(model, ids, TAPPED, 0, false);
        ssm_session *session = make_session(model, false);
        captured t = {.layer = 1};
        const ssm_observer observer = {
            .context = &t, .points = (UINT64_C(1) << SSM_TAP_COUNT) - 1, .read = take};
        ssm_session_set_observer(session, &observer);
        float *observed = test_logits(session, model, ids, TAPPED, 0);
        test_assert_same_bits("observers move nothing", observed, plain,
                              TAPPED * config.vocab_size);
        check_taps(&t, ssm_model_config(model),
                   &ssm__checkpoint_weights(ssm_model_checkpoint(model))->layers[1]);
        for (int point = 0; point < SSM_TAP_COUNT; point++) {
            free(t.data[point]);
        }
        free(observed);
        free(plain);
        ssm_session_free(session);
        ssm_model_free(model);
    }
}

/* ---- numbers that are too large -------------------------------------------------------------- */

/* y of about 1e24: finite, but its square is not a float32. */
static void huge_skip(const char *name, float *values, int64_t count)
{
    for (int64_t i = 0; strstr(name, "layers.0.mixer.D") && i < count; i++) {
        values[i] *= 1e25F;
    }
}

/* The gated norm of such a token would be zeros, and the block would add nothing: refused with the
 * block, in chunks and step by step, whichever way the norm and the gate stand. */
static void test_squares_that_overflow(void **state)
{
    (void)state;
    const toy_options options = {.edit = huge_skip};
    for (int i = 0; i < 4; i++) {
        ssm_config config = toy_config_heads();
        config.norm_before_gate = i % 2 == 1;
        int32_t ids[20];
        toy_ids(&config, 6, ids, 20);
        ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 21, SSM_ISA_AUTO, &options);
        ssm_session *session = make_session(model, i >= 2);
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_session_forward(session, ids, 20, SSM_LOGITS_NONE, NULL, NULL, &err),
                         SSM_STATUS_FAILED);
        assert_non_null(strstr(err.message, "block 0 gives nan at token"));
        ssm_session_free(session);
        ssm_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_dtypes_and_biases),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_any_split),
        cmocka_unit_test(test_exact_chunks),
        cmocka_unit_test(test_photon_ssd),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_taps),
        cmocka_unit_test(test_squares_that_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
