#!/usr/bin/env python3
"""Compares training of a small GPT-2 classifier by Lockstep and by Hugging Face's Trainer on two CPU ranks of this machine: accuracy, samples/s and
memory on SST-2's phrases and banking77's questions, from the same folder of random weights, with the same rows and settings.

    python3 bench/classification.py --program build/release/lockstep --data ../shared/data [--rows 2000] [--test-rows 1000] [--epochs 3]
        [--batch 16] [--repeats 3] [--type bfloat16] [--python .deps/peers/bin/python] [--ways]

With --ways it compares Lockstep's two kinds of classifiers instead, a classification head and generated labels
(task.type=generative_classification), on fewer rows: accuracy, seconds of the whole command and of its last evaluation, and memory. Rows are not
packed, so that both take the same number of steps.

The sides alternate, so that other load affects both; each repeat has another seed, and figures are medians. Every run uses two cores with one
thread per rank. Samples/s are those that each side logs for training, without evaluation. Exits with 1 if Lockstep's accuracy is more than a
point lower than the Trainer's.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from run import HERE, PYTHON, RANKS, Machine

LENGTH, RATE, POINT = 64, 5e-4, 0.01
MODEL = {"model_type": "gpt2", "n_positions": LENGTH, "n_embd": 256, "n_layer": 4, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
VOCABULARY = 4096
# Data set -> files, delimiter, and the columns of text and label.
SETS = {
    "sst2": ("train.tsv", "dev.tsv", "\t", "sentence", "label"),
    "banking77": ("train.csv", "test.csv", ",", "text", "category"),
}


def write_rows(folder, name, data, rows, test_rows):
    """Writes train.csv and test.csv: rows at equal distances in the data set's files, so that all labels occur."""
    train, test, delimiter, text, label = SETS[name]
    for source, target, count in ((train, "train.csv", rows), (test, "test.csv", test_rows)):
        with (data / name / source).open(newline="") as file:
            quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
            table = list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))
        count = min(count, len(table))
        with (folder / target).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows([table[i * len(table) // count][column] for column in (text, label)] for i in range(count))


def make_model(program, folder):
    """Writes a folder of random weights with a tokenizer trained on the data set."""
    with (folder / "train.csv").open(newline="") as file:
        (folder / "texts.txt").write_text("\n".join(row["text"] for row in csv.DictReader(file)))
    (folder / "model.json").write_text(json.dumps({**MODEL, "vocab_size": VOCABULARY}))
    for command in (
        ["tokenizer", "train", "--files", "texts.txt", "--vocab-size", VOCABULARY, "--output", "tokenizer"],
        ["train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=texts.txt", f"data.sequence_length={LENGTH}", "output_dir=model", "overwrite_output_dir=true",
         "max_steps=1", "learning_rate=0", "per_device_train_batch_size=1", "use_cpu=true"],
    ):
        done = subprocess.run([program, *map(str, command)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed:\n{done.stderr[-3000:]}")


def run(machine, command, folder, **more):
    process = machine.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    text = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{text[-3000:]}")


def lockstep(a, machine, folder, out, seed):
    run(machine, [
        a.program, "train", "--nproc", RANKS, "model.path=model", "task.type=sequence_classification", "data.train=train.csv",
        "data.validation=test.csv", f"data.sequence_length={LENGTH}", f"output_dir={out}/run", "overwrite_output_dir=true", f"num_train_epochs={a.epochs}",
        f"per_device_train_batch_size={a.batch}", f"per_device_eval_batch_size={a.batch}", f"learning_rate={RATE}", f"seed={seed}",
        "save_strategy=no", "use_cpu=true", *(["bf16=true"] if a.type == "bfloat16" else [])], folder)
    results = json.loads((out / "run" / "all_results.json").read_text())
    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    return {"accuracy": results["eval_accuracy"], "samples_per_s": results["train_samples_per_second"],
            "peak_bytes": max(line["peak_memory_bytes"] for line in lines if "peak_memory_bytes" in line)}


def trainer(a, machine, folder, out, seed):
    run(machine, [
        a.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS, HERE / "peers" / "classifier.py", "--model", "model",
        "--train", "train.csv", "--test", "test.csv", "--out", out, "--batch", a.batch, "--epochs", a.epochs, "--length", LENGTH, "--seed", seed,
        "--rate", RATE, "--type", a.type], folder)
    ranks = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    return {**ranks[0], "peak_bytes": max(rank["peak_bytes"] for rank in ranks)}


SIDES = {"Lockstep": lockstep, "Hugging Face Trainer": trainer}

# Data set -> training rows, test rows, epochs, and the text of its labels.
WAYS = {
    "sst2": (2000, 500, 3, ["task.labels=[0,1]", "generative.verbalizers=[bad,good]"]),
    "banking77": (77 * 30, 77 * 3, 6, []),
}


def ways(a, machine):
    print("| data | | accuracy | whole command | last evaluation | memory |\n|---|---|---|---|---|---|")
    for name in a.sets.split(","):
        rows, tests, epochs, written = WAYS[name]
        with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
            folder = pathlib.Path(scratch)
            write_rows(folder, name, a.data, rows, tests)
            make_model(a.program, folder)
            for way, words in (("head", ["task.type=sequence_classification"]), ("written", ["task.type=generative_classification", *written])):
                began = time.monotonic()
                run(machine, [
                    a.program, "train", "--nproc", RANKS, "model.path=model", *words, "data.train=train.csv", "data.validation=test.csv",
                    f"data.sequence_length={LENGTH}", f"output_dir={way}", "overwrite_output_dir=true", f"num_train_epochs={epochs}", f"per_device_train_batch_size={a.batch}",
                    "per_device_eval_batch_size=32", "learning_rate=1e-3", "data.packing=none", "save_strategy=no", "use_cpu=true",
                    *(["bf16=true"] if a.type == "bfloat16" else [])], folder)
                seconds = time.monotonic() - began
                results = json.loads((folder / way / "all_results.json").read_text())
                lines = [json.loads(line) for line in (folder / way / "metrics.jsonl").read_text().splitlines()]
                peak = max(line["peak_memory_bytes"] for line in lines if "peak_memory_bytes" in line)
                print(f"| {name}, {rows:,} rows, {epochs} epochs; {tests} tested | {way} | {results['eval_accuracy']:.3f} | {seconds:.0f} s | "
                      f"{results['eval_runtime']:.1f} s | {peak / 2**20:,.0f} MiB |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with sst2/ and banking77/")
    parser.add_argument("--python", type=pathlib.Path, default=PYTHON)
    parser.add_argument("--type", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--ways", action="store_true", help="compare a classification head with generated labels instead of the Trainer")
    for name, default in (("rows", 2000), ("test-rows", 1000), ("epochs", 3), ("batch", 16), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    # Not resolved, because the Python of a virtual environment is a link to one outside it.
    a.program, a.python = a.program.absolute(), a.python.absolute()
    machine = Machine()
    print(f"load average {os.getloadavg()[0]:.1f}")
    if a.ways:
        ways(a, machine)
        return
    missed = []
    for name in a.sets.split(","):
        with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
            folder = pathlib.Path(scratch)
            write_rows(folder, name, a.data, a.rows, a.test_rows)
            make_model(a.program, folder)
            results = {side: [] for side in SIDES}
            for repeat in range(a.repeats):
                for side, measure in SIDES.items():
                    out = folder / f"{side.split()[0]}-{repeat}"
                    out.mkdir()
                    results[side].append(measure(a, machine, folder, out, 42 + repeat))
        print(f"\n{name}: {a.epochs} epochs of at most {a.rows:,} rows, {RANKS} ranks of {a.batch} rows, {a.type}")
        accuracy = {}
        for side, runs in results.items():
            middle = {key: statistics.median(each[key] for each in runs) for key in runs[0]}
            accuracy[side] = middle["accuracy"]
            each_run = ", ".join(f"{one['accuracy']:.3f}" for one in runs)
            print(f"  {side:<22} accuracy {middle['accuracy']:.3f} ({each_run})  "
                  f"{middle['samples_per_s']:>7,.1f} samples/s  {middle['peak_bytes'] / 2**20:>6,.0f} MiB", flush=True)
        ours, theirs = (statistics.median(one["samples_per_s"] for one in results[side]) for side in SIDES)
        ours_bytes, theirs_bytes = (statistics.median(one["peak_bytes"] for one in results[side]) for side in SIDES)
        print(f"  {ours / theirs:.2f} times the Trainer's samples/s, {ours_bytes / theirs_bytes:.2f} times its memory", flush=True)
        if accuracy["Lockstep"] < accuracy["Hugging Face Trainer"] - POINT:
            missed.append(f"{name}: accuracy {accuracy['Lockstep']:.3f} beside {accuracy['Hugging Face Trainer']:.3f}")
    print(f"\nload average {os.getloadavg()[0]:.1f}; " + ("missed: " + "; ".join(missed) if missed else "no accuracy is a point lower"))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
