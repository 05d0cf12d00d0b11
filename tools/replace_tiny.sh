#!/usr/bin/env bash
# usage: tools/replace_tiny.sh RUN [BUILD]
# Puts a finished run of recipes/tiny.json in the place of the built-in model, if it is at least as good in
# every domain: perplexity per token on the first 40 windows of 1024 tokens of examples/text, zero state
# at each window. Matrices become bfloat16, as they were. Writes models/tiny (model.safetensors,
# recipe.json, log.jsonl, CARD.md) and says what else depends on the weights; docs/training.md,
# "Our own tiny", has the list.
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

# config.json stays: it has the special ids, which training does not know, and the same shape.
cp "$new/model.safetensors" models/tiny/
cp "$run/recipe.json" models/tiny/recipe.json
cp "$run/training/log.jsonl" models/tiny/log.jsonl
steps=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["steps"])' "$run/training/result.json")
millions=$(awk -v steps="$steps" 'BEGIN { printf "%.1f", steps * 4096 / 1e6 }')
cat >models/tiny/CARD.md <<END
# tiny
A Mamba-1 language model trained by this project's own trainer, so that the instrument can be tried on learned states.

| | |
|---|---|
| shape | d_model 192, 8 layers, d_inner 384, d_state 16, d_conv 4, dt_rank 12, vocabulary 4096, tied head; 2.80 M parameters |
| storage | Hugging Face layout; matrices bfloat16; A_log, D, dt_proj.bias, norms and conv1d float32 |
| tokenizer | byte-level BPE of 4096 entries trained on texts of the same sources (tokenizer.json; \`<|endoftext|>\` = 0) |
| training | \`ssmscope train recipes/tiny.json\` (\`recipe.json\` here has every default written out, \`log.jsonl\` every tenth loss): float32, AdamW (0.9, 0.95), lr 3e-3 → 9e-5 cosine, 100 warm-up steps, weight decay 0.1 on matrices and convolutions, clip 1.0, 512 tokens × 8, $steps steps = $millions M tokens |
| initialisation | the published default (\`docs/initialisation.md\`) |
| data | English prose: The Treasury of David (Debian \`sword-comm-tdavid\`, public domain); Go sources without tests (Debian \`golang-1.19-src\`, BSD-3-Clause); set.mm with the proofs cut out (Debian \`metamath-databases\`, CC0); one third of the sequences each; made by \`tools/prepare_text.sh\` |
| held out | \`examples/text/\` of this repository: text from the last 3 % of prose and mathematics, and 43 files of code; nothing of it, nor a paragraph of 100 characters that it shares with the rest, was trained on |
| perplexity per token, first 40 windows of 1024 tokens of each held-out text, zero state at each window | prose ${after[0]}, code ${after[1]}, math ${after[2]} |
END
"$program" info tiny | grep -i digest
echo "Now: tools/results_tiny.sh, the tests (tests/golden/digests.txt: the failing test prints the lines),"
echo "tools/make_task_goldens.py, and the numbers of README.md: docs/training.md, \"Our own tiny\"."
