"""Compares encoders with transformers through the program: single texts, pairs and masked tokens, in both directions."""

import json
import pathlib
import sys

import pytest
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import test_encoders as program  # noqa: E402
from encoders import SPECIALS  # noqa: E402

ROWS = [{"text": "It is light, and it never broke.", "pair": "Never!"}, {"text": "ÀÉ-é  中文 x", "pair": "the bus came at nine " * 9},
        {"text": "I laughed\tand cried, and cried, and laughed, and wrote it all down again", "pair": "so"},
        {"text": "a", "pair": "b"}, {"text": "un[MASK]known ☃ Ωmega", "pair": "don't"}]
QUIET = {"bert": {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}, "distilbert": {
    "dropout": 0, "attention_dropout": 0, "seq_classif_dropout": 0}}
QUIET["roberta"] = QUIET["bert"]


@pytest.fixture(scope="module")
def runs():
    program.Encoders.setUpClass()
    yield program.Encoders()
    program.Encoders.tearDownClass()


@pytest.fixture(params=program.CONFIGS)
def family(request):
    return request.param


def save(folder, base, kind, **changes):
    """Saves a random transformers model with the tokenizer of `base`."""
    torch.manual_seed(len(folder.name))
    config = transformers.AutoConfig.from_pretrained(base, **changes)
    config.initializer_range = 0.2
    model = kind.from_config(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(0, 0.2)
    model.eval().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((base / name).read_bytes())
    return model


def encoded(folder, rows, has_pairs, length):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    names = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer.pad_token = names["pad_token"]
    batch = tokenizer([row["text"] for row in rows], *([[row["pair"] for row in rows]] if has_pairs else []), padding=True,
                      truncation=True, max_length=length, return_tensors="pt", return_token_type_ids=True)
    return tokenizer, dict(batch)


def logits_of(model, batch):
    if model.config.model_type == "distilbert":
        batch = {key: value for key, value in batch.items() if key != "token_type_ids"}
    if model.config.model_type == "roberta":
        assert not batch["token_type_ids"].any()
    with torch.no_grad():
        return model.eval()(**batch).logits


def predicted(runs, folder, rows, *words):
    (runs.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs.run_ok("predict", "--model", folder, "--input", "rows.jsonl", "--output", "answers.jsonl",
                "data.sequence_length=24", "use_cpu=true", *words)
    answers = [json.loads(line) for line in (runs.folder / "answers.jsonl").read_text().splitlines()]
    return torch.tensor([list(row["probabilities"].values()) for row in answers])


@pytest.mark.parametrize("has_pairs", [False, True])
def test_transformers_classifier_in_lockstep(runs, family, has_pairs):
    folder = runs.folder / f"theirs-{family}-{has_pairs}"
    model = save(folder, runs.folder / family, transformers.AutoModelForSequenceClassification, num_labels=3)
    found = predicted(runs, folder, ROWS, *(["data.text_pair_field=pair"] if has_pairs else []))
    _, batch = encoded(folder, ROWS, has_pairs, 24)
    torch.testing.assert_close(found, torch.softmax(logits_of(model, batch), -1), atol=1e-5, rtol=0)


def test_lockstep_classifier_in_transformers(runs, family):
    runs.classify(family, f"ours-{family}", "per_device_train_batch_size=3", "parallel.tensor=2", ranks=2)
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        runs.folder / f"ours-{family}", output_loading_info=True)
    assert not any(info.values()), info
    _, batch = encoded(runs.folder / f"ours-{family}", ROWS, False, 24)
    torch.testing.assert_close(predicted(runs, f"ours-{family}", ROWS), torch.softmax(logits_of(model, batch), -1),
                               atol=1e-5, rtol=0)


def test_classifier_training_equals_transformers(runs, family):
    folder = runs.folder / f"quiet-{family}"
    model = save(folder, runs.folder / family, transformers.AutoModelForSequenceClassification, **QUIET[family])
    rows = [{**row, "label": i % 2} for i, row in enumerate(ROWS + ROWS[:4])]
    (runs.folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs.run_ok("train", f"model.path={folder}", "data.text_pair_field=pair", "data.train=train.jsonl",
                "data.sequence_length=24", "data.cache_dir=cache", "max_steps=6", "per_device_train_batch_size=3",
                f"output_dir=trained-{family}", "logging_steps=1", "learning_rate=1e-3", "lr_scheduler_type=constant",
                "train_sampling_strategy=sequential", "max_grad_norm=0", "weight_decay=0", "use_cpu=true",
                "monitor.peak_tflops=1")
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, weight_decay=0)
    for step, ours in enumerate(program.losses(runs.folder / f"trained-{family}")):
        part = rows[step % 3 * 3:][:3]
        _, batch = encoded(folder, part, True, 24)
        if family == "distilbert":
            del batch["token_type_ids"]
        loss = torch.nn.functional.cross_entropy(model(**batch).logits, torch.tensor([row["label"] for row in part]))
        assert abs(loss.item() - ours) <= 1e-4, step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_masked_language_modelling_loss(runs, family):
    """All tokens are masked, so that nothing is drawn at random; one document per row."""
    folder = runs.folder / f"masked-{family}"
    model = save(folder, runs.folder / family, transformers.AutoModelForMaskedLM)
    (runs.folder / "lines.txt").write_text("".join(row["text"].replace("\t", " ") + "\n" for row in ROWS))
    told = json.loads(runs.run_ok(
        "eval", "--model", folder, "--data", "lines.txt", "--json", "data.text_documents=line", "data.packing=none",
        "data.long_documents=truncate", "data.sequence_length=64", "data.mlm_probability=1", "data.mask_replace_prob=1",
        "data.random_replace_prob=0", "use_cpu=true").out)
    rows = [{"text": line} for line in (runs.folder / "lines.txt").read_text().splitlines()]
    tokenizer, batch = encoded(folder, rows, False, 64)
    mask = "<mask>" if family == "roberta" else SPECIALS[4]
    special = torch.tensor(sorted(tokenizer.all_special_ids + tokenizer.convert_tokens_to_ids(
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if family == "roberta" else SPECIALS)))
    hidden = ~torch.isin(batch["input_ids"], special)
    labels = batch["input_ids"].masked_fill(~hidden, -100)
    batch["input_ids"] = batch["input_ids"].masked_fill(hidden, tokenizer.convert_tokens_to_ids(mask))
    loss = torch.nn.functional.cross_entropy(logits_of(model, batch).flatten(0, 1), labels.flatten())
    assert told["eval_tokens"] == hidden.sum()
    assert abs(told["eval_loss"] - loss.item()) <= 1e-5 * loss.item()


def test_new_head_on_a_body(runs, family):
    folder = runs.folder / f"body-{family}"
    save(folder, runs.folder / family, transformers.AutoModel)
    runs.train_masked(f"from-{family}", "per_device_train_batch_size=3", family=f"body-{family}", steps=2)
    _, info = transformers.AutoModelForMaskedLM.from_pretrained(runs.folder / f"from-{family}", output_loading_info=True)
    assert not any(info.values()), info
    runs.classify(f"body-{family}", f"classes-{family}", "per_device_train_batch_size=3", steps=2)
    _, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        runs.folder / f"classes-{family}", output_loading_info=True)
    assert not any(info.values()), info
