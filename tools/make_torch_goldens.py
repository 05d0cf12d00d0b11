#!/usr/bin/env python3
"""Writes tests/golden/torch/: one state dict as the forms that torch.save has had, and what a reader
must find in them (expected.safetensors, written here by hand so that only torch is needed).

usage: tools/make_torch_goldens.py        (any PyTorch of 1.6 or later; made with 1.13)

Every type, a 0-dim tensor, an empty one, tied weights, a transposed tensor, a view with an offset
and every second column, an expanded tensor, a parameter, names beyond ASCII.
"""
import collections
import json
import os
import struct
import zipfile

import torch

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "torch")
types = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}


def state_dict():
    torch.manual_seed(5)
    state = collections.OrderedDict()
    state["backbone.embedding.weight"] = torch.randn(5, 4)
    state["backbone.A_log"] = torch.nn.Parameter(torch.randn(3, 2))
    state["half"] = torch.randn(7).half()
    state["brain"] = torch.randn(2, 3).bfloat16()
    state["double"] = torch.randn(3, dtype=torch.float64)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        state["int." + str(dtype)[6:]] = torch.tensor([-3, 0, 100], dtype=dtype)
    state["byte"] = torch.tensor([0, 255, 7], dtype=torch.uint8)
    state["bool"] = torch.tensor([True, False, True])
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(0, 3)
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state["whole"] = whole
    state["transposed"] = whole.t()
    state["corner"] = whole[1:3, 1::2]
    state["row"] = whole[2]
    state["cube.permuted"] = torch.arange(24, dtype=torch.int16).reshape(2, 3, 4).permute(2, 0, 1)
    state["expanded"] = torch.tensor([[1.0], [2.0]]).expand(2, 3)
    state["größe.Δ"] = torch.tensor([1.0, float("inf"), float("-inf")])
    state["lm_head.weight"] = state["backbone.embedding.weight"]
    return state


def raw(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return tensor.numpy().tobytes()


def write_expected(state, path):
    header, body = {}, b""
    for name, tensor in state.items():
        data = raw(tensor)
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def pack_anew(source, target, method):
    """As somebody who unpacked the archive and zipped it again; the times are fixed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), old.read(name), method)


def main():
    os.makedirs(out, exist_ok=True)
    state = state_dict()
    path = lambda name: os.path.join(out, name)
    write_expected(state, path("expected.safetensors"))
    torch.save(state, path("zip.bin"))
    torch.save(state, path("legacy.bin"), _use_new_zipfile_serialization=False)
    torch.save(state, path("protocol4.bin"), pickle_protocol=4)
    torch.save(state, path("legacy_protocol4.bin"), pickle_protocol=4,
               _use_new_zipfile_serialization=False)
    torch.save({"epoch": 3, "lr": 1e-3, "device": torch.device("cpu"), "dtype": torch.bfloat16,
                "names": ["a", ("b", None)], "model_state_dict": state,
                "optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}, "big": 1 << 100}},
               path("nested.pt"))
    with_metadata = collections.OrderedDict(state)
    with_metadata._metadata = collections.OrderedDict({"": {"version": 1}})
    with_metadata["epoch"] = 7
    torch.save(with_metadata, path("metadata.pth"))
    pack_anew(path("zip.bin"), path("deflated.bin"), zipfile.ZIP_DEFLATED)
    pack_anew(path("zip.bin"), path("unaligned.bin"), zipfile.ZIP_STORED)


main()
