"""The main job on GPUs, against the same job on the CPU. Needs a build with LOCKSTEP_CUDA=1 and a GPU; skips without one."""

import json
import subprocess
import unittest

from harness import ProgramTest, lockstep, losses


def gpus():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return done.stdout.count("GPU ")


@unittest.skipIf(gpus() == 0, "no NVIDIA GPU is visible")
class Gpu(ProgramTest):
    def train_both(self, name, *more, steps=10, tolerance=1e-4):
        self.train(f"{name}-cpu", *more, steps=steps)
        self.train(f"{name}-gpu", *more, "use_cpu=false", steps=steps)
        self.assert_close(losses(self.folder / f"{name}-cpu"), losses(self.folder / f"{name}-gpu"), tolerance)

    def test_the_self_test(self):
        self.assertIn("all is well", self.run_ok("selftest", "--nproc", gpus()).out)

    def test_float32_as_on_the_cpu(self):
        self.train_both("float32", "tf32=false")

    def test_bfloat16_as_on_the_cpu(self):
        self.train_both("bfloat16", "bf16=true", tolerance=3e-2)

    def test_steps_in_cuda_graphs_as_without(self):
        for name, more in (("float32", "tf32=false"), ("bfloat16", "bf16=true")):
            for model in ("llama-tiny", "gpt2-tiny"):
                arguments = ("model.path=null", f"model.preset={model}", "use_cpu=false", more,
                             *(() if model == "llama-tiny" else ("parallel.zero_stage=1",)))
                plain, graphs = f"{model}-{name}", f"{model}-{name}-graphs"
                self.train(plain, *arguments, steps=12)
                told = self.train(graphs, *arguments, "parallel.cuda_graphs=auto", steps=12).err
                self.assertEqual("are not captured" in told, model == "gpt2-tiny", told)
                self.assert_close(losses(self.folder / plain), losses(self.folder / graphs), 1e-4 if name == "float32" else 3e-2)

    def test_resume_is_bit_exact(self):
        arguments = ("full_determinism=true", "use_cpu=false", "save_steps=4")
        self.train("whole", *arguments, steps=8)
        self.train("parts", *arguments, steps=4)
        self.run_ok("train", "-c", "parts/config.yaml", "max_steps=8", "resume_from_checkpoint=true")
        self.assertEqual(losses(self.folder / "whole")[4:], losses(self.folder / "parts")[4:])

    def test_evaluation_and_generation_as_on_the_cpu(self):
        self.train("model", "use_cpu=false", steps=4)
        evaluate = ("eval", "--model", "model", "--data", "corpus/validation.txt", "--json", "data.sequence_length=32")
        on_gpu = self.run_ok(*evaluate)
        on_cpu = self.run_ok(*evaluate, "use_cpu=true")
        self.assertAlmostEqual(json.loads(on_gpu.out)["eval_loss"], json.loads(on_cpu.out)["eval_loss"], places=4)
        generate = ("generate", "--model", "model", "--prompt", "Once", "--max-new-tokens", "16", "--dtype", "float32")
        self.assertEqual(self.run_ok(*generate).out, self.run_ok(*generate, "--device-map", "cpu").out)

    @unittest.skipIf(gpus() < 2, "fewer than two GPUs")
    def test_two_ranks_over_nccl_as_one(self):
        self.train("one", "use_cpu=false", "per_device_train_batch_size=8", "tf32=false", steps=10)
        self.train("two", "use_cpu=false", "per_device_train_batch_size=4", "tf32=false", steps=10, ranks=2)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "two"), 1e-5)

    def test_more_ranks_than_gpus_is_an_error(self):
        result = lockstep(
            *self.train_arguments("many", "use_cpu=false", ranks=gpus() + 1), cwd=self.folder)
        self.assertEqual(result.code, 3, result)
        self.assertIn("has no GPU", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
