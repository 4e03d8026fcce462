#!/usr/bin/env python3
"""Measures how the time of a training step scales on CPU ranks of this machine: with ranks and threads, with tokens per step, and per token with layers,
width, vocabulary and length. Prints least-squares exponents with those of the number of operations, and draws each curve.

    python3 bench/scaling.py --program build/release/lockstep [--dtype bfloat16] [--steps 8] [--repeats 3] [--svg docs/scaling.svg] [--minutes 10]

Figures are medians of a run's steps after the first two, the best of the repeats. Exponents are those of y = a x^b fitted to the points; theory is the
same fit to the operations per token as bench/run.py counts them. If the cost grows more slowly than the operations, the kernels are more efficient
for larger shapes.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import run as bench

BASE = {"layers": 4, "width": 256, "heads": 4, "vocabulary": 8192, "length": 256, "batch": 4}
RANKS = [(ranks, threads) for threads in (1, 2) for ranks in (1, 2, 4)]
TOKENS = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
SWEEPS = {
    "layers": [1, 2, 4, 8, 16],
    "width": [128, 256, 512, 768],
    "vocabulary": [2048, 8192, 16384, 32768, 65536],
    "length": [64, 128, 256, 512, 1024, 2048],
}
WARM, TOLERANCE = 2, 0.03  # of an exponent: two runs of one plan differ by as much


def changed(key, value):
    """The base model with one size changed, and the same number of tokens per rank."""
    model = {**BASE, key: value}
    if key == "width":
        model["heads"] = value // 64
    if key == "length":
        model["batch"] = max(1, BASE["length"] * BASE["batch"] // value)
    return model


class Runs:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.machine = bench.Machine()
        self.machine.cores = sorted(os.sched_getaffinity(0))
        self.lockstep = bench.Lockstep(arguments.program.resolve(), folder, self.machine)
        self.end = time.monotonic() + 60 * arguments.minutes

    def once(self, model, ranks, threads):
        """Seconds per step of one run."""
        self.machine.environment["OMP_NUM_THREADS"] = str(threads)
        command = [
            self.lockstep.program, "train", "--nproc", ranks, f"model.path={self.lockstep.config(model)}",
            f"tokenizer.path={self.folder}/tokenizer", f"data.train={self.folder}/sample/train.txt",
            f"data.sequence_length={model['length']}", f"data.cache_dir={self.folder}/cache", f"output_dir={self.folder}/run",
            f"max_steps={self.arguments.steps}", f"per_device_train_batch_size={model['batch']}", "learning_rate=1e-4", "logging_steps=1",
            f"bf16={'true' if self.arguments.dtype == 'bfloat16' else 'false'}", "monitor.progress=plain", "monitor.peak_tflops=1",
            "use_cpu=true", "overwrite_output_dir=true", "save_strategy=no"]
        process = self.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        text = process.communicate()[1]
        if process.returncode != 0:
            sys.exit(text[-3000:])
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        return statistics.median([line["step_s"] for line in lines if "step_s" in line][WARM:])

    def seconds(self, model, ranks=2, threads=1):
        found = [self.once(model, ranks, threads)]
        while len(found) < self.arguments.repeats and time.monotonic() < self.end:
            found.append(self.once(model, ranks, threads))
        return min(found)


def slope(points):
    """Slope of the least-squares line through the logarithms."""
    x, y = [math.log(p[0]) for p in points], [math.log(p[1]) for p in points]
    middle = statistics.mean(x), statistics.mean(y)
    return sum((a - middle[0]) * (b - middle[1]) for a, b in zip(x, y)) / sum((a - middle[0]) ** 2 for a in x)


def panel(at, title, across, up, curves):
    """One SVG plot on logarithmic axes. `curves`: name -> (points, True if dashed)."""
    left, top, width, height = at[0] + 60, at[1] + 34, 250, 170
    xs = [p[0] for points, _ in curves.values() for p in points]
    ys = [p[1] for points, _ in curves.values() for p in points]
    low, high = math.log(min(ys)) - 0.1, math.log(max(ys)) + 0.1
    first, last = math.log(min(xs)), math.log(max(xs))

    def place(point):
        return (left + width * (math.log(point[0]) - first) / max(last - first, 1e-9),
                top + height * (1 - (math.log(point[1]) - low) / (high - low)))

    def number(value):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    parts = [f'<text x="{left}" y="{top - 14}" font-weight="bold">{title}</text>',
             f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#aaa"/>',
             f'<text x="{left + width / 2}" y="{top + height + 30}" text-anchor="middle">{across}</text>',
             f'<text x="{left + 4}" y="{top + 12}" fill="#666">{up}</text>']
    for x in sorted(set(xs)):
        parts.append(f'<text x="{place((x, ys[0]))[0]:.0f}" y="{top + height + 15}" text-anchor="middle" fill="#666">{number(x)}</text>')
    for y in (min(ys), max(ys)):
        parts.append(f'<text x="{left - 5}" y="{place((xs[0], y))[1] + 4:.0f}" text-anchor="end" fill="#666">{number(y)}</text>')
    for (name, (points, dashed)), color in zip(curves.items(), ("#1f6fb4", "#d4572a", "#3a9a4e")):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"{" stroke-dasharray=" + chr(34) + "5 4" + chr(34) if dashed else ""}/>')
        if not dashed:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in map(place, points)]
        row = list(curves).index(name)
        parts.append(f'<text x="{left + width - 4}" y="{top + height - 8 - 15 * row}" text-anchor="end" fill="{color}">{name}</text>')
    return parts


def write_svg(path, panels):
    columns, wide, high = 3, 330, 255
    rows = (len(panels) + columns - 1) // columns
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * wide} {rows * high}" font-family="sans-serif" font-size="11">',
             f'<rect width="{columns * wide}" height="{rows * high}" fill="white"/>']
    for i, given in enumerate(panels):
        parts += panel((i % columns * wide, i // columns * high), *given)
    path.write_text("\n".join(parts + ["</svg>", ""]))


def by_ranks(runs, cores):
    """Tokens/s for each number of ranks and threads, and as a fraction of that many single ranks with one core each."""
    tokens = BASE["length"] * BASE["batch"]
    rates = {(ranks, threads): ranks * tokens / runs.seconds(BASE, ranks, threads) for ranks, threads in RANKS}
    print("| ranks | threads per rank | tokens/s | of as many single ranks |\n|---|---|---|---|")
    for (ranks, threads), rate in rates.items():
        print(f"| {ranks} | {threads} | {rate:,.0f} | {rate / rates[1, 1] / min(cores, ranks * threads):.2f} |", flush=True)
    curves = {f"{threads} thread{'s' if threads > 1 else ''} per rank": ([(r, rates[r, t]) for r, t in RANKS if t == threads], False) for threads in (1, 2)}
    return "ranks and threads", "ranks", "tokens/s", curves


def by_tokens(runs):
    points = []
    print("\n| tokens per rank and step | tokens/s | of the best |\n|---|---|---|")
    for tokens in TOKENS:
        length = min(tokens, BASE["length"])
        model = {**BASE, "length": length, "batch": tokens // length}
        points.append((tokens, 2 * tokens / runs.seconds(model)))
    for tokens, rate in points:
        print(f"| {tokens:,} | {rate:,.0f} | {rate / max(r for _, r in points):.2f} |", flush=True)
    return "tokens per step", "tokens per rank", "tokens/s", {"two ranks": (points, False)}


def by_size(runs, key):
    """Microseconds per token and its operations, scaled to meet at the last point."""
    costs, operations = [], []
    for value in SWEEPS[key]:
        model = changed(key, value)
        costs.append((value, 1e6 * runs.seconds(model) / (2 * model["length"] * model["batch"])))
        operations.append((value, bench.flops_per_token(model)))
    scale = costs[-1][1] / operations[-1][1]
    theory = [(value, flops * scale) for value, flops in operations]
    found, expected = slope(costs), slope(theory)
    steepest = max(slope(costs[i:i + 2]) - slope(theory[i:i + 2]) for i in range(len(costs) - 1))
    within = found <= expected + TOLERANCE
    print(f"| {key} {SWEEPS[key][0]:,} to {SWEEPS[key][-1]:,} | {', '.join(f'{cost:,.1f}' for _, cost in costs)} | {found:.2f} | {expected:.2f} | "
          f"{'met' if within else 'MISSED'} | {steepest:+.2f} |", flush=True)
    return within, (f"{key}: exponent {found:.2f}, operations {expected:.2f}", key, "µs per token",
                    {"measured": (costs, False), "operations": (theory, True)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=bench.HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10, help="time after which no run is repeated")
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--sweeps", default=",".join(SWEEPS))
    arguments = parser.parse_args()
    if arguments.steps <= WARM:
        parser.error(f"--steps {arguments.steps} leaves no steps after {WARM}")
    cores = len(os.sched_getaffinity(0))
    print(f"{bench.processor()}, {cores} cores; GPT-2 of {BASE['layers']} layers, width {BASE['width']}, vocabulary {BASE['vocabulary']:,}, "
          f"{BASE['batch']} sequences of {BASE['length']} per rank, {arguments.dtype}; load average {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        runs = Runs(arguments, pathlib.Path(scratch))
        panels = [by_ranks(runs, cores), by_tokens(runs)]
        print("\n| by | µs per token, two ranks | exponent | exponent of the operations | at most that | steepest part compared with theory |\n|---|---|---|---|---|---|")
        met = []
        for key in arguments.sweeps.split(","):
            within, given = by_size(runs, key)
            met.append(within)
            panels.append(given)
    if arguments.svg:
        write_svg(arguments.svg, panels)
        print(f"\nwritten: {arguments.svg}")
    print(f"\nload average {os.getloadavg()[0]:.1f}")
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
