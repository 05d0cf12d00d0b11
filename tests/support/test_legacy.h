/* test_legacy.h: torch files of the form before PyTorch 1.6 (a stream of pickles), as torch.save
 * with _use_new_zipfile_serialization=False writes them. */
#ifndef TEST_LEGACY_H
#define TEST_LEGACY_H

#include <ssmscope/checkpoint.h>

/* A state dict of F32, F16 and BF16 tensors; two with the same data pointer share a storage. Fails
 * the test on any error. */
void legacy_write(const char *path, const ssm_tensor *tensors, int64_t count);
/* Rewrites a torch file of either form in that form. */
void legacy_rewrite(const char *path);

#endif
