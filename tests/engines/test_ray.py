"""deploy/ray/driver.py on a two-node Ray cluster on this machine (ray.cluster_utils); skipped unless Ray is installed: `pip install ray`."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import PROGRAM, SOURCE, ProgramTest, losses  # noqa: E402

SCRIPT = """
import os, pathlib, signal, subprocess, sys, threading, time
from ray.cluster_utils import Cluster
cluster = Cluster()
for _ in range(2):
    cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
import ray
ray.init(address=cluster.address, log_to_driver=True)
sys.path.insert(0, sys.argv[1])
import driver
def lose_a_node():  # with all that runs on it; then another comes
    node = next(iter(cluster.worker_nodes))
    processes = subprocess.check_output(["ps", "-eo", "pid=,ppid="], text=True).splitlines()
    parents = [tuple(map(int, line.split())) for line in processes]
    lost = {node.all_processes["raylet"][0].process.pid}
    while more := {pid for pid, parent in parents if parent in lost} - lost:
        lost |= more
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    print("lost", len(lost), flush=True)
    cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
def drive():
    if sys.argv[3].endswith(".py"):  # as `ray job submit` runs it
        print("code", subprocess.run([sys.executable, sys.argv[3]], env={**os.environ, "RAY_ADDRESS": cluster.address}).returncode)
    else:
        print("code", driver.train(2, 1, {"CPU": 1}, sys.argv[3:], tries=3))
run = threading.Thread(target=drive)
run.start()
if sys.argv[2]:
    while not pathlib.Path(sys.argv[2]).exists() and run.is_alive():
        time.sleep(0.02)
    lose_a_node()  # Ray wants the main thread for it
run.join()
ray.shutdown()
cluster.shutdown()
"""


@unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed (pip install ray)")
class Ray(ProgramTest):
    def drive(self, *words, lose_at=""):
        """Trains with the driver. The script removes a node once the file `lose_at` exists."""
        environment = {**os.environ, "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                       "RAY_ENABLE_MULTI_TENANCY": "0", "PYTHONPATH": str(SOURCE / "deploy/ray")}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, SOURCE / "deploy/ray", lose_at, *words], cwd=self.folder, env=environment, timeout=300,
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout + done.stderr

    def words(self, output, *more, rows=4):
        folder = self.folder
        return ["train", f"model.path={folder}/model.json", f"tokenizer.path={folder}/tokenizer",
                f"data.train={folder}/corpus/train.txt", f"data.cache_dir={folder}/cache", "data.sequence_length=32",
                f"output_dir={folder}/{output}", "max_steps=4", "logging_steps=1", "save_steps=1000", "learning_rate=1e-3",
                "monitor.peak_tflops=1", "use_cpu=true", f"per_device_train_batch_size={rows}", *more]

    def test_two_nodes_train_as_one_rank(self):
        self.run_ok(*self.words("one"))
        text = self.drive(*self.words("two", rows=2))
        self.assertIn("code 0", text)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "two"), 1e-5)

    def test_what_submit_prints(self):
        words = self.words("printed", rows=2)[1:]
        printed = self.run_ok("submit", "--on", "ray", "--nodes", "2", "--ranks-per-node", "1", "--cpus", "1", *words).out
        (self.folder / "printed.py").write_text(printed)
        self.run_ok(*self.words("alone"))
        self.assertIn("code 0", self.drive(self.folder / "printed.py"))
        self.assert_close(losses(self.folder / "alone"), losses(self.folder / "printed"), 1e-5)

    def test_a_node_is_lost_and_the_run_goes_on_with_another(self):
        long = ("max_steps=300", "save_steps=20", "save_total_limit=2")
        self.run_ok(*self.words("whole", *long))
        text = self.drive(*self.words("lost", *long, "resume_from_checkpoint=true", rows=2),
                          lose_at=self.folder / "lost" / "checkpoint-20" / "manifest.json")
        self.assertRegex(text, r"lost [3-9]")  # at least the node, the launcher and a rank
        self.assertRegex(text, r"after step [1-9]\d*0")
        self.assertIn("code 0", text)
        self.assert_close(losses(self.folder / "whole"), losses(self.folder / "lost"), 1e-5)

    def test_an_error_that_comes_again_is_not_tried_again(self):
        text = self.drive(*self.words("wrong", "max_steps=many"))
        self.assertIn("code 2", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
