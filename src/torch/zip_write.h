/* torch/zip_write.h: writing a zip archive of stored members front to back, as torch.save does:
 * data at multiples of 64 bytes, sums behind the data (general purpose bit 3), fixed times. libzip
 * can neither align nor stream, so this is our own. Source: PKWARE's APPNOTE.TXT, 6.3.3. */
#ifndef SSM_TORCH_ZIP_WRITE_H
#define SSM_TORCH_ZIP_WRITE_H

#include <ssmscope/base.h>

typedef struct ssm__zip_writer ssm__zip_writer;

/* Errors: FAILED, MEMORY. */
ssm_status ssm__zip_writer_open(const char *path, ssm__zip_writer **out, ssm_error *err);
/* Starts a member of `size` bytes; the one before must be complete. */
ssm_status ssm__zip_writer_begin(ssm__zip_writer *writer, const char *name, uint64_t size,
                                 ssm_error *err);
/* The next bytes of the member. Errors: FAILED (also: more than its size). */
ssm_status ssm__zip_writer_add(ssm__zip_writer *writer, const void *data, size_t bytes,
                               ssm_error *err);
/* Writes the directory, publishes the file and frees the writer, also on failure. */
ssm_status ssm__zip_writer_commit(ssm__zip_writer *writer, ssm_error *err);
/* Removes what was written; NULL is accepted. */
void ssm__zip_writer_abort(ssm__zip_writer *writer);

#endif
