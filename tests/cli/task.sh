#!/usr/bin/env bash
# task: rows for people and as JSON lines, settings, refusals.
. "$(dirname "$0")/_common.sh"
cd "$scratch"

# --- rows ---------------------------------------------------------------------------------------------
expect 0 task copy letters=1 --show 1 --size 3
prints 'example 0, 3 letters'
prints 'ids     $ a a a | a a a'
prints 'labels  - - - - a a a .'
expect 0 task copy letters=1 --jsonl 1 --size 3
prints '{"ids": [1, 0, 0, 0, 2, 0, 0, 0], "labels": [-1, -1, -1, -1, 0, 0, 0, 3]}'
for name in copy stack-copy sort prefix-ngram suffix-ngram mqar induction-heads selective-copying \
    switched-linear stack_copy; do
    expect 0 task $name --show 2
    prints 'row 1'
    grep -q ' $' out && fail "$name: a line ends in a space"
    expect 0 task $name --jsonl 3
    [ "$(wc -l <out)" -eq 3 ] || fail "$name: not three lines"
    expect 0 task $name
    prints "evaluated at"
    prints "what it is"
done

# A row does not depend on those before it, nor on how it is asked for.
expect 0 task mqar --jsonl 5 --seed 3
cp out all
expect 0 task mqar --jsonl 1 --first 4 --seed 3
tail -n 1 all >last
same out last "row 4"
expect 0 task mqar --jsonl 5 --seed 4
cmp -s out all && fail "another seed gives the same rows"

# --- texts --------------------------------------------------------------------------------------------
printf 'abcdefghij' >text.txt
expect 0 task language text=text.txt held_out=50 length=2 --jsonl 2 --size 2
prints '{"ids": [102, 103], "labels": [103, 104]}'
prints '{"ids": [104, 105], "labels": [105, 106]}'
expect 2 task language text=text.txt held_out=50 length=2 --jsonl 3 --size 2
says 'the texts have 2 examples of 2 tokens'
printf 'good\tfine\nbad\tawful\n' >lines.tsv
expect 0 task classification text=lines.tsv held_out=0 --show 2
grep -q 'label  *good' out || fail 'no label'
prints 'a w f u l'
expect 0 task classification text=lines.tsv --json
prints '"output_width": 2'
expect 0 task switched-linear length=2 width=2 --jsonl 1
prints '"regimes": ['

# --- settings -----------------------------------------------------------------------------------------
expect 0 task copy max=10 --json
prints '"schema": "ssmscope.task/1"'
prints '"max": 10'
prints '"digest": "xxh3-128:'

# --- refusals -----------------------------------------------------------------------------------------
expect 2 task cpoy
says 'unknown task "cpoy"; did you mean copy?'
expect 2 task copy lenght=5
says 'did you mean "length"?'
expect 2 task copy max=0
says 'max is "0"; expected a whole number in 1 … 100000'
expect 2 task copy max
says "'max' is no setting: expected key=value"
expect 2 task copy =5
expect 2 task
expect 2 task copy --show 1 --jsonl 1
expect 2 task copy --show 1 --size 9999999
says 'cannot be evaluated at 9999999 letters'
expect 3 task language text=absent.txt
expect 3 task language text=text.txt length=20
says 'has 10 tokens to train on; a row of length 20 needs 21'
expect 2 task language
printf 'no tab\n' >bad.tsv
expect 3 task classification text=bad.tsv
says 'expected label<TAB>text'
if [ -e /dev/full ]; then
    "$SSMSCOPE" task copy --jsonl 100 >/dev/full 2>err && fail "a full disk is no failure"
    true
fi
