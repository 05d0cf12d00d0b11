#!/usr/bin/env bash
# A recording that is stopped by a signal says how to go on, and goes on to the same bytes. So does
# one that was killed.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
cp "$SOURCE_DIR/examples/text/code.txt" code.txt
line=(record tiny code.txt --window 128 --calibration-windows 5 --evaluation-windows 25 -q)

# Stops the recorder once it has written two windows. It may be done by then on a fast machine:
# then there is nothing to see, and the rest of the test is still good.
stop_with() { # signal
    "$SSMSCOPE" "${line[@]}" -o rec >out 2>err &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(find rec -name '*.safetensors' 2>/dev/null | wc -l)" -lt 3 ]; do
        sleep 0.01
    done
    kill "-$1" $pid 2>/dev/null || true
    code=0
    wait $pid 2>/dev/null || code=$?
}
stop_with TERM
if [ $code -ne 0 ]; then
    [ $code -eq 130 ] || fail "SIGTERM gave exit $code, not 130"
    says 'stopped; run again with --resume to go on'
    silent
    expect 3 metrics rec
    expect 2 "${line[@]}" -o rec
else
    echo "interrupt: the recording was done before the signal came"
fi
line+=(--resume)
stop_with KILL
expect 0 "${line[@]}" -o rec
line=("${line[@]:0:9}")
expect 0 "${line[@]}" -q -o whole
diff -r rec whole >/dev/null || fail "the resumed recording differs"
[ -z "$(find rec -name '*.tmp*')" ] || fail "temporary files were left"
