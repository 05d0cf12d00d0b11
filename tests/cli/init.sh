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
says 'one of --shape, --from, --recipe is missing'
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

# --- of a recipe --------------------------------------------------------------------------------------
recipe='{"seed": 7, "model": {"d_model": 32, "n_layers": 2, "mixer": "mamba2", "head_dim": 16,
    "d_state": 8}, "task": {"name": "copy"}, "schedule": {"steps": 1}, "optimiser": {"lr": 0},
    "evaluate": {"rows": 0}, "batch": {"rows": 2}}'
echo "$recipe" >recipe.json
expect 0 init --recipe recipe.json -o of-recipe
prints 'recipe.json, 2 layers, d_model 32, 15576 parameters, seed 7'
expect 0 train recipe.json -o trained
for file in config.json model.safetensors recipe.json; do
    same of-recipe/$file trained/$file "$file of init and of a training that learns nothing"
done
expect 0 init --recipe recipe.json --seed 9 --mimetic A,conv --layers 1 -o of-recipe-9
expect 0 train recipe.json --set seed=9 --set init.mimetic=A,conv --set 'init.layers=[1]' -o trained-9
same of-recipe-9/model.safetensors trained-9/model.safetensors "options in the place of keys"
echo "${recipe/mamba2/gla}" >gla.json
expect 0 init --recipe gla.json -o of-gla
prints 'which training reads and the engine does not'
expect 0 init --recipe gla.json --mimetic --layers 1 -o of-gla-1
cmp of-gla/model.safetensors of-gla-1/model.safetensors >/dev/null && fail "--mimetic changed no gate"
expect 0 train gla.json --set init.mimetic=all --set 'init.layers=[1]' -o trained-gla
same of-gla-1/model.safetensors trained-gla/model.safetensors "a mimetic start of gla"
expect 2 init --recipe gla.json --mimetic delta --layers 1 -o x
says 'layer 1 is one of gla, which has nothing for delta; expected some of the switches A, BC, conv'
echo "${recipe/mamba2/h3}" >h3.json
expect 2 init --recipe h3.json --mimetic -o x
says 'no layer has anything for the mimetic switches A, delta, BC, conv'
expect 2 init --recipe recipe.json -o of-recipe
says 'the directory already holds a model or a run (config.json)'
expect 2 init --recipe recipe.json --dtype f16 -o x
says '--dtype and --recipe cannot be given together'
expect 3 init --recipe absent.json -o x
[ ! -e x ] || fail "a refused recipe left a directory"
