#!/usr/bin/env python3
"""Goldens of the tasks and of rolling perplexity: results of lm-evaluation-harness.

Writes under tests/golden/tasks/: items of six tasks in the fields of the harness's data sets (made
up here, nothing is copied), a text in the layout of WikiText, and for each model expect.MODEL.json:
log-likelihoods of every request, metrics and standard errors as lm_eval gives them. The model is a
Mamba in numpy float64 that shares no code with this project; its ids come from the tokenizers
library. MODEL is the built-in `tiny`, and `toy`: two layers of the shape tiny, as
initialised.

    python3 -m venv venv && venv/bin/pip install lm_eval==0.4.13 tokenizers datasets
    OPENBLAS_NUM_THREADS=1 HF_DATASETS_OFFLINE=1 venv/bin/python tools/make_task_goldens.py \\
        tiny=models/tiny toy=DIRECTORY

with DIRECTORY written by the test (tests/unit/test_harness.c, SSM_TOY_MODEL=DIRECTORY).
"""
import json
import math
import pathlib
import random
import re
import sys
import tempfile

import numpy as np
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "golden" / "tasks"
ITEMS = 56
MAX_LENGTH = 48  # short, so that some items are truncated and pages need several windows
BOOTSTRAP = 3000

# ---- items ---------------------------------------------------------------------------------------

WORDS = (
    "the a one old small river house garden letter morning winter road hand voice window door "
    "water stone king child mother horse field light fire night ship sea wind city man woman said "
    "went came saw took gave found made kept left was were had been very long slowly never always "
    "under over between before after with without into from about across again because when while "
    "café naïve Zürich señor 日本 Ωmega l'été don't it's we'll 1984 3.14 x_y"
).split()


def sentence(rng, low, high):
    words = [rng.choice(WORDS) for _ in range(rng.randint(low, high))]
    blanks = [" " if rng.random() < 0.95 else "  " for _ in words]
    text = "".join(w + b for w, b in zip(words, blanks)).strip()
    return text[:1].upper() + text[1:]


def lambada(rng, i):
    if i == 5:
        return {"text": "Alone"}  # no context: the prefix token stands for it
    if i == 6:
        return {"text": sentence(rng, 5, 9) + "  door"}  # the context ends with a blank
    end = rng.choice(["", ".", "\""])
    return {"text": sentence(rng, 4, 60) + end + " " + rng.choice(WORDS)}


def piqa(rng, i):
    goal = sentence(rng, 3, 12) + rng.choice(["", "?", "\n", " "])
    return {"goal": goal, "sol1": sentence(rng, 2, 9), "sol2": sentence(rng, 2, 9),
            "label": rng.randint(0, 1)}


def arc(rng, i):
    n = rng.choice([3, 4, 4, 4, 5])
    labels = list("12345")[:n] if i % 7 == 3 else list("ABCDE")[:n]
    return {"id": f"made_{i}", "question": sentence(rng, 4, 16) + "?",
            "choices": {"text": [sentence(rng, 1, 6) for _ in range(n)], "label": labels},
            "answerKey": rng.choice(labels)}


def winogrande(rng, i):
    start = sentence(rng, 3, 9) + (" " if i % 9 else "")
    return {"sentence": f"{start}_{' ' if i % 5 else ''}{sentence(rng, 3, 8).lower()}. ",
            "option1": rng.choice(WORDS) + (" " if i == 8 else ""), "option2": rng.choice(WORDS),
            "answer": rng.choice("12")}


def hellaswag(rng, i):
    mark = ["", " [title]", "[step] ", " [substeps]", "  "][i % 5]
    return {"activity_label": sentence(rng, 1, 3), "ctx_a": sentence(rng, 4, 12) + mark,
            "ctx_b": sentence(rng, 1, 5) if i % 3 else "", "label": str(rng.randint(0, 3)),
            "endings": [sentence(rng, 2, 9) + rng.choice([".", " [title] ", "[x]. ", ""])
                        for _ in range(4)]}


MAKERS = {"lambada_openai": lambada, "piqa": piqa, "arc_easy": arc, "arc_challenge": arc,
          "winogrande": winogrande, "hellaswag": hellaswag}


def wiki(rng):
    lines = [" "]
    for page in range(5):
        lines += [f" = {sentence(rng, 1, 3)} ( {page} ) = ", " "]
        for section in range(rng.randint(1, 4)):
            lines += [f" = = {sentence(rng, 1, 2)} = = ", " "]
            text = " ".join(sentence(rng, 3, 9) + rng.choice([" .", " ;", " !", " ?"])
                            for _ in range(rng.randint(1, 9)))
            for mark in (" , ", " @-@ ", " @,@ ", " @.@ ", " : ", " ( in the  ) ", " [ a b ] ",
                         " \" so he said \" ", " ' it is ' ", " the kings ' ", " N ", " 's ",
                         " 5 \u00b0 north ", " /' 5/ ", " { x } "):
                if rng.random() < 0.5:
                    at = rng.randrange(len(text))
                    text = text[:at] + mark + text[at:]
            lines += [f" {text} ", " "]
    return "\n".join(lines) + "\n"


def pages(text):
    """As the data set EleutherAI/wikitext_document_level was cut."""
    found, page = [], []
    for line in text.split("\n"):
        flat = line.replace("= = =", "===").replace("= =", "==").strip()
        if flat.startswith("= ") and flat.endswith(" ="):
            if "\n".join(page).strip():
                found.append("\n".join(page))
            page = []
        page.append(line)
    return found + ["\n".join(page)]


# ---- the model -----------------------------------------------------------------------------------

def read_safetensors(path):
    """float64 arrays of a file of F32, F16 and BF16."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    tensors.pop("__metadata__", None)
    arrays = {}
    for name, entry in tensors.items():
        raw = data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        arrays[name] = array.reshape(entry["shape"]).astype(np.float64)
    return arrays


class Mamba:
    """Mamba-1 from its equations, float64, one token after the other."""

    def __init__(self, directory):
        config = json.loads((directory / "config.json").read_text())
        self.rank, self.n = config["time_step_rank"], config["state_size"]
        self.eps = config["layer_norm_epsilon"]
        self.w = read_safetensors(directory / "model.safetensors")
        self.layers = config["num_hidden_layers"]

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def mixer(self, x, p):
        w = {k[len(p):]: v for k, v in self.w.items() if k.startswith(p)}
        u, z = np.split(x @ w["in_proj.weight"].T, 2, axis=-1)
        kernel = w["conv1d.weight"][:, 0, :]
        k = kernel.shape[1]
        padded = np.vstack([np.zeros((k - 1, u.shape[1])), u])
        u = sum(padded[i:i + len(u)] * kernel[:, i] for i in range(k)) + w["conv1d.bias"]
        u = u / (1 + np.exp(-u))
        dt, b, c = np.split(u @ w["x_proj.weight"].T, [self.rank, self.rank + self.n], axis=-1)
        delta = np.logaddexp(0, dt @ w["dt_proj.weight"].T + w["dt_proj.bias"])
        a = -np.exp(w["A_log"])
        state, y = np.zeros_like(a), np.empty_like(u)
        for t in range(len(u)):
            state = np.exp(delta[t][:, None] * a) * state
            state += (delta[t] * u[t])[:, None] * b[t][None, :]
            y[t] = state @ c[t]
        y = (y + u * w["D"]) * (z / (1 + np.exp(-z)))
        return y @ w["out_proj.weight"].T

    def log_softmax(self, ids):
        x = self.w["backbone.embeddings.weight"][ids]
        for i in range(self.layers):
            p = f"backbone.layers.{i}."
            x = x + self.mixer(self.norm(x, self.w[p + "norm.weight"]), p + "mixer.")
        head = self.w.get("lm_head.weight", self.w["backbone.embeddings.weight"])
        logits = self.norm(x, self.w["backbone.norm_f.weight"]) @ head.T
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def build_lm(model, tokenizer, prefix):
    from lm_eval import utils
    from lm_eval.api.model import TemplateLM

    class Harness(TemplateLM):
        """What HFLM computes, for a causal model: left truncation, rolling windows."""
        backend = "causal"
        tokenizer_name = "tiny"
        requests = {}

        eot_token_id = prefix
        prefix_token_id = prefix
        max_length = MAX_LENGTH

        def tok_encode(self, string, add_special_tokens=None, **kwargs):
            return tokenizer.encode(string, add_special_tokens=False).ids

        def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
            answers = []
            for _, context, continuation in requests:
                assert context and 0 < len(continuation) <= self.max_length
                ids = (context + continuation)[-(self.max_length + 1):]
                rows = model.log_softmax(ids[:-1])[-len(continuation):]
                total = float(sum(row[i] for row, i in zip(rows, continuation)))
                greedy = all(int(row.argmax()) == i for row, i in zip(rows, continuation))
                answers.append((total, greedy))
            return answers

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            sums = []
            for (text,) in [request.args for request in requests]:
                windows = map(utils.make_disjoint_window, utils.get_rolling_token_windows(
                    token_list=self.tok_encode(text), prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length, context_len=1))
                parts = self._loglikelihood_tokens([(None, a, b) for a, b in windows])
                sums.append(sum(part for part, _ in parts))
            return sums

        def generate_until(self, requests, disable_tqdm=False):
            raise NotImplementedError

    return Harness()


def what_it_says(model, tokenizer, item, prefix):
    """The item with the model's own greedy next word at its end, or as it is."""
    context = item["text"].rpartition(" ")[0]
    ids = tokenizer.encode(context, add_special_tokens=False).ids or [prefix]
    if context != context.rstrip() or len(ids) > MAX_LENGTH - 6:
        return item
    said = []
    for _ in range(4):
        said.append(int(model.log_softmax(ids + said)[-1].argmax()))
        text = tokenizer.decode(said, skip_special_tokens=False)
        word = re.fullmatch(r" [^\s]+", text)
        whole = tokenizer.encode(context + text, add_special_tokens=False).ids
        if word and whole == ids + said:
            return {"text": context + text}
    return item


def evaluate(lm, name, data):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    files = {split: str(data) for split in ("train", "validation", "test")}
    manager = TaskManager()
    task = manager._factory.build(
        manager._entry(name), registry=manager._index,
        overrides={"dataset_path": "json", "dataset_name": None,
                   "dataset_kwargs": {"data_files": files}})
    result = simple_evaluate(model=lm, tasks=[task], num_fewshot=0, log_samples=True,
                             bootstrap_iters=BOOTSTRAP, task_manager=manager)
    samples = sorted(result["samples"][name], key=lambda s: s["doc_id"])
    scores = []
    for sample in samples:
        responses = [r[0] for r in sample["resps"]]
        scores.append([list(r) if isinstance(r, tuple) else r for r in responses])
    metrics = {key.partition(",")[0]: value for key, value in result["results"][name].items()
               if key.endswith(",none")}
    return {"metrics": metrics, "items": scores}


def write_data(model, tokenizer, prefix):
    OUT.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate(MAKERS.items()):
        rng = random.Random(number)
        items = [make(rng, i) for i in range(ITEMS)]
        if name == "lambada_openai":
            items = [what_it_says(model, tokenizer, item, prefix) if i % 3 == 0 else item
                     for i, item in enumerate(items)]
        text = "".join(json.dumps(item, ensure_ascii=i % 2 == 0) + "\n"
                       for i, item in enumerate(items))
        (OUT / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (OUT / "wiki.txt").write_text(wiki(random.Random(99)), encoding="utf-8")


def main():
    models = dict(word.split("=", 1) for word in sys.argv[1:])
    work = pathlib.Path(tempfile.mkdtemp())
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / "tiny" / "tokenizer.json"))
    prefix = tokenizer.token_to_id("<|endoftext|>")
    write_data(Mamba(ROOT / "models" / "tiny"), tokenizer, prefix)
    found = pages((OUT / "wiki.txt").read_text(encoding="utf-8"))
    wiki_data = work / "wiki.jsonl"
    wiki_data.write_text("".join(json.dumps({"page": page}) + "\n" for page in found))
    for name, directory in models.items():
        lm = build_lm(Mamba(pathlib.Path(directory)), tokenizer, prefix)
        out = {"max_length": MAX_LENGTH, "bootstrap": BOOTSTRAP, "prefix": prefix,
               "words": sum(len(re.split(r"\s+", page)) for page in found),
               "bytes": sum(len(page.encode()) for page in found), "pages": len(found), "tasks": {}}
        for task in MAKERS:
            out["tasks"][task] = evaluate(lm, task, OUT / f"{task}.jsonl")
        out["tasks"]["wikitext"] = evaluate(lm, "wikitext", wiki_data)
        text = json.dumps(out, indent=None, separators=(",", ":"))
        (OUT / f"expect.{name}.json").write_text(text.replace("],[[", "],\n[[") + "\n")
        for task, result in out["tasks"].items():
            print(name, task, result["metrics"])


if __name__ == "__main__":
    main()
