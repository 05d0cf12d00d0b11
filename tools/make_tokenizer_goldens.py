#!/usr/bin/env python3
r"""Makes tests/golden/tokenizer with the Hugging Face `tokenizers` library.

    pip install tokenizers==0.23.3
    tools/make_tokenizer_goldens.py --neox PATH/TO/gpt-neox-20b/tokenizer.json \
        --falcon PATH/TO/falcon/vocab.gguf --small PATH/TO/small

Strings come from a generator that tests/support/test_text_generator.c repeats, so that only digests
of the ids are stored:

    generator.json   seed, fragments and ranges of code points, read by both sides
    NAME.digests     one line for each block of 100 strings: FNV-1a of the ids, of the decoded texts
    NAME.cases.jsonl some strings in full, among them every kind of trouble that is known by name
    variants.json    small tokenizers that differ in one stage each, with digests and cases
    MANIFEST.json    versions and digests of what was read

The generator (all numbers from splitmix64, state = seed + index of the string):

    repeat 1 + n % 12 times, where n is the next number:
        choice = next % 16
        0-7    fragment[next % count]
        8      1 + next % 60 blanks
        9      1 + next % 7 digits, each next % 10
        10     1 + next % 12 letters, each from next % 52 (A-Z, a-z)
        11     1 + next % 6 printable ASCII characters, each 0x20 + next % 95
        12-13  1 + next % 5 code points: range[next % count], then low + next % (high - low + 1)
        14     one fragment[next % count] 1 + next % 40 times
        15     one code point as in 12, 1 + next % 3 times, behind the letter e

Ranges hold only code points whose category, combining class and normalisation are the same in
Unicode 3.2 and today, because the libraries compared carry tables of different age.
"""
import argparse
import hashlib
import json
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer

from gguf_vocab import falcon_tokenizer
from tokenizer_variants import BYTE_LEVEL, BYTES_ONLY, component_variants

SEED = 0x73736D73636F7065
STRINGS = 20000
BLOCK = 100
FULL_CASES = 150
VARIANT_STRINGS = 400
RANDOM_LISTS = 400
MASK = (1 << 64) - 1

FRAGMENTS = [
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2029", "\u2028", "\u0085", "\u3000",
    "\u180e", "\u200b", "\ufeff", "\u0000", "\u0001", "\u001f", "\u007f", "\u00ad",
    "e\u0301", "a\u0323\u0302", "o\u0302\u0323", "\u1ea5", "q\u0307\u0323", "\u212b", "\u2126",
    "\u0344", "\u0958", "\u09c7\u09be", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1100\u1161",
    "\ud55c\uad6d\uc5b4", "\u4f60\u597d\uff0c\u4e16\u754c", "\u65e5\u672c\u8a9e\u306e", "\u304b\u3099",
    "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001F600", "\U0001F469\u200D\U0001F469\u200D\U0001F467", "\U0001F1E9\U0001F1EA", "\u2764\ufe0f",
    "\U0001F44D\U0001F3FD", "\U0001F999",
    "\u00bd", "\u00b2", "\u2167", "\u0664\u0662", "\u4e09",
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'VE", "'LL", "'D", "'", " '", "''",
    "don't", "DON'T", "it's", "\u2019s",
    "1", "12", "123", "3.14", "1,000", "2026-11-30", "0x1F",
    "<|endoftext|>", "<|padding|>", "<|endoftext", "|>", "<|", "[T]", "[U]", "[W]", "[L]", "[R]",
    "caf\u00e9", "cafe\u0301", "x-y", "--", "-", "_", "foo_bar", "the-final--countdown",
    "Hello", " world", "the", " the", "The", "and", " of", "language", " model", "state", " space",
    "antidisestablishmentarianism", " Internationalization", "zzzzzz", "aaaa", "ab",
    "for (int i = 0; i < n; i++) {\n    x[i] += 1;\n}", "func (p *T) Len() int { return len(p.x) }",
    "\t\treturn nil, err\n", "|- ( ph -> ( ps <-> ch ) )", "$( comment $)", "https://example.org/a?b=c#d",
    "!", "?", "...", "!!", "()", "[]", "{}", "<>", "&&", "||", "==", "@#$%", "\\", "\"", "`", "~", "^",
    ">>TITLE<<", ">>ANSWER<<", ">>TITLE", "<s>", "</s>", "<unk>", "<0x41>", "<0xE2>", "<0x", "\u2581", "\u2581the",
    "##", "##ing", "\u0130stanbul", "STRASSE \u1e9e", "\ufb01ne", "\uff11\uff12\uff13", "\uff21", "\u043c", "\u00b3\u00b9",
    "\u001d\u001e", "\u00a9", "\u20ac", "I'm", "do not", "isn't", "\u00c9t\u00c9", "\u017ft", "\u212a", "\u01c5",
]

CANDIDATE_RANGES = [
    (0x00A0, 0x01F5), (0x0250, 0x02AD), (0x0300, 0x036F), (0x0384, 0x03CE), (0x0400, 0x04F5),
    (0x0531, 0x0587), (0x0591, 0x05F4), (0x0621, 0x0655), (0x0660, 0x06D5), (0x0901, 0x0970),
    (0x0985, 0x09FA), (0x0B85, 0x0BF2), (0x0C05, 0x0C6F), (0x0DD0, 0x0DDF), (0x0E01, 0x0E5B),
    (0x0F00, 0x0FBC), (0x1000, 0x1059), (0x10A0, 0x10F6), (0x1100, 0x11F9), (0x1200, 0x1248),
    (0x13A0, 0x13F4), (0x1680, 0x169C), (0x1780, 0x17E9), (0x1E00, 0x1EF9), (0x1F00, 0x1FFE),
    (0x2000, 0x206F), (0x2070, 0x208E), (0x20A0, 0x20B1), (0x20D0, 0x20EA), (0x2100, 0x2183),
    (0x2190, 0x23CE), (0x2440, 0x24FE), (0x2500, 0x27BE), (0x2E80, 0x2FD5), (0x3000, 0x303F),
    (0x3041, 0x30FF), (0x3105, 0x318E), (0x3200, 0x33FE), (0x3400, 0x4DB5), (0x4E00, 0x9FA5),
    (0xA000, 0xA4C6), (0xAC00, 0xD7A3), (0xF900, 0xFA6A), (0xFB00, 0xFB4F), (0xFB50, 0xFDFB),
    (0xFE20, 0xFE6B), (0xFE70, 0xFEFC), (0xFF01, 0xFFEE), (0x10300, 0x1034A), (0x10400, 0x1044D),
    (0x1D100, 0x1D1DD), (0x1D400, 0x1D7FF), (0x20000, 0x2A6D6), (0x2F800, 0x2FA1D),
]


def stable(code):
    """True when Unicode 3.2 and this Python's Unicode agree on the character."""
    old, new, c = unicodedata.ucd_3_2_0, unicodedata, chr(code)
    if old.category(c) in ("Cn", "Cs", "Co") or old.category(c)[0] != new.category(c)[0]:
        return False
    return (old.combining(c) == new.combining(c) and old.decomposition(c) == new.decomposition(c)
            and old.normalize("NFC", c) == new.normalize("NFC", c))


def stable_ranges():
    ranges = []
    for low, high in CANDIDATE_RANGES:
        start = None
        for code in range(low, high + 2):
            good = code <= high and stable(code)
            if good and start is None:
                start = code
            elif not good and start is not None:
                ranges.append([start, code - 1])
                start = None
    return ranges


class Generator:
    def __init__(self, fragments, ranges):
        self.fragments, self.ranges = fragments, ranges

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def fragment(self):
        return self.fragments[self.next() % len(self.fragments)]

    def code_point(self):
        low, high = self.ranges[self.next() % len(self.ranges)]
        return chr(low + self.next() % (high - low + 1))

    def part(self):
        choice = self.next() % 16
        if choice <= 7:
            return self.fragment()
        if choice == 8:
            return " " * (1 + self.next() % 60)
        if choice == 9:
            return "".join("0123456789"[self.next() % 10] for _ in range(1 + self.next() % 7))
        if choice == 10:
            letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
            return "".join(letters[self.next() % 52] for _ in range(1 + self.next() % 12))
        if choice == 11:
            return "".join(chr(0x20 + self.next() % 95) for _ in range(1 + self.next() % 6))
        if choice <= 13:
            return "".join(self.code_point() for _ in range(1 + self.next() % 5))
        if choice == 14:
            text = self.fragment()
            return text * (1 + self.next() % 40)
        text = self.code_point()
        return "e" + text * (1 + self.next() % 3)

    def string(self, index):
        self.state = (SEED + index) & MASK
        return "".join(self.part() for _ in range(1 + self.next() % 12))


def fnv(data, state=0xCBF29CE484222325):
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def words(*numbers):
    return b"".join(n.to_bytes(4, "little") for n in numbers)


def digests(tokenizer, texts, add_special=False):
    """FNV-1a over (count, ids) and over (byte length, bytes of the decoded text) of each text."""
    ids_hash = text_hash = fnv(b"")
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=add_special).ids
        ids_hash = fnv(words(len(ids), *ids), ids_hash)
        decoded = tokenizer.decode(ids, skip_special_tokens=False).encode()
        text_hash = fnv(words(len(decoded)) + decoded, text_hash)
    return "%016x" % ids_hash, "%016x" % text_hash


def random_digest(tokenizer):
    """FNV-1a of the texts of RANDOM_LISTS lists of ids, half of them low: single bytes are there."""
    numbers, state = Generator([], []), fnv(b"")
    size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
    for index in range(RANDOM_LISTS):
        numbers.state = index
        ids = []
        for _ in range(1 + numbers.next() % 16):
            low = numbers.next() % 2 == 0
            ids.append(numbers.next() % (min(260, size) if low else size))
        decoded = tokenizer.decode(ids, skip_special_tokens=index % 2 == 1).encode()
        state = fnv(words(len(decoded)) + decoded, state)
    return "%016x" % state


def case(tokenizer, text, add_special=False):
    ids = tokenizer.encode(text, add_special_tokens=add_special).ids
    return {"text": text, "ids": ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True)}


NAMED_TEXTS = (
    ["", " ", "\n", "\u0000", "a\u0000b", "\t", "\r\n", "a\u00a0b", "a\u2029b", "Hello, world!",
     "hello world", "12345", "1234567890", "don't", "DON'T", "  leading spaces", "multiple   spaces",
     "trailing spaces  ", "a  b", "x<|endoftext|>y", "<|endoftext|><|padding|>", " <|endoftext|> ", ">>ANSWER<<x", "a >>TITLE<< b",
     ">>COMMENT<<>>TITLE<<", ">>INTRODUCTION<< text", "\u001f\u001e\u001d", "\u043c", "a\n\n", "x\ufffd\ufffd\ufffdy",
     "cafe\u0301", "caf\u00e9", "\u1100\u1161\u11a8", "\ud55c\uad6d\uc5b4", "\ufffd", "\ufeffBOM",
     "\u00bd6789", "x\u00b2y", "a\u0301" * 40, "a" * 300, "ab" * 200, "\U0001F469\u200D\U0001F467",
     "\u0301", "e" + "\u0323\u0301" * 40]
    + [" " * n for n in range(2, 61)] + ["a" + " " * n + "b" for n in range(1, 31)]
    + ["1234567"[:n] for n in range(1, 8)])


def write_main(out, name, tokenizer, generator, full_cases=FULL_CASES):
    texts = [generator.string(i) for i in range(STRINGS)]
    with open(out / f"{name}.digests", "w", encoding="utf-8") as file:
        for block in range(0, STRINGS, BLOCK):
            print(*digests(tokenizer, texts[block:block + BLOCK]), file=file)
    with open(out / f"{name}.cases.jsonl", "w", encoding="utf-8") as file:
        for text in NAMED_TEXTS + texts[:full_cases]:
            print(json.dumps(case(tokenizer, text), separators=(",", ":")), file=file)


# ---- variants ------------------------------------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="Isolated", invert=False, literal=False):
    return {"type": "Split", "pattern": {"String" if literal else "Regex": pattern},
            "behavior": behavior, "invert": invert}


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


def added(content, **flags):
    token = {"id": None, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return dict(token, **flags)


def base_tokenizer(tiny):
    """The byte alphabet and the first merges of the tiny tokenizer: every stage can be tried on it."""
    spec = json.loads(pathlib.Path(tiny).read_text(encoding="utf-8"))
    by_id = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    merges = spec["model"]["merges"][:250]
    keep = {t for t in by_id if len(t) == 1} | {a + b for a, b in merges} | {"<|endoftext|>"}
    spec["model"]["vocab"] = {t: i for i, t in enumerate(t for t in by_id if t in keep)}
    spec["model"]["merges"] = merges
    return spec


CHARACTERS = ["<unk>"] + [chr(c) for c in range(0x20, 0x7F)] + ["\u00e9", "\u4e16", "ab", "the", "th", "er",
                                                                "in", " t", " the"]
CHARACTER_MODEL = {
    "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
    "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    "vocab": {t: i for i, t in enumerate(CHARACTERS)},
    "merges": [["a", "b"], ["t", "h"], ["e", "r"], ["i", "n"], ["th", "e"], [" ", "t"], [" ", "the"]]}


def variants():
    """name -> what replaces the base's fields ("model_options" goes into the model)."""
    out = {}
    for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
        for invert in (False, True):
            name = f"split_{behavior}{'_invert' if invert else ''}"
            out[name] = {"pre_tokenizer": sequence(split(r"[\s\-]", behavior, invert), BYTES_ONLY)}
        out[f"split_literal_{behavior}"] = {
            "pre_tokenizer": sequence(split("-", behavior, False, True), BYTES_ONLY)}
        out[f"split_empty_{behavior}"] = {
            "pre_tokenizer": sequence(split("x*", behavior), BYTES_ONLY)}
    out["split_literal_special"] = {"pre_tokenizer": sequence(split(".", "Removed", False, True), BYTES_ONLY)}
    out["split_llama3"] = {"pre_tokenizer": sequence(split(LLAMA3), BYTES_ONLY)}
    out["split_qwen2_removed_inverted"] = {
        "pre_tokenizer": sequence(split(QWEN2, "Removed", True), BYTES_ONLY)}
    out["split_words"] = {"pre_tokenizer": sequence(split(r"\w+|[^\w\s]+"), BYTES_ONLY)}
    out["split_not_words"] = {"pre_tokenizer": sequence(split(r"\W+", "MergedWithNext"), BYTES_ONLY)}
    out["split_not_space"] = {"pre_tokenizer": sequence(split(r"\S+[\s\-]?|[\S\n]"), BYTES_ONLY)}
    out["split_lines"] = {"pre_tokenizer": sequence(split(r"^.|.$|(?<=a)b|c(?=d)"), BYTES_ONLY)}
    out["split_alone"] = {"pre_tokenizer": split(r"\d{2,3}|[a-y]+?[^\d]"), "decoder": None}
    out["byte_level_then_split"] = {"pre_tokenizer": sequence(BYTE_LEVEL, split("[0-9][0-9][0-9]"))}
    out["two_byte_levels"] = {"pre_tokenizer": sequence(BYTE_LEVEL, BYTE_LEVEL)}
    out["prefix_space"] = {"pre_tokenizer": dict(BYTE_LEVEL, add_prefix_space=True)}
    out["prefix_space_pieces"] = {
        "pre_tokenizer": sequence(split("-", "Removed"), dict(BYTE_LEVEL, add_prefix_space=True))}
    out["bytes_only"] = {"pre_tokenizer": BYTES_ONLY}
    out["no_normalizer"] = {"normalizer": None}
    out["normalizer_sequence"] = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}
    out["no_decoder"] = {"decoder": None}
    out["decoder_sequence"] = {"decoder": {"type": "Sequence", "decoders": [BYTE_LEVEL]}}
    out["ignore_merges"] = {"model_options": {"ignore_merges": True}, "pre_tokenizer": BYTES_ONLY}
    out["ignore_merges_split"] = {"model_options": {"ignore_merges": True},
                                  "pre_tokenizer": sequence(BYTE_LEVEL, split("q"))}
    out["missing_bytes"] = {"model_remove": ["e", "\u0120", "\u00a9", "\u0100"]}
    out["missing_bytes_unk"] = {"model_remove": ["e", "\u0120", "\u00a9", "\u0100"],
                                "model_options": {"unk_token": "<|endoftext|>"}}
    out["missing_bytes_fused"] = {"model_remove": ["e", "\u0120", "\u00a9", "\u0100"],
                                  "model_options": {"unk_token": "<|endoftext|>", "fuse_unk": True}}
    for fuse in (False, True):
        out[f"characters{'_fused' if fuse else ''}"] = {
            "model": dict(CHARACTER_MODEL, fuse_unk=fuse), "pre_tokenizer": None, "decoder": None,
            "added_tokens": []}
    out["characters_dropped"] = {"model": dict(CHARACTER_MODEL, unk_token=None), "decoder": None,
                                 "pre_tokenizer": None, "added_tokens": []}
    out["characters_ignore_merges"] = {"model": dict(CHARACTER_MODEL, ignore_merges=True),
                                       "pre_tokenizer": split(r" ?\w+"), "decoder": None,
                                       "added_tokens": []}
    end = added("<|endoftext|>", special=True)
    out["added_strip"] = {"added_tokens": [
        end, added("[L]", lstrip=True), added("[R]", rstrip=True),
        added("[T]", lstrip=True, rstrip=True, special=True), added("  "),
        added("[W]", single_word=True), added("[U]", single_word=True, lstrip=True)]}
    out["added_normalized"] = {"added_tokens": [
        end, added("cafe\u0301", normalized=True), added("\u212b", normalized=True, special=True),
        added("x-y", normalized=True, rstrip=True), added("e\u0301", normalized=False),
        added("the", normalized=True, single_word=True), added("\u00e9t\u00e9")]}
    out["added_prefixes"] = {"added_tokens": [end] + [
        added(t) for t in ("a", "aa", "aaaa", "aab", "ab", "b-", "<|end", "|>")]}
    out["added_in_vocab"] = {"added_tokens": [end, added("he", single_word=True), added("!")]}
    out["special_as_text"] = {"special_as_text": True, "added_tokens": [
        end, added("[T]", special=True), added("[U]"), added("[T]<|", special=True)]}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0, 5], "tokens": ["<s>", "x"]},
                                   "</s>": {"id": "</s>", "ids": [7], "tokens": ["</s>"]}}}
    out["template"] = {"add_special_tokens": True, "post_processor": template}
    out["template_off"] = {"post_processor": template}
    out["template_sequence"] = {"add_special_tokens": True, "post_processor": {
        "type": "Sequence", "processors": [BYTE_LEVEL, template]}}
    return {**out, **component_variants()}


VARIANT_TEXTS = [
    "the-final--countdown", "a [L]b", "a  [R]  b", "  [T]  [T]  ", "[W]", "x[W]", "[W] [W]y", "x [U]  [U]",
    "caf\u00e9 cafe\u0301 \u212b \u00c5", "x-y  z", "the other the", "aaaaaaab-", "[T]<|endoftext|>[T]<|x",
    "one.two..three", "ab\u4e16\u754c\u00e9\u00e8 the other", " x\u180ey \u0085z", "don't DON'T 1234567",
    "a\nb\n\ncd \n", "12 123 1234", "\u0f40\u0f74x_1\u203f\u24b6", "xxaxx", "[R]     [L]", "[R]  [R]   x",
]


def apply(base, change):
    spec = json.loads(json.dumps(base))
    for key, value in change.items():
        if key == "model_options":
            spec["model"].update(value)
        elif key == "model_remove":
            gone = set(value)
            spec["model"]["vocab"] = {t: i for t, i in spec["model"]["vocab"].items() if t not in gone}
            spec["model"]["merges"] = [m for m in spec["model"]["merges"] if not gone & set(m)]
        elif key not in ("special_as_text", "add_special_tokens"):
            spec[key] = value
    return spec


def number(tokens, vocab):
    """Gives added tokens the ids that the library gives them whatever the file says."""
    free = len(vocab)
    for token in tokens:
        token["id"] = vocab.get(token["content"], free)
        free += token["content"] not in vocab


def write_variants(out, tiny, generator):
    base = base_tokenizer(tiny)
    texts = [generator.string(i) for i in range(VARIANT_STRINGS)]
    rows = []
    for name, change in variants().items():
        number(change.get("added_tokens", []), base["model"]["vocab"])
        tokenizer = Tokenizer.from_str(json.dumps(apply(base, change)))
        tokenizer.encode_special_tokens = change.get("special_as_text", False)
        add_special = change.get("add_special_tokens", False)
        ids, decoded = digests(tokenizer, texts, add_special)
        shown = VARIANT_TEXTS[::4] if name in component_variants() else VARIANT_TEXTS
        rows.append({"name": name, "change": change, "ids": ids, "decoded": decoded,
                     "random": random_digest(tokenizer),
                     "cases": [case(tokenizer, t, add_special) for t in shown]})
    with open(out / "variants.json", "w", encoding="utf-8") as file:
        json.dump({"strings": VARIANT_STRINGS, "base": base}, file, separators=(",", ":"))
        file.write("\n")
        for row in rows:
            json.dump(row, file, separators=(",", ":"))
            file.write("\n")


SMALL = {"small_bytelevel": "tiny_bpe_bytelevel_tokenizer.json",
         "small_falcon": "tiny_bpe_falcon_seq_tokenizer.json"}


def sha256(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--neox", required=True, help="tokenizer.json of EleutherAI/gpt-neox-20b")
    parser.add_argument("--falcon", required=True, help="GGUF file with Falcon's vocabulary")
    parser.add_argument("--small", required=True, type=pathlib.Path, help="directory of " + ", ".join(SMALL.values()))
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--tiny", default=root / "models/tiny/tokenizer.json")
    parser.add_argument("--out", default=root / "tests/golden/tokenizer", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    ranges = stable_ranges()
    generator = Generator(FRAGMENTS, ranges)
    with open(args.out / "generator.json", "w", encoding="utf-8") as file:
        json.dump({"seed": "%016x" % SEED, "strings": STRINGS, "block": BLOCK,
                   "fragments": [f.encode().hex() for f in FRAGMENTS], "ranges": ranges}, file,
                  separators=(",", ":"))
        file.write("\n")
    write_main(args.out, "neox", Tokenizer.from_file(args.neox), generator)
    write_main(args.out, "tiny", Tokenizer.from_file(str(args.tiny)), generator)
    write_main(args.out, "falcon", Tokenizer.from_str(json.dumps(falcon_tokenizer(args.falcon))), generator,
               full_cases=50)
    for name, file in SMALL.items():
        write_main(args.out, name, Tokenizer.from_file(str(args.small / file)), generator, full_cases=0)
    write_variants(args.out, args.tiny, generator)
    manifest = {"script": "tools/make_tokenizer_goldens.py", "tokenizers": tokenizers.__version__,
                "python": sys.version.split()[0], "unicode": unicodedata.unidata_version,
                "neox_sha256": sha256(args.neox), "tiny_sha256": sha256(args.tiny),
                "falcon_sha256": sha256(args.falcon),
                **{f"{name}_sha256": sha256(args.small / file) for name, file in SMALL.items()}}
    (args.out / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
