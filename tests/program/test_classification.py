"""Classification from a table to a report: training, evaluation and prediction under several plans."""

import csv
import json
import unittest

from harness import CONFIG, ProgramTest, long, losses, metrics

LABELS = ["complaint", "praise", "question", "request"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Classification(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # No batch size divides the number of rows, so ranks and last steps are uneven.
        with (cls.folder / "corpus" / "labelled.csv").open(newline="") as file:
            table = list(csv.reader(file))
        # Rows have unequal lengths, and dropout applies in attention: masks must not depend on a micro-batch's padding.
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "attn_pdrop": 0.1}))
        for name, rows in (("train.csv", table[1:108]), ("dev.csv", table[108:149])):
            with (cls.folder / name).open("w", newline="") as file:
                csv.writer(file).writerows([table[0], *rows])

    def classify(self, output, *more, ranks=1, data="train.csv", steps=14):
        return self.run_ok(
            "train", "--nproc", ranks, "model.path=model.json", "tokenizer.path=tokenizer",
            "task.type=sequence_classification", f"data.train={data}", "data.validation=dev.csv",
            "data.sequence_length=40", "data.cache_dir=cache", f"output_dir={output}", f"max_steps={steps}",
            "eval_strategy=epoch", "logging_steps=1", "learning_rate=3e-3", "monitor.peak_tflops=1", "use_cpu=true",
            *more)

    def test_every_plan_gives_the_losses_and_predictions_of_one_rank(self):
        one = self.classify("one", "per_device_train_batch_size=12")
        plans = {
            "two": (2, "per_device_train_batch_size=6"),
            "zero": (3, "per_device_train_batch_size=2", "gradient_accumulation_steps=2", "parallel.zero_stage=3"),
            "tensor": (2, "per_device_train_batch_size=12", "parallel.tensor=2", "parallel.sequence_parallel=true"),
            "pipeline": (2, "per_device_train_batch_size=6", "gradient_accumulation_steps=2", "parallel.pipeline=2"),
            "both": (4, "per_device_train_batch_size=6", "gradient_accumulation_steps=2", "parallel.tensor=2",
                     "parallel.pipeline=2"),
            "context": (2, "per_device_train_batch_size=12", "parallel.context=2"),
            "unpacked": (1, "per_device_train_batch_size=12", "data.packing=none"),
        }
        self.assertRegex(one.err, r"(\d+\.\d)% of the tokens are padding, compared with (\d+\.\d)%")
        wanted = lines(self.folder / "one" / "predictions.jsonl")
        self.assertEqual(len(wanted), 41)
        self.assertEqual(one.out, (self.folder / "one" / "classification_report.txt").read_text())
        counted = [[line[name] for line in metrics(self.folder / "one") if name in line] for name in ("train_accuracy", "train_loss", "accuracy")]
        self.assertEqual([len(each) for each in counted], [3, 3, 14])  # after nine steps, after five of the next epoch, and of the final model
        # Accuracy is counted during the steps: 107 rows in nine steps, the last of which has 11.
        rows = [12] * 8 + [11]
        self.assertAlmostEqual(counted[0][0], sum(a * b for a, b in zip(counted[2], rows)) / 107, delta=1e-6)
        self.assertAlmostEqual(counted[0][1], sum(counted[2][9:]) / 5, delta=1e-6)
        self.assertRegex(one.err, r"eval  step \d+/\d+  epoch 1\.00  train_loss \d\.\d+  train_accuracy 0\.\d+  eval_loss \d\.\d+  accuracy 0\.\d+  f1 0\.\d+  ")
        for name, (ranks, *words) in plans.items():
            with self.subTest(plan=name):
                result = self.classify(name, *words, ranks=ranks)
                self.assert_close(losses(self.folder / name), losses(self.folder / "one"), 2e-5)
                self.assert_close([line["accuracy"] for line in metrics(self.folder / name) if "accuracy" in line], counted[2], 1e-6)
                found = lines(self.folder / name / "predictions.jsonl")
                self.assertEqual([row["prediction"] for row in found], [row["prediction"] for row in wanted])
                self.assert_close(
                    [row["probability"] for row in found], [row["probability"] for row in wanted], 1e-4)
                self.assertEqual(result.out, one.out)
                for file in ("confusion_matrix.csv", "confusion_matrix.svg", "classification_report.json"):
                    self.assertEqual((self.folder / name / file).read_bytes(),
                                     (self.folder / "one" / file).read_bytes(), file)

    @long
    def test_classes_have_weights_on_any_plan(self):
        words = ["task.class_weights=balanced", "task.focal_gamma=1.5"]
        self.classify("weighed", "per_device_train_batch_size=12", *words)
        plain = self.folder / "weighed"
        self.classify("context_weighed", "per_device_train_batch_size=12", "parallel.context=2", *words, ranks=2)
        self.classify("both_weighed", "per_device_train_batch_size=6", "gradient_accumulation_steps=2",
                      "parallel.tensor=2", "parallel.pipeline=2", *words, ranks=4)
        for name in ("context_weighed", "both_weighed"):
            self.assert_close(losses(self.folder / name), losses(plain), 2e-5)
            self.assert_close(*([line["eval_loss"] for line in metrics(folder) if "eval_loss" in line]
                                for folder in (self.folder / name, plain)), 2e-5)
        last = json.loads((plain / "eval_results.json").read_text())
        self.assertLess(last["eval_loss"], last["eval_log_loss"])  # confident predictions have less weight
        counted = [[line["train_accuracy"] for line in metrics(self.folder / name) if "train_accuracy" in line]
                   for name in ("weighed", "context_weighed", "both_weighed")]
        self.assertEqual(counted[0], counted[1])
        self.assertEqual(counted[0], counted[2])
        self.assertAlmostEqual(counted[0][0] * 107, round(counted[0][0] * 107), delta=1e-6)  # a whole number of rows, independent of their weights
        self.run_fails(2, "train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=train.csv",
                       "task.type=sequence_classification", "task.class_weights=[1,2]", "output_dir=no", "use_cpu=true")

    @long
    def test_a_folder_is_evaluated_and_predicts(self):
        self.classify("kept", "per_device_train_batch_size=8", "data.test=dev.csv", steps=30)
        config = json.loads((self.folder / "kept" / "config.json").read_text())
        self.assertEqual(config["architectures"], ["GPT2ForSequenceClassification"])
        self.assertEqual(list(config["id2label"].values()), LABELS)
        self.assertEqual(config["label2id"], {label: k for k, label in enumerate(LABELS)})
        self.assertEqual(config["pad_token_id"], CONFIG["eos_token_id"])
        self.assertFalse((self.folder / "kept" / "generation_config.json").exists())
        evaluations = [line for line in metrics(self.folder / "kept") if "eval_accuracy" in line]
        self.assertGreaterEqual(len(evaluations), 2)  # one per epoch
        tested = json.loads((self.folder / "kept" / "test_results.json").read_text())
        words = ["--model", "kept", "--data", "dev.csv", "data.sequence_length=40", "data.cache_dir=cache", "use_cpu=true"]
        reports = []
        for ranks in (1, 2, 3):
            report = json.loads(self.run_ok("eval", "--nproc", ranks, "--json", "--output", f"report{ranks}", *words).out)
            self.assertEqual(report["eval_samples"], 41)
            self.assertEqual(report["classification_report"]["accuracy"], report["eval_accuracy"])
            self.assertEqual(sum(map(sum, report["confusion_matrix"])), 41)
            self.assertAlmostEqual(report["eval_loss"], tested["test_loss"], delta=1e-5)
            del report["eval_runtime"]
            reports.append(report)
        self.assertEqual(reports[0], reports[1])
        self.assertEqual(reports[0], reports[2])
        self.assertEqual((self.folder / "report1" / "predictions.jsonl").read_bytes(),
                         (self.folder / "report3" / "predictions.jsonl").read_bytes())
        text = self.run_ok("eval", *words).out
        self.assertIn((self.folder / "report1" / "classification_report.txt").read_text(), text)
        self.assertIn("eval_matthews_correlation", text)

        # Rows need no labels and may be in any order; the text of a row may be empty.
        rows = [{"text": row["text"]} for row in lines(self.folder / "report1" / "predictions.jsonl")] + [{"text": ""}]
        (self.folder / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        predict = ["predict", "--model", "kept", "--data", "new.jsonl", "data.sequence_length=40", "use_cpu=true"]
        self.assertIn("kept is a classifier and generates no text", self.run_fails(2, "generate", "--model", "kept", "--prompt", "x").err)
        out = self.run_ok(*predict).out
        for ranks in ([*predict, "--nproc", 2], ["launch", "--nproc-per-node", "2", *predict]):
            self.run_ok(*ranks, "--output", "new_predictions.jsonl")
            self.assertEqual((self.folder / "new_predictions.jsonl").read_text(), out)
            (self.folder / "new_predictions.jsonl").unlink()
        found = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(found), 42)
        for row, before in zip(found, lines(self.folder / "report1" / "predictions.jsonl")):
            self.assertEqual(row["prediction"], before["prediction"])
            self.assertAlmostEqual(sum(row["probabilities"].values()), 1, delta=1e-6)
            self.assertNotIn("label", row)
        one = json.loads(self.run_ok("predict", "--model", "kept", "--text", rows[3]["text"],
                                     "data.sequence_length=40", "use_cpu=true").out)
        self.assertEqual(one["prediction"], found[3]["prediction"])

        # The folder can be trained further as a classifier without task settings.
        self.run_ok("train", "model.path=kept", "data.train=train.csv", "output_dir=on", "max_steps=1",
                    "data.sequence_length=40", "use_cpu=true", "monitor.peak_tflops=1")
        self.assertEqual(json.loads((self.folder / "on" / "config.json").read_text())["id2label"], config["id2label"])

    def test_a_resumed_run_goes_on(self):
        words = ["per_device_train_batch_size=12", "save_steps=7", "task.labels=[request,question,praise,complaint]"]
        words.append("lr_scheduler_type=constant")
        self.classify("whole", *words)
        self.classify("parts", *words, steps=7)
        self.classify("parts", *words, "resume_from_checkpoint=true")
        # The accuracy of the interrupted epoch covers the whole epoch.
        for name in ("train_loss", "train_accuracy"):
            counted = [{line["step"]: line[name] for line in metrics(self.folder / run) if name in line} for run in ("parts", "whole")]
            self.assertEqual(list(counted[1]), [9, 14])
            self.assert_close([counted[0][step] for step in counted[1]], list(counted[1].values()), 1e-5)
        self.assert_close(losses(self.folder / "parts"), losses(self.folder / "whole"), 1e-5)
        self.assertEqual((self.folder / "parts" / "classification_report.txt").read_text(),
                         (self.folder / "whole" / "classification_report.txt").read_text())
        config = json.loads((self.folder / "parts" / "config.json").read_text())
        self.assertEqual(list(config["id2label"].values()), LABELS[::-1])

    @long
    def test_several_labels_and_numbers_on_any_plan(self):
        # Labels: one, and a second for long texts. Number: the length of the text.
        with (self.folder / "train.csv").open(newline="") as file:
            train = list(csv.DictReader(file))
        with (self.folder / "dev.csv").open(newline="") as file:
            dev = list(csv.DictReader(file))
        for name, rows in (("train", train), ("dev", dev)):
            (self.folder / f"{name}.jsonl").write_text("".join(
                json.dumps({"text": row["text"], "length": len(row["text"]) / 50,
                            "tags": [row["label"]] + (["long"] if len(row["text"]) > 60 else [])}) + "\n" for row in rows))
        plans = {"pipeline": (2, "per_device_train_batch_size=6", "gradient_accumulation_steps=2", "parallel.pipeline=2"),
                 "zero": (3, "per_device_train_batch_size=4", "parallel.zero_stage=3"),
                 "context": (2, "per_device_train_batch_size=12", "parallel.context=2")}
        for field, words, problem, shared in (
                ("tags", ["task.class_weights=balanced", "task.thresholds=tuned", "metric_for_best_model=f1"],
                 "multi_label_classification", ["pipeline", "zero"]),
                ("length", ["metric_for_best_model=mse"], "regression", ["context"])):
            words = [*words, f"data.label_field={field}", "data.validation=dev.jsonl", "load_best_model_at_end=true",
                     "save_strategy=epoch", "per_device_train_batch_size=12"]
            one = self.classify(field, *words, data="train.jsonl", steps=18)
            folder = self.folder / field
            config = json.loads((folder / "config.json").read_text())
            self.assertEqual(config["problem_type"], problem)
            self.assertEqual(len(config["id2label"]), 5 if field == "tags" else 1)
            wanted = lines(folder / "predictions.jsonl")
            self.assertLess(losses(folder)[-1], losses(folder)[0])
            for plan in shared:
                ranks, *more = plans[plan]
                with self.subTest(problem=problem, plan=plan):
                    other = self.classify(f"{field}-{plan}", *words, *more, ranks=ranks, data="train.jsonl", steps=18)
                    there = self.folder / f"{field}-{plan}"
                    self.assert_close(losses(there), losses(folder), 2e-5)
                    self.assertEqual(other.out, one.out)
                    found = lines(there / "predictions.jsonl")
                    self.assert_close([row["loss"] for row in found], [row["loss"] for row in wanted], 1e-4)
                    best = [json.loads((at / "trainer_state.json").read_text())["best_global_step"] for at in (there, folder)]
                    self.assertEqual(*best)
            # The folder contains its fields, sequence length and thresholds.
            report = json.loads(self.run_ok("eval", "--model", field, "--data", "dev.jsonl", "--json", "--output",
                                            f"{field}-report", "use_cpu=true").out)
            last = json.loads((folder / "eval_results.json").read_text())
            for name in ("eval_f1", "eval_hamming_loss") if field == "tags" else ("eval_loss", "eval_spearman"):
                self.assertAlmostEqual(report[name], last[name], delta=1e-6)
            page = (self.folder / f"{field}-report" / "report.html").read_text()
            self.assertNotRegex(page, r"<script|<link|<img|url\(http|src=")
            self.assertIn("Largest losses", page)
            row = json.loads(self.run_ok("predict", "--model", field, "--text", dev[0]["text"], "use_cpu=true").out)
            self.assertEqual(row["prediction"] if field == "tags" else round(row["prediction"], 4),
                             wanted[0]["prediction"] if field == "tags" else round(wanted[0]["prediction"], 4))

    def test_positive_label_and_selected_metrics(self):
        with (self.folder / "train.csv").open(newline="") as file:
            rows = [{"text": row["text"], "mood": "other" if row["label"] in ("praise", "request") else "asks"} for row in csv.DictReader(file)]
        (self.folder / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ["data.label_field=mood", "data.validation=two.jsonl", "per_device_train_batch_size=12", "task.thresholds=tuned",
                 "task.positive_label=asks", "task.metrics=[mcc,f1,roc_auc]", "task.save_scores=true", "metric_for_best_model=f1"]
        told = self.classify("asks", *words, data="two.jsonl")
        self.classify("asks-two", *words, data="two.jsonl", ranks=2, steps=14)
        results = json.loads((self.folder / "asks" / "eval_results.json").read_text())
        self.assertEqual([name for name in results if name not in ("epoch", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")],
                         ["eval_f1", "eval_loss", "eval_matthews_correlation", "eval_roc_auc"])
        self.assertRegex(told.err, r"eval_loss [\d.]+  (f1 [\d.]+  )?matthews_correlation -?[\d.]+")
        # By hand, of the answers' own file.
        answers = lines(self.folder / "asks" / "predictions.jsonl")
        self.assertEqual(list(answers[0]["probabilities"]), ["asks", "other"])
        right = sum(row["label"] == row["prediction"] == "asks" for row in answers)
        either = sum(row["label"] == "asks" for row in answers) + sum(row["prediction"] == "asks" for row in answers)
        self.assertAlmostEqual(results["eval_f1"], 2 * right / either, delta=1e-9)
        threshold = 1 - json.loads((self.folder / "asks" / "classification.json").read_text())["thresholds"][0]
        for row in answers:
            self.assertEqual(row["prediction"] == "asks", row["probabilities"]["asks"] > threshold, row)
        pairs = [(a["probabilities"]["asks"], b["probabilities"]["asks"]) for a in answers for b in answers if a["label"] == "asks" != b["label"]]
        self.assertAlmostEqual(results["eval_roc_auc"], sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs), delta=1e-9)
        # The folder contains its positive label.
        report = json.loads(self.run_ok("eval", "--model", "asks", "--data", "two.jsonl", "--json", "task.metrics=[f1,recall]", "use_cpu=true").out)
        self.assertAlmostEqual(report["eval_f1"], results["eval_f1"], delta=1e-6)
        self.assertNotIn("eval_accuracy", report)
        common = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=bad", "max_steps=1", "use_cpu=true"]
        self.assertIn("Did you mean 'asks'?", self.run_fails(2, *common, "data.train=two.jsonl", "data.label_field=mood", "task.positive_label=ask").err)
        self.assertIn("one of two labels", self.run_fails(2, *common, "data.train=train.csv", "task.positive_label=praise").err)
        told = self.run_fails(2, *common, "data.train=train.csv", "task.metrics=[acuracy]").err
        self.assertIn("Did you mean 'accuracy'?", told)
        told = self.run_fails(2, *common, "data.train=train.csv", "data.validation=dev.csv", "eval_strategy=epoch", "task.metrics=[f1]",
                              "metric_for_best_model=accuracy").err
        self.assertIn("it gives loss, f1", told)
        told = self.run_fails(2, *common, "task.type=language_modeling", "data.train=corpus/train.txt", "task.metrics=[f1]").err
        self.assertIn("task.metrics", told)

    @long
    def test_plans_of_classifiers_are_verified_and_estimated(self):
        verify = ["verify", "--model", "model.json", "use_cpu=true", "data.sequence_length=19", "--steps", 1, "--all"]
        for words, problem in ((["task.labels=[a,b,c]", "label_smoothing_factor=0.1"], "single_label_classification"),
                               (["data.label_field=[a,b,c]", "task.class_weights=balanced"], "multi_label_classification"),
                               (["task.problem_type=regression", "task.type=sequence_classification"], "regression")):
            for plan in (["parallel.tensor=2", "parallel.pipeline=2"], ["parallel.context=2", "parallel.data=2"]):
                table = self.run_ok(*verify, *words, *plan).out
                self.assertIn("equal within", table)
                self.assertIn(problem, table)
                self.assertIn("score.weight", table)
        estimate = ["estimate", "--model", "gpt2-xl", "--json", "training.bf16=true"]
        whole, head = (json.loads(self.run_ok(*estimate, *words).out)["stages"][0] for words in ([], ["task.labels=[a,b]"]))
        self.assertLess(head["logits"], whole["logits"] / 10)
        self.assertLess(head["activations"], 1.01 * whole["activations"])
        self.assertIn("data", self.run_ok("plan", "--model", "gpt2-xl", "--gpus", 8, "task.labels=[a,b]").out)

    @long
    def test_early_stopping(self):
        words = ["per_device_train_batch_size=12", "eval_strategy=steps", "eval_steps=2", "save_steps=2", "learning_rate=0",
                 "early_stopping_patience=3", "load_best_model_at_end=true", "metric_for_best_model=matthews_corrcoef",
                 "label_smoothing_factor=0.1", "save_total_limit=2"]
        result = self.classify("stopped", *words)
        self.assertIn("stopping early after step 8", result.err)
        self.assertEqual(len(losses(self.folder / "stopped")), 8)
        state = json.loads((self.folder / "stopped" / "trainer_state.json").read_text())
        self.assertEqual(state["best_global_step"], 2)
        # A resumed run continues the count of evaluations without improvement.
        self.classify("again", *words, steps=6)
        resumed = self.classify("again", *words, "resume_from_checkpoint=true")
        self.assertIn("stopping early after step 8", resumed.err)
        self.assertIn("early stopping ended the run", self.classify("again", *words, "resume_from_checkpoint=true").err)
        self.assert_close(losses(self.folder / "again")[:8], losses(self.folder / "stopped"), 1e-5)
        told = self.run_fails(2, "train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=train.csv",
                              "data.validation=dev.csv", "task.type=sequence_classification", "output_dir=no", "use_cpu=true",
                              "eval_strategy=epoch", "metric_for_best_model=acuracy").err
        self.assertIn("Did you mean 'accuracy'?", told)

    @long
    def test_bad_input_is_reported(self):
        (self.folder / "bad.csv").write_text("text,label\nx,praise\ny,prase\nz,\n")
        common = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=bad", "max_steps=1",
                  "use_cpu=true", "task.type=sequence_classification"]
        told = self.run_fails(4, *common, "data.train=train.csv", "data.validation=bad.csv").err
        self.assertIn("bad.csv, line 4", told)  # the label is missing
        (self.folder / "bad.csv").write_text("text,label\nx,praise\ny,prase\n")
        told = self.run_fails(4, *common, "data.train=train.csv", "data.validation=bad.csv").err
        self.assertIn("bad.csv, line 3: \"prase\". Did you mean 'praise'?", told)
        told = self.run_fails(4, *common, "data.train=train.csv", "data.label_field=labell").err
        self.assertIn("Did you mean 'label'?", told)
        self.assertIn("one label", self.run_fails(2, *common, "data.train=train.csv", "task.labels=[a]").err)
        self.assertIn("plain text", self.run_fails(2, *common, "data.train=corpus/train.txt").err)
        self.assertIn("has no classifier", self.run_fails(
            2, "predict", "--model", "model.json", "--text", "x", "use_cpu=true").err)
        self.assertIn("--input", self.run_fails(2, "predict", "--model", "model.json").err)
        (self.folder / "mixed.jsonl").write_text('{"text": "x", "label": ["a"]}\n{"text": "y", "label": "b"}\n{"text": "z", "label": "c"}\n')
        told = self.run_fails(4, *common, "data.train=mixed.jsonl").err
        self.assertIn("mixed.jsonl, line 1: [a]", told)
        (self.folder / "mixed.csv").write_text("text,label\nx,1.5\ny,two\nz,3\n")
        told = self.run_fails(4, *common, "data.train=mixed.csv").err
        self.assertIn("mixed.csv, line 3: \"two\"", told)
        told = self.run_fails(2, *common, "data.train=train.csv", "task.thresholds=tuned").err
        self.assertIn("two labels, or several labels per row", told)
        dry = self.run_ok(*common, "data.train=train.csv", "data.validation=dev.csv", "--dry-run").out
        self.assertIn("4 labels, 107 training rows, 41 validation rows", dry)


if __name__ == "__main__":
    unittest.main(verbosity=2)
