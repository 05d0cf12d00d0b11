#!/usr/bin/env bash
# Pruning with what does not fit: the message names the file, what was found, what was expected and
# what to do; nothing is written, not even in part. Each kind of mistake, in every command that takes it.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
tiny="$SOURCE_DIR/models/tiny"
piece prose 8000 >a.txt
tasks="$SOURCE_DIR/tests/golden/tasks"
expect 0 record tiny a.txt -o rec --window 128 --calibration-windows 2 --evaluation-windows 1 -q
expect 0 select rec --rule static --budget 4 -o mask.st -q
expect 0 init --shape tiny -o other --seed 7 -q
cp "$tiny/tokenizer.json" other/
expect 0 init --shape tiny-mamba2 -o m2 -q
cp "$SOURCE_DIR/tests/golden/tokenizers/gpt.json" m2/tokenizer.json # byte level, fewer than 512 ids
expect 0 record m2 a.txt -o rec2 --window 128 --calibration-windows 2 --evaluation-windows 1 -q
expect 0 select rec2 --rule static --budget 4 -o m2.st -q
: >empty.txt
ls >before

# refuse STATUS WORDS words of the command…: the directory is as before, and nothing is on stdout.
refuse() {
    expect "$1" "${@:3}"
    says "$2"
    silent
    rm -f out err
    ls | grep -vxE 'out|err|after' >after
    cmp -s <(grep -vxE 'out|err|after|before' before) <(grep -vx before after) ||
        fail "${*:3}: left $(comm -13 <(sort before) <(sort after) | tr '\n' ' ')"
}
how=(--window 128 --bootstrap 10 --items i.jsonl)
piqa=(eval tiny --task piqa --items i.jsonl --harness-json h.json)
rule=(--recording rec --budget 4)

# ---- the mask of another model, of another family ------------------------------------------------
for words in "eval other a.txt ${how[*]} --mask mask.st" "run other -p In -n 1 --mask mask.st" \
    "prune other --mask mask.st -o x" "eval m2 a.txt ${how[*]} --mask mask.st" \
    "prune m2 --mask mask.st -o x" "eval tiny a.txt ${how[*]} --against m2.st" \
    "${piqa[*]} --data $tasks/piqa.jsonl --mask m2.st"; do
    # shellcheck disable=SC2086
    refuse 3 'st: the mask is for model xxh3-128:' $words
done
refuse 3 'select makes one from a recording of this model' eval other a.txt --mask mask.st
refuse 3 'the mask is for model xxh3-128:' select rec2 --mask mask.st
refuse 3 'the mask is for model xxh3-128:' select rec --mask m2.st
# A mask that names no model, as one of one's own, is measured.
LC_ALL=C sed 's/"model_digest":"xxh3-128:/"model-digest":"xxh3-128:/' mask.st >own.st
ls >before
refuse 3 'own.st: the mask is for 8 layers of 384 channels with 16 modes, but m2 has 2 of' \
    eval m2 a.txt "${how[@]}" --mask own.st
refuse 3 'the mask is for 8 layers of 384 channels with 16 modes' prune m2 --mask own.st -o x
refuse 3 'a.txt: byte 0:' run tiny -p In -n 1 --mask a.txt

# ---- the recording of another model, of another family -------------------------------------------
for model in other m2; do
    for name in static regime; do
        refuse 3 'rec: the recording is of model xxh3-128:' eval $model a.txt "${how[@]}" \
            --rule $name "${rule[@]}"
    done
done
refuse 3 'give the model that was recorded, or record this one' eval m2 a.txt --rule static "${rule[@]}"
refuse 3 'nowhere' eval tiny a.txt "${how[@]}" --rule static --budget 4 --recording nowhere

# ---- budgets ------------------------------------------------------------------------------------
for name in static random hankel last activity optimal greedy-swap compensated; do
    refuse 2 '1 … 16; found 17' select rec --rule $name --budget 17 -o x.st
    refuse 2 "--budget: expected a whole number from 1 to 65536, found '0'" \
        select rec --rule $name --budget 0 -o x.st
done
for name in static half prefix:32 regime scheduled; do
    refuse 2 '1 … 16; found 17' eval tiny a.txt "${how[@]}" --rule $name --recording rec --budget 17
done
refuse 2 '1 … 16; found 17' eval tiny a.txt "${how[@]}" --against static --recording rec --budget 17
refuse 2 "expected a whole number, found 'half'" select rec --rule static --budget half -o x.st

# ---- scopes -------------------------------------------------------------------------------------
for scope in head group; do
    refuse 2 "scope $scope: the recording is of a mamba model" \
        select rec --rule static --budget 4 --scope $scope -o x.st
    refuse 2 "scope '$scope': a set of mamba is for a channel, or a layer" \
        eval tiny a.txt "${how[@]}" --rule scheduled "${rule[@]}" --scope $scope
done
refuse 2 "did you mean 'group'?" select rec --rule static --budget 4 --scope groups -o x.st
refuse 2 'choose --scope head, group or layer' select rec2 --rule optimal --budget 4 -o x.st
refuse 2 'not defined for this family' select rec2 --rule activity --budget 4 --scope head -o x.st
refuse 2 'make the mask with select --scope layer' prune tiny --mask mask.st -o x
refuse 2 'a mask has its own' select rec --mask mask.st --scope layer
refuse 2 'a mask has its own' eval tiny a.txt --mask mask.st --scope layer
refuse 2 'sets are always chosen on' select rec --rule static --budget 4 --on calibration -o x.st

# ---- domains, texts -----------------------------------------------------------------------------
refuse 2 "'poems' is not among those with calibration windows" \
    eval tiny poems=a.txt "${how[@]}" --rule regime "${rule[@]}"
for words in "eval tiny empty.txt ${how[*]}" "eval tiny a.txt empty.txt ${how[*]}" \
    "eval tiny a=a.txt a=empty.txt ${how[*]}" "record tiny a.txt empty.txt -o x --window 128" \
    "verify tiny empty.txt" "eval tiny empty.txt --protocol rolling --items i.jsonl"; do
    # shellcheck disable=SC2086
    refuse 3 'empty.txt: expected text, found no token of it' $words
done
refuse 2 'give more text, fewer windows or a shorter --window' \
    eval tiny a.txt --window 128 --windows 900 --items i.jsonl
echo >line.txt
ls >before
refuse 2 'give more text or a --prefix-token' eval tiny line.txt --protocol rolling \
    --prefix-token none

# ---- items --------------------------------------------------------------------------------------
spoil() { # FILE, a sed expression for line 2 of the first three items
    head -n 3 "$tasks/$1.jsonl" | sed -E "2$2" >bad.jsonl
    ls >before
}
spoil piqa 's/"label": *[0-9]+/"lable": 1/'
refuse 3 'bad.jsonl: line 2: the item has no gold: "label" is missing' "${piqa[@]}" --data bad.jsonl
spoil piqa 's/"label": *[0-9]+/"label": -1/'
refuse 3 'line 2: the item has no gold: "label" is not an index' "${piqa[@]}" --data bad.jsonl
spoil piqa 's/"label": *[0-9]+/"label": 2/'
refuse 3 'line 2: "label" is 2, but there are 2 choices from 0 on' "${piqa[@]}" --data bad.jsonl
spoil piqa 's/.{20}$//'
refuse 3 'bad.jsonl: line 2: not valid JSON: ' "${piqa[@]}" --data bad.jsonl
refuse 3 'bad.jsonl: line 2: not valid JSON: ' "${piqa[@]}" --data bad.jsonl --json
spoil piqa 's/.*/[]/'
refuse 3 'bad.jsonl: line 2: ' "${piqa[@]}" --data bad.jsonl
spoil arc_easy 's/"answerKey": *"[^"]*"/"answerKey": "Z"/'
refuse 3 'line 2: the item has no gold: answerKey "Z" is not one of choices.label' \
    eval tiny --task arc_easy --data bad.jsonl --items i.jsonl
spoil hellaswag 's/"label": *"[^"]*"/"label": ""/'
refuse 3 'line 2: the item has no gold' eval tiny --task hellaswag --data bad.jsonl --items i.jsonl
spoil winogrande 's/"answer": *"[^"]*"/"answer": ""/'
refuse 3 'line 2: the item has no gold' eval tiny --task winogrande --data bad.jsonl --items i.jsonl
refuse 3 'empty.txt: has no items: expected a JSON object a line' "${piqa[@]}" --data empty.txt
refuse 3 'none.jsonl: does not exist' "${piqa[@]}" --data none.jsonl

# ---- names that are not UTF-8, and long ones -----------------------------------------------------
# Results are UTF-8 and tell models apart by name; the command has other bytes as bash reads them.
cp mask.st $'m\xff.st'
expect 2 eval tiny a.txt "${how[@]}" --mask $'m\xff.st'
says 'is not UTF-8'
expect 2 eval tiny a.txt "${how[@]}" --mask mask.st --against $'m\xff.st'
says 'is not UTF-8'
ln -s rec $'rec\xff'
expect 0 select $'rec\xff' --rule static --budget 4 -o latin.st
head -c 4000 latin.st | tr -d '\0' | grep -aqF "ssmscope select \$'rec\\\\xff' --rule" || fail 'another command in the mask'
ln -s tiny $'tiny\xff'
ln -s "$tiny" tiny
expect 0 "${piqa[@]/tiny/./tiny$'\xff'}" --data "$tasks/piqa.jsonl" --limit 1
grep -qF '"model_name": "./tiny\\xff"' h.json || fail 'another name in the harness JSON'
# A model is found again by the whole of its name.
long=$(printf 'd%.0s' {1..200})
mkdir -p "$long/$long"
cp mask.st "$long/$long/"
cp a.txt $'a\xff.txt'
items=(eval tiny $'x=a\xff.txt' "${how[@]}" --windows 3 --mask "$long/$long/mask.st" --json)
expect 0 "${items[@]}"
cp out whole
head -n 3 i.jsonl >i.jsonl.partial
expect 0 "${items[@]}" --resume
says 'resuming: 2 items'
same out whole 'resumed'
