"""Configuration files of other fine-tuning programs, and training rows whose form is recognized."""

import json
import unittest

from harness import CONFIG, ProgramTest, losses, metrics

AXOLOTL = """base_model: model
adapter: lora
lora_r: 4
lora_target_linear: true
datasets:
  - path: corpus/instructions.jsonl
    type: alpaca
    split: train[:40]
sequence_len: 256
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 1
max_steps: 2
optimizer: adamw_torch
lr_scheduler: constant
warmup_steps: 0
learning_rate: 0.001
bf16: false
flash_attention: true
logging_steps: 1
wandb_project:
output_dir: theirs
"""
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 32, "intermediate_size": 43,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0,
    "eos_token_id": 0,
}


class ForeignConfigs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "n_positions": 256}))
        cls.run_ok_in(cls.folder, *cls.train_arguments(cls, "model", "save_strategy=no", steps=1))
        (cls.folder / "axolotl.yaml").write_text(AXOLOTL)

    def test_a_file_trains_as_the_same_keys_of_ours(self):
        told = self.run_ok("train", "-c", "axolotl.yaml", "use_cpu=true", "save_strategy=no").err
        self.assertRegex(told, r"axolotl.yaml: read as a file of Axolotl: \d+ keys translated, 1 ignored \(flash_attention: ")
        self.run_ok(
            "train", "model.path=model", "lora.r=4", "lora.target_modules=all-linear", "--data", "corpus/instructions.jsonl[:40]",
            "data.prompt=alpaca", "data.packing=documents", "data.sequence_length=256", "per_device_train_batch_size=2", "max_steps=2",
            "optim=adamw_torch", "lr_scheduler_type=constant", "learning_rate=0.001", "logging_steps=1", "use_cpu=true",
            "save_strategy=no", "output_dir=ours")
        self.assertEqual(losses(self.folder / "theirs"), losses(self.folder / "ours"))

    def test_what_has_no_equivalent_is_refused_at_once(self):
        (self.folder / "refused.yaml").write_text(AXOLOTL + "activation_offloading: true\nrelora_steps: 9\nsome_key: 1\n")
        error = self.run_fails(2, "train", "-c", "refused.yaml").err
        for part in ("3 problems", "activation_offloading: true (refused.yaml:23)", "relora_steps: 9 (refused.yaml:24)",
                     "some_key (refused.yaml:25): unknown key of Axolotl"):
            self.assertIn(part, error)
        self.run_ok("train", "-c", "refused.yaml", "--print-config", "--allow-unknown-config", "~activation_offloading", "~relora_steps")

    def test_other_files_are_named(self):
        error = self.run_fails(2, "train", "-c", "model/config.json").err
        self.assertIn("model/config.json is a model's config.json", error)
        self.assertIn("set model.path=FOLDER", error)
        self.assertIn("a data file, not a configuration", self.run_fails(2, "train", "corpus/instructions.jsonl").err)


class Rows(ProgramTest):
    def dry(self, *more):
        return self.run_ok(*self.train_arguments("dry", "--dry-run", "data.validation=null", *more))

    def write(self, name, *rows):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"data.train={name}"

    def test_the_form_is_recognized(self):
        pairs = self.write("pairs.jsonl", *[{"prompt": f"Day {i} ", "completion": "a cat sat."} for i in range(4)])
        self.assertIn("rows are pairs of a prompt and an answer (prompt, completion): data.prompt=pairs", self.dry(pairs).out)
        self.assertIn("rows are instructions (instruction, output): data.prompt=alpaca", self.dry("data.train=corpus/instructions.jsonl").out)
        self.assertNotIn("rows ", self.dry().out)
        shown = self.run_ok("data", "show", pairs, "tokenizer.path=tokenizer", "--rows", "1")
        self.assertIn("⟦a cat sat.", shown.out)

    def test_ambiguous_rows_are_refused(self):
        both = self.write("both.jsonl", {"prompt": "a", "completion": "b", "instruction": "c", "output": "d"})
        error = self.run_fails(4, *self.train_arguments("both", both)).err
        self.assertIn("both.jsonl, line 1: the row has the fields of pairs (prompt, completion) and of alpaca (instruction, output)", error)
        self.assertIn("set data.prompt=pairs or data.prompt=alpaca", error)

    def test_long_answers_are_truncated_and_counted(self):
        rows = self.write("long.jsonl", *[{"prompt": "Go ", "completion": "a dog ran. " * (40 if i < 3 else 1)} for i in range(6)])
        told = self.train("long", rows, "data.validation=null", "max_steps=1", "save_strategy=no").err
        self.assertIn("data.train: 3 documents are longer than a sequence, and cut off (data.long_documents)", told)
        self.assertTrue(metrics(self.folder / "long"))

    def test_positions_beyond_the_models_are_warned_of(self):
        (self.folder / "llama.json").write_text(json.dumps(LLAMA))
        told = self.dry("model.path=llama.json", "data.sequence_length=128").err
        self.assertIn("data.sequence_length=128 exceeds the model's 64 positions (max_position_embeddings)", told)
        self.assertNotIn("max_position_embeddings", self.dry("model.path=llama.json", "data.sequence_length=64").err)


if __name__ == "__main__":
    unittest.main()
