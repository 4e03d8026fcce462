"""Harness for tests that run the program as a user does. It uses only the Python standard library.

LOCKSTEP_PROGRAM is the path of the program. Each test class gets a scratch folder with a small corpus and a tokenizer that the program
makes once per class.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import canary

PROGRAM = os.environ["LOCKSTEP_PROGRAM"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED_DATA = SOURCE.parent / "shared" / "data"


def long(test):
    """Marks a test or test class that is too slow for `make test`; its CTest label is `long`."""
    test.long = True
    return test


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    # Measurements under the load of the tests must not replace the user's own.
    env.update({"OMP_NUM_THREADS": "1", "LOCKSTEP_MEASURE_MACHINE": "0", **canary.variables(more)}, **more)
    return env


class Process(subprocess.Popen):
    """Process whose output must not contain the credentials of the tests (canary.py)."""

    def communicate(self, *arguments, **options):
        streams = super().communicate(*arguments, **options)
        for name, text in zip(("the output", "the error output"), streams):
            canary.expect_none(f"{name} of {self.args[:3]}", text or b"")
        return streams


def run(words, input=None, timeout=None, **options):
    """subprocess.run() for a Process, with its output captured."""
    streams = {"stdin": subprocess.PIPE if input is not None else None, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Process(list(map(str, words)), **{**streams, **options}) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def lockstep(*arguments, cwd=None, timeout=240, env=None, stdin=None):
    """Runs the program and waits for its exit."""
    done = run(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        timeout=timeout,
        env=env or environment(),
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def start(*arguments, cwd=None, env=None, address_space=None):
    """Starts the program without waiting. `address_space` limits its virtual memory in bytes."""
    return Process(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env or environment(),
        text=True,
        preexec_fn=address_space and (lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))),
    )


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"timed out after {seconds} s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """True if a socket of this machine listens on the port."""
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def self_signed(folder):
    """Paths of a self-signed certificate for 127.0.0.1 and its key. Skips the test if openssl is missing."""
    certificate, key = (str(pathlib.Path(folder) / name) for name in ("certificate.pem", "key.pem"))
    if shutil.which("openssl") is None:
        raise unittest.SkipTest("openssl is not installed, so no certificate can be created")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], capture_output=True, check=True)
    return certificate, key


def metrics(run):
    """Complete lines of metrics.jsonl. Skips an incomplete last line, which a killed rank leaves until another rank repairs it."""
    path = pathlib.Path(run) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def losses(run):
    return [line["loss"] for line in metrics(run) if "loss" in line]


def judged_pairs(folder):
    """Preference pairs from the corpus in `folder`: a prompt, its own answer as chosen, the answer to another prompt as rejected."""
    made = [json.loads(line) for line in (folder / "corpus" / "instructions.jsonl").read_text().splitlines()][:48]
    return [{"prompt": f"{row['instruction']} {row['input']}\n", "chosen": row["output"], "rejected": other["output"]}
            for row, other in zip(made, made[5:]) if row["output"] != other["output"]]


def processes_of(marker):
    """Processes of this test's folder whose command line contains `marker`."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                elsewhere = (folder / "cwd").resolve() != ProgramTest.scratch
            except OSError:
                continue
            if marker.encode() in line and state != "Z" and not elsewhere:
                found.append(int(folder.name))
    return found


def ranks_of(marker):
    """Rank -> process, for ranks whose command line contains `marker`. The process name contains the rank."""
    ranks = {}
    for pid in processes_of(marker):
        try:
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("lockstep-r"):
            ranks[int(name.removeprefix("lockstep-r"))] = pid
    return ranks


CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 512,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


class ProgramTest(unittest.TestCase):
    """Test with a scratch folder that contains `corpus/`, `tokenizer/` and `model.json`; commands run in it.

    After the tests of the class, no file of the folder may contain one of the credentials in canary.py, except those whose name matches
    a pattern in `holds_credentials`, and no process may have had one in its arguments.
    """

    holds_credentials = ()

    @classmethod
    def setUpClass(cls):
        cls.arguments_seen = canary.Arguments()
        cls.folder = ProgramTest.scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-")).resolve()
        cls.run_ok_in(cls.folder, "sample", "--output", "corpus", "--size", "0.3")
        cls.run_ok_in(
            cls.folder, "tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "512",
            "--output", "tokenizer")
        (cls.folder / "model.json").write_text(json.dumps(CONFIG))

    @classmethod
    def tearDownClass(cls):
        found = [*cls.arguments_seen.stop(), *canary.files_with_credentials(cls.folder, cls.holds_credentials)]
        shutil.rmtree(cls.folder, ignore_errors=True)
        assert not found, "\n".join(found)

    @staticmethod
    def run_ok_in(folder, *arguments, **options):
        result = lockstep(*arguments, cwd=folder, **options)
        assert result.code == 0, result
        return result

    def run_ok(self, *arguments, **options):
        return self.run_ok_in(self.folder, *arguments, **options)

    def run_fails(self, code, *arguments, **options):
        result = lockstep(*arguments, cwd=self.folder, **options)
        self.assertEqual(result.code, code, result)
        told = result.err[max(result.err.find("error: "), 0):]
        self.assertLess(len(told.splitlines()), 60, result)  # one screen
        return result

    def train_arguments(self, output, *more, ranks=1, steps=6):
        """Arguments of a short float32 run with dropout that logs every step."""
        return [
            "train", "--nproc", ranks, "model.path=model.json", "tokenizer.path=tokenizer",
            "data.train=corpus/train.txt", "data.validation=corpus/validation.txt",
            "data.cache_dir=cache", "data.sequence_length=32", f"output_dir={output}",
            f"max_steps={steps}", "logging_steps=1", "save_steps=1000", "learning_rate=1e-3",
            "warmup_steps=2", "monitor.peak_tflops=1", "use_cpu=true", *more]

    def train(self, output, *more, ranks=1, steps=6, **options):
        return self.run_ok(*self.train_arguments(output, *more, ranks=ranks, steps=steps), **options)

    def assert_close(self, first, second, tolerance):
        self.assertEqual(len(first), len(second))
        for a, b in zip(first, second):
            self.assertLessEqual(abs(a - b), tolerance, f"{first}\n{second}")
