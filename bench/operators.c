/* bench/operators.c: the registry and the memory of a case. */
#include "operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

static const operator_entry *const all[] = {&operator_head_scan,
                                            &operator_head_scan_masked,
                                            &operator_head_scan_recorded,
                                            &operator_head_scan_moments,
                                            &operator_ssd,
                                            &operator_gated_norm,
                                            &operator_linear_f32,
                                            &operator_linear_f16,
                                            &operator_linear_bf16,
                                            &operator_rmsnorm,
                                            &operator_conv_silu,
                                            &operator_softplus_bias,
                                            &operator_silu,
                                            &operator_exp,
                                            &operator_decay,
                                            &operator_add,
                                            &operator_logsumexp,
                                            &operator_flush,
                                            &operator_scan,
                                            &operator_scan_masked,
                                            &operator_scan_recorded,
                                            &operator_scan_kept,
                                            &operator_scan_kept_weighted,
                                            &operator_scan_kept_shared,
                                            &operator_scan_kept_shared_weighted,
                                            &operator_gram,
                                            &operator_energy,
                                            &operator_mode_rows,
                                            &operator_gram_rows,
                                            &operator_dropped,
                                            &operator_least_dropped,
                                            &operator_head_reads,
                                            &operator_layernorm,
                                            &operator_conv,
                                            &operator_silu_mul,
                                            &operator_attend,
                                            &operator_linear_input_gradient,
                                            &operator_linear_input_gradient_rows,
                                            &operator_linear_weight_gradient,
                                            &operator_linear_weight_gradient_rows,
                                            &operator_column_sums,
                                            &operator_sum_parts,
                                            &operator_rmsnorm_gradient,
                                            &operator_rmsnorm_gradient_added,
                                            &operator_layernorm_gradient,
                                            &operator_conv_silu_backward,
                                            &operator_conv_backward,
                                            &operator_silu_mul_backward,
                                            &operator_scan_backward,
                                            &operator_scan_backward_starts,
                                            &operator_ssd_backward,
                                            &operator_gated_norm_backward,
                                            &operator_attend_backward,
                                            &operator_gate,
                                            &operator_h3,
                                            &operator_h3_backward,
                                            &operator_row_products,
                                            &operator_lane_products,
                                            &operator_state_products,
                                            &operator_scale_state,
                                            &operator_to_lanes,
                                            &operator_softplus_backward,
                                            &operator_cross_entropy,
                                            &operator_embedding_gradient,
                                            &operator_adamw,
                                            &operator_squared_norm};

enum { ENTRIES = sizeof all / sizeof *all };

const operator_entry *operator_at(int index)
{
    return index >= 0 && index < ENTRIES ? all[index] : NULL;
}

/* The next `bytes` of the case between two guard zones; NULL while counting. Arrays end where the
 * guard begins, so they may be unaligned for vectors on purpose. */
static void *place(operator_run *run, size_t bytes)
{
    void *array = run->memory ? run->memory + run->memory_bytes + GUARD : NULL;
    run->memory_bytes += bytes + 2 * GUARD;
    return array;
}

/* The same for the oracle's values: doubles need their own alignment. */
static double *place_doubles(operator_run *run, int64_t count)
{
    run->memory_bytes = (run->memory_bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
    return place(run, (size_t)count * sizeof(double));
}

float *operator_input(operator_run *run, int index, int64_t count)
{
    run->in_count[index] = count;
    run->in[index] = place(run, (size_t)count * sizeof(float));
    return run->in[index];
}

float *operator_output(operator_run *run, int index, const char *name, int64_t count)
{
    run->out_count[index] = count;
    run->out_name[index] = name;
    run->want[index] = place_doubles(run, count);
    run->scale[index] = place_doubles(run, count);
    run->initial[index] = place(run, (size_t)count * sizeof(float));
    run->out[index] = place(run, (size_t)count * sizeof(float));
    if (run->initial[index]) {
        memset(run->initial[index], 0, (size_t)count * sizeof(float));
        memset(run->want[index], 0, (size_t)count * sizeof(double));
        for (int64_t i = 0; i < count; i++) {
            run->scale[index][i] = 1.0;
        }
    }
    return run->initial[index];
}

void operator_fill_normal(const operator_run *run, int index, float *values, int64_t count,
                          double mean, double deviation)
{
    char stream[] = "operator/ ";
    stream[sizeof stream - 2] = (char)('0' + index);
    ssm_rng rng = ssm_rng_create(run->seed, stream);
    for (int64_t i = 0; values && i < count; i++) {
        values[i] = (float)(mean + deviation * ssm_rng_normal(&rng));
    }
}

void operator_normals(operator_run *run, int index, int64_t count, double mean, double deviation)
{
    operator_fill_normal(run, index, operator_input(run, index, count), count, mean, deviation);
}

void operator_accumulate(operator_run *run, int output, int64_t at, double x)
{
    run->want[output][at] += x;
    run->scale[output][at] += fabs(x);
}

bool operator_create(const operator_entry *entry, operator_shape shape, uint64_t seed,
                     operator_run *out)
{
    operator_run count = {.shape = shape, .seed = seed};
    entry->prepare(&count);
    *out = (operator_run){.shape = shape, .seed = seed};
    out->memory = malloc(count.memory_bytes);
    if (!out->memory) {
        return false;
    }
    memset(out->memory, GUARD_BYTE, count.memory_bytes);
    entry->prepare(out);
    operator_rewind(out);
    return true;
}

void operator_free(operator_run *run)
{
    free(run->memory);
    run->memory = NULL;
}

void operator_rewind(operator_run *run)
{
    for (int i = 0; i < OPERATOR_OUTPUTS; i++) {
        if (run->out[i]) {
            memcpy(run->out[i], run->initial[i], (size_t)run->out_count[i] * sizeof(float));
        }
    }
}

static bool guarded(const float *array, int64_t count)
{
    if (array == NULL) {
        return true;
    }
    const unsigned char *before = (const unsigned char *)array - GUARD;
    const unsigned char *after = (const unsigned char *)(array + count);
    for (int i = 0; i < GUARD; i++) {
        if (before[i] != GUARD_BYTE || after[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

bool operator_guards_hold(const operator_run *run)
{
    bool hold = true;
    for (int i = 0; i < OPERATOR_INPUTS; i++) {
        hold = hold && guarded(run->in[i], run->in_count[i]);
    }
    for (int i = 0; i < OPERATOR_OUTPUTS; i++) {
        hold = hold && guarded(run->out[i], run->out_count[i]);
    }
    return hold;
}

double *operator_widen(const float *values, int64_t count)
{
    double *wide = malloc((size_t)(count > 0 ? count : 1) * sizeof *wide);
    for (int64_t i = 0; wide && i < count; i++) {
        wide[i] = (double)values[i];
    }
    return wide;
}

void operator_scale_by_largest(operator_run *run, int index)
{
    double largest = 0.0;
    for (int64_t i = 0; i < run->out_count[index]; i++) {
        largest = fmax(largest, fabs(run->want[index][i]));
    }
    for (int64_t i = 0; i < run->out_count[index]; i++) {
        run->scale[index][i] = largest > 0.0 ? largest : 1.0;
    }
}
