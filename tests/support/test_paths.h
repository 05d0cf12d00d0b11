/* test_paths.h: where tests find their files, and scratch directories. */
#ifndef TEST_PATHS_H
#define TEST_PATHS_H

#include <stdbool.h>

enum { TEST_PATH_MAX = 1024 };

/* tests/golden/RELATIVE of the source tree; returns out. */
const char *test_golden_path(char out[TEST_PATH_MAX], const char *relative);
/* RELATIVE in the folder of handed data, $SSMSCOPE_SHARED or ../shared beside the source tree.
 * False, with a line on stdout, when it is absent: the test then calls skip(). */
bool test_shared_path(char out[TEST_PATH_MAX], const char *relative);
/* A fresh directory under $TMPDIR or /tmp; returns out. */
const char *test_make_directory(char out[TEST_PATH_MAX]);
/* Removes a directory and everything in it. */
void test_remove_directory(const char *path);

#endif
