"""Checkpoints that are damaged or truncated, and a full disk."""

import pathlib
import shutil
import subprocess
import unittest

from harness import ProgramTest, lockstep, losses


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.unlink()  # the file may be mapped or hard-linked elsewhere
    path.write_bytes(data)


class Damage(ProgramTest):
    def setUp(self):
        self.run_folder = self.folder / self.id().rpartition(".")[2]
        self.name = self.run_folder.name
        self.arguments = self.train_arguments(self.name, "save_steps=2", "resume_from_checkpoint=true")
        self.run_ok(*self.arguments)
        self.expected = losses(self.run_folder)

    def test_corrupt_checkpoint_falls_back_to_the_previous(self):
        flip(self.run_folder / "checkpoint-6" / "model.safetensors", 5000)
        result = self.run_ok(*self.arguments)
        self.assertIn("model.safetensors", result.err)
        self.assertIn("checkpoint-4", result.err)
        self.assertEqual(losses(self.run_folder), self.expected)

    def test_truncated_checkpoint_given_by_path_is_an_error(self):
        path = next((self.run_folder / "checkpoint-6").glob("optimizer-*.safetensors"))
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-7])
        result = self.run_fails(
            4, *self.train_arguments("other", f"resume_from_checkpoint={self.run_folder}/checkpoint-6"))
        self.assertIn(path.name, result.err)

    def test_run_folder_instead_of_checkpoint_suggests_the_newest(self):
        told = self.run_fails(4, *self.train_arguments("other", f"resume_from_checkpoint={self.name}")).err
        self.assertIn(f"give one of its checkpoints: {self.name}/checkpoint-6", told)

    def test_folder_without_manifest_is_not_a_checkpoint(self):
        (self.run_folder / "checkpoint-6" / "manifest.json").unlink()
        arguments = self.train_arguments("other", f"resume_from_checkpoint={self.run_folder}/checkpoint-6")
        self.assertIn("manifest.json", self.run_fails(4, *arguments).err)
        # The previous checkpoint is the latest valid one. A folder that is not a Lockstep checkpoint is not overwritten.
        result = self.run_fails(4, *self.arguments)
        self.assertIn("checkpoint-4 after step 4", result.err)
        self.assertIn("move it away", result.err)

    def test_other_model_is_reported_by_tensor(self):
        config = self.folder / "wider.json"
        config.write_text((self.folder / "model.json").read_text().replace('"n_embd": 32', '"n_embd": 48'))
        result = self.run_fails(
            4, *self.train_arguments(
                "other", "model.path=wider.json",
                f"resume_from_checkpoint={self.run_folder}/checkpoint-6"))
        self.assertIn("transformer.", result.err)
        self.assertIn("48", result.err)

    def test_only_damaged_checkpoints_are_an_error(self):
        for folder in self.run_folder.glob("checkpoint-*"):
            flip(folder / "model.safetensors", 3000)
        result = self.run_fails(4, *self.arguments)
        self.assertIn("checkpoint-6", result.err)


class NotFinite(ProgramTest):
    """An update that makes the weights infinite shows only in the next step's loss. A checkpoint saved in between is unusable."""

    DIVERGES = ("learning_rate=1e37", "weight_decay=1000", "lr_scheduler_type=constant", "warmup_steps=0")

    def left(self, name):
        """Names of committed checkpoints. A save that the end of the run interrupts leaves an uncommitted folder, which the next run removes."""
        return sorted(path.name for path in (self.folder / name).iterdir()
                      if ("checkpoint" in path.name or "model" in path.name) and not path.name.endswith(".saving"))

    def test_infinite_weights_are_not_saved(self):
        for steps, words in ((3, ["save_steps=1"]), (3, ["save_steps=1", "checkpoint.async=false"]), (1, ["save_strategy=no"])):
            result = self.run_fails(6, *self.train_arguments("inf", *self.DIVERGES, *words, ranks=2, steps=steps))
            if words != ["save_steps=1"]:  # the background saver reports it unless the next step fails first
                self.assertIn(' is inf', result.err)
                self.assertIn("saving", result.err)
            self.assertEqual(self.left("inf"), [])

    def test_resume_from_the_checkpoint_before(self):
        arguments = self.train_arguments("run", "save_steps=2", ranks=2)
        self.run_ok(*arguments)
        calm = losses(self.folder / "run")
        shutil.rmtree(self.folder / "run" / "checkpoint-6")
        diverging = self.train_arguments("run", *self.DIVERGES, "resume_from_checkpoint=true", "save_steps=5", ranks=2)
        self.assertIn("checkpoint-5", self.run_fails(6, *diverging).err)
        self.assertEqual(self.left("run")[:2], ["checkpoint-2", "checkpoint-4"])
        result = self.run_ok(*arguments, "resume_from_checkpoint=true")
        self.assertIn("checkpoint-4 after step 4", result.err)
        self.assertEqual(losses(self.folder / "run"), calm)

    def test_in_memory_checkpoint_is_not_used(self):
        train = self.train_arguments("kept", *self.DIVERGES, "save_strategy=no", "checkpoint.in_memory_replicas=1")
        at = train.index("--nproc")
        result = lockstep("launch", "--nproc-per-node=2", "--max-restarts=3", "train", *train[1:at], *train[at + 2:], cwd=self.folder)
        self.assertEqual(result.code, 6, result)
        self.assertIn("the in-memory checkpoint cannot be used, resuming from disk", result.err)
        self.assertEqual(self.left("kept"), [])


class FullDisk(ProgramTest):
    def test_the_error_names_the_file_and_the_older_checkpoint_still_loads(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
        try:
            arguments = self.train_arguments("disk/run", "save_steps=2", ranks=2, steps=8)
            result = self.run_fails(4, *arguments)
            self.assertIn("No space left on device", result.err)
            self.assertIn("disk/run", result.err)
            left = sorted(p.name for p in (disk / "run").glob("checkpoint-*"))
            self.assertTrue(left)
            self.assertFalse([name for name in left if "." in name])
            # The older checkpoint loads if the new run writes to another disk.
            self.run_ok(*self.train_arguments(
                "roomy", f"resume_from_checkpoint={disk}/run/{left[-1]}", ranks=2, steps=8))
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
