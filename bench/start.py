#!/usr/bin/env python3
"""Measures the start of a run: the time from the command to the first forward pass, with cached tokens, and with weights to load, compared with
plainly reading the same file.

    python3 bench/start.py --program build/release/lockstep [--repeats 5] [--models small,wide] [--gigabytes 1]

Two ranks run the models of bench/run.py. One rank loads the weights: a bfloat16 Llama with trainable adapters, so that weights are read but have no
optimizer state. They are read from the disk (after dropping the file from the page cache) and from the page cache. Figures are medians; exits with 1
if a target is missed.
"""

import argparse
import array
import json
import os
import pathlib
import random
import statistics
import struct
import sys
import tempfile
import time

import run as bench

AT_MOST, A_GIGABYTE, OF_THE_DISK = 0.5, 0.7, 0.8  # seconds, additional seconds per gigabyte of weights, fraction of the disk's bandwidth


def llama(gigabytes, width=2048):
    """Sizes of a Llama of about this many bytes in bfloat16."""
    inner, vocabulary = 11 * width // 4, 4096
    block = 2 * (width * width * 2 + width * width // 2 + 3 * width * inner)
    return {"layers": max(1, round((gigabytes * 1e9 - 4 * vocabulary * width) / block)), "width": width, "heads": width // 128, "kv_heads": width // 512,
            "inner": inner, "vocabulary": vocabulary, "length": 512}


def write_llama(folder, model):
    """Writes a model folder with random weights; returns the bytes of its tensors."""
    width, inner, kv = model["width"], model["inner"], model["width"] * model["kv_heads"] // model["heads"]
    shapes = {"model.embed_tokens.weight": [model["vocabulary"], width], "model.norm.weight": [width], "lm_head.weight": [model["vocabulary"], width]}
    for layer in range(model["layers"]):
        block = {"self_attn.q_proj": [width, width], "self_attn.k_proj": [kv, width], "self_attn.v_proj": [kv, width], "self_attn.o_proj": [width, width],
                 "mlp.gate_proj": [inner, width], "mlp.up_proj": [inner, width], "mlp.down_proj": [width, inner], "input_layernorm": [width],
                 "post_attention_layernorm": [width]}
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()})
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(1)
    # Values of about 0.02 with random signs. The block repeats, at a period that is no power of two.
    part = array.array("H", (draw.getrandbits(1) << 15 | 0x3C00 | draw.getrandbits(8) for _ in range(999_983))).tobytes()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, len(part)):
            file.write(part[:end - at])
        os.fsync(file.fileno())
    config = json.loads(bench.config_of(model))
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    return end


def forget(path):
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(path):
    begin = time.monotonic()
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    return time.monotonic() - begin


def first_forward(machine, lockstep, model, ranks, words, folder):
    """Seconds from the command to the first forward pass: the time of the first step's log line minus the step."""
    command = [
        lockstep.program, "train", "--nproc", ranks, f"tokenizer.path={lockstep.folder}/tokenizer", f"data.train={lockstep.folder}/sample/train.txt",
        f"data.sequence_length={bench.length_of(model)}", f"data.cache_dir={lockstep.folder}/cache", f"output_dir={folder}/run", "max_steps=1",
        "per_device_train_batch_size=1", "logging_steps=1", "bf16=true", "monitor.progress=plain", "use_cpu=true", "overwrite_output_dir=true",
        "save_strategy=no", *words]
    begin = time.time()
    process = machine.start(command, stdout=bench.subprocess.DEVNULL, stderr=bench.subprocess.PIPE)
    arrival, said = None, []
    for line in process.stderr:
        said.append(line)
        if line.startswith("step 1/"):
            arrival = time.time()
    if process.wait() != 0 or arrival is None:
        sys.exit("".join(said[-20:]))
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return arrival - next(line["step_s"] for line in lines if "step_s" in line) - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=bench.HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", default="small,wide")
    parser.add_argument("--gigabytes", type=float, default=1)
    arguments = parser.parse_args()
    met = True

    def tell(what, seconds, target):
        nonlocal met
        middle = statistics.median(seconds)
        met = met and (target is None or middle <= target)
        verdict = f"  {'met' if middle <= target else 'MISSED'} (maximum {target:.2f} s)" if target else ""
        print(f"  {what:<62} {middle:5.2f} s{verdict}   ({', '.join(f'{s:.2f}' for s in seconds)})", flush=True)
        return middle

    print(f"{bench.processor()}; load average {os.getloadavg()[0]:.1f}; from the command to the first forward pass, bfloat16")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-", dir=os.environ.get("TMPDIR")) as scratch:
        folder, machine = pathlib.Path(scratch), bench.Machine()
        lockstep = bench.Lockstep(arguments.program.resolve(), folder, machine)
        for name in arguments.models.split(","):
            model = bench.MODELS[name]
            words = [f"model.path={lockstep.config(model)}"]
            first_forward(machine, lockstep, model, bench.RANKS, words, folder)  # tokenizes the data
            tell(f"the {name} model, new, {bench.RANKS} ranks", [first_forward(machine, lockstep, model, bench.RANKS, words, folder)
                                                                 for _ in range(arguments.repeats)], AT_MOST)
        model = {**llama(arguments.gigabytes), "length": 64}  # the time includes waiting for a step, whose duration is subtracted
        size = write_llama(folder / "llama", model)
        weights = folder / "llama" / "model.safetensors"
        words, none = [f"model.path={folder}/llama", "lora.r=4"], [f"model.path={lockstep.config(bench.MODELS['small'])}"]
        first_forward(machine, lockstep, model, 1, words, folder)
        cached = [first_forward(machine, lockstep, model, 1, words, folder) for _ in range(arguments.repeats)]
        bare, cold, disk = [], [], []
        for _ in range(arguments.repeats):
            bare.append(first_forward(machine, lockstep, bench.MODELS["small"], 1, none, folder))
            forget(weights)
            cold.append(first_forward(machine, lockstep, model, 1, words, folder))
            forget(weights)
            disk.append(read_seconds(weights))
        gigabytes = size / 1e9
        tell(f"{gigabytes:.2f} GB of weights, cached by the system", cached, None)
        tell(f"{gigabytes:.2f} GB of weights, from the disk", cold, AT_MOST + A_GIGABYTE * gigabytes)
        tell("the small model with new weights, one rank", bare, None)
        tell("reading the weights plainly", disk, None)
        loading = statistics.median(cold) - statistics.median(bare)
        share = statistics.median(disk) / max(loading, 1e-9)
        met = met and share >= OF_THE_DISK
        print(f"  loading weights takes {loading:.2f} s: {size / loading / 1e9:.2f} GB/s, {share:.2f} of the disk's bandwidth "
              f"({'met' if share >= OF_THE_DISK else 'MISSED'}: minimum {OF_THE_DISK})")
    print(f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
