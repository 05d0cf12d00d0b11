#!/usr/bin/env python3
"""Makes tests/golden/gradients: what torch's autograd gives for the tiny models of
tests/golden/hf-tiny.

usage: tools/make_gradient_goldens.py   (needs torch and transformers; goldens: 2.5.1 and 4.57.1)

The models are transformers' own, on their path without kernels, in float64 from end to end: where
their code narrows to float32 (norms, A, B, C), the narrowing is taken out. Loss: the sum of the
cross-entropies of the next token over the first sequence of the model's expectations, but for every
fifth token, which has no label. MODEL.safetensors holds ids, labels (int32), loss (float64) and
gradient.NAME (float32, for its size) of the parameters; of some models only the small ones. MANIFEST
has a SHA-256 of every file.
"""
import hashlib
import os
import pathlib
import struct
import sys

import torch
import transformers

from copy_hf_tiny import read_safetensors, write_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
# Model and the largest tensor that is kept, in elements; the embedding always is.
MODELS = {"mamba-untied-bias-conv3": None, "mamba2-g4-limit": None,
          "mamba-tied": 1100, "falcon": 1100, "mamba2-g1-chunks": 1100}


def stay_float64():
    """Tensor.float and Tensor.to(float32) leave a float64 tensor as it is."""
    to = torch.Tensor.to

    def wide(tensor, *args, **kwargs):
        narrow = torch.float32 in args or kwargs.get("dtype") is torch.float32
        return tensor if narrow and tensor.dtype is torch.float64 else to(tensor, *args, **kwargs)

    torch.Tensor.to = wide
    torch.Tensor.float = lambda tensor: wide(tensor, torch.float32)


def first_ids(model):
    _, tensors = read_safetensors(GOLDEN / "hf-tiny" / model / "expect" / "expected.safetensors")
    dtype, shape, data = tensors["ids.0"]
    code = {"I64": "q", "I32": "i"}[dtype]
    return list(struct.unpack(f"<{shape[-1]}{code}", data))


def make(model, largest):
    ids = first_ids(model)
    labels = [-100 if t % 5 == 4 else label for t, label in enumerate(ids[1:] + [-100])]
    network = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN / "hf-tiny" / model, torch_dtype=torch.float64)
    logits = network(torch.tensor([ids]), use_cache=False).logits[0]
    assert logits.dtype is torch.float64
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="sum")
    loss.backward()
    tensors = {"ids": ("I32", [len(ids)], struct.pack(f"<{len(ids)}i", *ids)),
               "labels": ("I32", [len(ids)], struct.pack(f"<{len(ids)}i", *labels)),
               "loss": ("F64", [1], struct.pack("<d", loss.item()))}
    for name, parameter in network.named_parameters():
        if largest is None or parameter.numel() <= largest or "embeddings" in name:
            gradient = parameter.grad.to(dtype=torch.float64)
            tensors["gradient." + name] = (
                "F32", list(gradient.shape),
                struct.pack(f"<{gradient.numel()}f", *gradient.flatten().tolist()))
    target = GOLDEN / "gradients" / f"{model}.safetensors"
    write_safetensors(target, {"torch": torch.__version__,
                               "transformers": transformers.__version__}, tensors)
    print(f"{model}: {len(tensors) - 3} gradients, loss {loss.item():.6f}", file=sys.stderr)
    return target


def main():
    stay_float64()
    (GOLDEN / "gradients").mkdir(exist_ok=True)
    lines = ["# Gradients of the models of tests/golden/hf-tiny by torch's autograd in float64.",
             f"# Made by tools/make_gradient_goldens.py with torch {torch.__version__} and "
             f"transformers {transformers.__version__}.",
             "# SHA-256, bytes, file."]
    for model, largest in MODELS.items():
        path = make(model, largest)
        raw = path.read_bytes()
        lines.append(f"{hashlib.sha256(raw).hexdigest()} {len(raw)} {path.name}")
    (GOLDEN / "gradients" / "MANIFEST").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    main()
