"""Classifier trained by Hugging Face's Trainer with the rows, model folder and settings of bench/classification.py."""

import argparse
import csv
import json
import os
import pathlib
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
for name in ("model", "train", "test", "out"):
    parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
for name in ("batch", "epochs", "length", "seed"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--type", required=True)
a = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(a.model)
tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "right"


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, labels):
        self.ids = tokenizer([row["text"] for row in rows], truncation=True, max_length=a.length)["input_ids"]
        self.labels = [labels.index(row["label"]) for row in rows]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


train, test = read(a.train), read(a.test)
labels = sorted({row["label"] for row in train})
torch.manual_seed(a.seed)
model = AutoModelForSequenceClassification.from_pretrained(a.model, num_labels=len(labels))
model.config.pad_token_id = tokenizer.pad_token_id
settings = TrainingArguments(
    output_dir=str(a.out / "trainer"), per_device_train_batch_size=a.batch, per_device_eval_batch_size=a.batch, num_train_epochs=a.epochs,
    learning_rate=a.rate, seed=a.seed, use_cpu=True, bf16=a.type == "bfloat16", report_to=[], save_strategy="no", logging_strategy="no", dataloader_pin_memory=False,
    disable_tqdm=True)
trainer = Trainer(
    model=model, args=settings, train_dataset=Rows(train, labels), eval_dataset=Rows(test, labels),
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())})
trained = trainer.train().metrics
accuracy = trainer.evaluate()["eval_accuracy"]
status = pathlib.Path("/proc/self/status").read_text()
peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024
(a.out / f"rank{os.environ.get('RANK', '0')}.json").write_text(
    json.dumps({"accuracy": accuracy, "samples_per_s": trained["train_samples_per_second"], "peak_bytes": peak}))
sys.stdout.flush()
os._exit(0)  # a gloo thread that still runs would sometimes abort the normal exit
