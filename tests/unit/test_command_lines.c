/* Wrong command lines: each has its own message and exit status, and prints nothing on stdout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "test_paths.h"

typedef struct wrong_line {
    const char *line;    /* in the source tree, after the name of the program */
    int status;          /* exit status */
    const char *message; /* first line on stderr, after "ssmscope: "; "…" stands for anything */
} wrong_line;

static const wrong_line wrong_lines[] = {
    /* commands */
    {"", 2, "which command? For example: ssmscope info tiny"},
    {"frobnicate", 2, "there is no command 'frobnicate'"},
    {"inof tiny", 2, "there is no command 'inof'; did you mean 'info'?"},
    {"recrod tiny", 2, "there is no command 'recrod'; did you mean 'record'?"},
    {"help evall", 2, "there is no command 'evall'; did you mean 'eval'?"},
    {"completion fish", 2, "there is no completion for the shell 'fish'; there is one for bash"},
    /* options of the program */
    {"--verbose", 2, "ssmscope has no option '--verbose'"},
    {"--verison", 2, "ssmscope has no option '--verison'; did you mean '--version'?"},
    {"-z info tiny", 2, "ssmscope has no option '-z'"},
    {"--threads", 2, "--threads needs a value: --threads N"},
    {"--threads=-1 info tiny", 2, "--threads: expected a whole number from 0 to 1024, found '-1'"},
    {"info tiny --threads two", 2, "--threads: expected a whole number, found 'two'"},
    {"info tiny --threads 1e3", 2, "--threads: expected a whole number, found '1e3'"},
    {"info tiny --threads 99999999999999999999", 2,
     "--threads: expected a whole number from 0 to 1024, found '99999999999999999999'"},
    {"init --shape tiny -o x --seed 9223372036854775808", 2,
     "--seed: expected a whole number from 0 to 9223372036854775807, found '9223372036854775808'"},
    {"info tiny --isa sse", 2, "--isa: expected auto|portable|avx2|avx512, found 'sse'"},
    {"info tiny --isa avx", 2,
     "--isa: expected auto|portable|avx2|avx512, found 'avx'; did you mean 'avx2'?"},
    {"info tiny --isa --json", 2, "--isa needs a value: --isa auto|portable|avx2|avx512 …"},
    {"info tiny --json=yes", 2, "--json takes no value, found 'yes'"},
    {"info tiny --isa auto --isa auto", 2, "--isa is given twice"},
    /* words */
    {"info", 2, "info: MODEL is missing"},
    {"info tiny tiny", 2, "info: one word too many: 'tiny'"},
    {"info ''", 2, "info: MODEL is empty"},
    {"info -- --json", 3, "--json: there is no such model file or directory"},
    {"record tiny -o nowhere", 2, "record: TEXT is missing"},
    {"record tiny CONTRIBUTING.md", 2, "record: -o REC is missing"},
    {"select nowhere --budget 8 -o mask", 2, "select: one of --rule, --mask is missing"},
    {"select nowhere --rule static -o mask", 2,
     "select: --budget R is missing (or give --curve for the errors of all budgets)"},
    {"select nowhere --rule static --budget 8", 2,
     "select: --output MASK is missing (or give --curve for the errors of all budgets)"},
    {"select nowhere --rule static --budget 8 --curve", 2,
     "--curve prints errors and writes no mask: --budget and --output do not go with it"},
    {"select nowhere --mask m -o mask", 2,
     "--mask prints errors and writes no mask: --budget and --output do not go with it"},
    {"select nowhere --rule static --mask m", 2, "--rule and --mask cannot be given together"},
    {"select nowhere --rule compensated --budget 1 -o mask --ridge 0", 2,
     "--ridge: expected a number from 1e-12 to 1e+06, found '0'"},
    {"init -o nowhere", 2, "init: one of --shape, --from, --recipe is missing"},
    {"init --shape tiny -o ''", 2, "--output: the path is empty"},
    /* lists */
    {"record tiny CONTRIBUTING.md -o nowhere --layers ''", 2,
     "--layers: expected a list such as 1,2,5-7, found ''"},
    {"record tiny CONTRIBUTING.md -o nowhere --layers 1,,2", 2,
     "--layers: expected a list such as 1,2,5-7, found '1,,2'"},
    {"record tiny CONTRIBUTING.md -o nowhere --layers 1,2,", 2,
     "--layers: expected a list such as 1,2,5-7, found '1,2,'"},
    {"record tiny CONTRIBUTING.md -o nowhere --layers 1-", 2,
     "--layers: expected a list such as 1,2,5-7, found '1-'"},
    {"record tiny CONTRIBUTING.md -o nowhere --layers=-3", 2,
     "--layers: expected a list such as 1,2,5-7, found '-3'"},

    {"record tiny CONTRIBUTING.md -o nowhere --layers 5-2", 2,
     "--layers: the range 5-2 in '5-2' is empty"},
    {"record tiny CONTRIBUTING.md -o nowhere --layers 1-3,2", 2,
     "--layers: 2 stands twice in '1-3,2'"},
    {"metrics nowhere --budgets 0,4", 2,
     "--budgets: expected numbers from 1 to 65536, found '0,4'"},
    /* numbers */
    {"record tiny CONTRIBUTING.md -o nowhere --window 1", 2,
     "--window: expected a whole number from 2 to 16777216, found '1'"},
    {"run tiny -p x --temperature warm", 2, "--temperature: expected a number, found 'warm'"},
    {"run tiny -p x --temperature nan", 2, "--temperature: expected a number, found 'nan'"},
    {"run tiny -p x --temperature=-0.5", 2,
     "--temperature: expected a number from 0 to 100, found '-0.5'"},
    {"run tiny -p x --top-p 1.5", 2, "--top-p: expected a number from 1e-09 to 1, found '1.5'"},
    {"run tiny -p x --seed -3", 2, "--seed: expected a whole number of at least 0, found '-3'"},
    {"run tiny -p x -n -1", 2,
     "--new-tokens: expected a whole number from 0 to 2147483647, found …"},
    {"run tiny -p x -n 1.5", 2, "--new-tokens: expected a whole number, found '1.5'"},
    {"eval tiny CONTRIBUTING.md --protocol continuation:0", 2,
     "--protocol: expected auto, full, continuation:T with T at least 1, rolling or stateful, "
     "found "
     "'continuation:0'"},
    {"eval tiny CONTRIBUTING.md --protocol half", 2,
     "--protocol: expected auto, full, continuation:T with T at least 1, rolling or stateful, "
     "found "
     "'half'"},
    /* what belongs together */
    {"run tiny", 2, "run: one of --prompt, --text, --ids is missing"},
    {"run tiny -p x --text y", 2, "--prompt and --text cannot be given together"},
    {"run tiny --ids x --prompt y", 2, "--prompt and --ids cannot be given together"},
    {"run tiny -p", 2, "--prompt needs a value: --prompt TEXT"},
    {"run tiny -p x --reference", 2, "--reference needs --logits or --hidden"},
    {"run tiny -p x -n 5 --reference --logits y", 2,
     "--reference computes logits and hidden states of the prompt only: -n 0"},
    {"run tiny -p x --mask m --reference --logits y", 2,
     "--mask and --reference cannot be given together"},
    {"run tiny -p '' -n 4", 2,
     "the prompt is empty; to go on from it at least one token is needed"},
    {"tokenize tiny --ids x", 2, "--ids needs --decode"},
    {"tokenize tiny --skip-special", 2, "--skip-special needs --decode"},
    {"tokenize tiny --text x --decode", 2, "--text and --decode cannot be given together; …"},
    {"tokenize tiny --text x --jsonl y", 2, "--text and --jsonl cannot be given together"},
    {"tokenize tiny --jsonl x --json", 2, "--jsonl and --json cannot be given together: …"},
    {"tokenize tiny - --text x", 2,
     "the input is given twice: '-' and an option that names another"},
    {"record tiny CONTRIBUTING.md -o nowhere --no-gram --keep-window-gram", 2,
     "--no-gram and --keep-window-gram cannot be given together"},
    {"eval tiny CONTRIBUTING.md --mask m --rule static", 2,
     "--mask and --rule cannot be given together"},
    {"eval tiny CONTRIBUTING.md --rule static --budget 8", 2,
     "a rule needs --recording REC to choose on"},
    {"eval tiny CONTRIBUTING.md --rule static --recording r", 2,
     "a rule needs --budget R: modes to keep"},
    {"eval tiny CONTRIBUTING.md --budget 8", 2, "--recording and --budget need --rule"},
    {"eval tiny CONTRIBUTING.md --against unpruned --against unpruned", 2,
     "--against unpruned is given twice"},
    {"run tiny -p x --propmt y", 2, "run has no option '--propmt'; did you mean '--prompt'?"},
    {"eval tiny CONTRIBUTING.md --windwo=8", 2,
     "eval has no option '--windwo=8'; did you mean '--window'?"},
    {"init --shape mamba-130 -o nowhere", 2,
     "unknown shape \"mamba-130\"; did you mean mamba-130m?"},
    /* outputs that are inputs, or each other */
    {"run tiny -p x --logits unwritten --hidden unwritten", 2,
     "--logits and --hidden name the same file unwritten: give each its own"},
    {"tokenize tiny --text /dev/zero", 3, "/dev/zero: is a device; a file or a pipe is expected"},
    {"info /dev/zero", 3, "/dev/zero: is a device; …"},
    {"record tiny CONTRIBUTING.md -o unwritten --window 64 --budgets 16 -q", 2,
     "budget 16 is outside 1 … 15 (d_state is 16)"},
    /* files */
    {"info models/nowhere.safetensors", 3,
     "models/nowhere.safetensors: there is no such model file or directory, and the Hugging Face "
     "cache /nonexistent/.cache/huggingface/hub does not have it; to download it: hf download "
     "models/nowhere.safetensors"},
    {"info mamba-9000m", 3,
     "mamba-9000m: there is no such model file or directory, and no model of that name in the "
     "Hugging Face cache /nonexistent/.cache/huggingface/hub"},
    {"info CONTRIBUTING.md/x/y", 3,
     "CONTRIBUTING.md/x/y: there is no such model file or directory"},
    {"metrics docs", 3, "docs: …recording.json…"},
    {"tokenize tiny --text nowhere.txt", 3,
     "nowhere.txt: cannot be opened: No such file or directory"},
    {"tokenize tiny --text docs", 3, "docs: is a directory; a file is expected"},
    {"tokenize tiny --decode --ids CONTRIBUTING.md", 3,
     "CONTRIBUTING.md: byte 0: expected a token id (decimal digits), found '#'"},
    {"run tiny --ids CONTRIBUTING.md", 3,
     "CONTRIBUTING.md: byte 0: expected a token id (decimal digits), found '#'"},
    {"eval tiny nowhere.txt", 3, "nowhere.txt: …"},
    {"run tiny -p x --mask CONTRIBUTING.md", 3, "CONTRIBUTING.md: …"},
    {"eval tiny CONTRIBUTING.md --rule static --budget 8 --recording docs", 3,
     "docs: …recording.json…"},
};

/* "…" in the pattern stands for any text. */
static bool matches(const char *pattern, const char *text)
{
    static const char any[] = "…";
    const char *gap = strstr(pattern, any);
    if (gap == NULL) {
        return strcmp(pattern, text) == 0;
    }
    size_t head = (size_t)(gap - pattern);
    if (strncmp(pattern, text, head) != 0) {
        return false;
    }
    const char *rest = gap + sizeof any - 1;
    for (const char *from = text + head;; from++) {
        if (matches(rest, from)) {
            return true;
        }
        if (*from == '\0') {
            return false;
        }
    }
}

/* Runs a line in the source tree; stdout and stderr come back as text. */
static int run_line(const char *line, const char *scratch, char *out, char *err, size_t bytes)
{
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && env -u HF_HUB_CACHE -u HF_HOME -u XDG_CACHE_HOME HOME=/nonexistent "
             "'%s' %s >'%s/out' 2>'%s/err' </dev/null",
             SSM_SOURCE_DIR, SSM_PROGRAM, line, scratch, scratch);
    int status = system(command);
    char *texts[] = {out, err};
    const char *names[] = {"out", "err"};
    for (int i = 0; i < 2; i++) {
        char path[TEST_PATH_MAX + 8];
        snprintf(path, sizeof path, "%s/%s", scratch, names[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t got = fread(texts[i], 1, bytes - 1, file);
        texts[i][got] = '\0';
        fclose(file);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void wrong_lines_have_their_message(void **state)
{
    const char *scratch = *state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof wrong_lines / sizeof *wrong_lines; i++) {
        const wrong_line *one = &wrong_lines[i];
        char out[4096];
        char err[4096];
        int status = run_line(one->line, scratch, out, err, sizeof out);
        err[strcspn(err, "\n")] = '\0';
        char wanted[1024];
        snprintf(wanted, sizeof wanted, "ssmscope: %s", one->message);
        if (status != one->status || !matches(wanted, err) || out[0] != '\0') {
            print_error("ssmscope %s\n  expected %d, %s\n  found    %d, %s\n  stdout %.80s\n",
                        one->line, one->status, wanted, status, err, out);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

/* Wrong usage says where help is; other failures do not. */
static void usage_points_to_help(void **state)
{
    char out[4096];
    char err[4096];
    run_line("info tiny --nonsense", *state, out, err, sizeof out);
    assert_string_equal(err,
                        "ssmscope: info has no option '--nonsense'\nSee: ssmscope info --help\n");
    run_line("frobnicate", *state, out, err, sizeof out);
    assert_string_equal(err, "ssmscope: there is no command 'frobnicate'\nSee: ssmscope --help\n");
    run_line("tokenize tiny --text nowhere.txt", *state, out, err, sizeof out);
    assert_null(strstr(err, "See:"));
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    char command[2048];
    snprintf(command, sizeof command, "'%s' --help >/dev/full 2>/dev/null", SSM_PROGRAM);
    int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static int set_up(void **state)
{
    static char scratch[TEST_PATH_MAX];
    *state = (void *)(uintptr_t)test_make_directory(scratch);
    return 0;
}

static int tear_down(void **state)
{
    test_remove_directory(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_lines_have_their_message),
        cmocka_unit_test(usage_points_to_help),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
