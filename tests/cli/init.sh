#!/usr/bin/env bash
# init: new checkpoints, mimetic layers in new and in existing ones, refusals.
. "$(dirname "$0")/_common.sh"
cd "$scratch"

# --- new ----------------------------------------------------------------------------------------------
expect 0 init --shape tiny-mamba2 -o plain
expect 0 init --shape tiny-mamba2 --mimetic --layers 1 -o start
prints 'mimetic: A delta BC conv in layer 1'
expect 0 init --shape tiny-mamba2 -o words --layers 1 --mimetic A,delta,BC,conv
same start/model.safetensors words/model.safetensors "all switches by name"
expect 0 init --shape tiny-mamba2 --mimetic=all --layers=1 -o again --json
prints '"correlation": "half"'
prints '"command": "ssmscope init --shape tiny-mamba2 --mimetic all --layers 1"'
same start/model.safetensors again/model.safetensors "the same command"
cmp -s start/model.safetensors plain/model.safetensors && fail "--mimetic changed nothing"
grep -aq 'A,delta,BC,conv; BC half; c 8; noise 0.1; layers 1; heads all' start/model.safetensors ||
    fail "the metadata do not say what was done"
expect 5 compare plain start
says 'first at layer 1, tap blocks.1.mixer.in_proj'

# --- existing -----------------------------------------------------------------------------------------
expect 0 init --from plain --mimetic --layers 1 -o changed
expect 0 init --from tiny --mimetic BC,conv --correlation orthogonal --layers 2 --seed 5 -o recall
prints 'mimetic: BC conv in layer 2'
for file in config.json model.safetensors tokenizer.json mimetic.json; do
    [ -f recall/$file ] || fail "no $file"
done
grep -q '"mimetic": "BC,conv; BC orthogonal; c 8; noise 0.1; layers 2; heads all"' \
    recall/mimetic.json || fail "mimetic.json does not say what was done"
grep -q '"seed": "5"' recall/mimetic.json || fail "mimetic.json has no seed"
expect 0 run recall --prompt 'In the beginning' -n 4
expect 0 init --from tiny --mimetic A --layers 0-7 -o all
expect 0 convert tiny --to original -o original
expect 0 init --from original --mimetic A -o original-all
[ -f original-all/pytorch_model.bin ] || fail "the layout of the source was not kept"

# --- refusals -----------------------------------------------------------------------------------------
expect 2 init -o x
says 'one of --shape, --from is missing'
expect 2 init --shape tiny --from tiny --mimetic -o x
says '--shape and --from cannot be given together'
expect 2 init --from tiny -o x
says '--from needs --mimetic'
expect 2 init --shape tiny --layers 1 -o x
says '--layers needs --mimetic'
expect 2 init --shape tiny --mimetic dleta -o x
says 'did you mean delta?'
expect 2 init --shape tiny --mimetic --layers 8 -o x
says 'expected a rising list of 0 … 7'
expect 2 init --shape tiny --mimetic --heads 0 -o x
says 'a mamba model has none'
expect 2 init --shape tiny-mamba2attn --mimetic --layers 1 -o x
says 'layer 1 is one of attention'
expect 2 init --from tiny --mimetic --dtype f16 -o x
expect 2 init --from tiny --mimetic -o recall
says 'the directory is not empty'
expect 3 init --from absent --mimetic -o x
[ ! -e x ] || fail "a refused command left a directory"
