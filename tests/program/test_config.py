"""Configuration through the program: files, trees, overrides, flags, and the source of each value."""

import json
import re
import subprocess
import unittest

from harness import CONFIG, ProgramTest, environment, losses

# A tree as in Hydra projects: a primary file with a defaults list, groups, and an experiment that overrides groups from the root package.
TREE = {
    "train.yaml": """
defaults:
  - _self_
  - model: tiny
  - data: corpus
  - trainer@training: short
  - optional local: default
""",
    "model/tiny.yaml": "path: model.json\n",
    "model/wide.yaml": "defaults: [tiny]\npath: wide.json\n",
    "data/corpus.yaml": """
train: [corpus/train.txt]
validation: [corpus/validation.txt]
cache_dir: cache
sequence_length: 32
""",
    "trainer/short.yaml": """
output_dir: ${oc.env:RUNS,runs}/tree
max_steps: 4
logging_steps: 1
per_device_train_batch_size: 4
learning_rate: 1e-3
save_strategy: 'no'
use_cpu: true
""",
    "experiment/long.yaml": """
# @package _global_
defaults:
  - override /model: wide
training:
  max_steps: 6
tokenizer:
  path: tokenizer
""",
}


class Trees(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, text in TREE.items():
            path = cls.folder / "conf" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (cls.folder / "wide.json").write_text(json.dumps({**CONFIG, "n_embd": 40}))

    def test_a_tree_is_composed_and_trains(self):
        words = ["train", "--config-path", "conf", "--config-name", "train", "+experiment=long",
                 "training.learning_rate=2e-3", "monitor.peak_tflops=1"]
        self.run_ok(*words, env=environment(RUNS="elsewhere"))
        run = self.folder / "elsewhere" / "tree"
        self.assertEqual(len(losses(run)), 6)
        self.assertEqual(json.loads((run / "config.json").read_text())["n_embd"], 40)

    def test_where_each_value_came_from(self):
        out = self.run_ok(
            "train", "--config-path", "conf", "--config-name", "train", "+experiment=long",
            "--learning_rate", "3e-3", "--print-config").out
        line = {m[1]: m[0] for m in re.finditer(r"^ *(\w+):.*$", out, re.M)}
        self.assertIn("0.003", line["learning_rate"])
        self.assertIn("command line", line["learning_rate"])
        self.assertIn("experiment/long.yaml", line["max_steps"])
        self.assertIn("default", line["weight_decay"])

    def test_the_locale_does_not_change_numbers(self):
        words = ["train", "--config-path", "conf", "--config-name", "train", "training.learning_rate=1.5e-4", "--print-config"]
        expected = self.run_ok(*words).out
        self.assertIn("0.00015", expected)
        locales = self.folder / "locales"
        locales.mkdir()
        # The decimal separator of de_DE is a comma. Without localedef the program falls back to C.
        try:
            subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", locales / "de_DE.UTF-8"], capture_output=True, check=False)
        except FileNotFoundError:
            pass
        for name in ("C", "C.UTF-8", "de_DE.UTF-8"):
            with self.subTest(name):
                env = environment(LC_ALL=name, LOCPATH=str(locales), TERM="")
                self.assertEqual(self.run_ok(*words, env=env).out, expected)

    def test_equivalent_spellings_of_a_value(self):
        spellings = [
            ["training.seed=7"], ["seed=7"], ["--seed", "7"], ["--seed=7"], ["trainer.args.seed=7"],
            ["++training.seed=7"]]
        for words in spellings:
            out = self.run_ok(
                "train", "--config-path", "conf", "--config-name", "train", "tokenizer.path=tokenizer",
                "--print-config", *words).out
            self.assertRegex(out, r"(?m)^ *seed: 7\b", words)

    def test_unused_num_processes_of_an_accelerate_file_is_reported(self):
        (self.folder / "accelerate.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 2\n")
        command, _, _, *words = self.train_arguments("processes", "--dry-run")
        told = self.run_ok(command, *words, "--config_file", "accelerate.yaml").err
        self.assertIn("num_processes: 2 (accelerate.yaml:2) has no effect: start ranks with --nproc 2", told)
        for more in (["--nproc", 2], ["--nproc", 1]):
            self.assertNotIn("num_processes", self.run_ok(command, *words, *more, "--config_file", "accelerate.yaml").err)

    def test_a_dry_run_checks_and_writes_nothing(self):
        result = self.run_ok(*self.train_arguments("dry", "--dry-run"))
        self.assertIn("43.9k", result.out)
        self.assertFalse((self.folder / "dry").exists())
        self.assertIn("narrow", self.run_fails(
            4, *self.train_arguments("dry", "--dry-run", "model.path=narrow")).err)

    def test_a_dry_run_says_the_plan_and_finds_what_is_cheap_to_find(self):
        out = self.run_ok(*self.train_arguments("dry", "parallel.tensor=2", "parallel.recompute=full", "--dry-run", ranks=4)).out
        self.assertRegex(out, r"(?m)^plan +4 ranks; data 2 x tensor 2, recompute full, float32$")
        self.assertRegex(out, r"(?m)^batch +16 sequences per step \(2 data ranks x 8 x 1 micro-batch\); sequences of 32 tokens; 6 steps$")
        self.assertRegex(out, r"(?m)^memory +predicted memory: \d+ MiB per rank \([\d.]+ \wiB free\)$")
        self.assertIn("exceed the 64", self.run_fails(2, *self.train_arguments("dry", "data.sequence_length=128", "--dry-run")).err)
        (self.folder / "broken.jsonl").write_text('{"text": "whole"}\n{"text": "bro\n')
        self.assertIn("broken.jsonl is not JSON at line 2", self.run_fails(
            4, *self.train_arguments("dry", "data.train=broken.jsonl", "--dry-run")).err)

    def test_a_missing_model_is_reported_once(self):
        told = self.run_fails(4, *self.train_arguments("absent", "model.path=absent", ranks=2)).err
        self.assertEqual(told.count("is not a local folder"), 1, told)

    def test_a_schema_and_a_configuration_need_no_data(self):
        self.assertIn("properties", json.loads(self.run_ok("train", "--json-schema").out))
        self.assertRegex(self.run_ok("train", "--print-config", "seed=7").out, r"(?m)^ *seed: 7\b")

    def test_unknown_keys_are_placed_at_their_own_line(self):
        (self.folder / "keys.yaml").write_text("training:\n  output_dir: e\nfoo:\nbar: 1\nbaz:\n  a: 1\n")
        told = self.run_fails(2, "train", "-c", "keys.yaml").err
        for place in ("keys.yaml:3", "keys.yaml:4", "keys.yaml:5"):
            self.assertIn(place, told)
        self.assertNotIn("keys.yaml:6", told)

    def test_the_number_of_ranks_that_fits_a_plan_is_proposed_first(self):
        for ranks, plan, proposed in ((1, ["parallel.tensor=2"], 2), (3, ["parallel.tensor=2", "parallel.pipeline=2"], 4)):
            told = self.run_fails(2, *self.train_arguments("ranks", *plan, ranks=ranks)).err
            self.assertRegex(told, f"(try: |hint: |; )start {proposed} ranks \\(--nproc {proposed}\\), or use one of the meshes")

    def test_a_dataset_that_is_missing_is_one_problem(self):
        command = [word for word in self.train_arguments("named") if not str(word).startswith("data.")]
        told = self.run_fails(2, *command, "--dataset_name", "nope/x").err
        self.assertNotIn("is required", told)

    def test_hub_name_from_the_local_cache_or_download_hint(self):
        self.train("source", steps=2)
        snapshot = self.folder / "hf/hub/models--someone--small/snapshots/abc"
        snapshot.parent.mkdir(parents=True)
        snapshot.symlink_to(self.folder / "source")
        refs = self.folder / "hf/hub/models--someone--small/refs"
        refs.mkdir()
        (refs / "main").write_text("abc")
        env = environment(HF_HOME=str(self.folder / "hf"))
        words = ["eval", "--data", "corpus/validation.txt", "data.sequence_length=32", "--model"]
        self.run_ok(*words, "someone/small", env=env)
        result = self.run_fails(4, *words, "someone/other", env=env)
        self.assertIn("someone/other", result.err)
        self.assertRegex(result.err, r"hf download|huggingface-cli")


if __name__ == "__main__":
    unittest.main(verbosity=2)
