/* test_training.h: a scratch directory for training runs, and recipes and files in it. */
#ifndef TEST_TRAINING_H
#define TEST_TRAINING_H

#include <ssmscope/train.h>

#include "test_paths.h"

enum { TRAINING_PATH = 2 * TEST_PATH_MAX };

/* For cmocka_unit_test_setup_teardown: a fresh directory, the one of the functions below. */
int training_set_up(void **state);
int training_tear_down(void **state);

/* The path of a name in the directory; returns out. */
const char *training_path(const char *name, char out[TRAINING_PATH]);
/* A recipe out of its text, by a file of the directory. Owner: the caller. */
ssm_recipe *training_recipe(const char *text);
/* Fails where a file of two runs is not the same bytes. */
void training_same(const char *one, const char *other, const char *name);

#endif
