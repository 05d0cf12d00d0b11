/* torch/write.h: writing a torch checkpoint (the zip form) that torch.load(weights_only=True)
 * reads, piece by piece, so that a file larger than memory can be made. data.pkl is written first:
 * names, types and shapes must be known, data not. */
#ifndef SSM_TORCH_WRITE_H
#define SSM_TORCH_WRITE_H

#include <ssmscope/checkpoint.h>

typedef struct ssm__torch_stream ssm__torch_stream;

/* Starts the file with the state dict of `tensors`, an OrderedDict in their order. A tensor whose
 * data pointer, type and size are those of an earlier one shares its storage, as tied weights do
 * (data NULL: never); otherwise the pointer is not looked at. The same input gives the same bytes
 * under any path. Errors: USAGE (a name twice or not UTF-8, a shape that does not fit, U16, U32 or
 * U64, for which torch has no storage class), FAILED, MEMORY. */
ssm_status ssm__torch_stream_open(const char *path, const ssm_tensor *tensors, int64_t count,
                                  ssm__torch_stream **out, ssm_error *err);
/* The earlier tensor whose storage tensor i shares; −1: it has its own and needs data. */
int64_t ssm__torch_stream_shares(const ssm__torch_stream *stream, int64_t i);
/* The next bytes of the tensors with storages of their own, in their order; any cut is allowed. */
ssm_status ssm__torch_stream_add(ssm__torch_stream *stream, const void *data, size_t bytes,
                                 ssm_error *err);
/* Publishes the file under its name and frees the stream, also on failure. Errors: FAILED (also
 * when fewer bytes were added than the shapes say). */
ssm_status ssm__torch_stream_commit(ssm__torch_stream *stream, ssm_error *err);
/* Removes what was written and frees the stream; NULL is accepted. */
void ssm__torch_stream_abort(ssm__torch_stream *stream);

/* All of it at once, from the tensors' data. */
ssm_status ssm__torch_write(const char *path, const ssm_tensor *tensors, int64_t count,
                            ssm_error *err);

#endif
