"""Compares the GPU memory that `lockstep estimate` predicts with what libtorch's allocator reserves, for large models on emulated GPUs that
compute nothing but allocate all tensors (tests/null_gpu/README.md). Skipped if the emulated GPUs are not built."""

import json
import pathlib
import signal
import struct
import sys
import unittest

from harness import PROGRAM, SOURCE, ProgramTest, environment, lockstep, long, losses, start, wait_for

sys.path.insert(0, str(SOURCE / "tests" / "null_gpu"))
import pretend  # noqa: E402

LIBRARIES = pathlib.Path(PROGRAM).resolve().parent / "null_gpu"


def llama(hidden, inner, layers, heads, keys):
    """Writes a model with the shapes of Llama 2. All weights are zero, so no random numbers are drawn."""
    return {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": keys, "max_position_embeddings": 4096, "bos_token_id": 0,
        "eos_token_id": 0, "initializer_range": 0.0,
    }


MODELS = {"7b": llama(4096, 11008, 32, 32, 32), "70b": llama(8192, 28672, 80, 64, 8)}
FOUR = ["per_device_train_batch_size=4"]
# Name -> model, GPUs, GiB per GPU, arguments. 180 GB is a B200. No GPU has 800 GB; two of these hold what eight real ones would.
PLANS = {
    "plain": ("7b", 1, 180, []),
    "recomputed": ("7b", 1, 180, [*FOUR, "parallel.recompute=full"]),
}
ON_TWO = {
    "tensor": ("7b", 2, 80, [*FOUR, "parallel.tensor=2"]),
    "zero-1": ("7b", 2, 180, ["parallel.zero_stage=1"]),
    "zero-3": ("7b", 2, 180, [*FOUR, "parallel.zero_stage=3"]),
    "70b-zero-3": ("70b", 2, 800, ["parallel.zero_stage=3", "parallel.recompute=full"]),
}


@unittest.skipUnless(pretend.libraries(LIBRARIES), f"no null GPU in {LIBRARIES}; building it requires nvcc and the CUDA headers")
class GpuMemory(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, config in MODELS.items():
            (cls.folder / f"{name}.json").write_text(json.dumps(config))

    def reserved(self, name, gpus, memory_gb, *words):
        """Peak bytes that each rank's allocator reserved up to the end of the second step. Then the run is stopped."""
        reports = self.folder / f"{name}.reports"
        process = start(
            "train", "--nproc", gpus, "tokenizer.path=tokenizer", "data.train=corpus/train.txt", "data.validation=null",
            "data.cache_dir=cache", f"output_dir={name}", "max_steps=1000", "logging_steps=1", "warmup_steps=0",
            "monitor.peak_tflops=1", "use_cpu=false", "save_strategy=no", *words, cwd=self.folder,
            env=environment(NULL_GPU_PATIENCE="600", **pretend.variables(LIBRARIES, reports, gpus, memory_gb)))
        try:
            wait_for(lambda: process.poll() is not None or len(losses(self.folder / name)) >= 2, seconds=900)
            self.assertIsNone(process.poll(), process.poll() is not None and process.communicate())
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        return [struct.unpack("<q", (reports / f"peak-{rank}").read_bytes())[0] for rank in range(gpus)]

    def check(self, name, model, gpus, memory_gb, words):
        """Checks that the prediction is within 5 % on each rank, excluding the CUDA context, which the allocator does not count."""
        words = [f"model.path={model}", "data.sequence_length=2048", "bf16=true", "per_device_train_batch_size=1", *words]
        told = lockstep("estimate", "--json", "--gpus", gpus, *words, cwd=self.folder)
        self.assertEqual(told.code, 0, told)
        stages = json.loads(told.out)["stages"]
        for rank, bytes_there in enumerate(self.reserved(name, gpus, memory_gb, *words)):
            stage = stages[rank * len(stages) // gpus]
            predicted = stage["total"] - stage["context"]
            self.assertLess(
                abs(predicted / bytes_there - 1), 0.05,
                f"{name}, rank {rank}: {predicted / 1e9:.2f} GB were predicted, {bytes_there / 1e9:.2f} reserved; {stage}")
            self.told = f"{name:12} rank {rank}: predicted {predicted / 1e9:.2f} GB, reserved {bytes_there / 1e9:.2f} GB"
            print(self.told, file=sys.stderr)

    def check_all(self, plans):
        for name, (model, gpus, memory_gb, words) in plans.items():
            with self.subTest(name):
                self.check(name, f"{model}.json", gpus, memory_gb, words)

    def test_the_estimate_is_what_the_allocator_reserves(self):
        self.check_all(PLANS)

    @long
    def test_the_estimate_on_two_gpus(self):
        self.check_all(ON_TWO)


if __name__ == "__main__":
    unittest.main(verbosity=2)
