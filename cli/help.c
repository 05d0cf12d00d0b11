#include "manual.h"

#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "output.h"

enum { OPTION_COLUMN = 26, COMMAND_COLUMN = 14 };

const char cli_about[] =
    "An engine and exact instrument for selective state-space models (Mamba). It runs checkpoints "
    "on a CPU, measures in one forward pass how every channel uses its state, says what a smaller "
    "state would cost, and judges it on text with confidence intervals.";

const cli_words cli_argument_words[] = {
    {"MODEL",
     "A model directory, a .safetensors, .bin, .pt or .pth file beside its config.json, a name in "
     "the local Hugging Face cache such as state-spaces/mamba-130m-hf, or tiny or tiny2: the "
     "trained models that come with ssmscope (Mamba-1, Mamba-2). Nothing is ever downloaded."},
    {"TEXT",
     "A UTF-8 text file as PATH or DOMAIN=PATH. Files of one domain are joined in the order given. "
     "Without a domain it is the file's name without its extension. Texts are cut into consecutive "
     "windows of tokens."},
    {"LIST", "Whole numbers and ranges, such as 1,2,5-7."},
    {NULL, NULL},
};

const cli_words cli_environment_words[] = {
    {"HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME",
     "Where the local Hugging Face cache is: $HF_HUB_CACHE, $HF_HOME/hub, "
     "$XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first that is set. It is "
     "only read."},
    {"LANG, LC_ALL, LC_CTYPE",
     "In a UTF-8 locale bar charts use block characters and tables the symbols ρ and τ; elsewhere "
     "#, rho and tau."},
    {NULL, NULL},
};

/* "  heading       text": the text on a line of its own when the heading is long. */
static void print_entry(FILE *out, const char *heading, const char *text, int column)
{
    int used = fprintf(out, "  %s", heading);
    if (used + 2 > column) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", column - used, "");
    cli_print_wrapped(out, text, column, column);
}

void cli_option_heading(const cli_option *option, cli_string *out)
{
    if (option->letter != '\0') {
        cli_string_format(out, "-%c, ", option->letter);
    }
    cli_string_format(out, "--%s", option->name);
    if (option->kind != CLI_FLAG) {
        cli_string_format(out, " %s", cli_option_value(option));
    }
}

const char *cli_option_value(const cli_option *option)
{
    return option->kind == CLI_CHOICE ? option->choices : option->argument;
}

/* "-o FILE" or "--rule RULE", as short as it can be typed. */
static void add_short_form(const cli_option *option, cli_string *out)
{
    if (option->letter != '\0') {
        cli_string_format(out, "-%c %s", option->letter, cli_option_value(option));
    } else {
        cli_string_format(out, "--%s %s", option->name, cli_option_value(option));
    }
}

void cli_synopsis(const cli_command *command, cli_string *out)
{
    cli_string_format(out, "ssmscope %s", command->name);
    for (size_t i = 0; i < command->n_positionals; i++) {
        const cli_positional *positional = &command->positionals[i];
        bool required = (positional->flags & CLI_REQUIRED) != 0;
        cli_string_format(out, required ? " %s%s" : " [%s%s]", positional->name,
                          (positional->flags & CLI_REPEATED) != 0 ? " …" : "");
    }
    const char *before = " (";
    for (size_t i = 0; i < command->n_options; i++) {
        if (cli_names_have(command->one_of, command->options[i].name)) {
            cli_string_add(out, before);
            add_short_form(&command->options[i], out);
            before = " | ";
        }
    }
    cli_string_add(out, command->one_of == NULL ? "" : ")");
    bool optional = false;
    for (size_t i = 0; i < command->n_options; i++) {
        const cli_option *option = &command->options[i];
        if ((option->flags & CLI_REQUIRED) != 0) {
            cli_string_add(out, " ");
            add_short_form(option, out);
        }
        optional = optional || (option->flags & (CLI_REQUIRED | CLI_HIDDEN)) == 0;
    }
    cli_string_add(out, optional ? " [OPTION …]" : "");
}

static void print_options(FILE *out, const cli_option *options, size_t n_options)
{
    for (size_t i = 0; i < n_options; i++) {
        const cli_option *option = &options[i];
        if ((option->flags & CLI_HIDDEN) != 0) {
            continue;
        }
        cli_string heading = {0};
        cli_string text = {0};
        if (option->letter == '\0') {
            cli_string_add(&heading, "    ");
        }
        cli_option_heading(option, &heading);
        cli_string_add(&text, option->help);
        if (option->fallback != NULL) {
            cli_string_format(&text, " [default:" CLI_HARD_SPACE "%s]", option->fallback);
        }
        print_entry(out, heading.failed ? option->name : heading.data,
                    text.failed ? option->help : text.data, OPTION_COLUMN);
        free(heading.data);
        free(text.data);
    }
}

void cli_print_help(const cli_command *command, FILE *out)
{
    cli_string synopsis = {0};
    cli_synopsis(command, &synopsis);
    fprintf(out, "ssmscope %s: %s\n\nUsage: ", command->name, command->summary);
    cli_print_wrapped(out, synopsis.failed ? command->name : synopsis.data, 7, 7);
    free(synopsis.data);
    fputc('\n', out);
    cli_print_wrapped(out, command->description, 0, 0);
    if (command->n_positionals > 0) {
        fputs("\nArguments:\n", out);
        for (size_t i = 0; i < command->n_positionals; i++) {
            print_entry(out, command->positionals[i].name, command->positionals[i].help,
                        COMMAND_COLUMN);
        }
    }
    bool visible = false; /* help has hidden options only */
    for (size_t i = 0; i < command->n_options; i++) {
        visible = visible || (command->options[i].flags & CLI_HIDDEN) == 0;
    }
    if (visible) {
        fputs("\nOptions:\n", out);
        print_options(out, command->options, command->n_options);
    }
    fputs("\nCommon options:\n", out);
    print_options(out, cli_global_options, cli_n_global_options);
    if (command->examples != NULL) {
        fputs("\nExamples:\n", out);
        for (size_t i = 0; command->examples[i] != NULL; i += 2) {
            fprintf(out, "  %s\n      ", command->examples[i]);
            cli_print_wrapped(out, command->examples[i + 1], 6, 6);
        }
    }
}

void cli_print_overview(FILE *out)
{
    fprintf(out, "ssmscope %s\n\n", ssm_version());
    cli_print_wrapped(out, cli_about, 0, 0);
    cli_put(out, "\nUsage: ssmscope COMMAND [ARGUMENT …] [OPTION …]\n\nCommands:\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if ((cli_commands[i]->flags & CLI_HIDDEN) == 0) {
            print_entry(out, cli_commands[i]->name, cli_commands[i]->summary, COMMAND_COLUMN);
        }
    }
    fputs("\nArguments:\n", out);
    for (size_t i = 0; cli_argument_words[i].heading != NULL; i++) {
        print_entry(out, cli_argument_words[i].heading, cli_argument_words[i].text, COMMAND_COLUMN);
    }
    fputs("\nOptions of every command:\n", out);
    print_options(out, cli_global_options, cli_n_global_options);
    fputs("\nFirst steps:\n"
          "  ssmscope info tiny\n"
          "  ssmscope run tiny --prompt \"In the beginning\"\n"
          "  ssmscope COMMAND --help\n\nExit status:\n",
          out);
#define PRINT_STATUS(name, code, text) fprintf(out, "  %-4d%s\n", code, text);
    SSM_STATUSES(PRINT_STATUS)
#undef PRINT_STATUS
}

const cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    return NULL;
}

ssm_status cli_unknown_command(const char *name, ssm_error *err)
{
    enum { COMMANDS_MAX = 64 };
    const char *names[COMMANDS_MAX + 1] = {NULL};
    size_t n_names = 0;
    for (size_t i = 0; cli_commands[i] != NULL && n_names < COMMANDS_MAX; i++) {
        if ((cli_commands[i]->flags & CLI_HIDDEN) == 0) {
            names[n_names++] = cli_commands[i]->name;
        }
    }
    const char *nearest = ssm_nearest(name, names);
    if (nearest == NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "there is no command '%s'", name);
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL, "there is no command '%s'; did you mean '%s'?",
                    name, nearest);
}
