#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "values.h"

const cli_option cli_global_options[] = {
    {.name = "json",
     .kind = CLI_FLAG,
     .into = offsetof(cli_globals, json),
     .flags = CLI_NEUTRAL,
     .help = "Print one JSON object on standard output instead of tables."},
    {.name = "threads",
     .kind = CLI_INTEGER,
     .into = offsetof(cli_globals, threads),
     .argument = "N",
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .flags = CLI_NEUTRAL,
     .help = "Threads to use; 0 means one per processor. The results are the same."},
    {.name = "isa",
     .kind = CLI_CHOICE,
     .into = offsetof(cli_globals, isa),
     .choices = "auto|portable|avx2|avx512",
     .fallback = "auto",
     .flags = CLI_NEUTRAL,
     .help = "Instruction set of the kernels. For tests; the results are the same."},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .into = offsetof(cli_globals, quiet),
     .flags = CLI_NEUTRAL,
     .help = "No notes and no progress on standard error."},
    {.name = "help",
     .letter = 'h',
     .kind = CLI_FLAG,
     .into = offsetof(cli_globals, help),
     .flags = CLI_NEUTRAL,
     .help = "Print this help."},
    {.name = "version",
     .kind = CLI_FLAG,
     .into = offsetof(cli_globals, version),
     .flags = CLI_NEUTRAL,
     .help = "Print the version of the program."},
};
const size_t cli_n_global_options = sizeof cli_global_options / sizeof *cli_global_options;

/* What one pass over the words of a command line needs. */
typedef struct parser {
    cli_invocation *invocation;
    const char *const *argv;
    int argc, next;
    size_t n_positionals;
    bool only_positionals; /* after "--" */
} parser;

bool cli_names_have(const char *names, const char *name)
{
    size_t length = strlen(name);
    while (names != NULL && *names != '\0') {
        size_t word = strcspn(names, ",");
        if (word == length && strncmp(names, name, word) == 0) {
            return true;
        }
        names += word + (names[word] == ',');
    }
    return false;
}

static const cli_option *option_at(const cli_command *command, size_t index)
{
    return index < command->n_options ? &command->options[index]
                                      : &cli_global_options[index - command->n_options];
}

static size_t option_count(const cli_command *command)
{
    return command->n_options + cli_n_global_options;
}

/* The object that the field of option `index` lies in. */
static void *option_base(cli_invocation *invocation, size_t index)
{
    return index < invocation->command->n_options ? invocation->arguments : &invocation->globals;
}

static ssm_status unknown_option(const cli_command *command, const char *word, ssm_error *err)
{
    const char *names[128] = {NULL};
    size_t n_names = 0;
    for (size_t i = 0; i < option_count(command) && n_names + 1 < 128; i++) {
        if ((option_at(command, i)->flags & CLI_HIDDEN) == 0) {
            names[n_names++] = option_at(command, i)->name;
        }
    }
    char plain[128];
    const char *start = word + strspn(word, "-");
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(start, "="), start);
    const char *nearest = ssm_nearest(plain, names);
    if (nearest != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s has no option '%s'; did you mean '--%s'?",
                        command->name, word, nearest);
    }
    return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s has no option '%s'", command->name, word);
}

/* Index of a long option, whose name is the first `length` bytes of `name`; n when unknown. */
static size_t find_long(const cli_command *command, const char *name, size_t length)
{
    size_t n = option_count(command);
    for (size_t i = 0; i < n; i++) {
        const char *candidate = option_at(command, i)->name;
        if (strlen(candidate) == length && strncmp(candidate, name, length) == 0) {
            return i;
        }
    }
    return n;
}

static size_t find_letter(const cli_command *command, char letter)
{
    size_t n = option_count(command);
    for (size_t i = 0; i < n; i++) {
        if (option_at(command, i)->letter == letter) {
            return i;
        }
    }
    return n;
}

/* True when a word can only be meant as an option of this command, so that it is not swallowed as
 * the value of the option in front of it. */
static bool looks_like_option(const cli_command *command, const char *word)
{
    if (strncmp(word, "--", 2) == 0 && word[2] != '\0') {
        return find_long(command, word + 2, strcspn(word + 2, "=")) < option_count(command);
    }
    return word[0] == '-' && word[1] != '\0' && word[2] == '\0' &&
           find_letter(command, word[1]) < option_count(command);
}

/* Stores option `index`; value NULL: take the next word. */
static ssm_status take_option(parser *p, size_t index, const char *value, ssm_error *err)
{
    cli_invocation *invocation = p->invocation;
    const cli_option *option = option_at(invocation->command, index);
    if (option->kind == CLI_FLAG && value != NULL) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s takes no value, found '%s'",
                        option->name, value);
    }
    if (option->kind != CLI_FLAG && value == NULL) {
        const bool last = p->next >= p->argc;
        const bool none = last || looks_like_option(invocation->command, p->argv[p->next]);
        if (none && option->bare == NULL) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s needs a value: --%s %s%s",
                            option->name, option->name,
                            option->kind == CLI_CHOICE ? option->choices : option->argument,
                            last ? "" : " (a value that begins with '-': --name=value)");
        }
        value = none ? option->bare : p->argv[p->next++];
    }
    if (invocation->given[index] && option->kind != CLI_FLAG && option->kind != CLI_TEXTS) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s is given twice", option->name);
    }
    if (!invocation->given[index]) {
        cli_value_unset(option, option_base(invocation, index));
    }
    invocation->given[index] = true;
    return cli_value_set(option, value, option_base(invocation, index), err);
}

static ssm_status take_long(parser *p, const char *word, ssm_error *err)
{
    const char *equals = strchr(word, '=');
    size_t length = equals == NULL ? strlen(word + 2) : (size_t)(equals - word - 2);
    size_t index = find_long(p->invocation->command, word + 2, length);
    if (index == option_count(p->invocation->command)) {
        return unknown_option(p->invocation->command, word, err);
    }
    return take_option(p, index, equals == NULL ? NULL : equals + 1, err);
}

/* -o FILE, -oFILE, -q. */
static ssm_status take_short(parser *p, const char *word, ssm_error *err)
{
    const cli_command *command = p->invocation->command;
    size_t index = find_letter(command, word[1]);
    if (index == option_count(command)) {
        return unknown_option(command, word, err);
    }
    return take_option(p, index, word[2] == '\0' ? NULL : word + 2, err);
}

static ssm_status take_positional(parser *p, const char *word, ssm_error *err)
{
    const cli_command *command = p->invocation->command;
    size_t index = p->n_positionals;
    if (command->n_positionals > 0 && index >= command->n_positionals &&
        (command->positionals[command->n_positionals - 1].flags & CLI_REPEATED) != 0) {
        index = command->n_positionals - 1;
    }
    if (index >= command->n_positionals) {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s: one word too many: '%s'", command->name,
                        word);
    }
    const cli_positional *positional = &command->positionals[index];
    const cli_option as_option = {.name = positional->name,
                                  .kind = (positional->flags & CLI_REPEATED) != 0 ? CLI_TEXTS
                                                                                  : CLI_TEXT,
                                  .into = positional->into};
    p->n_positionals++;
    if (word[0] == '\0') {
        return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s: %s is empty", command->name,
                        positional->name);
    }
    return cli_value_set(&as_option, word, p->invocation->arguments, err);
}

static ssm_status take_word(parser *p, ssm_error *err)
{
    const char *word = p->argv[p->next++];
    if (p->only_positionals || word[0] != '-' || word[1] == '\0') {
        return take_positional(p, word, err);
    }
    if (strcmp(word, "--") == 0) {
        p->only_positionals = true;
        return SSM_STATUS_OK;
    }
    return word[1] == '-' ? take_long(p, word, err) : take_short(p, word, err);
}

/* ---- what must and must not stand together --------------------------------------------------- */

static ssm_status check_required(const parser *p, ssm_error *err)
{
    const cli_command *command = p->invocation->command;
    for (size_t i = p->n_positionals; i < command->n_positionals; i++) {
        if ((command->positionals[i].flags & CLI_REQUIRED) != 0) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s: %s is missing", command->name,
                            command->positionals[i].name);
        }
    }
    for (size_t i = 0; i < command->n_options; i++) {
        const cli_option *option = &command->options[i];
        if ((option->flags & CLI_REQUIRED) != 0 && !p->invocation->given[i]) {
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "%s: %s%s %s is missing", command->name,
                            option->letter == 'o' ? "-" : "--",
                            option->letter == 'o' ? "o" : option->name, option->argument);
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_conflicts(const cli_invocation *invocation, ssm_error *err)
{
    const cli_command *command = invocation->command;
    for (size_t i = 0; i < command->n_options; i++) {
        for (size_t j = 0; j < command->n_options; j++) {
            const cli_option *one = &command->options[i];
            const cli_option *other = &command->options[j];
            if (invocation->given[i] && invocation->given[j] &&
                cli_names_have(one->conflicts, other->name)) {
                return cli_fail(err, SSM_STATUS_USAGE, NULL,
                                "--%s and --%s cannot be given together", one->name, other->name);
            }
        }
    }
    return SSM_STATUS_OK;
}

static ssm_status check_one_of(const cli_invocation *invocation, ssm_error *err)
{
    const cli_command *command = invocation->command;
    const cli_option *first = NULL;
    cli_string wanted = {0};
    for (size_t i = 0; i < command->n_options; i++) {
        const cli_option *option = &command->options[i];
        if (!cli_names_have(command->one_of, option->name)) {
            continue;
        }
        cli_string_format(&wanted, "%s--%s", wanted.bytes == 0 ? "" : ", ", option->name);
        if (!invocation->given[i]) {
            continue;
        }
        if (first != NULL) {
            free(wanted.data);
            return cli_fail(err, SSM_STATUS_USAGE, NULL, "--%s and --%s cannot be given together",
                            first->name, option->name);
        }
        first = option;
    }
    if (command->one_of != NULL && first == NULL) {
        cli_fail(err, SSM_STATUS_USAGE, NULL, "%s: one of %s is missing", command->name,
                 wanted.data == NULL ? command->one_of : wanted.data);
    }
    free(wanted.data);
    return command->one_of != NULL && first == NULL ? SSM_STATUS_USAGE : SSM_STATUS_OK;
}

/* ---- entry points ---------------------------------------------------------------------------- */

static ssm_status set_default(const cli_option *option, void *base, ssm_error *err)
{
    cli_value_unset(option, base);
    return option->fallback == NULL ? SSM_STATUS_OK
                                    : cli_value_set(option, option->fallback, base, err);
}

ssm_status cli_globals_init(cli_globals *globals, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    *globals = (cli_globals){0};
    for (size_t i = 0; status == SSM_STATUS_OK && i < cli_n_global_options; i++) {
        status = set_default(&cli_global_options[i], globals, err);
    }
    return status;
}

ssm_status cli_parse_globals(int argc, const char *const *argv, cli_globals *globals, int *used,
                             ssm_error *err)
{
    static const cli_command program = {.name = "ssmscope"};
    cli_invocation invocation = {.command = &program, .globals = *globals};
    invocation.given = calloc(cli_n_global_options, sizeof(bool));
    if (invocation.given == NULL) {
        return cli_no_memory(err);
    }
    parser p = {.invocation = &invocation, .argv = argv, .argc = argc};
    ssm_status status = SSM_STATUS_OK;
    while (status == SSM_STATUS_OK && p.next < argc && argv[p.next][0] == '-') {
        status = take_word(&p, err);
    }
    *globals = invocation.globals;
    *used = p.next;
    free(invocation.given);
    return status;
}

ssm_status cli_parse(const cli_command *command, const cli_globals *globals, int argc,
                     const char *const *argv, cli_invocation *out, ssm_error *err)
{
    *out = (cli_invocation){.command = command, .globals = *globals};
    out->arguments = calloc(1, command->arguments_size + 1);
    out->given = calloc(option_count(command), sizeof(bool));
    if (out->arguments == NULL || out->given == NULL) {
        return cli_no_memory(err);
    }
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 0; status == SSM_STATUS_OK && i < command->n_options; i++) {
        status = set_default(&command->options[i], out->arguments, err);
    }
    parser p = {.invocation = out, .argv = argv, .argc = argc};
    while (status == SSM_STATUS_OK && p.next < argc) {
        status = take_word(&p, err);
    }
    if (status != SSM_STATUS_OK || out->globals.help || out->globals.version) {
        return status;
    }
    status = check_required(&p, err);
    status = status == SSM_STATUS_OK ? check_one_of(out, err) : status;
    return status == SSM_STATUS_OK ? check_conflicts(out, err) : status;
}

void cli_invocation_free(cli_invocation *invocation)
{
    const cli_command *command = invocation->command;
    if (command != NULL && invocation->arguments != NULL) {
        for (size_t i = 0; i < command->n_options; i++) {
            cli_value_free(&command->options[i], invocation->arguments);
        }
        for (size_t i = 0; i < command->n_positionals; i++) {
            if ((command->positionals[i].flags & CLI_REPEATED) != 0) {
                const cli_option texts = {.kind = CLI_TEXTS, .into = command->positionals[i].into};
                cli_value_free(&texts, invocation->arguments);
            }
        }
    }
    free(invocation->arguments);
    free(invocation->given);
    *invocation = (cli_invocation){0};
}

/* ---- the canonical command ------------------------------------------------------------------- */

static void add_positionals(const cli_invocation *invocation, cli_string *out)
{
    const cli_command *command = invocation->command;
    for (size_t i = 0; i < command->n_positionals; i++) {
        const cli_positional *positional = &command->positionals[i];
        const void *from = (const char *)invocation->arguments + positional->into;
        if ((positional->flags & CLI_REPEATED) != 0) {
            const cli_texts *texts = from;
            for (int64_t k = 0; k < texts->count; k++) {
                cli_string_add(out, " ");
                cli_quote(out, texts->values[k]);
            }
        } else if (*(const char *const *)from != NULL) {
            cli_string_add(out, " ");
            cli_quote(out, *(const char *const *)from);
        }
    }
}

static void add_option(const cli_invocation *invocation, const cli_option *option, cli_string *out)
{
    if (option->kind == CLI_TEXTS) {
        const cli_texts *texts = (const void *)((const char *)invocation->arguments + option->into);
        for (int64_t k = 0; k < texts->count; k++) {
            cli_string_format(out, " --%s ", option->name);
            cli_quote(out, texts->values[k]);
        }
        return;
    }
    cli_string value = {0};
    cli_value_print(option, invocation->arguments, &value);
    if (option->fallback == NULL || value.data == NULL ||
        strcmp(value.data, option->fallback) != 0) {
        cli_string_format(out, " --%s%s%s", option->name, option->kind == CLI_FLAG ? "" : " ",
                          value.data == NULL ? "" : value.data);
    }
    out->failed = out->failed || value.failed;
    free(value.data);
}

char *cli_canonical(const cli_invocation *invocation)
{
    cli_string out = {0};
    cli_string_format(&out, "ssmscope %s", invocation->command->name);
    add_positionals(invocation, &out);
    for (size_t i = 0; i < invocation->command->n_options; i++) {
        const cli_option *option = &invocation->command->options[i];
        if (invocation->given[i] && (option->flags & (CLI_OUTPUT | CLI_NEUTRAL)) == 0) {
            add_option(invocation, option, &out);
        }
    }
    if (out.failed) {
        free(out.data);
        return NULL;
    }
    return out.data;
}
