#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, and nothing else. Does nothing when
# they are all here. Asks for root plainly where it is not root.
#
#   tools/setup.sh          what `make`, `make demo`, `make test` and `make bench` need
#   tools/setup.sh --dev    also what the full set of checks (.ci/run) needs
#   tools/setup.sh --mpi    also an MPI, for training on several machines (cmake -DSSM_MPI=ON)
set -euo pipefail

packages=(gcc make cmake pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev
          libzip-dev zlib1g-dev libcmocka-dev libopenblas0-pthread)
# The second compiler, its sanitizer and fuzzer runtimes, the two linters, and the ARM compiler that
# shows that portable code is portable.
developer=(git clang clang-format-14 clang-tidy libclang-rt-14-dev gcc-aarch64-linux-gnu
           libc6-dev-arm64-cross)
mpi=(libmpich-dev mpich) # Open MPI does as well

case "${1:-}" in
    "") ;;
    --dev) packages+=("${developer[@]}") ;;
    --mpi) packages+=("${mpi[@]}") ;;
    *) echo "usage: tools/setup.sh [--dev | --mpi]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian system: install what corresponds to these packages yourself:" >&2
    echo "  ${packages[*]}" >&2
    exit 0 # CMake names what is really missing
fi

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep >/dev/null 'ok installed' ||
        missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "ssmscope needs these Debian packages; as root, run:" >&2
        echo "  apt-get update && apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "ssmscope needs these Debian packages: ${missing[*]}" >&2
echo "installing them${as_root[*]:+ with ${as_root[*]}}; this takes a minute or two" >&2
# An out-of-date list of one source must not stop what the others can give; install decides.
"${as_root[@]}" apt-get update -qq || echo "apt-get update failed; trying with the old lists" >&2
# Its many lines are of interest only when it fails.
said=$("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" 2>&1) || {
    echo "$said" >&2
    echo "apt-get install failed; nothing was built" >&2
    exit 1
}
