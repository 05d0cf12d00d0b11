/* bench/cmd_bench.c: the command `bench`: makes a checkpoint of a published shape, measures cases
 * and limits in turn, prints ratios. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ssmscope/init.h>

#include "bench.h"
#include "commands.h"
#include "messages.h"
#include "output.h"

typedef struct bench_arguments {
    const char *shape, *cases;
    int64_t dtype, tokens, repeats;
} bench_arguments;

typedef struct bench_result {
    const bench_case *about;
    const operator_entry *op; /* of an operator case, else NULL */
    char name[64];
    bench_sample samples[BENCH_MAX_REPEATS];
    int64_t count;
    size_t peak_rss;
} bench_result;

enum { MAX_CASES = 64 };

typedef struct bench_results {
    bench_result cases[MAX_CASES];
    int n_cases;
    int family; /* 1 << of the shape */
} bench_results;

static const char *const dtype_names[] = {"f32", "f16", "bf16"};

/* ---- the model of the shape
 * ---------------------------------------------------------------------- */

/* A directory for the weights, removed again when the run ends. */
static ssm_status make_directory(char out[256], ssm_error *err)
{
    const char *base = getenv("TMPDIR");
    snprintf(out, 256, "%s/ssmscope-bench-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(out)) {
        return cli_fail(err, SSM_STATUS_FAILED, out,
                        "cannot make a directory for the benchmark's weights; set TMPDIR");
    }
    return SSM_STATUS_OK;
}

static void remove_directory(const char *directory)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[320];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

static ssm_status make_model(cli_context *context, const bench_arguments *args,
                             const char *directory, ssm_model **out, ssm_error *err)
{
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    ssm_config config;
    ssm_checkpoint *checkpoint = NULL;
    ssm_layer_kind *kinds = NULL;
    ssm_status status = ssm_shape_config(args->shape, &config, err);
    if (status == SSM_STATUS_OK) {
        kinds = calloc((size_t)config.n_layers, sizeof *kinds);
        status = kinds == NULL ? cli_fail(err, SSM_STATUS_MEMORY, NULL, "out of memory")
                               : ssm_shape_layers(args->shape, kinds, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_init_write_layers(&config, kinds, dtypes[args->dtype], 0, directory,
                                       cli_progress_start(context), err);
    }
    free(kinds);
    if (status == SSM_STATUS_OK) {
        status = ssm_checkpoint_open(directory, NULL, &checkpoint, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_model_create(checkpoint, (ssm_isa)context->globals.isa, out, err);
    }
    cli_progress_clear(context);
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static const char operator_prefix[] = "operator/";

static void add_case(bench_results *results, const bench_case *about, const operator_entry *op)
{
    if (results->n_cases < MAX_CASES) {
        bench_result *result = &results->cases[results->n_cases++];
        result->about = about;
        result->op = op;
        snprintf(result->name, sizeof result->name, "%s%s", op ? operator_prefix : "",
                 op ? op->name : about->name);
    }
}

/* Adds what the word names: a case, an operator, or all operators. False: nothing. */
static bool add_named(bench_results *results, const char *word)
{
    const size_t prefix = sizeof operator_prefix - 1;
    const int before = results->n_cases;
    for (const bench_case *c = bench_cases; c->name; c++) {
        if (strcmp(c->name, word) == 0 && (c->families & results->family)) {
            add_case(results, c, NULL);
        }
    }
    const operator_entry *entry;
    for (int i = 0; (entry = operator_at(i)) != NULL; i++) {
        if (strcmp(word, "operators") == 0 || (strncmp(word, operator_prefix, prefix) == 0 &&
                                               strcmp(word + prefix, entry->name) == 0)) {
            add_case(results, &bench_operator_case, entry);
        }
    }
    return results->n_cases > before;
}

static ssm_status unknown_case(const char *word, ssm_error *err)
{
    const char *names[MAX_CASES + 1] = {"operators"};
    int n = 1;
    for (const bench_case *c = bench_cases; c->name && n < MAX_CASES; c++) {
        if (strcmp(c->name, word) == 0) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "the case %s is not one for a shape of this family", word);
        }
        names[n++] = c->name;
    }
    const char *near = ssm_nearest(word, names);
    return cli_fail(err, SSM_STATUS_USAGE, NULL, "there is no case '%s'%s%s%s", word,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ssm_status choose_cases(const bench_arguments *args, bench_results *results, ssm_error *err)
{
    ssm_config shape;
    const ssm_status status = ssm_shape_config(args->shape, &shape, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    results->family = 1 << shape.family;
    for (const bench_case *c = bench_cases; !args->cases && c->name; c++) {
        if (c->by_default && (c->families & results->family)) {
            add_case(results, c, NULL);
        }
    }
    for (const char *at = args->cases; at && *at;) {
        const size_t length = strcspn(at, ",");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (!add_named(results, word)) {
            return unknown_case(word, err);
        }
        at += length + (at[length] == ',');
    }
    return SSM_STATUS_OK;
}

static ssm_status measure(cli_context *context, bench_run *run, bench_results *results,
                          ssm_error *err)
{
    const ssm_progress *progress = cli_progress_start(context);
    ssm_status status = SSM_STATUS_OK;
    for (int64_t repeat = 0; repeat < run->repeats && status == SSM_STATUS_OK; repeat++) {
        bench_limits *limits = &run->limits[repeat];
        if (!bench_limits_measure(run, limits)) {
            status = cli_no_memory(err);
        }
        for (int i = 0; i < results->n_cases && status == SSM_STATUS_OK; i++) {
            bench_result *result = &results->cases[i];
            bench_sample *sample = &result->samples[repeat];
            *sample = (bench_sample){NAN, NAN, NAN};
            run->op = result->op;
            bench_reset_peak_rss();
            status = result->about->sample(run, limits, sample, err);
            result->count = repeat + 1;
            const size_t peak = bench_peak_rss();
            result->peak_rss = peak > result->peak_rss ? peak : result->peak_rss;
        }
        if (!progress->report(progress->context, "measuring", repeat + 1, run->repeats, "rounds") &&
            status == SSM_STATUS_OK) {
            status = cli_fail(err, SSM_STATUS_INTERRUPTED, NULL, "stopped; nothing was printed");
        }
    }
    cli_progress_clear(context);
    return status;
}

/* ---- results
 * -------------------------------------------------------------------------------------- */

typedef struct bench_summary {
    double median, min, max, fraction, ratio, tokens_per_s;
    int64_t tokens;
} bench_summary;

static bench_summary summarise(bench_run *run, const bench_result *result)
{
    double seconds[BENCH_MAX_REPEATS], fraction[BENCH_MAX_REPEATS], ratio[BENCH_MAX_REPEATS];
    for (int64_t i = 0; i < result->count; i++) {
        const bench_sample *s = &result->samples[i];
        seconds[i] = s->seconds;
        fraction[i] = s->at_limit / s->seconds;
        ratio[i] = s->ratio;
    }
    run->op = result->op;
    bench_summary summary = {.median = bench_median(seconds, result->count),
                             .tokens = result->about->tokens(run)};
    summary.tokens_per_s = (double)summary.tokens / summary.median;
    summary.min = seconds[0];
    summary.max = seconds[result->count - 1];
    summary.fraction = bench_median(fraction, result->count);
    summary.ratio = bench_median(ratio, result->count);
    return summary;
}

static bench_limits median_limits(const bench_run *run)
{
    double sgemm[BENCH_MAX_REPEATS], read[BENCH_MAX_REPEATS], exps[BENCH_MAX_REPEATS];
    double fma[BENCH_MAX_REPEATS];
    for (int64_t i = 0; i < run->repeats; i++) {
        sgemm[i] = run->limits[i].sgemm_gflops;
        read[i] = run->limits[i].read_gbps;
        exps[i] = run->limits[i].exp_per_s;
        fma[i] = run->limits[i].fma_gflops;
    }
    return (bench_limits){bench_median(sgemm, run->repeats), bench_median(read, run->repeats),
                          bench_median(exps, run->repeats), bench_median(fma, run->repeats)};
}

/* "model name" of the first processor, or "unknown". */
static void cpu_name(char out[128])
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, 128, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(out, 128, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

static ssm_status print_json(const cli_context *context, bench_run *run,
                             const bench_results *results, ssm_error *err)
{
    char cpu[128];
    cpu_name(cpu);
    const bench_limits limits = median_limits(run);
    cli_json json = cli_json_create(context, "bench");
    json_t *machine = cli_json_object(&json, json.root, "machine");
    cli_json_text(&json, machine, "cpu", cpu);
    cli_json_text(&json, machine, "isa", ssm_isa_name(ssm_model_isa(run->model)));
    cli_json_integer(&json, machine, "threads", run->threads);
    cli_json_real(&json, machine, "sgemm_gflops", limits.sgemm_gflops);
    cli_json_text(&json, machine, "sgemm", bench_sgemm_name());
    cli_json_real(&json, machine, "read_gbps", limits.read_gbps);
    cli_json_real(&json, machine, "exp_per_s", limits.exp_per_s);
    cli_json_real(&json, machine, "fma_gflops", limits.fma_gflops);
    json_t *cases = cli_json_array(&json, json.root, "cases");
    for (int i = 0; i < results->n_cases; i++) {
        const bench_result *result = &results->cases[i];
        const bench_summary s = summarise(run, result);
        json_t *one = json_object();
        cli_json_push(&json, cases, one);
        cli_json_text(&json, one, "name", result->name);
        if (result->op) { /* has a shape of its own, and its dtype in its name */
            const operator_shape *shape = &result->op->bench_shape;
            char text[80];
            snprintf(text, sizeof text, "%lld x %lld x %lld", (long long)shape->tokens,
                     (long long)shape->a, (long long)shape->b);
            cli_json_text(&json, one, "shape", text);
        } else {
            cli_json_text(&json, one, "shape", run->shape);
            cli_json_text(&json, one, "dtype", run->dtype);
        }
        cli_json_integer(&json, one, "tokens", s.tokens);
        json_t *seconds = cli_json_array(&json, one, "seconds");
        cli_json_push(&json, seconds, cli_json_number(s.median));
        cli_json_push(&json, seconds, cli_json_number(s.min));
        cli_json_push(&json, seconds, cli_json_number(s.max));
        cli_json_real(&json, one, "tokens_per_s", s.tokens_per_s);
        const double flops = result->op ? result->op->flops(&result->op->bench_shape) : 0.0;
        if (flops > 0.0) {
            cli_json_real(&json, one, "gflops", 1e-9 * flops / s.median);
        }
        if (result->about->limit) {
            cli_json_text(&json, one, "limit", result->about->limit);
            cli_json_real(&json, one, "fraction_of_limit", s.fraction);
        }
        if (result->about->ratio_name) {
            cli_json_real(&json, one, result->about->ratio_name, s.ratio);
            cli_json_real(&json, one, "speedup", 1.0 / s.ratio);
        }
        cli_json_integer(&json, one, "peak_rss_bytes", (int64_t)result->peak_rss);
    }
    return cli_json_print(&json, err);
}

static ssm_status print_table(bench_run *run, const bench_results *results, ssm_error *err)
{
    static const char *const headings[] = {"case",  "tokens",   "median s", "min s",
                                           "max s", "tokens/s", "of limit", "limit",
                                           "ratio", "peak RSS", NULL};
    char cpu[128];
    cpu_name(cpu);
    const bench_limits limits = median_limits(run);
    printf("%s, %s kernels, %d threads; shape %s, %s weights\n"
           "measured in the same rounds: sgemm %.0f GFLOP/s (%s, in_proj shape), read %.1f GB/s, "
           "exp %.2f G/s, fma %.0f GFLOP/s\n\n",
           cpu, ssm_isa_name(ssm_model_isa(run->model)), run->threads, run->shape, run->dtype,
           limits.sgemm_gflops, bench_sgemm_name(), limits.read_gbps, 1e-9 * limits.exp_per_s,
           limits.fma_gflops);
    cli_table table = cli_table_create(headings, "lrrrrrrlrr");
    for (int i = 0; i < results->n_cases; i++) {
        const bench_result *result = &results->cases[i];
        const bench_summary s = summarise(run, result);
        char rss[32];
        cli_format_bytes((double)result->peak_rss, rss);
        cli_table_cell(&table, "%s", result->name);
        cli_table_cell(&table, "%lld", (long long)s.tokens);
        cli_table_cell(&table, "%.3g", s.median);
        cli_table_cell(&table, "%.3g", s.min);
        cli_table_cell(&table, "%.3g", s.max);
        cli_table_number(&table, s.tokens_per_s, 1);
        cli_table_number(&table, s.fraction, 3);
        cli_table_cell(&table, "%s", result->about->limit ? result->about->limit : "-");
        cli_table_number(&table, s.ratio, 4);
        cli_table_cell(&table, "%s", rss);
    }
    const ssm_status status = cli_table_print(&table, stdout, err);
    if (status == SSM_STATUS_OK) {
        printf(
            "  of limit: seconds at the limit / seconds, median over rounds; a limit is what the "
            "machine did\n  in the same round, so it can be passed. ratio: seconds over those of "
            "the "
            "same pass without the\n  instrument (record), or of all modes (scan_pruned).\n");
    }
    return status;
}

/* ---- the command
 * ---------------------------------------------------------------------------------- */

static ssm_status run_on_model(cli_context *context, const bench_arguments *args, ssm_model *model,
                               bench_results *results, ssm_error *err)
{
    bench_run *run = calloc(1, sizeof *run);
    if (!run) {
        return cli_no_memory(err);
    }
    run->model = model;
    run->shape = args->shape;
    run->dtype = dtype_names[args->dtype];
    run->tokens = args->tokens;
    run->repeats = args->repeats;
    run->ids = malloc((size_t)(args->tokens + 64) * sizeof *run->ids);
    run->nll = malloc((size_t)args->tokens * sizeof *run->nll);
    ssm_status status =
        run->ids && run->nll ? cli_pool(context, &run->pool, err) : cli_no_memory(err);
    if (status == SSM_STATUS_OK) {
        const ssm_session_options options = {.pool = run->pool};
        run->threads = ssm_pool_threads(run->pool);
        for (int64_t i = 0; i < args->tokens + 64; i++) {
            run->ids[i] = (int32_t)((i * 7919 + 13) % ssm_model_config(model)->vocab_size);
        }
        status = ssm_session_create(model, &options, &run->session, err);
    }
    status = status == SSM_STATUS_OK ? measure(context, run, results, err) : status;
    if (status == SSM_STATUS_OK) {
        status = context->globals.json ? print_json(context, run, results, err)
                                       : print_table(run, results, err);
    }
    ssm_session_free(run->session);
    free(run->ids);
    free(run->nll);
    free(run);
    return status;
}

static ssm_status run_bench(cli_context *context, const void *arguments, ssm_error *err)
{
    const bench_arguments *args = arguments;
    bench_results *results = calloc(1, sizeof *results);
    if (!results) {
        return cli_no_memory(err);
    }
    char directory[256];
    ssm_model *model = NULL;
    ssm_status status = choose_cases(args, results, err);
    if (status == SSM_STATUS_OK && (status = make_directory(directory, err)) == SSM_STATUS_OK) {
        status = make_model(context, args, directory, &model, err);
        if (status == SSM_STATUS_OK) {
            status = run_on_model(context, args, model, results, err);
        }
        ssm_model_free(model);
        remove_directory(directory);
    }
    free(results);
    return status;
}

static const cli_option bench_options[] = {
    {.name = "shape",
     .kind = CLI_TEXT,
     .into = offsetof(bench_arguments, shape),
     .argument = "NAME",
     .words = ssm_shape_names,
     .fallback = "mamba-130m",
     .help = "A published shape (see init); its weights are drawn into $TMPDIR and removed again."},
    {.name = "cases",
     .kind = CLI_TEXT,
     .into = offsetof(bench_arguments, cases),
     .argument = "LIST",
     .help = "Comma-separated: prefill, decode, record, record_no_head, record_moments, scan, "
             "scan_pruned, scan_pruned_layer, linear_in_proj, linear_out_proj, linear_x_proj, "
             "linear_dt_proj, linear_dx, linear_dw, gram_heads; train, train_small; "
             "operator/NAME is one kernel at one shape on one thread, operators is all of these. "
             "[default: all but training and the operators]"},
    {.name = "dtype",
     .kind = CLI_CHOICE,
     .into = offsetof(bench_arguments, dtype),
     .choices = "f32|f16|bf16",
     .fallback = "f32",
     .help = "Stored dtype of the matrices."},
    {.name = "tokens",
     .kind = CLI_INTEGER,
     .into = offsetof(bench_arguments, tokens),
     .argument = "T",
     .fallback = "1024",
     .min = 64,
     .max = 65536,
     .help = "Tokens of a pass."},
    {.name = "repeats",
     .kind = CLI_INTEGER,
     .into = offsetof(bench_arguments, repeats),
     .argument = "K",
     .fallback = "5",
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .help = "Rounds; each measures the limits and every case. Medians are printed."},
};

static const char *const bench_examples[] = {"ssmscope bench", "Everything at the 130M shape.",
                                             "ssmscope bench --cases decode --dtype bf16",
                                             "Decode from 16-bit weights.", NULL};

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "speed as a fraction of what this machine can do",
    .description =
        "Makes an untrained checkpoint of a published shape and measures the cases and the limits "
        "of the machine in turn, in the same rounds, so that a ratio does not depend on what else "
        "the machine does.\n\n"
        "Limits: gemm+scan is the time of the matrix products at OpenBLAS's sgemm rate plus the "
        "scan at 40 % of the rate of its exponentials alone; for a Mamba-2 shape gemm is its "
        "matrix "
        "products, those of the chunked form among them, at sgemm's rate; bandwidth is reading the "
        "weights and the state once a token at the measured streaming rate; gemm is OpenBLAS at "
        "the "
        "same shape; exp is the exponentials alone; fma is fused multiply-adds in registers. "
        "Timings are this machine's, at this minute.",
    .examples = bench_examples,
    .options = bench_options,
    .n_options = sizeof bench_options / sizeof *bench_options,
    .arguments_size = sizeof(bench_arguments),
    .run = run_bench,
};
