#!/usr/bin/env bash
# usage: tools/fuzz.sh [SECONDS] [TARGET…]
# Runs the libFuzzer targets (tests/fuzz/fuzz_*.c), each for SECONDS (default 60), two or so at a
# time. Prints executions, coverage and when coverage last grew. A finding stops that target, its
# input is kept under build-fuzz/artifacts/, and the script exits 1.
#
# Seeds are tests/fuzz/corpus/<target>/; what a run learns is kept in build-fuzz/corpus/<target>/ and
# used by the next. CC chooses the clang, JOBS how many targets run at once.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
case $seconds in
    *[!0-9]* | "") echo "usage: tools/fuzz.sh [SECONDS] [TARGET…]" >&2; exit 2 ;;
esac
build=${FUZZ_BUILD:-build-fuzz}
cc=${CC:-clang}
jobs=${JOBS:-$(nproc)}
case $build in
    /*) ;;
    *) build=$PWD/$build ;;
esac

cmake -S . -B "$build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSSM_FUZZ=ON \
    >/dev/null
cmake --build "$build" -j "$jobs" --target fuzzers >/dev/null

if [ $# -gt 0 ]; then
    targets=("$@")
else
    targets=()
    for source in tests/fuzz/fuzz_*.c; do
        [ -f "$source" ] && targets+=("$(basename "$source" .c)")
    done
fi
if [ ${#targets[@]} -eq 0 ]; then
    echo "there is no fuzz target yet"
    exit 0
fi

# Follows one run's output: the moment of each line is only known while it is written.
follow() {
    local line start=$SECONDS cov=0 features=0 grown=0 new=0 now
    while IFS= read -r line; do
        now=$((SECONDS - start))
        if [[ $line =~ cov:\ ([0-9]+)\ ft:\ ([0-9]+) ]]; then
            if [ "${BASH_REMATCH[1]}" -gt "$cov" ]; then
                cov=${BASH_REMATCH[1]}
                grown=$now
            fi
            if [ "${BASH_REMATCH[2]}" -gt "$features" ]; then
                features=${BASH_REMATCH[2]}
                new=$now
            fi
        fi
        printf '%s\n' "$line"
    done
    printf 'follow: cov %s ft %s grown %s new %s end %s\n' "$cov" "$features" "$grown" "$new" \
        "$((SECONDS - start))"
}

run_one() {
    local target=$1 learned=$build/corpus/$1 log=$build/$1.log seeds=tests/fuzz/corpus/$1
    local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
                   -artifact_prefix="$build/artifacts/$target-" -use_value_profile=1)
    local inputs=("$learned")
    mkdir -p "$learned" "$build/artifacts"
    [ -d "$seeds" ] && inputs+=("$seeds")
    [ -f "tests/fuzz/$target.dict" ] && options+=(-dict="tests/fuzz/$target.dict")
    [ -f "tests/fuzz/$target.options" ] && mapfile -t -O "${#options[@]}" options \
        <"tests/fuzz/$target.options"
    [ -x "$build/$target" ] || { echo "$target: no such target" >"$log"; return 1; }
    "$build/$target" "${options[@]}" "${inputs[@]}" 2>&1 | follow >"$log"
}

report() {
    local target=$1 ok=$2 log=$build/$1.log executions last
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" 2>/dev/null | tail -1)
    last=$(sed -n 's/^follow: //p' "$log" 2>/dev/null | tail -1)
    # shellcheck disable=SC2086
    set -- $last
    printf '%-24s %12s executions  cov %6s  ft %7s  last new coverage at %4s s, feature at %4s s, of %4s s  %s\n' \
        "$target" "${executions:-?}" "${2:-?}" "${4:-?}" "${6:-?}" "${8:-?}" "${10:-?}" "$ok"
    if [ "$ok" != ok ]; then
        awk '/ERROR:|runtime error|SUMMARY/ { on = 1 } on && !/^(Shadow|  0x|=>0x)/ { print }
             /SUMMARY/ { exit }' "$log" | head -40
        find "$build/artifacts" -name "$target-*" -newer "$build/started" -printf 'kept: %p\n'
    fi
}

touch "$build/started"
status=0
declare -A owner=()
finish_one() {
    local pid=0 code=0
    wait -n -p pid || code=$?
    if [ $code -eq 0 ]; then
        report "${owner[$pid]}" ok
    else
        report "${owner[$pid]}" FINDING
        status=1
    fi
    unset "owner[$pid]"
}
for target in "${targets[@]}"; do
    run_one "$target" &
    owner[$!]=$target
    [ ${#owner[@]} -lt "$jobs" ] || finish_one
done
while [ ${#owner[@]} -gt 0 ]; do
    finish_one
done
exit $status
