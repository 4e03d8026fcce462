"""deploy/slurm on a two-node SLURM cluster on this machine: the files unchanged, with options that users add."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import PROGRAM, SOURCE, ProgramTest, losses, metrics  # noqa: E402
from slurm_cluster import Cluster, obstacle  # noqa: E402

DEPLOY = SOURCE / "deploy" / "slurm"
JOB = """
model: {path: model.json}
tokenizer: {path: tokenizer}
data: {train: corpus/train.txt, cache_dir: cache, sequence_length: 32}
training: {use_cpu: true, logging_steps: 1, save_steps: 1000, learning_rate: 1.0e-3, per_device_train_batch_size: 2, max_steps: 6}
monitor: {peak_tflops: 1}
"""
# Many small steps, so that the run is still training when the signal arrives.
LONG = ("max_steps=100000", "save_steps=100000", "logging_steps=1000")


@unittest.skipIf(obstacle(), obstacle())
class Slurm(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "job.yaml").write_text(JOB)
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.one = cls.expected()

    @classmethod
    def expected(cls):
        cls.run_ok_in(cls.folder, "train", "-c", "job.yaml", "output_dir=expected", "per_device_train_batch_size=4")
        return losses(cls.folder / "expected")

    def submit(self, *words, **variables):
        """Runs sbatch with the program on the PATH; returns the job's number."""
        text = self.cluster.run("sbatch", "--parsable", *words, cwd=self.folder, env=self.environment(**variables))
        return text.strip().split(";")[0]

    def environment(self, **variables):
        return {
            **self.cluster.environment, "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}", "HOME": str(self.folder),
            "OMP_NUM_THREADS": "1", **variables}

    def log(self, number):
        found = list(self.folder.glob(f"*-{number}.log"))
        return found[0].read_text(errors="replace") if found else "no log"

    def assert_ended(self, number, code, state="COMPLETED", seconds=90):
        job = self.cluster.wait_for(number, "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", seconds=seconds)
        self.assertEqual((job["JobState"], job["ExitCode"]), (state, f"{code}:0"), self.log(number))
        return job

    def wait_for_step(self, output, number):
        """Waits until the run has logged a step."""
        self.cluster.wait(lambda: metrics(self.folder / output), lambda: f"no step was logged\n{self.log(number)}", seconds=60)

    def test_one_node(self):
        number = self.submit(DEPLOY / "one_node.sbatch", "job.yaml", "output_dir=one", RANKS_PER_NODE="2")
        self.assert_ended(number, 0)
        self.assert_close(losses(self.folder / "one"), self.one, 1e-5)

    def test_many_nodes_meet_by_slurms_variables(self):
        number = self.submit(DEPLOY / "many_nodes.sbatch", "job.yaml", "output_dir=two", RANKS_PER_NODE="1")
        self.assert_ended(number, 0)
        self.assert_close(losses(self.folder / "two"), self.one, 1e-5)
        self.assertIn("task 0 of 2 on node 0 of 2, rendezvous at n1:", self.log(number))

    def test_what_submit_sends(self):
        told = self.run_ok(
            "submit", "--send", "--on", "slurm", "--nodes", "2", "--ranks-per-node", "1", "--cpus", "1", "--time", "5", "--name", "sent",
            "job.yaml", "output_dir=sent", env=self.environment())
        self.assertRegex(told.out, "Submitted batch job [0-9]+")
        number = told.out.split()[-1]
        self.assert_ended(number, 0)
        self.assert_close(losses(self.folder / "sent"), self.one, 1e-5)

    def test_requeued_by_hand_it_saves_and_goes_on(self):
        number = self.submit(DEPLOY / "many_nodes.sbatch", "job.yaml", "output_dir=by-hand", *LONG, RANKS_PER_NODE="1")
        self.wait_for_step("by-hand", number)
        self.cluster.run("scontrol", "requeue", number)
        self.requeued(number, "by-hand")

    def test_a_launcher_under_srun_wants_no_flag(self):
        """One task per rank: each task of srun becomes a rank."""
        environment = {
            **self.cluster.environment, "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}",
            "LOCKSTEP_RDZV_SECRET": "of the test", "OMP_NUM_THREADS": "1"}
        self.cluster.run("srun", "--nodes=2", "--ntasks-per-node=1", "lockstep", "launch", "train", "-c", "job.yaml",
                         "output_dir=srun", cwd=self.folder, env=environment)
        self.assert_close(losses(self.folder / "srun"), self.one, 1e-5)

    def test_an_array_is_a_run_for_each_line(self):
        (self.folder / "lines.txt").write_text("seed=42 max_steps=2\nseed=43 max_steps=3\n")
        number = self.submit("--array=1-2", DEPLOY / "array.sbatch", "job.yaml", "lines.txt", RANKS_PER_NODE="1")
        for task in (1, 2):
            self.cluster.wait(
                lambda task=task: len(losses(self.folder / "runs" / str(task))) == task + 1,
                f"run {task} of job {number} did not end", seconds=90)

    def test_a_container_is_a_word_before_the_program(self):
        number = self.submit(DEPLOY / "container.sbatch", "job.yaml", "output_dir=contained", RANKS_PER_NODE="1",
                             CONTAINER="env IN_A_CONTAINER=yes")
        self.assert_ended(number, 0)
        self.assert_close(losses(self.folder / "contained"), self.one, 1e-5)

    def test_a_wrong_configuration_is_not_requeued(self):
        number = self.submit(DEPLOY / "one_node.sbatch", "job.yaml", "output_dir=wrong", "max_steps=many", RANKS_PER_NODE="1")
        job = self.assert_ended(number, 2, "FAILED")
        self.assertEqual(job["Restarts"], "0")
        self.assertIn("max_steps", self.log(number))

    def requeued(self, number, output, seconds=60):
        """Waits until the job runs again and has resumed with every step logged once, then cancels it."""
        self.cluster.wait(
            lambda: self.cluster.job(number)["Restarts"] == "1", lambda: f"not requeued\n{self.log(number)}", seconds)
        self.cluster.wait_for(number, "RUNNING", seconds=60)
        self.cluster.wait(lambda: "resuming" in self.log(number), lambda: f"not resumed\n{self.log(number)}", seconds=60)
        steps = [line["step"] for line in metrics(self.folder / output) if "loss" in line]
        self.assertEqual(steps, sorted(set(steps)))
        # A job that its user cancels saves and is not requeued.
        self.cluster.run("scancel", number)
        self.cluster.wait_for(number, "CANCELLED")

    def test_before_the_time_limit_it_saves_and_goes_back_into_the_queue(self):
        # SLURM checks limits every 30 s, so the signal arrives 30 to 60 s after the start.
        number = self.submit("--time=2", "--signal=USR2@60", DEPLOY / "many_nodes.sbatch", "job.yaml", "output_dir=limit", *LONG,
                             RANKS_PER_NODE="1")
        self.wait_for_step("limit", number)
        self.requeued(number, "limit", seconds=120)
        self.assertIn("stopped by a signal after step", self.log(number))

    def test_a_preempted_job_saves_and_goes_back_into_the_queue(self):
        number = self.submit(DEPLOY / "many_nodes.sbatch", "job.yaml", "output_dir=preempted", *LONG, RANKS_PER_NODE="1")
        self.wait_for_step("preempted", number)
        other = self.submit("--partition=high", "--nodes=2", "--exclusive", "--wrap", "sleep 1", "--output=/dev/null")
        self.assert_ended(other, 0)
        self.assertTrue(list((self.folder / "preempted").glob("checkpoint-*")), self.log(number))
        self.requeued(number, "preempted")

    def test_a_lost_node_ends_the_job_and_it_is_requeued(self):
        number = self.submit(DEPLOY / "many_nodes.sbatch", "job.yaml", "output_dir=lost", *LONG[:1], "save_steps=20",
                             "logging_steps=10", RANKS_PER_NODE="1")
        self.cluster.wait(lambda: list((self.folder / "lost").glob("checkpoint-*")), lambda: f"no checkpoint\n{self.log(number)}", seconds=60)
        self.cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        self.cluster.wait(lambda: self.cluster.job(number)["JobState"] in ("PENDING", "COMPLETING", "REQUEUED"),
                          lambda: f"not requeued\n{self.log(number)}", seconds=60)
        self.cluster.run("scontrol", "update", "nodename=n2", "state=resume", check=False)  # the node may have resumed by itself
        self.requeued(number, "lost")


if __name__ == "__main__":
    unittest.main(verbosity=2)
