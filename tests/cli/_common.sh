# Shared by the tests of the program: a scratch directory, and `run`, which keeps what a command
# printed in $scratch/out and $scratch/err and its exit status in $code.
set -euo pipefail
scratch=$(mktemp -d)
child= # started by killed_at, and still there
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || true; rm -rf "$scratch"' EXIT
topic=$(basename "$0" .sh)
fail() {
    echo "$topic: $*" >&2
    sed 's/^/  stdout: /' "$scratch/out" 2>/dev/null | tail -n 5 >&2
    sed 's/^/  stderr: /' "$scratch/err" 2>/dev/null | tail -n 5 >&2
    exit 1
}
run() {
    code=0
    "$SSMSCOPE" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
}
# expect STATUS words of the command…
expect() {
    local wanted=$1
    shift
    run "$@"
    [ "$code" -eq "$wanted" ] || fail "ssmscope $*: exit $code, not $wanted"
}
# says WORDS: a line of stderr has them.
says() { grep -qF -- "$1" "$scratch/err" || fail "stderr does not say: $1"; }
# prints WORDS: a line of stdout has them.
prints() { grep -qF -- "$1" "$scratch/out" || fail "stdout does not have: $1"; }
silent() { [ ! -s "$scratch/out" ] || fail "stdout is not empty"; }
same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }
# killed_at COUNT COMMAND WORDS…: runs ssmscope until `steps`, a function of the test, prints COUNT or
# more, then kills it; or until it has ended by itself.
killed_at() {
    local wanted=$1
    shift
    "$SSMSCOPE" "$@" >/dev/null 2>"$scratch/err" &
    child=$!
    while kill -0 "$child" 2>/dev/null && [ "$(steps)" -lt "$wanted" ]; do
        sleep 0.01
    done
    kill -9 "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    child=
}
# A piece of an example text of about BYTES.
piece() { head -c "$2" "$SOURCE_DIR/examples/text/$1.txt"; }
# steps_logged DIRECTORY: lines with a step in the log of a training run there; 0 without a log.
steps_logged() {
    local count
    count=$(grep -c '"step"' "$1/training/log.jsonl" 2>/dev/null) || true
    echo "${count:-0}"
}
