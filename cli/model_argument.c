#include "model_argument.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages.h"

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* directory/rest; false when it is too long for a path. */
static bool join(char out[PATH_MAX], const char *directory, const char *rest)
{
    size_t first = strlen(directory);
    size_t second = strlen(rest);
    if (first + 1 + second >= PATH_MAX) {
        return false;
    }
    memcpy(out, directory, first);
    out[first] = '/';
    memcpy(out + first + 1, rest, second + 1);
    return true;
}

/* share/ssmscope beside the bin/ that this program runs from: an installation may be moved. */
static bool beside_program(char out[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    for (int i = 0; i < 2 && bytes > 0; i++) { /* the name of the program, then bin/ */
        program[bytes] = '\0';
        char *slash = strrchr(program, '/');
        if (slash == NULL) {
            return false;
        }
        bytes = slash - program;
        program[bytes] = '\0';
    }
    return bytes > 0 && join(out, program, "share/ssmscope");
}

bool cli_data_directory(char out[PATH_MAX])
{
    char beside[PATH_MAX] = "";
    beside_program(beside);
    const char *const places[] = {beside, SSM_SOURCE_DATA_DIR, SSM_INSTALL_DATA_DIR};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char model[PATH_MAX];
        if (places[i][0] != '\0' && join(model, places[i], "models/tiny/config.json") &&
            exists(model)) {
            snprintf(out, PATH_MAX, "%s", places[i]);
            return true;
        }
    }
    return false;
}

static const char *set_variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool cli_cache_directory(char out[PATH_MAX])
{
    const char *value = set_variable("HF_HUB_CACHE");
    if (value != NULL) {
        return snprintf(out, PATH_MAX, "%s", value) < PATH_MAX;
    }
    value = set_variable("HF_HOME");
    if (value != NULL) {
        return join(out, value, "hub");
    }
    value = set_variable("XDG_CACHE_HOME");
    if (value != NULL) {
        return join(out, value, "huggingface/hub");
    }
    value = set_variable("HOME");
    return value != NULL && join(out, value, ".cache/huggingface/hub");
}

/* "org/name" or "name", of the characters that names on the hub have. */
static bool is_hub_name(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t first = strspn(text, plain);
    if (first == 0 || text[0] == '.' || text[0] == '-' || strlen(text) > 200) {
        return false;
    }
    if (text[first] == '\0') {
        return true;
    }
    size_t second = strspn(text + first + 1, plain);
    return text[first] == '/' && second > 0 && text[first + 1] != '.' &&
           text[first + 1 + second] == '\0';
}

/* First word of a small file. */
static bool read_word(const char *path, char out[128])
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool good = fscanf(file, "%127s", out) == 1 && strchr(out, '/') == NULL && out[0] != '.';
    fclose(file);
    return good;
}

/* models--org--name of a hub name. */
static void cache_folder(const char *name, char out[256])
{
    const char *slash = strchr(name, '/');
    if (slash == NULL) {
        snprintf(out, 256, "models--%s", name);
    } else {
        snprintf(out, 256, "models--%.*s--%s", (int)(slash - name), name, slash + 1);
    }
}

static ssm_status not_found(const char *argument, const char *cache, ssm_error *err)
{
    if (cache == NULL || !is_hub_name(argument)) {
        return cli_fail(err, SSM_STATUS_FILE, argument, "there is no such model file or directory");
    }
    if (strchr(argument, '/') == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, argument,
                        "there is no such model file or directory, and no model of that name in "
                        "the Hugging Face cache %s",
                        cache);
    }
    return cli_fail(err, SSM_STATUS_FILE, argument,
                    "there is no such model file or directory, and the Hugging Face cache %s does "
                    "not have it; to download it: hf download %s",
                    cache, argument);
}

static ssm_status find_in_cache(const char *argument, cli_model_path *out, ssm_error *err)
{
    char cache[PATH_MAX];
    if (!is_hub_name(argument) || !cli_cache_directory(cache)) {
        return not_found(argument, NULL, err);
    }
    char folder[256];
    char rest[512];
    char path[PATH_MAX];
    cache_folder(argument, folder);
    snprintf(rest, sizeof rest, "%s/refs/main", folder);
    if (!join(path, cache, rest) || !read_word(path, out->commit)) {
        return not_found(argument, cache, err);
    }
    snprintf(rest, sizeof rest, "%s/snapshots/%s", folder, out->commit);
    if (!join(out->path, cache, rest) || !exists(out->path)) {
        return cli_fail(err, SSM_STATUS_FILE, path,
                        "it names commit %s, which the cache does not have; to download it: hf "
                        "download %s",
                        out->commit, argument);
    }
    snprintf(out->name, sizeof out->name, "%s", argument);
    return SSM_STATUS_OK;
}

ssm_status cli_resolve_model(const char *argument, cli_model_path *out, ssm_error *err)
{
    *out = (cli_model_path){.path = ""};
    if (strcmp(argument, "tiny") == 0) {
        char data[PATH_MAX];
        if (!cli_data_directory(data) || !join(out->path, data, "models/tiny")) {
            return cli_fail(err, SSM_STATUS_FILE, "models/tiny",
                            "the built-in model is neither in %s nor in %s", SSM_SOURCE_DATA_DIR,
                            SSM_INSTALL_DATA_DIR);
        }
        snprintf(out->name, sizeof out->name, "%s", argument);
        return SSM_STATUS_OK;
    }
    if (exists(argument)) {
        if (snprintf(out->path, sizeof out->path, "%s", argument) >= PATH_MAX) {
            return cli_fail(err, SSM_STATUS_FILE, NULL, "the path of the model is too long");
        }
        return SSM_STATUS_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        return cli_fail(err, SSM_STATUS_FILE, argument, "cannot be opened: %s", strerror(errno));
    }
    return find_in_cache(argument, out, err);
}
