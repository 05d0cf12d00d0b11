#include <string.h>

#include "commands.h"
#include "context.h"
#include "manual.h"
#include "messages.h"

typedef struct help_arguments {
    const char *command;
    bool man;
} help_arguments;

static ssm_status run_help(cli_context *context, const void *arguments, ssm_error *err)
{
    (void)context;
    const help_arguments *args = arguments;
    if (args->man) {
        cli_print_man(stdout);
        return SSM_STATUS_OK;
    }
    if (args->command == NULL) {
        cli_print_overview(stdout);
        return SSM_STATUS_OK;
    }
    const cli_command *command = cli_find_command(args->command);
    if (command == NULL) {
        return cli_unknown_command(args->command, err);
    }
    cli_print_help(command, stdout);
    return SSM_STATUS_OK;
}

static const cli_positional help_positionals[] = {
    {.name = "COMMAND",
     .into = offsetof(help_arguments, command),
     .help = "The command to explain; without it, the list of commands."},
};

static const cli_option help_options[] = {
    {.name = "man",
     .kind = CLI_FLAG,
     .into = offsetof(help_arguments, man),
     .flags = CLI_HIDDEN,
     .help = "Print the man page (roff)."},
};

const cli_command cli_command_help = {
    .name = "help",
    .summary = "explain a command",
    .description = "Prints the help of a command, as COMMAND --help does.",
    .positionals = help_positionals,
    .n_positionals = sizeof help_positionals / sizeof *help_positionals,
    .options = help_options,
    .n_options = sizeof help_options / sizeof *help_options,
    .arguments_size = sizeof(help_arguments),
    .run = run_help,
};

/* ---- completion ------------------------------------------------------------------------------ */

typedef struct completion_arguments {
    const char *shell;
} completion_arguments;

static ssm_status run_completion(cli_context *context, const void *arguments, ssm_error *err)
{
    (void)context;
    const completion_arguments *args = arguments;
    if (strcmp(args->shell, "bash") != 0) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "there is no completion for the shell '%s'; there is one for bash",
                        args->shell);
    }
    cli_print_completion(stdout);
    return SSM_STATUS_OK;
}

static const cli_positional completion_positionals[] = {
    {.name = "SHELL",
     .into = offsetof(completion_arguments, shell),
     .flags = CLI_REQUIRED,
     .help = "bash."},
};

static const char *const completion_examples[] = {
    "source <(ssmscope completion bash)",
    "Completes commands, options and their values in this "
    "shell.",
    NULL};

const cli_command cli_command_completion = {
    .name = "completion",
    .summary = "print a completion script for the shell",
    .description = "Prints a script that completes commands, options and their values.",
    .examples = completion_examples,
    .positionals = completion_positionals,
    .n_positionals = sizeof completion_positionals / sizeof *completion_positionals,
    .arguments_size = sizeof(completion_arguments),
    .run = run_completion,
};
