/* base/writer.c: files that appear under their name only when they are whole. */
#include "base/file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    WRITER_BUFFER = 1 << 16,
    NAME_KEPT = 200,  /* bytes of the final name that the temporary one repeats (NAME_MAX is 255) */
    NAME_TRIES = 100, /* a random name of 64 bits is taken by another file about never */
};

struct ssm__writer {
    int descriptor;
    char *path;      /* the final name */
    char *temporary; /* ".name.<16 hex digits>.tmp" in the same directory */
    size_t used;
    ssm_status failed; /* once a write failed, later ones and the commit fail as well */
    unsigned char buffer[WRITER_BUFFER];
};

static uint64_t random_bits(void)
{
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != (ssize_t)sizeof bits) {
        struct timespec now; /* only has to differ from other writers; O_EXCL does the rest */
        clock_gettime(CLOCK_REALTIME, &now);
        bits = ((uint64_t)getpid() << 32) ^ (uint64_t)now.tv_sec ^ ((uint64_t)now.tv_nsec << 16);
    }
    return bits;
}

/* Length of "directory/" in path, 0 where there is none. */
static size_t directory_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

static int open_temporary(ssm__writer *writer, size_t size)
{
    const char *name = writer->path + directory_bytes(writer->path);
    for (int i = 0; i < NAME_TRIES; i++) {
        snprintf(writer->temporary, size, "%.*s.%.*s.%016llx.tmp",
                 (int)directory_bytes(writer->path), writer->path, NAME_KEPT, name,
                 (unsigned long long)random_bits());
        int descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0 || (errno != EEXIST && errno != EINTR)) {
            return descriptor;
        }
    }
    return -1;
}

/* Renaming over a device would replace it, over a directory would fail only at the end. */
static ssm_status check_target(const char *path, ssm_error *err)
{
    struct stat info;
    const char *name = path + directory_bytes(path);
    if (name[0] == '\0' || (stat(path, &info) == 0 && S_ISDIR(info.st_mode))) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(path),
                         "cannot be written: it names a directory, not a file");
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return ssm__fail(err, SSM_STATUS_FAILED, SSM__IN_FILE(path),
                         "cannot be written: it exists and is not a regular file");
    }
    return SSM_STATUS_OK;
}

static void free_writer(ssm__writer *writer)
{
    free(writer->path);
    free(writer->temporary);
    free(writer);
}

ssm_status ssm__writer_open(const char *path, ssm__writer **out, ssm_error *err)
{
    *out = NULL;
    SSM__TRY(check_target(path, err));
    size_t temporary_size = strlen(path) + 32; /* '.', '.', 16 digits, ".tmp", NUL */
    ssm__writer *writer = malloc(sizeof *writer);
    if (writer == NULL) {
        return ssm__fail_memory(err, "a file writer", sizeof *writer);
    }
    *writer = (ssm__writer){.descriptor = -1};
    writer->path = strdup(path);
    writer->temporary = malloc(temporary_size);
    if (writer->path == NULL || writer->temporary == NULL) {
        free_writer(writer);
        return ssm__fail_memory(err, "the names of a file writer", temporary_size);
    }
    writer->descriptor = open_temporary(writer, temporary_size);
    if (writer->descriptor < 0) {
        ssm_status status =
            ssm__fail_errno(err, SSM_STATUS_FAILED, path, "cannot be created", errno);
        free_writer(writer);
        return status;
    }
    *out = writer;
    return SSM_STATUS_OK;
}

static ssm_status write_through(ssm__writer *writer, const unsigned char *data, size_t bytes,
                                ssm_error *err)
{
    while (bytes > 0) {
        ssize_t written = write(writer->descriptor, data, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            int reason = written < 0 ? errno : ENOSPC;
            writer->failed =
                ssm__fail_errno(err, SSM_STATUS_FAILED, writer->path, "cannot be written", reason);
            return writer->failed;
        }
        data += written;
        bytes -= (size_t)written;
    }
    return SSM_STATUS_OK;
}

static ssm_status flush(ssm__writer *writer, ssm_error *err)
{
    size_t bytes = writer->used;
    writer->used = 0;
    return write_through(writer, writer->buffer, bytes, err);
}

ssm_status ssm__writer_write(ssm__writer *writer, const void *data, size_t bytes, ssm_error *err)
{
    if (writer->failed != SSM_STATUS_OK) {
        return ssm__fail(err, writer->failed, SSM__IN_FILE(writer->path),
                         "an earlier write to this file failed");
    }
    if (bytes > WRITER_BUFFER - writer->used) {
        SSM__TRY(flush(writer, err));
    }
    if (bytes >= WRITER_BUFFER) {
        return write_through(writer, data, bytes, err);
    }
    if (bytes > 0) {
        memcpy(writer->buffer + writer->used, data, bytes);
        writer->used += bytes;
    }
    return SSM_STATUS_OK;
}

/* Some file systems cannot sync (a pipe-like mount, a FUSE without it); that is no failure. */
static bool sync_failed(int descriptor)
{
    int result;
    do {
        result = fsync(descriptor);
    } while (result != 0 && errno == EINTR);
    return result != 0 && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP && errno != EROFS;
}

/* Makes the rename last. `path` is cut to its directory. */
static ssm_status sync_directory(char *path, ssm_error *err)
{
    size_t bytes = directory_bytes(path);
    if (bytes > 0) {
        path[bytes] = '\0';
    }
    const char *directory = bytes > 0 ? path : ".";
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return SSM_STATUS_OK; /* a directory may be writable without being readable */
    }
    ssm_status status = SSM_STATUS_OK;
    if (sync_failed(descriptor)) {
        status =
            ssm__fail_errno(err, SSM_STATUS_FAILED, directory, "cannot be synced to disk", errno);
    }
    close(descriptor);
    return status;
}

static ssm_status finish_temporary(ssm__writer *writer, ssm_error *err)
{
    if (writer->failed != SSM_STATUS_OK) {
        return ssm__fail(err, writer->failed, SSM__IN_FILE(writer->path),
                         "an earlier write to this file failed");
    }
    SSM__TRY(flush(writer, err));
    if (sync_failed(writer->descriptor)) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, writer->path, "cannot be synced to disk",
                               errno);
    }
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    /* Linux closes the descriptor even when it reports EINTR. */
    if (close(descriptor) != 0 && errno != EINTR) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, writer->path, "cannot be closed", errno);
    }
    if (rename(writer->temporary, writer->path) != 0) {
        return ssm__fail_errno(err, SSM_STATUS_FAILED, writer->path,
                               "cannot be put in place of the temporary file", errno);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__writer_commit(ssm__writer *writer, ssm_error *err)
{
    ssm_status status = finish_temporary(writer, err);
    if (status != SSM_STATUS_OK) {
        ssm__writer_abort(writer);
        return status;
    }
    status = sync_directory(writer->path, err);
    free_writer(writer);
    return status;
}

void ssm__writer_abort(ssm__writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->descriptor >= 0) {
        close(writer->descriptor);
    }
    unlink(writer->temporary);
    free_writer(writer);
}

ssm_status ssm__write_file(const char *path, const void *data, size_t bytes, ssm_error *err)
{
    ssm__writer *writer;
    SSM__TRY(ssm__writer_open(path, &writer, err));
    ssm_status status = ssm__writer_write(writer, data, bytes, err);
    if (status != SSM_STATUS_OK) {
        ssm__writer_abort(writer);
        return status;
    }
    return ssm__writer_commit(writer, err);
}
