/* ssmscope: the program. The only place that ends the process. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "manual.h"
#include "messages.h"
#include "outputs.h"

/* Runs a parsed command, with what its help and --version ask for done first. */
static ssm_status run_invocation(const cli_invocation *invocation, ssm_error *err)
{
    const cli_command *command = invocation->command;
    if (invocation->globals.help) {
        cli_print_help(command, stdout);
        return SSM_STATUS_OK;
    }
    if (invocation->globals.version) {
        printf("ssmscope %s\n", ssm_version());
        return SSM_STATUS_OK;
    }
    if (!ssm_isa_supported((ssm_isa)invocation->globals.isa)) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL,
                        "--isa: this processor cannot run %s kernels; the best it can run is %s",
                        ssm_isa_name((ssm_isa)invocation->globals.isa),
                        ssm_isa_name(ssm_isa_best()));
    }
    cli_context context = {.command = command, .globals = invocation->globals};
    context.canonical = cli_canonical(invocation);
    ssm_status status = context.canonical == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    status = status == SSM_STATUS_OK ? cli_check_outputs(invocation, err) : status;
    status = status == SSM_STATUS_OK ? command->run(&context, invocation->arguments, err) : status;
    cli_progress_clear(&context);
    ssm_pool_free(context.pool);
    free(context.canonical);
    return status;
}

/* The word after the global options names the command. */
static ssm_status run_line(int argc, const char *const *argv, const cli_command **command,
                           ssm_error *err)
{
    cli_globals globals;
    int used = 0;
    ssm_status status = cli_globals_init(&globals, err);
    status = status == SSM_STATUS_OK ? cli_parse_globals(argc, argv, &globals, &used, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    if (used == argc) {
        if (globals.version) {
            printf("ssmscope %s\n", ssm_version());
        } else if (globals.help) {
            cli_print_overview(stdout);
        } else {
            return cli_fail(err, SSM_STATUS_USAGE, NULL,
                            "which command? For example: ssmscope info tiny");
        }
        return SSM_STATUS_OK;
    }
    *command = cli_find_command(argv[used]);
    if (*command == NULL) {
        return cli_unknown_command(argv[used], err);
    }
    cli_invocation invocation;
    status = cli_parse(*command, &globals, argc - used - 1, argv + used + 1, &invocation, err);
    status = status == SSM_STATUS_OK ? run_invocation(&invocation, err) : status;
    cli_invocation_free(&invocation);
    return status;
}

static bool has_option(const cli_command *command, const char *name)
{
    for (size_t i = 0; command != NULL && i < command->n_options; i++) {
        if (strcmp(command->options[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* A stream that is closed (>&-) leaves its number to the next file that is opened: words would go
 * into an output file. It becomes one that fails when it is used. */
static void occupy_streams(void)
{
    const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY}; /* the wrong way round, but for messages */
    for (int i = 0; i < 3; i++) {
        if (fcntl(i, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[i]) < 0) {
            return;
        }
    }
}

int main(int argc, char **argv)
{
    occupy_streams();
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is then an error like a full disk */
    /* For the width of a bar chart's characters only: numbers stay in the C locale. */
    setlocale(LC_CTYPE, "");
    ssm_error err;
    ssm_error_clear(&err);
    const cli_command *command = NULL;
    ssm_status status =
        run_line(argc > 0 ? argc - 1 : 0, (const char *const *)argv + 1, &command, &err);
    if (status == SSM_STATUS_OK && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        status = cli_fail(&err, SSM_STATUS_FAILED, NULL, "cannot write standard output: %s",
                          strerror(errno));
    }
    if (status == SSM_STATUS_INTERRUPTED) {
        /* A command with --items resumes only where that was given. */
        fprintf(stderr, "ssmscope: stopped%s\n",
                !has_option(command, "resume") ? ""
                : has_option(command, "items") ? "; a run with --items FILE goes on with --resume"
                                               : "; run again with --resume to go on");
    } else if (status != SSM_STATUS_OK) {
        cli_print_error(&err, status, command == NULL ? NULL : command->name);
    }
    exit((int)status);
}
