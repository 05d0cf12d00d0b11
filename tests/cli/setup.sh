#!/usr/bin/env bash
# tools/setup.sh where packages are missing: names them, tells somebody who is not root what to run
# as root, runs apt-get for root or with sudo, and touches nothing where everything is there. apt-get,
# dpkg-query, id and sudo are stand-ins.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "setup: $*" >&2; cat "$scratch/out" >&2; exit 1; }
mkdir "$scratch/bin"
for tool in bash grep cat env; do
    ln -s "$(command -v $tool)" "$scratch/bin/$tool"
done
stand_in() { # name, body
    printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
    chmod +x "$scratch/bin/$1"
}
run() { # options of setup.sh
    code=0
    : >"$scratch/calls"
    (cd / && env -i PATH="$scratch/bin" CALLS="$scratch/calls" bash "$SOURCE_DIR/tools/setup.sh" "$@") \
        >"$scratch/out" 2>&1 || code=$?
}
stand_in apt-get 'echo "apt-get $*" >>"$CALLS"'
stand_in dpkg-query 'case "$*" in *libjansson-dev*|*clang-tidy*) exit 1 ;; *) echo install ok installed ;; esac'

stand_in id 'echo 1000'
run
[ $code -eq 1 ] || fail "not root, no sudo: exit $code, not 1"
grep -q 'as root, run' "$scratch/out" || fail "it does not say that root is needed"
grep -qx '  apt-get update && apt-get install libjansson-dev' "$scratch/out" ||
    fail "the command to run is not there, or names a package that is not missing"
[ ! -s "$scratch/calls" ] || fail "it called apt-get without being root"

stand_in sudo 'echo "sudo $*" >>"$CALLS"'
run
[ $code -eq 0 ] || fail "with sudo: exit $code"
grep -q '^sudo .*apt-get install .*libjansson-dev$' "$scratch/calls" || fail "sudo did not install"
rm "$scratch/bin/sudo"

stand_in id 'echo 0'
run --dev
[ $code -eq 0 ] || fail "as root: exit $code"
grep -q '^apt-get install .*libjansson-dev clang-tidy$' "$scratch/calls" || fail "wrong packages"
grep -q libjansson-dev "$scratch/out" || fail "it does not name what it installs"

stand_in dpkg-query 'echo install ok installed'
run
[ $code -eq 0 ] && [ ! -s "$scratch/calls" ] && [ ! -s "$scratch/out" ] || fail "not quiet"

rm "$scratch/bin/dpkg-query"
run
[ $code -eq 0 ] && grep -q libpcre2-dev "$scratch/out" || fail "elsewhere: no list of packages"
run --wrong
[ $code -eq 2 ] || fail "an unknown option gave exit $code"
