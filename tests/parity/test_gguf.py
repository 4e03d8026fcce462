"""GGUF files of lockstep export: llama.cpp gives transformers' results for the model's folder and its tokenizer's ids; the gguf package quantizes
and reads the weights alike."""

import json
import os
import pathlib
import subprocess
import urllib.request

import gguf
import numpy
import pytest
import torch
import transformers
import xllamacpp
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()

VOCABULARY, NEW_TOKENS = 312, 12
END = VOCABULARY - 1
LLAMA = dict(model_type="llama", vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=None,
             head_dim=16, initializer_range=0.15)
GPT2 = dict(model_type="gpt2", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=0,
            eos_token_id=None, initializer_range=0.15)
GEMMA = dict(LLAMA, model_type="gemma", tie_word_embeddings=True, pad_token_id=0, head_dim=24)
EXPERTS = dict(LLAMA, num_experts=6, num_experts_per_tok=2, num_key_value_heads=4)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)

CASES = {
    "llama": LLAMA,
    "llama-of-3": dict(LLAMA, rope_theta=50000.0, rope_scaling=LLAMA3),
    "llama-biases-tied": dict(LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                              rope_scaling=dict(rope_type="linear", factor=2.0)),
    "mistral": dict(LLAMA, model_type="mistral", sliding_window=None),
    "qwen2": dict(LLAMA, model_type="qwen2"),
    "qwen2-yarn": dict(LLAMA, model_type="qwen2",
                       rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "qwen3": dict(LLAMA, model_type="qwen3", head_dim=24),
    "gpt2": GPT2,
    "gpt2-untied": dict(GPT2, n_inner=96, tie_word_embeddings=False),
    "gemma": GEMMA,
    "gemma2": dict(GEMMA, model_type="gemma2", sliding_window=6, query_pre_attn_scalar=24, attn_logit_softcapping=5.0,
                   final_logit_softcapping=4.0, num_hidden_layers=3),
    "gemma3": dict(GEMMA, model_type="gemma3_text", sliding_window=6, query_pre_attn_scalar=24, num_hidden_layers=7,
                   rope_theta=3000.0, rope_local_base_freq=10000.0),
    "olmo2": dict(LLAMA, model_type="olmo2", pad_token_id=1),
    "phi3": dict(LLAMA, model_type="phi3", pad_token_id=7, sliding_window=None),
    "gpt_neox": dict(model_type="gpt_neox", vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                     num_attention_heads=4, max_position_embeddings=256, bos_token_id=0, eos_token_id=None, rotary_pct=0.5,
                     initializer_range=0.15),
    "mixtral": dict(LLAMA, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(EXPERTS, model_type="qwen3_moe", moe_intermediate_size=32, norm_topk_prob=True),
    "olmoe": {key: value for key, value in EXPERTS.items() if key != "head_dim"} | dict(model_type="olmoe", pad_token_id=1),
}
GLM = dict(LLAMA, model_type="glm4_moe", num_experts_per_tok=2, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=8, first_k_dense_replace=1, n_shared_experts=2,
           n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, partial_rotary_factor=0.5, attention_bias=True,
           use_qk_norm=True, num_hidden_layers=3, num_nextn_predict_layers=0)
OSS = dict(LLAMA, model_type="gpt_oss", num_experts_per_tok=2, num_local_experts=6, num_key_value_heads=4, sliding_window=6, intermediate_size=64, num_hidden_layers=3)
CASES |= {
    "qwen2_moe": dict(EXPERTS, model_type="qwen2_moe", num_experts_per_tok=3, moe_intermediate_size=32, shared_expert_intermediate_size=48),
    "qwen2_moe-tied": dict(EXPERTS, model_type="qwen2_moe", moe_intermediate_size=32, shared_expert_intermediate_size=32, tie_word_embeddings=True),
    "glm4_moe": GLM,
    "glm4_moe-groups": dict(GLM, n_group=4, topk_group=2, norm_topk_prob=False, use_qk_norm=False, attention_bias=False),
    # With two experts per token, the choice is a tie within 1e-4 at one position, and rounding to f16 changes it.
    "gpt_oss": dict(OSS, num_experts_per_tok=3, rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
    # llama.cpp rounds the bounds of its ramp, here 3.05 and 8.3 of 16.
    "gpt_oss-yarn": dict(OSS, head_dim=32, rope_parameters=dict(rope_type="yarn", rope_theta=5000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                                                original_max_position_embeddings=64, truncate=True)),
}
TEXTS = ["Once upon a time, there's 12345 of them.", " two  spaces\n\nand lines\t!", "Grüße, 東京 ✓ and naïve ﬁsh", "a", "I'LL don't\r\n x=1;"]


def lockstep(folder, *arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "2", "XDG_CACHE_HOME": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    lockstep(folder, "sample", "--output", "corpus", "--size", "0.1")
    lockstep(folder, "tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "300", "--output", "tokenizer")
    return folder / "tokenizer"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Tokenizer with one token of letters per id, because llama.cpp reports tokens of partial characters together."""
    folder = tmp_path_factory.mktemp("words")
    tokenizer = Tokenizer(models.BPE({f"w{place}": place for place in range(VOCABULARY)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w0", eos_token=f"w{END}").save_pretrained(folder)
    return folder


def make_model(folder, settings, tokenizer=None):
    """Random model in which every parameter affects the result."""
    torch.manual_seed(3)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
    with torch.no_grad():
        for key, value in [*model.named_parameters(), *model.named_buffers()]:
            if "rotary" not in key and (value.dim() == 1 or key.endswith("_bias")):
                value.add_(torch.randn_like(value) * 0.1)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(settings))
    for file in tokenizer.iterdir() if tokenizer else ():
        (folder / file.name).write_bytes(file.read_bytes())
    return model


class Server:
    """A llama.cpp server with one model file."""

    def __init__(self, path):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.n_gpu_layers = 128, 1, False, 0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        parameters.verbosity = 0
        self.server = xllamacpp.Server(parameters)

    def complete(self, ids):
        """Most likely next ids, and for each the log-probabilities of the five most likely."""
        answer = self.server.handle_completions(
            dict(prompt=ids, n_predict=NEW_TOKENS, temperature=0.0, n_probs=5, ignore_eos=True, cache_prompt=False))
        steps = answer["choices"][0]["logprobs"]["content"]
        return [step["id"] for step in steps], [{one["id"]: one["logprob"] for one in step["top_logprobs"]} for step in steps]

    def tokenize(self, text):
        request = urllib.request.Request(self.server.listening_address + "/tokenize", headers={"Content-Type": "application/json"},
                                         data=json.dumps(dict(content=text, add_special=True)).encode())
        return json.load(urllib.request.urlopen(request))["tokens"]


def assert_computes(model, path):
    torch.manual_seed(4)
    prompt = torch.randint(1, 290, (1, 21))
    tokens, told = Server(path).complete(prompt[0].tolist())
    ids = torch.cat([prompt, torch.tensor([tokens])], 1)
    with torch.no_grad():
        wanted = model(ids).logits[0, prompt.shape[1] - 1:-1].log_softmax(-1)
    ranked = wanted.clone()
    ranked[:, END] = -torch.inf  # ignore_eos
    assert tokens == ranked.argmax(-1).tolist()
    for step, likeliest in enumerate(told):
        for token, logarithm in likeliest.items():
            assert abs(wanted[step, token] - logarithm) < 0.02, (step, token)


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_equals_transformers(name, words, tmp_path):
    model = make_model(tmp_path / "model", CASES[name], words)
    lockstep(tmp_path, "export", "--model", "model", "--gguf", "f16", "--output", "model.gguf")
    assert_computes(model, tmp_path / "model.gguf")


def test_an_adapter_is_merged(words, tmp_path):
    model = make_model(tmp_path / "model", LLAMA, words)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", lora_alpha=8, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if "lora_" in key:
                value.normal_(0, 0.2)
    adapted.save_pretrained(tmp_path / "adapter")
    lockstep(tmp_path, "export", "--model", "model", "--adapter", "adapter", "--merge", "--gguf", "f16", "--output", "a/merged.gguf")
    assert_computes(adapted, tmp_path / "a" / "merged.gguf")


def tensors_of(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


# Relative quantization error of normally distributed weights.
LOST = {"F32": 0, "F16": 0, "Q8_0": 0.006, "Q6_K": 0.02, "Q5_K": 0.04, "Q5_1": 0.045, "Q5_0": 0.05, "Q4_K": 0.075, "Q4_0": 0.095}


@pytest.mark.parametrize("settings", [
    dict(LLAMA, hidden_size=256, intermediate_size=512, num_hidden_layers=9, head_dim=64),
    dict(GPT2, n_embd=256), dict(LLAMA, hidden_size=96, head_dim=24), dict(LLAMA, hidden_size=40, head_dim=10, intermediate_size=44),
], ids=["llama", "gpt2", "narrow", "odd"])
@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q4_k_m"])
def test_packed_weights(settings, kind, words, tmp_path):
    model = make_model(tmp_path / "model", settings, words)
    lockstep(tmp_path, "export", "--model", "model", "--gguf", "f16", "--output", "whole.gguf")
    told = lockstep(tmp_path, "export", "--model", "model", "--gguf", kind, "--output", "packed.gguf")
    whole, packed = tensors_of(tmp_path / "whole.gguf"), tensors_of(tmp_path / "packed.gguf")
    assert list(whole) == list(packed)
    kinds = {name: tensor.tensor_type.name for name, tensor in packed.items()}
    exact = {name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for name, tensor in whole.items()}
    for name, tensor in packed.items():
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        lost = numpy.linalg.norm(numbers - exact[name]) / numpy.linalg.norm(exact[name])
        assert lost <= LOST[kinds[name]], (name, kinds[name], lost)
        if kinds[name] in ("Q8_0", "Q4_0", "Q5_0", "Q5_1"):
            theirs = gguf.quants.quantize(exact[name], tensor.tensor_type)
            again = gguf.quants.dequantize(theirs, tensor.tensor_type)
            # Lockstep quantizes from float32, the gguf package from float16.
            assert abs(lost - numpy.linalg.norm(again - exact[name]) / numpy.linalg.norm(exact[name])) < 1e-3, name
    width = settings.get("hidden_size") or settings["n_embd"]
    if width == 256:
        assert "instead of" not in told, told
        assert kinds["token_embd.weight" if "n_embd" in settings else "output.weight"] == ("Q8_0" if kind == "q8_0" else "Q6_K")
    if kind == "q4_k_m" and width == 256:
        if "n_embd" in settings:
            assert kinds["blk.0.attn_qkv.weight"] == "Q5_K"
        else:
            # Layers that llama-quantize chooses for nine blocks.
            fine = [block for block in range(9) if kinds[f"blk.{block}.ffn_down.weight"] == "Q6_K"]
            assert fine == [block for block in range(9) if kinds[f"blk.{block}.attn_v.weight"] == "Q6_K"] == [0, 3, 6, 7, 8]
    if kind == "q4_k_m" and width == 96:
        assert kinds["blk.0.attn_q.weight"] == "Q5_0" and "attn_q in Q5_0 instead of Q4_K: 96 is not divisible by 256" in told, told
        assert kinds["output.weight"] == "Q8_0"
    if width == 40:
        assert kinds["blk.0.ffn_down.weight"] == kinds["output.weight"] == "F16"
    tokens, told = Server(tmp_path / "packed.gguf").complete(list(range(1, 20)))
    assert len(tokens) == NEW_TOKENS and all(numpy.isfinite(list(step.values())).all() for step in told)


def sentencepiece_like(special):
    """Tokenizer as in Llama 2: every split of a token into two tokens is a merge."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = ["▁", *"abcdehinoprstuw.,'", "▁t", "he", "▁the", "an", "▁an", "▁a", "in", "▁th", "re", "nd", "and", "▁and", "er", "ing", "on"]
    words += dict.fromkeys(pieces)
    vocabulary = {word: place for place, word in enumerate(words)}
    merges = [(word[:cut], word[cut:]) for word in words[259:] for cut in range(1, len(word))
              if word[:cut] in vocabulary and word[cut:] in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}</s>{% endfor %}"
    return fast


LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                  r"\s+(?!\S)|\s+")


def by_pattern(tokenizer, pattern):
    """The tokenizer, with a pattern that splits the text into words."""
    description = json.loads((tokenizer / "tokenizer.json").read_text())
    description["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(description)), eos_token="<|endoftext|>")


TOKENIZERS = {
    "gpt-2": lambda folder: transformers.PreTrainedTokenizerFast.from_pretrained(folder),
    "dbrx": lambda folder: by_pattern(folder, LLAMA3_PATTERN),
    "qwen2": lambda folder: by_pattern(folder, LLAMA3_PATTERN.replace("{1,3}", "")),
    "llama": sentencepiece_like,
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_llama_cpp_gives_the_tokenizers_ids(kind, tokenizer, tmp_path):
    ours = TOKENIZERS[kind](tokenizer)
    make_model(tmp_path / "model", LLAMA)
    ours.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    told = lockstep(tmp_path, "export", "--model", "model", "--gguf", "q8_0", "--output", "model.gguf")
    assert "merges" not in told, told
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.model" if kind == "llama" else "tokenizer.ggml.pre"].contents() == kind
    assert fields["tokenizer.ggml.tokens"].contents()[:290] == ours.convert_ids_to_tokens(range(290))
    assert fields["tokenizer.ggml.eos_token_id"].contents() == ours.eos_token_id
    if kind == "llama":
        assert fields["tokenizer.chat_template"].contents() == ours.chat_template
    server = Server(tmp_path / "model.gguf")
    for text in TEXTS:
        assert server.tokenize(text) == ours(text)["input_ids"], text
