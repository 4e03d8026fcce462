"""Compares the load-balancing loss of a mixture of experts with transformers (router_aux_loss=micro_batch): its value and the gradient norm
for a step of one row through three layers."""

import json
import os
import pathlib
import subprocess

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).absolute()
TEXT = "The cat sat by the old river and looked at the boats that went by."
COEFFICIENT = 5.0  # large enough that a wrong gradient shows
MODEL = dict(model_type="mixtral", vocab_size=400, hidden_size=32, intermediate_size=24, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, initializer_range=0.2,
             router_aux_loss_coef=COEFFICIENT, output_router_logits=True, bos_token_id=0, eos_token_id=0)


def lockstep(folder, *words):
    result = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_balance_loss_equals_transformers(tmp_path):
    lockstep(tmp_path, "sample", "--output", "sample", "--size", "0.05")
    lockstep(tmp_path, "tokenizer", "train", "--files", "sample/train.txt", "--vocab-size", "400", "--output", "tokenizer")
    (tmp_path / "one.txt").write_text(TEXT)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    lockstep(tmp_path, "train", "model.path=model", "tokenizer.path=tokenizer", "data.train=one.txt", "data.sequence_length=64",
             "use_cpu=true", "per_device_train_batch_size=1", "max_steps=1", "logging_steps=1", "max_grad_norm=0", "output_dir=run",
             "router_aux_loss=micro_batch")
    ours = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])

    model = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer" / "tokenizer.json"))
    ids = torch.tensor([tokenizer(TEXT)["input_ids"] + [MODEL["eos_token_id"]]])
    result = model(ids, labels=ids)
    result.loss.backward()
    norm = torch.stack([value.grad.norm() for value in model.parameters()]).norm()
    balance = result.aux_loss.item()
    assert abs(ours["router_aux_loss"] - balance) <= 1e-5 * balance
    assert abs(ours["loss"] - (result.loss.item() - COEFFICIENT * balance)) <= 1e-5 * ours["loss"]
    assert abs(ours["grad_norm"] - norm.item()) <= 1e-5 * norm.item()
