/* The recorded Gram, energies and moments against the float64 reference of every layer on the
 * input that the fast path gave to it, and the laws that a Gram of the summands keeps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/recording.h>

#include "reference/reference.h"
#include "test_numbers.h"
#include "test_record.h"

enum { TINY_WINDOW = 530, TOY_WINDOW = 600, SIGNALS_MAX = 64 };

/* ---- the recording and what the layers were given -------------------------------------------- */

typedef struct fixture {
    record_subject subject;
    const ssm_config *config;
    int64_t tokens;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording; /* one evaluation window */
    float *inputs;            /* [n_layers][T][D] of the mixers */
} fixture;

static void capture(void *context, const ssm_tap *tap)
{
    const fixture *f = context;
    ssm_tap_copy(tap, f->inputs + (tap->layer * f->tokens + tap->position) * tap->width);
}

static fixture fixture_create(record_subject subject, int64_t tokens)
{
    char path[TEST_PATH_MAX + 8];
    fixture f = {.subject = subject, .tokens = tokens};
    f.config = ssm_model_config(subject.model);
    snprintf(path, sizeof path, "%s/rec", test_make_directory(f.directory));
    const ssm_record_options options = {.window = tokens, .evaluation_windows = 1};
    record_into(&subject, path, &options);
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_recording_open(path, &f.recording, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", err.file, err.message);
    }

    f.inputs = test_floats(f.config->n_layers * tokens * f.config->d_model);
    ssm_session *session = test_session_create(subject.model, NULL, 0);
    const ssm_observer observer = {
        .context = &f, .points = 1u << SSM_TAP_MIXER_IN, .read = capture};
    ssm_session_set_observer(session, &observer);
    assert_int_equal(ssm_session_forward(session, subject.corpus.domains[0].ids.data, tokens,
                                         SSM_LOGITS_NONE, NULL, NULL, NULL),
                     SSM_STATUS_OK);
    ssm_session_free(session);
    return f;
}

static void fixture_free(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->directory);
    free(f->inputs);
    record_subject_free(&f->subject);
}

/* A field of a layer in float64. */
static double *recorded(const fixture *f, int64_t layer, const char *field, int64_t count)
{
    const ssm_tensor *tensor = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_recording_tensor(f->recording, 0, layer, field, &tensor, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", field, err.message);
    }
    assert_int_equal(ssm_tensor_count(tensor), count);
    double *out = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = ssm_tensor_get(tensor, i);
    }
    return out;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* What a recording should hold of one layer, in float64. */
typedef struct expected {
    double *gram;                                        /* [E][(N+1)(N+2)/2] */
    double *output_energy, *delta_mean;                  /* [E] */
    double *state_moment, *read_moment, *adjoint_moment; /* [E][N] */
    double *modes;                                       /* [T][E][N+1] */
} expected;

/* Columns begin … begin+width−1 of [tokens][stride]. */
static double *columns(const double *from, int64_t tokens, int64_t stride, int64_t begin,
                       int64_t width)
{
    double *to = test_doubles(tokens * width);
    for (int64_t t = 0; t < tokens; t++) {
        memcpy(to + t * width, from + t * stride + begin, (size_t)width * sizeof *to);
    }
    return to;
}

static double *widened(const ssm_tensor *tensor)
{
    double *out = tensor->data ? test_doubles(ssm_tensor_count(tensor)) : NULL;
    for (int64_t i = 0; out && i < ssm_tensor_count(tensor); i++) {
        out[i] = ssm_tensor_get(tensor, i);
    }
    return out;
}

/* Every signal of the mixer before the scan: Δ, u, g = SiLU(z) [T][E]; B, C [T][N]; A [E][N]. */
typedef struct signals {
    double *delta, *u, *gate, *B, *C, *A;
} signals;

static signals signals_of(const ssm_config *c, const ssm__layer_weights *w, const double *x,
                          int64_t T)
{
    const int64_t E = c->d_inner, N = c->d_state, R = c->dt_rank;
    signals s = {.delta = test_doubles(T * E), .u = test_doubles(T * E)};
    double *in = test_doubles(T * 2 * E);
    double *low = test_doubles(T * (R + 2 * N));
    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, in, T);
    double *xs = columns(in, T, 2 * E, 0, E);
    s.gate = columns(in, T, 2 * E, E, E);
    double *conv = widened(&w->conv1d);
    double *conv_bias = widened(&w->conv1d_bias);
    ssm__ref_conv_silu(xs, conv, conv_bias, s.u, T, E, c->d_conv);
    ssm__ref_linear(&w->x_proj, NULL, s.u, low, T);
    double *dt = columns(low, T, R + 2 * N, 0, R);
    s.B = columns(low, T, R + 2 * N, R, N);
    s.C = columns(low, T, R + 2 * N, R + N, N);
    ssm__ref_linear(&w->dt_proj, &w->dt_proj_bias, dt, s.delta, T);
    for (int64_t i = 0; i < T * E; i++) {
        s.delta[i] = ssm__ref_softplus(s.delta[i]);
        s.gate[i] = ssm__ref_silu(s.gate[i]);
    }
    s.A = widened(&w->A_log);
    for (int64_t i = 0; i < E * N; i++) {
        s.A[i] = -exp(s.A[i]);
    }
    double *scratch[] = {in, low, xs, conv, conv_bias, dt};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++) {
        free(scratch[i]);
    }
    return s;
}

static void signals_free(signals *s)
{
    double *all[] = {s->delta, s->u, s->gate, s->B, s->C, s->A};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* Moments of one mode: x_t = e^{ΔA} x_{t−1} + ΔBu, w_t = 1 + e^{2ΔA} w_{t−1}. The summand g C x is
 * compared with the reference's, so that these signals are known to be those of the mixer. */
static void mode_moments(const ssm_config *c, const signals *s, int64_t T, int64_t h, int64_t n,
                         expected *e)
{
    const int64_t E = c->d_inner, N = c->d_state;
    double x = 0.0, w = 0.0, state = 0.0, read = 0.0, adjoint = 0.0, off = 0.0, largest = 0.0;
    for (int64_t t = 0; t < T; t++) {
        const double delta = s->delta[t * E + h];
        const double decay = exp(delta * s->A[h * N + n]);
        const double reading = s->gate[t * E + h] * s->C[t * N + n];
        x = decay * x + delta * s->B[t * N + n] * s->u[t * E + h];
        w = 1.0 + decay * decay * w;
        state += x * x;
        read += reading * reading;
        adjoint += reading * reading * w;
        const double mode = e->modes[(t * E + h) * (N + 1) + n];
        off = fmax(off, fabs(reading * x - mode));
        largest = fmax(largest, fabs(mode));
    }
    assert_true(off <= 1e-12 * largest); /* float64, a few hundred steps */
    e->state_moment[h * N + n] = state / (double)T;
    e->read_moment[h * N + n] = read / (double)T;
    e->adjoint_moment[h * N + n] = adjoint / (double)T;
}

static expected expected_of(const fixture *f, int64_t layer)
{
    const ssm_config *c = f->config;
    const int64_t T = f->tokens, E = c->d_inner, N = c->d_state, D = c->d_model;
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(f->subject.model));
    const ssm__layer_weights *w = &weights->layers[layer];
    expected e = {.gram = test_doubles(E * (N + 1) * (N + 2) / 2),
                  .output_energy = test_doubles(E),
                  .delta_mean = test_doubles(E),
                  .state_moment = test_doubles(E * N),
                  .read_moment = test_doubles(E * N),
                  .adjoint_moment = test_doubles(E * N),
                  .modes = test_doubles(T * E * (N + 1))};
    double *x = test_doubles(T * D);
    double *out = test_doubles(T * D);
    double *y = test_doubles(T * E);
    for (int64_t i = 0; i < T * D; i++) {
        x[i] = (double)f->inputs[layer * T * D + i];
    }
    assert_int_equal(ssm__ref_mamba_mixer(c, w, NULL, x, T, out, y, e.modes, NULL), SSM_STATUS_OK);
    ssm__ref_gram(e.modes, T, E, N + 1, e.gram);
    signals s = signals_of(c, w, x, T);
    for (int64_t h = 0; h < E; h++) {
        for (int64_t t = 0; t < T; t++) {
            e.output_energy[h] += y[t * E + h] * y[t * E + h];
            e.delta_mean[h] += s.delta[t * E + h] / (double)T;
        }
        for (int64_t n = 0; n < N; n++) {
            mode_moments(c, &s, T, h, n, &e);
        }
    }
    signals_free(&s);
    free(x);
    free(out);
    free(y);
    return e;
}

static void expected_free(expected *e)
{
    double *all[] = {e->gram,        e->output_energy,  e->delta_mean, e->state_moment,
                     e->read_moment, e->adjoint_moment, e->modes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* ---- recorded against the reference ---------------------------------------------------------- */

/* (i, j), i ≤ j, of an m×m upper triangle, row by row. */
static int64_t at(int64_t i, int64_t j, int64_t m)
{
    return i * m - i * (i - 1) / 2 + (j - i);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* |difference| / sqrt(G_ii G_jj) of every entry of a layer, appended to errors. */
static void gram_errors(const fixture *f, const double *got, const double *want, double *errors)
{
    const int64_t m = f->config->d_state + 1, entries = m * (m + 1) / 2;
    for (int64_t h = 0; h < f->config->d_inner; h++) {
        const double *g = got + h * entries, *w = want + h * entries;
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = i; j < m; j++) {
                const double scale = sqrt(w[at(i, i, m)] * w[at(j, j, m)]);
                assert_true(scale > 0.0);
                errors[h * entries + at(i, j, m)] = fabs(g[at(i, j, m)] - w[at(i, j, m)]) / scale;
            }
        }
    }
}

/* Largest |got − want| / want of positive numbers, kept if above *worst. */
static void relative_error(const double *got, const double *want, int64_t count, double *worst)
{
    for (int64_t i = 0; i < count; i++) {
        assert_true(want[i] > 0.0);
        *worst = fmax(*worst, fabs(got[i] - want[i]) / want[i]);
    }
}

enum { MEANS = 5 };
static const char *const mean_names[MEANS] = {"output_energy", "delta_mean", "state_moment",
                                              "read_moment", "adjoint_moment"};

static void compare_means(const fixture *f, int64_t layer, const expected *e, double worst[MEANS])
{
    const int64_t E = f->config->d_inner, EN = E * f->config->d_state;
    const double *want[MEANS] = {e->output_energy, e->delta_mean, e->state_moment, e->read_moment,
                                 e->adjoint_moment};
    for (int i = 0; i < MEANS; i++) {
        const int64_t count = i < 2 ? E : EN;
        double *got = recorded(f, layer, mean_names[i], count);
        relative_error(got, want[i], count, &worst[i]);
        free(got);
    }
}

/* A summand is a chain of float32 linears, one decay a token and a few products, each right to
 * 6e-8 of itself; the errors of a mode that lives long add up over its life. The sums, float32 over
 * blocks of 64 tokens and then float64, add less than 64 · 6e-8 = 4e-6 at worst. Measured: 99.9 %
 * quantile 8.3e-7, maximum 2.7e-6; the means, sums of squares and of Δ > 0 in which nothing
 * cancels, relative to themselves up to 2.5e-6. The bounds are four times that, and inside what the
 * instrument promises (1e-5 and 5e-5). */
static const double bound_quantile = 3.3e-6, bound_gram = 1.1e-5, bound_means = 1e-5;

static void compare_all(fixture *f, const char *what)
{
    const ssm_config *c = f->config;
    const int64_t entries = c->d_inner * (c->d_state + 1) * (c->d_state + 2) / 2;
    double *errors = test_doubles(c->n_layers * entries);
    double worst[MEANS] = {0};
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        expected e = expected_of(f, layer);
        double *gram = recorded(f, layer, "gram", entries);
        gram_errors(f, gram, e.gram, errors + layer * entries);
        compare_means(f, layer, &e, worst);
        free(gram);
        expected_free(&e);
    }
    const int64_t count = c->n_layers * entries;
    qsort(errors, (size_t)count, sizeof *errors, by_size);
    const double quantile = errors[(int64_t)ceil(0.999 * (double)count) - 1];
    printf("%s: Gram, %lld entries: median %.2e, 99.9 %% %.2e (bound %.1e), max %.2e (%.1e)\n",
           what, (long long)count, errors[count / 2], quantile, bound_quantile, errors[count - 1],
           bound_gram);
    assert_true(quantile <= bound_quantile);
    assert_true(errors[count - 1] <= bound_gram);
    for (int i = 0; i < MEANS; i++) {
        printf("%s: %s: max %.2e (bound %.1e)\n", what, mean_names[i], worst[i], bound_means);
        assert_true(worst[i] <= bound_means);
    }
    free(errors);
}

static void test_tiny_against_the_reference(void **state)
{
    (void)state;
    fixture f = fixture_create(record_tiny(SSM_ISA_AUTO, 1), TINY_WINDOW);
    compare_all(&f, "tiny");
    fixture_free(&f);
}

static void test_odd_shapes_against_the_reference(void **state)
{
    (void)state;
    fixture f = fixture_create(record_toy(SSM_ISA_AUTO, 1, TOY_WINDOW), TOY_WINDOW);
    compare_all(&f, "odd shapes");
    fixture_free(&f);
}

/* ---- laws of a recorded Gram ----------------------------------------------------------------- */

/* One Jacobi rotation that makes a[p][q] vanish (Golub & Van Loan, Matrix Computations, 8.5). */
static void rotate(double a[SIGNALS_MAX][SIGNALS_MAX], int64_t m, int64_t p, int64_t q)
{
    const double tau = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    const double tangent = (tau >= 0.0 ? 1.0 : -1.0) / (fabs(tau) + sqrt(1.0 + tau * tau));
    const double cosine = 1.0 / sqrt(1.0 + tangent * tangent), sine = tangent * cosine;
    for (int64_t k = 0; k < m; k++) {
        const double left = a[k][p], right = a[k][q];
        a[k][p] = cosine * left - sine * right;
        a[k][q] = sine * left + cosine * right;
    }
    for (int64_t k = 0; k < m; k++) {
        const double left = a[p][k], right = a[q][k];
        a[p][k] = cosine * left - sine * right;
        a[q][k] = sine * left + cosine * right;
    }
}

/* Eigenvalues of a symmetric matrix by cyclic Jacobi; a is overwritten. The diagonal's error is
 * below the off-diagonal's norm, which ends below 1e-12 of the trace. */
static void extreme_eigenvalues(double a[SIGNALS_MAX][SIGNALS_MAX], int64_t m, double *smallest,
                                double *largest)
{
    double off = INFINITY, trace = 0.0;
    for (int64_t i = 0; i < m; i++) {
        trace += a[i][i];
    }
    for (int sweep = 0; sweep < 30 && off > 1e-12 * trace; sweep++) {
        off = 0.0;
        for (int64_t p = 0; p < m; p++) {
            for (int64_t q = p + 1; q < m; q++) {
                off += 2.0 * a[p][q] * a[p][q];
                if (a[p][q] != 0.0) {
                    rotate(a, m, p, q);
                }
            }
        }
        off = sqrt(off); /* as it was before each rotation */
    }
    assert_true(off <= 1e-12 * trace);
    *smallest = INFINITY;
    *largest = -INFINITY;
    for (int64_t i = 0; i < m; i++) {
        *smallest = fmin(*smallest, a[i][i]);
        *largest = fmax(*largest, a[i][i]);
    }
}

/* Of one channel: smallest / largest eigenvalue, and 1ᵀG1 against the energy of y, relative to
 * (Σ sqrt G_ii)², which no cancellation makes small. */
static void channel_laws(const double *gram, int64_t m, double output_energy, double *eigenvalue,
                         double *energy)
{
    static double matrix[SIGNALS_MAX][SIGNALS_MAX];
    double sum = 0.0, roots = 0.0, smallest, largest;
    assert_true(m <= SIGNALS_MAX);
    for (int64_t i = 0; i < m; i++) {
        roots += sqrt(gram[at(i, i, m)]);
        for (int64_t j = 0; j < m; j++) {
            matrix[i][j] = gram[i <= j ? at(i, j, m) : at(j, i, m)];
            sum += matrix[i][j];
        }
    }
    extreme_eigenvalues(matrix, m, &smallest, &largest);
    *eigenvalue = fmin(*eigenvalue, smallest / largest);
    *energy = fmax(*energy, fabs(sum - output_energy) / (roots * roots));
}

/* The diagonal is Σ of the energy blocks, to the last bit: both are float64 sums of the same
 * float32 blocks in the same order, rounded to float32 once. */
static void check_trace(const double *gram, const double *blocks, const fixture *f)
{
    const int64_t E = f->config->d_inner, N = f->config->d_state, m = N + 1;
    for (int64_t h = 0; h < E; h++) {
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;
            for (int64_t b = 0; b < (f->tokens + 63) / 64; b++) {
                sum += blocks[(b * E + h) * N + n];
            }
            const float want = (float)sum;
            const float got = (float)gram[h * m * (m + 1) / 2 + at(n, n, m)];
            assert_memory_equal(&got, &want, sizeof want);
        }
    }
}

static void check_laws(record_subject subject, int64_t tokens, const char *what)
{
    fixture f = fixture_create(subject, tokens);
    const ssm_config *c = f.config;
    const int64_t m = c->d_state + 1, entries = m * (m + 1) / 2;
    double eigenvalue = INFINITY, energy = 0.0;
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        double *gram = recorded(&f, layer, "gram", c->d_inner * entries);
        double *output = recorded(&f, layer, "output_energy", c->d_inner);
        double *blocks =
            recorded(&f, layer, "energy_blocks", (tokens + 63) / 64 * c->d_inner * c->d_state);
        check_trace(gram, blocks, &f);
        for (int64_t h = 0; h < c->d_inner; h++) {
            channel_laws(gram + h * entries, m, output[h], &eigenvalue, &energy);
        }
        free(gram);
        free(output);
        free(blocks);
    }
    printf("%s: smallest / largest eigenvalue ≥ %.1e (bound -1e-6), sum of G against y's energy "
           "%.1e (bound 1.3e-6)\n",
           what, eigenvalue, energy);
    /* float32 entries: an error of 6e-8 G_ij moves an eigenvalue by at most m · 6e-8 of the
     * largest, 1.0e-6 for m = 17. */
    assert_true(eigenvalue >= -1e-6);
    /* y is rounded after each of its N + 1 additions, its square and the entries once more, at
     * 6e-8 of the terms, of either sign: measured 3.3e-7, about four times that is the bound. */
    assert_true(energy <= 1.3e-6);
    fixture_free(&f);
}

static void test_laws_of_a_gram(void **state)
{
    (void)state;
    check_laws(record_tiny(SSM_ISA_AUTO, 1), TINY_WINDOW, "tiny");
    check_laws(record_toy(SSM_ISA_AUTO, 1, TOY_WINDOW), TOY_WINDOW, "odd shapes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_against_the_reference),
        cmocka_unit_test(test_odd_shapes_against_the_reference),
        cmocka_unit_test(test_laws_of_a_gram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
