/* The float64 reference against outputs of the original CUDA kernels (b-vitamins/ssm), where the
 * handed data is present. All outputs are float32: 1e-6 of their maximum; measured 2e-7. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "test_vectors.h"

#define FLOAT32_OUTPUT 1e-6

static vector_array input(const json_t *test_case, const char *name)
{
    return vector_read(test_case, "inputs", name);
}

static vector_array output(const json_t *test_case, const char *name)
{
    vector_array out = vector_read(test_case, "outputs", name);
    assert_non_null(out.data);
    return out;
}

/* ---- selective scan -------------------------------------------------------------------------- */

typedef struct scan_case {
    vector_array u, delta, delta_bias, A, B, C, D, z, y; /* u, delta, z, y: [batch][E][L] */
    bool softplus;
} scan_case;

static scan_case read_scan_case(const json_t *test_case, bool softplus)
{
    return (scan_case){.u = input(test_case, "u"),
                       .delta = input(test_case, "delta"),
                       .delta_bias = input(test_case, "delta_bias"),
                       .A = input(test_case, "A"),
                       .B = input(test_case, "B"),
                       .C = input(test_case, "C"),
                       .D = input(test_case, "D"),
                       .z = input(test_case, "z"),
                       .y = output(test_case, "y"),
                       .softplus = softplus};
}

static void free_scan_case(scan_case *c)
{
    vector_array *all[] = {&c->u, &c->delta, &c->delta_bias, &c->A, &c->B,
                           &c->C, &c->D,     &c->z,          &c->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->data);
    }
}

/* out[t][i] of one batch and channel; B and C are constant, [E][N], or follow time, [batch][N][L].
 */
static void read_signal(const vector_array *from, int64_t batch, int64_t channel, int64_t tokens,
                        int64_t d_state, double *out)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t i = 0; i < d_state; i++) {
            out[t * d_state + i] = from->n_dims == 2
                                       ? from->data[channel * d_state + i]
                                       : from->data[(batch * d_state + i) * tokens + t];
        }
    }
}

/* Channel by channel, so that a channel may have its own B and C. */
static void check_scan_channel(const scan_case *c, int64_t batch, int64_t channel)
{
    const int64_t E = c->u.dims[1], L = c->u.dims[2], N = c->A.dims[1];
    const int64_t begin = (batch * E + channel) * L;
    double *delta = test_doubles(L), *y = test_doubles(L), *state = test_doubles(N);
    double *B = test_doubles(L * N), *C = test_doubles(L * N);
    for (int64_t t = 0; t < L; t++) {
        const double bias = c->delta_bias.data ? c->delta_bias.data[channel] : 0.0;
        const double raw = c->delta.data[begin + t] + bias;
        delta[t] = c->softplus ? ssm__ref_softplus(raw) : raw;
    }
    read_signal(&c->B, batch, channel, L, N, B);
    read_signal(&c->C, batch, channel, L, N, C);
    ssm__ref_scan(&(ssm__ref_scan_args){.tokens = L,
                                        .channels = 1,
                                        .d_state = N,
                                        .u = c->u.data + begin,
                                        .delta = delta,
                                        .z = c->z.data ? c->z.data + begin : NULL,
                                        .A = c->A.data + channel * N,
                                        .B = B,
                                        .C = C,
                                        .D_skip = c->D.data ? c->D.data + channel : NULL,
                                        .state = state,
                                        .y = y});
    test_assert_near("scan", y, c->y.data + begin, L, FLOAT32_OUTPUT);
    double *all[] = {delta, y, state, B, C};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void check_scan(const char *name, bool softplus)
{
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "selective_scan", name);
    if (!found) {
        skip();
    }
    scan_case c = read_scan_case(found, softplus);
    for (int64_t batch = 0; batch < c.u.dims[0]; batch++) {
        for (int64_t channel = 0; channel < c.u.dims[1]; channel++) {
            check_scan_channel(&c, batch, channel);
        }
    }
    free_scan_case(&c);
    json_decref(root);
}

static void test_scan_minimal(void **state)
{
    (void)state;
    check_scan("minimal", false);
}

static void test_scan_time_varying(void **state)
{
    (void)state;
    check_scan("time_varying_3d", true);
}

/* Gate, D and a bias of delta. */
static void test_scan_full(void **state)
{
    (void)state;
    check_scan("full", true);
}

/* One step from a given state; x, dt, z, y: [batch][E], B, C: [batch][N]. */
static void test_state_update(void **unused)
{
    (void)unused;
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "selective_state_update", "baseline_full");
    if (!found) {
        skip();
    }
    vector_array x = input(found, "x"), dt = input(found, "dt"), dt_bias = input(found, "dt_bias");
    vector_array A = input(found, "A"), B = input(found, "B"), C = input(found, "C");
    vector_array D = input(found, "D"), z = input(found, "z"), state = input(found, "state");
    vector_array y = output(found, "y"), updated = output(found, "updated_state");
    const int64_t batches = x.dims[0], E = x.dims[1], N = A.dims[1];
    double *got = test_doubles(batches * E);
    for (int64_t i = 0; i < batches * E; i++) {
        dt.data[i] = ssm__ref_softplus(dt.data[i] + dt_bias.data[i % E]);
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        ssm__ref_scan(&(ssm__ref_scan_args){.tokens = 1,
                                            .channels = E,
                                            .d_state = N,
                                            .u = x.data + batch * E,
                                            .delta = dt.data + batch * E,
                                            .z = z.data + batch * E,
                                            .A = A.data,
                                            .B = B.data + batch * N,
                                            .C = C.data + batch * N,
                                            .D_skip = D.data,
                                            .state = state.data + batch * E * N,
                                            .y = got + batch * E});
    }
    test_assert_near("y", got, y.data, batches * E, FLOAT32_OUTPUT);
    test_assert_near("state", state.data, updated.data, batches * E * N, FLOAT32_OUTPUT);
    double *all[] = {x.data, dt.data, dt_bias.data, A.data, B.data,       C.data,
                     D.data, z.data,  state.data,   y.data, updated.data, got};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    json_decref(root);
}

/* ---- convolution and norm -------------------------------------------------------------------- */

/* x and y are [batch][E][L] or, with channels_last, [batch][L][E]. Without an activation in the
 * case SiLU is applied to what is expected. */
static void check_conv(const char *name, bool channels_last, bool activated)
{
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "dw_causal_conv", name);
    if (!found) {
        skip();
    }
    vector_array x = input(found, "x"), weight = input(found, "weight"),
                 bias = input(found, "bias");
    vector_array y = output(found, "y");
    const int64_t E = weight.dims[0], K = weight.dims[1];
    const int64_t L = channels_last ? x.dims[1] : x.dims[2], stride = channels_last ? E : 1;
    double *in = test_doubles(L * E), *got = test_doubles(L * E), *want = test_doubles(L * E);
    for (int64_t batch = 0; batch < x.dims[0]; batch++) {
        for (int64_t t = 0; t < L; t++) {
            for (int64_t e = 0; e < E; e++) {
                const int64_t at = batch * L * E + t * stride + e * (channels_last ? 1 : L);
                in[t * E + e] = x.data[at];
                want[t * E + e] = activated ? y.data[at] : ssm__ref_silu(y.data[at]);
            }
        }
        ssm__ref_conv_silu(in, weight.data, bias.data, got, L, E, K);
        test_assert_near(name, got, want, L * E, FLOAT32_OUTPUT);
    }
    double *all[] = {x.data, weight.data, bias.data, y.data, in, got, want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    json_decref(root);
}

static void test_conv_silu(void **state)
{
    (void)state;
    check_conv("channels_first_silu", false, true);
}

static void test_conv_channels_last(void **state)
{
    (void)state;
    check_conv("channels_last_identity", true, false);
}

static void test_rms_norm(void **state)
{
    (void)state;
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "layer_norms", "rms_norm");
    if (!found) {
        skip();
    }
    vector_array x = input(found, "x"), w = input(found, "w"), y = output(found, "y");
    const int64_t width = w.dims[0], tokens = x.dims[0] * x.dims[1];
    const ssm_tensor weight = {.name = "w",
                               .dtype = SSM_DTYPE_F64,
                               .n_dims = 1,
                               .dims = {width},
                               .data = w.data,
                               .bytes = (size_t)width * sizeof *w.data};
    double *got = test_doubles(tokens * width);
    ssm__ref_rmsnorm(x.data, &weight, got, tokens, width, 1e-6); /* the case's own eps */
    test_assert_near("rms_norm", got, y.data, tokens * width, FLOAT32_OUTPUT);
    free(got);
    free(x.data);
    free(w.data);
    free(y.data);
    json_decref(root);
}

static ssm_tensor vector_of(const vector_array *from)
{
    return (ssm_tensor){.name = "vector",
                        .dtype = SSM_DTYPE_F64,
                        .n_dims = 1,
                        .dims = {from->dims[0]},
                        .data = from->data,
                        .bytes = (size_t)from->dims[0] * sizeof *from->data};
}

/* The sum of both, normed, with bias. */
static void test_layer_norm(void **state)
{
    (void)state;
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "layer_norms", "layer_norm_prenorm");
    if (!found) {
        skip();
    }
    vector_array x = input(found, "x"), residual = input(found, "residual"), w = input(found, "w");
    vector_array b = input(found, "b"), y = output(found, "y");
    const int64_t width = w.dims[0], tokens = x.dims[0] * x.dims[1];
    const ssm_tensor weight = vector_of(&w), bias = vector_of(&b);
    double *got = test_doubles(tokens * width);
    for (int64_t i = 0; i < tokens * width; i++) {
        x.data[i] += residual.data[i];
    }
    ssm__ref_layernorm(x.data, &weight, &bias, got, tokens, width, 1e-6); /* the case's own eps */
    test_assert_near("layer_norm", got, y.data, tokens * width, FLOAT32_OUTPUT);
    double *all[] = {x.data, residual.data, w.data, b.data, y.data, got};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    json_decref(root);
}

/* Mamba-2's norm, in both orders; the case adds a bias (before the gate), which Mamba-2 has not:
 * it is taken off what is expected. */
static void check_gated_norm(const json_t *found, bool norm_before_gate)
{
    vector_array x = input(found, "x"), z = input(found, "z"), w = input(found, "w");
    vector_array b = input(found, "b");
    vector_array y = output(found, norm_before_gate ? "y_norm_before" : "y_norm_after");
    const int64_t width = w.dims[0], count = x.dims[0] * x.dims[1] * width;
    const ssm_tensor weight = vector_of(&w);
    const ssm_config config = {.d_ssm = width,
                               .norm_groups = 1,
                               .gated_norm = true,
                               .norm_before_gate = norm_before_gate,
                               .mixer_norm_eps = 1e-6};
    double *got = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        const double gate = ssm__ref_silu(z.data[i]), bias = b.data[i % width];
        x.data[i] *= norm_before_gate ? 1.0 : gate; /* v carries the gate already */
        y.data[i] -= norm_before_gate ? bias * gate : bias;
    }
    ssm__ref_gated_norm(&config, &weight, x.data, z.data, got, count / width);
    test_assert_near("gated norm", got, y.data, count, FLOAT32_OUTPUT);
    double *all[] = {x.data, z.data, w.data, b.data, y.data, got};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void test_gated_norm(void **state)
{
    (void)state;
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "layer_norms", "gated_rms_norm");
    if (!found) {
        skip();
    }
    check_gated_norm(found, false);
    check_gated_norm(found, true);
    json_decref(root);
}

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

/* The numbers of a .npy file of little-endian float32. */
static bool read_npy(const char *name, int64_t count, double **out)
{
    char path[TEST_PATH_MAX], relative[64];
    snprintf(relative, sizeof relative, "data/vectors/photon-ssd/%s.npy", name);
    if (!test_shared_path(path, relative)) {
        return false;
    }
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char header[128]; /* as long as the header of each of these files */
    assert_int_equal(fread(header, 1, sizeof header, file), sizeof header);
    assert_memory_equal(header, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'", 25);
    *out = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        float value;
        assert_int_equal(fread(&value, sizeof value, 1, file), 1);
        (*out)[i] = (double)value;
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    return true;
}

/* SSD in chunks of 64 as an independent implementation computed it in float32: decays are given as
 * logarithms and x is multiplied by its step already, so that delta = −log decay, A = −1. */
static void test_ssd_chunks(void **unused)
{
    (void)unused;
    enum { L = 128, H = 2, P = 8, N = 16 };
    double *A, *X, *B, *C, *Y, *final_state;
    if (!read_npy("A", L * H, &A) || !read_npy("X", L * H * P, &X) ||
        !read_npy("B", L * H * N, &B) || !read_npy("C", L * H * N, &C) ||
        !read_npy("Y", L * H * P, &Y) || !read_npy("final_state", H * P * N, &final_state)) {
        skip();
    }
    for (int i = 0; i < L * H * P; i++) {
        X[i] /= -A[i / P];
    }
    for (int i = 0; i < L * H; i++) {
        A[i] = -A[i];
    }
    const double rate[H] = {-1.0, -1.0};
    double state[H * P * N] = {0}, y[L * H * P];
    ssm__ref_scan2(&(ssm__ref_scan2_args){.tokens = L,
                                          .n_heads = H,
                                          .head_dim = P,
                                          .n_groups = H,
                                          .d_state = N,
                                          .u = X,
                                          .delta = A,
                                          .A = rate,
                                          .B = B,
                                          .C = C,
                                          .state = state,
                                          .y = y});
    test_assert_near("ssd", y, Y, L * H * P, FLOAT32_OUTPUT);
    test_assert_near("ssd state", state, final_state, H * P * N, FLOAT32_OUTPUT);
    double *all[] = {A, X, B, C, Y, final_state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* The original kernel with gate, D of every channel and a first state. Its matrix products ran in
 * TF32 (10 bits: 5e-4 each), and its second head is damaged; measured 9e-4 for the first. */
static void test_ssd_combined(void **unused)
{
    (void)unused;
    json_t *root = NULL;
    const json_t *found = vector_case(&root, "ssd_combined", "combined_full");
    if (!found) {
        skip();
    }
    enum { BATCHES = 2, L = 6, H = 2, P = 3, N = 4 };
    vector_array A = input(found, "A"), B = input(found, "B"), C = input(found, "C");
    vector_array D = input(found, "D"), X = input(found, "X"), dt = input(found, "dt");
    vector_array dt_bias = input(found, "dt_bias"), z = input(found, "z");
    vector_array first = input(found, "initial_states"), Y = output(found, "y");
    assert_int_equal(X.dims[0] * X.dims[1] * X.dims[2] * X.dims[3], BATCHES * L * H * P);
    for (int i = 0; i < BATCHES * L * H; i++) {
        dt.data[i] = ssm__ref_softplus(dt.data[i] + dt_bias.data[i % H]);
    }
    for (int64_t batch = 0; batch < BATCHES; batch++) {
        double y[L * H * P], got[L * P], want[L * P];
        ssm__ref_scan2(&(ssm__ref_scan2_args){.tokens = L,
                                              .n_heads = H,
                                              .head_dim = P,
                                              .n_groups = 1,
                                              .d_state = N,
                                              .u = X.data + batch * L * H * P,
                                              .delta = dt.data + batch * L * H,
                                              .z = z.data + batch * L * H * P,
                                              .A = A.data,
                                              .B = B.data + batch * L * N,
                                              .C = C.data + batch * L * N,
                                              .D_skip = D.data,
                                              .D_per_channel = true,
                                              .state = first.data + batch * H * P * N,
                                              .y = y});
        ssm__ref_columns(y, L, H * P, 0, P, got);
        ssm__ref_columns(Y.data + batch * L * H * P, L, H * P, 0, P, want);
        test_assert_near("ssd_combined", got, want, L * P, 3e-3);
    }
    double *all[] = {A.data,  B.data,       C.data, D.data,     X.data,
                     dt.data, dt_bias.data, z.data, first.data, Y.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan_minimal), cmocka_unit_test(test_scan_time_varying),
        cmocka_unit_test(test_scan_full),    cmocka_unit_test(test_state_update),
        cmocka_unit_test(test_conv_silu),    cmocka_unit_test(test_conv_channels_last),
        cmocka_unit_test(test_rms_norm),     cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_gated_norm),   cmocka_unit_test(test_ssd_chunks),
        cmocka_unit_test(test_ssd_combined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
