/* test_paths.c: where tests find their files, and scratch directories. */
#include "test_paths.h"

#include <dirent.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void join(char out[TEST_PATH_MAX], const char *directory, const char *name)
{
    const int length = snprintf(out, TEST_PATH_MAX, "%s/%s", directory, name);
    assert_true(length > 0 && length < TEST_PATH_MAX);
}

const char *test_golden_path(char out[TEST_PATH_MAX], const char *relative)
{
    join(out, SSM_SOURCE_DIR "/tests/golden", relative);
    return out;
}

bool test_shared_path(char out[TEST_PATH_MAX], const char *relative)
{
    const char *shared = getenv("SSMSCOPE_SHARED");
    join(out, shared ? shared : SSM_SOURCE_DIR "/../shared", relative);
    if (access(out, R_OK) != 0) {
        printf("skipped: %s is absent (set SSMSCOPE_SHARED)\n", out);
        return false;
    }
    return true;
}

const char *test_make_directory(char out[TEST_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    join(out, base ? base : "/tmp", "ssmscope-test-XXXXXX");
    assert_non_null(mkdtemp(out));
    return out;
}

void test_remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char child[TEST_PATH_MAX];
        struct stat info;
        join(child, path, entry->d_name);
        if (lstat(child, &info) == 0 && S_ISDIR(info.st_mode)) {
            test_remove_directory(child);
        } else {
            unlink(child);
        }
    }
    closedir(directory);
    rmdir(path);
}
