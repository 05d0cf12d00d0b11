#!/usr/bin/env bash
# The layer law of ARCHITECTURE.md, read off the #include lines. Prints each breach, exits 1 on any.
#
#   base ← safetensors ← torch ← checkpoint;   safetensors ← recording;   base ← kernels, tokenizer
#   checkpoint ← reference
#   {kernels, checkpoint, reference, tokenizer} ← model ← instrument, train, evaluate, diagnose
#   recording ← metrics, select, instrument;   kernels ← select;   {instrument, recording, evaluate} ← adapt
#
# metrics and select never see a model (only the public ssm_mask), a model never sees the instrument,
# cli/ sees include/ only, no file but an ISA variant sees an x86 header, and none but *_mpi.c of cli/ MPI's.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# folder : folders of src/ it may include (its own is always allowed) : public headers it may include
laws='
base        :                                                        : base
safetensors : base                                                   : base checkpoint
torch       : base safetensors                                       : base checkpoint
kernels     : base                                                   : base checkpoint
tokenizer   : base                                                   : base tokenizer
checkpoint  : base safetensors torch                                 : base checkpoint convert
recording   : base safetensors                                       : base checkpoint recording
reference   : base safetensors checkpoint                            : base checkpoint
model       : base safetensors kernels checkpoint reference tokenizer : base checkpoint tokenizer model prune
instrument  : base safetensors kernels checkpoint reference tokenizer model recording : base checkpoint tokenizer model recording instrument
diagnose    : base safetensors kernels checkpoint reference tokenizer model : base checkpoint tokenizer model compare examine
evaluate    : base safetensors kernels checkpoint reference tokenizer model : base checkpoint tokenizer model evaluate tasks
adapt       : base safetensors kernels checkpoint reference tokenizer model recording instrument : base checkpoint tokenizer model recording instrument evaluate adapt
train       : base safetensors kernels checkpoint reference tokenizer model : base checkpoint experiment init mimetic tokenizer model train train_task
metrics     : base safetensors recording                             : base checkpoint recording metrics
select      : base safetensors recording kernels                     : base checkpoint recording select model
'

{ find include src cli bench -name '*.[ch]' 2>/dev/null || true; } | sort | xargs -r awk -v laws="$laws" '
function complain(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    breaches++
}
BEGIN {
    count = split(laws, lines, "\n")
    for (i = 1; i <= count; i++) {
        if (split(lines[i], field, ":") != 3) {
            continue
        }
        folder = field[1]
        gsub(/ /, "", folder)
        known[folder] = 1
        inside[folder, folder] = 1
        n = split(field[2], word, " ")
        for (k = 1; k <= n; k++) {
            inside[folder, word[k]] = 1
        }
        n = split(field[3], word, " ")
        for (k = 1; k <= n; k++) {
            public[folder, word[k]] = 1
        }
    }
}
FNR == 1 {
    split(FILENAME, part, "/")
    top = part[1]
    folder = part[2]
    if (top == "src" && !(folder in known)) {
        complain("src/" folder "/ has no line in tools/check_layers.sh")
    }
}
top == "src" && !(folder in known) { next }
!/^[ \t]*#[ \t]*include/ { next }
{
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quoted = (substr(name, 1, 1) == "\"")
    if (!quoted && substr(name, 1, 1) != "<") {
        complain("computed include: name the file")
        next
    }
    sub(/^["<]/, "", name)
    sub(/[">].*$/, "", name)

    if (name ~ /^(.*intrin|cpuid|x86.*|xsave.*)\.h$/ && FILENAME !~ /_(avx2|avx512)\.[ch]$/) {
        complain("x86 header <" name "> outside an _avx2 or _avx512 file")
    }
    if (name == "mpi.h" && FILENAME !~ /^cli\/[a-z]+_mpi\.c$/) {
        complain("<mpi.h> outside an _mpi file of cli/")
    }
    if (name ~ /(^|\/)\.\.\//) {
        complain("include written with ..: " name)
    }
    if (name ~ /^ssmscope\//) {
        if (quoted) {
            complain("public headers are included with <>: " name)
        }
        header = substr(name, 10)
        sub(/\.h$/, "", header)
        if (top == "src" && !((folder, header) in public)) {
            complain("src/" folder "/ may not see <" name ">")
        }
        next
    }
    if (!quoted) {
        if (top == "include" && name !~ /^(stdbool|stddef|stdint)\.h$/) {
            complain("a public header includes only <ssmscope/…>, stdbool, stddef and stdint: " name)
        }
        next
    }
    if (top == "include") {
        complain("a public header includes with <> only: " name)
    } else if (top == "src" || top == "bench") {
        target = name
        sub(/\/.*$/, "", target)
        # bench sees the kernels from the inside, and its own headers.
        if (top == "bench") {
            if (name ~ /\// && !((target in known) || target == "bench" || target == "cli")) {
                complain("no such folder in src/: " name)
            }
        } else if (name !~ /\//) {
            complain("write the path from src/: \"" folder "/" name "\"")
        } else if (!((folder, target) in inside)) {
            complain("src/" folder "/ may not see src/" target "/ (" name ")")
        } else if (system("test -f \"src/" name "\"") != 0) {
            complain("no such file: src/" name)
        }
    } else if (top == "cli" && name ~ /\// && name !~ /^cli\//) {
        complain("cli/ sees <ssmscope/…> and its own headers only: " name)
    }
}
END { exit (breaches > 0) }
'
