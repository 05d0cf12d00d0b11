#!/usr/bin/env bash
# convert: the same model in every layout, nothing half-written, what cannot be held is refused.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
vectors=$SOURCE_DIR/tests/golden/hf-tiny
digest_of() { "$SSMSCOPE" info "$1" --json | grep -o 'xxh3-128:[0-9a-f]*' | head -n 1; }

# --- there and back -----------------------------------------------------------------------------------
tiny=$(digest_of tiny)
expect 0 convert tiny --to original -o original
prints "original: original layout, torch"
prints "$tiny, as before"
[ -f original/pytorch_model.bin ] && [ -f original/tokenizer.json ] || fail "a file is missing"
expect 0 convert original --to hf --shard-size 1000000 -o back
prints "$tiny, as before"
[ -f back/model.safetensors.index.json ] || fail "no index"
expect 0 run original --prompt 'Once upon a time' -n 5
cp out first
expect 0 run back/model.safetensors.index.json --prompt 'Once upon a time' -n 5
same out first "the converted model says something else"
expect 0 run original/pytorch_model.bin --prompt 'Once upon a time' -n 5
same out first "the file alone says something else"

# --- a torch file that is not what its checksums say ----------------------------------------------------
cp -r original damaged
size=$(stat -c %s damaged/pytorch_model.bin)
printf '\125\252' | dd of=damaged/pytorch_model.bin oflag=seek_bytes seek=$((size / 3)) conv=notrunc status=none
expect 0 info damaged
expect 5 doctor damaged
prints 'problem  damaged/pytorch_model.bin: '
expect 3 convert damaged --to hf -o laundered
says 'the file is damaged; download it again'
[ ! -e laundered ] || fail "damaged weights were converted"

# --- JSON, dtypes -------------------------------------------------------------------------------------
expect 0 convert "$vectors/mamba2-g4-limit" --to hf --dtype f32 --format bin -o wide --json
prints '"same_digest": false'
says 'transformers norms the whole width where the original has 4 groups'
[ -f wide/pytorch_model.bin ] || fail "no torch file"
expect 0 convert wide --to original --dtype bf16 -o narrow

# --- refusals -----------------------------------------------------------------------------------------
expect 2 convert "$vectors/falcon" --to original -o falcon
says 'it has no word for norms of dt, B and C (Falcon-Mamba)'
expect 2 convert tiny --to hf -o original
says 'the directory is not empty'
expect 2 convert tiny -o x
says '--to'
expect 3 convert absent --to hf -o x
[ ! -e falcon ] && [ ! -e x ] && [ -z "$(find . -name '*.part*')" ] || fail "something was left"

# --- interruption -------------------------------------------------------------------------------------
# A file a tensor, each of them synced: time enough to be stopped.
"$SSMSCOPE" convert tiny --to hf --shard-size 1 -o stopped >out 2>err &
pid=$!
while kill -0 $pid 2>/dev/null && [ -z "$(find . -name 'stopped.part*')" ]; do
    sleep 0.01
done
kill -INT $pid 2>/dev/null || true
kill -TERM $pid 2>/dev/null || true
code=0
wait $pid 2>/dev/null || code=$?
if [ $code -ne 0 ]; then
    [ $code -eq 130 ] || fail "SIGTERM gave exit $code, not 130"
    [ ! -e stopped ] && [ -z "$(find . -name '*.part*')" ] || fail "the interrupted conversion left files"
fi
