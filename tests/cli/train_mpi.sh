#!/usr/bin/env bash
# Training over several processes started by a launcher. In a build without MPI: that it is refused,
# instead of training the same model several times. With it (cmake -DSSM_MPI=ON): the bytes of one
# process, killed and resumed with another number of ranks, one error for all.
source "$(dirname "$0")/_common.sh"
cd "$scratch"
cat >recipe.json <<'RECIPE'
{"seed": 3, "model": {"d_model": 24, "n_layers": 2, "d_state": 8, "dropout": 0.1},
 "task": {"name": "copy", "min": 2, "max": 10, "length": 64, "evaluate": [4]},
 "batch": {"rows": 1, "accumulate": 12}, "optimiser": {"lr": 0.01},
 "schedule": {"steps": 40, "warmup": 2}, "evaluate": {"rows": 4, "every": 15},
 "checkpoint": {"every": 3}}
RECIPE
unset OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK

if [ -z "$MPIEXEC" ]; then
    for variable in OMPI_COMM_WORLD_SIZE=2 PMI_SIZE=3 PMIX_RANK=1; do
        export "${variable?}"
        expect 2 train recipe.json -o refused
        says "(${variable%=*}), but this program was built without MPI"
        expect 2 experiment run experiment.json -o refused
        says 'an experiment is the work of one'
        unset "${variable%=*}"
        [ ! -e refused ] || fail "refused, but there is a directory"
    done
    PMI_SIZE=1 expect 0 train recipe.json -o alone --set steps=2
    exit 0
fi

launch=("$MPIEXEC")
if "$MPIEXEC" --version 2>&1 | grep >/dev/null 'Open MPI\|OpenRTE'; then
    launch+=(--oversubscribe --bind-to none)
    [ "$(id -u)" -ne 0 ] || launch+=(--allow-run-as-root)
fi
ranks() { # STATUS COUNT words of the command…
    local wanted=$1 count=$2
    shift 2
    code=0
    "${launch[@]}" -n "$count" "$SSMSCOPE" "$@" --threads 1 >out 2>err </dev/null || code=$?
    [ "$code" -eq "$wanted" ] || fail "$count ranks: ssmscope $*: exit $code, not $wanted"
}
# Without what the clock says.
without_times() { sed -E 's/"(tokens_per_second|seconds)":[0-9.e+-]+,?//g' "$1/training/log.jsonl"; }
same_run() { # DIRECTORY WHAT
    for file in model.safetensors config.json recipe.json training/state.safetensors training/result.json; do
        same "one/$file" "$1/$file" "$2"
    done
    [ "$(without_times one)" = "$(without_times "$1")" ] || fail "$2: the logs differ"
}

expect 0 train recipe.json -o one --threads 1
for count in 1 2 3 4; do
    ranks 0 "$count" train recipe.json -o "ranks$count"
    same_run "ranks$count" "$count ranks"
    [ "$(grep -c 'steps in' out)" -eq 1 ] || fail "$count ranks: rank 0 alone prints"
done

# Rank 1 is killed, and the launcher ends the others; then another number of ranks goes on.
cat >victim <<'VICTIM'
#!/bin/sh
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then echo $$ >victim.pid; fi
exec "$@"
VICTIM
chmod +x victim
"${launch[@]}" -n 2 ./victim "$SSMSCOPE" train recipe.json -o killed --threads 1 >out 2>err </dev/null &
child=$!
while [ "$(steps_logged killed)" -lt 5 ] && kill -0 "$child" 2>/dev/null; do
    sleep 0.02
done
kill -9 "$(cat victim.pid)" 2>/dev/null || true
wait "$child" || true
child=
[ -f killed/training/state.safetensors ] || fail "killed before the first checkpoint"
ranks 2 3 train recipe.json -o killed --resume --set lr=0.02
[ "$(grep -c 'optimiser.lr is 0.02, was 0.01' err)" -eq 1 ] || fail "another recipe: said once"
ranks 0 3 train recipe.json -o killed --resume
same_run killed 'killed at 2 ranks, resumed with 3'

# A signal to one of them: all stop behind the same step, with a checkpoint.
rm -f victim.pid
"${launch[@]}" -n 2 ./victim "$SSMSCOPE" train recipe.json -o stopped --threads 1 >out 2>err </dev/null &
child=$!
while [ "$(steps_logged stopped)" -lt 2 ] && kill -0 "$child" 2>/dev/null; do
    sleep 0.01
done
kill -TERM "$(cat victim.pid)" 2>/dev/null || true
code=0
wait "$child" || code=$?
child=
[ "$code" -eq 130 ] || [ "$code" -eq 0 ] || fail "a signal to rank 1: exit $code"
ranks 0 3 train recipe.json -o stopped --resume
same_run stopped 'stopped at 2 ranks, resumed with 3'

# One error for all.
ranks 2 5 train recipe.json -o five
grep >/dev/null 'batch.accumulate is 12 and there are 5 ranks' err || fail "5 ranks are not refused"
ranks 3 2 train nothing.json -o none
[ "$(grep -c 'nothing.json' err)" -eq 1 ] || fail "one of two says what is wrong"
ranks 0 2 train recipe.json -o grid --set steps=2 --sweep lr=0.01,0.02 --sweep seed=0,1
[ "$(grep -c '0\.0[12]' out)" -ge 4 ] || fail "a sweep over ranks: no table"
