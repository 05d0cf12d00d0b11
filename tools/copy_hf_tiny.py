#!/usr/bin/env python3
"""Copies the tiny Hugging Face models and their float64 expectations into tests/golden/hf-tiny.

usage: tools/copy_hf_tiny.py SOURCE   (a directory that holds mamba-tied, mamba-untied-bias-conv3, ...)

Of expect/expected.safetensors only what the tests compare is kept: ids.S, logits_float64.S,
hidden_float64.S and, of models with groups, logits_grouped_norm.S. Writes MANIFEST with the origin and a SHA-256 of every file. Standard library only.
"""
import hashlib
import json
import pathlib
import shutil
import struct
import sys

MODELS = ["mamba-tied", "mamba-untied-bias-conv3", "mamba-bf16-sharded", "falcon",
          "mamba2-g1-chunks", "mamba2-g4-limit"]
KEPT = ("ids.", "logits_float64.", "hidden_float64.", "logits_grouped_norm.")


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + size :]
    return metadata, {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def write_safetensors(path, metadata, tensors):
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def copy_model(source, target):
    (target / "expect").mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_file():
            shutil.copyfile(path, target / path.name)
    metadata, tensors = read_safetensors(source / "expect" / "expected.safetensors")
    kept = {name: value for name, value in tensors.items() if name.startswith(KEPT)}
    write_safetensors(target / "expect" / "expected.safetensors", metadata, kept)
    return metadata


def main():
    source = pathlib.Path(sys.argv[1])
    golden = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "hf-tiny"
    lines = [
        "# Tiny random models in Hugging Face layout, made for this project with",
        "# transformers 4.57.1 and torch 2.5.1; expectations are an independent float64 recurrence.",
        "# Copied by tools/copy_hf_tiny.py. SHA-256, bytes, file.",
    ]
    for model in MODELS:
        metadata = copy_model(source / model, golden / model)
        lines.append(f"# {model}: {metadata.get('made_by', 'no made_by')}")
        for path in sorted((golden / model).rglob("*")):
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                name = path.relative_to(golden)
                lines.append(f"{digest} {path.stat().st_size:7d} {name}")
    (golden / "MANIFEST").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
