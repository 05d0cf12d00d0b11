#include "torch/zip_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/error.h"
#include "base/file.h"

enum {
    ALIGNMENT = 64,
    FLAGS = 0x0808, /* sums behind the data; names in UTF-8 */
    DATE = 0x0021,  /* 1980-01-01, the first day there is */
    VERSION = 45,   /* zip64 is understood */
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    PADDING_ID = 0x4246, /* "FB", by which torch fills up a header */
    ZIP64_ID = 0x0001,
};
#define FULL16 0xffffU
#define FULL32 0xffffffffU

typedef struct member {
    char *name;
    size_t name_bytes;
    uint64_t header; /* offset */
    uint64_t size;
    uint32_t crc;
} member;

struct ssm__zip_writer {
    char *path;
    ssm__writer *file;
    uint64_t at;
    member *members;
    size_t count, room;
    uint64_t added; /* of the latest member */
};

/* Little-endian fields one behind the other. */
typedef struct fields {
    unsigned char bytes[256];
    size_t used;
} fields;

static void put(fields *f, size_t width, uint64_t value)
{
    for (size_t i = 0; i < width; i++) {
        f->bytes[f->used++] = (unsigned char)(value >> (8 * i) & 0xff);
    }
}

static uint64_t clipped(uint64_t value)
{
    return value < FULL32 ? value : FULL32;
}

static ssm_status write_bytes(ssm__zip_writer *writer, const void *data, size_t bytes,
                              ssm_error *err)
{
    writer->at += bytes;
    return bytes == 0 ? SSM_STATUS_OK : ssm__writer_write(writer->file, data, bytes, err);
}

static ssm_status write_fields(ssm__zip_writer *writer, const fields *f, ssm_error *err)
{
    return write_bytes(writer, f->bytes, f->used, err);
}

ssm_status ssm__zip_writer_open(const char *path, ssm__zip_writer **out, ssm_error *err)
{
    *out = NULL;
    ssm__zip_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL || (writer->path = strdup(path)) == NULL) {
        free(writer);
        return ssm__fail_memory(err, "a zip writer", sizeof *writer);
    }
    ssm_status status = ssm__writer_open(path, &writer->file, err);
    if (status != SSM_STATUS_OK) {
        ssm__zip_writer_abort(writer);
        return status;
    }
    *out = writer;
    return SSM_STATUS_OK;
}

/* ---- members --------------------------------------------------------------------------------- */

static ssm_status add_member(ssm__zip_writer *writer, const char *name, uint64_t size,
                             ssm_error *err)
{
    if (writer->count == writer->room) {
        size_t room = writer->room == 0 ? 16 : 2 * writer->room;
        member *members = realloc(writer->members, room * sizeof *members);
        if (members == NULL) {
            return ssm__fail_memory(err, "the directory of a zip archive", room * sizeof *members);
        }
        writer->members = members;
        writer->room = room;
    }
    member *m = &writer->members[writer->count];
    *m = (member){
        .name = strdup(name), .name_bytes = strlen(name), .header = writer->at, .size = size};
    if (m->name == NULL) {
        return ssm__fail_memory(err, "the name of a zip member", m->name_bytes);
    }
    writer->count++;
    writer->added = 0;
    return SSM_STATUS_OK;
}

/* Header, name and an extra field that ends at a multiple of 64. A large member also has the zip64
 * field, so that the sizes behind its data are known to have eight bytes. */
static ssm_status write_local(ssm__zip_writer *writer, const member *m, ssm_error *err)
{
    fields extra = {.used = 0};
    bool large = m->size >= FULL32;
    if (large) {
        put(&extra, 2, ZIP64_ID);
        put(&extra, 2, 16);
        put(&extra, 8, 0);
        put(&extra, 8, 0);
    }
    uint64_t end = writer->at + LOCAL_BYTES + m->name_bytes + extra.used + 4;
    size_t padding = (size_t)((ALIGNMENT - end % ALIGNMENT) % ALIGNMENT);
    put(&extra, 2, PADDING_ID);
    put(&extra, 2, padding);
    memset(extra.bytes + extra.used, 'Z', padding);
    extra.used += padding;
    fields f = {.used = 0};
    put(&f, 4, 0x04034b50);
    put(&f, 2, VERSION);
    put(&f, 2, FLAGS);
    put(&f, 2, 0); /* stored */
    put(&f, 2, 0); /* time */
    put(&f, 2, DATE);
    put(&f, 4, 0); /* sum and sizes stand behind the data */
    put(&f, 4, large ? FULL32 : 0);
    put(&f, 4, large ? FULL32 : 0);
    put(&f, 2, m->name_bytes);
    put(&f, 2, extra.used);
    SSM__TRY(write_fields(writer, &f, err));
    SSM__TRY(write_bytes(writer, m->name, m->name_bytes, err));
    return write_fields(writer, &extra, err);
}

/* Sum and sizes behind the data of the latest member. */
static ssm_status finish_member(ssm__zip_writer *writer, ssm_error *err)
{
    if (writer->count == 0) {
        return SSM_STATUS_OK;
    }
    const member *m = &writer->members[writer->count - 1];
    if (writer->added != m->size) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__TENSOR(writer->path, m->name),
                         "%" PRIu64 " bytes of data were written, the member has %" PRIu64,
                         writer->added, m->size);
    }
    size_t width = m->size >= FULL32 ? 8 : 4;
    fields f = {.used = 0};
    put(&f, 4, 0x08074b50);
    put(&f, 4, m->crc);
    put(&f, width, m->size);
    put(&f, width, m->size);
    return write_fields(writer, &f, err);
}

ssm_status ssm__zip_writer_begin(ssm__zip_writer *writer, const char *name, uint64_t size,
                                 ssm_error *err)
{
    SSM__TRY(finish_member(writer, err));
    SSM__TRY(add_member(writer, name, size, err));
    return write_local(writer, &writer->members[writer->count - 1], err);
}

ssm_status ssm__zip_writer_add(ssm__zip_writer *writer, const void *data, size_t bytes,
                               ssm_error *err)
{
    if (bytes == 0) {
        return SSM_STATUS_OK;
    }
    member *m = writer->count > 0 ? &writer->members[writer->count - 1] : NULL;
    if (m == NULL || bytes > m->size - writer->added) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(writer->path),
                         "more bytes were given than the members of the archive have");
    }
    m->crc = (uint32_t)crc32_z(m->crc, data, bytes);
    writer->added += bytes;
    return write_bytes(writer, data, bytes, err);
}

/* ---- the directory --------------------------------------------------------------------------- */

static ssm_status write_central(ssm__zip_writer *writer, const member *m, ssm_error *err)
{
    fields extra = {.used = 0};
    if (m->size >= FULL32 || m->header >= FULL32) {
        put(&extra, 2, ZIP64_ID);
        put(&extra, 2, (m->size >= FULL32 ? 16U : 0U) + (m->header >= FULL32 ? 8U : 0U));
        if (m->size >= FULL32) {
            put(&extra, 8, m->size);
            put(&extra, 8, m->size);
        }
        if (m->header >= FULL32) {
            put(&extra, 8, m->header);
        }
    }
    fields f = {.used = 0};
    put(&f, 4, 0x02014b50);
    put(&f, 2, VERSION); /* made by, on FAT: no permissions */
    put(&f, 2, VERSION);
    put(&f, 2, FLAGS);
    put(&f, 2, 0);
    put(&f, 2, 0);
    put(&f, 2, DATE);
    put(&f, 4, m->crc);
    put(&f, 4, clipped(m->size));
    put(&f, 4, clipped(m->size));
    put(&f, 2, m->name_bytes);
    put(&f, 2, extra.used);
    put(&f, 2, 0); /* comment */
    put(&f, 2, 0); /* disk */
    put(&f, 2, 0); /* attributes */
    put(&f, 4, 0);
    put(&f, 4, clipped(m->header));
    SSM__TRY(write_fields(writer, &f, err));
    SSM__TRY(write_bytes(writer, m->name, m->name_bytes, err));
    return write_fields(writer, &extra, err);
}

static ssm_status write_end(ssm__zip_writer *writer, uint64_t start, ssm_error *err)
{
    uint64_t end = writer->at;
    uint64_t count = writer->count;
    fields f = {.used = 0};
    if (count >= FULL16 || start >= FULL32 || end - start >= FULL32) {
        put(&f, 4, 0x06064b50); /* zip64 end of the directory */
        put(&f, 8, 44);
        put(&f, 2, VERSION);
        put(&f, 2, VERSION);
        put(&f, 4, 0);
        put(&f, 4, 0);
        put(&f, 8, count);
        put(&f, 8, count);
        put(&f, 8, end - start);
        put(&f, 8, start);
        put(&f, 4, 0x07064b50); /* and where it is */
        put(&f, 4, 0);
        put(&f, 8, end);
        put(&f, 4, 1);
    }
    put(&f, 4, 0x06054b50);
    put(&f, 2, 0);
    put(&f, 2, 0);
    put(&f, 2, count < FULL16 ? count : FULL16);
    put(&f, 2, count < FULL16 ? count : FULL16);
    put(&f, 4, clipped(end - start));
    put(&f, 4, clipped(start));
    put(&f, 2, 0);
    return write_fields(writer, &f, err);
}

static ssm_status write_directory(ssm__zip_writer *writer, ssm_error *err)
{
    SSM__TRY(finish_member(writer, err));
    uint64_t start = writer->at;
    for (size_t i = 0; i < writer->count; i++) {
        SSM__TRY(write_central(writer, &writer->members[i], err));
    }
    return write_end(writer, start, err);
}

ssm_status ssm__zip_writer_commit(ssm__zip_writer *writer, ssm_error *err)
{
    ssm_status status = write_directory(writer, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__writer_commit(writer->file, err);
        writer->file = NULL;
    }
    ssm__zip_writer_abort(writer);
    return status;
}

void ssm__zip_writer_abort(ssm__zip_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    ssm__writer_abort(writer->file);
    for (size_t i = 0; i < writer->count; i++) {
        free(writer->members[i].name);
    }
    free(writer->members);
    free(writer->path);
    free(writer);
}
