#!/usr/bin/env python3
"""Measures the overhead of Lockstep's launcher compared with torchrun, accelerate and deepspeed. Prints a table and writes
bench/RESULTS-launch.md.

    python3 bench/launch.py --program build/release/lockstep [--repeats 7] [--no-elastic]

The sides alternate, so that other load affects all of them; figures are medians of the repeats, in wall time from the start of the command to its
end. The workers do nothing, or fail, or train the sample model until one of them is killed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / ".deps" / "peers" / "bin"
HIDDEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Rank 1 fails as soon as both workers run; rank 0 would run for a minute.
FAILING = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[-1])
rank = os.environ["RANK"]
(folder / rank).touch()
while not (folder / "0").exists() or not (folder / "1").exists():
    time.sleep(0.005)
if rank == "1":
    (folder / "failed").write_text(repr(time.time()))
    os._exit(3)
time.sleep(60)
"""


# Creates a file and sleeps for a minute.
SLEEPING = """
import os, pathlib, sys, time
(pathlib.Path(sys.argv[-1]) / os.environ["RANK"]).touch()
time.sleep(60)
"""


class Bench:
    def __init__(self, program, repeats):
        self.program, self.repeats = pathlib.Path(program).resolve(), repeats
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
        self.environment = {k: v for k, v in os.environ.items() if k not in HIDDEN}
        self.environment.update(
            OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="",
            PYTHON_EXEC=str(PEERS / "python"), HF_HOME=str(self.folder),
            PATH=f"{PEERS}:{os.environ['PATH']}")
        self.idle = self.folder / "idle.py"
        self.idle.write_text("")
        self.failing = self.folder / "failing.py"
        self.failing.write_text(FAILING)
        self.sleeping = self.folder / "sleeping.py"
        self.sleeping.write_text(SLEEPING)

    def run(self, command, code=0):
        begin = time.monotonic()
        done = subprocess.run(
            [str(word) for word in command], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120)
        seconds = time.monotonic() - begin
        if code is not None and done.returncode != code:
            raise SystemExit(f"bench: {command} ended with {done.returncode}\n{done.stderr}")
        return seconds

    def in_turn(self, sides, measure):
        """Side -> median of measure(command). The sides alternate after one warm-up run."""
        figures = {name: [] for name in sides}
        for turn in range(self.repeats + 1):
            for name, command in sides.items():
                figure = measure(command)
                if turn > 0:
                    figures[name].append(figure)
        return {name: statistics.median(values) for name, values in figures.items()}

    def idle_workers(self):
        launch = [self.program, "launch"]
        return self.in_turn({
            "lockstep launch": [*launch, "--nproc-per-node=2", self.idle],
            "torchrun": [PEERS / "torchrun", "--standalone", "--nproc-per-node=2", self.idle],
            "accelerate launch": [PEERS / "accelerate", "launch", "--cpu", "--num_processes=2", self.idle],
            "deepspeed": [PEERS / "deepspeed", "--num_gpus=2", "--no_local_rank", self.idle],
        }, self.run)

    def idle_programs(self):
        return self.in_turn({
            "lockstep launch": [self.program, "launch", "--nproc-per-node=2", "--no-python", "true"],
            "torchrun": [PEERS / "torchrun", "--standalone", "--nproc-per-node=2", "--no-python", "true"],
        }, self.run)

    def many(self):
        return self.in_turn({
            "lockstep launch": [self.program, "launch", "--nproc-per-node=64", "--no-python", "true"],
        }, self.run)

    def failed_worker(self):
        """Seconds from a worker's failure to the end of the launcher."""
        def measure(command):
            marks = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
            self.run([*command, self.failing, marks], code=None)
            return time.time() - float((marks / "failed").read_text())

        return self.in_turn({
            "lockstep launch": [self.program, "launch", "--nproc-per-node=2"],
            "torchrun": [PEERS / "torchrun", "--standalone", "--nproc-per-node=2"],
        }, measure)

    def nodes(self):
        """Two launchers that meet at one address of this machine; one fails or stops responding. Seconds from then to the end of the other, which has
        stopped its workers by then."""
        return (self.in_turn({"lockstep launch": self.failing}, self.failed_node),
                self.in_turn({"lockstep launch": self.sleeping}, self.silent_node))

    def node(self, rank, port, script, marks):
        return subprocess.Popen(
            [self.program, "launch", "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1",
             f"--master-port={port}", "--nproc-per-node=1", script, marks],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def both(self, script):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        marks = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        return [self.node(rank, port, script, marks) for rank in range(2)], marks

    def failed_node(self, script):
        (other, failing), marks = self.both(script)
        other.wait(timeout=60)
        seconds = time.time() - float((marks / "failed").read_text())
        failing.wait(timeout=60)
        return seconds

    def silent_node(self, script):
        (other, silent), marks = self.both(script)
        while not all((marks / rank).exists() for rank in "01"):
            time.sleep(0.01)
        silent.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        other.wait(timeout=60)
        seconds = time.monotonic() - stopped
        silent.send_signal(signal.SIGCONT)
        silent.wait(timeout=60)
        return seconds

    def elastic(self):
        """Seconds from the SIGKILL of a rank to the first step of the restarted job beyond the last logged one, for the sample model of
        `make quickstart`."""
        shown = dict(cwd=self.folder, env=self.environment, check=True, capture_output=True)
        subprocess.run([self.program, "sample", "--output", "sample", "--size", "0.5"], **shown)
        subprocess.run([self.program, "tokenizer", "train", "--files", "sample/train.txt", "--vocab-size", "1024",
                        "--output", "tokenizer"], **shown)
        return self.in_turn({"lockstep launch": []}, lambda command: self.kill_a_rank())

    def kill_a_rank(self):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        job = subprocess.Popen(
            [self.program, "launch", "--nproc-per-node=2", "--max-restarts=1", "train", "model.preset=gpt2-tiny",
             "tokenizer.path=tokenizer", "data.train=sample/train.txt", "data.cache_dir=cache",
             "data.sequence_length=64", "output_dir=run", "overwrite_output_dir=true", "max_steps=100000", "per_device_train_batch_size=4",
             "logging_steps=1", "save_steps=5", "save_total_limit=2", "use_cpu=true"],
            cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_for_step(12)
            while self.last_step() % 5 != 2:  # between two checkpoints
                time.sleep(0.001)
            os.kill(self.rank_of(job.pid, "1"), signal.SIGKILL)
            killed = time.monotonic()
            before = self.last_step()
            # A resume truncates the metrics file to the checkpoint, and it grows past that again.
            while self.last_step() >= before:
                time.sleep(0.002)
            first = self.last_step()
            while self.last_step() <= first:
                time.sleep(0.002)
            return time.monotonic() - killed
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(timeout=60)

    def last_step(self):
        path = self.folder / "run" / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        try:
            return json.loads(lines[-1])["step"] if lines else 0
        except json.JSONDecodeError:
            return self.last_step()

    def wait_for_step(self, step):
        end = time.monotonic() + 120
        while self.last_step() < step:
            if time.monotonic() > end:
                raise SystemExit("bench: the sample model does not train")
            time.sleep(0.01)

    @staticmethod
    def rank_of(parent, rank):
        for child in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
        raise SystemExit(f"bench: rank {rank} is not there")


def rows_of(title, figures, rows):
    ours = figures["lockstep launch"]
    for name, seconds in figures.items():
        ratio = "" if name == "lockstep launch" else f"{seconds / ours:.1f}"
        rows.append((title if name == "lockstep launch" else "", name, f"{seconds:.3f}", ratio))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-elastic", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.program, options.repeats)
    rows = []
    try:
        rows_of("two idle Python workers", bench.idle_workers(), rows)
        rows_of("two idle programs", bench.idle_programs(), rows)
        rows_of("64 idle programs", bench.many(), rows)
        rows_of("a failed worker, until the job ends", bench.failed_worker(), rows)
        failed, silent = bench.nodes()
        rows_of("a failed worker on one of two nodes, until the other node ends", failed, rows)
        rows_of("a silent node, until the other node ends", silent, rows)
        if not options.no_elastic:
            rows_of("a killed rank, until the first new step", bench.elastic(), rows)
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)
    table = "| | | seconds | times ours |\n|---|---|---|---|\n"
    table += "".join(f"| {' | '.join(row)} |\n" for row in rows)
    load = os.getloadavg()[0]
    text = (
        "# Launcher overhead\n\n"
        f"`make bench-launch`, {datetime.date.today()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} at the "
        f"end; medians of {options.repeats} runs; the sides alternate.\n\n{table}")
    (HERE / "RESULTS-launch.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
