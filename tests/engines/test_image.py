"""Installs the Debian package with the steps of deploy/Dockerfile in a fresh Debian and trains there as an ordinary user.

If a Docker daemon is installed (Debian's docker.io), it builds and runs the image. The steps also run in a chroot, with or without
Docker. The Debian base comes from debootstrap, so no image registry is needed. Skipped without root, debootstrap and a Debian mirror.
"""

import atexit
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import CONFIG, PROGRAM, SOURCE, ProgramTest, losses, wait_for  # noqa: E402
from slurm_cluster import Cluster, obstacle  # noqa: E402

BUILD = pathlib.Path(PROGRAM).parent
OBSTACLE = (
    "creating a chroot requires root" if os.geteuid() != 0
    else "debootstrap is not installed" if shutil.which("debootstrap") is None
    else None)


def steps_of(text):
    """(instruction, arguments) of each line of the Dockerfile, without comments, with continuation lines joined."""
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return [line.split(maxsplit=1) for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@functools.cache
def debian():
    """Folder with a minimal Debian."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-debian-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    run("debootstrap", "--variant=minbase", "bookworm", folder)
    return folder


@unittest.skipIf(OBSTACLE, OBSTACLE)
@unittest.skipIf(shutil.which("dockerd") is None or shutil.which("docker") is None, "Docker is not installed")
class Container(ProgramTest):
    """Builds and runs the image with the test's own daemon, without a bridge and without changing the host's firewall."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.state = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-docker-"))
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", cls.state], check=False)
        cls.addClassCleanup(subprocess.run, ["umount", "--lazy", cls.state / "exec/netns/default"], check=False, capture_output=True)
        socket = f"unix://{cls.state}/socket"
        cls.log = open(cls.state / "log", "wb")
        cls.addClassCleanup(cls.log.close)
        daemon = subprocess.Popen(
            ["dockerd", "--data-root", cls.state / "data", "--exec-root", cls.state / "exec", "--pidfile", cls.state / "pid",
             "--host", socket, "--bridge=none", "--iptables=false", "--ip6tables=false"],
            stdout=cls.log, stderr=cls.log)
        cls.addClassCleanup(daemon.wait)
        cls.addClassCleanup(daemon.terminate)
        cls.env = {**os.environ, "DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0"}
        try:
            wait_for(lambda: daemon.poll() is not None or
                     subprocess.run(["docker", "info"], env=cls.env, capture_output=True).returncode == 0)
            assert daemon.poll() is None, "it ended"
        except AssertionError as error:
            raise unittest.SkipTest(f"dockerd does not start ({error}): {(cls.state / 'log').read_text()[-300:]}")
        with subprocess.Popen(["tar", "-C", debian(), "-c", "."], stdout=subprocess.PIPE) as packed:
            cls.docker("import", "--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "-", "debian:bookworm-slim", stdin=packed.stdout)
        (cls.folder / "dist").mkdir()
        run(sys.executable, SOURCE / "tools/make_deb.py", BUILD, "--output", cls.folder / "dist")
        cls.docker("build", "--network=host", "-f", SOURCE / "deploy/Dockerfile", "-t", "lockstep:1", cls.folder / "dist")

    @classmethod
    def docker(cls, *words, **options):
        return run("docker", *words, env=cls.env, **options)

    def test_it_trains_on_a_read_only_root_without_a_network(self):
        work = self.folder / "work"
        work.mkdir()
        work.chmod(0o777)
        for name in ("corpus", "tokenizer"):
            shutil.copytree(self.folder / name, work / name)
        (work / "model.json").write_text(json.dumps(CONFIG))
        self.folder.chmod(0o755)
        box = ["--read-only", "--tmpfs", "/tmp", "--network=none", "-v", f"{work}:/work"]
        words = [word for word in self.train_arguments("run", steps=100000) if word not in ("--nproc", 1)]
        self.docker("run", "-d", "--name", "it", "--health-interval=1s", "--health-start-period=0s", *box, "lockstep:1",
                    "launch", "--nproc-per-node", "2", *words)

        def told(form):
            return self.docker("inspect", "--format", form, "it").strip()

        wait_for(lambda: told("{{.State.Health.Status}}") == "healthy" or told("{{.State.Running}}") == "false", 120)
        wait_for(lambda: (work / "run" / "metrics.jsonl").exists() or told("{{.State.Running}}") == "false", 120)
        logs = subprocess.run(["docker", "logs", "it"], env=self.env, capture_output=True, text=True)
        self.assertEqual(told("{{.State.Running}} {{.State.Health.Status}}"), "true healthy", logs.stdout + logs.stderr)
        self.docker("stop", "--time", "120", "it")  # SIGTERM to process 1: it saves and logs the checkpoint
        self.assertEqual(told("{{.State.ExitCode}}"), "75")
        self.assertEqual((work / "run").stat().st_uid, 1000)
        last = next((work / "run").glob("checkpoint-*")).name
        # Runs as an arbitrary user id, as on OpenShift.
        text = self.docker("run", "--rm", "--user", "12345:0", *box, "lockstep:1",
                           "generate", "--model", f"run/{last}", "--prompt", "Once", "--max-new-tokens", "4")
        self.assertTrue(text.startswith("Once"), text)


@unittest.skipIf(OBSTACLE, OBSTACLE)
class Image(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-image-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        run(sys.executable, SOURCE / "tools/make_deb.py", BUILD, "--output", cls.folder)
        cls.variables, cls.settings = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, {}
        for word, rest in steps_of((SOURCE / "deploy/Dockerfile").read_text()):
            getattr(cls, f"do_{word.lower()}", lambda rest, word=word: cls.settings.update({word: rest}))(rest)

    @classmethod
    def do_from(cls, image):
        assert image == "debian:bookworm-slim", image
        run("cp", "-a", f"{debian()}/.", cls.root)

    @classmethod
    def do_copy(cls, words):
        pattern, place = words.split()
        for path in cls.folder.glob(pattern):
            shutil.copy(path, cls.root / place.lstrip("/"))

    @classmethod
    def do_run(cls, script):
        cls.inside("sh", "-c", script, user=None)

    @classmethod
    def do_env(cls, words):
        cls.variables.update(word.split("=", 1) for word in shlex.split(words))

    @classmethod
    def inside(cls, *command, user="1000:1000"):
        """Runs a command in the chroot as `user`, with its own /proc and a root folder that belongs to root, as in a container."""
        words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc=" + str(cls.root / "proc"), "chroot",
                 *([f"--userspec={user}"] if user else []), cls.root, *command]
        return run(*words, env=cls.variables)

    def test_it_trains_and_generates_as_an_ordinary_user(self):
        self.assertEqual(self.settings["USER"], "1000:1000")
        work = self.root / self.settings["WORKDIR"].strip("/")
        for name in ("corpus", "tokenizer"):
            shutil.copytree(self.folder / name, work / name)
        (work / "model.json").write_text(json.dumps(CONFIG))
        entry = json.loads(self.settings["ENTRYPOINT"])
        words = [*entry, "launch", "--nproc-per-node", "2", *(
            word for word in self.train_arguments("run", steps=2) if word not in ("--nproc", 1))]
        program = " ".join(map(shlex.quote, map(str, words)))
        health = json.loads(self.settings["HEALTHCHECK"].split("CMD ")[1])[0]
        # The health check runs inside and asks the launcher, which is process 1 of its namespace as in Docker.
        begun = "until tr '\\0' '\\n' </proc/1/cmdline | grep -qx launch; do sleep 0.02; done"
        asking = f"for i in $(seq 200); do {health} 2>/dev/null && touch /tmp/healthy && break; sleep 0.05; done"
        watch = f"({begun}; {asking}) & exec {program}"
        self.inside("bash", "-c", f"cd {self.settings['WORKDIR']}\n{watch}")
        self.assertTrue((self.root / "tmp" / "healthy").exists())
        text = self.inside("bash", "-c", "cd /work && lockstep generate --model run --prompt Once --max-new-tokens 4")
        self.assertTrue(text.startswith("Once"), text)
        self.assertIn("usage", self.inside(*entry, *json.loads(self.settings["CMD"])).lower())

    @unittest.skipIf(obstacle(), obstacle())
    @unittest.skipIf(shutil.which("ch-run") is None, "Charliecloud is not installed (Debian: charliecloud)")
    def test_slurm_runs_it_by_container_sbatch(self):
        """deploy/slurm/container.sbatch on two nodes: each rank in an unprivileged container of the image, its root read-only."""
        (self.folder / "job.yaml").write_text(
            "model: {path: model.json}\ntokenizer: {path: tokenizer}\ndata: {train: corpus/train.txt, cache_dir: cache, sequence_length: 32}\n"
            "training: {use_cpu: true, logging_steps: 1, per_device_train_batch_size: 2, max_steps: 4}\nmonitor: {peak_tflops: 1}\n")
        self.run_ok("train", "-c", "job.yaml", "output_dir=expected", "per_device_train_batch_size=4")
        cluster = Cluster()
        self.addCleanup(cluster.close)
        (self.root / "etc/hosts").touch()  # the mount point of the cluster's /etc/hosts
        container = f"ch-run --bind={self.folder}:/work --bind=/etc/hosts --cd=/work --unset-env=SLURM_CONF {self.root} --"
        number = cluster.run(
            "sbatch", "--parsable", SOURCE / "deploy/slurm/container.sbatch", "job.yaml", "output_dir=contained", cwd=self.folder,
            env={**cluster.environment, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), "USER": "root", "OMP_NUM_THREADS": "1",
                 "CONTAINER": container, "RANKS_PER_NODE": "1"}).strip()

        def log():
            return "".join(path.read_text(errors="replace") for path in self.folder.glob(f"*-{number}.log"))

        job = cluster.wait_for(number, "COMPLETED", "FAILED", "NODE_FAIL", seconds=120)
        self.assertEqual((job["JobState"], job["ExitCode"]), ("COMPLETED", "0:0"), log())
        self.assertIn("task 0 of 2 on node 0 of 2, rendezvous at n1:", log())
        self.assert_close(losses(self.folder / "contained"), losses(self.folder / "expected"), 1e-5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
