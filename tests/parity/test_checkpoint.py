"""Model folders in both directions: transformers loads those that Lockstep saves, and Lockstep loads those that transformers saves."""

import json
import os
import pathlib
import subprocess

import pytest
import safetensors
import torch
import transformers

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", "build/release"))

CONFIGS = {
    "gpt2": transformers.GPT2Config(vocab_size=67, n_positions=31, n_embd=20, n_layer=2, n_head=4),
    "gpt2-untied": transformers.GPT2Config(
        vocab_size=67, n_positions=31, n_embd=20, n_layer=1, n_head=2, tie_word_embeddings=False),
    "llama": transformers.LlamaConfig(
        vocab_size=51, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, max_position_embeddings=64),
    "mistral": transformers.MistralConfig(
        vocab_size=51, hidden_size=24, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64),
    "qwen2": transformers.Qwen2Config(
        vocab_size=51, hidden_size=24, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True),
}


def run(test, folder):
    environment = {**os.environ, "LOCKSTEP_PARITY_FOLDER": str(folder), "TORCH_FR_BUFFER_SIZE": "0"}
    result = subprocess.run(
        [BUILD / "checkpoint_test", f"--gtest_filter=Parity.{test}"], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0 and "[  PASSED  ] 1 test" in result.stdout, result.stdout


def values(number, like):
    flat = (torch.arange(like.numel()) * 7 + number).remainder(113).float() / 64 - 0.5
    return flat.view(like.shape).to(like.dtype)


@pytest.fixture(params=CONFIGS, scope="module")
def saved(request, tmp_path_factory):
    """Folder with a configuration, Lockstep's checkpoints of it, and the order of Lockstep's parameters."""
    folder = tmp_path_factory.mktemp(request.param)
    CONFIGS[request.param].save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config.setdefault("model_type", CONFIGS[request.param].model_type)
    (folder / "config.json").write_text(json.dumps(config))
    run("SavesCheckpointsForTransformers", folder)
    return folder


def order_of(folder):
    """Parameter names by number: element 0 of parameter p is (p % 113) / 64 - 0.5."""
    order = {}
    with safetensors.safe_open(folder / "float32-single" / "model.safetensors", "pt") as file:
        for name in file.keys():
            first = file.get_tensor(name).flatten()[0].item()
            order[name] = round((first + 0.5) * 64)
    assert sorted(order.values()) == list(range(len(order)))
    return order


@pytest.mark.parametrize("kind", ["float32-single", "float32-shards", "bfloat16-single", "bfloat16-shards"])
def test_transformers_opens_lockstep_folders(saved, kind):
    folder = saved / kind
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    assert (shards == ["model.safetensors"]) == kind.endswith("single")
    for shard in shards:
        with safetensors.safe_open(folder / shard, "pt") as file:
            assert file.metadata() == {"format": "pt"}
    dtype = getattr(torch, kind.split("-")[0])
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not any(info.values()), info
    order = order_of(saved)
    names = dict(model.named_parameters())
    assert set(names) == set(order)
    for name, parameter in names.items():
        assert parameter.dtype == dtype, name
        assert torch.equal(parameter, values(order[name], parameter)), name


def test_lockstep_opens_transformers_folders(saved):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved / "float32-single")
    model.save_pretrained(saved / "hf")
    model.save_pretrained(saved / "hf-shards", max_shard_size="8KB")
    assert len(list((saved / "hf-shards").glob("*.safetensors"))) > 1
    if model.config.tie_word_embeddings:
        model.base_model.save_pretrained(saved / "hf-base")  # names without the prefix
    run("ReadsWhatTransformersSaved", saved)
