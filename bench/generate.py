#!/usr/bin/env python3
"""Measures tokens/s of sequential generation (batch 1) on this machine's processors, with bfloat16 weights and weights quantized to 8 and 4 bits,
compared with transformers and llama.cpp; also the speed of `lockstep eval`.

    .deps/python/bin/python bench/generate.py --program build/release/lockstep [--gigabytes 1] [--tokens 48] [--repeats 3] [--threads 2]

Each token reads every weight once, so the bound is the memory's bandwidth, measured by summing numbers with all threads, divided by the bytes of the
weights. The time per token is the difference between a long and a short generation, so that neither the start nor the prompt counts. The sides
alternate; figures are medians. llama.cpp (the wheel xllamacpp) and transformers are measured if the Python that runs this script has them. Exits
with 1 if a target is missed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import run as bench
from start import llama, write_llama

SHARE = 0.7  # of the memory's bound in bfloat16; half of it in 8 and 4 bits
PROMPT = "the quick brown fox jumps over the lazy dog"
FEW = 8
# Scripts that measure the memory's bandwidth and transformers in separate processes.
SUM = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
numbers = torch.ones(1 << 28, dtype=torch.int32)
best = 1e9
for _ in range(5):
    begin = time.perf_counter(); numbers.sum(dtype=torch.int32); best = min(best, time.perf_counter() - begin)
print(4 * (1 << 28) / best)
"""
TRANSFORMERS = """
import sys, time, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.bfloat16)
ids = torch.arange(1, 12).reshape(1, -1)
def take(count):
    begin = time.perf_counter()
    with torch.no_grad(): model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
    return time.perf_counter() - begin
take(2)
few, many = int(sys.argv[3]), int(sys.argv[4])
print((take(many) - take(few)) / (many - few))
"""
LLAMA_CPP = """
import json, sys, time, urllib.request, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[2]
parameters.n_ctx = 512
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[1])
server = xllamacpp.Server(parameters)
def take(count):
    begin = time.perf_counter()
    answer = server.handle_completions({"prompt": list(range(1, 12)), "n_predict": count, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False})
    return time.perf_counter() - begin
take(2)
few, many = int(sys.argv[3]), int(sys.argv[4])
print((take(many) - take(few)) / (many - few))
"""


class Failed(Exception):
    pass


def python(script, *words):
    done = subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise Failed(done.stderr[-1500:])
    return float(done.stdout.split()[-1])


def ours(a, folder, words):
    """Seconds per token, from two runs of different lengths. Each is timed from the output of the prompt, which follows the loading of weights."""
    def take(count):
        process = subprocess.Popen([a.program, "generate", "--model", folder, "--prompt", PROMPT, "--device-map", "cpu", "--dtype", "bfloat16",
                                    "--max-new-tokens", str(count), "--min-new-tokens", str(count), *words],
                                   env={**os.environ, "OMP_NUM_THREADS": str(a.threads)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        arrivals = []
        while os.read(process.stdout.fileno(), 1 << 16):
            arrivals.append(time.perf_counter())
        error = process.communicate()[1].decode(errors="replace")
        if process.returncode != 0:
            raise Failed(error[-1500:])
        return arrivals[-1] - arrivals[0]

    few = take(FEW)
    return (take(FEW + a.tokens) - few) / a.tokens


def evaluated(a, folder, scratch, model):
    """Tokens/s of `lockstep eval`, and the fraction of the peak that its forward pass reaches."""
    text = scratch / "eval.txt"
    text.write_text((scratch / "sample" / "train.txt").read_text()[:20_000])
    done = subprocess.run([a.program, "eval", f"model.path={folder}", f"data.validation={text}", "data.sequence_length=512", "bf16=true",
                           f"data.cache_dir={scratch}/cache", "per_device_eval_batch_size=2", "use_cpu=true"],
                          env={**os.environ, "OMP_NUM_THREADS": str(a.threads)}, capture_output=True, text=True, check=False)
    found = {name: re.search(rf'"?{name}"?[:= ]+([\d.]+)', done.stdout + done.stderr) for name in ("eval_tokens", "eval_runtime")}
    if done.returncode != 0 or not all(found.values()):
        raise Failed(done.stdout + done.stderr[-1500:])
    rate = float(found["eval_tokens"][1]) / float(found["eval_runtime"][1])
    machine = bench.Machine()
    peak = bench.peak_gflops(machine, "bfloat16")
    return rate, rate * bench.flops_per_token({**model, "length": 512}) / 3 / (peak * 1e9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=bench.HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = parser.parse_args()
    a.program = a.program.resolve()
    bench.PYTHON = sys.executable
    model = llama(a.gigabytes)
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-", dir=os.environ.get("TMPDIR")) as name:
        scratch = pathlib.Path(name)
        bench.Lockstep(a.program, scratch, bench.Machine())  # writes its tokenizer and text
        folder = scratch / "model"
        size = write_llama(folder, model)
        for file in (scratch / "tokenizer").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        # A token reads one row of the embedding and all other weights.
        embedding = 2 * model["vocabulary"] * model["width"]
        read = {"bfloat16": size - embedding, "8 bits": embedding + (size - 2 * embedding) // 2, "4 bits": embedding + (size - 2 * embedding) * 9 // 32}
        rate = max(python(SUM, a.threads) for _ in range(2))
        print(f"{bench.processor()}, {a.threads} threads; a Llama of {model['layers']} layers, width {model['width']}, {size / 1e9:.2f} GB in bfloat16; "
              f"memory bandwidth {rate / 1e9:.1f} GB/s; load average {os.getloadavg()[0]:.1f}")
        sides = {("Lockstep", kind): (lambda words=words: ours(a, folder, words))
                 for kind, words in (("bfloat16", []), ("8 bits", ["--bits", "8"]), ("4 bits", ["--bits", "4"]))}
        if importlib.util.find_spec("transformers"):
            sides["transformers", "bfloat16"] = lambda: python(TRANSFORMERS, a.threads, folder, FEW, FEW + a.tokens)
        else:
            print("transformers is not installed: skipped")
        if importlib.util.find_spec("xllamacpp"):
            for kind, form in (("bfloat16", "f16"), ("8 bits", "q8_0"), ("4 bits", "q4_0")):
                file = scratch / f"{form}.gguf"
                done = subprocess.run([a.program, "export", "--model", folder, "--gguf", form, "--output", file], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    sys.exit(done.stderr)
                sides["llama.cpp" + (" (float16)" if form == "f16" else f" ({form})"), kind] = \
                    lambda file=file: python(LLAMA_CPP, a.threads, file, FEW, FEW + a.tokens)
        else:
            print("llama.cpp's wheel (xllamacpp) is not installed: skipped")
        seconds = {side: [] for side in sides}
        for _ in range(a.repeats):
            for side, take in sides.items():
                try:
                    seconds[side].append(take())
                except Failed as error:
                    print(f"{' '.join(side)} failed: {error}", file=sys.stderr)
        met = True
        print("| | weights | tokens/s | of the memory's bound | |\n|---|---|---|---|---|")
        for (name, kind), found in seconds.items():
            if not found:
                continue
            tokens = 1 / statistics.median(found)
            share = tokens * read[kind] / rate
            verdict = ""
            if name == "Lockstep":
                target = SHARE if kind == "bfloat16" else SHARE / 2
                verdict = f"{'met' if share >= target else 'MISSED'} ({target:.2f} at least)"
                met = met and share >= target
            print(f"| {name} | {kind} | {tokens:.1f} | {share:.2f} | {verdict} |", flush=True)
        try:
            speed, share = evaluated(a, folder, scratch, model)
            print(f"\n`lockstep eval`, one rank: {speed:,.0f} tokens/s, {share:.2f} of the peak of products in bfloat16")
        except Failed as error:
            print(f"`lockstep eval` failed: {error}", file=sys.stderr)
            met = False
    print(f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
