/* base/foreign.h: files that are often found where one of a model was meant to be. */
#ifndef SSM_BASE_FOREIGN_H
#define SSM_BASE_FOREIGN_H

#include <ssmscope/base.h>

/* Looks at the first bytes of a file. Git LFS pointers, web pages, torch archives, pickles, GGUF,
 * NumPy, HDF5, compressed data: a FILE error that says what it is and what to do. Anything else:
 * OK. */
ssm_status ssm__refuse_foreign(const char *path, const unsigned char *data, size_t size,
                               ssm_error *err);

#endif
