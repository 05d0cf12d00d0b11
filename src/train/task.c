/* Tasks: the table, creation from settings, rows and examples. */
#include "train/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "train/tasks/kind.h"

static const ssm__task_kind *const kinds[] = {
    &ssm__task_copy,
    &ssm__task_stack_copy,
    &ssm__task_sort,
    &ssm__task_prefix_ngram,
    &ssm__task_suffix_ngram,
    &ssm__task_mqar,
    &ssm__task_induction_heads,
    &ssm__task_selective_copying,
    &ssm__task_switched_linear,
    &ssm__task_language,
    &ssm__task_classification,
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const char *const names[] = {"copy",
                                    "stack-copy",
                                    "sort",
                                    "prefix-ngram",
                                    "suffix-ngram",
                                    "mqar",
                                    "induction-heads",
                                    "selective-copying",
                                    "switched-linear",
                                    "language",
                                    "classification",
                                    NULL};
_Static_assert(sizeof names / sizeof names[0] == KINDS + 1, "a name for every task");

const char *const *ssm_train_task_names(void)
{
    return names;
}

const char *ssm_train_loss_name(ssm_train_loss loss)
{
    switch (loss) {
    case SSM_TRAIN_TOKENS:
        return "tokens";
    case SSM_TRAIN_CLASSES:
        return "classes";
    case SSM_TRAIN_VECTORS:
        return "vectors";
    }
    return "unknown";
}

/* Recipes in JSON like underscores, command lines like hyphens: both are read. */
static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        const char one = *a == '_' ? '-' : *a;
        const char other = *b == '_' ? '-' : *b;
        if (one != other) {
            return false;
        }
    }
    return *a == *b;
}

static const ssm__task_kind *find_kind(const char *name)
{
    for (int i = 0; i < KINDS; i++) {
        if (same_name(kinds[i]->name, name)) {
            return kinds[i];
        }
    }
    return NULL;
}

static ssm_status fail_name(const char *name, ssm_error *err)
{
    char list[256];
    ssm__list_names(names, list, sizeof list);
    const char *nearest = ssm_nearest(name, names);
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "unknown task \"%.100s\"%s%s%s", name,
                     nearest == NULL ? "; expected one of " : "; did you mean ",
                     nearest == NULL ? list : nearest, nearest == NULL ? "" : "?");
}

static ssm__setting_table table_of(const ssm__task_kind *kind)
{
    return (ssm__setting_table){kind->name, kind->settings, kind->n_settings};
}

bool ssm_train_task_key(const char *name, int64_t i, ssm_train_key *out)
{
    const ssm__task_kind *kind = find_kind(name);
    if (kind == NULL || i < 0 || i >= kind->n_settings) {
        return false;
    }
    const ssm__setting *setting = &kind->settings[i];
    *out =
        (ssm_train_key){.key = setting->key, .fallback = setting->fallback, .help = setting->help};
    ssm__setting_allowed(setting, out->allowed);
    return true;
}

/* ---- creation -------------------------------------------------------------------------------- */

static ssm_status make_digest(ssm_train_task *task, ssm_error *err)
{
    const ssm__setting_table table = table_of(task->kind);
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, task->seed);
    json_t *settings = ssm__settings_json(&table, task);
    char *text = settings == NULL ? NULL : ssm__json_print(settings, JSON_COMPACT);
    json_decref(settings);
    if (text == NULL) {
        return ssm__fail_memory(err, "the settings of a task", 0);
    }
    ssm__digest *digest = NULL;
    ssm_status status = ssm__digest_create(&digest, err);
    if (status == SSM_STATUS_OK) {
        ssm__digest_add_string(digest, task->kind->name);
        ssm__digest_add_string(digest, text);
        ssm__digest_add_string(digest, seed);
        ssm__digest_add_string(digest, task->files_digest == NULL ? "" : task->files_digest);
        ssm__digest_finish(digest, task->digest);
    }
    free(text);
    return status;
}

static ssm_status check_sizes(const ssm_train_task *task, ssm_error *err)
{
    for (int64_t i = 0; i < task->sizes.count; i++) {
        int64_t length = 0;
        SSM__TRY(ssm_train_task_length(task, task->sizes.values[i], &length, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status open_task(ssm_train_task *task, ssm_error *err)
{
    SSM__TRY(task->kind->open(task, err));
    task->info.sizes = task->sizes.values;
    task->info.n_sizes = task->sizes.count;
    SSM__TRY(check_sizes(task, err));
    return make_digest(task, err);
}

/* A task with its defaults, before open. */
static ssm_status begin(const char *name, uint64_t seed, ssm_train_task **out, bool **given,
                        ssm_error *err)
{
    *out = NULL;
    *given = NULL;
    const ssm__task_kind *kind = find_kind(name);
    if (kind == NULL) {
        return fail_name(name, err);
    }
    const ssm__setting_table table = table_of(kind);
    ssm_train_task *task = calloc(1, kind->bytes);
    *given = calloc((size_t)kind->n_settings, sizeof **given);
    if (task == NULL || *given == NULL) {
        free(task);
        return ssm__fail_memory(err, "a task", kind->bytes);
    }
    task->kind = kind;
    task->seed = seed;
    task->uncounted = -1;
    task->info = (ssm_train_info){.name = kind->name, .summary = kind->summary, .size = kind->size};
    *out = task;
    return ssm__settings_defaults(&table, task, err);
}

static ssm_status end(ssm_status status, ssm_train_task *task, bool *given, ssm_train_task **out,
                      ssm_error *err)
{
    free(given);
    status = status == SSM_STATUS_OK ? open_task(task, err) : status;
    if (status != SSM_STATUS_OK) {
        ssm_train_task_free(task);
        task = NULL;
    }
    *out = task;
    return status;
}

ssm_status ssm_train_task_create(const char *name, const ssm_train_setting *settings, int64_t count,
                                 uint64_t seed, ssm_train_task **out, ssm_error *err)
{
    ssm_train_task *task = NULL;
    bool *given = NULL;
    ssm_status status = begin(name, seed, &task, &given, err);
    for (int64_t i = 0; status == SSM_STATUS_OK && i < count; i++) {
        const ssm__setting_table table = table_of(task->kind);
        status = ssm__settings_set(&table, settings[i].key, settings[i].value, given, task, err);
    }
    return end(status, task, given, out, err);
}

static ssm_status set_members(const json_t *object, ssm_train_task *task, bool *given,
                              ssm_error *err)
{
    const ssm__setting_table table = table_of(task->kind);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (strcmp(key, "name") != 0) {
            SSM__TRY(ssm__settings_set_json(&table, key, value, given, task, err));
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__train_task_from_json(const json_t *object, uint64_t seed, const char *place,
                                     ssm_train_task **out, ssm_error *err)
{
    *out = NULL;
    const json_t *name = json_object_get(object, "name");
    if (!json_is_string(name)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(place),
                         "the task has no name; expected {\"name\": \"copy\", …}");
    }
    ssm_train_task *task = NULL;
    bool *given = NULL;
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status = begin(json_string_value(name), seed, &task, &given, &own);
    status = status == SSM_STATUS_OK ? set_members(object, task, given, &own) : status;
    if (status != SSM_STATUS_OK) { /* what is wrong stands in the recipe, not in a text */
        ssm__fail(err, status, SSM__IN_FILE(place), "%s", own.message);
    }
    return end(status, task, given, out, err);
}

void ssm_train_task_free(ssm_train_task *task)
{
    if (task == NULL) {
        return;
    }
    const ssm__setting_table table = table_of(task->kind);
    if (task->kind->close != NULL) {
        task->kind->close(task);
    }
    ssm__settings_free(&table, task);
    free(task->files_digest);
    free(task);
}

const ssm_train_info *ssm_train_task_info(const ssm_train_task *task)
{
    return &task->info;
}

char *ssm_train_task_settings(const ssm_train_task *task)
{
    const ssm__setting_table table = table_of(task->kind);
    json_t *settings = ssm__settings_json(&table, task);
    char *text = settings == NULL ? NULL : ssm__json_print(settings, JSON_COMPACT);
    json_decref(settings);
    return text;
}

const char *ssm_train_task_digest(const ssm_train_task *task)
{
    return task->digest;
}

void ssm_train_task_token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    if (task->kind->token != NULL) {
        task->kind->token(task, id, out, size);
    } else {
        snprintf(out, size, "%" PRId32, id);
    }
}

void ssm_train_task_label(const ssm_train_task *task, int32_t label, char *out, size_t size)
{
    if (task->kind->label != NULL) {
        task->kind->label(task, label, out, size);
    } else {
        ssm_train_task_token(task, label, out, size);
    }
}

/* ---- for the tasks --------------------------------------------------------------------------- */

int64_t ssm__task_size_is_length(const ssm_train_task *task, int64_t size)
{
    (void)task;
    return size;
}

void ssm__task_gives_ids(ssm_train_task *task, int64_t vocab_size, int64_t length)
{
    task->info.loss = SSM_TRAIN_TOKENS;
    task->info.vocab_size = vocab_size;
    task->info.output_width = vocab_size;
    task->info.length = length;
}

ssm_status ssm__task_default_sizes(ssm_train_task *task, int64_t base, const int64_t *factors,
                                   int64_t count, ssm_error *err)
{
    if (task->sizes.count > 0) {
        return SSM_STATUS_OK;
    }
    task->sizes.values = calloc((size_t)count, sizeof *task->sizes.values);
    if (task->sizes.values == NULL) {
        return ssm__fail_memory(err, "a list of sizes", (size_t)count * sizeof base);
    }
    for (int64_t i = 0; i < count; i++) {
        task->sizes.values[i] = factors[i] * base;
    }
    task->sizes.count = count;
    return SSM_STATUS_OK;
}

ssm_rng ssm__task_stream(const ssm_train_task *task, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "task.%s.%s", task->kind->name, what);
    return ssm_rng_create(task->seed, name);
}

void ssm__row_shift(ssm__row *row, const int32_t *ids, const bool *learned, int64_t tokens)
{
    int64_t positions = tokens - 1 < row->length ? tokens - 1 : row->length;
    for (int64_t t = 0; t < positions; t++) {
        row->ids[t] = ids[t];
        row->labels[t] = learned[t + 1] ? ids[t + 1] : -1;
    }
    *row->used = (int32_t)(positions > 0 ? positions : 0);
}

int64_t ssm__row_between(ssm_rng *rng, int64_t low, int64_t high)
{
    return low + (int64_t)ssm_rng_below(rng, (uint64_t)(high - low) + 1);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { LENGTH_MAX = 1 << 24 };

static void *take(int64_t count, int64_t each, size_t bytes, bool wanted, bool *failed)
{
    int64_t elements = 0;
    if (!wanted) {
        return NULL;
    }
    void *memory = ssm__mul_dim(count, each, &elements) && elements <= INT64_MAX / 8
                       ? calloc((size_t)elements + 1, bytes)
                       : NULL;
    *failed = *failed || memory == NULL;
    return memory;
}

ssm_status ssm_train_batch_create(const ssm_train_task *task, int64_t rows, int64_t length,
                                  ssm_train_batch *out, ssm_error *err)
{
    const ssm_train_info *info = &task->info;
    const bool vectors = info->loss == SSM_TRAIN_VECTORS;
    *out = (ssm_train_batch){.rows = rows, .length = length};
    if (rows < 1 || rows > LENGTH_MAX || length < 1 || length > LENGTH_MAX) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a batch of %" PRId64 " rows of %" PRId64 "; expected 1 … %d of each",
                         rows, length, LENGTH_MAX);
    }
    bool failed = false;
    const int64_t positions = rows * length;
    const size_t scratch = task->kind->scratch == NULL ? 0 : task->kind->scratch(task, length);
    out->ids = take(positions, 1, sizeof *out->ids, !vectors, &failed);
    out->labels = take(info->loss == SSM_TRAIN_CLASSES ? rows : positions, 1, sizeof *out->labels,
                       !vectors, &failed);
    out->used = take(rows, 1, sizeof *out->used, true, &failed);
    out->inputs = take(positions, info->input_width, sizeof(float), vectors, &failed);
    out->targets = take(positions, info->output_width, sizeof(float), vectors, &failed);
    out->regimes = take(positions, 1, sizeof *out->regimes, info->regimes, &failed);
    out->scratch = take((int64_t)scratch, 1, 1, scratch > 0, &failed);
    if (failed) {
        ssm_train_batch_free(out);
        return ssm__fail_memory(err, "a batch", (size_t)positions * sizeof(int32_t));
    }
    return SSM_STATUS_OK;
}

void ssm_train_batch_free(ssm_train_batch *batch)
{
    if (batch == NULL) {
        return;
    }
    free(batch->ids);
    free(batch->labels);
    free(batch->used);
    free(batch->inputs);
    free(batch->targets);
    free(batch->regimes);
    free(batch->scratch);
    *batch = (ssm_train_batch){0};
}

/* Row b of the batch, emptied. */
static ssm__row empty_row(const ssm_train_task *task, ssm_train_batch *batch, int64_t b)
{
    const ssm_train_info *info = &task->info;
    const int64_t L = batch->length;
    const bool classes = info->loss == SSM_TRAIN_CLASSES;
    ssm__row row = {.length = L, .used = &batch->used[b], .scratch = batch->scratch};
    *row.used = 0;
    if (batch->ids != NULL) {
        row.ids = batch->ids + b * L;
        row.labels = batch->labels + (classes ? b : b * L);
        for (int64_t t = 0; t < L; t++) {
            row.ids[t] = task->padding;
        }
        for (int64_t t = 0; t < (classes ? 1 : L); t++) {
            row.labels[t] = -1;
        }
    }
    if (batch->inputs != NULL) {
        row.inputs = batch->inputs + b * L * info->input_width;
        row.targets = batch->targets + b * L * info->output_width;
        memset(row.inputs, 0, (size_t)(L * info->input_width) * sizeof(float));
        memset(row.targets, 0, (size_t)(L * info->output_width) * sizeof(float));
    }
    if (batch->regimes != NULL) {
        row.regimes = batch->regimes + b * L;
        memset(row.regimes, 0, (size_t)L * sizeof *row.regimes);
    }
    return row;
}

void ssm_train_task_rows(const ssm_train_task *task, int64_t first, ssm_train_batch *batch)
{
    for (int64_t b = 0; b < batch->rows; b++) {
        char stream[64];
        ssm__row row = empty_row(task, batch, b);
        row.number = first + b;
        snprintf(stream, sizeof stream, "train.%" PRId64, row.number);
        row.rng = ssm__task_stream(task, stream);
        task->kind->row(task, &row);
    }
}

ssm_status ssm_train_task_length(const ssm_train_task *task, int64_t size, int64_t *length,
                                 ssm_error *err)
{
    int64_t low = 0;
    int64_t high = 0;
    task->kind->range(task, &low, &high);
    if (size < low || size > high) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%s cannot be evaluated at %" PRId64 " %s; expected %" PRId64
                         " … %" PRId64,
                         task->kind->name, size, task->kind->size, low, high);
    }
    *length = task->kind->length(task, size);
    return SSM_STATUS_OK;
}

int64_t ssm_train_task_example_count(const ssm_train_task *task, int64_t size)
{
    return task->kind->examples == NULL ? -1 : task->kind->examples(task, size);
}

void ssm_train_task_examples(const ssm_train_task *task, int64_t size, int64_t first,
                             ssm_train_batch *batch)
{
    const int64_t count = ssm_train_task_example_count(task, size);
    for (int64_t b = 0; b < batch->rows; b++) {
        char stream[64];
        ssm__row row = empty_row(task, batch, b);
        row.number = first + b;
        if (count >= 0 && row.number >= count) {
            continue;
        }
        snprintf(stream, sizeof stream, "evaluate.%" PRId64 ".%" PRId64, size, row.number);
        row.rng = ssm__task_stream(task, stream);
        task->kind->example(task, size, &row);
    }
}
