#!/usr/bin/env bash
# eval: rules that choose for every window, beside static ones and the unpruned model.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 16000 >a.txt
piece code 16000 >b.txt
texts=(prose=a.txt code=b.txt)
expect 0 record tiny "${texts[@]}" -o rec --window 128 --calibration-windows 4 \
    --evaluation-windows 0 -q
how=(eval tiny "${texts[@]}" --window 128 --windows 3 --offset 4 --bootstrap 100)
rule=(--budget 4 --recording rec)
number() { sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" out | head -n 1; }

# ---- the table ----------------------------------------------------------------------------------
expect 0 "${how[@]}" "${rule[@]}" --rule scheduled --against regime
prints 'static'
prints 'scheduled - unpruned'
prints 'static - regime'
prints 'captured, %'
prints '762 tokens' # full: 6 windows, all tokens but the first
expect 0 "${how[@]}" "${rule[@]}" --rule scheduled --against half --against prefix:32,96 \
    --against prefix-ramp:64 --against regime --json
prints '"protocol": "continuation:96"'
prints '"tokens": 192,' # 6 windows of 32 tokens
for name in unpruned scheduled half prefix:32 prefix:96 prefix-ramp:64 regime static; do
    prints "\"$name\": {"
done
prints '"captures"'
[ "$(grep -c '"base": ' out)" -eq 28 ] || fail 'not all pairs of eight models'
[ "$(grep -c '"agreement": ' out)" -eq 8 ] || fail 'not seven models and, again, the one to judge'
cp out whole.json
expect 0 "${how[@]}" "${rule[@]}" --rule scheduled --against half --against prefix:32,96 \
    --against prefix-ramp:64 --against regime --json --threads 3
same out whole.json 'threads'

# Only the second half of a window is scored, by every model.
expect 0 "${how[@]}" "${rule[@]}" --rule half --json
prints '"protocol": "continuation:64"'
expect 0 "${how[@]}" "${rule[@]}" --rule prefix:64 --protocol continuation:32 --json
prints '"protocol": "continuation:32"'
says 'continuation:64 does not'

# The ridge reaches the rules that have one, and no other.
expect 0 "${how[@]}" "${rule[@]}" --rule compensated --json
weighed=$(number perplexity)
expect 0 "${how[@]}" "${rule[@]}" --rule compensated --ridge 100 --json
prints '--ridge'
ridged=$(number perplexity)
expect 0 "${how[@]}" "${rule[@]}" --rule static --ridge 100 --json
[ "$weighed" != "$ridged" ] || fail 'a ridge of 100 changes nothing'
[ "$(number perplexity)" != "$ridged" ] || fail 'compensated with a ridge of 100 is static'

# All modes kept: the unpruned model.
expect 0 "${how[@]}" --rule scheduled --budget 16 --recording rec --json
prints '"perplexity": 0.0,'
kept=$(number perplexity)
expect 0 "${how[@]}" --json
[ "$(number perplexity)" = "$kept" ] || fail "all modes kept: $kept, unpruned: $(number perplexity)"

# What a model has beside others it has alone; so do its divergence from the unpruned one.
divergence() { # of MODEL in models of out
    sed -n "/^  \"models\": {/,/^  \"gaps\"/p" out |
        awk -v key="    \"$1\": {" '$0 == key { on = 1 } on; /^    }/ { on = 0 }' |
        sed -n '/^      "difference": {/,/^      }/p; /^      "divergence": {/,/^      }/p'
}
expect 0 "${how[@]}" "${rule[@]}" --rule scheduled --against regime --json
divergence regime >beside
expect 0 "${how[@]}" "${rule[@]}" --against regime --json # from the unpruned model itself
divergence regime >alone
same beside alone 'the divergence of regime beside scheduled and alone'
[ "$(grep -cE '"(kl|agreement|perplexity|probability_change)": -?[0-9]' beside)" -eq 4 ] ||
    fail 'no KL, agreement, difference of perplexity'
expect 0 "${how[@]}" "${rule[@]}" --rule regime --json
sed -n 's/^  //; /^"divergence": {/,/^}/p' out >of_main
sed -n 's/^      //; /^"divergence": {/,/^}/p' beside >of_model
sed -i 's/,$//' of_main of_model
same of_main of_model 'divergence of the model to judge'

# The unpruned model may be the one to judge; items and resuming.
expect 0 "${how[@]}" "${rule[@]}" --against scheduled --json --items i.jsonl
cp out whole.json
mv i.jsonl i.whole
head -n 9 i.whole >i.jsonl.partial
expect 0 "${how[@]}" "${rule[@]}" --against scheduled --json --items i.jsonl --resume
same out whole.json 'resumed'
same i.jsonl i.whole 'the items of a resumed eval'
mv i.jsonl i.whole
head -n 6 i.whole >i.jsonl.partial # between the two pruned models of the third window
expect 0 "${how[@]}" "${rule[@]}" --against scheduled --json --items i.jsonl --resume
same out whole.json 'resumed inside a window'
same i.jsonl i.whole 'the items of an eval resumed inside a window'

# ---- tasks: a set for every passage -------------------------------------------------------------
task=(eval tiny --task lambada --data "$SOURCE_DIR/tests/golden/tasks/lambada_openai.jsonl"
    --limit 12 --harness-bootstrap 0 --bootstrap 50 --recording rec)
expect 0 "${task[@]}" --budget 4 --rule scheduled
prints '(scheduled - static) / (unpruned - static)'
expect 0 "${task[@]}" --budget 4 --rule scheduled --json
prints '"recovered"'
expect 0 "${task[@]}" --budget 16 --rule scheduled --json
[ "$(grep '"perplexity": [0-9]' out | tr -dc '0-9.\n' | sort -u | wc -l)" -eq 1 ] ||
    fail 'a task with all modes kept'

# ---- mistakes -----------------------------------------------------------------------------------
expect 2 "${how[@]}" --rule scheduled --budget 4
says 'needs --recording'
expect 2 "${how[@]}" --rule scheduled --recording rec
says 'needs --budget'
expect 2 "${how[@]}" --rule scheduled --recording rec --budget 17
says '1 … 16; found 17'
expect 2 "${how[@]}" "${rule[@]}" --rule sheduled
says "did you mean 'scheduled'?"
expect 2 "${how[@]}" "${rule[@]}" --rule prefix:ten
says 'expected a number of tokens'
expect 2 "${how[@]}" "${rule[@]}" --rule prefix:32,32
says 'is given twice'
expect 2 "${how[@]}" "${rule[@]}" --rule prefix:128
says 'do not lie inside a window of 128'
expect 2 "${how[@]}" "${rule[@]}" --rule prefix
says 'prefix chooses on the first 256 tokens'
expect 2 "${how[@]}" "${rule[@]}" --rule prefix-ramp:60
says 'multiple'
expect 2 "${how[@]}" "${rule[@]}" --rule scheduled --scope head
says "scope 'head'"
expect 2 eval tiny poems=a.txt "${rule[@]}" --rule regime --window 128
says "'poems' is not among"
expect 3 "${how[@]}" --rule scheduled --budget 4 --recording nowhere
expect 0 init --shape tiny -o other --seed 7 -q
cp "$SOURCE_DIR/models/tiny/tokenizer.json" other/
expect 3 eval other "${texts[@]}" --window 128 "${rule[@]}" --rule scheduled
says 'the recording is of model'
tasks="$SOURCE_DIR/tests/golden/tasks"
expect 2 eval tiny --task piqa --data "$tasks/piqa.jsonl" "${rule[@]}" --rule half
says 'rule half chooses for every window'
expect 2 eval tiny a.txt "${rule[@]}" --rule half:3
says "rule half takes nothing behind its name, found '3'"
expect 2 eval tiny a.txt "${rule[@]}" --rule nonsense
says "there is no rule 'nonsense'; expected static, "
says 'prefix-ramp'
expect 2 eval tiny a.txt --protocol continuation
says "did you mean 'continuation:T'?"
expect 2 select rec --rule prefix:64 --budget 4 -o never
says 'rule prefix:64 chooses anew for every window'
expect 2 eval tiny a.txt --against ''
says '--against is empty'
expect 2 eval tiny a.txt --mask ''
says '--mask: the path is empty'
expect 2 eval tiny a.txt --protocol rolling "${rule[@]}" --rule half
says 'for every window of text'

# Results are told apart by name, so that a mask file has one of its own.
expect 0 select rec --rule hankel --budget 4 -o static
expect 2 "${how[@]}" --mask static --budget 4 --recording rec --against half
says 'give the file as ./static'
expect 2 "${how[@]}" --mask ./static --against ./static
says 'has that name, too'
expect 0 "${how[@]}" --mask ./static --budget 4 --recording rec --against static
prints './static - static'

# ---- Mamba-2 ------------------------------------------------------------------------------------
expect 0 init --shape tiny-mamba2 -o m2 -q
cp "$SOURCE_DIR/tests/golden/tokenizers/gpt.json" m2/tokenizer.json # byte level, fewer than 512 ids
expect 0 record m2 "${texts[@]}" -o rec2 --window 128 --calibration-windows 2 \
    --evaluation-windows 0 -q
how=(eval m2 "${texts[@]}" --window 128 --windows 2 --offset 2 --bootstrap 50 --budget 4
    --recording rec2)
expect 0 "${how[@]}" --scope head --rule scheduled --against half --against prefix:32 \
    --against prefix-ramp:64 --against regime
prints 'prefix-ramp:64 - prefix:32'
expect 0 "${how[@]}" --rule scheduled --against regime
expect 0 "${how[@]}" --scope group --rule ghost --against static --against scheduled
says 'ghost: 87.50 % of the state is zeroed'
prints 'static - ghost'
expect 2 "${how[@]}" --scope head --rule ghost
says 'give --scope group'
expect 2 eval tiny "${texts[@]}" "${rule[@]}" --window 128 --rule ghost
says 'it is defined for Mamba-2, not for mamba'
expect 2 "${how[@]}" --rule prefix-ramp:64
says 'per head, not per channel'
