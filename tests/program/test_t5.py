"""T5: an encoder-decoder trained on pairs, with resuming, evaluation, generation and parallel plans."""

import json
import random
import unittest

from encoders import T5 as CLASSIFIED, ended_pieces, write_folder
from harness import ProgramTest, long, losses

T5 = {
    "model_type": "t5", "vocab_size": 512, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2,
    "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "dropout_rate": 0.1,
    "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 0,
}


def write_pairs(path, count, seed):
    numbers = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(count):
            words = [numbers.choice("abcdefgh") for _ in range(numbers.randrange(2, 7))]
            file.write(json.dumps({"source": " ".join(words), "target": " ".join(reversed(words))}) + "\n")


class T5Test(ProgramTest):
    PAIRS = ["data.prompt=pairs", "data.instruction_field=source", "data.output_field=target"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "t5.json").write_text(json.dumps(T5))
        write_pairs(cls.folder / "pairs.jsonl", 60, 1)
        write_pairs(cls.folder / "held_out.jsonl", 17, 2)

    def train_t5(self, output, *more, ranks=1, steps=6):
        self.run_ok(
            *self.train_arguments(output, ranks=ranks, steps=steps), "model.path=t5.json", "data.train=pairs.jsonl",
            "data.validation=held_out.jsonl", *self.PAIRS, *more)

    @long
    def test_trains_resumes_evaluates_and_answers(self):
        self.train_t5("whole", "save_steps=3", "per_device_train_batch_size=4", steps=6)
        self.train_t5(
            "resumed", "per_device_train_batch_size=4", "resume_from_checkpoint=whole/checkpoint-3", steps=6)
        self.assertEqual(losses(self.folder / "resumed")[-3:], losses(self.folder / "whole")[-3:])
        evaluate = ["eval", "--model", "whole", "--data", "held_out.jsonl", *self.PAIRS, "--json", "data.cache_dir=cache",
                    "data.sequence_length=32", "use_cpu=true"]
        told = json.loads(self.run_ok(*evaluate).out)
        self.assertEqual(told["eval_samples"], 17)
        self.assertGreater(told["eval_loss"], 0)
        for plan in (["parallel.tensor=2", "parallel.sequence_parallel=true"], ["parallel.context=2"]):
            shared = json.loads(self.run_ok(*evaluate, "--nproc", 2, *plan).out)
            self.assertAlmostEqual(shared["eval_loss"], told["eval_loss"], places=5)
            self.assertEqual(shared["eval_tokens"], told["eval_tokens"])
        generate = ["generate", "--model", "whole", "--prompt", "12 34", "--max-new-tokens", 5, "--device-map", "cpu"]
        answer = self.run_ok(*generate)
        self.assertFalse(answer.out.startswith("12 34"), answer)  # the output contains only the answer
        self.assertTrue(answer.out.endswith("\n"))
        self.assertEqual(self.run_ok(*generate, "--tensor", 2).out, answer.out)

    def test_plans_give_the_losses_of_one_rank(self):
        batch = "per_device_train_batch_size=4"
        self.train_t5("one", batch, "gradient_accumulation_steps=2")
        plans = {
            "zero": (2, ["parallel.zero_stage=3", "per_device_train_batch_size=2", "gradient_accumulation_steps=2"]),
            "stages": (3, ["parallel.pipeline=3", batch, "gradient_accumulation_steps=2"]),
            "tensor": (2, ["parallel.tensor=2", batch, "gradient_accumulation_steps=2"]),
            "context": (2, ["parallel.context=2", batch, "gradient_accumulation_steps=2"]),
        }
        for name, (ranks, plan) in plans.items():
            self.train_t5(name, *plan, ranks=ranks)
            self.assert_close(losses(self.folder / name), losses(self.folder / "one"), 1e-5)

    def test_predicted_and_measured_memory(self):
        table = self.run_ok("estimate", "--model", "t5.json", "--gpu", "cpu", "parallel.pipeline=2",
                            "data.sequence_length=32").out
        self.assertIn("a source of 32 and a target of 33", table)
        self.run_ok("plan", "--model", "t5.json", "--gpu", "cpu", "--gpus", 2, "--global-batch", 8,
                    "data.sequence_length=32", "parallel.pipeline=2", "--write", "plan.yaml")
        self.assertIn("sequence_length: 32", (self.folder / "plan.yaml").read_text())
        done = self.run_ok(
            "train", "-c", "plan.yaml", "--nproc", 2, "model.path=t5.json", "tokenizer.path=tokenizer", "use_cpu=true",
            "data.train=pairs.jsonl", *self.PAIRS, "max_steps=3", "output_dir=planned", "save_strategy=no", "log_level=debug")
        text = done.out + done.err
        self.assertRegex(text, r"predicted memory: \d+ MiB per rank \([\d.]+ \wiB free\)")
        self.assertRegex(text, r"predicted .*\d+ MiB per rank, measured \d+ MiB \([+-][\d.]+%\)")

    def test_a_classifier_is_trained_saved_and_asked(self):
        write_folder(self.folder / "t5", CLASSIFIED, ended_pieces(json.loads((self.folder / "tokenizer" / "tokenizer.json").read_text())))
        words = ["data.train='corpus/labelled.csv[:61]'", "data.validation='corpus/labelled.csv[61:98]'", "data.sequence_length=40", "max_steps=4",
                 "logging_steps=1", "learning_rate=1e-3", "use_cpu=true"]
        plans = {"one": (1, ["per_device_train_batch_size=12"]),
                 "stages": (3, ["parallel.pipeline=3", "per_device_train_batch_size=6", "gradient_accumulation_steps=2"]),
                 "context": (2, ["parallel.context=2", "per_device_train_batch_size=12"])}
        for name, (ranks, plan) in plans.items():
            self.run_ok("train", "--nproc", ranks, "model.path=t5", "task.type=sequence_classification", f"output_dir=class-{name}", *words, *plan)
            self.assert_close(losses(self.folder / f"class-{name}"), losses(self.folder / "class-one"), 2e-5)
        saved = self.folder / "class-one"
        self.assertEqual(json.loads((saved / "config.json").read_text())["architectures"], ["T5ForSequenceClassification"])
        again = ["eval", "--model", "class-one", "--data", "corpus/labelled.csv[61:98]", "--output", "again", "use_cpu=true"]
        self.run_ok(*again, "--nproc", 2, "parallel.tensor=2")
        rows = [[json.loads(row)["prediction"] for row in (folder / "predictions.jsonl").read_text().splitlines()]
                for folder in (saved, self.folder / "again")]
        self.assertEqual(rows[0], rows[1])
        # The classifier is trained further, with an adapter, and verified; its body loads as a language model with a tied head.
        self.run_ok("train", "model.path=class-one", "output_dir=class-on", *words, "per_device_train_batch_size=12", "lora.r=2")
        self.assertIn("classification_head", (self.folder / "class-on" / "adapter_config.json").read_text())
        self.assertIn("equal within", self.run_ok("verify", "--model", "class-one", "use_cpu=true", "parallel.tensor=2", "data.sequence_length=17").out)
        told = self.run_ok(*self.train_arguments("body", steps=1), "model.path=class-one", "task.type=language_modeling", "data.train=pairs.jsonl",
                           "data.validation=held_out.jsonl", *self.PAIRS)
        self.assertNotIn("random", told.err)

    def test_unsupported_settings_suggest_alternatives(self):
        told = self.run_fails(2, *self.train_arguments("bad"), "model.path=t5.json")
        self.assertIn("data.prompt=pairs", told.err)
        told = self.run_fails(
            2, *self.train_arguments("bad", ranks=2), "model.path=t5.json", "data.train=pairs.jsonl",
            "data.validation=held_out.jsonl", *self.PAIRS, "parallel.context=2",
            "parallel.context_attention=ulysses")
        self.assertIn("parallel.context_attention=ring", told.err)

    def test_verify_compares_a_plan_with_one_rank(self):
        table = self.run_ok(
            "verify", "--model", "t5.json", "use_cpu=true", "data.sequence_length=17", "parallel.pipeline=2",
            "gradient_accumulation_steps=2").out
        self.assertIn("equal within", table)


if __name__ == "__main__":
    unittest.main(verbosity=2)
