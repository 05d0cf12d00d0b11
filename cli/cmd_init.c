#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ssmscope/init.h>
#include <ssmscope/mimetic.h>
#include <ssmscope/train.h>

#include "commands.h"
#include "load.h"
#include "messages.h"
#include "output.h"
#include "written.h"

typedef struct init_arguments {
    const char *shape, *from, *recipe, *output, *switches;
    int64_t seed, dtype, mode;
    double c, noise;
    cli_list layers, heads;
    cli_load load;
} init_arguments;

static const ssm_dtype dtypes[] = {SSM_DTYPE_F32, SSM_DTYPE_F16, SSM_DTYPE_BF16};

/* What was made of what. */
typedef struct init_run {
    cli_context *context;
    const init_arguments *args;
    ssm_mimetic mimetic;
    cli_source source; /* of --from */
    ssm_config config;
    int64_t seed;
    ssm_recipe_start start; /* what --recipe gave */
    char digest[64];        /* of what was written; "": in a layout that only training reads */
} init_run;

/* ---- the switches ---------------------------------------------------------------------------- */

static ssm_status read_mimetic(const init_arguments *args, ssm_mimetic *out, ssm_error *err)
{
    *out = ssm_mimetic_default();
    if (args->switches == NULL) {
        const char *lost = args->layers.values != NULL  ? "layers"
                           : args->heads.values != NULL ? "heads"
                           : args->from != NULL         ? "from"
                                                        : NULL;
        return lost == NULL
                   ? SSM_STATUS_OK
                   : cli_fail(err, SSM_STATUS_USAGE, NULL,
                              "--%s needs --mimetic: there is nothing else to do with it", lost);
    }
    out->mode = (ssm_mimetic_mode)args->mode;
    out->c = args->c;
    out->noise = args->noise;
    out->layers = args->layers.values;
    out->n_layers = args->layers.count;
    out->heads = args->heads.values;
    out->n_heads = args->heads.count;
    return ssm_mimetic_parse_switches(args->switches, out, err);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void put_list(cli_json *json, json_t *object, const char *key, const cli_list *list)
{
    if (list->values == NULL) {
        cli_json_put(json, object, key, json_null()); /* all */
        return;
    }
    json_t *array = cli_json_array(json, object, key);
    for (int64_t i = 0; i < list->count; i++) {
        cli_json_push(json, array, json_integer(list->values[i]));
    }
}

static void put_mimetic(cli_json *json, const init_run *run)
{
    json_t *object = cli_json_object(json, json->root, "mimetic");
    cli_json_bool(json, object, "A", run->mimetic.A);
    cli_json_bool(json, object, "delta", run->mimetic.delta);
    cli_json_bool(json, object, "BC", run->mimetic.correlation);
    cli_json_bool(json, object, "conv", run->mimetic.conv);
    cli_json_text(json, object, "correlation", ssm_mimetic_mode_name(run->mimetic.mode));
    cli_json_real(json, object, "c", run->mimetic.c);
    cli_json_real(json, object, "noise", run->mimetic.noise);
    put_list(json, object, "layers", &run->args->layers);
    put_list(json, object, "heads", &run->args->heads);
}

static ssm_status print_json(const init_run *run, ssm_error *err)
{
    const init_arguments *args = run->args;
    const ssm_config *config = &run->config;
    cli_json json = cli_json_create(run->context, "init");
    cli_json_integer(&json, json.root, "seed", run->seed);
    json_t *model = cli_json_object(&json, json.root, "model");
    cli_json_text(&json, model, "path", args->output);
    if (run->digest[0] != '\0') {
        cli_json_text(&json, model, "digest", run->digest);
    }
    if (args->from != NULL) {
        json_t *from = cli_json_object(&json, json.root, "from");
        cli_json_text(&json, from, "path", args->from);
        cli_json_text(&json, from, "digest", run->source.digest);
    } else {
        cli_json_text(&json, json.root, args->recipe != NULL ? "recipe" : "shape",
                      args->recipe != NULL ? args->recipe : args->shape);
    }
    if (args->switches != NULL) {
        put_mimetic(&json, run);
    }
    json_t *sizes = cli_json_object(&json, json.root, "config");
    cli_json_integer(&json, sizes, "vocab_size", config->vocab_size);
    cli_json_integer(&json, sizes, "d_model", config->d_model);
    cli_json_integer(&json, sizes, "n_layers", config->n_layers);
    cli_json_integer(&json, sizes, "d_inner", config->d_inner);
    cli_json_integer(&json, sizes, "d_state", config->d_state);
    return cli_json_print(&json, err);
}

static void print_mimetic(const init_run *run)
{
    const cli_list *layers = &run->args->layers;
    printf("mimetic:%s%s%s%s in %s", run->mimetic.A ? " A" : "", run->mimetic.delta ? " delta" : "",
           run->mimetic.correlation ? " BC" : "", run->mimetic.conv ? " conv" : "",
           layers->values == NULL ? "all layers that have them"
           : layers->count == 1   ? "layer"
                                  : "layers");
    for (int64_t i = 0; layers->values != NULL && i < layers->count; i++) {
        printf(" %lld", (long long)layers->values[i]);
    }
    printf("%s\n", run->args->heads.values == NULL ? "" : ", some heads");
}

static ssm_status print_run(const init_run *run, ssm_error *err)
{
    const init_arguments *args = run->args;
    if (run->context->globals.json) {
        return print_json(run, err);
    }
    if (args->from != NULL) {
        printf("%s: %s, %lld layers, d_model %lld\n", args->output, args->from,
               (long long)run->config.n_layers, (long long)run->config.d_model);
    } else if (args->recipe != NULL) {
        printf("%s: %s, %lld layers, d_model %lld, %lld parameters, seed %lld\n", args->output,
               args->recipe, (long long)run->config.n_layers, (long long)run->config.d_model,
               (long long)run->start.parameters, (long long)run->seed);
    } else {
        printf("%s: %s, %lld layers, d_model %lld, %s, seed %lld\n", args->output, args->shape,
               (long long)run->config.n_layers, (long long)run->config.d_model,
               ssm_dtype_name(dtypes[args->dtype]), (long long)run->seed);
    }
    if (args->switches != NULL) {
        print_mimetic(run);
    }
    if (run->digest[0] == '\0') {
        printf("in a layout of its own, which training reads and the engine does not\n");
    } else {
        printf("digest %s\n", run->digest);
    }
    return SSM_STATUS_OK;
}

/* ---- work ------------------------------------------------------------------------------------ */

static ssm_status write_new(init_run *run, ssm_error *err)
{
    const init_arguments *args = run->args;
    ssm_status status = ssm_shape_config(args->shape, &run->config, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    ssm_layer_kind *kinds = calloc((size_t)run->config.n_layers, sizeof *kinds);
    if (kinds == NULL) {
        return cli_no_memory(err);
    }
    status = ssm_shape_layers(args->shape, kinds, err);
    if (status == SSM_STATUS_OK) {
        status = ssm_init_write_mimetic(
            &run->config, kinds, args->switches == NULL ? NULL : &run->mimetic, dtypes[args->dtype],
            (uint64_t)run->seed, args->output, cli_progress_start(run->context), err);
    }
    free(kinds);
    return status;
}

static ssm_status rewrite(init_run *run, ssm_error *err)
{
    const init_arguments *args = run->args;
    ssm_status status =
        cli_source_open(run->context, args->from, &args->load, CLI_WANT_DIGEST, &run->source, err);
    if (status == SSM_STATUS_OK) {
        const ssm_mimetic_origin origin = {run->source.digest, run->context->canonical};
        run->config = *run->source.config;
        status = ssm_mimetic_rewrite(run->source.checkpoint, &run->mimetic, (uint64_t)run->seed,
                                     &origin, args->output, cli_progress_start(run->context), err);
    }
    return status;
}

/* "[1,2]"; NULL: no memory. */
static char *list_text(const cli_list *list)
{
    enum { DIGITS = 24 };
    char *text = malloc((size_t)list->count * DIGITS + 3);
    size_t used = 0;
    for (int64_t i = 0; text != NULL && i < list->count; i++) {
        used += (size_t)snprintf(text + used, DIGITS, "%c%lld", i == 0 ? '[' : ',',
                                 (long long)list->values[i]);
    }
    if (text != NULL) {
        memcpy(text + used, "]", 2);
    }
    return text;
}

static ssm_status set_list(ssm_recipe *recipe, const char *key, const cli_list *list,
                           ssm_error *err)
{
    if (list->values == NULL) {
        return SSM_STATUS_OK;
    }
    char *text = list_text(list);
    const ssm_status status =
        text == NULL ? cli_no_memory(err) : ssm_recipe_set(recipe, key, text, err);
    free(text);
    return status;
}

/* Switches replace the recipe's whole section. */
static ssm_status set_mimetic(const init_run *run, ssm_recipe *recipe, ssm_error *err)
{
    const init_arguments *args = run->args;
    char c[40], noise[40];
    snprintf(c, sizeof c, "%.17g", args->c);
    snprintf(noise, sizeof noise, "%.17g", args->noise);
    const char *const keys[][2] = {{"init.mimetic", args->switches},
                                   {"init.mode", ssm_mimetic_mode_name(run->mimetic.mode)},
                                   {"init.c", c},
                                   {"init.noise", noise}};
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == SSM_STATUS_OK; i++) {
        status = ssm_recipe_set(recipe, keys[i][0], keys[i][1], err);
    }
    if (status == SSM_STATUS_OK) {
        status = set_list(recipe, "init.layers", &args->layers, err);
    }
    return status == SSM_STATUS_OK ? set_list(recipe, "init.heads", &args->heads, err) : status;
}

/* What the command line says is stronger than the recipe. */
static ssm_status change_recipe(const init_run *run, ssm_recipe *recipe, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    if (run->args->seed != CLI_UNSET) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)run->args->seed);
        status = ssm_recipe_set(recipe, "seed", text, err);
    }
    return status != SSM_STATUS_OK || run->args->switches == NULL ? status
                                                                  : set_mimetic(run, recipe, err);
}

static ssm_status write_of_recipe(init_run *run, ssm_error *err)
{
    ssm_recipe *recipe = NULL;
    ssm_status status = ssm_recipe_read(run->args->recipe, &recipe, err);
    if (status == SSM_STATUS_OK) {
        status = change_recipe(run, recipe, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_recipe_init(recipe, run->args->output, &run->start, err);
    }
    run->config = run->start.config;
    run->seed = run->start.seed;
    ssm_recipe_free(recipe);
    return status;
}

static ssm_status write_or_rewrite(init_run *run, ssm_error *err)
{
    if (run->args->recipe != NULL) {
        return write_of_recipe(run, err);
    }
    return run->args->from != NULL ? rewrite(run, err) : write_new(run, err);
}

static ssm_status run_init(cli_context *context, const void *arguments, ssm_error *err)
{
    const init_arguments *args = arguments;
    init_run run = {
        .context = context, .args = args, .seed = args->seed == CLI_UNSET ? 0 : args->seed};
    ssm_status status = read_mimetic(args, &run.mimetic, err);
    if (status == SSM_STATUS_OK) {
        status = write_or_rewrite(&run, err);
    }
    cli_progress_clear(context);
    if (status == SSM_STATUS_OK && (args->recipe == NULL || run.start.published)) {
        status = cli_check_written(args->output, run.digest, err);
    }
    status = status == SSM_STATUS_OK ? print_run(&run, err) : status;
    cli_source_close(&run.source);
    return status;
}

static const cli_option init_options[] = {
    {.name = "shape",
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, shape),
     .argument = "NAME",
     .words = ssm_shape_names,
     .help = "One of tiny, mamba-130m, -370m, -790m, -1.4b, -2.8b, falcon-mamba-7b, mamba2-130m, "
             "-370m, -780m, -1.3b, -2.7b, mamba-codestral-7b, mamba2attn-2.7b; for tests "
             "tiny-falcon-mamba, "
             "tiny-mamba2, tiny-mamba2attn."},
    {.name = "from",
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, from),
     .argument = "MODEL",
     .help = "An existing model: --mimetic changes the layers named, everything else is copied to "
             "the bit."},
    {.name = "recipe",
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, recipe),
     .argument = "FILE",
     .help = "What a training run of this recipe begins with; --mimetic, --seed and what goes with "
             "them replace what the recipe says."},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, output),
     .argument = "DIR",
     .flags = CLI_REQUIRED | CLI_OUTPUT,
     .help = "Directory to write; it must not hold a model yet (--from: it must not exist, or be "
             "empty)."},
    {.name = "seed",
     .kind = CLI_INTEGER,
     .into = offsetof(init_arguments, seed),
     .argument = "S",
     .min = 0,
     .max = INT64_MAX,
     .help = "Seed of the weights, 0 or the recipe's when not given; the same seed gives the same "
             "bytes."},
    {.name = "dtype",
     .kind = CLI_CHOICE,
     .into = offsetof(init_arguments, dtype),
     .choices = "f32|f16|bf16",
     .fallback = "f32",
     .conflicts = "from,recipe",
     .help = "How the matrices are stored."},
    {.name = "mimetic",
     .kind = CLI_TEXT,
     .into = offsetof(init_arguments, switches),
     .argument = "SWITCHES",
     .bare = "all",
     .help = "Mimetic initialisation: all (also when nothing follows), or some of A (no decay), "
             "delta (step 1 for every token), BC (correlated B and C), conv (identity), separated "
             "by commas."},
    {.name = "layers",
     .kind = CLI_LIST,
     .into = offsetof(init_arguments, layers),
     .argument = "LIST",
     .min = 0,
     .max = 1 << 20,
     .help = "Layers that --mimetic is for, from 0; all that have a state when not given."},
    {.name = "heads",
     .kind = CLI_LIST,
     .into = offsetof(init_arguments, heads),
     .argument = "LIST",
     .min = 0,
     .max = 1 << 20,
     .help = "Mamba-2: heads that --mimetic is for, from 0; all when not given. B and C belong to "
             "groups of heads and change where any of their heads is named."},
    {.name = "correlation",
     .kind = CLI_CHOICE,
     .into = offsetof(init_arguments, mode),
     .choices = "half|equal|orthogonal",
     .fallback = "half",
     .help = "How the rows of C go with those of B: half takes their mean, equal copies them, "
             "orthogonal gives both the same orthogonal rows with a little noise."},
    {.name = "mimetic-c",
     .kind = CLI_REAL,
     .into = offsetof(init_arguments, c),
     .argument = "C",
     .fallback = "8",
     .low = 1e-3,
     .high = 80,
     .help = "Switch A: A = -exp(-C)."},
    {.name = "mimetic-noise",
     .kind = CLI_REAL,
     .into = offsetof(init_arguments, noise),
     .argument = "X",
     .fallback = "0.1",
     .low = 0,
     .high = 10,
     .help = "Noise of --correlation orthogonal, as a part of the rows' size."},
    CLI_LOAD_ENTRIES(init_arguments),
};

static const char *const init_examples[] = {
    "ssmscope init --shape mamba-130m -o mamba-130m",
    "An untrained model of that shape, to measure speed.",
    "ssmscope init --shape tiny --mimetic --layers 3 -o start",
    "The same with one layer that is close to linear attention.",
    "ssmscope init --from tiny --mimetic A,delta --layers 3 -o changed",
    "A trained model with one layer that no longer forgets.",
    "ssmscope init --recipe recipes/copy.json -o start",
    "The model that training this recipe begins with.",
    NULL};

const cli_command cli_command_init = {
    .name = "init",
    .summary = "write a new, untrained checkpoint, or mimetic layers into one",
    .description =
        "Writes config.json and model.safetensors with the published default initialisation. The "
        "model is not trained: it is for benchmarks and tests, and a start for training. --mimetic "
        "starts layers close to linear attention, so that they learn to recall; --from does that "
        "to an existing model, and mimetic.json there says what was done. --recipe writes what "
        "training would begin with.",
    .examples = init_examples,
    .options = init_options,
    .n_options = sizeof init_options / sizeof *init_options,
    .one_of = "shape,from,recipe",
    .arguments_size = sizeof(init_arguments),
    .run = run_init,
};
