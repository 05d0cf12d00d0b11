#include "commands.h"

#include "manual.h"

const cli_command *const cli_commands[] = {
    &cli_command_info,     &cli_command_run,
    &cli_command_tokenize, &cli_command_record,
    &cli_command_verify,   &cli_command_metrics,
    &cli_command_select,   &cli_command_eval,
    &cli_command_sweep,    &cli_command_compare,
    &cli_command_prune,    &cli_command_convert,
    &cli_command_init,     &cli_command_task,
    &cli_command_train,    &cli_command_experiment,
    &cli_command_bench,    &cli_command_selftest,
    &cli_command_doctor,   &cli_command_completion,
    &cli_command_help,     NULL,
};
