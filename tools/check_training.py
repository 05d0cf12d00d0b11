#!/usr/bin/env python3
"""Trains a recipe here and in torch from the same weights on the same batches, and compares.

usage: check_training.py PROGRAM RECIPE [STEPS]   (a venv with torch, transformers, safetensors, numpy)

RECIPE: layers of mamba1 or mamba2 with RMSNorm and loss on tokens, without dropout. The first
weights come from a run with a learning rate of 0, the batches from `ssmscope task --jsonl`, the
other side is transformers' model (its slow path) under torch.optim.AdamW, clip_grad_norm_ and the
documented schedule. Prints both curves; fails when a loss of the first STEPS (50) steps differs by more
than 1e-4, or the trained directory's logits in transformers differ from `run --logits` by more
than 4e-6 of the largest.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

UNDECAYED = ("A_log", ".D", "bias", "norm")


def learning_rate(recipe, step):
    s, o = recipe["schedule"], recipe["optimiser"]
    if step <= s["warmup"]:
        return o["lr"] * step / s["warmup"]
    p = (step - 1 - s["warmup"]) / (s["steps"] - s["warmup"])
    f = s["final"]
    return o["lr"] * {"cosine": f + (1 - f) * (1 + math.cos(math.pi * p)) / 2,
                      "linear": 1 - (1 - f) * p, "constant": 1.0}[s["decay"]]


def rows(program, recipe, first, count):
    settings = []
    for key, value in recipe["task"].items():
        if key != "name" and value is not None:
            for one in value if isinstance(value, list) else [value]:
                settings.append(f"{key}={one}")
    out = subprocess.run([program, "task", recipe["task"]["name"], *settings, "--jsonl", str(count),
                          "--first", str(first), "--seed", str(recipe["seed"])],
                         check=True, capture_output=True, text=True).stdout
    parsed = [json.loads(line) for line in out.splitlines()]
    return (torch.tensor([row["ids"] for row in parsed]),
            torch.tensor([row["labels"] for row in parsed]))


def torch_run(program, recipe, model, steps):
    o, b = recipe["optimiser"], recipe["batch"]
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        (plain if any(word in name for word in UNDECAYED) else decayed).append(parameter)
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": o["weight_decay"]},
         {"params": plain, "weight_decay": 0.0}],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    count = b["rows"] * b["accumulate"]
    losses = []
    for step in range(1, steps + 1):
        ids, labels = rows(program, recipe, (step - 1) * count, count)
        optimiser.zero_grad()
        logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                                 ignore_index=-1)
        loss.backward()
        if o["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimiser.step()
        losses.append(loss.item())
    return losses


def check_logits(program, directory, model, scratch):
    ids = [int(i) for i in np.random.default_rng(1).integers(0, model.config.vocab_size, 40)]
    (scratch / "ids.txt").write_text(" ".join(map(str, ids)))
    out = scratch / "logits.safetensors"
    subprocess.run([program, "run", str(directory), "--ids", str(scratch / "ids.txt"), "-n", "0",
                    "--logits", str(out), "-q"], check=True, stdout=subprocess.DEVNULL)
    ours = load_file(out)["logits"]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].numpy()
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def main():
    program, path = sys.argv[1:3]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)

        def train(out, *more):
            subprocess.run([program, "train", path, "-o", str(out), "-q", "--set", "evaluate.rows=0",
                            *more], check=True, stdout=subprocess.DEVNULL)

        train(scratch / "first", "--set", "lr=0", "--set", "steps=1", "--set", "warmup=0")
        train(scratch / "ours", "--set", f"steps={steps}")
        recipe = json.loads((scratch / "ours/recipe.json").read_text())
        load = transformers.AutoModelForCausalLM.from_pretrained
        model, info = load(scratch / "first", torch_dtype=torch.float32, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        theirs = torch_run(program, recipe, model.train(), steps)
        lines = (scratch / "ours/training/log.jsonl").read_text().splitlines()
        ours = [json.loads(line)["loss"] for line in lines if line.startswith('{"step"')]
        worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        for step in range(0, steps, max(1, steps // 10)):
            print(f"step {step + 1:3}  ours {ours[step]:.6f}  torch {theirs[step]:.6f}")
        trained = load(scratch / "ours", torch_dtype=torch.float32)
        logits = check_logits(program, scratch / "ours", trained.eval(), scratch)
        print(f"torch {torch.__version__}, transformers {transformers.__version__}: "
              f"largest difference of {steps} losses {worst:.2g} (bound 1e-4); "
              f"of logits {logits:.2g} (bound 4e-6)")
        sys.exit(0 if worst <= 1e-4 and logits <= 4e-6 else 1)


if __name__ == "__main__":
    main()
