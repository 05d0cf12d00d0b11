#include "recording/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum {
    CHANNEL_ERROR = SSM__FIELD_MAMBA2 | SSM__FIELD_EVALUATION,
    STATIC_ERROR = CHANNEL_ERROR | SSM__FIELD_CALIBRATED
};

static const ssm__field fields[] = {
    {"gram", SSM_DTYPE_F32, "HG", true, SSM__FIELD_GRAM},
    {"energy_blocks", SSM_DTYPE_F32, "BHN", true, 0},
    {"energy", SSM_DTYPE_F32, "HPN", true, SSM__FIELD_MAMBA2},
    {"output_energy", SSM_DTYPE_F32, "H", true, 0},
    {"state_moment", SSM_DTYPE_F32, "HN", true, 0},
    {"read_moment", SSM_DTYPE_F32, "HN", true, 0},
    {"delta_mean", SSM_DTYPE_F32, "H", true, 0},
    {"adjoint_moment", SSM_DTYPE_F32, "HN", true, 0},
    {"channel_error_static", SSM_DTYPE_F64, "R", true, STATIC_ERROR},
    {"channel_error_diag", SSM_DTYPE_F64, "R", true, CHANNEL_ERROR},
    {"channel_churn_null", SSM_DTYPE_F64, "R", true, CHANNEL_ERROR},
    {"nll", SSM_DTYPE_F32, "U", false, 0},
    {"ids", SSM_DTYPE_I32, "T", false, 0},
    {NULL, SSM_DTYPE_F32, "", false, 0},
};

const ssm__field *ssm__schema_fields(void)
{
    return fields;
}

const ssm__field *ssm__schema_find(ssm_family family, bool of_layer, const char *name)
{
    for (const ssm__field *field = fields; field->name != NULL; field++) {
        if (field->of_layer == of_layer && strcmp(field->name, name) == 0 &&
            ((field->flags & SSM__FIELD_MAMBA2) == 0 || family == SSM_FAMILY_MAMBA2)) {
            return field;
        }
    }
    return NULL;
}

bool ssm__schema_has(const ssm_recording_info *info, const ssm__field *field, ssm_role role)
{
    const bool evaluation = role == SSM_ROLE_EVALUATION;
    if ((field->flags & SSM__FIELD_GRAM) != 0) {
        return info->has_gram && (evaluation || info->has_window_gram);
    }
    return ((field->flags & SSM__FIELD_MAMBA2) == 0 || info->family == SSM_FAMILY_MAMBA2) &&
           ((field->flags & SSM__FIELD_EVALUATION) == 0 || (evaluation && info->has_gram)) &&
           ((field->flags & SSM__FIELD_CALIBRATED) == 0 || info->has_calibration);
}

int64_t ssm__gram_entries(int64_t d_state)
{
    return (d_state + 1) * (d_state + 2) / 2;
}

int64_t ssm__energy_blocks(int64_t tokens)
{
    return (tokens + SSM__BLOCK_TOKENS - 1) / SSM__BLOCK_TOKENS;
}

ssm_status ssm__check_budgets(const int64_t *budgets, int64_t count, int64_t d_state,
                              ssm_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (budgets[i] < 1 || budgets[i] >= d_state) {
            return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                             "budget %lld is outside 1 … %lld (d_state is %lld)",
                             (long long)budgets[i], (long long)d_state - 1, (long long)d_state);
        }
        for (int64_t k = 0; k < i; k++) {
            if (budgets[k] == budgets[i]) {
                return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE, "budget %lld is given twice",
                                 (long long)budgets[i]);
            }
        }
    }
    return SSM_STATUS_OK;
}

static int64_t dimension(const ssm_recording_info *info, char letter, int64_t tokens)
{
    switch (letter) {
    case 'H':
        return ssm_recording_channels(info);
    case 'N':
        return info->d_state;
    case 'P':
        return info->head_dim;
    case 'G':
        return ssm__gram_entries(info->d_state);
    case 'B':
        return ssm__energy_blocks(tokens);
    case 'R':
        return info->n_budgets;
    case 'T':
        return tokens;
    default: /* U */
        return tokens - 1;
    }
}

int ssm__schema_shape(const ssm_recording_info *info, const ssm__field *field, int64_t tokens,
                      int64_t dims[SSM_MAX_DIMS])
{
    int n_dims = 0;
    for (const char *letter = field->shape; *letter != '\0'; letter++) {
        dims[n_dims++] = dimension(info, *letter, tokens);
    }
    return n_dims;
}

bool ssm__tensor_name(char *out, size_t size, int64_t layer, const char *name)
{
    int length = layer < 0 ? snprintf(out, size, "%s", name)
                           : snprintf(out, size, "layers.%lld.%s", (long long)layer, name);
    return length >= 0 && (size_t)length < size;
}

/* "[2, 64, 16]". */
static void print_shape(char *out, size_t size, int n_dims, const int64_t *dims)
{
    size_t used = 0;
    int length = snprintf(out, size, "[");
    for (int i = 0; i < n_dims && length >= 0 && used + (size_t)length < size; i++) {
        used += (size_t)length;
        length = snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "", (long long)dims[i]);
    }
    if (length >= 0 && used + (size_t)length < size) {
        used += (size_t)length;
        snprintf(out + used, size - used, "]");
    }
}

ssm_status ssm__schema_check(const ssm_tensor *tensor, const char *path, ssm_dtype dtype,
                             int n_dims, const int64_t *dims, ssm_error *err)
{
    if (tensor->dtype == dtype && tensor->n_dims == n_dims &&
        memcmp(tensor->dims, dims, (size_t)n_dims * sizeof *dims) == 0) {
        return SSM_STATUS_OK;
    }
    char expected[160];
    char found[160];
    print_shape(expected, sizeof expected, n_dims, dims);
    print_shape(found, sizeof found, tensor->n_dims, tensor->dims);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, tensor->name),
                     "expected %s %s, found %s %s: the file does not belong to this recording",
                     ssm_dtype_name(dtype), expected, ssm_dtype_name(tensor->dtype), found);
}
