#include "recording/energies.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* Shell sort with Ciura's gaps: in place, no recursion; N is 16 to 256. The key (energy, index) has
 * no equal pair, so the result does not depend on the method. */
void ssm__rank_modes(const double *energy, int64_t n, int32_t *order)
{
    static const int64_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (int64_t i = 0; i < n; i++) {
        order[i] = (int32_t)i;
    }
    for (size_t g = n <= 24 ? 7 : 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        int64_t gap = gaps[g];
        for (int64_t i = gap; i < n; i++) {
            int32_t moved = order[i];
            double value = energy[moved];
            int64_t k = i;
            for (; k >= gap; k -= gap) {
                int32_t other = order[k - gap];
                if (energy[other] > value || (energy[other] == value && other < moved)) {
                    break;
                }
                order[k] = other;
            }
            order[k] = moved;
        }
    }
}

void ssm__keep_top(const double *scores, int64_t channels, int64_t d_state, int64_t budget,
                   int32_t *order, uint8_t *keep)
{
    memset(keep, 0, (size_t)(channels * d_state));
    for (int64_t h = 0; h < channels; h++) {
        ssm__rank_modes(scores + h * d_state, d_state, order);
        for (int64_t k = 0; k < budget; k++) {
            keep[h * d_state + order[k]] = 1;
        }
    }
}

ssm_status ssm__check_finite(const ssm_tensor *tensor, bool non_negative, ssm_error *err)
{
    int64_t count = ssm_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)tensor->data + (size_t)i * sizeof value, sizeof value);
        if (!isfinite(value) || (non_negative && value < 0.0F)) {
            ssm__place place = {tensor->file, tensor->name,
                                tensor->file_offset + i * (int64_t)sizeof value};
            return ssm__fail(err, SSM_STATUS_FILE, place, "element %lld is %g: expected %s",
                             (long long)i, (double)value,
                             non_negative ? "a finite number ≥ 0" : "a finite number");
        }
    }
    return SSM_STATUS_OK;
}

bool ssm__scope_is_finer(const ssm_recording_info *info, ssm_scope scope)
{
    return info->family == SSM_FAMILY_MAMBA2 && scope != SSM_SCOPE_HEAD;
}

ssm_status ssm__check_scope(const ssm_recording_info *info, ssm_scope scope, ssm_error *err)
{
    return scope != SSM_SCOPE_HEAD || info->family == SSM_FAMILY_MAMBA2
               ? SSM_STATUS_OK
               : ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                           "scope head: the recording is of a %s model, which has no heads; its "
                           "sets are per channel",
                           ssm_family_name(info->family));
}

void ssm__add_energies(const ssm_tensor *tensor, int64_t width, double *energy)
{
    const int64_t blocks = width > 0 ? ssm_tensor_count(tensor) / width : 0;
    for (int64_t b = 0; b < blocks; b++) {
        const char *row = (const char *)tensor->data + (size_t)(b * width) * sizeof(float);
        for (int64_t i = 0; i < width; i++) {
            float value; /* the file gives no alignment */
            memcpy(&value, row + (size_t)i * sizeof value, sizeof value);
            energy[i] += (double)value;
        }
    }
}

ssm_status ssm__window_energies(ssm_recording *recording, ssm_scope scope, int64_t window,
                                int64_t layer, double *energy, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const char *field = ssm__scope_is_finer(info, scope) ? "energy" : "energy_blocks";
    const int64_t width = ssm_recording_sets(info, scope) * info->d_state;
    const ssm_tensor *tensor = NULL;
    SSM__TRY(ssm_recording_tensor(recording, window, layer, field, &tensor, err));
    SSM__TRY(ssm__check_finite(tensor, true, err));
    memset(energy, 0, (size_t)width * sizeof *energy);
    ssm__add_energies(tensor, width, energy);
    return SSM_STATUS_OK;
}

ssm_status ssm__calibration_energies(ssm_recording *recording, ssm_scope scope, int64_t layer,
                                     double *mean, double *scratch, int64_t *count, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    int64_t width = ssm_recording_sets(info, scope) * info->d_state;
    int64_t windows = ssm_recording_window_count(recording);
    memset(mean, 0, (size_t)width * sizeof *mean);
    *count = 0;
    for (int64_t w = 0; w < windows; w++) {
        if (ssm_recording_get_window(recording, w)->role != SSM_ROLE_CALIBRATION) {
            continue;
        }
        SSM__TRY(ssm__window_energies(recording, scope, w, layer, scratch, err));
        for (int64_t i = 0; i < width; i++) {
            mean[i] += scratch[i];
        }
        (*count)++;
    }
    const double windows_summed = *count > 0 ? (double)*count : 1.0;
    for (int64_t i = 0; i < width; i++) {
        mean[i] /= windows_summed;
    }
    return SSM_STATUS_OK;
}
