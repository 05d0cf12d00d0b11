/* test_place.h: a scratch directory for every test of a file, and paths in it. */
#ifndef TEST_PLACE_H
#define TEST_PLACE_H

#include "test_paths.h"

enum { ANOTHER_USER = 65534 }; /* an id without rights, for tests that root runs */

typedef struct place {
    char directory[TEST_PATH_MAX];
    char path[TEST_PATH_MAX]; /* of place_path */
} place;

/* For cmocka_unit_test_setup_teardown: *state is a place with a fresh directory. */
int place_set_up(void **state);
int place_tear_down(void **state);
/* The path of a name in the directory, in here->path until the next call. */
const char *place_path(place *here, const char *name);

#endif
