#!/usr/bin/env python3
"""Loads what `ssmscope convert` writes in Hugging Face transformers, and compares the logits.

usage: check_transformers.py PROGRAM MODEL...   (a venv with torch, transformers, safetensors, numpy)

Every model is converted to the Hugging Face layout as safetensors (one file, shards) and as a torch
file, loaded with from_pretrained in float32, and run on the same ids as `ssmscope run --logits`. No
key may be missing or unexpected. Versions and largest relative differences are printed; the run
fails above 1e-5 (float32 in another order of summation).

Every model is also pruned to half its state by a mask of random modes, the same in all channels that
share B and C, and the pruned checkpoint's logits in transformers are compared with those of `run
--mask` on the whole model (Falcon-Mamba: with ours of the pruned one), which must agree to 4e-6.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]


def ours(program, path, scratch, groups, mask=None):
    ids = scratch / "ids.txt"
    ids.write_text(" ".join(map(str, IDS)))
    out = scratch / "logits.safetensors"
    extra = ["--norm-groups=1"] if groups > 1 else []  # what transformers computes
    extra += ["--mask", str(mask)] if mask else []
    subprocess.run([program, "run", str(path), "--ids", str(ids), "-n", "0", "--logits", str(out),
                    "-q", *extra], check=True, stdout=subprocess.DEVNULL)
    return load_file(out)["logits"]


def theirs_by_files(path):
    """The torch files of a directory, as from_pretrained would take them with a newer torch."""
    config = transformers.AutoConfig.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)
    state = {}
    for file in sorted(path.glob("*.bin")):
        state.update(torch.load(file, weights_only=True))
    missing, unexpected = model.load_state_dict(state, strict=False)
    return model.float().eval(), missing, unexpected


def theirs(path):
    if list(path.glob("*.bin")):
        return theirs_by_files(path)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, torch_dtype=torch.float32, output_loading_info=True)
    return model.eval(), info["missing_keys"], info["unexpected_keys"]


def check(program, model, form, scratch):
    to = scratch / "converted"
    subprocess.run([program, "convert", model, "--to", "hf", "-o", str(to), "-q", *form],
                   check=True, stdout=subprocess.DEVNULL)
    config = json.loads((to / "config.json").read_text())
    loaded, missing, unexpected = theirs(to)
    with torch.no_grad():
        got = loaded(torch.tensor([IDS])).logits[0].float().numpy()
    want = ours(program, to, scratch, config.get("n_groups", 1))
    difference = np.abs(got - want).max() / np.abs(want).max()
    good = not missing and not unexpected and difference < 1e-5
    print(f"{'ok ' if good else 'BAD'} {config['model_type']:13} {model} {' '.join(form)}: "
          f"{difference:.2e} missing {list(missing)} unexpected {list(unexpected)}")
    return good


def write_mask(config, path):
    """Half of the modes of every layer, others in every layer and group."""
    groups = config.get("n_groups", 1) if config["model_type"] == "mamba2" else 1
    rows = config.get("num_heads") if config["model_type"] == "mamba2" else config["intermediate_size"]
    states = config["state_size"]
    random = np.random.default_rng(5)
    keep = {}
    for layer in range(config["num_hidden_layers"]):
        sets = np.zeros((groups, states), np.uint8)
        for one in sets:
            one[random.permutation(states)[:states // 2]] = 1
        keep[f"layers.{layer}.keep"] = np.repeat(sets, rows // groups, axis=0)
    save_file(keep, path)


def check_pruned(program, model, scratch):
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    mask = scratch / "mask.safetensors"
    to = scratch / "pruned"
    falcon = config["model_type"] == "falcon_mamba"
    write_mask(config, mask)
    subprocess.run([program, "prune", model, "--mask", str(mask), "-o", str(to), "-q",
                    *(["--renormalised"] if falcon else [])], check=True, stdout=subprocess.DEVNULL)
    small = json.loads((to / "config.json").read_text())
    loaded, missing, unexpected = theirs(to)
    with torch.no_grad():
        got = loaded(torch.tensor([IDS])).logits[0].float().numpy()
    groups = config.get("n_groups", 1) if config["model_type"] == "mamba2" else 1
    want = ours(program, to if falcon else model, scratch, groups, None if falcon else mask)
    difference = np.abs(got - want).max() / np.abs(want).max()
    good = not missing and not unexpected and difference <= 4e-6
    print(f"{'ok ' if good else 'BAD'} {config['model_type']:13} {model} pruned, state_size "
          f"{config['state_size']} to {small['state_size']}: {difference:.2e} "
          f"missing {list(missing)} unexpected {list(unexpected)}")
    return good


def main():
    program = sys.argv[1]
    print("torch", torch.__version__, "transformers", transformers.__version__)
    forms = [[], ["--shard-size", "20000"], ["--format", "bin"], ["--dtype", "bf16"]]
    bad = 0
    for model in sys.argv[2:]:
        for form in forms:
            with tempfile.TemporaryDirectory() as scratch:
                bad += not check(program, model, form, pathlib.Path(scratch))
        with tempfile.TemporaryDirectory() as scratch:
            bad += not check_pruned(program, model, pathlib.Path(scratch))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
