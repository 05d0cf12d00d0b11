/* cli/eval_options.h: the option table of `eval`. */
#ifndef SSM_CLI_EVAL_OPTIONS_H
#define SSM_CLI_EVAL_OPTIONS_H

#include "options.h"

enum { CLI_EVAL_POSITIONALS = 2, CLI_EVAL_OPTIONS = 28 };

extern const cli_positional cli_eval_positionals[CLI_EVAL_POSITIONALS];
extern const cli_option cli_eval_options[CLI_EVAL_OPTIONS];
extern const char *const cli_eval_examples[];

#endif
