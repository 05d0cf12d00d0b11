#!/usr/bin/env bash
# usage: tools/prepare_text.sh OUTDIR [DEBDIR]
# The training texts of `tiny` (recipes/tiny.json): OUTDIR/{prose,library,commands,math}.txt out of the Debian
# packages below, as of Debian 12. They are fetched with apt-get download, or taken from DEBDIR; nothing
# is installed, no root is needed. Wants dpkg-deb and python3 (standard library alone; the
# program itself never needs Python). About 46 MB of text, 150 MB of room.
set -euo pipefail
packages=(sword-comm-tdavid golang-1.19-src metamath-databases)
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
room=$(mktemp -d "$out/unpacked.XXXXXX")
trap 'rm -rf "$room"' EXIT
if [ $# -ge 2 ]; then
    debs=$(cd "$2" && pwd)
else
    debs=$room
    (cd "$room" && apt-get download "${packages[@]}")
fi
for package in "${packages[@]}"; do
    found=
    for one in "$debs/$package"_*.deb; do
        if [ -e "$one" ]; then found=$one; fi
    done
    [ -n "$found" ] || { echo "$package: no $debs/${package}_*.deb" >&2; exit 1; }
    echo "${found##*/}: sha256 $(sha256sum <"$found" | cut -d' ' -f1)"
    dpkg-deb -x "$found" "$room/root"
done
python3 "$here/tools/prepare_text.py" "$room/root" "$here/examples/text" "$out"
