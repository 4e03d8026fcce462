#!/usr/bin/env python3
"""Measures the cost of fault tolerance: saves compared with the disk, saves every step, comparison of replicas, in-memory checkpoints, checked products.

  python3 bench/keeping.py --program build/release/lockstep [--steps 30] [--repeats 3] [--model small] [--type float32]
    [--parts saves,every,compares,replicas,products] [--beside build/soft/lockstep]

Runs two CPU ranks with GPT-2 in bfloat16 as in bench/run.py; --beside adds another build of the program as a side. The sides alternate. The time of
a step is the mean of the whole run except its first steps, because a save delays only one step in ten; figures are medians of the repeats.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import run as bench

WARM = 5
SIDES = {
    "plain": [],
    "every": ["save_strategy=steps", "save_steps=1", "save_total_limit=2"],
    "compares": ["checkpoint.compare_replicas=1"],  # 100 times as often as by default
    "beside": [],
    "replicas": ["checkpoint.in_memory_replicas=1"],
    "products": ["training.check_products=true"],
}


def step_seconds(arguments, lockstep, model, side, folder):
    """Wall and processor seconds per step of a run under a launcher that can restart it, as replicas require; processor seconds of all cores."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = [
        f"model.path={lockstep.config(model)}", f"tokenizer.path={folder}/tokenizer", f"data.train={folder}/sample/train.txt",
        f"data.sequence_length={bench.LENGTH}", f"data.cache_dir={folder}/cache", f"output_dir={out}", "overwrite_output_dir=true", f"max_steps={arguments.steps}",
        f"per_device_train_batch_size={bench.BATCH}", "learning_rate=1e-4", "logging_steps=1", f"bf16={'true' if arguments.type == 'bfloat16' else 'false'}", "monitor.progress=plain",
        "use_cpu=true", *(["save_strategy=no"] if side != "every" else []), *SIDES[side]]
    process = subprocess.Popen(
        [arguments.beside if side == "beside" else arguments.program, "launch", f"--nproc-per-node={bench.RANKS}", "--max-restarts=1", "train", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    arrivals, said, before = {}, [], sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for line in process.stderr:
        said.append(line)
        if "step " in line and "/" in line:
            words = line[line.index("step ") + 5:].split("/")[0].split()
            if words and words[0].isdigit():
                arrivals[int(words[0])] = time.monotonic()
    if process.wait() != 0:
        sys.exit("".join(said[-20:]))
    processor = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
    return (arrivals[arguments.steps] - arrivals[WARM]) / (arguments.steps - WARM), processor / arguments.steps


def forgotten(folder):
    """Files of the folder, dropped from the page cache."""
    files = [path for path in folder.iterdir() if path.is_file()]
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return files


def read_seconds(folder):
    """Seconds to read all files from the disk."""
    files = forgotten(folder)
    begin = time.monotonic()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    return time.monotonic() - begin


def restore_seconds(arguments, lockstep, model, folder):
    """Seconds that the program logs for reading a checkpoint, with hashes checked."""
    forgotten(folder / "run" / "checkpoint-3")
    said = lockstep.run(model, arguments.type, 3, 1, folder, resume=True, more=2)["said"]
    return float(re.search(r"after step 3, read in ([0-9.]+) s", said)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=bench.HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="small", choices=sorted(bench.MODELS))
    parser.add_argument("--parts", default="saves,every,compares,replicas,products")
    parser.add_argument("--type", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--beside", type=pathlib.Path, help="another build of the program, measured as one more side")
    arguments = parser.parse_args()
    arguments.program = arguments.program.resolve()
    model, parts = bench.MODELS[arguments.model], arguments.parts.split(",") + (["beside"] if arguments.beside else [])
    print(f"GPT-2 of {model['layers']} layers, width {model['width']}, vocabulary {model['vocabulary']:,}, {arguments.type}; "
          f"{bench.RANKS} ranks; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="lockstep-keeping-", dir=os.environ.get("TMPDIR")) as scratch:
        folder = pathlib.Path(scratch)
        lockstep = bench.Lockstep(arguments.program, folder, bench.Machine())
        sides = ["plain", *[part for part in parts if part in SIDES]]
        times = {side: [] for side in sides}
        for _ in range(arguments.repeats if len(sides) > 1 else 0):
            for side in sides:
                times[side].append(step_seconds(arguments, lockstep, model, side, folder))
        for side in sides if len(sides) > 1 else []:
            seconds = statistics.median(wall for wall, _ in times[side])
            more = statistics.median(there / here - 1 for (here, _), (there, _) in zip(times["plain"], times[side]))
            work = statistics.median(there - here for (_, here), (_, there) in zip(times["plain"], times[side]))
            beside = "" if side == "plain" else f", {more * 100:+.2f}%; processor time {work * 1000:+.0f} ms"
            print(f"  {side:9} {seconds * 1000:7.1f} ms per step{beside}   ({', '.join(f'{wall * 1000:.0f}' for wall, _ in times[side])})", flush=True)
        saves = []
        for _ in range(arguments.repeats if "saves" in parts else 0):
            saved = lockstep.run(model, arguments.type, 3, 1, folder, save=True)
            checkpoint = folder / "run" / "checkpoint-3"
            saves.append((saved["save_s"], saved["disk_s"], saved["checkpoint_bytes"], read_seconds(checkpoint), restore_seconds(arguments, lockstep, model, folder)))
        for save, disk, size, read, restore in saves:
            print(f"  a save of {size / 2**20:,.0f} MiB, hashed: {save:.2f} s; the same bytes written plainly: {disk:.2f} s ({disk / save:.2f} of the disk); "
                  f"read plainly: {read:.2f} s; a restore with hashes checked: {restore:.2f} s ({read / restore:.2f} of the disk)", flush=True)


if __name__ == "__main__":
    main()
