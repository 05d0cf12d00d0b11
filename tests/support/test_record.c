/* test_record.c: making recordings in tests, and comparing them file by file. */
#include "test_record.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/file.h"
#include "test_golden.h"
#include "test_numbers.h"

static void check(ssm_status status, const ssm_error *err, const char *what)
{
    if (status != SSM_STATUS_OK) {
        fail_msg("%s: %s %s %s", what, err->file, err->tensor, err->message);
    }
}

/* ---- subjects -------------------------------------------------------------------------------- */

record_subject record_tiny(ssm_isa isa, int64_t n_domains)
{
    static const char *const texts[] = {"prose=" SSM_SOURCE_DIR "/examples/text/prose.txt",
                                        "code=" SSM_SOURCE_DIR "/examples/text/code.txt",
                                        "math=" SSM_SOURCE_DIR "/examples/text/math.txt"};
    record_subject subject = {.model = test_model_open(SSM_SOURCE_DIR "/models/tiny", isa)};
    ssm_tokenizer *tokenizer = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_tokenizer_open(SSM_SOURCE_DIR "/models/tiny", &tokenizer, &err), &err, "tokenizer");
    check(
        ssm_corpus_open(tokenizer, texts, n_domains, SSM_INVALID_UTF8_ERROR, &subject.corpus, &err),
        &err, "corpus");
    ssm_tokenizer_free(tokenizer);
    return subject;
}

record_subject record_random(ssm_model *model, int64_t n_domains, int64_t tokens, uint64_t seed)
{
    static char names[RECORD_DOMAINS_MAX][2] = {"a", "b", "c", "d"};
    record_subject subject = {.made = true, .model = model};
    assert_true(n_domains <= RECORD_DOMAINS_MAX);
    subject.corpus.domains = calloc((size_t)n_domains, sizeof *subject.corpus.domains);
    assert_non_null(subject.corpus.domains);
    subject.corpus.n_domains = n_domains;
    for (int64_t d = 0; d < n_domains; d++) {
        ssm_domain *domain = &subject.corpus.domains[d];
        domain->name = names[d];
        domain->ids.data = calloc((size_t)tokens, sizeof *domain->ids.data);
        assert_non_null(domain->ids.data);
        domain->ids.count = tokens;
        toy_ids(ssm_model_config(model), seed + (uint64_t)d, domain->ids.data, tokens);
    }
    return subject;
}

record_subject record_toy(ssm_isa isa, int64_t n_domains, int64_t tokens)
{
    const ssm_config config = toy_config();
    return record_random(test_model_toy(&config, SSM_DTYPE_F32, 51, isa, NULL), n_domains, tokens,
                         60);
}

record_subject record_golden(const char *model, ssm_isa isa, int64_t n_domains, int64_t tokens)
{
    char path[TEST_PATH_MAX];
    ssm_model *opened = test_model_open(golden_model_path(path, model), isa);
    return record_random(opened, n_domains, tokens, 60);
}

void record_subject_free(record_subject *subject)
{
    ssm_model_free(subject->model);
    if (subject->made) {
        for (int64_t d = 0; d < subject->corpus.n_domains; d++) {
            free(subject->corpus.domains[d].ids.data);
        }
        free(subject->corpus.domains);
    } else {
        ssm_corpus_free(&subject->corpus);
    }
    *subject = (record_subject){0};
}

void record_into(const record_subject *subject, const char *directory,
                 const ssm_record_options *options)
{
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_record(subject->model, &subject->corpus, directory, options, &err), &err, "record");
}

ssm_recording *record_and_open(const record_subject *subject, const ssm_record_options *options,
                               char directory[TEST_PATH_MAX])
{
    char path[TEST_PATH_MAX + 8];
    ssm_recording *recording = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    snprintf(path, sizeof path, "%s/rec", test_make_directory(directory));
    record_into(subject, path, options);
    check(ssm_recording_open(path, &recording, &err), &err, "open");
    return recording;
}

double *record_field(ssm_recording *recording, int64_t window, int64_t layer, const char *field,
                     int64_t count)
{
    const ssm_tensor *tensor = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_recording_tensor(recording, window, layer, field, &tensor, &err), &err, field);
    assert_int_equal(ssm_tensor_count(tensor), count);
    double *out = test_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = ssm_tensor_get(tensor, i);
    }
    return out;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const ssm_tensor *const *)a)->name, (*(const ssm_tensor *const *)b)->name);
}

static void digest_tensors(const char *path, char out[64])
{
    ssm_safetensors *file = NULL;
    ssm__digest *digest = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm_safetensors_open(path, false, &file, &err), &err, path);
    check(ssm__digest_create(&digest, &err), &err, path);
    const int64_t count = ssm_safetensors_count(file);
    const ssm_tensor **tensors = calloc((size_t)count + 1, sizeof *tensors);
    assert_non_null(tensors);
    for (int64_t i = 0; i < count; i++) {
        tensors[i] = ssm_safetensors_at(file, i);
    }
    qsort(tensors, (size_t)count, sizeof(const ssm_tensor *), by_tensor_name);
    for (int64_t i = 0; i < count; i++) {
        const ssm_tensor *tensor = tensors[i];
        ssm__digest_add_string(digest, tensor->name);
        ssm__digest_add_string(digest, ssm_dtype_name(tensor->dtype));
        ssm__digest_add(digest, tensor->dims, (size_t)tensor->n_dims * sizeof *tensor->dims);
        ssm__digest_add(digest, tensor->data, tensor->bytes);
    }
    ssm__digest_finish(digest, out);
    free(tensors);
    ssm_safetensors_close(file);
}

static void list_file(record_files *out, const char *directory, const char *name)
{
    char path[2 * TEST_PATH_MAX];
    ssm__map map = {0};
    ssm_error err;
    ssm_error_clear(&err);
    assert_true(out->count < RECORD_FILES_MAX);
    record_file *file = &out->files[out->count++];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_true(snprintf(file->name, sizeof file->name, "%s", name) < (int)sizeof file->name);
    check(ssm__map_open(path, &map, &err), &err, path);
    ssm__digest_bytes(map.data, map.size, file->bytes);
    ssm__map_close(&map);
    const char *ending = strrchr(name, '.');
    file->tensors[0] = '\0';
    if (ending && strcmp(ending, ".safetensors") == 0) {
        digest_tensors(path, file->tensors);
    }
}

static void list_directory(record_files *out, const char *directory, const char *under)
{
    char path[TEST_PATH_MAX], name[sizeof((struct dirent *)0)->d_name + 16];
    snprintf(path, sizeof path, "%s/%s", directory, under);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        const bool deeper = strcmp(entry->d_name, "windows") == 0 && under[0] == '\0';
        if (deeper) {
            list_directory(out, directory, "windows/");
        } else {
            snprintf(name, sizeof name, "%s%s", under, entry->d_name);
            list_file(out, directory, name);
        }
    }
    closedir(listing);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const record_file *)a)->name, ((const record_file *)b)->name);
}

record_files record_list(const char *directory)
{
    record_files files = {0};
    list_directory(&files, directory, "");
    qsort(files.files, (size_t)files.count, sizeof files.files[0], by_name);
    return files;
}

void record_assert_same(const char *what, const record_files *got, const record_files *want)
{
    for (int64_t i = 0; i < got->count && i < want->count; i++) {
        if (strcmp(got->files[i].name, want->files[i].name) != 0) {
            fail_msg("%s: expected file %s, found %s", what, want->files[i].name,
                     got->files[i].name);
        }
        if (strcmp(got->files[i].bytes, want->files[i].bytes) != 0) {
            fail_msg("%s: the bytes of %s differ (its tensors %s)", what, got->files[i].name,
                     strcmp(got->files[i].tensors, want->files[i].tensors) == 0 ? "do not" : "do");
        }
    }
    if (got->count != want->count) {
        fail_msg("%s: %lld files, expected %lld", what, (long long)got->count,
                 (long long)want->count);
    }
}

void record_digest(const record_files *files, char out[64])
{
    ssm__digest *digest = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    check(ssm__digest_create(&digest, &err), &err, "digest");
    for (int64_t i = 0; i < files->count; i++) {
        if (files->files[i].tensors[0] != '\0') {
            ssm__digest_add_string(digest, files->files[i].name);
            ssm__digest_add_string(digest, files->files[i].tensors);
        }
    }
    ssm__digest_finish(digest, out);
}

record_files record_and_list(const record_subject *subject, const ssm_record_options *options)
{
    char directory[TEST_PATH_MAX], recording[TEST_PATH_MAX + 8];
    test_make_directory(directory);
    snprintf(recording, sizeof recording, "%s/rec", directory);
    record_into(subject, recording, options);
    const record_files files = record_list(recording);
    test_remove_directory(directory);
    return files;
}

void record_check_golden(const char *name, const char *found)
{
    char path[TEST_PATH_MAX], line[256], expected[256] = "";
    FILE *file = fopen(test_golden_path(path, "digests.txt"), "r");
    assert_non_null(file);
    const size_t length = strlen(name);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = '\0';
            snprintf(expected, sizeof expected, "%s", line + length + 1);
        }
    }
    fclose(file);
    if (strcmp(expected, found) != 0) {
        fail_msg("%s: expected '%s'. If the change of bits is meant, put this line there:\n%s %s",
                 path, expected, name, found);
    }
}
