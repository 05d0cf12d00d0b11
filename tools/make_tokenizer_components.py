#!/usr/bin/env python3
"""Makes tests/golden/tokenizers with the Hugging Face `tokenizers` library: small whole tokenizers, each
after a family that people have, and what they give for generated strings.

    pip install tokenizers==0.23.3
    tools/make_tokenizer_components.py [--train]

NAME.json is a tokenizer.json; components.jsonl has a line for each: digests of the ids and of the decoded
texts of STRINGS generated strings, of the texts of random ids (make_tokenizer_goldens.py states both
digests), and some cases in full. The vocabularies are trained on generated strings; not
every trainer gives the same twice, so files that are there are used again unless --train is given.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import make_tokenizer_goldens as goldens
from tokenizer_variants import BYTE_LEVEL, metaspace, replace, strip

STRINGS = 20000
CASES = 12
TRAINING = range(50000, 53000)
MARK = "\u2581"
UNK = {"id": 0, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False,
       "normalized": False, "special": True}
BYTE_TOKENS = ["<0x%02X>" % byte for byte in range(256)]
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PLAIN_WORDS = ("the quick brown fox jumps over the lazy dog and the other language model state space of "
               "Hello world It was a time when reading and writing were taught in the long evenings ") * 8


def special(content, index, **flags):
    return dict(UNK, id=index, content=content, **flags)


def spec(model, added, **stages):
    fields = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
              "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return {**fields, **stages, "model": model}


def sequence(field, *stages):
    return {"type": "Sequence", field: list(stages)}


def template(before, after):
    """before, after: lists of (token, id)."""
    part = lambda token: {"SpecialToken": {"id": token, "type_id": 0}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    single = [part(t) for t, _ in before] + [text("A", 0)] + [part(t) for t, _ in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [text("B", 1)],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in before + after}}


class Trainer:
    def __init__(self, generator):
        self.texts = [PLAIN_WORDS] * 20 + [generator.string(i).replace("\0", "") for i in TRAINING]

        self.latin = ["".join(c for c in text if c < "\u0250") for text in self.texts]

    def model(self, model, trainer, normalizer=None, pre_tokenizer=None, latin=False):
        tokenizer = Tokenizer(model)
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre_tokenizer is not None:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.train_from_iterator(self.latin if latin else self.texts, trainer)
        return json.loads(tokenizer.to_str())["model"]

    def sentence_piece(self, specials, with_bytes, skip=()):
        """A BPE over blanks written as MARK, in the order of SentencePiece: specials, bytes, pieces."""
        trained = self.model(
            models.BPE(), trainers.BpeTrainer(vocab_size=260, limit_alphabet=110, show_progress=False),
            pre_tokenizer=pre_tokenizers.Metaspace())
        merges = [["\u2581", "\u2581"], ["\u2581\u2581", "\u2581\u2581"]] + trained["merges"]
        merged = [a + b for a, b in merges]
        letters = [t for t in trained["vocab"] if t not in set(merged) and t != " "]
        vocab = specials + [t for t in (BYTE_TOKENS if with_bytes else []) if t not in skip] + merged + letters
        return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": with_bytes,
                "ignore_merges": False, "vocab": {t: i for i, t in enumerate(dict.fromkeys(vocab))},
                "merges": merges}


LLAMA_DECODER = sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                         strip(" ", 1, 0))
LLAMA_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK))


def sentence_piece_family(trainer):
    specials = ["<unk>", "<s>", "</s>"]
    model = trainer.sentence_piece(specials, True)
    tokens = [special(t, i) for i, t in enumerate(specials)]
    llama = spec(model, tokens, normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER,
                 post_processor=template([("<s>", 1)], []))
    holes = trainer.sentence_piece(specials, True, skip=("<0xCC>", "<0xE2>", "<0x0A>"))
    legacy = spec(dict(holes, fuse_unk=False), [dict(t, normalized=True) for t in tokens],
                  normalizer=LLAMA_NORMALIZER, decoder=LLAMA_DECODER,
                  post_processor=template([("<s>", 1)], [("</s>", 2)]))
    mistral = spec(dict(model, ignore_merges=True), tokens, pre_tokenizer=metaspace("first", False),
                   decoder=LLAMA_DECODER, post_processor=template([("<s>", 1)], []))
    plain = trainer.sentence_piece(specials, False)
    always = spec(plain, tokens, pre_tokenizer=metaspace("always"), decoder=metaspace("always"))
    old = {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}
    dropping = spec(dict(plain, unk_token=None), tokens, pre_tokenizer=old, decoder=old)
    return {"llama": llama, "llama_legacy": legacy, "mistral": mistral, "metaspace": always,
            "metaspace_dropping": dropping}


def bert_family(trainer):
    tokens = [special(t, i) for i, t in enumerate(BERT_SPECIALS)]
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                  "strip_accents": None, "lowercase": True}
    train = lambda lower: trainer.model(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=420, limit_alphabet=90, special_tokens=BERT_SPECIALS,
                                  show_progress=False),
        normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer())
    uncased = spec(train(True), tokens, normalizer=normalizer, pre_tokenizer={"type": "BertPreTokenizer"},
                   post_processor=template([("[CLS]", 2)], [("[SEP]", 3)]),
                   decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
    short = dict(train(False), max_input_chars_per_word=9)
    cased = spec(short, tokens, normalizer=dict(normalizer, lowercase=False),
                 pre_tokenizer={"type": "BertPreTokenizer"},
                 post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                 decoder={"type": "WordPiece", "prefix": "##", "cleanup": False})
    return {"bert_uncased": uncased, "bert_cased": cased}


def affix_family(trainer):
    lower = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    gpt = trainer.model(
        models.BPE(unk_token="<unk>"),
        trainers.BpeTrainer(vocab_size=380, limit_alphabet=80, special_tokens=["<unk>"],
                            end_of_word_suffix="</w>", show_progress=False),
        lower, pre_tokenizers.BertPreTokenizer())
    continued = trainer.model(
        models.BPE(unk_token="<unk>"),
        trainers.BpeTrainer(vocab_size=380, limit_alphabet=80, special_tokens=["<unk>"],
                            continuing_subword_prefix="##", show_progress=False),
        None, pre_tokenizers.Whitespace())
    chain = sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"})
    both = dict(continued, end_of_word_suffix="e", fuse_unk=True)
    return {
        "gpt": spec(gpt, [UNK], normalizer=chain, pre_tokenizer={"type": "BertPreTokenizer"},
                    decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "continued": spec(continued, [UNK], pre_tokenizer={"type": "Whitespace"},
                          decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
        "both_affixes": spec(both, [UNK], pre_tokenizer={"type": "Whitespace"})}


def word_level(trainer):
    model = trainer.model(
        models.WordLevel(unk_token="<unk>"),
        trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False),
        normalizers.NFKC(), pre_tokenizers.Whitespace())
    return {"word_level": spec(model, [UNK], normalizer={"type": "NFKC"}, pre_tokenizer={"type": "Whitespace"})}


def unigram_family(trainer):
    train = lambda split: trainer.model(
        models.Unigram(), trainers.UnigramTrainer(vocab_size=420, special_tokens=["<unk>"], unk_token="<unk>",
                                                  show_progress=False),
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
        pre_tokenizers.Metaspace(split=split), latin=True)
    chain = sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, replace(" {2,}", " ", True))
    model = train(True)
    first = {t: s for t, s in reversed(model["vocab"])}  # "<unk>" stands in the texts too
    keep = [(t, first[t]) for t in dict(model["vocab"]) if len(t) > 1 or t < "\u0180" or t == MARK]
    keep = [p for p in keep if p[0] not in BYTE_TOKENS]
    fallback = {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                "vocab": keep + [(t, -30.0) for t in BYTE_TOKENS]}
    holes = dict(fallback, vocab=[p for p in fallback["vocab"] if p[0] not in ("<0xCC>", "<0xE4>")])
    return {
        "unigram": spec(dict(model, vocab=keep, byte_fallback=False), [UNK], normalizer=chain,
                        pre_tokenizer=metaspace("always"), decoder=metaspace("always"),
                        post_processor=template([], [("<unk>", 0)])),
        "unigram_fallback": spec(fallback, [UNK], pre_tokenizer=metaspace("first", False),
                                 decoder=sequence("decoders", {"type": "ByteFallback"}, metaspace("first"))),
        "unigram_holes": spec(holes, [UNK], normalizer=chain,
                              pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"},
                                                     metaspace("always")),
                              decoder=sequence("decoders", {"type": "ByteFallback"}, metaspace("always"),
                                               {"type": "Fuse"}))}


def byte_families(trainer):
    model = trainer.model(
        models.BPE(), trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                          show_progress=False),
        None, pre_tokenizers.ByteLevel(add_prefix_space=False))
    llama3 = {"type": "Split", "pattern": {"Regex": goldens.LLAMA3}, "behavior": "Isolated", "invert": False}
    end = special("<|endoftext|>", len(model["vocab"]))
    falcon3 = sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL,
                       {"type": "Digits", "individual_digits": True},
                       {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
                        "invert": False})
    pair = dict(template([("<|endoftext|>", end["id"])], []))
    return {
        "llama3": spec(dict(model, ignore_merges=True), [end], post_processor=sequence(
            "processors", BYTE_LEVEL, pair), decoder=BYTE_LEVEL, pre_tokenizer=sequence(
                "pretokenizers", llama3, dict(BYTE_LEVEL, use_regex=False))),
        "falcon3": spec(model, [end], pre_tokenizer=falcon3, decoder=BYTE_LEVEL),
        "roberta": spec(model, [end], pre_tokenizer=dict(BYTE_LEVEL, add_prefix_space=True), decoder=BYTE_LEVEL,
                        post_processor={"type": "RobertaProcessing", "sep": ["<|endoftext|>", end["id"]],
                                        "cls": ["!", 0], "trim_offsets": True, "add_prefix_space": True})}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    out = root / "tests/golden/tokenizers"
    out.mkdir(parents=True, exist_ok=True)
    generator = goldens.Generator(goldens.FRAGMENTS, goldens.stable_ranges())
    index = out / "components.jsonl"
    lines = index.read_text(encoding="utf-8").splitlines() if index.exists() else []
    names = [json.loads(line)["name"] for line in lines]
    made = {name: None for name in names}
    if "--train" in sys.argv[1:]:
        trainer = Trainer(generator)
        made = {**sentence_piece_family(trainer), **bert_family(trainer), **affix_family(trainer),
                **word_level(trainer), **unigram_family(trainer), **byte_families(trainer)}
    texts = [generator.string(i) for i in range(STRINGS)]
    shown = goldens.VARIANT_TEXTS[:CASES // 2] + texts[:CASES // 2]
    with open(index, "w", encoding="utf-8") as file:
        for name, fields in made.items():
            path = out / f"{name}.json"
            if fields is not None:
                text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
                path.write_text(text + "\n", encoding="utf-8")
            text = path.read_text(encoding="utf-8")
            tokenizer = Tokenizer.from_str(text)
            ids, decoded = goldens.digests(tokenizer, texts, True)
            json.dump({"name": name, "strings": STRINGS, "ids": ids, "decoded": decoded,
                       "random": goldens.random_digest(tokenizer),
                       "cases": [goldens.case(tokenizer, t, True) for t in shown]}, file,
                      separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main()
