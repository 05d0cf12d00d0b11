#!/usr/bin/env bash
# Tables fit a terminal of 80 columns, and a locale without UTF-8 gets ASCII only. record shows what it
# will record before it begins.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 40000 >prose.txt
piece code 40000 >code.txt
texts=(prose=prose.txt code=code.txt)

# In the C locale a line is at least as wide as in any other: rho is three characters.
narrow() {
    LC_ALL=C expect 0 "$@"
    LC_ALL=C grep -q '[^ -~]' out && fail "$* in the C locale: $(LC_ALL=C grep -m1 '[^ -~]' out)"
    sed -i "s|$scratch||g; s|$SOURCE_DIR||g" out # a path may be as long as it likes
    grep -n ' $' out && fail "$*: a line ends in a blank"
    awk 'length($0) > 80 { wide = 1; print } END { exit !wide }' out >wide &&
        fail "$*: a line wider than 80: $(head -n 1 wide)"
    return 0
}
expect 0 record tiny "${texts[@]}" -o rec --window 128 --calibration-windows 2 --evaluation-windows 2
cp err recorded
narrow metrics rec
prints 'rho diag'
LC_ALL=C.UTF-8 expect 0 metrics rec
prints 'ρ diag'
for words in 'info tiny' 'doctor' 'selftest' 'compare tiny tiny' 'help' 'init --help' \
    'select rec --rule static --budget 8 -o mask' \
    'eval tiny prose=prose.txt --window 64 --windows 2 --mask mask' \
    'eval tiny prose=prose.txt --window 64 --windows 2 --mask mask --against last --recording rec --budget 4' \
    'sweep rec tiny prose=prose.txt code=code.txt --window 128 --windows 2 --offset 4
        --rules all,prefix:64,compensated:optimal --budgets 12 --bootstrap 50 -o table' \
    'verify tiny prose=prose.txt --window 64 --windows 1'; do
    # shellcheck disable=SC2086
    narrow $words
done

# The table of windows comes before the work: it stands there although the work is refused.
grep -q '^prose ' recorded || fail 'no table of windows'
expect 2 record tiny "${texts[@]}" -o rec --window 128 --calibration-windows 2 --evaluation-windows 2
says 'evaluation'
says 'whole windows of 128 tokens'
exit 0
