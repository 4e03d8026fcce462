"""Hub data sets by name, read from the local cache: the commands of the run_clm and Alpaca guides."""

import json
import pathlib
import unittest

from harness import ProgramTest, environment, losses


class NamedData(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = environment(HF_HOME=str(cls.folder / "hf"))
        text = (cls.folder / "corpus" / "train.txt").read_text().splitlines()[:400]
        rows = [json.dumps({"text": line + "\n"}) for line in text]
        cls.repository("Salesforce--wikitext", "wikitext-2-raw-v1", {"train": rows, "validation": rows[:40], "test": rows[:20]})
        cls.repository("Salesforce--wikitext", "wikitext-103-raw-v1", {"train": rows})
        tasks = [{"instruction": "Add.", "input": f"{i} and 1", "output": str(i + 1)} for i in range(60)]
        cls.repository("tatsu-lab--alpaca", "data", {"train": [json.dumps(task) for task in tasks]})

    @classmethod
    def repository(cls, name, configuration, splits):
        root = cls.folder / "hf" / "hub" / f"datasets--{name}"
        folder = root / "snapshots" / "abc123" / configuration
        folder.mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text("abc123")
        for split, rows in splits.items():
            (folder / f"{split}-00000-of-00001.jsonl").write_text("\n".join(rows) + "\n")

    def test_run_clm_on_wikitext(self):
        words = ["--model_name_or_path", "model.json", "--tokenizer_name", "tokenizer", "--dataset_name", "wikitext",
                 "--dataset_config_name", "wikitext-2-raw-v1", "--do_train", "--do_eval", "--max_steps", "4",
                 "--per_device_train_batch_size", "2", "--per_device_eval_batch_size", "2", "--block_size", "32",
                 "--logging_steps", "1", "--use_cpu"]
        self.run_ok("train", *words, "--output_dir", "named", env=self.environment)
        folder = self.folder / "hf" / "hub" / "datasets--Salesforce--wikitext" / "snapshots" / "abc123" / "wikitext-2-raw-v1"
        given = [word for word in words if word not in ("--dataset_name", "wikitext", "--dataset_config_name", "wikitext-2-raw-v1")]
        self.run_ok("train", *given, f"data.train={folder}/train-00000-of-00001.jsonl",
                    f"data.validation={folder}/validation-00000-of-00001.jsonl", "--output_dir", "files")
        self.assertEqual(losses(self.folder / "named"), losses(self.folder / "files"))
        # The written configuration starts the run again, also with another cache folder.
        again = (self.folder / "named" / "config.yaml").read_text()
        self.assertIn("dataset_name: wikitext", again)
        self.run_ok("train", "-c", "named/config.yaml", "output_dir=again", env=self.environment)
        self.assertEqual(losses(self.folder / "again"), losses(self.folder / "named"))

    def test_alpaca_on_two_ranks(self):
        words = ["model.path=model.json", "tokenizer.path=tokenizer", "data.dataset_name=tatsu-lab/alpaca", "data.prompt=alpaca",
                 "data.validation_fraction=0.1", "max_steps=3", "per_device_train_batch_size=2", "data.sequence_length=64",
                 "data.long_documents=split", "logging_steps=1", "use_cpu=true"]
        self.run_ok("train", *words, "output_dir=one", "gradient_accumulation_steps=2", env=self.environment)
        self.run_ok("train", "--nproc", 2, *words, "output_dir=two", env=self.environment)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "two"), 1e-5)

    def test_slices_of_splits(self):
        words = ["model.path=model.json", "tokenizer.path=tokenizer", "max_steps=2", "per_device_train_batch_size=2", "data.sequence_length=32",
                 "logging_steps=1", "use_cpu=true", "do_eval=true"]
        named = ["data.dataset_name=wikitext", "data.dataset_config_name=wikitext-2-raw-v1"]
        self.run_ok("train", *words, *named, "--train_split_name", "train[:80%]", "--validation_split_name", "train[80%:]+test[:5]", "output_dir=parts",
                    env=self.environment)
        rows = [json.dumps({"text": line + "\n"}) for line in (self.folder / "corpus" / "train.txt").read_text().splitlines()[:400]]
        (self.folder / "most.jsonl").write_text("\n".join(rows[:320]) + "\n")
        (self.folder / "rest.jsonl").write_text("\n".join(rows[320:] + rows[:5]) + "\n")
        self.run_ok("train", *words, "data.train=most.jsonl", "data.validation=rest.jsonl", "output_dir=cut")
        self.assertEqual(losses(self.folder / "parts"), losses(self.folder / "cut"))
        results = [json.loads((self.folder / run / "eval_results.json").read_text())["eval_loss"] for run in ("parts", "cut")]
        self.assertEqual(*results)
        # Files can be sliced too.
        self.run_ok("train", *words, "--train_file", "most.jsonl[:50%]", "data.validation='most.jsonl[-10:]'", "output_dir=half")
        told = self.run_fails(4, "train", *words, *named, "--data.train_split", "train[400:]", "output_dir=refused", env=self.environment).err
        self.assertIn("selects no rows; the files have 400", told)
        told = self.run_fails(2, "train", *words, *named, "--data.train_split", "train[80%]", "output_dir=refused", env=self.environment).err
        self.assertIn("is not a valid split slice", told)

    def test_missing_data_sets_and_splits(self):
        words = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=none", "max_steps=1", "use_cpu=true"]
        told = self.run_fails(2, *words, "data.dataset_name=wikitext", env=self.environment).err
        self.assertIn("wikitext-103-raw-v1, wikitext-2-raw-v1", told)
        self.assertIn("data.dataset_config_name=wikitext-103-raw-v1", told)
        told = self.run_fails(2, *words, "data.dataset_name=nobody/nothing", env=self.environment).err
        self.assertIn("hf download --repo-type dataset nobody/nothing", told)
        self.assertFalse((pathlib.Path(self.folder) / "none").exists())


if __name__ == "__main__":
    unittest.main()
