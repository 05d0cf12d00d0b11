/* The base layer when memory runs out: MEMORY, no leak, nothing left on disk, no wrong result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pool.h"
#include "test_paths.h"

static char directory[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 16];

static void check(failalloc_case this)
{
    assert_true(failalloc_check(&this));
}

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static ssm_status run_arena(void *context, ssm_error *err)
{
    (void)context;
    ssm__arena arena = {0};
    SSM__TRY(ssm__arena_create(&arena, 1000, err));
    ssm_status status = expect(ssm__arena_take(&arena, 1, 1000) != NULL);
    ssm__arena_free(&arena);
    return status;
}

static ssm_status run_digest(void *context, ssm_error *err)
{
    (void)context;
    ssm__digest *digest = NULL;
    SSM__TRY(ssm__digest_create(&digest, err));
    ssm__digest_add_string(digest, "text");
    ssm__digest_finish(digest, NULL);
    return SSM_STATUS_OK;
}

static int count_entries(void)
{
    DIR *listing = opendir(directory);
    int count = -2;
    while (listing != NULL && readdir(listing) != NULL) {
        count++;
    }
    closedir(listing);
    return count;
}

static ssm_status run_write_file(void *context, ssm_error *err)
{
    (void)context;
    unlink(path);
    ssm_status status = ssm__write_file(path, "text", 4, err);
    bool armed = failalloc_disarm(); /* what follows looks at the disk */
    int expected = status == SSM_STATUS_OK;
    if (count_entries() != expected) {
        return SSM_STATUS_CHECK;
    }
    failalloc_restore(armed);
    return status;
}

static ssm_status run_directories(void *context, ssm_error *err)
{
    (void)context;
    return ssm__make_directories(directory, err);
}

static ssm_status run_path_join(void *context, ssm_error *err)
{
    (void)context;
    char *joined = ssm__path_join("a", "b");
    if (joined == NULL) {
        return ssm__fail_memory(err, "a path", 0);
    }
    free(joined);
    return SSM_STATUS_OK;
}

/* Strings, numbers and keys longer than the growing buffers of jansson, which does not look whether
 * growing worked. The whole value is compared. */
static const char json_text[] = "{\"short\": 1, \"a key that is quite a bit longer than sixteen "
                                "bytes\": [NaN, \"a text of more "
                                "than thirty-two bytes, so that its buffer grows twice, and then "
                                "some more until it has grown a "
                                "third time\", 3.14159265358979323846264338327950288, -Infinity, "
                                "{}, [], [[1, 2, 3, 4, 5, 6, 7, "
                                "8, 9, 10]], true, null], \"b\": {\"c\": {\"d\": {\"e\": 1, \"f\": "
                                "2, \"g\": 3, \"h\": 4, \"i\": "
                                "5, \"j\": 6, \"k\": 7, \"l\": 8, \"m\": 9}}}}";

static ssm_status run_json(void *context, ssm_error *err)
{
    json_t *expected = *(json_t **)context;
    json_t *value = NULL;
    SSM__TRY(ssm__json_parse("x", 0, json_text, strlen(json_text), SSM__JSON_PYTHON, &value, err));
    bool armed = failalloc_disarm();
    bool equal = expected == NULL || json_equal(value, expected) == 1;
    failalloc_restore(armed);
    json_decref(value);
    return expect(equal);
}

static ssm_status run_json_print(void *context, ssm_error *err)
{
    json_t *value = *(json_t **)context;
    char *text = ssm__json_print(value, JSON_INDENT(2));
    if (text == NULL) {
        return ssm__fail_memory(err, "JSON text", 0);
    }
    bool armed = failalloc_disarm();
    json_t *again = json_loads(text, 0, NULL);
    bool equal = json_equal(again, value) == 1;
    json_decref(again);
    failalloc_restore(armed);
    free(text);
    return expect(equal);
}

static ssm_status run_json_file(void *context, ssm_error *err)
{
    (void)context;
    json_t *value = NULL;
    SSM__TRY(ssm__json_read(path, 1000, SSM__JSON_STRICT, &value, err));
    ssm_status status = expect(json_integer_value(json_object_get(value, "a")) == 1);
    json_decref(value);
    return status;
}

static void add_one(void *context, int64_t task, int thread)
{
    (void)task;
    (void)thread;
    atomic_fetch_add((_Atomic int *)context, 1);
}

static ssm_status run_pool(void *context, ssm_error *err)
{
    (void)context;
    ssm_pool *pool = NULL;
    _Atomic int sum = 0;
    SSM__TRY(ssm_pool_create(4, &pool, err));
    ssm__pool_run(pool, add_one, &sum, 10);
    ssm_pool_free(pool);
    return expect(atomic_load(&sum) == 10);
}

static void memory_blocks(void **state)
{
    (void)state;
    check((failalloc_case){.name = "arena", .run = run_arena});
    check((failalloc_case){.name = "digest", .run = run_digest});
    check((failalloc_case){.name = "path", .run = run_path_join});
}

static void files(void **state)
{
    (void)state;
    test_make_directory(directory);
    snprintf(path, sizeof path, "%s/file", directory);
    check((failalloc_case){.name = "write file", .run = run_write_file});
    check((failalloc_case){.name = "make directories", .run = run_directories});
    assert_int_equal(ssm__write_file(path, "{\"a\": 1}", 8, NULL), SSM_STATUS_OK);
    check((failalloc_case){.name = "read JSON file", .run = run_json_file});
    test_remove_directory(directory);
}

static void json(void **state)
{
    (void)state;
    json_t *expected = NULL;
    assert_int_equal(
        ssm__json_parse("x", 0, json_text, strlen(json_text), SSM__JSON_PYTHON, &expected, NULL),
        SSM_STATUS_OK);
    check((failalloc_case){.name = "parse JSON", .run = run_json, .context = &expected});
    check((failalloc_case){.name = "print JSON", .run = run_json_print, .context = &expected});
    json_decref(expected);
}

/* Thread stacks come from glibc, which calls a lack of memory EAGAIN. */
static void pool(void **state)
{
    (void)state;
    check((failalloc_case){.name = "pool", .run = run_pool, .may_fail = true});
}

/* The harness itself: it must see a leak, a wrong status and a missing record. */
static ssm_status leak_on_failure(void *context, ssm_error *err)
{
    void **kept = context;
    void *volatile first = malloc(10);
    void *volatile second = malloc(10);
    if (first == NULL || second == NULL) {
        *kept = first;
        free(second);
        return ssm__fail_memory(err, "the test", 10);
    }
    free(first);
    free(second);
    return SSM_STATUS_OK;
}

static ssm_status wrong_status(void *context, ssm_error *err)
{
    (void)context;
    void *volatile block = malloc(10); /* volatile: or the compiler needs no memory */
    if (block == NULL) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__NOWHERE, "wrong");
    }
    free(block);
    return SSM_STATUS_OK;
}

static ssm_status no_record(void *context, ssm_error *err)
{
    (void)context;
    (void)err;
    void *volatile block = malloc(10); /* volatile: or the compiler needs no memory */
    if (block == NULL) {
        return SSM_STATUS_MEMORY;
    }
    free(block);
    return SSM_STATUS_OK;
}

static ssm_status ignores_failure(void *context, ssm_error *err)
{
    (void)context;
    (void)err;
    void *volatile block = malloc(10);
    free(block);
    return SSM_STATUS_OK;
}

static void harness_sees_faults(void **state)
{
    (void)state;
    if (FAILALLOC_OFF) {
        skip();
    }
    print_message("four complaints follow, as they should\n");
    void *kept = NULL;
    failalloc_case leaking = {.name = "leak", .run = leak_on_failure, .context = &kept};
    if (failalloc_counts_all()) {
        assert_false(failalloc_check(&leaking));
    }
    free(kept);
    failalloc_case wrong = {.name = "wrong status", .run = wrong_status};
    assert_false(failalloc_check(&wrong));
    failalloc_case silent = {.name = "no record", .run = no_record};
    assert_false(failalloc_check(&silent));
    failalloc_case ignoring = {.name = "ignored", .run = ignores_failure};
    assert_false(failalloc_check(&ignoring));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_blocks),
        cmocka_unit_test(files),
        cmocka_unit_test(json),
        cmocka_unit_test(pool),
        cmocka_unit_test(harness_sees_faults),
    };
    return cmocka_run_group_tests_name("failalloc_base", tests, NULL, NULL);
}
