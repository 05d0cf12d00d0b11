/* safetensors/write.h: writing a safetensors file piece by piece, so that a file larger than memory
 * can be made. The header is written first: names, types and shapes must be known, data not. */
#ifndef SSM_SAFETENSORS_WRITE_H
#define SSM_SAFETENSORS_WRITE_H

#include <ssmscope/checkpoint.h>

typedef struct ssm__stream ssm__stream;

/* Starts the file with the header for `tensors` (their data pointers are not looked at). The header
 * is padded with spaces so that the buffer begins at a multiple of 64 bytes; the format allows no
 * holes, so the tensors follow one another. Errors: USAGE (a name twice, a name that is not UTF-8
 * or is
 * __metadata__, a shape that does not fit), FAILED, MEMORY. */
ssm_status ssm__stream_open(const char *path, const ssm_tensor *tensors, int64_t count,
                            const ssm_metadata *metadata, int64_t metadata_count, ssm__stream **out,
                            ssm_error *err);
/* The next bytes of the buffer, in the order of the tensors; any cut is allowed. */
ssm_status ssm__stream_add(ssm__stream *stream, const void *data, size_t bytes, ssm_error *err);
/* Publishes the file under its name and frees the stream, also on failure. Errors: FAILED (also
 * when fewer or more bytes were added than the header says). */
ssm_status ssm__stream_commit(ssm__stream *stream, ssm_error *err);
/* Removes what was written and frees the stream; NULL is accepted. */
void ssm__stream_abort(ssm__stream *stream);

#endif
