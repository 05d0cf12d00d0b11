#include "base/foreign.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct signature {
    const char *bytes;
    size_t size;
    const char *what;
    const char *advice;
} signature;

static const signature signatures[] = {
    {"PK\x03\x04", 4, "a PyTorch (zip) checkpoint", "its name must end in .bin, .pt or .pth"},
    {"\x80\x02\x8a", 3, "a PyTorch (legacy pickle) checkpoint",
     "its name must end in .bin, .pt or .pth"},
    {"\x80\x02", 2, "a Python pickle", "pickles run code when they are read; use safetensors"},
    {"\x80\x03", 2, "a Python pickle", "pickles run code when they are read; use safetensors"},
    {"\x80\x04\x95", 3, "a Python pickle", "pickles run code when they are read; use safetensors"},
    {"\x80\x05\x95", 3, "a Python pickle", "pickles run code when they are read; use safetensors"},
    {"GGUF", 4, "a GGUF file", "use the checkpoint that it was converted from"},
    {"\x93NUMPY", 6, "a NumPy array", "expected a safetensors checkpoint"},
    {"\x89HDF\r\n", 6, "an HDF5 file", "expected a safetensors checkpoint"},
    {"\x1f\x8b\x08", 3, "gzip-compressed data", "decompress it first"},
    {"\x28\xb5\x2f\xfd", 4, "zstd-compressed data", "decompress it first"},
    {"\xfd\x37zXZ", 5, "xz-compressed data", "decompress it first"},
};

static bool begins_with(const unsigned char *data, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (size < length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (tolower(data[i]) != text[i]) {
            return false;
        }
    }
    return true;
}

static bool is_web_page(const unsigned char *data, size_t size)
{
    size_t start = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (start < size && start < 64 && isspace(data[start])) {
        start++;
    }
    return begins_with(data + start, size - start, "<!doctype html") ||
           begins_with(data + start, size - start, "<html") ||
           begins_with(data + start, size - start, "<?xml") ||
           begins_with(data + start, size - start, "<head");
}

/* The number after "\nsize " in a pointer's text, or −1. */
static long long pointer_size(const unsigned char *data, size_t size)
{
    char text[512];
    size_t length = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, length);
    text[length] = '\0';
    const char *found = strstr(text, "\nsize ");
    return found == NULL ? -1 : strtoll(found + 6, NULL, 10);
}

static ssm_status refuse_pointer(const char *path, const unsigned char *data, size_t size,
                                 ssm_error *err)
{
    char expected[64] = "";
    long long real = pointer_size(data, size);
    if (real >= 0) {
        snprintf(expected, sizeof expected, " of %lld bytes", real);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0),
                     "this is a Git LFS pointer of %zu bytes, not the file%s that it stands for; "
                     "fetch it with `git lfs pull`",
                     size, expected);
}

ssm_status ssm__refuse_foreign(const char *path, const unsigned char *data, size_t size,
                               ssm_error *err)
{
    if (begins_with(data, size, "version https://git-lfs")) {
        return refuse_pointer(path, data, size, err);
    }
    if (is_web_page(data, size)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0),
                         "this is a web page (HTML), not the file: the download was redirected to "
                         "a page, perhaps a login or an error; download it again");
    }
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const signature *s = &signatures[i];
        if (size >= s->size && memcmp(data, s->bytes, s->size) == 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(path, 0), "this is %s; %s", s->what,
                             s->advice);
        }
    }
    return SSM_STATUS_OK;
}
