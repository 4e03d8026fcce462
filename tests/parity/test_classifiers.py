"""A classifier that was trained and saved opens in transformers, and gives rows the probabilities that `lockstep predict` gives them."""

import json
import pathlib
import sys

import pytest
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import test_classification as program  # noqa: E402

LABELS = program.LABELS

ROTARY = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
CONFIGS = {
    "gpt2": None,  # the program tests' own
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
def test_transformers_classifies_as_we_do(runs, family):
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
