/* cli/options.h: one table of options a command. The same table feeds the parser, --help, the man
 * page and shell completion. */
#ifndef SSM_CLI_OPTIONS_H
#define SSM_CLI_OPTIONS_H

#include <ssmscope/base.h>

/* What an option takes, and the type of the field it is written to. */
typedef enum cli_kind {
    CLI_FLAG,    /* nothing; bool */
    CLI_TEXT,    /* any text; const char *, NULL when not given */
    CLI_TEXTS,   /* any text, may be repeated; cli_texts */
    CLI_INTEGER, /* int64_t, CLI_UNSET when not given */
    CLI_REAL,    /* double */
    CLI_CHOICE,  /* one of `choices`; int64_t, its index */
    CLI_LIST     /* "1,2,5-7"; cli_list, rising, without repetitions */
} cli_kind;

#define CLI_UNSET INT64_MIN

typedef struct cli_list {
    int64_t *values; /* NULL when not given */
    int64_t count;
} cli_list;

typedef struct cli_texts {
    const char **values; /* point into argv */
    int64_t count;
} cli_texts;

enum {
    CLI_REQUIRED = 1, /* must be given */
    CLI_OUTPUT = 2,   /* names an output; left out of the canonical command */
    CLI_NEUTRAL = 4,  /* does not change the result; left out of the canonical command */
    CLI_HIDDEN = 8,   /* for the makers of this program; not in --help */
    CLI_REPEATED = 16 /* positional: one or more; takes the rest of the line */
};

typedef struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* '\0': none */
    cli_kind kind;
    size_t into;                       /* offset of the field in the arguments of the command */
    const char *argument;              /* what stands for the value in help: "K", "FILE" */
    const char *choices;               /* CLI_CHOICE: "auto|portable" */
    const char *const *(*words)(void); /* CLI_TEXT(S): names that completion offers; NULL: none */
    const char *fallback;  /* value when not given, written as a user would; NULL: none */
    const char *bare;      /* value when no word follows, or an option; NULL: one must follow */
    int64_t min, max;      /* CLI_INTEGER and CLI_LIST, both included */
    double low, high;      /* CLI_REAL, both included */
    unsigned flags;        /* CLI_REQUIRED … */
    const char *conflicts; /* names that cannot be given together with this one: "ids,text" */
    const char *help;      /* one or more sentences; the default is added */
} cli_option;

typedef struct cli_positional {
    const char *name;
    size_t into;    /* const char *, or cli_texts with CLI_REPEATED */
    unsigned flags; /* CLI_REQUIRED, CLI_REPEATED */
    const char *help;
} cli_positional;

typedef struct cli_context cli_context;

typedef struct cli_command {
    const char *name;
    const char *summary;         /* one line, no full stop */
    const char *description;     /* paragraphs, separated by a blank line */
    const char *const *examples; /* command, what it does, …, NULL */
    const cli_positional *positionals;
    size_t n_positionals;
    const cli_option *options;
    size_t n_options;
    const char *one_of; /* exactly one of these options must be given: "ids,prompt,text" */
    size_t arguments_size;
    unsigned flags; /* CLI_HIDDEN */
    ssm_status (*run)(cli_context *context, const void *arguments, ssm_error *err);
} cli_command;

/* Options that every command has. */
typedef struct cli_globals {
    bool json, quiet, help, version;
    int64_t threads;
    int64_t isa; /* an ssm_isa */
} cli_globals;

extern const cli_option cli_global_options[];
extern const size_t cli_n_global_options;

/* A parsed command line. */
typedef struct cli_invocation {
    const cli_command *command;
    void *arguments; /* of arguments_size bytes */
    bool *given;     /* n_options, then the global ones */
    cli_globals globals;
} cli_invocation;

/* Parses argv[0 … argc) (without the name of the command) by the table of `command`.
 * `globals` are those already given in front of the command. When --help is among the arguments,
 * what is missing or conflicting is not complained about.
 * Errors: USAGE, with a message that names the option; MEMORY.
 * Owner of *out: the caller, cli_invocation_free, also after an error. */
ssm_status cli_parse(const cli_command *command, const cli_globals *globals, int argc,
                     const char *const *argv, cli_invocation *out, ssm_error *err);
void cli_invocation_free(cli_invocation *invocation);

/* Defaults of the global options. */
ssm_status cli_globals_init(cli_globals *globals, ssm_error *err);
/* Parses the global options at the front of argv; *used is the index of the first other word. */
ssm_status cli_parse_globals(int argc, const char *const *argv, cli_globals *globals, int *used,
                             ssm_error *err);

/* The command line that gives the same result: options in table order, numbers in one spelling,
 * without defaults, outputs and options that only change how the work is done. malloc'ed, or NULL
 * when there is no memory. */
char *cli_canonical(const cli_invocation *invocation);

/* True when the option `name` stands in the comma-separated list `names` (NULL: empty). */
bool cli_names_have(const char *names, const char *name);

#endif
