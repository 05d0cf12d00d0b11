#!/usr/bin/env bash
# usage: tools/replace_tiny.sh RUN [BUILD]
# Puts a finished run of recipes/tiny.json in the place of the built-in model, if it is at least as good in
# every domain: perplexity per token on the first 40 windows of 1024 tokens of examples/text, zero state
# at each window. Matrices become bfloat16, as they were. Writes models/tiny (config.json,
# model.safetensors, recipe.json, log.jsonl), the rows of CARD.md that it can know, and says what
# else depends on the weights; docs/training.md, "Our own tiny", has the list.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
run=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
build=${2:-build}
program=${SSMSCOPE:-$build/ssmscope}
new=$build/tiny-new
[ -f "$run/training/result.json" ] || { echo "$run: training is not finished" >&2; exit 1; }
cmp "$run/tokenizer.json" models/tiny/tokenizer.json

perplexities() { # MODEL: "prose code math"
    "$program" eval "$1" prose=examples/text/prose.txt code=examples/text/code.txt math=examples/text/math.txt \
        --windows 40 --json --quiet |
        python3 -c 'import json, sys
domains = json.load(sys.stdin)["domains"]
print(*("%.2f" % domains[one]["perplexity"] for one in ("prose", "code", "math")))'
}
rm -rf "$new"
"$program" convert "$run" --to hf --dtype bf16 -o "$new"
read -r -a before <<<"$(perplexities models/tiny)"
read -r -a after <<<"$(perplexities "$new")"
worse=0
for i in 0 1 2; do
    awk -v a="${after[i]}" -v b="${before[i]}" 'BEGIN { exit !(a > b) }' && worse=1
done
echo "prose, code, math: built-in ${before[*]}, new ${after[*]}"
[ $worse -eq 0 ] || { echo "worse somewhere: nothing replaced" >&2; exit 1; }

cp "$new/config.json" "$new/model.safetensors" models/tiny/
cp "$run/recipe.json" models/tiny/recipe.json
cp "$run/training/log.jsonl" models/tiny/log.jsonl
sed -i "s/^| perplexity per token.*/| perplexity per token, first 40 windows of 1024 tokens of each held-out text, zero state at each window | prose ${after[0]}, code ${after[1]}, math ${after[2]} |/" \
    models/tiny/CARD.md
"$program" info tiny | grep -i digest
echo "Now: tools/results_tiny.sh, the tests (tests/golden/digests.txt: the failing test prints the lines),"
echo "tools/make_task_goldens.py, and the numbers of README.md: docs/training.md, \"Our own tiny\"."
