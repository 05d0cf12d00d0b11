#!/usr/bin/env bash
# Bad circumstances: weights that overflow, files in each other's place, masks that claim too much,
# outputs that are inputs, closed streams, limits, two writers at once.
. "$(dirname "$0")/_common.sh"
cd "$scratch"
model=$SOURCE_DIR/models/tiny
prose=$SOURCE_DIR/examples/text/prose.txt
code_text=$SOURCE_DIR/examples/text/code.txt
echo '1 2 3' >three
copy() { mkdir "$1" && cp "$model"/*.json "$model/model.safetensors" "$1/" && chmod -R u+w "$1"; }

# --- weights that are finite but overflow: never an answer made of nothing ---------------------------
# huge MODEL TENSOR COUNT: the first COUNT float32 elements become the largest float.
huge() {
    local file=$1/model.safetensors header begin
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    begin=$(head -c $((8 + header)) "$file" | grep -ao "\"$2\":{[^}]*}" | sed 's/.*\[ *\([0-9]*\),.*/\1/')
    for ((i = 0; i < $3; i++)); do printf '\377\377\177\177'; done |
        dd of="$file" oflag=seek_bytes seek=$((8 + header + begin)) conv=notrunc status=none
}
copy head && huge head backbone.norm_f.weight 192
expect 1 run head --ids three -n 1
says 'the head gives '
says 'expected a finite number'
expect 1 eval head "$prose" --window 32 --windows 1
copy block && huge block backbone.layers.2.norm.weight 192
expect 1 run block --ids three -n 1
says 'block 2 gives '
expect 1 record block "$prose" --window 64 --calibration-windows 1 --evaluation-windows 1 -o block-rec
[ -z "$(find block-rec -name '*.tmp')" ] || fail "a temporary file is left behind"
expect 1 verify block "$prose" --window 64 --windows 1
copy decay && huge decay backbone.layers.0.mixer.A_log 1
expect 3 run decay --ids three -n 1
says 'tensor backbone.layers.0.mixer.A_log, byte '
says 'its exponential overflows float32'

# --- something else where a file should be -----------------------------------------------------------
for file in config.json model.safetensors; do
    copy "odd-$file"
    rm "odd-$file/$file"
    mkdir "odd-$file/$file"
    expect 3 info "odd-$file"
    says "odd-$file/$file: is a directory where a file is expected"
    rmdir "odd-$file/$file"
    mkfifo "odd-$file/$file"
    expect 3 info "odd-$file"
    says "odd-$file/$file: is a pipe"
    rm "odd-$file/$file"
    ln -s "$file" "odd-$file/$file"
    expect 3 info "odd-$file"
    says "odd-$file/$file: cannot be opened: Too many levels of symbolic links"
done
expect 3 info /dev/zero
says '/dev/zero: is a device'
for words in 'tokenize tiny --text' 'run tiny --ids' 'run tiny --text' 'tokenize tiny --jsonl'; do
    # shellcheck disable=SC2086
    expect 3 $words /dev/zero
    says '/dev/zero: is a device; a file or a pipe is expected'
done

# --- ids ---------------------------------------------------------------------------------------------
echo 4096 >outside
expect 3 tokenize tiny --decode --ids outside
says 'outside: id 4096 at place 0 is not in the vocabulary'
expect 3 run tiny --ids outside
says 'outside: id 4096'
printf '1 \033[31mred' >escape
expect 3 run tiny --ids escape
says "found '\\x1b[31mred'"

# --- recordings --------------------------------------------------------------------------------------
record=(record tiny "prose=$prose" "code=$code_text" --window 64 --calibration-windows 1
        --evaluation-windows 2 -q)
expect 0 "${record[@]}" -o rec
swap() { mv "$1" swapping && mv "$2" "$1" && mv swapping "$2"; }
cp -r rec swapped
swap swapped/windows/00001.safetensors swapped/windows/00002.safetensors
expect 3 metrics swapped
says 'the file is window 2 of the recording, expected window 1'
expect 3 "${record[@]}" -o swapped --resume
says 'the file is of window 2, expected window 1: files were swapped'
cp -r rec swapped-sums
swap swapped-sums/calibration.prose.safetensors swapped-sums/calibration.code.safetensors
expect 3 "${record[@]}" -o swapped-sums --resume
says 'the file is of domain code, expected domain prose'
cp -r rec empty
: >empty/recording.json
expect 3 metrics empty
says 'empty/recording.json: is empty'
expect 2 record tiny "prose=$prose" -o none --budgets 16
says "budget 16 is outside 1 … 15"
cp "$prose" "$(printf 'p\377.txt')"
expect 2 record tiny "$(printf 'p\377.txt')" -o none
says 'is not UTF-8'
expect 2 record tiny "$(printf 'x=p\377.txt')" -o none --window 64
says 'is not UTF-8'
[ ! -e none ] || fail "a refused recording made its directory"

# --- masks: what the metadata claim must be so -------------------------------------------------------
expect 0 select rec --rule static --budget 8 -o mask.safetensors
LC_ALL=C sed 's/"budget":"8"/"budget":"9"/' mask.safetensors >claim.safetensors
expect 3 run tiny --ids three -n 1 --mask claim.safetensors
says 'channel 0 keeps 8 modes, the metadata say budget = 9'
LC_ALL=C sed 's/"model_digest":"xxh3-128:./"model_digest":"xxh3-128:x/' mask.safetensors >other.safetensors
expect 3 run tiny --ids three -n 1 --mask other.safetensors
says 'the mask is for model'

# --- outputs that are inputs -------------------------------------------------------------------------
copy mine
cp mine/model.safetensors before
for output in mine/model.safetensors mine/../mine/config.json; do
    expect 2 run mine --ids three -n 1 --logits "$output"
    says "--logits: $output would be replaced, and MODEL reads it"
done
same mine/model.safetensors before 'the model'
expect 2 run tiny --ids three --hidden ./three
says 'would be replaced, and --ids reads it'
expect 2 run tiny --ids three --mask mask.safetensors --logits mask.safetensors
says 'would be replaced, and --mask reads it'
expect 2 run tiny --ids three --logits twice --hidden twice
says '--logits and --hidden name the same file twice'
expect 2 select rec --rule static --budget 8 -o rec/recording.json
says 'would be replaced, and REC reads it'
expect 0 select rec --rule static --budget 8 -o rec/mask.safetensors

# --- closed streams: words never go into an output ---------------------------------------------------
expect 0 run tiny --ids three -n 1 --logits open
code=0
"$SSMSCOPE" run tiny --ids three -n 1 --logits closed <&- >&- 2>&- || code=$?
[ "$code" -eq 1 ] || fail "closed streams: exit $code, not 1"
same open closed 'closed streams'
code=0
"$SSMSCOPE" info tiny >&- 2>err || code=$?
[ "$code" -eq 1 ] || fail "closed stdout: exit $code, not 1"
says 'cannot write standard output'

# --- a limit on the size of files --------------------------------------------------------------------
code=0
(ulimit -f 100 && exec "$SSMSCOPE" "${record[@]}" -o limited >out 2>err) || code=$?
[ "$code" -eq 1 ] || fail "a limit on file sizes: exit $code, not 1"
says 'limited/model.safetensors: cannot be written: File too large'
[ -z "$(find limited -name '*.tmp')" ] || fail "a temporary file is left behind"
expect 0 "${record[@]}" -o limited --resume
diff -r rec limited | grep -v '^Only in rec: mask.safetensors$' && fail "resumed after the limit"

# --- two at once -------------------------------------------------------------------------------------
rm rec/mask.safetensors
mkdir locked
flock locked "$SSMSCOPE" "${record[@]}" -o locked >out 2>err && fail "a locked directory was written"
says 'locked: another process is recording into this directory'
[ -z "$(ls -A locked)" ] || fail "the locked directory was touched"
expect 0 "${record[@]}" -o locked
diff -r rec locked || fail "recorded after the lock"
mkdir taken
flock taken "$SSMSCOPE" init --shape tiny -o taken >out 2>err && fail "a locked directory was initialised"
says 'taken: another process is writing into this directory'
[ -z "$(ls -A taken)" ] || fail "the locked directory was touched"
: >taken/.model.safetensors.0123456789abcdef.tmp
expect 0 init --shape tiny -o taken
[ "$(ls -A taken | tr '\n' ' ')" = 'config.json model.safetensors ' ] || fail "remains: $(ls -A taken)"

# --- an initialisation that fails leaves no directory ------------------------------------------------
code=0
(ulimit -f 100 && exec "$SSMSCOPE" init --shape tiny -o limited-model >out 2>err) || code=$?
[ "$code" -eq 1 ] || fail "init under a limit on file sizes: exit $code, not 1"
[ ! -e limited-model ] || fail "a failed initialisation left $(ls -A limited-model)"

# --- a damaged sum of Grams: said, not left out --------------------------------------------------------
cp -r rec short
: >"short/calibration.prose.safetensors"
expect 3 select short --rule static --budget 8 -o none.safetensors
says 'short/calibration.prose.safetensors: byte 0: the file has 0 bytes'
[ ! -e none.safetensors ] || fail "a mask without its error was written"

# --- a normalizer that multiplies ---------------------------------------------------------------------
stage='{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}'
stages=$stage
for ((i = 1; i < 9; i++)); do stages=$stages,$stage; done
tr -d '\n' <"$model/tokenizer.json" |
    sed "s/\"normalizer\": *{[^}]*}/\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[$stages]}/" >tokenizer.json
echo 'bananas' >bananas
expect 1 tokenize tokenizer.json bananas
says 'the normalizer of tokenizer.json makes more than 1050624 bytes'

# --- NaN in config.json is said as it stands there ----------------------------------------------------
copy nan
sed -i 's/"state_size": *16/"state_size": NaN/' nan/config.json
expect 3 info nan
says 'config.json says state_size = NaN; expected a whole number of 1 or more'
