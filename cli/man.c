#include <stdlib.h>
#include <string.h>

#include "manual.h"

/* Text for roff: backslashes, hyphens that must stay hyphens, dots and quotes that begin a line. */
static void print_roff(FILE *out, const char *text)
{
    bool line_start = true;
    for (; *text != '\0'; text++) {
        if (line_start && (*text == '.' || *text == '\'')) {
            fputs("\\&", out);
        }
        line_start = *text == '\n';
        if (*text == '\\') {
            fputs("\\e", out);
        } else if (*text == '-') {
            fputs("\\-", out);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_line(FILE *out, const char *macro, const char *text)
{
    fputs(macro, out);
    print_roff(out, text);
    fputc('\n', out);
}

/* Paragraphs are separated by blank lines. */
static void print_paragraphs(FILE *out, const char *text)
{
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t bytes = end == NULL ? strlen(text) : (size_t)(end - text);
        cli_string paragraph = {0};
        cli_string_append(&paragraph, text, bytes);
        print_line(out, ".PP\n", paragraph.data == NULL ? "" : paragraph.data);
        free(paragraph.data);
        text += bytes + (end == NULL ? 0 : strspn(end, "\n"));
    }
}

static void print_entry(FILE *out, const char *heading, const char *text)
{
    print_line(out, ".TP\n.B ", heading);
    print_line(out, "", text);
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
        cli_option_heading(option, &heading);
        cli_string_add(&text, option->help);
        if (option->fallback != NULL) {
            cli_string_format(&text, " Default: %s.", option->fallback);
        }
        print_entry(out, heading.failed ? option->name : heading.data,
                    text.failed ? option->help : text.data);
        free(heading.data);
        free(text.data);
    }
}

static void print_command(FILE *out, const cli_command *command)
{
    cli_string synopsis = {0};
    cli_synopsis(command, &synopsis);
    print_line(out, ".SS ", command->name);
    print_line(out, ".PP\n.B ", synopsis.failed ? command->name : synopsis.data);
    free(synopsis.data);
    print_paragraphs(out, command->description);
    for (size_t i = 0; i < command->n_positionals; i++) {
        print_entry(out, command->positionals[i].name, command->positionals[i].help);
    }
    print_options(out, command->options, command->n_options);
    for (size_t i = 0; command->examples != NULL && command->examples[i] != NULL; i += 2) {
        print_line(out, i == 0 ? ".PP\nExamples:\n.PP\n" : ".PP\n", command->examples[i + 1]);
        print_line(out, ".RS\n.nf\n", command->examples[i]);
        fputs(".fi\n.RE\n", out);
    }
}

void cli_print_man(FILE *out)
{
    fputs(".\\\" Made by: ssmscope help --man\n.TH SSMSCOPE 1 \"\" \"ssmscope ", out);
    print_roff(out, ssm_version());
    fputs("\" \"User commands\"\n.SH NAME\nssmscope \\- run selective state\\-space models and "
          "measure how they use their state\n.SH SYNOPSIS\n.B ssmscope\n"
          "COMMAND [ARGUMENT …] [OPTION …]\n.SH DESCRIPTION\n",
          out);
    print_paragraphs(out, cli_about);
    fputs(".SH ARGUMENTS\n", out);
    for (size_t i = 0; cli_argument_words[i].heading != NULL; i++) {
        print_entry(out, cli_argument_words[i].heading, cli_argument_words[i].text);
    }
    fputs(".SH OPTIONS OF EVERY COMMAND\n", out);
    print_options(out, cli_global_options, cli_n_global_options);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if ((cli_commands[i]->flags & CLI_HIDDEN) == 0) {
            print_command(out, cli_commands[i]);
        }
    }
    fputs(".SH OUTPUT\n.PP\nData goes to standard output, words and progress to standard error; "
          "progress is drawn on a terminal only. With \\-\\-json a command prints one JSON object "
          "with the members schema, program_version and command; numbers that do not exist are "
          "null. The member command leaves out what does not change the result.\n.SH EXIT STATUS\n",
          out);
#define PRINT_STATUS(name, code, text) fprintf(out, ".TP\n.B %d\n%s\n", code, text);
    SSM_STATUSES(PRINT_STATUS)
#undef PRINT_STATUS
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; cli_environment_words[i].heading != NULL; i++) {
        print_entry(out, cli_environment_words[i].heading, cli_environment_words[i].text);
    }
}
