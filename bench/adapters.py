#!/usr/bin/env python3
"""Compares LoRA and NF4 with Hugging Face's Trainer with PEFT and bitsandbytes, on two CPU ranks of this machine: tokens/s and memory per rank.

    python3 bench/adapters.py --program build/release/lockstep [--steps 8] [--warm 2] [--repeats 3] [--layers 12] [--width 768] [--sides lockstep-lora,peft]

The model is a Llama of 12 layers, width 768 and a vocabulary of 8,192, with r=16 on all linears of the blocks, sequences of 256, 4 per rank, in
bfloat16. The sides alternate, so that other load affects all of them, and start from the same folder of random weights. Figures are medians of
the repeats; each ratio is printed with its target. Exits with 1 if a target is missed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from run import RANKS, Failed, Lockstep, Machine, Peer, measure, processor

LORA = ["lora.r=16", "lora.lora_alpha=16", "lora.target_modules=all-linear"]
NF4 = ["quantization.bits=4", "quantization.type=nf4", "quantization.double_quant=true"]
OURS = {"lockstep-full": [], "lockstep-lora": LORA, "lockstep-nf4": LORA + NF4}
SIDES = {
    "lockstep-full": "Lockstep, all weights",
    "lockstep-lora": "Lockstep, LoRA",
    "lockstep-nf4": "Lockstep, LoRA on NF4",
    "peft": "Trainer with PEFT",
    "peft-nf4": "Trainer with PEFT and bitsandbytes, NF4",
}


class Folder(Lockstep):
    """Lockstep on a folder of weights, with its own tokenizer and text."""

    def __init__(self, program, folder, machine, settings, model):
        super().__init__(program, folder, machine, settings)
        self.model = model

    def config(self, _):
        return self.model


def make_folder(program, folder, model):
    """Writes a folder of random bfloat16 weights, which every side reads."""
    (folder / "model.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": model["vocabulary"], "hidden_size": model["width"], "intermediate_size": 4 * model["width"] * 2 // 3,
        "num_hidden_layers": model["layers"], "num_attention_heads": model["heads"], "num_key_value_heads": model["heads"],
        "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0}))
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    for command in (
        ["tokenizer", "train", "--files", "text.txt", "--vocab-size", 300, "--output", "words"],
        ["train", "model.path=model.json", "tokenizer.path=words", "data.train=text.txt", "data.sequence_length=64", "output_dir=model", "overwrite_output_dir=true",
         "max_steps=1", "learning_rate=0", "per_device_train_batch_size=1", "bf16=true", "use_cpu=true"],
    ):
        done = subprocess.run([program, *map(str, command)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed:\n{done.stderr[-3000:]}")
    return folder / "model"


def targets():
    """(ratio, True if the target is a minimum or False if a maximum, target)."""
    has_amx = "amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()
    return [
        ("lockstep-lora", "peft", "tokens_per_s", "at least", 2.5 if has_amx else 1.8),
        ("lockstep-lora", "lockstep-full", "tokens_per_s", "at least", 1.25),
        ("lockstep-lora", "peft", "peak_bytes", "at most", 0.45),
        ("lockstep-nf4", "peft-nf4", "tokens_per_s", "at least", 2.5),
        ("lockstep-nf4", "peft-nf4", "peak_bytes", "at most", 0.35),
        ("lockstep-nf4", "lockstep-lora", "tokens_per_s", "at least", 0.8),
    ]


def tell(results):
    """Prints the medians and the ratios; returns the number of missed targets."""
    figures = {side: {key: statistics.median(run[key] for run in runs) for key in ("tokens_per_s", "peak_bytes", "loss")}
               for side, runs in results.items() if runs}
    for side, figure in figures.items():
        print(f"  {SIDES[side]:<42} {figure['tokens_per_s']:>8,.0f} tokens/s  {figure['peak_bytes'] / 2**20:>6,.0f} MiB per rank  "
              f"({len(results[side])} runs)")
    missed = 0
    for side, other, key, bound, value in targets():
        if side in figures and other in figures:
            ratio = figures[side][key] / figures[other][key]
            holds = ratio >= value if bound == "at least" else ratio <= value
            missed += not holds
            what = "tokens/s" if key == "tokens_per_s" else "memory"
            print(f"  {'' if holds else 'MISSED: '}{what} of {SIDES[side]} to {SIDES[other]}: {ratio:.2f} ({bound} {value})")
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--sides", default=",".join(SIDES))
    for name, default in (("steps", 8), ("warm", 2), ("repeats", 3), ("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 8192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    unknown = [side for side in a.sides.split(",") if side not in SIDES]
    if unknown or a.steps <= a.warm:
        parser.error(f"unknown: {', '.join(unknown)}; sides are {', '.join(SIDES)}" if unknown
                     else f"--steps {a.steps} leaves no steps after --warm {a.warm}")
    a.program = a.program.resolve()
    a.checkpoints = False
    machine = Machine()
    if len(machine.cores) < RANKS:
        sys.exit(f"{RANKS} cores are required, but this process may use only {len(machine.cores)}")
    model = {"layers": a.layers, "width": a.width, "heads": a.heads, "vocabulary": a.vocabulary}
    print(f"{processor()}, {RANKS} ranks, load average {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        folder = make_folder(a.program, scratch, model)
        sides = {side: Folder(a.program, scratch, machine, OURS[side], folder) if side in OURS else Peer(side, machine)
                 for side in a.sides.split(",")}
        results = {side: [] for side in sides}
        for repeat in range(a.repeats):
            for side in sides:
                try:
                    run = measure(sides[side], a, {**model, "folder": folder}, "bfloat16", scratch, checkpoints=False)
                except Failed as error:
                    print(f"{side} failed:\n{error}", file=sys.stderr)
                    continue
                results[side].append(run)
                print(f"{(time.monotonic() - began) / 60:4.1f} min: run {repeat + 1} {side}: {run['tokens_per_s']:,.0f} tokens/s, "
                      f"{run['peak_bytes'] / 2**20:,.0f} MiB, loss {run['loss']:.4f}", flush=True)
        print(f"\nLlama of {a.layers} layers, width {a.width}, vocabulary {a.vocabulary:,}, r=16, bfloat16, medians")
        missed = tell(results)
    print(f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(1 if missed or not all(results.values()) else 0)


if __name__ == "__main__":
    main()
