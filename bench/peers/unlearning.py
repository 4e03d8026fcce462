"""TOFU's suite as a plain loop of transformers: the passes that open-unlearning's evaluation makes, metric by metric, in batches of unsorted rows."""

import argparse
import json
import pathlib
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
for name in ("model", "data", "out"):
    parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
for name in ("batch", "new-tokens", "length", "threads"):
    parser.add_argument(f"--{name}", type=int, required=True)
a = parser.parse_args()
torch.set_num_threads(a.threads)
tokenizer = AutoTokenizer.from_pretrained(a.model)
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval()


def read(name):
    return [json.loads(line) for line in (a.data / f"{name}.jsonl").read_text().splitlines()]


def prompt_of(row):
    return f"Question: {row['question']}\nAnswer: "


def encoded(row, answer):
    """Ids and labels. The prompt ends before the first id that differs from its own ids."""
    ids, prompt = (tokenizer(text)["input_ids"] for text in (prompt_of(row) + answer, prompt_of(row)))
    ids = ids[: a.length - 1] + [tokenizer.eos_token_id]
    same = next((i for i, (x, y) in enumerate(zip(ids, prompt)) if x != y), min(len(ids), len(prompt)))
    return ids, [-100] * same + ids[same:]


@torch.no_grad()
def likelihoods(rows):
    """exp of the mean log-probability of each answer's tokens."""
    found = []
    for begin in range(0, len(rows), a.batch):
        batch = rows[begin : begin + a.batch]
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [tokenizer.pad_token_id] * (longest - len(ids)) for ids, _ in batch])
        labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in batch])
        mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in batch])
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
        counts = (labels[:, 1:] != -100).sum(1)
        found += (-losses.sum(1) / counts).exp().tolist()
    return found


@torch.no_grad()
def written(rows):
    texts = []
    for begin in range(0, len(rows), a.batch):
        batch = tokenizer([prompt_of(row) for row in rows[begin : begin + a.batch]], return_tensors="pt", padding=True, padding_side="left")
        made = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=a.new_tokens, do_sample=False,
                              use_cache=True, pad_token_id=tokenizer.pad_token_id)
        texts += tokenizer.batch_decode(made[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
    return texts


def mean(values):
    return sum(values) / len(values)


began = time.monotonic()
forget, retain, authors, facts = (read(name) for name in (
    "forget01_perturbed", "retain_perturbed", "real_authors_perturbed", "world_facts_perturbed"))
found = {}
for name, rows in (("forget", forget), ("retain", retain), ("ra", authors), ("wf", facts)):
    found[f"{name}_Q_A_Prob"] = mean(likelihoods([encoded(row, row["answer"]) for row in rows]))
    wrong = [likelihoods([encoded(row, row["perturbed_answer"][i]) for row in rows]) for i in range(len(rows[0]["perturbed_answer"]))]
    found[f"{name}_Q_A_PERT_Prob"] = mean([mean(values) for values in zip(*wrong)])
    if name in ("forget", "retain"):
        likelihoods([encoded(row, row["paraphrased_answer"]) for row in rows])
    written(rows)
# privleak reads the forget set and the holdout set, and extraction strength reads the forget set again.
for rows in (forget, read("holdout01"), forget):
    likelihoods([encoded(row, row["answer"]) for row in rows])
found["seconds"] = time.monotonic() - began
a.out.write_text(json.dumps(found))
