/* train/recipe.c: the tables of a recipe's sections, reading and printing. */
#include "train/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

enum { LARGEST = 1 << 24, RECIPE_BYTES = 1 << 22 };

#define INTEGER(type, name, least, most, value, words)                                             \
    {                                                                                              \
        .key = #name, .kind = SSM__SETTING_INTEGER, .into = offsetof(type, name), .min = (least),  \
        .max = (most), .fallback = (value), .help = (words)                                        \
    }
#define REAL(type, name, least, most, value, words)                                                \
    {                                                                                              \
        .key = #name, .kind = SSM__SETTING_REAL, .into = offsetof(type, name), .low = (least),     \
        .high = (most), .fallback = (value), .help = (words)                                       \
    }
#define CHOICE(type, name, words_of, value, words)                                                 \
    {                                                                                              \
        .key = #name, .kind = SSM__SETTING_CHOICE, .into = offsetof(type, name),                   \
        .choices = (words_of), .fallback = (value), .help = (words)                                \
    }
#define TEXT(type, name, value, words)                                                             \
    {                                                                                              \
        .key = #name, .kind = SSM__SETTING_TEXT, .into = offsetof(type, name),                     \
        .fallback = (value), .help = (words)                                                       \
    }

typedef ssm__recipe_model model_section;
static const ssm__setting model_settings[] = {
    {.key = "mixer",
     .kind = SSM__SETTING_TEXTS,
     .into = offsetof(model_section, mixer),
     .fallback = "mamba1",
     .help = "the mixer of all layers, or a list with one for every layer"},
    INTEGER(model_section, d_model, 1, LARGEST, "128", "width of the residual stream"),
    INTEGER(model_section, n_layers, 1, 4096, "4", "layers"),
    INTEGER(model_section, vocab_size, 0, LARGEST, "0",
            "rows of the embedding; 0: as many as the task has ids"),
    INTEGER(model_section, d_state, 1, 4096, "16", "states of a channel"),
    INTEGER(model_section, d_conv, 0, 64, "4",
            "taps of the convolution; 0: none, SiLU stays (not h3)"),
    INTEGER(model_section, expand, 1, 64, "2", "inner width in multiples of d_model"),
    INTEGER(model_section, dt_rank, 0, LARGEST, "0",
            "rank of dt (mamba1); 0: d_model/16, rounded up"),
    INTEGER(model_section, head_dim, 1, 4096, "64",
            "channels of a head (all but mamba1; h3: 1, 2, 4, 8 or a multiple of 16)"),
    INTEGER(model_section, n_groups, 1, 4096, "1", "groups of heads with one B and C (mamba2)"),
    CHOICE(model_section, time_invariant, "false|true", "false",
           "B, C and the step size are the same for every token (mamba1, mamba2)"),
    INTEGER(model_section, gate_rank, 1, 4096, "16", "rank of the gate (gla)"),
    INTEGER(model_section, gate_groups, 0, 4096, "0",
            "gates, each of n_heads/gate_groups heads (gla); 0: n_groups"),
    REAL(model_section, gate_divisor, 0.001, 1e6, "16",
         "gates are exp(logsigmoid(...)/gate_divisor) (gla)"),
    INTEGER(model_section, attention_heads, 0, 4096, "0",
            "query heads, of d_model/attention_heads coordinates; 0: d_model/head_dim"),
    INTEGER(model_section, kv_heads, 0, 4096, "0",
            "key heads, each shared by attention_heads/kv_heads; 0: as many as query heads"),
    INTEGER(model_section, attention_conv, 0, 64, "0",
            "taps of a convolution of q, k and v; 0: none"),
    INTEGER(model_section, rotary_dim, 0, 4096, "0",
            "coordinates of a head of attention that turn with the position; 0: none"),
    INTEGER(model_section, d_mlp, 0, LARGEST, "0", "hidden width of a gated MLP a layer; 0: none"),
    CHOICE(model_section, norm, "rms|layer|none", "rms", "norm in front of every branch"),
    REAL(model_section, norm_eps, 1e-30, 1, "1e-05", "epsilon of the norms"),
    CHOICE(model_section, tied, "false|true", "true", "the head is the embedding"),
    CHOICE(model_section, shared_layers, "false|true", "false",
           "all layers have the weights of the first"),
    REAL(model_section, dropout, 0, 0.99, "0", "share of a branch's outputs set to 0 in training"),
};

typedef ssm__recipe_init init_section;
static const ssm__setting init_settings[] = {
    TEXT(init_section, from, NULL,
         "model directory with the first weights; none: the published default initialisation"),
    TEXT(init_section, mimetic, "none",
         "switches of the mimetic initialisation: none, all, or some of A,delta,BC,conv"),
    CHOICE(init_section, mode, "half|equal|orthogonal", "half", "how C is made to go with B"),
    REAL(init_section, c, 1e-6, 80, "8", "A_log = -c where A is switched on"),
    CHOICE(init_section, paper_a, "false|true", "false",
           "a with A_log = -c*a is what is optimised, in all layers that have A_log"),
    REAL(init_section, noise, 0, 10, "0.1", "of mode orthogonal"),
    {.key = "layers",
     .kind = SSM__SETTING_INTEGERS,
     .into = offsetof(init_section, layers),
     .min = 0,
     .max = 4096,
     .help = "layers that are made mimetic; none given: all that can be"},
    {.key = "heads",
     .kind = SSM__SETTING_INTEGERS,
     .into = offsetof(init_section, heads),
     .min = 0,
     .max = 1 << 20,
     .help = "heads of Mamba-2 that are; none given: all"},
};

typedef ssm__recipe_batch batch_section;
static const ssm__setting batch_settings[] = {
    INTEGER(batch_section, rows, 1, 1 << 20, "8", "sequences of a batch"),
    INTEGER(batch_section, accumulate, 1, 1 << 20, "1", "batches whose gradients make a step"),
};

typedef ssm__recipe_optimiser optimiser_section;
static const ssm__setting optimiser_settings[] = {
    REAL(optimiser_section, lr, 0, 1000, "0.001", "highest learning rate of AdamW"),
    REAL(optimiser_section, beta1, 0, 0.999999, "0.9", "decay of the mean of gradients"),
    REAL(optimiser_section, beta2, 0, 0.999999, "0.95", "decay of the mean of their squares"),
    REAL(optimiser_section, eps, 1e-30, 1, "1e-08", "added to the root of that mean"),
    REAL(optimiser_section, weight_decay, 0, 1000, "0.1",
         "decoupled decay of matrices and convolutions; A_log, D, norms and biases have none"),
    REAL(optimiser_section, clip, 0, 1e30, "1", "largest norm of the gradient; 0: any"),
};

typedef ssm__recipe_schedule schedule_section;
static const ssm__setting schedule_settings[] = {
    INTEGER(schedule_section, steps, 1, INT64_C(1) << 40, "1000", "steps of the run"),
    INTEGER(schedule_section, warmup, 0, INT64_C(1) << 40, "0",
            "steps in which the learning rate rises linearly"),
    CHOICE(schedule_section, decay, "cosine|linear|constant", "cosine", "how it falls afterwards"),
    REAL(schedule_section, final, 0, 1, "0.1", "share of lr that it falls to"),
};

typedef ssm__recipe_evaluate evaluate_section;
static const ssm__setting evaluate_settings[] = {
    INTEGER(evaluate_section, every, 0, INT64_C(1) << 40, "0",
            "steps between evaluations; 0: at the end only"),
    INTEGER(evaluate_section, rows, 0, 1 << 24, "64", "examples of every size; 0: no evaluation"),
};

typedef ssm__recipe_checkpoint checkpoint_section;
static const ssm__setting checkpoint_settings[] = {
    INTEGER(checkpoint_section, every, 0, INT64_C(1) << 40, "0",
            "steps between checkpoints; 0: at the end only"),
    INTEGER(checkpoint_section, log, 1, INT64_C(1) << 40, "1", "steps between lines of the log"),
};

typedef struct section {
    ssm__setting_table table;
    size_t into;
} section;

#define SECTION(name)                                                                              \
    {                                                                                              \
        {#name, name##_settings, sizeof name##_settings / sizeof *name##_settings},                \
            offsetof(struct ssm_recipe, name)                                                      \
    }
static const section sections[] = {SECTION(model),     SECTION(init),     SECTION(batch),
                                   SECTION(optimiser), SECTION(schedule), SECTION(evaluate),
                                   SECTION(checkpoint)};
enum { SECTIONS = sizeof sections / sizeof sections[0], SETTINGS_MOST = 32 };

static const char *const top_keys[] = {"seed",      "model",    "init",     "task",       "batch",
                                       "optimiser", "schedule", "evaluate", "checkpoint", NULL};

/* ---- reading --------------------------------------------------------------------------------- */

static ssm_status read_section(const section *which, const json_t *from, ssm_recipe *recipe,
                               ssm_error *err)
{
    bool given[SETTINGS_MOST] = {0};
    void *object = (char *)recipe + which->into;
    const char *key;
    json_t *value;
    if (from != NULL && !json_is_object(from)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%s is not an object; expected {…}",
                         which->table.owner);
    }
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        SSM__TRY(ssm__settings_set_json(&which->table, key, value, given, object, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status read_all(ssm_recipe *recipe, ssm_error *err)
{
    const json_t *root = recipe->given;
    if (!json_is_object(root)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a recipe is a JSON object, {\"model\": …, \"task\": …}");
    }
    SSM__TRY(ssm__check_keys(root, "a recipe", top_keys, err));
    const json_t *seed = json_object_get(root, "seed");
    if (seed != NULL && (!json_is_integer(seed) || json_integer_value(seed) < 0)) {
        char *found = ssm__json_print(seed, JSON_ENCODE_ANY | JSON_COMPACT);
        const ssm_status status = ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                                            "seed is %.60s; expected a whole number in 0 … "
                                            "9223372036854775807",
                                            found == NULL ? "?" : found);
        free(found);
        return status;
    }
    recipe->seed = seed == NULL ? 0 : json_integer_value(seed);
    recipe->task = json_object_get(root, "task");
    if (recipe->task != NULL && !json_is_object(recipe->task)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "task is not an object; expected {\"name\": \"copy\", …}");
    }
    for (int i = 0; i < SECTIONS; i++) {
        const section *which = &sections[i];
        SSM__TRY(ssm__settings_defaults(&which->table, (char *)recipe + which->into, err));
        SSM__TRY(read_section(which, json_object_get(root, which->table.owner), recipe, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__recipe_check(const ssm_recipe *recipe, ssm_error *err)
{
    if (recipe->schedule.warmup > recipe->schedule.steps) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "schedule: warmup is %" PRId64 " of %" PRId64 " steps; expected at most "
                         "all of them",
                         recipe->schedule.warmup, recipe->schedule.steps);
    }
    return SSM_STATUS_OK;
}

/* Takes the reference of `given`. */
static ssm_status create(json_t *given, const char *place, ssm_recipe **out, ssm_error *err)
{
    ssm_recipe *recipe = calloc(1, sizeof *recipe);
    *out = NULL;
    if (recipe == NULL) {
        json_decref(given);
        return ssm__fail_memory(err, "a recipe", sizeof *recipe);
    }
    recipe->given = given;
    recipe->place = place == NULL ? NULL : strdup(place);
    ssm_error own;
    ssm_error_clear(&own);
    ssm_status status = place != NULL && recipe->place == NULL
                            ? ssm__fail_memory(&own, "a recipe", strlen(place))
                            : read_all(recipe, &own);
    if (status != SSM_STATUS_OK) {
        ssm_recipe_free(recipe);
        status = place != NULL && status == SSM_STATUS_USAGE ? SSM_STATUS_FILE : status;
        return ssm__fail(err, status, SSM__IN_FILE(place), "%s", own.message);
    }
    *out = recipe;
    return SSM_STATUS_OK;
}

ssm_status ssm__recipe_from_json(json_t *given, const char *place, ssm_recipe **out, ssm_error *err)
{
    json_t *own = json_deep_copy(given);
    *out = NULL;
    if (own == NULL) {
        return ssm__fail_memory(err, "a recipe", 0);
    }
    return create(own, place, out, err);
}

/* Takes the reference of `given`. */
static ssm_status create_checked(json_t *given, const char *place, ssm_recipe **out, ssm_error *err)
{
    ssm_error own;
    ssm_error_clear(&own);
    SSM__TRY(create(given, place, out, err));
    if (ssm__recipe_check(*out, &own) != SSM_STATUS_OK) {
        ssm_recipe_free(*out);
        *out = NULL;
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(place), "%s", own.message);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm_recipe_read(const char *path, ssm_recipe **out, ssm_error *err)
{
    json_t *given = NULL;
    *out = NULL;
    SSM__TRY(ssm__json_read(path, RECIPE_BYTES, SSM__JSON_STRICT, &given, err));
    return create_checked(given, path, out, err);
}

ssm_status ssm__recipe_from_memory(const char *place, const char *text, size_t bytes,
                                   ssm_recipe **out, ssm_error *err)
{
    json_t *given = NULL;
    *out = NULL;
    SSM__TRY(ssm__json_parse(place, 0, text, bytes, SSM__JSON_STRICT, &given, err));
    return create_checked(given, place, out, err);
}

void ssm_recipe_free(ssm_recipe *recipe)
{
    if (recipe == NULL) {
        return;
    }
    for (int i = 0; i < SECTIONS; i++) {
        ssm__settings_free(&sections[i].table, (char *)recipe + sections[i].into);
    }
    json_decref(recipe->given);
    free(recipe->place);
    free(recipe);
}

ssm_status ssm_recipe_copy(const ssm_recipe *recipe, ssm_recipe **out, ssm_error *err)
{
    json_t *given = json_deep_copy(recipe->given);
    *out = NULL;
    if (given == NULL) {
        return ssm__fail_memory(err, "a recipe", 0);
    }
    return create(given, recipe->place, out, err);
}

/* ---- setting --------------------------------------------------------------------------------- */

/* The section that alone has a key of that name; −1: none or several. */
static int section_of(const char *key)
{
    int found = -1;
    for (int i = 0; i < SECTIONS; i++) {
        for (int64_t k = 0; k < sections[i].table.count; k++) {
            if (strcmp(sections[i].table.settings[k].key, key) == 0) {
                if (found >= 0) {
                    return -1;
                }
                found = i;
            }
        }
    }
    return found;
}

/* How many sections have a key of that name; "batch.rows, evaluate.rows". */
static int sections_with(const char *key, char *out, size_t size)
{
    int found = 0;
    out[0] = '\0';
    for (int i = 0; i < SECTIONS; i++) {
        for (int64_t k = 0; k < sections[i].table.count; k++) {
            if (strcmp(sections[i].table.settings[k].key, key) == 0) {
                const size_t used = strlen(out);
                snprintf(out + used, size - used, "%s%s.%s", found == 0 ? "" : ", ",
                         sections[i].table.owner, key);
                found++;
            }
        }
    }
    return found;
}

static ssm_status fail_unknown(const char *key, ssm_error *err)
{
    const char *names[SECTIONS * SETTINGS_MOST + 1] = {NULL};
    int64_t count = 0;
    for (int i = 0; i < SECTIONS; i++) {
        for (int64_t k = 0; k < sections[i].table.count; k++) {
            names[count++] = sections[i].table.settings[k].key;
        }
    }
    char several[256];
    if (sections_with(key, several, sizeof several) > 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "several sections have a key \"%.100s\"; expected one of %s", key,
                         several);
    }
    const char *nearest = ssm_nearest(key, names);
    return ssm__fail(
        err, SSM_STATUS_USAGE, SSM__NOWHERE,
        "no section alone has a key \"%.100s\"%s%s%s; expected SECTION.KEY, a key that "
        "one section has, or seed",
        key, nearest == NULL ? "" : ", did you mean \"", nearest == NULL ? "" : nearest,
        nearest == NULL ? "" : "\"?");
}

/* JSON, or a text. NULL: out of memory. */
static json_t *parse_value(const char *text)
{
    json_t *value = NULL;
    const ssm_status status =
        ssm__json_parse("", -1, text, strlen(text), SSM__JSON_STRICT, &value, NULL);
    return status == SSM_STATUS_FILE ? json_string(text) : value;
}

static ssm_status put(json_t *root, const char *key, const char *value, ssm_error *err)
{
    const char *dot = strchr(key, '.');
    char name[64];
    if (dot == NULL && strcmp(key, "seed") != 0) {
        const int which = section_of(key);
        if (which < 0) {
            return fail_unknown(key, err);
        }
        snprintf(name, sizeof name, "%s", sections[which].table.owner);
    } else {
        snprintf(name, sizeof name, "%.*s", dot == NULL ? 0 : (int)(dot - key), key);
    }
    json_t *parent = name[0] == '\0' ? root : json_object_get(root, name);
    if (parent == NULL) {
        parent = json_object();
        if (parent == NULL || json_object_set_new(root, name, parent) != 0) {
            return ssm__fail_memory(err, "a recipe", 0);
        }
    }
    if (!json_is_object(parent)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "%.100s is no section of the recipe",
                         name);
    }
    json_t *parsed = parse_value(value);
    return parsed == NULL || json_object_set_new(parent, dot == NULL ? key : dot + 1, parsed) != 0
               ? ssm__fail_memory(err, "a recipe", strlen(value))
               : SSM_STATUS_OK;
}

ssm_status ssm_recipe_set(ssm_recipe *recipe, const char *key, const char *value, ssm_error *err)
{
    json_t *given = json_deep_copy(recipe->given);
    if (given == NULL) {
        return ssm__fail_memory(err, "a recipe", 0);
    }
    ssm_status status = put(given, key, value, err);
    if (status != SSM_STATUS_OK) {
        json_decref(given);
        return status;
    }
    ssm_recipe *changed;
    SSM__TRY(create(given, NULL, &changed, err)); /* what is wrong does not stand in the file */
    const ssm_recipe old = *recipe;
    *recipe = *changed;
    *changed = old;
    recipe->place = changed->place;
    changed->place = NULL;
    ssm_recipe_free(changed);
    return SSM_STATUS_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The texts "true" and "false" become JSON's. */
static bool booleans(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const char *text = json_string_value(value);
        if (text != NULL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) &&
            json_object_set_new(object, key, json_boolean(text[0] == 't')) != 0) {
            return false;
        }
    }
    return true;
}

static json_t *task_json(const ssm_recipe *recipe, const ssm_train_task *task)
{
    if (task == NULL) {
        return recipe->task == NULL ? json_object() : json_deep_copy(recipe->task);
    }
    char *text = ssm_train_task_settings(task);
    json_error_t error;
    json_t *settings = text == NULL ? NULL : json_loads(text, 0, &error);
    json_t *whole =
        settings == NULL ? NULL : json_pack("{s:s}", "name", ssm_train_task_info(task)->name);
    if (whole != NULL && json_object_update(whole, settings) != 0) {
        json_decref(whole);
        whole = NULL;
    }
    json_decref(settings);
    free(text);
    return whole;
}

json_t *ssm__recipe_json(const ssm_recipe *recipe, const ssm_train_task *task)
{
    json_t *root = json_object();
    bool good = root != NULL && json_object_set_new(root, "seed", json_integer(recipe->seed)) == 0;
    for (int i = 0; good && i < SECTIONS; i++) {
        const section *which = &sections[i];
        json_t *made = ssm__settings_json(&which->table, (const char *)recipe + which->into);
        good = made != NULL && booleans(made);
        if (!good) {
            json_decref(made);
            break;
        }
        good = json_object_set_new(root, which->table.owner, made) == 0;
        if (good && i == 1) { /* behind model and init */
            good = json_object_set_new(root, "task", task_json(recipe, task)) == 0;
        }
    }
    if (!good) {
        json_decref(root);
        return NULL;
    }
    return root;
}

char *ssm_recipe_text(const ssm_recipe *recipe)
{
    json_t *json = ssm__recipe_json(recipe, NULL);
    const size_t digits = ssm__json_digits(json);
    char *text =
        json == NULL ? NULL : ssm__json_print(json, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    json_decref(json);
    return text;
}

char *ssm_recipe_keys(void)
{
    ssm__text text = {0};
    char *out = NULL;
    ssm__text_add(&text, "seed: a whole number of 0 or more, default 0\n");
    for (int i = 0; i < SECTIONS; i++) {
        for (int64_t k = 0; k < sections[i].table.count; k++) {
            const ssm__setting *setting = &sections[i].table.settings[k];
            char allowed[128];
            ssm__setting_allowed(setting, allowed);
            ssm__text_format(&text, "%s.%s: %s; %s%s%s\n", sections[i].table.owner, setting->key,
                             setting->help, allowed, setting->fallback == NULL ? "" : ", default ",
                             setting->fallback == NULL ? "" : setting->fallback);
        }
    }
    (void)ssm__text_take(&text, &out, NULL); /* NULL says enough */
    return out;
}
