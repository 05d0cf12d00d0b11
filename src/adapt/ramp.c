#include "adapt/ramp.h"

#include <string.h>

#include "base/error.h"
#include "recording/energies.h"

ssm_status ssm__domain_energies(ssm_recording *recording, const char *domain, ssm_scope scope,
                                int64_t layer, double *out, double *scratch, int64_t *count,
                                ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const int64_t width = ssm_recording_sets(info, scope) * info->d_state;
    memset(out, 0, (size_t)width * sizeof *out);
    *count = 0;
    for (int64_t w = 0; w < ssm_recording_window_count(recording); w++) {
        const ssm_recording_window *window = ssm_recording_get_window(recording, w);
        if (window->role != SSM_ROLE_CALIBRATION || strcmp(window->domain, domain) != 0) {
            continue;
        }
        SSM__TRY(ssm__window_energies(recording, scope, w, layer, scratch, err));
        for (int64_t i = 0; i < width; i++) {
            out[i] += scratch[i];
        }
        (*count)++;
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__ramp(ssm_recording *recording, int64_t layer, int64_t blocks, double *out,
                     double *scratch, ssm_error *err)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const int64_t width = ssm_recording_channels(info) * info->d_state;
    memset(out, 0, (size_t)width * sizeof *out);
    memset(scratch, 0, (size_t)width * sizeof *scratch);
    for (int64_t w = 0; w < ssm_recording_window_count(recording); w++) {
        const ssm_tensor *tensor = NULL;
        if (ssm_recording_get_window(recording, w)->role != SSM_ROLE_CALIBRATION) {
            continue;
        }
        SSM__TRY(ssm_recording_tensor(recording, w, layer, "energy_blocks", &tensor, err));
        SSM__TRY(ssm__check_finite(tensor, true, err));
        ssm_tensor first = *tensor;
        first.dims[0] = blocks;
        ssm__add_energies(tensor, width, out);
        ssm__add_energies(&first, width, scratch);
    }
    for (int64_t i = 0; i < width; i++) {
        out[i] = scratch[i] > 0.0 ? out[i] / scratch[i] : 1.0;
    }
    return SSM_STATUS_OK;
}
