#!/usr/bin/env bash
# prune: a smaller checkpoint that says what the masked run says; what no checkpoint can hold is refused.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 3000 >prose.txt
"$SSMSCOPE" record tiny prose.txt -o rec --calibration-windows 1 --evaluation-windows 1 --window 256 -q >out 2>err ||
    fail "record"
mask() { "$SSMSCOPE" select rec --budget 8 "${@:2}" -o "$1" -q >out 2>err || fail "select ${*:2}"; }
mask layer.st --rule static --scope layer
prints 'modes kept in each of 8 layers ('
mask channel.st --rule static
mask last.st --rule last
mask weights.st --rule compensated --scope layer

# --- the model ----------------------------------------------------------------------------------------
expect 0 prune tiny --mask layer.st -o small
prints "small: Hugging Face layout, safetensors"
prints "8 of 16 modes in every layer"
for file in config.json model.safetensors tokenizer.json tokenizer_config.json pruned.json; do
    [ -f small/$file ] || fail "no $file"
done
grep -q '"mask_digest": "xxh3-128:' small/pruned.json || fail "pruned.json does not name the mask"
grep -q '"state_size": 8' small/config.json || fail "config.json does not say 8"
expect 0 run tiny --mask layer.st --prompt 'In the beginning' -n 12
cp out first
expect 0 run small --prompt 'In the beginning' -n 12
same out first "the pruned model says something else"
expect 0 prune tiny --mask layer.st -o again --json
prints '"d_state": 8'
prints '"d_state_before": 16'
expect 0 convert tiny --to original -o original
expect 0 prune original --mask layer.st -o original-small
prints "original layout, torch"
expect 0 run original-small --prompt 'In the beginning' -n 12
same out first "the pruned original says something else"

# Weights that a checkpoint has places for: another mask, and the text of that masked run.
mask folds.st --rule compensated-shared --scope layer
expect 0 prune tiny --mask folds.st -o folded
prints "with the mask's weights folded in"
expect 0 run tiny --mask folds.st --prompt 'In the beginning' -n 12
cp out first
expect 0 run folded --prompt 'In the beginning' -n 12
same out first "the model with folded weights says something else"

# --- refusals -----------------------------------------------------------------------------------------
expect 2 prune tiny --mask channel.st -o x
says 'make the mask with select --scope layer'
expect 2 prune tiny --mask last.st -o x
expect 2 prune tiny --mask weights.st -o x
says 'only weights equal in all of them fold into it'
expect 3 prune small --mask layer.st -o x
says 'the mask is for model'
head -c 5000 layer.st >short.st
expect 3 prune tiny --mask short.st -o x
expect 3 prune tiny --mask absent.st -o x
expect 2 prune tiny --mask layer.st -o small
says 'the directory is not empty'
expect 2 prune tiny --mask layer.st -o short.st
says 'there is a file of that name'
expect 2 prune tiny --mask layer.st --renormalised -o x
says 'is for Falcon-Mamba'
expect 2 prune tiny -o x
says '--mask'
[ ! -e x ] && [ -z "$(find . -name '*.part*')" ] || fail "something was left"

# --- Mamba-2, Falcon-Mamba ----------------------------------------------------------------------------
for family in mamba2 falcon-mamba; do
    "$SSMSCOPE" init --shape tiny-$family -o $family -q >out 2>err || fail "init $family"
    cp "$SOURCE_DIR/tests/golden/tokenizers/llama3.json" $family/tokenizer.json
    "$SSMSCOPE" record $family prose.txt -o $family-rec --calibration-windows 1 --evaluation-windows 1 \
        --window 128 -q >out 2>err || fail "record $family"
    "$SSMSCOPE" select $family-rec --rule static --budget 5 --scope layer -o $family.st -q >out 2>err ||
        fail "select $family"
done
expect 0 prune mamba2 --mask mamba2.st -o mamba2-small
prints '5 of '
"$SSMSCOPE" select mamba2-rec --rule compensated-shared --budget 5 --scope group -o folds.st -q >out 2>err ||
    fail "select compensated-shared on Mamba-2"
expect 0 prune mamba2 --mask folds.st -o mamba2-folded
prints "with the mask's weights folded in"
expect 0 run mamba2 --mask mamba2.st --prompt 'In the beginning' -n 12
cp out first
expect 0 run mamba2-small --prompt 'In the beginning' -n 12
same out first "the pruned Mamba-2 says something else"
expect 2 prune falcon-mamba --mask falcon-mamba.st -o x
says 'or write that different model with --renormalised'
[ ! -e x ] || fail "something was left"
expect 0 prune falcon-mamba --mask falcon-mamba.st -o falcon-small --renormalised
prints 'a different model'
expect 0 info falcon-small
