#!/usr/bin/env bash
# Tables fit a terminal of 80 columns, and a locale without UTF-8 gets ASCII only. record shows what it
# will record before it begins.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
piece prose 40000 >prose.txt
piece code 40000 >code.txt
texts=(prose=prose.txt code=code.txt)

# Characters of a line: bytes that do not continue one.
narrow() {
    local wide
    wide=$(LC_ALL=C sed 's/[\x80-\xBF]//g' out | LC_ALL=C awk 'length($0) > 80')
    [ -z "$wide" ] || fail "$*: a line wider than 80: $wide"
    LC_ALL=C run "$@"
    [ "$code" -eq 0 ] || fail "$* in the C locale: exit $code"
    LC_ALL=C grep -q '[^ -~]' out && fail "$* in the C locale: $(LC_ALL=C grep -m1 '[^ -~]' out)"
    return 0
}
expect 0 record tiny "${texts[@]}" -o rec --window 128 --calibration-windows 2 --evaluation-windows 2
cp out recorded
expect 0 metrics rec
prints 'layer'
narrow metrics rec
prints 'rho diag'
for words in 'info tiny' 'doctor' 'selftest' 'compare tiny tiny' 'help' 'init --help' \
    'select rec --rule static --budget 8 -o mask' \
    'eval tiny prose=prose.txt code=code.txt --window 128 --windows 2 --mask mask' \
    'verify tiny prose=prose.txt --window 128 --windows 2'; do
    # shellcheck disable=SC2086
    expect 0 $words
    # A path may be as long as it likes.
    sed -i "s|$scratch||g; s|$SOURCE_DIR||g" out
    # shellcheck disable=SC2086
    narrow $words
done

# The table of windows comes before the work: it stands there although the work is refused.
grep -q '^prose ' recorded || fail 'no table of windows'
expect 2 record tiny "${texts[@]}" -o rec --window 128 --calibration-windows 2 --evaluation-windows 2
prints 'evaluation'
prints 'whole windows of 128 tokens'
exit 0
