/* Language modelling: windows of texts, every next id to be given.
 *
 * A domain's stream is its files joined. Without texts for evaluation its last part is held out.
 * shuffled: an epoch goes once through windows of L ids that begin at a random place below L, in
 * random order; the last window of a domain ends with it. random: every window begins anywhere.
 * even: domains take turns, each with epochs of its own, so that all have the same share. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/tasks/text.h"

enum { LENGTH_MAX = 1 << 22 };
enum { ORDER_SHUFFLED, ORDER_RANDOM, ORDER_EVEN }; /* as in the setting's choices */

/* Ids in the narrowest type that holds the vocabulary. */
typedef struct stream {
    int64_t count;
    size_t width; /* 1, 2 or 4 bytes */
    void *data;
    int64_t train; /* ids in front of the held-out part; of texts for evaluation 0 */
    bool evaluated;
} stream;

typedef struct language_task {
    ssm_train_task base;
    ssm__texts text, evaluation;
    char *tokenizer;
    double held_out; /* percent */
    int64_t length, order;
    ssm__alphabet alphabet;
    stream *streams;
    int64_t n_streams;
    int64_t domains; /* that are trained on */
    int64_t windows; /* of an epoch */
    int64_t starts;  /* places where a window can begin */
} language_task;

static const language_task *of(const ssm_train_task *task)
{
    return (const language_task *)task;
}

static int32_t id_at(const stream *from, int64_t i)
{
    switch (from->width) {
    case 1:
        return ((const uint8_t *)from->data)[i];
    case 2:
        return ((const uint16_t *)from->data)[i];
    default:
        return ((const int32_t *)from->data)[i];
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static ssm_status pack(const ssm_ids *ids, int64_t vocab_size, stream *out, ssm_error *err)
{
    out->count = ids->count;
    out->width = vocab_size <= 256 ? 1 : vocab_size <= 65536 ? 2 : 4;
    out->data = malloc((size_t)ids->count * out->width + 1);
    if (out->data == NULL) {
        return ssm__fail_memory(err, "a text", (size_t)ids->count * out->width);
    }
    for (int64_t i = 0; i < ids->count; i++) {
        if (out->width == 1) {
            ((uint8_t *)out->data)[i] = (uint8_t)ids->data[i];
        } else if (out->width == 2) {
            ((uint16_t *)out->data)[i] = (uint16_t)ids->data[i];
        } else {
            ((int32_t *)out->data)[i] = ids->data[i];
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status add_stream(language_task *own, const ssm_domain *domain, bool training,
                             ssm_error *err)
{
    const size_t bytes = (size_t)(own->n_streams + 1) * sizeof *own->streams;
    stream *grown = realloc(own->streams, bytes);
    if (grown == NULL) {
        return ssm__fail_memory(err, "a list of texts", bytes);
    }
    own->streams = grown;
    stream *added = &grown[own->n_streams];
    *added = (stream){0};
    SSM__TRY(pack(&domain->ids, own->alphabet.vocab_size, added, err));
    own->n_streams++;
    const double share = own->evaluation.count > 0 ? 0 : own->held_out / 100;
    added->train =
        training ? added->count - (int64_t)floor((double)added->count * share + 1e-9) : 0;
    added->evaluated = !training || share > 0;
    if (training && added->train < own->length + 1) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__NOWHERE,
                         "language: the domain %.100s has %" PRId64
                         " tokens to train on; a row of length %" PRId64 " needs %" PRId64,
                         domain->name, added->train, own->length, own->length + 1);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_texts(language_task *own, const ssm__texts *texts, bool training,
                             ssm_error *err)
{
    ssm_corpus corpus;
    SSM__TRY(ssm_corpus_open(own->alphabet.tokenizer, (const char *const *)texts->values,
                             texts->count, SSM_INVALID_UTF8_ERROR, &corpus, err));
    ssm_status status = SSM_STATUS_OK;
    for (int64_t i = 0; status == SSM_STATUS_OK && i < corpus.n_files; i++) {
        status = ssm__task_add_digest(&own->base, corpus.files[i].digest, err);
    }
    for (int64_t i = 0; status == SSM_STATUS_OK && i < corpus.n_domains; i++) {
        status = add_stream(own, &corpus.domains[i], training, err);
        ssm_ids_free(&corpus.domains[i].ids); /* packed: not kept twice */
    }
    ssm_corpus_free(&corpus);
    return status;
}

static int64_t windows_to_train(const stream *from, int64_t length)
{
    return from->train > 0 ? (from->train - 1) / length : 0;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t one[] = {1};
    language_task *own = (language_task *)task;
    if (own->text.count == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "language: text is missing; expected text=FILE or text=domain=FILE");
    }
    SSM__TRY(ssm__alphabet_open(task, own->tokenizer, &own->alphabet, err));
    SSM__TRY(read_texts(own, &own->text, true, err));
    if (own->evaluation.count > 0) {
        SSM__TRY(read_texts(own, &own->evaluation, false, err));
    }
    for (int64_t i = 0; i < own->n_streams; i++) {
        const stream *of_domain = &own->streams[i];
        if (of_domain->train > 0) {
            own->domains++;
            own->windows += windows_to_train(of_domain, own->length);
            own->starts += of_domain->train - own->length;
        }
    }
    ssm__task_gives_ids(task, own->alphabet.vocab_size, own->length);
    return ssm__task_default_sizes(task, own->length, one, 1, err);
}

static void close(ssm_train_task *task)
{
    language_task *own = (language_task *)task;
    for (int64_t i = 0; i < own->n_streams; i++) {
        free(own->streams[i].data);
    }
    free(own->streams);
    ssm__alphabet_close(&own->alphabet);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void copy_window(const stream *from, int64_t start, int64_t length, ssm__row *row)
{
    for (int64_t t = 0; t < length; t++) {
        row->ids[t] = id_at(from, start + t);
        row->labels[t] = id_at(from, start + t + 1);
    }
    *row->used = (int32_t)length;
}

/* Window `window` of a stream's epoch whose first window begins at `offset`. */
static void window_of(const stream *from, int64_t window, int64_t offset, ssm__row *row,
                      int64_t length)
{
    const int64_t last = from->train - 1 - length;
    const int64_t start = offset + window * length;
    copy_window(from, start < last ? start : last, length, row);
}

/* All domains are one pack of windows. */
static void shuffled_window(const ssm_train_task *task, ssm__row *row)
{
    const language_task *own = of(task);
    const int64_t epoch = row->number / own->windows;
    char name[64];
    snprintf(name, sizeof name, "epoch.%" PRId64, epoch);
    ssm_rng rng = ssm__task_stream(task, name);
    const int64_t offset = ssm__row_between(&rng, 0, own->length - 1);
    int64_t window = ssm__task_shuffle(task, "shuffle", (uint64_t)epoch, own->windows,
                                       row->number % own->windows);
    const stream *from = own->streams;
    while (window >= windows_to_train(from, own->length)) {
        window -= windows_to_train(from, own->length);
        from++;
    }
    window_of(from, window, offset, row, own->length);
}

/* Every domain is a pack of its own: row r comes from domain r mod their number. */
static void even_window(const ssm_train_task *task, ssm__row *row)
{
    const language_task *own = of(task);
    const int64_t turn = row->number / own->domains;
    const stream *from = own->streams;
    for (int64_t left = row->number % own->domains; from->train == 0 || left > 0; from++) {
        left -= from->train > 0;
    }
    const int64_t windows = windows_to_train(from, own->length), epoch = turn / windows;
    char name[64];
    snprintf(name, sizeof name, "domain.%d.epoch.%" PRId64, (int)(from - own->streams), epoch);
    ssm_rng rng = ssm__task_stream(task, name);
    const int64_t offset = ssm__row_between(&rng, 0, own->length - 1);
    snprintf(name, sizeof name, "domain.%d", (int)(from - own->streams));
    window_of(from, ssm__task_shuffle(task, name, (uint64_t)epoch, windows, turn % windows), offset,
              row, own->length);
}

static void random_window(const language_task *own, ssm__row *row)
{
    int64_t start = (int64_t)ssm_rng_below(&row->rng, (uint64_t)own->starts);
    const stream *from = own->streams;
    while (from->train == 0 || start >= from->train - own->length) {
        start -= from->train == 0 ? 0 : from->train - own->length;
        from++;
    }
    copy_window(from, start, own->length, row);
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    switch (of(task)->order) {
    case ORDER_SHUFFLED:
        shuffled_window(task, row);
        return;
    case ORDER_RANDOM:
        random_window(of(task), row);
        return;
    default:
        even_window(task, row);
    }
}

static int64_t windows_of(const stream *from, int64_t length)
{
    const int64_t count = from->evaluated ? from->count - from->train : 0;
    return count > 0 ? (count - 1) / length : 0;
}

static int64_t examples(const ssm_train_task *task, int64_t size)
{
    int64_t count = 0;
    for (int64_t i = 0; i < of(task)->n_streams; i++) {
        count += windows_of(&of(task)->streams[i], size);
    }
    return count;
}

static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    const stream *from = of(task)->streams;
    int64_t window = row->number;
    while (window >= windows_of(from, size)) {
        window -= windows_of(from, size);
        from++;
    }
    copy_window(from, from->train + window * size, size, row);
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    (void)task;
    *low = 1;
    *high = LENGTH_MAX;
}

static void token(const ssm_train_task *task, int32_t id, char *out, size_t size)
{
    ssm__alphabet_token(&of(task)->alphabet, id, out, size);
}

static const ssm__setting settings[] = {
    SSM__TEXT_SETTINGS(language_task, "a file, or domain=file; repeated for more",
                       "texts to evaluate on; none: a part of text is held out",
                       "percent of every domain, at its end, that is not trained on"),
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(language_task, length),
     .fallback = "512",
     .min = 1,
     .max = LENGTH_MAX,
     .help = "positions of a row"},
    {.key = "order",
     .kind = SSM__SETTING_CHOICE,
     .into = offsetof(language_task, order),
     .fallback = "shuffled",
     .choices = "shuffled|random|even",
     .help = "windows of an epoch in random order, windows from anywhere, or as shuffled with the "
             "same share for every domain"},
    SSM__EVALUATE(1, LENGTH_MAX, "lengths of evaluation windows; length when not given"),
};

const ssm__task_kind ssm__task_language = {
    .name = "language",
    .summary = "the next id of text files, as bytes or by a tokenizer",
    .size = "tokens",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(language_task),
    .open = open,
    .close = close,
    .range = range,
    .length = ssm__task_size_is_length,
    .examples = examples,
    .row = train_row,
    .example = example,
    .token = token,
};
