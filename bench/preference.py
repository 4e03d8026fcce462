#!/usr/bin/env python3
"""Compares DPO of a small Llama by Lockstep and by TRL's DPOTrainer on two CPU ranks of this machine: tokens/s and memory, from the same folder of
random weights, with the same pairs and settings.

    python3 bench/preference.py --program build/release/lockstep [--pairs 512] [--batch 8] [--length 128] [--repeats 3] [--type bfloat16]
        [--python .deps/peers/bin/python]

The sides alternate; figures are medians of the repeats. Every run uses two cores with one thread per rank and trains one epoch. Tokens are those of
both answers with their prompts, without padding. TRL's time is the training time that its trainer logs, in which a second model scores each batch.
Lockstep's time is its logged training time plus the time to score all answers before: the difference between a run that scores them and one that
finds the scores in its cache. Memory is the largest resident size of any rank. Exits with 1 if the first losses of the two sides differ.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from run import HERE, PYTHON, RANKS, Machine

RATE, BETA = 1e-4, 0.1
VOCABULARY = 8192
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 512, "intermediate_size": 1376,
         "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "bos_token_id": 0, "eos_token_id": 0,
         "tie_word_embeddings": False}


def write_pairs(folder, count, length):
    """Writes prompts and answers of invented words, of many lengths that fit."""
    draw = random.Random(7)
    words = ["".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 3))) for _ in range(2000)]

    def text(least, most):
        return " " + " ".join(draw.choice(words) for _ in range(draw.randint(least, most)))

    part = length // 8  # a word is a few tokens
    rows = [{"prompt": text(2, part), "chosen": text(2, part), "rejected": text(2, part)} for _ in range(count)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "texts.txt").write_text("\n".join("".join(row.values()) for row in rows))


def started(machine, command, folder):
    """Runs a command; returns its duration and output."""
    began = time.monotonic()
    process = machine.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{text[-3000:]}")
    return time.monotonic() - began, text


def make_model(a, machine, folder):
    (folder / "model.json").write_text(json.dumps({**MODEL, "max_position_embeddings": a.length}))
    for command in (
        ["tokenizer", "train", "--files", "texts.txt", "--vocab-size", VOCABULARY, "--output", "tokenizer"],
        ["train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=texts.txt", f"data.sequence_length={a.length}",
         "output_dir=model", "overwrite_output_dir=true", "max_steps=1", "learning_rate=0", "per_device_train_batch_size=1", "use_cpu=true"],
    ):
        started(machine, [a.program, *command], folder)


def lockstep(a, machine, folder, out):
    def run(name, *more):
        wall, _ = started(machine, [
            a.program, "train", "--nproc", RANKS, "model.path=model", "task.type=preference", "data.train=pairs.jsonl",
            f"data.cache_dir={out}/cache", f"data.sequence_length={a.length}", f"output_dir={out}/{name}", "overwrite_output_dir=true", "num_train_epochs=1",
            f"per_device_train_batch_size={a.batch}", f"per_device_eval_batch_size={a.batch}", f"learning_rate={RATE}",
            f"preference.beta={BETA}", "lr_scheduler_type=constant", "logging_steps=1", "save_strategy=no", "use_cpu=true",
            *(["bf16=true"] if a.type == "bfloat16" else []), *more], folder)
        lines = [json.loads(line) for line in (out / name / "metrics.jsonl").read_text().splitlines()]
        runtime = json.loads((out / name / "all_results.json").read_text())["train_runtime"]
        return wall - runtime, runtime, lines

    before, runtime, lines = run("run")
    scoring = max(0, before - run("again", "max_steps=1")[0])
    return {"loss": next(line["loss"] for line in lines if "loss" in line), "seconds": runtime + scoring, "scoring": scoring,
            "peak_bytes": max(line["peak_memory_bytes"] for line in lines if "peak_memory_bytes" in line)}


def trl(a, machine, folder, out):
    started(machine, [
        a.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS, HERE / "peers" / "preference.py", "--model", "model",
        "--pairs", "pairs.jsonl", "--out", out, "--batch", a.batch, "--length", a.length, "--rate", RATE, "--beta", BETA, "--type", a.type],
        folder)
    ranks = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    return {**ranks[0], "scoring": 0, "peak_bytes": max(rank["peak_bytes"] for rank in ranks)}


SIDES = {"Lockstep": lockstep, "TRL": trl}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path, default=PYTHON)
    parser.add_argument("--type", choices=("bfloat16", "float32"), default="bfloat16")
    for name, default in (("pairs", 512), ("batch", 8), ("length", 128), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    # Not resolved, because the Python of a virtual environment is a link to one outside it.
    a.program, a.python = a.program.absolute(), a.python.absolute()
    machine = Machine()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        folder = pathlib.Path(scratch)
        write_pairs(folder, a.pairs, a.length)
        make_model(a, machine, folder)
        results = {side: [] for side in SIDES}
        for repeat in range(a.repeats):
            for side, measure in SIDES.items():
                out = folder / f"{side}-{repeat}"
                out.mkdir()
                results[side].append(measure(a, machine, folder, out))
    tokens = results["TRL"][0]["tokens"]
    middle = {side: {key: statistics.median(run[key] for run in runs) for key in ("loss", "seconds", "scoring", "peak_bytes")}
              for side, runs in results.items()}
    print(f"\nDPO, one epoch of {a.pairs:,} pairs ({tokens:,} tokens), {RANKS} ranks of {a.batch} pairs, {a.type}")
    for side, found in middle.items():
        print(f"  {side:<10} {tokens / found['seconds']:>8,.0f} tokens/s  {found['peak_bytes'] / 2**20:>6,.0f} MiB  first loss "
              f"{found['loss']:.4f}" + (f"  ({found['scoring']:.1f} of {found['seconds']:.1f} s for the reference scores)"
                                        if found["scoring"] else ""))
    ours, theirs = middle["Lockstep"], middle["TRL"]
    print(f"  {theirs['seconds'] / ours['seconds']:.2f} times TRL's tokens/s, {ours['peak_bytes'] / theirs['peak_bytes']:.2f} times its memory; "
          f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(0 if abs(ours["loss"] - theirs["loss"]) < 0.02 else 1)


if __name__ == "__main__":
    main()
