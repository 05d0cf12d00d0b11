/* Conversions: the load matrix {layout} × {container} × {one file, shards} × {tied, untied} ×
 * {dtype} is the same model to the bit; round trips; what a layout cannot hold; atomicity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <ssmscope/convert.h>

#include "checkpoint/weights.h"
#include "test_edit.h"
#include "test_golden.h"
#include "test_legacy.h"
#include "test_session.h"

static ssm_checkpoint *open_ok(const char *path)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(path, NULL, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s (%s, %s)", path, err.message, err.file, err.tensor);
    }
    return checkpoint;
}

static void digest_of(const char *path, char out[64])
{
    ssm_checkpoint *checkpoint = open_ok(path);
    assert_int_equal(ssm_checkpoint_digest(checkpoint, out, NULL), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
}

static void convert_ok(const char *from, const ssm_convert_options *options, const char *to)
{
    ssm_checkpoint *checkpoint = open_ok(from);
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_convert(checkpoint, options, to, NULL, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", from, err.message);
    }
    ssm_checkpoint_close(checkpoint);
}

static const char *join(char out[TEST_PATH_MAX], const char *directory, const char *name)
{
    const int length = snprintf(out, TEST_PATH_MAX, "%s/%s", directory, name);
    assert_true(length > 0 && length < TEST_PATH_MAX);
    return out;
}

/* ---- the load matrix ------------------------------------------------------------------------- */

enum { IDS = 23 };

static float *logits_of(const char *path, int64_t *count)
{
    ssm_model *model = test_model_open(path, ssm_isa_best());
    const ssm_config *config = ssm_model_config(model);
    int32_t ids[IDS];
    toy_ids(config, 11, ids, IDS);
    float *logits = test_model_logits(model, ids, IDS, 0);
    *count = IDS * config->vocab_size;
    ssm_model_free(model);
    return logits;
}

typedef enum container { SAFETENSORS, TORCH_ZIP, TORCH_LEGACY, CONTAINERS } container;

/* All torch files of a directory in the form before PyTorch 1.6. */
static void make_legacy(const char *directory, int64_t shards)
{
    char path[TEST_PATH_MAX];
    if (shards == 1) {
        legacy_rewrite(join(path, directory, "pytorch_model.bin"));
        return;
    }
    for (int64_t i = 1; i <= shards; i++) {
        char name[64];
        snprintf(name, sizeof name, "pytorch_model-%05d-of-%05d.bin", (int)i, (int)shards);
        legacy_rewrite(join(path, directory, name));
    }
}

static int64_t count_shards(const char *directory)
{
    for (int n = 1; n < 100; n++) {
        char name[64];
        char path[TEST_PATH_MAX];
        snprintf(name, sizeof name, "pytorch_model-00001-of-%05d.bin", n);
        if (access(join(path, directory, name), R_OK) == 0) {
            return n;
        }
    }
    return 1;
}

typedef struct base_model {
    const char *path;
    char digest[64];
    float *logits;
    int64_t count;
} base_model;

static void check_cell(const base_model *base, ssm_layout layout, container form,
                       int64_t shard_bytes)
{
    char directory[TEST_PATH_MAX];
    char to[TEST_PATH_MAX];
    char digest[64];
    int64_t count;
    test_make_directory(directory);
    join(to, directory, "deep/model");
    const ssm_convert_options options = {
        .layout = layout,
        .container = form == SAFETENSORS ? SSM_CONTAINER_SAFETENSORS : SSM_CONTAINER_TORCH,
        .dtype = SSM_DTYPE_COUNT,
        .shard_bytes = shard_bytes};
    convert_ok(base->path, &options, to);
    if (form != SAFETENSORS) {
        assert_int_equal(count_shards(to) > 1, shard_bytes > 0);
    }
    if (form == TORCH_LEGACY) {
        make_legacy(to, count_shards(to));
    }
    digest_of(to, digest);
    assert_string_equal(digest, base->digest);
    float *logits = logits_of(to, &count);
    assert_int_equal(count, base->count);
    assert_memory_equal(logits, base->logits, (size_t)count * sizeof *logits);
    free(logits);
    test_remove_directory(directory);
}

static void load_matrix(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool original; /* the original layout has a word for it */
    } models[] = {{"mamba-tied", true},
                  {"mamba-untied-bias-conv3", true},
                  {"mamba2-g1-chunks", true},
                  {"mamba2-g4-limit", true},
                  {"falcon", false}};
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    int cells = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
            char directory[TEST_PATH_MAX];
            char path[TEST_PATH_MAX];
            char golden[TEST_PATH_MAX];
            test_make_directory(directory);
            join(path, directory, "base");
            const ssm_convert_options options = {.dtype = dtypes[d]};
            convert_ok(golden_model_path(golden, models[m].name), &options, path);
            base_model base = {.path = path};
            digest_of(path, base.digest);
            base.logits = logits_of(path, &base.count);
            for (int cell = 0; cell < 2 * CONTAINERS * 2; cell++) {
                const ssm_layout layout = cell % 2 == 0 ? SSM_LAYOUT_HF : SSM_LAYOUT_ORIGINAL;
                const container form = (container)(cell / 2 % CONTAINERS);
                const int64_t shard_bytes = cell / (2 * CONTAINERS) == 0 ? 0 : 9000;
                if (layout == SSM_LAYOUT_HF || models[m].original) {
                    check_cell(&base, layout, form, shard_bytes);
                    cells++;
                }
            }
            free(base.logits);
            test_remove_directory(directory);
        }
    }
    printf("%d cells of the load matrix\n", cells);
}

/* What the original schema alone can say survives a conversion to it. */
static void original_only_models(void **state)
{
    (void)state;
    static const char *const models[] = {"mamba-attention", "mamba2-attention", "mamba2-no-norm",
                                         "mamba2-wide", "transformer"};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char relative[64];
        char path[TEST_PATH_MAX];
        snprintf(relative, sizeof relative, "hybrid/%s", models[m]);
        base_model base = {.path = test_golden_path(path, relative)};
        digest_of(path, base.digest);
        base.logits = logits_of(path, &base.count);
        for (int form = 0; form < CONTAINERS; form++) {
            check_cell(&base, SSM_LAYOUT_ORIGINAL, (container)form, 0);
            check_cell(&base, SSM_LAYOUT_ORIGINAL, (container)form, 3000);
        }
        free(base.logits);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool same_file(const char *a, const char *b)
{
    char first[64];
    char second[64];
    assert_int_equal(ssm_file_digest(a, first, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_file_digest(b, second, NULL), SSM_STATUS_OK);
    return strcmp(first, second) == 0;
}

/* hf → original → hf gives the bytes of hf → hf: weights, configuration and tokenizer. */
static void round_trip_is_bit_identical(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    char directory[TEST_PATH_MAX];
    char direct[TEST_PATH_MAX];
    char original[TEST_PATH_MAX];
    char back[TEST_PATH_MAX];
    test_make_directory(directory);
    const char *tiny = SSM_SOURCE_DIR "/models/tiny";
    const ssm_convert_options hf = {.dtype = SSM_DTYPE_COUNT};
    const ssm_convert_options to_original = {
        .layout = SSM_LAYOUT_ORIGINAL, .container = SSM_CONTAINER_TORCH, .dtype = SSM_DTYPE_COUNT};
    convert_ok(tiny, &hf, join(direct, directory, "direct"));
    convert_ok(tiny, &to_original, join(original, directory, "original"));
    convert_ok(original, &hf, join(back, directory, "back"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char a[TEST_PATH_MAX];
        char b[TEST_PATH_MAX];
        if (!same_file(join(a, direct, names[i]), join(b, back, names[i]))) {
            fail_msg("%s differs", names[i]);
        }
    }
    char a[TEST_PATH_MAX];
    char b[TEST_PATH_MAX];
    assert_true(same_file(join(a, direct, "tokenizer.json"), join(b, tiny, "tokenizer.json")));
    test_remove_directory(directory);
}

/* A tied head is written once, and marked for transformers. */
static void tied_head_is_written_once(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    char to[TEST_PATH_MAX];
    char path[TEST_PATH_MAX];
    char golden[TEST_PATH_MAX];
    test_make_directory(directory);
    golden_model_path(golden, "mamba-tied");
    const ssm_convert_options hf = {.dtype = SSM_DTYPE_COUNT};
    convert_ok(golden, &hf, join(to, directory, "safetensors"));
    ssm_safetensors *file = NULL;
    assert_int_equal(ssm_safetensors_open(join(path, to, "model.safetensors"), false, &file, NULL),
                     SSM_STATUS_OK);
    assert_string_equal(ssm_safetensors_metadata(file, "format"), "pt");
    assert_null(ssm_safetensors_find(file, "lm_head.weight"));
    assert_non_null(ssm_safetensors_find(file, "backbone.embeddings.weight"));
    ssm_safetensors_close(file);

    const ssm_convert_options torch = {
        .layout = SSM_LAYOUT_ORIGINAL, .container = SSM_CONTAINER_TORCH, .dtype = SSM_DTYPE_COUNT};
    convert_ok(golden, &torch, join(to, directory, "torch"));
    ssm_checkpoint *checkpoint = open_ok(to);
    const ssm_tensor *embedding = NULL;
    const ssm_tensor *head = NULL;
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        const ssm_tensor *tensor = ssm_checkpoint_at(checkpoint, i);
        embedding = strcmp(tensor->name, "backbone.embedding.weight") == 0 ? tensor : embedding;
        if (strcmp(tensor->name, "lm_head.weight") == 0) {
            head = tensor;
            assert_false(ssm_checkpoint_used(checkpoint, i));
        } else {
            assert_true(ssm_checkpoint_used(checkpoint, i));
        }
    }
    assert_non_null(embedding);
    assert_non_null(head);
    assert_ptr_equal(embedding->data, head->data);
    ssm_checkpoint_close(checkpoint);
    test_remove_directory(directory);
}

/* expand is written so that int(expand · d_model) is d_inner, for every width. */
static void fractional_expand_is_exact(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    char to[TEST_PATH_MAX];
    char path[TEST_PATH_MAX];
    test_make_directory(directory);
    edit *e = edit_create(NULL); /* E 36, D 20: expand 1.8 */
    edit_write(e);
    const ssm_convert_options original = {.layout = SSM_LAYOUT_ORIGINAL, .dtype = SSM_DTYPE_COUNT};
    convert_ok(e->directory, &original, join(to, directory, "original"));
    json_t *config = json_load_file(join(path, to, "config.json"), 0, NULL);
    assert_non_null(config);
    const json_t *ssm_cfg = json_object_get(config, "ssm_cfg");
    assert_true(json_real_value(json_object_get(ssm_cfg, "expand")) == 1.8);
    assert_int_equal(json_integer_value(json_object_get(config, "pad_vocab_size_multiple")), 1);
    assert_int_equal(json_integer_value(json_object_get(config, "vocab_size")), 31);
    json_decref(config);
    edit_free(e);
    test_remove_directory(directory);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static void dtype_of_matrices(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    char to[TEST_PATH_MAX];
    char golden[TEST_PATH_MAX];
    test_make_directory(directory);
    const ssm_convert_options options = {.dtype = SSM_DTYPE_BF16};
    convert_ok(golden_model_path(golden, "mamba-tied"), &options, join(to, directory, "bf16"));
    ssm_checkpoint *checkpoint = open_ok(to);
    const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
    assert_int_equal(weights->embedding.dtype, SSM_DTYPE_BF16);
    assert_int_equal(weights->layers[1].out_proj.dtype, SSM_DTYPE_BF16);
    assert_int_equal(weights->layers[1].A_log.dtype, SSM_DTYPE_F32);
    assert_int_equal(weights->layers[1].conv1d.dtype, SSM_DTYPE_F32);
    assert_int_equal(weights->norm_f.dtype, SSM_DTYPE_F32);
    ssm_checkpoint_close(checkpoint);

    /* Up and down again is the same model: F16 and BF16 are in F32 without loss. */
    char up[TEST_PATH_MAX];
    char down[TEST_PATH_MAX];
    char first[64];
    char second[64];
    const ssm_convert_options f32 = {.dtype = SSM_DTYPE_F32};
    convert_ok(to, &f32, join(up, directory, "f32"));
    convert_ok(up, &options, join(down, directory, "bf16-again"));
    digest_of(to, first);
    digest_of(down, second);
    assert_string_equal(first, second);
    test_remove_directory(directory);
}

static void f16_has_a_range(void **state)
{
    (void)state;
    char to[TEST_PATH_MAX];
    edit *e = edit_create(NULL);
    ssm_tensor *tensor = edit_find(e, "backbone.layers.1.mixer.in_proj.weight");
    ((float *)(uintptr_t)tensor->data)[7] = 70000.0F; /* the largest F16 is 65504 */
    edit_write(e);
    ssm_checkpoint *checkpoint = open_ok(e->directory);
    const ssm_convert_options options = {.dtype = SSM_DTYPE_F16};
    ssm_error err;
    ssm_error_clear(&err);
    join(to, e->directory, "f16");
    assert_int_equal(ssm_convert(checkpoint, &options, to, NULL, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "element 7 is 70000, which is beyond the range of F16"));
    assert_non_null(strstr(err.tensor, "layers.1.mixer.in_proj.weight"));
    assert_int_not_equal(access(to, F_OK), 0);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(edit *e, ssm_layout layout, const char *part)
{
    edit_write(e);
    char to[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint = open_ok(e->directory);
    const ssm_convert_options options = {.layout = layout, .dtype = SSM_DTYPE_COUNT};
    ssm_error err;
    ssm_error_clear(&err);
    join(to, e->directory, "refused");
    assert_int_equal(ssm_convert(checkpoint, &options, to, NULL, &err), SSM_STATUS_USAGE);
    if (strstr(err.message, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    }
    assert_int_not_equal(access(to, F_OK), 0);
    ssm_checkpoint_close(checkpoint);
}

static void what_a_layout_cannot_hold(void **state)
{
    (void)state;
    char golden[TEST_PATH_MAX];
    edit *e = edit_create(NULL);
    edit_config(e, "layer_norm_epsilon", "1e-6");
    expect_refusal(e, SSM_LAYOUT_ORIGINAL, "an epsilon of the norms other than 1e-5");
    edit_config(e, "layer_norm_epsilon", "1e-5");
    edit_config(e, "use_bias", NULL);
    for (int layer = 0; layer < 3; layer++) {
        char name[96];
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.out_proj.bias", layer);
        edit_remove(e, name);
    }
    expect_refusal(e, SSM_LAYOUT_HF, "a bias of only one of in_proj and out_proj");
    expect_refusal(e, SSM_LAYOUT_ORIGINAL, "a bias of only one of in_proj and out_proj");
    edit_free(e);

    e = edit_create(golden_model_path(golden, "falcon"));
    expect_refusal(e, SSM_LAYOUT_ORIGINAL, "norms of dt, B and C (Falcon-Mamba)");
    edit_free(e);

    e = edit_create(golden_model_path(golden, "mamba2-g4-limit"));
    edit_config(e, "norm_before_gate", "true");
    expect_refusal(e, SSM_LAYOUT_HF, "the norm before the gate (norm_before_gate)");
    edit_config(e, "norm_before_gate", NULL);
    for (int layer = 0; layer < 2; layer++) {
        char name[96];
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.norm.weight", layer);
        edit_remove(e, name);
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.D", layer);
        edit_reshape(e, name, SSM_DTYPE_F32, (const int64_t[3]){64});
    }
    expect_refusal(e, SSM_LAYOUT_HF, "D per channel (D_has_hdim)");
    for (int layer = 0; layer < 2; layer++) {
        char name[96];
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.D", layer);
        edit_reshape(e, name, SSM_DTYPE_F32, (const int64_t[3]){8});
    }
    expect_refusal(e, SSM_LAYOUT_HF, "a mixer without its norm (rmsnorm = false)");
    edit_free(e);
}

static void directory_must_be_free(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_write(e);
    ssm_checkpoint *checkpoint = open_ok(e->directory);
    const ssm_convert_options options = {.dtype = SSM_DTYPE_COUNT};
    ssm_error err;
    char path[TEST_PATH_MAX];
    ssm_error_clear(&err);
    assert_int_equal(ssm_convert(checkpoint, &options, e->directory, NULL, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "the directory is not empty"));
    edit_path(e, "config.json", path);
    ssm_error_clear(&err);
    assert_int_equal(ssm_convert(checkpoint, &options, path, NULL, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "there is a file of that name"));
    edit_path(e, "empty", path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(ssm_convert(checkpoint, &options, path, NULL, NULL), SSM_STATUS_OK);
    const ssm_convert_options integers = {.dtype = SSM_DTYPE_I8};
    assert_int_equal(ssm_convert(checkpoint, &integers, path, NULL, &err), SSM_STATUS_USAGE);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* ---- interruption ---------------------------------------------------------------------------- */

static bool stop_late(void *context, const char *what, int64_t done, int64_t total,
                      const char *unit)
{
    int *calls = context;
    assert_string_equal(what, "convert");
    assert_string_equal(unit, "bytes");
    assert_true(done <= total);
    return ++*calls < 20;
}

static void interruption_leaves_nothing(void **state)
{
    (void)state;
    char directory[TEST_PATH_MAX];
    char to[TEST_PATH_MAX];
    char golden[TEST_PATH_MAX];
    test_make_directory(directory);
    ssm_checkpoint *checkpoint = open_ok(golden_model_path(golden, "mamba-tied"));
    int calls = 0;
    const ssm_progress progress = {&calls, stop_late};
    const ssm_convert_options options = {.dtype = SSM_DTYPE_COUNT, .shard_bytes = 9000};
    join(to, directory, "model");
    assert_int_equal(ssm_convert(checkpoint, &options, to, &progress, NULL),
                     SSM_STATUS_INTERRUPTED);
    assert_int_equal(calls, 20);
    assert_int_equal(rmdir(directory), 0); /* it is empty */
    ssm_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_matrix),
        cmocka_unit_test(original_only_models),
        cmocka_unit_test(round_trip_is_bit_identical),
        cmocka_unit_test(tied_head_is_written_once),
        cmocka_unit_test(fractional_expand_is_exact),
        cmocka_unit_test(dtype_of_matrices),
        cmocka_unit_test(f16_has_a_range),
        cmocka_unit_test(what_a_layout_cannot_hold),
        cmocka_unit_test(directory_must_be_free),
        cmocka_unit_test(interruption_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
