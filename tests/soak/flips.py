#!/usr/bin/env python3
"""Flips single bits in the replicated state of one of three data-parallel ranks during training, and checks that each flip is detected.

  flips.py --trials 100 --seed 7      (make flips TRIALS=100 SEED=7)

Rows of the positions table beyond the sequence length are never trained, so their values in a checkpoint identify all copies of the
table in a rank's memory. Each trial flips one bit of one copy from outside the process. Outcomes: found (the run ends with the rank's
name), harmless (the result is bit-identical to the undisturbed run, because the copy was no longer read), missed (anything else), too
late (the run had ended).
"""

import argparse
import collections
import json
import pathlib
import random as randoms
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import CONFIG, ProgramTest, losses, metrics, ranks_of, start, wait_for  # noqa: E402

RANKS, STEPS, EVERY = 3, 150, 5
POSITIONS, WIDTH = CONFIG["n_positions"], CONFIG["n_embd"]
ROW = 4 * WIDTH  # bytes, of float32


def table_of_positions(folder):
    """Bytes of the positions table of a model folder."""
    with open(folder / "model.safetensors", "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        begin, end = next(entry["data_offsets"] for name, entry in header.items() if name.endswith("wpe.weight"))
        file.seek(8 + size + begin)
        return file.read(end - begin)


def places_of(pid, pattern):
    """Addresses of `pattern` in the writable memory of a process."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if not words[1].startswith("rw") or words[-1].startswith("[v"):
                continue
            begin, end = (int(word, 16) for word in words[0].split("-"))
            try:
                memory.seek(begin)
                region = memory.read(end - begin)
            except OSError:
                continue  # the region no longer exists
            at = region.find(pattern)
            while at >= 0:
                found.append(begin + at)
                at = region.find(pattern, at + len(pattern))
    return found


def flip(pid, address, bit):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        byte = memory.read(1)[0]
        memory.seek(address)
        memory.write(bytes([byte ^ 1 << bit]))


class Flips(ProgramTest):
    def runTest(self):  # a TestCase needs a test method
        pass

    def arguments(self, output):
        return self.train_arguments(output, f"checkpoint.compare_replicas={EVERY}", "save_strategy=no", ranks=RANKS, steps=STEPS)

    def result(self, output):
        return losses(self.folder / output), (self.folder / output / "model.safetensors").read_bytes()

    def trial(self, number, untrained, random):
        """Runs one trial; returns its outcome, the rank and the run's stderr."""
        output = f"run-{number}"
        job = start(*self.arguments(output), cwd=self.folder)
        reached = random.randrange(2, STEPS // 4)
        wait_for(lambda: len(metrics(self.folder / output)) >= reached, 120)
        rank, pid = random.choice(sorted(ranks_of(f"output_dir={output}").items()))
        first_row = POSITIONS - len(untrained) // ROW
        try:
            place = random.choice(places_of(pid, untrained))
            flip(pid, place - first_row * ROW + random.randrange(POSITIONS * ROW), random.randrange(8))
            came_in_time = len(metrics(self.folder / output)) < STEPS - EVERY
        except (OSError, IndexError):
            came_in_time = False
        _, err = job.communicate(timeout=120)
        if not came_in_time:
            return "too late", rank, err
        if job.returncode != 0:
            return "found" if re.search(rf"differ on ranks? {rank}\b", err) else "missed", rank, err
        return "harmless" if self.result(output) == self.undisturbed else "missed", rank, err

    def campaign(self, trials, seed):
        random, told, missed = randoms.Random(seed), collections.Counter(), 0
        self.run_ok(*self.arguments("undisturbed"))
        self.undisturbed = self.result("undisturbed")
        untrained = table_of_positions(self.folder / "undisturbed")[POSITIONS // 2 * ROW:]
        number = 0
        while sum(told[outcome] for outcome in ("found", "harmless", "missed")) < trials and number < 3 * trials:
            number += 1
            began = time.monotonic()
            outcome, rank, err = self.trial(number, untrained, random)
            told[outcome] += 1
            print(f"flip {number} on rank {rank}: {outcome}, {time.monotonic() - began:.1f} s", flush=True)
            if outcome == "missed":
                missed += 1
                print(err[-2000:], file=sys.stderr)
        print(f"{dict(told)} (seed {seed})")
        return 1 if missed > 0 or told["found"] == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    Flips.setUpClass()
    try:
        return Flips().campaign(options.trials, options.seed)
    finally:
        Flips.tearDownClass()


if __name__ == "__main__":
    sys.exit(main())
