/* test_zip.c: zip archives made to a test's wishes. */
#include "test_zip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

typedef struct bytes {
    unsigned char *data;
    size_t used, room;
} bytes;

static void add(bytes *b, const void *data, size_t size)
{
    if (b->used + size > b->room) {
        b->room = 2 * (b->used + size) + 64;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    if (size > 0) {
        memcpy(b->data + b->used, data, size);
    }
    b->used += size;
}

static void put(bytes *b, size_t width, uint64_t value)
{
    for (size_t i = 0; i < width; i++) {
        const unsigned char byte = (unsigned char)(value >> (8 * i) & 0xff);
        add(b, &byte, 1);
    }
}

/* Raw deflate, no zlib header. */
static size_t deflate_into(const zip_part *part, unsigned char **out)
{
    z_stream stream = {0};
    size_t room = part->size + part->size / 10 + 64;
    *out = malloc(room);
    assert_non_null(*out);
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (unsigned char *)(uintptr_t)part->data;
    stream.avail_in = (unsigned)part->size;
    stream.next_out = *out;
    stream.avail_out = (unsigned)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return stream.total_out;
}

static void add_local(bytes *b, const zip_part *part, uint32_t crc, size_t packed)
{
    put(b, 4, 0x04034b50);
    put(b, 2, 20);
    put(b, 2, (uint64_t)part->flags);
    put(b, 2, part->method != 0 ? (uint64_t)part->method : part->deflate != 0 ? 8 : 0);
    put(b, 4, 0x00210000);
    put(b, 4, crc);
    put(b, 4, packed);
    put(b, 4, part->size);
    put(b, 2, strlen(part->name));
    put(b, 2, 0);
    add(b, part->name, strlen(part->name));
}

static void add_central(bytes *b, const zip_part *part, uint32_t crc, size_t packed, size_t offset)
{
    const uint64_t size_said = part->size + (uint64_t)part->size_change;
    const uint64_t packed_said = packed + (uint64_t)part->packed_change;
    const uint64_t offset_said = offset + (uint64_t)part->offset_change;
    put(b, 4, 0x02014b50);
    put(b, 2, 20);
    put(b, 2, 20);
    put(b, 2, (uint64_t)part->flags);
    put(b, 2, part->method != 0 ? (uint64_t)part->method : part->deflate != 0 ? 8 : 0);
    put(b, 4, 0x00210000);
    put(b, 4, crc ^ part->crc_change);
    put(b, 4, part->zip64 != 0 ? 0xffffffff : packed_said);
    put(b, 4, part->zip64 != 0 ? 0xffffffff : size_said);
    put(b, 2, strlen(part->name));
    put(b, 2, part->zip64 != 0 ? 28 : 0);
    put(b, 2, 0);
    put(b, 2, 0);
    put(b, 2, 0);
    put(b, 4, 0);
    put(b, 4, part->zip64 != 0 ? 0xffffffff : offset_said);
    add(b, part->name, strlen(part->name));
    if (part->zip64 != 0) {
        put(b, 2, 1);
        put(b, 2, 24);
        put(b, 8, size_said);
        put(b, 8, packed_said);
        put(b, 8, offset_said);
    }
}

unsigned char *zip_build(const zip_part *parts, size_t count, size_t *size)
{
    bytes whole = {0};
    bytes directory = {0};
    for (size_t i = 0; i < count; i++) {
        const zip_part *part = &parts[i];
        const size_t offset = whole.used;
        const uint32_t crc =
            part->size > 0 ? (uint32_t)crc32(0, part->data, (unsigned)part->size) : 0;
        unsigned char *deflated = NULL;
        const size_t packed = part->deflate != 0 ? deflate_into(part, &deflated) : part->size;
        add_local(&whole, part, crc, packed);
        add(&whole, part->deflate != 0 ? deflated : part->data, packed);
        add_central(&directory, part, crc, packed, offset);
        free(deflated);
    }
    const size_t start = whole.used;
    add(&whole, directory.data, directory.used);
    put(&whole, 4, 0x06054b50);
    put(&whole, 4, 0);
    put(&whole, 2, count);
    put(&whole, 2, count);
    put(&whole, 4, directory.used);
    put(&whole, 4, start);
    put(&whole, 2, 0);
    free(directory.data);
    unsigned char *exact = realloc(whole.data, whole.used);
    assert_non_null(exact);
    *size = whole.used;
    return exact;
}
