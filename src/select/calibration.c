#include "select/calibration.h"

#include <string.h>

#include "base/error.h"
#include "recording/energies.h"
#include "recording/schema.h"

ssm_status ssm__calibration_mean(ssm_recording *recording, int64_t layer, const char *field,
                                 double *mean, ssm_error *err)
{
    const int64_t windows = ssm_recording_window_count(recording);
    int64_t count = 0;
    int64_t tokens = 0;
    for (int64_t w = 0; w < windows; w++) {
        const ssm_recording_window *window = ssm_recording_get_window(recording, w);
        const ssm_tensor *tensor = NULL;
        if (window->role != SSM_ROLE_CALIBRATION) {
            continue;
        }
        SSM__TRY(ssm_recording_tensor(recording, w, layer, field, &tensor, err));
        SSM__TRY(ssm__check_finite(tensor, true, err));
        if (tokens == 0) {
            count = ssm_tensor_count(tensor);
            memset(mean, 0, (size_t)count * sizeof *mean);
        }
        for (int64_t i = 0; i < count; i++) {
            float value; /* the file gives no alignment */
            memcpy(&value, (const char *)tensor->data + (size_t)i * sizeof value, sizeof value);
            mean[i] += (double)value * (double)window->tokens;
        }
        tokens += window->tokens;
    }
    for (int64_t i = 0; i < count; i++) {
        mean[i] /= (double)tokens;
    }
    return SSM_STATUS_OK;
}

/* True for the first calibration window of its domain. */
static bool opens_domain(const ssm_recording *recording, int64_t window)
{
    const ssm_recording_window *about = ssm_recording_get_window(recording, window);
    if (about->role != SSM_ROLE_CALIBRATION) {
        return false;
    }
    for (int64_t w = 0; w < window; w++) {
        const ssm_recording_window *other = ssm_recording_get_window(recording, w);
        if (other->role == SSM_ROLE_CALIBRATION && strcmp(other->domain, about->domain) == 0) {
            return false;
        }
    }
    return true;
}

ssm_status ssm__role_gram(ssm_recording *recording, ssm_role role, int64_t window, int64_t layer,
                          const ssm_tensor **out, ssm_error *err)
{
    const ssm_recording_window *about = ssm_recording_get_window(recording, window);
    *out = NULL;
    if (about->role != role || (role == SSM_ROLE_CALIBRATION && !opens_domain(recording, window))) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(role == SSM_ROLE_CALIBRATION
                 ? ssm_recording_calibration_gram(recording, about->domain, layer, out, err)
                 : ssm_recording_tensor(recording, window, layer, "gram", out, err));
    return ssm__check_finite(*out, false, err);
}

ssm_status ssm__calibration_gram(ssm_recording *recording, int64_t layer, int64_t together,
                                 double *gram, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const int64_t entries = ssm__gram_entries(info->d_state);
    const int64_t rows = ssm_recording_channels(info);
    memset(gram, 0, (size_t)(rows / together * entries) * sizeof *gram);
    for (int64_t w = 0; w < ssm_recording_window_count(recording); w++) {
        const ssm_tensor *tensor = NULL;
        SSM__TRY(ssm__role_gram(recording, SSM_ROLE_CALIBRATION, w, layer, &tensor, err));
        const char *data = tensor == NULL ? NULL : tensor->data;
        for (int64_t row = 0; data != NULL && row < rows; row++) {
            double *sum = gram + row / together * entries;
            for (int64_t i = 0; i < entries; i++, data += sizeof(float)) {
                float value;
                memcpy(&value, data, sizeof value);
                sum[i] += (double)value;
            }
        }
    }
    return SSM_STATUS_OK;
}

double ssm__gram_form(const double *gram, int64_t d_state, const double *coefficients)
{
    double sum = 0.0;
    for (int64_t i = 0; i <= d_state; i++) {
        double row = 0.5 * coefficients[i] * *gram++;
        for (int64_t j = i + 1; j <= d_state; j++) {
            row += coefficients[j] * *gram++;
        }
        sum += 2.0 * coefficients[i] * row;
    }
    return sum;
}
