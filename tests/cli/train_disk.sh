#!/usr/bin/env bash
# A full disk at a checkpoint of training: status 1, the file and the cause are named, nothing is
# half-written, and after making room the run resumes to the same bytes.
source "$(dirname "$0")/_small_disk.sh"
source "$(dirname "$0")/_common.sh"
trap 'umount "$scratch/disk" 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"
cat >recipe.json <<'RECIPE'
{"seed": 3, "model": {"d_model": 32, "n_layers": 2, "d_state": 8},
 "task": {"name": "copy", "min": 2, "max": 10, "length": 64, "evaluate": [4]},
 "schedule": {"steps": 6}, "evaluate": {"rows": 4}, "checkpoint": {"every": 2}}
RECIPE
expect 0 train recipe.json -o whole
kilobytes=$(du -sk whole | cut -f 1)
mkdir disk
for percent in 5 30 60 95; do
    size=$((kilobytes * percent / 100))
    umount disk 2>/dev/null || true
    mount -t tmpfs -o "size=$((size < 4 ? 4 : size))k" none disk
    expect 1 train recipe.json -o disk/run
    says 'disk/run'
    grep -qi 'no space left' "$scratch/err" || fail "the cause is not said"
    for file in model.safetensors training/state.safetensors; do
        [ ! -e "disk/run/$file" ] || [ "$(stat -c %s "disk/run/$file")" -eq \
            "$(stat -c %s "whole/$file")" ] || fail "at $percent %: $file is half-written"
    done
    [ -z "$(find disk -name '*.tmp')" ] || fail "at $percent %: a temporary file is left"
    mount -o "remount,size=$((kilobytes * 4 + 64))k" disk
    expect 0 train recipe.json -o disk/run --resume
    same whole/model.safetensors disk/run/model.safetensors "at $percent %: after making room"
    same whole/training/state.safetensors disk/run/training/state.safetensors "at $percent %"
done
