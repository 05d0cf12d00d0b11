/* libzip does not say where in the file a member's data lie. But it reads through a source that is
 * ours, so one byte is read of the raw member, and the source remembers where that read began. */
#include "torch/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/error.h"

enum {
    MOST_ENTRIES = 1 << 20,
    INFLATED_RATIO = 32, /* weights hardly shrink; only what is meant to fill memory grows more */
    INFLATED_SMALL = 64 << 20,
};

/* The archive's bytes as libzip reads them. */
typedef struct source {
    const unsigned char *data;
    size_t size;
    size_t at;
    size_t last_read;   /* where the latest read began */
    size_t last_wanted; /* and how many bytes it asked for */
    zip_error_t error;
} source;

typedef struct entry {
    const char *name; /* of libzip */
    zip_uint64_t index;
    zip_uint64_t size, packed;
    uint32_t crc;
    bool stored;
    bool read;
    ssm__zip_member member;
    unsigned char *inflated;
} entry;

struct ssm__zip {
    char *path;
    source source;
    zip_t *archive;
    entry *entries;
    entry **by_name;
    int64_t count;
    uint64_t inflated; /* bytes in all */
};

/* ---- the source ------------------------------------------------------------------------------ */

static zip_int64_t source_stat(const source *s, void *data, zip_uint64_t bytes)
{
    if (bytes < sizeof(zip_stat_t)) {
        return -1;
    }
    zip_stat_t *stat = data;
    zip_stat_init(stat);
    stat->size = s->size;
    stat->comp_size = s->size;
    stat->comp_method = ZIP_CM_STORE;
    stat->encryption_method = ZIP_EM_NONE;
    stat->valid =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    return (zip_int64_t)sizeof *stat;
}

static zip_int64_t source_read(source *s, void *data, zip_uint64_t bytes)
{
    size_t left = s->size - s->at;
    size_t count = bytes < left ? (size_t)bytes : left;
    s->last_read = s->at;
    s->last_wanted = (size_t)bytes;
    if (count > 0) {
        memcpy(data, s->data + s->at, count);
    }
    s->at += count;
    return (zip_int64_t)count;
}

static zip_int64_t source_call(void *context, void *data, zip_uint64_t bytes,
                               zip_source_cmd_t command)
{
    source *s = context;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        s->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return source_read(s, data, bytes);
    case ZIP_SOURCE_SEEK: {
        zip_int64_t to = zip_source_seek_compute_offset(s->at, s->size, data, bytes, &s->error);
        if (to < 0) {
            return -1;
        }
        s->at = (size_t)to;
        return 0;
    }
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)s->at;
    case ZIP_SOURCE_STAT:
        return source_stat(s, data, bytes);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->error, data, bytes);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static ssm_status no_memory(ssm_error *err)
{
    return ssm__fail_memory(err, "the directory of a zip archive", 0);
}

static ssm_status explain(const ssm__zip *zip, zip_error_t *error, ssm_error *err)
{
    int code = zip_error_code_zip(error);
    if (code == ZIP_ER_MEMORY) {
        return no_memory(err);
    }
    if (code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(zip->path, (int64_t)zip->source.size),
                         "the zip archive has %s central directory at its end: the file of %zu "
                         "bytes is truncated or damaged; download it again",
                         code == ZIP_ER_NOZIP ? "no" : "an inconsistent", zip->source.size);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(zip->path),
                     "the zip archive cannot be read: %s", zip_error_strerror(error));
}

/* zip->archive stays NULL where it fails. */
static void try_archive(ssm__zip *zip, zip_error_t *error)
{
    zip_source_t *bytes = zip_source_function_create(source_call, &zip->source, error);
    if (bytes == NULL) {
        return;
    }
    zip->archive = zip_open_from_source(bytes, ZIP_RDONLY, error);
    if (zip->archive == NULL) {
        zip_source_free(bytes);
    }
}

static ssm_status open_archive(ssm__zip *zip, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    zip_error_t error;
    zip_error_init(&error);
    /* libzip reports some allocations that failed as a bad archive. A second try tells them apart:
     * it begins with an allocation whose failure is reported as such. */
    for (int tries = 0; tries < 2 && zip->archive == NULL; tries++) {
        try_archive(zip, &error);
    }
    if (zip->archive == NULL) {
        status = explain(zip, &error, err);
    }
    zip_error_fini(&error);
    return status;
}

static bool is_absolute_or_climbs(const char *name)
{
    if (name[0] == '/' || name[0] == '\\' || (name[0] != '\0' && name[1] == ':')) {
        return true;
    }
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0')) {
            return true;
        }
    }
    return false;
}

static ssm_status check_entry(const ssm__zip *zip, const entry *e, const zip_stat_t *stat,
                              ssm_error *err)
{
    ssm__place place = SSM__TENSOR(zip->path, e->name);
    if (is_absolute_or_climbs(e->name)) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the archive has a member whose name is absolute or has \"..\": no "
                         "checkpoint does; refused");
    }
    if (stat->encryption_method != ZIP_EM_NONE) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the member is encrypted; unpack the archive with its password first");
    }
    if (stat->comp_method != ZIP_CM_STORE && stat->comp_method != ZIP_CM_DEFLATE) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the member is compressed with method %d; torch stores, and deflate is "
                         "the only compression that is read",
                         (int)stat->comp_method);
    }
    if (e->stored && e->size != e->packed) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the member is stored, yet has %" PRIu64 " bytes in the file and %" PRIu64
                         " outside",
                         (uint64_t)e->packed, (uint64_t)e->size);
    }
    if (e->packed > zip->source.size) {
        return ssm__fail(err, SSM_STATUS_FILE, place,
                         "the member claims %" PRIu64 " bytes of a file of %zu",
                         (uint64_t)e->packed, zip->source.size);
    }
    return SSM_STATUS_OK;
}

static ssm_status read_entry(ssm__zip *zip, int64_t i, ssm_error *err)
{
    zip_stat_t stat;
    entry *e = &zip->entries[i];
    const zip_uint64_t all =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    e->name = zip_get_name(zip->archive, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
    if (e->name == NULL || zip_stat_index(zip->archive, (zip_uint64_t)i, 0, &stat) != 0 ||
        (stat.valid & all) != all) {
        return explain(zip, zip_get_error(zip->archive), err);
    }
    e->index = (zip_uint64_t)i;
    e->size = stat.size;
    e->packed = stat.comp_size;
    e->crc = stat.crc;
    e->stored = stat.comp_method == ZIP_CM_STORE;
    return check_entry(zip, e, &stat, err);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(entry *const *)left)->name, (*(entry *const *)right)->name);
}

static ssm_status read_directory(ssm__zip *zip, ssm_error *err)
{
    int64_t count = (int64_t)zip_get_num_entries(zip->archive, 0);
    if (count > MOST_ENTRIES) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(zip->path),
                         "the archive has %" PRId64 " members; at most %d are read", count,
                         MOST_ENTRIES);
    }
    zip->entries = calloc((size_t)count + 1, sizeof *zip->entries);
    zip->by_name = calloc((size_t)count + 1, sizeof(entry *));
    if (zip->entries == NULL || zip->by_name == NULL) {
        return no_memory(err);
    }
    zip->count = count;
    for (int64_t i = 0; i < count; i++) {
        SSM__TRY(read_entry(zip, i, err));
        zip->by_name[i] = &zip->entries[i];
    }
    qsort(zip->by_name, (size_t)count, sizeof(entry *), compare_names);
    for (int64_t i = 1; i < count; i++) {
        if (strcmp(zip->by_name[i - 1]->name, zip->by_name[i]->name) == 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(zip->path, zip->by_name[i]->name),
                             "the archive has two members of this name; which one is meant?");
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__zip_open(const char *path, const unsigned char *data, size_t size, ssm__zip **out,
                         ssm_error *err)
{
    *out = NULL;
    ssm__zip *zip = calloc(1, sizeof *zip);
    if (zip == NULL || (zip->path = strdup(path)) == NULL) {
        free(zip);
        return no_memory(err);
    }
    zip->source = (source){.data = data, .size = size};
    zip_error_init(&zip->source.error);
    ssm_status status = open_archive(zip, err);
    if (status == SSM_STATUS_OK) {
        status = read_directory(zip, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm__zip_close(zip);
        return status;
    }
    *out = zip;
    return SSM_STATUS_OK;
}

void ssm__zip_close(ssm__zip *zip)
{
    if (zip == NULL) {
        return;
    }
    for (int64_t i = 0; zip->entries != NULL && i < zip->count; i++) {
        free(zip->entries[i].inflated);
    }
    if (zip->archive != NULL) {
        zip_discard(zip->archive);
    }
    zip_error_fini(&zip->source.error);
    free(zip->entries);
    free(zip->by_name);
    free(zip->path);
    free(zip);
}

/* ---- members --------------------------------------------------------------------------------- */

int64_t ssm__zip_count(const ssm__zip *zip)
{
    return zip->count;
}

const char *ssm__zip_name(const ssm__zip *zip, int64_t i)
{
    return zip->entries[i].name;
}

int64_t ssm__zip_find(const ssm__zip *zip, const char *name)
{
    const entry wanted = {.name = name};
    const entry *key = &wanted;
    entry *const *found =
        bsearch(&key, zip->by_name, (size_t)zip->count, sizeof(entry *), compare_names);
    return found == NULL ? -1 : *found - zip->entries;
}

static ssm_status refuse_member(const ssm__zip *zip, const entry *e, zip_error_t *error,
                                ssm_error *err)
{
    int code = zip_error_code_zip(error);
    if (code == ZIP_ER_MEMORY ||
        (code == ZIP_ER_ZLIB && zip_error_code_system(error) == Z_MEM_ERROR)) {
        return ssm__fail_memory(err, "reading a member of a zip archive", (size_t)e->size);
    }
    /* That no member begins where the directory says comes through libzip's layers as any of these.
     */
    bool nowhere = code == ZIP_ER_INVAL || code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS ||
                   code == ZIP_ER_SEEK || code == ZIP_ER_EOF;
    const char *why = code == ZIP_ER_CRC    ? "its CRC-32 is not what the archive says"
                      : code == ZIP_ER_ZLIB ? "its compressed data are damaged"
                      : nowhere ? "the directory points to a place where no member begins"
                                : zip_error_strerror(error);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(zip->path, e->name),
                     "the member cannot be read: %s", why);
}

static ssm_status inflate_into(ssm__zip *zip, entry *e, zip_file_t *file, ssm_error *err)
{
    zip_uint64_t have = 0;
    while (have < e->size) {
        zip_int64_t got = zip_fread(file, e->inflated + have, e->size - have);
        if (got < 0) {
            return refuse_member(zip, e, zip_file_get_error(file), err);
        }
        if (got == 0) {
            break;
        }
        have += (zip_uint64_t)got;
    }
    unsigned char more; /* the CRC is compared when the end is seen */
    zip_int64_t extra = have == e->size ? zip_fread(file, &more, 1) : 0;
    if (extra < 0) {
        return refuse_member(zip, e, zip_file_get_error(file), err);
    }
    if (have != e->size || extra != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(zip->path, e->name),
                         "the member inflates to %s bytes than the %" PRIu64
                         " that the directory says",
                         have < e->size ? "fewer" : "more", (uint64_t)e->size);
    }
    return SSM_STATUS_OK;
}

static ssm_status inflate_member(ssm__zip *zip, entry *e, ssm_error *err)
{
    uint64_t limit = INFLATED_SMALL + (uint64_t)INFLATED_RATIO * zip->source.size;
    if (e->size > limit - zip->inflated) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(zip->path, e->name),
                         "the compressed members inflate to more than %" PRIu64
                         " bytes from a file of %zu: refused as a decompression bomb",
                         limit, zip->source.size);
    }
    zip_file_t *file = zip_fopen_index(zip->archive, e->index, 0);
    if (file == NULL) {
        return refuse_member(zip, e, zip_get_error(zip->archive), err);
    }
    e->inflated = malloc((size_t)e->size);
    ssm_status status = e->inflated == NULL
                            ? ssm__fail_memory(err, "inflating a member", (size_t)e->size)
                            : inflate_into(zip, e, file, err);
    zip_fclose(file);
    SSM__TRY(status);
    zip->inflated += e->size;
    e->member.data = e->inflated;
    e->member.file_offset = -1;
    return SSM_STATUS_OK;
}

static ssm_status view(ssm__zip *zip, entry *e, ssm_error *err)
{
    zip_file_t *file = zip_fopen_index(zip->archive, e->index, ZIP_FL_COMPRESSED);
    if (file == NULL) {
        return refuse_member(zip, e, zip_get_error(zip->archive), err);
    }
    unsigned char byte;
    zip_int64_t got = zip_fread(file, &byte, 1);
    size_t start = zip->source.last_read;
    ssm_status status =
        got < 0 ? refuse_member(zip, e, zip_file_get_error(file), err) : SSM_STATUS_OK;
    zip_fclose(file);
    SSM__TRY(status);
    if (got == 1 && (zip->source.last_wanted != 1 || start >= zip->source.size ||
                     byte != zip->source.data[start])) {
        return inflate_member(zip, e, err); /* a libzip that reads ahead: a copy serves as well */
    }
    if (got != 1 || e->size > zip->source.size - start) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(zip->path, e->name),
                         "the %" PRIu64 " bytes of the member reach beyond the end of the file",
                         (uint64_t)e->size);
    }
    e->member.data = zip->source.data + start;
    e->member.file_offset = (int64_t)start;
    return SSM_STATUS_OK;
}

ssm_status ssm__zip_read(ssm__zip *zip, int64_t i, ssm__zip_member *out, ssm_error *err)
{
    entry *e = &zip->entries[i];
    if (!e->read) {
        e->member = (ssm__zip_member){.size = (size_t)e->size, .file_offset = -1, .crc = e->crc};
        if (e->size > 0) {
            SSM__TRY(e->stored ? view(zip, e, err) : inflate_member(zip, e, err));
        }
        e->read = true;
    }
    *out = e->member;
    return SSM_STATUS_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int compare_places(const void *left, const void *right)
{
    const ssm__zip_member *a = &(*(entry *const *)left)->member;
    const ssm__zip_member *b = &(*(entry *const *)right)->member;
    return (a->file_offset > b->file_offset) - (a->file_offset < b->file_offset);
}

ssm_status ssm__zip_check_overlaps(const ssm__zip *zip, ssm_error *err)
{
    entry **placed = malloc(((size_t)zip->count + 1) * sizeof(entry *));
    if (placed == NULL) {
        return no_memory(err);
    }
    size_t count = 0;
    for (int64_t i = 0; i < zip->count; i++) {
        if (zip->entries[i].read && zip->entries[i].member.file_offset >= 0) {
            placed[count++] = &zip->entries[i];
        }
    }
    qsort(placed, count, sizeof(entry *), compare_places);
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 1; i < count && status == SSM_STATUS_OK; i++) {
        const ssm__zip_member *before = &placed[i - 1]->member;
        if (before->file_offset + (int64_t)before->size > placed[i]->member.file_offset) {
            status =
                ssm__fail(err, SSM_STATUS_FILE,
                          ((ssm__place){zip->path, placed[i]->name, placed[i]->member.file_offset}),
                          "the member overlaps the member %s: the archive is damaged or made "
                          "to deceive",
                          placed[i - 1]->name);
        }
    }
    free(placed);
    return status;
}

ssm_status ssm__zip_check_crc(const ssm__zip *zip, int64_t i, ssm_error *err)
{
    const entry *e = &zip->entries[i];
    uint32_t crc = 0;
    if (!e->stored || !e->read) {
        return SSM_STATUS_OK;
    }
    if (e->size > 0) {
        crc = (uint32_t)crc32_z(0, e->member.data, e->member.size);
    }
    if (crc != e->crc) {
        return ssm__fail(err, SSM_STATUS_FILE,
                         ((ssm__place){zip->path, e->name, e->member.file_offset}),
                         "the CRC-32 of the member is %08" PRIx32 ", the archive says %08" PRIx32
                         ": the file is damaged; download it again",
                         crc, e->crc);
    }
    return SSM_STATUS_OK;
}
