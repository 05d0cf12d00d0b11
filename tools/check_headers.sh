#!/usr/bin/env bash
# Every header compiles alone; the public ones in C11 without extensions and as C++ too. Uses $CC
# (default gcc) and, for C++, the first of c++ and clang++ that is there.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
cc=${CC:-gcc}
status=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cxx=()
for candidate in c++ clang++ clang++-14; do
    if command -v "$candidate" >/dev/null; then
        cxx=("$candidate" -std=c++11 -x c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only)
        break
    fi
done
read -ra libraries <<<"$(pkg-config --cflags jansson libpcre2-8 libutf8proc libxxhash libzip zlib)"

public=0
for header in include/ssmscope/*.h; do
    printf '#include <ssmscope/%s>\n' "$(basename "$header")" >"$scratch/one.c"
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -fsyntax-only -Iinclude \
        "$scratch/one.c" || { echo "$header does not stand alone in C11"; status=1; }
    if [ ${#cxx[@]} -gt 0 ]; then
        "${cxx[@]}" -Iinclude "$scratch/one.c" || { echo "$header is not valid C++"; status=1; }
    fi
    public=$((public + 1))
done
[ ${#cxx[@]} -gt 0 ] || echo "note: no C++ compiler; the C++ half was left out"

internal=0
while IFS= read -r header; do
    case $header in
        *_avx2.h) isa=(-mavx2 -mfma -mf16c) ;;
        *_avx512.h) isa=(-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl) ;;
        *) isa=() ;;
    esac
    case $header in
        *_body.h) continue ;; # the text of a kernel, included after a vec_<isa>.h
    esac
    [ "$(uname -m)" = x86_64 ] || [ ${#isa[@]} -eq 0 ] || continue
    printf '#include "%s"\n' "${header#src/}" >"$scratch/one.c"
    "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only \
        "${isa[@]}" "${libraries[@]}" -Iinclude -Isrc "$scratch/one.c" ||
        { echo "$header does not stand alone"; status=1; }
    internal=$((internal + 1))
done < <(find src -name '*.h' | sort)
[ $status -eq 0 ] && echo "headers: $public public and $internal internal ones stand alone"
exit $status
