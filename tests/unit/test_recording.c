/* The reader on damaged, foreign and malformed recordings: each is refused with the file, the place
 * and the reason, and none crashes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "test_numbers.h"
#include "test_messages.h"
#include "test_paths.h"
#include "toy_recording.h"

/* Syncing would only cost time: nothing here is about a machine that stops. */
int fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

/* ---- changing a file
 * ----------------------------------------------------------------------------- */

static void read_all(const char *path, char **data, size_t *bytes)
{
    ssm__map map;
    assert_int_equal(ssm__map_open(path, &map, NULL), SSM_STATUS_OK);
    *data = malloc(map.size + 1);
    memcpy(*data, map.data, map.size);
    (*data)[map.size] = '\0';
    *bytes = map.size;
    ssm__map_close(&map);
}

/* Replaces the first `from` in a text file; `from` must be there. */
static void replace_text(const char *path, const char *from, const char *to)
{
    char *data;
    size_t bytes;
    read_all(path, &data, &bytes);
    char *at = strstr(data, from);
    if (at == NULL) {
        fail_msg("'%s' is not in %s", from, path);
    }
    size_t size = bytes - strlen(from) + strlen(to);
    char *changed = malloc(size + 1);
    size_t before = (size_t)(at - data);
    memcpy(changed, data, before);
    memcpy(changed + before, to, strlen(to));
    memcpy(changed + before + strlen(to), at + strlen(from), bytes - before - strlen(from));
    assert_int_equal(ssm__write_file(path, changed, size, NULL), SSM_STATUS_OK);
    free(changed);
    free(data);
}

/* Writes the tensors of a safetensors file again, without the one named or with it renamed, with
 * another shape, or with other metadata. */
typedef struct rewrite {
    const char *drop, *flatten, *metadata_key, *metadata_value;
} rewrite;

static void rewrite_file(const char *path, const rewrite *how)
{
    ssm_safetensors *file;
    assert_int_equal(ssm_safetensors_open(path, false, &file, NULL), SSM_STATUS_OK);
    int64_t count = 0;
    ssm_tensor *tensors = calloc((size_t)ssm_safetensors_count(file), sizeof *tensors);
    for (int64_t i = 0; i < ssm_safetensors_count(file); i++) {
        ssm_tensor tensor = *ssm_safetensors_at(file, i);
        if (how->drop != NULL && strcmp(tensor.name, how->drop) == 0) {
            continue;
        }
        if (how->flatten != NULL && strcmp(tensor.name, how->flatten) == 0) {
            tensor.dims[0] = ssm_tensor_count(&tensor);
            tensor.n_dims = 1;
        }
        tensors[count++] = tensor;
    }
    ssm_metadata metadata[] = {{how->metadata_key, how->metadata_value}};
    assert_int_equal(ssm_safetensors_write(path, tensors, count, metadata,
                                           how->metadata_key == NULL ? 0 : 1, NULL),
                     SSM_STATUS_OK);
    free(tensors);
    ssm_safetensors_close(file);
}

/* ---- reading everything
 * -------------------------------------------------------------------------- */

static ssm_status read_layer(ssm_recording *recording, int64_t window, int64_t layer,
                             ssm_error *err)
{
    static const char *const fields[] = {"energy_blocks", "output_energy",  "state_moment",
                                         "read_moment",   "adjoint_moment", "delta_mean"};
    const ssm_tensor *tensor;
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        ssm_status status = ssm_recording_tensor(recording, window, layer, fields[f], &tensor, err);
        if (status != SSM_STATUS_OK) {
            return status;
        }
    }
    if (ssm_recording_get_window(recording, window)->role == SSM_ROLE_EVALUATION) {
        return ssm_recording_tensor(recording, window, layer, "gram", &tensor, err);
    }
    return ssm_recording_calibration_gram(
        recording, ssm_recording_get_window(recording, window)->domain, layer, &tensor, err);
}

static ssm_status read_recording(const char *directory, ssm_error *err)
{
    ssm_recording *recording;
    const ssm_tensor *tensor;
    ssm_status status = ssm_recording_open(directory, &recording, err);
    if (status != SSM_STATUS_OK) {
        assert_null(recording);
        return status;
    }
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    for (int64_t l = 0; l < info->n_recorded && status == SSM_STATUS_OK; l++) {
        status = ssm_recording_A(recording, info->layers[l], &tensor, err);
        for (int64_t w = 0; w < ssm_recording_window_count(recording) && status == SSM_STATUS_OK;
             w++) {
            status = read_layer(recording, w, info->layers[l], err);
        }
    }
    for (int64_t w = 0; w < ssm_recording_window_count(recording) && status == SSM_STATUS_OK; w++) {
        status = ssm_recording_tensor(recording, w, -1, "nll", &tensor, err);
        if (status == SSM_STATUS_OK) {
            status = ssm_recording_tensor(recording, w, -1, "ids", &tensor, err);
        }
    }
    ssm_recording_close(recording);
    return status;
}

/* ---- the table
 * ----------------------------------------------------------------------------------- */

typedef struct malformed {
    const char *rule;      /* what is broken */
    const char *from, *to; /* in recording.json */
    const char *file;      /* or in this file: */
    int cut;               /* bytes cut off its end; −1: removed */
    rewrite change;
    const char *other;             /* replaced by this other file of the recording */
    const char *in_file, *message; /* what the error must say */
} malformed;

#define JSON(broken, old_text, new_text, says)                                                     \
    {                                                                                              \
        .rule = (broken), .from = (old_text), .to = (new_text), .in_file = "recording.json",       \
        .message = (says)                                                                          \
    }

static const malformed cases[] = {
    JSON("not JSON", "{", "[[", NULL),
    JSON("a key twice", "\"schema\": \"ssmscope.recording/1\"",
         "\"schema\": 1, \"schema\": \"ssmscope.recording/1\"", NULL),
    JSON("another version", "ssmscope.recording/1", "ssmscope.recording/2",
         "not a recording of this version"),
    JSON("no schema", "\"schema\"", "\"scheme\"", "the field is missing"),
    JSON("no model", "\"model\": {", "\"modell\": {", "expected an object"),
    JSON("unknown family", "\"mamba\"", "\"rwkv\"", "found 'rwkv'"),
    JSON("d_state is zero", "\"d_state\": 6", "\"d_state\": 0", "expected 1 … 4096, found 0"),
    JSON("d_state is huge", "\"d_state\": 6", "\"d_state\": 4611686018427387904",
         "expected 1 … 4096"),
    JSON("d_state is text", "\"d_state\": 6", "\"d_state\": \"6\"", "expected an integer"),
    JSON("d_inner is negative", "\"d_inner\": 5", "\"d_inner\": -5", "found -5"),
    JSON("n_layers is a fraction", "\"n_layers\": 3", "\"n_layers\": 3.5", "expected an integer"),
    JSON("a digest of 64 characters", "xxh3-128:model",
         "0123456789012345678901234567890123456789012345678901234567890123",
         "at most 63 characters"),
    JSON("window of one token", "\"window\": 150", "\"window\": 1", "expected 2 …"),
    JSON("a layer twice", "  1,\n", "  0,\n", "rising layer numbers"),
    JSON("a layer beyond the model", "  2\n", "  3\n", "rising layer numbers below 3"),
    JSON("gram is a number", "\"gram\": true", "\"gram\": 1", "expected true or false"),
    JSON("windows is no list", "\"windows\": [", "\"windows\": 3, \"x\": [", "expected a list"),
    JSON("a role that is none", "\"role\": \"evaluation\"", "\"role\": \"training\"",
         "'calibration' or 'evaluation'"),
    JSON("a window longer than the window", "\"tokens\": 150", "\"tokens\": 151",
         "expected 2 … 150"),
    JSON("a negative offset", "\"token_offset\": 0", "\"token_offset\": -1", "found -1"),
    JSON("paths stay inside (..)", "windows/00000.safetensors", "../00000.safetensors",
         "without '..'"),
    JSON("paths stay inside (absolute)", "windows/00000.safetensors", "/etc/passwd",
         "inside the recording"),
    JSON("two windows in one file", "windows/00000.safetensors", "windows/00001.safetensors",
         "two windows name the file"),
    JSON("a domain without a name", "\"domain\": \"pro_se\"", "\"domain\": \"\"", "1 … 180 bytes"),
    JSON("domains that share a file", "\"domain\": \"pro_se\"", "\"domain\": \"pro se\"",
         "would share the file"),
    JSON("a NUL in a name", "\"domain\": \"pro_se\"", "\"domain\": \"pro\\u0000se\"", NULL),
    {.rule = "no recording.json",
     .file = "recording.json",
     .cut = -1,
     .in_file = "",
     .message = "not a recording"},
    {.rule = "an empty recording.json",
     .file = "recording.json",
     .cut = 1 << 30,
     .in_file = "recording.json"},
    {.rule = "a window is missing",
     .file = "windows/00004.safetensors",
     .cut = -1,
     .in_file = "windows/00004.safetensors",
     .message = "--resume"},
    {.rule = "the calibration sum is missing",
     .file = "calibration.code.safetensors",
     .cut = -1,
     .in_file = "calibration.code.safetensors",
     .message = "unfinished"},
    {.rule = "the model file is missing",
     .file = "model.safetensors",
     .cut = -1,
     .in_file = "model.safetensors",
     .message = "unfinished"},
    {.rule = "a window cut by one byte",
     .file = "windows/00003.safetensors",
     .cut = 1,
     .in_file = "windows/00003.safetensors"},
    {.rule = "an empty window",
     .file = "windows/00003.safetensors",
     .cut = 1 << 30,
     .in_file = "windows/00003.safetensors"},
    {.rule = "a cut calibration sum",
     .file = "calibration.code.safetensors",
     .cut = 4,
     .in_file = "calibration.code.safetensors"},
    {.rule = "a window in another's place",
     .file = "windows/00002.safetensors",
     .other = "windows/00003.safetensors",
     .in_file = "windows/00002.safetensors",
     .message = "the file is window 3 of the recording, expected window 2"},
    {.rule = "a sum in a window's place",
     .file = "windows/00002.safetensors",
     .other = "calibration.code.safetensors",
     .in_file = "windows/00002.safetensors",
     .message = "the tensor is missing"},
    {.rule = "a window of another recording",
     .file = "windows/00002.safetensors",
     .change = {.metadata_key = "recording", .metadata_value = "xxh3-128:0"},
     .in_file = "windows/00002.safetensors",
     .message = "of another recording"},
    {.rule = "a tensor is missing",
     .file = "windows/00007.safetensors",
     .change = {.drop = "layers.1.read_moment"},
     .in_file = "windows/00007.safetensors",
     .message = "the tensor is missing"},
    {.rule = "a tensor of another shape",
     .file = "windows/00007.safetensors",
     .change = {.flatten = "layers.1.gram"},
     .in_file = "windows/00007.safetensors",
     .message = "expected F32 [5, 28], found F32 [140]"},
    {.rule = "A is missing",
     .file = "model.safetensors",
     .change = {.drop = "layers.2.A"},
     .in_file = "model.safetensors",
     .message = "the tensor is missing"},
};

static void break_it(const char *root, const malformed *how)
{
    char path[TEST_PATH_MAX * 2];
    char other[TEST_PATH_MAX * 2];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", root, how->file == NULL ? "recording.json" : how->file);
    if (how->from != NULL) {
        replace_text(path, how->from, how->to);
    } else if (how->other != NULL) {
        char *data;
        size_t bytes;
        snprintf(other, sizeof other, "%s/%s", root, how->other);
        read_all(other, &data, &bytes);
        assert_int_equal(ssm__write_file(path, data, bytes, NULL), SSM_STATUS_OK);
        free(data);
    } else if (how->cut < 0) {
        assert_int_equal(remove(path), 0);
    } else if (how->cut > 0) {
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, how->cut > info.st_size ? 0 : info.st_size - how->cut), 0);
    } else {
        rewrite_file(path, &how->change);
    }
}

static void malformed_recordings_are_refused(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    toy.domains[0] = "pro_se";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char root[TEST_PATH_MAX];
        ssm_error err;
        ssm_error_clear(&err);
        test_make_directory(root);
        assert_int_equal(toy_recording_write(&toy, root, false, NULL), SSM_STATUS_OK);
        assert_int_equal(read_recording(root, NULL), SSM_STATUS_OK);
        break_it(root, &cases[i]);
        ssm_status status = read_recording(root, &err);
        if (status != SSM_STATUS_FILE || err.status != status || err.message[0] == '\0' ||
            strstr(err.file, cases[i].in_file) == NULL ||
            (cases[i].message != NULL && strstr(err.message, cases[i].message) == NULL)) {
            fail_msg("%s: status %d, file '%s', place '%s', message '%s'", cases[i].rule,
                     (int)status, err.file, err.tensor, err.message);
        }
        message_log(cases[i].rule, &err);
        test_remove_directory(root);
    }
    printf("%zu malformed recordings\n", sizeof cases / sizeof cases[0]);
}

static void other_writers_may_leave_our_fields_out(void **state)
{
    (void)state;
    toy_recording toy = toy_recording_shape();
    char root[TEST_PATH_MAX];
    char path[TEST_PATH_MAX * 2];
    test_make_directory(root);
    assert_int_equal(toy_recording_write(&toy, root, false, NULL), SSM_STATUS_OK);
    snprintf(path, sizeof path, "%s/recording.json", root);
    replace_text(path, "\"gram\": true,", "");
    replace_text(path, "\"window_gram\": false,", "");
    replace_text(path, "\"layers\": [\n  0,\n  1,\n  2\n ],", "");
    const char *const files[] = {"model.safetensors", "calibration.code.safetensors",
                                 "calibration.prose.safetensors"};
    const rewrite plain = {0};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        rewrite_file(path, &plain);
    }
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "%s/windows/%05d.safetensors", root, i);
        rewrite_file(path, &plain);
    }
    assert_int_equal(read_recording(root, NULL), SSM_STATUS_OK);
    test_remove_directory(root);
}

static void requests_that_cannot_be_met_say_why(void **state)
{
    (void)state;
    const int64_t layers[] = {1};
    toy_recording toy = toy_recording_shape();
    toy.layers = layers;
    toy.n_recorded = 1;
    char root[TEST_PATH_MAX];
    test_make_directory(root);
    assert_int_equal(toy_recording_write(&toy, root, false, NULL), SSM_STATUS_OK);
    ssm_recording *recording;
    assert_int_equal(ssm_recording_open(root, &recording, NULL), SSM_STATUS_OK);
    const struct {
        int64_t window, layer;
        const char *field, *message;
    } requests[] = {{2, 0, "energy_blocks", "layer 0 was not recorded"},
                    {2, 1, "energies", "no such tensor"},
                    {2, 1, "nll", "no such tensor"},
                    {2, 1, "energy", "no such tensor"}, /* Mamba-2's */
                    {2, -1, "gram", "no such tensor"},
                    {10, 1, "gram", "there is no window 10"},
                    {-1, 1, "gram", "there is no window -1"},
                    {0, 1, "gram", "only in its domain's sum"}};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        const ssm_tensor *tensor;
        ssm_error err;
        ssm_error_clear(&err);
        assert_int_equal(ssm_recording_tensor(recording, requests[i].window, requests[i].layer,
                                              requests[i].field, &tensor, &err),
                         SSM_STATUS_USAGE);
        if (strstr(err.message, requests[i].message) == NULL) {
            fail_msg("expected '%s', found '%s'", requests[i].message, err.message);
        }
    }
    const ssm_tensor *tensor;
    assert_int_equal(ssm_recording_calibration_gram(recording, "music", 1, &tensor, NULL),
                     SSM_STATUS_USAGE);
    assert_int_equal(ssm_recording_A(recording, 2, &tensor, NULL), SSM_STATUS_USAGE);
    assert_null(ssm_recording_get_window(recording, 10));
    ssm_recording_close(recording);
    test_remove_directory(root);
}

static void a_missing_directory_is_a_bad_file(void **state)
{
    (void)state;
    ssm_error err;
    ssm_error_clear(&err);
    ssm_recording *recording;
    assert_int_equal(ssm_recording_open("/nowhere/at/all", &recording, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.file, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_recordings_are_refused),
        cmocka_unit_test(other_writers_may_leave_our_fields_out),
        cmocka_unit_test(requests_that_cannot_be_met_say_why),
        cmocka_unit_test(a_missing_directory_is_a_bad_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
