#!/usr/bin/env bash
# Compiles everything that is neither an x86 variant nor MPI's for aarch64, warnings as errors, into objects that
# nobody links: portable code stays portable. Needs gcc-aarch64-linux-gnu.
set -euo pipefail
cd "$(dirname "$0")/.."
cc=${CROSS_CC:-aarch64-linux-gnu-gcc}
command -v "$cc" >/dev/null || { echo "no $cc: tools/setup.sh --dev installs it" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The headers of the libraries are the same on every processor; only they are borrowed from this
# machine, never its C library.
mkdir "$scratch/include"
for module in jansson libpcre2-8 libutf8proc libxxhash libzip zlib; do
    folder=$(pkg-config --variable=includedir "$module")
    for header in "$folder"/{jansson,pcre2,utf8proc,xxhash,xxh3,zip,zlib,zconf}*.h; do
        [ -f "$header" ] && cp "$header" "$scratch/include/"
    done
done
version=$(sed -n 's/^project(ssmscope VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
flags=(-std=c11 -O1 -ffp-contract=off -fno-math-errno -fPIC -Wall -Wextra -Wconversion -Wshadow
       -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Werror
       -D_GNU_SOURCE "-DSSM_VERSION=\"$version\"" '-DSSM_SOURCE_DATA_DIR="."'
       '-DSSM_INSTALL_DATA_DIR="share"' -Iinclude -isystem "$scratch/include")

find src cli bench -name '*.c' ! -name '*_avx2.c' ! -name '*_avx512.c' ! -name '*_mpi.c' 2>/dev/null | sort \
    >"$scratch/list" || true
compile() {
    local source=$1 object
    shift
    object=$scratch/$(echo "$source" | tr / _).o
    case $source in
        cli/*) "$cc" "$@" -Icli -c "$source" -o "$object" ;;
        *) "$cc" "$@" -Isrc -Icli -Ibench -c "$source" -o "$object" ;;
    esac
}
status=0
running=0
while IFS= read -r source; do
    compile "$source" "${flags[@]}" &
    running=$((running + 1))
    if [ $running -ge "$(nproc)" ]; then
        wait -n || status=1
        running=$((running - 1))
    fi
done <"$scratch/list"
while [ $running -gt 0 ]; do
    wait -n || status=1
    running=$((running - 1))
done
[ $status -eq 0 ] && echo "aarch64: $(wc -l <"$scratch/list") files compile"
exit $status
