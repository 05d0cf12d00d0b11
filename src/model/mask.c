/* Masks: which modes are kept, in memory and as a safetensors file (docs/masks.md). */
#include <ssmscope/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define MASK_SCHEMA "ssmscope.mask/1"

enum { NAME_BYTES = 64, SHAPE_BYTES = 80, MAX_LAYERS = 1 << 16 };

ssm_status ssm_mask_create(int64_t n_layers, int64_t n_channels, int64_t d_state, ssm_mask *out,
                           ssm_error *err)
{
    int64_t rows;
    int64_t count;
    *out = (ssm_mask){0};
    if (n_layers < 1 || n_channels < 1 || d_state < 1 ||
        !ssm__mul_dim(n_layers, n_channels, &rows) || !ssm__mul_dim(rows, d_state, &count)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "a mask needs positive dimensions, got [%lld][%lld][%lld]",
                         (long long)n_layers, (long long)n_channels, (long long)d_state);
    }
    out->keep = malloc((size_t)count);
    if (out->keep == NULL) {
        return ssm__fail_memory(err, "a mask", (size_t)count);
    }
    memset(out->keep, 1, (size_t)count);
    out->n_layers = n_layers;
    out->n_channels = n_channels;
    out->d_state = d_state;
    out->budget = d_state;
    snprintf(out->rule, sizeof out->rule, "none");
    snprintf(out->scope, sizeof out->scope, "channel");
    return SSM_STATUS_OK;
}

ssm_status ssm_mask_add_weights(ssm_mask *mask, ssm_error *err)
{
    const int64_t rows = mask->n_layers * mask->n_channels;
    const int64_t count = rows * mask->d_state;
    free(mask->weight);
    free(mask->skip_weight);
    mask->weight = calloc((size_t)count, sizeof *mask->weight);
    mask->skip_weight = calloc((size_t)rows, sizeof *mask->skip_weight);
    if (mask->weight == NULL || mask->skip_weight == NULL) {
        return ssm__fail_memory(err, "a mask's weights",
                                (size_t)(count + rows) * sizeof *mask->weight);
    }
    for (int64_t i = 0; i < count; i++) {
        mask->weight[i] = mask->keep[i] != 0 ? 1.0F : 0.0F;
    }
    for (int64_t i = 0; i < rows; i++) {
        mask->skip_weight[i] = 1.0F;
    }
    return SSM_STATUS_OK;
}

void ssm_mask_free(ssm_mask *mask)
{
    if (mask != NULL) {
        free(mask->keep);
        free(mask->weight);
        free(mask->skip_weight);
        *mask = (ssm_mask){0};
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Text of a metadata key into a field of the mask; an absent key leaves `absent`. */
static ssm_status get_text(const ssm_safetensors *file, const char *path, const char *key,
                           const char *absent, char *out, size_t size, ssm_error *err)
{
    const char *value = ssm_safetensors_metadata(file, key);
    value = value == NULL ? absent : value;
    if (strlen(value) >= size) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "metadata %s: has %zu bytes, at most %zu are allowed", key, strlen(value),
                         size - 1);
    }
    memcpy(out, value, strlen(value) + 1);
    return SSM_STATUS_OK;
}

/* Decimal digits only, at most `most`. */
static ssm_status get_number(const ssm_safetensors *file, const char *path, const char *key,
                             uint64_t most, uint64_t *out, ssm_error *err)
{
    const char *text = ssm_safetensors_metadata(file, key);
    *out = 0;
    if (text == NULL) {
        return SSM_STATUS_OK;
    }
    bool good = text[0] != '\0';
    for (const char *digit = text; *digit != '\0' && good; digit++) {
        uint64_t value = (uint64_t)(*digit - '0');
        good = *digit >= '0' && *digit <= '9' && *out <= (most - value) / 10;
        *out = good ? *out * 10 + value : 0;
    }
    if (!good || *out > most) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "metadata %s: expected a number of at most %llu, found '%.64s'", key,
                         (unsigned long long)most, text);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_metadata(const ssm_safetensors *file, const char *path, ssm_mask *mask,
                                ssm_error *err)
{
    const char *schema = ssm_safetensors_metadata(file, "schema");
    if (schema != NULL && strcmp(schema, MASK_SCHEMA) != 0) {
        return ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(path),
            "metadata schema: expected '%s', found '%.64s': not a mask of this version",
            MASK_SCHEMA, schema);
    }
    SSM__TRY(get_text(file, path, "rule", "custom", mask->rule, sizeof mask->rule, err));
    SSM__TRY(get_text(file, path, "scope", "channel", mask->scope, sizeof mask->scope, err));
    SSM__TRY(get_text(file, path, "model_digest", "", mask->model_digest, sizeof mask->model_digest,
                      err));
    SSM__TRY(get_text(file, path, "recording_digest", "", mask->recording_digest,
                      sizeof mask->recording_digest, err));
    if (strcmp(mask->scope, "channel") != 0 && strcmp(mask->scope, "head") != 0 &&
        strcmp(mask->scope, "group") != 0 && strcmp(mask->scope, "layer") != 0) {
        return ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(path),
            "metadata scope: expected 'channel', 'head', 'group' or 'layer', found '%s'",
            mask->scope);
    }
    char kind[16];
    SSM__TRY(get_text(file, path, "budget_of", "each", kind, sizeof kind, err));
    mask->mean_budget = strcmp(kind, "mean") == 0;
    if (!mask->mean_budget && strcmp(kind, "each") != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "metadata budget_of: expected 'each' or 'mean', found '%s'", kind);
    }
    uint64_t budget;
    SSM__TRY(get_number(file, path, "budget", (uint64_t)mask->d_state, &budget, err));
    mask->budget = (int64_t)budget;
    return get_number(file, path, "seed", UINT64_MAX, &mask->seed, err);
}

typedef enum part { PART_KEEP, PART_WEIGHT, PART_SKIP, PARTS } part;

static const char *const part_names[PARTS] = {"keep", "weight", "skip_weight"};

static void name_of(char out[NAME_BYTES], int64_t layer, part which)
{
    snprintf(out, NAME_BYTES, "layers.%lld.%s", (long long)layer, part_names[which]);
}

/* Of which part and layer a tensor is; false when of none. */
static bool parse_name(const char *name, part *which, int64_t *layer)
{
    long long number = -1;
    if (sscanf(name, "layers.%6lld.", &number) != 1 || number < 0) {
        return false;
    }
    *layer = number;
    for (int p = 0; p < PARTS; p++) {
        char exact[NAME_BYTES];
        *which = (part)p;
        name_of(exact, number, *which);
        if (strcmp(name, exact) == 0) {
            return true;
        }
    }
    return false;
}

/* Every layer has its keep and, in a compensated mask, both weights; nothing else is there. */
static ssm_status check_names(const ssm_safetensors *file, const char *path, int64_t *n_layers,
                              bool *weighted, ssm_error *err)
{
    const int64_t count = ssm_safetensors_count(file);
    int64_t found[PARTS] = {0};
    int64_t last = -1;
    for (int64_t i = 0; i < count; i++) {
        const char *name = ssm_safetensors_at(file, i)->name;
        part which;
        int64_t layer;
        if (!parse_name(name, &which, &layer)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                             "a mask holds tensors layers.N.keep, layers.N.weight and "
                             "layers.N.skip_weight only; this one is not understood");
        }
        found[which]++;
        last = layer > last ? layer : last;
    }
    *weighted = found[PART_WEIGHT] + found[PART_SKIP] > 0;
    *n_layers = last + 1;
    for (int p = 0; p < (*weighted ? PARTS : PART_WEIGHT); p++) {
        for (int64_t i = 0; found[p] != last + 1 && i <= last; i++) {
            char name[NAME_BYTES];
            name_of(name, i, (part)p);
            if (ssm_safetensors_find(file, name) == NULL) {
                return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                                 "the file has tensors of layers 0 to %lld%s, and this one is "
                                 "missing",
                                 (long long)last, *weighted ? ", some with weights" : "");
            }
        }
    }
    if (last < 0 || last >= MAX_LAYERS) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "the file holds no layers.N.keep: not a mask");
    }
    return SSM_STATUS_OK;
}

/* "[24, 128]", of 2 or 3 dimensions. */
static const char *print_shape(const ssm_tensor *tensor, char out[SHAPE_BYTES])
{
    const long long a = tensor->dims[0];
    const long long b = tensor->dims[1];
    if (tensor->n_dims == 2) {
        snprintf(out, SHAPE_BYTES, "[%lld, %lld]", a, b);
    } else {
        snprintf(out, SHAPE_BYTES, "[%lld, %lld, %lld]", a, b, (long long)tensor->dims[2]);
    }
    return out;
}

static ssm_status check_keep(const ssm_tensor *keep, const ssm_tensor *first, const char *path,
                             ssm_error *err)
{
    if (keep->dtype != SSM_DTYPE_U8 || (keep->n_dims != 2 && keep->n_dims != 3)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, keep->name),
                         "expected U8 with 2 dimensions (3 for channels of heads), found %s with "
                         "%d",
                         ssm_dtype_name(keep->dtype), keep->n_dims);
    }
    if (keep->n_dims != first->n_dims) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, keep->name),
                         "layer 0 has %d dimensions, this layer has %d", first->n_dims,
                         keep->n_dims);
    }
    if (memcmp(keep->dims, first->dims, (size_t)first->n_dims * sizeof *first->dims) != 0) {
        char expected[SHAPE_BYTES];
        char found[SHAPE_BYTES];
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, keep->name),
                         "layer 0 is %s, this layer is %s", print_shape(first, expected),
                         print_shape(keep, found));
    }
    const uint8_t *values = keep->data;
    for (size_t i = 0; i < keep->bytes; i++) {
        if (values[i] > 1) {
            ssm__place place = {path, keep->name, keep->file_offset + (int64_t)i};
            return ssm__fail(err, SSM_STATUS_FILE, place, "expected 0 or 1, found %d", values[i]);
        }
    }
    return SSM_STATUS_OK;
}

static bool is_whole(const ssm_mask *mask, int64_t layer, int64_t layers)
{
    const size_t size = (size_t)(mask->n_channels * mask->d_state);
    return memchr(mask->keep + (size_t)layer * size, 0, (size_t)layers * size) == NULL;
}

/* The mean over the channels that are cut. A layer that stands whole has no modes, or keeps all of
 * them and is paid for by the others: so many of them as the sum of the others says. */
static ssm_status check_mean_budget(const char *path, const ssm_mask *mask, ssm_error *err)
{
    const int64_t per_layer = mask->n_channels * mask->d_state;
    const int64_t full = mask->n_channels * (mask->d_state - mask->budget);
    int64_t whole = 0;
    int64_t kept = 0;
    int64_t missing = 0; /* of the others, to their budget */
    for (int64_t i = 0; i < mask->n_layers; i++) {
        if (is_whole(mask, i, 1)) {
            whole++;
            continue;
        }
        missing += mask->n_channels * mask->budget;
        for (int64_t k = 0; k < per_layer; k++) {
            kept += mask->keep[i * per_layer + k];
        }
    }
    missing -= kept;
    if (full > 0 ? missing < 0 || missing % full != 0 || missing / full > whole : missing != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "metadata budget: %lld modes are kept in the mean, but those layers "
                         "that drop any keep %lld modes in all: correct the budget, or leave it "
                         "out",
                         (long long)mask->budget, (long long)kept);
    }
    return SSM_STATUS_OK;
}

/* A budget that is stated is a claim that the tensors must bear out, channel by channel. Layers of
 * attention have no modes; in a mask that cuts others they stand whole. */
static ssm_status check_budget(const ssm_safetensors *file, const char *path, const ssm_mask *mask,
                               ssm_error *err)
{
    const bool cuts = !is_whole(mask, 0, mask->n_layers);
    if (mask->budget > 0 && mask->mean_budget) {
        return cuts ? check_mean_budget(path, mask, err) : SSM_STATUS_OK;
    }
    for (int64_t i = 0; mask->budget > 0 && i < mask->n_layers * mask->n_channels; i++) {
        const uint8_t *keep = mask->keep + i * mask->d_state;
        if (cuts && is_whole(mask, i / mask->n_channels, 1)) {
            continue;
        }
        int64_t kept = 0;
        for (int64_t n = 0; n < mask->d_state; n++) {
            kept += keep[n];
        }
        if (kept != mask->budget) {
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "layers.%lld.keep", (long long)(i / mask->n_channels));
            const ssm_tensor *tensor = ssm_safetensors_find(file, name);
            const int64_t channel = i % mask->n_channels;
            ssm__place place = {path, name, tensor->file_offset + channel * mask->d_state};
            return ssm__fail(err, SSM_STATUS_FILE, place,
                             "channel %lld keeps %lld modes, the metadata say budget = %lld: "
                             "correct the budget, or leave it out where channels differ",
                             (long long)channel, (long long)kept, (long long)mask->budget);
        }
    }
    return SSM_STATUS_OK;
}

/* A weight tensor: float32 of the shape of keep, or of it without the modes. */
static ssm_status read_weights(const ssm_safetensors *file, const char *path, int64_t layer,
                               part which, const ssm_tensor *keep, float *out, ssm_error *err)
{
    char name[NAME_BYTES];
    name_of(name, layer, which);
    const ssm_tensor *tensor = ssm_safetensors_find(file, name);
    const int n_dims = which == PART_SKIP ? keep->n_dims - 1 : keep->n_dims;
    if (tensor->dtype != SSM_DTYPE_F32 || tensor->n_dims != n_dims ||
        memcmp(tensor->dims, keep->dims, (size_t)n_dims * sizeof *keep->dims) != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                         "expected F32 of the shape of layers.%lld.keep%s, found %s with %d "
                         "dimensions",
                         (long long)layer, which == PART_SKIP ? " without its last dimension" : "",
                         ssm_dtype_name(tensor->dtype), tensor->n_dims);
    }
    memcpy(out, tensor->data, tensor->bytes);
    const uint8_t *kept = keep->data;
    for (int64_t i = 0; i < ssm_tensor_count(tensor); i++) {
        const bool dropped = which == PART_WEIGHT && kept[i] == 0;
        if (!isfinite(out[i]) || (dropped && out[i] != 0.0F)) {
            ssm__place place = {path, name, tensor->file_offset + i * (int64_t)sizeof *out};
            return ssm__fail(err, SSM_STATUS_FILE, place, "expected %s, found %g",
                             dropped ? "0, as the mode is dropped" : "a finite number",
                             (double)out[i]);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status read_layer(const ssm_safetensors *file, const char *path, int64_t layer,
                             const ssm_tensor *first, ssm_mask *out, ssm_error *err)
{
    const int64_t rows = out->n_channels;
    char name[NAME_BYTES];
    name_of(name, layer, PART_KEEP);
    const ssm_tensor *keep = ssm_safetensors_find(file, name);
    SSM__TRY(check_keep(keep, first, path, err));
    memcpy(out->keep + (size_t)layer * keep->bytes, keep->data, keep->bytes);
    if (out->weight != NULL) {
        SSM__TRY(read_weights(file, path, layer, PART_WEIGHT, keep,
                              out->weight + layer * rows * out->d_state, err));
        SSM__TRY(
            read_weights(file, path, layer, PART_SKIP, keep, out->skip_weight + layer * rows, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status read_layers(const ssm_safetensors *file, const char *path, ssm_mask *out,
                              ssm_error *err)
{
    int64_t n_layers = 0;
    bool weighted = false;
    SSM__TRY(check_names(file, path, &n_layers, &weighted, err));
    const ssm_tensor *first = ssm_safetensors_find(file, "layers.0.keep");
    SSM__TRY(check_keep(first, first, path, err));
    if (ssm_tensor_count(first) < 1) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, first->name),
                         "the tensor is empty");
    }
    const bool of_heads = first->n_dims == 3;
    SSM__TRY(ssm_mask_create(n_layers, of_heads ? first->dims[0] * first->dims[1] : first->dims[0],
                             first->dims[first->n_dims - 1], out, err));
    out->head_dim = of_heads ? first->dims[1] : 0;
    if (weighted) {
        SSM__TRY(ssm_mask_add_weights(out, err));
    }
    for (int64_t i = 0; i < n_layers; i++) {
        SSM__TRY(read_layer(file, path, i, first, out, err));
    }
    SSM__TRY(read_metadata(file, path, out, err));
    return check_budget(file, path, out, err);
}

ssm_status ssm_mask_read(const char *path, ssm_mask *out, ssm_error *err)
{
    *out = (ssm_mask){0};
    ssm_safetensors *file = NULL;
    SSM__TRY(ssm_safetensors_open(path, false, &file, err));
    ssm_status status = read_layers(file, path, out, err);
    ssm_safetensors_close(file);
    if (status != SSM_STATUS_OK) {
        ssm_mask_free(out);
    }
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static ssm_tensor tensor_of(const ssm_mask *mask, int64_t layer, part which, const char *name)
{
    const int64_t rows = mask->n_channels;
    const int64_t N = mask->d_state;
    ssm_tensor tensor = {.name = name, .dtype = SSM_DTYPE_F32, .n_dims = 1, .dims = {rows}};
    if (mask->head_dim > 0) {
        tensor.n_dims = 2;
        tensor.dims[0] = rows / mask->head_dim;
        tensor.dims[1] = mask->head_dim;
    }
    if (which == PART_SKIP) {
        tensor.data = mask->skip_weight + layer * rows;
        tensor.bytes = (size_t)rows * sizeof(float);
        return tensor;
    }
    tensor.dims[tensor.n_dims++] = N;
    tensor.data = mask->weight + layer * rows * N;
    tensor.bytes = (size_t)(rows * N) * sizeof(float);
    if (which == PART_KEEP) {
        tensor.dtype = SSM_DTYPE_U8;
        tensor.data = mask->keep + layer * rows * N;
        tensor.bytes = (size_t)(rows * N);
    }
    return tensor;
}

ssm_status ssm_mask_write(const ssm_mask *mask, const char *path, const char *command,
                          ssm_error *err)
{
    char budget[32];
    char seed[32];
    snprintf(budget, sizeof budget, "%lld", (long long)mask->budget);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)mask->seed);
    const ssm_metadata metadata[] = {{"schema", MASK_SCHEMA},
                                     {"rule", mask->rule},
                                     {"budget", budget},
                                     {"scope", mask->scope},
                                     {"model_digest", mask->model_digest},
                                     {"recording_digest", mask->recording_digest},
                                     {"seed", seed},
                                     {"program_version", ssm_version()},
                                     {"command", command == NULL ? "" : command},
                                     {"budget_of", "mean"}};
    const int64_t n_metadata = (int64_t)(sizeof metadata / sizeof metadata[0]);
    const size_t parts = mask->weight != NULL ? PARTS : 1;
    const size_t count = (size_t)mask->n_layers * parts;
    ssm_tensor *tensors = calloc(count, sizeof *tensors);
    char(*names)[NAME_BYTES] = calloc(count, sizeof *names);
    ssm_status status = SSM_STATUS_OK;
    if (tensors == NULL || names == NULL) {
        status = ssm__fail_memory(err, "a mask's list of tensors", count * sizeof *tensors);
    }
    for (size_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        const int64_t layer = (int64_t)(i / parts);
        name_of(names[i], layer, (part)(i % parts));
        tensors[i] = tensor_of(mask, layer, (part)(i % parts), names[i]);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm_safetensors_write(path, tensors, (int64_t)count, metadata,
                                       mask->mean_budget ? n_metadata : n_metadata - 1, err);
    }
    free(tensors);
    free(names);
    return status;
}
