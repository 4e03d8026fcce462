"""Generative classification: a language model writes the label. The report is the same on any number of ranks, in eval and in predict."""

import json
import unittest

from harness import ProgramTest, long, losses

REPORT = ["classification_report.txt", "classification_report.json", "confusion_matrix.csv", "predict_results.txt"]


class Generative(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = (cls.folder / "corpus" / "labelled.csv").read_text().splitlines()
        (cls.folder / "train.csv").write_text("\n".join(rows[:121]) + "\n")
        (cls.folder / "test.csv").write_text("\n".join(rows[:1] + rows[121:142]) + "\n")  # 21 rows: no batch size divides them

    def words(self, output, *more, steps=12):
        return ["train", "task.type=generative_classification", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=train.csv",
                "data.validation=test.csv", "data.sequence_length=48", f"output_dir={output}", f"max_steps={steps}", "logging_steps=1",
                "learning_rate=3e-3", "use_cpu=true", *more]

    def report(self, folder):
        return [(self.folder / folder / name).read_text() for name in REPORT]

    def scores(self, folder, name="predictions.jsonl"):
        return [json.loads(line) for line in (self.folder / folder / name).read_text().splitlines()]

    @long
    def test_same_report_on_any_ranks_and_plans(self):
        self.run_ok(*self.words("one", "per_device_train_batch_size=12", "eval_strategy=steps", "eval_steps=6", "save_strategy=steps", "save_steps=6",
                                "load_best_model_at_end=true", "metric_for_best_model=accuracy"))
        first = self.scores("one")
        self.assertEqual(len(first), 21)
        results = json.loads((self.folder / "one" / "eval_results.json").read_text())
        self.assertGreaterEqual(results["eval_accuracy"], 0.25)
        self.assertTrue((self.folder / "one" / "report.html").exists())
        self.assertIn("generative", json.loads((self.folder / "one" / "classification.json").read_text()))
        for ranks, batch, *plan in ((2, 6), (3, 4), (2, 12, "parallel.tensor=2"), (2, 12, "parallel.pipeline=2"), (2, 6, "parallel.zero_stage=3"),
                                    (2, 12, "parallel.context=2")):
            name = f"on-{ranks}-" + plan[0].replace("=", "-") if plan else f"on-{ranks}"
            self.run_ok(*self.words(name, f"per_device_train_batch_size={batch}", *plan, "eval_strategy=steps", "eval_steps=6", "save_strategy=steps",
                                    "save_steps=6", "load_best_model_at_end=true", "metric_for_best_model=accuracy"), "--nproc", ranks)
            self.assert_close(losses(self.folder / "one"), losses(self.folder / name), 1e-5)
            self.assertEqual(self.report("one"), self.report(name))
            for a, b in zip(first, self.scores(name)):
                self.assertEqual(a["prediction"], b["prediction"])
                self.assertAlmostEqual(a["probability"], b["probability"], delta=1e-4)
        # Evaluating the saved model gives the same report and predictions.
        self.run_ok("eval", "--model", "one", "--data", "test.csv", "--output", "evaluated", "use_cpu=true")
        self.assertEqual(self.report("one"), self.report("evaluated"))
        self.run_ok("predict", "--model", "one", "--input", "test.csv", "--output", "answers.jsonl", "--nproc", "2", "use_cpu=true")
        answers = self.scores(".", "answers.jsonl")
        self.assertEqual([row["prediction"] for row in answers], [row["prediction"] for row in first])
        labels = {"praise", "complaint", "question", "request"}
        self.assertEqual(set(answers[0]["probabilities"]), labels)
        self.assertAlmostEqual(sum(answers[0]["probabilities"].values()), 1, places=5)
        one = json.loads(self.run_ok("predict", "--model", "one", "--text", "Where is it?", "use_cpu=true").out)
        self.assertIn(one["prediction"], labels)

    @long
    def test_greedy_decoding_on_any_plan(self):
        # Labels with common first words form one tree.
        words = ["task.labels=[complaint,praise,question,request]", "generative.decode=greedy", "per_device_train_batch_size=12",
                 "generative.verbalizers=[it is bad,it is very good,it is a question,a request]"]
        self.run_ok(*self.words("greedy", *words, "eval_strategy=steps", "eval_steps=6"))
        first = self.scores("greedy")
        self.assertEqual(len(first), 21)
        for ranks, *plan in ((2, "parallel.tensor=2"), (2, "parallel.pipeline=2"), (3, "parallel.zero_stage=3"), (2, "parallel.context=2")):
            name = "greedy-" + plan[0].replace("=", "-")
            batch = "per_device_train_batch_size=4" if ranks == 3 else words[2]
            self.run_ok(*self.words(name, *words, batch, *plan, "eval_strategy=steps", "eval_steps=6"), "--nproc", ranks)
            self.assertEqual(self.report("greedy"), self.report(name))
            for a, b in zip(first, self.scores(name)):
                self.assertAlmostEqual(a["probability"], b["probability"], delta=1e-4)
        # The folder contains its decoding method; another method can be requested, here the label of the highest total probability.
        self.run_ok("eval", "--model", "greedy", "--data", "test.csv", "--output", "as-trained", "use_cpu=true")
        self.assertEqual(self.report("greedy"), self.report("as-trained"))
        self.run_ok("eval", "--model", "greedy", "--data", "test.csv", "--output", "otherwise", "generative.decode=likelihood", "use_cpu=true")
        answers = [[row["probability"] for row in self.scores(name)] for name in ("as-trained", "otherwise")]
        self.assertNotEqual(*answers)
        told = self.run_fails(2, *self.words("none", *words, "generative.normalize=token")).err
        self.assertIn("generative.decode=greedy", told)

    @long
    def test_adapters_and_verbalizers(self):
        self.run_ok(*self.words("base", "per_device_train_batch_size=8", steps=2))
        words = ["model.path=base", "lora.r=4", "lora.lora_alpha=8", "task.labels=[complaint,praise,question,request]",
                 "generative.verbalizers=[bad,good,what,please]", "generative.prompt_template='Review: {text}\\nIt is: {label}'",
                 "generative.normalize=token"]
        self.run_ok(*self.words("adapter", "per_device_train_batch_size=8", "task.calibration=temperature", *words))
        self.run_ok("eval", "--model", "base", "--adapter", "adapter", "--data", "test.csv", "--output", "adapted", "use_cpu=true")
        self.assertEqual(self.report("adapter"), self.report("adapted"))
        # Probabilities are calibrated too: the temperature minimizes the log loss.
        temperature = json.loads((self.folder / "adapter" / "classification.json").read_text())["temperature"]
        self.assertNotAlmostEqual(temperature, 1, delta=1e-4)
        for a, b in zip(self.scores("adapter"), self.scores("adapted")):
            self.assertAlmostEqual(a["probability"], b["probability"], delta=1e-5)
        loss = json.loads((self.folder / "adapter" / "eval_results.json").read_text())["eval_log_loss"]
        self.run_ok(*self.words("ordinary", "per_device_train_batch_size=8", *words))
        self.assertLess(loss, json.loads((self.folder / "ordinary" / "eval_results.json").read_text())["eval_log_loss"])

    @long
    def test_label_as_chat_answer(self):
        (self.folder / "chat.jinja").write_text(
            "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}{% if message['role'] == 'assistant' %}"
            "{{ eos_token }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}")
        words = ["generative.chat=true", "data.chat_template=chat.jinja", "per_device_train_batch_size=12", "data.sequence_length=64",
                 "generative.prompt_template='What is it? {text}{label}'"]
        self.run_ok(*self.words("chat", *words))
        self.run_ok(*self.words("chat-two", *words, "per_device_train_batch_size=6"), "--nproc", 2)
        self.assert_close(losses(self.folder / "chat"), losses(self.folder / "chat-two"), 1e-5)
        self.assertEqual(self.report("chat"), self.report("chat-two"))
        # The folder contains the template and uses it.
        self.run_ok("eval", "--model", "chat", "--data", "test.csv", "--output", "chat-again", "use_cpu=true")
        self.assertEqual(self.report("chat"), self.report("chat-again"))
        self.assertTrue(json.loads((self.folder / "chat" / "classification.json").read_text())["generative"]["chat"])
        told = self.run_fails(2, *self.words("none", "generative.chat=true", "per_device_train_batch_size=2")).err
        self.assertIn("the tokenizer has no chat template", told)

    @long
    def test_calibrated_scores_and_first_token_scores(self):
        words = ["task.labels=[complaint,praise,question,request]", "generative.verbalizers=[bad,good,what,please]", "per_device_train_batch_size=12"]
        self.run_ok(*self.words("plain", *words))
        self.run_ok(*self.words("prior", *words, "generative.normalize=prior"))
        self.assertEqual(losses(self.folder / "prior"), losses(self.folder / "plain"))
        texts = ["Where is it?", ""]
        text, empty = ([json.loads(self.run_ok("predict", "--model", "plain", "--text", each, "use_cpu=true").out) for each in texts])
        less = {label: p / empty["probabilities"][label] for label, p in text["probabilities"].items()}
        found = json.loads(self.run_ok("predict", "--model", "prior", "--text", texts[0], "use_cpu=true").out)["probabilities"]
        for label, share in less.items():
            self.assertAlmostEqual(found[label], share / sum(less.values()), delta=1e-5)
        self.assertNotAlmostEqual(found["praise"], text["probabilities"]["praise"], delta=1e-4)
        self.run_ok(*self.words("prior-pipe", *words, "generative.normalize=prior", "parallel.pipeline=2"), "--nproc", 2)
        self.assertEqual(self.report("prior"), self.report("prior-pipe"))
        # Scores only the first token of each label.
        self.run_ok("eval", "--model", "plain", "--data", "test.csv", "--output", "first", "generative.decode=first_token", "use_cpu=true")
        self.run_ok("eval", "--nproc", 2, "--model", "plain", "--data", "test.csv", "--output", "first-tensor", "generative.decode=first_token",
                    "parallel.tensor=2", "use_cpu=true")
        self.assertEqual(self.report("first"), self.report("first-tensor"))
        answers = [[row["probability"] for row in self.scores(name)] for name in ("first", "plain")]
        self.assertNotEqual(*answers)
        told = self.run_fails(2, *self.words("none", words[0], "generative.verbalizers=[it is bad,good,what,it is]", "generative.decode=first_token")).err
        self.assertIn('"it is bad" and "it is" start with the same token', told)
        # The prompt can be included in the loss.
        self.run_ok(*self.words("whole", *words, "generative.prompt_loss=true"))
        self.assertNotAlmostEqual(losses(self.folder / "whole")[0], losses(self.folder / "plain")[0], delta=1e-3)
        self.assertLess(losses(self.folder / "whole")[-1], losses(self.folder / "whole")[0])

    @long
    def test_invalid_settings_fail_before_training(self):
        def told(*more, code=2):
            return self.run_fails(code, *self.words("none", "per_device_train_batch_size=2", *more)).err

        self.assertIn("must be at the end", told("generative.prompt_template='{label} is {text}'"))
        self.assertIn("unknown field {txt}", told("generative.prompt_template='{txt}: {label}'"))
        self.assertIn("4 labels", told("generative.verbalizers=[a,b]", "task.labels=[complaint,praise,question,request]"))
        self.assertIn("has the same tokens as another label", told("generative.verbalizers=[a,a,b,c]", "task.labels=[complaint,praise,question,request]"))
        self.assertIn("raise data.sequence_length", told("data.sequence_length=8"))
        self.assertIn("generative classification has one label per row", told("task.problem_type=regression"))
        self.assertIn("task.thresholds", told("task.thresholds=tuned"))
        self.assertIn("requires validation data", told("task.calibration=temperature", "data.validation=[]"))
        self.assertIn("concatenation would cut off labels", told("data.packing=concatenate"))
        (self.folder / "odd.csv").write_text("text,label\nfine,unheard\n")
        self.assertIn("odd.csv, line 2", told("data.validation=odd.csv", code=4))


if __name__ == "__main__":
    unittest.main()
