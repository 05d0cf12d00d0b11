/* instrument/verify.c: how far the recorded quantities are from what the running model does.
 *
 * (a) Reconstruction. rel_l2: float64 sum of the recorded summands m_0 … m_{N−1}, f against the y
 * that was passed to out_proj. rel_l2_reference: the mixer's output against the float64 reference
 * mixer on the same captured input. (b) Deployment. One layer is pruned at a time with the static
 * set; `predicted` is the quadratic form of its Gram, `actual` is Σ (y − ŷ)² with ŷ from a second,
 * masked forward pass of that layer. Static sets are ranked by mean energy over the verified
 * windows, which a first pass gathers. Mamba-2: verify_heads.c.
 */
#include <ssmscope/instrument.h>
#include <ssmscope/recording.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/quantile.h"
#include "instrument/accumulator.h"
#include "instrument/verify.h"
#include "recording/energies.h"
#include "recording/schema.h"
#include "reference/reference.h"

/* The bounds of `passed` (docs/instrument.md), by family where the papers and the lengths of the
 * chains of roundings differ. */
static const double bound_reconstruction[] = {
    [SSM_FAMILY_MAMBA] = 2.3e-7, [SSM_FAMILY_FALCON_MAMBA] = 2.6e-7, [SSM_FAMILY_MAMBA2] = 1e-6};
static const double bound_reference[] = {
    [SSM_FAMILY_MAMBA] = 1e-6, [SSM_FAMILY_FALCON_MAMBA] = 2e-6, [SSM_FAMILY_MAMBA2] = 2e-6};
static const double bound_deployment_median = 1e-6;
static const double bound_deployment_max = 3.6e-5;

typedef struct verifier {
    const ssm__verification *of;
    const ssm_model *model;
    const ssm_config *config;
    const ssm_verify_options *options;
    const int64_t *budgets;
    int64_t n_budgets;
    ssm_session *session;
    ssm__accumulator energies; /* of the first pass, without Gram */
    ssm__accumulator sums;     /* of the second, with Gram */
    bool has_energies, has_sums;
    ssm_mask *masks; /* [n_budgets] static sets */
    ssm__mode_sink sink;
    ssm_observer observer;
    /* one layer's signals over a window */
    float *layer_in;                      /* [T][D] stream into the layer */
    float *mixer_in, *mixer_out;          /* [T][D] */
    float *y, *y_pruned;                  /* [T][E] */
    float *capture_y;                     /* where SSM_OUT goes now */
    double *reconstruction_error;         /* [G] Σ (Σ m + f − y)² */
    double *mean_energy;                  /* [n_layers][E][N] summed over windows */
    int32_t *order;                       /* [N] */
    double *reference_in, *reference_out; /* [T][D] */
    ssm_verify_result *out;
} verifier;

/* ---- what the passes see --------------------------------------------------------------------- */

static void enter(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args)
{
    const verifier *v = context;
    v->sums.sink.enter(v->sums.sink.context, layer, group, thread, args);
}

/* Adds the squared difference between the summands' float64 sum and y, then records as usual. */
static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args)
{
    const verifier *v = context;
    const int64_t terms = args->d_state + 1;
    double error = 0.0;
    for (int64_t t = 0; t < args->tokens; t++) {
        for (int64_t lane = 0; lane < SSM__LANES; lane++) {
            double sum = 0.0;
            for (int64_t i = 0; i < terms; i++) {
                sum += (double)args->modes[(t * terms + i) * SSM__LANES + lane];
            }
            const double difference = sum - (double)args->y[t * SSM__LANES + lane];
            error += difference * difference;
        }
    }
    v->reconstruction_error[group] += error;
    v->sums.sink.leave(v->sums.sink.context, layer, group, position, args);
}

static void capture(void *context, const ssm_tap *tap)
{
    verifier *v = context;
    float *into = tap->point == SSM_TAP_MIXER_IN    ? v->mixer_in
                  : tap->point == SSM_TAP_MIXER_OUT ? v->mixer_out
                                                    : v->capture_y;
    ssm_tap_copy(tap, into + tap->position * tap->width);
}

/* ---- preparation ----------------------------------------------------------------------------- */

static double *doubles(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static float *floats(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(float));
}

static ssm_status prepare_buffers(verifier *v, ssm_error *err)
{
    const ssm_config *c = v->config;
    const int64_t T = v->options->window;
    v->layer_in = floats(T * c->d_model);
    v->mixer_in = floats(T * c->d_model);
    v->mixer_out = floats(T * c->d_model);
    v->y = floats(T * c->d_inner);
    v->y_pruned = floats(T * c->d_inner);
    v->reconstruction_error = doubles(v->model->n_groups16);
    v->mean_energy = doubles(c->n_layers * c->d_inner * c->d_state);
    v->order = calloc((size_t)c->d_state, sizeof *v->order);
    v->reference_in = doubles(T * c->d_model);
    v->reference_out = doubles(T * c->d_model);
    v->masks = calloc((size_t)v->n_budgets, sizeof *v->masks);
    const int64_t cases = v->options->windows * c->n_layers;
    v->out->reconstruction = calloc((size_t)cases + 1, sizeof *v->out->reconstruction);
    v->out->deployment = calloc((size_t)(cases * v->n_budgets) + 1, sizeof *v->out->deployment);
    if (!v->layer_in || !v->mixer_in || !v->mixer_out || !v->y || !v->y_pruned ||
        !v->reconstruction_error || !v->mean_energy || !v->order || !v->reference_in ||
        !v->reference_out || !v->masks || !v->out->reconstruction || !v->out->deployment) {
        return ssm__fail_memory(err, "one layer's signals",
                                (size_t)(T * c->d_inner) * sizeof(float));
    }
    return SSM_STATUS_OK;
}

static ssm_status prepare(verifier *v, ssm_error *err)
{
    SSM__TRY(prepare_buffers(v, err));
    const ssm_session_options session = {.pool = v->options->pool,
                                         .max_chunk = v->options->window,
                                         .exact_chunks = v->options->exact_chunks};
    SSM__TRY(ssm_session_create(v->model, &session, &v->session, err));
    ssm__accumulator_options sums = {
        .window = v->options->window, .whole_blocks = true, .pool = v->options->pool};
    SSM__TRY(ssm__accumulator_create(v->model, &sums, &v->energies, err));
    v->has_energies = true;
    sums.gram = true;
    sums.one_layer = true;
    SSM__TRY(ssm__accumulator_create(v->model, &sums, &v->sums, err));
    v->has_sums = true;
    ssm__accumulator_begin(&v->sums, v->options->window);
    v->sink =
        (ssm__mode_sink){.context = v, .enter = enter, .leave = leave, .layers = v->sums.recorded};
    v->observer = (ssm_observer){.context = v,
                                 .points = 1u << SSM_TAP_MIXER_IN | 1u << SSM_TAP_MIXER_OUT |
                                           1u << SSM_TAP_SSM_OUT,
                                 .read = capture};
    return SSM_STATUS_OK;
}

const int32_t *ssm__verify_ids(const ssm__verification *v, int64_t w)
{
    const int64_t T = v->options->window;
    const ssm_domain *domain = &v->corpus->domains[w % v->corpus->n_domains];
    return domain->ids.data + w / v->corpus->n_domains * T;
}

ssm_status ssm__verify_windows(const ssm__verification *v, ssm_session *session,
                               ssm__verify_layer_fn *verify_layer, void *context, ssm_error *err)
{
    const ssm_progress *p = v->options->progress;
    const int64_t n_layers = ssm_model_config(v->model)->n_layers;
    const int64_t total = v->options->windows * n_layers;
    for (int64_t w = 0; w < v->options->windows; w++) {
        ssm_session_reset(session);
        ssm__session_embed(session, ssm__verify_ids(v, w), v->options->window);
        for (int64_t layer = 0; layer < n_layers; layer++) {
            SSM__TRY(verify_layer(context, layer, w, err));
            if (p &&
                !p->report(p->context, "verifying", w * n_layers + layer + 1, total, "layers")) {
                return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                                 "stopped in window %lld, layer %lld", (long long)w,
                                 (long long)layer);
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_options(const ssm__verification *v, ssm_error *err)
{
    const ssm_verify_options *o = v->options;
    if (o->window < 1 || o->windows < 1 || v->corpus->n_domains < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "nothing to verify: %lld windows of %lld tokens in %lld domains",
                         (long long)o->windows, (long long)o->window,
                         (long long)v->corpus->n_domains);
    }
    for (int64_t w = 0; w < o->windows; w++) {
        const ssm_domain *domain = &v->corpus->domains[w % v->corpus->n_domains];
        const int64_t needed = w / v->corpus->n_domains + 1;
        if (domain->ids.count / o->window < needed) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "domain %s has %lld tokens, %lld windows of %lld tokens are needed "
                             "for %lld windows over %lld domains",
                             domain->name, (long long)domain->ids.count, (long long)needed,
                             (long long)o->window, (long long)o->windows,
                             (long long)v->corpus->n_domains);
        }
    }
    return ssm__check_budgets(v->budgets, v->n_budgets, ssm_model_config(v->model)->d_state, err);
}

/* ---- first pass: the static sets ------------------------------------------------------------- */

static ssm_status gather_energies(verifier *v, ssm_error *err)
{
    const ssm_config *c = v->config;
    const ssm_progress *p = v->options->progress;
    ssm__session_set_sink(v->session, &v->energies.sink);
    for (int64_t w = 0; w < v->options->windows; w++) {
        ssm_session_reset(v->session);
        ssm__accumulator_begin(&v->energies, v->options->window);
        SSM__TRY(ssm_session_forward(v->session, ssm__verify_ids(v->of, w), v->options->window,
                                     SSM_LOGITS_NONE, NULL, NULL, err));
        for (int64_t layer = 0; layer < c->n_layers; layer++) {
            for (int64_t h = 0; ssm__has_states(v->model, layer) && h < c->d_inner; h++) {
                double *e = v->mean_energy + (layer * c->d_inner + h) * c->d_state;
                for (int64_t n = 0; n < c->d_state; n++) {
                    e[n] += ssm__accumulator_moment(&v->energies, layer,
                                                    v->energies.rows.energy + n, h);
                }
            }
        }
        if (p && !p->report(p->context, "ranking", w + 1, v->options->windows, "windows")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "stopped after %lld windows of the first pass", (long long)w + 1);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status choose_static_sets(verifier *v, ssm_error *err)
{
    const ssm_config *c = v->config;
    for (int64_t b = 0; b < v->n_budgets; b++) {
        ssm_mask *mask = &v->masks[b];
        SSM__TRY(ssm_mask_create(c->n_layers, c->d_inner, c->d_state, mask, err));
        ssm__keep_top(v->mean_energy, c->n_layers * c->d_inner, c->d_state, v->budgets[b], v->order,
                      mask->keep);
    }
    return SSM_STATUS_OK;
}

/* ---- second pass: the checks ----------------------------------------------------------------- */

double ssm__square_distance(const float *a, const float *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum;
}

double ssm__square_norm(const float *a, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)a[i];
    }
    return sum;
}

double ssm__relative(double a, double b)
{
    return a == 0.0 ? 0.0 : sqrt(a / b);
}

static ssm_status against_reference(verifier *v, int64_t layer, double *rel_l2, ssm_error *err)
{
    const int64_t count = v->options->window * v->config->d_model;
    for (int64_t i = 0; i < count; i++) {
        v->reference_in[i] = (double)v->mixer_in[i];
    }
    const ssm__weights *weights = ssm__checkpoint_weights(ssm_model_checkpoint(v->model));
    SSM__TRY(ssm__ref_mamba_mixer(v->config, &weights->layers[layer], NULL, v->reference_in,
                                  v->options->window, v->reference_out, NULL, NULL, err));
    double error = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)v->mixer_out[i] - v->reference_out[i];
        error += d * d;
        norm += v->reference_out[i] * v->reference_out[i];
    }
    *rel_l2 = ssm__relative(error, norm);
    return SSM_STATUS_OK;
}

/* Σ_h Σ_{i,j∉S} G_{h,ij}. */
static double predicted_error(const verifier *v, int64_t layer, const ssm_mask *mask)
{
    const ssm_config *c = v->config;
    double total = 0.0;
    for (int64_t h = 0; h < c->d_inner; h++) {
        const uint8_t *keep = mask->keep + (layer * c->d_inner + h) * c->d_state;
        for (int64_t i = 0; i < c->d_state; i++) {
            for (int64_t j = i; !keep[i] && j < c->d_state; j++) {
                if (!keep[j]) {
                    const double g = ssm__accumulator_gram(&v->sums, layer, h, i, j);
                    total += i == j ? g : 2.0 * g;
                }
            }
        }
    }
    return total;
}

/* The layer again on the same input and from the zero state, pruned; y goes to y_pruned. */
static ssm_status deploy(verifier *v, int64_t layer, int64_t budget_index, int64_t window,
                         ssm_error *err)
{
    const int64_t T = v->options->window;
    const ssm_mask *mask = &v->masks[budget_index];
    SSM__TRY(ssm_session_set_mask(v->session, mask, layer, err));
    memcpy(v->session->stream, v->layer_in, (size_t)(T * v->config->d_model) * sizeof(float));
    ssm__session_reset_layer(v->session, layer);
    v->capture_y = v->y_pruned;
    SSM__TRY(ssm__session_layer(v->session, layer, T, err));
    SSM__TRY(ssm_session_set_mask(v->session, NULL, -1, err));

    ssm_verify_deployment *d = &v->out->deployment[v->out->n_deployment++];
    *d = (ssm_verify_deployment){
        .layer = layer,
        .window = window,
        .budget = v->budgets[budget_index],
        .scope = SSM_SCOPE_CHANNEL,
        .error_after_norm = NAN,
        .predicted = predicted_error(v, layer, mask),
        .actual = ssm__square_distance(v->y, v->y_pruned, T * v->config->d_inner)};
    d->error = ssm__relative(d->actual, ssm__square_norm(v->y, T * v->config->d_inner));
    d->relative_deviation =
        d->predicted > 0.0 ? fabs(d->actual - d->predicted) / d->predicted : d->actual;
    return SSM_STATUS_OK;
}

/* Layers without states only move the stream on. */
static ssm_status verify_layer(void *context, int64_t layer, int64_t window, ssm_error *err)
{
    verifier *v = context;
    const ssm_config *c = v->config;
    const int64_t T = v->options->window;
    const size_t stream_bytes = (size_t)(T * c->d_model) * sizeof(float);
    if (!ssm__has_states(v->model, layer)) {
        return ssm__session_layer(v->session, layer, T, err);
    }
    memcpy(v->layer_in, v->session->stream, stream_bytes);
    memset(v->reconstruction_error, 0, (size_t)v->model->n_groups16 * sizeof(double));
    v->capture_y = v->y;
    ssm__accumulator_begin_layer(&v->sums, layer);
    ssm__session_set_sink(v->session, &v->sink);
    const ssm_status status = ssm__session_layer(v->session, layer, T, err);
    ssm__session_set_sink(v->session, NULL);
    SSM__TRY(status);

    ssm_verify_reconstruction *r = &v->out->reconstruction[v->out->n_reconstruction++];
    *r = (ssm_verify_reconstruction){.layer = layer, .window = window, .rel_l2_after_norm = NAN};
    double error = 0.0;
    for (int64_t g = 0; g < v->model->n_groups16; g++) {
        error += v->reconstruction_error[g];
    }
    r->rel_l2 = ssm__relative(error, ssm__square_norm(v->y, T * c->d_inner));
    SSM__TRY(against_reference(v, layer, &r->rel_l2_reference, err));

    float *next = v->mixer_out; /* free now: keeps the stream after the layer */
    memcpy(next, v->session->stream, stream_bytes);
    v->observer.points = 1u << SSM_TAP_SSM_OUT;
    for (int64_t b = 0; b < v->n_budgets; b++) {
        SSM__TRY(deploy(v, layer, b, window, err));
    }
    v->observer.points |= 1u << SSM_TAP_MIXER_IN | 1u << SSM_TAP_MIXER_OUT;
    memcpy(v->session->stream, next, stream_bytes);
    return SSM_STATUS_OK;
}

/* ---- summary --------------------------------------------------------------------------------- */

/* The larger one; NaN wins, so that it cannot pass a bound. */
static double worst(double value, double so_far)
{
    return isnan(value) || value > so_far ? value : so_far;
}

static ssm_status summarise(ssm_family family, ssm_verify_result *out, ssm_error *err)
{
    for (int64_t i = 0; i < out->n_reconstruction; i++) {
        out->reconstruction_max = worst(out->reconstruction[i].rel_l2, out->reconstruction_max);
        out->reconstruction_reference_max =
            worst(out->reconstruction[i].rel_l2_reference, out->reconstruction_reference_max);
    }
    const int64_t n = out->n_deployment;
    double *sorted = doubles(n);
    if (!sorted) {
        return ssm__fail_memory(err, "the deviations", (size_t)n * sizeof *sorted);
    }
    for (int64_t i = 0; i < n; i++) {
        const double d = out->deployment[i].relative_deviation;
        sorted[i] = isnan(d) ? INFINITY : d;
    }
    ssm__sort(sorted, n);
    if (n > 0) {
        out->deployment_max = sorted[n - 1];
        out->deployment_median = ssm__quantile(sorted, n, 0.5);
    }
    free(sorted);
    out->bound_reconstruction = bound_reconstruction[family];
    out->bound_reference = bound_reference[family];
    out->bound_deployment_median = bound_deployment_median;
    out->bound_deployment_max = bound_deployment_max;
    out->passed = out->reconstruction_max <= out->bound_reconstruction &&
                  out->reconstruction_reference_max <= out->bound_reference &&
                  out->deployment_median <= bound_deployment_median &&
                  out->deployment_max <= bound_deployment_max;
    return SSM_STATUS_OK;
}

static void release(verifier *v)
{
    ssm_session_free(v->session);
    if (v->has_energies) {
        ssm__accumulator_free(&v->energies);
    }
    if (v->has_sums) {
        ssm__accumulator_free(&v->sums);
    }
    for (int64_t b = 0; v->masks && b < v->n_budgets; b++) {
        ssm_mask_free(&v->masks[b]);
    }
    free(v->masks);
    free(v->layer_in);
    free(v->mixer_in);
    free(v->mixer_out);
    free(v->y);
    free(v->y_pruned);
    free(v->reconstruction_error);
    free(v->mean_energy);
    free(v->order);
    free(v->reference_in);
    free(v->reference_out);
}

static ssm_status verify_all(verifier *v, ssm_error *err)
{
    SSM__TRY(ssm__require_states(v->model, err));
    SSM__TRY(check_options(v->of, err));
    if (v->config->family == SSM_FAMILY_MAMBA2) {
        SSM__TRY(ssm__verify_heads(v->of, err));
        return summarise(v->config->family, v->out, err);
    }
    SSM__TRY(prepare(v, err));
    SSM__TRY(gather_energies(v, err));
    SSM__TRY(choose_static_sets(v, err));
    ssm_session_set_observer(v->session, &v->observer);
    SSM__TRY(ssm__verify_windows(v->of, v->session, verify_layer, v, err));
    return summarise(v->config->family, v->out, err);
}

ssm_status ssm_verify(const ssm_model *model, const ssm_corpus *corpus,
                      const ssm_verify_options *options, ssm_verify_result *out, ssm_error *err)
{
    *out = (ssm_verify_result){0};
    int64_t defaults[3];
    ssm__verification of = {.model = model,
                            .corpus = corpus,
                            .options = options,
                            .budgets = options->budgets,
                            .n_budgets = options->n_budgets,
                            .out = out};
    if (!options->budgets) {
        of.n_budgets = ssm_default_budgets(ssm_model_config(model)->d_state, defaults);
        of.budgets = defaults;
    }
    verifier v = {.of = &of,
                  .model = model,
                  .config = ssm_model_config(model),
                  .options = options,
                  .budgets = of.budgets,
                  .n_budgets = of.n_budgets,
                  .out = out};
    const ssm_status status = verify_all(&v, err);
    release(&v);
    if (status != SSM_STATUS_OK) {
        ssm_verify_result_free(out);
    }
    return status;
}

void ssm_verify_result_free(ssm_verify_result *result)
{
    if (result != NULL) {
        free(result->reconstruction);
        free(result->deployment);
        *result = (ssm_verify_result){0};
    }
}
