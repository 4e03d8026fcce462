#!/usr/bin/env python3
"""A slow rank is named with the reason. The test slows down one of three processes in each of four ways and checks the recorded event.

Compute: the process is stopped most of the time. Data: the thread that prepares its batches is stopped (ptrace). Checkpoint: its disk is
slow (interposer.c). Communication: its network is slow (a token bucket in a separate network namespace; requires root).
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import CONFIG, PROGRAM, ProgramTest, environment, losses, wait_for  # noqa: E402
from hosts import Machines, shell  # noqa: E402
from world import World  # noqa: E402

RANKS, SLOW = 3, 1
SEIZE, INTERRUPT, CONT, ALL_CHILDREN = 0x4206, 0x4207, 7, 0x40000000


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def halt_thread(thread):
    ptrace(INTERRUPT, thread)
    os.waitpid(thread, ALL_CHILDREN)


class Stopped(threading.Thread):
    """Repeatedly stops a process or thread: it runs for `runs` seconds and is stopped for `still` seconds."""

    def __init__(self, begin, halt, go_on, still, runs):
        super().__init__(daemon=True)
        self.acts, self.still, self.runs, self.problem = (begin, halt, go_on), still, runs, None
        self.ends, self.begun = threading.Event(), threading.Event()
        self.start()

    def run(self):  # ptrace allows only the tracing thread to control the traced one
        begin, halt, go_on = self.acts
        try:
            begin()
            self.begun.set()
            while not self.ends.is_set():
                halt()
                time.sleep(self.still)
                go_on()
                time.sleep(self.runs)
        except OSError as error:
            self.problem = error
        self.begun.set()


def thread_of(process, name):
    return next((int(task.name) for task in pathlib.Path(f"/proc/{process}/task").iterdir()
                 if (task / "comm").read_text().strip() == name), None)


class SlowRanks(ProgramTest):
    def begin(self, name, *more, before=lambda rank: [], variables=lambda rank: {}, address="127.0.0.1"):
        """Starts each rank as a separate process, as other launchers do."""
        train = self.train_arguments(name, "ddp_backend=gloo", "logging_steps=10", *more, steps=10**7)
        at = train.index("--nproc")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = []
        for rank in range(RANKS):
            told = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": RANKS, "MASTER_ADDR": address, "MASTER_PORT": port}
            with open(self.folder / f"{name}.{rank}.err", "wb") as log:
                self.ranks.append(subprocess.Popen(
                    [*before(rank), PROGRAM, *map(str, train[:at] + train[at + 2:])], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log,
                    env=environment(**{key: str(value) for key, value in told.items()}, **variables(rank))))
        self.addCleanup(self.end)
        wait_for(lambda: self.live(name) and len(losses(self.folder / name)) >= 1)

    def live(self, name):
        for rank, process in enumerate(self.ranks):
            self.assertIsNone(process.poll(), (self.folder / f"{name}.{rank}.err").read_text())
        return True

    def end(self):
        for process in self.ranks:
            process.kill()
            process.wait()

    def named(self, name, by):
        """Waits for the event that names the slow rank with this reason."""
        def found():
            self.live(name)
            lines = [json.loads(line) for line in (self.folder / name / "events.jsonl").read_text().splitlines()]
            return [e for e in lines if e["event"] == "slow rank" and (e["rank"], e.get("by")) == (SLOW, by)]
        try:
            event = wait_for(found, seconds=120)[0]
        except AssertionError as error:
            told = [(self.folder / name / file).read_text()[-1500:] for file in ("events.jsonl", "ranks.jsonl")]
            raise AssertionError("\n".join(told)) from error
        self.assertGreaterEqual(event["factor"], 1.2)
        return event

    @contextlib.contextmanager
    def stopped(self, *acts, still, runs):
        stopper = Stopped(*acts, still, runs)
        stopper.begun.wait()
        if stopper.problem:
            self.skipTest(f"threads of other processes cannot be stopped: {stopper.problem}")
        yield
        stopper.ends.set()
        stopper.join()

    def test_compute(self):
        self.begin("compute")
        process = self.ranks[SLOW]
        with self.stopped(lambda: None, lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT), still=0.03, runs=0.01):
            self.named("compute", "compute")
            wait_for(lambda: f"rank {SLOW} is slowed by its compute" in self.run_ok("monitor", "--text", "--once", "compute").out)

    def test_compute_of_a_stage_of_its_own(self):
        (self.folder / "deep.json").write_text(json.dumps({**CONFIG, "n_layer": 3}))
        self.begin("stages", "model.path=deep.json", "parallel.pipeline=3", "gradient_accumulation_steps=3")
        process = self.ranks[SLOW]
        wait_for(lambda: self.live("stages") and losses(self.folder / "stages")[-1:] and len(losses(self.folder / "stages")) >= 30)  # the normal speed
        with self.stopped(lambda: None, lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT), still=0.03, runs=0.01):
            self.named("stages", "compute")

    def test_data(self):
        self.begin("data")
        thread = thread_of(self.ranks[SLOW].pid, "lockstep-data")
        with self.stopped(lambda: ptrace(SEIZE, thread), lambda: halt_thread(thread), lambda: ptrace(CONT, thread), still=0.2, runs=0.002):
            self.named("data", "data")

    def test_checkpoint(self):
        world = World(self.folder, self.folder / "saving")
        if not world.is_there:
            self.skipTest("the simulated slow disk requires a C compiler")
        self.begin("saving", "save_steps=5", "save_total_limit=2", variables=lambda rank: world.variables if rank == SLOW else {})
        with world.during(disk_delay_us=100000):
            self.named("saving", "checkpoint")

    def test_communication(self):
        machines = Machines()
        self.addCleanup(machines.remove)
        if machines.problem:
            self.skipTest(f"network namespaces are not available: {machines.problem}")
        narrow = shell(f"ip netns exec {machines.name(SLOW)} tc qdisc add dev eth0 root tbf rate 20mbit burst 32kb latency 1s")
        if narrow.returncode:
            self.skipTest(f"the network cannot be slowed down: {narrow.stderr.strip()}")
        self.begin(
            "sending", address=machines.address(0), before=lambda rank: ["ip", "netns", "exec", machines.name(rank)],
            variables=lambda rank: {"GLOO_SOCKET_IFNAME": "eth0"})
        self.named("sending", "communication")


if __name__ == "__main__":
    unittest.main(verbosity=2)
