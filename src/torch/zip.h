/* torch/zip.h: the members of a zip archive in memory. libzip reads the directory and inflates;
 * a member that is stored plainly is a view into the archive. */
#ifndef SSM_TORCH_ZIP_H
#define SSM_TORCH_ZIP_H

#include <ssmscope/base.h>

typedef struct ssm__zip ssm__zip;

typedef struct ssm__zip_member {
    const unsigned char *data; /* NULL when empty */
    size_t size;
    int64_t file_offset; /* −1: inflated, in memory of the archive */
    uint32_t crc;        /* as the archive says; checked only where it was inflated */
} ssm__zip_member;

/* Reads the directory of `size` bytes at data, which must outlive the result, and checks every
 * entry: a relative name without "..", once; not encrypted; stored or deflated. path is for
 * messages. Errors: FILE, MEMORY. */
ssm_status ssm__zip_open(const char *path, const unsigned char *data, size_t size, ssm__zip **out,
                         ssm_error *err);
void ssm__zip_close(ssm__zip *zip);

int64_t ssm__zip_count(const ssm__zip *zip);
const char *ssm__zip_name(const ssm__zip *zip, int64_t i);
/* −1: none. */
int64_t ssm__zip_find(const ssm__zip *zip, const char *name);
/* The contents of entry i; a second call gives the same. What is inflated stays in memory until
 * close, together at most 32 times the archive plus 64 MiB. Errors: FILE (data outside the file, a
 * wrong CRC of a deflated member, the limit), MEMORY. */
ssm_status ssm__zip_read(ssm__zip *zip, int64_t i, ssm__zip_member *out, ssm_error *err);
/* FILE when two of the members read so far share bytes of the file. */
ssm_status ssm__zip_check_overlaps(const ssm__zip *zip, ssm_error *err);
/* FILE when the CRC-32 of a stored member that was read is not what the archive says. */
ssm_status ssm__zip_check_crc(const ssm__zip *zip, int64_t i, ssm_error *err);

#endif
