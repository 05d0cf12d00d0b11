/* evaluate/task_stats.c: metrics of scored items, their errors, paired differences.
 *
 * Standard error of a mean: sample standard deviation (n − 1) / √n. Intervals: 95 % percentiles of
 * the metric over resampled items; the draws come from the stream "bootstrap/items" of the seed and
 * depend on the number of items only, so that two models on the same items share them. */
#include <ssmscope/tasks.h>

#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/quantile.h"
#include "evaluate/mersenne.h"
#include "evaluate/windows.h"

enum { CHUNK = 1000 }; /* of the harness's bootstrap */

/* What the metric is a mean of, before its last step. */
static double value_of(const ssm_task_score *score, ssm_task_metric metric)
{
    return metric == SSM_METRIC_PERPLEXITY ? score->choices[0].log_likelihood
                                           : (double)score->right[metric];
}

static double finish(double mean, ssm_task_metric metric)
{
    return metric == SSM_METRIC_PERPLEXITY ? exp(-mean) : mean;
}

/* NaN for one value. */
static double sample_deviation(const double *values, int64_t n)
{
    const double mean = ssm__mean(values, n);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (values[i] - mean) * (values[i] - mean);
    }
    return n > 1 ? sqrt(sum / (double)(n - 1)) : (double)NAN;
}

/* exp(−mean) of resamples drawn as Python's random.choices does: index ⌊u n⌋. */
static ssm_status harness_deviation(const double *values, int64_t n, int64_t iterations,
                                    double *out, ssm_error *err)
{
    const int64_t chunk = iterations < CHUNK ? iterations : CHUNK;
    const int64_t chunks = iterations > 0 ? iterations / chunk : 0;
    *out = (double)NAN;
    if (chunks == 0) {
        return SSM_STATUS_OK;
    }
    double *resamples = malloc((size_t)(chunks * chunk) * sizeof *resamples);
    ssm__mersenne *generator = malloc(sizeof *generator);
    if (!resamples || !generator) {
        free(resamples);
        free(generator);
        return ssm__fail_memory(err, "resamples", (size_t)(chunks * chunk) * sizeof *resamples);
    }
    for (int64_t c = 0; c < chunks; c++) {
        ssm__mersenne_seed(generator, (uint32_t)c);
        for (int64_t b = 0; b < chunk; b++) {
            double sum = 0.0;
            for (int64_t i = 0; i < n; i++) {
                sum += values[(int64_t)(ssm__mersenne_uniform(generator) * (double)n)];
            }
            resamples[c * chunk + b] = exp(-(sum / (double)n));
        }
    }
    *out = sample_deviation(resamples, chunks * chunk);
    free(resamples);
    free(generator);
    return SSM_STATUS_OK;
}

/* Percentiles of the metric, or with `base` of the metric of `values` minus that of `base`. */
static ssm_status interval_of(const double *values, const double *base, int64_t n,
                              ssm_task_metric metric, const ssm_bootstrap_options *bootstrap,
                              ssm_interval *out, ssm_error *err)
{
    const int64_t resamples = bootstrap->resamples;
    *out = (ssm_interval){(double)NAN, (double)NAN};
    size_t bytes;
    if (!ssm__mul_size((size_t)resamples + 1, sizeof(double), &bytes)) {
        return ssm__fail_memory(err, "resamples", SIZE_MAX);
    }
    double *results = malloc(bytes);
    if (!results) {
        return ssm__fail_memory(err, "resamples", bytes);
    }
    ssm_rng rng = ssm_rng_create(bootstrap->seed, "bootstrap/items");
    for (int64_t b = 0; b < resamples; b++) {
        double sum = 0.0;
        double base_sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t k = (int64_t)ssm_rng_below(&rng, (uint64_t)n);
            sum += values[k];
            base_sum += base ? base[k] : 0.0;
        }
        results[b] =
            finish(sum / (double)n, metric) - (base ? finish(base_sum / (double)n, metric) : 0.0);
    }
    if (resamples > 0) {
        ssm__sort(results, resamples);
        *out = (ssm_interval){ssm__quantile(results, resamples, 0.025),
                              ssm__quantile(results, resamples, 0.975)};
    }
    free(results);
    return SSM_STATUS_OK;
}

static ssm_status values_of(const ssm_task_score *scores, int64_t count, ssm_task_metric metric,
                            const ssm_bootstrap_options *bootstrap, double **out, ssm_error *err)
{
    *out = NULL;
    if (count < 1 || bootstrap->resamples < 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "expected one item or more and resamples ≥ 0, found %lld and %lld",
                         (long long)count, (long long)bootstrap->resamples);
    }
    *out = malloc((size_t)count * sizeof **out);
    if (!*out) {
        return ssm__fail_memory(err, "scores", (size_t)count * sizeof **out);
    }
    for (int64_t i = 0; i < count; i++) {
        (*out)[i] = value_of(&scores[i], metric);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_task_result_of(const ssm_task_score *scores, int64_t count, ssm_task_metric metric,
                              const ssm_bootstrap_options *bootstrap, int64_t harness_iterations,
                              ssm_task_result *out, ssm_error *err)
{
    double *values = NULL;
    *out = (ssm_task_result){0};
    SSM__TRY(values_of(scores, count, metric, bootstrap, &values, err));
    out->value = finish(ssm__mean(values, count), metric);
    ssm_status status = SSM_STATUS_OK;
    if (metric == SSM_METRIC_PERPLEXITY) {
        status = harness_deviation(values, count, harness_iterations, &out->stderr_, err);
    } else {
        out->stderr_ = sample_deviation(values, count) / sqrt((double)count);
    }
    if (status == SSM_STATUS_OK) {
        status = interval_of(values, NULL, count, metric, bootstrap, &out->interval, err);
    }
    free(values);
    return status;
}

static void compare(const double *base, const double *other, int64_t count, double *differences,
                    ssm_task_difference *out)
{
    for (int64_t i = 0; i < count; i++) {
        differences[i] = other[i] - base[i];
        out->both_right += base[i] > 0 && other[i] > 0;
        out->only_base += base[i] > 0 && other[i] <= 0;
        out->only_other += base[i] <= 0 && other[i] > 0;
        out->both_wrong += base[i] <= 0 && other[i] <= 0;
    }
    out->stderr_ = sample_deviation(differences, count) / sqrt((double)count);
}

ssm_status ssm_task_difference_of(const ssm_task_score *base, const ssm_task_score *other,
                                  int64_t count, ssm_task_metric metric,
                                  const ssm_bootstrap_options *bootstrap, ssm_task_difference *out,
                                  ssm_error *err)
{
    double *a = NULL;
    double *b = NULL;
    *out = (ssm_task_difference){.stderr_ = (double)NAN};
    ssm_status status = values_of(base, count, metric, bootstrap, &a, err);
    status = status == SSM_STATUS_OK ? values_of(other, count, metric, bootstrap, &b, err) : status;
    if (status == SSM_STATUS_OK) {
        out->value = finish(ssm__mean(b, count), metric) - finish(ssm__mean(a, count), metric);
        status = interval_of(b, a, count, metric, bootstrap, &out->interval, err);
    }
    if (status == SSM_STATUS_OK && metric != SSM_METRIC_PERPLEXITY) {
        double *differences = malloc((size_t)count * sizeof *differences);
        if (differences) {
            compare(a, b, count, differences, out);
        } else {
            status = ssm__fail_memory(err, "differences", (size_t)count * sizeof *differences);
        }
        free(differences);
    }
    free(a);
    free(b);
    return status;
}

/* ---- what a rule recovers -------------------------------------------------------------------- */

/* Three models' means over the same items: fixed, rule, unpruned. */
static double recovered(const double sums[3], int64_t n, ssm_task_metric metric)
{
    const double fixed = finish(sums[0] / (double)n, metric);
    const double rule = finish(sums[1] / (double)n, metric);
    const double unpruned = finish(sums[2] / (double)n, metric);
    const double cost = ssm_task_metric_higher(metric) ? unpruned - fixed : fixed - unpruned;
    return cost > 0.0 ? (rule - fixed) / (unpruned - fixed) : (double)NAN;
}

/* The share in every resample: results [resamples + 1], the undefined ones left out. */
static int64_t recover(double *const values[3], int64_t n, ssm_task_metric metric,
                       const ssm_bootstrap_options *bootstrap, double *results)
{
    ssm_rng rng = ssm_rng_create(bootstrap->seed, "bootstrap/items");
    int64_t defined = 0;
    for (int64_t b = 0; b < bootstrap->resamples; b++) {
        double sums[3] = {0.0, 0.0, 0.0};
        for (int64_t i = 0; i < n; i++) {
            const int64_t k = (int64_t)ssm_rng_below(&rng, (uint64_t)n);
            for (int m = 0; m < 3; m++) {
                sums[m] += values[m][k];
            }
        }
        results[defined] = recovered(sums, n, metric);
        defined += isnan(results[defined]) ? 0 : 1;
    }
    return defined;
}

ssm_status ssm_task_recovered_of(const ssm_task_score *fixed, const ssm_task_score *rule,
                                 const ssm_task_score *unpruned, int64_t count,
                                 ssm_task_metric metric, const ssm_bootstrap_options *bootstrap,
                                 double *share, ssm_interval *interval, ssm_error *err)
{
    const ssm_task_score *const models[3] = {fixed, rule, unpruned};
    double *values[3] = {NULL, NULL, NULL};
    double sums[3] = {0.0, 0.0, 0.0};
    double *results = NULL;
    ssm_status status = SSM_STATUS_OK;
    for (int m = 0; m < 3 && status == SSM_STATUS_OK; m++) {
        status = values_of(models[m], count, metric, bootstrap, &values[m], err);
        for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
            sums[m] += values[m][i];
        }
    }
    size_t bytes = 0;
    if (status == SSM_STATUS_OK) {
        results = ssm__mul_size((size_t)bootstrap->resamples + 1, sizeof *results, &bytes)
                      ? malloc(bytes)
                      : NULL;
        status = results ? SSM_STATUS_OK : ssm__fail_memory(err, "resamples", bytes);
    }
    if (status == SSM_STATUS_OK) {
        *share = recovered(sums, count, metric);
        const int64_t defined = recover(values, count, metric, bootstrap, results);
        *interval = ssm__interval_of(results, defined, bootstrap->resamples);
    }
    for (int m = 0; m < 3; m++) {
        free(values[m]);
    }
    free(results);
    return status;
}
