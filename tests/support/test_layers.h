/* test_layers.h: random float64 layers and models for the reference of training, with the arrays of
 * their gradients, and central differences of a loss by every parameter. */
#ifndef TEST_LAYERS_H
#define TEST_LAYERS_H

#include "reference/backward.h"

/* A parameter: its numbers, where the gradient goes, and its name in messages. */
typedef struct test_parameter {
    char name[64];
    double *values, *gradient;
    int64_t count;
} test_parameter;

enum { TEST_PARAMETERS_MAX = 160 };

typedef struct test_parameters {
    test_parameter at[TEST_PARAMETERS_MAX];
    int count;
} test_parameters;

/* Which optional slots a layer gets. */
typedef struct test_layer_options {
    bool no_norm, no_conv, no_conv_bias, no_D;
    bool biases;       /* of in_proj, out_proj, fc1, fc2; norms have them with layer_norm */
    bool fixed;        /* time-invariant */
    int64_t gate_rank; /* GLA */
    int64_t gate_groups;
} test_layer_options;

typedef struct test_layer {
    ssm__ref_layer layer;
    ssm__ref_gradients gradients;
} test_layer;

/* A tensor [rows][cols] (cols 0: a vector) of normals times scale, from a stream of the parameter's
 * name, with an array for its gradient in *gradient. */
ssm_tensor test_parameter_create(test_parameters *all, const char *name, int64_t rows, int64_t cols,
                                 double scale, double **gradient);
/* Random everywhere. prefix distinguishes layers. The config is borrowed. */
test_layer test_layer_create(test_parameters *all, const char *prefix, const ssm_config *config,
                             ssm__ref_mixer mixer, const test_layer_options *options);
void test_parameters_clear_gradients(test_parameters *all);
void test_parameters_free(test_parameters *all);

/* Σ of derivatives wanted: loss(context) is a function of the parameters' values. Compares
 * gradient with the five-point difference of every number, relative to the parameter's largest
 * derivative, and returns the largest deviation of all parameters. Fails above tolerance. */
double test_central_differences(test_parameters *all, double (*loss)(void *context), void *context,
                                double tolerance);

#endif
