"""A checkpoint of an earlier version can be resumed.

data/earlier_checkpoint.tar.gz was written by a program in which `checkpoint.in_memory_replicas` was still named `checkpoint.replicas`. It
contains the checkpoint after step 4 of 8 of a GPT-2 of width 8 with dropout, its inputs, and `metrics.jsonl` of the whole run on two ranks.
"""

import pathlib
import shutil
import tarfile
import tempfile
import unittest

from harness import lockstep, metrics

ARCHIVE = pathlib.Path(__file__).resolve().parent / "data" / "earlier_checkpoint.tar.gz"


class EarlierVersion(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(self.folder)

    def test_resumed_run_reaches_the_recorded_losses(self):
        checkpoint = self.folder / "run" / "checkpoint-4"
        recorded = metrics(self.folder / "run")
        result = lockstep(
            "train", "-c", checkpoint / "config.yaml", "--nproc", 2, f"resume_from_checkpoint={checkpoint}", "output_dir=resumed",
            cwd=self.folder)
        self.assertEqual(result.code, 0, result)
        resumed = metrics(self.folder / "resumed")
        for name in ("loss", "eval_loss"):
            expected = [(line["step"], line[name]) for line in recorded if name in line and line["step"] > 4]
            found = [(line["step"], line[name]) for line in resumed if name in line]
            self.assertEqual([step for step, _ in found], [step for step, _ in expected])
            for (step, loss), (_, other) in zip(found, expected):
                self.assertAlmostEqual(loss, other, delta=1e-4, msg=f"{name} of step {step}")  # other processors round differently
        # The key of the earlier version is written under its current name.
        config = (self.folder / "resumed" / "config.yaml").read_text()
        self.assertIn("in_memory_replicas: 0", config)
        self.assertNotIn("\n  replicas:", config)

    def test_a_change_of_the_training_data_is_found(self):
        checkpoint = self.folder / "run" / "checkpoint-4"
        with (self.folder / "corpus" / "train.txt").open("a") as file:
            file.write("one more line\n")
        result = lockstep(
            "train", "-c", checkpoint / "config.yaml", "--nproc", 2, f"resume_from_checkpoint={checkpoint}", "output_dir=resumed",
            cwd=self.folder)
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("allow_other_data", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
