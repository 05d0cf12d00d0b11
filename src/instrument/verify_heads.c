/* instrument/verify_heads.c: verify for Mamba-2.
 *
 * The same two checks as verify.c, at the input of the gated norm. (a) The summands' float64 sum
 * against what the norm was given; and, because it is what the model goes on with, the norm of that
 * sum in float64 against the norm's output. (b) One layer pruned at a time with the static sets of
 * its channels, whose error the recorded pass measures (head_errors.h), and with those of its
 * heads, whose error follows from the head's Gram. The actual error is that of a second, masked
 * pass; its size after the norm is reported beside it: the norm couples modes, so that it is not
 * predicted. */
#include "instrument/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "instrument/accumulator.h"
#include "instrument/head_errors.h"
#include "recording/energies.h"
#include "reference/reference.h"

enum { SCOPES = 2 };
static const ssm_scope scopes[SCOPES] = {SSM_SCOPE_CHANNEL, SSM_SCOPE_HEAD};

#define POINT(name) (UINT64_C(1) << SSM_TAP_##name)

typedef struct heads_verifier {
    const ssm__verification *of;
    const ssm_model *model;
    const ssm_config *config;
    int64_t tokens, n_budgets;
    ssm_session *session;
    ssm__head_sums sums;     /* first without Gram, then with it */
    ssm__head_errors errors; /* of the channels' static sets, one a budget */
    bool has_sums, has_errors;
    ssm__mode_sink sink;
    ssm_observer observer;
    ssm_mask *masks[SCOPES]; /* [n_budgets] static sets */
    uint16_t *ranks;         /* [n_layers][S][N] of the channels' */
    double *energy[SCOPES];  /* [n_layers][S or H][N] summed over windows */
    int32_t *order;          /* [N] */
    /* one layer's signals over a window */
    float *layer_in, *next;       /* [T][D] stream into and out of the layer */
    float *mixer_in, *mixer_out;  /* [T][D] */
    float *v, *v_pruned;          /* [T][S] the norm's input */
    float *y, *y_pruned;          /* [T][S] the norm's output */
    float *capture_v, *capture_y; /* where they go now */
    float *in_proj;               /* [T][rows], where the gate follows the norm */
    double *summed;               /* [T][S] the summands' sum */
    double *wide_in, *wide_out;   /* [T][max(D, S)] */
} heads_verifier;

/* ---- what the passes see --------------------------------------------------------------------- */

static void enter(void *context, int64_t layer, int64_t group, int thread,
                  ssm__head_scan_args *args)
{
    const heads_verifier *v = context;
    v->sums.sink.enter_head(v->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__head_scan_args *args)
{
    const heads_verifier *v = context;
    const ssm_config *c = v->config;
    const int64_t terms = args->d_state + 1;
    const int64_t within = group % v->sums.head_groups * SSM__LANES; /* channel of its head */
    const int64_t first = group / v->sums.head_groups * c->head_dim + within;
    const int64_t lanes = ssm__smaller(SSM__LANES, c->head_dim - within);
    for (int64_t t = 0; t < args->tokens; t++) {
        for (int64_t lane = 0; lane < lanes; lane++) {
            double sum = 0.0;
            for (int64_t i = 0; i < terms; i++) {
                sum += (double)args->modes[(t * terms + i) * SSM__LANES + lane];
            }
            v->summed[(position + t) * c->d_ssm + first + lane] = sum;
        }
    }
    ssm__head_errors_add(&v->errors, group, position, v->tokens, args);
    v->sums.sink.leave_head(v->sums.sink.context, layer, group, position, args);
}

/* Layers of attention go through the same session; their in_proj may be wider than the buffer. */
static void capture(void *context, const ssm_tap *tap)
{
    heads_verifier *v = context;
    if (!ssm__has_states(v->model, tap->layer)) {
        return;
    }
    float *into = tap->point == SSM_TAP_MIXER_IN    ? v->mixer_in
                  : tap->point == SSM_TAP_MIXER_OUT ? v->mixer_out
                  : tap->point == SSM_TAP_IN_PROJ   ? v->in_proj
                  : tap->point == SSM_TAP_SSM_OUT   ? v->capture_v
                                                    : v->capture_y;
    ssm_tap_copy(tap, into + tap->position * tap->width);
}

/* ---- preparation ----------------------------------------------------------------------------- */

/* [rows][width], with room for one more; NULL when out of memory. */
static void *take(int64_t rows, int64_t width, size_t bytes)
{
    return calloc((size_t)(rows * width) + 1, bytes);
}

static bool take_buffers(heads_verifier *v)
{
    const ssm_config *c = v->config;
    const int64_t T = v->tokens, D = c->d_model, S = c->d_ssm, N = c->d_state;
    const int64_t wide = D > S ? D : S;
    const int64_t rows = 2 * c->d_inner + 2 * c->n_groups * N + c->n_heads;
    float **floats[] = {&v->layer_in, &v->next, &v->mixer_in, &v->mixer_out};
    float **channels[] = {&v->v, &v->v_pruned, &v->y, &v->y_pruned};
    bool taken = true;
    for (int i = 0; i < 4; i++) {
        *floats[i] = take(T, D, sizeof(float));
        *channels[i] = take(T, S, sizeof(float));
        taken = taken && *floats[i] && *channels[i];
    }
    v->in_proj = take(c->norm_before_gate ? T : 0, rows, sizeof(float));
    v->summed = take(T, S, sizeof(double));
    v->wide_in = take(T, wide, sizeof(double));
    v->wide_out = take(T, wide, sizeof(double));
    v->order = take(N, 1, sizeof *v->order);
    v->ranks = take(c->n_layers * S, N, sizeof *v->ranks);
    v->energy[0] = take(c->n_layers * S, N, sizeof(double));
    v->energy[1] = take(c->n_layers * c->n_heads, N, sizeof(double));
    v->masks[0] = take(v->n_budgets, 1, sizeof(ssm_mask));
    v->masks[1] = take(v->n_budgets, 1, sizeof(ssm_mask));
    ssm_verify_result *out = v->of->out;
    const int64_t cases = v->of->options->windows * c->n_layers;
    out->reconstruction = take(cases, 1, sizeof *out->reconstruction);
    out->deployment = take(cases, SCOPES * v->n_budgets, sizeof *out->deployment);
    return taken && v->in_proj && v->summed && v->wide_in && v->wide_out && v->order && v->ranks &&
           v->energy[0] && v->energy[1] && v->masks[0] && v->masks[1] && out->reconstruction &&
           out->deployment;
}

static ssm_status prepare(heads_verifier *v, ssm_error *err)
{
    const ssm_verify_options *o = v->of->options;
    if (!take_buffers(v)) {
        return ssm__fail_memory(err, "one layer's signals",
                                (size_t)(v->tokens * v->config->d_ssm) * sizeof(float));
    }
    const ssm_session_options session = {
        .pool = o->pool, .max_chunk = v->tokens, .exact_chunks = o->exact_chunks};
    SSM__TRY(ssm_session_create(v->model, &session, &v->session, err));
    SSM__TRY(ssm__head_sums_create(v->model, v->tokens, false, NULL, o->pool, &v->sums, err));
    v->has_sums = true;
    return SSM_STATUS_OK;
}

/* ---- first pass: the static sets ------------------------------------------------------------- */

/* A layer's energies of one window join those of the others. */
static void add_energies(heads_verifier *v, int64_t layer)
{
    const ssm_config *c = v->config;
    const int64_t N = c->d_state;
    double *channels = v->energy[0] + layer * c->d_ssm * N;
    double *heads = v->energy[1] + layer * c->n_heads * N;
    for (int64_t i = 0; i < c->d_ssm * N; i++) {
        const double energy = ssm__head_sums_at(&v->sums, i % N, i / N);
        channels[i] += energy;
        heads[i / N / c->head_dim * N + i % N] += energy;
    }
    ssm__head_sums_begin(&v->sums, v->tokens);
}

static ssm_status gather_energies(heads_verifier *v, ssm_error *err)
{
    const ssm_progress *p = v->of->options->progress;
    for (int64_t w = 0; w < v->of->options->windows; w++) {
        ssm_session_reset(v->session);
        ssm__session_embed(v->session, ssm__verify_ids(v->of, w), v->tokens);
        ssm__head_sums_begin(&v->sums, v->tokens);
        ssm__session_set_sink(v->session, &v->sums.sink);
        for (int64_t layer = 0; layer < v->config->n_layers; layer++) {
            SSM__TRY(ssm__session_layer(v->session, layer, v->tokens, err));
            if (ssm__has_states(v->model, layer)) {
                add_energies(v, layer);
            }
        }
        ssm__session_set_sink(v->session, NULL);
        if (p && !p->report(p->context, "ranking", w + 1, v->of->options->windows, "windows")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "stopped after %lld windows of the first pass", (long long)w + 1);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status choose_static_sets(heads_verifier *v, ssm_error *err)
{
    const ssm_config *c = v->config;
    const int64_t rows[SCOPES] = {c->d_ssm, c->n_heads};
    for (int s = 0; s < SCOPES; s++) {
        for (int64_t b = 0; b < v->n_budgets; b++) {
            ssm_mask *mask = &v->masks[s][b];
            SSM__TRY(ssm_mask_create(c->n_layers, rows[s], c->d_state, mask, err));
            ssm__keep_top(v->energy[s], c->n_layers * rows[s], c->d_state, v->of->budgets[b],
                          v->order, mask->keep);
        }
    }
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        const int64_t at = layer * c->d_ssm * c->d_state;
        ssm__head_ranks(c, v->energy[0] + at, v->order, v->ranks + at);
    }
    return SSM_STATUS_OK;
}

/* Sums with Gram take the place of those without. */
static ssm_status prepare_second(heads_verifier *v, ssm_error *err)
{
    const ssm_config *c = v->config;
    ssm__head_sums_free(&v->sums);
    v->has_sums = false;
    SSM__TRY(ssm__head_sums_create(v->model, v->tokens, true, NULL, v->of->options->pool, &v->sums,
                                   err));
    v->has_sums = true;
    SSM__TRY(ssm__head_errors_create(&v->sums, v->n_budgets, &v->errors, err));
    v->has_errors = true;
    v->sink = (ssm__mode_sink){
        .context = v, .enter_head = enter, .leave_head = leave, .layers = v->sums.recorded};
    v->observer =
        (ssm_observer){.context = v,
                       .points = POINT(MIXER_IN) | POINT(MIXER_OUT) | POINT(SSM_OUT) |
                                 POINT(INNER_NORM) | (c->norm_before_gate ? POINT(IN_PROJ) : 0),
                       .read = capture};
    return SSM_STATUS_OK;
}

/* ---- second pass: the checks ----------------------------------------------------------------- */

/* ‖a − b‖ / ‖b‖ of float32 a and float64 b. */
static double distance_to(const float *a, const double *b, int64_t count)
{
    double error = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a[i] - b[i];
        error += d * d;
        norm += b[i] * b[i];
    }
    return ssm__relative(error, norm);
}

static ssm_status against_reference(heads_verifier *v, int64_t layer, double *rel_l2,
                                    ssm_error *err)
{
    const int64_t count = v->tokens * v->config->d_model;
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(v->model));
    for (int64_t i = 0; i < count; i++) {
        v->wide_in[i] = (double)v->mixer_in[i];
    }
    SSM__TRY(ssm__ref_mamba2_mixer(v->config, &weights->layers[layer], NULL, v->wide_in, v->tokens,
                                   v->wide_out, NULL, NULL, err));
    *rel_l2 = distance_to(v->mixer_out, v->wide_out, count);
    return SSM_STATUS_OK;
}

/* The gated norm in float64 of the summands' sum against the norm's output. */
static double after_norm(heads_verifier *v, int64_t layer)
{
    const ssm_config *c = v->config;
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(v->model));
    const int64_t S = c->d_ssm;
    const int64_t rows = 2 * c->d_inner + 2 * c->n_groups * c->d_state + c->n_heads;
    if (!c->gated_norm) {
        return (double)NAN;
    }
    for (int64_t i = 0; c->norm_before_gate && i < v->tokens * S; i++) {
        const int64_t row = 2 * (c->d_inner - S) + i % S; /* z behind z0 and x0 */
        v->wide_in[i] = (double)v->in_proj[i / S * rows + row];
    }
    ssm__ref_gated_norm(c, &weights->layers[layer].gate_norm, v->summed, v->wide_in, v->wide_out,
                        v->tokens);
    return distance_to(v->y, v->wide_out, v->tokens * S);
}

/* Σ_heads Σ_{i,j∉S} G_ij. */
static double predicted_by_gram(const heads_verifier *v, int64_t layer, const ssm_mask *mask)
{
    const int64_t H = v->config->n_heads, N = v->config->d_state;
    double total = 0.0;
    for (int64_t h = 0; h < H; h++) {
        const uint8_t *keep = mask->keep + (layer * H + h) * N;
        const double *gram = v->sums.gram + h * ssm__rows_gram_count(N);
        for (int64_t i = 0; i < N; i++) {
            for (int64_t j = i; !keep[i] && j < N; j++) {
                if (!keep[j]) {
                    const double g = gram[ssm__rows_gram_at(i, j, N)];
                    total += i == j ? g : 2.0 * g;
                }
            }
        }
    }
    return total;
}

/* The layer again on the same input and from the zero state, pruned. */
static ssm_status deploy(heads_verifier *v, int64_t layer, int64_t window, int scope, int64_t b,
                         ssm_error *err)
{
    const int64_t count = v->tokens * v->config->d_ssm;
    const ssm_mask *mask = &v->masks[scope][b];
    SSM__TRY(ssm_session_set_mask(v->session, mask, layer, err));
    memcpy(v->session->stream, v->layer_in,
           (size_t)(v->tokens * v->config->d_model) * sizeof(float));
    ssm__session_reset_layer(v->session, layer);
    v->capture_v = v->v_pruned;
    v->capture_y = v->y_pruned;
    /* By the recurrence, as the recorded pass: the difference is the dropped modes', not the
     * chunked form's rounding. */
    const bool exact_chunks = v->session->exact_chunks;
    v->session->exact_chunks = true;
    const ssm_status status = ssm__session_layer(v->session, layer, v->tokens, err);
    v->session->exact_chunks = exact_chunks;
    SSM__TRY(status);
    SSM__TRY(ssm_session_set_mask(v->session, NULL, -1, err));

    ssm_verify_deployment *d = &v->of->out->deployment[v->of->out->n_deployment++];
    *d = (ssm_verify_deployment){.layer = layer,
                                 .window = window,
                                 .budget = v->of->budgets[b],
                                 .scope = scopes[scope],
                                 .actual = ssm__square_distance(v->v, v->v_pruned, count),
                                 .error_after_norm = (double)NAN};
    d->predicted = scopes[scope] == SSM_SCOPE_HEAD ? predicted_by_gram(v, layer, mask)
                                                   : ssm__head_errors_total(&v->errors, b);
    d->relative_deviation =
        d->predicted > 0.0 ? fabs(d->actual - d->predicted) / d->predicted : d->actual;
    d->error = ssm__relative(d->actual, ssm__square_norm(v->v, count));
    if (v->config->gated_norm) {
        d->error_after_norm = ssm__relative(ssm__square_distance(v->y, v->y_pruned, count),
                                            ssm__square_norm(v->y, count));
    }
    return SSM_STATUS_OK;
}

static ssm_status run_recorded(heads_verifier *v, int64_t layer, ssm_error *err)
{
    const ssm_config *c = v->config;
    for (int64_t b = 0; b < v->n_budgets; b++) {
        ssm__head_errors_keep(&v->errors, b, v->ranks + layer * c->d_ssm * c->d_state,
                              v->of->budgets[b]);
    }
    ssm__head_errors_begin(&v->errors);
    ssm__head_sums_begin(&v->sums, v->tokens);
    v->capture_v = v->v;
    v->capture_y = v->y;
    ssm__session_set_sink(v->session, &v->sink);
    const ssm_status status = ssm__session_layer(v->session, layer, v->tokens, err);
    ssm__session_set_sink(v->session, NULL);
    return status;
}

/* Layers without states only move the stream on. */
static ssm_status verify_layer(void *context, int64_t layer, int64_t window, ssm_error *err)
{
    heads_verifier *v = context;
    const size_t stream_bytes = (size_t)(v->tokens * v->config->d_model) * sizeof(float);
    if (!ssm__has_states(v->model, layer)) {
        return ssm__session_layer(v->session, layer, v->tokens, err);
    }
    memcpy(v->layer_in, v->session->stream, stream_bytes);
    SSM__TRY(run_recorded(v, layer, err));
    memcpy(v->next, v->session->stream, stream_bytes);

    ssm_verify_reconstruction *r = &v->of->out->reconstruction[v->of->out->n_reconstruction++];
    *r = (ssm_verify_reconstruction){.layer = layer, .window = window};
    r->rel_l2 = distance_to(v->v, v->summed, v->tokens * v->config->d_ssm);
    r->rel_l2_after_norm = after_norm(v, layer);
    SSM__TRY(against_reference(v, layer, &r->rel_l2_reference, err));

    v->observer.points &= POINT(SSM_OUT) | POINT(INNER_NORM);
    for (int scope = 0; scope < SCOPES; scope++) {
        for (int64_t b = 0; b < v->n_budgets; b++) {
            SSM__TRY(deploy(v, layer, window, scope, b, err));
        }
    }
    v->observer.points |=
        POINT(MIXER_IN) | POINT(MIXER_OUT) | (v->config->norm_before_gate ? POINT(IN_PROJ) : 0);
    memcpy(v->session->stream, v->next, stream_bytes);
    return SSM_STATUS_OK;
}

static void release(heads_verifier *v)
{
    ssm_session_free(v->session);
    if (v->has_errors) {
        ssm__head_errors_free(&v->errors);
    }
    if (v->has_sums) {
        ssm__head_sums_free(&v->sums);
    }
    for (int s = 0; s < SCOPES; s++) {
        for (int64_t b = 0; v->masks[s] && b < v->n_budgets; b++) {
            ssm_mask_free(&v->masks[s][b]);
        }
        free(v->masks[s]);
        free(v->energy[s]);
    }
    void *all[] = {v->ranks,     v->order,  v->layer_in, v->next,    v->mixer_in,
                   v->mixer_out, v->v,      v->v_pruned, v->y,       v->y_pruned,
                   v->in_proj,   v->summed, v->wide_in,  v->wide_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static ssm_status verify_all(heads_verifier *v, ssm_error *err)
{
    SSM__TRY(prepare(v, err));
    SSM__TRY(gather_energies(v, err));
    SSM__TRY(choose_static_sets(v, err));
    SSM__TRY(prepare_second(v, err));
    ssm_session_set_observer(v->session, &v->observer);
    return ssm__verify_windows(v->of, v->session, verify_layer, v, err);
}

ssm_status ssm__verify_heads(const ssm__verification *verification, ssm_error *err)
{
    heads_verifier v = {.of = verification,
                        .model = verification->model,
                        .config = ssm_model_config(verification->model),
                        .tokens = verification->options->window,
                        .n_budgets = verification->n_budgets};
    const ssm_status status = verify_all(&v, err);
    release(&v);
    return status;
}
