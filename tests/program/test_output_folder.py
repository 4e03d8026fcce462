"""An output folder that holds a run, a model or a source of the run is not replaced by accident."""

import hashlib
import json
import os
import shutil
import unittest

from harness import ProgramTest, environment, lockstep, losses, metrics, start, wait_for

LORA = ["lora.r=4", "lora.target_modules=all-linear"]


class OutputFolder(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_ok_in(cls.folder, *cls.train_arguments(cls, "base", "save_strategy=no", steps=2))

    def contents(self, name):
        return {str(path.relative_to(self.folder / name)): hashlib.md5(path.read_bytes()).hexdigest()
                for path in (self.folder / name).rglob("*") if path.is_file() and path.name != ".lockstep-lock"}

    def copy_of_base(self, name):
        shutil.copytree(self.folder / "base", self.folder / name)
        return name

    def refuses(self, *arguments, because, **options):
        result = self.run_fails(2, *arguments, **options)
        self.assertIn(because, result.err)
        return result

    def test_a_folder_with_a_model_is_refused_and_left_as_it_is(self):
        self.copy_of_base("model")
        before = self.contents("model")
        for ranks in (1, 2):
            result = self.refuses(
                *self.train_arguments("model", ranks=ranks), because="the output folder model already holds a model")
            self.assertIn("overwrite_output_dir=true", result.err)
            self.assertNotIn("resume_from_checkpoint", result.err)
        self.refuses(*self.train_arguments("model"), "--dry-run", because="already holds a model")
        self.assertEqual(self.contents("model"), before)

    def test_a_run_is_refused_unless_it_is_resumed(self):
        self.train("run", "save_steps=2", steps=4)
        before = self.contents("run")
        result = self.refuses(*self.train_arguments("run"), because="already holds a run: checkpoint-2, checkpoint-4")
        self.assertIn("resume_from_checkpoint=true", result.err)
        self.refuses(*self.train_arguments("run"), "--dry-run", because="already holds a run")
        self.assertEqual(self.contents("run"), before)
        self.run_ok(*self.train_arguments("run", "resume_from_checkpoint=true", steps=6), "--dry-run")
        self.train("run", "resume_from_checkpoint=true", steps=6)
        self.assertEqual(len(losses(self.folder / "run")), 6)
        # A checkpoint of another folder starts no mixture of two runs.
        self.train("other", "save_steps=2", steps=2)
        self.refuses(*self.train_arguments("run", "resume_from_checkpoint=other/checkpoint-2"), because="already holds")
        self.train("run", "resume_from_checkpoint=run/checkpoint-6", steps=7)

    def test_overwriting_leaves_nothing_of_the_old_run(self):
        self.train("replaced", "save_steps=2", "resume_from_checkpoint=true", steps=4)  # there is nothing to resume
        (self.folder / "replaced" / "notes.txt").write_text("mine")
        for name in ("classification.json", "base.json", "chat_template.jinja", "eval_results.json"):
            (self.folder / "replaced" / name).write_text("{}")
        result = self.train(
            "replaced", *LORA, "model.path=base", "tokenizer.path=", "learning_rate=5e-2", "save_steps=3",
            "overwrite_output_dir=true", steps=3)
        self.assertIn("replaced: replaced checkpoint-2, checkpoint-4", result.err)
        left = {path.name for path in (self.folder / "replaced").iterdir()}
        self.assertIn("notes.txt", left)
        self.assertIn("adapter_model.safetensors", left)
        for name in ("model.safetensors", "config.json", "classification.json",
                     "chat_template.jinja", "eval_results.json", "checkpoint-2", "checkpoint-4"):
            self.assertNotIn(name, left)
        self.assertEqual(len(losses(self.folder / "replaced")), 3)
        # Evaluation of the folder uses the adapter.
        results = [json.loads(self.run_ok("eval", *words, "--data", "corpus/validation.txt", "data.sequence_length=32", "--json", "use_cpu=true").out)
                   for words in (["--model", "replaced"], ["--model", "base", "--adapter", "replaced"], ["--model", "base"])]
        self.assertEqual(results[0]["eval_loss"], results[1]["eval_loss"])
        self.assertNotEqual(results[0]["eval_loss"], results[2]["eval_loss"])

    def test_the_model_that_a_run_starts_from_is_never_replaced(self):
        self.copy_of_base("source")
        os.symlink("source", self.folder / "link")
        before = self.contents("source")
        for model, output in (("source", "source"), ("source", "link"), ("link", "source"), ("source", "source/")):
            for more in ([], ["overwrite_output_dir=true"], ["resume_from_checkpoint=true"], ["--dry-run"]):
                self.refuses(
                    *self.train_arguments(output, f"model.path={model}", *more), because="would replace its own source")
        self.assertEqual(self.contents("source"), before)

    def test_neither_are_its_adapter_and_a_checkpoint_that_it_starts_from(self):
        self.train("lora", *LORA, "model.path=base", "save_steps=2", steps=2)
        before = self.contents("lora")
        self.refuses(
            *self.train_arguments("lora", "model.path=base", "lora.adapter=lora", "overwrite_output_dir=true"),
            because="lora.adapter=lora is in the output folder lora")
        self.refuses(
            *self.train_arguments("lora", "model.path=base", "lora.adapter=lora/checkpoint-2", "overwrite_output_dir=true"),
            because="would replace its own source")
        self.assertEqual(self.contents("lora"), before)

    def test_a_folder_without_run_and_model_is_taken(self):
        folder = self.folder / "free"
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        result = self.train("free", "save_strategy=no", steps=2)
        self.assertNotIn("replaced", result.err)
        self.assertEqual((folder / "notes.txt").read_text(), "mine")

    def test_a_run_that_left_only_records_is_replaced_with_a_notice(self):
        folder = self.folder / "failed"
        process = start(*self.train_arguments("failed", steps=100000), cwd=self.folder)
        wait_for(lambda: len(losses(folder)) >= 4)
        process.kill()
        process.communicate(timeout=30)
        result = self.train("failed", "save_strategy=no", steps=2)
        self.assertIn("failed: replaced the records of a run that left no model and no checkpoint", result.err)
        self.assertEqual([line["step"] for line in metrics(folder) if "loss" in line], [1, 2])

    def test_a_restart_is_refused_like_the_first_start(self):
        self.copy_of_base("restarted")
        train = self.train_arguments("restarted")
        result = lockstep("launch", "--nproc-per-node=2", "--max-restarts=2", "train", *train[3:], cwd=self.folder)
        self.assertEqual(result.code, 2, result)
        self.assertIn("already holds a model", result.err)

    def test_a_later_round_continues_its_own_job_only(self):
        def round_of(job, number):
            return environment(RANK="0", WORLD_SIZE="1", TORCHELASTIC_RUN_ID=job, TORCHELASTIC_RESTART_COUNT=str(number))

        train = self.train_arguments("rounds", "save_steps=2", steps=4)
        arguments = ["train", *train[3:]]
        self.run_ok(*arguments, env=round_of("first", 0))
        before = self.contents("rounds")
        self.refuses(*arguments, env=round_of("second", 0), because="already holds a run")
        self.refuses(*arguments, env=round_of("second", 1), because="already holds a run")
        self.assertEqual(self.contents("rounds"), before)
        result = self.run_ok(*arguments, "max_steps=6", env=round_of("first", 1))
        self.assertIn("resuming from rounds/checkpoint-4", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
