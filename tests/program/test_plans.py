"""Parallel plans with ranks as processes: `verify`, and a checkpoint saved with three axes on 8 ranks and resumed on 3."""

import json
import unittest

from harness import CONFIG, ProgramTest, long, losses
from test_t5 import T5

# Three layers, and a vocabulary and widths that no plan divides.
GPT2 = dict(CONFIG, n_embd=36, n_head=3, n_inner=53, n_layer=3)
LLAMA = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 24, "intermediate_size": 43, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64,
    "bos_token_id": 0, "eos_token_id": 0,
}


class Plans(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "model.json").write_text(json.dumps(GPT2))
        (cls.folder / "llama.json").write_text(json.dumps(LLAMA))
        (cls.folder / "t5.json").write_text(json.dumps(T5))

    def train_on_one_rank(self):
        """Trains six steps of 12 sequences on one rank."""
        self.train("whole", "per_device_train_batch_size=12", "lr_scheduler_type=constant_with_warmup", steps=6)

    def save_on_8_and_resume_on_3(self):
        """Trains the same six steps: three with pipeline, data and tensor parallelism of 2 each, then three with ZeRO stage 3."""
        self.train(
            "on_8", "parallel.pipeline=2", "parallel.tensor=2", "parallel.zero_stage=1", "parallel.schedule=zb-h1",
            "per_device_train_batch_size=3", "gradient_accumulation_steps=2", "save_steps=3",
            "lr_scheduler_type=constant_with_warmup", ranks=8, steps=3)
        self.train(
            "on_3", "parallel.zero_stage=3", "per_device_train_batch_size=4", "lr_scheduler_type=constant_with_warmup",
            "resume_from_checkpoint=on_8/checkpoint-3", ranks=3, steps=6)

    def test_checkpoint_of_three_axes_resumes_with_zero_3(self):
        self.train_on_one_rank()
        self.save_on_8_and_resume_on_3()
        found = losses(self.folder / "on_8") + losses(self.folder / "on_3")[-3:]
        self.assert_close(found, losses(self.folder / "whole"), 1e-5)

    @long
    def test_plans_as_processes_are_equal_to_one_rank(self):
        plans = [
            ("model.json", ["parallel.pipeline=2", "parallel.data=2", "parallel.tensor=2", "parallel.zero_stage=1",
                            "gradient_accumulation_steps=2"]),
            ("model.json", ["parallel.context=2", "parallel.tensor=3", "parallel.zero_stage=2"]),
            ("llama.json", ["parallel.pipeline=3", "parallel.context=2", "parallel.schedule=zb-h1",
                            "gradient_accumulation_steps=3"]),
            ("llama.json", ["parallel.data=2", "parallel.tensor=4", "parallel.zero_stage=3",
                            "parallel.sequence_parallel=true"]),
            ("t5.json", ["parallel.pipeline=2", "parallel.context=2", "parallel.schedule=zb-v",
                         "gradient_accumulation_steps=2"]),
        ]
        for model, plan in plans:
            table = self.run_ok("verify", "--model", model, "use_cpu=true", "data.sequence_length=33", "--steps", 5,
                                "--tolerance", "1e-5", *plan).out  # relative to the largest value of the parameter
            self.assertIn("equal within 1e-05", table, plan)


if __name__ == "__main__":
    unittest.main(verbosity=2)
