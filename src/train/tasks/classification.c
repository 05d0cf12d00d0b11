/* Classification of labelled lines: "label<TAB>text". Classes are the distinct labels of the
 * training texts in byte order. An epoch goes once through the lines in random order. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "train/tasks/text.h"

enum { LENGTH_MAX = 1 << 22, CLASSES_MAX = 4096, LABEL_MAX = 256 };

typedef struct line {
    int64_t first, count; /* in ids */
    int32_t label;
} line;

typedef struct line_list {
    line *lines;
    int64_t count, capacity;
} line_list;

typedef struct classification_task {
    ssm_train_task base;
    ssm__texts text, evaluation;
    char *tokenizer;
    double held_out; /* percent */
    int64_t length;
    ssm__alphabet alphabet;
    ssm_ids ids;
    char **labels; /* [n_labels] in byte order */
    int64_t n_labels;
    line_list train, test; /* test: of the texts for evaluation */
    int64_t n_held_out;    /* lines of train that are not trained on: the last of a shuffle */
} classification_task;

static const classification_task *of(const ssm_train_task *task)
{
    return (const classification_task *)task;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static int64_t label_place(const classification_task *own, const char *label)
{
    int64_t low = 0;
    int64_t high = own->n_labels;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (strcmp(own->labels[middle], label) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_label(const classification_task *own, int64_t place, const char *label)
{
    return place < own->n_labels && strcmp(own->labels[place], label) == 0;
}

static ssm_status add_label(classification_task *own, const char *label, ssm__place place,
                            ssm_error *err)
{
    const int64_t at = label_place(own, label);
    if (is_label(own, at, label)) {
        return SSM_STATUS_OK;
    }
    if (own->n_labels == CLASSES_MAX) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "more than %d different labels; expected label<TAB>text", CLASSES_MAX);
    }
    char **grown = realloc(own->labels, (size_t)(own->n_labels + 1) * sizeof *grown);
    char *copy = strdup(label);
    own->labels = grown == NULL ? own->labels : grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return ssm__fail_memory(err, "a list of labels", (size_t)own->n_labels * sizeof *grown);
    }
    memmove(grown + at + 1, grown + at, (size_t)(own->n_labels - at) * sizeof *grown);
    grown[at] = copy;
    own->n_labels++;
    return SSM_STATUS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* One line of a file: its label and where its text lies. */
typedef struct raw_line {
    char label[LABEL_MAX];
    const char *text;
    size_t bytes;
} raw_line;

static ssm_status parse_line(const char *text, size_t bytes, ssm__place place, raw_line *out,
                             ssm_error *err)
{
    const char *tab = memchr(text, '\t', bytes);
    const size_t label_bytes = tab == NULL ? 0 : (size_t)(tab - text);
    if (tab == NULL || label_bytes == 0 || label_bytes >= LABEL_MAX ||
        memchr(text, '\0', label_bytes) != NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "a line without a label of 1 … %d bytes; expected label<TAB>text",
                         LABEL_MAX - 1);
    }
    memcpy(out->label, text, label_bytes);
    out->label[label_bytes] = '\0';
    out->text = tab + 1;
    out->bytes = bytes - label_bytes - 1;
    if (out->bytes == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "a line with the label %s has no text; expected label<TAB>text",
                         out->label);
    }
    return SSM_STATUS_OK;
}

static ssm_status add_line(classification_task *own, const raw_line *raw, ssm__place place,
                           line_list *list, ssm_error *err)
{
    if (list->count == list->capacity) {
        const int64_t capacity = 2 * list->capacity + 64;
        line *grown = realloc(list->lines, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return ssm__fail_memory(err, "a list of lines", (size_t)capacity * sizeof *grown);
        }
        list->lines = grown;
        list->capacity = capacity;
    }
    const int64_t label = label_place(own, raw->label);
    if (!is_label(own, label, raw->label)) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the label %s is not among those of the training texts", raw->label);
    }
    const int64_t first = own->ids.count;
    SSM__TRY(ssm__alphabet_encode(&own->alphabet, raw->text, raw->bytes, &own->ids, err));
    if (own->ids.count - first > own->length) {
        own->ids.count = first + own->length; /* the rest is never looked at */
    }
    if (own->ids.count == first) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the tokenizer knows nothing of the text of this line");
    }
    list->lines[list->count++] = (line){first, own->ids.count - first, (int32_t)label};
    return SSM_STATUS_OK;
}

/* Goes through the lines of a file; list NULL: collects labels. */
static ssm_status read_lines(classification_task *own, const char *path, const ssm__map *map,
                             line_list *list, ssm_error *err)
{
    const char *text = (const char *)map->data;
    for (size_t at = 0; at < map->size;) {
        const char *end = memchr(text + at, '\n', map->size - at);
        const size_t bytes = end == NULL ? map->size - at : (size_t)(end - text) - at;
        const size_t kept = bytes > 0 && text[at + bytes - 1] == '\r' ? bytes - 1 : bytes;
        const ssm__place place = SSM__AT(path, (int64_t)at);
        raw_line raw;
        if (kept > 0) {
            SSM__TRY(parse_line(text + at, kept, place, &raw, err));
            SSM__TRY(list == NULL ? add_label(own, raw.label, place, err)
                                  : add_line(own, &raw, place, list, err));
        }
        at += bytes + 1;
    }
    return SSM_STATUS_OK;
}

static ssm_status read_file(classification_task *own, const char *path, line_list *list,
                            ssm_error *err)
{
    ssm__map map;
    char digest[64];
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status = read_lines(own, path, &map, list, err);
    if (status == SSM_STATUS_OK && list != NULL) {
        ssm__digest_bytes(map.size == 0 ? (const void *)"" : map.data, map.size, digest);
        status = ssm__task_add_digest(&own->base, digest, err);
    }
    ssm__map_close(&map);
    return status;
}

static ssm_status read_texts(classification_task *own, ssm_error *err)
{
    for (int64_t i = 0; i < own->text.count; i++) {
        SSM__TRY(read_file(own, own->text.values[i], NULL, err));
    }
    for (int64_t i = 0; i < own->text.count; i++) {
        SSM__TRY(read_file(own, own->text.values[i], &own->train, err));
    }
    for (int64_t i = 0; i < own->evaluation.count; i++) {
        SSM__TRY(read_file(own, own->evaluation.values[i], &own->test, err));
    }
    if (own->n_labels < 2) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(own->text.values[0]),
                         "%" PRId64 " labels in the training texts; expected at least two",
                         own->n_labels);
    }
    return SSM_STATUS_OK;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t one[] = {1};
    classification_task *own = (classification_task *)task;
    if (own->text.count == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "classification: text is missing; expected text=FILE with lines "
                         "label<TAB>text");
    }
    SSM__TRY(ssm__alphabet_open(task, own->tokenizer, &own->alphabet, err));
    SSM__TRY(read_texts(own, err));
    if (own->evaluation.count == 0) {
        own->n_held_out = (int64_t)floor((double)own->train.count * own->held_out / 100 + 1e-9);
    }
    if (own->train.count - own->n_held_out < 1) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(own->text.values[0]),
                         "no line is left to train on");
    }
    task->info.loss = SSM_TRAIN_CLASSES;
    task->info.vocab_size = own->alphabet.vocab_size;
    task->info.output_width = own->n_labels;
    task->info.length = own->length;
    return ssm__task_default_sizes(task, own->length, one, 1, err);
}

static void close(ssm_train_task *task)
{
    classification_task *own = (classification_task *)task;
    for (int64_t i = 0; i < own->n_labels; i++) {
        free(own->labels[i]);
    }
    free(own->labels);
    free(own->train.lines);
    free(own->test.lines);
    ssm_ids_free(&own->ids);
    ssm__alphabet_close(&own->alphabet);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void copy_line(const classification_task *own, const line *from, int64_t length,
                      ssm__row *row)
{
    const int64_t count = from->count < length ? from->count : length;
    for (int64_t t = 0; t < count; t++) {
        row->ids[t] = own->ids.data[from->first + t];
    }
    row->labels[0] = from->label;
    *row->used = (int32_t)count;
}

/* Lines in the order that parts those held out (the last ones) from the others. */
static const line *parted(const classification_task *own, int64_t i)
{
    return &own->train.lines[ssm__task_shuffle(&own->base, "held-out", 0, own->train.count, i)];
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    const classification_task *own = of(task);
    const int64_t count = own->train.count - own->n_held_out;
    const int64_t i = ssm__task_shuffle(task, "shuffle", (uint64_t)(row->number / count), count,
                                        row->number % count);
    copy_line(own, parted(own, i), own->length, row);
}

static int64_t examples(const ssm_train_task *task, int64_t size)
{
    (void)size;
    return of(task)->evaluation.count > 0 ? of(task)->test.count : of(task)->n_held_out;
}

static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    const classification_task *own = of(task);
    const int64_t first = own->train.count - own->n_held_out;
    const line *from = own->evaluation.count > 0 ? &own->test.lines[row->number]
                                                 : parted(own, first + row->number);
    copy_line(own, from, size, row);
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    *low = 1;
    *high = of(task)->length;
}

static void token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    ssm__alphabet_token(&of(task)->alphabet, id, out, size);
}

static void label_name(const ssm_train_task *task, int32_t label, char *out, size_t size)
{
    const bool known = label >= 0 && label < of(task)->n_labels;
    snprintf(out, size, "%s", known ? of(task)->labels[label] : "?");
}

static const ssm__setting settings[] = {
    SSM__TEXT_SETTINGS(classification_task, "a file of lines label<TAB>text; repeated for more",
                       "files to evaluate on; none: lines of text are held out",
                       "percent of the lines, chosen at random, that are not trained on"),
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(classification_task, length),
     .fallback = "256",
     .min = 1,
     .max = LENGTH_MAX,
     .help = "positions of a row; longer texts are cut at their end"},
    SSM__EVALUATE(1, LENGTH_MAX, "lengths that evaluated texts are cut to; length when not given"),
};

const ssm__task_kind ssm__task_classification = {
    .name = "classification",
    .summary = "the label of a line of text, from the mean over its positions",
    .size = "tokens",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(classification_task),
    .open = open,
    .close = close,
    .range = range,
    .length = ssm__task_size_is_length,
    .examples = examples,
    .row = train_row,
    .example = example,
    .token = token,
    .label = label_name,
};
