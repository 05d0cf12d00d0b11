#include "model_argument.h"

#include <dirent.h>
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

/* directory/rest, with the ~ of a file of settings that no shell has expanded. */
static bool join_expanded(char out[PATH_MAX], const char *directory, const char *rest)
{
    const char *home = set_variable("HOME");
    char expanded[PATH_MAX];
    if (directory[0] == '~' && (directory[1] == '/' || directory[1] == '\0') && home != NULL) {
        if (snprintf(expanded, sizeof expanded, "%s%s", home, directory + 1) >= PATH_MAX) {
            return false;
        }
        directory = expanded;
    }
    return rest == NULL ? snprintf(out, PATH_MAX, "%s", directory) < PATH_MAX
                        : join(out, directory, rest);
}

/* As huggingface_hub: the first variable that is set decides. */
bool cli_cache_directory(char out[PATH_MAX])
{
    static const struct {
        const char *variable, *rest;
    } places[] = {{"HF_HUB_CACHE", NULL},
                  {"HUGGINGFACE_HUB_CACHE", NULL},
                  {"HF_HOME", "hub"},
                  {"XDG_CACHE_HOME", "huggingface/hub"},
                  {"HOME", ".cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = set_variable(places[i].variable);
        if (value != NULL) {
            return join_expanded(out, value, places[i].rest);
        }
    }
    return false;
}

/* "org/name" or "name", each perhaps with "@revision". */
typedef struct hub_name {
    char name[208];
    char revision[128]; /* "" : main */
} hub_name;

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

/* Of the characters that names on the hub have. */
static bool is_plain_name(const char *text)
{
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

/* A branch, a tag, "refs/pr/3" or a commit: no part of it leads elsewhere. */
static bool is_revision(const char *text)
{
    if (strlen(text) >= sizeof((hub_name *)NULL)->revision) {
        return false;
    }
    for (;;) {
        size_t length = strspn(text, plain);
        if (length == 0 || text[0] == '.' || (text[length] != '/' && text[length] != '\0')) {
            return false;
        }
        if (text[length] == '\0') {
            return true;
        }
        text += length + 1;
    }
}

static bool parse_hub_name(const char *text, hub_name *out)
{
    const char *at = strchr(text, '@');
    size_t length = at == NULL ? strlen(text) : (size_t)(at - text);
    *out = (hub_name){.name = ""};
    if (length >= sizeof out->name) {
        return false;
    }
    memcpy(out->name, text, length);
    out->name[length] = '\0';
    if (at != NULL) {
        if (!is_revision(at + 1)) {
            return false;
        }
        snprintf(out->revision, sizeof out->revision, "%s", at + 1);
    }
    return is_plain_name(out->name);
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

/* " …; to download it: hf download org/name --revision x" */
static const char *download_command(const hub_name *hub, char out[512])
{
    const bool offline = set_variable("HF_HUB_OFFLINE") != NULL;
    snprintf(out, 512, "%sto download it: hf download %s%s%s",
             offline ? "HF_HUB_OFFLINE is set, unset it " : "", hub->name,
             hub->revision[0] == '\0' ? "" : " --revision ", hub->revision);
    return out;
}

static ssm_status not_found(const char *argument, const hub_name *hub, const char *cache,
                            ssm_error *err)
{
    char command[512];
    if (hub == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, argument, "there is no such model file or directory");
    }
    if (strchr(hub->name, '/') == NULL) {
        return cli_fail(err, SSM_STATUS_FILE, argument,
                        "there is no such model file or directory, and no model of that name in "
                        "the Hugging Face cache %s",
                        cache);
    }
    return cli_fail(err, SSM_STATUS_FILE, argument,
                    "there is no such model file or directory, and the Hugging Face cache %s does "
                    "not have it; %s",
                    cache, download_command(hub, command));
}

/* The first of the commits that the cache has of a model, "" when there is none. */
static void any_commit(const char *snapshots, char out[128])
{
    out[0] = '\0';
    DIR *directory = opendir(snapshots);
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const char *name = entry->d_name;
        const size_t bytes = strlen(name) + 1;
        if (name[0] != '.' && bytes <= 128 && (out[0] == '\0' || strcmp(name, out) < 0)) {
            memcpy(out, name, bytes);
        }
    }
    closedir(directory);
}

/* The model is in the cache, the revision is not. */
static ssm_status no_revision(const hub_name *hub, const char *cache, const char *folder,
                              const char *argument, ssm_error *err)
{
    char rest[512];
    char path[PATH_MAX];
    char commit[128] = "";
    char command[512];
    snprintf(rest, sizeof rest, "%s/snapshots", folder);
    if (join(path, cache, rest)) {
        any_commit(path, commit);
    }
    if (commit[0] == '\0') {
        return not_found(argument, hub, cache, err);
    }
    return cli_fail(err, SSM_STATUS_FILE, argument,
                    "the Hugging Face cache %s has the model, but not its revision %s; it has "
                    "commit %s (give %s@%s); %s",
                    cache, hub->revision[0] == '\0' ? "main" : hub->revision, commit, hub->name,
                    commit, download_command(hub, command));
}

/* Sets out->commit: the word of refs/REVISION, or the revision itself when it is a commit. */
static bool find_commit(const hub_name *hub, const char *cache, const char *folder,
                        cli_model_path *out)
{
    char rest[768];
    char path[PATH_MAX];
    const char *revision = hub->revision[0] == '\0' ? "main" : hub->revision;
    snprintf(rest, sizeof rest, "%s/refs/%s", folder, revision);
    if (join(path, cache, rest) && read_word(path, out->commit)) {
        return true;
    }
    snprintf(rest, sizeof rest, "%s/snapshots/%s", folder, revision);
    snprintf(out->commit, sizeof out->commit, "%s", revision);
    return strchr(revision, '/') == NULL && join(path, cache, rest) && exists(path);
}

static ssm_status find_in_cache(const char *argument, cli_model_path *out, ssm_error *err)
{
    char cache[PATH_MAX];
    hub_name hub;
    if (!parse_hub_name(argument, &hub) || !cli_cache_directory(cache)) {
        return not_found(argument, NULL, NULL, err);
    }
    char folder[256];
    char rest[512];
    char command[512];
    cache_folder(hub.name, folder);
    if (!find_commit(&hub, cache, folder, out)) {
        return no_revision(&hub, cache, folder, argument, err);
    }
    snprintf(rest, sizeof rest, "%s/snapshots/%s", folder, out->commit);
    if (!join(out->path, cache, rest) || !exists(out->path)) {
        snprintf(rest, sizeof rest, "%s/refs/%s", folder,
                 hub.revision[0] == '\0' ? "main" : hub.revision);
        char path[PATH_MAX];
        return cli_fail(err, SSM_STATUS_FILE, join(path, cache, rest) ? path : NULL,
                        "it names commit %s, which the cache does not have; %s", out->commit,
                        download_command(&hub, command));
    }
    snprintf(out->name, sizeof out->name, "%s", hub.name);
    return SSM_STATUS_OK;
}

/* "models/tiny" or "models/tiny2"; NULL: not the name of a built-in model. */
static const char *built_in(const char *argument)
{
    return strcmp(argument, "tiny") == 0    ? "models/tiny"
           : strcmp(argument, "tiny2") == 0 ? "models/tiny2"
                                            : NULL;
}

ssm_status cli_resolve_model(const char *argument, cli_model_path *out, ssm_error *err)
{
    const char *own = built_in(argument);
    *out = (cli_model_path){.path = ""};
    if (own != NULL) {
        char data[PATH_MAX];
        if (!cli_data_directory(data) || !join(out->path, data, own)) {
            return cli_fail(err, SSM_STATUS_FILE, own,
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
        char head[PATH_MAX];
        if (join(head, argument, "recording.json") && exists(head) &&
            join(head, argument, "config.json") && !exists(head)) {
            return cli_fail(err, SSM_STATUS_FILE, argument,
                            "is a recording, and a model is expected here");
        }
        return SSM_STATUS_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        return cli_fail(err, SSM_STATUS_FILE, argument, "cannot be opened: %s", strerror(errno));
    }
    return find_in_cache(argument, out, err);
}
