/* Writing a new checkpoint, one tensor after another: memory holds one block of one tensor, so the
 * largest shape needs no more than the smallest. */
#include <ssmscope/init.h>
#include <ssmscope/mimetic.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "checkpoint/config_write.h"
#include "checkpoint/slots.h"
#include "safetensors/write.h"
#include "train/checkpointing.h"
#include "train/draw.h"
#include "train/mimetic_edit.h"

enum { BLOCK = 1 << 16 }; /* elements drawn at a time */

typedef struct init_job {
    const ssm_config *config;
    const ssm_layer_kind *kinds; /* NULL: all of the family's kind */
    bool original;               /* layout: Hugging Face's cannot hold the model */
    ssm_dtype dtype;
    uint64_t seed;
    const ssm_mimetic *mimetic; /* NULL: the default initialisation as it is */
    ssm__mimetic_edit *edit;
    const ssm_progress *progress;
    ssm_tensor *tensors;
    char (*names)[SSM__SLOT_NAME_MAX];
    ssm__slot_place *places;
    int64_t count;
    int64_t done, total; /* elements */
    float *drawn;        /* BLOCK */
    float *skipped;      /* BLOCK, of what is drawn twice */
    uint16_t *narrowed;  /* BLOCK */
} init_job;

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct named_size {
    const char *name;
    int64_t value;
} named_size;

static ssm_status check_sizes(const named_size *sizes, size_t count, ssm_error *err)
{
    enum { LARGEST = 1 << 24 }; /* no dimension of a model is near it; products then fit int64 */
    for (size_t i = 0; i < count; i++) {
        if (sizes[i].value < 1 || sizes[i].value > LARGEST) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "%s is %" PRId64 "; expected 1 … %d", sizes[i].name, sizes[i].value,
                             LARGEST);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_mamba2(const ssm_config *config, ssm_error *err)
{
    const named_size sizes[] = {{"n_heads", config->n_heads},
                                {"head_dim", config->head_dim},
                                {"n_groups", config->n_groups},
                                {"d_ssm", config->d_ssm}};
    SSM__TRY(check_sizes(sizes, sizeof sizes / sizeof sizes[0], err));
    if (config->d_ssm != config->n_heads * config->head_dim || config->d_ssm > config->d_inner ||
        config->n_heads % config->n_groups != 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "d_ssm is %" PRId64 " with n_heads %" PRId64 ", head_dim %" PRId64
                         ", n_groups %" PRId64 ", d_inner %" PRId64
                         "; expected n_heads · head_dim of at most d_inner, and a number of groups "
                         "that divides n_heads",
                         config->d_ssm, config->n_heads, config->head_dim, config->n_groups,
                         config->d_inner);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_attention(const ssm_config *config, ssm_error *err)
{
    const named_size sizes[] = {{"n_query_heads", config->n_query_heads},
                                {"n_kv_heads", config->n_kv_heads},
                                {"attention_head_dim", config->attention_head_dim}};
    return check_sizes(sizes, sizeof sizes / sizeof sizes[0], err);
}

static ssm_status check_config(const init_job *job, ssm_error *err)
{
    const ssm_config *config = job->config;
    const bool mamba2 = config->family == SSM_FAMILY_MAMBA2;
    const named_size sizes[] = {{"vocab_size", config->vocab_size},
                                {"d_model", config->d_model},
                                {"n_layers", config->n_layers},
                                {"d_inner", config->d_inner},
                                {"d_state", config->d_state},
                                {"d_conv", config->d_conv},
                                {"dt_rank", mamba2 ? 1 : config->dt_rank}};
    SSM__TRY(check_sizes(sizes, sizeof sizes / sizeof sizes[0], err));
    if (mamba2) {
        SSM__TRY(check_mamba2(config, err));
    }
    if (config->n_query_heads > 0) {
        SSM__TRY(check_attention(config, err));
        if (job->kinds == NULL) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "the shape has layers of attention, and which ones was not said");
        }
    }
    if (!isfinite(config->norm_eps) || config->norm_eps <= 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "norm_eps is %g; expected a finite number above 0", config->norm_eps);
    }
    if (config->layer_norm) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "new checkpoints with LayerNorm are not written");
    }
    if (job->dtype != SSM_DTYPE_F32 && job->dtype != SSM_DTYPE_F16 &&
        job->dtype != SSM_DTYPE_BF16) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "matrices cannot be stored as %s; expected F32, F16 or BF16",
                         ssm_dtype_name(job->dtype));
    }
    return SSM_STATUS_OK;
}

static bool needs_original(const init_job *job)
{
    const ssm_config *config = job->config;
    return config->n_query_heads > 0 || config->d_mlp > 0 ||
           (config->family == SSM_FAMILY_MAMBA2 &&
            (config->d_ssm < config->d_inner || config->D_per_channel || !config->gated_norm ||
             config->norm_before_gate));
}

/* What an initialisation that was killed left of its weights. */
static ssm_status remove_remains(const char *path, ssm_error *err)
{
    static const char start[] = ".model.safetensors.";
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return errno == ENOMEM ? ssm__fail_memory(err, "a directory", 0) : SSM_STATUS_OK;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strncmp(entry->d_name, start, sizeof start - 1) == 0 &&
            ssm__ends_with(entry->d_name, ".tmp")) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    closedir(directory);
    return SSM_STATUS_OK;
}

/* Makes the directory and locks it until *lock is closed, or the process ends: of two at once both
 * would say that they had written the model. A file system without locks is used without. */
static ssm_status take_directory(const char *path, int *lock, ssm_error *err)
{
    SSM__TRY(ssm__make_directories(path, err));
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return ssm__fail(
            err, SSM_STATUS_FAILED, SSM__IN_FILE(path),
            "another process is writing into this directory: wait until it is done, or "
            "choose another");
    }
    SSM__TRY(ssm__check_no_model(path, err)); /* again: it may just have been done */
    return remove_remains(path, err);
}

/* ---- the list of tensors --------------------------------------------------------------------- */

static ssm_status allocate(init_job *job, ssm_error *err)
{
    size_t slots = (size_t)ssm__slot_count(job->config->n_layers);
    job->tensors = calloc(slots, sizeof *job->tensors);
    job->names = calloc(slots, sizeof *job->names);
    job->places = calloc(slots, sizeof *job->places);
    job->drawn = malloc(BLOCK * sizeof *job->drawn);
    job->skipped = malloc(BLOCK * sizeof *job->skipped);
    job->narrowed = malloc(BLOCK * sizeof *job->narrowed);
    if (job->tensors == NULL || job->names == NULL || job->places == NULL || job->drawn == NULL ||
        job->skipped == NULL || job->narrowed == NULL) {
        return ssm__fail_memory(err, "a new checkpoint", slots * sizeof *job->tensors);
    }
    return SSM_STATUS_OK;
}

static ssm_layer_kind kind_at(const init_job *job, int64_t layer)
{
    if (job->kinds != NULL && layer >= 0) {
        return job->kinds[layer];
    }
    return job->config->family == SSM_FAMILY_MAMBA2 ? SSM_LAYER_MAMBA2 : SSM_LAYER_MAMBA;
}

static void list_tensors(init_job *job)
{
    for (int64_t i = 0; i < ssm__slot_count(job->config->n_layers); i++) {
        ssm__slot_place place = ssm__slot_at(job->config->n_layers, i);
        const ssm_layer_kind kind = kind_at(job, place.layer);
        if (!ssm__draw_has(job->config, kind, place.id)) {
            continue;
        }
        ssm_tensor *tensor = &job->tensors[job->count];
        if (place.id == SSM__SLOT_embedding && job->original) {
            snprintf(job->names[job->count], SSM__SLOT_NAME_MAX, "backbone.embedding.weight");
        } else {
            ssm__slot_name(place, job->names[job->count]);
        }
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

/* What the default initialisation gives: a stream has no middle, so what stands in front is drawn
 * and left. */
static bool draw_range(void *source, ssm__slot_place place, int64_t first, int64_t count,
                       float *out)
{
    init_job *job = source;
    const ssm_layer_kind kind = kind_at(job, place.layer);
    if (!ssm__draw_has(job->config, kind, place.id)) {
        return false;
    }
    ssm__draw draw = ssm__draw_create(job->config, kind, place, job->seed);
    for (int64_t i = 0; i < first; i += BLOCK) {
        ssm__draw_next(&draw, i, first - i < BLOCK ? first - i : BLOCK, job->skipped);
    }
    ssm__draw_next(&draw, first, count, out);
    return true;
}

static ssm_status add_tensor(init_job *job, ssm__stream *stream, int64_t i, ssm_error *err)
{
    const ssm_layer_kind kind = kind_at(job, job->places[i].layer);
    ssm__draw draw = ssm__draw_create(job->config, kind, job->places[i], job->seed);
    int64_t elements = ssm_tensor_count(&job->tensors[i]);
    const bool edited = job->edit != NULL && ssm__mimetic_edit_concerns(job->edit, job->places[i]);
    for (int64_t first = 0; first < elements; first += BLOCK) {
        int64_t count = elements - first < BLOCK ? elements - first : BLOCK;
        ssm__draw_next(&draw, first, count, job->drawn);
        if (edited) {
            SSM__TRY(
                ssm__mimetic_edit_block(job->edit, job->places[i], first, count, job->drawn, err));
        }
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
    enum { TEXT = 512 };
    char text[TEXT];
    ssm_metadata metadata[2] = {{"format", "pt"}}; /* others refuse a file without it */
    ssm__stream *stream;
    if (job->mimetic != NULL) {
        ssm__mimetic_describe(job->mimetic, text, sizeof text);
        metadata[1] = (ssm_metadata){"mimetic", text};
    }
    SSM__TRY(ssm__stream_open(path, job->tensors, job->count, metadata,
                              job->mimetic == NULL ? 1 : 2, &stream, err));
    for (int64_t i = 0; i < job->count; i++) {
        ssm_status status = add_tensor(job, stream, i, err);
        if (status != SSM_STATUS_OK) {
            ssm__stream_abort(stream);
            return status;
        }
    }
    return ssm__stream_commit(stream, err);
}

static ssm_status write_config(const init_job *job, const char *directory, ssm_error *err)
{
    const int64_t n_layers = job->config->n_layers;
    int64_t *attention = calloc((size_t)n_layers, sizeof *attention);
    if (attention == NULL) {
        return ssm__fail_memory(err, "a list of layers", (size_t)n_layers * sizeof *attention);
    }
    ssm__written_config written = {.config = job->config,
                                   .dtype = job->dtype,
                                   .use_conv_bias = true,
                                   .attention_layers = attention};
    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (kind_at(job, layer) == SSM_LAYER_ATTENTION) {
            attention[written.n_attention++] = layer;
        }
    }
    ssm_status status = job->original ? ssm__original_config_write(&written, directory, err)
                                      : ssm__hf_config_write(&written, directory, err);
    free(attention);
    return status;
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
        status = write_config(job, directory, err);
        if (status != SSM_STATUS_OK) {
            unlink(path); /* weights without a configuration are no model */
        }
    }
    free(path);
    return status;
}

static ssm_status write_checked(init_job *job, const char *directory, ssm_error *err)
{
    const bool was_there = ssm__is_directory(directory);
    int lock = -1;
    ssm_status status = take_directory(directory, &lock, err);
    const bool taken = status == SSM_STATUS_OK;
    status = taken ? write_all(job, directory, err) : status;
    if (taken && status != SSM_STATUS_OK && !was_there) {
        rmdir(directory); /* stays where something else is in it */
    }
    if (lock >= 0) {
        close(lock);
    }
    return status;
}

ssm_status ssm_init_write_mimetic(const ssm_config *config, const ssm_layer_kind *kinds,
                                  const ssm_mimetic *mimetic, ssm_dtype dtype, uint64_t seed,
                                  const char *directory, const ssm_progress *progress,
                                  ssm_error *err)
{
    init_job job = {.config = config,
                    .kinds = kinds,
                    .dtype = dtype,
                    .seed = seed,
                    .mimetic = mimetic,
                    .progress = progress};
    SSM__TRY(check_config(&job, err));
    job.original = needs_original(&job);
    SSM__TRY(ssm__check_no_model(directory, err));
    if (mimetic != NULL) {
        const ssm__mimetic_job edit = {.mimetic = mimetic,
                                       .config = config,
                                       .kinds = kinds,
                                       .seed = seed,
                                       .read = draw_range,
                                       .source = &job};
        SSM__TRY(ssm__mimetic_edit_create(&edit, &job.edit, err));
    }
    const ssm_status status = write_checked(&job, directory, err);
    ssm__mimetic_edit_free(job.edit);
    free(job.tensors);
    free(job.names);
    free(job.places);
    free(job.drawn);
    free(job.skipped);
    free(job.narrowed);
    return status;
}

ssm_status ssm_init_write_layers(const ssm_config *config, const ssm_layer_kind *kinds,
                                 ssm_dtype dtype, uint64_t seed, const char *directory,
                                 const ssm_progress *progress, ssm_error *err)
{
    return ssm_init_write_mimetic(config, kinds, NULL, dtype, seed, directory, progress, err);
}

ssm_status ssm_init_write(const ssm_config *config, ssm_dtype dtype, uint64_t seed,
                          const char *directory, const ssm_progress *progress, ssm_error *err)
{
    return ssm_init_write_layers(config, NULL, dtype, seed, directory, progress, err);
}
