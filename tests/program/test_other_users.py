"""Another user of this machine who holds a port, or connects to one, gets nothing of a job."""

import contextlib
import hmac
import json
import multiprocessing
import os
import pathlib
import pwd
import shutil
import socket
import tempfile
import threading
import unittest

from harness import free_port, listens, lockstep, wait_for

NOBODY = 65534
PROTOCOL = 4


def another_user():
    """Its name as errors have it, or the test is skipped."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("only root can act as another user")
    with contextlib.suppress(KeyError):
        return f"user {pwd.getpwuid(NOBODY).pw_name} (uid {NOBODY})"
    return f"uid {NOBODY}"


def as_user(user, body, *arguments):
    """Starts `body` in a process of a user."""
    def run():
        if user != os.geteuid():
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        body(*arguments)

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    return process


class Lines:
    """JSON lines over a connection; what was received is kept."""

    def __init__(self, connection, file):
        self.connection, self.file, self.received = connection, file, []

    def say(self, **message):
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, key):
        """The next message with `key`; None if there is none."""
        for line in self.file:
            self.received.append(json.loads(line))
            if key in self.received[-1]:
                return self.received[-1]
        return None


def answer_ping(connection):
    """Magic number and ping are 10 bytes, and the last four are sent back."""
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(connection.recv(10, socket.MSG_WAITALL)[-4:])
        connection.recv(1)  # until the client disconnects


def answer_pings(listener):
    """A store that answers the first ping of each client and nothing else."""
    while True:
        threading.Thread(target=answer_ping, args=(listener.accept()[0],), daemon=True).start()


def empty_proof(join):
    """The proof of a coordinator for an empty secret, which everyone can compute."""
    node = json.dumps(join["node"], sort_keys=True, separators=(",", ":"))
    text = f"lockstep|proof|host|c|{join['nonce']}|{join['join']}|{node}"
    return hmac.new(b"", text.encode(), "sha256").hexdigest()


def host_a_job(lines, store, successor):
    """Speaks as a coordinator of one round. With `successor`, the port of a standby, it ends before the workers start."""
    lines.say(lockstep=PROTOCOL, challenge="c", secret=False)
    join = lines.hear("join")
    if join is None:
        return
    lines.say(welcome=1, proof=empty_proof(join))
    if lines.hear("ready") is None:
        return
    threading.Thread(target=answer_pings, args=(store,), daemon=True).start()
    nodes = [{**join["node"], "id": 1, "host_port": 0}]
    if successor:
        nodes.append({**join["node"], "id": 2, "host_port": successor, "probe_token": "another"})
    state = {
        "job": {"id": "stolen", "started": 0, "first_world_size": 1}, "rounds": 1, "heirs": len(nodes) - 1,
        "restarts": {"count": 0, "seconds_ago": []}, "progress": {"furthest": None, "in_vain": []},
        "hosts": [{"address": "127.0.0.1", "port": 1}]}
    lines.say(round=0, heritage=state, nodes=nodes, store={"address": "127.0.0.1", "port": store.getsockname()[1]})
    if lines.hear("checked") is None or successor:
        return
    lines.say(start=0)
    if lines.hear("ended") is not None:
        lines.say(end=0, exit_code=0, reason="", failures=[], others=0)
        lines.hear("nothing")


def serve(port, successor, result):
    with socket.create_server(("127.0.0.1", port)) as listener, socket.create_server(("127.0.0.1", 0)) as store:
        with listener.accept()[0] as connection, connection.makefile("r") as file:
            lines = Lines(connection, file)
            host_a_job(lines, store, successor)
        result.send(lines.received)


@contextlib.contextmanager
def fake_host(user, successor=None):
    """A coordinator of a user: its port, and a function that waits for its end and returns what it heard."""
    port = free_port()
    ours, theirs = multiprocessing.Pipe()
    process = as_user(user, serve, port, successor, theirs)
    try:
        wait_for(lambda: listens(port))
        yield port, ours.recv
    finally:
        process.kill()
        process.join()


class Hosts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def launch(self, *arguments, script="touch started"):
        return lockstep("launch", *arguments, "--nproc-per-node=1", "--no-python", "sh", "-c", script, cwd=self.folder)

    def test_another_users_host_hears_nothing_and_starts_nothing(self):
        name = another_user()
        for arguments in (
            ["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{}"],
            ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{}"],
            ["--nnodes=2", "--node-rank=1", "--master-addr=localhost", "--master-port={}"],
        ):
            with self.subTest(arguments), fake_host(NOBODY) as (port, heard):
                result = self.launch(*(word.format(port) for word in arguments))
                self.assertEqual(result.code, 3, result)
                self.assertIn(f"127.0.0.1 port {port} belongs to {name}", result.err)
                self.assertIn("choose another port", result.err)
                self.assertIn("--rdzv-secret-file", result.err)
                self.assertEqual(heard(), [])
                self.assertFalse((self.folder / "started").exists())

    def test_another_users_standby_hears_nothing(self):
        name = another_user()
        with fake_host(NOBODY) as (port, heard), fake_host(os.geteuid(), successor=port) as (first, _):
            result = self.launch(
                "--nnodes=1:2", "--max-restarts=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{first}")
            self.assertNotEqual(result.code, 0, result)
            self.assertIn(f"127.0.0.1 port {port} belongs to {name}", result.err)
            self.assertEqual(heard(), [])
            self.assertFalse((self.folder / "started").exists())

    def test_a_host_cannot_turn_a_failure_into_a_success(self):
        for script, code in (("touch started; exit 7", 7), ("touch started", 0)):
            with self.subTest(script), fake_host(os.geteuid()) as (port, _):
                result = self.launch(
                    "--nnodes=1:2", "--propagate-exit-code", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}",
                    script=script)
                self.assertTrue((self.folder / "started").exists(), result)
                self.assertEqual(result.code, code, result)
                self.assertEqual(
                    "the coordinator reported success, but the workers of this node failed" in result.err, code != 0, result)


if __name__ == "__main__":
    unittest.main()
