/* cli/input.h: files and standard input. The path "-" is standard input. */
#ifndef SSM_CLI_INPUT_H
#define SSM_CLI_INPUT_H

#include <stdio.h>

#include <ssmscope/tokenizer.h>

/* Name of an input in messages: "standard input" for "-". */
const char *cli_input_name(const char *path);
/* Opens for reading. Errors: FILE (missing, unreadable, a directory). */
ssm_status cli_open_input(const char *path, FILE **out, ssm_error *err);
void cli_close_input(FILE *file);
/* The whole of it; text is empty at first, the caller frees it. Errors: FILE, MEMORY. */
ssm_status cli_read_input(const char *path, ssm_text *text, ssm_error *err);
/* Decimal ids separated by white space, appended. Errors: FILE with the byte offset, MEMORY. */
ssm_status cli_read_ids(const char *path, ssm_ids *ids, ssm_error *err);
/* Appends one id. Errors: MEMORY. */
ssm_status cli_ids_push(ssm_ids *ids, int32_t id, ssm_error *err);

#endif
