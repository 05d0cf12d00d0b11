#include <stdlib.h>
#include <string.h>

#include "manual.h"

static void print_option_names(FILE *out, const cli_option *options, size_t n_options)
{
    for (size_t i = 0; i < n_options; i++) {
        if ((options[i].flags & CLI_HIDDEN) == 0) {
            fprintf(out, " --%s", options[i].name);
        }
    }
}

static void print_words(FILE *out, const cli_option *option)
{
    if (option->kind == CLI_CHOICE) {
        for (const char *c = option->choices; *c != '\0'; c++) {
            fputc(*c == '|' ? ' ' : *c, out);
        }
        return;
    }
    for (const char *const *word = option->words(); *word != NULL; word++) {
        fprintf(out, "%s ", *word);
    }
}

/* Values of options that take one of a few words, or a name that is known. */
static void print_choices(FILE *out, const char *command, const cli_option *options,
                          size_t n_options)
{
    for (size_t i = 0; i < n_options; i++) {
        const bool known = options[i].kind == CLI_CHOICE || options[i].words != NULL;
        if (known && (options[i].flags & CLI_HIDDEN) == 0) {
            fprintf(out, "        %s:--%s) words=\"", command, options[i].name);
            print_words(out, &options[i]);
            fputs("\" ;;\n", out);
        }
    }
}

void cli_print_completion(FILE *out)
{
    fputs("# Made by: ssmscope completion bash\n"
          "_ssmscope() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command= words= i\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n"
          "    done\n"
          "    case $command:$before in\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        print_choices(out, cli_commands[i]->name, cli_commands[i]->options,
                      cli_commands[i]->n_options);
    }
    print_choices(out, "*", cli_global_options, cli_n_global_options);
    fputs("    esac\n"
          "    if [ -n \"$words\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command:$word in\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "        %s:-*) words=\"", cli_commands[i]->name);
        print_option_names(out, cli_commands[i]->options, cli_commands[i]->n_options);
        fputs("\" ;;\n", out);
    }
    fputs("        :-*) ;;\n        :*) words=\"", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if ((cli_commands[i]->flags & CLI_HIDDEN) == 0) {
            fprintf(out, "%s%s", i == 0 ? "" : " ", cli_commands[i]->name);
        }
    }
    fputs("\" ;;\n    esac\n    case $word in -*) words+=\"", out);
    print_option_names(out, cli_global_options, cli_n_global_options);
    fputs("\" ;; esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -o default -F _ssmscope ssmscope\n",
          out);
}
