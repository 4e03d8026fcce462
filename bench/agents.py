#!/usr/bin/env python3
"""Measures the rendezvous of many nodes: the real coordinator and agent of node 0, with all other agents simulated by this process.

    bench/agents.py --program build/release/lockstep [--nodes 16,128,1024] [--secret]

Each simulated node sends the messages of an agent (src/launch/agent/coordinator.h): it joins, reports ready, reports its connection checks,
runs its workers, and ends. The table contains the seconds from the first connection until all nodes are welcome, until the workers start
(the barrier), and from the first end to the last verdict; the lines and bytes on the coordinator's connection to one node; and the peak
memory of the process that hosts the coordinator, before the end. One part is not simulated: only node 0 checks connections to other nodes
before the start, so that cost is measured for one node. With --secret all nodes prove that they know a secret, and every line is
authenticated.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PROTOCOL = 5
LONG = 4096  # bytes of a line that is that of a round
SEAL = 65  # bytes before a sealed line: digits, and a space
SECRET = b"a secret that all of them know"


def sealed_with(key, count, digest):
    return hmac.digest(key, f"{count}|{digest}".encode(), "sha256").hex().encode() + b" "


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peak_memory(process):
    """Peak memory in MB of a running process."""
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1000


class Node(asyncio.Protocol):
    """A simulated agent. The coordinator sends the same description of a round, of several megabytes, to every node: node 1 parses it, and the
    others compare it byte by byte as it arrives, so that this process stores it once."""

    def __init__(self, job, rank):
        self.job, self.rank = job, rank
        self.lines = self.bytes = self.sent = 0
        self.transport, self.begun, self.same = None, b"", 0
        self.heard = asyncio.Queue()
        self.keys = None  # keys of sent and of received lines, once sealed
        self.said = self.told = 0  # numbers of sealed lines sent and received
        self.seal = b""  # seal of the line that is arriving

    def connection_lost(self, error):
        self.heard.put_nowait(None)

    def data_received(self, data):
        self.bytes += len(data)
        while data:
            if self.keys and len(self.seal) < SEAL:
                count = SEAL - len(self.seal)
                self.seal, data = self.seal + data[:count], data[count:]
                continue
            if self.same:  # bytes of the round
                count = min(len(data), len(self.job.round) - self.same)
                if self.job.round[self.same : self.same + count] != data[:count]:
                    raise RuntimeError(f"node {self.rank} received another round than node 1")
                self.same, data = self.same + count, data[count:]
                if self.same == len(self.job.round):
                    self.same = 0
                    self.check_seal(self.job.round_digest)
                    self.take(self.job.round_message)
                continue
            line, newline, data = data.partition(b"\n")
            self.begun += line + newline
            if newline:
                line, self.begun = self.begun, b""
                if self.keys:
                    self.check_seal(self.job.round_digest if line == self.job.round else hashlib.sha256(line[:-1]).hexdigest())
                self.take(self.job.understood(line))
            elif self.rank != 1 and len(self.begun) > LONG:
                self.await_round()

    def check_seal(self, digest):
        if self.keys:
            if self.seal != sealed_with(self.keys[1], self.told, digest):
                raise RuntimeError(f"node {self.rank} received an unsealed line")
            self.told, self.seal = self.told + 1, b""

    def await_round(self):
        if self.job.round is None:
            self.transport.pause_reading()
            self.job.waiting.append(self)
        else:
            begun, self.begun, self.same = self.begun, b"", len(self.begun)
            if not self.job.round.startswith(begun):
                raise RuntimeError(f"node {self.rank} received another round than node 1")

    def resume(self):
        self.await_round()
        self.transport.resume_reading()

    def take(self, message):
        self.lines += 1
        if "welcome" in message and self.job.secret:
            self.keys = self.on_welcome()  # from the next line on
        if "beat" not in message:
            self.heard.put_nowait(message)

    def say(self, **message):
        line = json.dumps(message).encode()
        if self.keys:
            line = sealed_with(self.keys[0], self.said, hashlib.sha256(line).hexdigest()) + line
            self.said += 1
        self.transport.write(line + b"\n")
        self.sent += 1

    async def hear(self, *wanted):
        """Next message that is not a heartbeat."""
        message = await self.heard.get()
        if message is None:
            raise ConnectionError(f"node {self.rank}: the coordinator closed the connection")
        if not any(word in message for word in wanted):
            raise RuntimeError(f"node {self.rank} received {str(message)[:200]} while waiting for {wanted}")
        return message

    async def join(self):
        while True:  # the host may start later
            try:
                self.transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self.job.port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        self.job.mark("connected")
        greeting = await self.hear("lockstep")
        assert greeting["lockstep"] == PROTOCOL, greeting
        node = {
            "id": 0, "host": f"node{self.rank}", "address": "127.0.0.1", "pid": os.getpid(), "workers": 1, "node_rank": self.rank,
            "probe_port": self.job.probe_port, "probe_token": self.job.token, "host_port": 0, "hosts": False}

        def prove(what, side):
            words = json.dumps(node, sort_keys=True, separators=(",", ":"))
            text = f"lockstep|{what}|{side}|{greeting['challenge']}|{'0' * 32}|{self.job.run_id}|{words}"
            return hmac.digest(SECRET, text.encode(), "sha256").hex()

        self.on_welcome = lambda: [prove("key", side).encode() for side in ("agent", "host")]
        self.say(join=self.job.run_id, nonce="0" * 32, proof=prove("proof", "agent") if self.job.secret else "", node=node)
        welcome = await self.hear("welcome")
        assert not self.job.secret or welcome["proof"] == prove("proof", "host")

    async def take_part(self):
        await self.join()
        beating = asyncio.ensure_future(self.beat())
        self.job.mark("welcome")
        self.say(ready=1)
        told = await self.hear("round")
        assert len(told["nodes"]) == self.job.nodes, len(told["nodes"])
        self.say(checked=told["round"], problems=[])
        await self.hear("start")
        self.job.mark("started")
        await self.job.all_started()
        self.say(ending=0, exit_code=0, signal=0, failures=[])
        self.say(ended=0, stuck=False, exit_code=0, failures=[])
        self.job.mark("ended")
        await self.hear("end")
        self.job.mark("verdict")
        beating.cancel()
        self.transport.close()

    async def beat(self):
        while True:
            await asyncio.sleep(1)
            self.say(beat=1)


class Job:
    """The run, and the times at which the first and the last node reached each point."""

    def __init__(self, program, nodes, secret):
        self.secret, self.round_digest = secret, ""
        self.nodes, self.port, self.run_id = nodes, free_port(), "bench"
        self.program, self.token, self.probe_port, self.probes = program, "a" * 32, 0, 0
        self.times = {}
        self.round = self.round_message = None
        self.waiting = []
        self.everybody = asyncio.Event()
        self.host, self.host_memory = None, 0

    def understood(self, line):
        if line == self.round:
            return self.round_message
        message = json.loads(line)
        if "round" in message and self.round is None:
            self.round, self.round_message, self.round_digest = line, message, hashlib.sha256(line[:-1]).hexdigest()
            for node in self.waiting:
                node.resume()
        return message

    def mark(self, point):
        self.times.setdefault(point, []).append(time.monotonic())
        if point == "started" and len(self.times[point]) == self.nodes - 1:
            self.host_memory = peak_memory(self.host.pid)
            self.everybody.set()

    async def all_started(self):
        await self.everybody.wait()

    async def answer_probe(self, reader, writer):
        self.probes += 1
        writer.write(self.token.encode())
        await writer.drain()
        writer.close()

    async def listening(self):
        """Waits until the coordinator accepts connections; it has read its secret by then."""
        while self.host.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                return writer.close()
            except OSError:
                await asyncio.sleep(0.01)

    async def run(self):
        listener = await asyncio.start_server(self.answer_probe, "127.0.0.1", 0, backlog=4096)
        self.probe_port = listener.sockets[0].getsockname()[1]
        began = time.monotonic()
        with tempfile.NamedTemporaryFile() as file:
            file.write(SECRET)
            file.flush()
            self.host = host = subprocess.Popen(
                [self.program, "launch", "--nnodes", str(self.nodes), "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port",
                 str(self.port), "--rdzv-id", self.run_id, "--rdzv-conf", "heartbeat_timeout=60",
                 *(["--rdzv-secret-file", file.name] if self.secret else []), "--no-python", "true"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            await self.listening()
        nodes = [Node(self, rank) for rank in range(1, self.nodes)]
        try:
            await asyncio.wait_for(asyncio.gather(*(node.take_part() for node in nodes)), 240)
        finally:
            listener.close()
            if host.poll() is None and len(self.times.get("verdict", [])) < len(nodes):
                host.terminate()
        said = host.communicate(timeout=60)[0].decode()
        if host.returncode != 0:
            raise SystemExit(f"the agent of node 0 ended with {host.returncode}:\n{said[-3000:]}")
        return began, nodes


def measure(program, count, secret):
    async def body():
        job = Job(program, count, secret)
        began, nodes = await job.run()
        return job, began, nodes
    job, began, nodes = asyncio.run(body())
    first = min(job.times["connected"])
    return {
        "nodes": count,
        "welcome_s": max(job.times["welcome"]) - first,
        "barrier_s": max(job.times["started"]) - first,
        "end_s": max(job.times["verdict"]) - min(job.times["ended"]),
        "all_s": max(job.times["verdict"]) - began,
        "lines": statistics.median(node.lines for node in nodes),
        "sent": statistics.median(node.sent for node in nodes),
        "kilobytes": statistics.median(node.bytes for node in nodes) / 1000,
        "probes": job.probes,
        "memory": job.host_memory,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--nodes", default="16,128,1024")
    parser.add_argument("--secret", action="store_true")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    print("| nodes | all welcome | workers start | first end to last verdict | total | lines to a node | lines from a node | kB to a node | "
          "nodes checked by node 0 | memory of the host |\n|---|---|---|---|---|---|---|---|---|---|")
    for count in map(int, options.nodes.split(",")):
        seen = measure(options.program, count, options.secret)
        print("| {nodes:,} | {welcome_s:.2f} s | {barrier_s:.2f} s | {end_s:.2f} s | {all_s:.2f} s | {lines:.0f} | {sent:.0f} | {kilobytes:.1f} | "
              "{probes:,} | {memory:.0f} MB |".format(**seen), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
