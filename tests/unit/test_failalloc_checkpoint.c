/* Tensors, checkpoints, initialisation and mask files when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/convert.h>
#include <ssmscope/init.h>
#include <ssmscope/model.h>

#include "base/error.h"
#include "test_paths.h"
#include "test_toy.h"

static char directory[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 32];
static char expected[64];

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    expected[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

static void check(failalloc_case this)
{
    assert_true(failalloc_check(&this));
}

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

/* Right when it is the digest of the first run. */
static ssm_status expect_digest(const char *digest)
{
    if (expected[0] == '\0') {
        memcpy(expected, digest, sizeof expected);
    }
    return expect(strcmp(digest, expected) == 0);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static const float values[6] = {1, 2, 3, 4, 5, 6};

static ssm_status write_tensors(ssm_error *err)
{
    const ssm_tensor tensors[2] = {{.name = "a tensor with a long name, longer than a short one",
                                    .dtype = SSM_DTYPE_F32,
                                    .n_dims = 2,
                                    .dims = {2, 3},
                                    .data = values,
                                    .bytes = sizeof values},
                                   {.name = "b",
                                    .dtype = SSM_DTYPE_F32,
                                    .n_dims = 1,
                                    .dims = {6},
                                    .data = values,
                                    .bytes = sizeof values}};
    const ssm_metadata metadata[2] = {{"format", "pt"}, {"command", "ssmscope record …"}};
    return ssm_safetensors_write(path, tensors, 2, metadata, 2, err);
}

/* A write that fails must leave neither the file nor its temporary one. */
static ssm_status run_write(void *context, ssm_error *err)
{
    (void)context;
    unlink(path);
    ssm_status status = write_tensors(err);
    bool armed = failalloc_disarm();
    DIR *listing = opendir(directory);
    int entries = -2;
    while (readdir(listing) != NULL) {
        entries++;
    }
    closedir(listing);
    failalloc_restore(armed);
    return entries == (status == SSM_STATUS_OK) ? status : SSM_STATUS_CHECK;
}

static ssm_status run_open(void *context, ssm_error *err)
{
    (void)context;
    ssm_safetensors *file = NULL;
    SSM__TRY(ssm_safetensors_open(path, false, &file, err));
    const ssm_tensor *tensor = ssm_safetensors_find(file, "b");
    const char *format = ssm_safetensors_metadata(file, "format");
    bool right = ssm_safetensors_count(file) == 2 && tensor != NULL &&
                 memcmp(tensor->data, values, sizeof values) == 0 && format != NULL &&
                 strcmp(format, "pt") == 0;
    ssm_safetensors_close(file);
    return expect(right);
}

static void safetensors(void **state)
{
    (void)state;
    in("file.safetensors");
    check((failalloc_case){.name = "ssm_safetensors_write", .run = run_write});
    assert_int_equal(write_tensors(NULL), SSM_STATUS_OK);
    check((failalloc_case){.name = "ssm_safetensors_open", .run = run_open});
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static ssm_status use_checkpoint(const ssm_checkpoint *checkpoint, ssm_error *err)
{
    char digest[64];
    SSM__TRY(ssm_checkpoint_check_finite(checkpoint, err));
    SSM__TRY(ssm_checkpoint_digest(checkpoint, digest, err));
    return expect_digest(digest);
}

static ssm_status run_checkpoint(void *context, ssm_error *err)
{
    (void)context;
    ssm_checkpoint *checkpoint = NULL;
    SSM__TRY(ssm_checkpoint_open(path, NULL, &checkpoint, err));
    ssm_status status = use_checkpoint(checkpoint, err);
    ssm_checkpoint_close(checkpoint);
    return status;
}

static ssm_status run_file_digest(void *context, ssm_error *err)
{
    (void)context;
    char digest[64];
    SSM__TRY(ssm_file_digest(path, digest, err));
    return expect_digest(digest);
}

static void checkpoints(void **state)
{
    (void)state;
    ssm_config config = toy_config();
    config.n_layers = 1;
    toy_checkpoint(directory, &config, SSM_DTYPE_BF16, 1, NULL);
    snprintf(path, sizeof path, "%s", directory);
    check((failalloc_case){.name = "ssm_checkpoint_open", .run = run_checkpoint});
    expected[0] = '\0';
    in("config.json");
    check((failalloc_case){.name = "ssm_file_digest", .run = run_file_digest});
}

static void sharded_checkpoint(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    snprintf(path, sizeof path, "%s", test_golden_path(golden, "hf-tiny/mamba-bf16-sharded"));
    check((failalloc_case){
        .name = "ssm_checkpoint_open, shards", .run = run_checkpoint, .dense = 200});
}

/* The other families and torch files; converted to a directory that a failure leaves absent. */
static ssm_status run_convert(void *context, ssm_error *err)
{
    const ssm_convert_options *options = context;
    char to[TEST_PATH_MAX + 16];
    char weights[TEST_PATH_MAX + 48];
    snprintf(to, sizeof to, "%s/converted", directory);
    bool armed = failalloc_disarm();
    if (access(to, F_OK) == 0) {
        test_remove_directory(to); /* of the run before */
    }
    failalloc_restore(armed);
    ssm_checkpoint *checkpoint = NULL;
    SSM__TRY(ssm_checkpoint_open(path, NULL, &checkpoint, err));
    ssm_status status = ssm_convert(checkpoint, options, to, NULL, err);
    ssm_checkpoint_close(checkpoint);
    if (status != SSM_STATUS_OK) {
        return access(to, F_OK) == 0 ? SSM_STATUS_FAILED : status;
    }
    char digest[64];
    snprintf(weights, sizeof weights, "%s/config.json", to);
    SSM__TRY(ssm_file_digest(weights, digest, err));
    return expect_digest(digest);
}

static void conversion(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    ssm_convert_options options = {.layout = SSM_LAYOUT_ORIGINAL,
                                   .container = SSM_CONTAINER_TORCH,
                                   .dtype = SSM_DTYPE_F32,
                                   .shard_bytes = 60000};
    snprintf(path, sizeof path, "%s", test_golden_path(golden, "hf-tiny/mamba2-g4-limit"));
    check((failalloc_case){.name = "ssm_convert, to original in torch shards",
                           .run = run_convert,
                           .context = &options,
                           .dense = 60});
    expected[0] = '\0';
    options.layout = SSM_LAYOUT_HF;
    options.container = SSM_CONTAINER_SAFETENSORS;
    options.shard_bytes = 0;
    check((failalloc_case){.name = "ssm_convert, to safetensors",
                           .run = run_convert,
                           .context = &options,
                           .dense = 60});
}

/* Layers of attention, MLPs, torch files. */
static void other_checkpoints(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    char to[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s", test_golden_path(golden, "hybrid/mamba2-attention"));
    check((failalloc_case){
        .name = "ssm_checkpoint_open, a hybrid", .run = run_checkpoint, .dense = 100});
    expected[0] = '\0';
    const ssm_convert_options options = {.layout = SSM_LAYOUT_ORIGINAL,
                                         .container = SSM_CONTAINER_TORCH,
                                         .dtype = SSM_DTYPE_COUNT,
                                         .shard_bytes = 60000};
    ssm_checkpoint *checkpoint = NULL;
    snprintf(to, sizeof to, "%s/torch", directory);
    assert_int_equal(ssm_checkpoint_open(path, NULL, &checkpoint, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_convert(checkpoint, &options, to, NULL, NULL), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
    assert_true(snprintf(path, sizeof path, "%s", to) < (int)sizeof path);
    setenv("TZ", "UTC", 1); /* libzip makes times of its entries: no new copy of the zone's name */
    /* libzip does without some memory, and loses a small block when it cannot open a member. */
    check((failalloc_case){.name = "ssm_checkpoint_open, torch shards",
                           .run = run_checkpoint,
                           .may_succeed = true,
                           .may_leak = 1,
                           .dense = 100});
}

/* ---- initialisation -------------------------------------------------------------------------- */

static ssm_status run_init(void *context, ssm_error *err)
{
    const ssm_config *config = context;
    bool armed = failalloc_disarm();
    unlink(path); /* the directory is kept, empty */
    char config_path[TEST_PATH_MAX + 32];
    snprintf(config_path, sizeof config_path, "%s/config.json", directory);
    unlink(config_path);
    failalloc_restore(armed);
    SSM__TRY(ssm_init_write(config, SSM_DTYPE_F16, 3, directory, NULL, err));
    char digest[64];
    SSM__TRY(ssm_file_digest(path, digest, err));
    return expect_digest(digest);
}

static void initialisation(void **state)
{
    (void)state;
    ssm_config config = toy_config();
    config.n_layers = 1;
    in("model.safetensors");
    check((failalloc_case){.name = "ssm_init_write", .run = run_init, .context = &config});
}

/* ---- masks ----------------------------------------------------------------------------------- */

static ssm_status run_mask_write(void *context, ssm_error *err)
{
    (void)context;
    ssm_mask mask;
    SSM__TRY(ssm_mask_create(2, 3, 4, &mask, err));
    for (int i = 1; i < 2 * 3 * 4; i += 4) { /* three of four in every channel */
        mask.keep[i] = 0;
    }
    snprintf(mask.rule, sizeof mask.rule, "static");
    snprintf(mask.scope, sizeof mask.scope, "channel");
    mask.budget = 3;
    unlink(path);
    ssm_status status = ssm_mask_write(&mask, path, "ssmscope select", err);
    ssm_mask_free(&mask);
    return (access(path, F_OK) == 0) == (status == SSM_STATUS_OK) ? status : SSM_STATUS_CHECK;
}

static ssm_status run_mask_read(void *context, ssm_error *err)
{
    (void)context;
    ssm_mask mask;
    SSM__TRY(ssm_mask_read(path, &mask, err));
    bool right = mask.n_layers == 2 && mask.d_state == 4 && mask.keep[4] == 1 && mask.keep[5] == 0;
    ssm_mask_free(&mask);
    return expect(right);
}

static void masks(void **state)
{
    (void)state;
    in("mask.safetensors");
    check((failalloc_case){.name = "ssm_mask_write", .run = run_mask_write});
    assert_int_equal(run_mask_write(NULL, NULL), SSM_STATUS_OK);
    check((failalloc_case){.name = "ssm_mask_read", .run = run_mask_read});
}

static void calls_without_memory(void **state)
{
    (void)state;
    ssm_isa isa = SSM_ISA_AUTO;
    ssm_config config;
    ssm_error err = {0};
    failalloc_arm(1, FAILALLOC_FROM);
    ssm_status parsed = ssm_isa_parse("portable", &isa, &err);
    ssm_status shaped = ssm_shape_config("mamba-130m", &config, &err);
    ssm_status unknown = ssm_shape_config("mamba-131m", &config, &err);
    failalloc_disarm();
    assert_int_equal(parsed, SSM_STATUS_OK);
    assert_int_equal(shaped, SSM_STATUS_OK);
    assert_int_equal(unknown, SSM_STATUS_USAGE);
    assert_int_equal(failalloc.seen, 0);
}

int main(void)
{
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(conversion),
        IN_DIRECTORY(other_checkpoints),
        cmocka_unit_test(calls_without_memory),
        IN_DIRECTORY(safetensors),
        IN_DIRECTORY(checkpoints),
        IN_DIRECTORY(sharded_checkpoint),
        IN_DIRECTORY(initialisation),
        IN_DIRECTORY(masks),
    };
    return cmocka_run_group_tests_name("failalloc_checkpoint", tests, NULL, NULL);
}
