#!/usr/bin/env python3
"""Runs a Lockstep command on emulated GPUs (README.md), which enforce CUDA's rules and compute nothing.

  tests/null_gpu/pretend.py DEVICES [--memory GB] [--reports FOLDER] [--build FOLDER] -- lockstep train --nproc DEVICES ...

The command's output and exit code are unchanged; a table of the calls of each rank follows on stderr. --reports keeps the JSON reports:
counts, kernels by name, waits of the host, refused calls.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def libraries(folder):
    """Libraries to preload: the one with all entry points first, then those that libtorch looks up by name."""
    found = (path for path in pathlib.Path(folder).glob("lib*.so*") if path.suffix != ".map")
    return sorted(found, key=lambda path: path.name != "libnull_gpu.so")


def variables(folder, reports, devices, memory_gb=80):
    """Environment variables that make a program see `devices` GPUs of `memory_gb` GiB each. Reports are written to the folder `reports`."""
    return {"LD_PRELOAD": ":".join(map(str, libraries(folder))), "NULL_GPU_FOLDER": str(reports),
            "NULL_GPU_DEVICES": str(devices), "NULL_GPU_MEMORY": str(int(memory_gb * 2**30))}


def read_reports(folder):
    """Reports of the ranks that used a GPU, in rank order."""
    paths = pathlib.Path(folder).glob("report-*.json")
    return [json.loads(path.read_text()) for path in sorted(paths, key=lambda path: int(path.stem.split("-")[1]))]


def table(reports):
    lines = [f"{'rank':>4} {'kernels':>8} {'waits':>6} {'pinned':>7} {'pageable':>8} {'NCCL':>6} {'graphs':>6} {'GiB':>7}  copies are counted"]
    for rank, report in enumerate(reports):
        counts = report["counts"]
        nccl = sum(count for name, count in counts.items() if name.startswith("nccl"))
        lines.append(
            f"{rank:>4} {sum(report['kernels'].values()):>8} {counts.get('waits', 0):>6} {counts.get('pinned_copies', 0):>7} "
            f"{counts.get('pageable_copies', 0):>8} {nccl:>6} {counts.get('graph_launches', 0):>6} "
            f"{report['highest'].get('device_bytes', 0) / 2**30:>7.2f}")
        lines += [f"     refused: {text}" for text in report["refused"]]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", type=int)
    parser.add_argument("--memory", type=float, default=80, metavar="GB", help="memory of each device in GiB (80)")
    parser.add_argument("--reports", type=pathlib.Path, help="folder for the reports; existing contents are removed")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("command", nargs="+", help="after --; `lockstep` is the program of the build")
    options = parser.parse_args()
    folder = options.build.resolve() / "null_gpu"
    if not libraries(folder):
        parser.error(f"no null GPU in {folder}: building it requires nvcc and the headers of CUDA, cuDNN and NCCL")
    program, *arguments = options.command
    if program == "lockstep":
        program = str(options.build.resolve() / "lockstep")
    with tempfile.TemporaryDirectory(prefix="null-gpu-") as scratch:
        reports = options.reports or pathlib.Path(scratch) / "reports"
        shutil.rmtree(reports, ignore_errors=True)
        reports = reports.resolve()
        code = subprocess.run([program, *arguments], env={
            **os.environ, **variables(folder, reports, options.devices, options.memory)}).returncode
        found = read_reports(reports)
        for path in reports.glob("communicator-*"):
            path.unlink()
    print(table(found) if found else "no rank used a GPU", file=sys.stderr)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
