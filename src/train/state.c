/* train/state.c: weights, moments and position of a run in one safetensors file, so that they
 * always belong together. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "train/checkpointing.h"

enum { ARRAYS = 3, NAME_MOST = SSM__SLOT_NAME_MAX + 16, NUMBERS = 2 };

static const char *const prefixes[ARRAYS] = {"weight.", "first.", "second."};
static const char schema[] = "ssmscope.training_state/1";

bool ssm__has_state(const char *directory)
{
    return ssm__holds_file(directory, "training/state.safetensors"); /* needs no memory */
}

static float *array(const ssm__optimiser *optimiser, int i)
{
    return i == 0   ? ssm__network_values(optimiser->network)
           : i == 1 ? optimiser->first
                    : optimiser->second;
}

/* ---- writing --------------------------------------------------------------------------------- */

ssm_tensor ssm__parameter_tensor(const ssm__parameter *p, const char *name, const float *data)
{
    ssm_tensor tensor = {.name = name,
                         .dtype = SSM_DTYPE_F32,
                         .n_dims = p->n_dims,
                         .data = data,
                         .bytes = (size_t)p->count * sizeof(float)};
    memcpy(tensor.dims, p->dims, (size_t)p->n_dims * sizeof *p->dims);
    return tensor;
}

/* Of weights, moments and position, so that a flipped bit is found out. */
static ssm_status digest_of(const ssm__optimiser *optimiser, const ssm__position *position,
                            char out[64], ssm_error *err)
{
    const int64_t numbers[] = {position->step, position->tokens, position->tail_count};
    ssm__digest *digest = NULL;
    SSM__TRY(ssm__digest_create(&digest, err));
    for (int i = 0; i < ARRAYS; i++) {
        for (int64_t k = 0; k < ssm__network_count(optimiser->network); k++) {
            const ssm__parameter *p = ssm__network_at(optimiser->network, k);
            ssm__digest_add(digest, array(optimiser, i) + p->at, (size_t)p->count * sizeof(float));
        }
    }
    ssm__digest_add(digest, numbers, sizeof numbers);
    ssm__digest_add(digest, &position->tail, sizeof position->tail);
    ssm__digest_finish(digest, out);
    return SSM_STATUS_OK;
}

static ssm_status write_tensors(const ssm__optimiser *optimiser, const ssm__position *position,
                                const ssm_metadata *metadata, int64_t n_metadata, const char *path,
                                ssm_tensor *tensors, char (*names)[NAME_MOST], ssm_error *err)
{
    const int64_t count = ssm__network_count(optimiser->network);
    const int64_t numbers[] = {position->step, position->tokens, position->tail_count};
    int64_t n = 0;
    for (int i = 0; i < ARRAYS; i++) {
        for (int64_t k = 0; k < count; k++, n++) {
            const ssm__parameter *p = ssm__network_at(optimiser->network, k);
            snprintf(names[n], NAME_MOST, "%s%s", prefixes[i], p->name);
            tensors[n] = ssm__parameter_tensor(p, names[n], array(optimiser, i) + p->at);
        }
    }
    tensors[n++] = (ssm_tensor){.name = "position",
                                .dtype = SSM_DTYPE_I64,
                                .n_dims = 1,
                                .dims = {3},
                                .data = numbers,
                                .bytes = sizeof numbers};
    tensors[n++] = (ssm_tensor){.name = "tail",
                                .dtype = SSM_DTYPE_F64,
                                .n_dims = 1,
                                .dims = {1},
                                .data = &position->tail,
                                .bytes = sizeof position->tail};
    return ssm_safetensors_write(path, tensors, n, metadata, n_metadata, err);
}

ssm_status ssm__write_state(const ssm__optimiser *optimiser, const ssm__position *position,
                            const char *recipe, const char *data, const char *directory,
                            ssm_error *err)
{
    char digest[64];
    SSM__TRY(digest_of(optimiser, position, digest, err));
    const ssm_metadata metadata[] = {{"schema", schema},
                                     {"recipe", recipe},
                                     {"data", data},
                                     {"version", ssm_version()},
                                     {"digest", digest}};
    const size_t count = (size_t)(ARRAYS * ssm__network_count(optimiser->network)) + NUMBERS;
    ssm_tensor *tensors = calloc(count, sizeof *tensors);
    char(*names)[NAME_MOST] = calloc(count, sizeof *names);
    char *path = ssm__path_join(directory, "training/state.safetensors");
    const ssm_status status =
        tensors == NULL || names == NULL || path == NULL
            ? ssm__fail_memory(err, "a training state", count * sizeof *tensors)
            : write_tensors(optimiser, position, metadata, sizeof metadata / sizeof metadata[0],
                            path, tensors, names, err);
    free(tensors);
    free(names);
    free(path);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Keys that the version which began the run did not have yet stand at their defaults. A recipe that
 * this version does not read stays as it is. */
static ssm_status add_defaults(const char *path, json_t **was, ssm_error *err)
{
    ssm_recipe *recipe = NULL;
    ssm_error own;
    ssm_error_clear(&own);
    const ssm_status status = ssm__recipe_from_json(*was, path, &recipe, &own);
    json_t *filled = status == SSM_STATUS_OK ? ssm__recipe_json(recipe, NULL) : NULL;
    ssm_recipe_free(recipe);
    if (status == SSM_STATUS_MEMORY || (status == SSM_STATUS_OK && filled == NULL)) {
        return ssm__fail_memory(err, "the recipe of a state", 0);
    }
    if (filled != NULL) {
        json_decref(*was);
        *was = filled;
    }
    return SSM_STATUS_OK;
}

static ssm_status check_recipe(const ssm_safetensors *file, const char *path, const json_t *recipe,
                               ssm_error *err)
{
    const char *text = ssm_safetensors_metadata(file, "recipe");
    json_t *was = NULL;
    char differences[800];
    if (text == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path), "holds no recipe");
    }
    SSM__TRY(ssm__json_parse(path, -1, text, strlen(text), SSM__JSON_STRICT, &was, err));
    const ssm_status status = add_defaults(path, &was, err);
    const bool other =
        status == SSM_STATUS_OK && ssm__json_differs(was, recipe, differences, sizeof differences);
    json_decref(was);
    if (other) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "the run was begun with another recipe: %s; resume with the old one, or "
                         "choose another directory",
                         differences);
    }
    return status;
}

static ssm_status check_data(const ssm_safetensors *file, const char *path, const char *data,
                             ssm_error *err)
{
    const char *was = ssm_safetensors_metadata(file, "data");
    if (was == NULL || strcmp(was, data) != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(path),
                         "the run was begun with other data: the digest is %s, was %s; restore the "
                         "files, or choose another directory",
                         data, was == NULL ? "not written" : was);
    }
    return SSM_STATUS_OK;
}

static const ssm_tensor *find(const ssm_safetensors *file, const char *name, ssm_dtype dtype,
                              int n_dims, const int64_t *dims)
{
    const ssm_tensor *tensor = ssm_safetensors_find(file, name);
    return tensor != NULL && tensor->dtype == dtype && tensor->n_dims == n_dims &&
                   memcmp(tensor->dims, dims, (size_t)n_dims * sizeof *dims) == 0
               ? tensor
               : NULL;
}

/* A run that was interrupted had finite numbers, and means of squares are not negative. */
static ssm_status check_numbers(const char *path, const char *name, const float *values,
                                int64_t count, bool squares, ssm_error *err)
{
    for (int64_t k = 0; k < count; k++) {
        if (!isfinite(values[k]) || (squares && values[k] < 0)) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                             "number %" PRId64 " is %g; expected a finite number%s: the file was "
                             "changed; begin the run anew in another directory",
                             k, (double)values[k], squares ? " of 0 or more" : "");
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status read_arrays(const ssm_safetensors *file, const char *path,
                              const ssm__optimiser *optimiser, ssm_error *err)
{
    char name[NAME_MOST];
    for (int i = 0; i < ARRAYS; i++) {
        for (int64_t k = 0; k < ssm__network_count(optimiser->network); k++) {
            const ssm__parameter *p = ssm__network_at(optimiser->network, k);
            snprintf(name, sizeof name, "%s%s", prefixes[i], p->name);
            const ssm_tensor *tensor = find(file, name, SSM_DTYPE_F32, p->n_dims, p->dims);
            float *values = array(optimiser, i) + p->at;
            if (tensor == NULL) {
                return ssm__fail(
                    err, SSM_STATUS_FILE, SSM__TENSOR(path, name),
                    "is missing or has another shape; expected %" PRId64 " F32 numbers", p->count);
            }
            memcpy(values, tensor->data, tensor->bytes);
            SSM__TRY(check_numbers(path, name, values, p->count, i == 2, err));
        }
    }
    return SSM_STATUS_OK;
}

/* Losses in the tail behind a step: the last tenth of the steps has them. */
static int64_t tail_behind(int64_t step, int64_t steps)
{
    const int64_t first = steps - (steps + 9) / 10;
    return step > first ? step - first : 0;
}

static ssm_status read_position(const ssm_safetensors *file, const char *path, const json_t *recipe,
                                ssm__position *position, ssm_error *err)
{
    static const int64_t three = 3, one = 1;
    const int64_t steps =
        json_integer_value(json_object_get(json_object_get(recipe, "schedule"), "steps"));
    const ssm_tensor *numbers = find(file, "position", SSM_DTYPE_I64, 1, &three);
    const ssm_tensor *tail = find(file, "tail", SSM_DTYPE_F64, 1, &one);
    int64_t values[3];
    if (numbers == NULL || tail == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path), "holds no position");
    }
    memcpy(values, numbers->data, sizeof values);
    *position = (ssm__position){.step = values[0], .tokens = values[1], .tail_count = values[2]};
    memcpy(&position->tail, tail->data, sizeof position->tail);
    if (position->step < 0 || position->step > steps || position->tokens < 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "the position is %" PRId64 " steps and %" PRId64 " tokens; expected 0 … "
                         "%" PRId64 " steps, 0 or more tokens",
                         position->step, position->tokens, steps);
    }
    if (position->tail_count != tail_behind(position->step, steps) || !isfinite(position->tail)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "the tail has %" PRId64 " losses of sum %g; expected %" PRId64
                         " behind step %" PRId64 ", and a finite sum",
                         position->tail_count, position->tail, tail_behind(position->step, steps),
                         position->step);
    }
    return SSM_STATUS_OK;
}

/* States of older versions have none. */
static ssm_status check_digest(const ssm_safetensors *file, const char *path,
                               const ssm__optimiser *optimiser, const ssm__position *position,
                               ssm_error *err)
{
    const char *was = ssm_safetensors_metadata(file, "digest");
    char digest[64];
    SSM__TRY(digest_of(optimiser, position, digest, err));
    if (was != NULL && strcmp(was, digest) != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "the digest of weights, moments and position is %s, was %.60s when it was "
                         "written: the file was changed; begin the run anew in another directory",
                         digest, was);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_file(const ssm_safetensors *file, const char *path,
                            const ssm__optimiser *optimiser, const json_t *recipe, const char *data,
                            ssm__position *position, ssm_error *err)
{
    const char *found = ssm_safetensors_metadata(file, "schema");
    if (found == NULL || strcmp(found, schema) != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "is not a training state: schema \"%.60s\", expected \"%s\"",
                         found == NULL ? "" : found, schema);
    }
    SSM__TRY(check_recipe(file, path, recipe, err));
    SSM__TRY(check_data(file, path, data, err));
    SSM__TRY(read_position(file, path, recipe, position, err));
    SSM__TRY(read_arrays(file, path, optimiser, err));
    return check_digest(file, path, optimiser, position, err);
}

ssm_status ssm__read_state(const ssm__optimiser *optimiser, const json_t *recipe, const char *data,
                           const char *directory, ssm__position *position, ssm_error *err)
{
    char *path = ssm__path_join(directory, "training/state.safetensors");
    ssm_safetensors *file = NULL;
    ssm_status status = path == NULL ? ssm__fail_memory(err, "a path", strlen(directory))
                                     : ssm_safetensors_open(path, false, &file, err);
    if (status == SSM_STATUS_OK) {
        status = read_file(file, path, optimiser, recipe, data, position, err);
    }
    ssm_safetensors_close(file);
    free(path);
    return status;
}
