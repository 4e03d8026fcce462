"""A base model fine-tuned on chats ends its answers by transformers' generate, by lockstep generate and in GGUF."""

import json
import os
import pathlib
import subprocess

import gguf
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()

END, START_OF_TURN, END_OF_TURN = 256, 257, 258
CONFIG = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=264, hidden_size=32, intermediate_size=64,
              num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=END,
              eos_token_id=END)
CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SETTINGS = {"eos_token_id": END, "bos_token_id": END, "do_sample": True, "top_p": 0.9, "transformers_version": "4.51.0"}
QUESTION = "<|im_start|>user\nhow?<|im_end|>\n<|im_start|>assistant\n"


def lockstep(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "LOCKSTEP_MEASURE_MACHINE": "0"})
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A base model of random weights with a chat template, and chats."""
    folder = tmp_path_factory.mktemp("generation")
    base = folder / "base"
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**CONFIG)).save_pretrained(base)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(base / "tokenizer.json"))
    (base / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "bos_token": "<|end|>", "chat_template": CHATML}))
    (base / "generation_config.json").write_text(json.dumps(SETTINGS))
    (folder / "chats.jsonl").write_text(8 * (json.dumps({"messages": [
        {"role": "user", "content": "how?"}, {"role": "assistant", "content": "so"}]}) + "\n"))
    (folder / "text.txt").write_text("some text that is no chat. " * 40)
    return folder


def train(folder, output, *more):
    lockstep("train", f"model.path={folder / 'base'}", f"output_dir={folder / output}", f"data.cache_dir={folder / 'cache'}",
             "data.sequence_length=64", "per_device_train_batch_size=8", "max_steps=60", "learning_rate=1e-2", "save_strategy=no",
             "use_cpu=true", "monitor.peak_tflops=1", *more)
    return folder / output


def stops_of(model):
    stops = model.generation_config.eos_token_id
    return stops if isinstance(stops, list) else [stops]


def test_other_training_keeps_the_file_as_it_is(folder):
    run = train(folder, "plain", f"data.train={folder / 'text.txt'}", "max_steps=2")
    assert (run / "generation_config.json").read_bytes() == (folder / "base" / "generation_config.json").read_bytes()


def test_a_model_tuned_on_chats_ends_its_turns(folder):
    run = train(folder, "chats", f"data.train={folder / 'chats.jsonl'}", "data.prompt=chat")
    saved = json.loads((run / "generation_config.json").read_text())
    assert saved == {**SETTINGS, "eos_token_id": [END, END_OF_TURN]}
    model = AutoModelForCausalLM.from_pretrained(run)
    assert stops_of(model) == [END, END_OF_TURN]
    tokenizer = AutoTokenizer.from_pretrained(run)
    prompt = tokenizer(QUESTION, return_tensors="pt", add_special_tokens=False).input_ids
    found = model.generate(prompt, do_sample=False, max_new_tokens=40, pad_token_id=END)[0, prompt.shape[1]:].tolist()
    assert tokenizer.decode(found) == "so<|im_end|>"
    done = lockstep("generate", "--model", run, "--prompt", QUESTION, "--max-new-tokens", 40, "--temperature", 0)
    assert done.stdout == QUESTION + "so<|im_end|>\n"
    assert "generation_config.json: eos_token_id 256, 258; top_p 0.9" in done.stderr
    lockstep("export", "--model", run, "--gguf", "f16", "--output", folder / "chats.gguf")
    fields = gguf.GGUFReader(folder / "chats.gguf").fields
    assert fields["tokenizer.ggml.eos_token_id"].contents() == END
    assert fields["tokenizer.ggml.eot_token_id"].contents() == END_OF_TURN


def test_so_does_an_adapter_and_what_is_merged_of_it(folder):
    run = train(folder, "adapter", f"data.train={folder / 'chats.jsonl'}", "data.prompt=chat", "lora.r=16",
                "lora.target_modules=all-linear", "learning_rate=3e-2")
    done = lockstep("generate", "--model", folder / "base", "--adapter", run, "--prompt", QUESTION, "--max-new-tokens", 40,
                    "--temperature", 0)
    assert done.stdout == QUESTION + "so<|im_end|>\n"
    lockstep("export", "--model", folder / "base", "--adapter", run, "--merge", "--output", folder / "merged")
    assert stops_of(AutoModelForCausalLM.from_pretrained(folder / "merged")) == [END, END_OF_TURN]


def test_a_base_without_the_file_gets_one(folder):
    kept = (folder / "base" / "generation_config.json").read_text()
    (folder / "base" / "generation_config.json").unlink()
    try:
        run = train(folder, "derived", f"data.train={folder / 'chats.jsonl'}", "data.prompt=chat", "max_steps=2")
    finally:
        (folder / "base" / "generation_config.json").write_text(kept)
    assert json.loads((run / "generation_config.json").read_text()) == {"bos_token_id": END, "eos_token_id": [END, END_OF_TURN]}
    assert stops_of(AutoModelForCausalLM.from_pretrained(run)) == [END, END_OF_TURN]
