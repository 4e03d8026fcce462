#!/usr/bin/env python3
"""Compares Lockstep on the GPUs of this machine with Hugging Face's Trainer, a minimal loop, and the predictions of `lockstep plan`.

    python3 bench/gpu.py --program build/release/lockstep [--python PYTHON] [--device h200] [--models gpt2,llama-1b,llama-7b]
        [--sides plain,graphs,...] [--steps 12] [--warm 4] [--json FILE] [--trace SIDES]

Every side trains in bfloat16 on one GPU with the same rows per step. Lockstep runs its real trainer, with data loading and gradient clipping, on
bfloat16 weights with float32 master weights; its peers use autocast on float32 weights, as is usual. Times are wall time between the ends of two
steps. If a side fails, its error is printed instead of figures.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from run import flops_per_token

HERE = pathlib.Path(__file__).resolve().parent
PEAK = {"h100-80gb": 989.4e12, "h200": 989.4e12, "b200": 2250e12}  # from data sheets, bfloat16 without sparsity
LLAMA = {"model_type": "llama", "bos_token_id": 0, "eos_token_id": 0, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}
# Model -> config.json, tokens per row, rows per step.
MODELS = {
    "gpt2": ({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "bos_token_id": 0,
              "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, 1024, 16),
    "llama-1b": ({**LLAMA, "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                  "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True}, 4096, 4),
    "llama-7b": ({**LLAMA, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "num_key_value_heads": 32, "tie_word_embeddings": False}, 4096, 2),
}
LORA = ["lora.r=16", "lora.lora_alpha=16", "lora.target_modules=all-linear"]
# Sides of Lockstep -> their settings.
SIDES = {
    "plain": [],
    "graphs": ["parallel.cuda_graphs=auto"],
    "recomputed": ["parallel.recompute=full"],
    "fp8-row": ["precision.fp8=row"],
    "fp8-tensor": ["precision.fp8=tensor"],
    "offload": ["parallel.zero_stage=2", "parallel.offload_optimizer.device=cpu"],
    "8-bit": ["training.optim=adamw_8bit"],
    "lora": LORA,
    "lora-nf4": [*LORA, "quantization.bits=4", "quantization.double_quant=true"],
}
MAKE_BASE = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]), dtype=torch.bfloat16)
model.save_pretrained(sys.argv[2])
"""
# Peers -> script in bench/peers/ and its arguments.
PEERS = {"trainer": ["trainer.py", "--kind", "trainer"], "loop": ["loop.py", "--kind", "ddp"], "compiled": ["loop.py", "--kind", "ddp", "--compile"],
         "peft": ["trainer.py", "--kind", "peft"]}


def sizes(config):
    """Sizes under the names of bench/run.py."""
    if config["model_type"] == "gpt2":
        return {"layers": config["n_layer"], "width": config["n_embd"], "vocabulary": config["vocab_size"], "length": config["n_positions"]}
    return {"layers": config["num_hidden_layers"], "width": config["hidden_size"], "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"], "inner": config["intermediate_size"], "vocabulary": config["vocab_size"],
            "length": config["max_position_embeddings"]}


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        for command in (
            ["sample", "--output", folder / "sample", "--size", "8", "--seed", "1"],
            ["tokenizer", "train", "--files", folder / "sample" / "validation.txt", "--vocab-size", "2048", "--output", folder / "tokenizer"],
        ):
            subprocess.run([arguments.program, *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    def base(self, name):
        """Folder of base weights for adapters, made once."""
        folder = self.folder / f"{name}-base"
        if not folder.exists():
            (self.folder / "config.json").write_text(json.dumps(MODELS[name][0]))
            subprocess.run([self.arguments.python, "-c", MAKE_BASE, self.folder / "config.json", folder], check=True, capture_output=True)
        return folder

    def lockstep(self, name, side, out):
        config, length, rows = MODELS[name]
        (out / "config.json").write_text(json.dumps(config))
        model = self.base(name) if side.startswith("lora") else out / "config.json"
        command = [
            self.arguments.program, "train", "--nproc", "1", f"model.path={model}", f"tokenizer.path={self.folder}/tokenizer",
            f"data.train={self.folder}/sample/train.txt", f"data.sequence_length={length}", f"data.cache_dir={self.folder}/cache",
            f"output_dir={out}/run", "overwrite_output_dir=true", f"max_steps={self.arguments.steps}", f"per_device_train_batch_size={rows}", "learning_rate=1e-4",
            "logging_steps=1", "bf16=true", "monitor.progress=plain", "save_strategy=no", "num_train_epochs=100", *SIDES[side]]
        if side in self.arguments.trace.split(","):
            command += ["--trace", out / "trace.json"]
        began = time.time()
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        arrivals, text = {}, []
        for line in process.stderr:
            text.append(line)
            if line.startswith("step "):
                arrivals[int(line.split("/")[0].split()[1])] = time.time()
        if process.wait() != 0:
            return {"error": "".join(text[-25:])}
        seen = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
        seen = {line["step"]: line for line in seen if "step_s" in line}
        last = max(arrivals)
        found = {
            "step_s": (arrivals[last] - arrivals[self.arguments.warm]) / (last - self.arguments.warm),
            "median_step_s": statistics.median(line["step_s"] for step, line in seen.items() if step > self.arguments.warm),
            "first_s": arrivals[1] - began, "losses": [round(line["loss"], 4) for line in seen.values()], "line": seen[last],
            "head": "".join(text[:40]), "tail": text[-3:]}
        kernels = out / "trace-kernels-rank0.json"
        if kernels.exists():
            found["kernels"] = kernels_of(kernels)
        return found

    def peer(self, name, kind, out):
        config, length, rows = MODELS[name]
        (out / "config.json").write_text(json.dumps(config))
        script, *words = PEERS[kind]
        if kind == "peft":
            words += ["--folder", self.base(name)]
        command = [
            self.arguments.python, HERE / "peers" / script, *words, "--out", out, "--steps", self.arguments.steps, "--warm", self.arguments.warm, "--length", length, "--batch", rows,
            "--config", out / "config.json", "--vocabulary", config["vocab_size"], "--bf16"]
        environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore",
                           PYTORCH_ALLOC_CONF="expandable_segments:True")
        if script == "loop.py":
            environment.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            return {"error": done.stderr[-2000:]}
        marks = json.loads((out / "rank0.json").read_text())
        return {"step_s": (marks["end"] - marks["begin"]) / (self.arguments.steps - self.arguments.warm), "bytes": marks.get("device_bytes"),
                "losses": [marks["loss"]]}

    def expected(self, name):
        """Seconds per step and bytes that `lockstep plan` predicts."""
        config, length, rows = MODELS[name]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config))
        told = subprocess.run(
            [self.arguments.program, "plan", "--model", path, "--gpu", self.arguments.device, "--gpus", "1", "--global-batch", str(rows),
             f"data.sequence_length={length}", "--explain"], capture_output=True, text=True).stdout
        found = re.search(rf"micro-batch {rows} × 1, recompute none\n +step ([\d.]+) ms .*?([\d.]+) GB ", told)
        return {"step_s": float(found[1]) / 1e3, "bytes": float(found[2]) * 1e9} if found else {"error": told[-500:]}


def kernels_of(path):
    """[milliseconds, launches, name] of each kernel of a traced step, longest first."""
    kernels = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            entry = kernels.setdefault(event["name"][:160], [0.0, 0])
            entry[0] += event["dur"] / 1e3
            entry[1] += 1
    return sorted(([*entry, name] for name, entry in kernels.items()), reverse=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=str(HERE.parent / ".deps" / "peers" / "bin" / "python"))
    parser.add_argument("--device", default="h200", choices=sorted(PEAK), help="GPU, as `lockstep plan` names it")
    parser.add_argument("--models", default="gpt2,llama-1b")
    parser.add_argument("--sides", default="plain,graphs,trainer,loop")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--trace", default="", metavar="SIDES", help="sides to trace; the kernels of one step are written to the file of --json")
    arguments = parser.parse_args()
    arguments.program = arguments.program.resolve()
    results = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        for name in arguments.models.split(","):
            config, length, rows = MODELS[name]
            results[name] = {"expected": bench.expected(name)}
            print(f"\n{name}: {rows} rows of {length} tokens per step\n\n| | ms per step | tokens/s | of the data sheet | memory |\n|---|---|---|---|---|")
            for side in ["expected", *arguments.sides.split(",")]:
                if side != "expected":
                    out = pathlib.Path(tempfile.mkdtemp(dir=folder))
                    results[name][side] = bench.peer(name, side, out) if side in PEERS else bench.lockstep(name, side, out)
                    shutil.rmtree(out, ignore_errors=True)
                found = results[name][side]
                if "error" in found:
                    print(f"| {side} | {found['error'].strip().splitlines()[-1][:150]} |", flush=True)
                    continue
                rate = rows * length / found["step_s"]
                share = rate * flops_per_token(sizes(config)) / PEAK[arguments.device]
                memory = found.get("bytes") or found.get("line", {}).get("peak_memory_bytes")
                print(f"| {side} | {1e3 * found['step_s']:.1f} | {rate:,.0f} | {share:.3f} | {memory / 1e9 if memory else 0:.1f} GB |", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
