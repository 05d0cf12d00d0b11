/* bench/recording.c: a pass with the instrument over the same pass without, as `record` makes it
 * (Mamba-2: one pass of the two that an evaluation window takes). */
#include "bench.h"

#include <math.h>

#include "base/error.h"
#include "instrument/accumulator.h"
#include "instrument/head_sums.h"

/* The sums of one family and the sink that fills them. */
typedef struct instrument {
    bool by_head;
    int64_t tokens;
    ssm__accumulator sums;
    ssm__head_sums heads;
    ssm__mode_sink sink;
} instrument;

/* A layer's sums were read, as far as a benchmark reads them: the next layer takes their place. */
static ssm_status next_layer(void *context, int64_t layer, int64_t end, ssm_error *err)
{
    instrument *i = context;
    (void)end;
    (void)err;
    if (i->by_head) {
        ssm__head_sums_begin(&i->heads, i->tokens);
    } else {
        ssm__accumulator_begin_layer(&i->sums, layer);
    }
    return SSM_STATUS_OK;
}

static void enter(void *context, int64_t layer, int64_t group, int thread, ssm__scan_args *args)
{
    const instrument *i = context;
    i->sums.sink.enter(i->sums.sink.context, layer, group, thread, args);
}

static void leave(void *context, int64_t layer, int64_t group, int64_t position,
                  const ssm__scan_args *args)
{
    const instrument *i = context;
    i->sums.sink.leave(i->sums.sink.context, layer, group, position, args);
}

static void enter_head(void *context, int64_t layer, int64_t group, int thread,
                       ssm__head_scan_args *args)
{
    const instrument *i = context;
    i->heads.sink.enter_head(i->heads.sink.context, layer, group, thread, args);
}

static void leave_head(void *context, int64_t layer, int64_t group, int64_t position,
                       const ssm__head_scan_args *args)
{
    const instrument *i = context;
    i->heads.sink.leave_head(i->heads.sink.context, layer, group, position, args);
}

/* Its memory is touched before the clock runs. */
static ssm_status create(const bench_run *run, bool gram, instrument *out, ssm_error *err)
{
    out->by_head = ssm_model_config(run->model)->family == SSM_FAMILY_MAMBA2;
    out->tokens = run->tokens;
    out->sink = (ssm__mode_sink){.context = out,
                                 .enter = enter,
                                 .leave = leave,
                                 .enter_head = enter_head,
                                 .leave_head = leave_head,
                                 .finished = next_layer};
    if (out->by_head) {
        SSM__TRY(ssm__head_sums_create(run->model, run->tokens, gram, NULL, run->pool, &out->heads,
                                       err));
        ssm__head_sums_begin(&out->heads, run->tokens);
        out->sink.layers = out->heads.recorded;
        return SSM_STATUS_OK;
    }
    const ssm__accumulator_options options = {.window = run->tokens,
                                              .gram = gram,
                                              .whole_blocks = true,
                                              .one_layer = true,
                                              .pool = run->pool};
    SSM__TRY(ssm__accumulator_create(run->model, &options, &out->sums, err));
    ssm__accumulator_begin(&out->sums, run->tokens);
    out->sink.layers = out->sums.recorded;
    return SSM_STATUS_OK;
}

static void release(instrument *i)
{
    if (i->by_head) {
        ssm__head_sums_free(&i->heads);
    } else {
        ssm__accumulator_free(&i->sums);
    }
}

static void ignore_logits(void *context, int64_t first, int64_t tokens, const float *logits)
{
    (void)context;
    (void)first;
    (void)tokens;
    (void)logits;
}

/* A pass that scores every token, as `record` makes it, or (head false) one without the head. */
static ssm_status timed_scoring(bench_run *run, bool head, double *seconds, ssm_error *err)
{
    ssm_session_reset(run->session);
    const double start = bench_now();
    if (head) {
        SSM__TRY(ssm_session_nll(run->session, run->ids, run->tokens, run->nll, err));
    } else {
        SSM__TRY(ssm_session_forward(run->session, run->ids, run->tokens, SSM_LOGITS_NONE,
                                     ignore_logits, NULL, err));
    }
    *seconds = bench_now() - start;
    return SSM_STATUS_OK;
}

static ssm_status sample(bench_run *run, bool head, bool gram, bench_sample *out, ssm_error *err)
{
    instrument watched = {0};
    double plain = (double)NAN;
    SSM__TRY(create(run, gram, &watched, err));
    ssm_status status = timed_scoring(run, head, &plain, err);
    ssm__session_set_sink(run->session, &watched.sink);
    if (status == SSM_STATUS_OK) {
        status = timed_scoring(run, head, &out->seconds, err);
    }
    ssm__session_set_sink(run->session, NULL);
    release(&watched);
    out->ratio = out->seconds / plain;
    return status;
}

ssm_status bench_sample_record(bench_run *run, const bench_limits *limits, bench_sample *out,
                               ssm_error *err)
{
    (void)limits;
    return sample(run, true, true, out, err);
}

ssm_status bench_sample_record_no_head(bench_run *run, const bench_limits *limits,
                                       bench_sample *out, ssm_error *err)
{
    (void)limits;
    return sample(run, false, true, out, err);
}

ssm_status bench_sample_record_moments(bench_run *run, const bench_limits *limits,
                                       bench_sample *out, ssm_error *err)
{
    (void)limits;
    return sample(run, true, false, out, err);
}
