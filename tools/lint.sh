#!/usr/bin/env bash
# usage: tools/lint.sh [BUILD]
# Form and laws: formatting, layers, banned functions, lengths, headers, and, where BUILD holds a
# plain build, the symbols of the library and clang-tidy. Prints every breach, exits 1 on any.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
status=0
step() {
    "$@" || { echo "lint: $* failed" >&2; status=1; }
}

formatter=
for candidate in clang-format-14 clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep >/dev/null 'version 14\.'; then
        formatter=$candidate
        break
    fi
done
format_check() {
    git ls-files '*.c' '*.h' | xargs -r -P "$(nproc)" -n 20 "$formatter" --dry-run -Werror
}
if [ -n "$formatter" ]; then
    step format_check
else
    echo "lint: no clang-format 14: tools/setup.sh --dev installs it" >&2
    status=1
fi
step tools/check_layers.sh
step tools/check_source.sh
step tools/check_headers.sh
if [ -f "$build/libssmscope.a" ]; then
    step tools/check_symbols.sh "$build"
fi
tidy_check() {
    # The bodies of the kernels are the same in every variant: one is enough. A plain build has no MPI.
    git ls-files 'src/*.c' 'cli/*.c' | grep -vE '_(avx2|avx512|mpi)\.c$' |
        xargs -r -P "$(nproc)" -n 3 "$tidy" -p "$build" --quiet 2>/dev/null
}
tidy=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [ -n "$tidy" ] && [ -f "$build/compile_commands.json" ]; then
    step tidy_check
fi
exit $status
