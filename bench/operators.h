/* bench/operators.h: the registry of kernels. One entry an operator: how to make inputs, the fast
 * call, the float64 oracle, the tolerance with its reason, the work. tests/unit/test_operators.c
 * runs every entry over its test shapes in every instruction set; `ssmscope bench --cases
 * operator/NAME` times the same entry at its bench shape. */
#ifndef SSM_BENCH_OPERATORS_H
#define SSM_BENCH_OPERATORS_H

#include "kernels/kernels.h"

enum { OPERATOR_INPUTS = 10, OPERATOR_OUTPUTS = 6, OPERATOR_SHAPES = 12 };

/* tokens, then what the operator calls its dimensions (see its entry). */
typedef struct operator_shape {
    int64_t tokens, a, b;
} operator_shape;

/* One case: arrays in memory of the run, each between guard zones. */
typedef struct operator_run {
    operator_shape shape;
    uint64_t seed;
    float *in[OPERATOR_INPUTS];
    int64_t in_count[OPERATOR_INPUTS];
    /* out: what the kernel writes, initial: what is there before, want: the oracle, scale: what an
     * error is relative to (elementwise) */
    float *out[OPERATOR_OUTPUTS];
    float *initial[OPERATOR_OUTPUTS];
    double *want[OPERATOR_OUTPUTS];
    double *scale[OPERATOR_OUTPUTS];
    int64_t out_count[OPERATOR_OUTPUTS];
    const char *out_name[OPERATOR_OUTPUTS];
    unsigned char *memory;
    size_t memory_bytes;
} operator_run;

typedef struct operator_entry {
    const char *name;
    const char *dimensions;                      /* what a and b mean */
    operator_shape test_shapes[OPERATOR_SHAPES]; /* ends at tokens < 0 */
    operator_shape bench_shape;
    /* Declares arrays with operator_input and operator_output; called twice (count, then place),
     * fills inputs when they have memory. */
    void (*prepare)(operator_run *run);
    void (*fast)(const ssm__kernels *kernels, operator_run *run);
    void (*oracle)(operator_run *run);
    double tolerance;
    const char *reason;
    double (*flops)(const operator_shape *shape); /* multiply and add counted apart */
} operator_entry;

/* Operator number index, NULL beyond the last. */
const operator_entry *operator_at(int index);

/* In prepare: declares the next input of `count` floats and returns it (NULL while counting). */
float *operator_input(operator_run *run, int index, int64_t count);
/* …and output `index`; it starts as `initial` (zeros until filled). */
float *operator_output(operator_run *run, int index, const char *name, int64_t count);
/* Fills with normals from the stream "operator/<index>" of the run's seed. NULL is accepted. */
void operator_fill_normal(const operator_run *run, int index, float *values, int64_t count,
                          double mean, double deviation);

/* An input of normals: the two in one. */
void operator_normals(operator_run *run, int index, int64_t count, double mean, double deviation);
/* Adds x to a wanted value, and its size to the scale. */
void operator_accumulate(operator_run *run, int output, int64_t at, double x);

/* The scan of one group, of all modes (bench/op_scan.c) and of those that are kept. */
enum { SCAN_U, SCAN_DELTA, SCAN_Z, SCAN_B_AND_C, SCAN_A2, SCAN_D_SKIP, SCAN_INPUTS };
enum { SCAN_Y, SCAN_STATE };
void operator_scan_inputs(operator_run *run);
ssm__scan_args operator_scan_args(operator_run *run);

/* Of entries that run a scan. */
#define OPERATOR_SCAN_BOUND                                                                        \
    .tolerance = 3e-6,                                                                             \
    .reason = "decays carry 1 ulp and the rounding of delta A (up to 20), summed over modes"
#define OPERATOR_LOG2E 1.4426950408889634

/* Allocates and fills; false when out of memory. */
bool operator_create(const operator_entry *entry, operator_shape shape, uint64_t seed,
                     operator_run *out);
void operator_free(operator_run *run);
/* Puts the outputs back to their initial values. */
void operator_rewind(operator_run *run);
/* True when the guard zones around every array are untouched. */
bool operator_guards_hold(const operator_run *run);

/* A copy in float64 that the caller frees; NULL when out of memory. */
double *operator_widen(const float *values, int64_t count);
/* Output `index` is compared relative to the largest magnitude wanted in it (1 if all are 0). */
void operator_scale_by_largest(operator_run *run, int index);

/* The entries of the other files. */
extern const operator_entry operator_linear_f32, operator_linear_f16, operator_linear_bf16;
extern const operator_entry operator_rmsnorm, operator_conv_silu, operator_softplus_bias,
    operator_silu, operator_exp, operator_decay, operator_add, operator_logsumexp, operator_flush;
extern const operator_entry operator_head_scan, operator_head_scan_masked,
    operator_head_scan_recorded, operator_head_scan_moments, operator_ssd, operator_gated_norm;
extern const operator_entry operator_scan, operator_scan_masked, operator_scan_recorded,
    operator_gram, operator_energy, operator_mode_rows, operator_gram_rows, operator_least_dropped,
    operator_dropped, operator_head_reads;
extern const operator_entry operator_scan_kept, operator_scan_kept_weighted,
    operator_scan_kept_shared, operator_scan_kept_shared_weighted;
extern const operator_entry operator_layernorm, operator_conv, operator_silu_mul, operator_attend;
extern const operator_entry operator_linear_input_gradient, operator_linear_weight_gradient,
    operator_linear_input_gradient_rows, operator_linear_weight_gradient_rows, operator_column_sums,
    operator_sum_parts;
extern const operator_entry operator_rmsnorm_gradient, operator_rmsnorm_gradient_added,
    operator_layernorm_gradient, operator_conv_silu_backward, operator_conv_backward,
    operator_silu_mul_backward, operator_scan_backward, operator_scan_backward_starts;
extern const operator_entry operator_ssd_backward, operator_gated_norm_backward,
    operator_attend_backward, operator_gate, operator_h3, operator_h3_backward;
extern const operator_entry operator_row_products, operator_lane_products, operator_state_products,
    operator_scale_state, operator_to_lanes, operator_softplus_backward;
extern const operator_entry operator_cross_entropy, operator_embedding_gradient, operator_adamw,
    operator_squared_norm;

#endif
