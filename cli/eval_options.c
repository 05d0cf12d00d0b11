#include "eval_options.h"

#include "eval_state.h"
#include "rules.h"

static const char *const *protocols(void)
{
    static const char *const names[] = {
        "auto", "full", "continuation:", "rolling", "stateful", NULL};
    return names;
}

const cli_positional cli_eval_positionals[CLI_EVAL_POSITIONALS] = {
    CLI_MODEL_ENTRY(cli_eval_arguments),
    {.name = "TEXT",
     .into = offsetof(cli_eval_arguments, texts),
     .flags = CLI_REPEATED,
     .help = "Text files, as PATH or DOMAIN=PATH; none with --task."},
};

const cli_option cli_eval_options[CLI_EVAL_OPTIONS] = {
    {.name = "mask",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, mask),
     .argument = "MASK",
     .conflicts = "rule",
     .help = "Judge the model with only the modes that this mask keeps."},
    {.name = "rule",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, rule),
     .argument = "RULE",
     .words = cli_rule_names,
     .help =
         "Choose the modes by a rule, with --recording and --budget: one of select, or one that "
         "chooses anew for every window (scheduled, half, prefix:T, prefix-ramp:T) or domain "
         "(regime), which are compared with static, too; ghost calibrates layer after layer."},
    {.name = "recording",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, recording),
     .argument = "REC",
     .help = "The recording that a rule chooses on."},
    {.name = "budget",
     .kind = CLI_INTEGER,
     .into = offsetof(cli_eval_arguments, budget),
     .argument = "R",
     .min = 1,
     .max = 65536,
     .help = "Modes that a rule keeps in every channel (or head)."},
    {.name = "scope",
     .kind = CLI_CHOICE,
     .into = offsetof(cli_eval_arguments, scope),
     .choices = "channel|head|group|layer",
     .fallback = "channel",
     .help = "What a rule chooses a set for: every channel, (Mamba-2) every head or group, or the "
             "whole layer."},
    {.name = "against",
     .kind = CLI_TEXTS,
     .into = offsetof(cli_eval_arguments, against),
     .argument = "WHAT",
     .words = cli_rule_names,
     .help =
         "Compare with this too: unpruned, a mask file, a rule, or several prefixes as "
         "prefix:64,128,256. May be repeated. With --mask or --rule the unpruned model is always "
         "compared."},
    CLI_WINDOW_ENTRIES(cli_eval_arguments),
    {.name = "protocol",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, protocol),
     .argument = "P",
     .fallback = "auto",
     .words = protocols,
     .help = "full scores every token of a window but the first; continuation:T scores from token "
             "T on; auto is full or, with rules that choose on the first tokens of a window, the "
             "continuation from where the last of them has chosen, for all models alike. rolling "
             "scores whole documents as lm-evaluation-harness does: per word, byte "
             "and token; stateful does so in one stream a document, the state carried through."},
    {.name = "documents",
     .kind = CLI_CHOICE,
     .into = offsetof(cli_eval_arguments, documents),
     .choices = "file|wikitext",
     .fallback = "file",
     .help = "rolling, stateful: file takes each file as one document, as it is; wikitext cuts "
             "WikiText into pages and undoes its tokenisation."},
    {.name = "task",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, task),
     .argument = "NAME",
     .words = ssm_task_names,
     .help = "Score a task instead of texts: lambada, piqa, arc_easy, arc_challenge, winogrande or "
             "hellaswag, without examples, as lm-evaluation-harness does."},
    {.name = "data",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, data),
     .argument = "FILE",
     .help = "The items of the task: JSON lines with the fields of the harness's data set, or "
             "query, choices and gold."},
    {.name = "limit",
     .kind = CLI_INTEGER,
     .into = offsetof(cli_eval_arguments, limit),
     .argument = "K",
     .fallback = "0",
     .min = 0,
     .max = INT32_MAX,
     .help = "Score the first K items of the task only; 0 is all."},
    {.name = "max-length",
     .kind = CLI_INTEGER,
     .into = offsetof(cli_eval_arguments, max_length),
     .argument = "T",
     .fallback = "2048",
     .min = 1,
     .max = 1 << 24,
     .help = "Tasks, rolling: most tokens of an input. Items that are longer lose their first "
             "tokens, and are counted."},
    {.name = "prefix-token",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, prefix_token),
     .argument = "TOKEN",
     .fallback = "auto",
     .help = "Tasks, rolling: what stands where there is no context. auto is the tokenizer's BOS, "
             "else its EOS token; none: the first token of a document is not scored."},
    {.name = "harness-json",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, harness_json),
     .argument = "FILE",
     .flags = CLI_OUTPUT,
     .help = "Write the results as lm-evaluation-harness writes them, too."},
    {.name = "harness-bootstrap",
     .kind = CLI_INTEGER,
     .into = offsetof(cli_eval_arguments, harness_bootstrap),
     .argument = "B",
     .fallback = "100000",
     .min = 0,
     .max = 100000000,
     .help = "Resamples for the standard error of LAMBADA's perplexity, which are those of the "
             "harness (its bootstrap_iters); 0 leaves it out."},
    {.name = "items",
     .kind = CLI_TEXT,
     .into = offsetof(cli_eval_arguments, items),
     .argument = "FILE",
     .flags = CLI_OUTPUT,
     .help = "Write what every item, document or window scored, as JSON lines; FILE.partial while "
             "the work goes on."},
    {.name = "resume",
     .kind = CLI_FLAG,
     .into = offsetof(cli_eval_arguments, resume),
     .flags = CLI_NEUTRAL,
     .help = "Go on from the FILE.partial of an interrupted run with the same --items."},
    CLI_BOOTSTRAP_ENTRIES(cli_eval_arguments),
    CLI_RIDGE_ENTRY(cli_eval_arguments),
    CLI_INVALID_UTF8_ENTRY(cli_eval_arguments),
    CLI_LOAD_ENTRIES(cli_eval_arguments),
    CLI_EXACT_CHUNKS_ENTRY(cli_eval_arguments),
};

const char *const cli_eval_examples[] = {
    "ssmscope eval tiny prose=a.txt code=b.txt",
    "Perplexity with 95 % intervals.",
    "ssmscope eval tiny a.txt --mask mask.safetensors --offset 16",
    "What a mask costs, on windows that it was not chosen on.",
    "ssmscope eval tiny a.txt --rule static --budget 8 --recording rec",
    "Choose and judge at once.",
    "ssmscope eval tiny a.txt --rule scheduled --against half --budget 8 --recording rec",
    "Sets that follow the text, beside static ones.",
    "ssmscope eval tiny --task lambada --data lambada.jsonl --mask mask.safetensors",
    "A task, pruned and unpruned, with paired differences.",
    "ssmscope eval tiny wiki.test.raw --protocol rolling --documents wikitext",
    "Word and byte perplexity as lm-evaluation-harness reports them.",
    NULL};
