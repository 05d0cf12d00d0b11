/* What a recording of Mamba-2 holds against the float64 reference of every layer on the input that
 * the fast path gave to it: the heads' Grams, energies, moments, and the channels' errors of static
 * and own sets. Other laws: test_record_heads_laws.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "test_golden.h"
#include "test_numbers.h"
#include "test_record.h"

enum { WINDOW = 150, CALIBRATION = 2, EVALUATION = 2, DOMAINS = 2, TOKENS = 700 };

/* Goldens have heads of at most 8 channels; the toys' fill two vectors and half of a third. */
static const char *const models[] = {
    "mamba2-g1-chunks",   "mamba2-g4-limit", "hybrid/mamba2-attention", "hybrid/mamba2-no-norm",
    "hybrid/mamba2-wide", "wide heads",      "wide heads, gate last"};
enum { GOLDENS = 5, MODELS = sizeof models / sizeof *models };

static record_subject open_subject(int number)
{
    char path[TEST_PATH_MAX];
    const ssm_config toy = toy_config_wide_heads(number > GOLDENS);
    ssm_model *model = number < GOLDENS
                           ? test_model_open(golden_model_path(path, models[number]), SSM_ISA_AUTO)
                           : test_model_toy(&toy, SSM_DTYPE_F32, 3, SSM_ISA_AUTO, NULL);
    return record_random(model, DOMAINS, TOKENS, 70);
}

static ssm_record_options options_of(void)
{
    return (ssm_record_options){
        .window = WINDOW, .calibration_windows = CALIBRATION, .evaluation_windows = EVALUATION};
}

/* ---- the recording and what the layers were given -------------------------------------------- */

typedef struct fixture {
    record_subject subject;
    const ssm_config *config;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording;
    int64_t window; /* under test */
    float *inputs;  /* [n_layers][T][D] of the mixers in that window */
} fixture;

static void capture(void *context, const ssm_tap *tap)
{
    const fixture *f = context;
    ssm_tap_copy(tap, f->inputs + (tap->layer * WINDOW + tap->position) * tap->width);
}

static fixture fixture_create(int number)
{
    char path[TEST_PATH_MAX + 8];
    fixture f = {.subject = open_subject(number)};
    const ssm_record_options options = options_of();
    f.config = ssm_model_config(f.subject.model);
    snprintf(path, sizeof path, "%s/rec", test_make_directory(f.directory));
    record_into(&f.subject, path, &options);
    assert_int_equal(ssm_recording_open(path, &f.recording, NULL), SSM_STATUS_OK);
    f.window = DOMAINS * CALIBRATION + EVALUATION + 1; /* the last one of the last domain */
    const ssm_recording_window *window = ssm_recording_get_window(f.recording, f.window);
    assert_true(window->role == SSM_ROLE_EVALUATION && strcmp(window->domain, "b") == 0 &&
                window->token_offset == (CALIBRATION + 1) * WINDOW);

    f.inputs = test_floats(f.config->n_layers * WINDOW * f.config->d_model);
    ssm_session *session = test_session_create(f.subject.model, NULL, 0);
    const ssm_observer observer = {
        .context = &f, .points = UINT64_C(1) << SSM_TAP_MIXER_IN, .read = capture};
    ssm_session_set_observer(session, &observer);
    assert_int_equal(
        ssm_session_forward(session, f.subject.corpus.domains[1].ids.data + window->token_offset,
                            WINDOW, SSM_LOGITS_NONE, NULL, NULL, NULL),
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

static double *recorded(const fixture *f, int64_t window, int64_t layer, const char *field,
                        int64_t count)
{
    return record_field(f->recording, window, layer, field, count);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* The mixer's summands [T][S][N+1] and Δ [T][H], B, C [T][G][N], gate [T][S]. */
typedef struct signals {
    double *modes, *delta, *u, *B, *C, *gate;
} signals;

static double *columns(const double *from, int64_t stride, int64_t begin, int64_t width)
{
    double *to = test_doubles(WINDOW * width);
    for (int64_t t = 0; t < WINDOW; t++) {
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

/* Rows of in_proj: z0, x0, z, x, B, C, dt. */
static signals signals_of(const fixture *f, int64_t layer)
{
    const ssm_config *c = f->config;
    const int64_t S = c->d_ssm, BC = c->n_groups * c->d_state, D = c->d_model;
    const int64_t front = 2 * (c->d_inner - S);
    const int64_t rows = front + 2 * S + 2 * BC + c->n_heads;
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(f->subject.model));
    const ssm__layer_weights *w = &weights->layers[layer];
    signals s = {.modes = test_doubles(WINDOW * S * (c->d_state + 1))};
    double *x = test_doubles(WINDOW * D), *out = test_doubles(WINDOW * D);
    double *in = test_doubles(WINDOW * rows), *conv = test_doubles(WINDOW * (S + 2 * BC));
    for (int64_t i = 0; i < WINDOW * D; i++) {
        x[i] = (double)f->inputs[layer * WINDOW * D + i];
    }
    assert_int_equal(ssm__ref_mamba2_mixer(c, w, NULL, x, WINDOW, out, NULL, s.modes, NULL),
                     SSM_STATUS_OK);
    ssm__ref_linear(&w->in_proj, &w->in_proj_bias, x, in, WINDOW);
    double *convolved = columns(in, rows, front + S, S + 2 * BC);
    double *taps = widened(&w->conv1d), *bias = widened(&w->conv1d_bias);
    ssm__ref_conv_silu(convolved, taps, bias, conv, WINDOW, S + 2 * BC, c->d_conv);
    s.gate = columns(in, rows, front, S);
    s.u = columns(conv, S + 2 * BC, 0, S);
    s.B = columns(conv, S + 2 * BC, S, BC);
    s.C = columns(conv, S + 2 * BC, S + BC, BC);
    s.delta = columns(in, rows, front + 2 * S + 2 * BC, c->n_heads);
    for (int64_t i = 0; i < WINDOW * c->n_heads; i++) {
        const double step =
            ssm__ref_softplus(s.delta[i] + ssm_tensor_get(&w->dt_bias, i % c->n_heads));
        s.delta[i] = fmin(fmax(step, c->dt_limit_low), c->dt_limit_high);
    }
    for (int64_t i = 0; i < WINDOW * S; i++) {
        s.gate[i] = c->norm_before_gate ? 1.0 : ssm__ref_silu(s.gate[i]);
    }
    double *scratch[] = {x, out, in, conv, convolved, taps, bias};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++) {
        free(scratch[i]);
    }
    return s;
}

static void signals_free(signals *s)
{
    double *all[] = {s->modes, s->delta, s->u, s->B, s->C, s->gate};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* ---- recorded against the reference ---------------------------------------------------------- */

/* Summands are right to a few 6e-8 of themselves, and their errors over a life add up (see
 * test_gram.c); sums are float32 over at most 256 rows, then float64. Measured: Gram 1.8e-6, means
 * 2.9e-6, errors of sets 7.4e-7; the bounds are some three times that. */
static const double bound_gram = 6e-6, bound_means = 1.1e-5, bound_errors = 2e-6;

/* The head's Gram: |difference| / sqrt(G_ii G_jj). */
static double gram_error(const fixture *f, int64_t layer, const signals *s)
{
    const ssm_config *c = f->config;
    const int64_t m = c->d_state + 1, entries = m * (m + 1) / 2;
    double *got = recorded(f, f->window, layer, "gram", c->n_heads * entries);
    double *want = test_doubles(c->n_heads * m * m);
    double worst = 0.0;
    for (int64_t t = 0; t < WINDOW; t++) {
        for (int64_t channel = 0; channel < c->d_ssm; channel++) {
            const double *mode = s->modes + (t * c->d_ssm + channel) * m;
            double *head = want + channel / c->head_dim * m * m;
            for (int64_t i = 0; i < m * m; i++) {
                head[i] += mode[i / m] * mode[i % m];
            }
        }
    }
    for (int64_t h = 0; h < c->n_heads; h++) {
        const double *w = want + h * m * m;
        const double *g = got + h * entries;
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = i; j < m; j++, g++) {
                const double scale = sqrt(w[i * m + i] * w[j * m + j]);
                worst = fmax(worst, fabs(*g - w[i * m + j]) / scale);
            }
        }
    }
    free(got);
    free(want);
    return worst;
}

/* Largest |got − want| / want of positive numbers. */
static double relative(const fixture *f, int64_t layer, const char *field, const double *want,
                       int64_t count)
{
    double *got = recorded(f, f->window, layer, field, count);
    double worst = 0.0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(want[i] > 0.0);
        worst = fmax(worst, fabs(got[i] - want[i]) / want[i]);
    }
    free(got);
    return worst;
}

static double energies_error(const fixture *f, int64_t layer, const signals *s)
{
    const ssm_config *c = f->config;
    const int64_t N = c->d_state, H = c->n_heads, S = c->d_ssm, blocks = (WINDOW + 63) / 64;
    double *energy = test_doubles(S * N), *block = test_doubles(blocks * H * N);
    double *output = test_doubles(H);
    for (int64_t t = 0; t < WINDOW; t++) {
        for (int64_t channel = 0; channel < S; channel++) {
            const double *mode = s->modes + (t * S + channel) * (N + 1);
            const int64_t h = channel / c->head_dim;
            double y = mode[N];
            for (int64_t n = 0; n < N; n++) {
                energy[channel * N + n] += mode[n] * mode[n];
                block[(t / 64 * H + h) * N + n] += mode[n] * mode[n];
                y += mode[n];
            }
            output[h] += y * y;
        }
    }
    double worst = relative(f, layer, "energy", energy, S * N);
    worst = fmax(worst, relative(f, layer, "energy_blocks", block, blocks * H * N));
    worst = fmax(worst, relative(f, layer, "output_energy", output, H));
    free(energy);
    free(block);
    free(output);
    return worst;
}

/* x_t = e^{ΔA} x_{t−1} + ΔBu, w_t = 1 + e^{2ΔA} w_{t−1}; means over tokens and channels. */
static double moments_error(const fixture *f, int64_t layer, const signals *s)
{
    const ssm_config *c = f->config;
    const int64_t N = c->d_state, H = c->n_heads, P = c->head_dim, S = c->d_ssm;
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(f->subject.model));
    double *state = test_doubles(H * N), *read = test_doubles(H * N);
    double *adjoint = test_doubles(H * N), *delta = test_doubles(H);
    for (int64_t i = 0; i < S * N; i++) {
        const int64_t channel = i / N, n = i % N, h = channel / P;
        const int64_t bc = h / (H / c->n_groups) * N + n;
        const double A = -exp(ssm_tensor_get(&weights->layers[layer].A_log, h));
        double x = 0.0, w = 0.0;
        for (int64_t t = 0; t < WINDOW; t++) {
            const double step = s->delta[t * H + h];
            const double decay = exp(step * A);
            const double reading = s->gate[t * S + channel] * s->C[t * c->n_groups * N + bc];
            x = decay * x + step * s->B[t * c->n_groups * N + bc] * s->u[t * S + channel];
            w = 1.0 + decay * decay * w;
            state[h * N + n] += x * x / (double)(WINDOW * P);
            read[h * N + n] += reading * reading / (double)(WINDOW * P);
            adjoint[h * N + n] += reading * reading * w / (double)(WINDOW * P);
            delta[h] += n == 0 && channel % P == 0 ? step / WINDOW : 0.0;
        }
    }
    double worst = relative(f, layer, "state_moment", state, H * N);
    worst = fmax(worst, relative(f, layer, "read_moment", read, H * N));
    worst = fmax(worst, relative(f, layer, "adjoint_moment", adjoint, H * N));
    worst = fmax(worst, relative(f, layer, "delta_mean", delta, H));
    free(state);
    free(read);
    free(adjoint);
    free(delta);
    return worst;
}

/* The r highest of scores[N], ties to the lower index, as flags. */
static void top(const double *scores, int64_t N, int64_t r, bool *kept)
{
    for (int64_t i = 0; i < N; i++) {
        int64_t above = 0;
        for (int64_t j = 0; j < N; j++) {
            above += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
        }
        kept[i] = above < r;
    }
}

/* Σ_t Σ_channels (Σ of the dropped modes)², sets from scores [S][N]. */
static double dropped(const fixture *f, const signals *s, const double *scores, int64_t r)
{
    const int64_t N = f->config->d_state, S = f->config->d_ssm;
    double total = 0.0;
    for (int64_t channel = 0; channel < S; channel++) {
        bool kept[64];
        top(scores + channel * N, N, r, kept);
        for (int64_t t = 0; t < WINDOW; t++) {
            const double *mode = s->modes + (t * S + channel) * (N + 1);
            double sum = 0.0;
            for (int64_t n = 0; n < N; n++) {
                sum += kept[n] ? 0.0 : mode[n];
            }
            total += sum * sum;
        }
    }
    return total;
}

/* The mean Jaccard distance between the top sets of the first block and of the rest. */
static double null_distance(const fixture *f, const signals *s, int64_t r)
{
    const int64_t N = f->config->d_state, S = f->config->d_ssm;
    double total = 0.0;
    for (int64_t channel = 0; channel < S; channel++) {
        double half[2][64] = {{0}};
        bool kept[2][64];
        for (int64_t t = 0; t < WINDOW; t++) {
            const double *mode = s->modes + (t * S + channel) * (N + 1);
            for (int64_t n = 0; n < N; n++) {
                half[t < 64 ? 0 : 1][n] += mode[n] * mode[n];
            }
        }
        int64_t common = 0;
        top(half[0], N, r, kept[0]);
        top(half[1], N, r, kept[1]);
        for (int64_t n = 0; n < N; n++) {
            common += kept[0][n] && kept[1][n];
        }
        total += 1.0 - (double)common / (double)(2 * r - common);
    }
    return total / (double)S;
}

static double channel_errors(const fixture *f, int64_t layer, const signals *s)
{
    const int64_t N = f->config->d_state, S = f->config->d_ssm;
    const ssm_recording_info *info = ssm_recording_get_info(f->recording);
    double *own = recorded(f, f->window, layer, "energy", S * N);
    double *mean = test_doubles(S * N);
    for (int64_t w = 0; w < DOMAINS * CALIBRATION; w++) {
        assert_true(ssm_recording_get_window(f->recording, w)->role == SSM_ROLE_CALIBRATION);
        double *energy = recorded(f, w, layer, "energy", S * N);
        for (int64_t i = 0; i < S * N; i++) {
            mean[i] += energy[i];
        }
        free(energy);
    }
    double *fixed = recorded(f, f->window, layer, "channel_error_static", info->n_budgets);
    double *diag = recorded(f, f->window, layer, "channel_error_diag", info->n_budgets);
    double *null = recorded(f, f->window, layer, "channel_churn_null", info->n_budgets);
    double worst = 0.0;
    for (int64_t b = 0; b < info->n_budgets; b++) {
        const double want_fixed = dropped(f, s, mean, info->budgets[b]);
        const double want_diag = dropped(f, s, own, info->budgets[b]);
        const double want_null = null_distance(f, s, info->budgets[b]);
        worst = fmax(worst, fabs(fixed[b] - want_fixed) / want_fixed);
        worst = fmax(worst, fabs(diag[b] - want_diag) / want_diag);
        /* one channel's set may tip over where two energies are equal to seven digits */
        assert_true(fabs(null[b] - want_null) <= 2.0 / (double)S);
    }
    free(own);
    free(mean);
    free(fixed);
    free(diag);
    free(null);
    return worst;
}

static void the_recording_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        fixture f = fixture_create(i);
        double gram = 0.0, means = 0.0, errors = 0.0;
        const ssm_recording_info *info = ssm_recording_get_info(f.recording);
        for (int64_t k = 0; k < info->n_recorded; k++) {
            const int64_t layer = info->layers[k];
            signals s = signals_of(&f, layer);
            gram = fmax(gram, gram_error(&f, layer, &s));
            means = fmax(means, energies_error(&f, layer, &s));
            means = fmax(means, moments_error(&f, layer, &s));
            errors = fmax(errors, channel_errors(&f, layer, &s));
            signals_free(&s);
        }
        printf("%s: Gram %.2e (bound %.0e), means %.2e (%.0e), errors of sets %.2e (%.0e)\n",
               models[i], gram, bound_gram, means, bound_means, errors, bound_errors);
        assert_true(gram <= bound_gram);
        assert_true(means <= bound_means);
        assert_true(errors <= bound_errors);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recording_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
