/* Multi-query associative recall: keys with their values, then keys again, at which the value is to
 * be given.
 *
 * Source: the generator of Zoology (Arora et al., arXiv 2312.04927). Keys are distinct ids 1 …
 * V/2 − 1, values distinct ids V/2 … V − 1; the query of pair j stands at position 2P + 2 g_j,
 * where the gaps g are drawn without replacement, each with weight a (g + 1)^(a − 1). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "train/tasks/kind.h"

enum { VOCAB_MAX = 1 << 20, LENGTH_MAX = 1 << 22, PAIRS_MAX = 1 << 18 };

typedef struct mqar_task {
    ssm_train_task base;
    int64_t vocab, pairs, length;
    int64_t fill; /* 0: random ids, 1: zero */
    double power;
} mqar_task;

static const mqar_task *of(const ssm_train_task *task)
{
    return (const mqar_task *)task;
}

/* A row of another number of pairs is longer where the pairs need it. */
static int64_t length(const ssm_train_task *task, int64_t size)
{
    return of(task)->length > 4 * size ? of(task)->length : 4 * size;
}

static void range(const ssm_train_task *task, int64_t *low, int64_t *high)
{
    const int64_t keys = of(task)->vocab / 2 - 1;
    *low = 1;
    *high = keys < PAIRS_MAX ? keys : PAIRS_MAX;
}

static ssm_status open(ssm_train_task *task, ssm_error *err)
{
    static const int64_t one[] = {1};
    const mqar_task *own = of(task);
    if (own->pairs > own->vocab / 2 - 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "mqar: pairs is %" PRId64 " with vocab %" PRId64
                         "; half of the ids but one are keys, so at most %" PRId64 " pairs",
                         own->pairs, own->vocab, own->vocab / 2 - 1);
    }
    if (own->length < 4 * own->pairs || own->length % 2 != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "mqar: length is %" PRId64 " with %" PRId64
                         " pairs; expected an even number of at least 4 · pairs = %" PRId64,
                         own->length, own->pairs, 4 * own->pairs);
    }
    ssm__task_gives_ids(task, own->vocab, own->length);
    return ssm__task_default_sizes(task, own->pairs, one, 1, err);
}

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct slot {
    double order; /* log u / weight: the largest ones are a draw without replacement */
    int64_t gap;
} slot;

static size_t scratch(const ssm_train_task *task, int64_t length_)
{
    const size_t slots = (size_t)length_ / 2 * sizeof(slot);
    const size_t bits = (size_t)of(task)->vocab / 8 + 8;
    return slots + bits;
}

/* `count` distinct ids of first … first + n − 1 in random order: Floyd's choice of a set, then a
 * shuffle. seen: a bit an id, all 0 before and after. */
static void draw_distinct(ssm_rng *rng, int64_t first, int64_t n, int64_t count,
                          unsigned char *seen, int32_t *out, int64_t stride)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t top = n - count + i;
        int64_t id = ssm__row_between(rng, 0, top);
        if ((seen[id / 8] >> (id % 8) & 1) != 0) {
            id = top;
        }
        seen[id / 8] |= (unsigned char)(1u << (id % 8));
        out[i * stride] = (int32_t)(first + id);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = out[i * stride] - first;
        seen[id / 8] = 0;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = ssm__row_between(rng, 0, i);
        const int32_t kept = out[i * stride];
        out[i * stride] = out[j * stride];
        out[j * stride] = kept;
    }
}

/* A heap with the smallest order on top: the `kept` largest of all that were offered. */
static void sift_down(slot *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) {
            return;
        }
        child += child + 1 < count && heap[child + 1].order < heap[child].order;
        if (heap[at].order <= heap[child].order) {
            return;
        }
        const slot other = heap[child];
        heap[child] = heap[at];
        heap[at] = other;
        at = child;
    }
}

/* Gaps of `pairs` queries among `space` slots, in the order of a draw without replacement, in
 * slots[0 … pairs). With exponential variables e_g / w_g the smallest come first with exactly the
 * probabilities of successive weighted draws (Efraimidis, Spirakis: IPL 97, 2006). */
static void draw_gaps(const mqar_task *own, ssm_rng *rng, int64_t space, int64_t pairs, slot *slots)
{
    for (int64_t g = 0; g < space; g++) {
        const double weight = own->power * pow((double)(g + 1), own->power - 1);
        const slot offered = {log(1 - ssm_rng_uniform(rng)) / weight, g};
        if (g < pairs) {
            slots[g] = offered;
        } else if (offered.order > slots[0].order) {
            slots[0] = offered;
            sift_down(slots, pairs, 0);
        }
        for (int64_t i = g == pairs - 1 ? pairs / 2 : 0; i > 0; i--) {
            sift_down(slots, pairs, i - 1);
        }
    }
    for (int64_t last = pairs - 1; last > 0; last--) { /* largest order first */
        const slot smallest = slots[0];
        slots[0] = slots[last];
        slots[last] = smallest;
        sift_down(slots, last, 0);
    }
}

static void fill_row(const mqar_task *own, int64_t pairs, int64_t positions, ssm__row *row)
{
    const int64_t keys = own->vocab / 2;
    const int64_t context = 2 * pairs;
    slot *slots = row->scratch;
    unsigned char *seen = (unsigned char *)(slots + row->length / 2);
    draw_distinct(&row->rng, 1, keys - 1, pairs, seen, row->ids, 2);
    draw_distinct(&row->rng, keys, own->vocab - keys, pairs, seen, row->ids + 1, 2);
    draw_gaps(own, &row->rng, (positions - context) / 2, pairs, slots);
    for (int64_t t = context; t < positions; t++) {
        row->ids[t] = own->fill == 0 ? (int32_t)ssm_rng_below(&row->rng, (uint64_t)own->vocab) : 0;
    }
    for (int64_t j = 0; j < pairs; j++) {
        const int64_t at = context + 2 * slots[j].gap;
        row->ids[at] = row->ids[2 * j];
        row->labels[at] = row->ids[2 * j + 1];
    }
    *row->used = (int32_t)positions;
}

static void train_row(const ssm_train_task *task, ssm__row *row)
{
    fill_row(of(task), of(task)->pairs, of(task)->length, row);
}

static void example(const ssm_train_task *task, int64_t size, ssm__row *row)
{
    fill_row(of(task), size, length(task, size), row);
}

static const ssm__setting settings[] = {
    {.key = "vocab",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(mqar_task, vocab),
     .fallback = "8192",
     .min = 4,
     .max = VOCAB_MAX,
     .help = "ids; keys from the lower half, values from the upper"},
    {.key = "pairs",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(mqar_task, pairs),
     .fallback = "8",
     .min = 1,
     .max = PAIRS_MAX,
     .help = "pairs of key and value, and queries, of a training row"},
    {.key = "length",
     .kind = SSM__SETTING_INTEGER,
     .into = offsetof(mqar_task, length),
     .fallback = "64",
     .min = 4,
     .max = LENGTH_MAX,
     .help = "positions of a row, an even number"},
    {.key = "power",
     .kind = SSM__SETTING_REAL,
     .into = offsetof(mqar_task, power),
     .fallback = "0.01",
     .low = 1e-6,
     .high = 10,
     .help = "a in the weight a·g^(a − 1) of a query's slot g; 1: uniform"},
    {.key = "fill",
     .kind = SSM__SETTING_CHOICE,
     .into = offsetof(mqar_task, fill),
     .fallback = "random",
     .choices = "random|zero",
     .help = "ids between the queries"},
    SSM__EVALUATE(1, PAIRS_MAX,
                  "numbers of pairs at evaluation, in rows of length or 4 · pairs, "
                  "the larger; pairs when not given"),
};

const ssm__task_kind ssm__task_mqar = {
    .name = "mqar",
    .summary = "multi-query associative recall: values of keys that were shown",
    .size = "pairs",
    .settings = settings,
    .n_settings = sizeof settings / sizeof settings[0],
    .bytes = sizeof(mqar_task),
    .open = open,
    .range = range,
    .length = length,
    .scratch = scratch,
    .row = train_row,
    .example = example,
};
