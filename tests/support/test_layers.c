#include "test_layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/base.h>

#include "test_numbers.h"

ssm_tensor test_parameter_create(test_parameters *all, const char *name, int64_t rows, int64_t cols,
                                 double scale, double **gradient)
{
    assert_true(all->count < TEST_PARAMETERS_MAX);
    test_parameter *parameter = &all->at[all->count++];
    snprintf(parameter->name, sizeof parameter->name, "%s", name);
    parameter->count = rows * (cols > 0 ? cols : 1);
    parameter->values = test_doubles(parameter->count);
    parameter->gradient = test_doubles(parameter->count);
    ssm_rng rng = ssm_rng_create(11, name);
    for (int64_t i = 0; i < parameter->count; i++) {
        parameter->values[i] = scale * ssm_rng_normal(&rng);
    }
    *gradient = parameter->gradient;
    return (ssm_tensor){.name = parameter->name,
                        .dtype = SSM_DTYPE_F64,
                        .n_dims = cols > 0 ? 2 : 1,
                        .dims = {rows, cols},
                        .data = parameter->values,
                        .bytes = (size_t)parameter->count * sizeof(double)};
}

/* Adds slot `field` of w (or of the layer itself) with a scale that keeps activations near 1. */
#define ADD(place, field, rows, cols, scale)                                                       \
    do {                                                                                           \
        char slot_name[64];                                                                        \
        snprintf(slot_name, sizeof slot_name, "%s%s", prefix, #field);                             \
        out->layer.place field =                                                                   \
            test_parameter_create(all, slot_name, (rows), (cols), (scale), &out->gradients.field); \
    } while (0)
#define ADD_SLOT(field, rows, cols, scale) ADD(w., field, rows, cols, scale)
#define ADD_MORE(field, rows, cols, scale) ADD(, field, rows, cols, scale)

static double fan(int64_t in)
{
    return 1.0 / sqrt((double)in);
}

static void add_conv(test_parameters *all, const char *prefix, int64_t width, int64_t taps,
                     const test_layer_options *o, test_layer *out)
{
    if (!o->no_conv) {
        ADD_SLOT(conv1d, width, taps, fan(taps));
        if (!o->no_conv_bias) {
            ADD_SLOT(conv1d_bias, width, 0, 0.3);
        }
    }
}

static void add_projections(test_parameters *all, const char *prefix, const ssm_config *c,
                            int64_t rows, int64_t inner, const test_layer_options *o,
                            test_layer *out)
{
    ADD_SLOT(in_proj, rows, c->d_model, fan(c->d_model));
    ADD_SLOT(out_proj, c->d_model, inner, fan(inner));
    if (o->biases) {
        ADD_SLOT(in_proj_bias, rows, 0, 0.3);
        ADD_SLOT(out_proj_bias, c->d_model, 0, 0.3);
    }
}

static void add_mamba(test_parameters *all, const char *prefix, const ssm_config *c,
                      const test_layer_options *o, test_layer *out)
{
    const int64_t E = c->d_inner, N = c->d_state, R = c->dt_rank;
    add_projections(all, prefix, c, 2 * E, E, o, out);
    add_conv(all, prefix, E, c->d_conv, o, out);
    if (o->fixed) {
        ADD_MORE(B_fixed, N, 0, 1.0);
        ADD_MORE(C_fixed, N, 0, 1.0);
    } else {
        ADD_SLOT(x_proj, R + 2 * N, E, fan(E));
        ADD_SLOT(dt_proj, E, R, fan(R));
    }
    ADD_SLOT(dt_proj_bias, E, 0, 0.5);
    ADD_SLOT(A_log, E, N, 0.5);
    ADD_SLOT(D, E, 0, 1.0);
}

/* Mamba-2, linear attention and GLA. */
static void add_mamba2(test_parameters *all, const char *prefix, const ssm_config *c,
                       ssm__ref_mixer mixer, const test_layer_options *o, test_layer *out)
{
    const int64_t E = c->d_inner, S = c->d_ssm, GN = c->n_groups * c->d_state, H = c->n_heads;
    const int64_t conv = S + (o->fixed ? 0 : 2 * GN);
    const int64_t dt = mixer == SSM__REF_MAMBA2 && !o->fixed ? H : 0;
    add_projections(all, prefix, c, 2 * (E - S) + S + conv + dt, E, o, out);
    add_conv(all, prefix, conv, c->d_conv, o, out);
    if (o->fixed) {
        ADD_MORE(B_fixed, GN, 0, 1.0);
        ADD_MORE(C_fixed, GN, 0, 1.0);
    }
    if (mixer == SSM__REF_MAMBA2) {
        ADD_SLOT(dt_bias, H, 0, 0.5);
        ADD_SLOT(A_log, H, 0, 0.5);
    }
    if (mixer == SSM__REF_GLA) {
        ADD_MORE(gate_down, o->gate_rank, c->d_model, fan(c->d_model));
        ADD_MORE(gate_up, o->gate_groups * c->d_state, o->gate_rank, fan(o->gate_rank));
        ADD_MORE(gate_bias, o->gate_groups * c->d_state, 0, 1.0);
    }
    if (!o->no_D) {
        ADD_SLOT(D, c->D_per_channel ? S : H, 0, 1.0);
    }
    if (c->gated_norm) {
        ADD_SLOT(gate_norm, S, 0, 1.0);
    }
}

static void add_attention(test_parameters *all, const char *prefix, const ssm_config *c,
                          const test_layer_options *o, test_layer *out)
{
    const int64_t dh = c->attention_head_dim, query = c->n_query_heads * dh;
    const int64_t rows = query + 2 * c->n_kv_heads * dh;
    add_projections(all, prefix, c, rows, query, o, out);
    if (c->attention_conv > 0) {
        add_conv(all, prefix, rows, c->attention_conv, o, out);
    }
}

static void add_h3(test_parameters *all, const char *prefix, const ssm_config *c,
                   const test_layer_options *o, test_layer *out)
{
    const int64_t S = c->d_ssm, H = c->n_heads;
    add_projections(all, prefix, c, 3 * S, S, o, out);
    add_conv(all, prefix, S, c->d_conv, o, out);
    ADD_SLOT(dt_bias, H, 0, 0.5);
    ADD_SLOT(A_log, H, c->d_state, 0.5);
    ADD_MORE(C_fixed, H, c->d_state, 1.0);
    if (!o->no_D) {
        ADD_SLOT(D, H, 0, 1.0);
    }
}

static void add_block(test_parameters *all, const char *prefix, const ssm_config *c,
                      const test_layer_options *o, test_layer *out)
{
    if (!o->no_norm) {
        ADD_SLOT(norm, c->d_model, 0, 1.0);
        if (c->layer_norm) {
            ADD_SLOT(norm_bias, c->d_model, 0, 0.3);
        }
    }
    if (c->d_mlp > 0) {
        ADD_SLOT(fc1, 2 * c->d_mlp, c->d_model, fan(c->d_model));
        ADD_SLOT(fc2, c->d_model, c->d_mlp, fan(c->d_mlp));
        if (o->biases) {
            ADD_SLOT(fc1_bias, 2 * c->d_mlp, 0, 0.3);
            ADD_SLOT(fc2_bias, c->d_model, 0, 0.3);
        }
        if (!o->no_norm) {
            ADD_SLOT(norm2, c->d_model, 0, 1.0);
            if (c->layer_norm) {
                ADD_SLOT(norm2_bias, c->d_model, 0, 0.3);
            }
        }
    }
}

test_layer test_layer_create(test_parameters *all, const char *prefix, const ssm_config *config,
                             ssm__ref_mixer mixer, const test_layer_options *options)
{
    test_layer layer = {.layer = {.mixer = mixer, .config = config, .gate_divisor = 16.0}};
    switch (mixer) {
    case SSM__REF_MAMBA:
        add_mamba(all, prefix, config, options, &layer);
        break;
    case SSM__REF_MAMBA2:
    case SSM__REF_LINEAR_ATTENTION:
    case SSM__REF_GLA:
        add_mamba2(all, prefix, config, mixer, options, &layer);
        break;
    case SSM__REF_ATTENTION:
        add_attention(all, prefix, config, options, &layer);
        break;
    case SSM__REF_H3:
        add_h3(all, prefix, config, options, &layer);
        break;
    }
    add_block(all, prefix, config, options, &layer);
    return layer;
}

void test_parameters_clear_gradients(test_parameters *all)
{
    for (int i = 0; i < all->count; i++) {
        memset(all->at[i].gradient, 0, (size_t)all->at[i].count * sizeof(double));
    }
}

void test_parameters_free(test_parameters *all)
{
    for (int i = 0; i < all->count; i++) {
        free(all->at[i].values);
        free(all->at[i].gradient);
    }
    all->count = 0;
}

/* Five points: the error is step⁴ = 1e-16 times a thirtieth of the fifth derivative, and that of
 * rounding about 1e-16 / step = 1e-12 of the loss. */
static double difference(double *value, double (*loss)(void *context), void *context)
{
    const double step = 1e-4, centre = *value;
    double at[5];
    for (int i = 0; i < 5; i++) {
        *value = centre + (i - 2) * step;
        at[i] = i == 2 ? 0.0 : loss(context);
    }
    *value = centre;
    return (8.0 * (at[3] - at[1]) - (at[4] - at[0])) / (12.0 * step);
}

double test_central_differences(test_parameters *all, double (*loss)(void *context), void *context,
                                double tolerance)
{
    double worst = 0.0;
    for (int i = 0; i < all->count; i++) {
        test_parameter *parameter = &all->at[i];
        double *want = test_doubles(parameter->count);
        for (int64_t k = 0; k < parameter->count; k++) {
            want[k] = difference(&parameter->values[k], loss, context);
        }
        const double relative = test_relative(parameter->gradient, want, parameter->count);
        test_assert_near(parameter->name, parameter->gradient, want, parameter->count, tolerance);
        worst = fmax(worst, relative);
        free(want);
    }
    return worst;
}
