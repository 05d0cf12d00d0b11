#!/usr/bin/env bash
# tokenize: text → ids → text, byte for byte; standard input; lines of JSON; what is not UTF-8.
. "$(dirname "$0")/_common.sh"
cd "$scratch"

piece code 30000 >code.txt
expect 0 tokenize tiny --text code.txt
cp out ids
[ "$(wc -l <ids)" -eq 1 ] || fail "the ids are not on one line"
expect 0 tokenize tiny --decode --ids ids
same out code.txt "decoded text"
"$SSMSCOPE" tokenize tiny <code.txt >ids.stdin
same ids ids.stdin "standard input"
"$SSMSCOPE" tokenize tiny - <code.txt >ids.dash
same ids ids.dash "input -"
"$SSMSCOPE" tokenize tiny --decode <ids >text
same text code.txt "ids on standard input"
expect 0 tokenize "$SOURCE_DIR/models/tiny/tokenizer.json" code.txt
same out ids "a bare tokenizer.json"
cp "$SOURCE_DIR/models/tiny/tokenizer.json" .
expect 0 tokenize . code.txt
same out ids "a directory with a tokenizer.json only"

# Nothing in, nothing out.
: >empty
expect 0 tokenize tiny empty
[ "$(cat out)" = "" ] || fail "ids of an empty text"
expect 0 tokenize tiny --decode --ids empty
silent

# NUL bytes are text.
printf 'a\0b' >nul.txt
expect 0 tokenize tiny nul.txt
cp out ids
expect 0 tokenize tiny --decode --ids ids
same out nul.txt "a NUL byte"

# Special tokens.
printf 'a<|endoftext|>b' >special.txt
expect 0 tokenize tiny special.txt
grep -qw 0 out || fail "<|endoftext|> is not its id"
cp out ids
expect 0 tokenize tiny --decode --skip-special --ids ids
[ "$(cat out)" = ab ] || fail "--skip-special"
expect 0 tokenize tiny --special text special.txt
grep -qw 0 out && fail "--special text gave a special id"

# What is not UTF-8 is refused with its place, or replaced.
printf 'abc\xff\xfe' >bad.txt
expect 3 tokenize tiny bad.txt
says "bad.txt: byte 3: "
silent
expect 0 tokenize tiny --invalid-utf8 replace bad.txt
cp out ids
expect 0 tokenize tiny --decode --ids ids
grep -q 'abc' out || fail "replaced text"

# Lines of JSON, both ways.
printf '{"text": "one"}\n{"text": ""}\n{"text": "t\\u0000w\\u00f6"}\n' >texts.jsonl
expect 0 tokenize tiny --jsonl texts.jsonl
[ "$(wc -l <out)" -eq 3 ] || fail "not three lines"
[ "$(sed -n 2p out)" = '{"ids": []}' ] || fail "ids of an empty text in JSON"
cp out ids.jsonl
expect 0 tokenize tiny --decode --jsonl ids.jsonl
[ "$(sed -n 1p out)" = '{"text": "one"}' ] || fail "decoded line 1"
[ "$(sed -n 3p out)" = '{"text": "t\u0000wö"}' ] || fail "decoded line 3: $(sed -n 3p out)"
printf '{"text": "one"}\n{"txt": "two"}\n' >wrong.jsonl
expect 3 tokenize tiny --jsonl wrong.jsonl
says 'wrong.jsonl: line 2: expected {"text": "…"}'
printf '{"text": "one"\n' >wrong.jsonl
expect 3 tokenize tiny --jsonl wrong.jsonl
says 'wrong.jsonl: line 1: '
printf '{"ids": [1, -2]}\n' >wrong.jsonl
expect 3 tokenize tiny --decode --jsonl wrong.jsonl
says 'line 1: an id is not a whole number from 0 on'

# Ids that are none.
printf '12 x7' >wrong.ids
expect 3 tokenize tiny --decode --ids wrong.ids
says "wrong.ids: byte 3: expected a token id (decimal digits), found 'x7'"
printf '12 99999' >wrong.ids
run tokenize tiny --decode --ids wrong.ids
[ "$code" -ne 0 ] && grep -q 99999 err || fail "an id outside the vocabulary"

# Bytes without a token are dropped, as Hugging Face tokenizers does, but not in silence.
dropping=$SOURCE_DIR/tests/golden/tokenizers/metaspace_dropping.json
printf 'the \360\237\220\215 the' >llama.txt
expect 0 tokenize "$dropping" llama.txt
says '4 bytes of the text have no token in the vocabulary and were dropped'
printf 'the the' >plain.txt
expect 0 tokenize "$dropping" plain.txt
[ ! -s err ] || fail "a note without a reason"

# A SentencePiece BPE: there and back, a character of bytes too.
llama=$SOURCE_DIR/tests/golden/tokenizers/llama.json
expect 0 tokenize "$llama" llama.txt
[ ! -s err ] || fail "a note without a reason"
cp out ids
expect 0 tokenize "$llama" --decode --ids ids
same out llama.txt "byte fallback"
