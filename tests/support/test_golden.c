/* test_golden.c: the tiny Hugging Face models of tests/golden/hf-tiny and what they must give. */
#include "test_golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/checkpoint.h>

#include "test_numbers.h"

/* MODEL/FILE below tests/golden; a model without a folder of its own is one of hf-tiny. */
static const char *path_of(char out[TEST_PATH_MAX], const char *model, const char *file)
{
    char relative[160];
    snprintf(relative, sizeof relative, "%s%s%s", strchr(model, '/') ? "" : "hf-tiny/", model,
             file);
    return test_golden_path(out, relative);
}

const char *golden_model_path(char out[TEST_PATH_MAX], const char *model)
{
    return path_of(out, model, "");
}

static double *numbers(const ssm_safetensors *file, const char *what, int sequence, int64_t *count)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, sequence);
    const ssm_tensor *tensor = ssm_safetensors_find(file, name);
    assert_non_null(tensor);
    *count = ssm_tensor_count(tensor);
    double *out = test_doubles(*count);
    for (int64_t i = 0; i < *count; i++) {
        out[i] = ssm_tensor_get(tensor, i);
    }
    return out;
}

static ssm_safetensors *open_expected(const char *model)
{
    char path[TEST_PATH_MAX];
    ssm_safetensors *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_safetensors_open(path_of(path, model, "/expect/expected.safetensors"), false, &file,
                             &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    return file;
}

golden_sequence golden_read(const char *model, int sequence)
{
    ssm_safetensors *file = open_expected(model);
    golden_sequence golden = {0};
    double *ids = numbers(file, "ids", sequence, &golden.count);
    golden.logits = numbers(file, "logits_float64", sequence, &golden.n_logits);
    golden.hidden = numbers(file, "hidden_float64", sequence, &golden.n_hidden);
    golden.ids = calloc((size_t)golden.count + 1, sizeof *golden.ids);
    assert_non_null(golden.ids);
    for (int64_t i = 0; i < golden.count; i++) {
        golden.ids[i] = (int32_t)ids[i];
    }
    free(ids);
    ssm_safetensors_close(file);
    return golden;
}

double *golden_grouped_logits(const char *model, int sequence, int64_t *count)
{
    ssm_safetensors *file = open_expected(model);
    double *out = numbers(file, "logits_grouped_norm", sequence, count);
    ssm_safetensors_close(file);
    return out;
}

void golden_free(golden_sequence *golden)
{
    free(golden->ids);
    free(golden->logits);
    free(golden->hidden);
    *golden = (golden_sequence){0};
}
