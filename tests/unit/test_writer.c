/* Atomic writes: whole or not at all, and nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "test_place.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int count_entries(const char *directory)
{
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    int count = 0;
    while (readdir(listing) != NULL) {
        count++;
    }
    closedir(listing);
    return count - 2; /* . and .. */
}

static void expect_content(const char *path, const void *data, size_t bytes)
{
    ssm__map map;
    assert_int_equal(ssm__map_open(path, &map, NULL), SSM_STATUS_OK);
    assert_int_equal(map.size, bytes);
    if (bytes > 0) {
        assert_memory_equal(map.data, data, bytes);
    }
    ssm__map_close(&map);
}

/* Pieces around the size of the buffer (64 KiB), in several orders. */
static void pieces_of_every_size(void **state)
{
    place *here = *state;
    static const size_t sizes[] = {0, 1, 65535, 1, 65536, 3, 65537, 200000, 7, 65530, 6, 1, 0};
    size_t whole = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        whole += sizes[i];
    }
    unsigned char *data = malloc(whole);
    assert_non_null(data);
    for (size_t i = 0; i < whole; i++) {
        data[i] = (unsigned char)(i * 31 >> 2);
    }
    ssm__writer *writer = NULL;
    assert_int_equal(ssm__writer_open(place_path(here, "out"), &writer, NULL), SSM_STATUS_OK);
    size_t at = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(ssm__writer_write(writer, data + at, sizes[i], NULL), SSM_STATUS_OK);
        at += sizes[i];
    }
    assert_false(ssm__is_file(here->path)); /* not before it is whole */
    assert_int_equal(count_entries(here->directory), 1);
    assert_int_equal(ssm__writer_commit(writer, NULL), SSM_STATUS_OK);
    expect_content(here->path, data, whole);
    assert_int_equal(count_entries(here->directory), 1);
    free(data);
}

static void replaces_and_aborts(void **state)
{
    place *here = *state;
    assert_int_equal(ssm__write_file(place_path(here, "out"), "old", 3, NULL), SSM_STATUS_OK);
    ssm__writer *writer = NULL;
    assert_int_equal(ssm__writer_open(here->path, &writer, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_write(writer, "new", 3, NULL), SSM_STATUS_OK);
    expect_content(here->path, "old", 3);
    ssm__writer_abort(writer);
    expect_content(here->path, "old", 3);
    assert_int_equal(count_entries(here->directory), 1);
    assert_int_equal(ssm__write_file(here->path, "newer", 5, NULL), SSM_STATUS_OK);
    expect_content(here->path, "newer", 5);
    assert_int_equal(ssm__write_file(here->path, NULL, 0, NULL), SSM_STATUS_OK);
    expect_content(here->path, "", 0);
    assert_int_equal(count_entries(here->directory), 1);
    ssm__writer_abort(NULL);
}

static void mode_follows_the_umask(void **state)
{
    place *here = *state;
    mode_t before = umask(027);
    assert_int_equal(ssm__write_file(place_path(here, "out"), "x", 1, NULL), SSM_STATUS_OK);
    umask(before);
    struct stat info;
    assert_int_equal(stat(here->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

static void two_writers_of_one_name(void **state)
{
    place *here = *state;
    ssm__writer *first = NULL;
    ssm__writer *second = NULL;
    assert_int_equal(ssm__writer_open(place_path(here, "out"), &first, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_open(here->path, &second, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_write(first, "first", 5, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_write(second, "second", 6, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_commit(second, NULL), SSM_STATUS_OK);
    expect_content(here->path, "second", 6);
    assert_int_equal(ssm__writer_commit(first, NULL), SSM_STATUS_OK);
    expect_content(here->path, "first", 5);
    assert_int_equal(count_entries(here->directory), 1);
}

static void expect_no_writer(const char *path, const char *words)
{
    ssm_error err = {0};
    ssm__writer *writer = NULL;
    assert_int_equal(ssm__writer_open(path, &writer, &err), SSM_STATUS_FAILED);
    assert_null(writer);
    assert_string_equal(err.file, path);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, err.message);
    }
}

static void refuses_targets_that_are_no_files(void **state)
{
    place *here = *state;
    expect_no_writer(here->directory, "directory");
    expect_no_writer(place_path(here, "sub/"), "directory");
    expect_no_writer("", "directory");
    expect_no_writer("/dev/null", "not a regular file");
    expect_no_writer(place_path(here, "absent/out"), "No such file");
    assert_int_equal(count_entries(here->directory), 0);
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void long_names(void **state)
{
    place *here = *state;
    char name[256];
    memset(name, 'n', sizeof name - 1);
    name[255] = '\0';
    assert_int_equal(ssm__write_file(place_path(here, name), "x", 1, NULL), SSM_STATUS_OK);
    expect_content(here->path, "x", 1);
    char longer[257];
    memset(longer, 'n', sizeof longer - 1);
    longer[256] = '\0';
    ssm_error err = {0};
    assert_int_equal(ssm__write_file(place_path(here, longer), "x", 1, &err), SSM_STATUS_FAILED);
    assert_non_null(strstr(err.message, "too long"));
    assert_int_equal(count_entries(here->directory), 1);
}

/* A file size limit gives what a full disk gives: first a short write, then an error. */
static void failing_writes_leave_nothing(void **state)
{
    place *here = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {100000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    static const unsigned char data[150000] = {1};
    for (size_t piece = 1000; piece <= sizeof data; piece *= 150) {
        assert_int_equal(ssm__write_file(place_path(here, "out"), "old", 3, NULL), SSM_STATUS_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        ssm__writer *writer = NULL;
        ssm_error err = {0};
        assert_int_equal(ssm__writer_open(here->path, &writer, &err), SSM_STATUS_OK);
        ssm_status status = SSM_STATUS_OK;
        for (size_t at = 0; at < sizeof data && status == SSM_STATUS_OK; at += piece) {
            status = ssm__writer_write(writer, data + at, piece, &err);
        }
        /* Later calls fail as well, also where the caller did not look at the first. */
        if (status != SSM_STATUS_OK) {
            assert_int_equal(ssm__writer_write(writer, data, 1, NULL), SSM_STATUS_FAILED);
        }
        assert_int_equal(ssm__writer_commit(writer, &err), SSM_STATUS_FAILED);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_non_null(strstr(err.message, "cannot be written: File too large"));
        assert_string_equal(err.file, here->path);
        expect_content(here->path, "old", 3);
        assert_int_equal(count_entries(here->directory), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void directory_that_goes_away(void **state)
{
    place *here = *state;
    assert_int_equal(mkdir(place_path(here, "sub"), 0777), 0);
    ssm__writer *writer = NULL;
    assert_int_equal(ssm__writer_open(place_path(here, "sub/out"), &writer, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__writer_write(writer, "x", 1, NULL), SSM_STATUS_OK);
    char moved[TEST_PATH_MAX + 8];
    snprintf(moved, sizeof moved, "%s/moved", here->directory);
    assert_int_equal(rename(place_path(here, "sub"), moved), 0);
    ssm_error err = {0};
    assert_int_equal(ssm__writer_commit(writer, &err), SSM_STATUS_FAILED);
    assert_non_null(strstr(err.message, "No such file"));
}

static void read_only_directory(void **state)
{
    place *here = *state;
    assert_int_equal(chmod(here->directory, 0555), 0);
    /* Root may write everywhere: try as another user. */
    bool is_root = geteuid() == 0;
    assert_int_equal(is_root ? seteuid(ANOTHER_USER) : 0, 0);
    expect_no_writer(place_path(here, "out"), "Permission denied");
    assert_int_equal(is_root ? seteuid(0) : 0, 0);
    assert_int_equal(chmod(here->directory, 0755), 0);
    assert_int_equal(count_entries(here->directory), 0);
}

static void in_the_working_directory(void **state)
{
    place *here = *state;
    char before[TEST_PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(here->directory), 0);
    assert_int_equal(ssm__write_file("out", "here", 4, NULL), SSM_STATUS_OK);
    expect_content("out", "here", 4);
    assert_int_equal(count_entries("."), 1);
    assert_int_equal(chdir(before), 0);
}

int main(void)
{
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, place_set_up, place_tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(pieces_of_every_size),
        IN_DIRECTORY(replaces_and_aborts),
        IN_DIRECTORY(mode_follows_the_umask),
        IN_DIRECTORY(two_writers_of_one_name),
        IN_DIRECTORY(refuses_targets_that_are_no_files),
        IN_DIRECTORY(long_names),
        IN_DIRECTORY(failing_writes_leave_nothing),
        IN_DIRECTORY(directory_that_goes_away),
        IN_DIRECTORY(read_only_directory),
        IN_DIRECTORY(in_the_working_directory),
    };
    return cmocka_run_group_tests_name("writer", tests, NULL, NULL);
}
