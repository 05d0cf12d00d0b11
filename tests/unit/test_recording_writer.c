/* The writer: what it writes is what the reader reads, and a run that is killed before any of its
 * file operations resumes to the same bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "test_numbers.h"
#include "test_paths.h"
#include "toy_recording.h"

/* ---- file operations that can stop ---------------------------------------------------------- */

/* These replace the C library's for the whole program: operation number `stop_at` kills the process
 * before it takes place, as kill −9 or a power cut would. Syncing is counted but not done: it would
 * only cost time here, since the kernel lives on. */
static int stop_at = -1;
static int operations;

static void operation(void)
{
    if (operations++ == stop_at) {
        kill(getpid(), SIGKILL);
    }
}

ssize_t write(int descriptor, const void *data, size_t bytes)
{
    if (descriptor > 2) {
        operation();
    }
    return syscall(SYS_write, descriptor, data, bytes);
}

int fsync(int descriptor)
{
    (void)descriptor;
    operation();
    return 0;
}

int rename(const char *from, const char *to)
{
    operation();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
    operation();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int directory, const char *path, int flags)
{
    operation();
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    operation();
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* Writes or resumes in a child that dies before operation `stop`; −1: runs to the end, and then the
 * number of operations is the result. A killed child gives −1. */
static int run_child(const toy_recording *toy, const char *directory, bool resume, int stop)
{
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        ssm_error err;
        ssm_error_clear(&err);
        operations = 0;
        stop_at = stop;
        ssm_status status = toy_recording_write(toy, directory, resume, &err);
        stop_at = -1;
        if (status != SSM_STATUS_OK) {
            fprintf(stderr, "%s: %s\n", err.file, err.message);
        }
        int result = operations;
        bool sent = syscall(SYS_write, pipe_ends[1], &result, sizeof result) == sizeof result;
        _exit(status == SSM_STATUS_OK && sent ? 0 : 1);
    }
    int status = 0;
    int result = -1;
    close(pipe_ends[1]);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(read(pipe_ends[0], &result, sizeof result), sizeof result);
    }
    close(pipe_ends[0]);
    return result;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Names and bytes of everything below path. */
static void add_tree(ssm__digest *digest, const char *path)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char inner[TEST_PATH_MAX * 2];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0) {
            ssm__digest_add_string(digest, entries[i]->d_name);
            if (ssm__is_directory(inner)) {
                add_tree(digest, inner);
            } else {
                ssm__map map;
                assert_int_equal(ssm__map_open(inner, &map, NULL), SSM_STATUS_OK);
                ssm__digest_add(digest, map.data, map.size);
                ssm__map_close(&map);
            }
        }
        free(entries[i]);
    }
    free(entries);
}

static void digest_tree(const char *path, char out[64])
{
    ssm__digest *digest;
    assert_int_equal(ssm__digest_create(&digest, NULL), SSM_STATUS_OK);
    add_tree(digest, path);
    ssm__digest_finish(digest, out);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static toy_recording small_toy(void)
{
    toy_recording toy = toy_recording_shape();
    toy.n_layers = 2;
    toy.evaluation = 1;
    return toy;
}

static void stop_everywhere(const toy_recording *toy)
{
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    char whole[64];
    test_make_directory(root);
    snprintf(path, sizeof path, "%s/whole", root);
    int count = run_child(toy, path, false, -1);
    assert_true(count > 40);
    digest_tree(path, whole);
    ssm_rng rng = ssm_rng_create(3, "second stop");
    for (int stop = 0; stop < count; stop++) {
        char resumed[64];
        snprintf(path, sizeof path, "%s/stop%d", root, stop);
        assert_int_equal(run_child(toy, path, false, stop), -1);
        /* Every other case is stopped a second time, somewhere in the resumed run. */
        if (stop % 2 == 1) {
            run_child(toy, path, true, (int)ssm_rng_below(&rng, (uint64_t)(count - stop)));
        }
        assert_true(run_child(toy, path, true, -1) >= 0);
        digest_tree(path, resumed);
        if (strcmp(whole, resumed) != 0) {
            fail_msg("stopped before operation %d of %d: other bytes than without a stop", stop,
                     count);
        }
        test_remove_directory(path);
    }
    printf("%d stops\n", count);
    test_remove_directory(root);
}

static void a_stop_before_any_operation_resumes_to_the_same_bytes(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    stop_everywhere(&toy);
    toy.window_gram = true;
    stop_everywhere(&toy);
    toy.no_gram = true;
    toy.window_gram = false;
    toy.calibration = 3;
    stop_everywhere(&toy);
}

static void a_resumed_finished_recording_is_left_alone(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    char before[64];
    char after[64];
    test_make_directory(root);
    snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(toy_recording_write(&toy, path, false, NULL), SSM_STATUS_OK);
    digest_tree(path, before);
    assert_int_equal(toy_recording_write(&toy, path, true, NULL), SSM_STATUS_OK);
    digest_tree(path, after);
    assert_string_equal(before, after);
    /* A window file that is removed is made again, and its Gram is not added twice. */
    char window[TEST_PATH_MAX * 3];
    snprintf(window, sizeof window, "%s/windows/00001.safetensors", path);
    assert_int_equal(unlink(window), 0);
    assert_int_equal(toy_recording_write(&toy, path, true, NULL), SSM_STATUS_OK);
    digest_tree(path, after);
    assert_string_equal(before, after);
    test_remove_directory(root);
}

/* want[H][(N+1)(N+2)/2] += Σ_t of the products of one window's modes. */
static void add_gram(const toy_recording *toy, int64_t window, int64_t layer, double *want)
{
    int64_t width = toy->d_state + 1;
    int64_t entries = width * (width + 1) / 2;
    double *modes = test_doubles(toy->window * toy->channels * width);
    toy_modes(toy, window, layer, modes);
    for (int64_t th = 0; th < toy->window * toy->channels; th++) {
        double *out = want + th % toy->channels * entries;
        for (int64_t i = 0; i < width; i++) {
            for (int64_t j = i; j < width; j++) {
                *out++ += modes[th * width + i] * modes[th * width + j];
            }
        }
    }
    free(modes);
}

static void what_is_written_is_what_is_read(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.domains[0] = "a/b: ü";
    char root[TEST_PATH_MAX];
    char file[TEST_PATH_MAX * 2];
    ssm_error err;
    test_make_directory(root);
    ssm_error_clear(&err);
    assert_int_equal(toy_recording_write(&toy, root, false, &err), SSM_STATUS_OK);
    snprintf(file, sizeof file, "%s/calibration.a_b____.safetensors", root);
    assert_true(ssm__is_file(file)); /* '/', ':', ' ' and the two bytes of ü became '_' */
    ssm_recording *recording = NULL;
    assert_int_equal(ssm_recording_open(root, &recording, &err), SSM_STATUS_OK);
    assert_int_equal(ssm_recording_window_count(recording), 10);
    assert_string_equal(ssm_recording_get_window(recording, 0)->domain, "a/b: ü");
    int64_t count = toy.channels * (toy.d_state + 1) * (toy.d_state + 2) / 2;
    double *sum = test_doubles(count);
    double *one = test_doubles(count);
    const ssm_tensor *gram = NULL;
    add_gram(&toy, 0, 1, sum);
    add_gram(&toy, 1, 1, sum);
    add_gram(&toy, 2, 1, one);
    /* 6e-8: one rounding to float32. */
    assert_int_equal(ssm_recording_calibration_gram(recording, "a/b: ü", 1, &gram, &err), 0);
    test_assert_near_f32("calibration Gram", gram->data, sum, count, 6e-8);
    assert_int_equal(ssm_recording_tensor(recording, 2, 1, "gram", &gram, &err), 0);
    test_assert_near_f32("window Gram", gram->data, one, count, 6e-8);
    free(sum);
    free(one);
    ssm_recording_close(recording);
    test_remove_directory(root);
}

static void another_plan_is_refused_with_the_field_that_differs(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    char root[TEST_PATH_MAX];
    char before[64];
    char after[64];
    test_make_directory(root);
    assert_int_equal(toy_recording_write(&toy, root, false, NULL), SSM_STATUS_OK);
    digest_tree(root, before);
    const int64_t one[] = {1};
    toy_recording shorter = toy, more = toy, gramless = toy, one_layer = toy, renamed = toy;
    shorter.window = 149;
    more.evaluation = 2;
    gramless.no_gram = true;
    one_layer.layers = one;
    one_layer.n_recorded = 1;
    renamed.domains[1] = "maths";
    const struct {
        const toy_recording *toy;
        const char *command, *named;
    } cases[] = {
        {&shorter, "ssmscope record toy", "window is 150 there and 149 here"},
        {&more, "ssmscope record toy", "windows has 6 entries there and 8 here"},
        {&gramless, "ssmscope record toy", "gram is true there and false here"},
        {&one_layer, "ssmscope record toy", "layers has 2 entries there and 1 here"},
        {&renamed, "ssmscope record toy", "windows[3].domain is \"code\" there and \"maths\" here"},
        {&toy, "ssmscope record other",
         "command is \"ssmscope record toy\" there and \"ssmscope record other\" here"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ssm_error err;
        ssm_error_clear(&err);
        ssm__recording_writer *writer = NULL;
        ssm_status status =
            toy_recording_create(cases[i].toy, root, true, cases[i].command, &writer, &err);
        if (status != SSM_STATUS_USAGE || strstr(err.message, cases[i].named) == NULL) {
            fail_msg("expected '%s', found status %d and '%s'", cases[i].named, (int)status,
                     err.message);
        }
    }
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(toy_recording_write(&toy, root, false, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "--resume"));
    digest_tree(root, after);
    assert_string_equal(before, after);
    test_remove_directory(root);
}

static void a_directory_with_other_things_is_refused(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    test_make_directory(root);
    snprintf(path, sizeof path, "%s/thesis.tex", root);
    assert_int_equal(ssm__write_file(path, "x", 1, NULL), SSM_STATUS_OK);
    for (int resume = 0; resume < 2; resume++) {
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(toy_recording_write(&toy, root, resume != 0, &err), SSM_STATUS_USAGE);
        assert_non_null(strstr(err.message, "not empty"));
    }
    assert_true(ssm__is_file(path));
    test_remove_directory(root);
}

static void domains_that_would_share_a_file_are_refused(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    toy.domains[0] = "a/b";
    toy.domains[1] = "a_b";
    char root[TEST_PATH_MAX];
    test_make_directory(root);
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(toy_recording_write(&toy, root, false, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "'a/b' and 'a_b'"));
    toy.domains[0] = "";
    ssm_error_clear(&err);
    assert_int_equal(toy_recording_write(&toy, root, false, &err), SSM_STATUS_USAGE);
    assert_non_null(strstr(err.message, "1 … 180 bytes"));
    test_remove_directory(root);
}

static void damage_is_named_when_a_run_is_resumed(void **state)
{
    (void)state;
    toy_recording toy = small_toy();
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    test_make_directory(root);
    ssm__recording_writer *writer = NULL;
    assert_int_equal(toy_recording_create(&toy, root, false, "ssmscope record toy", &writer, NULL),
                     0);
    assert_int_equal(toy_recording_put(&toy, writer, 1, NULL), SSM_STATUS_USAGE); /* 0 is next */
    assert_int_equal(toy_recording_put(&toy, writer, 0, NULL), SSM_STATUS_OK);
    assert_int_equal(ssm__recording_finish(writer, NULL), SSM_STATUS_USAGE);
    ssm__recording_writer_free(writer);
    const char *const files[] = {"windows/00000.safetensors", "partial.prose.safetensors"};
    for (int i = 1; i >= 0; i--) { /* windows are looked at first */
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size - 1), 0);
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(toy_recording_write(&toy, root, true, &err), SSM_STATUS_FILE);
        assert_non_null(strstr(err.file, files[i]));
    }
    test_remove_directory(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_what_is_read),
        cmocka_unit_test(a_stop_before_any_operation_resumes_to_the_same_bytes),
        cmocka_unit_test(a_resumed_finished_recording_is_left_alone),
        cmocka_unit_test(another_plan_is_refused_with_the_field_that_differs),
        cmocka_unit_test(a_directory_with_other_things_is_refused),
        cmocka_unit_test(domains_that_would_share_a_file_are_refused),
        cmocka_unit_test(damage_is_named_when_a_run_is_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
