/* base/file.h: read-only mapped files, whole small files, atomic writes, directories. */
#ifndef SSM_BASE_FILE_H
#define SSM_BASE_FILE_H

#include <ssmscope/base.h>

typedef struct ssm__map {
    const unsigned char *data; /* NULL for an empty file */
    size_t size;
} ssm__map;

/* Maps a regular file. Errors: FILE (missing, unreadable, a directory, not a regular file). */
ssm_status ssm__map_open(const char *path, ssm__map *out, ssm_error *err);
void ssm__map_close(ssm__map *map);

/* A file that appears under its name only when it is whole: written to a temporary name in the same
 * directory, fsynced, renamed; the directory is synced. Nothing is left behind on failure. */
typedef struct ssm__writer ssm__writer;
ssm_status ssm__writer_open(const char *path, ssm__writer **out, ssm_error *err);
ssm_status ssm__writer_write(ssm__writer *writer, const void *data, size_t bytes, ssm_error *err);
/* Renames and frees the writer, also on failure. */
ssm_status ssm__writer_commit(ssm__writer *writer, ssm_error *err);
/* Removes the temporary file and frees the writer; NULL is accepted. */
void ssm__writer_abort(ssm__writer *writer);
ssm_status ssm__write_file(const char *path, const void *data, size_t bytes, ssm_error *err);

/* Makes a directory and its parents; an existing directory is fine. Errors: FAILED. */
ssm_status ssm__make_directories(const char *path, ssm_error *err);
bool ssm__is_directory(const char *path);
bool ssm__is_file(const char *path);
/* True when the directory holds a regular file of that name. Needs no memory, so that "there is
 * none" never means "out of memory". */
bool ssm__holds_file(const char *directory, const char *name);
/* True for a name with something in front of the end: "a.bin" ends with ".bin", ".bin" does not. */
bool ssm__ends_with(const char *name, const char *end);
/* "directory/name" in fresh memory (free()); NULL when out of memory. */
char *ssm__path_join(const char *directory, const char *name);

#endif
