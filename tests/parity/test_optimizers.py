"""Compares optimizers with parameter groups with torch.optim: Muon for hidden matrices with AdamW for the rest, and groups by name."""

import json
import pathlib
import re
import sys

import numpy
import pytest
import torch
import transformers
from torch.optim import _muon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import harness as program  # noqa: E402

STEPS = 8
# torch iterates in bfloat16 with 8 significant bits, Lockstep in float32: losses of about 6 differ by up to 1e-5 of their value.
TOLERANCE = {"float64": 5e-6, "bfloat16": 1e-4}


@pytest.fixture(scope="module")
def runs():
    program.ProgramTest.setUpClass()
    yield program.ProgramTest()
    program.ProgramTest.tearDownClass()


def iterate_in_float64(gradient, coefficients, steps, epsilon):
    a, b, c = coefficients
    x = gradient.double()
    x = x / x.norm().clamp(min=epsilon)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def model_of(family):
    torch.manual_seed(3)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            **{**program.CONFIG, "n_head": 4, "n_embd": 32, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=43, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False))


def is_hidden_matrix(name, parameter):
    return parameter.dim() == 2 and not re.search("wte|wpe|embed|head", name)


def trained_here(runs, model, name, *more, ranks=1):
    folder = runs.folder / f"from-{name}"
    model.save_pretrained(folder)
    rows = [line for line in (runs.folder / "corpus" / "train.txt").read_text().splitlines() if 20 < len(line) < 60][:3 * STEPS]
    (runs.folder / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    runs.run_ok("train", "--nproc", ranks, f"model.path={folder}", "tokenizer.path=tokenizer", "data.train=rows.jsonl",
                "data.packing=false", "data.sequence_length=48", "data.cache_dir=cache", f"output_dir={name}",
                f"max_steps={STEPS}", f"per_device_train_batch_size={3 // ranks}", "train_sampling_strategy=sequential",
                "lr_scheduler_type=constant", "learning_rate=1e-3", "weight_decay=0.1", "logging_steps=1",
                "monitor.peak_tflops=1", "use_cpu=true", *more)
    return rows, program.losses(runs.folder / name)


def trained_there(runs, model, rows, optimizers):
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs.folder / "tokenizer")
    losses = []
    for begin in range(0, 3 * STEPS, 3):
        ids = [tokenizer(text)["input_ids"] + [model.config.eos_token_id] for text in rows[begin:begin + 3]]
        width = max(map(len, ids))
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in ids])
        loss = model(labels.clamp_min(0), labels=labels, use_cache=False).loss
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    return losses


def adamw_of(parameters, lr=1e-3):
    return [{"params": [p for _, p in parameters if p.dim() >= 2], "weight_decay": 0.1, "lr": lr},
            {"params": [p for _, p in parameters if p.dim() < 2], "weight_decay": 0.0, "lr": lr}]


@pytest.mark.parametrize("iteration", ["float64", "bfloat16"])
@pytest.mark.parametrize("family,adjust", [("gpt2", "original"), ("llama", "match_rms_adamw"), ("llama", "original")])
def test_muon_equals_torch(runs, monkeypatch, family, adjust, iteration):
    """Losses of torch.optim.Muon, and of the same class with a float64 iteration, with which Lockstep agrees as closely as two of its plans do."""
    model = model_of(family)
    rows, losses = trained_here(
        runs, model, f"muon-{family}-{adjust}-{iteration}", "optim=muon", "muon_learning_rate=4e-3", "muon_momentum=0.9",
        f"muon_adjust_lr_fn={adjust}")
    if iteration == "float64":
        monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", iterate_in_float64)
    named = list(model.named_parameters())
    muon = torch.optim.Muon([p for n, p in named if is_hidden_matrix(n, p)], lr=4e-3, weight_decay=0.1, momentum=0.9,
                            adjust_lr_fn=adjust)
    others = torch.optim.AdamW(adamw_of([(n, p) for n, p in named if not is_hidden_matrix(n, p)]))
    expected = trained_there(runs, model, rows, [muon, others])
    numpy.testing.assert_allclose(losses, expected, atol=0, rtol=TOLERANCE[iteration])
    assert losses[-1] < losses[0]


def test_groups_by_name_equal_torch(runs):
    """Learning rates and weight decay by name, and rates that decrease from the head to the embedding."""
    model = model_of("llama")
    rows, losses = trained_here(
        runs, model, "groups", "learning_rates={mlp.down:3e-3,embed_tokens:0}", "weight_decays={norm:0.2,q_proj:0}",
        "layer_wise_learning_rate_decay=0.7")
    groups = []
    for name, parameter in model.named_parameters():
        rate = 3e-3 if "mlp.down" in name else 0.0 if "embed_tokens" in name else 1e-3
        layer = re.search(r"layers\.(\d+)", name)
        depth = int(layer[1]) + 1 if layer else 0 if "embed_tokens" in name else 4
        decay = 0.2 if "norm" in name else 0.0 if "q_proj" in name else 0.1
        groups.append({"params": [parameter], "lr": rate * 0.7 ** (4 - depth), "weight_decay": decay})
    expected = trained_there(runs, model, rows, [torch.optim.AdamW(groups)])
    numpy.testing.assert_allclose(losses, expected, atol=0, rtol=TOLERANCE["float64"])
