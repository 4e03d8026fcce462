"""Two runs in one folder: the second is refused, and the first is undisturbed."""

import json
import os
import signal
import unittest

from harness import ProgramTest, environment, losses, metrics, processes_of, start, wait_for


class TwoRuns(ProgramTest):
    def test_second_run_is_refused(self):
        common = ["save_steps=1", "save_total_limit=1"]
        self.train("alone", *common, steps=60)
        arguments = self.train_arguments("both", *common, steps=60)
        first = start(*arguments, cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "both")) >= 2)
        holder = json.loads((self.folder / "both" / ".lockstep-lock").read_text())
        os.kill(holder["pid"], signal.SIGSTOP)  # a stopped run still holds the folder, so the test does not depend on speed
        try:
            result = self.run_fails(3, *self.train_arguments("both", *common, ranks=2, steps=60))
        finally:
            os.kill(holder["pid"], signal.SIGCONT)
        self.assertIn(f"process {holder['pid']} on {holder['host']}", result.err)
        self.assertIn("output_dir", result.err)
        out, err = first.communicate(timeout=120)
        self.assertEqual(first.returncode, 0, err)
        self.assertEqual(losses(self.folder / "both"), losses(self.folder / "alone"))
        self.assertTrue(json.loads((self.folder / "both" / ".lockstep-lock").read_text())["released"])
        self.assertEqual([p.name for p in (self.folder / "both").glob("checkpoint-*")], ["checkpoint-60"])

    def test_a_second_job_with_the_same_torchrun_id_is_refused_when_it_is_restarted(self):
        def variables(restart):
            return environment(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", TORCHELASTIC_RUN_ID="100", TORCHELASTIC_RESTART_COUNT=str(restart))

        words = [word for word in self.train_arguments("same-id", "save_steps=20", steps=100000) if word not in ("--nproc", 1)]
        first = start(*words, cwd=self.folder, env=variables(0))
        wait_for(lambda: (self.folder / "same-id" / "checkpoint-20").exists())
        for restart in (0, 1):
            result = self.run_fails(3, *words, "seed=9", env=variables(restart))
            self.assertIn(f"in use by another run: process {first.pid} on", result.err)
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 75, err)
        steps = [line["step"] for line in metrics(self.folder / "same-id") if "loss" in line]
        self.assertEqual(steps, list(range(1, steps[-1] + 1)))
        self.assertTrue((self.folder / "same-id" / f"checkpoint-{steps[-1]}").is_dir())

    def test_a_killed_run_leaves_the_folder_free(self):
        arguments = self.train_arguments("killed", "save_steps=1", "resume_from_checkpoint=true", ranks=2, steps=2000)
        process = start(*arguments, cwd=self.folder)
        wait_for(lambda: (self.folder / "killed" / "checkpoint-2").exists())
        for pid in processes_of("output_dir=killed"):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=30)
        done = len(losses(self.folder / "killed"))
        self.train("killed", "save_steps=1000", "resume_from_checkpoint=true", steps=done + 2)
        left = [p.name for p in (self.folder / "killed").iterdir()]
        self.assertFalse([name for name in left if name.endswith(".saving")], left)


if __name__ == "__main__":
    unittest.main(verbosity=2)
