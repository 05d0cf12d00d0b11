#!/usr/bin/env bash
# A run of training that is killed, again and again, resumes to the bytes of one that was never stopped.
# The moments are lines of the log, not times.
source "$(dirname "$0")/_common.sh"
cd "$scratch"
cat >recipe.json <<'RECIPE'
{"seed": 3, "model": {"d_model": 24, "n_layers": 2, "d_state": 8, "dropout": 0.1},
 "task": {"name": "copy", "min": 2, "max": 10, "length": 64, "evaluate": [4]},
 "batch": {"rows": 4, "accumulate": 2}, "optimiser": {"lr": 0.01},
 "schedule": {"steps": 40, "warmup": 2}, "evaluate": {"rows": 4, "every": 9},
 "checkpoint": {"every": 3}}
RECIPE
expect 0 train recipe.json -o whole --threads 1

steps() { steps_logged killed; }
for at in 1 4 5 11 17 23 29 36; do
    killed_at "$at" train recipe.json -o killed --quiet --resume --threads $((at % 3 + 1))
done
printf '{"step":39,"lo' >>killed/training/log.jsonl # a line that was cut short
expect 0 train recipe.json -o killed --resume
for file in model.safetensors config.json recipe.json training/state.safetensors training/result.json; do
    same "whole/$file" "killed/$file" 'killed and resumed'
done
# The same lines, but for what the clock says.
without_times() { sed -E 's/"(tokens_per_second|seconds)":[0-9.e+-]+,?//g' "$1/training/log.jsonl"; }
[ "$(without_times whole)" = "$(without_times killed)" ] || fail "the logs differ"
left=$(find killed -name '*.tmp' | wc -l)
[ "$left" -le 8 ] || fail "$left temporary files"

# Interrupted: a checkpoint is written, status 130.
"$SSMSCOPE" train recipe.json -o stopped >/dev/null 2>"$scratch/err" &
child=$!
while [ "$(steps_logged stopped)" -lt 2 ] && kill -0 "$child" 2>/dev/null; do
    sleep 0.01
done
kill -INT "$child" 2>/dev/null || true
code=0
wait "$child" || code=$?
child=
[ "$code" -eq 130 ] || [ "$code" -eq 0 ] || fail "interrupted: exit $code"
expect 0 train recipe.json -o stopped --resume
same whole/model.safetensors stopped/model.safetensors 'interrupted and resumed'
