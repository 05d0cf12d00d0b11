/* Malformed torch files by their container: zip archives, the older stream, files that are
 * something else. Named by the rule they break; each has its own message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "test_messages.h"
#include "test_paths.h"
#include "test_zip.h"
#include "torch/torch_file.h"

/* The dict {"a": storage "0" of four floats}. */
#define ID                                                                                         \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                             \
    "0X\3\0\0\0"                                                                                   \
    "cpuK\4"
#define TENSOR(id) "ctorch._utils\n_rebuild_tensor_v2\n(" id "QK\0K\4\205K\1\205\211NtR"
#define OBJECT                                                                                     \
    "\200\2}X\1\0\0\0"                                                                             \
    "a" TENSOR(ID "t") "s."

static const char pickle[] = OBJECT;
static const float numbers[4] = {1, 2, 3, 4};
static const unsigned char zeros[1 << 20];

#define PICKLE                                                                                     \
    {                                                                                              \
        .name = "x/data.pkl", .data = pickle, .size = sizeof pickle - 1                            \
    }
#define DATA                                                                                       \
    {                                                                                              \
        .name = "x/data/0", .data = numbers, .size = 16                                            \
    }

static ssm_status parse(const unsigned char *data, size_t size, ssm_error *err)
{
    /* A block of exactly this size: a sanitizer sees a read beyond it. */
    unsigned char *exact = malloc(size > 0 ? size : 1);
    assert_non_null(exact);
    if (size > 0) {
        memcpy(exact, data, size);
    }
    ssm__torch_file *file = NULL;
    ssm_error_clear(err);
    ssm_status status = ssm__torch_parse("broken.bin", exact, size, &file, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__torch_check_crc(file, err);
        ssm__torch_close(file);
    } else {
        assert_null(file);
    }
    free(exact);
    return status;
}

static void expect(message_list *list, const char *rule, const void *data, size_t size,
                   const char *part)
{
    ssm_error err;
    ssm_status status = parse(data, size, &err);
    message_expect(list, rule, status, SSM_STATUS_FILE, &err, part);
}

/* ---- zip archives ---------------------------------------------------------------------------- */

enum { PARTS = 4 };

typedef struct zip_row {
    const char *rule;
    const char *part; /* of the message */
    zip_part parts[PARTS];
} zip_row;

#define MEMBER(text, content)                                                                      \
    {                                                                                              \
        .name = text, .data = content, .size = sizeof(content) - 1                                 \
    }
#define DATA_BUT(...)                                                                              \
    {                                                                                              \
        .name = "x/data/0", .data = numbers, .size = 16, __VA_ARGS__                               \
    }
#define PICKLE_BUT(...)                                                                            \
    {                                                                                              \
        .name = "x/data.pkl", .data = pickle, .size = sizeof pickle - 1, __VA_ARGS__               \
    }

static const zip_row zip_rows[] = {
    {"there is a data.pkl", "of 1 members has no data.pkl", {DATA}},
    {"data.pkl is in a directory",
     "no directory with a data.pkl",
     {MEMBER("data.pkl", OBJECT), MEMBER("data/0", "")}},
    {"data.pkl is one directory deep",
     "of 2 members has no data.pkl",
     {MEMBER("x/y/data.pkl", OBJECT), DATA}},
    {"there is one data.pkl",
     "has a second data.pkl; the first is x/data.pkl",
     {PICKLE, DATA, MEMBER("y/data.pkl", OBJECT)}},
    {"not TorchScript", "a TorchScript archive", {PICKLE, DATA, MEMBER("x/constants.pkl", "")}},
    {"the storage is there", "data.pkl refers to this member", {PICKLE}},
    {"the storage is in the same directory",
     "data.pkl refers to this member",
     {MEMBER("z/data.pkl", OBJECT), DATA}},
    {"the storage is not shorter",
     "the member has 12 bytes; data.pkl says 4 elements of F32, 16",
     {PICKLE, {.name = "x/data/0", .data = numbers, .size = 12}}},
    {"the storage is not longer",
     "the member has 17 bytes",
     {PICKLE, {.name = "x/data/0", .data = zeros, .size = 17}}},
    {"names are unique", "two members of this name", {PICKLE, DATA, DATA}},
    {"names are not absolute", "absolute or has \"..\"", {PICKLE, DATA, MEMBER("/etc/x", "")}},
    {"names do not climb", "absolute or has \"..\"", {PICKLE, DATA, MEMBER("x/../../y", "")}},
    {"names have no drive", "absolute or has \"..\"", {PICKLE, DATA, MEMBER("C:x", "")}},
    {"members are not encrypted", "is encrypted", {PICKLE, DATA_BUT(.flags = 1)}},
    {"no bzip2", "compressed with method 12", {PICKLE, DATA_BUT(.method = 12)}},
    {"no zstd", "compressed with method 93", {PICKLE, DATA_BUT(.method = 93)}},
    {"what is stored has one size",
     "has 16 bytes in the file and 17 outside",
     {PICKLE, DATA_BUT(.size_change = 1)}},
    {"a size is not beyond the file",
     "the member claims 1000016 bytes of a file of",
     {PICKLE, DATA_BUT(.size_change = 1000000, .packed_change = 1000000)}},
    {"a size of 63 bits is not beyond the file",
     "the member claims 4611686018427387920 bytes",
     {PICKLE,
      DATA_BUT(.zip64 = 1, .size_change = INT64_C(1) << 62, .packed_change = INT64_C(1) << 62)}},
    {"data end within the file",
     "reach beyond the end of the file",
     {PICKLE, DATA_BUT(.size_change = 200, .packed_change = 200)}},
    {"a member begins with its header",
     "no member begins",
     {PICKLE, DATA_BUT(.offset_change = -3)}},
    {"a member begins within the file",
     "no member begins",
     {PICKLE_BUT(.zip64 = 1, .offset_change = INT64_C(1) << 40), DATA}},
    {"members do not overlap",
     "overlaps the member x/data.pkl",
     {PICKLE_BUT(.size_change = 0),
      DATA_BUT(.offset_change = -40 - (int64_t)sizeof pickle + 1, .size_change = 0)}},
    {"the CRC of the pickle is right", "of the member is", {PICKLE_BUT(.crc_change = 1), DATA}},
    {"the CRC of a storage is right", "of the member is", {PICKLE, DATA_BUT(.crc_change = 2)}},
    {"the CRC of a compressed pickle is right",
     "its CRC-32 is not what the archive says",
     {PICKLE_BUT(.deflate = 1, .crc_change = 1), DATA}},
    {"the CRC of a compressed storage is right",
     "its CRC-32 is not",
     {PICKLE, DATA_BUT(.deflate = 1, .crc_change = 1)}},
    {"a compressed member is not longer than said",
     "the member inflates to more bytes",
     {PICKLE, DATA_BUT(.deflate = 1, .size_change = -1)}},
    {"a compressed member is not shorter than said",
     "the member inflates to fewer bytes",
     {PICKLE, DATA_BUT(.deflate = 1, .size_change = 1)}},
    {"compressed data are whole",
     "its compressed data are damaged",
     {PICKLE, {.name = "x/data/0", .data = "\7garbage", .size = 8, .method = 8}}},
    {"a compressed member is no bomb",
     "refused as a decompression bomb",
     {PICKLE, DATA_BUT(.deflate = 1, .size_change = 1 << 30)}},
    {"the byte order is little",
     "written on a big-endian machine; load it in PyTorch",
     {PICKLE, DATA, MEMBER("x/byteorder", "big")}},
    {"the byte order is known",
     "neither \"little\" nor \"big\"",
     {PICKLE, DATA, MEMBER("x/byteorder", "middle")}},
    {"the version is a number",
     "version of the archive is not a number",
     {PICKLE, DATA, MEMBER("x/version", "three\n")}},
    {"the version is known",
     "the archive has version 11",
     {PICKLE, DATA, MEMBER("x/version", "11")}},
};

static size_t count_parts(const zip_row *row)
{
    size_t count = 0;
    while (count < PARTS && row->parts[count].name != NULL) {
        count++;
    }
    return count;
}

static void zip_archives(void **state)
{
    (void)state;
    message_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < sizeof zip_rows / sizeof zip_rows[0]; i++) {
        size_t size = 0;
        unsigned char *archive = zip_build(zip_rows[i].parts, count_parts(&zip_rows[i]), &size);
        expect(list, zip_rows[i].rule, archive, size, zip_rows[i].part);
        free(archive);
    }
    printf("%d malformed archives\n", list->count);
    free(list);
}

static void good_archives(void **state)
{
    (void)state;
    static const zip_row rows[] = {
        {"plain", "", {PICKLE, DATA}},
        {"data first", "", {DATA, PICKLE}},
        {"zip64", "", {PICKLE_BUT(.zip64 = 1), DATA_BUT(.zip64 = 1)}},
        {"compressed", "", {PICKLE_BUT(.deflate = 1), DATA_BUT(.deflate = 1)}},
        {"other members", "", {PICKLE, DATA, MEMBER("x/version", "3\n"), MEMBER("x/.more..", "?")}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size = 0;
        ssm_error err;
        unsigned char *archive = zip_build(rows[i].parts, count_parts(&rows[i]), &size);
        if (parse(archive, size, &err) != SSM_STATUS_OK) {
            fail_msg("%s: %s", rows[i].rule, err.message);
        }
        free(archive);
    }
}

/* Together, many small members may not inflate to much. */
static void many_small_bombs(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static const char head[] = "\200\2}(", foot[] = "u.";
    static char names[MANY][16];
    zip_part parts[MANY + 1];
    char *text = calloc(MANY + 1, 256);
    assert_non_null(text);
    size_t used = sizeof head - 1;
    memcpy(text, head, used);
    for (int i = 0; i < MANY; i++) {
        static const char before[] = "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
                                     "ctorch\nByteStorage\n";
        static const char after[] = "X\3\0\0\0"
                                    "cpuJ\0\0\20\0tQK\0K\0\205K\1\205\211NtR";
        char word[16] = "X\3\0\0\0";
        snprintf(word + 5, 8, "%03d", i);
        memcpy(text + used, word, 8);
        memcpy(text + used + 8, before, sizeof before - 1);
        memcpy(text + used + 8 + sizeof before - 1, word, 8);
        memcpy(text + used + 16 + sizeof before - 1, after, sizeof after - 1);
        used += 16 + sizeof before - 1 + sizeof after - 1;
        snprintf(names[i], sizeof names[i], "x/data/%03d", i);
        parts[i + 1] =
            (zip_part){.name = names[i], .data = zeros, .size = sizeof zeros, .deflate = 1};
    }
    memcpy(text + used, foot, sizeof foot - 1);
    parts[0] = (zip_part){.name = "x/data.pkl", .data = text, .size = used + sizeof foot - 1};
    size_t size = 0;
    ssm_error err;
    unsigned char *archive = zip_build(parts, MANY + 1, &size);
    assert_true(size < 1 << 20); /* 100 MiB from less than 1 MiB: more than 64 + 32 × 1 */
    assert_int_equal(parse(archive, size, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "decompression bomb"));
    free(archive);
    free(text);
}

/* ---- the older stream ------------------------------------------------------------------------ */

#define MAGIC    "\200\2\212\12\154\374\234\106\371\40\152\250\120\31."
#define PROTOCOL "\200\2M\351\3."
#define SYSTEM   "\200\2}X\15\0\0\0little_endian\210s."
#define OBJECT6                                                                                    \
    "\200\2}X\1\0\0\0"                                                                             \
    "a" TENSOR(ID "Nt") "s."
#define KEYS                                                                                       \
    "\200\2]X\1\0\0\0"                                                                             \
    "0a."
#define COUNT  "\4\0\0\0\0\0\0\0"
#define FLOATS "0123456789abcdef"

typedef struct row {
    const char *rule;
    const char *data;
    size_t size;
    const char *part;
} row;
#define ROW(rule, data, part)                                                                      \
    {                                                                                              \
        rule, data, sizeof(data) - 1, part                                                         \
    }

static const row stream_rows[] = {
    ROW("the magic number is whole", "\200\2\212\12\154\374\234\106\371\40",
        "truncated or damaged"),
    ROW("the magic number is torch's", "\200\2\212\12\154\374\234\106\371\40\152\250\120\32.",
        "this is a PyTorch (legacy pickle) checkpoint"),
    ROW("the magic number is alone", "\200\2\212\12\154\374\234\106\371\40\152\250\120\31\205.",
        "does not begin with the magic number"),
    ROW("the protocol follows", MAGIC, "(byte 0 of the protocol's pickle)"),
    ROW("the protocol is 1001", MAGIC "\200\2M\352\3.", "is not 1001"),
    ROW("the system follows", MAGIC PROTOCOL, "(byte 0 of the sys_info pickle)"),
    ROW("the system is a dict", MAGIC PROTOCOL "\200\2N.", "does not say little_endian"),
    ROW("the system is little-endian", MAGIC PROTOCOL "\200\2}X\15\0\0\0little_endian\211s.",
        "on a big-endian machine (sys_info)"),
    ROW("the object follows", MAGIC PROTOCOL SYSTEM, "(byte 0 of the object's pickle)"),
    ROW("the object runs no code", MAGIC PROTOCOL SYSTEM "\200\2cos\nsystem\n.", "use os.system"),
    ROW("the keys follow", MAGIC PROTOCOL SYSTEM OBJECT6, "(byte 0 of the storage keys' pickle)"),
    ROW("the keys are a list", MAGIC PROTOCOL SYSTEM OBJECT6 "\200\2).",
        "storages are a tuple, expected a list"),
    ROW("every key is in the object",
        MAGIC PROTOCOL SYSTEM OBJECT6 "\200\2]X\1\0\0\0"
                                      "7a." COUNT FLOATS,
        "key 0 of the stream's storages is not in its pickle"),
    ROW("every key is a string",
        MAGIC PROTOCOL SYSTEM OBJECT6 "\200\2](X\1\0\0\0"
                                      "0K\1e." COUNT FLOATS,
        "key 1 of the stream's storages"),
    ROW("every storage is listed", MAGIC PROTOCOL SYSTEM OBJECT6 "\200\2].",
        "storage \"0\" is used and not in the stream's list"),
    ROW("no storage is listed twice",
        MAGIC PROTOCOL SYSTEM OBJECT6 "\200\2](X\1\0\0\0"
                                      "0X\1\0\0\0"
                                      "0e." COUNT FLOATS COUNT FLOATS,
        "lists storage \"0\" twice"),
    ROW("a storage has its size", MAGIC PROTOCOL SYSTEM OBJECT6 KEYS "\4\0\0\0",
        "ends before the size of a storage"),
    ROW("the sizes agree", MAGIC PROTOCOL SYSTEM OBJECT6 KEYS "\5\0\0\0\0\0\0\0" FLOATS,
        "5 elements here and 4 in the pickle"),
    ROW("a negative size does not agree",
        MAGIC PROTOCOL SYSTEM OBJECT6 KEYS "\377\377\377\377\377\377\377\377" FLOATS,
        "18446744073709551615 elements here"),
    ROW("a storage is whole", MAGIC PROTOCOL SYSTEM OBJECT6 KEYS COUNT "0123456789abcde",
        "a storage of 16 bytes begins at byte"),
    ROW("nothing follows", MAGIC PROTOCOL SYSTEM OBJECT6 KEYS COUNT FLOATS "x",
        "1 bytes follow the last storage"),
};

static void streams(void **state)
{
    (void)state;
    static const char good[] = MAGIC PROTOCOL SYSTEM OBJECT6 KEYS COUNT FLOATS;
    ssm_error err;
    if (parse((const unsigned char *)good, sizeof good - 1, &err) != SSM_STATUS_OK) {
        fail_msg("%s", err.message);
    }
    message_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < sizeof stream_rows / sizeof stream_rows[0]; i++) {
        const row *r = &stream_rows[i];
        expect(list, r->rule, r->data, r->size, r->part);
    }
    printf("%d malformed streams\n", list->count);
    free(list);
}

/* ---- something else -------------------------------------------------------------------------- */

static const row other_rows[] = {
    ROW("the file is not empty", "", "the file is empty"),
    ROW("not a Git LFS pointer",
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 516567560\n",
        "Git LFS pointer of 72 bytes, not the file of 516567560 bytes"),
    ROW("not a web page", "<!DOCTYPE html>\n<html><head><title>Sign in</title>", "web page"),
    ROW("not a GGUF file", "GGUF\3\0\0\0\0\0\0\0", "a GGUF file"),
    ROW("not a NumPy array", "\x93NUMPY\1\0\x76\0", "a NumPy array"),
    ROW("not gzip", "\x1f\x8b\x08\0\0\0\0\0", "gzip-compressed"),
    ROW("not safetensors", "\2\0\0\0\0\0\0\0{}", "a safetensors file under the name of a torch"),
    ROW("not a plain pickle", "\200\4\225\20\0\0\0\0\0\0\0}\224.", "a Python pickle"),
    ROW("not something unknown", "hello, world", "begins with byte 0x68"),
    ROW("an archive has its directory",
        "PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "no central directory at its end: the file of 30 bytes is truncated"),
    ROW("an archive is not empty", "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "of 0 members has no data.pkl"),
};

static void other_files(void **state)
{
    (void)state;
    message_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < sizeof other_rows / sizeof other_rows[0]; i++) {
        const row *r = &other_rows[i];
        expect(list, r->rule, r->data, r->size, r->part);
    }
    char tar[512] = "pickle";
    memcpy(tar + 257, "ustar  ", 8);
    expect(list, "not a tar archive", tar, sizeof tar, "the form of PyTorch before 0.1.10");
    printf("%d other files\n", list->count);
    free(list);
}

/* ---- whole files of PyTorch ------------------------------------------------------------------ */

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"zip.bin", "legacy.bin", "legacy_protocol4.bin",
                                        "deflated.bin"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char relative[64];
        char path[TEST_PATH_MAX];
        ssm__map map;
        ssm_error err;
        snprintf(relative, sizeof relative, "torch/%s", names[i]);
        assert_int_equal(ssm__map_open(test_golden_path(path, relative), &map, NULL), 0);
        assert_int_equal(parse(map.data, map.size, &err), SSM_STATUS_OK);
        for (size_t size = 0; size < map.size; size++) {
            if (parse(map.data, size, &err) != SSM_STATUS_FILE) {
                fail_msg("%s cut to %zu bytes is accepted", names[i], size);
            }
        }
        ssm__map_close(&map);
    }
}

static void missing_files(void **state)
{
    (void)state;
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_open("/no/such/pytorch_model.bin", &file, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "does not exist"));
    ssm_error_clear(&err);
    assert_int_equal(ssm__torch_open("/", &file, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "is a directory"));
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zip_archives),     cmocka_unit_test(good_archives),
        cmocka_unit_test(many_small_bombs), cmocka_unit_test(streams),
        cmocka_unit_test(other_files),      cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
