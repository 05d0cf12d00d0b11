/* base/file.c: read-only mapped files, directories and paths. */
#include "base/file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ssm_status check_regular(const char *path, const struct stat *info, ssm_error *err)
{
    if (S_ISDIR(info->st_mode)) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "is a directory where a file is expected");
    }
    if (!S_ISREG(info->st_mode)) {
        const char *kind = S_ISFIFO(info->st_mode)   ? "a pipe"
                           : S_ISSOCK(info->st_mode) ? "a socket"
                                                     : "a device";
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "is %s; it must be a regular file, because it is mapped into memory",
                         kind);
    }
    if ((uintmax_t)info->st_size > SIZE_MAX) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                         "is too large for the address space of this machine");
    }
    return SSM_STATUS_OK;
}

static ssm_status map_descriptor(int descriptor, const char *path, ssm__map *out, ssm_error *err)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0) {
        return ssm__fail_errno(err, SSM_STATUS_FILE, path, "cannot be examined", errno);
    }
    SSM__TRY(check_regular(path, &info, err));
    if (info.st_size == 0) {
        return SSM_STATUS_OK;
    }
    size_t size = (size_t)info.st_size;
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
        return ssm__fail_errno(err, SSM_STATUS_FILE, path, "cannot be mapped into memory", errno);
    }
    out->data = data;
    out->size = size;
    return SSM_STATUS_OK;
}

ssm_status ssm__map_open(const char *path, ssm__map *out, ssm_error *err)
{
    *out = (ssm__map){0};
    /* O_NONBLOCK: opening a pipe without a writer must not hang; it means nothing to a file. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) {
        const char *doing = errno == ENOENT || errno == ENOTDIR ? "does not exist"
                            : errno == EACCES                   ? "may not be read"
                                                                : "cannot be opened";
        return ssm__fail_errno(err, SSM_STATUS_FILE, path, doing, errno);
    }
    ssm_status status = map_descriptor(descriptor, path, out, err);
    close(descriptor); /* the mapping stays */
    return status;
}

void ssm__map_close(ssm__map *map)
{
    if (map != NULL && map->data != NULL) {
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    if (map != NULL) {
        *map = (ssm__map){0};
    }
}

bool ssm__is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool ssm__is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool ssm__holds_file(const char *directory, const char *name)
{
    struct stat info;
    int descriptor = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    bool found = fstatat(descriptor, name, &info, 0) == 0 && S_ISREG(info.st_mode);
    close(descriptor);
    return found;
}

static ssm_status make_one(const char *path, ssm_error *err)
{
    if (mkdir(path, 0777) == 0) {
        return SSM_STATUS_OK;
    }
    int reason = errno;
    if (ssm__is_directory(path)) {
        return SSM_STATUS_OK;
    }
    return ssm__fail_errno(err, SSM_STATUS_FAILED, path, "the directory cannot be made", reason);
}

ssm_status ssm__make_directories(const char *path, ssm_error *err)
{
    size_t bytes = strlen(path);
    char *prefix = malloc(bytes + 1);
    if (prefix == NULL) {
        return ssm__fail_memory(err, "a path", bytes + 1);
    }
    memcpy(prefix, path, bytes + 1);
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 1; i < bytes && status == SSM_STATUS_OK; i++) {
        if (prefix[i] == '/' && prefix[i - 1] != '/') {
            prefix[i] = '\0';
            status = make_one(prefix, err);
            prefix[i] = '/';
        }
    }
    if (status == SSM_STATUS_OK) {
        status = make_one(prefix, err);
    }
    free(prefix);
    return status;
}

bool ssm__ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name);
    const size_t end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

char *ssm__path_join(const char *directory, const char *name)
{
    size_t directory_bytes = strlen(directory);
    size_t name_bytes = strlen(name);
    bool slash = directory_bytes > 0 && directory[directory_bytes - 1] != '/';
    char *path = malloc(directory_bytes + slash + name_bytes + 1);
    if (path == NULL) {
        return NULL;
    }
    memcpy(path, directory, directory_bytes);
    if (slash) {
        path[directory_bytes] = '/';
    }
    memcpy(path + directory_bytes + slash, name, name_bytes + 1);
    return path;
}
