"""Several sources by weights: the same samples on any number of ranks, and after a resume."""

import json
import unittest

from harness import ProgramTest, losses, metrics


class Mixture(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (cls.folder / "corpus" / "train.txt").read_text()
        (cls.folder / "a.txt").write_text(text[:20000])
        (cls.folder / "b.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in text[20000:23000].splitlines() if line))
        rows = [{"instruction": f"Add {i}", "input": "1", "output": str(i + 1)} for i in range(12)]
        (cls.folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def words(self, output, mixture, *more):
        return ["train", "model.path=model.json", "tokenizer.path=tokenizer", f"output_dir={output}", "use_cpu=true", "logging_steps=1",
                "data.sequence_length=16", "seed=5", f"data.mixture={mixture}", *more]

    def test_one_rank_three_ranks_and_a_resume(self):
        mixture = "[{name: books, files: [a.txt], weight: 3}, {name: lines, files: b.jsonl, weight: 1, max_epochs: 2}, {files: sums.jsonl, weight: 0}]"
        held = "data.validation_fraction=0.1"
        told = self.run_ok(*self.words("one", mixture, held, "max_steps=7", "per_device_train_batch_size=6", "save_steps=3", "eval_strategy=steps",
                                       "eval_steps=7")).err
        self.assertRegex(told, r"books: 75% of the samples, \d+ sequences, read [\d.]+ times an epoch")
        self.assertIn("and 2 in all at most", told)
        self.assertIn("those of weight 0 are left out", told)
        self.run_ok(*self.words("three", mixture, held, "max_steps=7", "per_device_train_batch_size=2"), "--nproc", "3")
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "three"), 1e-5)
        self.run_ok(*self.words("resumed", mixture, held, "max_steps=7", "per_device_train_batch_size=3", "resume_from_checkpoint=one/checkpoint-3"),
                    "--nproc", "2")
        self.assert_close(losses(self.folder / "one")[3:], losses(self.folder / "resumed"), 1e-5)
        steps = [line for line in metrics(self.folder / "one") if "loss" in line]
        self.assertAlmostEqual(steps[1]["mixture/books"], 0.75)  # 9 of 12
        # Its own configuration starts it again.
        self.run_ok("train", "-c", "one/config.yaml", "output_dir=again")
        self.assertEqual(losses(self.folder / "again"), losses(self.folder / "one"))
        # Other weights are other data.
        told = self.run_fails(2, *self.words("other", mixture.replace("3}", "2}"), held, "max_steps=7", "per_device_train_batch_size=6",
                                             "resume_from_checkpoint=one/checkpoint-3")).err
        self.assertIn("data.mixture", told)

    def test_instructions_are_mixed_too(self):
        (self.folder / "other.jsonl").write_text(json.dumps({"instruction": "Say it.", "output": "it"}) + "\n")
        mixture = "[{name: sums, files: [sums.jsonl], weight: 0.5}, {name: other, files: [other.jsonl], weight: 0.5}]"
        words = ["data.prompt=alpaca", "data.sequence_length=64", "max_steps=3"]
        self.run_ok(*self.words("rows-one", mixture, *words, "per_device_train_batch_size=4"))
        self.run_ok(*self.words("rows-two", mixture, *words, "per_device_train_batch_size=2"), "--nproc", "2")
        self.assert_close(losses(self.folder / "rows-one"), losses(self.folder / "rows-two"), 1e-5)
        shown = self.run_ok("data", "show", f"data.mixture={mixture}", "data.prompt=alpaca", "tokenizer.path=tokenizer", "--rows", "1").out
        self.assertIn("Say it.", shown)

    def test_what_is_wrong_is_told_before_training(self):
        def told(mixture, *more, code=2):
            error = self.run_fails(code, *self.words("none", mixture, "max_steps=2", *more)).err
            self.assertLess(error.count("\n"), 25)
            return error

        self.assertIn("the weights sum to nothing", told("[{name: a, files: [a.txt], weight: 0}]"))
        self.assertIn("weight -1 is not at least 0", told("[{name: a, files: [a.txt], weight: -1}, {files: [b.jsonl]}]"))
        self.assertIn("source 'a' stands there twice", told("[{name: a, files: [a.txt]}, {name: a, files: [b.jsonl]}]"))
        self.assertIn("did you mean 'weight'?", told("[{name: a, files: [a.txt], wieght: 1}]").lower())
        self.assertIn("names no files", told("[{name: a, weight: 1}]"))
        self.assertIn("weight: heavy is not a number", told("[{name: a, files: [a.txt], weight: heavy}]"))
        self.assertIn("max_epochs 0 is not at least 1", told("[{name: a, files: [a.txt], max_epochs: 0}]"))
        self.assertIn("is not a list of maps", told("a.txt"))
        self.assertIn("data.train names files too", told("[{files: [a.txt]}]", "data.train=a.txt"))
        self.assertIn("not supported with task.type=sequence_classification", told("[{files: [a.txt]}]", "task.type=sequence_classification"))
        missing = told("[{name: lost, files: [nowhere.txt]}]", code=4)
        self.assertIn("data.mixture, source 'lost'", missing)
        self.assertIn("nowhere.txt", missing)
        few = told("[{name: a, files: [b.jsonl], max_epochs: 1}]", "max_steps=500", "per_device_train_batch_size=4")
        self.assertIn("the run draws", few)
        self.assertIn("max_epochs", few)


if __name__ == "__main__":
    unittest.main()
