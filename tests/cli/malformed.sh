#!/usr/bin/env bash
# The claim "at least 200 malformed inputs, each with its own message", and the list that every user's
# checkpoint may break: one specific message each.
. "$(dirname "$0")/_common.sh"
[ -x "$BUILD_DIR/tests/test_malformed_checkpoint" ] || { echo "the unit tests are not built"; exit 77; }
"$SOURCE_DIR/tools/malformed_index.sh" "$BUILD_DIR" >"$scratch/index" 2>"$scratch/err" ||
    fail "rules share a name or a message"
tail -n 1 "$scratch/index"
total=$(tail -n 1 "$scratch/index" | awk '{ print $4 }')
[ "${total:-0}" -ge 200 ] || fail "only $total rules"

while IFS='|' read -r what parser rule; do
    grep -qxF "test_$parser: $rule" "$scratch/index" || fail "no case for $what: $rule"
done <<'LIST'
a Git LFS pointer|malformed_safetensors|not a Git LFS pointer
a web page|malformed_safetensors|not a web page
a truncated header|malformed_safetensors|header is whole
truncated data|malformed_safetensors|all data are there
a hole|malformed_safetensors|no hole between
a duplicate key|malformed_safetensors|keys are unique
trailing bytes|malformed_checkpoint|nothing follows the weights
recursive JSON, header|malformed_safetensors|header is not recursive
recursive JSON, config|malformed_config|config is not recursive
recursive JSON, tokenizer|tokenizer_malformed|recursive JSON
huge dimensions|malformed_safetensors|the product of a shape fits
overflowing offsets|malformed_safetensors|the end of a tensor fits
a missing shard|malformed_checkpoint|one shard is missing
a stale index|malformed_checkpoint|stale index, complete files
a stale shard|malformed_checkpoint|index names the wrong shard
a wrong prefix|malformed_checkpoint|the prefix is known
an extra tensor|malformed_checkpoint|no head bias
a misnamed tensor|malformed_checkpoint|misnamed
an absent tensor|malformed_checkpoint|truly absent
a missing conv bias with the flag true|malformed_checkpoint|claimed conv biases are there
a wrong V|malformed_config|vocabulary larger than the rows
a wrong expand|malformed_config|expand without intermediate_size
a tie that is none|malformed_config|a tied head equals the embedding
another family's tensors|malformed_checkpoint|mamba tensors under mamba
a path out of the directory|malformed_checkpoint|shards stay in the directory
LIST
grep -q '^test_malformed_torch_pickle: .*global' "$scratch/index" || fail "no foreign global"
grep -qi 'compressed' "$scratch/index" || fail "no compressed archive"

# The malicious pickle that others hand around, when it is there.
evil=${SSMSCOPE_SHARED:-$SOURCE_DIR/../shared}/data/vectors/neural-api/formats/evil_torch.bin
if [ -f "$evil" ]; then
    mkdir "$scratch/evil"
    cp "$SOURCE_DIR/models/tiny/config.json" "$scratch/evil/"
    cp "$evil" "$scratch/evil/pytorch_model.bin"
    (cd "$scratch/evil" && expect 3 doctor .)
    prints problem
    says 'pytorch_model.bin'
    [ "$(find "$scratch/evil" -type f | wc -l)" -eq 2 ] || fail "the pickle made a file"
fi
exit 0
