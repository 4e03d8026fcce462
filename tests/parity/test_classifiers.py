"""A trained classifier opens in transformers with the predictions of `lockstep predict`. Training is compared with transformers' losses, metrics
with scikit-learn and scipy."""

import csv
import json
import pathlib
import sys

import numpy
import pytest
import scipy.stats
import torch
import transformers
from sklearn import metrics as sk

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import test_classification as program  # noqa: E402
from encoders import T5, ended_pieces, write_folder  # noqa: E402

LABELS = program.LABELS

ROTARY = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
CONFIGS = {
    "gpt2": None,  # the model of the program tests
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **ROTARY},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], **ROTARY},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **ROTARY},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8, **ROTARY},
}


@pytest.fixture(scope="module")
def runs():
    program.Classification.setUpClass()
    yield program.Classification()
    program.Classification.tearDownClass()


@pytest.mark.parametrize("family", CONFIGS)
def test_predictions_equal_transformers(runs, family):
    folder = runs.folder
    if CONFIGS[family]:
        (folder / "model.json").write_text(json.dumps(CONFIGS[family]))
    runs.classify(family, "per_device_train_batch_size=6", ranks=2)
    runs.run_ok("predict", "--model", family, "--input", "dev.csv", "--output", f"{family}.jsonl",
                "data.sequence_length=40", "use_cpu=true")
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / family, output_loading_info=True)
    assert not any(info.values()), info
    assert list(model.config.id2label.values()) == LABELS
    assert model.config.label2id == {label: k for k, label in enumerate(LABELS)}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / family)
    tokenizer.pad_token_id = model.config.pad_token_id
    tokenizer.padding_side = "right"
    rows = program.lines(folder / f"{family}.jsonl")
    batch = tokenizer([row["text"] for row in rows], padding=True, truncation=True, max_length=40, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    found = torch.tensor([list(row["probabilities"].values()) for row in rows])
    torch.testing.assert_close(found, torch.softmax(logits, -1), atol=1e-5, rtol=0)
    assert [row["prediction"] for row in rows] == [LABELS[k] for k in logits.argmax(-1)]


def test_t5_classification_equals_transformers(runs):
    """Folders of Lockstep in transformers and the reverse, for single texts and pairs."""
    folder = runs.folder
    write_folder(folder / "t5", {**T5, "dropout_rate": 0.0}, ended_pieces(json.loads((folder / "tokenizer" / "tokenizer.json").read_text())))
    runs.run_ok("train", "model.path=t5", "task.type=sequence_classification", "data.train=train.csv", "data.validation=dev.csv", "max_steps=5",
                "data.sequence_length=40", "per_device_train_batch_size=6", "learning_rate=3e-3", "output_dir=t5-ours", "use_cpu=true")
    torch.manual_seed(3)
    theirs = transformers.AutoModelForSequenceClassification.from_config(
        transformers.AutoConfig.from_pretrained(folder / "t5", num_labels=3, initializer_factor=1.0))
    theirs.save_pretrained(folder / "t5-theirs")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "t5-theirs" / name).write_bytes((folder / "t5" / name).read_bytes())
    texts = [row["text"] for row in program.lines(folder / "t5-ours" / "predictions.jsonl")]
    rows = [{"text": text, "pair": pair} for text, pair in zip(texts, texts[1:])]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, pairs in (("t5-ours", False), ("t5-theirs", False), ("t5-theirs", True)):
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(folder / name, output_loading_info=True)
        assert not any(info.values()), info
        runs.run_ok("predict", "--model", name, "--input", "pairs.jsonl", "--output", "t5.jsonl", "data.sequence_length=40", "use_cpu=true",
                    *(["data.text_pair_field=pair"] if pairs else []))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / name / "tokenizer.json"), pad_token="<pad>")
        batch = tokenizer([row["text"] for row in rows], *([[row["pair"] for row in rows]] if pairs else []), padding=True, truncation=True,
                          max_length=40, return_tensors="pt")
        with torch.no_grad():
            logits = model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        found = torch.tensor([list(row["probabilities"].values()) for row in program.lines(folder / "t5.jsonl")])
        torch.testing.assert_close(found, torch.softmax(logits, -1), atol=1e-5, rtol=0)


TAGS = ["complaint", "long", "praise", "question", "request"]
PROBLEMS = {
    "single_label_classification": ("label", ["label_smoothing_factor=0.1", "task.class_weights=[1,2,0.5,1.5]"]),
    "multi_label_classification": ("tags", ["task.class_weights=[1,2,0.5,1.5,1]"]),
    "regression": ("[length,words]", []),
}


@pytest.fixture(scope="module")
def rows(runs):
    """Data sets of texts with a label, a list of labels, and two numbers."""
    sets = {}
    for name in ("train", "dev"):
        with (runs.folder / f"{name}.csv").open(newline="") as file:
            sets[name] = [{"text": row["text"], "label": row["label"], "length": len(row["text"]) / 50,
                           "words": round(row["text"].count(" ") / 10, 1),
                           "tags": [row["label"]] + (["long"] if len(row["text"]) > 60 else [])}
                          for row in csv.DictReader(file)]
        (runs.folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sets[name]))
    return sets


def targets_of(problem, rows):
    if problem == "single_label_classification":
        return torch.tensor([LABELS.index(row["label"]) for row in rows])
    if problem == "multi_label_classification":
        return torch.tensor([[float(tag in row["tags"]) for tag in TAGS] for row in rows])
    return torch.tensor([[row["length"], row["words"]] for row in rows])


def loss_of(problem, logits, targets):
    """transformers' loss for the problem type, with the class weights and label smoothing of PROBLEMS."""
    if problem == "single_label_classification":
        return torch.nn.functional.cross_entropy(
            logits, targets, weight=torch.tensor([1, 2, 0.5, 1.5]), label_smoothing=0.1)
    if problem == "multi_label_classification":
        return torch.nn.functional.binary_cross_entropy_with_logits(
            logits, targets, pos_weight=torch.tensor([1, 2, 0.5, 1.5, 1]))
    return torch.nn.functional.mse_loss(logits, targets)


def batches(folder, tokenizer, rows, size):
    for begin in range(0, len(rows), size):
        part = rows[begin:begin + size]
        yield part, tokenizer([row["text"] for row in part], padding=True, truncation=True, max_length=40,
                              return_tensors="pt")


def tokenizer_of(folder, pad):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token_id = pad
    tokenizer.padding_side = "right"
    return tokenizer


@pytest.mark.parametrize("problem", PROBLEMS)
def test_training_equals_transformers(runs, rows, problem):
    """Starts from a folder that transformers saved: ten AdamW steps on the rows in order, then the evaluation."""
    field, words = PROBLEMS[problem]
    outputs = {"single_label_classification": LABELS, "multi_label_classification": TAGS,
               "regression": ["length", "words"]}[problem]
    torch.manual_seed(1)
    config = transformers.GPT2Config(**{**program.CONFIG, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
                                     pad_token_id=program.CONFIG["eos_token_id"], problem_type=problem,
                                     id2label=dict(enumerate(outputs)), label2id={name: k for k, name in enumerate(outputs)})
    model = transformers.GPT2ForSequenceClassification(config)
    folder = runs.folder / f"from-{problem}"
    model.save_pretrained(folder)
    runs.run_ok("train", f"model.path={folder}", "tokenizer.path=tokenizer", "data.train=train.jsonl",
                "data.validation=dev.jsonl", f"data.label_field={field}", "data.sequence_length=40", "data.cache_dir=cache",
                f"output_dir=to-{problem}", "max_steps=10", "per_device_train_batch_size=8", "max_grad_norm=0",
                "train_sampling_strategy=sequential", "lr_scheduler_type=constant", "learning_rate=1e-3", "do_eval=true",
                "logging_steps=1", "monitor.peak_tflops=1", "use_cpu=true", *words)
    tokenizer = tokenizer_of(runs.folder / "tokenizer", config.pad_token_id)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    expected = []
    model.train()
    for _, (part, batch) in zip(range(10), batches(folder, tokenizer, rows["train"], 8)):
        loss = loss_of(problem, model(**batch).logits, targets_of(problem, part))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    numpy.testing.assert_allclose(program.losses(runs.folder / f"to-{problem}"), expected, atol=2e-5, rtol=2e-5)

    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(**batch).logits for _, batch in batches(folder, tokenizer, rows["dev"], 8)])
    targets = targets_of(problem, rows["dev"])
    results = json.loads((runs.folder / f"to-{problem}" / "eval_results.json").read_text())
    assert results["eval_loss"] == pytest.approx(loss_of(problem, logits, targets).item(), abs=1e-4)


def saved_answers(runs, folder, problem):
    """transformers' predictions for the rows of dev.jsonl, and those in Lockstep's files."""
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.problem_type == problem
    tokenizer = tokenizer_of(folder, model.config.pad_token_id)
    dev = program.lines(runs.folder / "dev.jsonl")
    with torch.no_grad():
        logits = torch.cat([model.eval()(**batch).logits for _, batch in batches(folder, tokenizer, dev, 64)])
    report = json.loads(runs.run_ok("eval", "--model", folder, "--data", "dev.jsonl", "--json", "use_cpu=true").out)
    runs.run_ok("predict", "--model", folder, "--input", "dev.jsonl", "--output", f"{problem}.jsonl", "use_cpu=true")
    return logits, program.lines(runs.folder / f"{problem}.jsonl"), report


def test_multi_label_metrics_equal_scikit_learn(runs, rows):
    runs.classify("tags", "per_device_train_batch_size=6", "data.label_field=tags", "data.validation=dev.jsonl", ranks=2,
                  data="train.jsonl", steps=40)
    logits, found, report = saved_answers(runs, runs.folder / "tags", "multi_label_classification")
    scores = numpy.array([list(row["probabilities"].values()) for row in found])
    numpy.testing.assert_allclose(scores, torch.sigmoid(logits).numpy(), atol=1e-5)
    truth = targets_of("multi_label_classification", rows["dev"]).numpy()
    taken = (scores > 0.5).astype(float)
    assert 0 < taken.sum() < taken.size
    average = {"zero_division": 0}
    wanted = {
        "accuracy": sk.accuracy_score(truth, taken), "hamming_loss": sk.hamming_loss(truth, taken),
        "jaccard_samples": sk.jaccard_score(truth, taken, average="samples", **average),
        "label_ranking_average_precision": sk.label_ranking_average_precision_score(truth, scores),
        "roc_auc_macro": sk.roc_auc_score(truth, scores, average="macro"),
        "roc_auc_micro": sk.roc_auc_score(truth, scores, average="micro"),
        "average_precision_macro": sk.average_precision_score(truth, scores, average="macro"),
        "average_precision_micro": sk.average_precision_score(truth, scores, average="micro"),
        "f1": sk.f1_score(truth, taken, average="micro"), "f1_macro": sk.f1_score(truth, taken, average="macro", **average),
        "f1_weighted": sk.f1_score(truth, taken, average="weighted", **average),
        "recall_samples": sk.recall_score(truth, taken, average="samples", **average)}
    for name, value in wanted.items():
        assert report[f"eval_{name}"] == pytest.approx(value, abs=1e-9), name
    dict_of = sk.classification_report(truth, taken, target_names=TAGS, output_dict=True, zero_division=0)
    assert report["classification_report"].keys() == dict_of.keys()


def test_regression_metrics_equal_scipy(runs, rows):
    runs.classify("numbers", "per_device_train_batch_size=6", "data.label_field=[length,words]", "data.validation=dev.jsonl",
                  ranks=2, data="train.jsonl", steps=40)
    logits, found, report = saved_answers(runs, runs.folder / "numbers", "regression")
    predicted = numpy.array([list(row["prediction"].values()) for row in found])
    numpy.testing.assert_allclose(predicted, logits.numpy(), atol=1e-5)
    truth = targets_of("regression", rows["dev"]).numpy().astype(float)
    both = [(truth[:, k], predicted[:, k]) for k in range(2)]
    wanted = {
        "mse": sk.mean_squared_error(truth, predicted), "mae": sk.mean_absolute_error(truth, predicted),
        "r2": sk.r2_score(truth, predicted), "pearson": numpy.mean([scipy.stats.pearsonr(*pair)[0] for pair in both]),
        "spearman": numpy.mean([scipy.stats.spearmanr(*pair)[0] for pair in both])}
    for name, value in wanted.items():
        assert report[f"eval_{name}"] == pytest.approx(value, abs=1e-9), name


def test_class_scores_equal_scikit_learn(runs):
    runs.classify("scores", "per_device_train_batch_size=8", steps=30)
    report = json.loads(runs.run_ok("eval", "--model", "scores", "--data", "dev.csv", "--json", "use_cpu=true").out)
    runs.run_ok("predict", "--model", "scores", "--input", "dev.csv", "--output", "scores.jsonl", "use_cpu=true")
    found = program.lines(runs.folder / "scores.jsonl")
    scores = numpy.array([list(row["probabilities"].values()) for row in found])
    truth = numpy.array([LABELS.index(row["label"]) for row in found])
    wanted = {
        "roc_auc": sk.roc_auc_score(truth, scores, multi_class="ovr"), "log_loss": sk.log_loss(truth, scores),
        "top_3_accuracy": sk.top_k_accuracy_score(truth, scores, k=3), "brier": sk.brier_score_loss(truth, scores),
        "matthews_correlation": sk.matthews_corrcoef(truth, scores.argmax(1))}
    for name, value in wanted.items():
        assert report[f"eval_{name}"] == pytest.approx(value, abs=1e-9), name
