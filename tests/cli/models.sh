#!/usr/bin/env bash
# What MODEL may be: a directory, a file, a name in the local Hugging Face cache, tiny. And what info
# and doctor say of a checkpoint that is odd or broken.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
model=$SOURCE_DIR/models/tiny
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME HF_HUB_OFFLINE
export HOME=$scratch/home
digest() { grep -m1 -o '"digest": "[^"]*"' out; }

expect 0 info tiny --json
wanted=$(digest)
expect 0 info "$model" --json
[ "$(digest)" = "$wanted" ] || fail "a directory"
expect 0 info "$model/model.safetensors" --json
[ "$(digest)" = "$wanted" ] || fail "a file"
expect 3 info ./tiny
says './tiny: there is no such model file or directory'

# The cache: refs/main names the commit. Each variable in its order.
fill() { # folder
    local snapshot=$1/models--people--small-mamba
    mkdir -p "$snapshot/refs" "$snapshot/snapshots/0123abcd"
    printf 0123abcd >"$snapshot/refs/main"
    ln -s "$model"/*.json "$model/model.safetensors" "$snapshot/snapshots/0123abcd/"
}
expect 3 info people/small-mamba
says "people/small-mamba: there is no such model file or directory, and the Hugging Face cache $HOME/.cache/huggingface/hub does not have it; to download it: hf download people/small-mamba"
for place in HOME=.cache/huggingface/hub XDG_CACHE_HOME=huggingface/hub HF_HOME=hub HUGGINGFACE_HUB_CACHE=. \
    HF_HUB_CACHE=.; do
    variable=${place%%=*}
    mkdir -p "$scratch/$variable"
    export "$variable=$scratch/$variable"
    expect 3 info people/small-mamba
    fill "$scratch/$variable/${place#*=}"
    expect 0 info people/small-mamba --json
    [ "$(digest)" = "$wanted" ] || fail "the cache of $variable"
    prints '"commit": "0123abcd"'
    prints '"name": "people/small-mamba"'
done
# Revisions: a branch, a pull request, a commit; what is not there, with what is.
cached=$HF_HUB_CACHE/models--people--small-mamba
mkdir -p "$cached/refs/refs/pr"
printf 0123abcd >"$cached/refs/v1.0"
printf 0123abcd >"$cached/refs/refs/pr/3"
for revision in v1.0 refs/pr/3 0123abcd; do
    expect 0 info "people/small-mamba@$revision" --json
    [ "$(digest)" = "$wanted" ] || fail "revision $revision"
    prints '"commit": "0123abcd"'
done
expect 3 info people/small-mamba@v2
says 'has the model, but not its revision v2; it has commit 0123abcd (give people/small-mamba@0123abcd); to download it: hf download people/small-mamba --revision v2'
HF_HUB_OFFLINE=1 run info people/other
says 'HF_HUB_OFFLINE is set, unset it to download it: hf download people/other'
for odd in people/small-mamba@ people/small-mamba@../x people/small-mamba@a//b @main; do
    expect 3 info "$odd"
    says 'there is no such model file or directory'
done
mv "$cached/refs/main" main
expect 3 info people/small-mamba
says 'not its revision main; it has commit 0123abcd'
mv main "$cached/refs/main"
ln -s "$HF_HUB_CACHE" "$HOME/tilde"
HF_HUB_CACHE='~/tilde' expect 0 info people/small-mamba
rm -r "$HF_HUB_CACHE/models--people--small-mamba/snapshots/0123abcd"
expect 3 info people/small-mamba
says 'it names commit 0123abcd, which the cache does not have'
printf '../../..' >"$HF_HUB_CACHE/models--people--small-mamba/refs/main"
expect 3 info people/small-mamba

expect 0 doctor
prints 'kernels for portable'
expect 0 doctor tiny
prints 'every weight is finite'

# A weight that is not finite: found by all that run the model, and named.
mkdir nan
cp "$model"/*.json nan/
cp "$model/model.safetensors" nan/
chmod u+w nan/model.safetensors
size=$(stat -c %s nan/model.safetensors)
printf '\xff\xff\xff\xff' | dd of=nan/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
expect 3 doctor nan
prints problem
grep -qE 'tensor [a-z_.0-9A-Z]+, byte [0-9]+: ' err || fail "doctor does not name tensor and byte: $(cat err)"
expect 3 run nan -p 'It came'
says 'nan/model.safetensors: tensor '
expect 0 info nan

# No tokenizer, another model's tokenizer.
mkdir bare
ln -s "$model/config.json" "$model/model.safetensors" bare/
expect 0 info bare
prints 'none beside the model'
expect 0 doctor bare
prints 'the model runs with --ids only'
mkdir large
printf '{"model_type": "mamba"' >large/config.json
expect 3 info large
printf '{"model_type": "gpt2"}' >large/config.json
expect 3 info large
says 'large/config.json: field model_type: '
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n' >lfs.safetensors
cp "$model/config.json" .
expect 3 info lfs.safetensors
says 'Git LFS'
expect 3 info "$SOURCE_DIR/tests"

expect 0 init --shape tiny -o fresh --dtype bf16 --seed 4
prints 'BF16, seed 4'
expect 2 init --shape tiny -o fresh
expect 0 info fresh --tensors
prints 'backbone.layers.7.mixer.A_log'
expect 0 selftest fresh
grep -q FAILED out && fail "selftest of a fresh model"

# What an error offers exists: trailing bytes, and an index that names a shard too many.
mkdir trailing
cp "$model/config.json" "$model/tokenizer.json" trailing/
{
    cat "$model/model.safetensors"
    printf 'more'
} >trailing/model.safetensors
expect 3 info trailing
says '--lenient'
expect 0 info trailing --lenient
expect 0 run trailing -p 'It came' -n 1 --lenient
sharded="$SOURCE_DIR/tests/golden/hf-tiny/mamba-bf16-sharded"
mkdir stale
cp "$sharded"/*.safetensors "$sharded/config.json" stale/
sed 's/"weight_map": {/"weight_map": {"old.weight": "model-00007-of-00007.safetensors",/' \
    "$sharded/model.safetensors.index.json" >stale/model.safetensors.index.json
expect 3 info stale
says '--ignore-index'
expect 0 info stale --ignore-index
expect 0 doctor stale --ignore-index --json
prints '"digest"'
exit 0

# Layers of attention: a state that grows with the text is saved whole.
expect 0 init --shape tiny-mamba2attn -o hybrid
expect 0 selftest hybrid
prints 'save, go on, restore, go on'
