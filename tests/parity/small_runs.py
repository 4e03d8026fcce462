"""Small runs of the program for the tests of other tools' readers."""

import json
import os
import pathlib
import subprocess

import pytest

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_embd": 16, "n_layer": 2, "n_head": 2,
         "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}


def run(folder, *words, **variables):
    subprocess.run([PROGRAM, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **variables})


def train(folder, output, *words, ranks=1, steps=3, **variables):
    run(folder, "train", "--nproc", str(ranks), "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
        "data.validation=corpus/validation.txt", "data.sequence_length=16", f"output_dir={output}", f"max_steps={steps}", "logging_steps=1",
        "eval_strategy=steps", "eval_steps=3", "learning_rate=0.25", "lr_scheduler_type=constant", "use_cpu=true", *words, **variables)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("trackers")
    run(made, "sample", "--output", "corpus", "--size", "0.1")
    run(made, "tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "300", "--output", "tokenizer")
    (made / "model.json").write_text(json.dumps(MODEL))
    return made
