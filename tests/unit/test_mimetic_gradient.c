/* A mimetic start must learn: Δ begins independent of the token, and gradients, in float64, reach
 * what makes it depend on one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <ssmscope/init.h>
#include <ssmscope/mimetic.h>

#include "reference/backward.h"
#include "test_paths.h"

enum { TOKENS = 12 };

typedef struct subject {
    char path[TEST_PATH_MAX];
    ssm_config config;
    ssm_checkpoint *checkpoint;
    ssm__ref_layer layer;
    double *x, *dout, *dx; /* [TOKENS][D] */
} subject;

static double *numbers(int64_t count, const char *stream)
{
    double *out = calloc((size_t)count + 1, sizeof *out);
    assert_non_null(out);
    if (stream != NULL) {
        ssm_rng rng = ssm_rng_create(1, stream);
        for (int64_t i = 0; i < count; i++) {
            out[i] = ssm_rng_normal(&rng);
        }
    }
    return out;
}

static subject make(const char *shape)
{
    subject out = {0};
    const ssm_mimetic mimetic = ssm_mimetic_default();
    assert_int_equal(ssm_shape_config(shape, &out.config, NULL), SSM_STATUS_OK);
    out.config.n_layers = 1;
    out.config.d_model = 32; /* small: the reference is naive */
    test_make_directory(out.path);
    assert_int_equal(
        ssm_init_write_mimetic(&out.config, NULL, &mimetic, SSM_DTYPE_F32, 2, out.path, NULL, NULL),
        SSM_STATUS_OK);
    assert_int_equal(ssm_checkpoint_open(out.path, NULL, &out.checkpoint, NULL), SSM_STATUS_OK);
    out.layer = ssm__ref_layer_of(ssm_checkpoint_config(out.checkpoint),
                                  &ssm__checkpoint_weights(out.checkpoint)->layers[0]);
    out.x = numbers(TOKENS * out.config.d_model, "x");
    out.dout = numbers(TOKENS * out.config.d_model, "dout");
    out.dx = numbers(TOKENS * out.config.d_model, NULL);
    return out;
}

static void drop(subject *this)
{
    free(this->x);
    free(this->dout);
    free(this->dx);
    ssm_checkpoint_close(this->checkpoint);
    test_remove_directory(this->path);
}

static double size_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(values[i]));
        sum += values[i] * values[i];
    }
    return sqrt(sum);
}

/* dt_proj.weight has a gradient at once; the dt rows of x_proj have none while it is zero, and have
 * one after its first step. */
static void gradients_of_mamba(void **state)
{
    (void)state;
    subject this = make("tiny");
    const ssm_config *c = &this.config;
    const int64_t weights = c->d_inner * c->dt_rank;
    const int64_t rows = c->dt_rank * c->d_inner; /* in front of those of B and C */
    const ssm__ref_gradients g = {.dt_proj = numbers(weights, NULL),
                                  .x_proj =
                                      numbers((c->dt_rank + 2 * c->d_state) * c->d_inner, NULL)};
    assert_int_equal(
        ssm__ref_mixer_backward(&this.layer, this.x, TOKENS, this.dout, this.dx, &g, NULL), 0);
    assert_true(size_of(g.dt_proj, weights) > 1e-3);
    assert_true(size_of(g.x_proj, rows) == 0);
    assert_true(size_of(g.x_proj + rows, 2 * c->d_state * c->d_inner) > 1e-3);

    double *stepped = numbers(weights, NULL);
    for (int64_t i = 0; i < weights; i++) {
        stepped[i] = -0.01 * g.dt_proj[i];
    }
    this.layer.w.dt_proj.dtype = SSM_DTYPE_F64;
    this.layer.w.dt_proj.data = stepped;
    assert_int_equal(
        ssm__ref_mixer_backward(&this.layer, this.x, TOKENS, this.dout, this.dx, &g, NULL), 0);
    assert_true(size_of(g.x_proj, rows) > 1e-6);
    free(stepped);
    free(g.dt_proj);
    free(g.x_proj);
    drop(&this);
}

static void gradients_of_mamba2(void **state)
{
    (void)state;
    subject this = make("tiny-mamba2");
    const ssm_config *c = &this.config;
    const int64_t before = 2 * c->d_inner + 2 * c->n_groups * c->d_state;
    const ssm__ref_gradients g = {.in_proj = numbers((before + c->n_heads) * c->d_model, NULL),
                                  .A_log = numbers(c->n_heads, NULL),
                                  .dt_bias = numbers(c->n_heads, NULL)};
    assert_int_equal(
        ssm__ref_mixer_backward(&this.layer, this.x, TOKENS, this.dout, this.dx, &g, NULL), 0);
    for (int64_t head = 0; head < c->n_heads; head++) {
        const double *row = g.in_proj + (before + head) * c->d_model;
        assert_true(size_of(row, c->d_model) > 1e-3);
        assert_true(fabs(g.dt_bias[head]) > 1e-3);
        /* A = −exp(−8): what the decay learns from is 3e-4 of the rest, and not nothing. */
        assert_true(fabs(g.A_log[head]) > 1e-7);
    }
    free(g.in_proj);
    free(g.A_log);
    free(g.dt_bias);
    drop(&this);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_mamba),
        cmocka_unit_test(gradients_of_mamba2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
