/* evaluate/harness.c: results as lm-evaluation-harness writes them, for programs that read those.
 */
#include <ssmscope/tasks.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

/* Any failed allocation is remembered; the object is freed by the caller. */
typedef struct builder {
    json_t *root;
    bool failed;
} builder;

static void put(builder *b, json_t *object, const char *key, json_t *value)
{
    if (!value || json_object_set_new(object, key, value) != 0) {
        b->failed = true;
    }
}

static json_t *object_at(builder *b, json_t *object, const char *key)
{
    json_t *value = json_object();
    put(b, object, key, value);
    return json_object_get(object, key);
}

static json_t *text_or_null(const char *text)
{
    char *printable = text ? ssm__utf8_printable(text) : NULL;
    json_t *value = !text ? json_null() : printable ? json_string(printable) : NULL;
    free(printable);
    return value;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_string("N/A");
}

/* "acc,none" and "acc_stderr,none": the filter of these tasks is called none. */
static void put_results(builder *b, const ssm_harness_run *run)
{
    json_t *task = object_at(b, object_at(b, b->root, "results"), run->task);
    put(b, task, "alias", json_string(run->task));
    json_t *higher = object_at(b, object_at(b, b->root, "higher_is_better"), run->task);
    for (int64_t i = 0; i < run->n_metrics; i++) {
        const ssm_harness_metric *metric = &run->metrics[i];
        char key[64];
        snprintf(key, sizeof key, "%.40s,none", metric->name);
        put(b, task, key, number(metric->value));
        snprintf(key, sizeof key, "%.40s_stderr,none", metric->name);
        put(b, task, key, number(metric->stderr_));
        put(b, higher, metric->name, json_boolean(metric->higher_is_better));
    }
}

static void put_task(builder *b, const ssm_harness_run *run)
{
    put(b, object_at(b, b->root, "group_subtasks"), run->task, json_array());
    json_t *task = object_at(b, object_at(b, b->root, "configs"), run->task);
    const char *blank = strchr(run->dataset, ' ');
    put(b, task, "task", json_string(run->task));
    put(b, task, "dataset_path",
        json_stringn(run->dataset, blank ? (size_t)(blank - run->dataset) : strlen(run->dataset)));
    put(b, task, "dataset_name", text_or_null(blank ? blank + 1 : NULL));
    put(b, task, "output_type", json_string(run->output_type));
    put(b, task, "num_fewshot", json_integer(0));
    put(b, object_at(b, b->root, "versions"), run->task, json_real((double)run->version));
    put(b, object_at(b, b->root, "n-shot"), run->task, json_integer(0));
    json_t *samples = object_at(b, object_at(b, b->root, "n-samples"), run->task);
    put(b, samples, "original", json_integer(run->total));
    put(b, samples, "effective", json_integer(run->items));
}

static void put_config(builder *b, const ssm_harness_run *run)
{
    json_t *config = object_at(b, b->root, "config");
    put(b, config, "model", json_string("ssmscope"));
    put(b, config, "model_args", text_or_null(run->model_args));
    put(b, config, "batch_size", json_integer(1));
    put(b, config, "device", json_string("cpu"));
    put(b, config, "limit", run->limit > 0 ? json_real((double)run->limit) : json_null());
    put(b, config, "bootstrap_iters", json_integer(run->bootstrap_iterations));
    /* The seeds of its sampling of examples, which a run without examples does not use. */
    static const char *const seeds[] = {"random_seed", "numpy_seed", "torch_seed", "fewshot_seed"};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        put(b, config, seeds[i], json_null());
    }
}

/* Letters, digits, '.', '_' and '-' stay; a run of anything else becomes "__". */
static void sanitize(const char *name, char *out, size_t room)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t used = 0;
    bool gap = false;
    for (; *name != '\0' && used + 3 < room; name++) {
        if (strchr(kept, *name)) {
            out[used++] = *name;
            gap = false;
        } else if (!gap) {
            out[used++] = '_';
            out[used++] = '_';
            gap = true;
        }
    }
    out[used] = '\0';
}

static void put_model(builder *b, const ssm_harness_run *run)
{
    char sanitized[1024];
    char seconds[64];
    sanitize(run->model_path, sanitized, sizeof sanitized);
    snprintf(seconds, sizeof seconds, "%.6f", run->seconds);
    put(b, b->root, "git_hash", json_null());
    put(b, b->root, "date", json_real((double)run->started));
    put(b, b->root, "max_length", json_integer(run->max_length));
    json_t *prefix = run->prefix_id < 0 ? json_null() : json_integer(run->prefix_id);
    put(b, b->root, "prefix_token_id", prefix);
    put(b, b->root, "task_hashes", json_object());
    put(b, b->root, "model_source", json_string("ssmscope"));
    put(b, b->root, "model_name", text_or_null(run->model_path));
    put(b, b->root, "model_name_sanitized", json_string(sanitized));
    put(b, b->root, "total_evaluation_time_seconds", json_string(seconds));
    put(b, b->root, "program_version", json_string(ssm_version()));
}

ssm_status ssm_harness_write(const ssm_harness_run *run, const char *path, ssm_error *err)
{
    builder b = {.root = json_object()};
    char *text = NULL;
    if (b.root) {
        put_results(&b, run);
        put_task(&b, run);
        put_config(&b, run);
        put_model(&b, run);
        text = b.failed ? NULL : ssm__json_print(b.root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    }
    const ssm_status status = text ? ssm__write_file(path, text, strlen(text), err)
                                   : ssm__fail_memory(err, "the results", 0);
    free(text);
    json_decref(b.root);
    return status;
}
