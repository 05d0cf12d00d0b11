#include "checkpoint/weight_file.h"

#include <string.h>

#include "base/file.h"

bool ssm__is_torch_name(const char *name)
{
    static const char *const ends[] = {".bin", ".pt", ".pth", ".ckpt"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ssm__ends_with(name, ends[i])) {
            return true;
        }
    }
    return false;
}

/* A file whose name says nothing. */
static ssm_status begins_like_torch(const char *path, bool *torch, ssm_error *err)
{
    ssm__map map;
    ssm_status status = ssm__map_open(path, &map, err);
    if (status == SSM_STATUS_OK) {
        *torch = map.data != NULL && ssm__torch_recognise(map.data, map.size);
        ssm__map_close(&map);
    }
    return status;
}

ssm_status ssm__weight_file_open(const char *path, bool lenient, ssm__weight_file *out,
                                 ssm_error *err)
{
    *out = (ssm__weight_file){0};
    bool torch = ssm__is_torch_name(path);
    if (!torch && !ssm__ends_with(path, ".safetensors")) {
        ssm_status status = begins_like_torch(path, &torch, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
    }
    return torch ? ssm__torch_open(path, &out->torch, err)
                 : ssm_safetensors_open(path, lenient, &out->safetensors, err);
}

void ssm__weight_file_close(ssm__weight_file *file)
{
    if (file->torch != NULL) {
        ssm__torch_close(file->torch);
    }
    ssm_safetensors_close(file->safetensors);
    *file = (ssm__weight_file){0};
}

int64_t ssm__weight_file_count(const ssm__weight_file *file)
{
    return file->torch != NULL ? ssm__torch_count(file->torch)
                               : ssm_safetensors_count(file->safetensors);
}

const ssm_tensor *ssm__weight_file_at(const ssm__weight_file *file, int64_t i)
{
    return file->torch != NULL ? ssm__torch_at(file->torch, i)
                               : ssm_safetensors_at(file->safetensors, i);
}

const ssm_tensor *ssm__weight_file_find(const ssm__weight_file *file, const char *name)
{
    return file->torch != NULL ? ssm__torch_find(file->torch, name)
                               : ssm_safetensors_find(file->safetensors, name);
}

ssm_status ssm__weight_file_check_sums(const ssm__weight_file *file, ssm_error *err)
{
    return file->torch != NULL ? ssm__torch_check_crc(file->torch, err) : SSM_STATUS_OK;
}
