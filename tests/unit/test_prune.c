/* Smaller checkpoints: the logits of the masked run in every family, layout and type; what stays as
 * it was to the bit; weights that fold; what is refused, and that a refusal leaves nothing. */
#include <math.h>
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

#include <ssmscope/prune.h>

#include "checkpoint/weights.h"
#include "test_edit.h"
#include "test_golden.h"
#include "test_session.h"

enum { IDS = 70 }; /* more than a chunk of Mamba-2 */

/* A model in a scratch directory or of tests/golden, open. */
typedef struct fixture {
    char root[TEST_PATH_MAX], from[TEST_PATH_MAX], to[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint;
    const ssm_config *config;
    ssm_mask mask;
} fixture;

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

static void join(char out[TEST_PATH_MAX], const char *directory, const char *name)
{
    const int length = snprintf(out, TEST_PATH_MAX, "%s/%s", directory, name);
    assert_true(length > 0 && length < TEST_PATH_MAX);
}

static bool is_by_head(const fixture *f)
{
    return f->mask.n_channels == f->config->n_heads;
}

/* The same random r modes wherever B and C are shared: other ones in other layers and groups. */
static void choose_modes(const fixture *f, int64_t r, uint64_t seed)
{
    const ssm_mask *mask = &f->mask;
    const int64_t N = mask->d_state;
    const int64_t groups = f->config->n_heads > 0 ? f->config->n_groups : 1;
    const int64_t rows = mask->n_channels / groups;
    ssm_rng rng = ssm_rng_create(seed, "modes");
    memset(mask->keep, 0, (size_t)(mask->n_layers * mask->n_channels * N));
    for (int64_t set = 0; set < mask->n_layers * groups; set++) {
        uint8_t *keep = mask->keep + set * rows * N;
        for (int64_t kept = 0; kept < r;) {
            const int64_t i = (int64_t)(ssm_rng_u32(&rng) % (uint32_t)N);
            kept += keep[i] == 0;
            keep[i] = 1;
        }
        for (int64_t row = 1; row < rows; row++) {
            memcpy(keep + row * N, keep, (size_t)N);
        }
    }
}

/* model: of tests/golden, or NULL: toy_config. by_head: rows of the mask are heads. */
static fixture fixture_of(const char *path, bool by_head)
{
    fixture f = {0};
    test_make_directory(f.root);
    join(f.to, f.root, "pruned");
    snprintf(f.from, sizeof f.from, "%s", path);
    f.checkpoint = open_ok(path);
    f.config = ssm_checkpoint_config(f.checkpoint);
    const ssm_config *c = f.config;
    const int64_t rows = c->n_heads == 0 ? c->d_inner : by_head ? c->n_heads : c->d_ssm;
    assert_int_equal(ssm_mask_create(c->n_layers, rows, c->d_state, &f.mask, NULL), SSM_STATUS_OK);
    f.mask.head_dim = c->n_heads > 0 && !by_head ? c->head_dim : 0;
    choose_modes(&f, (c->d_state + 1) / 2, 3);
    return f;
}

static fixture fixture_golden(const char *model, bool by_head)
{
    char path[TEST_PATH_MAX];
    return fixture_of(golden_model_path(path, model), by_head);
}

static fixture fixture_toy(const ssm_config *config, ssm_dtype dtype, bool by_head)
{
    char path[TEST_PATH_MAX];
    test_make_directory(path);
    toy_checkpoint(path, config, dtype, 9, NULL);
    return fixture_of(path, by_head);
}

/* made: the model was written by fixture_toy. */
static void fixture_free(fixture *f, bool made)
{
    ssm_checkpoint_close(f->checkpoint);
    ssm_mask_free(&f->mask);
    test_remove_directory(f->root);
    if (made) {
        test_remove_directory(f->from);
    }
}

static ssm_prune_result prune_ok(const fixture *f)
{
    const ssm_prune_options options = {.renormalised = f->config->family == SSM_FAMILY_FALCON_MAMBA,
                                       .mask_digest = "xxh3-128:1234",
                                       .command = "a test"};
    ssm_prune_result result;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm_prune(f->checkpoint, &f->mask, &options, f->to, NULL, &result, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s (%s)", f->from, err.message, err.tensor);
    }
    return result;
}

/* ---- logits ---------------------------------------------------------------------------------- */

static float *logits_of(const fixture *f, const char *path, const ssm_mask *mask)
{
    int32_t ids[IDS];
    ssm_session *session = NULL;
    ssm_model *model = test_model_open(path, ssm_isa_best());
    toy_ids(f->config, 11, ids, IDS);
    assert_int_equal(ssm_session_create(model, NULL, &session, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_session_set_mask(session, mask, -1, NULL), SSM_STATUS_OK);
    float *logits = test_logits(session, model, ids, IDS, 0);
    ssm_session_free(session);
    ssm_model_free(model);
    return logits;
}

/* Largest difference, relative to the largest logit. */
static double difference(const fixture *f, const float *a, const float *b)
{
    double largest = 0;
    double off = 0;
    for (int64_t i = 0; i < IDS * f->config->vocab_size; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    assert_true(largest > 0);
    return off / largest;
}

/* The pruned model against the masked run: 4e-6, float32 sums over fewer summands in another order.
 * The unpruned model is far from both, or nothing is tested. */
static double check_logits(const fixture *f)
{
    float *masked = logits_of(f, f->from, &f->mask);
    float *pruned = logits_of(f, f->to, NULL);
    float *whole = logits_of(f, f->from, NULL);
    const double off = difference(f, pruned, masked);
    printf("%s: %.1e (unpruned %.1e)\n", f->from, off, difference(f, whole, masked));
    assert_true(off <= 4e-6);
    assert_true(difference(f, whole, masked) > 1e-3);
    free(masked);
    free(pruned);
    free(whole);
    return off;
}

/* Every tensor that no state is in has its bytes, and every tensor its type. */
static void check_tensors(const fixture *f, bool folded)
{
    ssm_checkpoint *pruned = open_ok(f->to);
    const ssm__weights *before = ssm__checkpoint_weights(f->checkpoint);
    const ssm__weights *after = ssm__checkpoint_weights(pruned);
    assert_int_equal(ssm_checkpoint_config(pruned)->d_state, (f->config->d_state + 1) / 2);
    assert_memory_equal(before->embedding.data, after->embedding.data, after->embedding.bytes);
    for (int64_t i = 0; i < f->config->n_layers; i++) {
        const ssm__layer_weights *a = &before->layers[i];
        const ssm__layer_weights *b = &after->layers[i];
        const bool mamba2 = a->kind == SSM_LAYER_MAMBA2;
        const ssm_tensor *same[] = {&a->norm,
                                    &b->norm,
                                    &a->dt_proj,
                                    &b->dt_proj,
                                    &a->out_proj,
                                    &b->out_proj,
                                    &a->gate_norm,
                                    &b->gate_norm,
                                    &a->dt_bias,
                                    &b->dt_bias,
                                    &a->dt_proj_bias,
                                    &b->dt_proj_bias,
                                    mamba2 ? &a->A_log : &a->in_proj,
                                    mamba2 ? &b->A_log : &b->in_proj,
                                    mamba2 ? &a->norm : &a->conv1d,
                                    mamba2 ? &b->norm : &b->conv1d};
        for (size_t k = 0; k < sizeof same / sizeof same[0]; k += 2) {
            assert_int_equal(same[k]->bytes, same[k + 1]->bytes);
            assert_int_equal(same[k]->dtype, same[k + 1]->dtype);
            if (same[k]->bytes > 0) {
                assert_memory_equal(same[k]->data, same[k + 1]->data, same[k]->bytes);
            }
        }
        if (!folded) {
            assert_int_equal(a->x_proj.dtype, b->x_proj.dtype);
            assert_int_equal(a->in_proj.dtype, b->in_proj.dtype);
            assert_int_equal(a->conv1d.dtype, b->conv1d.dtype);
            assert_int_equal(a->A_log.dtype, b->A_log.dtype);
            assert_int_equal(a->D.dtype, b->D.dtype);
        }
    }
    ssm_checkpoint_close(pruned);
}

static void golden_models(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        bool by_head;
        ssm_layout layout;
    } cases[] = {{"mamba-tied", false, SSM_LAYOUT_HF},
                 {"mamba-untied-bias-conv3", false, SSM_LAYOUT_HF},
                 {"mamba-bf16-sharded", false, SSM_LAYOUT_HF},
                 {"mamba2-g1-chunks", true, SSM_LAYOUT_HF},
                 {"mamba2-g1-chunks", false, SSM_LAYOUT_HF},
                 {"mamba2-g4-limit", true, SSM_LAYOUT_HF}, /* biases */
                 {"mamba2-g4-limit", false, SSM_LAYOUT_HF},
                 {"hybrid/mamba-attention", false, SSM_LAYOUT_ORIGINAL},
                 {"hybrid/mamba2-attention", true, SSM_LAYOUT_ORIGINAL},
                 {"hybrid/mamba2-no-norm", true, SSM_LAYOUT_ORIGINAL},
                 {"hybrid/mamba2-wide", true, SSM_LAYOUT_ORIGINAL}}; /* d_ssm < d_inner */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f = fixture_golden(cases[i].model, cases[i].by_head);
        assert_int_equal(is_by_head(&f), cases[i].by_head);
        const ssm_prune_result result = prune_ok(&f);
        assert_int_equal(result.layout, cases[i].layout);
        assert_int_equal(result.d_state, (f.config->d_state + 1) / 2);
        assert_false(result.folded);
        check_logits(&f);
        check_tensors(&f, false);
        fixture_free(&f, false);
    }
}

/* Random numbers everywhere, odd sizes, biases, every type. */
static void toy_models(void **state)
{
    (void)state;
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};
    const ssm_config configs[] = {toy_config(), toy_config_heads(), toy_config_wide_heads(true)};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
            fixture f = fixture_toy(&configs[i], dtypes[d], d == 1);
            prune_ok(&f);
            check_logits(&f);
            check_tensors(&f, false);
            fixture_free(&f, true);
        }
    }
}

/* A tensor is written in blocks of 65,536 elements: rows and columns are gathered across them. */
static void longer_than_a_block(void **state)
{
    (void)state;
    ssm_config config = toy_config();
    config.n_layers = 1;
    config.d_inner = 5003;
    config.d_state = 30;
    fixture f = fixture_toy(&config, SSM_DTYPE_BF16, false);
    prune_ok(&f);
    check_logits(&f);
    check_tensors(&f, false);
    fixture_free(&f, true);
}

/* Nothing dropped is the same model. */
static void whole_mask_is_the_model(void **state)
{
    (void)state;
    char before[64];
    char after[64];
    fixture f = fixture_golden("mamba2-g4-limit", true);
    choose_modes(&f, f.config->d_state, 1);
    prune_ok(&f);
    ssm_checkpoint *pruned = open_ok(f.to);
    assert_int_equal(ssm_checkpoint_digest(f.checkpoint, before, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm_checkpoint_digest(pruned, after, NULL), SSM_STATUS_OK);
    assert_string_equal(before, after);
    ssm_checkpoint_close(pruned);
    fixture_free(&f, false);
}

/* Norms of B and C over fewer modes: loads, and is not the masked run. */
static void falcon_renormalised(void **state)
{
    (void)state;
    fixture f = fixture_golden("falcon", false);
    prune_ok(&f);
    check_tensors(&f, false);
    float *masked = logits_of(&f, f.from, &f.mask);
    float *pruned = logits_of(&f, f.to, NULL);
    assert_true(difference(&f, pruned, masked) > 1e-3);
    free(masked);
    free(pruned);
    fixture_free(&f, false);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Random weights in [0.5, 1.5]: of the feed-through for every row (by head: for all its channels),
 * and of modes, the same for all channels, if asked for. */
static void weigh(fixture *f, bool modes)
{
    const ssm_mask *mask = &f->mask;
    const int64_t rows = mask->n_channels;
    const int64_t per_head = mask->head_dim > 0 ? mask->head_dim : 1;
    const int64_t N = mask->d_state;
    assert_int_equal(ssm_mask_add_weights(&f->mask, NULL), SSM_STATUS_OK);
    ssm_rng rng = ssm_rng_create(4, "weights");
    for (int64_t row = 0; row < mask->n_layers * rows; row += per_head) {
        const float weight = 0.5F + (float)ssm_rng_uniform(&rng);
        for (int64_t k = 0; k < per_head; k++) {
            mask->skip_weight[row + k] = weight;
        }
    }
    for (int64_t i = 0; modes && i < mask->n_layers * N; i++) {
        const float weight = 0.5F + (float)ssm_rng_uniform(&rng);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = (i / N * rows + row) * N + i % N;
            mask->weight[at] = mask->keep[at] != 0 ? weight : 0.0F;
        }
    }
}

static void weights_fold(void **state)
{
    (void)state;
    const ssm_config mamba = toy_config();
    const ssm_config heads = toy_config_heads();
    for (int i = 0; i < 5; i++) {
        const bool mamba2 = i >= 3;
        const ssm_dtype dtype = i == 1 ? SSM_DTYPE_BF16 : SSM_DTYPE_F32;
        fixture f = fixture_toy(mamba2 ? &heads : &mamba, dtype, i == 3);
        weigh(&f, i < 2);
        assert_true(prune_ok(&f).folded);
        check_logits(&f);
        check_tensors(&f, true);
        ssm_checkpoint *pruned = open_ok(f.to);
        const ssm__layer_weights *layer = &ssm__checkpoint_weights(pruned)->layers[1];
        assert_int_equal(layer->D.dtype, SSM_DTYPE_F32); /* products are not rounded */
        assert_int_equal(layer->out_proj.dtype, dtype);
        assert_int_equal(mamba2 ? layer->in_proj.dtype : layer->x_proj.dtype,
                         i < 2 ? SSM_DTYPE_F32 : dtype);
        ssm_checkpoint_close(pruned);
        fixture_free(&f, true);
    }
    fixture f = fixture_toy(&mamba, SSM_DTYPE_F16, false); /* weights of 1 are none */
    assert_int_equal(ssm_mask_add_weights(&f.mask, NULL), SSM_STATUS_OK);
    assert_false(prune_ok(&f).folded);
    check_tensors(&f, false);
    fixture_free(&f, true);
}

/* ---- where it came from ---------------------------------------------------------------------- */

static void says_where_it_came_from(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    char digest[64];
    ssm_safetensors *file = NULL;
    fixture f = fixture_golden("mamba-tied", false);
    snprintf(f.mask.rule, sizeof f.mask.rule, "by hand");
    prune_ok(&f);
    assert_int_equal(ssm_checkpoint_digest(f.checkpoint, digest, NULL), SSM_STATUS_OK);
    join(path, f.to, "pruned.json");
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    join(path, f.to, "model.safetensors");
    assert_int_equal(ssm_safetensors_open(path, false, &file, NULL), SSM_STATUS_OK);
    const char *const expected[][2] = {
        {"schema", "ssmscope.pruned/1"},   {"model_digest", digest}, {"rule", "by hand"},
        {"mask_digest", "xxh3-128:1234"},  {"d_state_before", "16"}, {"d_state", "8"},
        {"renormalised", "false"},         {"command", "a test"},    {"recording_digest", ""},
        {"program_version", ssm_version()}};
    assert_int_equal(f.config->d_state, 16);
    assert_string_equal(ssm_safetensors_metadata(file, "format"), "pt");
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const char *key = expected[i][0];
        const char *text = json_string_value(json_object_get(root, key));
        assert_non_null(text);
        assert_string_equal(text, expected[i][1]);
        assert_non_null(ssm_safetensors_metadata(file, key));
        assert_string_equal(ssm_safetensors_metadata(file, key), expected[i][1]);
    }
    ssm_safetensors_close(file);
    json_decref(root);
    fixture_free(&f, false);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* The words are in the message, and nothing was written. */
static void refused_as(const fixture *f, const ssm_prune_options *options, ssm_status status,
                       const char *words)
{
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm_prune(f->checkpoint, &f->mask, options, f->to, NULL, NULL, &err), status);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    }
    assert_int_not_equal(access(f->to, F_OK), 0);
}

static void refused(const fixture *f, ssm_status status, const char *words)
{
    const ssm_prune_options options = {.mask_path = "the mask"};
    refused_as(f, &options, status, words);
}

static void sets_that_differ(void **state)
{
    (void)state;
    const ssm_config config = toy_config(); /* 36 channels, 5 modes */
    fixture f = fixture_toy(&config, SSM_DTYPE_F32, false);
    memset(f.mask.keep, 0, (size_t)(3 * 36 * 5));
    for (int64_t row = 0; row < 3 * 36; row++) {
        memset(f.mask.keep + row * 5, 1, 3);
    }
    uint8_t *keep = f.mask.keep + (1 * 36 + 7) * 5;
    keep[2] = 0;
    keep[4] = 1;
    refused(&f, SSM_STATUS_USAGE,
            "channel 0 keeps mode 2 and channel 7 drops it, but they share B and C");
    refused(&f, SSM_STATUS_USAGE, "make the mask with select --scope layer, or run this one");
    for (int64_t row = 0; row < 36; row++) { /* another budget */
        memcpy(f.mask.keep + (36 + row) * 5, (const uint8_t[]){1, 1, 0, 0, 0}, 5);
    }
    refused(&f, SSM_STATUS_USAGE, "layer 1 keeps 2 modes (channel 0), layer 0 keeps 3 (channel 0)");
    memset(f.mask.keep, 0, (size_t)(3 * 36 * 5));
    refused(&f, SSM_STATUS_USAGE, "layer 0 keeps no mode");
    fixture_free(&f, true);

    f = fixture_golden("mamba2-g4-limit", true); /* 8 heads in 4 groups, 24 modes */
    keep = f.mask.keep + 3 * 24;
    const bool kept = keep[5] != 0;
    keep[5] = !kept;
    refused(&f, SSM_STATUS_USAGE,
            kept ? "head 2 keeps mode 5 and head 3 drops it"
                 : "head 2 drops mode 5 and head 3 keeps it");
    refused(&f, SSM_STATUS_USAGE, "select --scope layer or --scope group");
    f.mask.keep[2 * 24 + 5] = !kept; /* the group is one again, but larger or smaller */
    refused(&f, SSM_STATUS_USAGE,
            kept ? "layer 0 keeps 11 modes (head 2), layer 0 keeps 12 (head 0)"
                 : "layer 0 keeps 13 modes (head 2), layer 0 keeps 12 (head 0)");
    fixture_free(&f, false);
}

static void masks_of_other_models(void **state)
{
    (void)state;
    fixture f = fixture_golden("mamba-tied", false);
    snprintf(f.mask.model_digest, sizeof f.mask.model_digest, "xxh3-128:00");
    refused(&f, SSM_STATUS_FILE, "the mask is for model xxh3-128:00, this is model xxh3-128:");
    f.mask.model_digest[0] = '\0';
    f.mask.d_state--;
    refused(&f, SSM_STATUS_FILE, "make a mask from a recording of this model");
    f.mask.d_state++;
    f.mask.n_channels--;
    refused(&f, SSM_STATUS_FILE, "make a mask from a recording of this model");
    f.mask.n_channels++;
    f.mask.n_layers--;
    refused(&f, SSM_STATUS_FILE, "make a mask from a recording of this model");
    f.mask.n_layers++;
    refused_as(&f, &(ssm_prune_options){.renormalised = true}, SSM_STATUS_USAGE,
               "--renormalised is for Falcon-Mamba");
    fixture_free(&f, false);
    f = fixture_golden("falcon", false);
    refused(&f, SSM_STATUS_USAGE, "Falcon-Mamba norms B and C over all");
    ssm_checkpoint_close(f.checkpoint); /* the mask does not matter where there is no state */
    char path[TEST_PATH_MAX];
    f.checkpoint = open_ok(golden_model_path(path, "hybrid/transformer"));
    refused(&f, SSM_STATUS_USAGE, "no layer of this model has a state");
    fixture_free(&f, false);
}

static void weights_without_a_place(void **state)
{
    (void)state;
    const ssm_config config = toy_config();
    const ssm_config heads = toy_config_heads();
    fixture f = fixture_toy(&config, SSM_DTYPE_F32, false);
    weigh(&f, true);
    int64_t mode = 0;
    while (f.mask.keep[mode] == 0) {
        mode++;
    }
    f.mask.weight[9 * 5 + mode] = 2.0F;
    refused(&f, SSM_STATUS_USAGE, "and 2 in channel 9, but a checkpoint has one row of C");
    fixture_free(&f, true);
    for (int by_head = 0; by_head < 2; by_head++) {
        f = fixture_toy(&heads, SSM_DTYPE_F32, by_head == 1);
        weigh(&f, true);
        refused(&f, SSM_STATUS_USAGE, "passes through the convolution and SiLU");
        fixture_free(&f, true);
    }
    f = fixture_toy(&heads, SSM_DTYPE_F32, false);
    weigh(&f, false);
    f.mask.skip_weight[12] = 2.0F; /* of head 1, channels 10 to 19 */
    refused(&f, SSM_STATUS_USAGE, "channels 10 and 12 of one head have weights");
    fixture_free(&f, true);
    f = fixture_golden("falcon", false);
    weigh(&f, true);
    refused_as(&f, &(ssm_prune_options){.renormalised = true}, SSM_STATUS_USAGE,
               "passes through a norm");
    fixture_free(&f, false);
}

static bool stop_late(void *context, const char *what, int64_t done, int64_t total,
                      const char *unit)
{
    int *calls = context;
    assert_string_equal(what, "prune");
    assert_string_equal(unit, "bytes");
    assert_true(done <= total);
    return ++*calls != 9;
}

static void stops_and_leaves_nothing(void **state)
{
    (void)state;
    int calls = 0;
    char path[TEST_PATH_MAX];
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_prune_options options = {0};
    fixture f = fixture_golden("mamba-tied", false);
    const ssm_progress progress = {&calls, stop_late};
    assert_int_equal(ssm_prune(f.checkpoint, &f.mask, &options, f.to, &progress, NULL, &err),
                     SSM_STATUS_INTERRUPTED);
    assert_int_equal(calls, 9);
    assert_int_equal(rmdir(f.root), 0); /* it is empty */
    assert_int_equal(mkdir(f.root, 0777), 0);
    assert_int_equal(ssm_prune(f.checkpoint, &f.mask, &options, f.to, &progress, NULL, NULL),
                     SSM_STATUS_OK);
    assert_int_equal(ssm_prune(f.checkpoint, &f.mask, &options, f.to, NULL, NULL, &err),
                     SSM_STATUS_USAGE); /* never over what is there */
    join(path, f.to, "config.json");
    assert_int_equal(ssm_prune(f.checkpoint, &f.mask, &options, path, NULL, NULL, NULL),
                     SSM_STATUS_USAGE);
    fixture_free(&f, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models),
        cmocka_unit_test(toy_models),
        cmocka_unit_test(longer_than_a_block),
        cmocka_unit_test(whole_mask_is_the_model),
        cmocka_unit_test(falcon_renormalised),
        cmocka_unit_test(weights_fold),
        cmocka_unit_test(says_where_it_came_from),
        cmocka_unit_test(sets_that_differ),
        cmocka_unit_test(masks_of_other_models),
        cmocka_unit_test(weights_without_a_place),
        cmocka_unit_test(stops_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
