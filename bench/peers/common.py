"""Code that the peers' scripts share: model, tokens, and the report for bench/run.py."""

import argparse
import json
import os
import pathlib
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel


def arguments():
    parser = argparse.ArgumentParser()
    for size in ("layers", "width", "heads", "vocabulary"):
        parser.add_argument(f"--{size}", type=int, help="size of the GPT-2 model")
    parser.add_argument("--config", type=pathlib.Path, help="config.json to use instead of a GPT-2 model")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--more", type=int, default=0, help="steps to train after the checkpoint at --steps")
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile")
    parser.add_argument("--kind", required=True)
    parser.add_argument("--folder", type=pathlib.Path, help="model folder for the kinds peft and peft-nf4")
    parser.add_argument("--rank", type=int, default=16, help="adapter rank for these kinds")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--save", action="store_true", help="save a checkpoint after the last step")
    parser.add_argument("--resume", action="store_true", help="resume from that checkpoint")
    return parser.parse_known_args()[0]


def make_model(a):
    if a.config:
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(a.config))
    config = GPT2Config(
        vocab_size=a.vocabulary, n_positions=a.length, n_embd=a.width, n_layer=a.layers, n_head=a.heads,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )
    torch.manual_seed(0)
    return GPT2LMHeadModel(config)


def make_adapted_model(a):
    """Model of the folder, frozen, in bfloat16 or NF4 with double quantization, with PEFT adapters on every linear of the blocks."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    packed = {}
    if a.kind == "peft-nf4":
        packed["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.bfloat16, **packed)
    if packed:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=a.rank, lora_alpha=16, target_modules="all-linear"))


def tokens(a, rows):
    """Random tokens; the time of a step does not depend on them."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, a.vocabulary, (rows, a.length), generator=generator)


class Report:
    """Times since the epoch, processor time of this rank, and memory; one file per rank."""

    def __init__(self, a, model):
        self.path = a.out / f"rank{os.environ.get('RANK', '0')}.json"
        self.values = {}
        model.register_forward_pre_hook(lambda *_: self.mark("first_forward"))

    def mark(self, name):
        if torch.cuda.is_available() and name != "first_forward":
            torch.cuda.synchronize()
        self.values.setdefault(name, time.time())
        self.values.setdefault(f"{name}_processor", time.process_time())

    def write(self, **values):
        status = pathlib.Path("/proc/self/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        self.values.update(values, peak_bytes=int(peak.split()[1]) * 1024)
        if torch.cuda.is_available():
            self.values["device_bytes"] = torch.cuda.max_memory_reserved()
        self.path.write_text(json.dumps(self.values))
