#!/usr/bin/env bash
# `cmake --install` gives a tree that works from anywhere: a C program built through pkg-config
# against it, shared and static; the program with its built-in model; nothing outside the prefix.
set -euo pipefail
if [ -n "${SSM_SANITIZE:-}" ]; then
    echo "skipped: a sanitizer build is not installed"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "install: $*" >&2; exit 1; }
cc=${CC:-gcc}

prefix=$scratch/prefix
cmake --install "$BUILD_DIR" --prefix "$prefix" >/dev/null
find "$prefix" -type f -o -type l | sed "s|^$prefix/||" | sort >"$scratch/list"
for wanted in 'include/ssmscope/ssmscope\.h' 'include/ssmscope/base\.h' 'lib[^ ]*/libssmscope\.a' \
    'lib[^ ]*/libssmscope\.so' 'lib[^ ]*/libssmscope\.so\.0' 'lib[^ ]*/pkgconfig/ssmscope\.pc'; do
    grep -qxE "$wanted" "$scratch/list" || fail "no $wanted in the installed tree"
done
# The headers are the public ones, all of them and nothing else.
(cd "$SOURCE_DIR/include/ssmscope" && ls ./*.h) >"$scratch/headers.source"
(cd "$prefix/include/ssmscope" && ls ./*) >"$scratch/headers.installed"
cmp -s "$scratch/headers.source" "$scratch/headers.installed" || fail "the installed headers differ"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ssmscope.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
version=$(sed -n 's/^project(ssmscope VERSION \([0-9.]*\).*/\1/p' "$SOURCE_DIR/CMakeLists.txt")
[ "$(pkg-config --modversion ssmscope)" = "$version" ] || fail "ssmscope.pc has another version"
pkg-config --print-requires ssmscope | grep >/dev/null . && fail "a shared link needs nothing but ssmscope"
[ "$(pkg-config --cflags ssmscope | tr " " "\n" | grep -c "^-D")" -eq 0 ] ||
    fail "ssmscope.pc passes on definitions: $(pkg-config --cflags ssmscope)"
pkg-config --static --libs ssmscope | grep >/dev/null -- -lutf8proc || fail "libutf8proc is missing"
for module in jansson libpcre2-8 libxxhash libzip zlib; do
    pkg-config --print-requires-private ssmscope | grep >/dev/null "^$module" || fail "$module is missing"
done

cat >"$scratch/user.c" <<'PROGRAM'
#include <ssmscope/ssmscope.h>
#include <stdio.h>
#include <string.h>

/* Uses the error record and, through it, the loader: a missing file is status 3 and is named. */
int main(int argc, char **argv)
{
    ssm_error err;
    ssm_checkpoint *checkpoint = NULL;
    ssm_error_clear(&err);
    if (argc > 1) {
        if (ssm_checkpoint_open(argv[1], NULL, &checkpoint, &err) != SSM_STATUS_OK) {
            fprintf(stderr, "%s: %s\n", err.file, err.message);
            return (int)err.status;
        }
        ssm_checkpoint_close(checkpoint);
    }
    printf("%s\n", ssm_version());
    return strcmp(ssm_version(), VERSION) != 0;
}
PROGRAM
warnings=(-std=c11 -Wall -Wextra -Wpedantic -Werror "-DVERSION=\"$version\"")
read -ra cflags <<<"$(pkg-config --cflags ssmscope)"
read -ra shared <<<"$(pkg-config --libs ssmscope)"
read -ra private <<<"$(pkg-config --static --libs ssmscope)"

"$cc" "${warnings[@]}" "${cflags[@]}" "$scratch/user.c" -o "$scratch/user-shared" "${shared[@]}"
ldd "$scratch/user-shared" | grep >/dev/null 'libssmscope\.so\.0' || fail "not linked to libssmscope.so.0"
LD_LIBRARY_PATH=$libdir "$scratch/user-shared" >/dev/null || fail "the shared program failed"

# Static: the same flags, but this library out of its archive.
"$cc" "${warnings[@]}" "${cflags[@]}" "$scratch/user.c" -o "$scratch/user-static" \
    "${private[@]/#-lssmscope/-l:libssmscope.a}"
ldd "$scratch/user-static" | grep >/dev/null libssmscope && fail "the static program needs libssmscope.so"
"$scratch/user-static" >/dev/null || fail "the static program failed"

code=0
"$scratch/user-static" "$scratch/none" 2>"$scratch/stderr" || code=$?
[ $code -eq 3 ] || fail "a missing checkpoint gave status $code, not 3"
grep -q none "$scratch/stderr" || fail "the message does not name the missing file"

# The example of the sources, built against the installed tree, does the whole chain.
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "${cflags[@]}" "$SOURCE_DIR/examples/measure.c" \
    -o "$scratch/measure" "${shared[@]}"
LD_LIBRARY_PATH=$libdir "$scratch/measure" "$prefix/share/ssmscope/models/tiny" "$scratch/rec" \
    "prose=$SOURCE_DIR/examples/text/prose.txt" >"$scratch/measured" || fail "the example failed"
grep -q '^half of the state: perplexity ' "$scratch/measured" || fail "the example says nothing"

# DESTDIR moves the tree and changes nothing in it.
elsewhere=/opt/$(basename "$scratch")
DESTDIR=$scratch/stage cmake --install "$BUILD_DIR" --prefix "$elsewhere" >/dev/null
staged=$scratch/stage$elsewhere
[ "$(ls "$scratch/stage")" = opt ] || fail "something was installed outside the prefix"
find "$staged" -type f -o -type l | sed "s|^$staged/||" | sort | cmp -s - "$scratch/list" ||
    fail "DESTDIR installs other files"
grep -qx "prefix=$elsewhere" "$(find "$staged" -name ssmscope.pc)" || fail "wrong prefix in .pc"
[ ! -e "$elsewhere" ] || fail "DESTDIR was not heeded"

for wanted in bin/ssmscope share/man/man1/ssmscope.1 share/bash-completion/completions/ssmscope; do
    grep -qxF "$wanted" "$scratch/list" || fail "no $wanted in the installed tree"
done
grep -q '^\.TH' "$prefix/share/man/man1/ssmscope.1" || fail "the man page is no man page"
bash -c 'set -eu; . "$1"; complete -p ssmscope' _ \
    "$prefix/share/bash-completion/completions/ssmscope" >/dev/null || fail "the completion is broken"

# Each tree finds its own model, wherever it stands and with the build tree's model out of reach.
mv "$prefix" "$scratch/moved"
for tree in "$scratch/moved" "$staged"; do
    [ -f "$tree/share/ssmscope/models/tiny/config.json" ] || fail "models/tiny is not installed"
    (cd / && env -i PATH=/usr/bin:/bin HOME=/nonexistent "$tree/bin/ssmscope" info tiny --json) \
        >"$scratch/info.json" || fail "the installed program does not open tiny"
    grep -q "$tree/share/ssmscope/models/tiny" "$scratch/info.json" ||
        fail "the installed program opened another tiny: $(cat "$scratch/info.json")"
done
[ "$("$scratch/moved/bin/ssmscope" --version | grep -c "$version")" -ge 1 ] || fail "--version"
