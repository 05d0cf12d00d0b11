/* Comparing and examining when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/compare.h>
#include <ssmscope/examine.h>

#include "base/error.h"
#include "test_paths.h"
#include "test_session.h"

enum { COUNT = 5 };

typedef struct fixture {
    char directory[TEST_PATH_MAX], file[TEST_PATH_MAX + 32];
    ssm_model *model;
    int32_t ids[COUNT];
} fixture;

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static ssm_status run_weights(void *context, ssm_error *err)
{
    const fixture *this = context;
    const ssm_checkpoint *checkpoint = ssm_model_checkpoint(this->model);
    ssm_weight_comparison *list = NULL;
    int64_t count = 0;
    SSM__TRY(ssm_compare_weights(checkpoint, checkpoint, NULL, NULL, &list, &count, err));
    ssm_weight_comparisons_free(list);
    return expect(count == 2 * 12 + 3);
}

static ssm_status compare(const fixture *this, const ssm_trace *fast, ssm_error *err)
{
    ssm_trace reference, file;
    ssm_trace_comparison c = {0};
    SSM__TRY(ssm_trace_reference(this->model, this->ids, COUNT, &reference, err));
    ssm_status status = ssm_compare_traces(fast, &reference, 1e-5, &c, err);
    ssm_trace_comparison_free(&c);
    ssm_trace_free(&reference);
    SSM__TRY(status);
    SSM__TRY(expect(c.first == -1));
    SSM__TRY(ssm_trace_read(this->file, NULL, NULL, &file, err));
    ssm_trace_free(&file);
    return SSM_STATUS_OK;
}

static ssm_status run_traces(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_trace fast;
    SSM__TRY(ssm_trace_run(this->model, this->ids, COUNT, NULL, NULL, &fast, err));
    const ssm_status status = compare(this, &fast, err);
    ssm_trace_free(&fast);
    return status;
}

static ssm_status run_taps(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_tap_comparison taps[SSM_TAP_COUNT];
    int64_t count = 0;
    SSM__TRY(
        ssm_compare_taps(this->model, this->model, this->ids, COUNT, 1, NULL, taps, &count, err));
    return expect(count > 5 && taps[0].deviation.differing == 0);
}

static ssm_status run_examine(void *context, ssm_error *err)
{
    const fixture *this = context;
    ssm_findings findings = {0};
    const ssm_status status =
        ssm_examine(ssm_model_checkpoint(this->model), NULL, NULL, &findings, err);
    const bool right = findings.count >= 8;
    ssm_findings_free(&findings);
    return status == SSM_STATUS_OK ? expect(right) : status;
}

static void nothing_leaks(void **state)
{
    const failalloc_case cases[] = {
        {.name = "ssm_compare_weights", .run = run_weights, .context = *state},
        {.name = "ssm_trace", .run = run_traces, .context = *state},
        {.name = "ssm_compare_taps", .run = run_taps, .context = *state},
        {.name = "ssm_examine", .run = run_examine, .context = *state},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(failalloc_check(&cases[i]));
    }
}

static int set_up(void **state)
{
    static const float zeros[16];
    fixture *this = calloc(1, sizeof *this);
    if (this == NULL) {
        return 1;
    }
    ssm_config config = toy_config();
    config.n_layers = 2;
    config.d_inner = 8;
    config.d_state =
        2; /* what is sorted stays below 1 kB, where qsort needs no memory of its own */
    const ssm_tensor tensors[] = {
        {.name = "hidden.0", .n_dims = 2, .dims = {4, 2}, .data = zeros, .bytes = 32},
        {.name = "hidden.1", .n_dims = 2, .dims = {4, 2}, .data = zeros, .bytes = 32},
        {.name = "ids",
         .dtype = SSM_DTYPE_I32,
         .n_dims = 1,
         .dims = {4},
         .data = zeros,
         .bytes = 16}};
    test_make_directory(this->directory);
    snprintf(this->file, sizeof this->file, "%s/trace.safetensors", this->directory);
    assert_int_equal(ssm_safetensors_write(this->file, tensors, 3, NULL, 0, NULL), SSM_STATUS_OK);
    this->model = test_model_toy(&config, SSM_DTYPE_F32, 1, SSM_ISA_AUTO, NULL);
    toy_ids(&config, 2, this->ids, COUNT);
    *state = this;
    return 0;
}

static int tear_down(void **state)
{
    fixture *this = *state;
    test_remove_directory(this->directory);
    ssm_model_free(this->model);
    free(this);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_leaks)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
