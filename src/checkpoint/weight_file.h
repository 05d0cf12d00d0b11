/* checkpoint/weight_file.h: one file of tensors, safetensors or torch. */
#ifndef SSM_CHECKPOINT_WEIGHT_FILE_H
#define SSM_CHECKPOINT_WEIGHT_FILE_H

#include <ssmscope/checkpoint.h>

#include "torch/torch_file.h"

/* One of the two is set; both NULL: not open. */
typedef struct ssm__weight_file {
    ssm_safetensors *safetensors;
    ssm__torch_file *torch;
} ssm__weight_file;

/* By the name: .safetensors; .bin, .pt, .pth and .ckpt are torch's; others by their first bytes.
 * Errors: FILE, MEMORY. Owner: the caller, ssm__weight_file_close. */
ssm_status ssm__weight_file_open(const char *path, bool lenient, ssm__weight_file *out,
                                 ssm_error *err);
void ssm__weight_file_close(ssm__weight_file *file);
int64_t ssm__weight_file_count(const ssm__weight_file *file);
const ssm_tensor *ssm__weight_file_at(const ssm__weight_file *file, int64_t i);
/* NULL when there is none. */
const ssm_tensor *ssm__weight_file_find(const ssm__weight_file *file, const char *name);
/* Compares the file's bytes with the checksums that it carries: the CRC-32 of a torch zip. A
 * safetensors file carries none. Reads all of it. Errors: FILE, with the member. */
ssm_status ssm__weight_file_check_sums(const ssm__weight_file *file, ssm_error *err);

/* True for names that torch's files have. */
bool ssm__is_torch_name(const char *name);

#endif
