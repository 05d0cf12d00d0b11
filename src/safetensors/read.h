/* safetensors/read.h: the inside of an open safetensors file. */
#ifndef SSM_SAFETENSORS_READ_H
#define SSM_SAFETENSORS_READ_H

#include <jansson.h>
#include <ssmscope/checkpoint.h>

#include "base/file.h"

enum { SSM__HEADER_MAX = 100000000 }; /* bytes; the limit of the reference reader */

struct ssm_safetensors {
    char *path;
    ssm__map map;         /* empty when the bytes belong to someone else */
    json_t *header;       /* owns the tensors' names and the metadata's text */
    ssm_tensor *tensors;  /* in the order of the data */
    ssm_tensor **by_name; /* the same, sorted by name */
    int64_t count;
};

/* Checks `size` bytes at data, which must outlive the result and are not freed by close. path is
 * for messages. Same errors as ssm_safetensors_open. */
ssm_status ssm__safetensors_parse(const char *path, const unsigned char *data, size_t size,
                                  bool lenient, ssm_safetensors **out, ssm_error *err);

#endif
