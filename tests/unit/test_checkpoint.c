/* Opening checkpoints: what is resolved, what is noted, and that layout does not change the model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/weights.h"
#include "test_edit.h"
#include "test_golden.h"
#include "test_toy.h"

static ssm_checkpoint *open_ok(const char *path, const ssm_checkpoint_options *options)
{
    ssm_checkpoint *checkpoint = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_checkpoint_open(path, options, &checkpoint, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s (%s, %s)", path, err.message, err.file, err.tensor);
    }
    return checkpoint;
}

static bool has_note(const ssm_checkpoint *checkpoint, const char *part)
{
    for (int64_t i = 0; i < ssm_checkpoint_note_count(checkpoint); i++) {
        if (strstr(ssm_checkpoint_note(checkpoint, i), part) != NULL) {
            return true;
        }
    }
    return false;
}

static void expect_note(const ssm_checkpoint *checkpoint, const char *part)
{
    if (!has_note(checkpoint, part)) {
        fail_msg("%s has no note \"%s\"", ssm_checkpoint_path(checkpoint), part);
    }
}

/* Every tensor is used, or a note names it. */
static void expect_all_accounted(const ssm_checkpoint *checkpoint)
{
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        if (!ssm_checkpoint_used(checkpoint, i)) {
            expect_note(checkpoint, ssm_checkpoint_at(checkpoint, i)->name);
        }
    }
}

static void digest_of(const char *path, char out[64])
{
    ssm_checkpoint *checkpoint = open_ok(path, NULL);
    assert_int_equal(ssm_checkpoint_digest(checkpoint, out, NULL), SSM_STATUS_OK);
    ssm_checkpoint_close(checkpoint);
}

/* ---- models made by Hugging Face ------------------------------------------------------------- */

static void expect_config(const ssm_config *got, const ssm_config *want)
{
    assert_int_equal(got->family, SSM_FAMILY_MAMBA);
    assert_int_equal(got->vocab_size, want->vocab_size);
    assert_int_equal(got->d_model, want->d_model);
    assert_int_equal(got->n_layers, want->n_layers);
    assert_int_equal(got->d_inner, want->d_inner);
    assert_int_equal(got->d_state, want->d_state);
    assert_int_equal(got->d_conv, want->d_conv);
    assert_int_equal(got->dt_rank, want->dt_rank);
    assert_int_equal(got->tied, want->tied);
    assert_true(got->norm_eps == 1e-5);
}

static void hugging_face_models(void **state)
{
    (void)state;
    const struct {
        const char *name;
        ssm_config config;
        int64_t tensors;
        ssm_dtype dtype;
    } models[] = {
        {"mamba-tied",
         {.vocab_size = 97,
          .d_model = 32,
          .n_layers = 3,
          .d_inner = 64,
          .d_state = 16,
          .d_conv = 4,
          .dt_rank = 2,
          .tied = true},
         32,
         SSM_DTYPE_F32},
        {"mamba-untied-bias-conv3",
         {.vocab_size = 97,
          .d_model = 24,
          .n_layers = 2,
          .d_inner = 72,
          .d_state = 8,
          .d_conv = 3,
          .dt_rank = 5,
          .tied = false},
         27,
         SSM_DTYPE_F16},
        {"mamba-bf16-sharded",
         {.vocab_size = 97,
          .d_model = 64,
          .n_layers = 4,
          .d_inner = 128,
          .d_state = 16,
          .d_conv = 4,
          .dt_rank = 4,
          .tied = true},
         42,
         SSM_DTYPE_BF16},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[TEST_PATH_MAX];
        ssm_checkpoint *checkpoint = open_ok(golden_model_path(path, models[i].name), NULL);
        expect_config(ssm_checkpoint_config(checkpoint), &models[i].config);
        assert_int_equal(ssm_checkpoint_count(checkpoint), models[i].tensors);
        for (int64_t k = 0; k < models[i].tensors; k++) {
            assert_true(ssm_checkpoint_used(checkpoint, k));
            assert_int_equal(ssm_checkpoint_at(checkpoint, k)->dtype, models[i].dtype);
        }
        const ssm__weights *weights = ssm__checkpoint_weights(checkpoint);
        assert_int_equal(weights->lm_head.data == weights->embedding.data, models[i].config.tied);
        assert_int_equal(weights->layers[1].in_proj_bias.data != NULL, i == 1);
        assert_non_null(weights->layers[1].conv1d_bias.data);
        assert_int_equal(ssm_checkpoint_check_finite(checkpoint, NULL), SSM_STATUS_OK);
        expect_note(checkpoint, models[i].config.tied ? "The head is tied" : "The head is untied");
        ssm_checkpoint_close(checkpoint);
    }
}

static void built_in_model(void **state)
{
    (void)state;
    ssm_checkpoint *checkpoint = open_ok(SSM_SOURCE_DIR "/models/tiny", NULL);
    const ssm_config want = {.vocab_size = 4096,
                             .d_model = 192,
                             .n_layers = 8,
                             .d_inner = 384,
                             .d_state = 16,
                             .d_conv = 4,
                             .dt_rank = 12,
                             .tied = true};
    expect_config(ssm_checkpoint_config(checkpoint), &want);
    assert_int_equal(ssm_checkpoint_check_finite(checkpoint, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_checkpoint_note_count(checkpoint), 1); /* the tie, nothing odd */
    ssm_checkpoint_close(checkpoint);
}

static void copy_file(const char *from, const edit *e, const char *name)
{
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    static char block[1 << 16];
    size_t bytes = fread(block, 1, sizeof block, file);
    assert_true(bytes < sizeof block);
    fclose(file);
    edit_write_bytes(e, name, block, bytes);
}

static void independent_tiny_model(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    if (!test_shared_path(path, "data/vectors/neural-api/tiny_mamba_config.json")) {
        skip();
    }
    edit *e = edit_create(NULL);
    copy_file(path, e, "config.json");
    assert_true(test_shared_path(path, "data/vectors/neural-api/tiny_mamba.safetensors"));
    copy_file(path, e, "model.safetensors");
    ssm_checkpoint *checkpoint = open_ok(e->directory, NULL);
    const ssm_config want = {.vocab_size = 13,
                             .d_model = 8,
                             .n_layers = 2,
                             .d_inner = 16,
                             .d_state = 4,
                             .d_conv = 4,
                             .dt_rank = 2,
                             .tied = true};
    expect_config(ssm_checkpoint_config(checkpoint), &want);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* The digest is of the model: shards, prefixes, spellings and order do not change it. */
static void digest_ignores_layout(void **state)
{
    (void)state;
    char plain[64];
    char other[64];
    edit *e = edit_create(NULL);
    edit_write(e);
    digest_of(e->directory, plain);
    assert_int_equal(strncmp(plain, "xxh3-128:", 9), 0);
    edit_free(e);

    e = edit_create(NULL);
    edit_write_shards(e, 3);
    digest_of(e->directory, other);
    assert_string_equal(plain, other);
    char path[TEST_PATH_MAX];
    digest_of(edit_path(e, "model.safetensors.index.json", path), other);
    assert_string_equal(plain, other);
    edit_free(e);

    static const char *const prefixes[] = {"", "model.", "model.backbone.", "module.backbone.",
                                           "_orig_mod.backbone."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        e = edit_create(NULL);
        edit_rename(e, "backbone.embeddings.weight", "backbone.embedding.weight");
        edit_prefix(e, "backbone.", prefixes[i]);
        ssm_tensor swap = e->tensors[0]; /* another order, too */
        e->tensors[0] = e->tensors[5];
        e->tensors[5] = swap;
        edit_write(e);
        digest_of(edit_path(e, "model.safetensors", path), other);
        assert_string_equal(plain, other);
        ssm_checkpoint *checkpoint = open_ok(e->directory, NULL);
        expect_note(checkpoint, "Hugging Face writes backbone.");
        ssm_checkpoint_close(checkpoint);
        edit_free(e);
    }
}

/* It is of all of the model: each of these changes it. */
static void digest_sees_changes(void **state)
{
    (void)state;
    char plain[64];
    char other[64];
    edit *e = edit_create(NULL);
    edit_write(e);
    digest_of(e->directory, plain);
    edit_config(e, "layer_norm_epsilon", "1e-6");
    edit_write(e);
    digest_of(e->directory, other);
    assert_string_not_equal(plain, other);
    edit_config(e, "layer_norm_epsilon", "1e-5");
    ssm_tensor *d = edit_find(e, "backbone.layers.2.mixer.D");
    unsigned char *last = (unsigned char *)(uintptr_t)d->data + d->bytes - 1;
    *last ^= 1;
    edit_write(e);
    digest_of(e->directory, other);
    assert_string_not_equal(plain, other);
    *last ^= 1;
    edit_write(e);
    digest_of(e->directory, other);
    assert_string_equal(plain, other);
    edit_free(e);
}

static void index_decides(void **state)
{
    (void)state;
    char plain[64];
    char other[64];
    edit *e = edit_create(NULL);
    edit_write_shards(e, 2);
    digest_of(e->directory, plain);
    /* A stale copy in the other shard, a stray shard, and a stray single file. */
    const ssm_tensor stale[] = {e->tensors[0],
                                {.name = "stray",
                                 .dtype = SSM_DTYPE_F32,
                                 .n_dims = 1,
                                 .dims = {1},
                                 .data = e->tensors[0].data}};
    char path[TEST_PATH_MAX];
    edit_path(e, "model.safetensors", path);
    assert_int_equal(ssm_safetensors_write(path, stale, 2, NULL, 0, NULL), SSM_STATUS_OK);
    edit_path(e, "model-00009-of-00009.safetensors", path);
    assert_int_equal(ssm_safetensors_write(path, stale, 2, NULL, 0, NULL), SSM_STATUS_OK);
    ssm_tensor second[EDIT_TENSORS];
    int64_t count = 0;
    for (int64_t i = 1; i < e->count; i += 2) {
        second[count++] = e->tensors[i];
    }
    second[count++] = stale[0];
    second[count++] = stale[1];
    edit_path(e, "model-00002-of-00002.safetensors", path);
    assert_int_equal(ssm_safetensors_write(path, second, count, NULL, 0, NULL), SSM_STATUS_OK);

    digest_of(e->directory, other);
    assert_string_equal(plain, other);
    ssm_checkpoint *checkpoint = open_ok(e->directory, NULL);
    expect_note(checkpoint, "model.safetensors is not named by the index and was not read");
    expect_note(checkpoint, "Tensor stray in model-00002-of-00002.safetensors is not in the index");
    expect_note(checkpoint, "is not used: the index places it in model-00001-of-00002.safetensors");
    expect_all_accounted(checkpoint);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static void ignoring_a_stale_index(void **state)
{
    (void)state;
    char plain[64];
    edit *e = edit_create(NULL);
    edit_write_shards(e, 2);
    digest_of(e->directory, plain);
    json_t *index = edit_index(e, 5); /* names five shards, of which none exists */
    edit_write_json(e, "model.safetensors.index.json", index);
    json_decref(index);
    ssm_checkpoint *checkpoint = NULL;
    assert_int_equal(ssm_checkpoint_open(e->directory, NULL, &checkpoint, NULL), SSM_STATUS_FILE);
    const ssm_checkpoint_options options = {.ignore_index = true};
    checkpoint = open_ok(e->directory, &options);
    expect_note(checkpoint, "was ignored, as asked");
    char other[64];
    assert_int_equal(ssm_checkpoint_digest(checkpoint, other, NULL), SSM_STATUS_OK);
    assert_string_equal(plain, other);
    ssm_checkpoint_close(checkpoint);
    /* Not filled: the shard that the index names says where the tensor should be. */
    char path[TEST_PATH_MAX];
    remove(edit_path(e, "model-00002-of-00002.safetensors", path));
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_checkpoint_open(e->directory, &options, &checkpoint, &err),
                     SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "the index places it in the shard model-0000"));
    edit_free(e);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static void odd_but_right(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_config(e, "expand", "16"); /* as Falcon-Mamba's config.json does */
    edit_config(e, "vocab_size", "29");
    edit_config(e, "d_model", "768");
    edit_config(e, "eos_token_id", "[3, 4]");
    edit_config(e, "pad_token_id", "-1");
    edit_config(e, "bos_token_id", "null");
    edit_config(e, "layer_norm_epsilon", NULL);
    edit_config(e, "architectures", NULL);
    edit_config(e, "hidden_act", "\"swish\"");
    edit_config(e, "time_step_min", "0.5");
    edit_config(e, "num_experts", "0");
    edit_config(e, "quantization_config", "null");
    edit_config(e, "my_own_key", "{\"x\": 1}");
    edit_add(e, "optimizer.step", SSM_DTYPE_I64, (const int64_t[3]){0});
    edit_write(e);
    ssm_checkpoint *checkpoint = open_ok(e->directory, NULL);
    const ssm_config *config = ssm_checkpoint_config(checkpoint);
    assert_int_equal(config->d_inner, 36);
    assert_int_equal(config->vocab_size, 31);
    assert_int_equal(config->eos_id, 3);
    assert_int_equal(config->bos_id, -1);
    assert_int_equal(config->pad_id, -1);
    assert_true(config->norm_eps == 1e-5);
    expect_note(checkpoint, "expand = 16, which would make d_inner 320; intermediate_size = 36");
    expect_note(checkpoint, "vocab_size = 29, the embedding has 31 rows: 2 rows of padding");
    expect_note(checkpoint, "both hidden_size = 20 and d_model = 768");
    expect_note(checkpoint, "several values of eos_token_id");
    expect_note(checkpoint, "does not say layer_norm_epsilon; 1e-5");
    expect_note(checkpoint, "Unknown keys of config.json are ignored: my_own_key.");
    expect_note(checkpoint, "Tensor optimizer.step I64 [] belongs to no slot");
    expect_all_accounted(checkpoint);
    assert_null(ssm_checkpoint_note(checkpoint, -1));
    assert_null(ssm_checkpoint_note(checkpoint, ssm_checkpoint_note_count(checkpoint)));
    assert_null(ssm_checkpoint_at(checkpoint, ssm_checkpoint_count(checkpoint)));
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static void infinity_as_python_writes_it(void **state)
{
    (void)state;
    static const char *const texts[] = {"[0.0, Infinity]", "[0, {\"__float__\": \"Infinity\"}]",
                                        "[-Infinity, Infinity]", "null"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char path[TEST_PATH_MAX];
        ssm_config config = toy_config();
        char more[128];
        test_make_directory(path);
        snprintf(more, sizeof more, ", \"time_step_limit\": %s", texts[i]);
        const toy_options options = {.more_json = more};
        toy_checkpoint(path, &config, SSM_DTYPE_BF16, 2, &options);
        ssm_checkpoint_close(open_ok(path, NULL));
        test_remove_directory(path);
    }
}

/* ---- the head -------------------------------------------------------------------------------- */

typedef enum head { ABSENT, EQUAL, DIFFERENT } head;

/* flag, head → tied, or refused; the table on top of head.c. */
static void head_by_flag_presence_and_equality(void **state)
{
    (void)state;
    const struct {
        const char *flag;
        head head;
        bool opens, tied;
        const char *note;
    } rows[] = {
        {"true", ABSENT, true, true, "tie_word_embeddings = true and there is no lm_head.weight"},
        {"true", EQUAL, true, true, "lm_head.weight equals the embedding, so one copy is used"},
        {"true", DIFFERENT, false, false, ""},
        {NULL, ABSENT, true, true, "does not say tie_word_embeddings (the family's default"},
        {NULL, EQUAL, true, true, "does not say tie_word_embeddings and lm_head.weight equals"},
        {NULL, DIFFERENT, false, false, ""},
        {"false", ABSENT, false, false, ""},
        {"false", EQUAL, true, false, "its values equal the embedding's"},
        {"false", DIFFERENT, true, false, "tie_word_embeddings = false and lm_head.weight is used"},
    };
    char tied_digest[64] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        edit *e = edit_create(NULL);
        ssm_tensor *tensor = edit_find(e, "lm_head.weight");
        if (rows[i].head == EQUAL) {
            memcpy((void *)(uintptr_t)tensor->data,
                   edit_find(e, "backbone.embeddings.weight")->data, tensor->bytes);
        } else if (rows[i].head == ABSENT) {
            edit_remove(e, "lm_head.weight");
        }
        edit_config(e, "tie_word_embeddings", rows[i].flag);
        edit_write(e);
        ssm_checkpoint *checkpoint = NULL;
        ssm_status status = ssm_checkpoint_open(e->directory, NULL, &checkpoint, NULL);
        assert_int_equal(status, rows[i].opens ? SSM_STATUS_OK : SSM_STATUS_FILE);
        if (rows[i].opens) {
            assert_int_equal(ssm_checkpoint_config(checkpoint)->tied, rows[i].tied);
            expect_note(checkpoint, rows[i].note);
            expect_all_accounted(checkpoint);
            char digest[64];
            assert_int_equal(ssm_checkpoint_digest(checkpoint, digest, NULL), SSM_STATUS_OK);
            if (rows[i].tied && tied_digest[0] != '\0') {
                assert_string_equal(digest, tied_digest); /* with or without the second copy */
            }
            if (rows[i].tied) {
                strcpy(tied_digest, digest);
            }
        }
        ssm_checkpoint_close(checkpoint);
        edit_free(e);
    }
}

/* An equal head in another type: compared by value. */
static void equal_head_of_another_type(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    edit_reshape(e, "backbone.embeddings.weight", SSM_DTYPE_BF16, (const int64_t[3]){31, 20});
    edit_reshape(e, "lm_head.weight", SSM_DTYPE_F32, (const int64_t[3]){31, 20});
    float *last = (float *)(uintptr_t)edit_find(e, "lm_head.weight")->data + 31 * 20 - 1;
    edit_config(e, "tie_word_embeddings", "true");
    edit_write(e);
    ssm_checkpoint *checkpoint = open_ok(e->directory, NULL);
    assert_true(ssm_checkpoint_config(checkpoint)->tied);
    ssm_checkpoint_close(checkpoint);
    *last = 1e-30f;
    edit_write(e);
    assert_int_equal(ssm_checkpoint_open(e->directory, NULL, &checkpoint, NULL), SSM_STATUS_FILE);
    edit_free(e);
}

/* ---- contents -------------------------------------------------------------------------------- */

static void nonfinite_weight_is_named(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    ssm_tensor *tensor = edit_find(e, "backbone.layers.1.mixer.A_log");
    const uint32_t bits = 0xff800000u;
    memcpy((unsigned char *)(uintptr_t)tensor->data + 4 * 7, &bits, 4);
    edit_write(e);
    ssm_checkpoint *checkpoint = open_ok(e->directory, NULL); /* opening does not look */
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_checkpoint_check_finite(checkpoint, &err), SSM_STATUS_FILE);
    assert_string_equal(err.tensor, "backbone.layers.1.mixer.A_log");
    assert_non_null(strstr(err.message, "element 7 of the weight is -inf"));
    const ssm_tensor *stored = &ssm__checkpoint_weights(checkpoint)->layers[1].A_log;
    assert_int_equal(err.offset, stored->file_offset + 28);
    ssm_checkpoint_close(checkpoint);
    edit_free(e);
}

static void digest_of_a_file(void **state)
{
    (void)state;
    edit *e = edit_create(NULL);
    char path[TEST_PATH_MAX];
    char out[64];
    edit_write_text(e, "empty", "");
    edit_path(e, "empty", path);
    assert_int_equal(ssm_file_digest(path, out, NULL), SSM_STATUS_OK);
    /* XXH3-128 of nothing, seed 0, as xxhsum -H2 prints it. */
    assert_string_equal(out, "xxh3-128:99aa06d3014798d86001c324468d497f");
    assert_int_equal(ssm_file_digest("/no/such/file", out, NULL), SSM_STATUS_FILE);
    edit_free(e);
}

static void names_of_families(void **state)
{
    (void)state;
    assert_string_equal(ssm_family_name(SSM_FAMILY_MAMBA), "mamba");
    assert_string_equal(ssm_family_name(SSM_FAMILY_FALCON_MAMBA), "falcon_mamba");
    assert_string_equal(ssm_family_name(SSM_FAMILY_MAMBA2), "mamba2");
    ssm_checkpoint_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_face_models),
        cmocka_unit_test(built_in_model),
        cmocka_unit_test(independent_tiny_model),
        cmocka_unit_test(digest_ignores_layout),
        cmocka_unit_test(digest_sees_changes),
        cmocka_unit_test(index_decides),
        cmocka_unit_test(ignoring_a_stale_index),
        cmocka_unit_test(odd_but_right),
        cmocka_unit_test(infinity_as_python_writes_it),
        cmocka_unit_test(head_by_flag_presence_and_equality),
        cmocka_unit_test(equal_head_of_another_type),
        cmocka_unit_test(nonfinite_weight_is_named),
        cmocka_unit_test(digest_of_a_file),
        cmocka_unit_test(names_of_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
