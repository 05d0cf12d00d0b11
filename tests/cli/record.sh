#!/usr/bin/env bash
# record, metrics, select, eval: the same bytes for any chunk, threads and instruction set; a stopped
# recording goes on to the same bytes; a mask costs what its pruned run shows.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 12000 >prose.txt
piece code 12000 >code.txt
texts=(prose=prose.txt code=code.txt)
windows=(--window 100 --calibration-windows 3 --evaluation-windows 3)

expect 0 record tiny "${texts[@]}" -o one "${windows[@]}"
says 'plan: 2 domains x (3 calibration + 3 evaluation) windows of 100 tokens, 8 layers'
prints 'one: 12 windows, 8 layers'
grep -q '"command": *"ssmscope record tiny prose=prose.txt code=code.txt --window 100 --calibration-windows 3 --evaluation-windows 3"' \
    one/recording.json || fail "the command is not canonical"
for options in '--threads 3 --chunk 64' '--threads 1 --chunk 3 --json'; do
    rm -rf two
    # shellcheck disable=SC2086
    expect 0 record tiny "${texts[@]}" -o two "${windows[@]}" --quiet $options
    diff -r one two >/dev/null || fail "record with $options gives other bytes"
done

small=(--window 20 --calibration-windows 1 --evaluation-windows 1)
expect 0 record tiny prose.txt -o fast "${small[@]}"
expect 0 record tiny prose.txt -o slow "${small[@]}" --isa portable
diff -r fast slow >/dev/null || fail 'the portable kernels record other bytes'

# A directory that is there already, and another recording.
expect 2 record tiny "${texts[@]}" -o one "${windows[@]}"
expect 0 record tiny "${texts[@]}" -o one "${windows[@]}" --resume
diff -r one two >/dev/null || fail "--resume changed a finished recording"
expect 2 record tiny "${texts[@]}" -o one --resume --window 50 --calibration-windows 3 --evaluation-windows 3

# Too little text, with both numbers.
expect 2 record tiny "${texts[@]}" -o three --window 5000
says "too few"
[ ! -e three ] || fail "a recording was begun with too little text"
expect 2 record tiny "${texts[@]}" -o three --window 100 --calibration-windows 900 --evaluation-windows 1
expect 2 record tiny "${texts[@]}" -o three --layers 8
expect 3 record tiny nowhere.txt -o three
says nowhere.txt

# A read-only place.
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 500 locked
    expect 1 record tiny "${texts[@]}" -o locked/rec "${windows[@]}"
fi

expect 0 metrics one
prints 'Migration gap'
[ "$(grep -cE '^  layer +[0-9]+  ' out)" -eq 8 ] || fail "the chart has not 8 lines"
LC_ALL=C run metrics one
grep -q '####' out || fail "no bars in the C locale"
expect 2 metrics one --budgets 16
expect 3 metrics nowhere

expect 0 select one --rule static --budget 8 -o mask
prints '8 of 16 modes kept in each of 384 channels of 8 layers (50.0 % of the state)'
cp mask first
mv one kept
mv two one
expect 0 select one --rule static --budget 8 -o mask --threads 1
same mask first "a mask from the same recording"
expect 2 select one --rule statc --budget 8 -o mask
says "did you mean 'static'?"
expect 2 select one --rule static --budget 17 -o mask

# eval: a mask and the rule that made it give the same numbers; all modes kept change nothing.
common=(eval tiny "${texts[@]}" --window 100 --windows 3 --offset 3 --bootstrap 200 -q)
expect 0 "${common[@]}" --mask mask --json
cp out mask.json
expect 0 "${common[@]}" --mask mask --json --threads 3
same out mask.json "eval with other threads"
expect 0 "${common[@]}" --rule static --budget 8 --recording one --json
figure() { grep -m1 "\"$2\":" "$1"; }
[ "$(figure out perplexity)" = "$(figure mask.json perplexity)" ] || fail "the rule differs from its mask"
expect 0 select one --rule static --budget 16 -o all
expect 0 "${common[@]}" --mask all
grep -qE '^all +\+0\.000 +\+0\.000 to \+0\.000' out || fail "a mask of all modes changes the perplexity"
expect 0 run tiny -p 'It came' -n 8 -q
cp out plain
expect 0 run tiny -p 'It came' -n 8 -q --mask all
same out plain "run with a mask of all modes"
expect 2 eval tiny "${texts[@]}" --window 100 --windows 900
expect 0 init --shape tiny -o other
cp "$SOURCE_DIR/models/tiny/tokenizer.json" other/
expect 3 eval other prose.txt --window 100 --mask mask
says 'the mask is for model xxh3-128:'
expect 0 eval tiny "${texts[@]}" --window 100 --windows 2 --rule static --budget 8 --recording one
says '--offset 3 leaves them out'

expect 0 verify tiny "${texts[@]}" --window 100 --windows 2
prints ' ok'
grep -q FAILED out && fail "verify passed with a FAILED line"
expect 2 verify tiny "${texts[@]}" --window 100 --windows 900
exit 0
