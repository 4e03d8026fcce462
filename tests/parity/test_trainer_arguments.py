"""Compares group_by_length, neftune_noise_alpha and average_tokens_across_devices with Hugging Face's Trainer."""

import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest
import torch
import transformers
from transformers.integrations.neftune import activate_neftune
from transformers.trainer_pt_utils import LengthGroupedSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import harness as program  # noqa: E402

MASK = (1 << 64) - 1
SEED = 42
ROWS = 60


@pytest.fixture(scope="module")
def runs():
    program.ProgramTest.setUpClass()
    yield program.ProgramTest()
    program.ProgramTest.tearDownClass()


@pytest.fixture(scope="module")
def model(runs):
    torch.manual_seed(3)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=43, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False))
    made.save_pretrained(runs.folder / "model")
    return made


@pytest.fixture(scope="module")
def rows(runs, model):
    """Token ids of rows of different lengths, which are also in rows.jsonl."""
    lines = [line for line in (runs.folder / "corpus" / "train.txt").read_text().splitlines() if len(line) > 20]
    texts = [line[:4 + 11 * i % 97] for i, line in enumerate(lines[:ROWS])]
    (runs.folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs.folder / "tokenizer")
    return [tokenizer(text)["input_ids"] + [model.config.eos_token_id] for text in texts]


def trained_here(runs, name, *words, ranks=1, steps=15, learning_rate=1e-3):
    runs.run_ok("train", "--nproc", ranks, "model.path=model", "tokenizer.path=tokenizer", "data.train=rows.jsonl",
                "data.packing=none", "data.sequence_length=64", "data.cache_dir=cache", f"output_dir={name}", f"max_steps={steps}",
                "lr_scheduler_type=constant", f"learning_rate={learning_rate}", "logging_steps=1", "monitor.peak_tflops=1",
                "max_grad_norm=0", f"seed={SEED}", "use_cpu=true", *words)
    return program.losses(runs.folder / name)


def batch_of(rows):
    width = max(map(len, rows))
    labels = torch.tensor([row + [-100] * (width - len(row)) for row in rows])
    return {"input_ids": labels.clamp_min(0), "attention_mask": (labels != -100).long(), "labels": labels}


def mix(x):
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb & MASK
    return x ^ (x >> 31)


def derive_key(key, part):
    """base/counter_random.h"""
    return mix(key + 0x9e3779b97f4a7c15 * (part + 1) & MASK)


def random_bits(key, counter):
    return mix(mix(counter + 0x9e3779b97f4a7c15 & MASK) ^ key)


def hash_name(name):
    value = 0xcbf29ce484222325
    for character in name.encode():
        value = (value ^ character) * 0x100000001b3 & MASK
    return value


def permutation(count, key):
    """data/permutation.cpp"""
    half = max(1, ((count - 1).bit_length() + 1) // 2)

    def encrypted(x):
        left, right = x >> half, x & ((1 << half) - 1)
        for turn in range(8):
            left, right = right, left ^ (random_bits(derive_key(key, turn), right) >> 32 & ((1 << half) - 1))
        return left << half | right

    def element(position):
        x = encrypted(position)
        while x >= count:
            x = encrypted(x)
        return x

    return [element(position) for position in range(count)]


@pytest.mark.parametrize("ranks,batch,accumulation", [(1, 4, 1), (2, 2, 1), (1, 2, 2)])
def test_rows_are_grouped_by_length(runs, model, rows, monkeypatch, ranks, batch, accumulation):
    """Losses of the batches of LengthGroupedSampler with Lockstep's permutation."""
    losses = trained_here(
        runs, f"grouped-{ranks}-{batch}", "train_sampling_strategy=group_by_length", f"per_device_train_batch_size={batch}",
        f"gradient_accumulation_steps={accumulation}", ranks=ranks, learning_rate=0)
    order = permutation(ROWS, derive_key(derive_key(SEED, 0x5a3b), 0))
    monkeypatch.setattr(torch, "randperm", lambda count, generator=None: torch.tensor(order))
    indices = list(LengthGroupedSampler(4, lengths=[len(row) for row in rows]))
    assert sorted(indices) == list(range(ROWS)) and indices != order
    expected = [model(**batch_of([rows[i] for i in indices[begin:begin + 4]])).loss.item() for begin in range(0, ROWS, 4)]
    numpy.testing.assert_allclose(losses, expected, rtol=2e-6)


def uniform_of(step, samples, positions, width):
    """The random numbers of add_noise_to_tokens (ops/dropout.h) in [0, 1), [samples, positions, width]."""
    site = derive_key(hash_name("embedding_noise"), MASK)  # dropout_site of layer -1
    of_rows = []
    for sample in samples:
        key = derive_key(derive_key(derive_key(SEED, step), sample), site)
        words = [random_bits(key, pair) for pair in range((positions * width + 1) // 2)]
        halves = [half for word in words for half in (word & 0xffffffff, word >> 32)]
        of_rows.append([(half >> 8) / (1 << 24) for half in halves[:positions * width]])
    return torch.tensor(of_rows).view(len(samples), positions, width)


@pytest.mark.parametrize("words,ranks", [([], 1), (["parallel.tensor=2"], 2)])
def test_noise_with_the_bounds_of_transformers_gives_equal_losses(runs, model, rows, monkeypatch, words, ranks):
    """transformers' hook computes the bounds; Lockstep's random numbers replace torch's."""
    steps = 4
    losses = trained_here(
        runs, f"noise-{ranks}", "neftune_noise_alpha=5", "train_sampling_strategy=sequential", "per_device_train_batch_size=3", *words,
        ranks=ranks, steps=steps, learning_rate=0)
    model.train()
    quiet = [model(**batch_of(rows[3 * step:3 * step + 3])).loss.item() for step in range(steps)]
    hook = activate_neftune(model, 5)
    step = 0

    def uniform(tensor, low, high):
        drawn = uniform_of(step, range(3 * step, 3 * step + 3), tensor.size(1), tensor.size(2))
        return tensor.copy_(low + (high - low) * drawn)

    monkeypatch.setattr(torch.Tensor, "uniform_", uniform)
    expected = []
    for step in range(steps):
        expected.append(model(**batch_of(rows[3 * step:3 * step + 3])).loss.item())
    hook.remove()
    numpy.testing.assert_allclose(losses, expected, rtol=2e-6)
    assert min(abs(a - b) for a, b in zip(expected, quiet)) > 1e-4


TRAINER = """
import json, sys
import torch, transformers
model = transformers.LlamaForCausalLM.from_pretrained("model")
rows = json.load(open("rows.json"))
def collate(some):
    width = max(map(len, some))
    labels = torch.tensor([row + [-100] * (width - len(row)) for row in some])
    return {"input_ids": labels.clamp_min(0), "attention_mask": (labels != -100).long(), "labels": labels}
arguments = transformers.TrainingArguments(
    output_dir="trainer", max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-3,
    lr_scheduler_type="constant", max_grad_norm=0, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
    train_sampling_strategy="sequential", average_tokens_across_devices=sys.argv[1] == "true", remove_unused_columns=False,
    optim="adamw_torch", adam_epsilon=1e-4)
trainer = transformers.Trainer(model, arguments, train_dataset=rows, data_collator=collate)
trainer.train()
if trainer.is_world_process_zero():
    json.dump([line["loss"] for line in trainer.state.log_history if "loss" in line], open(f"trainer-{sys.argv[1]}.json", "w"))
"""


def order_of_trainer(rows, ranks, batch, accumulation):
    """Rows in the order in which Lockstep's ranks read them if Trainer's ranks read the given order: batches alternate between ranks
    there, and a rank's batches of a step follow each other here."""
    step = ranks * batch * accumulation
    ordered = []
    for begin in range(0, len(rows) - step + 1, step):
        for rank in range(ranks):
            for turn in range(accumulation):
                first = begin + (turn * ranks + rank) * batch
                ordered += rows[first:first + batch]
    return ordered


def test_each_rank_averages_its_own_tokens(runs, model, rows):
    """Two ranks of Trainer under torchrun, with accumulation."""
    (runs.folder / "script.py").write_text(TRAINER)
    (runs.folder / "rows.json").write_text(json.dumps(rows[:48]))
    texts = (runs.folder / "rows.jsonl").read_text().splitlines(keepends=True)[:48]
    (runs.folder / "ordered.jsonl").write_text("".join(order_of_trainer(texts, 2, 2, 2)))
    found = {}
    for value in ("true", "false"):
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(program.free_port()), "script.py",
             value], cwd=runs.folder, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        found[value] = json.loads((runs.folder / f"trainer-{value}.json").read_text())
        losses = trained_here(
            runs, f"averaged-{value}", "data.train=ordered.jsonl", f"average_tokens_across_devices={value}",
            "train_sampling_strategy=sequential", "per_device_train_batch_size=2", "gradient_accumulation_steps=2", "weight_decay=0",
            "adam_epsilon=1e-4", ranks=2, steps=6)
        numpy.testing.assert_allclose(losses, found[value], rtol=1e-5)
    assert max(abs(a - b) for a, b in zip(found["true"], found["false"])) > 1e-3
