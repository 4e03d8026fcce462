#!/usr/bin/env python3
"""Compares Qwen3, BERT (masked tokens) and a Qwen3 mixture of 8 experts with Hugging Face's Trainer on two CPU ranks of this machine, each model with
4 layers of width 256 in bfloat16. Also compares Muon's step with AdamW's, and expert parallelism with replicated experts.

    python3 bench/families.py --program build/release/lockstep [--models qwen3,bert,qwen3_moe] [--types bfloat16] [--repeats 3] [--steps 12] [--warm 4]
        [--width 256] [--layers 4] [--length 256] [--vocabulary 8192] [--python .deps/peers/bin/python]

The sides alternate, each on two cores with one thread per rank; figures are medians. The last column contains the targets: tokens/s relative to the
Trainer, memory per rank at most 0.45 of the Trainer's, a step of Muon at most 1.15 of AdamW's, expert parallelism at least 0.9 of the tokens/s of
replicated experts.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

import run
from run import Failed, HERE, Lockstep, Machine, Peer

ENCODERS = HERE.parent / "tests" / "program"
GOALS = {"qwen3": 2.5, "bert": 2.5, "qwen3_moe": 3.0}  # with AMX; 2 without it, except for the mixture
MEMORY, MUON, SPREAD = 0.45, 1.15, 0.9


def settings_of(name, a):
    width, heads = a.width, max(a.width // 64, 1)
    sizes = {"vocab_size": a.vocabulary, "hidden_size": width, "num_hidden_layers": a.layers, "num_attention_heads": heads,
             "max_position_embeddings": a.length, "intermediate_size": 3 * width}
    rotary = {**sizes, "num_key_value_heads": max(heads // 2, 1), "head_dim": 64, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0}
    return {
        "qwen3": {**rotary, "model_type": "qwen3"},
        "bert": {**sizes, "model_type": "bert", "intermediate_size": 4 * width, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
                 "pad_token_id": 0},
        "qwen3_moe": {**rotary, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": width,
                      "norm_topk_prob": True},
    }[name]


class Ours(Lockstep):
    """The trainer as run.py measures it, with a model of another family."""

    def __init__(self, program, folder, machine, name, config, settings=()):
        super().__init__(program, folder, machine, settings)
        self.file = folder / f"{name}.json"
        self.file.write_text(json.dumps(config))
        if config["model_type"] == "bert":
            sys.path.insert(0, str(ENCODERS))
            from encoders import word_pieces
            tokenizer = folder / "tokenizer"
            for file in tokenizer.iterdir():
                file.unlink()
            (tokenizer / "tokenizer.json").write_text(json.dumps(word_pieces((folder / "sample" / "train.txt").read_text())))
            (tokenizer / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]", "pad_token": "[PAD]", "cls_token": "[CLS]",
                                                                         "sep_token": "[SEP]", "unk_token": "[UNK]"}))

    def config(self, model):
        return self.file


class Theirs(Peer):
    script = "family.py"

    def __init__(self, machine, file):
        super().__init__("family", machine)
        self.more = ("--config", file)


def measure(sides, a, dtype):
    """Median figures of each side; the sides alternate."""
    results = {name: [] for name in sides}
    for _ in range(a.repeats):
        for name, side in sides.items():
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as out:
                try:
                    results[name].append(side.run({}, dtype, a.steps, a.warm, pathlib.Path(out)))
                except Failed as error:
                    sys.exit(f"{name} failed:\n{error}")
    return {name: {key: statistics.median(each[key] for each in runs) for key in runs[0]} for name, runs in results.items()}


def line(name, figures, verdict=""):
    print(f"  {name:<34} {figures['tokens_per_s']:>9,.0f} tokens/s {figures['processor_ms']:>8,.0f} ms of processor time per 1,000 tokens "
          f"{figures['peak_bytes'] / 2**20:>6,.0f} MiB  {verdict}", flush=True)


def beside_trainer(name, a, dtype, program, folder, machine):
    config = settings_of(name, a)
    ours = Ours(program, folder, machine, name, config)
    found = measure({"Lockstep": ours, "Trainer": Theirs(machine, ours.file)}, a, dtype)
    speed = found["Lockstep"]["tokens_per_s"] / found["Trainer"]["tokens_per_s"]
    memory = found["Lockstep"]["peak_bytes"] / found["Trainer"]["peak_bytes"]
    line("Lockstep", found["Lockstep"], f"{speed:.2f} x (target {GOALS[name]}), memory {memory:.2f} ({MEMORY})")
    line("Hugging Face Trainer", found["Trainer"])


def beside_ours(name, a, dtype, program, folder, machine):
    config = settings_of(name, a)
    sides = {"qwen3": {"AdamW": [], "Muon": ["optim=muon"]},
             "qwen3_moe": {"experts on each rank": [], "experts spread over two ranks": ["parallel.expert=2"],
                           "the same, in halves": ["parallel.expert=2", "parallel.expert_halves=true"]}}[name]
    found = measure({side: Ours(program, folder, machine, name, config, more) for side, more in sides.items()}, a, dtype)
    plain = found.pop(next(iter(sides)))
    line(next(iter(sides)), plain)
    for side, figures in found.items():
        speed = figures["tokens_per_s"] / plain["tokens_per_s"]
        line(side, figures, f"step time {1 / speed:.2f} x (maximum {MUON})" if name == "qwen3" else f"{speed:.2f} x (minimum {SPREAD})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(GOALS))
    parser.add_argument("--types", default="bfloat16")
    for name, default in (("repeats", 3), ("steps", 12), ("warm", 4), ("width", 256), ("layers", 4), ("length", run.LENGTH), ("vocabulary", 8192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--python", type=pathlib.Path, default=run.PYTHON)
    a = parser.parse_args()
    # Not resolved, because the Python of a virtual environment is a link to one outside it.
    run.LENGTH, run.PYTHON = a.length, a.python.absolute()
    machine, program = Machine(), a.program.absolute()
    print(f"load average {os.getloadavg()[0]:.1f}; {run.RANKS} ranks of {run.BATCH} sequences of {a.length}, {a.layers} layers of {a.width}")
    for name in a.models.split(","):
        for dtype in a.types.split(","):
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
                folder = pathlib.Path(scratch)
                print(f"\n{name}, {dtype}")
                beside_trainer(name, a, dtype, program, folder, machine)
                if name != "bert":
                    beside_ours(name, a, dtype, program, folder, machine)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
