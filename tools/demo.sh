#!/usr/bin/env bash
# usage: tools/demo.sh [BUILD]
# What ssmscope is for, in one minute: the built-in model on three texts, from loading to what half of
# its state is worth. Everything is written to BUILD/demo; nothing is downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
out=$build/demo
texts=(prose=examples/text/prose.txt code=examples/text/code.txt math=examples/text/math.txt)

rm -rf "$out"
mkdir -p "$out"
step() { # number, title, words…
    printf '\n=== %s. %s ===\n' "$1" "$2"
    shift 2
    [ $# -eq 0 ] || printf '%s\n' "$@"
}
run() {
    printf '\n$ ssmscope'
    for word in "$@"; do
        case $word in *\ *) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n\n'
    "$build/ssmscope" "$@"
}

echo "ssmscope on its built-in model: a small Mamba trained on English prose, Go source and formal"
echo "mathematics, and on texts of the three kinds that it has never seen."

step 1 "What is this model?" \
    "Shapes come from the tensors; config.json is a claim that is compared with them."
run info tiny

step 2 "Does it work?" "It goes on from a prompt. Greedy, so everybody gets the same text."
run run tiny --prompt "And it came to pass" -n 40 --quiet

step 3 "Is the instrument exact?" \
    "The recorded parts must add up to what the model computed, and the error predicted for a" \
    "pruned layer must be the error of a run that is really pruned."
run verify tiny "${texts[@]}" --windows 3

step 4 "Record" "One pass over windows of each text: how every channel of every layer uses its state."
run record tiny "${texts[@]}" -o "$out/rec" --calibration-windows 8 --evaluation-windows 8

step 5 "Which layers' important states move with the input?"
run metrics "$out/rec"

step 6 "Keep half of the state" \
    "In every channel the 8 of 16 modes with the most energy on the calibration windows."
run select "$out/rec" --rule static --budget 8 -o "$out/mask.safetensors"

step 7 "What did that cost?" \
    "Perplexity on windows that were not used to choose, with 95 % intervals, and the paired" \
    "difference to the whole model."
run eval tiny "${texts[@]}" --mask "$out/mask.safetensors" --offset 8 --windows 12

printf '\nThe recording and the mask are in %s. Every command explains itself: ssmscope COMMAND --help\n' \
    "$out"
