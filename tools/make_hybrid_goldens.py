#!/usr/bin/env python3
"""Makes tests/golden/hybrid: tiny random models in the original state-spaces layout and what they
give in float64.

usage: tools/make_hybrid_goldens.py   (needs numpy)

No library holds these options together (attention among Mamba layers, MLPs, LayerNorm, the rarer
switches of Mamba-2), so the expectations are computed here, in matrix form and with other
groupings than the engine's reference: the recurrences as masked matrices over pairs of tokens, the
convolutions as sums of shifted copies, rotary as a product of complex numbers, softmax as one
matrix. Each model gets expect/expected.safetensors with ids.S, logits_float64.S and
hidden_float64.S [n_layer+1, L, d_model], S = 0, 1.
"""
import hashlib
import json
import pathlib

import numpy as np

from copy_hf_tiny import write_safetensors

LENGTHS = (37, 6)

BASE = {"rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True,
        "pad_vocab_size_multiple": 8, "tie_embeddings": True, "d_intermediate": 0,
        "ssm_cfg": {}, "attn_layer_idx": [], "attn_cfg": {}}
MODELS = {
    # as mamba2attn-2.7b, with fewer key heads than queries and an MLP
    "mamba2-attention": {
        "d_model": 24, "n_layer": 4, "vocab_size": 27, "d_intermediate": 40,
        "ssm_cfg": {"layer": "Mamba2", "d_state": 6, "headdim": 8, "ngroups": 2, "d_conv": 3},
        "attn_layer_idx": [1, 3],
        "attn_cfg": {"causal": True, "d_conv": 4, "head_dim": 10, "num_heads": 4,
                     "num_heads_kv": 2, "out_proj_bias": False, "qkv_proj_bias": False,
                     "rotary_emb_dim": 6},
        "dtype": "bf16"},
    # as transformerpp-2.7b, with every other switch of the attention
    "transformer": {
        "d_model": 18, "n_layer": 2, "vocab_size": 21, "d_intermediate": 100, "rms_norm": False,
        "tie_embeddings": False, "attn_layer_idx": [0, 1],
        "attn_cfg": {"causal": True, "d_conv": 0, "head_dim": 8, "num_heads": 3,
                     "num_heads_kv": 1, "out_proj_bias": True, "qkv_proj_bias": True,
                     "rotary_emb_dim": 8, "rotary_emb_base": 500.0,
                     "rotary_emb_interleaved": True, "softmax_scale": 0.3},
        "dtype": "f32"},
    "mamba-attention": {
        "d_model": 20, "n_layer": 3, "vocab_size": 24,
        "ssm_cfg": {"layer": "Mamba1", "d_state": 5, "d_conv": 2}, "attn_layer_idx": [1],
        "attn_cfg": {"causal": True, "d_conv": 2, "head_dim": 6, "num_heads": 3,
                     "out_proj_bias": False, "qkv_proj_bias": False, "rotary_emb_dim": 0},
        "dtype": "f16"},
    "mamba2-wide": {  # the scan is narrower than the mixer; gate after the norm
        "d_model": 20, "n_layer": 2, "vocab_size": 24,
        "ssm_cfg": {"layer": "Mamba2", "d_state": 7, "headdim": 4, "d_ssm": 32, "ngroups": 4,
                    "D_has_hdim": True, "norm_before_gate": True, "bias": True,
                    "conv_bias": False, "d_conv": 4, "dt_limit": [0.05, 0.9]},
        "dtype": "f32"},
    "mamba2-no-norm": {
        "d_model": 16, "n_layer": 2, "vocab_size": 24, "tie_embeddings": False,
        "ssm_cfg": {"layer": "Mamba2", "d_state": 9, "headdim": 4, "ngroups": 8, "d_conv": 2,
                    "rmsnorm": False},
        "dtype": "f16"},
}


# ---- weights -------------------------------------------------------------------------------------
def round_to(values, dtype):
    """The stored bytes, and the float64 numbers they stand for."""
    values = values.astype(np.float32)
    if dtype == "f16":
        half = values.astype(np.float16)
        return "F16", half.tobytes(), half.astype(np.float64)
    if dtype == "bf16":
        bits = values.view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return ("BF16", bits.astype("<u2").tobytes(),
                (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64))
    return "F32", values.tobytes(), values.astype(np.float64)


class Weights:
    def __init__(self, seed, dtype):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.stored, self.values = {}, {}

    def add(self, name, *shape, mean=0.0, scale=None, low=None, high=None):
        if low is not None:
            values = self.rng.uniform(low, high, shape)
        else:
            scale = 1.0 / np.sqrt(shape[-1]) if scale is None else scale
            values = mean + scale * self.rng.standard_normal(shape)
        kind, data, self.values[name] = round_to(values, self.dtype)
        self.stored[name] = (kind, list(shape), data)


def add_norm(w, name, config, width):
    w.add(name + ".weight", width, mean=1.0, scale=0.2)
    if not config["rms_norm"]:
        w.add(name + ".bias", width, scale=0.3)


def add_attention(w, p, config):
    a, D = config["attn_cfg"], config["d_model"]
    heads, dh = a["num_heads"], a["head_dim"]
    rows = (heads + 2 * a.get("num_heads_kv", heads)) * dh
    w.add(p + "in_proj.weight", rows, D, scale=1.5 / np.sqrt(D))
    if a["qkv_proj_bias"]:
        w.add(p + "in_proj.bias", rows, scale=0.3)
    if a["d_conv"] > 0:
        w.add(p + "conv1d.weight", rows, 1, a["d_conv"])
        w.add(p + "conv1d.bias", rows, scale=0.3)
    w.add(p + "out_proj.weight", D, heads * dh)
    if a["out_proj_bias"]:
        w.add(p + "out_proj.bias", D, scale=0.3)


def add_mamba1(w, p, config):
    s, D = config["ssm_cfg"], config["d_model"]
    E, N, K, R = 2 * D, s.get("d_state", 16), s.get("d_conv", 4), -(-D // 16)
    w.add(p + "in_proj.weight", 2 * E, D)
    w.add(p + "conv1d.weight", E, 1, K, scale=1.0 / np.sqrt(K))
    w.add(p + "conv1d.bias", E, scale=0.3)
    w.add(p + "x_proj.weight", R + 2 * N, E, scale=2.0 / np.sqrt(E))
    w.add(p + "dt_proj.weight", E, R)
    w.add(p + "dt_proj.bias", E, low=-4.0, high=0.5)
    w.add(p + "A_log", E, N, low=-0.9, high=2.1)
    w.add(p + "D", E, mean=0.5, scale=0.5)
    w.add(p + "out_proj.weight", D, E)


def sizes2(config):
    s = config["ssm_cfg"]
    E = 2 * config["d_model"]
    S = s.get("d_ssm") or E
    return E, S, S // s["headdim"], s["headdim"], s.get("ngroups", 1), s["d_state"], s["d_conv"]


def add_mamba2(w, p, config):
    s, D = config["ssm_cfg"], config["d_model"]
    E, S, H, _, G, N, K = sizes2(config)
    rows = 2 * E + 2 * G * N + H
    w.add(p + "in_proj.weight", rows, D)
    w.add(p + "conv1d.weight", S + 2 * G * N, 1, K, scale=1.0 / np.sqrt(K))
    if s.get("conv_bias", True):
        w.add(p + "conv1d.bias", S + 2 * G * N, scale=0.3)
    w.add(p + "dt_bias", H, low=-4.0, high=0.5)
    w.add(p + "A_log", H, low=-0.9, high=2.1)
    w.add(p + "D", S if s.get("D_has_hdim") else H, mean=0.5, scale=0.5)
    if s.get("rmsnorm", True):
        w.add(p + "norm.weight", S, mean=1.0, scale=0.2)
    w.add(p + "out_proj.weight", D, E)
    if s.get("bias"):
        w.add(p + "in_proj.bias", rows, scale=0.3)
        w.add(p + "out_proj.bias", D, scale=0.3)


def make_weights(config, seed):
    w = Weights(seed, config["dtype"])
    D, multiple = config["d_model"], config["pad_vocab_size_multiple"]
    V = -(-config["vocab_size"] // multiple) * multiple
    w.add("backbone.embedding.weight", V, D, scale=1.0)
    for i in range(config["n_layer"]):
        p = f"backbone.layers.{i}."
        add_norm(w, p + "norm", config, D)
        if i in config["attn_layer_idx"]:
            add_attention(w, p + "mixer.", config)
        elif config["ssm_cfg"].get("layer") == "Mamba2":
            add_mamba2(w, p + "mixer.", config)
        else:
            add_mamba1(w, p + "mixer.", config)
        if config["d_intermediate"] > 0:
            hidden = -(-config["d_intermediate"] // 128) * 128
            add_norm(w, p + "norm2", config, D)
            w.add(p + "mlp.fc1.weight", 2 * hidden, D)
            w.add(p + "mlp.fc2.weight", D, hidden)
    add_norm(w, "backbone.norm_f", config, D)
    if not config["tie_embeddings"]:
        w.add("lm_head.weight", V, D)
    return w


# ---- the mathematics -----------------------------------------------------------------------------
def silu(x):
    return x * 0.5 * (1.0 + np.tanh(0.5 * x))


def softplus(x):
    return np.logaddexp(0.0, x)


def rms(x, eps=1e-5):
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + eps)


def norm(get, name, x, config):
    if config["rms_norm"]:
        return rms(x) * get(name + ".weight")
    centred = x - x.mean(-1, keepdims=True)
    return rms(centred) * get(name + ".weight") + get(name + ".bias")


def affine(get, name, x):
    bias = get(name + ".bias")
    return x @ get(name + ".weight").T + (0.0 if bias is None else bias)


def convolve(get, p, x):
    weight, bias = get(p + "conv1d.weight")[:, 0, :], get(p + "conv1d.bias")
    K, out = weight.shape[1], np.zeros_like(x)
    for back in range(min(K, len(x))):
        out[back:] += x[: len(x) - back] * weight[:, K - 1 - back]
    return out if bias is None else out + bias


def decay(steps, rate):
    """[..., t, j]: exp(rate · sum of steps j+1 … t) for j ≤ t, else 0. steps [..., L]."""
    total = np.cumsum(steps, axis=-1)
    gap = total[..., :, None] - total[..., None, :]
    keep = np.tril(np.ones(gap.shape[-2:], bool))
    return np.where(keep, np.exp(np.where(keep, rate * gap, 0.0)), 0.0)


def mamba1(get, p, x, config):
    xs, z = np.split(affine(get, p + "in_proj", x), 2, axis=1)
    u = silu(convolve(get, p, xs))
    low, N = affine(get, p + "x_proj", u), get(p + "A_log").shape[1]
    B, C = low[:, -2 * N : -N], low[:, -N:]
    delta = softplus(affine(get, p + "dt_proj", low[:, : -2 * N]))
    y = np.empty_like(u)
    for e in range(u.shape[1]):
        M = sum(C[:, n, None] * decay(delta[:, e], -np.exp(get(p + "A_log")[e, n])) * B[None, :, n]
                for n in range(N))
        y[:, e] = M @ (delta[:, e] * u[:, e]) + get(p + "D")[e] * u[:, e]
    return affine(get, p + "out_proj", y * silu(z))


def mamba2(get, p, x, config):
    s, L = config["ssm_cfg"], len(x)
    E, S, H, P, G, N, _ = sizes2(config)
    parts = np.cumsum([E - S, E - S, S, S + 2 * G * N])
    z0, x0, z, xBC, dt = np.split(affine(get, p + "in_proj", x), parts, axis=1)
    u, B, C = np.split(silu(convolve(get, p, xBC)), [S, S + G * N], axis=1)
    u = u.reshape(L, H, P)
    B, C = (np.repeat(a.reshape(L, G, N), H // G, axis=1) for a in (B, C))
    delta = np.clip(softplus(dt + get(p + "dt_bias")), *s.get("dt_limit", (0.0, np.inf)))
    M = decay(delta.T, -np.exp(get(p + "A_log"))[:, None, None])
    M = M * np.einsum("thn,jhn->htj", C, B) * delta.T[:, None, :]
    D = get(p + "D").reshape(H, -1)
    y = (np.einsum("htj,jhp->thp", M, u) + D * u).reshape(L, S)
    if not s.get("rmsnorm", True):
        y = y * silu(z)
    else:
        before = s.get("norm_before_gate", False)
        y = y if before else y * silu(z)
        y = rms(y.reshape(L, G, S // G)).reshape(L, S) * get(p + "norm.weight")
        y = y * silu(z) if before else y
    return affine(get, p + "out_proj", np.concatenate([silu(z0) * x0, y], axis=1))


def rotate(x, a):
    """x [L, heads, head_dim]: pairs of coordinates as complex numbers times e^(i·angle)."""
    r = a["rotary_emb_dim"]
    if r == 0:
        return x
    angle = np.outer(np.arange(len(x)), a.get("rotary_emb_base", 10000.0) ** (-np.arange(0, r, 2) / r))
    turn = np.exp(1j * angle)[:, None, :]
    out = x.copy()
    if a.get("rotary_emb_interleaved"):
        pairs = (x[..., 0:r:2] + 1j * x[..., 1:r:2]) * turn
        out[..., 0:r:2], out[..., 1:r:2] = pairs.real, pairs.imag
    else:
        pairs = (x[..., : r // 2] + 1j * x[..., r // 2 : r]) * turn
        out[..., : r // 2], out[..., r // 2 : r] = pairs.real, pairs.imag
    return out


def attention(get, p, x, config):
    a, L = config["attn_cfg"], len(x)
    heads, dh = a["num_heads"], a["head_dim"]
    groups = a.get("num_heads_kv", heads)
    qkv = affine(get, p + "in_proj", x)
    if a["d_conv"] > 0:
        qkv = convolve(get, p, qkv)
    q, k, v = (part.reshape(L, -1, dh)
               for part in np.split(qkv, [heads * dh, (heads + groups) * dh], axis=1))
    q, k = rotate(q, a), rotate(k, a)
    k, v = (np.repeat(part, heads // groups, axis=1) for part in (k, v))
    scores = np.einsum("thd,jhd->htj", q, k) * a.get("softmax_scale", dh**-0.5)
    scores = np.where(np.tril(np.ones((L, L), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return affine(get, p + "out_proj", np.einsum("htj,jhd->thd", weights, v).reshape(L, -1))


def forward(config, get, ids):
    stream = get("backbone.embedding.weight")[ids]
    hidden = [stream]
    for i in range(config["n_layer"]):
        p = f"backbone.layers.{i}."
        mixer = (attention if i in config["attn_layer_idx"] else
                 mamba2 if config["ssm_cfg"].get("layer") == "Mamba2" else mamba1)
        stream = stream + mixer(get, p + "mixer.", norm(get, p + "norm", stream, config), config)
        if config["d_intermediate"] > 0:
            both = affine(get, p + "mlp.fc1", norm(get, p + "norm2", stream, config))
            y, gate = np.split(both, 2, axis=1)
            stream = stream + affine(get, p + "mlp.fc2", y * silu(gate))
        hidden.append(stream)
    head = "backbone.embedding.weight" if config["tie_embeddings"] else "lm_head.weight"
    return norm(get, "backbone.norm_f", stream, config) @ get(head).T, np.stack(hidden)


def make_model(directory, name, config, seed):
    (directory / "expect").mkdir(parents=True, exist_ok=True)
    w = make_weights(config, seed)
    said = {key: value for key, value in config.items() if key != "dtype"}
    (directory / "config.json").write_text(json.dumps(said, indent=1) + "\n")
    write_safetensors(directory / "model.safetensors", {"format": "pt"}, w.stored)
    expected, rng = {}, np.random.default_rng(seed + 1)
    for sequence, length in enumerate(LENGTHS):
        ids = rng.integers(0, config["vocab_size"], length)
        logits, hidden = forward(config, w.values.get, ids)
        for what, values in (("logits_float64", logits), ("hidden_float64", hidden)):
            expected[f"{what}.{sequence}"] = ("F64", list(values.shape), values.tobytes())
        expected[f"ids.{sequence}"] = ("I64", [length], ids.astype("<i8").tobytes())
    expected = dict(sorted(expected.items(), key=lambda item: item[1][0] != "F64"))
    write_safetensors(directory / "expect" / "expected.safetensors",
                      {"made_by": "tools/make_hybrid_goldens.py"}, expected)


def main():
    golden = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "hybrid"
    lines = [f"# Made by tools/make_hybrid_goldens.py with numpy {np.__version__}.",
             "# SHA-256, bytes, file."]
    for seed, (name, config) in enumerate(MODELS.items()):
        make_model(golden / name, name, {**BASE, **config}, 1000 * (seed + 1))
    for path in sorted(golden.rglob("*")):
        if path.is_file() and path.name != "MANIFEST":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest} {path.stat().st_size:7d} {path.relative_to(golden)}")
    (golden / "MANIFEST").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
