/* torch/torch_file.h: checkpoints that torch.save wrote (.bin, .pt, .pth), read without running
 * any code of theirs.
 *
 * Two containers hold the same pickle: a zip archive (PyTorch 1.6 and later) with the members
 * <root>/data.pkl and <root>/data/<key>, and the older stream of pickles followed by raw storages.
 * The pickle is read by a machine that knows a list of globals (torch/pickle.h) and refuses every
 * other by name. */
#ifndef SSM_TORCH_TORCH_FILE_H
#define SSM_TORCH_TORCH_FILE_H

#include <ssmscope/checkpoint.h>

typedef struct ssm__torch_file ssm__torch_file;

/* Maps the file read-only and checks all of it but the contents of its tensors: the container, the
 * pickle, and that every tensor lies within its storage. The state dict is the dict with tensors
 * under "model", "state_dict", "model_state_dict" or "module" (a note says which), and else the one
 * at the top.
 *
 * A contiguous tensor is a view into the mapping, nothing is copied; two names of one storage
 * (tied weights) have the same data pointer. Copied into memory of the file are: tensors with
 * other strides, in row-major order, together at most the bytes of the storages plus 16 MiB; and
 * members that somebody compressed, together at most 32 times the file plus 64 MiB.
 *
 * CRC-32 is checked for the pickle and for compressed members; for the rest by
 * ssm__torch_check_crc. Errors: FILE with file, tensor where there is one, and offset; MEMORY.
 * Owner: the caller. */
ssm_status ssm__torch_open(const char *path, ssm__torch_file **out, ssm_error *err);
/* The same for `size` bytes at data, which must outlive the result and are not freed by close;
 * path is for messages. */
ssm_status ssm__torch_parse(const char *path, const unsigned char *data, size_t size,
                            ssm__torch_file **out, ssm_error *err);
void ssm__torch_close(ssm__torch_file *file);

int64_t ssm__torch_count(const ssm__torch_file *file);
/* In the order of the state dict; NULL outside of 0 … count−1; valid until close. file_offset is −1
 * for a tensor in memory of the file. */
const ssm_tensor *ssm__torch_at(const ssm__torch_file *file, int64_t i);
/* NULL when there is none. */
const ssm_tensor *ssm__torch_find(const ssm__torch_file *file, const char *name);
/* Plain sentences: which dict was taken, what in it is no tensor. */
int64_t ssm__torch_note_count(const ssm__torch_file *file);
const char *ssm__torch_note(const ssm__torch_file *file, int64_t i);

/* Reads every member of a zip archive that a tensor uses; FILE at the first whose CRC-32 is not
 * what the archive says. The older form has no sums: OK. */
ssm_status ssm__torch_check_crc(const ssm__torch_file *file, ssm_error *err);

/* True when the bytes begin like a file that ssm__torch_open reads: a zip archive or the older
 * stream. 24 bytes are enough. */
bool ssm__torch_recognise(const unsigned char *data, size_t size);

#endif
