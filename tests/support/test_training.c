#include "test_training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static char directory[TEST_PATH_MAX];

int training_set_up(void **state)
{
    (void)state;
    test_make_directory(directory);
    return 0;
}

int training_tear_down(void **state)
{
    (void)state;
    test_remove_directory(directory);
    return 0;
}

const char *training_path(const char *name, char out[TRAINING_PATH])
{
    snprintf(out, TRAINING_PATH, "%s/%s", directory, name);
    return out;
}

ssm_recipe *training_recipe(const char *text)
{
    char path[TRAINING_PATH];
    ssm_recipe *recipe = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    if (ssm__write_file(training_path("recipe.json", path), text, strlen(text), &err) !=
            SSM_STATUS_OK ||
        ssm_recipe_read(path, &recipe, &err) != SSM_STATUS_OK) {
        fail_msg("%s: %s", err.file, err.message);
    }
    return recipe;
}

void training_same(const char *one, const char *other, const char *name)
{
    const char *const runs[] = {one, other};
    char inner[TEST_PATH_MAX - 1], path[2][TRAINING_PATH];
    ssm__map maps[2];
    ssm_error err;
    ssm_error_clear(&err);
    for (int i = 0; i < 2; i++) {
        snprintf(inner, sizeof inner, "%s/%s", runs[i], name);
        if (ssm__map_open(training_path(inner, path[i]), &maps[i], &err) != SSM_STATUS_OK) {
            fail_msg("%s: %s", err.file, err.message);
        }
    }
    if (maps[0].size != maps[1].size || memcmp(maps[0].data, maps[1].data, maps[0].size) != 0) {
        fail_msg("%s and %s differ", path[0], path[1]);
    }
    ssm__map_close(&maps[0]);
    ssm__map_close(&maps[1]);
}
