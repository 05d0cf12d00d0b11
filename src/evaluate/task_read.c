/* evaluate/task_read.c: the table of tasks, and their data from JSON lines. */
#include "evaluate/task.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"

#define BIT(metric) (1u << SSM_METRIC_##metric)
#define GENERAL     " (or query, choices, gold)"

enum {
    CHOICE = BIT(ACC) | BIT(ACC_NORM) | BIT(ACC_BYTES),
    HARNESS_CHOICE = BIT(ACC) | BIT(ACC_NORM),
    WORD = BIT(ACC) | BIT(PERPLEXITY)
};

static const struct {
    ssm_task task;
    ssm__task_reader *read;
} tasks[] = {
    {{"lambada", "lambada_openai", "EleutherAI/lambada_openai default", "text", WORD, WORD, 1},
     ssm__read_lambada},
    {{"piqa", "piqa", "baber/piqa", "goal, sol1, sol2, label" GENERAL, CHOICE, HARNESS_CHOICE, 1},
     ssm__read_piqa},
    {{"arc_easy", "arc_easy", "allenai/ai2_arc ARC-Easy",
      "question, choices {text, label}, answerKey" GENERAL, CHOICE, HARNESS_CHOICE, 1},
     ssm__read_arc},
    {{"arc_challenge", "arc_challenge", "allenai/ai2_arc ARC-Challenge",
      "question, choices {text, label}, answerKey" GENERAL, CHOICE, HARNESS_CHOICE, 1},
     ssm__read_arc},
    {{"winogrande", "winogrande", "allenai/winogrande winogrande_xl",
      "sentence, option1, option2, answer", BIT(ACC), BIT(ACC), 1},
     ssm__read_winogrande},
    {{"hellaswag", "hellaswag", "Rowan/hellaswag",
      "activity_label, ctx_a, ctx_b, endings, label" GENERAL, CHOICE, HARNESS_CHOICE, 1},
     ssm__read_hellaswag},
};

enum { N_TASKS = sizeof tasks / sizeof *tasks };

const char *const *ssm_task_names(void)
{
    static const char *const names[] = {"lambada",    "piqa",      "arc_easy", "arc_challenge",
                                        "winogrande", "hellaswag", NULL};
    return names;
}

const char *ssm_task_metric_name(ssm_task_metric metric)
{
    static const char *const names[] = {
#define NAME(name, text, higher) text,
        SSM_TASK_METRICS(NAME)
#undef NAME
    };
    return names[metric];
}

bool ssm_task_metric_higher(ssm_task_metric metric)
{
    static const bool higher_is_better[] = {
#define HIGHER(name, text, higher) higher,
        SSM_TASK_METRICS(HIGHER)
#undef HIGHER
    };
    return higher_is_better[metric];
}

ssm_status ssm_task_find(const char *name, const ssm_task **out, ssm_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < N_TASKS; i++) {
        if (strcmp(name, tasks[i].task.name) == 0 ||
            strcmp(name, tasks[i].task.harness_name) == 0) {
            *out = &tasks[i].task;
            return SSM_STATUS_OK;
        }
    }
    const char *near = ssm_nearest(name, ssm_task_names());
    return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                     "there is no task '%.80s'%s%s%s The tasks are lambada, piqa, arc_easy, "
                     "arc_challenge, winogrande and hellaswag",
                     name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
}

static void free_item(ssm_task_item *item)
{
    for (int64_t i = 0; i < item->n_choices; i++) {
        if (item->continuations) {
            free(item->continuations[i]);
        }
        if (item->choices) {
            free(item->choices[i]);
        }
        if (item->contexts && (i == 0 || item->own_contexts)) {
            free(item->contexts[i]);
        }
    }
    free(item->contexts);
    free(item->continuations);
    free(item->choices);
}

void ssm_task_data_free(ssm_task_data *data)
{
    for (int64_t i = 0; data && i < data->count; i++) {
        free_item(&data->items[i]);
    }
    if (data) {
        free(data->items);
        *data = (ssm_task_data){0};
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static ssm_status read_line(const ssm_task *task, const char *path, int64_t line, int64_t offset,
                            const char *text, size_t bytes, ssm_task_item *item, ssm_error *err)
{
    ssm__doc doc = {.path = path, .task = task, .line = line};
    const size_t valid = ssm__utf8_valid((const unsigned char *)text, bytes);
    if (valid < bytes) {
        ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, offset + (int64_t)valid),
                  "line %lld: not UTF-8 at its byte %zu", (long long)line, valid);
        return SSM_STATUS_FILE;
    }
    ssm_error reason;
    ssm_error_clear(&reason);
    json_t *fields = NULL;
    ssm_status status =
        ssm__json_parse(path, offset, text, bytes, SSM__JSON_STRICT, &fields, &reason);
    if (status == SSM_STATUS_FILE) {
        /* The parser counts lines from the beginning of this one. */
        const char *what = strstr(reason.message, ": ");
        return ssm__doc_fail(&doc, err, "not valid JSON: %s", what ? what + 2 : reason.message);
    }
    if (status != SSM_STATUS_OK) {
        return ssm__fail_memory(err, "a line of JSON", bytes);
    }
    doc.fields = fields;
    item->line = line;
    if (!json_is_object(fields)) {
        status = ssm__doc_fail(&doc, err, "expected an object with %s", task->fields);
    }
    for (size_t i = 0; status == SSM_STATUS_OK && i < N_TASKS; i++) {
        if (task == &tasks[i].task) {
            status = tasks[i].read(&doc, item, err);
        }
    }
    json_decref(fields);
    return status;
}

static ssm_status add_item(ssm_task_data *data, size_t *capacity, ssm_error *err)
{
    void *items = data->items;
    SSM__TRY(ssm__grow(&items, capacity, (size_t)data->count + 1, sizeof *data->items,
                       "the items of a task", err));
    data->items = items;
    data->items[data->count++] = (ssm_task_item){0};
    return SSM_STATUS_OK;
}

static bool is_blank(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && strchr(" \t\r", text[at]) && text[at] != '\0') {
        at++;
    }
    return at == bytes;
}

static ssm_status read_lines(const char *path, const char *text, size_t bytes, int64_t limit,
                             ssm_task_data *data, ssm_error *err)
{
    size_t capacity = 0;
    int64_t line = 1;
    for (size_t at = 0; at < bytes; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - text) - at : bytes - at;
        const bool blank = is_blank(text + at, length);
        data->total += !blank;
        if (!blank && (limit == 0 || data->count < limit)) {
            SSM__TRY(add_item(data, &capacity, err));
            SSM__TRY(read_line(data->task, path, line, (int64_t)at, text + at, length,
                               &data->items[data->count - 1], err));
        }
        at += length + 1;
    }
    if (data->count == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "has no items: expected a JSON object a line, with %s",
                         data->task->fields);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_task_read(const ssm_task *task, const char *path, int64_t limit, ssm_task_data *out,
                         ssm_error *err)
{
    *out = (ssm_task_data){.task = task};
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    const char *text = map.data ? (const char *)map.data : "";
    const ssm_status status = read_lines(path, text, map.size, limit, out, err);
    ssm__digest_bytes(text, map.size, out->digest);
    ssm__map_close(&map);
    if (status != SSM_STATUS_OK) {
        ssm_task_data_free(out);
    }
    return status;
}
