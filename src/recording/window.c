#include "recording/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recording/schema.h"
#include "recording/sum.h"

enum { NAME_BYTES = 64 };

/* True for the fields that the file of this window holds, its Gram only where asked for. */
static bool is_written(const ssm__window_files *files, const ssm__field *field, bool gram)
{
    return (gram || (field->flags & SSM__FIELD_GRAM) == 0) &&
           ssm__schema_has(files->info, field, files->role);
}

/* ---- open ------------------------------------------------------------------------------------ */

typedef struct header {
    ssm_tensor *tensors;
    char (*names)[NAME_BYTES];
    int64_t count;
} header;

/* The fields of a layer, or (layer −1) of the window, as the shard's header has them. */
static void add_fields(header *h, const ssm__window_files *files, int64_t layer)
{
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        if (field->of_layer != (layer >= 0) || !is_written(files, field, true)) {
            continue;
        }
        ssm_tensor *tensor = &h->tensors[h->count];
        *tensor = (ssm_tensor){.name = h->names[h->count], .dtype = field->dtype};
        ssm__tensor_name(h->names[h->count], NAME_BYTES, layer, field->name);
        tensor->n_dims = ssm__schema_shape(files->info, field, files->tokens, tensor->dims);
        h->count++;
    }
}

static ssm_status open_shard(ssm__window_files *files, const ssm_recording_window *about,
                             const ssm__window_place *place, ssm_error *err)
{
    char index[32];
    snprintf(index, sizeof index, "%lld", (long long)place->window);
    const ssm_metadata metadata[] = {
        {"schema", SSM__WINDOW_SCHEMA},
        {"recording", files->info->digest},
        {"window", index},
        {"domain", about->domain},
        {"role", about->role == SSM_ROLE_CALIBRATION ? "calibration" : "evaluation"}};
    size_t fields = 1; /* one more than there are, so that the memory is never empty */
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        fields++;
    }
    size_t most = fields * ((size_t)files->info->n_recorded + 1);
    header h = {.tensors = calloc(most, sizeof *h.tensors), .names = calloc(most, sizeof *h.names)};
    ssm_status status = SSM_STATUS_OK;
    if (h.tensors == NULL || h.names == NULL) {
        status = ssm__fail_memory(err, "a window's list of tensors", most * sizeof *h.tensors);
    } else {
        for (int64_t i = 0; i < files->info->n_recorded; i++) {
            add_fields(&h, files, files->info->layers[i]);
        }
        add_fields(&h, files, -1);
        status =
            ssm__stream_open(place->shard, h.tensors, h.count, metadata, 5, &files->shard, err);
    }
    free(h.tensors);
    free(h.names);
    return status;
}

ssm_status ssm__window_open(const ssm_recording_info *info, const ssm_recording_window *about,
                            const ssm__window_place *place, ssm__window_files *out, ssm_error *err)
{
    *out = (ssm__window_files){.info = info, .tokens = about->tokens, .role = about->role};
    ssm_status status = SSM_STATUS_OK;
    if (place->sum != NULL) {
        status = ssm__sum_open(place->directory, info, place->sum, place->summed, &out->old_sum,
                               &out->sum, err);
    }
    if (status == SSM_STATUS_OK && place->shard != NULL) {
        status = open_shard(out, about, place, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm__window_abort(out);
    }
    return status;
}

/* ---- put ------------------------------------------------------------------------------------- */

static const ssm_tensor *find(const ssm_tensor *tensors, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i].name != NULL && strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* The tensor of one field, checked. */
static ssm_status get_field(const ssm__window_files *files, int64_t layer, const ssm__field *field,
                            const ssm_tensor *tensors, int64_t count, const ssm_tensor **out,
                            ssm_error *err)
{
    char name[NAME_BYTES];
    ssm__tensor_name(name, sizeof name, layer, field->name);
    *out = find(tensors, count, name);
    if (*out == NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(NULL, name),
                         "the writer was not given this tensor");
    }
    int64_t dims[SSM_MAX_DIMS];
    int n_dims = ssm__schema_shape(files->info, field, files->tokens, dims);
    return ssm__check_named(*out, layer, field->name, field->dtype, n_dims, dims, err);
}

static ssm_status check_fields(const ssm__window_files *files, int64_t layer,
                               const ssm_tensor *tensors, int64_t count, ssm_error *err)
{
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        if (field->of_layer == (layer >= 0) && is_written(files, field, false)) {
            const ssm_tensor *tensor;
            SSM__TRY(get_field(files, layer, field, tensors, count, &tensor, err));
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status write_fields(const ssm__window_files *files, int64_t layer,
                               const ssm_tensor *tensors, int64_t count, const ssm_tensor *gram,
                               ssm_error *err)
{
    for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
        if (field->of_layer != (layer >= 0) || !is_written(files, field, true)) {
            continue;
        }
        if ((field->flags & SSM__FIELD_GRAM) != 0) {
            SSM__TRY(ssm__sum_write_float(files->shard, gram->data, ssm_tensor_count(gram), err));
            continue;
        }
        const ssm_tensor *tensor;
        SSM__TRY(get_field(files, layer, field, tensors, count, &tensor, err));
        size_t bytes = (size_t)ssm_tensor_count(tensor) * ssm_dtype_size(tensor->dtype);
        SSM__TRY(ssm__stream_add(files->shard, tensor->data, bytes, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__window_put_layer(ssm__window_files *files, const ssm_tensor *tensors, int64_t count,
                                 const ssm_tensor *gram, ssm_error *err)
{
    const ssm_recording_info *info = files->info;
    if (files->next >= info->n_recorded) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the writer was given more than the %lld recorded layers",
                         (long long)info->n_recorded);
    }
    const int64_t layer = info->layers[files->next];
    const int64_t dims[2] = {ssm_recording_channels(info), ssm__gram_entries(info->d_state)};
    SSM__TRY(check_fields(files, layer, tensors, count, err));
    if (info->has_gram) {
        const ssm_tensor none = {.name = NULL};
        SSM__TRY(ssm__check_named(gram == NULL ? &none : gram, layer, "gram", SSM_DTYPE_F64, 2,
                                  dims, err));
    }
    if (files->sum != NULL) {
        SSM__TRY(ssm__sum_put(files->sum, files->old_sum, gram, err));
    }
    if (files->shard != NULL) {
        SSM__TRY(write_fields(files, layer, tensors, count, gram, err));
    }
    files->next++;
    return SSM_STATUS_OK;
}

ssm_status ssm__window_put_rest(ssm__window_files *files, const ssm_tensor *tensors, int64_t count,
                                ssm_error *err)
{
    SSM__TRY(check_fields(files, -1, tensors, count, err));
    if (files->next != files->info->n_recorded) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the writer was given %lld of %lld layers", (long long)files->next,
                         (long long)files->info->n_recorded);
    }
    return files->shard == NULL ? SSM_STATUS_OK
                                : write_fields(files, -1, tensors, count, NULL, err);
}

/* ---- close ----------------------------------------------------------------------------------- */

ssm_status ssm__window_commit(ssm__window_files *files, bool *summed, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    *summed = false;
    if (files->sum != NULL) {
        status = ssm__stream_commit(files->sum, err);
        files->sum = NULL;
        *summed = status == SSM_STATUS_OK;
    }
    if (status == SSM_STATUS_OK && files->shard != NULL) {
        status = ssm__stream_commit(files->shard, err);
        files->shard = NULL;
    }
    ssm__window_abort(files);
    return status;
}

void ssm__window_abort(ssm__window_files *files)
{
    ssm__stream_abort(files->sum);
    ssm__stream_abort(files->shard);
    ssm_safetensors_close(files->old_sum);
    *files = (ssm__window_files){0};
}
