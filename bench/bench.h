/* bench/bench.h: what a benchmark run shares: the model of the shape, the measured limits, samples.
 *
 * Every repetition measures the limits of the machine and every case one after the other, so that a
 * ratio compares seconds of the same minute. */
#ifndef SSM_BENCH_H
#define SSM_BENCH_H

#include <ssmscope/model.h>

#include "operators.h"

enum { BENCH_MAX_REPEATS = 101 };

/* Limits of this machine on `threads` threads; one sample a repetition. NaN: not measured. */
typedef struct bench_limits {
    double sgemm_gflops; /* OpenBLAS at the in_proj shape, 1024 tokens */
    double read_gbps;    /* streaming read of memory, 10^9 bytes a second */
    double exp_per_s;    /* the scan's 2^p alone, operands in L1 */
    double fma_gflops;   /* fused multiply-adds alone, operands in registers */
} bench_limits;

typedef struct bench_run {
    ssm_model *model;
    const char *shape, *dtype;
    ssm_pool *pool;
    int threads;
    int64_t tokens;
    int64_t repeats;
    int32_t *ids; /* [tokens] */
    float *nll;   /* [tokens] */
    ssm_session *session;
    const operator_entry *op;               /* of the operator case under way */
    bench_limits limits[BENCH_MAX_REPEATS]; /* one a repetition */
} bench_run;

/* One repetition of a case. */
typedef struct bench_sample {
    double seconds;  /* of the work */
    double at_limit; /* seconds the work takes at the limit; NaN: no limit */
    double ratio;    /* the case's ratio, NaN: none */
} bench_sample;

typedef struct bench_case {
    const char *name;
    const char *what;       /* for --help */
    const char *limit;      /* "gemm+scan", "bandwidth", "gemm", "exp", "fma" or NULL */
    const char *ratio_name; /* "ratio_over_plain", "ratio_over_full" or NULL */
    bool by_default;
    int families;                            /* 1 << SSM_FAMILY_… of the shapes it is for */
    int64_t (*tokens)(const bench_run *run); /* a sample */
    /* Errors: MEMORY, FAILED. */
    ssm_status (*sample)(bench_run *run, const bench_limits *limits, bench_sample *out,
                         ssm_error *err);
} bench_case;

/* The case gram_heads, in a file of its own. */
ssm_status bench_sample_gram_heads(bench_run *run, const bench_limits *limits, bench_sample *out,
                                   ssm_error *err);

/* Gradients of in_proj and out_proj, in a file of their own. */
ssm_status bench_sample_linear_dx(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err);
ssm_status bench_sample_linear_dw(bench_run *run, const bench_limits *limits, bench_sample *out,
                                  ssm_error *err);

/* Steps of training, in a file of their own. */
int64_t bench_train_tokens(const bench_run *run);
int64_t bench_train_small_tokens(const bench_run *run);
ssm_status bench_sample_train(bench_run *run, const bench_limits *limits, bench_sample *out,
                              ssm_error *err);
ssm_status bench_sample_train_small(bench_run *run, const bench_limits *limits, bench_sample *out,
                                    ssm_error *err);

/* The recording cases, in a file of their own. */
ssm_status bench_sample_record(bench_run *run, const bench_limits *limits, bench_sample *out,
                               ssm_error *err);
ssm_status bench_sample_record_no_head(bench_run *run, const bench_limits *limits,
                                       bench_sample *out, ssm_error *err);
ssm_status bench_sample_record_moments(bench_run *run, const bench_limits *limits,
                                       bench_sample *out, ssm_error *err);

/* The scan of a layer, of all modes and of half of them, in a file of its own. */
ssm_status bench_sample_scan(bench_run *run, const bench_limits *limits, bench_sample *out,
                             ssm_error *err);
ssm_status bench_sample_scan_pruned(bench_run *run, const bench_limits *limits, bench_sample *out,
                                    ssm_error *err);
ssm_status bench_sample_scan_pruned_layer(bench_run *run, const bench_limits *limits,
                                          bench_sample *out, ssm_error *err);

/* The cases, ended by a NULL name. */
extern const bench_case bench_cases[];
/* One call of run->op at its bench shape, on one thread. */
extern const bench_case bench_operator_case;

/* Monotonic clock, seconds. */
double bench_now(void);
double bench_median(double *values, int64_t count); /* sorts */
/* Highest resident size since the last reset, bytes; 0 where the system does not tell. */
size_t bench_peak_rss(void);
void bench_reset_peak_rss(void);

/* Seconds of y = x Wᵀ, [tokens, cols] × [rows, cols], by OpenBLAS on `threads` threads; NaN without
 * it. */
double bench_sgemm_seconds(int64_t tokens, int64_t rows, int64_t cols, int threads);
const char *bench_sgemm_name(void); /* "OpenBLAS (SkylakeX)" or "not installed" */
/* Of the widest instructions of `isa`; NaN for portable. */
double bench_fma_gflops(ssm_pool *pool, int threads, ssm_isa isa);
bool bench_limits_measure(bench_run *run, bench_limits *out);

/* Bytes read for one token: weights, head included, and the recurrent state. */
double bench_token_bytes(const ssm_model *model);

#endif
