"""QLoRA: quantized weights under parallel plans, resuming, exported folders, and refused settings."""

import json
import unittest

from harness import ProgramTest, losses

PACKED = ["quantization.bits=4", "quantization.double_quant=true"]
LORA = ["model.path=base", "learning_rate=1e-2", "lora.r=3", "lora.target_modules=all-linear", "lora.lora_dropout=0.2",
        "save_steps=3"]


class Quantization(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train(cls(), "base", steps=4)
        cls.train(cls(), "run", *LORA, *PACKED)

    def runTest(self):
        pass

    def adapter(self, folder):
        return (self.folder / folder / "adapter_model.safetensors").read_bytes()

    def evaluate(self, *words):
        words = [*words, "--data", "corpus/validation.txt", "--json", "data.sequence_length=32", "use_cpu=true"]
        return json.loads(self.run_ok("eval", *words).out)["eval_loss"]

    def test_other_plans_give_the_same_losses(self):
        wanted = losses(self.folder / "run")
        self.assertGreater(max(wanted) - min(wanted), 1e-3)
        for name, plan in (
            ("tensor", ["parallel.tensor=2"]),
            ("shards", ["parallel.zero_stage=3", "per_device_train_batch_size=4", "parallel.recompute=full"]),
        ):
            self.train(name, *LORA, *PACKED, *plan, ranks=2)
            self.assert_close(losses(self.folder / name), wanted, 1e-5)

    def test_resume_is_bit_exact(self):
        self.train("resumed", "resume_from_checkpoint=run/checkpoint-3", *LORA, *PACKED)
        self.assertEqual(self.adapter("resumed"), self.adapter("run"))

    def test_an_exported_folder_is_the_packed_model(self):
        self.run_ok("export", "--model", "base", "--bits", "4", "--double-quant", "--output", "packed")
        config = json.loads((self.folder / "packed" / "config.json").read_text())["quantization_config"]
        self.assertEqual((config["bnb_4bit_quant_type"], config["bnb_4bit_use_double_quant"]), ("nf4", True))
        read = self.evaluate("--model", "packed", "--adapter", "run")
        made = self.evaluate("--model", "base", "--adapter", "run", *PACKED)
        dense = self.evaluate("--model", "base", "--adapter", "run")
        self.assertEqual(read, made)
        self.assertGreater(abs(read - dense), 1e-6)
        self.run_ok("export", "--model", "packed", "--adapter", "run", "--merge", "--output", "merged")
        self.assertAlmostEqual(self.evaluate("--model", "merged"), read, delta=1e-5)
        prompt = ["--prompt", "The", "--max-new-tokens", "4"]
        self.assertEqual(
            self.run_ok("generate", "--model", "base", "--adapter", "run", "--bits", "4", "--double-quant", *prompt).out,
            self.run_ok("generate", "--model", "packed", "--adapter", "run", *prompt).out)

    def test_invalid_settings_fail_before_training(self):
        for words, told in (
            (["quantization.bits=4"], "lora.r=16"),
            (["quantization.bits=5", "lora.r=2"], "4 or 8"),
            (["quantization.bits=4", "quantization.skip_modules=[c_atn]", "lora.r=2"], "no module of the model"),
        ):
            self.assertIn(told, self.run_fails(2, *self.train_arguments("bad", "model.path=base", *words)).err)
        told = self.train("dry", "model.path=base", "lora.r=2", *PACKED, "--dry-run").out
        self.assertIn("packed      8 linears in 4 bits (nf4, double quantization)", told)
        self.run_ok("export", "--model", "base", "--output", "halved", "--dtype", "bfloat16")
        self.assertEqual(json.loads((self.folder / "halved" / "config.json").read_text())["torch_dtype"], "bfloat16")
        self.assertLess((self.folder / "halved" / "model.safetensors").stat().st_size,
                        0.6 * (self.folder / "base" / "model.safetensors").stat().st_size)
        self.assertIn("nothing to do", self.run_fails(2, "export", "--model", "base", "--output", "x").err)

    def test_estimate_of_quantized_weights(self):
        def parameters(*words):
            words = ("estimate", "--model", "llama2-7b", "--gpu", "h100-80gb", "--json", "training.bf16=true", *words)
            return json.loads(self.run_ok(*words).out)["stages"][0]["parameters"]
        whole, packed = parameters("--lora-rank", "16"), parameters("--lora-rank", "16", "quantization.bits=4")
        self.assertEqual(whole, parameters("lora.r=16"))
        self.assertEqual(packed, parameters("lora.r=16", "quantization.bits=4"))
        self.assertLess(packed, 0.35 * whole)
        self.assertEqual(parameters("--lora-rank", "16", "--bits", "4"), packed)
        nested = parameters("--lora-rank", "16", "--bits", "4", "--double-quant")
        self.assertEqual(nested, parameters("lora.r=16", "quantization.bits=4", "quantization.double_quant=true"))
        self.assertLess(nested, packed)
        self.assertIn("lora", self.run_fails(2, "estimate", "--model", "llama2-7b", "--bits", "4").err)

    def test_estimate_equals_the_state_of_a_run(self):
        """Weights, gradients and optimizer state of the largest rank, within 3 %, with adapters and quantized weights."""
        wide = json.loads((self.folder / "model.json").read_text())
        wide.update(n_embd=256, n_layer=3, n_head=4)
        (self.folder / "wide.json").write_text(json.dumps(wide))
        self.train("wide", "--force", "model.path=wide.json", steps=1)
        lora = ["lora.r=16", "lora.target_modules=all-linear"]
        some = ["lora.r=24", "lora.target_modules=[c_attn]"]
        for name, words in (("plain", lora), ("some", some), ("four", [*lora, *PACKED]), ("eight", [*lora, "quantization.bits=8"])):
            done = self.train(f"wide-{name}", "--force", "model.path=wide", "bf16=true", "log_level=debug", *words, steps=2)
            events = (self.folder / f"wide-{name}" / "events.jsonl").read_text().splitlines()
            told = next(event for event in map(json.loads, events) if event["event"] == "memory")["kinds"]
            stage = json.loads(self.run_ok("estimate", "--model", "wide", "--gpu", "cpu", "--json", "training.bf16=true", *words).out)["stages"][0]
            trained = told["gradients"] // 4
            folder = self.folder / f"wide-{name}" / "checkpoint-2"
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.assertLess(size, 1.1 * 12 * trained, name)  # values and two moments in float32, and the rest of the resume state
            self.assertIn(f"checkpoint-2 has {size / 1e6:.4g} MB, of which", done.err)
            kinds = ("parameters", "gradients", "optimizer")
            self.assertLess(abs(sum(stage[kind] for kind in kinds) / sum(told[kind] for kind in kinds) - 1), 0.03, (name, told))

    def test_a_70b_in_four_bits_fits_on_two_devices_of_24_gb_and_on_one_of_80(self):
        words = ["--model", "llama2-70b", "lora.r=16", *PACKED, "training.bf16=true", "training.per_device_train_batch_size=1"]
        offload = ["training.gradient_checkpointing=true", "parallel.zero_stage=3", "parallel.offload_param.device=cpu",
                   "parallel.offload_optimizer.device=cpu"]
        for gpu in (["--gpu", "rtx-4090", "--gpus", "2", *offload], ["--gpu", "h100-80gb", "training.gradient_checkpointing=true"]):
            told = json.loads(self.run_ok("estimate", *words, *gpu, "--json").out)
            self.assertTrue(told["fits"], told["plan"])
            self.assertGreater(told["stages"][0]["parameters"] + told["stages"][0]["host"], 36.4e9 / (2 if "rtx-4090" in gpu else 1) * 0.95)
        planned = self.run_ok("plan", *words, "--gpu", "rtx-4090", "--gpus", "2").out
        self.assertIn("adapters of rank 16", planned)
        self.assertNotIn("no plan", planned)

    def test_zero_3_gathers_packed_blocks_and_gradients_of_adapters(self):
        def gathered(*words):
            words = ("estimate", "--model", "llama2-70b", "--gpu", "h100-80gb", "--gpus", "2", "--json", "training.bf16=true",
                     "parallel.zero_stage=3", "parallel.data=2", "training.per_device_train_batch_size=1", *words)
            return json.loads(self.run_ok(*words).out)["stages"][0]["gathered"]
        block = 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672)  # the weights of the block's linears
        nested = gathered("--lora-rank", "16", "--bits", "4", "--double-quant")
        self.assertLess(abs(nested / (2 * block * 0.516) - 1), 0.05)
        self.assertGreater(gathered("--lora-rank", "16"), 3.5 * nested)


if __name__ == "__main__":
    unittest.main(verbosity=2)
