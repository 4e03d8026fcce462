"""Compares language-modelling objectives with transformers' Trainer."""

import json
import pathlib
import sys

import numpy
import pytest
import torch
import transformers
from transformers.trainer_pt_utils import LabelSmoother

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import test_classification as program  # noqa: E402


@pytest.fixture(scope="module")
def runs():
    program.ProgramTest.setUpClass()
    yield program.ProgramTest()
    program.ProgramTest.tearDownClass()


@pytest.mark.parametrize("plan", [[], ["parallel.tensor=2"], ["parallel.context=2"]])
def test_label_smoothing_equals_trainer(runs, plan):
    """Eight AdamW steps over rows of unequal length; evaluation does not smooth labels."""
    torch.manual_seed(2)
    config = transformers.GPT2Config(**{**program.CONFIG, "n_head": 4, "n_embd": 32, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
                                        "resid_pdrop": 0.0})
    model = transformers.GPT2LMHeadModel(config)
    folder = runs.folder / "from"
    model.save_pretrained(folder)
    rows = [line for line in (runs.folder / "corpus" / "train.txt").read_text().splitlines() if 20 < len(line) < 60][:24]
    (runs.folder / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    name = "to" + "".join(plan).replace("=", "")
    runs.run_ok("train", "--nproc", 2 if plan else 1, f"model.path={folder}", "tokenizer.path=tokenizer",
                "data.train=rows.jsonl", "data.validation=rows.jsonl", "data.packing=false", "data.sequence_length=48",
                "data.cache_dir=cache", f"output_dir={name}", "max_steps=8", "per_device_train_batch_size=3",
                "label_smoothing_factor=0.2", "max_grad_norm=0", "train_sampling_strategy=sequential",
                "lr_scheduler_type=constant", "learning_rate=1e-3", "do_eval=true", "logging_steps=1",
                "monitor.peak_tflops=1", "use_cpu=true", *plan)
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs.folder / "tokenizer")
    smoother = LabelSmoother(epsilon=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)

    def batch_of(texts):
        ids = [tokenizer(text)["input_ids"] + [config.eos_token_id] for text in texts]
        width = max(map(len, ids))
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in ids])
        return labels.clamp_min(0), labels

    expected = []
    for begin in range(0, 24, 3):
        ids, labels = batch_of(rows[begin:begin + 3])
        loss = smoother(model(ids, use_cache=False), labels, shift_labels=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    numpy.testing.assert_allclose(program.losses(runs.folder / name), expected, atol=2e-5, rtol=2e-5)
    with torch.no_grad():
        ids, labels = batch_of(rows)
        plain = model(ids, labels=labels, use_cache=False).loss.item()
    results = json.loads((runs.folder / name / "eval_results.json").read_text())
    assert results["eval_loss"] == pytest.approx(plain, abs=1e-4)
