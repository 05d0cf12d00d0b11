#!/usr/bin/env bash
# usage: tools/results_tiny.sh [BUILD]
# Makes the tables of docs/results/tiny.md again: the built-in model, every rule, 4, 8 and 12 of 16
# modes, per channel and per layer, on held-out texts of three domains. Calibration and scored windows
# do not overlap. About ten minutes of one core; a run that was stopped goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
program=${SSMSCOPE:-$build/ssmscope}
out=$build/results-tiny
document=docs/results/tiny.md
texts=(prose=examples/text/prose.txt code=examples/text/code.txt math=examples/text/math.txt)
rules=static,hankel,hankel-adjoint,last,last:squared,activity,random,optimal,greedy-swap
rules=$rules,compensated,compensated:optimal,compensated-shared
rules=$rules,scheduled,half,prefix:128,256,prefix-ramp:256,regime

mkdir -p "$out"
"$program" record tiny "${texts[@]}" -o "$out/rec" --calibration-windows 32 --evaluation-windows 16 \
    --resume
"$program" sweep "$out/rec" tiny "${texts[@]}" --rules "$rules" --budgets 4,8,12 \
    --scopes channel,layer --offset 32 --windows 16 -o "$out/sweep" --resume

# The generated parts go between their marks; the words around them are written by hand.
{
    echo '```'
    LC_ALL=C.UTF-8 "$program" metrics "$out/rec" --budgets 4,8,12 | sed "s|^$out/rec: |the recording: |"
    echo '```'
} >"$out/metrics.txt"
cp "$document" "$out/document.md"
insert() { # MARK FILE
    awk -v mark="$1" -v file="$2" '
        index($0, "<!-- " mark " end") == 1 { inside = 0 }
        !inside { print }
        index($0, "<!-- " mark " begin") == 1 {
            inside = 1
            while ((getline line <file) > 0) { print line }
        }' "$out/document.md" >"$out/document.new"
    mv "$out/document.new" "$out/document.md"
}
insert tables "$out/sweep/table.md"
insert metrics "$out/metrics.txt"
mv "$out/document.md" "$document"
echo "written: $document"
