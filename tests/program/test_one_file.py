"""examples/one_file.cpp, a complete trainer on the library, gives the losses of `lockstep train`."""

import pathlib
import re
import shutil
import subprocess
import unittest

from harness import PROGRAM, SOURCE, ProgramTest, environment, long, losses

TRAINER = pathlib.Path(PROGRAM).parent / "example_one_file"
BATCH, STEPS = 6, 6


class OneFile(ProgramTest):
    def run_trainer(self, output, *options, ranks=1):
        command = [
            TRAINER, "model=model.json", "tokenizer=tokenizer", "data=corpus/train.txt", f"output={output}",
            f"steps={STEPS}", "save_every=3", f"batch={BATCH}", "length=32", "learning_rate=1e-3", "warmup=2", *options]
        if ranks > 1:
            command = [PROGRAM, "launch", "--nproc-per-node", str(ranks), *command]
        return subprocess.run(
            [str(word) for word in command], cwd=self.folder, capture_output=True, text=True, timeout=240,
            env=environment(), check=False)

    def losses_of_trainer(self, output, *options, ranks=1):
        done = self.run_trainer(output, *options, ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seen = losses(self.folder / output)
        self.assertEqual(len(seen), STEPS)
        return seen

    def losses_of_train(self, output, *options, ranks=1, data_ranks=None):
        rows = BATCH // (data_ranks or ranks)
        self.train(output, f"per_device_train_batch_size={rows}", *options, ranks=ranks, steps=STEPS)
        return losses(self.folder / output)

    def test_losses_are_those_of_train_on_one_two_and_three_ranks(self):
        one = self.losses_of_train("train1")
        self.assertLess(one[-1], one[0])
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                seen = self.losses_of_trainer(f"run{ranks}", ranks=ranks)
                self.assert_close(seen, one, 1e-5)
                if ranks > 1:
                    self.assert_close(seen, self.losses_of_train(f"train{ranks}", ranks=ranks), 1e-5)

        # Weights are equal too: `lockstep eval` gives the same loss for the trainer's folder as for its own.
        words = ["eval", "--data", "corpus/validation.txt", "data.sequence_length=32", "data.cache_dir=cache"]
        found = [
            float(re.search(r"loss\s+([\d.]+)", self.run_ok(*words, "--model", folder).out)[1])
            for folder in ("train1", "run3")]
        self.assert_close(found[:1], found[1:], 1e-4)

    @long
    def test_a_lost_step_is_trained_again_under_another_plan(self):
        expected = self.losses_of_trainer("whole", ranks=2)
        shutil.rmtree(self.folder / "whole" / f"checkpoint-{STEPS}")
        again = self.losses_of_trainer("whole", "tensor=2", "rows=2", ranks=2)
        self.assert_close(again, expected, 1e-5)
        shutil.rmtree(self.folder / "whole" / f"checkpoint-{STEPS}")
        again = self.losses_of_trainer("whole", "pipeline=2", "rows=2", ranks=2)
        self.assert_close(again, expected, 1e-5)

    @long
    def test_wrong_options_are_reported(self):
        done = self.run_trainer("wrong", "steps=many")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("steps=many is not a number", done.stderr)
        done = self.run_trainer("wrong", "rows=0")
        self.assertIn("rows=0: at least 1", done.stderr)
        (self.folder / "narrow.json").write_text((self.folder / "model.json").read_text().replace("512", "300"))
        done = self.run_trainer("wrong", "model=narrow.json")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the tokenizer has 512 tokens, but narrow.json has 300", done.stderr)
        done = self.run_trainer("wrong", "length=65")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("65", done.stderr)
        done = self.run_trainer("wrong", "step=1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("unknown option: step=1", done.stderr)

    def test_the_page_explains_all_of_it(self):
        program = (SOURCE / "examples" / "one_file.cpp").read_text()
        self.assertLessEqual(len(program.splitlines()), 400)
        shown = re.findall(r"```cpp\n(.*?)```", (SOURCE / "docs" / "one_file.md").read_text(), re.S)
        self.assertEqual("".join(shown).split(), program.split())


if __name__ == "__main__":
    unittest.main(verbosity=2)
