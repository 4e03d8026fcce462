"""Credentials do not leak: the search of canary.py finds every form of a leak, and jobs with secrets in files and variables have none."""

import base64
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import canary
from harness import ProgramTest, environment, free_port, lockstep, run, start

SSH = """#!/bin/sh
# Runs the command of the last argument here, as ssh would do on the host.
for command; do :; done
exec env -i PATH="$PATH" HOME="$HOME" OMP_NUM_THREADS=1 sh -c "$command"
"""


class Search(unittest.TestCase):
    """A leak in each form is found."""

    def test_forms(self):
        secret = canary.value("HF_TOKEN")
        for before in ("", "a", "ab", "user:"):
            for text in (f"{before}{secret}", urllib.parse.quote(before + secret, safe=""), (before + secret).encode().hex(),
                         "".join(f"%{letter:02X}" for letter in secret.encode()), base64.b64encode((before + secret).encode()).decode()):
                self.assertIsNotNone(canary.find(f"x {text} y".encode()), text)
        self.assertIsNone(canary.find(b"no secret"))

    def test_output(self):
        for command in ("echo $HF_TOKEN", "echo $HF_TOKEN >&2", "echo $https_proxy"):
            with self.assertRaisesRegex(AssertionError, "contains a credential as it is"):
                run(["sh", "-c", command], env=environment())

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "below", "token")
            path.parent.mkdir()
            path.write_text(f"a\n{canary.value('HF_TOKEN')}\n")
            (path.parent / "link").symlink_to("token")
            (path.parent / "empty").touch()
            found, = canary.files_with_credentials(folder)
            self.assertIn("below/token contains a credential", found)
            self.assertEqual(canary.files_with_credentials(folder, ("token",)), [])

    def test_arguments(self):
        seen = canary.Arguments()
        words = [sys.executable, "-c", "print(flush=True); input()", canary.value("HF_TOKEN")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()  # Popen returns before /proc has the arguments
            seen.look()
            process.communicate(b"\n")
        self.assertIn(f"the arguments of process {process.pid}", "\n".join(seen.stop()))


class Jobs(ProgramTest):
    """Jobs of two nodes whose secrets are in files and variables. The harness searches their folder and arguments at the end."""

    holds_credentials = ("secret", "other-secret", ".deepspeed_env")

    def job(self, name, *more):
        words = self.train_arguments(name, *more, steps=3)
        at = words.index("--nproc")
        return ["train", *words[1:at], *words[at + 2:]]

    def secret(self, name, value):
        path = self.folder / name
        path.write_text(value + "\n")
        path.chmod(0o600)
        return path

    def node(self, port, secret, number, *job, **more):
        return start(
            "launch", "--nnodes=2", f"--node-rank={number}", "--master-addr=127.0.0.1", f"--master-port={port}", "--nproc-per-node=1",
            *secret, f"--log-dir=logs-{port}", "--tee=3", *job, cwd=self.folder, env=environment(**more))

    def finish(self, codes, *nodes):
        told = [node.communicate(timeout=120) for node in nodes]
        self.assertEqual([node.returncode for node in nodes], codes, told)
        return told

    def test_nodes_that_prove_a_secret(self):
        path = self.secret("secret", canary.value("the file of the rendezvous"))
        handed = {"LOCKSTEP_RDZV_SECRET": path.read_text().strip()}  # in a file on one node, in a variable on the other
        port = free_port()
        job = self.job("proved", "save_steps=2")
        self.finish([0, 0], self.node(port, [f"--rdzv-secret-file={path}"], 0, *job), self.node(port, [], 1, *job, **handed))
        self.assertTrue((self.folder / "proved" / "checkpoint-2").exists())

    def test_a_failing_job_and_a_wrong_secret(self):
        path, other = (self.secret(name, canary.value(name)) for name in ("secret", "other-secret"))
        port = free_port()
        host = self.node(port, [f"--rdzv-secret-file={path}"], 0, *self.job("failed", "data.train=none.txt"))
        (_, err), = self.finish([2], self.node(port, [f"--rdzv-secret-file={other}"], 1, *self.job("failed")))
        self.assertIn("secret", err)
        self.finish([4, 4], host, self.node(port, [f"--rdzv-secret-file={path}"], 1, *self.job("failed", "data.train=none.txt")))

    def test_hosts_that_ssh_starts(self):
        tools, home = self.folder / "tools", self.folder / "home"
        for folder in (tools, home):
            folder.mkdir()
        (tools / "ssh").write_text(SSH)
        (tools / "ssh").chmod(0o755)
        (home / ".deepspeed_env").write_text(f'HF_TOKEN="{canary.value("HF_TOKEN")}"\n')
        (self.folder / "hosts").write_text("127.0.0.1 slots=1\nlocalhost slots=1\n")
        env = environment(HOME=str(home), PATH=f"{tools}:{os.environ['PATH']}")
        told = lockstep("launch", "--hostfile", "hosts", "--launcher", "ssh", "--master-addr", "127.0.0.1", "--master-port", free_port(),
                        *self.job("by-ssh"), cwd=self.folder, env=env)
        self.assertEqual(told.code, 0, told)


if __name__ == "__main__":
    unittest.main()
