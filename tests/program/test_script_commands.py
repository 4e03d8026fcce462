"""Commands of transformers' example scripts, unchanged except for the program's name, with a model and data sets from a Hub cache."""

import csv
import json
import shutil
import unittest

from harness import ProgramTest, environment, losses, metrics


class ScriptCommands(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = environment(HF_HOME=str(cls.folder / "hf"))
        text = (cls.folder / "corpus" / "train.txt").read_text().splitlines()[:300]
        rows = [{"text": line + "\n"} for line in text]
        cls.dataset("Salesforce--wikitext", "wikitext-2-raw-v1", {"train": rows, "validation": rows[:30], "test": rows[:10]})
        tasks = [{"instruction": "Add.", "input": f"{i} and 1", "output": str(i + 1), "text": "unused"} for i in range(60)]
        cls.dataset("tatsu-lab--alpaca", "data", {"train": tasks})
        with (cls.folder / "corpus" / "labelled.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        sentences = [{"sentence": row["text"], "label": int(row["label"] in ("praise", "question")), "idx": i} for i, row in enumerate(table)]
        hidden = [{**row, "label": -1} for row in sentences[120:130]]
        cls.dataset("nyu-mll--glue", "sst2", {"train": sentences[:90], "validation": sentences[90:120], "test": hidden})
        pairs = [{"premise": row["text"], "hypothesis": other["text"], "label": int(row["label"] == other["label"])}
                 for row, other in zip(table[:60], table[1:])]
        hidden_pairs = [{**pair, "label": -1} for pair in pairs[:9]]
        cls.dataset("nyu-mll--glue", "mnli", {"train": pairs[:40], "validation_matched": pairs[40:50], "validation_mismatched": pairs[50:],
                                              "test_matched": hidden_pairs[:4], "test_mismatched": hidden_pairs[4:]})
        # As in the Hub's repository: by file names alone, both files would be `validation`.
        front = "---\nconfigs:\n"
        for name, splits in (("mnli", ["train", *(f"{split}_{half}" for split in ("validation", "test") for half in ("matched", "mismatched"))]),
                             ("sst2", ["train", "validation", "test"])):
            front += f"- config_name: {name}\n  data_files:\n" + "".join(f"  - split: {split}\n    path: {name}/{split}-*\n" for split in splits)
        (cls.folder / "hf" / "hub" / "datasets--nyu-mll--glue" / "snapshots" / "abc123" / "README.md").write_text(front + "---\n")
        for name, part in (("train.csv", table[:97]), ("dev.csv", table[97:130])):
            with (cls.folder / name).open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerows([["title", "text", "label"], *([f"No. {i}", row["text"], row["label"]] for i, row in enumerate(part))])
        # A small model that replaces GPT-2 in the Hub cache.
        cls.run_ok_in(cls.folder, "train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt", "output_dir=small",
                      "max_steps=1", "data.sequence_length=32", "use_cpu=true")
        for name in ("models--gpt2", "models--openai-community--gpt2"):
            model = cls.folder / "hf" / "hub" / name
            (model / "refs").mkdir(parents=True)
            (model / "refs" / "main").write_text("abc123")
            (model / "snapshots" / "abc123").mkdir(parents=True)
            for file in (cls.folder / "small").iterdir():
                if file.is_file() and (file.suffix == ".safetensors" or "token" in file.name or file.name in ("config.json", "vocab.json", "merges.txt")):
                    shutil.copy(file, model / "snapshots" / "abc123")

    @classmethod
    def dataset(cls, name, configuration, splits):
        root = cls.folder / "hf" / "hub" / f"datasets--{name}"
        folder = root / "snapshots" / "abc123" / configuration
        folder.mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text("abc123")
        for split, rows in splits.items():
            (folder / f"{split}-00000-of-00001.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def typed(self, line, *more, **options):
        return self.run_ok("train", *line.split(), "--use_cpu", *more, env=self.environment, **options)

    def predictions(self, run):
        return [json.loads(line) for line in (self.folder / run / "predictions.jsonl").read_text().splitlines()]

    def test_run_clm_on_wikitext_by_name(self):
        told = self.typed("--model_name_or_path gpt2 --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 --do_train --do_eval --max_steps 4 "
                          "--per_device_train_batch_size 2 --per_device_eval_batch_size 2 --fp16 --block_size 32 --logging_steps 1 --output_dir clm").err
        self.assertRegex(told, r"data.train: \d+ documents concatenated to \d+ sequences of 32 tokens; tokens attend to earlier documents in their sequence")
        self.assertEqual(len(losses(self.folder / "clm")), 4)
        results = json.loads((self.folder / "clm" / "all_results.json").read_text())
        self.assertIn("eval_loss", results)
        self.assertIn("eval_perplexity", results)

    def test_alpaca_by_name(self):
        line = ("--model_name_or_path gpt2 --dataset_name tatsu-lab/alpaca --do_train --num_train_epochs 1 --max_steps 3 "
                "--per_device_train_batch_size {} --gradient_accumulation_steps {} --max_seq_length 64 --logging_steps 1 --output_dir {}")
        told = self.typed(line.format(2, 4, "alpaca"), "data.prompt=alpaca", "data.long_documents=split").err
        self.assertRegex(told, r"data.train: 60 documents in \d+ sequences of 64 tokens, [\d.]+% padding")
        self.typed(line.format(2, 2, "alpaca2"), "data.prompt=alpaca", "data.long_documents=split", "--nproc", "2")
        self.assert_close(losses(self.folder / "alpaca"), losses(self.folder / "alpaca2"), 1e-5)

    def test_flags_of_hand_written_scripts(self):
        """Commands of common guides to distributed training and to GPT-2 as a classifier."""
        work = self.folder / "work"
        work.mkdir()
        named = "--dataset-name tatsu-lab/alpaca --model-name openai-community/gpt2"
        more = "--num-epochs 1 --lr 3e-5 --batch-size 2 --log-freq 1 --ckpt-freq 100 --seq-length 32 --max-steps 3"
        line = ["train", "--experiment-name", "gpt2-alpaca", *named.split(), *more.split(), "--use_cpu"]
        self.run_ok_in(work, *line, env=self.environment)
        one = self.folder / "outputs" / "gpt2-alpaca"
        self.assertEqual(len(losses(one)), 3)
        self.assertEqual(metrics(one)[0]["learning_rate"], 3e-5)
        self.run_ok_in(work, *line, "--save-dir", "mine", "--nproc", 2, "--batch-size", 1, env=self.environment)
        self.assert_close(losses(work / "mine" / "gpt2-alpaca"), losses(one), 1e-5)
        words = ["--model", "gpt2", "--epochs", 1, "--batch_size", 16, "--lr", "2e-5", "data.train=train.csv", "data.validation=dev.csv",
                 "task.type=sequence_classification", "data.sequence_length=60", "output_dir=typed", "--use_cpu"]
        told = self.run_ok("train", "--nproc", 2, *words, env=self.environment)
        self.assertIn("praise", told.out)
        self.assertRegex(told.err, r"epoch 1\.00 .* train_accuracy [\d.]+  eval_loss [\d.]+  accuracy|epoch 1\.00  train_loss")
        # In a file such a name is a variable like any other.
        (self.folder / "own.yaml").write_text("lr: 0.5\ntraining: {max_steps: 1, output_dir: own}\n")
        self.run_ok("train", "-c", "own.yaml", "model.path=gpt2", "data.train=train.csv", "--use_cpu", "data.sequence_length=32", "--allow-unknown-config",
                    env=self.environment)
        self.assertIn("learning_rate: 5.0e-05", (self.folder / "own" / "config.yaml").read_text())

    def test_gpt2_classifies_a_table_on_two_ranks(self):
        line = ("--model_name_or_path gpt2 --train_file train.csv --validation_file dev.csv --text_column_names {} --label_column_name label "
                "--do_train --do_eval --max_seq_length 48 --metric_name accuracy --shuffle_train_dataset --max_steps 4 --logging_steps 1 "
                "--per_device_train_batch_size {} --output_dir {}")
        result = self.typed(line.format("text", 4, "table"), "--nproc", "2")
        self.assertEqual(result.out, (self.folder / "table" / "classification_report.txt").read_text())
        self.assertIn("praise", result.out)
        self.typed(line.format("text", 8, "table-one"))
        self.assert_close(losses(self.folder / "table"), losses(self.folder / "table-one"), 1e-5)
        # Several columns are joined to one text.
        with (self.folder / "dev.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        self.typed(line.format("title,text", 8, "joined"), "--text_column_delimiter", ": ")
        self.assertEqual([row["text"] for row in self.predictions("joined")], [f"{row['title']}: {row['text']}" for row in rows])
        self.run_ok("eval", "--model", "joined", "--data", "dev.csv", "--output", "joined-again", "use_cpu=true")
        self.assertEqual((self.folder / "joined-again" / "predictions.jsonl").read_text(), (self.folder / "joined" / "predictions.jsonl").read_text())
        # An explicit option applies even if it equals the default.
        self.run_ok("eval", "--model", "joined", "--data", "dev.csv", "--output", "one-column", "data.text_field=text", "use_cpu=true")
        self.assertEqual([row["text"] for row in self.predictions("one-column")], [row["text"] for row in rows])
        # Uses the first rows of each file.
        self.typed(line.format("text", 8, "few"), "--max_train_samples", "20", "--max_eval_samples", "7")
        self.assertEqual(len(self.predictions("few")), 7)

    def test_tasks_of_glue_by_name(self):
        line = ("--model_name_or_path gpt2 --task_name {} --do_train --do_eval --max_seq_length 64 --per_device_train_batch_size 8 "
                "--learning_rate 2e-5 --max_steps 3 --logging_steps 1 --output_dir {}")
        self.typed(line.format("sst2", "sst2"))
        self.assertEqual(len(self.predictions("sst2")), 30)
        self.assertIn("eval_accuracy", json.loads((self.folder / "sst2" / "all_results.json").read_text()))
        self.typed(line.format("sst2", "sst2-few"), "--max_train_samples", "24", "--max_eval_samples", "5")
        self.assertEqual(len(self.predictions("sst2-few")), 5)
        self.typed(line.format("MNLI", "mnli"))
        rows = self.predictions("mnli")
        self.assertTrue(rows[0]["text"] and rows[0]["pair"])
        self.assertEqual(len(rows), 10)
        # The second validation set is evaluated too, under run_glue.py's names.
        results = json.loads((self.folder / "mnli" / "all_results.json").read_text())
        self.assertIn("eval_accuracy", results)
        self.assertIn("eval_accuracy_mm", results)
        self.assertNotEqual(results["eval_loss"], results["eval_loss_mm"])
        self.assertEqual([line["step"] for line in metrics(self.folder / "mnli") if "loss" in line], [1, 2, 3])

    def test_prediction_of_unlabelled_test_sets(self):
        line = ("--model_name_or_path gpt2 --task_name {0} --do_train --do_eval --do_predict --max_seq_length 64 --per_device_train_batch_size 8 "
                "--max_steps 2 --output_dir {0}-test")
        self.assertIn("data.test has no labels", self.typed(line.format("sst2")).err)
        self.typed(line.format("mnli"), "--nproc", "2")
        for run, name, count in (("sst2", "", 30), ("sst2", "_test", 10), ("mnli", "", 10), ("mnli", "_test", 4), ("mnli", "_test_mm", 5)):
            answers = (self.folder / f"{run}-test" / f"predict_results{name}.txt").read_text().splitlines()
            rows = [json.loads(row) for row in (self.folder / f"{run}-test" / f"predictions{name}.jsonl").read_text().splitlines()]
            self.assertEqual(answers, ["index\tprediction"] + [f"{i}\t{row['prediction']}" for i, row in enumerate(rows)])
            self.assertEqual(len(rows), count)
            self.assertEqual(["label" in row for row in rows], [name == ""] * count)
        results = json.loads((self.folder / "mnli-test" / "all_results.json").read_text())
        self.assertIn("eval_accuracy_mm", results)
        self.assertFalse([name for name in results if name.startswith("test_")])
        # A labelled test set is evaluated; a partly labelled one is refused.
        with (self.folder / "dev.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        words = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=train.csv", "task.type=sequence_classification",
                 "max_steps=1", "use_cpu=true"]
        self.run_ok(*words, "data.validation=dev.csv", "data.test_mm=dev.csv", "output_dir=measured")
        results = json.loads((self.folder / "measured" / "all_results.json").read_text())
        self.assertEqual(results["test_accuracy_mm"], results["eval_accuracy"])
        with (self.folder / "some.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["text", "label"], [table[0]["text"], table[0]["label"]], [table[1]["text"], "-1"]])
        self.assertIn("some.csv, line 3", self.run_fails(4, *words, "data.test=some.csv", "output_dir=none").err)
        words = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=none"]
        self.assertIn("Did you mean 'sst2'?", self.run_fails(2, *words, "--task_name", "sst", env=self.environment).err)


if __name__ == "__main__":
    unittest.main()
