#!/usr/bin/env bash
# ghost as a mask file: select writes it with --model; judged, it has the figures of eval --rule ghost.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 8000 >a.txt
expect 0 init --shape tiny-mamba2 -o m2 -q
cp "$SOURCE_DIR/tests/golden/tokenizers/gpt.json" m2/tokenizer.json # byte level, fewer than 512 ids
expect 0 record m2 a.txt -o rec --window 128 --calibration-windows 2 --evaluation-windows 1 -q
ghost=(select rec --rule ghost --budget 4 --scope group)

# ---- the file -----------------------------------------------------------------------------------
expect 0 "${ghost[@]}" --model m2 --seed 5 -o g.st
says 'ghost: 87.50 % of the state is zeroed'
prints 'rule ghost'
prints '4 of 32 modes kept'
prints 'error ' # of the calibration windows, from their Grams
for word in '"rule":"ghost"' '"budget":"4"' '"scope":"group"' '"seed":"5"' '"model_digest":"xxh3-128:' \
    '"recording_digest":"xxh3-128:' '"schema":"ssmscope.mask/1"' '"command":"ssmscope select rec'; do
    head -c 4000 g.st | tr -d '\0' | grep -aqF "$word" || fail "the mask file does not have $word"
done
expect 0 "${ghost[@]}" --model m2 --seed 5 -o h.st --json --threads 3
same g.st h.st 'threads, --json'
prints '"kept": '
prints '"path": "m2"'
expect 0 select rec --mask g.st # another reader takes it
prints 'rule ghost, scope group'
expect 0 run m2 --mask g.st --prompt 'In the beginning' -n 4

# ---- judged: to the bit what eval --rule ghost says ---------------------------------------------
how=(eval m2 a.txt --window 128 --windows 3 --offset 2 --bootstrap 100 --json)
figures() { grep -vE '"(command|path|name|rule)": ' out >"$1"; }
expect 0 "${how[@]}" --rule ghost --budget 4 --recording rec --scope group
figures rule
grep -q '"kl": [0-9.e-]*[1-9]' rule || fail 'ghost changes nothing'
expect 0 "${how[@]}" --mask g.st
figures mask
same rule mask 'eval --mask and eval --rule ghost'

# ---- mistakes -----------------------------------------------------------------------------------
refuse() { # STATUS WORDS arguments…: nothing is written
    expect "$1" "${@:3}" -o x.st
    says "$2"
    [ ! -e x.st ] || fail "${*:3}: a mask was written"
}
refuse 2 'give --model MODEL' "${ghost[@]}"
refuse 2 'give --scope group' select rec --rule ghost --budget 4 --model m2
refuse 2 '1 … 32; found 33' select rec --rule ghost --budget 33 --scope group --model m2
refuse 2 '--model is for rule ghost' select rec --rule static --budget 4 --model m2
refuse 2 '--norm-groups say how --model is read' select rec --rule static --budget 4 --norm-groups 1
expect 2 select rec --rule ghost --scope group --model m2 --curve
says 'select --mask prints what it costs'
expect 0 init --shape tiny-mamba2 -o other --seed 7 -q
refuse 3 'the recording is of model' "${ghost[@]}" --model other
refuse 3 'nowhere' "${ghost[@]}" --model ./nowhere
expect 0 record tiny a.txt -o rec1 --window 128 --calibration-windows 1 --evaluation-windows 0 -q
refuse 2 'it is defined for Mamba-2, not for mamba' select rec1 --rule ghost --budget 4 --model tiny
# Where it is not defined at all, no scope is asked for.
expect 0 init --shape tiny-mamba2attn -o hybrid -q
cp m2/tokenizer.json hybrid/
expect 0 record hybrid a.txt -o rec3 --window 128 --calibration-windows 1 --evaluation-windows 0 -q
refuse 2 'not for hybrids' select rec3 --rule ghost --budget 4 --model hybrid
