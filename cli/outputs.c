/* cli/outputs.c: an output must not replace what the same command reads, or its other output. */
#include "outputs.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "messages.h"
#include "model_argument.h"

/* Options that name a file or directory to read. */
static const char read_options[] = "mask,recording,text,ids,jsonl,data";

static const char *text_at(const cli_invocation *invocation, size_t into)
{
    return *(const char *const *)((const char *)invocation->arguments + into);
}

static bool same_file(const char *a, const char *b)
{
    struct stat one;
    struct stat other;
    return strcmp(a, b) == 0 || (stat(a, &one) == 0 && stat(b, &other) == 0 &&
                                 one.st_dev == other.st_dev && one.st_ino == other.st_ino);
}

/* True for a file that a checkpoint or a recording consists of. */
static bool is_part(const char *name)
{
    static const char *const whole[] = {"config.json", "tokenizer.json", "recording.json"};
    static const char *const begins[] = {"model.safetensors", "model-", "calibration.", "partial."};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (strcmp(name, whole[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* True when `output` is `input`, or a file of the directory `input` that must stay. */
static bool replaces(const char *output, const char *input)
{
    struct stat info;
    if (stat(input, &info) != 0) {
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        return same_file(output, input);
    }
    char directory[PATH_MAX] = ".";
    const char *slash = strrchr(output, '/');
    if (slash != NULL) {
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - output + 1), output);
    }
    return is_part(slash == NULL ? output : slash + 1) && lstat(output, &info) == 0 &&
           same_file(directory, input);
}

static ssm_status check_input(const cli_option *option, const char *output, const char *input,
                              const char *name, ssm_error *err)
{
    cli_model_path where = {.path = ""};
    ssm_error ignored;
    ssm_error_clear(&ignored);
    bool model =
        strcmp(name, "MODEL") == 0 && cli_resolve_model(input, &where, &ignored) == SSM_STATUS_OK;
    const char *equals = strcmp(name, "TEXT") == 0 ? strchr(input, '=') : NULL;
    if (replaces(output, model ? where.path : input) ||
        (equals != NULL && replaces(output, equals + 1))) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--%s: %s would be replaced, and %s reads it: give another path",
                        option->name, output, name);
    }
    return SSM_STATUS_OK;
}

static ssm_status check_options(const cli_invocation *invocation, size_t index, const char *output,
                                ssm_error *err)
{
    const cli_command *command = invocation->command;
    const cli_option *option = &command->options[index];
    for (size_t i = 0; i < command->n_options; i++) {
        const cli_option *other = &command->options[i];
        if (i == index || !invocation->given[i] || other->kind != CLI_TEXT) {
            continue;
        }
        const char *value = text_at(invocation, other->into);
        if (i < index && (other->flags & CLI_OUTPUT) != 0 && same_file(output, value)) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "--%s and --%s name the same file %s: give each its own", other->name,
                            option->name, output);
        }
        if (cli_names_have(read_options, other->name)) {
            char name[64];
            snprintf(name, sizeof name, "--%s", other->name);
            ssm_status status = check_input(option, output, value, name, err);
            if (status != SSM_STATUS_OK) {
                return status;
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_positionals(const cli_invocation *invocation, const cli_option *option,
                                    const char *output, ssm_error *err)
{
    const cli_command *command = invocation->command;
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < command->n_positionals && status == SSM_STATUS_OK; i++) {
        const cli_positional *p = &command->positionals[i];
        if ((p->flags & CLI_REPEATED) != 0) {
            const cli_texts *texts =
                (const cli_texts *)(const void *)((const char *)invocation->arguments + p->into);
            for (int64_t k = 0; k < texts->count && status == SSM_STATUS_OK; k++) {
                status = check_input(option, output, texts->values[k], p->name, err);
            }
        } else if (text_at(invocation, p->into) != NULL) {
            status = check_input(option, output, text_at(invocation, p->into), p->name, err);
        }
    }
    return status;
}

ssm_status cli_check_outputs(const cli_invocation *invocation, ssm_error *err)
{
    const cli_command *command = invocation->command;
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; i < command->n_options && status == SSM_STATUS_OK; i++) {
        const cli_option *option = &command->options[i];
        if (!invocation->given[i] || option->kind != CLI_TEXT ||
            (option->flags & CLI_OUTPUT) == 0) {
            continue;
        }
        const char *output = text_at(invocation, option->into);
        status = check_options(invocation, i, output, err);
        if (status == SSM_STATUS_OK) {
            status = check_positionals(invocation, option, output, err);
        }
    }
    return status;
}
