#!/usr/bin/env python3
"""Repeatedly disables the node that hosts a job. The other nodes must continue with a standby coordinator, and the result must equal the
undisturbed run.

  hosts.py --losses 50 --seed 7      (make hosts LOSSES=50)

Three simulated nodes (network namespaces, which require root) train a GPT-2 of two layers with one rank each. The host loses its
launcher, its power or its link, or all its processes are stopped. Once the other nodes have logged a new step, the node comes back and
joins again. At the end each step must be logged once, and every loss must equal that of the undisturbed run within 1e-5.
"""

import argparse
import collections
import os
import pathlib
import random as randoms
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import PROGRAM, ProgramTest, environment, losses, metrics, processes_of, wait_for  # noqa: E402

STALL = 90  # seconds without a new step
COUNT, PORT = 3, 29517


def shell(command):
    return subprocess.run(["sh", "-ec", command], capture_output=True, text=True)


class Machines:
    """Network namespaces with one address each, connected by a bridge. A cable is pulled at the bridge's end."""

    def __init__(self):
        self.prefix = f"h{os.getpid() % 100000}"
        made = shell(f"ip link add {self.prefix}b type bridge; ip link set {self.prefix}b up;" + "".join(
            f"ip netns add {self.name(n)}; ip link add {self.name(n)}h type veth peer name eth0 netns {self.name(n)};"
            f"ip link set {self.name(n)}h master {self.prefix}b up; ip -n {self.name(n)} addr add {self.address(n)}/24 dev eth0;"
            f"ip -n {self.name(n)} link set eth0 up; ip -n {self.name(n)} link set lo up;" for n in range(COUNT)))
        self.problem = made.stderr.strip() if made.returncode else ""

    def name(self, number):
        return f"{self.prefix}n{number}"

    def address(self, number):
        return f"10.78.0.{number + 1}"

    def cable(self, number, state):
        shell(f"ip link set {self.name(number)}h {state}")

    def remove(self):
        shell("".join(f"ip netns del {self.name(n)} || true;" for n in range(COUNT)) + f"ip link del {self.prefix}b || true")


class Job(ProgramTest):
    def runTest(self):
        pass

    def __init__(self, machines, folder):
        super().__init__()
        self.machines, self.folder, self.output = machines, folder, folder / "hosts"
        self.agents, self.host, self.lines_seen = {}, 0, collections.Counter()
        self.secret = folder / "secret"
        self.secret.write_text("0123456789abcdef\n")
        self.secret.chmod(0o600)

    def training(self, ranks, steps=10**7, output="hosts"):
        return self.train_arguments(output, "save_steps=5", "save_total_limit=3", "resume_from_checkpoint=true",
                                    "lr_scheduler_type=constant", "learning_rate=1e-4", ranks=ranks, steps=steps)

    def begin(self, number):
        train = self.training(1)
        at = train.index("--nproc")
        launch = ["launch", "--nproc-per-node=1", "--max-restarts=1000000", f"--nnodes=2:{COUNT}", "--rdzv-backend=c10d",
                  f"--rdzv-endpoint={self.machines.address(0)}:{PORT}", f"--rdzv-secret-file={self.secret}",
                  "--rdzv-conf=last_call_timeout=600"]
        with open(self.folder / f"{number}.err", "ab") as log:
            self.agents[number] = subprocess.Popen(
                ["ip", "netns", "exec", self.machines.name(number), "unshare", "--uts", "sh", "-c",
                 f'hostname machine{number}; exec "$@"', "sh", PROGRAM, *map(str, [*launch, "train", *train[1:at], *train[at + 2:]])],
                cwd=self.folder, env=environment(GLOO_SOCKET_IFNAME="eth0"), stdout=subprocess.DEVNULL, stderr=log)

    def said(self, number):
        path = self.folder / f"{number}.err"
        return path.read_text(errors="replace") if path.exists() else ""

    def step(self):
        try:
            found = re.findall(rb'"step": ?(\d+)', (self.output / "metrics.jsonl").read_bytes()[-4096:])
            return int(found[-1]) if found else 0
        except OSError:
            return 0

    def processes(self, number):
        """The agent of a node and all its descendants."""
        found, waiting = [], [self.agents[number].pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            try:
                waiting += map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except OSError:
                pass
        return found

    def tell(self, number, signal_number):
        for pid in self.processes(number):
            try:
                os.kill(pid, signal_number)
            except ProcessLookupError:
                pass


def lose_launcher(job, host):
    """Kills the launcher, and its ranks with it; all connections are closed."""
    job.agents[host].kill()
    return lambda: (job.agents[host].wait(), job.begin(host))


def lose_power(job, host):
    """Cuts the power: the node disappears without closing connections."""
    job.machines.cable(host, "down")
    job.tell(host, signal.SIGKILL)
    return lambda: (job.machines.cable(host, "up"), job.agents[host].wait(), job.begin(host))


def lose_link(job, host):
    """Cuts the link: all processes live but are disconnected."""
    job.machines.cable(host, "down")
    return lambda: job.machines.cable(host, "up")


def stand_still(job, host):
    job.tell(host, signal.SIGSTOP)
    return lambda: job.tell(host, signal.SIGCONT)


KINDS = [lose_launcher, lose_power, lose_link, stand_still]


def within(seconds, what, holds):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"{what} within {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - began


def lose_hosts(job, count, random, seconds):
    for number in range(COUNT):
        job.begin(number)
        if number == 0:
            time.sleep(0.5)
    within(STALL, "no checkpoint", lambda: job.step() > 12)
    for number in range(count):
        kind, lost = KINDS[number % len(KINDS)], job.host
        time.sleep(random.uniform(0, 0.5))
        before = {n: len(job.said(n)) for n in range(COUNT)}
        others = [n for n in range(COUNT) if n != lost]
        began = time.monotonic()
        come_back = kind(job, lost)
        reached = job.step()

        def resumed():
            return any(re.search(r"resuming from \S+ after step \d+", job.said(n)[before[n]:]) for n in others)

        while not resumed():
            reached = max(reached, job.step())
            if time.monotonic() - began > STALL:
                raise AssertionError(f"no node resumed after {kind.__name__} of node {lost}")
            time.sleep(0.01)
        within(STALL, f"no new step after {kind.__name__} of node {lost}", lambda: job.step() > reached)
        seconds[kind.__name__].append(time.monotonic() - began)
        heirs = [n for n in others if "this node hosts the job now" in job.said(n)[before[n]:]]
        if len(heirs) != 1:
            raise AssertionError(f"{heirs} host the job after {kind.__name__} of node {lost}")
        job.host = heirs[0]
        at = len(job.said(job.host))
        come_back()
        within(STALL, f"node {lost} did not join again after {kind.__name__}", lambda: " joins" in job.said(job.host)[at:])
        within(STALL, "no resume", lambda: re.search(r"resuming from \S+ after step \d+", job.said(0)[before[0]:] + job.said(1)[before[1]:]))
        joined = job.step()
        within(STALL, f"no new step after node {lost} joined again", lambda: job.step() > joined + 5)
        print(f"loss {number + 1} of {count}: {kind.__name__} of node {lost}, node {job.host} hosts, new step after "
              f"{seconds[kind.__name__][-1]:.1f} s", flush=True)


def judge(job):
    job.tell(job.host, signal.SIGTERM)
    for number, agent in job.agents.items():
        code = agent.wait(timeout=120)
        if code != 75:
            raise AssertionError(f"the agent of node {number} ended with {code}")
    steps = [line["step"] for line in metrics(job.output) if "loss" in line]
    if steps != list(range(1, len(steps) + 1)):
        raise AssertionError("steps are missing or logged twice")
    job.run_ok_in(job.folder, *job.training(COUNT, len(steps), "undisturbed"), "save_strategy=no", timeout=7200)
    for step, (here, there) in enumerate(zip(losses(job.output), losses(job.folder / "undisturbed")), 1):
        if abs(here - there) > 1e-5:
            raise AssertionError(f"the loss of step {step} is {here} instead of {there}")
    print(f"{len(steps)} steps, equal to the undisturbed run within 1e-5")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    machines = Machines()
    if machines.problem:
        machines.remove()
        print(f"skipped: network namespaces are not available: {machines.problem}")
        return 0
    ProgramTest.setUpClass()
    job, seconds, code = Job(machines, ProgramTest.folder), collections.defaultdict(list), 0
    try:
        lose_hosts(job, options.losses, randoms.Random(options.seed), seconds)
        judge(job)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        for number in range(COUNT):
            lines = [line for line in job.said(number).splitlines() if not re.match(r" *(\| )?step ", line)]
            print(f"machine {number}:\n  " + "\n  ".join(lines[-40:]), file=sys.stderr)
        print(f"hosts (seed {options.seed}): {error}", file=sys.stderr)
        code = 1
    finally:
        for number in job.agents:
            job.tell(number, signal.SIGCONT)
            job.tell(number, signal.SIGKILL)
        wait_for(lambda: not processes_of("output_dir=hosts"))
        ProgramTest.tearDownClass()
        machines.remove()
    every = sorted(value for values in seconds.values() for value in values)
    for kind, values in sorted(seconds.items()):
        print(f"  {kind:14} {len(values):4}  median {sorted(values)[len(values) // 2]:5.1f} s  longest {max(values):5.1f} s")
    if every:
        print(f"{len(every)} hosts lost; time to a new step: median {every[len(every) // 2]:.1f} s, maximum {every[-1]:.1f} s; "
              f"{sum(value <= 10 for value in every)} within 10 s")
    return code


if __name__ == "__main__":
    sys.exit(main())
