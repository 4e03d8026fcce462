"""Preference tuning from pairs to a tuned model: every plan gives the losses and metrics of one rank, reference scores are cached, a resumed
run continues exactly, and invalid rows are reported by line."""

import json
import unittest

from harness import CONFIG, ProgramTest, judged_pairs, long, losses, metrics

NAMES = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
         "logps/rejected"]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Preference(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        pairs = judged_pairs(cls.folder)
        # No batch size divides the numbers of rows.
        write_lines(cls.folder / "pairs.jsonl", pairs[:23])
        write_lines(cls.folder / "dev.jsonl", pairs[23:30])
        write_lines(cls.folder / "judged.jsonl", [
            {"prompt": pair["prompt"], "completion": pair["chosen" if i % 3 else "rejected"], "label": i % 3 > 0}
            for i, pair in enumerate(pairs[:31])])
        write_lines(cls.folder / "judged_dev.jsonl", [
            {"prompt": pair["prompt"], "completion": pair["rejected" if i % 2 else "chosen"], "label": i % 2 == 0}
            for i, pair in enumerate(pairs[23:30])])
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "attn_pdrop": 0.1}))

    def tune(self, output, *more, ranks=1, data="pairs.jsonl", dev="dev.jsonl", cache="cache"):
        return self.run_ok(
            "train", "--nproc", ranks, "model.path=model.json", "tokenizer.path=tokenizer", "task.type=preference",
            f"data.train={data}", f"data.validation={dev}", "data.sequence_length=48", f"data.cache_dir={cache}",
            f"output_dir={output}", "max_steps=6", "eval_strategy=steps", "eval_steps=3", "logging_steps=1",
            "learning_rate=1e-2", "lr_scheduler_type=constant", "monitor.peak_tflops=1", "use_cpu=true", *more)

    def assert_alike(self, found, wanted, names):
        lines, others = metrics(self.folder / found), metrics(self.folder / wanted)
        for prefix, names_of in (("", names), ("eval_", [name for name in names if name != "grad_norm"])):
            for name in names_of:
                values = [line[prefix + name] for line in lines if prefix + name in line]
                self.assertGreater(len(values), 1, prefix + name)
                expected = [line[prefix + name] for line in others if prefix + name in line]
                # Log-probabilities of whole answers are tens, so their tolerance is 1e-5 of their size.
                self.assert_close(values, expected, max(5e-5, 1e-5 * max(map(abs, expected))))

    @long
    def test_pairs_are_tuned_alike_under_every_plan(self):
        first = self.tune("one", "per_device_train_batch_size=6")
        self.assertIn("scored 48 answers with the reference", first.err)
        start = metrics(self.folder / "one")[0]
        self.assertAlmostEqual(start["loss"], 0.693147, delta=1e-5)  # the model equals its reference
        self.assertLess(min(losses(self.folder / "one")), 0.65)
        plans = {
            "two": (2, "per_device_train_batch_size=3", "parallel.zero_stage=3"),
            "both": (2, "per_device_train_batch_size=3", "gradient_accumulation_steps=2", "parallel.pipeline=2"),
            "context": (2, "per_device_train_batch_size=6", "parallel.context=2"),
            "unpacked": (1, "per_device_train_batch_size=6", "data.packing=none"),
        }
        for name, (ranks, *words) in plans.items():
            with self.subTest(plan=name):
                result = self.tune(name, *words, ranks=ranks, cache=f"cache_{name}")
                self.assertIn("scored 48 answers with the reference", result.err)
                self.assert_alike(name, "one", NAMES)

    def test_single_answers_on_any_plan(self):
        words = ["preference.objective=kto", "preference.desirable_weight=3"]
        options = {"data": "judged.jsonl", "dev": "judged_dev.jsonl"}
        self.tune("kto", *words, "per_device_train_batch_size=8", **options)
        self.assertGreater(max(line.get("kl", 0) for line in metrics(self.folder / "kto")), 0.1)
        self.tune("kto_two", *words, "per_device_train_batch_size=2", "gradient_accumulation_steps=2", ranks=2, **options)
        self.tune("kto_tensor", *words, "per_device_train_batch_size=4", "gradient_accumulation_steps=2", "parallel.tensor=2",
                  ranks=2, cache="cache_tensor", **options)
        self.tune("kto_unpacked", *words, "per_device_train_batch_size=8", "data.packing=none", **options)
        for name in ("kto_two", "kto_tensor", "kto_unpacked"):
            self.assert_alike(name, "kto", ["loss", "grad_norm", "kl", "rewards/chosen", "logps/rejected"])

    def test_unneeded_reference_is_not_scored(self):
        words = ["preference.objective=orpo", "preference.beta=0.3"]
        result = self.tune("orpo", *words, "per_device_train_batch_size=6", cache="cache_orpo")
        self.assertNotIn("reference, the initial model", result.err)
        self.assertEqual(list((self.folder / "cache_orpo").glob("*.scores")), [])
        self.tune("orpo_two", *words, "per_device_train_batch_size=3", "parallel.context=2", "gradient_accumulation_steps=2",
                  ranks=2, cache="cache_orpo")
        self.assert_alike("orpo_two", "orpo", [*NAMES, "nll_loss", "log_odds_ratio", "log_odds_chosen"])

    def test_a_reward_model_is_a_classifier_of_one_class(self):
        words = ["task.type=reward_model", "preference.center_rewards_coefficient=0.01", "learning_rate=1e-3"]
        self.tune("reward", *words, "per_device_train_batch_size=6")
        self.tune("reward_two", *words, "per_device_train_batch_size=3", "parallel.tensor=2", "gradient_accumulation_steps=2",
                  ranks=2)
        self.assert_alike("reward_two", "reward", ["loss", "grad_norm", "accuracy", "margin", "mean_reward"])
        config = json.loads((self.folder / "reward" / "config.json").read_text())
        self.assertEqual((config["architectures"], config["id2label"]), (["GPT2ForSequenceClassification"], {"0": "LABEL_0"}))
        self.tune("reward_on", *words, "model.path=reward", "max_steps=1")
        told = json.loads(self.run_ok("predict", "--model", "reward", "--text", "x", "use_cpu=true").out)
        self.assertIsInstance(told["prediction"], float)
        measure = ["eval", "--data", "dev.jsonl", "--json", "data.sequence_length=48", "data.cache_dir=cache", "use_cpu=true"]
        found = json.loads(self.run_ok(*measure, "--model", "reward", *words[:2]).out)
        wanted = [line for line in metrics(self.folder / "reward") if "eval_accuracy" in line][-1]
        for name in ("eval_loss", "eval_accuracy", "eval_margin", "eval_mean_reward"):
            self.assertAlmostEqual(found[name], wanted[name], delta=1e-5)

    def test_eval_measures_preferences(self):
        self.tune("simpo", "preference.objective=simpo")
        measure = ["eval", "--model", "simpo", "--data", "dev.jsonl", "--json", "data.sequence_length=48", "data.cache_dir=cache",
                   "use_cpu=true", "task.type=preference"]
        found = json.loads(self.run_ok(*measure, "preference.objective=simpo").out)
        wanted = [line for line in metrics(self.folder / "simpo") if "eval_loss" in line][-1]
        for name in ("eval_loss", "eval_rewards/margins", "eval_logps/chosen"):
            self.assertAlmostEqual(found[name], wanted[name], delta=1e-5)
        self.assertIn("compares with the model at the start of training", self.run_fails(2, *measure).err)
        self.assertIn("has no reward head", self.run_fails(2, *measure[:-1], "task.type=reward_model").err)

    def test_an_estimate_counts_both_rows_of_a_pair(self):
        def estimate(*words):
            return json.loads(self.run_ok("estimate", "--model", "gpt2", "--gpu", "a100-40gb", "--json", *words).out)

        pairs = estimate("task.type=preference", "per_device_train_batch_size=2")
        self.assertEqual(pairs, estimate("per_device_train_batch_size=4"))
        self.assertNotEqual(pairs, estimate("per_device_train_batch_size=2"))
        self.assertEqual(estimate("task.type=preference", "preference.objective=kto"), estimate())

    @long
    def test_verify_compares_what_is_trained(self):
        for words in (["task.type=preference"], ["task.type=preference", "preference.objective=orpo"],
                      ["task.type=preference", "preference.objective=kto"], ["task.type=reward_model"]):
            out = self.run_ok("verify", "--model", "model.json", "--nproc", 2, "parallel.context=2", "data.sequence_length=13",
                              "use_cpu=true", *words).out
            self.assertIn("equal within", out)

    def test_resume_is_exact(self):
        words = ["per_device_train_batch_size=5", "save_steps=3", "preference.objective=ipo"]
        self.tune("whole", *words, cache="cache_resumed")
        self.tune("parts", *words, "max_steps=3", cache="cache_resumed")
        score_files = list((self.folder / "cache_resumed").glob("*.scores"))
        self.assertEqual(len(score_files), 1)
        score_files[0].write_text("not scores")  # the scores are recomputed with the initial model
        result = self.tune("parts", *words, "resume_from_checkpoint=true", cache="cache_resumed")
        self.assertIn("does not contain the reference scores", result.err)
        self.assertEqual(losses(self.folder / "parts"), losses(self.folder / "whole"))
        result = self.tune("again", *words, cache="cache_resumed")
        self.assertIn("read 48 reference scores from", result.err)
        self.assertEqual(losses(self.folder / "again"), losses(self.folder / "whole"))

    @long
    def test_bad_rows_are_named(self):
        bad = self.folder / "bad.jsonl"
        common = ["train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=bad", "max_steps=1", "use_cpu=true",
                  "task.type=preference", "data.train=bad.jsonl", "data.cache_dir=cache"]
        good = {"prompt": "a", "chosen": " b", "rejected": " c"}
        for rows, words in (
            ([good, {"prompt": "a", "chosen": "b", "reject": "c"}], ["bad.jsonl, line 2", "Did you mean 'reject'?"]),
            ([good, {**good, "rejected": " b"}], ["1 row with equal chosen and rejected answers", "bad.jsonl, line 2"]),
            ([{**good, "chosen": ""}], ["empty answer", "bad.jsonl, line 1"]),
            ([{"chosen": [{"role": "user", "content": "x"}], "rejected": []}], ["the tokenizer has no chat template", "data.chat_template"]),
            ([{**good, "prompt": "word " * 900}], ["data.sequence_length=64"]),
        ):
            write_lines(bad, rows)
            told = self.run_fails(4, *common).err
            for word in words:
                self.assertIn(word, told)
        write_lines(bad, [good])
        self.assertIn("not a loss of preference.objective=cpo", self.run_fails(
            2, *common, "preference.objective=cpo", "preference.loss_type=robust").err)
        self.assertIn("dpo uses beta, loss_type, label_smoothing, reference_free", self.run_fails(2, *common, "preference.desirable_weight=2").err)
        told = self.run_fails(2, *common, "task.type=reward_model", "preference.beta=0.2").err
        self.assertIn("a reward model uses center_rewards_coefficient", told)
        write_lines(self.folder / "one.jsonl", [{"prompt": "a", "completion": "b", "label": True}])
        self.assertIn("only one row", self.run_fails(
            4, *common, "data.train=one.jsonl", "preference.objective=kto").err)
        dry = self.run_ok(*common, "--dry-run").out
        self.assertIn("preference.objective=dpo, loss sigmoid: 1 training pairs", dry)


if __name__ == "__main__":
    unittest.main(verbosity=2)
