#!/usr/bin/env bash
# A full disk, a read-only directory, a full stdout: status 1, a message that names the file, nothing
# half-written, and after making room the recording resumes to the same bytes.
set -euo pipefail
source "$(dirname "$0")/_small_disk.sh"
scratch=$(mktemp -d)
trap 'umount "$scratch/disk" 2>/dev/null || true; rm -rf "$scratch"' EXIT
fail() { echo "disk_full: $*" >&2; exit 1; }
text=$SOURCE_DIR/examples/text
arguments=(record tiny "prose=$text/prose.txt" --window 64 --calibration-windows 2
           --evaluation-windows 2 --quiet)
"$SSMSCOPE" "${arguments[@]}" -o "$scratch/whole" >/dev/null
(cd "$scratch/whole" && find . -type f | sort) >"$scratch/files"
kilobytes=$(du -sk "$scratch/whole" | cut -f 1)

mkdir "$scratch/disk"
disk() { # size in KiB
    umount "$scratch/disk" 2>/dev/null || true
    mount -t tmpfs -o "size=${1}k" none "$scratch/disk"
}
# command…: must end with status 1 and name the file (or its directory) and the cause.
refused() { # cause, command…
    local cause=$1 code=0
    shift
    "$@" >"$scratch/stdout" 2>"$scratch/stderr" || code=$?
    [ $code -eq 1 ] || fail "$*: status $code, not 1: $(cat "$scratch/stderr")"
    grep -q "$scratch/disk" "$scratch/stderr" || fail "no file is named: $(cat "$scratch/stderr")"
    grep -qi "$cause" "$scratch/stderr" || fail "the cause is not said: $(cat "$scratch/stderr")"
}

# --- full, at every stage: from no room at all to almost enough -------------------------------------
for percent in 0 10 40 70 90; do
    size=$((kilobytes * percent / 100))
    disk $((size < 4 ? 4 : size))
    refused 'no space left' "$SSMSCOPE" "${arguments[@]}" -o "$scratch/disk/rec"
    # What has a final name is whole; what has not is not left behind.
    (cd "$scratch/disk" && find . -type f -path './rec/*') >"$scratch/left" || true
    while IFS= read -r file; do
        name=${file#./rec/}
        if [ -f "$scratch/whole/$name" ]; then
            cmp -s "$scratch/whole/$name" "$scratch/disk/rec/$name" ||
                fail "at $percent %: $name is half-written"
        elif [[ $name == *tmp* || $name == *XXXX* || $name == .* ]]; then
            fail "at $percent %: a temporary file is left behind: $name"
        fi
    done <"$scratch/left"
    mount -o remount,size=$((kilobytes * 4))k "$scratch/disk"
    "$SSMSCOPE" "${arguments[@]}" -o "$scratch/disk/rec" --resume >/dev/null ||
        fail "at $percent %: no resuming after making room"
    diff -r "$scratch/whole" "$scratch/disk/rec" >"$scratch/difference" 2>&1 ||
        fail "at $percent %, resumed: $(head -5 "$scratch/difference")"
done

# --- other writers ----------------------------------------------------------------------------------
disk 4
refused 'no space left' "$SSMSCOPE" run tiny --prompt "In the beginning" -n 1 --quiet \
    --logits "$scratch/disk/logits.safetensors"
refused 'no space left' "$SSMSCOPE" select "$scratch/whole" --rule static --budget 8 \
    -o "$scratch/disk/mask.safetensors"
[ -z "$(ls -A "$scratch/disk")" ] || fail "left behind on a full disk: $(ls -A "$scratch/disk")"

# --- read-only --------------------------------------------------------------------------------------
disk 4096
mkdir "$scratch/disk/rec"
mount -o remount,ro "$scratch/disk"
refused 'read-only' "$SSMSCOPE" "${arguments[@]}" -o "$scratch/disk/new"
refused 'read-only' "$SSMSCOPE" run tiny --prompt "In the beginning" -n 1 --quiet \
    --logits "$scratch/disk/logits.safetensors"

# --- stdout is a full disk --------------------------------------------------------------------------
for command in "info tiny --json" "info tiny" "metrics $scratch/whole --json" "--help" "info --help"; do
    code=0
    # shellcheck disable=SC2086
    "$SSMSCOPE" $command >/dev/full 2>"$scratch/stderr" || code=$?
    [ $code -eq 1 ] || fail "ssmscope $command into a full stdout gave status $code, not 1"
    grep -q 'standard output' "$scratch/stderr" || fail "ssmscope $command: lost output goes unsaid"
done
