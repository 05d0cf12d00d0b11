#!/usr/bin/env bash
# Help, man page and completion are printed from the option tables, and docs/ssmscope.1 is in step.
. "$(dirname "$0")/_common.sh"

expect 0 --help
cp "$scratch/out" "$scratch/overview"
expect 0 help
same "$scratch/out" "$scratch/overview" "help and --help"
expect 0 --version
grep -qxE 'ssmscope [0-9]+\.[0-9]+\.[0-9]+' "$scratch/out" || fail "--version"

expect 0 help --man
cp "$scratch/out" "$scratch/man"
same "$scratch/man" "$SOURCE_DIR/docs/ssmscope.1" \
    "the man page is not in step (ssmscope help --man >docs/ssmscope.1)"
expect 0 completion bash
cp "$scratch/out" "$scratch/completion"

# Every command of the overview has help; every option of that help stands in the man page's section
# of the command and in the completion, and no line is wider than a terminal.
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$scratch/overview")
[ "$(wc -w <<<"$commands")" -ge 13 ] || fail "only these commands: $commands"
for command in $commands; do
    expect 0 "$command" --help
    [ ! -s "$scratch/err" ] || fail "$command --help prints on stderr"
    cp "$scratch/out" "$scratch/help"
    grep -q "^Usage: ssmscope $command" "$scratch/help" || fail "$command --help has no usage"
    ! grep -qF '(null)' "$scratch/help" || fail "$command --help names nothing: (null)"
    expect 0 help "$command"
    same "$scratch/out" "$scratch/help" "help $command and $command --help"
    awk -v name="$command" '/^\.SS / { on = ($2 == name) } on' "$scratch/man" >"$scratch/section"
    [ -s "$scratch/section" ] || fail "$command is not in the man page"
    options=$(sed -n '/^Options:/,/^Common options:/s/^ *\(-., \)\{0,1\}--\([a-z0-9-]*\).*/\2/p' "$scratch/help")
    for option in $options; do
        grep -qF -- "\\-\\-${option//-/\\-}" "$scratch/section" ||
            fail "$command --$option is not in the man page"
        grep -E "^ +$command:-\*\)" "$scratch/completion" | grep >/dev/null -E -- "--$option[ \"]" ||
            fail "$command --$option is not in the completion"
    done
    wide=$(LC_ALL=C sed "s/[\x80-\xBF]//g" "$scratch/help" | awk "!/^  ssmscope|^  echo/ && length(\$0) > 80")
    [ -z "$wide" ] || fail "$command --help has a wide line: $wide"
done

# The completion completes.
complete_line() { # words of the line; the last one is the one to complete
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ssmscope
             echo "${COMPREPLY[*]}"' _ "$scratch/completion" "$@"
}
[ "$(complete_line ssmscope ver)" = verify ] || fail "completion of a command"
[ "$(complete_line ssmscope eval tiny --protoc)" = --protocol ] || fail "completion of an option"
[ "$(complete_line ssmscope info --isa por)" = portable ] || fail "completion of a value"
[ "$(complete_line ssmscope tokenize tiny --special te)" = text ] || fail "completion of a value"

[ "$(complete_line ssmscope init --shape mamba-2)" = mamba-2.8b ] || fail "completion of a shape"
[ "$(complete_line ssmscope select rec --rule sta)" = static ] || fail "completion of a rule"
[ "$(complete_line ssmscope sweep rec tiny a --rules sched)" = scheduled ] || fail "completion of rules"
[ "$(complete_line ssmscope init --dtype b)" = bf16 ] || fail "completion of a dtype"

# Global options may stand in front of the command.
expect 0 --quiet --threads=2 info tiny
