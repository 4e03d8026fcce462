"""BERT, RoBERTa and DistilBERT: masked language modelling and classification, with parallel plans, resuming, saving and loading."""

import json
import pathlib
import unittest

from encoders import BERT, DISTILBERT, ROBERTA, byte_pieces, word_pieces, write_folder
from harness import ProgramTest, long, losses

CONFIGS = {"bert": BERT, "distilbert": DISTILBERT, "roberta": ROBERTA}
PLANS = {
    "two": (2, "per_device_train_batch_size=3", "parallel.zero_stage=3"),
    "tensor": (2, "per_device_train_batch_size=6", "parallel.tensor=2", "parallel.sequence_parallel=true"),
    "pipeline": (2, "per_device_train_batch_size=3", "gradient_accumulation_steps=2", "parallel.pipeline=2"),
    "context": (2, "per_device_train_batch_size=6", "parallel.context=2", "parallel.recompute=full"),
}


class Encoders(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (cls.folder / "corpus" / "train.txt").read_text()
        labelled = (cls.folder / "corpus" / "labelled.csv").read_text()
        of_bytes = byte_pieces(json.loads((cls.folder / "tokenizer" / "tokenizer.json").read_text()))
        for family, config in CONFIGS.items():
            write_folder(cls.folder / family, config, of_bytes if family == "roberta" else word_pieces(text + labelled))

    def train_masked(self, output, *more, family="bert", ranks=1, steps=6):
        self.run_ok(
            "train", "--nproc", ranks, f"model.path={family}", "data.train=corpus/train.txt",
            "data.validation=corpus/validation.txt", "data.cache_dir=cache", "data.sequence_length=41",
            f"output_dir={output}", f"max_steps={steps}", "logging_steps=1", "learning_rate=1e-3", "use_cpu=true",
            "monitor.peak_tflops=1", *more)

    def evaluate(self, folder, *more):
        return json.loads(self.run_ok(
            "eval", "--model", folder, "--data", "corpus/validation.txt", "--json", "data.cache_dir=cache",
            "data.sequence_length=41", "use_cpu=true", *more).out)

    def test_masked_language_modelling_under_every_plan(self):
        for family in CONFIGS:
            self.train_masked(f"{family}-one", "per_device_train_batch_size=6", family=family)
            one = losses(self.folder / f"{family}-one")
            for name, (ranks, *words) in PLANS.items():
                if family == "bert" or name == "tensor":
                    with self.subTest(family=family, plan=name):
                        self.train_masked(f"{family}-{name}", *words, family=family, ranks=ranks)
                        self.assert_close(losses(self.folder / f"{family}-{name}"), one, 2e-5)
            saved = json.loads((self.folder / f"{family}-one" / "config.json").read_text())
            self.assertEqual(saved["architectures"], CONFIGS[family]["architectures"])

    def test_packed_and_single_documents(self):
        for packing in ("documents", "none"):
            words = [f"data.packing={packing}", "data.text_documents=line"]
            self.train_masked(f"{packing}-one", "per_device_train_batch_size=6", *words, steps=3)
            self.train_masked(f"{packing}-context", "per_device_train_batch_size=3", "gradient_accumulation_steps=2",
                              "parallel.context=2", *words, ranks=2, steps=3)
            self.assert_close(losses(self.folder / f"{packing}-context"), losses(self.folder / f"{packing}-one"), 2e-5)

    @long
    def test_learns_resumes_and_is_evaluated(self):
        self.train_masked("whole", "per_device_train_batch_size=16", "save_steps=30", "task.type=masked_lm", steps=60)
        self.train_masked("resumed", "per_device_train_batch_size=16", "resume_from_checkpoint=whole/checkpoint-30", steps=60)
        self.assertEqual(losses(self.folder / "resumed")[-30:], losses(self.folder / "whole")[-30:])
        self.train_masked("start", "per_device_train_batch_size=16", "learning_rate=1e-9", steps=1)
        before, after = self.evaluate("start"), self.evaluate("whole")
        self.assertLess(after["eval_loss"], before["eval_loss"] - 0.5)
        self.assertEqual(after["eval_tokens"], before["eval_tokens"])  # the same tokens are masked
        for plan in (["parallel.tensor=2"], ["parallel.context=2"], []):
            shared = self.evaluate("whole", "--nproc", 2, *plan)
            self.assertAlmostEqual(shared["eval_loss"], after["eval_loss"], places=5)
            self.assertEqual(shared["eval_tokens"], after["eval_tokens"])
        # A different share masks different tokens. The share cannot change within a run.
        self.assertGreater(self.evaluate("whole", "data.mlm_probability=0.4")["eval_tokens"], 2 * after["eval_tokens"])
        failed = self.run_fails(
            2, "train", "model.path=bert", "data.train=corpus/train.txt", "data.mlm_probability=1.5", "output_dir=no")
        self.assertIn("data.mlm_probability", failed.err)

    def test_whole_word_masking(self):
        # In this vocabulary most words are a first letter and continuation pieces.
        write_folder(self.folder / "letters", BERT, word_pieces((self.folder / "corpus" / "train.txt").read_text(), words=9))
        words = ["data.whole_word_mask=true"]
        self.train_masked("letters-one", "per_device_train_batch_size=6", *words, family="letters", steps=3)
        self.train_masked("letters-two", "per_device_train_batch_size=3", "parallel.zero_stage=1", *words, family="letters",
                          ranks=2, steps=3)
        self.assert_close(losses(self.folder / "letters-two"), losses(self.folder / "letters-one"), 2e-5)
        by_tokens, by_words = self.evaluate("letters-one"), self.evaluate("letters-one", *words)
        self.assertNotEqual(by_words["eval_tokens"], by_tokens["eval_tokens"])
        self.assertAlmostEqual(by_words["eval_tokens"] / by_tokens["eval_tokens"], 1, delta=0.3)

    def classify(self, family, output, *more, ranks=1, steps=8):
        return self.run_ok(
            "train", "--nproc", ranks, f"model.path={family}", "task.type=sequence_classification",
            "data.train=corpus/labelled.csv", "data.validation=corpus/labelled_validation.csv", "data.sequence_length=41",
            "data.cache_dir=cache", f"output_dir={output}", f"max_steps={steps}", "logging_steps=1", "learning_rate=2e-3",
            "monitor.peak_tflops=1", "use_cpu=true", *more)

    @long
    def test_new_head_on_an_encoder_without_one(self):
        self.train_masked("body", "per_device_train_batch_size=6")
        self.classify("body", "one", "per_device_train_batch_size=6")
        for name, (ranks, *words) in PLANS.items():
            with self.subTest(plan=name):
                self.classify("body", f"classes-{name}", *words, ranks=ranks)
                self.assert_close(losses(self.folder / f"classes-{name}"), losses(self.folder / "one"), 2e-5)
        config = json.loads((self.folder / "one" / "config.json").read_text())
        self.assertEqual(config["architectures"], ["BertForSequenceClassification"])
        words = ["--data", "corpus/labelled_validation.csv", "data.sequence_length=41", "data.cache_dir=cache", "use_cpu=true"]
        report = json.loads(self.run_ok("eval", "--model", "one", "--json", *words).out)
        again = json.loads(self.run_ok("eval", "--model", "one", "--nproc", 2, "parallel.context=2", "--json", *words).out)
        self.assertAlmostEqual(report["eval_loss"], again["eval_loss"], places=5)
        answer = self.run_ok("predict", "--model", "one", "--text", "It is light, and it never broke.", "use_cpu=true")
        self.assertIn("prediction", answer.out)
        self.assertIn("cannot continue one", self.run_fails(2, "generate", "--model", "one", "--prompt", "It").err)

    @long
    def test_pairs_have_segment_ids(self):
        rows = [{"text": f"a {i}", "pair": f"b {i * 7 % 5}", "label": i % 2} for i in range(24)]
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for family in ("bert", "roberta"):
            for plan, (ranks, *words) in {"one": (1, "per_device_train_batch_size=6"), **PLANS}.items():
                self.run_ok("train", "--nproc", ranks, f"model.path={family}", "data.text_pair_field=pair",
                            "data.train=pairs.jsonl", "data.sequence_length=12", "data.cache_dir=cache", "max_steps=4",
                            f"output_dir=pairs-{family}-{plan}", "logging_steps=1", "learning_rate=2e-3", "use_cpu=true",
                            "monitor.peak_tflops=1", *words)
                self.assert_close(losses(self.folder / f"pairs-{family}-{plan}"),
                                  losses(self.folder / f"pairs-{family}-one"), 2e-5)

    @long
    def test_adapters_verification_and_estimates(self):
        self.classify("distilbert", "adapted", "per_device_train_batch_size=6", "lora.r=4", "parallel.tensor=2", ranks=2)
        self.assertTrue((self.folder / "adapted" / "adapter_config.json").exists())
        self.assertIn("q_lin", (self.folder / "adapted" / "adapter_config.json").read_text())
        for family in CONFIGS:
            for words in (["parallel.tensor=2"], ["parallel.context=2", "data.packing=documents"], ["task.labels=[a,b,c]"]):
                self.run_ok("verify", "--nproc", 2, f"model.path={family}", "data.sequence_length=21", "use_cpu=true", *words)
        self.run_ok("estimate", "model.path=roberta", "data.sequence_length=64")
        self.run_ok("plan", "model.path=distilbert", "data.sequence_length=64")

    @long
    def test_invalid_settings_are_refused(self):
        for words, told in (
                (["model.path=bert", "task.type=language_modeling"], "task.type=masked_lm"),
                (["model.path=model.json", "tokenizer.path=tokenizer", "task.type=masked_lm"], "decoder"),
                (["model.path=bert", "tokenizer.path=tokenizer"], "mask_token"),
                (["model.path=bert", "data.sequence_length=65"], "64"),
                (["model.path=roberta", "data.sequence_length=65"], "64"),
                (["model.path=bert", "task.type=preference"], "bert")):
            with self.subTest(told=told, words=words):
                failed = self.run_fails(
                    2, "train", "data.train=corpus/train.txt", "output_dir=no", "use_cpu=true", "max_steps=1", *words)
                self.assertIn(told, failed.err)
        for key, value in (("is_decoder", True), ("position_embedding_type", "relative_key")):
            folder = pathlib.Path(self.folder / f"odd-{key}.json")
            folder.write_text(json.dumps({**BERT, "vocab_size": 90, key: value}))
            failed = self.run_fails(4, "train", f"model.path={folder}", "tokenizer.path=bert", "data.train=corpus/train.txt",
                                    "output_dir=no", "use_cpu=true")
            self.assertIn(key, failed.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
