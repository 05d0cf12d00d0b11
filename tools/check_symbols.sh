#!/usr/bin/env bash
# usage: tools/check_symbols.sh BUILD
# What the compiled library says of itself: no writable global, nothing that prints, ends the process
# or reads the environment, every other global named ssm__*, and a shared library that exports
# exactly the functions that the public headers declare. Plain builds only (sanitizers add globals).
set -euo pipefail
build=${1:?usage: tools/check_symbols.sh BUILD}
source=$(cd "$(dirname "$0")/.." && pwd)
static=$build/libssmscope.a
shared=$build/libssmscope.so
status=0

# Sections that can be written once relocation is done. .data.rel.ro cannot.
writable=$(objdump -t "$static" | awk '
    /^[^ ].*file format/ { sub(/:.*/, ""); object = $1 }
    $0 ~ /[ \t](\.data|\.bss|\.tdata|\.tbss|\.data\.rel|\.data\.rel\.local|\*COM\*)[ \t]/ &&
        $0 !~ / d  / && $NF !~ /^\./ { print object ": " $NF }
    $0 ~ /[ \t]\.(data|bss|data\.rel\.local)\.[A-Za-z_]/ && $0 !~ /\.data\.rel\.ro/ &&
        $0 !~ / d  / { print object ": " $NF }' | sort -u)
if [ -n "$writable" ]; then
    echo "writable globals in the library:"
    echo "$writable" | sed 's/^/  /'
    status=1
fi

forbidden='printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|putc|fputc|perror|_?_?exit|_Exit|quick_exit|abort|atexit|signal|sigaction|raise|getenv|secure_getenv|setenv|putenv|unsetenv|setlocale|syslog|system|stdout|stderr|stdin|environ|__assert_fail|rand|srand|random|strtok|gets|sprintf|vsprintf|strcpy|strcat|atoi|atol|atof|__(f|v|vf)?printf_chk'
called=$(nm -A --undefined-only "$static" 2>/dev/null | awk -v names="^($forbidden)\$" '
    { name = $NF; sub(/@.*/, "", name); if (name ~ names) { print "  " $0 } }')
if [ -n "$called" ]; then
    echo "the library calls what it may not call:"
    echo "$called"
    status=1
fi

strangers=$(nm -A --defined-only --extern-only "$static" 2>/dev/null |
    awk 'NF >= 3 && $NF !~ /^ssm_/ { print "  " $0 }')
if [ -n "$strangers" ]; then
    echo "global names without ssm_ or ssm__:"
    echo "$strangers"
    status=1
fi

missing=$(nm -D --undefined-only "$shared" | awk '$NF ~ /^ssm_/ { print "  " $NF }')
if [ -n "$missing" ]; then
    echo "called by the library, but defined nowhere:"
    echo "$missing"
    status=1
fi

# One name, one home: what the headers declare is what the shared library gives.
grep -hE '^SSM_API' "$source"/include/ssmscope/*.h |
    grep -oE 'ssm_[A-Za-z0-9_]+\(' | tr -d '(' | sort -u >"$build/symbols.declared"
nm -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $NF); print $NF }' | sort -u \
    >"$build/symbols.exported"
inner=$(grep -vE '^ssm_[^_]' "$build/symbols.exported" || true)
if [ -n "$inner" ]; then
    echo "exported, but not public:"
    echo "$inner" | sed 's/^/  /'
    status=1
fi
absent=$(comm -23 "$build/symbols.declared" "$build/symbols.exported")
if [ -n "$absent" ]; then
    echo "declared in a public header, but not in the shared library:"
    echo "$absent" | sed 's/^/  /'
    status=1
fi
extra=$(comm -13 "$build/symbols.declared" "$build/symbols.exported" | grep -E '^ssm_[^_]' || true)
if [ -n "$extra" ]; then
    echo "exported, but in no public header:"
    echo "$extra" | sed 's/^/  /'
    status=1
fi
soname=$(readelf -d "$shared" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
case $soname in
    libssmscope.so.[0-9]*) ;;
    *) echo "the shared library's SONAME is '$soname'"; status=1 ;;
esac
[ $status -eq 0 ] && echo "symbols: $(wc -l <"$build/symbols.exported") exported, no writable global"
exit $status
