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
import struct
import subprocess
import tempfile
import threading
import unittest

from harness import PROGRAM, environment, free_port, listens, lockstep, wait_for

NOBODY = 65534
PROTOCOL = 5


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


def ping(port):
    """The answer of the store at the port, empty if it disconnects."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(struct.pack("=BIBI", 0, 0x3C85F7CE, 13, 1))
        return connection.recv(4, socket.MSG_WAITALL)
    return b""


def send_ping(port, result):
    result.send(ping(port))


def serve_store(port):
    with socket.create_server(("127.0.0.1", port)) as listener:
        answer_pings(listener)


def listening_addresses(port):
    """In hexadecimal digits; zeros are all interfaces."""
    tables = (pathlib.Path("/proc/net") / name for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}


class Ranks(unittest.TestCase):
    """Ranks that are started by variables, without an agent."""

    def rank(self, rank, address, port, *prefix):
        process = subprocess.Popen(
            [*prefix, PROGRAM, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT=str(port)))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def finish(self, ranks):
        for process in ranks:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, out + err)

    def test_a_name_of_loopback_is_not_all_interfaces(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "hosts").write_text("127.0.0.1 localhost\n127.0.0.1 first-node\n")
        prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {folder}/hosts /etc/hosts && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespace here")
        port = free_port()
        ranks = [self.rank(0, "first-node", port, *prefix)]
        for address in wait_for(lambda: listening_addresses(port)):
            self.assertNotEqual(address.strip("0"), "", "rank 0 listens on all interfaces")
        ranks.append(self.rank(1, "first-node", port, *prefix))
        self.finish(ranks)

    def test_the_store_answers_no_other_user(self):
        another_user()
        port = free_port()
        ranks = [self.rank(0, "127.0.0.1", port)]
        wait_for(lambda: listens(port))
        self.assertEqual(len(ping(port)), 4)
        ours, theirs = multiprocessing.Pipe()
        stranger = as_user(NOBODY, send_ping, port, theirs)
        self.assertEqual(ours.recv(), b"")
        stranger.join()
        ranks.append(self.rank(1, "127.0.0.1", port))
        self.finish(ranks)

    def test_another_users_store_is_not_used(self):
        name = another_user()
        port = free_port()
        squatter = as_user(NOBODY, serve_store, port)
        self.addCleanup(squatter.join)
        self.addCleanup(squatter.kill)
        wait_for(lambda: listens(port))
        for rank, text in ((0, "is in use by"), (1, f"belongs to {name}")):
            process = self.rank(rank, "127.0.0.1", port)
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 3, out + err)
            self.assertIn(text, err)
            self.assertIn(str(port), err)


def listening_sockets(pid):
    """The number of TCP sockets on which a process listens."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return len({os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()} & inodes)


class Strangers(unittest.TestCase):
    def test_probes_are_not_answered_while_workers_run(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-"))
        self.addCleanup(shutil.rmtree, folder)
        agent = subprocess.Popen(
            [PROGRAM, "launch", "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
             "--rdzv-conf=last_call_timeout=0", "--no-python", "sh", "-c", "touch started; read word"],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(agent.kill)
        wait_for(lambda: (folder / "started").exists())
        # The coordinator, the store, and the place where this node would host the job.
        self.assertEqual(listening_sockets(agent.pid), 3)
        out, err = agent.communicate(b"end\n", timeout=60)
        self.assertEqual(agent.returncode, 0, out + err)

    def test_idle_connections_leave_descriptors_for_agents(self):
        port = free_port()
        words = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--no-python", "true"]
        host = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", PROGRAM, "launch", "--node-rank=0", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(host.kill)
        wait_for(lambda: listens(port))
        with contextlib.ExitStack() as connections:
            for _ in range(400):
                connections.enter_context(socket.create_connection(("127.0.0.1", port)))
            result = lockstep("launch", "--node-rank=1", *words)
            self.assertEqual(result.code, 0, result)
            out, err = host.communicate(timeout=60)
            self.assertEqual(host.returncode, 0, out + err)


if __name__ == "__main__":
    unittest.main()
