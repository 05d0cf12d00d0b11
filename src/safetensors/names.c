#include "safetensors/names.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    return strcmp((*(ssm_tensor *const *)left)->name, (*(ssm_tensor *const *)right)->name);
}

void ssm__names_sort(ssm_tensor *tensors, int64_t count, ssm_tensor **by_name)
{
    for (int64_t i = 0; i < count; i++) {
        by_name[i] = &tensors[i];
    }
    qsort(by_name, (size_t)count, sizeof(ssm_tensor *), compare);
}

const ssm_tensor *ssm__names_find(ssm_tensor *const *by_name, int64_t count, const char *name)
{
    const ssm_tensor wanted = {.name = name};
    const ssm_tensor *key = &wanted;
    ssm_tensor *const *found = bsearch(&key, by_name, (size_t)count, sizeof *by_name, compare);
    return found == NULL ? NULL : *found;
}
