/* cli/commands.h: the table entry of every command, one file each. */
#ifndef SSM_CLI_COMMANDS_H
#define SSM_CLI_COMMANDS_H

#include "options.h"

extern const cli_command cli_command_info;
extern const cli_command cli_command_run;
extern const cli_command cli_command_tokenize;
extern const cli_command cli_command_record;
extern const cli_command cli_command_verify;
extern const cli_command cli_command_metrics;
extern const cli_command cli_command_select;
extern const cli_command cli_command_eval;
extern const cli_command cli_command_sweep;
extern const cli_command cli_command_compare;
extern const cli_command cli_command_convert;
extern const cli_command cli_command_prune;
extern const cli_command cli_command_init;
extern const cli_command cli_command_task;
extern const cli_command cli_command_train;
extern const cli_command cli_command_experiment;
extern const cli_command cli_command_bench; /* in bench/ */
extern const cli_command cli_command_selftest;
extern const cli_command cli_command_doctor;
extern const cli_command cli_command_completion;
extern const cli_command cli_command_help;

#endif
