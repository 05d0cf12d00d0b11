/* Arenas: counting and taking agree, alignment, zeros, overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/checked.h"

#include <string.h>

typedef struct layout {
    float *weights;
    int64_t *ids;
    char *text;
    double *empty;
} layout;

static void take_all(ssm__arena *arena, layout *out)
{
    out->weights = SSM__TAKE(arena, float, 33);
    out->ids = SSM__TAKE(arena, int64_t, 7);
    out->text = SSM__TAKE(arena, char, 1);
    out->empty = SSM__TAKE(arena, double, 0);
}

static void counting_gives_the_size(void **state)
{
    (void)state;
    layout parts;
    ssm__arena arena = {0};
    take_all(&arena, &parts);
    assert_null(parts.weights);
    assert_null(parts.text);
    assert_false(arena.overflow);
    size_t size = arena.used;
    assert_int_equal(size, 192 + 64 + 64); /* 132 → 192, 56 → 64, 1 → 64, 0 */

    ssm_error err = {0};
    assert_int_equal(ssm__arena_create(&arena, size, &err), SSM_STATUS_OK);
    take_all(&arena, &parts);
    assert_int_equal(arena.used, size);
    assert_false(arena.overflow);
    assert_int_equal((uintptr_t)parts.weights % 64, 0);
    assert_int_equal((uintptr_t)parts.ids % 64, 0);
    assert_int_equal((uintptr_t)parts.text % 64, 0);
    for (int i = 0; i < 33; i++) {
        assert_true(parts.weights[i] == 0.0f);
    }
    memset(parts.weights, 0xFF, 33 * sizeof(float));
    assert_int_equal(parts.ids[0], 0);
    assert_null(ssm__arena_take(&arena, 1, 1)); /* more than was counted */
    assert_true(arena.overflow);
    ssm__arena_free(&arena);
    assert_null(arena.memory);
    ssm__arena_free(&arena);
}

/* A size that does not fit must fail at creation, however it came about. */
static void overflow_cannot_be_created(void **state)
{
    (void)state;
    const struct {
        int64_t count;
        size_t bytes;
    } cases[] = {{-1, 1}, {INT64_MIN, 1}, {INT64_MAX, 4}, {2, SIZE_MAX / 2 + 1}, {1, SIZE_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm__arena arena = {0};
        ssm__arena_take(&arena, 1, 1);
        ssm__arena_take(&arena, cases[i].count, cases[i].bytes);
        ssm__arena_take(&arena, 1, 1);
        assert_true(arena.overflow);
        ssm_error err = {0};
        assert_int_equal(ssm__arena_create(&arena, arena.used, &err), SSM_STATUS_MEMORY);
        assert_null(arena.memory);
        assert_null(ssm__arena_take(&arena, 1, 1));
    }
}

static void empty_arena(void **state)
{
    (void)state;
    ssm__arena arena = {0};
    assert_int_equal(ssm__arena_create(&arena, 0, NULL), SSM_STATUS_OK);
    assert_non_null(arena.memory);
    ssm__arena_free(&arena);
    ssm__arena_free(NULL);
}

static void checked_arithmetic(void **state)
{
    (void)state;
    size_t size = 0;
    int64_t dim = 0;
    assert_true(ssm__mul_size(3, 5, &size));
    assert_int_equal(size, 15);
    assert_false(ssm__mul_size(SIZE_MAX / 2 + 1, 2, &size));
    assert_true(ssm__add_size(SIZE_MAX - 1, 1, &size));
    assert_false(ssm__add_size(SIZE_MAX, 1, &size));
    assert_true(ssm__mul_dim(1 << 20, 1 << 20, &dim));
    assert_int_equal(dim, INT64_C(1) << 40);
    assert_false(ssm__mul_dim(INT64_MAX, 2, &dim));
    assert_false(ssm__mul_dim(-1, -1, &dim));
    assert_false(ssm__mul_dim(0, -1, &dim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting_gives_the_size),
        cmocka_unit_test(overflow_cannot_be_created),
        cmocka_unit_test(empty_arena),
        cmocka_unit_test(checked_arithmetic),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
