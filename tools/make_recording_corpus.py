#!/usr/bin/env python3
"""Makes the seeds of tests/fuzz/corpus/fuzz_recording: recording.json, a NUL byte, and one safetensors
file that has all tensors of a window, of the model and of a calibration sum. Standard library only.
"""
import json
import pathlib
import struct

OUT = pathlib.Path(__file__).parent.parent / "tests/fuzz/corpus/fuzz_recording"


def head(**changes):
    root = {
        "schema": "ssmscope.recording/1",
        "model": {"digest": "m", "family": "mamba", "n_layers": 1, "d_model": 2, "d_inner": 2, "d_state": 2,
                  "n_heads": 0, "head_dim": 0, "n_groups": 0},
        "tokenizer": {"digest": "t"},
        "window": 128,
        "gram": True,
        "windows": [
            {"file": "shard.safetensors", "domain": "a", "role": "calibration", "token_offset": 0, "tokens": 128},
            {"file": "model.safetensors", "domain": "b", "role": "evaluation", "token_offset": 0, "tokens": 128},
            {"file": "calibration.b.safetensors", "domain": "a", "role": "evaluation", "token_offset": 128,
             "tokens": 128}],
    }
    root.update(changes)
    return json.dumps(root, separators=(",", ":")).encode()


def shard(tensors):
    header, data = {}, b""
    for name, dtype, shape in tensors:
        count = 1
        for dim in shape:
            count *= dim
        sign = -1 if name.endswith(".A") else 1
        values = range(count) if dtype == "I32" else [sign * ((7 * i) % 5 + 1) / 4 for i in range(count)]
        piece = struct.pack(f"<{count}{ {'F32': 'f', 'F64': 'd', 'I32': 'i'}[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


MAMBA = [("layers.0.gram", "F32", [2, 6]), ("layers.0.energy_blocks", "F32", [2, 2, 2]),
         ("layers.0.output_energy", "F32", [2]), ("layers.0.state_moment", "F32", [2, 2]),
         ("layers.0.read_moment", "F32", [2, 2]), ("layers.0.delta_mean", "F32", [2]),
         ("layers.0.adjoint_moment", "F32", [2, 2]), ("layers.0.A", "F32", [2, 2]),
         ("nll", "F32", [127]), ("ids", "I32", [128])]
MAMBA2 = [(n, d, [2] if n == "layers.0.A" else s) for n, d, s in MAMBA] + [
    ("layers.0.energy", "F32", [2, 3, 2]), ("layers.0.channel_error_static", "F64", [1]),
    ("layers.0.channel_error_diag", "F64", [1]), ("layers.0.channel_churn_null", "F64", [1])]

OUT.mkdir(parents=True, exist_ok=True)
(OUT / "mamba").write_bytes(head() + b"\0" + shard(MAMBA))
(OUT / "no_gram").write_bytes(head(gram=False, layers=[0]) + b"\0" + shard(MAMBA[1:]))
(OUT / "mamba2").write_bytes(
    head(model={"digest": "m", "family": "mamba2", "n_layers": 1, "d_model": 2, "d_inner": 6, "d_state": 2,
                "n_heads": 2, "head_dim": 3, "n_groups": 1}, budgets=[1]) + b"\0" + shard(MAMBA2))
