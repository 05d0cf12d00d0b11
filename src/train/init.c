/* Writing a new checkpoint, one tensor after another: memory holds one block of one tensor, so the
 * largest shape needs no more than the smallest. */
#include <ssmscope/init.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "checkpoint/config_write.h"
#include "checkpoint/slots.h"
#include "safetensors/write.h"
#include "train/draw.h"

enum { BLOCK = 1 << 16 }; /* elements drawn at a time */

typedef struct init_job {
    const ssm_config *config;
    ssm_dtype dtype;
    uint64_t seed;
    const ssm_progress *progress;
    ssm_tensor *tensors;
    char (*names)[SSM__SLOT_NAME_MAX];
    ssm__slot_place *places;
    int64_t count;
    int64_t done, total; /* elements */
    float *drawn;        /* BLOCK */
    uint16_t *narrowed;  /* BLOCK */
} init_job;

/* ---- checks ---------------------------------------------------------------------------------- */

static ssm_status check_config(const ssm_config *config, ssm_dtype dtype, ssm_error *err)
{
    const bool mamba2 = config->family == SSM_FAMILY_MAMBA2;
    enum { LARGEST = 1 << 24 }; /* no dimension of a model is near it; products then fit int64 */
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab_size", config->vocab_size},
                 {"d_model", config->d_model},
                 {"n_layers", config->n_layers},
                 {"d_inner", config->d_inner},
                 {"d_state", config->d_state},
                 {"d_conv", config->d_conv},
                 {mamba2 ? "n_heads" : "dt_rank", mamba2 ? config->n_heads : config->dt_rank}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1 || sizes[i].value > LARGEST) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "%s is %" PRId64 "; expected 1 … %d", sizes[i].name, sizes[i].value,
                             LARGEST);
        }
    }
    if (mamba2 &&
        (config->n_groups < 1 || config->n_heads % config->n_groups != 0 ||
         config->n_heads * config->head_dim != config->d_ssm || config->d_ssm != config->d_inner)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "%" PRId64 " heads of %" PRId64 " in %" PRId64 " groups do not make up "
                         "d_inner %" PRId64,
                         config->n_heads, config->head_dim, config->n_groups, config->d_inner);
    }
    if (!isfinite(config->norm_eps) || config->norm_eps <= 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "norm_eps is %g; expected a finite number above 0", config->norm_eps);
    }
    if (dtype != SSM_DTYPE_F32 && dtype != SSM_DTYPE_F16 && dtype != SSM_DTYPE_BF16) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "matrices cannot be stored as %s; expected F32, F16 or BF16",
                         ssm_dtype_name(dtype));
    }
    return SSM_STATUS_OK;
}

static ssm_status check_directory(const char *directory, ssm_error *err)
{
    static const char *const held[] = {"config.json", "model.safetensors",
                                       "model.safetensors.index.json", "pytorch_model.bin"};
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        if (ssm__holds_file(directory, held[i])) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__IN_FILE(directory),
                             "the directory already holds a model (%s); choose another", held[i]);
        }
    }
    return SSM_STATUS_OK;
}

/* ---- the list of tensors --------------------------------------------------------------------- */

static ssm_status allocate(init_job *job, ssm_error *err)
{
    size_t slots = (size_t)ssm__slot_count(job->config->n_layers);
    job->tensors = calloc(slots, sizeof *job->tensors);
    job->names = calloc(slots, sizeof *job->names);
    job->places = calloc(slots, sizeof *job->places);
    job->drawn = malloc(BLOCK * sizeof *job->drawn);
    job->narrowed = malloc(BLOCK * sizeof *job->narrowed);
    if (job->tensors == NULL || job->names == NULL || job->places == NULL || job->drawn == NULL ||
        job->narrowed == NULL) {
        return ssm__fail_memory(err, "a new checkpoint", slots * sizeof *job->tensors);
    }
    return SSM_STATUS_OK;
}

static void list_tensors(init_job *job)
{
    const ssm_layer_kind kind = ssm__draw_layer(job->config);
    for (int64_t i = 0; i < ssm__slot_count(job->config->n_layers); i++) {
        ssm__slot_place place = ssm__slot_at(job->config->n_layers, i);
        if (!ssm__draw_has(job->config, place.id)) {
            continue;
        }
        ssm_tensor *tensor = &job->tensors[job->count];
        ssm__slot_name(place, job->names[job->count]);
        job->places[job->count] = place;
        *tensor = (ssm_tensor){.name = job->names[job->count]};
        tensor->dtype = ssm__slot_is_matrix(place.id) ? job->dtype : SSM_DTYPE_F32;
        tensor->n_dims = ssm__slot_shape(job->config, kind, place.id, tensor->dims);
        job->total += ssm_tensor_count(tensor);
        job->count++;
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static ssm_status add_block(init_job *job, ssm__stream *stream, ssm_dtype dtype, int64_t count,
                            ssm_error *err)
{
    if (dtype == SSM_DTYPE_F32) {
        return ssm__stream_add(stream, job->drawn, (size_t)count * sizeof(float), err);
    }
    for (int64_t i = 0; i < count; i++) {
        job->narrowed[i] = dtype == SSM_DTYPE_F16 ? ssm__f16_from_f32(job->drawn[i])
                                                  : ssm__bf16_from_f32(job->drawn[i]);
    }
    return ssm__stream_add(stream, job->narrowed, (size_t)count * sizeof(uint16_t), err);
}

static ssm_status add_tensor(init_job *job, ssm__stream *stream, int64_t i, ssm_error *err)
{
    ssm__draw draw = ssm__draw_create(job->config, job->places[i], job->seed);
    int64_t elements = ssm_tensor_count(&job->tensors[i]);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
        ssm__draw_next(&draw, first, count, job->drawn);
        SSM__TRY(add_block(job, stream, job->tensors[i].dtype, count, err));
        job->done += count;
        if (job->progress != NULL && job->progress->report != NULL &&
            !job->progress->report(job->progress->context, "initialise", job->done, job->total,
                                   "weights")) {
            return ssm__fail(err, SSM_STATUS_INTERRUPTED, SSM__NOWHERE,
                             "interrupted; nothing was written");
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status write_weights(init_job *job, const char *path, ssm_error *err)
{
    static const ssm_metadata metadata[] = {{"format", "pt"}}; /* others refuse a file without it */
    ssm__stream *stream;
    SSM__TRY(ssm__stream_open(path, job->tensors, job->count, metadata, 1, &stream, err));
    for (int64_t i = 0; i < job->count; i++) {
        ssm_status status = add_tensor(job, stream, i, err);
        if (status != SSM_STATUS_OK) {
            ssm__stream_abort(stream);
            return status;
        }
    }
    return ssm__stream_commit(stream, err);
}

static ssm_status write_all(init_job *job, const char *directory, ssm_error *err)
{
    SSM__TRY(allocate(job, err));
    list_tensors(job);
    char *path = ssm__path_join(directory, "model.safetensors");
    if (path == NULL) {
        return ssm__fail_memory(err, "a path", strlen(directory));
    }
    ssm_status status = write_weights(job, path, err);
    if (status == SSM_STATUS_OK) {
        const ssm__written_config written = {
            .config = job->config, .dtype = job->dtype, .use_conv_bias = true};
        status = ssm__hf_config_write(&written, directory, err);
        if (status != SSM_STATUS_OK) {
            unlink(path); /* weights without a configuration are no model */
        }
    }
    free(path);
    return status;
}

ssm_status ssm_init_write(const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                          const char *directory, const ssm_progress *progress, ssm_error *err)
{
    SSM__TRY(check_config(config, dtype, err));
    SSM__TRY(check_directory(directory, err));
    SSM__TRY(ssm__make_directories(directory, err));
    init_job job = {.config = config, .dtype = dtype, .seed = seed, .progress = progress};
    ssm_status status = write_all(&job, directory, err);
    free(job.tensors);
    free(job.names);
    free(job.places);
    free(job.drawn);
    free(job.narrowed);
    return status;
}
