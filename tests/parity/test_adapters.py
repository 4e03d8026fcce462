"""Compares adapters with PEFT: logits, every gradient, twenty AdamW steps, folders in both directions, and a run's files.

One process of parity_driver (tests/parity/driver.cpp) runs all cases; each is a random model with a random PEFT adapter.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, BitsAndBytesConfig

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
DRIVER = PROGRAM.parent / "parity_driver"
STEPS = 20
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()

GPT2 = dict(model_type="gpt2", vocab_size=101, n_embd=24, n_layer=2, n_head=3, n_positions=96, bos_token_id=0,
            eos_token_id=0, initializer_range=0.1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(model_type="llama", vocab_size=97, hidden_size=24, intermediate_size=44, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=0,
             head_dim=8, initializer_range=0.1)
QWEN2 = dict(LLAMA, model_type="qwen2")
TIED_QWEN2 = dict(QWEN2, tie_word_embeddings=True)
MISTRAL = dict(LLAMA, model_type="mistral", sliding_window=8)
QWEN3 = dict(LLAMA, model_type="qwen3")
T5 = dict(model_type="t5", vocab_size=89, d_model=24, d_kv=6, d_ff=44, num_layers=2, num_decoder_layers=2, num_heads=3,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, dropout_rate=0.0, initializer_factor=0.7,
          feed_forward_proj="relu", pad_token_id=0, eos_token_id=0, decoder_start_token_id=0, is_encoder_decoder=True)

BERT = dict(model_type="bert", vocab_size=97, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=40, initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0)
DISTILBERT = dict(model_type="distilbert", vocab_size=97, dim=24, hidden_dim=44, n_layers=2, n_heads=4, max_position_embeddings=40,
                  initializer_range=0.2, dropout=0.0, attention_dropout=0.0, pad_token_id=0, tie_word_embeddings=False)

# bitsandbytes' CPU loops read garbage for rows of 32 or 96 weights (docs/adapters.md).
WIDE_LLAMA = dict(LLAMA, hidden_size=64, intermediate_size=128, head_dim=16)
WIDE_GPT2 = dict(GPT2, n_embd=64, n_head=4)
WIDE_MISTRAL = dict(WIDE_LLAMA, model_type="mistral", sliding_window=8)
WIDE_QWEN2 = dict(WIDE_LLAMA, model_type="qwen2")
WIDE_QWEN3 = dict(WIDE_LLAMA, model_type="qwen3")
WIDE_T5 = dict(T5, d_model=64, d_kv=16, d_ff=128, num_heads=4)
NF4 = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)

CASES = {
    "gpt2": (GPT2, dict(r=3)),
    "gpt2-all-biases": (GPT2, dict(r=4, target_modules="all-linear", bias="all", lora_alpha=5)),
    "gpt2-own-biases": (GPT2, dict(r=2, target_modules=["c_attn", "mlp.c_proj"], bias="lora_only")),
    "gpt2-dora": (GPT2, dict(r=4, target_modules=["c_attn", "c_fc"], use_dora=True)),
    "llama": (LLAMA, dict(r=5, lora_alpha=16)),
    "llama-rslora-patterns": (LLAMA, dict(r=8, target_modules="all-linear", use_rslora=True, rank_pattern={"down_proj": 3},
                                          alpha_pattern={r"self_attn\.(q|k)_proj": 3})),
    "llama-regex": (LLAMA, dict(r=4, target_modules=r".*\.1\..*(q|up)_proj", exclude_modules=["q_proj"])),
    "llama-layers": (LLAMA, dict(r=4, target_modules=["o_proj", "gate_proj"], layers_to_transform=[1],
                                 layers_pattern="layers", init_lora_weights="gaussian")),
    "llama-modules": (LLAMA, dict(r=4, modules_to_save=["lm_head", "model.norm"])),
    "llama-dora": (LLAMA, dict(r=4, target_modules="all-linear", use_dora=True)),
    "qwen2": (QWEN2, dict(r=4, target_modules="all-linear", lora_alpha=7.5)),
    "qwen2-tied": (TIED_QWEN2, dict(r=4, target_modules=["k_proj"], bias="lora_only")),
    "llama-pissa": (LLAMA, dict(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights="pissa", use_rslora=True)),
    "llama-olora": (LLAMA, dict(r=4, target_modules="all-linear", init_lora_weights="olora")),
    "mistral-rslora": (MISTRAL, dict(r=4, target_modules="all-linear", use_rslora=True)),
    "mistral-dora-tables": (MISTRAL, dict(r=3, target_modules=["q_proj", "down_proj", "embed_tokens"], use_dora=True)),
    "qwen3-patterns": (QWEN3, dict(r=6, target_modules="all-linear", rank_pattern={"k_proj": 2}, alpha_pattern={"mlp.up_proj": 5})),
    "qwen3-dora-modules": (QWEN3, dict(r=4, use_dora=True, modules_to_save=["q_norm", "lm_head"])),
    "t5": (T5, dict(r=3, task_type="SEQ_2_SEQ_LM")),
    "t5-dora-modules": (T5, dict(r=3, task_type="SEQ_2_SEQ_LM", target_modules=["q", "wi", "wo"], use_dora=True, modules_to_save=["final_layer_norm"])),
    "llama-tables": (LLAMA, dict(r=4, target_modules=["q_proj", "embed_tokens", "lm_head"], lora_alpha=6)),
    "llama-tables-dora": (LLAMA, dict(r=3, target_modules=["embed_tokens", "lm_head", "up_proj"], use_dora=True)),
    "gpt2-embedding": (GPT2, dict(r=3, target_modules=["wte", "wpe", "c_fc"])),
    "gpt2-tied-head": (GPT2, dict(r=4, target_modules=["c_attn", "lm_head"], use_rslora=True)),
    "qwen2-tied-embedding": (TIED_QWEN2, dict(r=4, target_modules=["embed_tokens", "q_proj"])),
    "qwen2-one-of-both": (TIED_QWEN2, dict(r=4, target_modules=["embed_tokens", "v_proj"], ensure_weight_tying=True)),
    "t5-head": (T5, dict(r=3, task_type="SEQ_2_SEQ_LM", target_modules=["q", "lm_head"])),
    "t5-embedding": (T5, dict(r=3, task_type="SEQ_2_SEQ_LM", target_modules=["v", "embed_tokens"])),
    "t5-embedding-dora": (T5, dict(r=4, task_type="SEQ_2_SEQ_LM", target_modules=["embed_tokens"], use_dora=True)),
    "bert-tied-head": (BERT, dict(r=4, task_type=None, target_modules=["query", "decoder"], lora_alpha=6)),
    "bert-embedding": (BERT, dict(r=3, task_type=None, target_modules=["word_embeddings", "transform.dense"])),
    "distilbert-head": (DISTILBERT, dict(r=3, task_type=None, target_modules=["vocab_projector", "q_lin"])),
    "distilbert-head-dora": (DISTILBERT, dict(r=3, task_type=None, target_modules=["vocab_projector"], use_dora=True)),
    "llama-rows": (LLAMA, dict(r=4, trainable_token_indices=[3, 96, 0])),
    "llama-rows-of-both": (LLAMA, dict(r=4, trainable_token_indices={"embed_tokens": [7, 90], "lm_head": [96, 1, 50]})),
    "gpt2-rows": (GPT2, dict(r=3, trainable_token_indices=[100, 4, 52])),
}
# PEFT's tied adapter is two parameters that share memory: the sum of their gradients is Lockstep's gradient, and its optimizer
# updates both in turn.
ONE_OF_BOTH = "qwen2-one-of-both"

# Cases with weights quantized by bitsandbytes or by lockstep export.
PACKED = {
    "llama-nf4": (WIDE_LLAMA, dict(r=4, target_modules="all-linear"), NF4),
    "gpt2-nf4": (WIDE_GPT2, dict(r=4, target_modules="all-linear", bias="all"), NF4),
    "mistral-nf4": (WIDE_MISTRAL, dict(r=4, target_modules="all-linear"), NF4),
    "qwen2-nf4": (WIDE_QWEN2, dict(r=4, target_modules="all-linear", use_dora=True), NF4),
    "qwen3-nf4": (WIDE_QWEN3, dict(r=4, target_modules="all-linear"), NF4),
    "t5-nf4": (WIDE_T5, dict(r=3, task_type="SEQ_2_SEQ_LM"), NF4),
    "llama-fp4": (WIDE_LLAMA, dict(r=3), dict(load_in_4bit=True)),
    "llama-int8": (WIDE_LLAMA, dict(r=4, target_modules="all-linear"), dict(load_in_8bit=True)),
    "gpt2-int8": (WIDE_GPT2, dict(r=3), dict(load_in_8bit=True)),
    "mistral-int8": (WIDE_MISTRAL, dict(r=3), dict(load_in_8bit=True)),
    "qwen2-int8": (WIDE_QWEN2, dict(r=3), dict(load_in_8bit=True)),
    "qwen3-int8": (WIDE_QWEN3, dict(r=3, target_modules="all-linear"), dict(load_in_8bit=True)),
    "t5-int8": (WIDE_T5, dict(r=3, task_type="SEQ_2_SEQ_LM", target_modules=["q", "wi"]), dict(load_in_8bit=True)),
    "gpt2-our-nf4": (WIDE_GPT2, dict(r=3), ["--bits", 4, "--double-quant"]),
    "llama-our-fp4": (WIDE_LLAMA, dict(r=4, target_modules="all-linear"), ["--bits", 4, "--quant-type", "fp4"]),
    "llama-our-int8": (WIDE_LLAMA, dict(r=3), ["--bits", 8]),
}
CASES |= {name: case[:2] for name, case in PACKED.items()}


def has_encoder(name):
    return name.startswith("t5")


def is_encoder(name):
    return name.startswith(("bert", "distilbert"))


def kind(name):
    return AutoModelForSeq2SeqLM if has_encoder(name) else AutoModelForMaskedLM if is_encoder(name) else AutoModelForCausalLM


def pack(folder, opener, how):
    """Quantizes the model of the folder with lockstep export, or with a BitsAndBytesConfig, and opens it."""
    if isinstance(how, list):
        lockstep(folder, "export", "--model", "model", *how, "--output", "packed")
        shutil.rmtree(folder / "model")
        (folder / "packed").rename(folder / "model")
        return opener.from_pretrained(folder / "model", dtype=torch.float32)
    model = opener.from_pretrained(folder / "model", quantization_config=BitsAndBytesConfig(**how), dtype=torch.float32)
    model.save_pretrained(folder / "model")
    return model


def make_case(folder, name):
    """Writes a model, an adapter in which every parameter affects the result, and the driver's inputs."""
    settings, adapter = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(settings))
    model = kind(name).from_config(AutoConfig.from_pretrained(folder / "model"))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith("bias"):
                value.normal_(0, 0.1)
    model.save_pretrained(folder / "model")
    (folder / "model" / "config.json").write_text(json.dumps(settings))
    if name in PACKED:
        model = pack(folder, kind(name), PACKED[name][2])
    adapted = get_peft_model(model, LoraConfig(**{"task_type": "CAUSAL_LM", **adapter}))
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) * 0.1)
    adapted.save_pretrained(folder / "adapter")
    vocabulary = settings["vocab_size"]
    given = {"ids": torch.randint(0, vocabulary, (3, 21)), "batches": torch.randint(0, vocabulary, (STEPS, 2, 17)),
             "prompt": torch.randint(1, vocabulary, (7,)), "new_tokens": torch.tensor([2])}
    if has_encoder(name):
        given |= {"source": torch.randint(0, vocabulary, (3, 19)), "source_mask": torch.ones(3, 19, dtype=torch.long),
                  "sources": torch.randint(0, vocabulary, (STEPS, 2, 13))}
    if is_encoder(name):
        given["ids"].clamp_(min=1)  # 0 is padding
        given["batches"].clamp_(min=1)
        given |= {"attention_mask": torch.ones(3, 21, dtype=torch.long), "token_type_ids": torch.zeros(3, 21, dtype=torch.long)}
    save_file({**given, "labels": given["ids"].clone()}, folder / "input.safetensors")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    for name in CASES:
        make_case(root / name, name)
    result = subprocess.run([DRIVER, *(root / name for name in CASES)], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    return root


@pytest.fixture(params=CASES)
def case(request, cases):
    folder = cases / request.param
    return request.param, folder, load_file(folder / "input.safetensors"), load_file(folder / "output.safetensors")


def open_adapted(folder, name, adapter="adapter"):
    base = kind(name).from_pretrained(folder / "model", attn_implementation="eager")
    # Without dropout, training mode equals evaluation mode, except in bitsandbytes, which then quantizes activations or requantizes weights.
    return PeftModel.from_pretrained(base, folder / adapter, is_trainable=True).train(name in PACKED)


def logits_of(model, ids, source=None):
    return (model(input_ids=ids) if source is None else model(input_ids=source, decoder_input_ids=ids)).logits


def summed_loss(model, ids, source=None):
    logits = logits_of(model, ids, source)
    if model.config.model_type in ("bert", "distilbert"):
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="sum")
    return logits, torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")


def check_close(what, ours, theirs):
    """Checks that values agree within 1e-5 of the tensor's largest value, or 1e-7."""
    assert ours.shape == theirs.shape, what
    difference, largest = (ours.double() - theirs.double()).abs().max(), theirs.abs().max()
    assert difference <= max(1e-5 * largest, 1e-7), f"{what}: {difference:.3g} of {largest:.3g}"


def our_name(theirs):
    for part in (".default", "base_model.model.", ".base_layer", ".modules_to_save"):
        theirs = theirs.replace(part, "")
    return theirs.removesuffix(".weight") if "lora_magnitude_vector" in theirs else theirs


def test_logits_and_gradients(case):
    name, folder, given, ours = case
    model = open_adapted(folder, name)
    logits, loss = summed_loss(model, given["ids"], given.get("source"))
    loss.backward()
    check_close("logits", ours["logits"], logits.detach())
    assert abs(ours["loss"].item() - loss.item()) <= 1e-5 * loss.item()
    gradients = {our_name(key): value.grad for key, value in model.named_parameters() if value.requires_grad}
    if name == ONE_OF_BOTH:
        gradients["model.embed_tokens.lora_embedding_A"] += gradients.pop("lm_head.lora_B.weight").T
        gradients["model.embed_tokens.lora_embedding_B"] += gradients.pop("lm_head.lora_A.weight").T
    assert {key[len("grad."):] for key in ours if key.startswith("grad.")} == set(gradients)
    for key, value in gradients.items():
        check_close(key, ours["grad." + key], value)


def test_twenty_steps(case):
    name, folder, given, ours = case
    if name == ONE_OF_BOTH:
        pytest.skip("PEFT's optimizer steps twice for a tied adapter")
    model = open_adapted(folder, name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.01)
    losses = []
    for step, batch in enumerate(given["batches"]):
        source = given["sources"][step] if "sources" in given else None
        targets = batch.shape[0] * (batch.shape[1] - (0 if is_encoder(name) else 1))
        loss = summed_loss(model, batch, source)[1] / targets
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (ours["losses"] - torch.tensor(losses, dtype=torch.double)).abs().max() <= 1e-4


def test_saved_folder_opens(case):
    name, folder, given, ours = case
    theirs, saved = (load_file(folder / which / "adapter_model.safetensors") for which in ("adapter", "saved"))
    # PEFT also saves base layers of adapted embeddings, and a tied adapter again under the head's name.
    more = {key for key in theirs if ".base_layer.weight" in key or (name == ONE_OF_BOTH and "lm_head" in key)}
    assert set(theirs) - more == set(saved)
    assert all(torch.equal(theirs[key].reshape(saved[key].shape), saved[key]) for key in saved)
    with torch.no_grad():
        again, original = (logits_of(open_adapted(folder, name, which), given["ids"], given.get("source"))
                           for which in ("saved", "adapter"))
    assert torch.equal(again, original)


def lockstep(folder, *arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("settings, words", [
    (GPT2, ["lora.target_modules=all-linear"]),
    (LLAMA, ["lora.target_modules=[q_proj,embed_tokens,lm_head]"]),
    (QWEN2, ["lora.target_modules=all-linear", "lora.trainable_token_indices=[7,299,8]"]),
    (TIED_QWEN2, ["lora.target_modules=[q_proj,embed_tokens]", "lora.ensure_weight_tying=true"]),
    (GPT2, ["lora.target_modules=[c_attn,c_proj]", "lora.init_lora_weights=pissa"]),
    (QWEN3, ["lora.target_modules=all-linear", "lora.init_lora_weights=olora"]),
], ids=["gpt2", "llama-tables", "qwen2-rows", "qwen2-one-of-both", "gpt2-pissa", "qwen3-olora"])
def test_files_of_a_run(settings, words, tmp_path):
    """PEFT opens the folder of a run on two ranks and gives the logits of the model that lockstep export merges."""
    torch.manual_seed(5)
    lockstep(tmp_path, "sample", "--output", "corpus", "--size", "0.1")
    lockstep(tmp_path, "tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "300", "--output", "tokenizer")
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps(dict(settings, vocab_size=300)))
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base)).save_pretrained(base)
    lockstep(tmp_path, "train", "--nproc", 2, "model.path=base", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
             "data.sequence_length=24", "training.max_steps=4", "training.learning_rate=1e-2", "training.use_cpu=true",
             "training.output_dir=run", "parallel.tensor=2", "lora.r=4", *words,
             "lora.lora_dropout=0.1", "lora.use_rslora=true", "lora.bias=lora_only", "monitor.peak_tflops=1")
    lockstep(tmp_path, "export", "--model", "base", "--adapter", "run", "--merge", "--output", "merged")
    assert json.loads((tmp_path / "run" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "run").eval()
    ids = torch.randint(0, 300, (2, 19))
    with torch.no_grad():
        theirs, ours = adapted(ids).logits, AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()(ids).logits
        plain = AutoModelForCausalLM.from_pretrained(base).eval()(ids).logits
    assert (theirs - ours).abs().max() <= 1e-5 * max(1, theirs.abs().max())
    assert (theirs - plain).abs().max() > 1e-3  # the adapter was trained


@pytest.mark.parametrize("combination", ["cat", "linear"])
@pytest.mark.parametrize("settings", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_several_adapters(settings, combination, tmp_path):
    """Compares with PEFT's add_weighted_adapter for different targets, scales and (stacked) ranks; one weight is negative."""
    torch.manual_seed(3)
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps(settings))
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base)).save_pretrained(base)
    targets = [["c_attn"], ["c_attn", "c_fc"]] if settings is GPT2 else [["q_proj", "v_proj"], ["q_proj", "down_proj"]]
    ranks = [4, 3] if combination == "cat" else [4, 4]
    for name, r, modules, alpha in zip(["first", "second"], ranks, targets, [7, 16]):
        adapted = get_peft_model(
            AutoModelForCausalLM.from_pretrained(base),
            LoraConfig(task_type="CAUSAL_LM", r=r, target_modules=modules, lora_alpha=alpha, init_lora_weights=False))
        adapted.save_pretrained(tmp_path / name)
    weights = [0.7, -0.4]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "first", adapter_name="first")
    model.load_adapter(tmp_path / "second", adapter_name="second")
    ids = torch.randint(0, settings["vocab_size"], (2, 19))
    with torch.no_grad():
        plain = AutoModelForCausalLM.from_pretrained(base)(ids).logits
        model.add_weighted_adapter(["first", "second"], weights, "both", combination_type=combination)
        model.set_adapter("both")
        theirs = model.eval()(ids).logits
        lockstep(tmp_path, "export", "--model", "base", "--adapter", "first", "--adapter", "second", "--adapter-weight", weights[0],
                 "--adapter-weight", weights[1], "--adapter-combination", combination, "--merge", "--output", "merged")
        ours = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()(ids).logits
    assert (theirs - ours).abs().max() <= 1e-5 * max(1, theirs.abs().max())
    assert (theirs - plain).abs().max() > 1e-3
