"""Training on GPUs, compared with the same job on the CPU, and each parallel plan compared with one rank. Skipped without a GPU;
test_gpu_commands.py runs the same commands on emulated GPUs that compute nothing."""

import concurrent.futures
import functools
import json
import re
import subprocess
import unittest

from gpu_plans import CONFIGS, METHODS, PLANS, shares_rows, words_of_families, write_rows
from harness import ProgramTest, environment, lockstep, long, losses


def gpus():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return done.stdout.count("GPU ")


def where_it_computes(test):
    """Skips a test on emulated GPUs: test_null_gpu.py covers the families there, and the bfloat16 test covers the methods."""
    @functools.wraps(test)
    def run(self):
        if not self.computes:
            self.skipTest("other tests cover this on emulated GPUs")
        test(self)
    return run


class OnGpus:
    """Tests that subclasses run on real or emulated GPUs. `gpus` is the number of GPUs; `computes` is false if they are emulated."""

    gpus = 0
    computes = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).write_text(json.dumps(config))

    def environment(self):
        return environment()

    def on_gpus(self, *arguments, code=0):
        result = lockstep(*arguments, cwd=self.folder, env=self.environment())
        self.assertEqual(result.code, code, result)
        return result

    def train_on_gpus(self, name, *more, **options):
        return self.on_gpus(*self.train_arguments(name, *more, "use_cpu=false", **options))

    def assert_alike(self, first, second, tolerance):
        """Compares the losses of two runs; on emulated GPUs only their number."""
        self.assertGreater(len(first), 0)
        self.assertEqual(len(first), len(second))
        if self.computes:
            self.assert_close(first, second, tolerance)

    def losses(self, name):
        return losses(self.folder / name)

    def check_on_both(self, name, *more, tolerance):
        self.train_on_gpus(f"{name}-gpu", *more)
        if self.computes:
            self.train(f"{name}-cpu", *more)
        self.assert_alike(self.losses(f"{name}-cpu" if self.computes else f"{name}-gpu"), self.losses(f"{name}-gpu"), tolerance)

    def test_the_self_test(self):
        told = self.on_gpus("selftest", "--nproc", self.gpus, code=0 if self.computes else 6).out
        self.assertIn("all checks passed" if self.computes else "checks failed", told)

    def test_float32_as_on_the_cpu(self):
        self.check_on_both("float32", "tf32=false", tolerance=1e-4)

    @long
    def test_bfloat16_as_on_the_cpu(self):
        self.check_on_both("bfloat16", "bf16=true", tolerance=3e-2)

    @long
    def test_float16_as_on_the_cpu(self):
        # Starts with a loss scale that never overflows: otherwise the step of an overflow depends on the order of summation.
        self.check_on_both("float16", "fp16=true", "precision.loss_scale.initial_power=8", tolerance=1e-2)

    @long
    def test_float8_as_on_the_cpu(self):
        for scaling in ("row", "tensor"):
            self.check_on_both(f"fp8-{scaling}", "model.path=llama.json", "bf16=true", f"precision.fp8={scaling}", tolerance=3e-2)

    def check_all_on_both(self, rows, tolerance):
        """Checks rows of (name, arguments), several at a time."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            checked = {name: pool.submit(self.check_on_both, name, *words, tolerance=tolerance) for name, words in rows}
            for name, result in checked.items():
                with self.subTest(name):
                    result.result()

    @long
    @where_it_computes
    def test_families_in_float32_as_on_the_cpu(self):
        families = words_of_families(self.folder)
        self.check_all_on_both([(family, ["tf32=false", *words]) for family, words in families.items()], 1e-4)

    @long
    @where_it_computes
    def test_families_in_bfloat16_as_on_the_cpu(self):
        families = words_of_families(self.folder)
        self.check_all_on_both([(f"{family}-bfloat16", ["bf16=true", *words]) for family, words in families.items()], 3e-2)

    @long
    @where_it_computes
    def test_methods_as_on_the_cpu(self):
        write_rows(self.folder)
        self.train("base", "model.path=llama.json", steps=2)
        self.check_all_on_both([(name, ["tf32=false", *words]) for name, words in METHODS.items()], 1e-4)

    @long
    def test_methods_in_bfloat16_as_on_the_cpu(self):
        write_rows(self.folder)
        self.train("base", "model.path=llama.json", steps=2)
        # DPO reads its cached reference scores by value, and emulated GPUs compute no values.
        methods = {name: words for name, words in METHODS.items() if self.computes or name != "dpo"}
        self.check_all_on_both([(f"{name}-bfloat16", ["bf16=true", *words]) for name, words in methods.items()], 3e-2)

    @long
    def test_resume_is_bit_exact(self):
        arguments = ("full_determinism=true", "save_steps=3")
        self.train_on_gpus("whole", *arguments, steps=6)
        self.train_on_gpus("parts", *arguments, steps=3)
        self.on_gpus("train", "-c", "parts/config.yaml", "max_steps=6", "resume_from_checkpoint=true")
        self.assert_alike(self.losses("whole")[3:], self.losses("parts")[3:], 0)

    @long
    def test_evaluation_and_generation_as_on_the_cpu(self):
        self.train_on_gpus("model", steps=4)
        evaluate = ("eval", "--model", "model", "--data", "corpus/validation.txt", "--json", "data.sequence_length=32")
        generate = ("generate", "--model", "model", "--prompt", "Once", "--max-new-tokens", "16", "--dtype", "float32")
        on_gpu, written = self.on_gpus(*evaluate), self.on_gpus(*generate).out
        if self.computes:
            on_cpu = self.run_ok(*evaluate, "use_cpu=true")
            self.assertAlmostEqual(json.loads(on_gpu.out)["eval_loss"], json.loads(on_cpu.out)["eval_loss"], places=4)
            self.assertEqual(written, self.run_ok(*generate, "--device-map", "cpu").out)

    def test_more_ranks_than_gpus_is_an_error(self):
        result = self.on_gpus(*self.train_arguments("many", "use_cpu=false", ranks=self.gpus + 1), code=3)
        # With one visible GPU, each rank could see a different one, so the error is found later.
        self.assertIn("has no GPU" if self.gpus > 1 else "has the same GPU as another rank", result.err)

    def test_a_trace_has_what_the_gpu_ran(self):
        told = self.train_on_gpus("traced", "--trace", "traced.json").err
        events = json.loads((self.folder / "traced-kernels-rank0.json").read_text())["traceEvents"]
        if self.computes:
            self.assertRegex(told, r"the GPU was busy for [\d.]+% of [\d.]+ ms")
            self.assertGreater(len([event for event in events if event.get("cat") == "kernel"]), 50)

    @long
    def test_threads_and_processes_give_the_same_losses(self):
        if not self.computes:
            self.skipTest("ranks as threads may hang (docs/gpu.md), and do on emulated GPUs")
        out = self.on_gpus("bench", "dp-vs-ddp", "--nproc", self.gpus, "--layers", "1", "--width", "32", "--vocabulary", "101",
                           "--length", "16", "--steps", "2").out
        found = [float(line.split()[-1]) for line in out.splitlines() if " ms" in line]
        self.assertGreater(len(found), 2, out)
        self.assertLess(max(found) - min(found), 0.02, out)

    def as_one_rank(self, plan, model, words, tolerance):
        """Compares the losses of a plan on two GPUs, or on one if there is one, with those of one rank on one GPU."""
        ranks = min(self.gpus, 2)
        if ranks == 1 and (shares_rows(words) or any(word.startswith("parallel.expert") for word in words)):
            return
        common = [f"model.path={model}", *words]
        rows = "per_device_train_batch_size={}", "gradient_accumulation_steps=4"
        own = [word for word in common if not word.startswith("parallel.")]
        one = "one-" + re.sub(r"\W+", "-", " ".join(own))
        if not self.losses(one):
            self.train_on_gpus(one, *own, rows[0].format(8), rows[1], steps=4)
        each = 8 if shares_rows(words) else 8 // ranks
        told = self.train_on_gpus(f"{plan}-{model}", *common, rows[0].format(each), rows[1], ranks=ranks, steps=4).err
        self.assertNotIn("are not captured", told)
        self.assert_alike(self.losses(one), self.losses(f"{plan}-{model}"), tolerance)

    def check_plans(self, model, words, tolerance):
        for plan, more in PLANS.items():
            with self.subTest(plan):
                self.as_one_rank(plan, model, [*words, *more], tolerance)

    @long
    def test_plans_in_float32_with_dropout_as_one_rank(self):
        self.check_plans("gpt2.json", ["tf32=false"], 1e-4)

    @long
    def test_plans_in_bfloat16_as_one_rank(self):
        self.check_plans("llama.json", ["bf16=true"], 3e-2)

    @long
    def test_graphs_with_dropout_as_one_rank_without(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                words = ["tf32=false", f"parallel.zero_stage={stage}", "parallel.cuda_graphs=auto"]
                self.as_one_rank(f"graphs-{stage}", "gpt2.json", words, 1e-4)

    @long
    def test_resume_under_another_plan(self):
        if self.gpus < 2:
            self.skipTest("needs two GPUs")
        common = ["model.path=gpt2.json", "tf32=false", "save_steps=2", "gradient_accumulation_steps=4"]
        for saved, resumed in (("zero-3", "tensor"), ("tensor", "1f1b"), ("1f1b", "zero-3"), ("offload-parameters", "zero-1")):
            with self.subTest(saved=saved, resumed=resumed):
                for plan, steps in ((saved, 4), (resumed, 4)):
                    each = f"per_device_train_batch_size={8 if shares_rows(PLANS[plan]) else 4}"
                    own = [] if plan == saved else [f"resume_from_checkpoint={self.folder / f'saved-{saved}' / 'checkpoint-2'}"]
                    kind = "saved" if plan == saved else f"after-{saved}"
                    self.train_on_gpus(f"{kind}-{plan}", *common, *PLANS[plan], each, *own, ranks=2, steps=steps)
                self.assert_alike(self.losses(f"saved-{saved}")[2:], self.losses(f"after-{saved}-{resumed}"), 1e-4)


@unittest.skipIf(gpus() == 0, "no NVIDIA GPU is visible")
class Gpu(OnGpus, ProgramTest):
    gpus = gpus()


if __name__ == "__main__":
    unittest.main(verbosity=2)
