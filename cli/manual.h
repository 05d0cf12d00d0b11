/* cli/manual.h: what is printed from the option tables: help, the man page, shell completion. */
#ifndef SSM_CLI_MANUAL_H
#define SSM_CLI_MANUAL_H

#include <stdio.h>

#include "options.h"
#include "values.h"

/* All commands, NULL-terminated, in the order of --help. */
extern const cli_command *const cli_commands[];
/* NULL when there is none of that name. */
const cli_command *cli_find_command(const char *name);
/* USAGE, with the nearest name. */
ssm_status cli_unknown_command(const char *name, ssm_error *err);

/* "ssmscope run MODEL (--ids FILE | --prompt TEXT | --text FILE) [OPTION …]" */
void cli_synopsis(const cli_command *command, cli_string *out);
/* What stands for the value: "FILE", or the words that can be given, "parse|text". */
const char *cli_option_value(const cli_option *option);
/* An option as it is written: "--window T", "-o, --output DIR". */
void cli_option_heading(const cli_option *option, cli_string *out);

/* ssmscope --help: the list of commands. */
void cli_print_overview(FILE *out);
/* ssmscope COMMAND --help. */
void cli_print_help(const cli_command *command, FILE *out);
/* The man page, roff. The same program gives the same bytes. */
void cli_print_man(FILE *out);
/* A script for bash. */
void cli_print_completion(FILE *out);

/* Words about MODEL, TEXT and the files, shared by help and the man page: heading, text, …, NULL.
 */
typedef struct cli_words {
    const char *heading, *text;
} cli_words;
extern const cli_words cli_argument_words[];
extern const cli_words cli_environment_words[];
extern const char cli_about[];

#endif
