/* Whole runs: what they learn, that they resume to the bit, and what stops them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ssmscope/train.h>

#include "base/file.h"
#include "test_session.h"
#include "test_training.h"
#include "train/checkpointing.h"
#include "train/recipe.h"

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ssm_error err;                                                                             \
        ssm_error_clear(&err);                                                                     \
        if ((call) != SSM_STATUS_OK) {                                                             \
            fail_msg("%s: %s: %s", #call, err.file, err.message);                                  \
        }                                                                                          \
    } while (0)

static const char small[] =
    "{\"seed\": 2, \"model\": {\"d_model\": 24, \"n_layers\": 2, \"d_state\": 8, \"dropout\": 0.1},"
    " \"task\": {\"name\": \"copy\", \"min\": 2, \"max\": 4, \"letters\": 5, \"length\": 48, "
    "\"evaluate\": "
    "[3]},"
    " \"batch\": {\"rows\": 3, \"accumulate\": 2}, \"optimiser\": {\"lr\": 0.01},"
    " \"evaluate\": {\"rows\": 4, \"every\": 7}, \"checkpoint\": {\"every\": 4},"
    " \"schedule\": {\"steps\": 12, \"warmup\": 3}}";

/* Stops a run behind `left` steps. */
static bool stop(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    int64_t *left = context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    return (*left)-- > 0;
}

static void train(const ssm_recipe *recipe, const char *name, ssm_isa isa, int threads)
{
    char path[TRAINING_PATH];
    ssm_train_result result;
    ssm_pool *pool = test_pool_create(threads);
    const ssm_train_options options = {.pool = pool, .isa = isa};
    CHECK_OK(ssm_train(recipe, training_path(name, path), &options, &result, &err));
    assert_int_equal(result.steps, 12);
    assert_non_null(result.evaluation);
    free(result.evaluation);
    ssm_pool_free(pool);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_threads_and_sets(void **state)
{
    static const ssm_isa isas[] = {SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512};
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train(recipe, "one", SSM_ISA_AUTO, 1);
    for (int threads = 2; threads <= 4; threads += 2) {
        char name[16];
        snprintf(name, sizeof name, "threads%d", threads);
        train(recipe, name, SSM_ISA_AUTO, threads);
        training_same("one", name, "model.safetensors");
        training_same("one", name, "training/state.safetensors");
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (ssm_isa_supported(isas[i])) {
            train(recipe, ssm_isa_name(isas[i]), isas[i], 2);
            training_same("one", ssm_isa_name(isas[i]), "model.safetensors");
        }
    }
    ssm_recipe_free(recipe);
}

/* Stopped by hand behind a number of steps: the checkpoint of step 4 or before remains. */
static void check_stopped(const ssm_recipe *recipe, const char *whole, int64_t steps)
{
    char path[TRAINING_PATH], name[48];
    int64_t left = steps;
    const ssm_progress progress = {.context = &left, .report = stop};
    ssm_train_options options = {.progress = &progress};
    ssm_train_result result;
    snprintf(name, sizeof name, "%s-%d", whole, (int)steps);
    assert_int_equal(ssm_train(recipe, training_path(name, path), &options, &result, NULL),
                     SSM_STATUS_INTERRUPTED);
    options = (ssm_train_options){.resume = true};
    CHECK_OK(ssm_train(recipe, path, &options, &result, &err));
    assert_int_equal(result.first_step, steps);
    free(result.evaluation);
    training_same(whole, name, "model.safetensors");
    training_same(whole, name, "training/state.safetensors");
    training_same(whole, name, "training/result.json");
}

static void test_resume(void **state)
{
    char path[TRAINING_PATH];
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train(recipe, "whole", SSM_ISA_AUTO, 1);
    for (int64_t steps = 0; steps < 12; steps += 5) {
        check_stopped(recipe, "whole", steps);
    }
    ssm_train_result again; /* a run that is done stays as it is */
    const ssm_train_options options = {.resume = true};
    CHECK_OK(ssm_train(recipe, training_path("whole", path), &options, &again, &err));
    assert_int_equal(again.first_step, 12);
    assert_non_null(again.evaluation);
    free(again.evaluation);
    training_same("whole", "whole-5", "model.safetensors");
    ssm_recipe_free(recipe);
}

/* ---- learning -------------------------------------------------------------------------------- */

typedef struct curve {
    double first, last;
    int64_t lines;
} curve;

static void on_line(void *context, const ssm_train_line *line)
{
    curve *c = context;
    c->first = c->lines == 0 ? line->loss : c->first;
    c->last = line->loss;
    c->lines++;
    assert_true(line->gradient_norm > 0 && isfinite(line->learning_rate));
}

/* The trained directory, loaded by the engine, gives the loss that the trainer's own pass gives.
 * 1e-5: both are float32 sums of about a hundred terms, cut differently. */
static void check_engine(const char *path)
{
    enum { COUNT = 40 };
    ssm_model *model = test_model_open(path, SSM_ISA_AUTO);
    ssm_session *session = test_session_create(model, NULL, 0);
    const ssm_config *config = ssm_model_config(model);
    int32_t ids[COUNT], labels[COUNT] = {0}, used = COUNT;
    float nll[COUNT];
    double engine = 0;
    for (int i = 0; i < COUNT; i++) {
        ids[i] = (int32_t)(i * 7 % config->vocab_size);
    }
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i + 1 < COUNT ? ids[i + 1] : -1;
    }
    CHECK_OK(ssm_session_nll(session, ids, COUNT, nll, &err));
    for (int i = 0; i + 1 < COUNT; i++) {
        engine += (double)nll[i];
    }
    const ssm__mixer_kind mixers[] = {SSM__MIXER_MAMBA1, SSM__MIXER_MAMBA1};
    const ssm__network_config own = {.shape = *config, .mixers = mixers};
    ssm__network *network;
    ssm__pass *pass;
    ssm__loss loss;
    CHECK_OK(ssm__network_create(&own, ssm__kernels_for(SSM_ISA_AUTO), NULL, &network, &err));
    for (int64_t i = 0; i < ssm__network_count(network); i++) {
        const ssm__parameter *p = ssm__network_at(network, i);
        for (int64_t k = 0; k < ssm_checkpoint_count(ssm_model_checkpoint(model)); k++) {
            const ssm_tensor *tensor = ssm_checkpoint_at(ssm_model_checkpoint(model), k);
            if (strcmp(tensor->name, p->name) == 0) {
                memcpy(ssm__network_values(network) + p->at, tensor->data, tensor->bytes);
            }
        }
    }
    CHECK_OK(ssm__pass_create(network, COUNT, false, &pass, &err));
    const ssm_train_batch batch = {
        .rows = 1, .length = COUNT, .ids = ids, .labels = labels, .used = &used};
    ssm__pass_evaluate(pass, &batch, &loss, NULL, NULL);
    assert_int_equal(loss.count, COUNT - 1);
    assert_true(fabs(loss.sum - engine) <= 1e-5 * engine);
    ssm__pass_free(pass);
    ssm__network_free(network);
    ssm_session_free(session);
    ssm_model_free(model);
}

static void test_learns(void **state)
{
    char path[TRAINING_PATH];
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    ssm_train_result result;
    curve seen = {0};
    const ssm_train_options options = {.line = on_line, .context = &seen};
    CHECK_OK(ssm_recipe_set(recipe, "steps", "60", &err));
    CHECK_OK(ssm_recipe_set(recipe, "shared_layers", "true", &err));
    CHECK_OK(ssm_train(recipe, training_path("learned", path), &options, &result, &err));
    assert_int_equal(seen.lines, 60);
    /* from the 8 ids' uniform log 8 = 2.08 to that of the 5 letters, and below */
    assert_true(seen.first > 1.8 && seen.last < 1.7);
    assert_int_equal(result.tokens, 60 * 2 * 3 * 48);
    free(result.evaluation);
    check_engine(path);
    ssm_recipe_free(recipe);
}

/* ---- what stops a run ------------------------------------------------------------------------ */

static void expect(const ssm_recipe *recipe, const char *name, bool resume, ssm_status wanted,
                   const char *says)
{
    char path[TRAINING_PATH];
    ssm_train_result result;
    ssm_error err;
    ssm_error_clear(&err);
    const ssm_train_options options = {.resume = resume};
    const ssm_status status = ssm_train(recipe, training_path(name, path), &options, &result, &err);
    if (status != wanted || strstr(err.message, says) == NULL) {
        fail_msg("status %d, not %d: %s", (int)status, (int)wanted, err.message);
    }
    assert_int_equal(result.not_finite, strstr(says, "step") == says);
}

static void test_refusals(void **state)
{
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train(recipe, "there", SSM_ISA_AUTO, 1);
    expect(recipe, "there", false, SSM_STATUS_USAGE, "already holds a model");
    CHECK_OK(ssm_recipe_set(recipe, "lr", "0.02", &err));
    expect(recipe, "there", true, SSM_STATUS_USAGE, "optimiser.lr is 0.02, was 0.01");
    CHECK_OK(ssm_recipe_set(recipe, "vocab_size", "5", &err));
    expect(recipe, "other", false, SSM_STATUS_USAGE, "vocab_size is 5");
    CHECK_OK(ssm_recipe_set(recipe, "vocab_size", "0", &err));
    CHECK_OK(ssm_recipe_set(recipe, "mixer", "mamba3", &err));
    expect(recipe, "other", false, SSM_STATUS_USAGE, "did you mean");
    CHECK_OK(ssm_recipe_set(recipe, "mixer", "mamba1", &err));
    CHECK_OK(ssm_recipe_set(recipe, "from", "\"/nowhere\"", &err));
    expect(recipe, "other", false, SSM_STATUS_FILE, "no such file");
    ssm_recipe_free(recipe);
}

static void edit_file(const char *name, size_t at, uint32_t word)
{
    char path[TRAINING_PATH];
    ssm__map map;
    training_path(name, path);
    CHECK_OK(ssm__map_open(path, &map, &err));
    unsigned char *copy = malloc(map.size);
    const size_t bytes = map.size;
    assert_non_null(copy);
    memcpy(copy, map.data, bytes);
    ssm__map_close(&map);
    memcpy(copy + (at < bytes ? at : bytes - 4), &word, sizeof word);
    CHECK_OK(ssm__write_file(path, copy, bytes, &err));
    free(copy);
}

/* Byte of the first number of a tensor. */
static size_t number_at(const char *name, const char *tensor)
{
    char path[TRAINING_PATH];
    ssm_safetensors *file;
    training_path(name, path);
    CHECK_OK(ssm_safetensors_open(path, false, &file, &err));
    const ssm_tensor *found = ssm_safetensors_find(file, tensor);
    assert_non_null(found);
    const size_t at = (size_t)found->file_offset;
    ssm_safetensors_close(file);
    return at;
}

/* As in a state of a version that wrote none. */
static void forget_digest(const char *name)
{
    static const char key[] = "\"digest\":\"xxh3";
    char path[TRAINING_PATH];
    ssm__map map;
    CHECK_OK(ssm__map_open(training_path(name, path), &map, &err));
    const unsigned char *found = memmem(map.data, map.size, key, sizeof key - 1);
    assert_non_null(found);
    const size_t at = (size_t)(found - (const unsigned char *)map.data) + 1;
    ssm__map_close(&map);
    edit_file(name, at, 0x58585858); /* XXXX in place of dige */
}

/* Trains until it is stopped behind the fourth step. */
static void train_four_steps(const ssm_recipe *recipe, const char *name)
{
    char path[TRAINING_PATH];
    int64_t left = 4;
    const ssm_progress progress = {.context = &left, .report = stop};
    const ssm_train_options options = {.progress = &progress};
    ssm_train_result result;
    assert_int_equal(ssm_train(recipe, training_path(name, path), &options, &result, NULL),
                     SSM_STATUS_INTERRUPTED);
}

static void test_not_finite(void **state)
{
    char path[TRAINING_PATH];
    ssm_train_result result;
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train_four_steps(recipe, "poisoned");
    static const char saved[] = "poisoned/training/state.safetensors";
    const size_t at = number_at(saved, "weight.backbone.layers.1.mixer.D");
    edit_file(saved, at, 0x3F000001); /* from 1, or a little beside it */
    expect(recipe, "poisoned", true, SSM_STATUS_FILE, "the file was changed");
    edit_file(saved, at, 0x7FC00000);
    expect(recipe, "poisoned", true, SSM_STATUS_FILE, "number 0 is nan");
    static const char model[] = "poisoned/model.safetensors";
    edit_file(model, number_at(model, "backbone.layers.1.mixer.D"), 0x7F7FFFFF); /* 3.4e38 */
    CHECK_OK(ssm_recipe_set(recipe, "init.from", training_path("poisoned", path), &err));
    expect(recipe, "bursting", false, SSM_STATUS_FAILED, "step 1, batch 0: ");
    CHECK_OK(ssm_recipe_set(recipe, "init.from", "null", &err));
    /* What the last step has made is seen first when it is evaluated: no other kind of failure. */
    ssm_error own;
    ssm_error_clear(&own);
    CHECK_OK(ssm_recipe_set(recipe, "lr", "1000", &err));
    CHECK_OK(ssm_recipe_set(recipe, "beta1", "0", &err));
    CHECK_OK(ssm_recipe_set(recipe, "steps", "1", &err));
    CHECK_OK(ssm_recipe_set(recipe, "warmup", "0", &err));
    assert_int_equal(
        ssm_train(recipe, training_path("last", path), &(ssm_train_options){0}, &result, &own),
        SSM_STATUS_FAILED);
    assert_non_null(strstr(own.message, "evaluation of size 3"));
    assert_true(result.not_finite);
    CHECK_OK(ssm_recipe_set(recipe, "lr", "1000", &err));
    CHECK_OK(ssm_recipe_set(recipe, "clip", "0", &err));
    CHECK_OK(ssm_recipe_set(recipe, "steps", "200", &err));
    expect(recipe, "wild", false, SSM_STATUS_FAILED, "step ");
    ssm_recipe_free(recipe);
}

/* The paper's parametrisation of A: resumes to the bit, is another run than without, and a run
 * without does not go on from it. */
static void test_paper_a(void **state)
{
    char path[TRAINING_PATH];
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    CHECK_OK(ssm_recipe_set(recipe, "init.mimetic", "A", &err));
    train(recipe, "plain-a", SSM_ISA_AUTO, 1);
    CHECK_OK(ssm_recipe_set(recipe, "init.paper_a", "true", &err));
    train(recipe, "paper-a", SSM_ISA_AUTO, 2);
    check_stopped(recipe, "paper-a", 5);
    ssm__map maps[2];
    CHECK_OK(ssm__map_open(training_path("plain-a/model.safetensors", path), &maps[0], &err));
    CHECK_OK(ssm__map_open(training_path("paper-a/model.safetensors", path), &maps[1], &err));
    assert_int_equal(maps[0].size, maps[1].size);
    assert_memory_not_equal(maps[0].data, maps[1].data, maps[0].size);
    ssm__map_close(&maps[0]);
    ssm__map_close(&maps[1]);
    CHECK_OK(ssm_recipe_set(recipe, "init.paper_a", "false", &err));
    expect(recipe, "paper-a", true, SSM_STATUS_USAGE, "init.paper_a");
    CHECK_OK(ssm_recipe_set(recipe, "model.mixer", "gla", &err));
    CHECK_OK(ssm_recipe_set(recipe, "init.paper_a", "true", &err));
    expect(recipe, "gla-a", false, SSM_STATUS_USAGE, "no layer has A_log");
    ssm_recipe_free(recipe);
}

/* Mixers that the published layouts have no word for are written in our own. */
static void test_own_layout(void **state)
{
    static const char *const models[][3] = {
        {"bare", "model.d_conv", "0"}, {"h3", "model.mixer", "h3"}, {"gla", "model.mixer", "gla"}};
    char path[TRAINING_PATH], name[32];
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ssm__map map;
        ssm_recipe *recipe = training_recipe(small);
        CHECK_OK(ssm_recipe_set(recipe, "model.head_dim", "8", &err));
        CHECK_OK(ssm_recipe_set(recipe, models[i][1], models[i][2], &err));
        train(recipe, models[i][0], SSM_ISA_AUTO, 2);
        check_stopped(recipe, models[i][0], 5);
        snprintf(name, sizeof name, "%s/config.json", models[i][0]);
        CHECK_OK(ssm__map_open(training_path(name, path), &map, &err));
        assert_non_null(memmem(map.data, map.size, "\"ssmscope\"", 10));
        ssm__map_close(&map);
        if (i == 0) {
            CHECK_OK(ssm_recipe_set(recipe, "init.mimetic", "all", &err));
            expect(recipe, "bare-mimetic", false, SSM_STATUS_USAGE, "has no convolution");
        }
        ssm_recipe_free(recipe);
    }
}

/* A state whose recipe lacks a key that came later goes on: the key is at its default. */
static void test_older_state(void **state)
{
    static const char key[] = "\\\"paper_a\\\":";
    char path[TRAINING_PATH];
    ssm_train_result result;
    ssm__map map;
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train(recipe, "older", SSM_ISA_AUTO, 1);
    CHECK_OK(ssm__map_open(training_path("older/training/state.safetensors", path), &map, &err));
    char *copy = malloc(map.size + 1), *at = NULL;
    assert_non_null(copy);
    memcpy(copy, map.data, map.size);
    for (size_t i = 0; at == NULL && i + sizeof key < map.size; i++) {
        at = memcmp(copy + i, key, sizeof key - 1) == 0 ? copy + i : NULL;
    }
    assert_non_null(at);
    for (char last = ' '; last != ','; at++) {
        last = *at;
        *at = ' ';
    }
    CHECK_OK(ssm__write_file(path, copy, map.size, &err));
    ssm__map_close(&map);
    free(copy);
    const ssm_train_options options = {.resume = true};
    CHECK_OK(ssm_train(recipe, training_path("older", path), &options, &result, &err));
    free(result.evaluation);
    ssm_recipe_free(recipe);
}

/* Squared errors of 1e25 have a sum in float64, and no gradient in float32: of the step's batches 8
 * and 9 the first is named. */
static void test_steep(void **state)
{
    static const char vectors[] =
        "{\"model\": {\"d_model\": 24, \"n_layers\": 1, \"d_state\": 8}, \"task\": {\"name\": "
        "\"switched-linear\", \"width\": 2, \"length\": 16}, \"batch\": {\"rows\": 3, "
        "\"accumulate\": 2}, \"evaluate\": {\"rows\": 0}, \"schedule\": {\"steps\": 12}}";
    (void)state;
    ssm_recipe *recipe = training_recipe(vectors);
    train_four_steps(recipe, "steep");
    static const char saved[] = "steep/training/state.safetensors";
    forget_digest(saved);
    edit_file(saved, number_at(saved, "weight.backbone.head.weight"), 0x69045951); /* 1e25 */
    expect(recipe, "steep", true, SSM_STATUS_FAILED, "step 5, batch 8: the gradient of ");
    ssm_recipe_free(recipe);
}

/* A state that was cut short, or is something else, is refused and named. */
static void test_damaged_state(void **state)
{
    char path[TRAINING_PATH];
    (void)state;
    ssm_recipe *recipe = training_recipe(small);
    train(recipe, "damaged", SSM_ISA_AUTO, 1);
    training_path("damaged/training/state.safetensors", path);
    CHECK_OK(ssm__write_file(path, "short", 5, &err));
    expect(recipe, "damaged", true, SSM_STATUS_FILE, "");
    const float one = 1;
    const ssm_tensor tensor = {
        .name = "x", .dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {1}, .data = &one, .bytes = 4};
    CHECK_OK(ssm_safetensors_write(path, &tensor, 1, NULL, 0, &err));
    expect(recipe, "damaged", true, SSM_STATUS_FILE, "is not a training state");
    ssm_recipe_free(recipe);
}

int main(void)
{
#define IN_DIRECTORY(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, training_set_up, training_tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_threads_and_sets),
        IN_DIRECTORY(test_resume),
        IN_DIRECTORY(test_paper_a),
        IN_DIRECTORY(test_learns),
        IN_DIRECTORY(test_refusals),
        IN_DIRECTORY(test_not_finite),
        IN_DIRECTORY(test_steep),
        IN_DIRECTORY(test_damaged_state),
        IN_DIRECTORY(test_older_state),
        IN_DIRECTORY(test_own_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
