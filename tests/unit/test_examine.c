/* What an examination says about a checkpoint: each oddity is put into a toy and found, and a toy
 * without it does not have the sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/examine.h>

#include "test_session.h"

static ssm_error err;

static ssm_findings examine(const ssm_config *config, ssm_dtype dtype, const toy_options *options,
                            ssm_pool *pool)
{
    char directory[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint = NULL;
    ssm_findings findings = {0};
    test_make_directory(directory);
    toy_checkpoint(directory, config, dtype, 1, options);
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(directory, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    test_remove_directory(directory);
    assert_int_equal(ssm_examine(checkpoint, pool, NULL, &findings, &err), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
    return findings;
}

static const ssm_finding *find(const ssm_findings *findings, const char *part)
{
    for (int64_t i = 0; i < findings->count; i++) {
        if (strstr(findings->items[i].text, part) != NULL) {
            return &findings->items[i];
        }
    }
    return NULL;
}

static void print_all(const ssm_findings *findings)
{
    for (int64_t i = 0; i < findings->count; i++) {
        print_error("%s: %s\n", ssm_finding_kind_name(findings->items[i].kind),
                    findings->items[i].text);
    }
}

/* ---- oddities -------------------------------------------------------------------------------- */

static bool ends(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static void fill(float *values, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = value;
    }
}

#define EDIT(name)                                                                                 \
    static void name(const char *tensor, float *values, __attribute__((unused)) int64_t count)

EDIT(dt_bias_of_ones)
{
    if (ends(tensor, "dt_proj.bias")) {
        fill(values, count, 1.0F);
    }
}
EDIT(dt_bias_of_zeros)
{
    if (ends(tensor, "layers.1.mixer.dt_proj.bias")) {
        fill(values, count, 0.0F);
    }
}
EDIT(dt_bias_far_away)
{
    if (ends(tensor, "dt_proj.bias")) {
        values[0] = 30.0F;
        for (int64_t i = 1; i < count; i++) {
            values[i] = 20.0F + (float)i;
        }
    }
}
EDIT(a_stored_as_itself)
{
    for (int64_t i = 0; ends(tensor, "A_log") && i < count; i++) {
        values[i] = -1.0F - (float)(i % 5);
    }
}
EDIT(a_log_overflows)
{
    if (ends(tensor, "layers.2.mixer.A_log")) {
        values[3] = 100.0F;
    }
}
EDIT(zero_skips)
{
    if (ends(tensor, "layers.1.mixer.D")) {
        fill(values, count, 0.0F);
    }
}
EDIT(norms_around_zero)
{
    for (int64_t i = 0; ends(tensor, "norm.weight") && i < count; i++) {
        values[i] -= 1.0F;
        values[i] *= 0.1F;
    }
}
EDIT(huge_norm)
{
    if (ends(tensor, "norm_f.weight")) {
        values[2] = 200.0F;
    }
}
EDIT(negative_norm)
{
    if (ends(tensor, "layers.0.norm.weight")) {
        fill(values, count, -1.0F);
    }
}
EDIT(not_a_number)
{
    if (ends(tensor, "layers.1.mixer.x_proj.weight")) {
        values[7] = NAN;
        values[9] = INFINITY;
    }
}
EDIT(subnormal)
{
    if (ends(tensor, "layers.1.mixer.out_proj.weight")) {
        values[7] = 1e-40F;
    }
}
EDIT(constant_matrix)
{
    if (ends(tensor, "layers.2.mixer.out_proj.weight")) {
        fill(values, count, 0.25F);
    }
}
EDIT(huge_number)
{
    if (ends(tensor, "layers.2.mixer.in_proj.bias")) {
        values[1] = 1e6F;
    }
}
EDIT(zero_row)
{
    if (ends(tensor, "layers.2.mixer.in_proj.weight")) {
        fill(values + 3 * (int64_t)(count / 72), count / 72, 0.0F);
    }
}
EDIT(zero_embedding)
{
    if (ends(tensor, "embeddings.weight")) {
        fill(values + 30 * (count / 31), count / 31, 0.0F);
    }
}
EDIT(loud_embedding)
{
    for (int64_t i = 0; ends(tensor, "embeddings.weight") && i < count / 31; i++) {
        values[4 * (count / 31) + i] *= 100.0F;
    }
}
EDIT(rounded_to_bf16)
{
    uint32_t bits;
    for (int64_t i = 0; ends(tensor, "_proj.weight") && i < count; i++) {
        memcpy(&bits, &values[i], sizeof bits);
        bits &= 0xFFFF0000U;
        memcpy(&values[i], &bits, sizeof bits);
    }
}
EDIT(untrained)
{
    for (int64_t i = 0; ends(tensor, "A_log") && i < count; i++) {
        values[i] = logf((float)(i % 5) + 1.0F);
    }
    if (ends(tensor, "mixer.D") || ends(tensor, "norm.weight")) {
        fill(values, count, 1.0F);
    }
}
EDIT(untrained_layer)
{
    if (strstr(tensor, "layers.1.") != NULL) {
        untrained(tensor, values, count);
    }
}
/* Layers 0 and 2 alike: the same numbers whatever the layer, but in layer 1. */
EDIT(same_layers)
{
    if (strstr(tensor, "_proj.weight") != NULL && strstr(tensor, "layers.1.") == NULL) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = sinf((float)i);
        }
    }
}

typedef struct row {
    void (*edit)(const char *, float *, int64_t);
    ssm_finding_kind kind;
    const char *tensor; /* ends so, or "" */
    const char *part;
} row;

static const row rows[] = {
    {dt_bias_of_ones, SSM_FINDING_NOTE, "layers.0.mixer.dt_proj.bias",
     "dt bias of 3 layers is one number throughout, 1 in"},
    {dt_bias_of_ones, SSM_FINDING_NOTE, "", "a constructor's value that was never replaced"},
    {dt_bias_of_zeros, SSM_FINDING_NOTE, "layers.1.mixer.dt_proj.bias",
     "dt bias of 1 layer is one number throughout, 0 in"},
    {dt_bias_of_zeros, SSM_FINDING_NOTE, "", "a framework set biases to zero"},
    {dt_bias_far_away, SSM_FINDING_NOTE, "", "far from every published model"},
    {a_stored_as_itself, SSM_FINDING_NOTE, "layers.0.mixer.A_log",
     "negative in 3 layers (-5 to -1 in backbone.layers.0.mixer.A_log): was A itself stored"},
    {a_log_overflows, SSM_FINDING_PROBLEM, "layers.2.mixer.A_log", "reaches 100: its exponential"},
    {a_log_overflows, SSM_FINDING_NOTE, "", "the fastest modes forget at once"},
    {zero_skips, SSM_FINDING_NOTE, "", "36 of 108 skips D are exactly zero, first in layer 1"},
    {norms_around_zero, SSM_FINDING_NOTE, "", "was w - 1 stored in place of w?"},
    {huge_norm, SSM_FINDING_NOTE, "norm_f.weight", "1 norms have weights beyond 100"},
    {negative_norm, SSM_FINDING_NOTE, "", "1 norms have no positive weight"},
    {not_a_number, SSM_FINDING_PROBLEM, "layers.1.mixer.x_proj.weight",
     "2 of 468 numbers of backbone.layers.1.mixer.x_proj.weight are not finite, the first is "
     "number 7"},
    {subnormal, SSM_FINDING_NOTE, "layers.1.mixer.out_proj.weight",
     "1 tensor with numbers so small that they are subnormal"},
    {constant_matrix, SSM_FINDING_NOTE, "layers.2.mixer.out_proj.weight",
     "1 tensor of one number throughout"},
    {huge_number, SSM_FINDING_NOTE, "layers.2.mixer.in_proj.bias", "with a number beyond 10000"},
    {zero_row, SSM_FINDING_NOTE, "layers.2.mixer.in_proj.weight",
     "1 rows of 1 matrix are zero, the first is row 3 of"},
    {zero_embedding, SSM_FINDING_NOTE, "embeddings.weight",
     "1 rows of the embedding are zero, the first is that of id 30"},
    {loud_embedding, SSM_FINDING_NOTE, "embeddings.weight",
     "1 rows of the embedding have a norm of less than a tenth or more than ten times the median, "
     "the first is that of id 4"},
    {rounded_to_bf16, SSM_FINDING_NOTE, "", "every F32 number of the projections is one of BF16"},
    {untrained, SSM_FINDING_NOTE, "", "of all 3 layers are those of the published initialisation"},
    {untrained_layer, SSM_FINDING_NOTE, "", "of 1 layer are those of the published"},
    {same_layers, SSM_FINDING_NOTE, "",
     "1 layer has the matrices of an earlier one: layer 2 those of layer 0"},
};

static void oddities_are_found(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    ssm_findings plain = examine(&config, SSM_DTYPE_F32, NULL, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const toy_options options = {.edit = rows[i].edit};
        ssm_findings findings = examine(&config, SSM_DTYPE_F32, &options, NULL);
        const ssm_finding *finding = find(&findings, rows[i].part);
        if (finding == NULL || finding->kind != rows[i].kind ||
            !ends(finding->tensor, rows[i].tensor)) {
            print_all(&findings);
            fail_msg("not found so: %s", rows[i].part);
        }
        if (find(&plain, rows[i].part) != NULL) {
            fail_msg("a plain toy has it too: %s", rows[i].part);
        }
        ssm_findings_free(&findings);
    }
    ssm_findings_free(&plain);
}

static void a_plain_toy_is_ok(void **state)
{
    (void)state;
    static const char *const said[] = {
        "39 tensors in 1 file",
        ("embedding F32; head F32; projections F32; conv1d F32; A_log, D and dt bias F32; norms "
         "and biases F32; everything is computed in F32"),
        "every weight is finite",
        "step sizes at the bias alone, softplus(dt bias): 0.0",
        "the step size dt is not clamped",
        "decay rates |A|: 0.4",
        "of the 4 norms",
        "rows of the embedding have norm",
        "rows of the head have norm",
    };
    ssm_pool *pool = test_pool_create(2);
    const ssm_config config = toy_config();
    ssm_findings findings = examine(&config, SSM_DTYPE_F32, NULL, pool);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        const ssm_finding *finding = find(&findings, said[i]);
        if (finding == NULL || finding->kind != SSM_FINDING_OK) {
            print_all(&findings);
            fail_msg("%s", said[i]);
        }
    }
    assert_int_equal(ssm_findings_of(&findings, SSM_FINDING_PROBLEM), 0);
    ssm_findings_free(&findings);
    ssm_pool_free(pool);
}

/* Notes of the load come along: an unknown setting, padding rows, and what is not used. */
static void notes_of_the_load(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    const toy_options options = {.claimed_vocab = 29, .more_json = ", \"never_heard_of\": 1"};
    ssm_findings findings = examine(&config, SSM_DTYPE_BF16, &options, NULL);
    assert_non_null(find(&findings, "2 rows of padding stay in the soft-max"));
    assert_non_null(find(&findings, "never_heard_of"));
    assert_non_null(find(&findings, "projections BF16"));
    assert_null(find(&findings, "half of their bytes")); /* already narrow */
    ssm_findings_free(&findings);
}

static bool stop(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    (void)context, (void)what, (void)done, (void)total, (void)unit;
    return false;
}

static void it_can_be_interrupted(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    const ssm_progress progress = {.report = stop};
    ssm_model *model = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL);
    ssm_findings findings = {0};
    assert_int_equal(ssm_examine(ssm_model_checkpoint(model), NULL, &progress, &findings, &err),
                     SSM_STATUS_INTERRUPTED);
    ssm_findings_free(&findings);
    ssm_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oddities_are_found),
        cmocka_unit_test(a_plain_toy_is_ok),
        cmocka_unit_test(notes_of_the_load),
        cmocka_unit_test(it_can_be_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
