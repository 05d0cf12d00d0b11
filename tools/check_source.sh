#!/usr/bin/env bash
# What a compiler does not check: functions that may not be called, lengths, paths of one machine.
# Prints each breach, exits 1 on any.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

if git rev-parse --git-dir >/dev/null 2>&1; then
    mapfile -t tracked < <(git ls-files --cached --others --exclude-standard)
else
    mapfile -t tracked < <(find . -type f -not -path './build*' -not -path './.git/*' | sed 's|^\./||')
fi
files=()
for file in "${tracked[@]}"; do
    [ -f "$file" ] && files+=("$file")
done
status=0

# --- functions --------------------------------------------------------------------------------------
# The library neither prints, ends the process nor reads the environment; nobody writes past the end
# of a buffer, parses without errors, or draws numbers that no seed can repeat.
library='printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|putc|fputc|perror|exit|_exit|_Exit|quick_exit|abort|assert|atexit|signal|raise|getenv|secure_getenv|setenv|putenv|unsetenv|setlocale|syslog'
shipped='strcpy|stpcpy|strcat|strncpy|strncat|sprintf|vsprintf|strtok|atoi|atol|atoll|atof|system|popen'
anywhere='gets|alloca|rand|srand|random|srandom|drand48|tmpnam|mktemp|tempnam'
banned() { # alternatives, where, files…
    local names=$1 where=$2
    shift 2
    [ $# -gt 0 ] || return 0
    awk -v names="$names" -v where="$where" '
    FNR == 1 { comment = 0 }
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "\"\"", line)      # strings
        gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)  # whole comments
        sub(/\/\/.*$/, "", line)
        if (comment) {
            if (line !~ /\*\//) { next }
            sub(/^.*\*\//, "", line)
            comment = 0
        }
        if (line ~ /\/\*/) { comment = 1; sub(/\/\*.*$/, "", line) }
        if (match(line, "(^|[^A-Za-z0-9_.>])(" names ")[ ]*\\(")) {
            text = substr(line, RSTART, RLENGTH)
            gsub(/[^A-Za-z0-9_]/, "", text)
            printf "%s:%d: %s() may not be called %s\n", FILENAME, FNR, text, where
            bad = 1
        }
    }
    END { exit bad }' "$@" || status=1
}
mapfile -t all_c < <(printf '%s\n' "${files[@]}" | grep -E '\.[ch]$' || true)
mapfile -t library_c < <(printf '%s\n' "${files[@]}" | grep -E '^(src|include)/.*\.[ch]$' || true)
banned "$library" "in the library" "${library_c[@]}"
mapfile -t shipped_c < <(printf '%s\n' "${files[@]}" |
    grep -E '^(src|include|cli|bench)/.*\.[ch]$' || true)
banned "$shipped" "in what is shipped" "${shipped_c[@]}"
banned "$anywhere" "here" "${all_c[@]}"

# --- lengths ----------------------------------------------------------------------------------------
# Files: 600 lines is the aim, 800 the limit. Functions: 60 the aim, 120 the limit. Data tables
# (*_data.[ch]) are free.
if [ ${#all_c[@]} -gt 0 ]; then
    awk '
    function file_end() {
        if (lines > 800 && name !~ /_data\.[ch]$/) {
            printf "%s: %d lines, the limit is 800\n", name, lines
            bad = 1
        } else if (lines > 600 && name !~ /_data\.[ch]$/) {
            printf "note: %s: %d lines, the aim is 600\n", name, lines
        }
    }
    FNR == 1 { if (name != "") { file_end() } start = 0; head = "" }
    { name = FILENAME; lines = FNR }
    # clang-format puts the braces of a function alone in column 0.
    !start && /^[A-Za-z_]/ { head = $0 }
    !start && /^\{$/ {
        start = FNR
        title = head
    }
    start && /^\}/ {
        size = FNR - start + 1
        if (size > 120) {
            printf "%s:%d: a function of %d lines, the limit is 120: %s\n", FILENAME, start, size, title
            bad = 1
        } else if (size > 80) {
            printf "note: %s:%d: a function of %d lines, the aim is 60: %s\n", FILENAME, start, size, title
        }
        start = 0
    }
    END { file_end(); exit bad }' "${all_c[@]}" || status=1
fi

# --- braces ---------------------------------------------------------------------------------------
# Every body of if, else, for and while stands in braces (clang-format 14 cannot insert them).
if [ ${#all_c[@]} -gt 0 ]; then
    awk '
    {
        line = $0
        sub(/[ \t]*(\\|\/\*.*\*\/|\/\/.*)$/, "", line)
        bare = line
        gsub(/"([^"\\]|\\.)*"|\047(\\?.)\047/, "", bare)
        opened = gsub(/\(/, "(", bare)
        closed = gsub(/\)/, ")", bare)
        if (line ~ /^[ \t]*((\} )?else )?(if|for|while) \(/ && line ~ /\)$/ && opened == closed) {
            printf "%s:%d: a body without braces\n", FILENAME, FNR
            bad = 1
        }
        if (line ~ /^[ \t]*(\} )?else$/) {
            printf "%s:%d: a body without braces\n", FILENAME, FNR
            bad = 1
        }
    }
    END { exit bad }' "${all_c[@]}" || status=1
fi

# --- paths and hosts of one machine -----------------------------------------------------------------
# Nothing here depends on where somebody happened to build it. Test data may hold any text.
mapfile -t words < <(printf '%s\n' "${files[@]}" |
    grep -vE '^(examples/text|models|tests/(golden|fuzz/corpus|malformed|data)|LICENSE)' || true)
if [ ${#words[@]} -gt 0 ]; then
    if grep -nIE '(^|[^A-Za-z0-9_.})*?-])/(work|home|root|mnt|srv)(/|\b)' "${words[@]}" |
        grep -vE '^tools/check_source\.sh:'; then
        echo "^ a path of one machine"
        status=1
    fi
    if grep -nIE '(^|[^A-Za-z0-9_.}])/tmp/[A-Za-z]' "${words[@]}" |
        grep -vE '^tools/check_source\.sh:'; then
        echo "^ a fixed name in the temporary directory: use mktemp -d"
        status=1
    fi
    hosts='www\.apache\.org|arxiv\.org|github\.com|huggingface\.co|doi\.org|json\.org|unicode\.org'
    hosts+='|www\.rfc-editor\.org|jansson\.readthedocs\.io|keepachangelog\.com|semver\.org'
    hosts+='|opensource\.org|creativecommons\.org|golang\.org|go\.dev|localhost|git-lfs(\.github\.com)?|example\.(com|org)'
    if grep -nIoE 'https?://[A-Za-z0-9.-]+' "${words[@]}" |
        grep -vE "^tools/check_source\.sh:|://(www\.)?($hosts)\$"; then
        echo "^ a host outside the list in tools/check_source.sh"
        status=1
    fi
fi
if [ ${#words[@]} -gt 0 ] && grep -nIE '[[:blank:]]+$' "${words[@]}" | grep -vE '\.(md|json|txt|inp|out)(:|$)'; then
    echo "^ white space at the end of the line"
    status=1
fi
exit $status
