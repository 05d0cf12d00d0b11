/* Torch files when memory runs out, read and written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/checkpoint.h>

#include "base/file.h"
#include "test_paths.h"
#include "torch/torch_file.h"
#include "torch/write.h"

static char directory[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 32];

static int set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    snprintf(path, sizeof path, "%s/out.bin", directory);
    /* libzip makes times of its entries, for which the C library copies the zone's name each time
     * unless the environment says which it is. */
    setenv("TZ", "UTC", 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

static ssm_status run_open(void *context, ssm_error *err)
{
    ssm__torch_file *file = NULL;
    ssm_status status = ssm__torch_open(context, &file, err);
    if (status == SSM_STATUS_OK && ssm__torch_count(file) != 21) {
        status = SSM_STATUS_CHECK;
    }
    ssm__torch_close(file);
    return status;
}

static void reading(void **state)
{
    (void)state;
    static const char *const names[] = {"torch/zip.bin", "torch/deflated.bin", "torch/legacy.bin",
                                        "torch/nested.pt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char golden[TEST_PATH_MAX];
        test_golden_path(golden, names[i]);
        /* libzip 1.7 loses a small block when it cannot open a member. */
        const bool zip = strcmp(names[i], "torch/legacy.bin") != 0;
        const failalloc_case this = {.may_leak = zip ? 1 : 0,
                                     .name = names[i],
                                     .run = run_open,
                                     .context = golden,
                                     .may_succeed = zip};
        assert_true(failalloc_check(&this));
    }
}

/* A write that fails must leave no file behind. */
static ssm_status run_write(void *context, ssm_error *err)
{
    (void)context;
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    const ssm_tensor tensors[] = {
        {.name = "a", .n_dims = 2, .dims = {2, 3}, .data = values},
        {.name = "b", .n_dims = 1, .dims = {6}, .data = values},
        {.name = "c", .dtype = SSM_DTYPE_U8, .n_dims = 1, .dims = {5}, .data = values}};
    unlink(path);
    ssm_status status = ssm__torch_write(path, tensors, 3, err);
    bool armed = failalloc_disarm();
    if (ssm__is_file(path) != (status == SSM_STATUS_OK)) {
        status = SSM_STATUS_CHECK;
    }
    failalloc_restore(armed);
    return status;
}

static void writing(void **state)
{
    (void)state;
    const failalloc_case this = {.name = "write", .run = run_write};
    assert_true(failalloc_check(&this));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reading), cmocka_unit_test(writing)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
