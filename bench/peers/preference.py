"""TRL's DPOTrainer with the pairs, model folder and settings of bench/preference.py."""

import argparse
import json
import os
import pathlib
import sys

import datasets
import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
for name in ("model", "pairs", "out"):
    parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
for name in ("batch", "length"):
    parser.add_argument(f"--{name}", type=int, required=True)
for name in ("rate", "beta"):
    parser.add_argument(f"--{name}", type=float, required=True)
parser.add_argument("--type", required=True)
a = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(a.model)
tokenizer.pad_token = tokenizer.eos_token
pairs = [json.loads(line) for line in a.pairs.read_text().splitlines()]
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
config = trl.DPOConfig(
    output_dir=str(a.out / "trl"), num_train_epochs=1, per_device_train_batch_size=a.batch, learning_rate=a.rate, lr_scheduler_type="constant",
    beta=a.beta, max_length=a.length, bf16=a.type == "bfloat16", use_cpu=True, report_to="none", save_strategy="no", logging_steps=1,
    gradient_checkpointing=False, dataloader_pin_memory=False, disable_tqdm=True)
trainer = trl.DPOTrainer(model=model, args=config, train_dataset=datasets.Dataset.from_list(pairs), processing_class=tokenizer)
trained = trainer.train().metrics
# Counted as TRL does: an EOS token after each answer, both truncated to the length.
tokens = sum(min(len(tokenizer(row["prompt"] + row[key])["input_ids"]) + 1, a.length) for row in pairs for key in ("chosen", "rejected"))
status = pathlib.Path("/proc/self/status").read_text()
peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024
(a.out / f"rank{os.environ.get('RANK', '0')}.json").write_text(json.dumps({
    "loss": next(line["loss"] for line in trainer.state.log_history if "loss" in line), "seconds": trained["train_runtime"],
    "tokens": tokens, "peak_bytes": peak}))
sys.stdout.flush()
os._exit(0)  # as in classifier.py
