/* Taps: each fires once for every token in any chunking, shows what its name says, and moves
 * nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "test_numbers.h"
#include "test_session.h"

enum { COUNT = 75, LAYERS = 3 };

/* Every tap of a text. Layer 0 also stands for the points of the whole model. */
typedef struct capture {
    ssm_config config;
    int64_t origin;                     /* position of the first token that is captured */
    float *data[SSM_TAP_COUNT][LAYERS]; /* [COUNT][width] */
    unsigned char seen[SSM_TAP_COUNT][LAYERS][COUNT];
    int64_t calls;
} capture;

static int64_t width_of(const ssm_config *c, ssm_tap_point point)
{
    switch (point) {
    case SSM_TAP_IN_PROJ:
        return 2 * c->d_inner;
    case SSM_TAP_CONV1D:
    case SSM_TAP_U:
    case SSM_TAP_DT_PROJ:
    case SSM_TAP_DELTA:
    case SSM_TAP_SSM_OUT:
        return c->d_inner;
    case SSM_TAP_X_PROJ:
        return c->dt_rank + 2 * c->d_state;
    default:
        return c->d_model;
    }
}

static bool is_of_the_model(ssm_tap_point point)
{
    return point == SSM_TAP_EMBED || point == SSM_TAP_LN_FINAL;
}

/* Points that only layers of other kinds, or blocks with an MLP, have. */
static bool is_foreign(ssm_tap_point point)
{
    return point == SSM_TAP_INNER_NORM || point == SSM_TAP_ATTENTION_OUT ||
           point == SSM_TAP_RESID_MID || point == SSM_TAP_MLP_IN || point == SSM_TAP_MLP_OUT;
}

static capture *capture_create(const ssm_config *config)
{
    capture *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->config = *config;
    for (int point = 0; point < SSM_TAP_COUNT; point++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            c->data[point][layer] = test_floats(COUNT * width_of(config, (ssm_tap_point)point));
        }
    }
    return c;
}

static void capture_free(capture *c)
{
    for (int point = 0; point < SSM_TAP_COUNT; point++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            free(c->data[point][layer]);
        }
    }
    free(c);
}

static void take(void *context, const ssm_tap *tap)
{
    capture *c = context;
    assert_true(tap->point < SSM_TAP_COUNT);
    assert_true(is_of_the_model(tap->point) ? tap->layer == -1
                                            : tap->layer >= 0 && tap->layer < LAYERS);
    const int64_t layer = tap->layer < 0 ? 0 : tap->layer;
    const int64_t width = width_of(&c->config, tap->point), first = tap->position - c->origin;
    assert_int_equal(tap->width, width);
    assert_true(first >= 0 && tap->tokens >= 1 && first + tap->tokens <= COUNT);
    for (int64_t t = first; t < first + tap->tokens; t++) {
        c->seen[tap->point][layer][t]++;
    }
    float *out = c->data[tap->point][layer] + first * width;
    ssm_tap_copy(tap, out);
    for (int64_t t = 0; t < tap->tokens; t++) { /* the copy is the documented layout */
        for (int64_t k = 0; k < width; k++) {
            const float *at =
                tap->data + t * tap->row_stride + (k / 16) * tap->group_stride + k % 16;
            assert_memory_equal(&out[t * width + k], at, sizeof *at);
        }
    }
    c->calls++;
}

static void assert_every_tap_fired_once(const capture *c)
{
    for (int point = 0; point < SSM_TAP_COUNT; point++) {
        const int layers = is_of_the_model((ssm_tap_point)point) ? 1
                           : is_foreign((ssm_tap_point)point)    ? 0
                                                                 : LAYERS;
        for (int layer = 0; layer < layers; layer++) {
            for (int t = 0; t < COUNT; t++) {
                if (c->seen[point][layer][t] != 1) {
                    fail_msg("%s, layer %d, token %d: %d times", ssm_tap_name((ssm_tap_point)point),
                             layer, t, c->seen[point][layer][t]);
                }
            }
        }
    }
}

static ssm_observer observer_of(capture *c)
{
    return (ssm_observer){.context = c, .points = (1U << SSM_TAP_COUNT) - 1, .read = take};
}

static const ssm_config *toy(ssm_model **model)
{
    const ssm_config config = toy_config();
    *model = test_model_toy(&config, SSM_DTYPE_F32, 31, SSM_ISA_AUTO, NULL);
    return ssm_model_config(*model);
}

/* ---- every token, any chunking, nothing moved ------------------------------------------------ */

static void test_every_tap_in_every_chunking(void **state)
{
    (void)state;
    ssm_model *model;
    const ssm_config *config = toy(&model);
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    float *plain = test_model_logits(model, ids, COUNT, 0);
    capture *whole = NULL;
    const int64_t chunks[] = {0, 1, 3, 64, 1000}, max_chunks[] = {0, 10, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (size_t j = 0; j < sizeof max_chunks / sizeof *max_chunks; j++) {
            ssm_session *session = test_session_create(model, NULL, max_chunks[j]);
            capture *c = capture_create(config);
            const ssm_observer observer = observer_of(c);
            ssm_session_set_observer(session, &observer);
            float *logits = test_logits(session, model, ids, COUNT, chunks[i]);
            test_assert_same_bits("observers move nothing", logits, plain,
                                  COUNT * config->vocab_size);
            assert_every_tap_fired_once(c);
            for (int point = 0; whole && point < SSM_TAP_COUNT; point++) {
                for (int layer = 0; layer < LAYERS; layer++) {
                    test_assert_same_bits(ssm_tap_name((ssm_tap_point)point), c->data[point][layer],
                                          whole->data[point][layer],
                                          COUNT * width_of(config, (ssm_tap_point)point));
                }
            }
            free(logits);
            ssm_session_free(session);
            if (whole) {
                capture_free(c);
            } else {
                whole = c;
            }
        }
    }
    capture_free(whole);
    free(plain);
    ssm_model_free(model);
}

/* Only the points that were asked for; none after the observer is gone; positions go on. */
static void test_points_and_positions(void **state)
{
    (void)state;
    ssm_model *model;
    const ssm_config *config = toy(&model);
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    ssm_session *session = test_session_create(model, NULL, 0);
    free(test_logits(session, model, ids, 20, 0));
    capture *c = capture_create(config);
    c->origin = 20;
    ssm_observer observer = observer_of(c);
    observer.points = UINT64_C(1) << SSM_TAP_SSM_OUT;
    ssm_session_set_observer(session, &observer);
    free(test_logits(session, model, ids, 11, 4));
    assert_true(c->calls > 0);
    for (int point = 0; point < SSM_TAP_COUNT; point++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int t = 0; t < COUNT; t++) {
                assert_int_equal(c->seen[point][layer][t], point == SSM_TAP_SSM_OUT && t < 11);
            }
        }
    }
    const int64_t calls = c->calls;
    ssm_session_set_observer(session, NULL);
    free(test_logits(session, model, ids, 11, 0));
    assert_int_equal(c->calls, calls);
    capture_free(c);
    ssm_session_free(session);
    ssm_model_free(model);
}

static void ignore_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    (void)context;
    (void)first;
    (void)tokens;
    (void)logits;
}

/* Taps fire for every token also when no logits are wanted, or only the last. */
static void test_taps_without_logits(void **state)
{
    (void)state;
    ssm_model *model;
    const ssm_config *config = toy(&model);
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    const ssm_logits_want wants[] = {SSM_LOGITS_NONE, SSM_LOGITS_LAST};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        ssm_session *session = test_session_create(model, NULL, 0);
        capture *c = capture_create(config);
        const ssm_observer observer = observer_of(c);
        ssm_session_set_observer(session, &observer);
        assert_int_equal(
            ssm_session_forward(session, ids, COUNT, wants[i], ignore_logits, NULL, NULL),
            SSM_STATUS_OK);
        assert_every_tap_fired_once(c);
        capture_free(c);
        ssm_session_free(session);
    }
    ssm_model_free(model);
}

/* ---- each tap is what its name says ---------------------------------------------------------- */

/* One step is a few dozen float32 operations away from the tap before it. */
#define STEP_TOLERANCE 1e-6

static double *widen(const float *x, int64_t count)
{
    double *out = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (double)x[i];
    }
    return out;
}

static double *widen_tensor(const ssm_tensor *tensor)
{
    double *out = test_doubles(ssm_tensor_count(tensor));
    for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
        out[i] = ssm_tensor_get(tensor, i);
    }
    return out;
}

/* Columns begin … begin+width−1 of tap `point`, as doubles [COUNT][width]. */
static double *columns(const capture *c, ssm_tap_point point, int64_t layer, int64_t begin,
                       int64_t width)
{
    const int64_t stride = width_of(&c->config, point);
    double *out = test_doubles(COUNT * width);
    for (int64_t t = 0; t < COUNT; t++) {
        for (int64_t k = 0; k < width; k++) {
            out[t * width + k] = (double)c->data[point][layer][t * stride + begin + k];
        }
    }
    return out;
}

/* The tap `to` against w · (tap `from`, columns 0 … cols−1) + bias. */
static void check_linear_tap(const capture *c, int64_t layer, ssm_tap_point from, ssm_tap_point to,
                             const ssm_tensor *w, const ssm_tensor *bias)
{
    double *x = columns(c, from, layer, 0, w->dims[1]);
    double *want = test_doubles(COUNT * w->dims[0]);
    ssm__ref_linear(w, bias, x, want, COUNT);
    test_assert_near_f32(ssm_tap_name(to), c->data[to][layer], want, COUNT * w->dims[0],
                         STEP_TOLERANCE);
    free(want);
    free(x);
}

/* The tap `to` is function(the tap `from`). */
static void check_activation(const capture *c, int64_t layer, ssm_tap_point from, ssm_tap_point to,
                             double (*function)(double))
{
    const int64_t count = COUNT * c->config.d_inner;
    double *want = widen(c->data[from][layer], count);
    for (int64_t i = 0; i < count; i++) {
        want[i] = function(want[i]);
    }
    test_assert_near_f32(ssm_tap_name(to), c->data[to][layer], want, count, STEP_TOLERANCE);
    free(want);
}

static void check_conv_tap(const capture *c, int64_t layer, const ssm__layer_weights *w)
{
    const int64_t E = c->config.d_inner;
    double *xs = columns(c, SSM_TAP_IN_PROJ, layer, 0, E), *want = test_doubles(COUNT * E);
    double *weight = widen_tensor(&w->conv1d), *bias = widen_tensor(&w->conv1d_bias);
    ssm__ref_conv_silu(xs, weight, bias, want, COUNT, E, c->config.d_conv);
    test_assert_near_f32("u", c->data[SSM_TAP_U][layer], want, COUNT * E, STEP_TOLERANCE);
    check_activation(c, layer, SSM_TAP_CONV1D, SSM_TAP_U, ssm__ref_silu);
    check_activation(c, layer, SSM_TAP_DT_PROJ, SSM_TAP_DELTA, ssm__ref_softplus);
    double *all[] = {xs, want, weight, bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void check_scan_tap(const capture *c, int64_t layer, const ssm__layer_weights *w)
{
    const int64_t E = c->config.d_inner, N = c->config.d_state, R = c->config.dt_rank;
    double *u = columns(c, SSM_TAP_U, layer, 0, E);
    double *delta = columns(c, SSM_TAP_DELTA, layer, 0, E);
    double *z = columns(c, SSM_TAP_IN_PROJ, layer, E, E);
    double *B = columns(c, SSM_TAP_X_PROJ, layer, R, N);
    double *C = columns(c, SSM_TAP_X_PROJ, layer, R + N, N);
    double *A = widen_tensor(&w->A_log), *D = widen_tensor(&w->D);
    double *state = test_doubles(E * N), *y = test_doubles(COUNT * E);
    for (int64_t i = 0; i < E * N; i++) {
        A[i] = -exp(A[i]);
    }
    ssm__ref_scan(&(ssm__ref_scan_args){.tokens = COUNT,
                                        .channels = E,
                                        .d_state = N,
                                        .u = u,
                                        .delta = delta,
                                        .z = z,
                                        .A = A,
                                        .B = B,
                                        .C = C,
                                        .D_skip = D,
                                        .state = state,
                                        .y = y});
    test_assert_near_f32("ssm_out", c->data[SSM_TAP_SSM_OUT][layer], y, COUNT * E, STEP_TOLERANCE);
    double *all[] = {u, delta, z, B, C, A, D, state, y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void check_norm_tap(const capture *c, ssm_tap_point from, int64_t from_layer,
                           ssm_tap_point to, int64_t to_layer, const ssm_tensor *weight)
{
    const int64_t D = c->config.d_model;
    double *x = widen(c->data[from][from_layer], COUNT * D), *want = test_doubles(COUNT * D);
    ssm__ref_rmsnorm(x, weight, want, COUNT, D, c->config.norm_eps);
    test_assert_near_f32(ssm_tap_name(to), c->data[to][to_layer], want, COUNT * D, STEP_TOLERANCE);
    free(want);
    free(x);
}

/* The stream is float32: resid_post = resid_pre + mixer_out to the bit. */
static void check_stream_taps(const capture *c, int64_t layer)
{
    const int64_t count = COUNT * c->config.d_model;
    const float *pre = c->data[SSM_TAP_RESID_PRE][layer];
    const float *out = c->data[SSM_TAP_MIXER_OUT][layer];
    float *sum = test_floats(count);
    for (int64_t i = 0; i < count; i++) {
        sum[i] = pre[i] + out[i];
    }
    test_assert_same_bits("resid_post", c->data[SSM_TAP_RESID_POST][layer], sum, count);
    test_assert_same_bits(
        "resid_pre", pre,
        layer == 0 ? c->data[SSM_TAP_EMBED][0] : c->data[SSM_TAP_RESID_POST][layer - 1], count);
    free(sum);
}

static void test_taps_show_the_steps(void **state)
{
    (void)state;
    ssm_model *model;
    const ssm_config *config = toy(&model);
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(model));
    int32_t ids[COUNT];
    toy_ids(config, 5, ids, COUNT);
    ssm_session *session = test_session_create(model, NULL, 0);
    capture *c = capture_create(config);
    const ssm_observer observer = observer_of(c);
    ssm_session_set_observer(session, &observer);
    float *logits = test_logits(session, model, ids, COUNT, 0);

    for (int64_t t = 0; t < COUNT; t++) {
        for (int64_t k = 0; k < config->d_model; k++) {
            const double want = ssm_tensor_get(&weights->embedding, ids[t] * config->d_model + k);
            assert_true((double)c->data[SSM_TAP_EMBED][0][t * config->d_model + k] == want);
        }
    }
    for (int64_t layer = 0; layer < LAYERS; layer++) {
        const ssm__layer_weights *w = &weights->layers[layer];
        check_stream_taps(c, layer);
        check_norm_tap(c, SSM_TAP_RESID_PRE, layer, SSM_TAP_MIXER_IN, layer, &w->norm);
        check_linear_tap(c, layer, SSM_TAP_MIXER_IN, SSM_TAP_IN_PROJ, &w->in_proj,
                         &w->in_proj_bias);
        check_conv_tap(c, layer, w);
        check_linear_tap(c, layer, SSM_TAP_U, SSM_TAP_X_PROJ, &w->x_proj, NULL);
        check_linear_tap(c, layer, SSM_TAP_X_PROJ, SSM_TAP_DT_PROJ, &w->dt_proj, &w->dt_proj_bias);
        check_scan_tap(c, layer, w);
        check_linear_tap(c, layer, SSM_TAP_SSM_OUT, SSM_TAP_MIXER_OUT, &w->out_proj,
                         &w->out_proj_bias);
    }
    check_norm_tap(c, SSM_TAP_RESID_POST, LAYERS - 1, SSM_TAP_LN_FINAL, 0, &weights->norm_f);

    double *x = widen(c->data[SSM_TAP_LN_FINAL][0], COUNT * config->d_model);
    double *want = test_doubles(COUNT * config->vocab_size);
    ssm__ref_linear(&weights->lm_head, NULL, x, want, COUNT);
    test_assert_near_f32("logits", logits, want, COUNT * config->vocab_size, STEP_TOLERANCE);
    free(want);
    free(x);
    free(logits);
    capture_free(c);
    ssm_session_free(session);
    ssm_model_free(model);
}

/* Every name is found again under its own and under the shorter spelling; nothing else is. */
static void names_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ssm_tap_point point;
        int64_t layer;
    } good[] = {{"embed", SSM_TAP_EMBED, -1},
                {"ln_final", SSM_TAP_LN_FINAL, -1},
                {"blocks.0.hook_resid_pre", SSM_TAP_RESID_PRE, 0},
                {"blocks.12.hook_mixer_in", SSM_TAP_MIXER_IN, 12},
                {"blocks.3.mixer.in_proj.hook_out", SSM_TAP_IN_PROJ, 3},
                {"blocks.3.hook_in_proj", SSM_TAP_IN_PROJ, 3},
                {"blocks.3.mixer.conv1d.hook_out", SSM_TAP_CONV1D, 3},
                {"blocks.3.hook_conv", SSM_TAP_CONV1D, 3},
                {"blocks.3.mixer.hook_u", SSM_TAP_U, 3},
                {"blocks.3.mixer.hook_delta", SSM_TAP_DELTA, 3},
                {"blocks.3.mixer.x_proj.hook_out", SSM_TAP_X_PROJ, 3},
                {"blocks.3.hook_x_proj", SSM_TAP_X_PROJ, 3},
                {"blocks.3.mixer.dt_proj.hook_out", SSM_TAP_DT_PROJ, 3},
                {"blocks.3.hook_dt_proj", SSM_TAP_DT_PROJ, 3},
                {"blocks.3.mixer.hook_ssm_out", SSM_TAP_SSM_OUT, 3},
                {"blocks.3.hook_ssm_out", SSM_TAP_SSM_OUT, 3},
                {"blocks.3.hook_mixer_out", SSM_TAP_MIXER_OUT, 3},
                {"blocks.3.mixer.out_proj.hook_out", SSM_TAP_MIXER_OUT, 3},
                {"blocks.999999999.hook_resid_post", SSM_TAP_RESID_POST, 999999999}};
    static const char *const bad[] = {"",
                                      "embed ",
                                      "blocks",
                                      "blocks..hook_conv",
                                      "blocks.-1.hook_conv",
                                      "blocks.01.hook_conv",
                                      "blocks.{i}.hook_resid_pre",
                                      "blocks.0.embed",
                                      "blocks.9999999999.hook_conv",
                                      "blocks.0.hook_conv.x"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ssm_tap_point point = SSM_TAP_COUNT;
        int64_t layer = -2;
        assert_int_equal(ssm_tap_parse(good[i].name, &point, &layer, NULL), SSM_STATUS_OK);
        assert_int_equal(point, good[i].point);
        assert_int_equal(layer, good[i].layer);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ssm_tap_point point;
        int64_t layer;
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_tap_parse(bad[i], &point, &layer, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "there is no tap"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_parsed),
        cmocka_unit_test(test_every_tap_in_every_chunking),
        cmocka_unit_test(test_points_and_positions),
        cmocka_unit_test(test_taps_without_logits),
        cmocka_unit_test(test_taps_show_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
