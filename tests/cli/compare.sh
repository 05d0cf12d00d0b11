#!/usr/bin/env bash
# Two models, a model and a file, a model and its reference: what is said, and the exit status.
. "$(dirname "$0")/_common.sh"
cd "$scratch"

expect 0 compare tiny tiny
prints 'weights: 83, of which 83 have the same bits'
prints 'The most probable token is the same at 32 of 32 positions.'
expect 0 compare tiny --reference -p 'It came'

# One seed in two dtypes: nothing but rounding. Another seed: another model.
"$SSMSCOPE" init --shape tiny -o f32 --seed 4 >/dev/null
"$SSMSCOPE" init --shape tiny -o bf16 --seed 4 --dtype bf16 >/dev/null
"$SSMSCOPE" init --shape tiny -o other --seed 5 >/dev/null
expect 0 compare f32 bf16
prints 'the same but for rounding'
prints 'tolerance 0.0312'
expect 5 compare f32 bf16 --tolerance 1e-5
says 'the two diverge, first at embedding (token '
expect 5 compare f32 other --json
says 'first at embedding'
prints '"schema": "ssmscope.compare/1"'

# A number changed inside a layer: the layer, its tap, and the place in the tensor.
cp -r f32 changed
header=$(od -An -tu8 -N8 f32/model.safetensors)
begin=$(head -c $((8 + header)) f32/model.safetensors | grep -ao '"backbone.layers.3.mixer.D":{[^}]*}' |
    sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\0\0\200\300' | dd of=changed/model.safetensors bs=1 seek=$((8 + header + begin)) \
    conv=notrunc status=none
expect 5 compare f32 changed
prints '82 have the same bits, 1 differ'
prints 'layers.3.mixer.D'
prints 'inside layer 3'
says 'first at layer 3, tap blocks.3.mixer.hook_ssm_out (token '
expect 0 compare f32 changed --tolerance 2

# What run writes is compared with by itself; the logits may stand in a file of their own.
expect 0 run tiny -p 'It came to pass' -n 0 --hidden hidden.safetensors --logits logits.safetensors
expect 0 compare tiny --hidden hidden.safetensors --logits logits.safetensors --tolerance 1e-30
prints 'logits '
expect 0 compare tiny --hidden logits.safetensors
expect 0 run tiny -p 'It came to pass' --reference --hidden reference.safetensors
expect 0 compare tiny --hidden reference.safetensors
expect 0 compare tiny --hidden reference.safetensors --reference --tolerance 1e-30
expect 5 compare f32 --hidden reference.safetensors
says 'the two diverge, first at embedding'

golden="$SOURCE_DIR/tests/golden/hf-tiny/mamba-tied"
expect 0 compare "$golden" --hidden "$golden/expect/expected.safetensors" --sequence 1 --tolerance 2e-6
for folder in "$SOURCE_DIR"/tests/golden/hf-tiny/*/; do
    groups=0
    case $folder in *mamba2-g4*) groups=1 ;; esac # transformers norms over the full width
    for sequence in 0 1; do
        expect 0 compare "$folder" --hidden "$folder/expect/expected.safetensors" \
            --sequence $sequence --norm-groups $groups --tolerance 2e-6
        expect 0 compare "$folder" --hidden "$folder/expect/expected.safetensors" \
            --sequence $sequence --norm-groups $groups --reference --tolerance 1e-12
    done
done
expect 5 compare "$SOURCE_DIR/tests/golden/hf-tiny/mamba2-g4-limit" \
    --hidden "$SOURCE_DIR/tests/golden/hf-tiny/mamba2-g4-limit/expect/expected.safetensors" --sequence 0
expect 2 info tiny --norm-groups 2
expect 3 compare "$golden" --hidden "$golden/expect/expected.safetensors"
says '--sequence 0'
# Where a layer's taps have other widths, their numbers are not compared, and it says so.
"$SSMSCOPE" init --shape tiny-mamba2 -o heads >/dev/null
"$SSMSCOPE" init --shape tiny-falcon-mamba -o channels >/dev/null
expect 5 compare heads channels
says 'first at layer 0, tap blocks.0.mixer.in_proj.hook_out, which is 392 wide in A and 256 in B; behind'
expect 5 compare tiny "$golden"
prints 'd_model: 192 in A, '
prints 'Not run: '
expect 3 compare tiny --hidden missing.safetensors
expect 2 compare tiny
says 'nothing to compare with'
expect 2 compare tiny tiny --hidden hidden.safetensors
expect 2 compare tiny tiny --sequence 0
says '--sequence belongs to --hidden'
echo '1 2 99999' >ids
expect 2 compare tiny tiny --ids ids
says 'id 99999 (number 3)'
exit 0
