"""Tensor and context parallelism: the same losses, checkpoints and generated text."""

import json
import unittest

from harness import CONFIG, ProgramTest, long, losses

# Three heads, and a vocabulary and width that two ranks do not divide.
ODD = dict(CONFIG, n_embd=36, n_head=3, n_inner=53)
OSS = {"model_type": "gpt_oss", "vocab_size": CONFIG["vocab_size"], "hidden_size": 24, "intermediate_size": 11, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_local_experts": 3, "num_experts_per_tok": 2,
       "sliding_window": 7, "swiglu_limit": 0.5, "bos_token_id": 0, "eos_token_id": 0}


class Parallel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "model.json").write_text(json.dumps(ODD))

    def test_plans_give_the_losses_of_one_rank(self):
        batch = "per_device_train_batch_size=4"
        self.train("one", batch, steps=8)
        plans = {
            "tensor": (3, ["parallel.tensor=3"]),
            "sequence": (2, ["parallel.tensor=2", "parallel.sequence_parallel=true"]),
            "context": (2, ["parallel.context=2"]),
            "all to all": (3, ["parallel.context=3", "parallel.context_attention=ulysses"]),
        }
        for name, (ranks, plan) in plans.items():
            self.train(name, batch, *plan, ranks=ranks, steps=8)
            self.assert_close(losses(self.folder / name), losses(self.folder / "one"), 1e-5)
        self.train("mixed", "per_device_train_batch_size=2", "parallel.tensor=2", ranks=4, steps=8)
        self.assert_close(losses(self.folder / "mixed"), losses(self.folder / "one"), 1e-5)

    @long
    def test_checkpoints_resume_under_other_plans(self):
        batch = "per_device_train_batch_size=4"
        self.train("whole", batch, "save_steps=4", steps=8)
        for name, first, second in (("shrinks", 3, 1), ("grows", 1, 3)):
            self.train(name, batch, "save_steps=4", f"parallel.tensor={first}", ranks=first, steps=8)
            resumed = self.train_arguments(
                name + "-resumed", batch, f"parallel.tensor={second}",
                f"resume_from_checkpoint={name}/checkpoint-4", ranks=second, steps=8)
            self.run_ok(*resumed)
            self.assert_close(
                losses(self.folder / (name + "-resumed"))[-4:], losses(self.folder / "whole")[-4:], 1e-5)

    @long
    def test_fused_expert_tensors_resume_under_other_plans(self):
        # gpt-oss: each rank writes its experts, or its shard of each, into the tensors of their layer.
        (self.folder / "oss.json").write_text(json.dumps(OSS))
        # Tokens over the experts' capacity are dropped, the same under each plan.
        model = ("model.path=oss.json", "expert_capacity_factor=0.9")
        batch = (*model, "per_device_train_batch_size=2", "save_steps=4")
        self.train("oss", *model, "per_device_train_batch_size=4", "save_steps=4", steps=8)
        steps = [json.loads(line) for line in (self.folder / "oss" / "metrics.jsonl").read_text().splitlines()]
        self.assertTrue(all(0 < step["expert_dropped"] < 0.7 for step in steps if "loss" in step), steps)
        self.assertTrue(all(step["expert_load_least"] <= 1 / 3 <= step["expert_load_most"] for step in steps if "loss" in step), steps)
        shapes = self.tensors("oss")
        self.assertEqual(shapes["model.layers.0.mlp.experts.gate_up_proj"], [3, 24, 22])
        self.assertEqual(shapes["model.layers.1.mlp.experts.down_proj_bias"], [3, 24])
        self.assertEqual(shapes["model.layers.0.self_attn.sinks"], [4])
        for name, ranks, plan in (("oss-experts", 2, ["parallel.expert=2", "parallel.zero_stage=1", "parallel.expert_halves=true"]),
                                  ("oss-tensor", 4, ["parallel.tensor=2", "parallel.expert=2"])):
            self.train(name, *batch, *plan, ranks=ranks, steps=8)
            self.assert_close(losses(self.folder / name), losses(self.folder / "oss"), 1e-5)
            self.assertEqual(self.tensors(name), shapes)
            resumed = self.train_arguments(
                name + "-resumed", *model, "per_device_train_batch_size=4",
                f"resume_from_checkpoint={name}/checkpoint-4", steps=8)
            self.run_ok(*resumed)
            self.assert_close(losses(self.folder / (name + "-resumed"))[-4:], losses(self.folder / "oss")[-4:], 1e-5)
        self.run_ok("generate", "--model", "oss-tensor", "--prompt", "The ", "--device-map", "cpu")

    def tensors(self, name):
        """Name -> shape of the saved tensors."""
        with (self.folder / name / "model.safetensors").open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return {key: value["shape"] for key, value in header.items() if key != "__metadata__"}

    @long
    def test_eval_and_generate_run_on_shared_layers(self):
        self.train("model", "per_device_train_batch_size=4", steps=6)
        evaluate = ["eval", "--model", "model", "--data", "corpus/validation.txt", "--json",
                    "data.sequence_length=32", "data.cache_dir=cache", "use_cpu=true"]
        alone = json.loads(self.run_ok(*evaluate).out)
        for plan in ("parallel.tensor=2", "parallel.context=2"):
            shared = json.loads(self.run_ok(*evaluate, "--nproc", 2, plan).out)
            self.assertAlmostEqual(shared["eval_loss"], alone["eval_loss"], places=5)
            self.assertEqual(shared["eval_tokens"], alone["eval_tokens"])
        generate = ["generate", "--model", "model", "--prompt", "The ", "--device-map", "cpu"]
        self.assertEqual(self.run_ok(*generate, "--tensor", 3).out, self.run_ok(*generate).out)

    def test_verify_compares_a_plan_with_one_rank(self):
        verify = ["verify", "--model", "model.json", "use_cpu=true", "data.sequence_length=33"]
        table = self.run_ok(*verify, "parallel.tensor=2", "parallel.data=2").out
        self.assertIn("equal within", table)
        self.assertIn("transformer.h.", table)
        table = self.run_fails(6, *verify, "parallel.tensor=3", "--tolerance", "1e-12").out
        self.assertIn("they first differ at", table)

    @long
    def test_verify_tolerates_amplified_rounding(self):
        # Many gradients of these models are zero except for rounding, which AdamW and Lion amplify: to 5.1e-5 on a Zen 1.
        for preset in ("gpt2-tiny", "llama-tiny", "t5-tiny"):
            for optimizer in ("adamw_torch_fused", "lion_32bit"):
                self.run_ok("verify", f"model.preset={preset}", "use_cpu=true", "data.sequence_length=16",
                            "parallel.tensor=2", f"optim={optimizer}", "--tolerance", "1e-4")

    def test_impossible_plans_suggest_possible_ones(self):
        told = self.run_fails(2, "verify", "--model", "model.json", "use_cpu=true", "parallel.tensor=4")
        self.assertIn("3 query heads", told.err)
        self.assertIn("at most 3", told.err)
        told = self.run_fails(2, *self.train_arguments("bad", "parallel.tensor=4", ranks=4))
        self.assertEqual(told.err.count("3 query heads"), 1, told)  # reported once, not per rank
        told = self.run_fails(2, *self.train_arguments(
            "bad", "parallel.context=2", "parallel.context_attention=ulysses", ranks=2))
        self.assertIn("parallel.context_attention=ring", told.err)
        told = self.run_fails(
            2, *self.train_arguments("bad", "parallel.tensor=2", ranks=3))
        self.assertIn("tensor 2 does not divide the 3 ranks", told.err)
        self.assertIn("parallel.data=1 parallel.tensor=3", told.err)  # complete meshes, nearest first
        told = self.run_fails(
            2, *self.train_arguments("bad", "parallel.context=3", "data.sequence_length=2", ranks=3))
        self.assertIn("at most 2", told.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
