#!/usr/bin/env python3
"""Measures the speed of tensor, context and pipeline parallelism relative to data parallelism at the same global batch, on two CPU ranks of this
machine; and of a pipeline relative to its schedule's bound with the measured stage times.

    python3 bench/parallel.py --program build/release/lockstep [--types float32,bfloat16] [--repeats 3] [--steps 12]
        [--warm 3]

The plans alternate, so that other load affects all of them; figures are medians of the repeats. Every run uses two cores with one thread per rank.
The time of a step is the median of the steps after the first ones. Exits with 1 if a target is missed.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from run import LENGTH, Lockstep, Machine

MODELS = {
    "wide vocabulary": {"layers": 4, "width": 256, "heads": 4, "vocabulary": 50257},
    "deep": {"layers": 8, "width": 256, "heads": 4, "vocabulary": 2048},
}
CHUNKS = 8
# Model -> plans: batch per rank and step (sequences, accumulation) and the target fraction of data=2's speed.
PLANS = {
    "wide vocabulary": {
        "data=2": (["parallel.data=2"], 4, 1, None),
        "tensor=2": (["parallel.tensor=2"], 8, 1, 1.0),
        "context=2": (["parallel.context=2"], 8, 1, 0.95),
    },
    "deep": {
        "data=2": (["parallel.data=2"], 8, 1, None),
        "pipeline=2": (["parallel.pipeline=2", "parallel.schedule=1f1b"], 16 // CHUNKS, CHUNKS, 0.80),
    },
}
BOUND = 0.95


def bound_of(trace):
    """Fraction of the schedule's bound that a traced step reaches. In the bound each action takes the median time of its stage and kind, and
    messages take no time."""
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "action"]
    times = collections.defaultdict(list)
    for e in events:
        times[e["name"][:2]].append(e["dur"])  # stage and kind, one digit each
    takes = {name: statistics.median(values) for name, values in times.items()}
    lists = collections.defaultdict(list)
    for e in sorted(events, key=lambda e: e["ts"]):
        lists[e["pid"]].append(e["name"])
    stages = 1 + max(int(name[0]) for name in takes)
    ended, clock, next_of = {}, collections.Counter(), collections.Counter()
    while any(next_of[rank] < len(names) for rank, names in lists.items()):
        for rank, names in lists.items():
            while next_of[rank] < len(names):
                stage, kind, chunk = int(names[next_of[rank]][0]), names[next_of[rank]][1], names[next_of[rank]][2:]
                before = stage + (-1 if kind == "F" else 1)
                needs = f"{before}{kind}{chunk}" if 0 <= before < stages else None
                if needs and needs not in ended:
                    break
                start = max(clock[rank], ended.get(needs, 0))
                clock[rank] = ended[names[next_of[rank]]] = start + takes[names[next_of[rank]][:2]]
                next_of[rank] += 1
    measured = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    return max(clock.values()) / measured


def run(lockstep, model, dtype, plan, arguments, folder):
    words, batch, accumulation, _ = plan
    trace = folder / "trace.json"
    command = [
        lockstep.program, "train", "--nproc", 2, f"model.path={lockstep.config(model)}",
        f"tokenizer.path={lockstep.folder}/tokenizer", f"data.train={lockstep.folder}/sample/train.txt",
        f"data.sequence_length={LENGTH}", f"data.cache_dir={lockstep.folder}/cache", f"output_dir={folder}/run",
        f"max_steps={arguments.steps}", f"per_device_train_batch_size={batch}",
        f"gradient_accumulation_steps={accumulation}", "learning_rate=1e-4", "logging_steps=1",
        f"bf16={'true' if dtype == 'bfloat16' else 'false'}", "monitor.progress=plain", "use_cpu=true",
        "overwrite_output_dir=true", "save_strategy=no", "--trace", trace, *words]
    process = lockstep.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = process.communicate()[1]
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{text[-3000:]}")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "step_s" in line]
    tokens = (steps[-1]["tokens"] - steps[0]["tokens"]) / (len(steps) - 1)
    # The traced step also writes its trace, so it is not representative.
    seconds = statistics.median(line["step_s"] for line in steps[max(arguments.warm, 3):])
    return {"tokens_per_s": tokens / seconds, "loss": steps[-1]["loss"], "bound": bound_of(trace)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm", type=int, default=3)
    arguments = parser.parse_args()
    machine = Machine()
    print(f"load average {os.getloadavg()[0]:.1f}")
    missed = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        lockstep = Lockstep(arguments.program.resolve(), pathlib.Path(scratch), machine)
        for dtype in arguments.types.split(","):
            for name, model in MODELS.items():
                results = {plan: [] for plan in PLANS[name]}
                for _ in range(arguments.repeats):
                    for plan in results:
                        with tempfile.TemporaryDirectory(dir=scratch) as folder:
                            results[plan].append(
                                run(lockstep, model, dtype, PLANS[name][plan], arguments, pathlib.Path(folder)))
                print(f"\n{model['layers']} layers, width {model['width']}, vocabulary {model['vocabulary']:,}, {dtype}")
                speed = {plan: statistics.median(r["tokens_per_s"] for r in runs) for plan, runs in results.items()}
                for plan, runs in results.items():
                    share, target = speed[plan] / speed["data=2"], PLANS[name][plan][3]
                    line = f"  {plan:<12} {speed[plan]:>8,.0f} tokens/s  loss {runs[-1]['loss']:.4f}"
                    if target:
                        line += f"  {share:.2f} of data=2 (target {target:.2f})"
                        missed += [f"{dtype} {plan}: {share:.2f}"] if share < target else []
                    if plan.startswith("pipeline"):
                        kept = statistics.median(r["bound"] for r in runs)
                        line += f"  {kept:.2f} of its bound (target {BOUND:.2f})"
                        missed += [f"{dtype} {plan}: {kept:.2f} of its bound"] if kept < BOUND else []
                    print(line, flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f}; " + ("missed: " + "; ".join(missed) if missed else "every target is met"))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
