/* cli/model_argument.h: what MODEL on the command line means. */
#ifndef SSM_CLI_MODEL_ARGUMENT_H
#define SSM_CLI_MODEL_ARGUMENT_H

#include <limits.h>

#include <ssmscope/base.h>

typedef struct cli_model_path {
    char path[PATH_MAX]; /* an existing directory or file */
    char name[256];      /* name in the Hugging Face cache, "tiny", "tiny2", or "" */
    char commit[128];    /* its commit, or "" */
} cli_model_path;

/* `tiny` is the built-in model (a directory of that name is ./tiny); then an existing path; then a
 * name in the local Hugging Face cache (read only, nothing is downloaded): org/name, or
 * org/name@revision with a branch, a tag or a commit.
 * Errors: FILE; for a name that could be downloaded, with the command that does it. */
ssm_status cli_resolve_model(const char *argument, cli_model_path *out, ssm_error *err);

/* Directory of the local Hugging Face cache by the environment; false when there is no home. */
bool cli_cache_directory(char out[PATH_MAX]);
/* Directory of the built-in data (models/): of this installation, of the source tree, or where it
 * was to be installed. */
bool cli_data_directory(char out[PATH_MAX]);

#endif
