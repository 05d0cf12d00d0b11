/* test_zip.h: zip archives made to a test's wishes, right or wrong. */
#ifndef TEST_ZIP_H
#define TEST_ZIP_H

#include <stddef.h>
#include <stdint.h>

/* One member. What is 0 is made right; the fields below `lies` go into the archive as they are. */
typedef struct zip_part {
    const char *name;
    const void *data;
    size_t size;
    int deflate; /* 1: the data are compressed */
    int zip64;   /* 1: sizes and offset stand in the zip64 field only */
    /* lies */
    int method;            /* code, e.g. 12 for bzip2 */
    int flags;             /* 1: encrypted */
    uint32_t crc_change;   /* exclusive or with the right sum */
    int64_t size_change;   /* added to the size, */
    int64_t packed_change; /* to the size in the file, */
    int64_t offset_change; /* and to the place, all in the directory */
} zip_part;

/* The archive in fresh memory of exactly *size bytes. Owner: the caller, free(). */
unsigned char *zip_build(const zip_part *parts, size_t count, size_t *size);

#endif
