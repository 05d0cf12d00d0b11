/* The zip form: <root>/data.pkl, <root>/data/<key>, and small members that say how it was written.
 * Source: torch/csrc/jit/serialization of PyTorch, by its behaviour. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "torch/internal.h"

enum { KEY_MAX = 200, NEWEST_VERSION = 10 };

typedef struct archive {
    const char *root; /* not ended by a NUL */
    int root_bytes;
    int64_t pickle;
} archive;

/* The directory of the one member "<root>/data.pkl". */
static ssm_status find_root(const ssm__torch_file *file, archive *out, ssm_error *err)
{
    static const char tail[] = "/data.pkl";
    bool script = false;
    out->pickle = -1;
    for (int64_t i = 0; i < ssm__zip_count(file->zip); i++) {
        const char *name = ssm__zip_name(file->zip, i);
        const char *slash = strchr(name, '/');
        script = script || (slash != NULL && strcmp(slash, "/constants.pkl") == 0);
        if (slash == NULL || strcmp(slash, tail) != 0) {
            continue;
        }
        if (out->pickle >= 0) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, name),
                             "the archive has a second data.pkl; the first is %s",
                             ssm__zip_name(file->zip, out->pickle));
        }
        *out = (archive){name, (int)(slash - name), i};
    }
    if (script) {
        return ssm__fail(
            err, SSM_STATUS_FILE, SSM__IN_FILE(file->path),
            "this is a TorchScript archive (it has constants.pkl), a program and not a "
            "state dict; save model.state_dict() instead");
    }
    if (out->pickle < 0) {
        bool bare = ssm__zip_find(file->zip, "data.pkl") >= 0;
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(file->path),
                         "the zip archive of %" PRId64 " members has no %sdata.pkl: it is no torch "
                         "checkpoint%s",
                         ssm__zip_count(file->zip), bare ? "directory with a " : "",
                         bare ? ", or was packed anew without its directory" : "");
    }
    return SSM_STATUS_OK;
}

/* The member "<root>/<name>"; *found −1 where there is none. */
static ssm_status read_small(ssm__torch_file *file, const archive *a, const char *name,
                             char text[32], int64_t *found, ssm_error *err)
{
    char path[SSM_ERROR_PLACE_MAX];
    int length = snprintf(path, sizeof path, "%.*s/%s", a->root_bytes, a->root, name);
    *found = length < (int)sizeof path ? ssm__zip_find(file->zip, path) : -1;
    text[0] = '\0';
    if (*found < 0) {
        return SSM_STATUS_OK;
    }
    ssm__zip_member member;
    SSM__TRY(ssm__zip_read(file->zip, *found, &member, err));
    size_t bytes = member.size < 31 ? member.size : 31;
    if (bytes > 0) {
        memcpy(text, member.data, bytes);
    }
    text[bytes] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return SSM_STATUS_OK;
}

static ssm_status check_small(ssm__torch_file *file, const archive *a, ssm_error *err)
{
    char text[32];
    int64_t found = -1;
    SSM__TRY(read_small(file, a, "byteorder", text, &found, err));
    if (found >= 0 && strcmp(text, "big") == 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, "byteorder"),
                         "the checkpoint was written on a big-endian machine; load it in PyTorch "
                         "and save it again on a little-endian one");
    }
    if (found >= 0 && strcmp(text, "little") != 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, "byteorder"),
                         "the byte order is neither \"little\" nor \"big\"");
    }
    SSM__TRY(read_small(file, a, "version", text, &found, err));
    if (found >= 0) {
        char *end = text;
        long version = strtol(text, &end, 10);
        if (end == text || *end != '\0' || version < 1) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, "version"),
                             "the version of the archive is not a number");
        }
        if (version > NEWEST_VERSION) {
            return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, "version"),
                             "the archive has version %ld; versions up to %d are known", version,
                             NEWEST_VERSION);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status resolve_one(ssm__torch_file *file, const archive *a, ssm__pickle_storage *root,
                              ssm_error *err)
{
    char name[SSM_ERROR_PLACE_MAX + KEY_MAX];
    int key_bytes = (int)(root->key_bytes < KEY_MAX ? root->key_bytes : KEY_MAX);
    int length =
        snprintf(name, sizeof name, "%.*s/data/%.*s", a->root_bytes, a->root, key_bytes, root->key);
    int64_t found = root->key_bytes < KEY_MAX && length < (int)sizeof name
                        ? ssm__zip_find(file->zip, name)
                        : -1;
    if (found < 0) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, name),
                         "data.pkl refers to this member and the archive does not have it");
    }
    ssm__zip_member member;
    SSM__TRY(ssm__zip_read(file->zip, found, &member, err));
    if (member.size != root->bytes) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, name),
                         "the member has %zu bytes; data.pkl says %" PRId64
                         " elements of %s, %zu bytes",
                         member.size, root->count, ssm_dtype_name(root->dtype), root->bytes);
    }
    root->data = member.data;
    root->file_offset = member.file_offset;
    return SSM_STATUS_OK;
}

static ssm_status resolve(ssm__torch_file *file, ssm__pickle_storage **roots, size_t count,
                          void *context, ssm_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (roots[i]->used) {
            SSM__TRY(resolve_one(file, context, roots[i], err));
        }
    }
    return ssm__zip_check_overlaps(file->zip, err);
}

ssm_status ssm__torch_read_archive(ssm__torch_file *file, const unsigned char *data, size_t size,
                                   ssm_error *err)
{
    archive a;
    ssm__zip_member member;
    SSM__TRY(ssm__zip_open(file->path, data, size, &file->zip, err));
    SSM__TRY(find_root(file, &a, err));
    if (a.root_bytes > 255) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(file->path),
                         "the directory in the archive has a name of %d bytes", a.root_bytes);
    }
    SSM__TRY(check_small(file, &a, err));
    SSM__TRY(ssm__zip_read(file->zip, a.pickle, &member, err));
    SSM__TRY(ssm__zip_check_crc(file->zip, a.pickle, err));
    const ssm__pickle_input input = {file->path, "data.pkl", member.data, member.size,
                                     member.file_offset};
    ssm__pickle pickle;
    SSM__TRY(ssm__pickle_read(&input, &file->memory, &pickle, err));
    if (pickle.used != input.size) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(file->path, "data.pkl"),
                         "%zu bytes follow the end of the pickle", input.size - pickle.used);
    }
    return ssm__torch_collect(file, &input, &pickle, resolve, &a, err);
}
