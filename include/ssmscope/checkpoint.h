/* ssmscope/checkpoint.h: tensors, safetensors files, checkpoints and their configuration. */
#ifndef SSMSCOPE_CHECKPOINT_H
#define SSMSCOPE_CHECKPOINT_H

#include <ssmscope/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes and tensors ---------------------------------------------------------------------- */

/* Enum name, safetensors name, bytes. Types below F64 are known so that they can be named. */
#define SSM_DTYPES(X)                                                                              \
    X(F32, "F32", 4)                                                                               \
    X(F16, "F16", 2)                                                                               \
    X(BF16, "BF16", 2)                                                                             \
    X(F64, "F64", 8)                                                                               \
    X(I64, "I64", 8)                                                                               \
    X(I32, "I32", 4)                                                                               \
    X(I16, "I16", 2)                                                                               \
    X(I8, "I8", 1)                                                                                 \
    X(U64, "U64", 8)                                                                               \
    X(U32, "U32", 4)                                                                               \
    X(U16, "U16", 2)                                                                               \
    X(U8, "U8", 1)                                                                                 \
    X(BOOL, "BOOL", 1)

typedef enum ssm_dtype {
#define SSM_DTYPE_ENUM(name, text, size) SSM_DTYPE_##name,
    SSM_DTYPES(SSM_DTYPE_ENUM)
#undef SSM_DTYPE_ENUM
        SSM_DTYPE_COUNT
} ssm_dtype;

SSM_API const char *ssm_dtype_name(ssm_dtype dtype);
SSM_API size_t ssm_dtype_size(ssm_dtype dtype);

enum { SSM_MAX_DIMS = 8 };

/* A view of a dense row-major tensor. data may be unaligned; whoever made the view owns it. */
typedef struct ssm_tensor {
    const char *name;
    ssm_dtype dtype;
    int n_dims;
    int64_t dims[SSM_MAX_DIMS];
    const void *data; /* NULL: no such tensor */
    size_t bytes;
    const char *file;    /* path it came from, or NULL */
    int64_t file_offset; /* byte offset of data in that file */
} ssm_tensor;

/* Number of elements (1 for a 0-dim tensor). */
SSM_API int64_t ssm_tensor_count(const ssm_tensor *tensor);
/* Element i as float64; F32, F16, BF16, F64 and the integers. */
SSM_API double ssm_tensor_get(const ssm_tensor *tensor, int64_t i);

/* ---- one safetensors file -------------------------------------------------------------------- */

typedef struct ssm_safetensors ssm_safetensors;

typedef struct ssm_metadata {
    const char *key;
    const char *value;
} ssm_metadata;

/* Maps the file read-only and checks all of it: header length (≤ 100 MB), JSON, dtypes, shapes,
 * offsets without holes or overlaps, no duplicate keys, no trailing bytes (allowed when lenient).
 * Errors: FILE with file, tensor and offset; MEMORY. Owner: the caller. */
SSM_API ssm_status ssm_safetensors_open(const char *path, bool lenient, ssm_safetensors **out,
                                        ssm_error *err);
SSM_API void ssm_safetensors_close(ssm_safetensors *file);
SSM_API int64_t ssm_safetensors_count(const ssm_safetensors *file);
/* In the order of the data; valid until close. */
SSM_API const ssm_tensor *ssm_safetensors_at(const ssm_safetensors *file, int64_t i);
/* NULL when there is none. */
SSM_API const ssm_tensor *ssm_safetensors_find(const ssm_safetensors *file, const char *name);
/* Value of a __metadata__ key, NULL when there is none. */
SSM_API const char *ssm_safetensors_metadata(const ssm_safetensors *file, const char *key);

/* Writes tensors (name, dtype, dims, data) in the order given, with data aligned to 64 bytes, and
 * metadata, atomically: temporary name, fsync, rename. The same input gives the same bytes.
 * Errors: FAILED (disk full, no permission), MEMORY. */
SSM_API ssm_status ssm_safetensors_write(const char *path, const ssm_tensor *tensors, int64_t count,
                                         const ssm_metadata *metadata, int64_t metadata_count,
                                         ssm_error *err);

/* ---- configuration --------------------------------------------------------------------------- */

typedef enum ssm_family { SSM_FAMILY_MAMBA, SSM_FAMILY_FALCON_MAMBA, SSM_FAMILY_MAMBA2 } ssm_family;

SSM_API const char *ssm_family_name(ssm_family family); /* "mamba", "falcon_mamba", "mamba2" */

/* What a model is. Shapes of tensors decide; config.json is a claim that was compared with them. */
typedef struct ssm_config {
    ssm_family family;
    int64_t vocab_size; /* rows of the embedding */
    int64_t d_model;
    int64_t n_layers;
    int64_t d_inner;
    int64_t d_state;
    int64_t d_conv;
    int64_t dt_rank; /* Mamba-1, Falcon-Mamba; else 0 */

    /* Mamba-2; zero or false in the other families */
    int64_t n_heads, head_dim, n_groups;
    int64_t d_ssm;                      /* n_heads·head_dim, the width of the scan, ≤ d_inner */
    int64_t norm_groups;                /* of the gated RMSNorm; n_groups unless asked for */
    bool gated_norm;                    /* false: y = v·SiLU(z) without a norm */
    bool norm_before_gate;              /* norm(v)·w·SiLU(z) instead of norm(v·SiLU(z))·w */
    bool D_per_channel;                 /* D is [d_ssm] (D_has_hdim), not [n_heads] */
    double dt_limit_low, dt_limit_high; /* Δ is clamped to them; 0 and infinity do nothing */

    /* layers of attention among those of Mamba (ssm_checkpoint_layer_kind); zero when there are
     * none */
    int64_t n_query_heads, n_kv_heads, attention_head_dim;
    int64_t attention_conv; /* width of the causal convolution on q, k, v; 0: none */
    int64_t rotary_dim;     /* rotated leading coordinates of a head; 0: none */
    double rotary_base;
    bool rotary_interleaved; /* pairs (2i, 2i+1) instead of (i, i + rotary_dim/2) */
    double softmax_scale;

    int64_t d_mlp;   /* hidden width of the gated MLP of every block; 0: none */
    bool layer_norm; /* LayerNorm with bias in place of RMSNorm */
    double norm_eps;
    double mixer_norm_eps;          /* of the norms inside the mixer (Falcon-Mamba, Mamba-2) */
    bool tied;                      /* lm_head shares the embedding */
    int64_t bos_id, eos_id, pad_id; /* -1: not given */
} ssm_config;

/* What stands in a block's place of the mixer. Falcon-Mamba's is Mamba's. */
typedef enum ssm_layer_kind {
    SSM_LAYER_MAMBA,
    SSM_LAYER_MAMBA2,
    SSM_LAYER_ATTENTION,
    SSM_LAYER_KINDS
} ssm_layer_kind;

SSM_API const char *ssm_layer_kind_name(ssm_layer_kind kind); /* "mamba", "mamba2", "attention" */

/* ---- checkpoint ------------------------------------------------------------------------------ */

typedef struct ssm_checkpoint ssm_checkpoint;

typedef struct ssm_checkpoint_options {
    bool lenient;        /* accept trailing bytes in safetensors files */
    bool ignore_index;   /* accept a stale index when the files present fill every slot */
    int64_t norm_groups; /* groups of Mamba-2's gated norm in place of n_groups; 0: n_groups */
} ssm_checkpoint_options;

/* Opens a model directory, a file of weights (safetensors, or as torch.save writes) or an index
 * beside its config.json or params.json, resolves every tensor of the family to its slot, compares
 * shapes with the configuration and decides the head. options may be NULL. Non-finite weights are
 * not looked for here (ssm_checkpoint_check_finite).
 * Errors: FILE (missing, malformed, conflicting: both numbers are named), USAGE (norm_groups that
 * the model cannot have), MEMORY. */
SSM_API ssm_status ssm_checkpoint_open(const char *path, const ssm_checkpoint_options *options,
                                       ssm_checkpoint **out, ssm_error *err);
SSM_API void ssm_checkpoint_close(ssm_checkpoint *checkpoint);
SSM_API const char *ssm_checkpoint_path(const ssm_checkpoint *checkpoint);
SSM_API const ssm_config *ssm_checkpoint_config(const ssm_checkpoint *checkpoint);
SSM_API ssm_layer_kind ssm_checkpoint_layer_kind(const ssm_checkpoint *checkpoint, int64_t layer);
/* Ids that the configuration's vocab_size names, at most the rows of the embedding and all of them
 * where it does not say: the rows behind are padding, which the soft-max has and no text. */
SSM_API int64_t ssm_checkpoint_named_ids(const ssm_checkpoint *checkpoint);
/* All tensors of the files, used or not. */
SSM_API int64_t ssm_checkpoint_count(const ssm_checkpoint *checkpoint);
SSM_API const ssm_tensor *ssm_checkpoint_at(const ssm_checkpoint *checkpoint, int64_t i);
SSM_API bool ssm_checkpoint_used(const ssm_checkpoint *checkpoint, int64_t i);
/* Plain sentences about the load: the tie decision, ignored claims, unused tensors. */
SSM_API int64_t ssm_checkpoint_note_count(const ssm_checkpoint *checkpoint);
SSM_API const char *ssm_checkpoint_note(const ssm_checkpoint *checkpoint, int64_t i);
/* Reads every used weight once; FILE with the tensor named at the first NaN or infinity. */
SSM_API ssm_status ssm_checkpoint_check_finite(const ssm_checkpoint *checkpoint, ssm_error *err);
/* "xxh3-128:…" over names, dtypes, shapes and bytes of the used tensors in slot order and over the
 * resolved configuration; independent of file layout. Reads the whole model once. */
SSM_API ssm_status ssm_checkpoint_digest(const ssm_checkpoint *checkpoint, char out[64],
                                         ssm_error *err);
/* "xxh3-128:…" of a file's bytes. Errors: FILE. */
SSM_API ssm_status ssm_file_digest(const char *path, char out[64], ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
