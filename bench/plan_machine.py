#!/usr/bin/env python3
"""Compares the planner's predictions with the trainer on this machine: the step times of plans on two CPU ranks and their order, and the memory per
rank for many models and settings. Prints tables, and one JSON object as the last line. Exits with 1 if a target is missed.

    python3 bench/plan_machine.py --program build/release/lockstep [--rounds 3] [--steps 12] [--only time|memory]
        [--cluster FILE]

`lockstep calibrate --nproc 2` measures the machine before each round, because the speed of a virtual machine varies, unless --cluster gives a file.
The plans alternate, so that other load affects all of them. Figures are medians of the rounds; those of a round are medians of its steps. Times need
an idle machine; memory does not.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

RANKS = 2
TIME, MEMORY, TAU, TIE = 0.10, 0.03, 0.85, 0.03
HIDDEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
GIBI = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

MODELS = {
    "small": dict(family="gpt2", layers=4, width=256, vocabulary=8192, length=256),
    "wide": dict(family="gpt2", layers=4, width=512, vocabulary=8192, length=256),
    "deep": dict(family="gpt2", layers=12, width=256, vocabulary=4096, length=256),
    "words": dict(family="gpt2", layers=2, width=256, vocabulary=50257, length=256),
    "long": dict(family="gpt2", layers=4, width=256, vocabulary=4096, length=1024),
    "llama": dict(family="llama", layers=4, width=384, vocabulary=8192, length=256),
    "dropout": dict(family="gpt2", layers=4, width=256, vocabulary=8192, length=256, dropout=0.1),
    "grouped": dict(family="llama", layers=5, width=320, vocabulary=10007, length=512, heads=10, kv_heads=2, inner=864,
                    tied=False),
    "qwen": dict(family="qwen2", layers=6, width=448, vocabulary=30011, length=256, kv_heads=1, inner=1200),
    "mistral": dict(family="mistral", layers=3, width=768, vocabulary=5003, length=512, kv_heads=4, inner=2048, tied=False),
    "narrow": dict(family="gpt2", layers=9, width=192, vocabulary=2503, length=384),
    "broad": dict(family="gpt2", layers=2, width=1024, vocabulary=6007, length=128, tied=False),
    "sequence": dict(family="gpt2", layers=6, width=320, vocabulary=3001, length=1024),
    "noisy": dict(family="gpt2", layers=5, width=384, vocabulary=12007, length=512, dropout=0.1),
    "t5": dict(family="t5", layers=4, width=512, vocabulary=8192, length=256),
}

# Plans that a user chooses between: one model with 16 sequences per step.
TIMED = {
    "data 2": "small per_device_train_batch_size=8",
    "data 2, 4 micro-batches": "small per_device_train_batch_size=2 gradient_accumulation_steps=4",
    "data 2, zero 1": "small per_device_train_batch_size=8 parallel.zero_stage=1",
    "data 2, zero 2": "small per_device_train_batch_size=8 parallel.zero_stage=2",
    "data 2, zero 3": "small per_device_train_batch_size=8 parallel.zero_stage=3",
    "data 2, recompute": "small per_device_train_batch_size=8 parallel.recompute=full",
    "data 2, float32": "small per_device_train_batch_size=8 bf16=false",
    "data 2, optimizer on the host": "small per_device_train_batch_size=8 parallel.offload_optimizer.device=cpu",
    "tensor 2": "small per_device_train_batch_size=16 parallel.tensor=2",
    "tensor 2, sequence": "small per_device_train_batch_size=16 parallel.tensor=2 parallel.sequence_parallel=true",
    "context 2": "small per_device_train_batch_size=16 parallel.context=2",
    "pipeline 2, 1f1b": "small per_device_train_batch_size=4 gradient_accumulation_steps=4 parallel.pipeline=2",
    "pipeline 2, gpipe": "small per_device_train_batch_size=4 gradient_accumulation_steps=4 parallel.pipeline=2 "
                         "parallel.schedule=gpipe",
    "pipeline 2, zb-h1": "small per_device_train_batch_size=4 gradient_accumulation_steps=4 parallel.pipeline=2 "
                         "parallel.schedule=zb-h1",
    "one rank": "small per_device_train_batch_size=16 nproc=1",
}

REMEMBERED = {
    "small": "small per_device_train_batch_size=8",
    "small, float32": "small per_device_train_batch_size=8 bf16=false",
    "wide": "wide per_device_train_batch_size=8",
    "wide, float32": "wide per_device_train_batch_size=4 bf16=false",
    "deep": "deep per_device_train_batch_size=16",
    "deep, recompute": "deep per_device_train_batch_size=16 parallel.recompute=full",
    "many words": "words per_device_train_batch_size=8",
    "many words, float32": "words per_device_train_batch_size=4 bf16=false",
    "long": "long per_device_train_batch_size=4",
    "llama": "llama per_device_train_batch_size=8",
    "llama, float32": "llama per_device_train_batch_size=8 bf16=false",
    "dropout": "dropout per_device_train_batch_size=16",
    "wide, zero 1": "wide per_device_train_batch_size=4 parallel.zero_stage=1",
    "wide, zero 2": "wide per_device_train_batch_size=4 parallel.zero_stage=2",
    "wide, zero 3": "wide per_device_train_batch_size=4 parallel.zero_stage=3",
    "wide, tensor 2": "wide per_device_train_batch_size=8 parallel.tensor=2",
    "wide, tensor 2, sequence": "wide per_device_train_batch_size=8 parallel.tensor=2 parallel.sequence_parallel=true",
    "wide, context 2": "wide per_device_train_batch_size=8 parallel.context=2",
    "deep, pipeline 2": "deep per_device_train_batch_size=8 gradient_accumulation_steps=4 parallel.pipeline=2",
    "deep, pipeline 2, gpipe": "deep per_device_train_batch_size=8 gradient_accumulation_steps=4 parallel.pipeline=2 "
                               "parallel.schedule=gpipe",
    "deep, pipeline 2, interleaved": "deep per_device_train_batch_size=8 gradient_accumulation_steps=4 "
                                     "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2",
    "deep, pipeline 2, zb-h1": "deep per_device_train_batch_size=8 gradient_accumulation_steps=4 parallel.pipeline=2 "
                               "parallel.schedule=zb-h1",
    "wide, optimizer on the host": "wide per_device_train_batch_size=4 parallel.offload_optimizer.device=cpu",
    "wide, zero 3, all on the host": "wide per_device_train_batch_size=4 parallel.zero_stage=3 "
                                     "parallel.offload_optimizer.device=cpu parallel.offload_param.device=cpu",
    "wide, zero 2, optimizer in files": "wide per_device_train_batch_size=4 parallel.zero_stage=2 "
                                        "parallel.offload_optimizer.device=nvme parallel.offload_optimizer.path=FILES",
    "wide, zero 3, all in files": "wide per_device_train_batch_size=4 parallel.zero_stage=3 "
                                  "parallel.offload_optimizer.device=nvme parallel.offload_optimizer.path=FILES "
                                  "parallel.offload_param.device=nvme parallel.offload_param.path=FILES",
    "wide, one rank": "wide per_device_train_batch_size=8 nproc=1",
    "t5, zero 1": "t5 per_device_train_batch_size=4 parallel.zero_stage=1",
    "t5, pipeline 2": "t5 per_device_train_batch_size=4 gradient_accumulation_steps=4 parallel.pipeline=2",
}

# Unusual settings that the estimate was not fitted to.
OTHERS = {
    "grouped heads": "grouped per_device_train_batch_size=5",
    "grouped heads, float32": "grouped per_device_train_batch_size=3 bf16=false",
    "grouped heads, 3 micro-batches": "grouped per_device_train_batch_size=4 gradient_accumulation_steps=3",
    "grouped heads, tensor 2": "grouped per_device_train_batch_size=7 parallel.tensor=2",
    "grouped heads, ulysses": "grouped per_device_train_batch_size=6 parallel.context=2 "
                              "parallel.context_attention=ulysses",
    "grouped heads, three stages": "grouped per_device_train_batch_size=3 parallel.pipeline=3 "
                                   "gradient_accumulation_steps=5 nproc=3",
    "qwen": "qwen per_device_train_batch_size=6",
    "qwen, zero 3": "qwen per_device_train_batch_size=2 parallel.zero_stage=3",
    "qwen, 8-bit": "qwen per_device_train_batch_size=6 optim=adamw_bnb_8bit",
    "mistral, adafactor": "mistral per_device_train_batch_size=3 optim=adafactor",
    "mistral, lion, sums": "mistral per_device_train_batch_size=2 optim=lion_32bit bf16=false "
                           "gradient_accumulation_steps=3",
    "mistral, zero 2, sums": "mistral per_device_train_batch_size=3 parallel.zero_stage=2 gradient_accumulation_steps=2",
    "narrow, selective": "narrow per_device_train_batch_size=7 parallel.recompute=selective",
    "narrow, every second layer": "narrow per_device_train_batch_size=16 parallel.recompute=full "
                                  "parallel.recompute_every=2",
    "narrow, interleaved 3": "narrow per_device_train_batch_size=6 parallel.pipeline=2 parallel.schedule=interleaved "
                             "parallel.virtual_stages=3 gradient_accumulation_steps=6",
    "narrow, zb-v": "narrow per_device_train_batch_size=6 parallel.pipeline=2 parallel.schedule=zb-v "
                    "gradient_accumulation_steps=4",
    "narrow, float32, one rank": "narrow per_device_train_batch_size=5 bf16=false nproc=1",
    "broad": "broad per_device_train_batch_size=3",
    "broad, zero 1, three ranks": "broad per_device_train_batch_size=3 parallel.zero_stage=1 nproc=3",
    "broad, sgd, float32, tensor 2": "broad per_device_train_batch_size=5 optim=sgd bf16=false parallel.tensor=2",
    "broad, rounded stochastically": "broad per_device_train_batch_size=3 precision.stochastic_rounding=true",
    "one long sequence": "sequence per_device_train_batch_size=1",
    "long sequences, ring, float32": "sequence per_device_train_batch_size=3 parallel.context=2 bf16=false",
    "noisy, float16": "noisy per_device_train_batch_size=4 bf16=false fp16=true",
    "noisy, recompute, tensor 2": "noisy per_device_train_batch_size=8 parallel.recompute=full parallel.tensor=2",
    "noisy, zero 3, sums, float32": "noisy per_device_train_batch_size=4 parallel.zero_stage=3 "
                                    "gradient_accumulation_steps=2 bf16=false",
    "t5": "t5 per_device_train_batch_size=4",
    "t5, float32": "t5 per_device_train_batch_size=4 bf16=false",
    "t5, 4 micro-batches": "t5 per_device_train_batch_size=4 gradient_accumulation_steps=4",
    "t5, zero 3": "t5 per_device_train_batch_size=4 parallel.zero_stage=3",
    "t5, tensor 2": "t5 per_device_train_batch_size=4 parallel.tensor=2",
    "t5, recompute, pipeline 2": "t5 per_device_train_batch_size=4 parallel.recompute=full gradient_accumulation_steps=4 "
                                 "parallel.pipeline=2",
}

PAIRS = "data.prompt=pairs data.instruction_field=source data.output_field=target".split()


def write_pairs(text, path):
    """Writes pairs with sources longer than the limit and targets of about half its length."""
    with open(path, "w") as file:
        for at in range(0, 400 * 1500, 1500):
            file.write(json.dumps({"source": text[at:at + 1200], "target": text[at + 1200:at + 1500]}) + "\n")


def config_of(model):
    width = model["width"]
    if model["family"] == "t5":
        return {
            "model_type": "t5", "vocab_size": model["vocabulary"], "n_positions": model["length"], "d_model": width,
            "d_kv": 64, "d_ff": 2 * width, "num_layers": model["layers"], "num_decoder_layers": model["layers"],
            "num_heads": width // 64, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0,
            "tie_word_embeddings": False, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 0}
    heads = model.get("heads", width // 64)
    if model["family"] == "gpt2":
        dropout = model.get("dropout", 0.0)
        return {
            "model_type": "gpt2", "vocab_size": model["vocabulary"], "n_positions": model["length"], "n_embd": width,
            "n_layer": model["layers"], "n_head": heads, "activation_function": "gelu_new",
            "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout,
            "tie_word_embeddings": model.get("tied", True), "bos_token_id": 0, "eos_token_id": 0}
    return {
        "model_type": model["family"], "vocab_size": model["vocabulary"], "max_position_embeddings": model["length"],
        "hidden_size": width, "intermediate_size": model.get("inner", 3 * width), "num_hidden_layers": model["layers"],
        "num_attention_heads": heads, "num_key_value_heads": model.get("kv_heads", heads),
        "tie_word_embeddings": model.get("tied", True), "bos_token_id": 0, "eos_token_id": 0}


def bytes_of(text):
    number, unit = text.split()
    return float(number) * GIBI[unit]


class Machine:
    def __init__(self, options):
        self.program = pathlib.Path(options.program).resolve()
        self.steps = options.steps
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-plan-"))
        self.environment = {k: v for k, v in os.environ.items() if k not in HIDDEN}
        self.environment.update(OMP_NUM_THREADS="1", XDG_CACHE_HOME=str(self.folder))
        self.call("sample", "--output", self.folder / "sample", "--size", "1", "--seed", "1")
        self.call("tokenizer", "train", "--files", self.folder / "sample" / "train.txt", "--vocab-size", "2048",
                  "--output", self.folder / "tokenizer")
        write_pairs((self.folder / "sample" / "train.txt").read_text(), self.folder / "pairs.jsonl")
        for name, model in MODELS.items():
            (self.folder / f"{name}.json").write_text(json.dumps(config_of(model)))
        self.given = options.cluster
        self.cluster = self.given or self.folder / "machine.yaml"
        self.measure()

    def measure(self):
        """Calibrates the machine, unless a cluster file is given."""
        if self.given is None:
            print(self.call("calibrate", "--nproc", RANKS, "--write", self.cluster), flush=True)

    def call(self, *words):
        done = subprocess.run([str(word) for word in (self.program, *words)], env=self.environment, cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise SystemExit(f"plan_machine: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def words(self, setting, steps):
        """Arguments of the command, without the machine's figures."""
        name, *keys = setting.replace("FILES", str(self.folder / "files")).split()
        ranks = next((int(key.removeprefix("nproc=")) for key in keys if key.startswith("nproc=")), RANKS)
        keys = [key for key in keys if not key.startswith("nproc=")]
        has_pairs = MODELS[name]["family"] == "t5"
        data = self.folder / ("pairs.jsonl" if has_pairs else "sample/train.txt")
        return [
            "train", "--nproc", ranks, "--force", f"model.path={self.folder}/{name}.json",
            f"tokenizer.path={self.folder}/tokenizer", f"data.train={data}", *(PAIRS if has_pairs else []),
            f"data.sequence_length={MODELS[name]['length']}", f"data.cache_dir={self.folder}/cache",
            f"output_dir={self.folder}/run", "overwrite_output_dir=true", f"max_steps={steps}", "save_strategy=no",
            "learning_rate=1e-4", "logging_steps=1", "bf16=true", "monitor.progress=plain", "log_level=debug", "use_cpu=true", *keys]

    def train(self, setting, steps):
        """Predicted and measured seconds, then predicted and measured bytes, then the printed error bars as factors."""
        text = self.call(*self.words(setting, steps), "--cluster", self.cluster)
        found = re.search(
            r"predicted ([\d.e+-]+) s per step, measured ([\d.e+-]+) s .*?; predicted ([\d.]+ \w+) per rank, measured "
            r"([\d.]+ \w+)", text)
        bars = re.search(r"s per step \(-(\d+)% \+(\d+)%\)", text)
        if not found:
            raise SystemExit(f"plan_machine: no comparison in the output of {setting}\n{text}")
        return (float(found[1]), float(found[2]), bytes_of(found[3]), bytes_of(found[4]),
                (1 - float(bars[1]) / 100, 1 + float(bars[2]) / 100) if bars else None)


def kendall(predicted, measured, rounds):
    """Kendall's tau. Plans within TIE of each other, or that rounds order differently, count as ties."""
    agree = pairs = 0
    for i in range(len(measured)):
        for j in range(i):
            orders = {first > second for first, second in zip(rounds[i], rounds[j])}
            if abs(measured[i] / measured[j] - 1) < TIE or len(orders) > 1:
                continue
            pairs += 1
            sign = (measured[i] - measured[j]) * (predicted[i] - predicted[j])
            agree += (sign > 0) - (sign < 0)
    return agree / max(pairs, 1), pairs


def compare_times(machine, rounds):
    figures = {name: [] for name in TIMED}
    for turn in range(rounds):
        if turn > 0:
            machine.measure()
        for name, setting in TIMED.items():
            figures[name].append(machine.train(setting, machine.steps)[:2])
    print(f"\n{'plan':<32}{'predicted':>12}{'measured':>12}{'error':>9}")
    predicted, measured = [], []
    for name, turns in figures.items():
        predicted.append(statistics.median(turn[0] for turn in turns))
        measured.append(statistics.median(turn[1] for turn in turns))
        print(f"{name:<32}{predicted[-1]:>10.4f} s{measured[-1]:>10.4f} s{predicted[-1] / measured[-1] - 1:>+9.1%}")
    error = statistics.median(abs(p / m - 1) for p, m in zip(predicted, measured))
    tau, pairs = kendall(predicted, measured, [[turn[1] for turn in turns] for turns in figures.values()])
    print(f"{'met   ' if error <= TIME else 'MISSED'} median error of the step time {error:.1%} of {len(measured)} plans "
          f"(maximum {TIME:.0%})")
    print(f"{'met   ' if tau >= TAU else 'MISSED'} Kendall's tau of the order {tau:.2f} of {pairs} pairs "
          f"(minimum {TAU}; plans within {TIE:.0%}, or that the rounds order differently, are ties)")
    return {"step_time_error": error, "tau": tau, "pairs": pairs, "plans": len(measured)}, error <= TIME and tau >= TAU


def compare_memory(machine, settings, what):
    print(f"\n{what:<34}{'predicted':>12}{'measured':>12}{'error':>9}")
    errors = []
    for name, setting in settings.items():
        predicted, measured = machine.train(setting, 4)[2:4]
        errors.append(predicted / measured - 1)
        print(f"{name:<34}{predicted / 2**20:>8.0f} MiB{measured / 2**20:>8.0f} MiB{errors[-1]:>+9.1%}", flush=True)
    middle = statistics.median(map(abs, errors))
    worst = max(map(abs, errors))
    within = sum(abs(error) <= MEMORY for error in errors)
    met = worst <= MEMORY
    print(f"{'met   ' if met else 'MISSED'} memory per rank: worst error {worst:.1%} of {len(errors)} (maximum {MEMORY:.0%}"
          f"; {within} within it), median {middle:.1%}")
    return {"memory_error": middle, "worst_memory_error": worst, "settings": len(errors), "within": within}, met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", choices=("time", "memory"))
    parser.add_argument("--cluster", type=pathlib.Path)
    options = parser.parse_args()
    if options.cluster:
        options.cluster = options.cluster.resolve()
    machine = Machine(options)
    result, met = {}, True
    if options.only != "time":
        for settings, what, key in ((REMEMBERED, "model and setting", "memory"), (OTHERS, "others", "other_memory")):
            result[key], part_met = compare_memory(machine, settings, what)
            met = met and part_met
    if options.only != "memory":
        part, part_met = compare_times(machine, options.rounds)
        result.update(part)
        met = met and part_met
    result["met"] = met
    print(json.dumps(result))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
