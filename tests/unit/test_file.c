/* Mapped files, directories and paths: each way a path can be wrong has its own words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "test_place.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void maps_the_bytes(void **state)
{
    place *here = *state;
    char data[10000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (char)(i * 7);
    }
    put(place_path(here, "data"), data, sizeof data);
    ssm__map map;
    assert_int_equal(ssm__map_open(here->path, &map, NULL), SSM_STATUS_OK);
    assert_int_equal(map.size, sizeof data);
    assert_memory_equal(map.data, data, sizeof data);
    /* The mapping does not need the name any more. */
    assert_int_equal(unlink(here->path), 0);
    assert_memory_equal(map.data, data, sizeof data);
    ssm__map_close(&map);
    assert_null(map.data);
    ssm__map_close(&map);
    ssm__map_close(NULL);
}

static void maps_an_empty_file(void **state)
{
    place *here = *state;
    put(place_path(here, "empty"), "", 0);
    ssm__map map = {(const unsigned char *)"x", 1};
    assert_int_equal(ssm__map_open(here->path, &map, NULL), SSM_STATUS_OK);
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    ssm__map_close(&map);
}

static void expect_refused(const char *path, const char *words)
{
    ssm_error err = {0};
    ssm__map map;
    assert_int_equal(ssm__map_open(path, &map, &err), SSM_STATUS_FILE);
    assert_null(map.data);
    assert_string_equal(err.file, path);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, err.message);
    }
}

static void refuses_what_is_no_file(void **state)
{
    place *here = *state;
    expect_refused(here->directory, "is a directory");
    expect_refused(place_path(here, "absent"), "does not exist");
    put(place_path(here, "file"), "x", 1);
    expect_refused(place_path(here, "file/below"), "does not exist");
    expect_refused("", "does not exist");
    expect_refused("/dev/null", "is a device");
    assert_int_equal(mkfifo(place_path(here, "pipe"), 0600), 0);
    expect_refused(here->path, "is a pipe"); /* and does not wait for a writer */
    assert_int_equal(symlink("nowhere", place_path(here, "link")), 0);
    expect_refused(here->path, "does not exist");
    assert_int_equal(symlink("loop", place_path(here, "loop")), 0);
    expect_refused(here->path, "cannot be opened");
}

static void refuses_what_may_not_be_read(void **state)
{
    place *here = *state;
    put(place_path(here, "secret"), "x", 1);
    assert_int_equal(chmod(here->path, 0), 0);
    /* Root may read everything: look with the eyes of another user. */
    bool is_root = geteuid() == 0;
    assert_int_equal(chmod(here->directory, 0755), 0);
    assert_int_equal(is_root ? seteuid(ANOTHER_USER) : 0, 0);
    expect_refused(here->path, "may not be read");
    assert_int_equal(is_root ? seteuid(0) : 0, 0);
}

static void tells_files_from_directories(void **state)
{
    place *here = *state;
    put(place_path(here, "file"), "x", 1);
    assert_true(ssm__is_file(here->path));
    assert_false(ssm__is_directory(here->path));
    assert_true(ssm__is_directory(here->directory));
    assert_false(ssm__is_file(here->directory));
    assert_false(ssm__is_file(place_path(here, "absent")));
    assert_false(ssm__is_directory(here->path));
    assert_false(ssm__is_file("/dev/null"));
    assert_true(ssm__holds_file(here->directory, "file"));
    assert_false(ssm__holds_file(here->directory, "absent"));
    assert_false(ssm__holds_file(here->directory, "."));
    assert_false(ssm__holds_file(place_path(here, "file"), "file"));
    assert_false(ssm__holds_file("/dev", "null"));
}

static void makes_directories(void **state)
{
    place *here = *state;
    assert_int_equal(ssm__make_directories(place_path(here, "a/b//c/"), NULL), SSM_STATUS_OK);
    assert_true(ssm__is_directory(place_path(here, "a/b/c")));
    assert_int_equal(ssm__make_directories(here->path, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__make_directories("/", NULL), SSM_STATUS_OK);
    put(place_path(here, "file"), "x", 1);
    ssm_error err = {0};
    assert_int_equal(ssm__make_directories(place_path(here, "file/below"), &err),
                     SSM_STATUS_FAILED);
    place_path(here, "file");
    assert_string_equal(err.file, here->path); /* names the part that is in the way */
    ssm_error_clear(&err);
    assert_int_equal(ssm__make_directories(here->path, &err), SSM_STATUS_FAILED);
    assert_int_equal(ssm__make_directories("", NULL), SSM_STATUS_FAILED);
}

static void joins_paths(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {".", "", "./"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = ssm__path_join(cases[i][0], cases[i][1]);
        assert_non_null(path);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

int main(void)
{
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, place_set_up, place_tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(maps_the_bytes),
        IN_DIRECTORY(maps_an_empty_file),
        IN_DIRECTORY(refuses_what_is_no_file),
        IN_DIRECTORY(refuses_what_may_not_be_read),
        IN_DIRECTORY(tells_files_from_directories),
        IN_DIRECTORY(makes_directories),
        cmocka_unit_test(joins_paths),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
