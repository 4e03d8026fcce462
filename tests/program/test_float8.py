"""8-bit floating-point matrix products (precision.fp8); CPUs emulate them."""

import json
import unittest

from harness import CONFIG, ProgramTest, lockstep, losses

# Vocabulary and width are prime. The two middle blocks of four compute in 8 bits.
MODEL = dict(CONFIG, vocab_size=521, n_layer=4, n_inner=101, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
NEAR = 5e-3  # nats, of a loss of about 6: the effect of a 3-bit mantissa on the loss of a small model


class Float8(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "four.json").write_text(json.dumps(MODEL))
        (cls.folder / "single.json").write_text(json.dumps(dict(MODEL, n_layer=1)))

    def train_in(self, name, *words, model="four.json", **options):
        self.train(name, "bf16=true", f"model.path={model}", "save_steps=6", "learning_rate=1e-2", *words, **options)
        return losses(self.folder / name)

    def test_losses_near_bfloat16_and_resume(self):
        plain = self.train_in("plain", "per_device_train_batch_size=3", steps=12)
        self.assertLess(plain[-1], plain[0] - 0.4)
        row = self.train_in("row", "per_device_train_batch_size=3", "precision.fp8=row", steps=12)
        # Three ranks; each has a third of the state and of the rows.
        tensor = self.train_in(
            "tensor", "per_device_train_batch_size=1", "parallel.zero_stage=3", "precision.fp8=tensor", ranks=3, steps=12)
        for found in (row, tensor):
            self.assert_close(found, plain, NEAR)
            self.assertNotEqual(found, plain)
        checkpoint = self.folder / "row" / "checkpoint-6"
        same = self.train_in(
            "row-on", "per_device_train_batch_size=3", "precision.fp8=row", f"resume_from_checkpoint={checkpoint}", steps=12)
        self.assertEqual(same, row[6:])
        told = self.train(
            "off", "bf16=true", "model.path=four.json", "learning_rate=1e-2", "per_device_train_batch_size=3",
            f"resume_from_checkpoint={checkpoint}", steps=7)
        self.assertIn('precision.fp8: "row" there, "none" here', told.err)

    def test_single_block_in_8_bits_if_requested(self):
        told = self.run_fails(2, *self.train_arguments("one", "bf16=true", "model.path=single.json", "precision.fp8=row"))
        self.assertIn("num_layers_at_start_in_bf16=0", told.err)
        ends = ["precision.num_layers_at_start_in_bf16=0", "precision.num_layers_at_end_in_bf16=0"]
        told = self.train("one", "bf16=true", "model.path=single.json", "precision.fp8=rowwise", *ends, steps=2)
        self.assertIn("float8 matrix products in 4 linears, one scale per row", told.err)

    def test_incompatible_settings_are_refused(self):
        for words, reason in {
                ("precision.fp8=row",): "but the training type is float32",
                ("precision.fp8=row", "fp16=true"): "but the training type is float16",
                ("precision.fp8=block", "bf16=true"): "precision.fp8",
                ("precision.fp8=row", "bf16=true", "precision.num_layers_at_end_in_bf16=-1"): "at least 0",
                ("precision.fp8=row", "bf16=true", "quantization.bits=4", "lora.r=2"): "dequantizes the same weights",
        }.items():
            self.assertIn(reason, self.run_fails(2, *self.train_arguments("bad", *words)).err)
        told = self.train("idle", "bf16=true", "precision.num_layers_at_end_in_bf16=2", steps=1)
        self.assertIn("only used with precision.fp8", told.err)

    def test_verify_with_row_and_tensor_scales(self):
        common = ["verify", "--nproc", 2, "model.path=four.json", "bf16=true", "use_cpu=true", "data.sequence_length=16"]
        self.run_ok(*common, "precision.fp8=row", "parallel.data=2")
        self.run_ok(*common, "precision.fp8=tensor", "parallel.tensor=2")
        self.assertIn("depends on the grouping of rows", self.run_fails(2, *common, "precision.fp8=tensor", "parallel.data=2").err)

    def test_plans_and_estimates(self):
        common = ["--model", "llama2-7b", "--gpus", 8, "parallel.data=8", "bf16=true"]

        def seconds(*words):
            told = self.run_ok("plan", *common, "--global-batch", 64, "--explain", *words)
            return told.out

        plain, tensor, row = seconds(), seconds("precision.fp8=tensor"), seconds("precision.fp8=row")
        self.assertIn("products of 94% of the blocks in 8 bits with one scale per tensor", tensor)
        self.assertIn("1979 TFLOP/s in 8 bits, 989 in 16", tensor)
        self.assertNotIn("8 bits", plain)

        def tokens(text):
            return float(text.split(" tokens/s")[0].rsplit(" ", 1)[1])

        self.assertGreater(tokens(tensor), 1.05 * tokens(plain))
        self.assertLess(tokens(row), tokens(tensor))
        estimates = [
            json.loads(self.run_ok("estimate", *common, *words, "--json").out)["peak_bytes"]
            for words in ([], ["precision.fp8=row"])]
        self.assertEqual(*estimates)  # inputs are stored in bfloat16
        refused = lockstep("plan", *common, "--gpu", "a100-80gb", "precision.fp8=row", cwd=self.folder)
        self.assertEqual(refused.code, 2)
        self.assertIn("a100-80gb does not support 8-bit floating-point products", refused.err)
        self.run_ok("plan", *common, "precision.fp8=row", "--write", "plan.yaml")
        self.assertIn("fp8: row", (self.folder / "plan.yaml").read_text())


if __name__ == "__main__":
    unittest.main()
