"""Runs in a Kubernetes pod: any user id, a read-only root, 64 MiB of /dev/shm, no io_uring, a CFS quota, the environment variables of the
Kubeflow operator and of an Indexed Job, and the launcher as process 1 that receives SIGTERM. Linux namespaces replace the pods; creating them
requires root."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest
import urllib.request

from harness import PROGRAM, ProgramTest, free_port, losses, metrics, wait_for

OBSTACLE = (
    "creating namespaces requires root" if os.geteuid() != 0
    else "unshare or setpriv is not installed" if not (shutil.which("unshare") and shutil.which("setpriv"))
    else "mounting is not permitted" if subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode
    else None)
USER = "123456"  # a user without a name
POD = """
set -e
mount --make-rprivate /
mount --bind {hosts} /etc/hosts
mount --bind {work} /mnt
mount -t tmpfs -o mode=1777,size=64m none /dev/shm
exec 9< {checkout}
mount -t tmpfs -o mode=1777 none /tmp
if [ ! -e {checkout} ]; then mkdir -p {checkout}; mount --no-canonicalize --bind /proc/self/fd/9 {checkout}; fi
exec 9<&-
mount -o remount,bind,ro /
if touch /writable 2>/dev/null; then echo "the root can be written"; exit 99; fi
cd /mnt
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs {python} -c "$1" {program} "${{@:2}}"
"""
# A seccomp filter refuses io_uring_setup, _enter and _register, as RuntimeDefault does; then this process executes the program.
WITHOUT_IO_URING = """
import ctypes, errno, os, struct, sys
def op(code, true, false, value): return struct.pack("HBBI", code, true, false, value)
program = op(0x20, 0, 0, 0) + op(0x35, 0, 2, 425) + op(0x35, 1, 0, 428) + op(0x06, 0, 0, 0x50000 | errno.EPERM) + op(0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
assert ctypes.CDLL(None, use_errno=True).prctl(22, 2, filter, 0, 0) == 0, os.strerror(ctypes.get_errno())
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(425, 1, None) == -1 and ctypes.get_errno() == errno.EPERM
os.execv(sys.argv[1], sys.argv[1:])
"""


@unittest.skipIf(OBSTACLE, OBSTACLE)
class Pod(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "hosts").write_text("127.0.0.1 localhost mine-node-0-0.mine\n")
        for path in [cls.folder, *cls.folder.rglob("*")]:
            os.chown(path, int(USER), int(USER))
        cls.run_ok_in(cls.folder, *cls.words("one", 4))

    @staticmethod
    def words(output, rows, *more):
        return ["train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt", "data.cache_dir=cache",
                "data.sequence_length=32", f"output_dir={output}", "max_steps=4", "logging_steps=1", "save_steps=1000",
                "learning_rate=1e-3", "monitor.peak_tflops=1", "use_cpu=true", f"per_device_train_batch_size={rows}", *more]

    def start_pod(self, *words, **variables):
        script = POD.format(
            hosts=self.folder / "hosts", work=self.folder, user=USER, python=os.path.realpath(sys.executable), program=PROGRAM,
            checkout=pathlib.Path(__file__).resolve().parents[2])
        environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "KUBERNETES_SERVICE_HOST": "10.0.0.1",
                       "LOCKSTEP_RDZV_SECRET": "0123456789abcdef", "PYTHONDONTWRITEBYTECODE": "1", **variables}
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", script, "pod", WITHOUT_IO_URING, *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def ask(port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:  # raises unless the status is 200
            return answer.read().decode()

    def end(self, pod, code=0):
        out, err = pod.communicate(timeout=120)
        self.assertEqual(pod.returncode, code, out + err)
        return out + err

    def test_two_pods_of_kubeflow_train_as_one_rank(self):
        port = free_port()
        pods = [self.start_pod(
            "launch", *self.words("kubeflow", 2, "parallel.zero_stage=1", "parallel.offload_optimizer.device=nvme",
                                  "parallel.offload_optimizer.path=state"),
            PET_NNODES="2", PET_NPROC_PER_NODE="1", PET_NODE_RANK=str(rank), PET_MASTER_ADDR="mine-node-0-0.mine",
            PET_MASTER_PORT=str(port)) for rank in (1, 0)]
        for pod in pods:
            self.end(pod)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "kubeflow"), 1e-5)
        self.assertEqual((self.folder / "kubeflow" / "model.safetensors").stat().st_uid, int(USER))

    def test_two_pods_of_an_indexed_job(self):
        port = free_port()
        pods = [self.start_pod(
            "launch", "--nnodes=2", "--nproc-per-node=1", "--master-addr=mine-node-0-0.mine", f"--master-port={port}",
            *self.words("indexed", 2), JOB_COMPLETION_INDEX=str(index)) for index in (0, 1)]
        for pod in pods:
            self.end(pod)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "indexed"), 1e-5)

    def test_two_pods_of_a_pytorchjob(self):
        """A PyTorchJob sets the environment variables of a rank, but they describe the pod."""
        port = free_port()
        pods = [self.start_pod(
            "launch", "--nnodes=2", "--nproc-per-node=1", f"--node-rank={rank}", "--master-addr=mine-node-0-0.mine",
            f"--master-port={port}", *self.words("pytorchjob", 2), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost",
            MASTER_PORT=str(port), PYTHONUNBUFFERED="0") for rank in (1, 0)]
        for pod in pods:
            self.end(pod)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "pytorchjob"), 1e-5)

    def test_process_1_saves_on_sigterm(self):
        port = free_port()
        pod = self.start_pod("launch", "--nproc-per-node=2", *self.words("ended", 2, "max_steps=100000", "logging_steps=10"),
                             PET_LOCAL_ADDR="127.0.0.1", TORCHELASTIC_HEALTH_CHECK_PORT=str(port))
        wait_for(lambda: metrics(self.folder / "ended"))
        self.assertEqual(self.ask(port, "/readyz"), "workers run\n")
        told = json.loads(self.ask(port, "/healthz?steps=10000"))
        self.assertEqual(told["workers"], 2)
        self.assertGreaterEqual(told["step"], 10)
        self.assertGreater(told["median_s"], 0)
        first, = pathlib.Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        self.end(pod, 75)
        self.assertTrue(list((self.folder / "ended").glob("checkpoint-*/manifest.json")))

    def test_cpu_quota_limits_the_threads(self):
        group, files = self.make_group()
        if group is None:
            self.skipTest("no CPU cgroup can be created")
        self.addCleanup(group.rmdir)
        for name, text in files.items():
            (group / name).write_text(text)
        script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", PROGRAM, "launch", "--nproc-per-node", "cpu", "--no-python", "sh", "-c", "echo of $WORLD_SIZE"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout, "of 1\n", done.stderr)
        done = subprocess.run(
            ["sh", "-c", script, "sh", PROGRAM, "launch", "--no-python", "sh", "-c", "echo $OMP_NUM_THREADS"],
            capture_output=True, text=True, timeout=60, check=False,
            env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"})
        if len(os.sched_getaffinity(0)) > 1:  # with a single CPU the quota limits nothing
            self.assertEqual(done.stdout, "1\n", done.stderr)

    @staticmethod
    def make_group():
        """Creates a cgroup (version 2 or 1) and returns it with the files that limit it to one CPU; None if that is not possible."""
        for root, files in ((pathlib.Path("/sys/fs/cgroup"), {"cpu.max": "100000 100000"}),
                            (pathlib.Path("/sys/fs/cgroup/cpu"), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"})):
            group = root / f"lockstep-test-{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                continue
            if all((group / name).exists() for name in files):
                return group, files
            group.rmdir()
        return None, None


if __name__ == "__main__":
    unittest.main(verbosity=2)
