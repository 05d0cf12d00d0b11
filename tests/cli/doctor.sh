#!/usr/bin/env bash
# What doctor says, in plain words, of good, odd and broken checkpoints; what it exits with.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
model=$SOURCE_DIR/models/tiny

expect 0 doctor tiny --prompt 'It came to pass in those days'
prints 'every weight is finite'
prints 'nats a token on this text (guessing evenly: 8.318)'
wide=$(LC_ALL=C sed 's/[\x80-\xBF]//g' out | awk 'length($0) > 80 && !/\//')
[ -z "$wide" ] || fail "a wide line: $wide"
expect 2 doctor --prompt x
says '--prompt needs a MODEL'

# A fresh model: it says so, which tokenizer is missing and where it goes; notes do not fail.
expect 0 init --shape mamba-130m -o fresh --dtype bf16
expect 0 doctor fresh
prints 'the model was never trained'
tr '\n' ' ' <out | tr -s ' ' | grep >/dev/null -F 'no fresh/tokenizer.json: the model runs with --ids only until one is put there (by its size the vocabulary is that of EleutherAI/gpt-neox-20b)' ||
    fail 'the wanted tokenizer is not named'
echo '1 2 3' >ids
expect 0 doctor fresh --ids ids
prints 'nats a token'
expect 3 doctor fresh --prompt x
says '--prompt needs'
rm -r fresh

# A tokenizer of another model, and one that is broken: problems, but the model can be used.
mkdir other
ln -s "$model/config.json" "$model/model.safetensors" other/
printf '{"model": {}}' >other/tokenizer.json
expect 5 doctor other
prints 'problem'
says 'doctor: 1 problem'

# What cannot be loaded: the message, what lies there, exit status 3; also as JSON.
mkdir broken
head -c 100000 "$model/model.safetensors" >broken/model.safetensors
cp "$model/config.json" broken/
expect 3 doctor broken
prints 'problem  broken/model.safetensors: '
tr '\n' ' ' <out | tr -s ' ' | grep >/dev/null -F 'the directory holds config.json (' || fail 'no list of files'
expect 3 doctor broken --json
prints '"usable": false'
expect 3 doctor ./nothing
prints 'there is no such model file'
rm broken/config.json
expect 3 doctor broken
prints 'config.json is missing'
exit 0
