#!/usr/bin/env bash
# A recording that was killed, at any moment and as often as you like, resumes to the bytes of one that
# was never stopped; and until then every file that has its final name is whole.
# The moments are file counts, not times: a run is killed as soon as it has made one more file visible.
set -euo pipefail
scratch=$(mktemp -d)
child=
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || true; rm -rf "$scratch"' EXIT
fail() { echo "resume: $*" >&2; exit 1; }
text=$SOURCE_DIR/examples/text
arguments=(record tiny "prose=$text/prose.txt" "math=$text/math.txt" --window 96
           --calibration-windows 3 --evaluation-windows 2 --quiet)

"$SSMSCOPE" "${arguments[@]}" -o "$scratch/whole" --threads 1 >/dev/null || fail "the plain run failed"
(cd "$scratch/whole" && find . -type f | sort) >"$scratch/files"
[ "$(wc -l <"$scratch/files")" -ge 8 ] || fail "too few files to stop between"

same() { # directory
    diff -r "$scratch/whole" "$1" >"$scratch/difference" 2>&1 ||
        fail "$2: $(head -5 "$scratch/difference")"
}
# A final name with other bytes than it will have in the end is a half-written file. Sums that are
# still growing and temporary files have other names than a finished recording's.
final_names_are_whole() { # directory, when
    local file
    while IFS= read -r file; do
        [ ! -f "$1/$file" ] || cmp -s "$scratch/whole/$file" "$1/$file" ||
            fail "$2: $file is there and is not whole"
    done <"$scratch/files"
}
visible() { # directory: how many of the finished recording's files are there
    local file count=0
    while IFS= read -r file; do
        [ ! -f "$1/$file" ] || count=$((count + 1))
    done <"$scratch/files"
    echo $count
}
# Runs until `count` final files are there, then sends the signal. Status 0: it had ended by itself.
stopped_at() { # signal, count, directory, options…
    local signal=$1 count=$2 directory=$3 code=0
    shift 3
    "$SSMSCOPE" "${arguments[@]}" -o "$directory" "$@" >/dev/null 2>"$scratch/stderr" &
    child=$!
    while kill -0 $child 2>/dev/null && [ "$(visible "$directory")" -lt "$count" ]; do
        sleep 0.002
    done
    kill -"$signal" $child 2>/dev/null || true
    wait $child 2>/dev/null || code=$?
    child=
    case $code in
        0 | 137) ;;
        130) [ "$signal" = INT ] || fail "ended with 130 without an interrupt" ;;
        *) fail "ended with $code: $(cat "$scratch/stderr")" ;;
    esac
    return $code
}

# 1. Killed after every single file, resumed, killed again …: a chain, the thread count changing.
chain=$scratch/chain
kills=0
for ((round = 0; round < 200; round++)); do
    options=(--threads $((1 + round % 3)))
    [ $round -eq 0 ] || options+=(--resume)
    if stopped_at KILL $(($(visible "$chain") + 1)) "$chain" "${options[@]}"; then
        break
    fi
    kills=$((kills + 1))
    final_names_are_whole "$chain" "after kill $kills"
done
[ $round -lt 200 ] || fail "200 resumed runs did not finish it"
same "$chain" "killed $kills times"

# 2. Killed once, early, in the middle and late; finished in one run.
for count in 1 3 6; do
    directory=$scratch/once-$count
    stopped_at KILL $count "$directory" || true
    final_names_are_whole "$directory" "killed at $count files"
    "$SSMSCOPE" "${arguments[@]}" -o "$directory" --resume >/dev/null || fail "resume at $count failed"
    same "$directory" "killed at $count files"
done

# 3. Interrupted politely: status 130 (or done), and the same bytes afterwards.
stopped_at INT 4 "$scratch/interrupted" || true
"$SSMSCOPE" "${arguments[@]}" -o "$scratch/interrupted" --resume >/dev/null || fail "resume after INT"
same "$scratch/interrupted" "interrupted"

# 4. Resuming what is finished changes nothing; another plan is refused; so is an existing directory
#    without --resume. Neither touches a byte.
"$SSMSCOPE" "${arguments[@]}" -o "$chain" --resume >/dev/null || fail "resuming a finished one failed"
same "$chain" "resumed when finished"
code=0
"$SSMSCOPE" "${arguments[@]}" -o "$chain" >/dev/null 2>"$scratch/stderr" || code=$?
[ $code -eq 2 ] || fail "an existing directory without --resume gave status $code, not 2"
code=0
"$SSMSCOPE" record tiny "prose=$text/prose.txt" --window 64 --calibration-windows 1 \
    --evaluation-windows 1 --quiet -o "$chain" --resume >/dev/null 2>"$scratch/stderr" || code=$?
[ $code -eq 2 ] || fail "resuming another plan gave status $code, not 2"
same "$chain" "after refusals"

# 5. A damaged window is named, not silently kept or made again.
window=$(grep -v calibration "$scratch/files" | grep safetensors | grep -v model | sed -n 2p)
cp -r "$chain" "$scratch/damaged"
truncate -s -1 "$scratch/damaged/$window"
code=0
"$SSMSCOPE" "${arguments[@]}" -o "$scratch/damaged" --resume >/dev/null 2>"$scratch/stderr" || code=$?
[ $code -eq 3 ] || fail "a damaged window gave status $code, not 3"
grep -q "$(basename "$window")" "$scratch/stderr" || fail "the damaged window is not named"
echo "killed $kills times in the chain; $(wc -l <"$scratch/files") files the same"
