#!/usr/bin/env python3
"""Injects faults into a run sequentially, from a list that a seed determines. The result must equal that of the undisturbed run.

  soak.py --faults 1200 --seed 7      (make soak FAULTS=1200 SEED=7)

`lockstep launch --max-restarts` runs a GPT-2 of two layers on three ranks with a checkpoint every five steps. Every twelfth fault is the
loss of one of two nodes (agents on loopback). After each fault the run must reach a step that it had not reached before. At the end each
step must be logged once, every loss must be bit-identical to that of the undisturbed run (within 1e-5 after lost nodes), no process, no
file in /dev/shm or /tmp and no incomplete checkpoint may be left, and the launcher's memory must not have grown.
"""

import argparse
import collections
import json
import os
import pathlib
import random as randoms
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import faults  # noqa: E402
from harness import PROGRAM, ProgramTest, environment, losses, metrics, processes_of, ranks_of, wait_for  # noqa: E402
from world import World  # noqa: E402

STALL = 60    # seconds without a new step
GROWTH = 16   # MB; limit of the launcher's growth


class Defect(Exception):
    pass


class Job(ProgramTest):
    """A run that is started repeatedly until it is asked to save and stop."""

    def __init__(self, folder, name, agents):
        super().__init__("run")
        self.folder, self.name, self.agents = folder, name, agents
        self.output, self.log = folder / name, folder / f"{name}.err"
        self.output.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "soak", str(self.output)], capture_output=True)
        self.own_disk = mounted.returncode == 0
        self.world = World(folder, self.output)
        self.processes, self.starts = {}, 0
        self.fault_over = 0.0  # when a stopped rank continued
        self.is_kept, self.unkept_folders = True, 0  # a keeper removes these folders after its launcher was killed
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def run(self):  # a TestCase needs a test method
        pass

    @property
    def process(self):
        return self.processes[0]

    def training(self, ranks, steps=10**7):
        return self.train_arguments(
            self.name, "save_steps=5", "save_total_limit=3", "resume_from_checkpoint=true", "lr_scheduler_type=constant",
            "learning_rate=1e-4", ranks=ranks, steps=steps)

    def begin(self, agent=0):
        train = self.training(1)
        at = train.index("--nproc")
        words = ["launch", f"--nproc-per-node={self.agents[agent]}", "--max-restarts=1000000"]
        if len(self.agents) > 1:
            words += [f"--nnodes=1:{len(self.agents)}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                      "--rdzv-conf=last_call_timeout=600"]
        with open(self.log, "ab") as log:
            self.processes[agent] = subprocess.Popen(
                [PROGRAM, *map(str, [*words, "train", *train[1:at], *train[at + 2:]])], cwd=self.folder,
                env={**environment(), **self.world.variables}, stdout=subprocess.DEVNULL, stderr=log)
        self.starts += 1
        self.is_kept = True

    def is_hosted(self):
        """True if an agent listens at the endpoint."""
        rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(row[1].endswith(f":{self.port:04X}") and row[3] == "0A" for row in rows)

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def step(self):
        """Last step in the log. A resumed run truncates the log to its checkpoint."""
        try:
            with open(self.output / "metrics.jsonl", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                found = re.findall(rb'"step": ?(\d+)', file.read())
            return int(found[-1]) if found else 0
        except OSError:
            return 0

    def ranks(self):
        return ranks_of(f"output_dir={self.name}")

    def some_rank(self, random):
        return random.choice(sorted(wait_for(lambda: len(self.ranks()) == sum(self.agents) and self.ranks(), 60).items()))[1]

    def checkpoints(self):
        """Committed checkpoints, newest first."""
        found = [path for path in self.output.glob("checkpoint-*") if path.name[11:].isdigit()]
        return sorted(found, key=lambda path: -int(path.name[11:]))

    def expect(self, holds, what):
        if not holds:
            raise Defect(what)

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        for agent in sorted(self.processes):
            self.processes[agent].send_signal(signal.SIGTERM)
        for agent, process in sorted(self.processes.items()):
            self.expect(process.wait(timeout=120) == 75, f"agent {agent} ended with {process.returncode}")

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in processes_of(f"output_dir={self.name}"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.own_disk:
            subprocess.run(["umount", "-l", str(self.output)], capture_output=True)


def left_behind():
    """Leftover files: everything in the temporary folder, which belongs to the soak, and files but not folders in /dev/shm, which is shared."""
    shared = {str(path) for path in pathlib.Path("/dev/shm").glob("*lockstep*") if not path.is_dir()}
    return shared | {str(path) for path in pathlib.Path(tempfile.gettempdir()).iterdir()}


class Soak:
    def __init__(self, folder, seed):
        self.folder, self.random = folder, randoms.Random(seed)
        self.told = collections.Counter()
        self.seconds, self.lost, self.stalls = collections.defaultdict(list), [], 0

    def after(self, job, kind, began, old, said, comes):
        """Waits for a step that the run had not reached, and records the duration and the lost steps. `old`: the ranks before the fault."""
        before = job.step()
        if comes != faults.GOES_ON:
            while old & set(job.ranks().values()):
                before = max(before, job.step())
                self.within(STALL, began, f"ranks are left after {kind}")
        if comes == faults.ENDS:
            wait_for(lambda: not processes_of(f"output_dir={job.name}"), 10)
            job.process.wait()
            job.begin()
        # A resumed run truncates the log to its checkpoint, so only steps beyond the last logged one are new.
        restarted = comes == faults.GOES_ON
        while not restarted or job.step() <= before:
            restarted = restarted or re.search(r"resuming from \S+ after step \d+", job.said()[len(said):])
            if not restarted:
                before = max(before, job.step())
            if job.process.poll() is not None:
                if comes == faults.GOES_ON:
                    raise Defect(f"the launcher ended with {job.process.returncode} after {kind}")
                self.told[f"launchers that exited with {job.process.returncode}"] += 1
                job.unkept_folders += job.process.returncode != 75  # with this code it keeps the files that its report names
                job.begin()  # after an error that a launcher does not retry
            self.within(STALL, began, f"no new step after {kind} at step {before}")
        self.seconds[kind].append(time.monotonic() - began)
        resumed = re.findall(r"resuming from \S+ after step (\d+)", job.said()[len(said):])
        if comes == faults.GOES_ON:
            job.expect(not resumed, f"{kind} ended a rank")
        else:
            self.lost.append(before - int(resumed[0]))

    def within(self, seconds, began, what):
        if time.monotonic() - began > seconds:
            self.stalls += 1
            raise Defect(f"{what} within {seconds} s")
        time.sleep(0.01)

    def faults_of(self, job, count):
        job.begin()
        wait_for(lambda: len(job.checkpoints()) >= 2, 120)
        memory, kinds = [], []
        for number in range(count):
            if not kinds:
                kinds = self.random.sample(faults.KINDS, len(faults.KINDS))
            fault = kinds.pop()
            time.sleep(self.random.uniform(0, 0.5))
            wait_for(lambda: len(job.ranks()) == sum(job.agents), STALL)
            old, said, began = set(job.ranks().values()), job.said(), time.monotonic()
            comes = fault(job, self.random)
            began = max(began, job.fault_over)
            if comes is None:
                self.told["skipped"] += 1
                continue
            self.after(job, fault.__name__, began, old, said, comes)
            wait_for(lambda: len(job.checkpoints()) >= 2, 120)
            memory.append((job.process.pid, job.resident()))
            self.told[fault.__name__] += 1
            print(f"fault {number + 1} of {count}: {fault.__name__}, step {job.step()}, "
                  f"new step after {self.seconds[fault.__name__][-1]:.1f} s", flush=True)
        for pid in {pid for pid, _ in memory}:
            of_one = [size for each, size in memory if each == pid]
            job.expect(max(of_one) - of_one[0] < GROWTH, f"the launcher grew from {of_one[0]:.0f} to {max(of_one):.0f} MB")

    def machines_of(self, job, count):
        """Kills the second of two agents; the first continues alone, and a new one joins."""
        job.begin(0)
        wait_for(job.is_hosted, 60)  # by the surviving agent: the loss of the host would end the job
        job.begin(1)
        wait_for(lambda: len(job.checkpoints()) >= 2, 120)
        for number in range(count):
            old, said, began = set(job.ranks().values()), job.said(), time.monotonic()
            job.processes[1].kill()
            job.processes[1].wait()
            self.after(job, "lose_machine", began, old, said, faults.RESTARTS)
            job.begin(1)
            wait_for(lambda: len(job.ranks()) == sum(job.agents), 60)
            alone = job.step()
            wait_for(lambda: job.step() > alone + 5, STALL)
            self.told["lose_machine"] += 1
            print(f"machine {number + 1} of {count}: new step after {self.seconds['lose_machine'][-1]:.1f} s", flush=True)

    def judge(self, job, tolerance):
        """Compares with the undisturbed run's losses and checks for leftovers."""
        job.stop()
        wait_for(lambda: not processes_of(f"output_dir={job.name}"), 10)
        lines = [line for line in metrics(job.output) if "loss" in line]
        steps = [line["step"] for line in lines]
        job.expect(steps == list(range(1, len(steps) + 1)), f"{job.name}: steps are missing or logged twice")
        left = [path.name for path in job.output.iterdir() if re.search(r"\.(saving|removing|replaced)$|^\.lockstep-(lock\.|ranks)", path.name)]
        job.expect(not left, f"{job.name}: {left} are left in output_dir")
        lock = json.loads((job.output / ".lockstep-lock").read_text())
        job.expect(lock["released"], f"{job.name}: its lock is not released: {lock}")
        calm = f"{job.name}-undisturbed"
        arguments = [word.replace(f"output_dir={job.name}", f"output_dir={calm}") if isinstance(word, str) else word
                     for word in job.training(sum(job.agents), len(steps))]
        job.run_ok_in(self.folder, *arguments, "save_strategy=no", timeout=7200)
        for step, (here, there) in enumerate(zip(losses(job.output), losses(self.folder / calm)), 1):
            job.expect(abs(here - there) <= tolerance, f"{job.name}: the loss of step {step} is {here} instead of {there}")
        print(f"{job.name}: {len(steps)} steps, {job.starts} starts, as undisturbed {'to the bit' if tolerance == 0 else 'to 1e-5'}")
        return len(steps)

    def report(self):
        def at(values, share):
            values = sorted(values)
            return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0

        for kind, values in sorted(self.seconds.items()):
            print(f"  {kind:14} {len(values):5}  p50 {at(values, 0.5):5.1f} s  p99 {at(values, 0.99):5.1f} s")
        restarted = [value for kind, values in self.seconds.items() for value in values]
        print(f"{sum(len(v) for v in self.seconds.values())} faults; time from fault to new step: p50 {at(restarted, 0.5):.1f} s, "
              f"p99 {at(restarted, 0.99):.1f} s; {sum(self.lost)} steps repeated, per restart median {at(self.lost, 0.5)}, "
              f"maximum {max(self.lost, default=0)}; {self.stalls} stalls; {json.dumps(dict(self.told))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    own = tempfile.TemporaryDirectory(prefix="soak-")
    os.environ["TMPDIR"] = tempfile.tempdir = own.name
    before = left_behind()
    ProgramTest.setUpClass()
    soak = Soak(ProgramTest.folder, options.seed)
    machines = options.faults // 12
    jobs = []
    code = 0
    try:
        for name, agents, count in (("soak", [3], options.faults - machines), ("elastic", [2, 1], machines)):
            if count == 0:
                continue
            jobs.append(Job(ProgramTest.folder, name, agents))
            (soak.faults_of if len(agents) == 1 else soak.machines_of)(jobs[-1], count)
            soak.judge(jobs[-1], 0 if len(agents) == 1 else 1e-5)
    except (Defect, AssertionError, subprocess.TimeoutExpired) as error:
        lines = jobs[-1].said().splitlines() if jobs else []
        print("\n".join([line for line in lines if not re.match(r" *(\| )?step ", line)][-60:]), file=sys.stderr)
        print(f"soak (seed {options.seed}): {error}", file=sys.stderr)
        code = 1
    finally:
        for job in jobs:
            job.end()
        ProgramTest.tearDownClass()
    left = left_behind() - before
    # A launcher that is killed after its keeper, or that gives up, leaves its workers' error files.
    left -= set(sorted(path for path in left if "/torchelastic_" in path)[:sum(job.unkept_folders for job in jobs)])
    if left and code == 0:
        print(f"soak: leftover files: {sorted(left)}", file=sys.stderr)
        code = 1
    own.cleanup()
    soak.report()
    return code


if __name__ == "__main__":
    sys.exit(main())
