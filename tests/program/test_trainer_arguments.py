"""Arguments of the Hugging Face Trainer that change the order of the rows, the embeddings or the divisor of the loss."""

import json
import unittest

from harness import CONFIG, ProgramTest, long, losses, metrics


class TrainerArguments(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = (cls.folder / "corpus" / "train.txt").read_text().splitlines()
        texts = [line[:3 + 7 * i % 90] for i, line in enumerate(line for line in lines if len(line) > 20)][:48]
        (cls.folder / "still.json").write_text(json.dumps({**CONFIG, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}))
        (cls.folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def run_rows(self, name, *words, ranks=1, batch=4, steps=6):
        return self.train(name, "data.train=rows.jsonl", "data.packing=none", f"per_device_train_batch_size={batch}", *words,
                          ranks=ranks, steps=steps)

    def files(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def assert_resumes(self, name, *words):
        self.run_rows(name, *words, "save_steps=3", ranks=2)
        self.run_rows(f"{name}-resumed", *words, f"resume_from_checkpoint={self.folder / name / 'checkpoint-3'}", ranks=2)
        self.assertEqual(losses(self.folder / f"{name}-resumed"), losses(self.folder / name)[3:])
        self.assertEqual(self.files(f"{name}-resumed"), self.files(name))

    def tokens(self, name):
        """Tokens of each step, with padding."""
        total = [line["tokens"] for line in metrics(self.folder / name) if "loss" in line]
        return [after - before for before, after in zip([0, *total], total)]

    def test_rows_are_grouped_by_length(self):
        self.run_rows("random", batch=2, steps=20)
        self.run_rows("grouped", "train_sampling_strategy=group_by_length", batch=2, steps=20)
        self.run_rows("old-name", "group_by_length=true", ranks=2, batch=1, steps=20)
        self.assert_close(losses(self.folder / "old-name"), losses(self.folder / "grouped"), 1e-5)
        self.assertLess(sum(self.tokens("grouped")), sum(self.tokens("random")))
        self.assertEqual(max(self.tokens("grouped")), self.tokens("grouped")[0])  # the longest rows are first

    def test_grouping_without_padding_is_warned_of_or_refused(self):
        told = self.train("packed", "group_by_length=true", steps=1).err
        self.assertIn("group_by_length has no effect: packed rows (data.packing=concatenate) have almost no padding", told)
        self.train("plain", steps=1)
        self.assertEqual(losses(self.folder / "packed"), losses(self.folder / "plain"))
        refused = self.run_fails(2, *self.train_arguments(
            "mixed", "group_by_length=true", "~data.train", "data.mixture=[{files: [rows.jsonl]}]"))
        self.assertIn("group_by_length is not supported with data.mixture", refused.err)

    def test_noise_is_the_same_on_all_ranks_and_not_in_evaluations(self):
        noise = ["neftune_noise_alpha=15", "eval_strategy=steps", "eval_steps=1", "learning_rate=0", "data.sequence_length=32"]
        self.train("noisy", *noise, "per_device_train_batch_size=4", steps=3)
        self.train("tensor", *noise, "per_device_train_batch_size=4", "parallel.tensor=2", ranks=2, steps=3)
        self.train("data", *noise, "per_device_train_batch_size=2", ranks=2, steps=3)
        self.train("quiet", *noise, "neftune_noise_alpha=0", "per_device_train_batch_size=4", steps=3)
        for plan in ("tensor", "data"):
            self.assert_close(losses(self.folder / plan), losses(self.folder / "noisy"), 1e-5)
        for noisy, quiet in zip(losses(self.folder / "noisy"), losses(self.folder / "quiet")):
            self.assertGreater(abs(noisy - quiet), 1e-4)
        evaluated = [[line["eval_loss"] for line in metrics(self.folder / run) if "eval_loss" in line] for run in ("noisy", "quiet")]
        self.assertEqual(evaluated[0], evaluated[1])
        refused = self.run_fails(2, *self.train_arguments("negative", "neftune_noise_alpha=-1"))
        self.assertIn("training.neftune_noise_alpha", refused.err)

    @long
    def test_runs_resume_bit_for_bit(self):
        self.assert_resumes("by-length", "group_by_length=true")
        self.assert_resumes("noise", "neftune_noise_alpha=5")
        self.assert_resumes("own-tokens", "average_tokens_across_devices=false")

    @long
    def test_each_rank_averages_its_own_tokens(self):
        words = ["model.path=still.json", "train_sampling_strategy=sequential", "learning_rate=0"]
        self.run_rows("whole", *words, ranks=2)
        self.run_rows("own", *words, "average_tokens_across_devices=false", ranks=2)
        self.run_rows("alone", *words, "average_tokens_across_devices=false", batch=8)
        self.run_rows("single", *words, steps=12)  # the rows of each rank are a step
        whole, own, alone, single = (losses(self.folder / name) for name in ("whole", "own", "alone", "single"))
        self.assert_close(own, [(first + second) / 2 for first, second in zip(single[::2], single[1::2])], 1e-5)
        self.assert_close(alone, whole, 1e-5)
        self.assertGreater(max(abs(a - b) for a, b in zip(own, whole)), 1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
