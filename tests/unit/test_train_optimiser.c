/* AdamW over a network's parameters against a calculation in float64, A = −exp(−c·a) too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_network.h"
#include "train/optimiser.h"

enum { STEPS = 2 };

static const ssm_recipe recipe = {.optimiser = {.lr = 0.01,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-3, /* so that sizes of gradients count */
                                                .weight_decay = 0.1,
                                                .clip = 1},
                                  .schedule = {.steps = 10, .decay = SSM__DECAY_CONSTANT}};

/* What is optimised, p of value = factor·p, in float64. */
typedef struct naive {
    double *p, *gradient, *first, *second;
} naive;

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

static double factor_of(const ssm__parameter *p, double c)
{
    return strstr(p->name, "A_log") != NULL && c > 0 ? -c : 1.0;
}

/* From the gradients of the values; returns the norm before clipping. */
static double naive_step(const ssm__network *network, naive *n, const float *gradients, double c,
                         int step)
{
    const ssm__recipe_optimiser *o = &recipe.optimiser;
    double sum = 0;
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = p->at; k < p->at + p->count; k++) {
            n->gradient[k] = factor_of(p, c) * (double)gradients[k];
            sum += n->gradient[k] * n->gradient[k];
        }
    }
    const double norm = sqrt(sum), scale = norm > o->clip ? o->clip / norm : 1;
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = p->at; k < p->at + p->count; k++) {
            const double g = scale * n->gradient[k];
            n->first[k] = o->beta1 * n->first[k] + (1 - o->beta1) * g;
            n->second[k] = o->beta2 * n->second[k] + (1 - o->beta2) * g * g;
            const double m = n->first[k] / (1 - pow(o->beta1, step));
            const double v = n->second[k] / (1 - pow(o->beta2, step));
            n->p[k] *= p->decayed ? 1 - o->lr * o->weight_decay : 1;
            n->p[k] -= o->lr * m / (sqrt(v) + o->eps);
        }
    }
    return norm;
}

/* 2e-6: two steps of float32, a few roundings each, of numbers up to c·lr and up to 2. */
static void compare(const ssm__network *network, const naive *n, double c)
{
    const float *values = ssm__network_values((ssm__network *)(uintptr_t)network);
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = 0; k < p->count; k++) {
            const double wanted = factor_of(p, c) * n->p[p->at + k];
            const double off = fabs((double)values[p->at + k] - wanted);
            if (!(off <= 2e-6 * fmax(fabs(wanted), 1))) {
                fail_msg("%s[%lld] is %.9g, expected %.9g", p->name, (long long)k,
                         (double)values[p->at + k], wanted);
            }
        }
    }
}

static void check_steps(double c)
{
    ssm__network_config config = toy_network();
    config.paper_c = c;
    ssm__network *network = toy_network_create(&config, SSM_ISA_AUTO, NULL);
    const int64_t floats = ssm__network_floats(network);
    ssm__optimiser optimiser;
    assert_int_equal(
        ssm__optimiser_create(network, ssm__kernels_for(SSM_ISA_AUTO), NULL, &optimiser, NULL),
        SSM_STATUS_OK);
    naive n = {doubles(floats), doubles(floats), doubles(floats), doubles(floats)};
    int64_t of_a = 0;
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = p->at; k < p->at + p->count; k++) {
            n.p[k] = (double)ssm__network_values(network)[k] / factor_of(p, c);
        }
        of_a += p->factor != 1 ? p->count : 0;
    }
    assert_int_equal(of_a, c > 0 ? 2 * 36 * 5 : 0); /* A_log of both layers and no other */
    for (int step = 1; step <= STEPS; step++) {
        float *gradients = ssm__network_gradients(network);
        ssm_rng rng = ssm_rng_create((uint64_t)step, "gradients");
        for (int64_t i = 0; i < ssm__network_count(network); i++) {
            const ssm__parameter *p = ssm__network_at(network, i);
            for (int64_t k = p->at; k < p->at + p->count; k++) {
                gradients[k] = (float)(0.1 * ssm_rng_normal(&rng));
            }
        }
        const double norm = ssm__gradient_norm(&optimiser, gradients);
        const double wanted = naive_step(network, &n, gradients, c, step);
        assert_true(norm > recipe.optimiser.clip);
        assert_true(fabs(norm - wanted) <= 1e-12 * wanted); /* both are float64 */
        ssm__optimiser_step(&optimiser, &recipe, step, gradients, recipe.optimiser.clip / norm);
        compare(network, &n, c);
    }
    free(n.p);
    free(n.gradient);
    free(n.first);
    free(n.second);
    ssm__optimiser_free(&optimiser);
    ssm__network_free(network);
}

static void test_plain(void **state)
{
    (void)state;
    check_steps(0);
}

static void test_paper_a(void **state)
{
    (void)state;
    check_steps(8);
    check_steps(0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain),
                                       cmocka_unit_test(test_paper_a)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
