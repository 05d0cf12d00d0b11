/* test_place.c: a scratch directory for every test of a file, and paths in it. */
#include "test_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

int place_set_up(void **state)
{
    place *here = calloc(1, sizeof *here);
    assert_non_null(here);
    test_make_directory(here->directory);
    *state = here;
    return 0;
}

int place_tear_down(void **state)
{
    place *here = *state;
    test_remove_directory(here->directory);
    free(here);
    return 0;
}

const char *place_path(place *here, const char *name)
{
    int length = snprintf(here->path, sizeof here->path, "%s/%s", here->directory, name);
    assert_true(length > 0 && length < TEST_PATH_MAX);
    return here->path;
}
