#!/usr/bin/env bash
# run: the same text and the same files for any chunk, number of threads and instruction set; seeds;
# ids without a tokenizer; files of logits and hidden states.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
model=$SOURCE_DIR/models/tiny

expect 0 run tiny -p 'It came to pass' -n 12
says 'generated: 12 tokens'
cp out text
for options in '--threads 1' '--threads 3' '--chunk 1' '--chunk 3 --threads 8'; do
    # shellcheck disable=SC2086
    expect 0 run tiny -p 'It came to pass' -n 12 --quiet $options
    same out text "run with $options"
    [ ! -s err ] || fail "--quiet is not quiet"
done
expect 0 run "$model/model.safetensors" --prompt='It came to pass' -n12 -q
same out text "the model given by its file"

# Drawing: the seed decides, and greedy is what a single candidate gives.
expect 0 run tiny -p 'It came to pass' -n 12 -q --temperature 1.3 --seed 5
cp out five
expect 0 run tiny -p 'It came to pass' -n 12 -q --temperature 1.3 --seed 5 --threads 1
same out five "the same seed"
expect 0 run tiny -p 'It came to pass' -n 12 -q --temperature 1.3 --seed 6
cmp -s out five && fail "another seed gave the same text"
expect 0 run tiny -p 'It came to pass' -n 12 -q --temperature 1.3 --seed 6 --top-k 1
same out text "--top-k 1"

# Ids in, ids out; a model without tokenizer.
mkdir bare
ln -s "$model/config.json" "$model/model.safetensors" bare/
echo '17 42 1000' >ids
expect 0 run bare --ids ids -n 4 -q
grep -qxE '[0-9]+ [0-9]+ [0-9]+ [0-9]+' out || fail "not four ids: $(cat out)"
cp out new.ids
expect 0 run tiny --ids ids -n 4 -q
same out new.ids "ids with a tokenizer beside the model"
# Rows beyond the vocab_size of config.json are padding: without a tokenizer they are not drawn either.
expect 0 init --shape tiny-mamba2 -o padded -q
sed -i 's/"vocab_size": 512/"vocab_size": 100/; s/"eos_token_id": 0/"eos_token_id": null/' padded/config.json
echo '1 2 3' >few.ids
expect 0 run padded --ids few.ids -n 200 --temperature 10 --seed 1 -q
[ "$(wc -w <out)" -eq 200 ] || fail "not 200 ids"
[ "$(tr ' ' '\n' <out | sort -n | tail -n 1)" -lt 100 ] || fail "a row of padding was drawn"
expect 3 run bare -p 'It came'
says 'bare/tokenizer.json: text needs this file and it is not there'
expect 2 run tiny --ids "$SOURCE_DIR/tests/cli/_common.sh" -n 0 --nonsense
echo '17 5000' >wrong.ids
expect 3 run tiny --ids wrong.ids
says 'wrong.ids: id 5000 (number 2 of the file) is outside the vocabulary of 4096 ids'

# Files. Nothing is generated, so nothing is printed.
piece math 1200 >math.txt
expect 0 run tiny --text math.txt --logits one.logits --hidden one.hidden -q
silent
expect 0 run tiny --text math.txt --logits two.logits --hidden two.hidden -q --chunk 7 --threads 3
same one.logits two.logits "logits in chunks of 7"
same one.hidden two.hidden "hidden states in chunks of 7"
# The portable kernels are slow where the compiler may not use the processor's FMA: a few tokens.
expect 0 run tiny -p 'It came' -n 2 --logits fast.logits --hidden fast.hidden -q
cp out fast
expect 0 run tiny -p 'It came' -n 2 --logits slow.logits --hidden slow.hidden -q --isa portable
same out fast "text of portable kernels"
same fast.logits slow.logits "logits of portable kernels"
same fast.hidden slow.hidden "hidden states of portable kernels"
tokens=$("$SSMSCOPE" tokenize tiny math.txt | wc -w)
header() { head -c 4000 "$1" | tr -d '\0' | grep -aoE '"[a-z.0-9]+":\{"dtype":"[A-Z0-9]+","shape":\[[0-9]+,[0-9]+\]' || true; }
header one.logits | grep >/dev/null -F "\"logits\":{\"dtype\":\"F32\",\"shape\":[$tokens,4096]" ||
    fail "shape of the logits: $(header one.logits)"
[ "$(header one.hidden | grep -cF "[$tokens,192]")" -eq 9 ] || fail "not 9 hidden states"
expect 0 run tiny --ids ids --logits three.logits --hidden three.hidden --reference -q
header three.logits | grep >/dev/null -F '"dtype":"F64","shape":[3,4096]' || fail "--reference is not F64"
expect 1 run tiny --ids ids --logits "$scratch/no/such/folder/file"

# A state in a file: what follows has the bits of a run that never stopped, whatever stands in the
# layers; new tokens are part of it.
expect 0 init --shape tiny-mamba2attn -o hybrid -q
seq 1 40 >first.ids
seq 41 70 >second.ids
cat first.ids second.ids >both.ids
for what in tiny hybrid; do
    expect 0 run "$what" --ids first.ids --exact-chunks --state-out first.state -q
    silent
    expect 0 run "$what" --ids second.ids --exact-chunks --state-in first.state --state-out late.state \
        --hidden late.hidden -n 5 -q
    cp out late
    expect 0 run "$what" --ids both.ids --exact-chunks --state-out whole.state -n 5 -q
    same out late "$what: new tokens behind a state"
    data=$(($(stat -c %s whole.state) - 1024)) # the headers differ: they name the command
    cmp -s <(tail -c $data late.state) <(tail -c $data whole.state) ||
        fail "$what: the state of a run in two parts"
    [ "$(header late.hidden | grep -cF '[30,')" -ge 5 ] || fail "$what: hidden states behind a state"
done
expect 3 run tiny --ids ids --state-in first.state
says 'first.state: the state is of model xxh3-128:'
expect 3 run tiny --ids ids --state-in one.logits
says 'one.logits: the file has no state U8'
head -c 3000 first.state >cut.state
expect 3 run hybrid --ids few.ids --state-in cut.state
says 'cut.state'
expect 2 run tiny --ids ids --state-in first.state --reference --logits x
says 'state-in'

# A special token in a text that is not trusted stays text.
expect 0 run tiny -p '<|endoftext|>' -n 0 --json
prints '"prompt_tokens": 1'
expect 0 run tiny -p '<|endoftext|>' -n 0 --json --special text
grep -qE '"prompt_tokens": ([2-9]|1[0-9])' out || fail "--special text made one token"

# End of standard output.
code=0
"$SSMSCOPE" run tiny -p 'It came' -n 3 -q >/dev/full 2>err || code=$?
[ $code -eq 1 ] || fail "a full disk gave exit $code"
says 'cannot write standard output'
