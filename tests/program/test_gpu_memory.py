"""What `lockstep estimate` tells of a GPU's memory, beside what libtorch's allocator reserves there: large models on GPUs that
compute nothing (tests/null_gpu/README.md), their steps run with all tensors. Skips where these are not built."""

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
    """Of the shapes of Llama 2; its numbers are zeros, which need not be drawn."""
    return {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": keys, "max_position_embeddings": 4096, "bos_token_id": 0,
        "eos_token_id": 0, "initializer_range": 0.0,
    }


MODELS = {"7b": llama(4096, 11008, 32, 32, 32), "70b": llama(8192, 28672, 80, 64, 8)}
FOUR = ["per_device_train_batch_size=4"]
ADAPTERS = ["lora.r=16", "lora.target_modules=all-linear", "parallel.recompute=full"]
OFFLOADED = ["parallel.zero_stage=3", "parallel.offload_param.device=cpu", "parallel.offload_optimizer.device=cpu"]
# Name -> model, GPUs, GiB of each, words. A GPU of 180 GB is a B200.
PLANS = {
    "plain": ("7b", 1, 180, []),
    "four-rows": ("7b", 1, 180, FOUR),
    "recomputed": ("7b", 1, 180, [*FOUR, "parallel.recompute=full"]),
    "sums": ("7b", 1, 180, ["gradient_accumulation_steps=2"]),
    "tensor": ("7b", 2, 80, [*FOUR, "parallel.tensor=2"]),
    "sequence": ("7b", 2, 80, [*FOUR, "parallel.tensor=2", "parallel.sequence_parallel=true"]),
    "pipeline": ("7b", 2, 80, ["parallel.pipeline=2", "gradient_accumulation_steps=4"]),
    "zero-1": ("7b", 8, 80, ["parallel.zero_stage=1"]),
    "zero-2": ("7b", 8, 80, ["parallel.zero_stage=2"]),
    "zero-3": ("7b", 8, 80, [*FOUR, "parallel.zero_stage=3"]),
    "offloaded": ("7b", 8, 80, [*FOUR, "parallel.zero_stage=1", "parallel.offload_optimizer.device=cpu"]),
    "70b-mixed": ("70b", 8, 180, ["parallel.tensor=4", "parallel.pipeline=2", "gradient_accumulation_steps=4"]),
}


def write_packed(folder, config):
    """A model folder whose linears bitsandbytes packed into NF4: all zeros, and holes in its file but for what is read as text."""
    hidden, inner, heads = (config[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
    keys = hidden // heads * config["num_key_value_heads"]
    linears = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
               "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
               "mlp.down_proj": (hidden, inner)}
    header, texts, at = {}, [], 0

    def add(name, dtype, shape, text=b""):
        nonlocal at
        size = {"U8": 1, "BF16": 2, "F32": 4}[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        texts.append((at, text))
        at += size

    for name in ("model.embed_tokens", "lm_head"):
        add(f"{name}.weight", "BF16", (config["vocab_size"], hidden))
    add("model.norm.weight", "BF16", (hidden,))
    for layer in range(config["num_hidden_layers"]):
        for name in ("input_layernorm", "post_attention_layernorm"):
            add(f"model.layers.{layer}.{name}.weight", "BF16", (hidden,))
        for name, (rows, columns) in linears.items():
            weight = f"model.layers.{layer}.{name}.weight"
            state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, columns]}).encode()
            add(weight, "U8", (rows * columns // 2, 1))
            add(f"{weight}.absmax", "F32", (rows * columns // 64,))
            add(f"{weight}.quant_map", "F32", (16,))
            add(f"{weight}.quant_state.bitsandbytes__nf4", "U8", (len(state),), state)
    folder.mkdir()
    described = json.dumps(header).encode()
    described += b" " * (-len(described) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(described)) + described)
        for offset, text in texts:
            if text:
                file.seek(8 + len(described) + offset)
                file.write(text)
        file.truncate(8 + len(described) + at)
    packing = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
               "bnb_4bit_use_double_quant": False, "bnb_4bit_compute_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": packing}))


@unittest.skipUnless(pretend.libraries(LIBRARIES), f"no null GPU in {LIBRARIES}: it is built where nvcc and the headers of CUDA are")
class GpuMemory(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, config in MODELS.items():
            (cls.folder / f"{name}.json").write_text(json.dumps(config))

    def reserved(self, name, gpus, memory_gb, *words):
        """The most bytes that each rank's allocator had until the second step's end; the run is ended there."""
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
        """Within 5%, on each rank; the driver's own share is none of the allocator's."""
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

    def check_plans(self, *names):
        for name in names:
            model, gpus, memory_gb, words = PLANS[name]
            with self.subTest(name):
                self.check(name, f"{model}.json", gpus, memory_gb, words)

    def test_the_estimate_is_what_the_allocator_reserves(self):
        self.check_plans("plain", "recomputed")

    @long
    def test_the_estimate_of_every_plan(self):
        self.check_plans(*(name for name in PLANS if name not in ("plain", "recomputed")))

    @long
    def test_adapters_beside_70b_in_4_bits(self):
        write_packed(self.folder / "70b-nf4", MODELS["70b"])
        self.check("nf4", "70b-nf4", 1, 80, ADAPTERS)

    @long
    def test_offloaded_adapters_beside_layers_of_a_70b(self):
        # As many layers as this machine's memory has room for: a device holds two of them, whatever their number is.
        write_packed(self.folder / "of-70b", dict(MODELS["70b"], num_hidden_layers=8))
        self.check("nf4-offloaded", "of-70b", 2, 24, [*ADAPTERS, *OFFLOADED])


if __name__ == "__main__":
    unittest.main(verbosity=2)
