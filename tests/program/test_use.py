"""Evaluation and generation with the model of a run."""

import json
import re
import unittest

from harness import ProgramTest, lockstep, long


class Use(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_ok_in(cls.folder, *cls.train_arguments(cls, "run", "learning_rate=3e-3", steps=30))

    def test_evaluation_is_the_same_on_any_number_of_ranks_and_batches(self):
        reports = []
        for words in (["--nproc", 1], ["--nproc", 2], ["--nproc", 3, "per_device_eval_batch_size=5"]):
            result = self.run_ok(
                "eval", "--model", "run", "--data", "corpus/validation.txt", "--json", "use_cpu=true",
                "data.sequence_length=48", *words)
            self.assertEqual(len(result.out.splitlines()), 1)
            reports.append(json.loads(result.out))
        for report in reports:
            self.assertAlmostEqual(report["eval_loss"], reports[0]["eval_loss"], delta=1e-6)
            self.assertEqual(report["eval_tokens"], reports[0]["eval_tokens"])
            self.assertEqual(report["eval_token_accuracy"], reports[0]["eval_token_accuracy"])
        self.assertEqual(reports[0]["eval_loss"], reports[1]["eval_loss"])

    def test_a_short_last_block_counts(self):
        text = (self.folder / "corpus" / "validation.txt").read_bytes()[:3000].decode(errors="ignore")
        (self.folder / "short.txt").write_text(text)
        report = json.loads(self.run_ok(
            "eval", "--model", "run", "--data", "short.txt", "--json", "data.sequence_length=60",
            "data.append_eos=false").out)
        # The first token of each block is not predicted; the blocks cover the whole text.
        blocks, tokens = report["eval_samples"], report["eval_tokens"] + report["eval_samples"]
        self.assertEqual(blocks, -(-tokens // 60))
        self.assertNotEqual(tokens % 60, 0)
        whole = json.loads(self.run_ok(
            "eval", "--model", "run", "--data", "short.txt", "--json", "data.sequence_length=30",
            "data.append_eos=false").out)
        self.assertEqual(whole["eval_tokens"] + whole["eval_samples"], tokens)

    def test_the_bigram_baseline_decides_the_exit_code(self):
        arguments = ["eval", "--model", "run", "--data", "corpus/validation.txt", "--bigram",
                     "--train", "corpus/train.txt", "data.sequence_length=32"]
        result = lockstep(*arguments, cwd=self.folder)
        self.assertEqual(result.code, 1, result)  # 30 steps are too few
        self.assertIn("bigram", result.err)

    def test_generation_writes_the_prompt_its_continuation_and_nothing_else(self):
        words = ["generate", "--model", "run", "--prompt", "Once upon a", "--max-new-tokens", 12]
        first = self.run_ok(*words)
        self.assertTrue(first.out.startswith("Once upon a"), first)
        self.assertGreater(len(first.out), len("Once upon a\n"))
        self.assertEqual(first.err, "")
        self.assertEqual(self.run_ok(*words).out, first.out)  # greedy decoding
        sampled = [*words, "--temperature", 1.5, "--top-k", 50, "--top-p", 0.95, "--seed"]
        self.assertEqual(self.run_ok(*sampled, 1).out, self.run_ok(*sampled, 1).out)
        self.assertNotEqual(self.run_ok(*sampled, 1).out, self.run_ok(*sampled, 2).out)
        self.assertEqual(self.run_ok(*words[:-1], 0).out, "Once upon a\n")

    def test_a_prompt_comes_through_a_pipe(self):
        words = ["generate", "--model", "run", "--max-new-tokens", 3, "--prompt"]
        piped = self.run_ok(*words, "-", stdin="Once upon\na".encode())
        self.assertTrue(piped.out.startswith("Once upon\na"), piped)
        self.assertEqual(piped.out, self.run_ok(*words, "Once upon\na").out)

    @long
    def test_empty_text(self):
        (self.folder / "empty.txt").write_text("")
        (self.folder / "blank.txt").write_text("\n")
        told = self.run_fails(4, "eval", "--model", "run", "--data", "empty.txt", "use_cpu=true").err
        self.assertIn("empty.txt", told)
        report = json.loads(self.run_ok("eval", "--model", "run", "--data", "blank.txt", "--json", "use_cpu=true").out)
        self.assertEqual(report["eval_samples"], 1)

    @long
    def test_equivalent_settings_of_greedy_decoding(self):
        """All equivalent settings of greedy decoding give the same tokens."""
        words = ["generate", "--model", "run", "--prompt", "Once upon a", "--max-new-tokens", 8]
        greedy = self.run_ok(*words).out
        for more in (["--temperature", 0], ["--temperature", 2, "--top-k", 1], ["--temperature", 2, "--top-p", 1e-9],
                     ["--dtype", "float32"], ["--device-map", "cpu"], ["--tensor", 2, "--device-map", "cpu"]):
            self.assertEqual(self.run_ok(*words, *more).out, greedy, more)

    def test_bad_arguments_are_reported(self):
        self.assertIn("--help", self.run_fails(2, "generate", "--model", "run").err)
        self.assertIn("nowhere", self.run_fails(4, "generate", "--model", "nowhere", "--prompt", "a").err)
        result = self.run_fails(2, "generate", "--model", "run", "--prompt", "a", "--max-new-tokens", 100000)
        self.assertIn("64", result.err)
        self.assertIn("train", self.run_fails(2, "trian").err)
        hub = self.run_fails(4, "eval", "--model", "openai-community/gpt2", "--data", "corpus/validation.txt")
        self.assertIn("openai-community/gpt2", hub.err)


class Shown(ProgramTest):
    """`lockstep data show`, for each kind of rows."""

    def show(self, *more):
        return self.run_ok("data", "show", "model.path=model.json", "tokenizer.path=tokenizer", *more).out

    def test_pairs_are_shown_with_what_is_learned(self):
        pair = {"prompt": "One day ", "chosen": "a dog ran.", "rejected": "x."}
        (self.folder / "pair.jsonl").write_text((json.dumps(pair) + "\n") * 2)
        shown = self.show("data.train=pair.jsonl", "task.type=preference", "--rows", 1)
        self.assertEqual(re.findall(r"(?m)^document (\d), (\w+): \d+ tokens, \d+ of them learned$", shown),
                         [("1", "chosen"), ("1", "rejected")], shown)
        self.assertRegex(shown, r"One day ?⟦ ?a dog ran\.")

    def test_labelled_rows_are_shown_with_their_labels(self):
        shown = self.show("data.train=corpus/labelled.csv", "task.type=sequence_classification", "--rows", 2)
        self.assertEqual(len(re.findall(r"(?m)^document \d, label \w+: \d+ tokens$", shown)), 2, shown)
        (self.folder / "sentences.csv").write_text("sentence,label\nit is good,1\nit is bad,0\n")
        shown = self.show("data.train=sentences.csv", "task.type=sequence_classification")
        self.assertRegex(shown, r"document 1, label 1: \d+ tokens\n.*it is good")

    def test_a_long_text_is_cut_on_a_terminal(self):
        shown = self.show("data.train=corpus/train.txt")
        self.assertLess(len(shown), 20000)
        self.assertRegex(shown, r"\.\.\. and \d+ more tokens \(--html FILE writes all\)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
