#!/usr/bin/env bash
# `train`: a recipe becomes a model directory that the other commands read; sweeps; what is refused.
source "$(dirname "$0")/_common.sh"
cd "$scratch"
cat >recipe.json <<RECIPE
{"seed": 3, "model": {"d_model": 24, "n_layers": 2, "d_state": 8},
 "task": {"name": "language", "text": ["prose=$SOURCE_DIR/examples/text/prose.txt"], "length": 64},
 "batch": {"rows": 4}, "optimiser": {"lr": 0.01},
 "schedule": {"steps": 8, "warmup": 2}, "evaluate": {"rows": 4}}
RECIPE

# --- one run, and what reads it -----------------------------------------------------------------
expect 0 train recipe.json -o model
prints 'steps, 2,048 tokens'
prints 'size 64, 4 examples'
for file in config.json model.safetensors tokenizer.json recipe.json training/log.jsonl \
    training/state.safetensors training/result.json; do
    [ -s "model/$file" ] || fail "no $file"
done
[ "$(grep -c '"step"' model/training/log.jsonl)" -eq 8 ] || fail "the log has not 8 steps"
expect 0 info model
printf 'An ordinary text, a few bytes long.' >text.txt
expect 0 eval model text.txt --window 16
expect 0 tokenize model --text text.txt
expect 0 run model --prompt 'The ' -n 4
expect 0 train model/recipe.json -o again --json     # what it stores is a recipe
prints '"schema": "ssmscope.train/1"'
prints '"evaluation"'
same model/model.safetensors again/model.safetensors 'the stored recipe'
same model/training/state.safetensors again/training/state.safetensors 'the stored recipe'
expect 0 --threads 3 train recipe.json -o threads
same model/model.safetensors threads/model.safetensors 'three threads'

# --- resuming -----------------------------------------------------------------------------------
expect 2 train recipe.json -o model
says 'already holds a model'
expect 0 train recipe.json -o model --resume # done: nothing to do
prints '0 steps in'
expect 2 train recipe.json -o model --resume --set steps=9
says 'schedule.steps is 9, was 8'
expect 0 train recipe.json -o fresh --resume # nothing there: begins
same model/model.safetensors fresh/model.safetensors 'resume of nothing'

cp -r model foreign # a model that no run left there stays
rm -r foreign/training
expect 2 train recipe.json -o foreign --resume
says 'already holds a model'
same model/model.safetensors foreign/model.safetensors 'a model of other hands'

mkdir -p early/training # killed after its first file: begun anew
cp model/recipe.json early
expect 2 train recipe.json -o early
expect 0 train recipe.json -o early --resume
same model/model.safetensors early/model.safetensors 'a run killed before its first checkpoint'

cp -r model flipped # bits of a weight, of the state's second half
printf '\x01' | dd of=flipped/training/state.safetensors bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s model/training/state.safetensors) / 2))
expect 3 train recipe.json -o flipped --resume
says 'flipped/training/state.safetensors'
truncate -s -100 flipped/training/state.safetensors
expect 3 train recipe.json -o flipped --resume
says 'flipped/training/state.safetensors'

# --- from the weights of another, and a sweep ------------------------------------------------------
expect 0 train recipe.json -o tuned --set init.from=model --set steps=2 --set lr=0
same model/model.safetensors tuned/model.safetensors 'no learning rate, no change'
expect 0 train recipe.json -o grid --set steps=3 --sweep lr=0.001,1000 --sweep seed=1,2 --set clip=0
[ "$(grep -c . "$scratch/out")" -ge 5 ] || fail "the table has not four rows"
[ -s grid/lr=0.001,seed=2/model.safetensors ] || fail "no directory a run"
expect 0 train recipe.json -o grid --set steps=3 --sweep lr=0.001,1000,seed=1,2 --set clip=0 \
    --resume --json
prints '"seed": "2"'

# --- refusals, each before anything is written -------------------------------------------------------
refused() { # status, words, arguments…
    local status=$1 words=$2
    shift 2
    expect "$status" train "$@" -o refused
    says "$words"
    [ ! -e refused/model.safetensors ] || fail "a model was written: $words"
    rm -rf refused
}
refused 3 'no-such.json' no-such.json
refused 2 'did you mean "warmup"?' recipe.json --set warmupp=1
refused 2 'expected KEY=VALUE' recipe.json --set warmup
refused 2 'an empty value' recipe.json --sweep lr=0.1,,0.2
refused 2 'schedule: warmup is 9 of 8' recipe.json --set warmup=9
refused 3 'needs 4000001' recipe.json --set task.length=4000000
refused 2 'no section alone has a key "length"' recipe.json --set length=40
refused 3 'missing.txt' recipe.json --set 'task.text=missing.txt'
refused 2 'vocab_size is 100' recipe.json --set vocab_size=100
refused 2 'did you mean "mamba1"?' recipe.json --set mixer=mamba0
echo '{"model": {"d_modle": 3}}' >bad.json
refused 3 'did you mean "d_model"?' bad.json
echo '{"seed": 1}' >bad.json
refused 3 'has no task' bad.json
echo '{"task": {"name": "copi"}}' >bad.json
refused 2 'did you mean' bad.json
printf '{"seed": 1,' >bad.json
refused 3 'not valid JSON' bad.json
refused 2 'model: mixer is an empty list' recipe.json --set 'mixer=[]'
refused 2 'model: d_state is a list' recipe.json --set 'd_state=[8]'
refused 2 'has no setting "d_modle"' recipe.json --set 'model.d_modle=[]'
refused 2 'expected one of batch.rows, evaluate.rows' recipe.json --set rows=2
refused 2 'seed is 1.5; expected' recipe.json --set seed=1.5
refused 2 'recipe.json: model: head_dim 7 does not divide d_model 24' recipe.json --set mixer=attention \
    --set head_dim=7
refused 2 'head_dim 7 does not divide expand' recipe.json --set mixer=mamba2 --set head_dim=7
refused 2 'init: c is "81"' recipe.json --set init.c=81

# --- the weights of another that computes otherwise --------------------------------------------------
expect 0 init --shape tiny-mamba2 -o other
of_other=(--set init.from=other --set mixer=mamba2 --set vocab_size=512 --set d_model=64 --set head_dim=16)
refused 3 'has d_state 32, the recipe 64' recipe.json "${of_other[@]}" --set d_state=64 --set n_layers=2
refused 3 'has n_layers 2, the recipe 1' recipe.json "${of_other[@]}" --set d_state=32 \
    --set n_groups=2 --set n_layers=1
refused 3 'has tied 1, the recipe 0' recipe.json "${of_other[@]}" --set d_state=32 --set n_groups=2 \
    --set tied=false
[ ! -e refused ] || fail "a directory was left"
expect 0 init --shape tiny-falcon-mamba -o falcon
refused 3 'is a falcon_mamba' recipe.json --set init.from=falcon --set vocab_size=512 --set d_model=64 \
    --set d_state=16 --set tied=false
expect 0 train recipe.json -o mlp --set mixer=mamba2 --set head_dim=8 --set d_mlp=16 --set steps=2
expect 0 train recipe.json -o onward --set mixer=mamba2 --set head_dim=8 --set d_mlp=16 --set steps=2 \
    --set init.from=mlp --set lr=0
same mlp/model.safetensors onward/model.safetensors 'the weights of a model with an MLP'
expect 0 train recipe.json -o own --set d_mlp=16 --set norm_eps=0.01 --set steps=2
grep -q '"ssmscope"' own/config.json || fail "a layout that cannot say norm_eps was written"
