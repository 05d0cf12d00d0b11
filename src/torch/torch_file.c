#include "torch/torch_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/foreign.h"
#include "safetensors/names.h"
#include "torch/internal.h"

/* ---- what kind of file it is ----------------------------------------------------------------- */

static bool is_zip(const unsigned char *data, size_t size)
{
    return size >= 4 && (memcmp(data, "PK\x03\x04", 4) == 0 || memcmp(data, "PK\x05\x06", 4) == 0);
}

/* PROTO 2 to 5, from protocol 4 on perhaps FRAME with its length, then LONG1 of ten bytes: the
 * magic number. Of a file that is cut short what is there must agree, with the magic's first byte.
 */
static bool is_legacy(const unsigned char *data, size_t size)
{
    static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                          0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    if (size < 3 || data[0] != 0x80 || data[1] < 2 || data[1] > 5) {
        return false;
    }
    size_t start = data[1] >= 4 && data[2] == 0x95 ? 11 : 2;
    size_t present = size > start ? size - start : 0;
    present = present < sizeof magic ? present : sizeof magic;
    return present > 0 && memcmp(data + start, magic, present) == 0;
}

bool ssm__torch_recognise(const unsigned char *data, size_t size)
{
    return is_zip(data, size) || is_legacy(data, size);
}

static bool is_safetensors(const unsigned char *data, size_t size)
{
    uint64_t length = 0;
    for (int i = 7; size > 9 && i >= 0; i--) {
        length = length << 8 | data[i];
    }
    return size > 9 && length >= 2 && length <= size - 8 && data[8] == '{';
}

static ssm_status refuse(const char *path, const unsigned char *data, size_t size, ssm_error *err)
{
    ssm__place place = SSM__AT(path, 0);
    if (size == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the file is empty; expected a torch checkpoint: download it again");
    }
    if (size >= 263 && memcmp(data + 257, "ustar", 5) == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "this is a tar archive, the form of PyTorch before 0.1.10, which is not "
                         "read; load it in PyTorch and save it again");
    }
    if (is_safetensors(data, size)) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "this is a safetensors file under the name of a torch checkpoint; give it "
                         "a name that ends in .safetensors");
    }
    SSM__TRY(ssm__refuse_foreign(path, data, size, err));
    return ssm__fail(err, SSM_STATUS_FILE, place,
                     "the file of %zu bytes begins with byte 0x%02x; a torch checkpoint is a zip "
                     "archive (PK) or begins with 0x80 0x02: truncated, or something else",
                     size, data[0]);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ssm_status parse_into(ssm__torch_file *file, const unsigned char *data, size_t size,
                             ssm_error *err)
{
    if (is_zip(data, size)) {
        return ssm__torch_read_archive(file, data, size, err);
    }
    if (is_legacy(data, size)) {
        return ssm__torch_read_legacy(file, data, size, err);
    }
    return refuse(file->path, data, size, err);
}

static ssm_status create(const char *path, ssm__torch_file **out, ssm_error *err)
{
    ssm__torch_file *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return ssm__fail_memory(err, "an open torch file", sizeof *file);
    }
    file->memory.limit = SSM__PICKLE_MEMORY;
    *out = file;
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_parse(const char *path, const unsigned char *data, size_t size,
                            ssm__torch_file **out, ssm_error *err)
{
    *out = NULL;
    ssm__torch_file *file = NULL;
    SSM__TRY(create(path, &file, err));
    ssm_status status = parse_into(file, data, size, err);
    if (status != SSM_STATUS_OK) {
        ssm__torch_close(file);
        return status;
    }
    *out = file;
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_open(const char *path, ssm__torch_file **out, ssm_error *err)
{
    *out = NULL;
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status = ssm__torch_parse(path, map.data, map.size, out, err);
    if (status != SSM_STATUS_OK) {
        ssm__map_close(&map);
        return status;
    }
    (*out)->map = map;
    return SSM_STATUS_OK;
}

void ssm__torch_close(ssm__torch_file *file)
{
    if (file == NULL) {
        return;
    }
    for (size_t i = 0; i < file->owned_count; i++) {
        free(file->owned[i]);
    }
    ssm__zip_close(file->zip);
    ssm__bump_free(&file->memory);
    free(file->tensors);
    free(file->by_name);
    ssm__map_close(&file->map);
    free(file->path);
    free(file);
}

/* ---- looking at it --------------------------------------------------------------------------- */

int64_t ssm__torch_count(const ssm__torch_file *file)
{
    return file->count;
}

const ssm_tensor *ssm__torch_at(const ssm__torch_file *file, int64_t i)
{
    return i >= 0 && i < file->count ? &file->tensors[i] : NULL;
}

const ssm_tensor *ssm__torch_find(const ssm__torch_file *file, const char *name)
{
    return ssm__names_find(file->by_name, file->count, name);
}

int64_t ssm__torch_note_count(const ssm__torch_file *file)
{
    return (int64_t)file->note_count;
}

const char *ssm__torch_note(const ssm__torch_file *file, int64_t i)
{
    return i >= 0 && i < ssm__torch_note_count(file) ? file->notes[i] : NULL;
}

ssm_status ssm__torch_add_note(ssm__torch_file *file, ssm_error *err, const char *format, ...)
{
    char text[SSM_ERROR_MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *copy = ssm__bump_text(&file->memory, text, strlen(text));
    if (copy == NULL || !ssm__bump_room(&file->memory, &file->notes, &file->note_room,
                                        file->note_count, sizeof(char *))) {
        return ssm__fail_memory(err, "a note", strlen(text));
    }
    file->notes[file->note_count++] = copy;
    return SSM_STATUS_OK;
}

ssm_status ssm__torch_check_crc(const ssm__torch_file *file, ssm_error *err)
{
    for (int64_t i = 0; file->zip != NULL && i < ssm__zip_count(file->zip); i++) {
        SSM__TRY(ssm__zip_check_crc(file->zip, i, err));
    }
    return SSM_STATUS_OK;
}
