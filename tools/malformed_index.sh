#!/usr/bin/env bash
# The index of malformed input: runs the tests that break files rule by rule and prints what each
# rule's message is. Usage: tools/malformed_index.sh [BUILD] [--count]
# "a rule (variant)" names one of several inputs that break the same rule. Exits 1 when two inputs
# have one name, or two rules of a parser have one message.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build
count=
for word in "$@"; do
    case $word in
    --count) count=1 ;;
    *) build=$word ;;
    esac
done
index=$(mktemp)
trap 'rm -f "$index"' EXIT
for source in $(grep -lE 'message_(expect|log|refusal)\(' tests/unit/test_*.c); do
    test=$build/tests/$(basename "$source" .c)
    if ! SSM_MALFORMED_INDEX=$index "$test" >/dev/null 2>&1; then
        echo "$test fails" >&2
        exit 1
    fi
done
# A line: test, rule, place, message.
awk -F '\t' -v count="$count" '
function complain(text) {
    print text > "/dev/stderr"
    bad = 1
}
{
    rule = $2
    sub(/ \([^()]*\)$/, "", rule)
    input = $1 "\t" $2
    says = $1 "\t" $3 "\t" $4
    if (input in inputs) { complain("two inputs have one name: " $1 ": " $2) }
    if (says in texts && texts[says] != rule) {
        complain("two rules have one message: " texts[says] " and " rule ": " $3 ": " $4)
    }
    inputs[input] = 1
    texts[says] = rule
    total++
    tests[$1]++
    rules += !(($1, rule) in known)
    known[$1, rule] = 1
    if (count == "") { printf "%s: %s\n    %s%s%s\n", $1, $2, $3, ($3 == "" ? "" : ": "), $4 }
}
END {
    for (test in tests) { printf "%5d %s\n", tests[test], test | "sort -k2" }
    close("sort -k2")
    printf "%5d malformed inputs, %d rules, each with its own message\n", total, rules
    exit bad
}' "$index"
