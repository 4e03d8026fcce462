#!/usr/bin/env python3
"""Measures the accuracy of the predictions that a new user sees: time and memory of 20 settings of model, plan and type on two CPU ranks.

    python3 bench/predict.py --program build/release/lockstep [--steps 8] [--calibrate | --cluster FILE] [--settings NAME,...]

The runs use a separate cache, so the first one finds no measurements of the machine. It trains for a few seconds, measures the machine between its
steps and stores the figures (docs/plan.md), which the predictions of all other runs use. --calibrate measures with `lockstep calibrate --nproc 2`
instead. Prints each prediction with the measured value (the median of the steps) and the median errors. Exits with 1 if a target is missed.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys

from plan_machine import MEMORY, RANKS, TIME, Machine

SETTINGS = {
    "small": "small per_device_train_batch_size=8",
    "small, float32": "small per_device_train_batch_size=4 bf16=false",
    "small, one sequence": "small per_device_train_batch_size=1",
    "small, zero 3": "small per_device_train_batch_size=8 parallel.zero_stage=3",
    "small, recompute": "small per_device_train_batch_size=8 parallel.recompute=full",
    "small, 4 micro-batches, zero 1": "small per_device_train_batch_size=2 gradient_accumulation_steps=4 parallel.zero_stage=1",
    "wide": "wide per_device_train_batch_size=4",
    "wide, tensor 2": "wide per_device_train_batch_size=8 parallel.tensor=2",
    "wide, float32, zero 2": "wide per_device_train_batch_size=2 parallel.zero_stage=2 bf16=false",
    "deep, pipeline 2": "deep per_device_train_batch_size=4 gradient_accumulation_steps=4 parallel.pipeline=2",
    "words": "words per_device_train_batch_size=4",
    "words, float32": "words per_device_train_batch_size=2 bf16=false",
    "long": "long per_device_train_batch_size=2",
    "long, context 2": "long per_device_train_batch_size=4 parallel.context=2",
    "llama": "llama per_device_train_batch_size=8",
    "dropout": "dropout per_device_train_batch_size=8",
    "grouped heads": "grouped per_device_train_batch_size=4",
    "qwen, zero 1": "qwen per_device_train_batch_size=4 parallel.zero_stage=1",
    "mistral": "mistral per_device_train_batch_size=2",
    "broad, float32": "broad per_device_train_batch_size=2 bf16=false",
}
FIRST = "small per_device_train_batch_size=8 "


class Newcomer(Machine):
    """Machine without a cluster file: the trainer finds its stored figures by itself."""

    def measure(self):
        if self.given is not None or self.calibrated:
            super().measure()
            return
        text = self.call(*self.words(FIRST, 400), "monitor.measure_machine=true")
        said = [line for line in text.splitlines() if "measured" in line]
        print("\n".join(said), flush=True)
        kept = list(self.folder.glob("lockstep/machine-*.yaml"))
        if "predicted" not in text or re.search(r"predicted time: [\d.e+-]+ s per step", text):
            sys.exit(f"the first run predicted a time on an unmeasured machine:\n{text}")
        if not kept:
            sys.exit(f"the first run stored no figures of this machine; run again on an idle machine or with --calibrate\n{text[-2000:]}")
        self.cluster = kept[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--cluster", type=pathlib.Path)
    parser.add_argument("--settings", help="comma-separated names of settings; default: all")
    options = parser.parse_args()
    if options.cluster:
        options.cluster = options.cluster.resolve()
    Newcomer.calibrated = options.calibrate
    print(f"load average {os.getloadavg()[0]:.1f}; {RANKS} ranks, {options.steps} steps per setting")
    machine = Newcomer(options)
    names = options.settings.split(";") if options.settings else list(SETTINGS)
    print(f"\n{'setting':<34}{'predicted':>12}{'measured':>12}{'error':>9}{'predicted':>14}{'measured':>12}{'error':>9}")
    times, memories, inside = [], [], 0
    for name in names:
        predicted, measured, bytes_predicted, bytes_measured, bars = machine.train(SETTINGS[name], options.steps)
        times.append(predicted / measured - 1)
        memories.append(bytes_predicted / bytes_measured - 1)
        inside += bars is not None and bars[0] <= measured / predicted <= bars[1]
        print(f"{name:<34}{predicted:>10.4f} s{measured:>10.4f} s{times[-1]:>+9.1%}{bytes_predicted / 2**20:>10.0f} MiB{bytes_measured / 2**20:>8.0f} MiB"
              f"{memories[-1]:>+9.1%}", flush=True)
    missed = False
    for what, errors, target in (("time", times, TIME), ("memory", memories, MEMORY)):
        middle = statistics.median(map(abs, errors))
        missed = missed or middle > target
        print(f"{'met   ' if middle <= target else 'MISSED'} median error of {what} {middle:.1%} of {len(errors)} (maximum {target:.0%};  "
              f"worst {max(errors, key=abs):+.1%})")
    print(f"       within the printed error bars: {inside} of {len(names)}; load average {os.getloadavg()[0]:.1f}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
