"""The metadata of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md), and Falcon's tokenizer.json out
of it. tests/support/test_gguf.c builds the same file in C."""
import struct

FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
           12: "<d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        count = self.number("<Q")
        self.at += count
        return self.data[self.at - count:self.at].decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner = self.number("<I")
            return [self.value(inner) for _ in range(self.number("<Q"))]
        return self.number(FORMATS[kind])


def read_metadata(path):
    with open(path, "rb") as file:
        reader = Reader(file.read())
    if reader.data[:4] != b"GGUF":
        raise ValueError(f"{path} is no GGUF file")
    reader.at = 4
    reader.number("<I")  # version
    reader.number("<Q")  # tensors
    metadata = {}
    for _ in range(reader.number("<Q")):
        key = reader.text()
        metadata[key] = reader.value(reader.number("<I"))
    return metadata


def falcon_tokenizer(path):
    """Falcon's pipeline around the vocabulary and merges of the GGUF file."""
    metadata = read_metadata(path)
    tokens = metadata["tokenizer.ggml.tokens"]
    special = [i for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Punctuation", "behavior": "Contiguous"}, byte_level,
            {"type": "Digits", "individual_digits": False},
            {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
             "invert": False}]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": metadata["tokenizer.ggml.merges"]}}
