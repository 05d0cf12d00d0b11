#!/usr/bin/env bash
# `experiment`: arms × settings × seeds; killed and gone on with, the results are the same bytes; what is
# refused. The moments of the kills are lines of logs, not times.
source "$(dirname "$0")/_common.sh"
cd "$scratch"
recipe='{"model": {"d_model": 16, "n_layers": 2, "d_state": 4},
  "task": {"name": "copy", "min": 1, "max": 3, "letters": 3, "length": 24, "evaluate": [2, 4]},
  "batch": {"rows": 2}, "optimiser": {"lr": 0.01, "clip": 0}, "schedule": {"steps": 12},
  "evaluate": {"rows": 8}, "checkpoint": {"every": 5}}'
cat >toy.json <<TOY
{"name": "toy", "about": "Two arms.", "recipe": $recipe,
 "arms": {"default": {}, "mimetic": {"init.mimetic": "all"}}, "grid": {"model.d_model": [16]},
 "seeds": [1, 2], "measures": ["characters", "perplexity"],
 "tune": {"key": "optimiser.lr", "values": [0.003, 0.01], "seeds": [11], "measure": "loss", "size": "2"},
 "summary": {"against": "default"}}
TOY

# --- once from end to end -------------------------------------------------------------------------
expect 0 experiment estimate toy.json -o whole
says '8 runs, 0 of them done; expected:'
[ ! -e whole/runs ] || fail "an estimate trained"
expect 0 experiment run toy.json -o whole --threads 1
says '8 of 8, mimetic,model.d_model=16,seed=2; 2: loss'
prints '8 of 8 runs are done.'
prints '## characters: difference to default, seed by seed'
prints '| default | 16 |'
same whole/results.md "$scratch/out" 'the table'
[ "$(grep -c . whole/results.csv)" -eq 17 ] || fail "results.csv has not 4 runs of 2 measures and 2 sizes"
grep -q '^arm,model.d_model,optimiser.lr,seed,size,measure,value$' whole/results.csv || fail "head of the CSV"
expect 0 experiment run toy.json -o whole --json # done: nothing to do
prints '"schema": "ssmscope.experiment/1"'
says '8 runs, 8 of them done; expected: 0 CPU-hours left'
cp -r whole again
expect 0 experiment run whole/experiment.json -o again # what it stores is the experiment

# --- killed and gone on with ------------------------------------------------------------------------
steps() { # lines with a step in all logs
    local count
    count=$(cat killed/runs/*/training/log.jsonl 2>/dev/null | grep -c '"step"') || true
    echo "${count:-0}"
}
for at in 1 7 40 70; do
    killed_at "$at" experiment run toy.json -o killed --quiet --threads $((at % 2 + 1))
done
expect 0 experiment run toy.json -o killed
for file in results.json results.csv results.md experiment.json; do
    same "whole/$file" "killed/$file" 'killed and gone on with'
done
same whole/runs/mimetic,model.d_model=16,seed=2/model.safetensors \
    killed/runs/mimetic,model.d_model=16,seed=2/model.safetensors 'a run of it'

# --- two processes share one -------------------------------------------------------------------------
"$SSMSCOPE" experiment run toy.json -o shared --quiet >/dev/null 2>"$scratch/err.other" &
child=$!
expect 0 experiment run toy.json -o shared
wait "$child" || fail "the other process failed: $(cat "$scratch/err.other")"
child=
for file in results.json results.csv results.md; do
    same "whole/$file" "shared/$file" 'shared by two processes'
done
[ "$(grep -c . shared/log.jsonl)" -eq 8 ] || fail "the two processes did not share the runs"

# --- a run that is no longer finite is a result -------------------------------------------------------
sed -e 's/"grid": {[^}]*}/"grid": {"optimiser.lr": [0.01, 1000]}, "seeds": [1]/' -e '/"tune"/d' -e 's/ "seeds": \[1, 2\],/ /' toy.json >wild.json
expect 0 experiment run wild.json -o wild
prints 'were no longer finite'
cp wild/results.json before.json
expect 0 experiment run wild.json -o wild
same before.json wild/results.json 'failures are kept'

# --- refusals ---------------------------------------------------------------------------------------
refused() { # status, words, sed expression
    sed -e "$3" toy.json >bad.json
    expect "$1" experiment run bad.json -o refused
    says "$2"
    [ ! -e refused ] || fail "something was written: $2"
}
refused 3 'did you mean "seeds"?' 's/"seeds": \[1/"seedz": [1/'
refused 3 'did you mean "against"?' 's/"against"/"agains"/'
refused 3 'did you mean "default"?' 's/"against": "default"/"against": "defualt"/'
refused 3 'did you mean "strings"?' 's/"perplexity"/"string"/'
refused 3 'did you mean "mimetic"?' 's/init.mimetic/init.mimetik/'
refused 3 'did you mean "d_model"?' 's/model.d_model/model.d_modle/'
refused 3 'run tune,default,model.d_model=16' 's/"steps": 12/"steps": 12, "warmup": 13/'
refused 3 'arms: mimetic: model.d_model is also a key of the grid' 's/"init.mimetic": "all"/"model.d_model": 8/'
refused 3 'seed 11 is also one of the experiment' 's/"seeds": \[1, 2\]/"seeds": [1, 11]/'
refused 3 'value number 2 stands there twice' 's/\[16\]/[16, 16]/'
refused 3 'unknown task "copi"' 's/"copy"/"copi"/'
refused 3 'tune: size "5" is none' 's/"size": "2"/"size": "5"/'
refused 3 'also set by the arm mimetic' 's/"init.mimetic": "all"/"optimiser.lr": 0.1/'
refused 3 'measures: churn_margin needs a probe' 's/"perplexity"/"churn_margin"/'
refused 3 'tune: measure: expected loss' 's/"measure": "loss"/"measure": "probe"/'
refused 3 'evaluate: rows is 0' 's/"rows": 8/"rows": 0/'
refused 3 'mamba2: n_groups 3 does not divide' \
    's/"init.mimetic": "all"/"model.mixer": "mamba2", "model.head_dim": 8, "model.n_groups": 3/'
refused 3 'seeds: expected a list' 's/"seeds": \[1, 2\]/"seeds": [-1]/'
refused 3 'arms: "a b" is no name' 's/"default": {}/"a b": {}/'
printf '{"name": "toy",' >bad.json
expect 3 experiment run bad.json -o refused
says 'not valid JSON'
expect 2 experiment runn toy.json -o refused
says 'did you mean "run"?'
expect 2 experiment run wild.json -o whole
says 'the directory holds another experiment: grid.optimiser.lr is'
says 'tune is null, was'
cp -r whole older # begun by a version without that key
sed -i '/"gate_divisor"/d' older/experiment.json
expect 0 experiment run toy.json -o older
same whole/results.md older/results.md 'begun by an older version'
mkdir other && touch other/file
expect 2 experiment run toy.json -o other
says 'the directory is not empty (file)'

# --- a probe of what was trained ----------------------------------------------------------------------
cat >switched.json <<'SWITCHED'
{"name": "switched", "recipe": {"model": {"d_model": 8, "n_layers": 2, "d_state": 4},
  "task": {"name": "switched-linear", "length": 256, "dwell_min": 40, "dwell_max": 60, "evaluate": [256]},
  "batch": {"rows": 1}, "schedule": {"steps": 3}, "evaluate": {"rows": 2}},
 "arms": {"trained": {}}, "seeds": [1],
 "measures": ["loss", "probe", "churn_margin", "churn_margin_shuffled"],
 "probe": {"rows": 8, "window": 16, "budget": 2}}
SWITCHED
expect 0 experiment run switched.json -o switched
prints '| arm | n | 256 |'
prints '| arm | n | layer 0 | layer 1 |'
rm switched/runs/trained,seed=1/probe.json # killed in between
cp switched/results.json before.json
expect 0 experiment run switched.json -o switched
same before.json switched/results.json 'the probe is made again'
sed -e 's/switched-linear.*"evaluate": \[256\]/copy"/' switched.json >bad.json
expect 2 experiment run bad.json -o unprobed
says 'the task copy has no regimes'
sed -e 's/"loss", "probe"/"strings", "probe"/' switched.json >bad.json
expect 3 experiment run bad.json -o refused
says 'switched-linear has no strings'
sed -e 's/"budget"/"budgets"/' switched.json >bad.json
expect 3 experiment run bad.json -o refused
says 'did you mean "budget"?'
