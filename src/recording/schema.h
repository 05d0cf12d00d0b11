/* recording/schema.h: which tensors a window file holds, with their dtypes and shapes. */
#ifndef SSM_RECORDING_SCHEMA_H
#define SSM_RECORDING_SCHEMA_H

#include <ssmscope/recording.h>

/* Tokens of one energy block. */
enum { SSM__BLOCK_TOKENS = 64 };

/* One tensor of the schema. Its shape is a word of one letter a dimension: H channels (heads for
 * Mamba-2), N d_state, P head_dim, G Gram entries, B energy blocks, T tokens, U scored tokens,
 * R recorded budgets. */
typedef struct ssm__field {
    const char *name;
    ssm_dtype dtype;
    const char *shape;
    bool of_layer; /* "layers.N.<name>"; else one a window */
    unsigned flags;
} ssm__field;

enum {
    SSM__FIELD_MAMBA2 = 1,     /* what the Gram of a head cannot give */
    SSM__FIELD_EVALUATION = 2, /* of evaluation windows, unless recorded with --no-gram */
    SSM__FIELD_CALIBRATED = 4, /* only where there are calibration windows */
    SSM__FIELD_GRAM = 8        /* not of calibration windows unless has_window_gram */
};

/* All fields, in the order of the documentation; the list ends with a NULL name. */
const ssm__field *ssm__schema_fields(void);
/* The field of this name for this family (layer: one of a layer), or NULL. */
const ssm__field *ssm__schema_find(ssm_family family, bool of_layer, const char *name);
/* True when windows of this role have the field in their file. */
bool ssm__schema_has(const ssm_recording_info *info, const ssm__field *field, ssm_role role);
/* Entries of the upper triangle of the Gram of (m_0 … m_{N−1}, f). */
int64_t ssm__gram_entries(int64_t d_state);
/* Place of entry (i, j), i ≤ j ≤ N, among them: row by row. */
static inline int64_t ssm__gram_index(int64_t i, int64_t j, int64_t d_state)
{
    return i * (d_state + 1) - i * (i - 1) / 2 + (j - i);
}
/* Blocks of 64 tokens, the last one may be shorter. */
int64_t ssm__energy_blocks(int64_t tokens);
/* USAGE for a budget outside 1 … d_state−1 or given twice. */
ssm_status ssm__check_budgets(const int64_t *budgets, int64_t count, int64_t d_state,
                              ssm_error *err);
/* Shape of `field` in a window of `tokens` tokens; returns the number of dimensions. */
int ssm__schema_shape(const ssm_recording_info *info, const ssm__field *field, int64_t tokens,
                      int64_t dims[SSM_MAX_DIMS]);
/* "layers.N.<name>" for layer ≥ 0, else name. False when it does not fit. */
bool ssm__tensor_name(char *out, size_t size, int64_t layer, const char *name);
/* FILE with file and tensor named unless `tensor` has this dtype and this shape. */
ssm_status ssm__schema_check(const ssm_tensor *tensor, const char *path, ssm_dtype dtype,
                             int n_dims, const int64_t *dims, ssm_error *err);

#endif
