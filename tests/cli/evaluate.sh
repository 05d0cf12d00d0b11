#!/usr/bin/env bash
# eval: tasks, rolling perplexity, divergence, resuming, and what is said about mistakes.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 24000 >a.txt
tasks="$SOURCE_DIR/tests/golden/tasks"
field() { # KEY: its first value in the JSON object in out
    sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" out | head -n 1
}

# ---- windows: both models in one pass -----------------------------------------------------------
expect 0 record tiny a.txt -o rec --window 128 --calibration-windows 4 --evaluation-windows 0 -q
expect 0 select rec --rule static --budget 4 -o mask.st
expect 0 eval tiny a.txt --mask mask.st --window 128 --windows 6 --offset 4 --bootstrap 100
prints 'same first choice, %'
prints 'KL divergence, mean'
expect 0 eval tiny a.txt --mask mask.st --window 128 --windows 6 --offset 4 --bootstrap 100 --json
cp out whole.json
prints '"kl_interval"'
prints '"agreement"'
# --items does not change what is printed; resumed from two windows: the same bytes.
expect 0 eval tiny a.txt --mask mask.st --window 128 --windows 6 --offset 4 --bootstrap 100 \
    --json --items w.jsonl
same out whole.json 'eval with --items'
head -n 3 w.jsonl >w.jsonl.partial
head -c 20 w.jsonl >>w.jsonl.partial # a line that was not finished
cp w.jsonl w.before
rm w.jsonl
expect 0 eval tiny a.txt --mask mask.st --window 128 --windows 6 --offset 4 --bootstrap 100 \
    --json --items w.jsonl --resume
same out whole.json 'a resumed eval'
same w.jsonl w.before 'the items of a resumed eval'
says 'resuming: 2 items are there already'
[ ! -e w.jsonl.partial ] || fail 'w.jsonl.partial was left'

# ---- tasks --------------------------------------------------------------------------------------
line=(eval tiny --task piqa --data "$tasks/piqa.jsonl" --limit 12 --bootstrap 100)
expect 0 "${line[@]}" --harness-json h.json --json
prints '"piqa"'
prints '"acc_norm_stderr"'
prints '"prefix": "bos_token"'
grep -q '"acc_stderr,none"' h.json || fail 'no acc_stderr,none in the file of the harness'
grep -q '"effective": 12' h.json || fail 'n-samples of the harness file'
acc=$(field acc)
grep -qF "\"acc,none\": $acc" h.json || fail "the harness file does not have acc $acc"
expect 0 "${line[@]}" --mask mask.st --against static --recording rec --budget 2
prints 'mask.st - unpruned, the same items'
prints 'mask.st - static, the same items'
expect 0 eval tiny --task lambada_openai --data "$tasks/lambada_openai.jsonl" --limit 20 \
    --harness-bootstrap 1000 --max-length 20
prints 'perplexity'
prints 'lost the beginning of their context'
# Threads change nothing.
expect 0 "${line[@]}" --json --threads 1
cp out one.json
expect 0 "${line[@]}" --json --threads 3
same out one.json 'threads'

# ---- rolling ------------------------------------------------------------------------------------
expect 0 eval tiny "$tasks/wiki.txt" --protocol rolling --documents wikitext --harness-json r.json
prints 'word_perplexity'
prints '5 documents'
grep -q '"word_perplexity_stderr,none": "N/A"' r.json || fail 'wikitext in the harness file'
expect 0 eval tiny a.txt --protocol rolling --max-length 64 --mask mask.st --json --bootstrap 50
prints '"bits_per_byte"'
prints '"word_perplexity"'
expect 0 eval tiny a.txt --protocol stateful --prefix-token none
prints 'protocol stateful, prefix none'

# One choice is the likeliest of one, not a word that the model must say.
printf '{"query": "a", "choices": ["b"], "gold": 0}\n' >onechoice.jsonl
expect 0 eval tiny --task piqa --data onechoice.jsonl --items one.jsonl
grep -q '"acc":true' one.jsonl || fail 'the only choice is not the likeliest'

# ---- mistakes -----------------------------------------------------------------------------------
printf '{"text": "a b"}\n{"text": \n' >broken.jsonl
expect 3 eval tiny --task lambada --data broken.jsonl
says 'broken.jsonl: line 2: not valid JSON'
printf '{"goal": "g", "sol1": "a", "sol2": "b", "label": -1}\n' >nogold.jsonl
expect 3 eval tiny --task piqa --data nogold.jsonl
says 'line 1: the item has no gold'
printf '{"goal": "g", "sol1": "", "sol2": "b", "label": 0}\n' >nochoice.jsonl
expect 3 eval tiny --task piqa --data nochoice.jsonl
says 'choice 0 has no characters'
: >empty.txt
expect 3 eval tiny --task piqa --data empty.txt
says 'has no items'
expect 3 eval tiny empty.txt --protocol rolling
says 'found no token of it'
printf 'caf\351' >latin.txt
expect 3 eval tiny latin.txt --protocol rolling
expect 0 eval tiny latin.txt --protocol rolling --invalid-utf8 replace
expect 2 eval tiny --task piqaa --data broken.jsonl
says "did you mean 'piqa'?"
expect 2 eval tiny --task piqa
says '--task needs --data'
expect 2 eval tiny --task piqa --data broken.jsonl a.txt
expect 2 eval tiny
says 'TEXT is missing'
expect 2 eval tiny a.txt --resume
says '--resume needs --items'
expect 2 eval tiny a.txt --protocol rollin
says "did you mean 'rolling'?"
expect 2 eval tiny a.txt --documents wikitext
expect 2 eval tiny a.txt --protocol rolling --prefix-token nothing-of-the-kind
says '--prefix-token'
expect 2 eval tiny --task piqa --data nogold.jsonl --items nogold.jsonl
says 'would be replaced'
expect 1 eval tiny --task piqa --data "$tasks/piqa.jsonl" --max-length 3
says 'raise --max-length'
# Items of other work are not taken up.
expect 0 "${line[@]}" --items i.jsonl -q
mv i.jsonl i.jsonl.partial
expect 3 eval tiny --task piqa --data "$tasks/piqa.jsonl" --limit 3 --items i.jsonl --resume
says 'holds the items of other work'
[ ! -e i.jsonl ] || fail 'i.jsonl appeared'
# What a way to score does not look at is not accepted in silence.
for words in '--window 64' '--windows 2' '--offset 1'; do
    # shellcheck disable=SC2086
    expect 2 eval tiny --task piqa --data "$tasks/piqa.jsonl" $words
    says 'are for windows of text'
    # shellcheck disable=SC2086
    expect 2 eval tiny a.txt --protocol rolling $words
    says 'are for windows of text'
done
expect 2 eval tiny a.txt --window 64 --max-length 64
says '--max-length is for --task'
# A place that the items cannot take is said before the work.
mkdir items-here
expect 1 eval tiny --task piqa --data "$tasks/piqa.jsonl" --items items-here
says 'items-here: cannot be written: it names a directory, not a file'
silent
[ ! -e items-here.partial ] || fail 'a journal was begun for a directory'
# Two at once: the second does not touch the first one's lines.
echo 'lines of the first' >both.jsonl.partial
cp both.jsonl.partial before
flock both.jsonl.partial "$SSMSCOPE" eval tiny --task piqa --data "$tasks/piqa.jsonl" --items both.jsonl \
    >out 2>err && fail 'a locked journal was written'
says 'both.jsonl.partial: another process is writing this file'
same both.jsonl.partial before 'a locked journal'
