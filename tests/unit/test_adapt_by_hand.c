/* Rules that choose for every window, and ghost, on an example that is computed by hand.
 *
 * The model is made so that a mode's energy is a count. Token k is the unit vector e_k, the norm
 * makes it 2 e_k. Channel k < 3 has u = silu(2) for token k and 0 for others, channel 3 has it for
 * all. B_i is silu(2) for token i, else 0; C, Δ and the gate are constants; exp(Δ A) is 0, so that
 * a state forgets the token before. Hence, c a constant, in a text with n_i tokens i channel 3:
 * energies c n_0, c n_1, c n_2 channel k < 3:  c n_k in mode k, 0 in the others layer:          2 c
 * n_0, 2 c n_1, 2 c n_2 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/adapt.h>

#include "test_numbers.h"
#include "test_record.h"

enum { WIDTH = 4, N = 3, GROUPS = 2, WINDOW = 128, HALF = WINDOW / 2, TOKENS = 2 * WINDOW };

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name);
    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

static void fill(float *values, int64_t count, float with)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = with;
    }
}

/* What both families have. False: the tensor keeps its random values, which change nothing above.
 */
static bool edit_common(const char *name, float *values, int64_t count)
{
    if (ends_with(name, "embeddings.weight")) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = i / WIDTH == i % WIDTH ? 1.0F : 0.0F;
        }
    } else if (ends_with(name, "layers.0.norm.weight")) {
        fill(values, count, 1.0F);
    } else if (ends_with(name, "conv1d.weight")) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = i % 2 == 1 ? 1.0F : 0.0F; /* the token itself */
        }
    } else if (ends_with(name, "A_log")) {
        fill(values, count, 7.0F); /* exp(−1096 · 0.97) */
    } else if (ends_with(name, "dt_proj.bias") || ends_with(name, "dt_bias")) {
        fill(values, count, 0.5F);
    } else {
        return false;
    }
    return true;
}

static void edit_channels(const char *name, float *values, int64_t count)
{
    if (edit_common(name, values, count)) {
        return;
    }
    if (ends_with(name, "in_proj.weight")) { /* rows x 0 … 3, z 0 … 3 */
        for (int64_t i = 0; i < count; i++) {
            values[i] = i / WIDTH >= N || i / WIDTH == i % WIDTH ? 1.0F : 0.0F;
        }
    } else if (ends_with(name, "x_proj.weight")) { /* rows Δ, B 0 … 2, C 0 … 2 over channels */
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = i / WIDTH;
            const int64_t from = row <= N ? row - 1 : WIDTH - 1;
            values[i] = row > 0 && i % WIDTH == from ? 1.0F : 0.0F;
        }
    } else if (ends_with(name, "dt_proj.weight")) {
        fill(values, count, 0.0F);
    }
}

/* B of group 1 is silu(20) for its token, that of group 0 silu(2): a hundred times the energy. */
static void edit_heads(const char *name, float *values, int64_t count)
{
    enum { Z = 0, X = Z + WIDTH, B = X + WIDTH, C = B + GROUPS * N, DT = C + GROUPS * N };
    if (edit_common(name, values, count) || !ends_with(name, "in_proj.weight")) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / WIDTH;
        values[i] = row < DT ? 1.0F : 0.0F;
        if (row >= B && row < C) {
            values[i] = i % WIDTH != (row - B) % N ? 0.0F : row - B < N ? 1.0F : 10.0F;
        }
    }
}

static ssm_model *create_model(bool heads)
{
    ssm_config config = heads ? toy_config_heads() : toy_config();
    const toy_options options = {
        .no_proj_bias = true, .no_conv_bias = true, .edit = heads ? edit_heads : edit_channels};
    config.vocab_size = config.d_model = config.d_inner = WIDTH;
    config.n_layers = 1;
    config.d_state = N;
    config.d_conv = 2;
    config.dt_rank = heads ? 0 : 1;
    if (heads) {
        config.n_heads = config.n_groups = config.norm_groups = GROUPS;
        config.head_dim = WIDTH / GROUPS;
        config.d_ssm = WIDTH;
    }
    return test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, &options);
}

/* n_0, n_1, n_2 tokens of each, one kind behind the other. */
static int32_t *put(int32_t *ids, int n0, int n1, int n2)
{
    const int counts[] = {n0, n1, n2};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < counts[k]; i++) {
            *ids++ = k;
        }
    }
    return ids;
}

typedef struct fixture {
    record_subject subject;
    char directory[TEST_PATH_MAX];
    ssm_recording *recording;
} fixture;

/* Of each domain a calibration window and one to choose for. */
static void set_up(fixture *f, bool heads)
{
    const ssm_record_options options = {.window = WINDOW, .calibration_windows = 1};
    *f = (fixture){.subject = record_random(create_model(heads), 2, TOKENS, 0)};
    int32_t *a = f->subject.corpus.domains[0].ids.data;
    int32_t *b = f->subject.corpus.domains[1].ids.data;
    a = put(put(a, 40, 24, 0), 0, 64, 0);                 /* 40, 24, 0 of 40, 88, 0 */
    b = put(put(b, 0, 0, 64), 0, 0, 64);                  /* 0, 0, 64 of 0, 0, 128 */
    a = put(put(put(a, 12, 20, 0), 18, 2, 12), 5, 9, 50); /* 12, 20, 0; 30, 22, 12; 35, 31, 62 */
    b = put(put(put(b, 32, 0, 0), 0, 32, 0), 0, 33, 31);  /* 32, 0, 0; 32, 32, 0; 32, 65, 31 */
    assert_ptr_equal(a, f->subject.corpus.domains[0].ids.data + TOKENS);
    assert_ptr_equal(b, f->subject.corpus.domains[1].ids.data + TOKENS);
    f->recording = record_and_open(&f->subject, &options, f->directory);
}

static void tear_down(fixture *f)
{
    ssm_recording_close(f->recording);
    test_remove_directory(f->directory);
    record_subject_free(&f->subject);
}

/* "0|1|2|02": the kept modes of every row. */
static void name_sets(const ssm_mask *mask, char out[64])
{
    size_t at = 0;
    for (int64_t i = 0; i < mask->n_channels * N; i++) {
        if (i > 0 && i % N == 0) {
            out[at++] = '|';
        }
        if (mask->keep[i]) {
            out[at++] = (char)('0' + i % N);
        }
    }
    out[at] = '\0';
}

static void expect(const fixture *f, const char *rule, const char *scope, int64_t budget,
                   int64_t domain, const char *expected)
{
    const ssm_adapt_options options = {
        .rule = rule, .budget = budget, .scope = scope, .window = WINDOW};
    ssm_adapter *adapter = NULL;
    const ssm_mask *mask = NULL;
    char found[64];
    assert_int_equal(ssm_adapt_create(f->subject.model, &f->subject.corpus, f->recording, &options,
                                      &adapter, NULL),
                     SSM_STATUS_OK);
    const ssm_chooser *chooser = ssm_adapt_chooser(adapter);
    assert_int_equal(chooser->choose(chooser->context, domain,
                                     f->subject.corpus.domains[domain].ids.data + WINDOW, WINDOW,
                                     &mask, NULL),
                     SSM_STATUS_OK);
    name_sets(mask, found);
    if (strcmp(found, expected) != 0) {
        fail_msg("%s, %s, budget %d, domain %d: kept %s, expected %s", rule, scope, (int)budget,
                 (int)domain, found, expected);
    }
    ssm_adapt_free(adapter);
}

/* Nothing in a channel: the lower modes. */
static void sets_of_channels(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, false);
    expect(&f, "scheduled", "channel", 1, 0, "0|1|2|2"); /* 35, 31, 62 */
    expect(&f, "scheduled", "channel", 2, 0, "01|01|02|02");
    expect(&f, "scheduled", "channel", 1, 1, "0|1|2|1"); /* 32, 65, 31 */
    expect(&f, "half", "channel", 1, 0, "0|1|2|0");      /* 30, 22, 12 */
    expect(&f, "half", "channel", 2, 0, "01|01|02|01");
    expect(&f, "half", "channel", 1, 1, "0|1|0|0");      /* 32, 32, 0: the lower one */
    expect(&f, "prefix:32", "channel", 1, 0, "0|1|0|1"); /* 12, 20, 0 */
    expect(&f, "prefix:32", "channel", 1, 1, "0|0|0|0"); /* 32, 0, 0 */
    expect(&f, "prefix:64", "channel", 1, 0, "0|1|2|0"); /* as half */
    /* ramps 40/40, 88/24, 128/64: 30, 80.7, 24 */
    expect(&f, "prefix-ramp:64", "channel", 1, 0, "0|1|2|1");
    expect(&f, "prefix-ramp:64", "channel", 2, 0, "01|01|02|01");
    expect(&f, "prefix-ramp:64", "channel", 1, 1, "0|1|0|1"); /* 32, 117.3, 0 */
    expect(&f, "regime", "channel", 1, 0, "0|1|0|1");         /* 40, 88, 0 */
    expect(&f, "regime", "channel", 1, 1, "0|0|2|2");         /* 0, 0, 128 */
    expect(&f, "regime", "channel", 2, 1, "01|01|02|02");
    tear_down(&f);
}

static void sets_of_layers(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, false);
    expect(&f, "scheduled", "layer", 1, 0, "2|2|2|2");
    expect(&f, "half", "layer", 1, 0, "0|0|0|0");
    expect(&f, "prefix:32", "layer", 1, 0, "1|1|1|1");
    expect(&f, "prefix-ramp:64", "layer", 1, 0, "1|1|1|1");
    expect(&f, "regime", "layer", 2, 0, "01|01|01|01");
    tear_down(&f);
}

/* The calibration windows together have 40, 88, 128; group 1 has a hundred times the energy. So the
 * pool's order is 2, 1, 0 of group 1, then 2, 1, 0 of group 0; two modes a budget. */
static void ghost_pools_groups(void **state)
{
    static const char *const expected[] = {"|12", "2|012", "012|012"};
    (void)state;
    fixture f;
    set_up(&f, true);
    for (int64_t budget = 1; budget <= N; budget++) {
        ssm_mask mask;
        char found[64];
        double zeroed = -1.0;
        assert_int_equal(
            ssm_ghost_select(f.subject.model, f.recording, budget, NULL, &mask, &zeroed, NULL),
            SSM_STATUS_OK);
        name_sets(&mask, found);
        assert_string_equal(found, expected[budget - 1]);
        assert_true(fabs(zeroed - (1.0 - (double)budget / N)) < 1e-12);
        ssm_mask_free(&mask);
    }
    tear_down(&f);
}

static void sets_of_heads(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, true);
    expect(&f, "scheduled", "head", 1, 0, "2|2");
    expect(&f, "half", "head", 2, 0, "01|01");
    expect(&f, "prefix:32", "group", 1, 0, "1|1");
    expect(&f, "prefix-ramp:64", "layer", 1, 0, "1|1");
    expect(&f, "regime", "head", 1, 1, "2|2");
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_channels),
        cmocka_unit_test(sets_of_layers),
        cmocka_unit_test(sets_of_heads),
        cmocka_unit_test(ghost_pools_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
