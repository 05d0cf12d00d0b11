#!/usr/bin/env bash
# sweep: every cell has the figures of eval to the digit; files; resuming; what is refused.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 12000 >a.txt
piece code 12000 >b.txt
texts=(prose=a.txt code=b.txt)
expect 0 record tiny "${texts[@]}" -o rec --window 96 --calibration-windows 4 \
    --evaluation-windows 2 -q
how=("${texts[@]}" --window 96 --windows 3 --offset 4 --bootstrap 200 --seed 3)
sweep=(sweep rec tiny "${how[@]}")
rules=random,last:squared,compensated:optimal,compensated-shared,scheduled,prefix:32,64,half,regime
expect 0 "${sweep[@]}" --rules $rules --budgets 4,8 --scopes channel,layer --ridge 0.01 -o d
prints 'tiny: 6 windows of 96 tokens in 2 domains; 200 resamples, seed 3'
prints 'full, scope channel'
prints 'continuation:48, scope layer: tokens are scored from 48 on'
prints 'compensated-shared: rule compensated-shared gives weights'
prints 'captured'
for file in plan.json sweep.json sweep.csv table.md windows.jsonl \
    masks/last-squared.layer.8.safetensors; do
    [ -f "d/$file" ] || fail "$file is not there"
done
[ ! -e d/windows.jsonl.partial ] || fail 'the journal has not got its name'

# ---- the figures of eval, to the digit ------------------------------------------------------------
# values FILE KEY…: every number behind "KEY": in the order of the file.
numbers() { tr -d ' \n' <"$1" | grep -oE '"(perplexity|interval_window|interval_block|nll_sum|fraction)":(\[[^]]*\]|[^,}]*)'; }
# cell PROTOCOL SCOPE RULE BUDGET: the object of that cell in sweep.json, on one line.
cell() {
    tr -d '\n' <d/sweep.json | sed 's/^.*"cells": \[//; s/ *    { *"protocol": /\n&/g' |
        grep -F "\"protocol\": \"$1\"" | grep -F "\"scope\": \"$2\"" | grep -F "\"rule\": \"$3\"" |
        grep -F "\"budget\": $4,"
}
# block KEY: the object under the first KEY of stdin, braces and all.
block() {
    tr -d ' \n' | awk -v key="\"$1\":{" '{
        at = index($0, key)
        if (!at) { exit }
        depth = 0
        for (i = at + length(key) - 1; i <= length($0); i++) {
            c = substr($0, i, 1)
            depth += (c == "{") - (c == "}")
            if (depth == 0) { print substr($0, at, i - at + 1); exit }
        }
    }'
}
compare() { # PROTOCOL SCOPE RULE BUDGET
    expect 0 eval tiny "${how[@]}" --rule "$3" --budget "$4" --scope "$2" --recording rec \
        --ridge 0.01 --against static --protocol "$1" --json
    cell "$1" "$2" "$3" "$4" >one
    [ "$(wc -l <one)" -eq 1 ] || fail "$*: $(wc -l <one) cells"
    # The cell begins with its own perplexity, as eval's object does.
    head -c 2000 one | sed 's/"difference".*//' >mine
    sed -n '1,/"windows"/p' out >its
    numbers mine >mine.n
    numbers its | head -n "$(wc -l <mine.n)" >its.n
    [ "$(wc -l <mine.n)" -ge 12 ] || fail "$*: too few numbers to compare"
    same mine.n its.n "$*: perplexities"
    for key in difference static; do
        block $key <one >mine
        if [ $key = static ]; then
            block differences <out | block static >its
            [ -s its ] || cp mine its # models side by side: those are in gaps
        else
            block difference <out >its
        fi
        numbers mine >mine.n
        numbers its >its.n
        [ -s mine.n ] || fail "$*: no $key"
        same mine.n its.n "$*: $key"
    done
}
compare full channel last:squared 4
compare full layer compensated:optimal 8
compare full layer compensated-shared 4
compare full channel random 8
compare full channel scheduled 4
compare continuation:48 layer half 4
compare continuation:64 channel prefix:64 8
# What `half` has of the gain of scheduled, and its gap to static, where eval puts them.
expect 0 eval tiny "${how[@]}" --rule half --against scheduled --against static --budget 4 \
    --scope channel --recording rec --json
cell continuation:48 channel half 4 | block capture >mine
block captures <out | block half >its
numbers mine | sort >mine.n # eval names the domains first
numbers its | sort >its.n
[ "$(wc -l <mine.n)" -eq 9 ] || fail 'a capture is not there'
same mine.n its.n 'captures'
tr -d ' \n' <out | grep -oE '\{"model":"static","base":"half"[^}]*\}|\{"model":"half","base":"static"[^}]*\}' >gap
cell continuation:48 channel half 4 | block static | grep -oE '"perplexity":[^,]*' | head -n 1 |
    grep -oE '[0-9.e-]+' >mine
grep -qF "$(tr -d '-' <mine)" gap || fail "the gap to static: $(cat mine), eval: $(cat gap)"
# The offline error is that of select, and the mask is select's.
expect 0 select rec --rule compensated:optimal --budget 8 --scope layer --ridge 0.01 -o m.st --json
cell full layer compensated:optimal 8 | grep -qF \
    "$(grep calibration_error\" out | grep -oE '[0-9.e-]{6,}')" || fail 'another calibration error'
expect 0 select rec --mask d/masks/compensated-optimal.layer.8.safetensors --json
cell full layer compensated:optimal 8 | grep -qF "$(grep '"mean"' -A3 out | grep -oE '[0-9]\.[0-9e-]{6,}' | head -n 1)" ||
    fail 'another offline error'

# ---- every cell is there: 32 columns, a line a cell and domain ------------------------------------
# full: unpruned + 2 scopes x 2 budgets x 7; continuation 32, 48, 64: unpruned + 4 x 3
[ "$(grep -c . d/sweep.csv)" -eq $((1 + 3 * (1 + 4 * 7 + 3 * (1 + 4 * 3)) - 2 * 2)) ] ||
    fail "$(grep -c . d/sweep.csv) lines of CSV"
grep -v 'compensated-shared,[48],,,' d/sweep.csv | awk -F, 'NF != 32 { exit 1 }' || fail 'columns of the CSV'
grep -q '^full,channel,compensated-shared,4,,.*"*rule compensated-shared' d/sweep.csv || fail 'no reason in the CSV'
grep -q '^### continuation:32, scope layer' d/table.md || fail 'no section in table.md'

# ---- threads, --json ------------------------------------------------------------------------------
json=("${sweep[@]}" --rules half,optimal --budgets 4)
expect 0 "${json[@]}" -o e --json
same out e/sweep.json '--json'
expect 0 "${json[@]}" -o f --json --threads 3
diff -r e f || fail 'threads'

# ---- stopped and resumed --------------------------------------------------------------------------
mkdir g
cp e/plan.json g/
head -n 9 e/windows.jsonl >g/windows.jsonl.partial
printf '{"series":"full/sta' >>g/windows.jsonl.partial # a line that was not finished
mkdir g/masks
: >g/masks/.optimal.channel.4.safetensors.0123456789abcdef.tmp
expect 2 "${json[@]}" -o g
says 'holds results already'
expect 0 "${json[@]}" -o g --resume
says 'resuming: 8 windows'
diff -r e g || fail 'resumed'
expect 0 "${json[@]}" -o g --resume # a finished one
says 'resuming: '
diff -r e g || fail 'resumed when finished'
expect 2 sweep rec tiny "${texts[@]}" --window 96 --windows 3 --offset 4 --bootstrap 200 --seed 4 \
    --rules half,static --budgets 4,8 -o g --resume
says 'rules: there ["half","optimal","static"], here ["half","static"]'
says 'budgets: there [4], here [4,8]'
says 'seed: there 3, here 4'
diff -r e g || fail 'a refused sweep changed the other one'
# Killed when the journal has so many lines, again and again, the thread count changing.
kills=0
for lines in 2 4 9 16 20 27 35; do
    "$SSMSCOPE" "${json[@]}" -o h -q --resume --threads $((1 + lines % 2)) >/dev/null 2>err &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ ! -e h/windows.jsonl ] &&
        [ "$(cat h/windows.jsonl.partial 2>/dev/null | wc -l)" -lt $lines ]; do
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null || true
    code=0
    wait $pid 2>/dev/null || code=$?
    [ $code -eq 0 ] || [ $code -eq 137 ] || fail "ended with $code"
    kills=$((kills + (code != 0)))
done
expect 0 "${json[@]}" -o h --resume
diff -r e h || fail "killed $kills times and resumed"

# ---- mistakes: refused before anything is made ----------------------------------------------------
refuse() { # STATUS WORDS arguments…
    expect "$1" "${@:3}" -o x
    says "$2"
    [ ! -e x ] || fail "${*:3}: a directory was made"
}
refuse 2 "did you mean 'optimal'?" "${sweep[@]}" --rules static,optinal
refuse 2 'expected squared' "${sweep[@]}" --rules last:cubed
refuse 2 'static is given twice' "${sweep[@]}" --rules static,static
refuse 2 '32 is no rule' "${sweep[@]}" --rules static,32
refuse 2 'a name is missing' "${sweep[@]}" --rules static,
refuse 2 'expected a number of tokens' "${sweep[@]}" --rules prefix:ten
refuse 2 'do not lie inside a window of 96' "${sweep[@]}" --rules prefix
refuse 2 'takes nothing behind its name' "${sweep[@]}" --rules ghost:2
refuse 2 '17 is outside 1 … 16' "${sweep[@]}" --rules static --budgets 4,17
refuse 2 "did you mean 'layer'?" "${sweep[@]}" --rules static --scopes layr
refuse 2 "all alone, found 'all'" "${sweep[@]}" --rules static --scopes all,layer
refuse 2 'layer is given twice' "${sweep[@]}" --rules static --scopes layer,layer
refuse 2 'which has no heads' "${sweep[@]}" --rules static --scopes head
refuse 2 'scores documents' "${sweep[@]}" --rules static --protocol rolling
refuse 2 'does not lie inside a window' "${sweep[@]}" --rules static --protocol continuation:96
refuse 2 "'poems' is not among" sweep rec tiny poems=a.txt --window 96 --rules regime
refuse 2 'windows of 96 after the first' sweep rec tiny "${texts[@]}" --window 96 --offset 900 --rules static
: >empty.txt
refuse 3 'found no token' sweep rec tiny prose=a.txt code=empty.txt --window 96 --rules static
refuse 3 'nowhere' sweep nowhere tiny "${how[@]}" --rules static
refuse 3 'rec: is a recording, and a model is expected here' sweep tiny rec "${how[@]}" --rules static
refuse 3 'nowhere.txt' sweep rec tiny nowhere.txt --rules static
expect 2 "${sweep[@]}" --rules static -o rec
says 'is not empty and holds no results of this kind'
: >file
expect 1 "${sweep[@]}" --rules static -o file/d
says 'the directory cannot be made'
expect 0 init --shape tiny -o other --seed 7 -q
cp "$SOURCE_DIR/models/tiny/tokenizer.json" other/
refuse 3 'the recording is of model' sweep rec other "${how[@]}" --rules static
expect 0 record tiny "${texts[@]}" -o bare --window 96 --calibration-windows 0 --evaluation-windows 1 -q
refuse 2 'the recording has none' sweep bare tiny "${how[@]}" --rules random
expect 0 record tiny "${texts[@]}" -o part --window 96 --calibration-windows 1 --evaluation-windows 0 --layers 1,2 -q
refuse 2 'record without --layers' sweep part tiny "${how[@]}" --rules static
# Without Grams the rules that need them say so, and no offline error is made up.
expect 0 record tiny "${texts[@]}" -o energies --window 96 --calibration-windows 2 --evaluation-windows 1 --no-gram -q
expect 0 sweep energies tiny "${how[@]}" --rules static,optimal --budgets 4 -o n
prints 'optimal: rule optimal needs Grams'
grep -q '"offline_error": null' n/sweep.json || fail 'an offline error without Grams'
# A damaged mask, a damaged journal, another's lock.
truncate -s -1 n/masks/static.channel.4.safetensors
expect 3 sweep energies tiny "${how[@]}" --rules static,optimal --budgets 4 -o n --resume
says 'static.channel.4.safetensors'
cp e/masks/optimal.channel.4.safetensors h/masks/static.channel.4.safetensors
expect 3 "${json[@]}" -o h --resume
says 'the mask is of rule optimal'
sed -i '3s/nll/nil/' g/windows.jsonl
expect 3 "${json[@]}" -o g --resume
says 'windows.jsonl.partial'
damage() { # SED WORDS: what is said of a journal that was edited
    sed "$1" e/windows.jsonl >g/windows.jsonl.partial
    expect 3 "${json[@]}" -o g --resume
    says "windows.jsonl.partial: $2"
}
damage '3s/"tokens":[0-9]*/"tokens":9/' 'the line of '
damage '3s/"nll":/"nll":-/' 'the line of '
sed '3s/.*/broken/' e/windows.jsonl >g/windows.jsonl.partial
expect 3 "${json[@]}" -o g --resume
says ': line 3: not valid JSON'
damage 1d 'line 1 does not say what work'
expect 2 sweep rec tiny prose=a.txt poems=b.txt "${how[@]:2}" --rules half,optimal --budgets 4 -o h --resume
says '"domain":"poems"' # where a long value differs, however much of it is the same
mkdir locked
flock locked "$SSMSCOPE" "${json[@]}" -o locked >out 2>err && fail 'a locked directory was written'
says 'another process is writing into this directory'

# ---- Mamba-2: every scope, ghost where it is defined ----------------------------------------------
expect 0 init --shape tiny-mamba2 -o m2 -q
cp "$SOURCE_DIR/tests/golden/tokenizers/gpt.json" m2/tokenizer.json # byte level, fewer than 512 ids
expect 0 record m2 "${texts[@]}" -o rec2 --window 96 --calibration-windows 2 --evaluation-windows 1 -q
expect 0 sweep rec2 m2 "${texts[@]}" --window 96 --windows 1 --offset 4 --bootstrap 20 \
    --rules all,prefix:32,optimal --budgets 4 --scopes all -o m
says 'left out, not defined here: rule activity'
prints 'full, scope group'
tr -d ' \n' <m/sweep.json | grep -qF '"scopes":["channel","head","group","layer"]' || fail 'no list of scopes'
! grep -q '"activity"' m/sweep.json || fail 'activity is in the JSON'
grep -q '^full,head,optimal,4,,.*use greedy-swap' m/sweep.csv || fail 'optimal was asked for by name'
grep -q '^full,group,ghost,4,,2,190,' m/sweep.csv || fail 'ghost has no cell'
grep -q '^full,channel,ghost,4,,.*give --scope group' m/sweep.csv || fail 'no reason for ghost'
grep -q '^full,channel,hankel,4,,.*per head, not per channel' m/sweep.csv || fail 'no reason for hankel'
grep -q '^full,channel,scheduled,4,,2,190,' m/sweep.csv || fail 'scheduled has no cell'
