"""Variants of a small byte-level tokenizer, one stage of tokenizer.json changed at a time; they and the
list in make_tokenizer_goldens.py make tests/golden/tokenizer/variants.json."""

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY = dict(BYTE_LEVEL, use_regex=False)
BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")


def pretokenizers(*stages):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(stages)}}


def normalizers(*stages):
    return {"normalizer": {"type": "Sequence", "normalizers": list(stages)}}


def decoders(*stages):
    return {"decoder": {"type": "Sequence", "decoders": list(stages)}}


def replace(pattern, content, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def metaspace(scheme, split=True, replacement="\u2581"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def strip(content, start, stop):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def pre_tokenizer_variants():
    out = {}
    for behavior in BEHAVIORS:
        out[f"punctuation_{behavior}"] = pretokenizers(
            {"type": "Punctuation", "behavior": behavior}, BYTES_ONLY)
    out["punctuation_default"] = pretokenizers({"type": "Punctuation"}, BYTES_ONLY)
    for individual in (False, True):
        digits = {"type": "Digits", "individual_digits": individual}
        out[f"digits_{individual}"] = pretokenizers(digits, BYTES_ONLY)
        out[f"digits_behind_bytes_{individual}"] = pretokenizers(BYTE_LEVEL, digits)
    out["whitespace"] = pretokenizers({"type": "Whitespace"}, BYTES_ONLY)
    out["whitespace_split"] = pretokenizers({"type": "WhitespaceSplit"}, BYTES_ONLY)
    out["bert_pre_tokenizer"] = pretokenizers({"type": "BertPreTokenizer"}, BYTES_ONLY)
    out["char_delimiter"] = pretokenizers({"type": "CharDelimiterSplit", "delimiter": "e"}, BYTES_ONLY)
    out["char_delimiter_wide"] = pretokenizers({"type": "CharDelimiterSplit", "delimiter": "\u00e9"}, BYTES_ONLY)
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            out[f"metaspace_{scheme}_{split}"] = pretokenizers(metaspace(scheme, split), BYTES_ONLY)
    out["metaspace_first_pieces"] = pretokenizers(
        {"type": "WhitespaceSplit"}, metaspace("first"), BYTES_ONLY)
    out["metaspace_first_behind_punctuation"] = pretokenizers(
        {"type": "Punctuation", "behavior": "Removed"}, metaspace("first", True, "x"), BYTES_ONLY)
    out["metaspace_first_stripped"] = {
        **normalizers({"type": "Strip", "strip_left": True, "strip_right": False}),
        **pretokenizers(metaspace("first"), BYTES_ONLY)}
    out["metaspace_first_removed"] = {
        **normalizers(replace("e", "")), **pretokenizers(metaspace("first"), BYTES_ONLY)}
    out["metaspace_first_accents"] = {
        **normalizers({"type": "StripAccents"}), **pretokenizers(metaspace("first"), BYTES_ONLY)}
    out["metaspace_first_prepend"] = {
        **normalizers({"type": "Prepend", "prepend": "ab"}), **pretokenizers(metaspace("first"), BYTES_ONLY)}
    out["metaspace_old"] = pretokenizers(
        {"type": "Metaspace", "replacement": "_", "add_prefix_space": True}, BYTES_ONLY)
    out["metaspace_old_never"] = pretokenizers(
        {"type": "Metaspace", "replacement": "_", "add_prefix_space": False, "prepend_scheme": "never"},
        BYTES_ONLY)
    out["prefix_space_behind_punctuation"] = pretokenizers(
        {"type": "Punctuation", "behavior": "Isolated"}, dict(BYTE_LEVEL, add_prefix_space=True))
    return out


def normalizer_variants():
    out = {}
    for name in ("NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        out[f"normalizer_{name}"] = {"normalizer": {"type": name}}
    out["normalizer_NFKD_StripAccents_Lowercase_NFC"] = normalizers(
        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "NFC"})
    for left in (False, True):
        for right in (False, True):
            out[f"normalizer_strip_{left}_{right}"] = {
                "normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    out["normalizer_replace"] = {"normalizer": replace(" ", "\u2581")}
    out["normalizer_replace_text"] = {"normalizer": replace("the", "")}
    out["normalizer_replace_regex"] = {"normalizer": replace(r"\s{2,}|[0-9]+", "#", True)}
    out["normalizer_replace_anchors"] = {"normalizer": replace(r"^[a-z]|(?<=t)h", "-", True)}
    out["normalizer_prepend"] = {"normalizer": {"type": "Prepend", "prepend": "\u2581"}}
    out["normalizer_prepend_stripped"] = normalizers(
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": " "})
    for accents in (None, False, True):
        for lower in (False, True):
            out[f"normalizer_bert_{accents}_{lower}"] = {"normalizer": {
                "type": "BertNormalizer", "clean_text": not lower or accents is None,
                "handle_chinese_chars": accents is not True, "strip_accents": accents, "lowercase": lower}}
    out["normalizer_byte_level"] = {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}
    out["normalizer_byte_level_split"] = {
        "normalizer": {"type": "ByteLevel"},
        **pretokenizers({"type": "Split", "pattern": {"Regex": "\u0120[a-z]+"}, "behavior": "Isolated",
                         "invert": False})}
    return out


def decoder_variants():
    fuse, fallback = {"type": "Fuse"}, {"type": "ByteFallback"}
    meta = dict(metaspace("always"), replacement="\u0120")
    chains = {
        "fuse": [fuse], "byte_fallback": [fallback],
        "bytes_fuse_strip": [BYTE_LEVEL, fuse, strip(" ", 2, 0)],
        "strip_ends": [strip("e", 0, 1), fuse],
        "strip_tokens": [strip("\u0120", 1, 0), fuse],
        "replace_tokens": [replace("\u0120", " "), fuse, strip(" ", 1, 0)],
        "replace_fused": [fuse, replace("\u0120", " ")],
        "replace_fused_long": [fuse, replace("\u0120\u0120", " ")],
        "replace_regex": [replace("[a-e]+", "*", True)],
        "replace_fused_regex": [BYTE_LEVEL, replace(r"\s+", " ", True)],
        "metaspace": [meta], "metaspace_never": [dict(meta, prepend_scheme="never")],
        "metaspace_fused": [fuse, meta], "metaspace_then_bytes": [meta, BYTE_LEVEL],
        "word_piece": [{"type": "WordPiece", "prefix": "\u0120", "cleanup": False}],
        "word_piece_cleanup": [replace("\u0120", " "), {"type": "WordPiece", "prefix": "##", "cleanup": True}],
        "word_piece_fused": [BYTE_LEVEL, {"type": "WordPiece", "prefix": "##", "cleanup": True}],
        "bpe": [{"type": "BPEDecoder", "suffix": "e"}],
        "bpe_fused": [fuse, {"type": "BPEDecoder", "suffix": "\u0120"}],
        "fused_fallback": [fuse, fallback], "two_bytes": [BYTE_LEVEL, BYTE_LEVEL],
    }
    return {f"decoder_{name}": decoders(*chain) for name, chain in chains.items()}


def processor_variants():
    bert = {"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 4]}
    roberta = {"type": "RobertaProcessing", "sep": ["x", 5], "cls": ["y", 6], "trim_offsets": True,
               "add_prefix_space": False}
    return {"bert_processing": {"add_special_tokens": True, "post_processor": bert},
            "roberta_processing": {"add_special_tokens": True, "post_processor": roberta},
            "processors": {"add_special_tokens": True, "post_processor": {
                "type": "Sequence", "processors": [roberta, BYTE_LEVEL]}}}


def component_variants():
    return {**pre_tokenizer_variants(), **normalizer_variants(), **decoder_variants(), **processor_variants()}
