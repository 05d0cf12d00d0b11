/* Two models, and a model and a file, beside each other: what differs, where first, by how much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/compare.h>

#include "diagnose/deviation.h"
#include "test_golden.h"
#include "test_messages.h"
#include "test_session.h"

enum { TOKENS = 40 };

static ssm_error err;

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ssm_error_clear(&err);                                                                     \
        if ((call) != SSM_STATUS_OK) {                                                             \
            fail_msg("%s: %s", err.tensor, err.message);                                           \
        }                                                                                          \
    } while (0)

/* ---- deviations ------------------------------------------------------------------------------ */

static ssm_tensor row_of(const void *data, ssm_dtype dtype, int64_t count)
{
    return (ssm_tensor){.name = "row", .dtype = dtype, .n_dims = 1, .dims = {count}, .data = data};
}

static void deviation_by_hand(void **state)
{
    (void)state;
    const float a[] = {3.0F, 0.0F, -4.0F};
    const double b[] = {3.0, 1.0, -2.0};
    const ssm_tensor left = row_of(a, SSM_DTYPE_F32, 3), right = row_of(b, SSM_DTYPE_F64, 3);
    ssm_deviation d;
    ssm__deviation(&left, &right, &d);
    assert_int_equal(d.count, 3);
    assert_int_equal(d.differing, 2);
    assert_true(d.max_abs == 2.0 && d.scale == 4.0 && d.relative == 0.5);
    assert_true(d.relative_l2 == sqrt(5.0) / 5.0); /* ‖(0, −1, −2)‖ / ‖(3, 0, −4)‖ */
    assert_true(fabs(d.cosine - 17.0 / (5.0 * sqrt(14.0))) < 1e-15);
    assert_int_equal(d.at, 2);
    assert_true(d.a == -4.0 && d.b == -2.0);
}

static void what_is_not_finite_is_far(void **state)
{
    (void)state;
    const float a[] = {1.0F, NAN, INFINITY, INFINITY};
    float b[] = {1.0F, NAN, INFINITY, INFINITY};
    const ssm_tensor left = row_of(a, SSM_DTYPE_F32, 4), right = row_of(b, SSM_DTYPE_F32, 4);
    ssm_deviation d;
    ssm__deviation(&left, &right, &d);
    assert_int_equal(d.differing, 0);
    assert_true(d.relative == 0.0 && d.at == -1);
    const float others[] = {NAN, -INFINITY, 1.0F};
    for (int i = 0; i < 3; i++) {
        b[2] = others[i];
        ssm__deviation(&left, &right, &d);
        assert_true(isinf(d.max_abs) && isinf(d.relative));
        assert_int_equal(d.at, 2);
    }
    const ssm_tensor nothing = row_of(a, SSM_DTYPE_F32, 0);
    ssm__deviation(&nothing, &nothing, &d);
    assert_true(d.relative == 0.0 && d.cosine == 1.0);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Adds 1 to element 3 of a tensor. */
static const char *changed_name;
static void change(const char *name, float *values, int64_t count)
{
    if (strcmp(name, changed_name) == 0) {
        assert_true(count > 3);
        values[3] += 1.0F;
    }
}

static ssm_model *changed_model(const char *name, ssm_dtype dtype)
{
    const ssm_config config = toy_config();
    const toy_options options = {.edit = change};
    changed_name = name;
    return test_model_toy(&config, dtype, 1, SSM_ISA_AUTO, &options);
}

typedef struct tally {
    int64_t count, of[SSM_WEIGHT_RELATIONS];
    ssm_weight_comparison *list;
} tally;

static tally compare_weights(const ssm_model *a, const ssm_model *b, ssm_pool *pool)
{
    tally t = {0};
    CHECK_OK(ssm_compare_weights(ssm_model_checkpoint(a), ssm_model_checkpoint(b), pool, NULL,
                                 &t.list, &t.count, &err));
    for (int64_t i = 0; i < t.count; i++) {
        t.of[t.list[i].relation]++;
    }
    return t;
}

static const ssm_weight_comparison *first_of(const tally *t, ssm_weight_relation relation)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (t->list[i].relation == relation) {
            return &t->list[i];
        }
    }
    fail();
    return NULL;
}

static void one_weight_differs(void **state)
{
    (void)state;
    static const char name[] = "backbone.layers.1.mixer.D";
    ssm_pool *pool = test_pool_create(2);
    ssm_model *a = changed_model("", SSM_DTYPE_F32);
    ssm_model *b = changed_model(name, SSM_DTYPE_F32);
    tally t = compare_weights(a, a, pool);
    assert_int_equal(t.count, 3 * 12 + 3);
    assert_int_equal(t.of[SSM_WEIGHT_SAME], t.count);
    ssm_weight_comparisons_free(t.list);
    t = compare_weights(a, b, pool);
    assert_int_equal(t.of[SSM_WEIGHT_SAME], t.count - 1);
    const ssm_weight_comparison *w = first_of(&t, SSM_WEIGHT_DIFFERENT);
    assert_string_equal(w->name, name);
    assert_int_equal(w->layer, 1);
    assert_int_equal(w->deviation.differing, 1);
    assert_int_equal(w->deviation.at, 3);
    assert_true(fabs(w->deviation.max_abs - 1.0) < 1e-6); /* one rounding of the sum */
    assert_true(w->deviation.a == ssm_tensor_get(w->a, 3));
    assert_true(w->deviation.b == ssm_tensor_get(w->b, 3));
    assert_true(ssm_compare_tolerance(t.list, t.count, NULL, NULL) == 1e-5);
    ssm_weight_comparisons_free(t.list);
    ssm_model_free(a);
    ssm_model_free(b);
    ssm_pool_free(pool);
}

/* Every pair of dtypes of one model; and with one number changed, that one is found. */
static void dtypes_alone_are_no_difference(void **state)
{
    (void)state;
    static const char name[] = "backbone.layers.2.mixer.in_proj.weight";
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    static const double units[] = {0x1p-24, 0x1p-11, 0x1p-8};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            ssm_model *a = changed_model("", dtypes[i]);
            ssm_model *b = changed_model("", dtypes[k]);
            tally t = compare_weights(a, b, NULL);
            assert_int_equal(t.of[i == k ? SSM_WEIGHT_SAME : SSM_WEIGHT_CONVERTED], t.count);
            const double unit = i == k ? 0.0 : units[i > k ? i : k];
            const double tolerance = 8.0 * unit > 1e-5 ? 8.0 * unit : 1e-5;
            assert_true(ssm_compare_tolerance(t.list, t.count, NULL, NULL) == tolerance);
            ssm_weight_comparisons_free(t.list);
            ssm_model_free(b);
            b = changed_model(name, dtypes[k]);
            t = compare_weights(a, b, NULL);
            assert_int_equal(t.of[SSM_WEIGHT_DIFFERENT], 1);
            assert_string_equal(first_of(&t, SSM_WEIGHT_DIFFERENT)->name, name);
            assert_int_equal(first_of(&t, SSM_WEIGHT_DIFFERENT)->deviation.at, 3);
            ssm_weight_comparisons_free(t.list);
            ssm_model_free(a);
            ssm_model_free(b);
        }
    }
}

/* One unit in the last place of bf16 is no rounding. */
static void nudge(const char *name, float *values, int64_t count)
{
    (void)count;
    if (strcmp(name, "backbone.layers.0.mixer.out_proj.weight") == 0) {
        values[7] *= 1.0F + 0x1p-7F;
    }
}

static void a_small_change_is_not_a_conversion(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    const toy_options options = {.edit = nudge};
    ssm_model *a = changed_model("", SSM_DTYPE_F32);
    ssm_model *b = test_model_toy(&config, SSM_DTYPE_BF16, 1, SSM_ISA_AUTO, &options);
    tally t = compare_weights(a, b, NULL);
    assert_int_equal(t.of[SSM_WEIGHT_DIFFERENT], 1);
    ssm_weight_comparisons_free(t.list);
    ssm_model_free(a);
    ssm_model_free(b);
}

static void other_shapes(void **state)
{
    (void)state;
    ssm_config config = toy_config();
    ssm_model *a = changed_model("", SSM_DTYPE_F32);
    config.n_layers = 2;
    ssm_model *b = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL);
    tally t = compare_weights(a, b, NULL);
    assert_int_equal(t.of[SSM_WEIGHT_ONLY_A], 12);
    assert_int_equal(first_of(&t, SSM_WEIGHT_ONLY_A)->layer, 2);
    assert_null(first_of(&t, SSM_WEIGHT_ONLY_A)->b);
    ssm_weight_comparisons_free(t.list);
    t = compare_weights(b, a, NULL);
    assert_int_equal(t.of[SSM_WEIGHT_ONLY_B], 12);
    ssm_weight_comparisons_free(t.list);
    ssm_model_free(b);
    config = toy_config();
    config.d_state = 6;
    b = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL);
    t = compare_weights(a, b, NULL);
    assert_int_equal(t.of[SSM_WEIGHT_RESHAPED], 2 * 3); /* A_log and x_proj of three layers */
    ssm_weight_comparisons_free(t.list);
    ssm_model_free(a);
    ssm_model_free(b);
}

/* ---- traces and taps ------------------------------------------------------------------------- */

static void fill_ids(int32_t ids[TOKENS])
{
    const ssm_config config = toy_config();
    toy_ids(&config, 5, ids, TOKENS);
}

static ssm_trace trace_of(const ssm_model *model, ssm_pool *pool)
{
    int32_t ids[TOKENS];
    ssm_trace trace;
    fill_ids(ids);
    CHECK_OK(ssm_trace_run(model, ids, TOKENS, pool, NULL, &trace, &err));
    return trace;
}

static ssm_trace_comparison compare(const ssm_trace *a, const ssm_trace *b, double tolerance)
{
    ssm_trace_comparison c;
    CHECK_OK(ssm_compare_traces(a, b, tolerance, &c, &err));
    return c;
}

static void the_reference_agrees(void **state)
{
    (void)state;
    ssm_pool *pool = test_pool_create(3);
    ssm_model *model = changed_model("", SSM_DTYPE_F32);
    int32_t ids[TOKENS];
    fill_ids(ids);
    ssm_trace alone = trace_of(model, NULL), fast = trace_of(model, pool), reference;
    CHECK_OK(ssm_trace_reference(model, ids, TOKENS, &reference, &err));
    ssm_trace_comparison c = compare(&alone, &fast, 0.0);
    assert_int_equal(c.first, -1); /* any number of threads: the same bits */
    assert_true(c.has_logits && c.logits.differing == 0);
    assert_int_equal(c.same_argmax, TOKENS);
    ssm_trace_comparison_free(&c);
    c = compare(&fast, &reference, 2e-6); /* the bound of docs/numerics.md */
    assert_int_equal(c.first, -1);
    assert_int_equal(c.n_hidden, 4);
    assert_true(c.logits.differing > 0 && !c.last_is_normed);
    ssm_trace_comparison_free(&c);
    c = compare(&fast, &reference, 1e-12);
    assert_int_equal(c.first, 1); /* the embedding is exact */
    ssm_trace_comparison_free(&c);
    ssm_trace_free(&alone);
    ssm_trace_free(&fast);
    ssm_trace_free(&reference);
    ssm_model_free(model);
    ssm_pool_free(pool);
}

/* A change is first felt where the tensor acts, and nowhere before. */
static void a_change_is_found_where_it_acts(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        int64_t first;
        ssm_tap_point tap; /* COUNT: not in a layer */
    } rows[] = {
        {"backbone.layers.1.norm.weight", 2, SSM_TAP_MIXER_IN},
        {"backbone.layers.1.mixer.in_proj.weight", 2, SSM_TAP_IN_PROJ},
        {"backbone.layers.1.mixer.in_proj.bias", 2, SSM_TAP_IN_PROJ},
        {"backbone.layers.1.mixer.conv1d.weight", 2, SSM_TAP_CONV1D},
        {"backbone.layers.1.mixer.conv1d.bias", 2, SSM_TAP_CONV1D},
        {"backbone.layers.1.mixer.x_proj.weight", 2, SSM_TAP_X_PROJ},
        {"backbone.layers.1.mixer.dt_proj.weight", 2, SSM_TAP_DT_PROJ},
        {"backbone.layers.2.mixer.dt_proj.bias", 3, SSM_TAP_DT_PROJ},
        {"backbone.layers.0.mixer.A_log", 1, SSM_TAP_SSM_OUT},
        {"backbone.layers.1.mixer.D", 2, SSM_TAP_SSM_OUT},
        {"backbone.layers.1.mixer.out_proj.weight", 2, SSM_TAP_MIXER_OUT},
        {"backbone.layers.2.mixer.out_proj.bias", 3, SSM_TAP_MIXER_OUT},
        {"backbone.norm_f.weight", 4, SSM_TAP_COUNT},
        {"lm_head.weight", 4, SSM_TAP_COUNT},
    };
    int32_t ids[TOKENS];
    fill_ids(ids);
    ssm_model *a = changed_model("", SSM_DTYPE_F32);
    ssm_trace left = trace_of(a, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ssm_model *b = changed_model(rows[i].tensor, SSM_DTYPE_F32);
        ssm_trace right = trace_of(b, NULL);
        ssm_trace_comparison c = compare(&left, &right, 1e-5);
        if (c.first != rows[i].first) {
            fail_msg("%s: first divergence at %d", rows[i].tensor, (int)c.first);
        }
        for (int64_t k = 0; k < c.first; k++) {
            assert_int_equal(c.hidden[k].differing, 0);
        }
        if (rows[i].tap != SSM_TAP_COUNT) {
            ssm_tap_comparison taps[SSM_TAP_COUNT];
            int64_t n = 0, first = 0;
            CHECK_OK(ssm_compare_taps(a, b, ids, TOKENS, c.first - 1, NULL, taps, &n, &err));
            assert_int_equal(n, 11); /* those of a block of Mamba-1 */
            while (first < n && taps[first].deviation.relative <= 1e-5) {
                assert_int_equal(taps[first].deviation.differing, 0);
                first++;
            }
            assert_true(first < n);
            assert_string_equal(ssm_tap_name(taps[first].point), ssm_tap_name(rows[i].tap));
        }
        ssm_trace_comparison_free(&c);
        ssm_trace_free(&right);
        ssm_model_free(b);
    }
    ssm_trace_free(&left);
    ssm_model_free(a);
}

static void ids_are_checked(void **state)
{
    (void)state;
    ssm_model *model = changed_model("", SSM_DTYPE_F32);
    const int32_t ids[] = {3, 31};
    ssm_trace trace;
    assert_int_equal(ssm_trace_run(model, ids, 2, NULL, NULL, &trace, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "id 31 (number 2)"));
    ssm_error_clear(&err);
    assert_int_equal(ssm_trace_reference(model, ids, 0, &trace, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "at least one"));
    ssm_model_free(model);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void goldens_are_read_and_met(void **state)
{
    (void)state;
    static const char *const models[] = {"mamba-tied", "mamba-untied-bias-conv3",
                                         "mamba-bf16-sharded"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[TEST_PATH_MAX], file[TEST_PATH_MAX + 40];
        snprintf(file, sizeof file, "%s/expect/expected.safetensors",
                 golden_model_path(path, models[i]));
        ssm_model *model = test_model_open(path, SSM_ISA_AUTO);
        for (int s = 0; s < GOLDEN_SEQUENCES; s++) {
            char sequence[8];
            ssm_trace expected, fast, reference;
            snprintf(sequence, sizeof sequence, "%d", s);
            CHECK_OK(ssm_trace_read(file, NULL, sequence, &expected, &err));
            assert_int_equal(expected.n_hidden, ssm_model_config(model)->n_layers + 1);
            assert_non_null(expected.ids);
            CHECK_OK(ssm_trace_run(model, expected.ids, expected.tokens, NULL, NULL, &fast, &err));
            CHECK_OK(ssm_trace_reference(model, expected.ids, expected.tokens, &reference, &err));
            ssm_trace_comparison c = compare(&fast, &expected, 2e-6); /* float32 sums */
            assert_int_equal(c.first, -1);
            assert_true(c.logits.differing > 0);
            ssm_trace_comparison_free(&c);
            c = compare(&reference, &expected, 1e-12); /* two float64 programs */
            assert_int_equal(c.first, -1);
            ssm_trace_comparison_free(&c);
            ssm_trace_free(&expected);
            ssm_trace_free(&fast);
            ssm_trace_free(&reference);
        }
        ssm_model_free(model);
    }
}

static char scratch[TEST_PATH_MAX];

static const char *file_of(const ssm_tensor *tensors, int64_t count)
{
    static char path[TEST_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/trace.safetensors", scratch);
    CHECK_OK(ssm_safetensors_write(path, tensors, count, NULL, 0, &err));
    return path;
}

static ssm_tensor named(const char *name, ssm_dtype dtype, const void *data, int64_t a, int64_t b,
                        int64_t c)
{
    ssm_tensor t = {.name = name, .dtype = dtype, .dims = {a, b, c}, .data = data};
    t.n_dims = c > 0 ? 3 : b > 0 ? 2 : 1;
    t.bytes = (size_t)ssm_tensor_count(&t) * ssm_dtype_size(dtype);
    return t;
}

/* What transformers gives as hidden_states: the last one behind the final norm; without logits. */
static void the_last_state_may_be_normed(void **state)
{
    (void)state;
    ssm_model *model = changed_model("", SSM_DTYPE_F32);
    ssm_trace ours = trace_of(model, NULL), theirs;
    const int64_t width = ours.hidden[0].dims[1];
    float *stack = calloc((size_t)(4 * TOKENS * width), sizeof *stack);
    assert_non_null(stack);
    for (int k = 0; k < 4; k++) {
        const ssm_tensor *from = k == 3 ? &ours.ln_final : &ours.hidden[k];
        memcpy(stack + k * TOKENS * width, from->data, from->bytes);
    }
    const ssm_tensor tensors[] = {named("hidden", SSM_DTYPE_F32, stack, 4, TOKENS, width)};
    CHECK_OK(ssm_trace_read(file_of(tensors, 1), NULL, NULL, &theirs, &err));
    assert_null(theirs.ids);
    ssm_trace_comparison c = compare(&ours, &theirs, 1e-5);
    assert_true(c.last_is_normed && !c.has_logits);
    assert_int_equal(c.first, -1);
    ssm_trace_comparison_free(&c);
    c = compare(&theirs, &ours, 1e-5);
    assert_true(c.last_is_normed);
    ssm_trace_comparison_free(&c);
    stack[3 * TOKENS * width] += 1.0F; /* neither the stream nor its norm */
    ssm_trace_free(&theirs);
    CHECK_OK(ssm_trace_read(file_of(tensors, 1), NULL, NULL, &theirs, &err));
    c = compare(&ours, &theirs, 1e-5);
    assert_true(!c.last_is_normed);
    assert_int_equal(c.first, 3);
    ssm_trace_comparison_free(&c);
    ssm_trace_free(&theirs);
    ssm_trace_free(&ours);
    ssm_model_free(model);
    free(stack);
}

static message_list *list;

static void refuse(const char *rule, const char *sequence, const ssm_tensor *tensors, int64_t count,
                   const char *part)
{
    ssm_trace trace;
    const char *path = file_of(tensors, count);
    ssm_error_clear(&err);
    const ssm_status status = ssm_trace_read(path, NULL, sequence, &trace, &err);
    message_expect(list, rule, status, SSM_STATUS_FILE, &err, part);
    assert_null(trace.hidden);
    assert_null(trace.file);
}

#define REFUSE(rule, sequence, part, ...)                                                          \
    do {                                                                                           \
        const ssm_tensor tensors_[] = {__VA_ARGS__};                                               \
        refuse(rule, sequence, tensors_, sizeof tensors_ / sizeof tensors_[0], part);              \
    } while (0)

static void malformed_traces(void **state)
{
    (void)state;
    static const float zeros[64];
    static const int32_t negative[] = {1, 2, 3, -4};
    list = calloc(1, sizeof *list);
    assert_non_null(list);
    const ssm_tensor plane = named("hidden.0", SSM_DTYPE_F32, zeros, 4, 2, 0);
    REFUSE("there is something to compare", NULL, "neither hidden states",
           named("weights", SSM_DTYPE_F32, zeros, 4, 2, 0));
    REFUSE("the sequence is there", "7", "of this sequence", plane);
    REFUSE("states are real numbers", NULL, "the tensor is I32 [4, 2]; expected",
           named("hidden.0", SSM_DTYPE_I32, zeros, 4, 2, 0));
    REFUSE("states have two dimensions", NULL, "expected [tokens, d_model]",
           named("hidden.0", SSM_DTYPE_F32, zeros, 4, 2, 2));
    REFUSE("a stack has three dimensions", NULL, "expected [n_layers + 1, tokens, d_model]",
           named("hidden", SSM_DTYPE_F32, zeros, 4, 2, 0));
    REFUSE("states are of one text", NULL, "5 tokens, others have 4", plane,
           named("hidden.1", SSM_DTYPE_F32, zeros, 5, 2, 0));
    REFUSE("states are of one width", NULL, "3 wide, that of the embedding 2", plane,
           named("hidden.1", SSM_DTYPE_F32, zeros, 4, 3, 0));
    REFUSE("logits have two dimensions", NULL, "expected [tokens, vocab_size]", plane,
           named("logits", SSM_DTYPE_F32, zeros, 4, 0, 0));
    REFUSE("logits are of the text", NULL, "6 tokens, others have 4", plane,
           named("logits", SSM_DTYPE_F32, zeros, 6, 2, 0));
    REFUSE("ids are of the text", NULL, "3 tokens, others have 4", plane,
           named("ids", SSM_DTYPE_I32, negative, 3, 0, 0));
    REFUSE("ids are not negative", NULL, "element 3 is -4; expected a token id", plane,
           named("ids", SSM_DTYPE_I32, negative, 4, 0, 0));
    printf("%d malformed traces\n", list->count);
    free(list);
}

static void sides_must_fit(void **state)
{
    (void)state;
    static const float zeros[64];
    const ssm_tensor narrow[] = {named("hidden.0", SSM_DTYPE_F32, zeros, 4, 2, 0)};
    const ssm_tensor wide[] = {named("hidden.0", SSM_DTYPE_F32, zeros, 4, 3, 0)};
    const ssm_tensor longer[] = {named("hidden.0", SSM_DTYPE_F32, zeros, 5, 2, 0)};
    const ssm_tensor deep[] = {narrow[0], named("hidden.1", SSM_DTYPE_F32, zeros, 4, 2, 0)};
    const ssm_tensor logits[] = {named("logits", SSM_DTYPE_BF16, zeros, 4, 2, 0)};
    const struct {
        const ssm_tensor *tensors;
        int64_t count;
        const char *part;
    } rows[] = {{wide, 1, "widths of the hidden states differ: 2 on one side, 3"},
                {longer, 1, "numbers of tokens differ: 4 on one side, 5"},
                {deep, 2, "numbers of hidden states differ: 1 on one side, 2"},
                {logits, 1, "only hidden states, the other only logits"}};
    ssm_trace a, b;
    CHECK_OK(ssm_trace_read(file_of(narrow, 1), NULL, NULL, &a, &err));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ssm_trace_comparison c;
        CHECK_OK(ssm_trace_read(file_of(rows[i].tensors, rows[i].count), NULL, NULL, &b, &err));
        assert_int_equal(ssm_compare_traces(&a, &b, 1e-5, &c, &err), SSM_STATUS_USAGE);
        if (strstr(err.message, rows[i].part) == NULL) {
            fail_msg("%s", err.message);
        }
        if (b.logits.data != NULL) { /* bf16 numbers of a file need room */
            assert_true(ssm_compare_tolerance(NULL, 0, &a, &b) == 8 * 0x1p-8);
        }
        ssm_trace_free(&b);
    }
    ssm_trace_free(&a);
}

static int make(void **state)
{
    (void)state;
    test_make_directory(scratch);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    test_remove_directory(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deviation_by_hand),
        cmocka_unit_test(what_is_not_finite_is_far),
        cmocka_unit_test(one_weight_differs),
        cmocka_unit_test(dtypes_alone_are_no_difference),
        cmocka_unit_test(a_small_change_is_not_a_conversion),
        cmocka_unit_test(other_shapes),
        cmocka_unit_test(the_reference_agrees),
        cmocka_unit_test(a_change_is_found_where_it_acts),
        cmocka_unit_test(ids_are_checked),
        cmocka_unit_test(goldens_are_read_and_met),
        cmocka_unit_test(the_last_state_may_be_normed),
        cmocka_unit_test(malformed_traces),
        cmocka_unit_test(sides_must_fit),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
