#!/usr/bin/env bash
# usage: tools/replace_builtin.sh tiny|tiny2 RUN…
# Puts the last of some finished runs, each begun from the one before, in the place of the built-in model
# (SSMSCOPE: the program, else build/ssmscope), if it is at least as good in every domain: perplexity per token on the first 40 windows of 1024 tokens of examples/text, zero state
# at each window. Matrices become bfloat16. Writes models/NAME (model.safetensors, a recipe and a
# log a run, CARD.md) and says what else depends on the weights; docs/training.md, "Our own models",
# has the list.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
name=$1
shift
runs=()
for run; do
    [ -f "$run/training/result.json" ] || { echo "$run: training is not finished" >&2; exit 1; }
    runs+=("$(cd "$run" && pwd)")
done
cd "$(dirname "$0")/.."
program=${SSMSCOPE:-build/ssmscope}
new=build/$name-new
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
read -r -a after <<<"$(perplexities "$new")"
if [ -d "models/$name" ]; then
    read -r -a before <<<"$(perplexities "models/$name")"
    worse=0
    for i in 0 1 2; do
        awk -v a="${after[i]}" -v b="${before[i]}" 'BEGIN { exit !(a > b) }' && worse=1
    done
    echo "prose, code, math: built-in ${before[*]}, new ${after[*]}"
    [ $worse -eq 0 ] || { echo "worse somewhere: nothing replaced" >&2; exit 1; }
fi

# The special ids are the tokenizer's, which training does not read.
mkdir -p "models/$name"
python3 - "$new/config.json" "models/$name/config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config.update(pad_token_id=0, bos_token_id=0, eos_token_id=0)
with open(sys.argv[2], "w") as file:
    json.dump(config, file, indent=2)
    file.write("\n")
END
cp "$new/model.safetensors" "models/$name/"
rm -f "models/$name"/recipe*.json "models/$name"/log*.jsonl
tokens=0
number=
for one in "${runs[@]}"; do
    [ ${#runs[@]} -eq 1 ] || number=.$((${number#.} + 1))
    cp "$one/recipe.json" "models/$name/recipe$number.json"
    cp "$one/training/log.jsonl" "models/$name/log$number.jsonl"
    tokens=$((tokens + $(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"])' \
        "$one/training/result.json")))
done
for file in tokenizer.json tokenizer_config.json LICENSE-go; do
    [ "$name" = tiny ] || cp "models/tiny/$file" "models/$name/"
done
millions=$(awk -v tokens="$tokens" 'BEGIN { printf "%.1f", tokens / 1e6 }')
if [ "$name" = tiny ]; then
    kind=Mamba-1
    shape='d_model 192, 8 layers, d_inner 384, d_state 16, d_conv 4, dt_rank 12, vocabulary 4096, tied head; 2.80 M parameters'
    kept='A_log, D, dt_proj.bias, norms and conv1d'
    how='`ssmscope train recipes/tiny.json`, then `recipes/tiny-finish.json` from its weights (`recipe.1.json` and `recipe.2.json` here have every default written out, `log.*.jsonl` every tenth loss)'
    rate='lr 3e-3 → 9e-5 cosine after 100 warm-up steps, then 6e-4 → 3e-5 after 20'
    shares='a quarter of the sequences from each of the four, in the second run a half from the prose and a half from the others'
else
    kind=Mamba-2
    shape='d_model 192, 8 layers, d_inner 384, 12 heads of 32, d_state 128, 1 group, d_conv 4, vocabulary 4096, tied head; 3.0 M parameters'
    kept='A_log, D, dt_bias, norms and conv1d'
    how='`ssmscope train recipes/tiny2.json` (`recipe.json` here has every default written out, `log.jsonl` every tenth loss)'
    rate='lr 3e-3 → 9e-5 cosine after 100 warm-up steps'
    shares='a quarter of the sequences from each of the four'
fi
cat >"models/$name/CARD.md" <<END
# $name
A $kind language model trained by this project's own trainer, so that the instrument can be tried on learned states.

| | |
|---|---|
| shape | $shape |
| storage | Hugging Face layout; matrices bfloat16; $kept float32 |
| tokenizer | byte-level BPE of 4096 entries trained on texts of the same sources (tokenizer.json; \`<|endoftext|>\` = 0) |
| training | $how: float32, AdamW (0.9, 0.95), $rate, weight decay 0.1 on matrices and convolutions, clip 1.0, 512 tokens × 8, $millions M tokens |
| initialisation | the published default (\`docs/initialisation.md\`) |
| data | English prose: The Treasury of David (Debian \`sword-comm-tdavid\`, public domain); Go without tests and generated files (Debian \`golang-1.19-src\`, BSD-3-Clause), library and commands; set.mm with the proofs cut out (Debian \`metamath-databases\`, CC0); $shares; made by \`tools/prepare_text.sh\` |
| held out | \`examples/text/\` of this repository: text from the last 3 % of prose and mathematics, and 43 files of code; nothing of it, nor a paragraph of 100 characters that it shares with the rest, was trained on |
| perplexity per token, first 40 windows of 1024 tokens of each held-out text, zero state at each window | prose ${after[0]}, code ${after[1]}, math ${after[2]} |
END
"$program" info "models/$name" | grep -i digest
echo "Now: tools/results_tiny.sh, the tests (tests/golden/digests.txt: the failing test prints the lines),"
echo "tools/make_task_goldens.py, and the numbers of README.md: docs/training.md, \"Our own models\"."
