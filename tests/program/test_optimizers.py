"""Optimizers through the program: learning, bit-exact resume on the same ranks and close results on others, refused settings."""

import json
import pathlib
import struct
import unittest

from harness import ProgramTest, long, losses, metrics

OPTIMIZERS = {
    "muon": ["optim=muon", "muon_learning_rate=0.01", "weight_decay=0.1"],
    "averaged": ["optim=schedule_free_adamw", "lr_scheduler_type=constant_with_warmup", "adam_epsilon=1e-5"],
    "mixed": ["optim=ademamix", "ademamix_t_alpha=4", "ademamix_t_beta3=4", "adam_epsilon=1e-5"],
}


def names_in(file):
    with open(file, "rb") as opened:
        return set(json.loads(opened.read(struct.unpack("<Q", opened.read(8))[0]))) - {"__metadata__"}


class Optimizers(ProgramTest):
    @long
    def test_resume_is_bit_exact_and_close_on_other_ranks(self):
        for name, words in OPTIMIZERS.items():
            for precision in ("bf16=false", "bf16=true"):
                whole = f"{name}-{precision[-5:].strip('=')}"
                common = [*words, precision, "parallel.zero_stage=1"]
                self.train(whole, *common, "per_device_train_batch_size=4", "save_steps=3", "do_eval=true", ranks=2)
                checkpoint = self.folder / whole / "checkpoint-3"
                for ranks, batch in ((2, 4), (1, 8)):
                    other = f"{whole}-{ranks}"
                    self.train(other, *common, f"per_device_train_batch_size={batch}", "do_eval=true",
                               f"resume_from_checkpoint={checkpoint}", ranks=ranks)
                    expected, resumed = losses(self.folder / whole)[3:], losses(self.folder / other)
                    if ranks == 2:
                        self.assertEqual(resumed, expected)
                        self.assertEqual((self.folder / other / "model.safetensors").read_bytes(),
                                         (self.folder / whole / "model.safetensors").read_bytes())
                    else:
                        self.assert_close(resumed, expected, 1e-5 if precision == "bf16=false" else 2e-2)

    @long
    def test_eight_bit_moments_of_tensor_ranks_are_those_of_one_rank(self):
        """Blocks of 256 belong to whole matrices, so any plan can read a checkpoint of two tensor-parallel ranks."""
        common = ["optim=adamw_8bit", "adam_epsilon=1e-5", "learning_rate=1e-2"]
        self.train("whole", *common)
        self.train("shared", *common, "parallel.tensor=2", "save_steps=3", ranks=2)
        wanted = losses(self.folder / "whole")
        self.assert_close(losses(self.folder / "shared"), wanted, 1e-5)
        for name, ranks, plan in (("same", 2, ["parallel.tensor=2"]), ("one", 1, []),
                                  ("shards", 2, ["parallel.zero_stage=2", "per_device_train_batch_size=4"])):
            self.train(name, *common, *plan, f"resume_from_checkpoint={self.folder}/shared/checkpoint-3", ranks=ranks)
            self.assert_close(losses(self.folder / name), wanted[3:], 1e-5)
        self.assertEqual((self.folder / "same/model.safetensors").read_bytes(), (self.folder / "shared/model.safetensors").read_bytes())
        self.assertIn("blocks of 256", self.run_fails(2, *self.train_arguments(
            "files", *common, "parallel.tensor=2", "parallel.offload_optimizer.device=nvme",
            f"parallel.offload_optimizer.path={self.folder}", ranks=2)).err)

    def test_muon_keeps_one_momentum_of_matrices_and_two_of_all_else(self):
        self.train("kept", *OPTIMIZERS["muon"], "save_steps=2", steps=2)
        names = set()
        for file in (self.folder / "kept/checkpoint-2").glob("optimizer*.safetensors"):
            names |= names_in(file)
        block = "transformer.h.0"
        self.assertIn(f"momentum_buffer.{block}.attn.c_attn.weight", names)
        self.assertNotIn(f"exp_avg.{block}.attn.c_attn.weight", names)
        for name in (f"{block}.attn.c_attn.bias", f"{block}.ln_1.weight", "transformer.wte.weight", "transformer.wpe.weight"):
            self.assertIn(f"exp_avg_sq.{name}", names)
            self.assertNotIn(f"momentum_buffer.{name}", names)
        result = self.run_fails(4, *self.train_arguments(
            "other", "optim=adamw_torch", f"resume_from_checkpoint={self.folder}/kept/checkpoint-2", steps=4))
        self.assertIn("c_attn.weight", result.err)

    def test_schedule_free_evaluates_and_saves_its_averages(self):
        """The saved model gives the metrics of the last evaluation of training, which uses the averages and not the current weights."""
        self.train("free", *OPTIMIZERS["averaged"], "learning_rate=1e-2", "eval_strategy=steps", "eval_steps=6", "do_eval=true",
                   "save_steps=6", ranks=2)
        told = [line["eval_loss"] for line in metrics(self.folder / "free") if "eval_loss" in line]
        self.assertEqual(told[0], told[-1])
        for folder in ("free", "free/checkpoint-6"):
            out = self.run_ok("eval", "--model", folder, "--data", "corpus/validation.txt", "data.sequence_length=32",
                              "tokenizer.path=tokenizer", "use_cpu=true", "--json").out
            self.assertAlmostEqual(json.loads(out)["eval_loss"], told[-1], delta=2e-5)

    def test_learning_rates_by_name(self):
        self.train("begin", steps=1, *["learning_rate=0"])
        self.train("named", "learning_rates={wte:0,h.0.:0}", "layer_wise_learning_rate_decay=0.5", "weight_decay=0.1")

        def tensor(run, name):
            data = (self.folder / run / "model.safetensors").read_bytes()
            size = struct.unpack("<Q", data[:8])[0]
            begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
            return data[8 + size + begin:8 + size + end]

        for name in ("transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.ln_1.bias"):
            self.assertEqual(tensor("named", name), tensor("begin", name), name)
        for name in ("transformer.wpe.weight", "transformer.h.1.mlp.c_fc.weight"):
            self.assertNotEqual(tensor("named", name), tensor("begin", name), name)

    def test_invalid_settings_fail_before_training(self):
        cases = [
            (["learning_rates={layers:1e-3}"], ["training.learning_rates: 'layers' matches no parameter name", "transformer.h.0.attn.c_attn.weight"]),
            (["weight_decays={h\\(:1}"], ["training.weight_decays: 'h(' is not a regular expression"]),
            (["weight_decays={h:-1}"], ["training.weight_decays", "at least 0"]),
            (["layer_wise_learning_rate_decay=1.5"], ["training.layer_wise_learning_rate_decay", "above 0, at most 1"]),
            (["muon_learning_rate=0.1"], ["is only used with training.optim=muon"]),
            (["optim=muon", "muon_adjust_lr_fn=adam"], ["muon_adjust_lr_fn", "match_rms_adamw"]),
            (["optim=muon", "muon_ns_steps=0"], ["training.muon_ns_steps", "from 1 to 99"]),
            (["optim=muon", "parallel.zero_stage=1", "parallel.offload_optimizer.device=nvme", "parallel.offload_optimizer.path=."],
             ["muon is not supported with parallel.offload_optimizer.device=nvme", "device=cpu"]),
            (["optim=schedule_free_adamw", "bf16=true", "precision.stochastic_rounding=true"], ["schedule_free_adamw is not supported"]),
            (["optim=ademamix", "ademamix_beta3=1"], ["training.ademamix_beta3", "at least 0 and below 1"]),
        ]
        for words, texts in cases:
            result = self.run_fails(2, *self.train_arguments("refused", *words))
            for text in texts:
                self.assertIn(text, result.err)
        self.assertFalse((pathlib.Path(self.folder) / "refused" / "metrics.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
