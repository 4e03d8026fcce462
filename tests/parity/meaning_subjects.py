"""Inputs that tests/parity/meaning.py changes: model folders, adapters, tokenizers and rows, each with a command and a reference."""

import json
import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"
import peft
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

import test_models as small
import test_tokenizer_families as families

torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

VOCABULARY, END = 264, 256
TEXT = "The quick brown fox, said: hello! And so it was over."
CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
          "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Other values of strings that programs know.
WORDS = {
    "silu": ["gelu", "relu"], "gelu_new": ["gelu", "relu"], "gelu": ["relu", "gelu_new"], "gelu_pytorch_tanh": ["gelu", "relu"],
    "relu": ["gated-gelu", "gated-silu"], "default": ["linear", "dynamic", "yarn", "llama3", "longrope", "proportional"], "float32": ["bfloat16", "float16"],
    "full_attention": ["sliding_attention", "linear_attention"], "sliding_attention": ["full_attention", "chunked_attention"],
    "llama": ["mistral", "qwen2", "gemma"], "gpt2": ["gpt_neo"], "LlamaForCausalLM": ["LlamaForSequenceClassification", "LlamaModel"],
    "single_label_classification": ["multi_label_classification", "regression"], "CAUSAL_LM": ["SEQ_CLS", "FEATURE_EXTRACTION"],
    "LORA": ["IA3", "LOHA"], "none": ["all", "lora_only"], "PreTrainedTokenizerFast": ["GPT2TokenizerFast", "LlamaTokenizerFast"],
    "first": ["always", "never"], "Removed": ["Isolated", "MergedWithPrevious"], "Isolated": ["Removed"],
    "user": ["system", "tool"], "assistant": ["user", "tool"],
}
# Keys of config.json that change the computation in some family, with a value that does.
MODEL_KEYS = {
    "attn_logit_softcapping": [0.8], "final_logit_softcapping": [2.0], "logit_scale": [0.5, 2], "logits_scaling": [8.0], "embedding_multiplier": [12.0],
    "residual_multiplier": [0.22], "attention_multiplier": [0.5], "query_pre_attn_scalar": [9], "qk_norm": [True], "use_qk_norm": [True], "clip_qkv": [0.5],
    "alibi": [True], "sliding_window": [4], "use_sliding_window": [True], "max_window_layers": [1], "layer_types": [["sliding_attention"] * 2],
    "attention_bias": [True], "mlp_bias": [True], "use_bias": [True], "bias": [True], "partial_rotary_factor": [0.5], "rope_theta": [50.0], "rotary_pct": [0.25],
    "rotary_emb_base": [50], "rope_local_base_freq": [20.0], "rope_scaling": [{"rope_type": "linear", "factor": 4.0}, {"type": "dynamic", "factor": 2.0}],
    "rope_parameters": [{"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}], "num_experts": [4], "num_local_experts": [4], "n_routed_experts": [4],
    "head_dim": [16], "num_key_value_heads": [1], "tie_word_embeddings": [True], "tie_encoder_decoder": [True], "scale_embedding": [True], "is_decoder": [True],
    "is_encoder_decoder": [True], "add_cross_attention": [True], "use_parallel_residual": [False], "parallel_attn": [True], "pretraining_tp": [2],
    "chunk_size_feed_forward": [8], "use_mrope": [True], "no_rope_layers": [[0, 1]], "attention_chunk_size": [8], "use_bidirectional_attention": [True],
    "embedding_dropout": [0.5], "pruned_heads": [{"0": [0]}], "quantization_config": [{"quant_method": "gptq", "bits": 4}], "auto_map": [{"AutoModelForCausalLM": "x.Y"}],
    "position_embedding_type": ["relative_key"], "hidden_activation": ["relu"], "hidden_act": ["relu"], "activation_function": ["relu"], "layer_norm_eps": [0.1],
    "layer_norm_epsilon": [0.1], "rms_norm_eps": [0.1], "norm_eps": [0.1], "initializer_range": [0.5], "output_hidden_states": [True], "use_cache": [False],
    "torch_dtype": ["bfloat16", "float16"], "dtype": ["bfloat16"], "attn_implementation": ["eager"], "_attn_implementation": ["eager"], "vision_config": [{}],
    "text_config": [{"hidden_size": 8}], "num_labels": [3], "id2label": [{"0": "a", "1": "b", "2": "c"}], "problem_type": ["regression"],
    "max_position_embeddings": [8], "n_ctx": [8], "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True],
    "temperature": [0.5], "eos_token_id": [3], "bos_token_id": [3], "pad_token_id": [5], "decoder_start_token_id": [3], "forced_eos_token_id": [4],
    "router_jitter_noise": [0.1], "norm_topk_prob": [True], "shared_expert_intermediate_size": [8], "num_nextn_predict_layers": [1], "swiglu_limit": [0.1],
    "swiglu_alpha": [0.1], "unsloth_version": ["2025.1"], "use_xla": [True], "is_composition": [True], "return_dict": [False], "torchscript": [True],
}
GENERATION_KEYS = {
    "repetition_penalty": [5.0], "no_repeat_ngram_size": [1], "num_beams": [3], "min_p": [0.5], "typical_p": [0.5], "top_k": [3], "top_p": [0.5],
    "temperature": [0.7], "max_length": [14], "min_length": [40], "max_new_tokens": [3], "min_new_tokens": [30], "suppress_tokens": [[1, 2, 3, 4, 5, 6, 7, 8, 9]],
    "begin_suppress_tokens": [[1, 2, 3]], "bad_words_ids": [[[10]]], "forced_bos_token_id": [7], "forced_eos_token_id": [7], "eos_token_id": [3], "pad_token_id": [3],
    "bos_token_id": [3], "decoder_start_token_id": [3], "sequence_bias": [[[[9], 10.0]]], "encoder_repetition_penalty": [2.0], "diversity_penalty": [0.5],
    "length_penalty": [2.0], "early_stopping": [True], "num_return_sequences": [2], "penalty_alpha": [0.6], "guidance_scale": [3.0], "epsilon_cutoff": [3e-4],
    "eta_cutoff": [3e-4], "exponential_decay_length_penalty": [[2, 1.5]], "renormalize_logits": [True], "remove_invalid_values": [True], "watermarking_config": [
        {"bias": 9.0}], "stop_strings": [["a"]], "max_time": [30.0], "prompt_lookup_num_tokens": [2], "cache_implementation": ["static"], "use_cache": [False],
    "output_scores": [True], "return_dict_in_generate": [True], "transformers_version": ["4.0.0"], "top_h": [0.5], "num_beam_groups": [2], "do_sample": [False],
}
ADAPTER_KEYS = {
    "lora_bias": [True], "alora_invocation_tokens": [[1]], "layer_replication": [[[0, 2]]], "target_parameters": [["x"]], "use_qalora": [True],
    "modules_to_save": [["lm_head"]], "trainable_token_indices": [[1, 2]], "fan_in_fan_out": [True], "layers_to_transform": [[0]], "layers_pattern": ["layers"],
    "rank_pattern": [{"q_proj": 2}], "alpha_pattern": [{"q_proj": 2}], "use_rslora": [True], "use_dora": [True], "exclude_modules": [["q_proj"]],
    "num_virtual_tokens": [3], "scaling": [2.0], "init_lora_weights": ["pissa"], "revision": ["main"], "inference_mode": [False],
}
TOKENIZER_CONFIG_KEYS = {
    "add_bos_token": [True], "add_eos_token": [True], "add_prefix_space": [True], "clean_up_tokenization_spaces": [True], "split_special_tokens": [True],
    "do_lower_case": [True], "strip_accents": [True], "additional_special_tokens": [["quick"]], "extra_special_tokens": [{"x_token": "brown"}],
    "added_tokens_decoder": [{"260": {"content": "fox", "special": False}}], "unk_token": ["<unk>"], "cls_token": ["The"], "sep_token": ["fox"], "mask_token": ["brown"],
    "pad_token": ["<|pad|>"], "legacy": [False, True], "use_default_system_prompt": [True], "model_max_length": [5], "padding_side": ["left"],
    "truncation_side": ["left"], "truncation": [True], "max_length": [5], "chat_template": ["x"], "tokenizer_file": ["other.json"], "vocab_file": ["x"],
    "name_or_path": ["x"], "errors": ["ignore"], "trim_offsets": [False], "use_fast": [False], "spaces_between_special_tokens": [False], "backend": ["sentencepiece"],
    "sp_model_kwargs": [{"enable_sampling": True}], "auto_map": [{"AutoTokenizer": ["x.Y", None]}], "bos_token": ["fox"], "eos_token": ["fox"], "do_basic_tokenize": [False],
}


def byte_tokenizer(folder, **config):
    """Writes a tokenizer of single bytes and three special tokens."""
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", **config})
    return tokenizer


def bert_with_marks():
    tokenizer = families.bert()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1))


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def random_model(kind, config, folder):
    torch.manual_seed(len(config["model_type"]))
    model = kind.from_config(transformers.AutoConfig.for_model(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name.lower():
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


class Subject:
    """An input. `commands(folder)`: pairs of a command and a function that reads its output; `reference(folder)`: the same values."""
    json_files = ()  # (file, depth, keys to add, line or None)
    added_files = {}
    tensor_files = ()
    added_tensors = {}
    changes_files = True
    has_reference = True
    must_report_unused = False


class Decoder(Subject):
    tensor_files = ("model.safetensors",)

    def __init__(self, name, config):
        self.name, self.config = name, dict(config, vocab_size=VOCABULARY, eos_token_id=END, **(
            {"bos_token_id": END} if "bos_token_id" in config else {}))
        self.json_files = (("config.json", 3, {key: values for key, values in MODEL_KEYS.items()}, None),)
        self.added_files = {
            "adapter_config.json": b'{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}', "adapter_model.safetensors": b"",
            "pytorch_model.bin": b"x", "consolidated.safetensors": b"x", "model.safetensors.index.json": b'{"metadata": {}, "weight_map": {}}',
            "model-00001-of-00001.safetensors": b"x", "extra.safetensors": b"x", "modeling_own.py": b"raise SystemExit", "quantize_config.json": b'{"bits": 4}',
            "hf_quant_config.json": b'{"quantization": {"quant_algo": "FP8"}}', "params.json": b'{"dim": 8}', "model.safetensors.part": b"x",
            "README.md": b"words", "original/consolidated.00.pth": b"x", "tf_model.h5": b"x", "preprocessor_config.json": b"{}", "generation_config.json": b"{}"}
        self.added_tensors = {
            "lm_head.weight": lambda t: torch.randn(VOCABULARY, 24), "lm_head.bias": lambda t: torch.randn(VOCABULARY),
            "model.layers.0.self_attn.q_proj.bias": lambda t: torch.randn(32), "model.layers.2.input_layernorm.weight": lambda t: torch.ones(24),
            "model.layers.0.self_attn.rotary_emb.inv_freq": lambda t: torch.ones(4), "model.layers.0.mlp.gate_proj.weight_scale": lambda t: torch.ones(1),
            "base_model.model.model.norm.weight": lambda t: torch.ones(24), "score.weight": lambda t: torch.ones(2, 24),
            "model.layers.0.self_attn.q_norm.weight": lambda t: torch.randn(8)}

    def make(self, folder):
        byte_tokenizer(folder)
        write_rows(folder / "text.jsonl", [{"text": TEXT}])
        random_model(AutoModelForCausalLM, self.config, folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        self.data = shutil.copy(folder / "text.jsonl", folder.parent / f"{folder.name}.jsonl")
        (folder / "text.jsonl").unlink()
        self.pristine = folder
        self.ids = torch.tensor([[*AutoTokenizer.from_pretrained(folder)(TEXT).input_ids, END]])

    def commands(self, folder):
        return [(["eval", "--model", folder, "--data", self.data, "data.sequence_length=80", f"tokenizer.path={self.pristine}",
                  f"data.cache_dir={self.pristine.parent / 'cache'}", "--json"], lambda out: json.loads(out)["eval_loss"])]

    def reference(self, folder):
        # The grouped product of transformers' experts has requirements on sizes.
        model = AutoModelForCausalLM.from_pretrained(folder, **({"experts_implementation": "eager"} if "experts" in str(self.config) else {})).eval()
        with torch.no_grad():
            logits = model(self.ids).logits.float()
        return [torch.nn.functional.cross_entropy(logits[0, :-1], self.ids[0, 1:]).item()]


class EncoderDecoder(Decoder):
    """Loss of an answer by T5."""

    def make(self, folder):
        byte_tokenizer(folder)
        random_model(AutoModelForSeq2SeqLM, self.config, folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        self.data, self.pristine = folder.parent / f"{folder.name}.jsonl", folder
        write_rows(self.data, [{"prompt": TEXT, "completion": TEXT[:20]}])
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.ids, self.labels = (torch.tensor([[*tokenizer(text).input_ids, END]]) for text in (TEXT, TEXT[:20]))

    def commands(self, folder):
        (words, read), = super().commands(folder)
        return [([*words, "data.prompt=pairs", "data.instruction_field=prompt", "data.output_field=completion"], read)]

    def reference(self, folder):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        with torch.no_grad():
            return [model(input_ids=self.ids, labels=self.labels).loss.item()]


class Generation(Decoder):
    """Greedy text by the model's generation_config.json."""
    tensor_files = ()

    def __init__(self):
        super().__init__("generation", small.LLAMA)
        self.json_files = (("generation_config.json", 2, GENERATION_KEYS, None), ("config.json", 1, {
            key: MODEL_KEYS[key] for key in ("eos_token_id", "bos_token_id", "pad_token_id", "temperature", "forced_eos_token_id", "use_cache")}, None))
        self.added_files = {}

    def make(self, folder):
        super().make(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        ids = model.generate(torch.tensor([AutoTokenizer.from_pretrained(folder)("hello").input_ids]), max_new_tokens=12, do_sample=False)[0].tolist()
        # One of the generated tokens ends the text.
        write_json(folder / "generation_config.json", {"eos_token_id": [END, ids[-3]], "bos_token_id": END, "max_new_tokens": 16, "do_sample": False})

    def commands(self, folder):
        return [(["generate", "--model", folder, "--prompt", "hello"], lambda out: out.rstrip("\n"))]

    def reference(self, folder):
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
        ids = model.generate(torch.tensor([tokenizer("hello").input_ids]))[0]
        return [tokenizer.decode(ids, clean_up_tokenization_spaces=False).rstrip("\n")]


class Classifier(Subject):
    """Probabilities of two classes by a classifier of texts."""
    tensor_files = ("model.safetensors",)

    def __init__(self, name, config):
        self.name = f"{name} classifier"
        self.config = dict(config, vocab_size=VOCABULARY, pad_token_id=5, num_labels=3, id2label={0: "low", 1: "mid", 2: "high"},
                           label2id={"low": 0, "mid": 1, "high": 2}, problem_type="single_label_classification")
        self.json_files = (("config.json", 3, MODEL_KEYS, None),)
        self.added_files = {"pytorch_model.bin": b"x", "model.safetensors.index.json": b'{"metadata": {}, "weight_map": {}}'}

    def make(self, folder):
        byte_tokenizer(folder)
        random_model(AutoModelForSequenceClassification, self.config, folder)
        self.pristine = folder
        self.ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(TEXT[:24]).input_ids])

    def commands(self, folder):
        return [(["predict", "--model", folder, f"tokenizer.path={self.pristine}", "data.sequence_length=32", "--text", TEXT[:24]],
                 scores_of)]

    def reference(self, folder):
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            logits = model(self.ids).logits.float()[0]
        kind = model.config.problem_type
        values = logits if kind == "regression" else logits.sigmoid() if kind == "multi_label_classification" else logits.softmax(0)
        return [sorted((model.config.id2label[i], value) for i, value in enumerate(values.tolist()))]


def scores_of(out):
    """Class -> probability, or target -> value of a regression, of `lockstep predict`."""
    row = json.loads(out)
    scores = row["probabilities"] if "probabilities" in row else row["prediction"]
    return sorted(scores.items())


class Adapter(Subject):
    """Loss of a model with a PEFT adapter."""
    json_files = (("adapter_config.json", 2, ADAPTER_KEYS, None),)
    tensor_files = ("adapter_model.safetensors",)
    added_files = {"adapter_model.bin": b"x", "config.json": b"{}", "tokenizer.json": b"{}", "README.md": b"words", "other/adapter_config.json": b"{}"}

    def __init__(self, name, config, **options):
        self.name, self.model, self.options = f"adapter {name}", Decoder(name, config), options
        self.added_tensors = {
            "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight": lambda t: torch.ones(2, 2),
            "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight": lambda t: torch.randn(4, 44),
            "base_model.model.lm_head.weight": lambda t: torch.randn(VOCABULARY, 24),
            "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight": lambda t: torch.randn(4, 24),
            "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector": lambda t: torch.ones(32)}

    def make(self, folder):
        self.base = folder.parent / f"{folder.name}-base"
        self.base.mkdir()
        self.model.make(self.base)
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(self.base), peft.LoraConfig(task_type="CAUSAL_LM", **self.options))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name and "magnitude" not in name:
                    parameter.normal_(0, 0.2)
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)

    def commands(self, folder):
        (words, read), = self.model.commands(self.base)
        return [([*words, "--adapter", folder], read)]

    def reference(self, folder):
        model = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(self.base), folder).eval()
        with torch.no_grad():
            logits = model(self.model.ids).logits.float()
        return [torch.nn.functional.cross_entropy(logits[0, :-1], self.model.ids[0, 1:]).item()]


class TokenizerFolder(Subject):
    """Ids of a text and the text of a chat by a tokenizer's folder."""
    text = f"{TEXT} <|im_start|>user é 中文  two\tthree 1234"

    def __init__(self, name, make_tokenizer, **config):
        self.name, self.make_tokenizer, self.config = f"tokenizer {name}", make_tokenizer, config
        self.json_files = (("tokenizer_config.json", 3, TOKENIZER_CONFIG_KEYS, None), ("tokenizer.json", 3, {"version": ["2.0"], "extra": [1]}, None),
                           ("special_tokens_map.json", 2, {"mask_token": ["fox"], "additional_special_tokens": [["brown"]]}, None))
        self.added_files = {
            "added_tokens.json": b'{"quick": 4000}', "vocab.json": b'{"a": 0}', "merges.txt": b"#version\na b\n", "tokenizer.model": b"x", "vocab.txt": b"a\nb\n",
            "chat_template.jinja": b"other {{ messages[0].content }}", "chat_template.json": b'{"chat_template": "other"}', "spiece.model": b"x",
            "sentencepiece.bpe.model": b"x", "processor_config.json": b"{}", "preprocessor_config.json": b"{}", "tekken.json": b"{}", "added_tokens.txt": b"x",
            "additional_chat_templates/tool_use.jinja": b"tools"}

    def make(self, folder):
        self.make_tokenizer().save(str(folder / "tokenizer.json"))
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ bos_token }}" + CHATML, **self.config})
        names = {key: value for key, value in self.config.items() if key in ("bos_token", "eos_token", "unk_token", "pad_token")}
        write_json(folder / "special_tokens_map.json", names)
        self.file = folder.parent / f"{folder.name}.txt"
        self.file.write_text(self.text)
        self.chat = folder.parent / f"{folder.name}.jsonl"
        self.messages = [{"role": "user", "content": "so?"}, {"role": "assistant", "content": "it is"}]
        write_rows(self.chat, [{"messages": self.messages}])
        self.template = "{{ bos_token }}{{ eos_token }}"

    def commands(self, folder):
        return [(["tokenize", "--model", folder, "--whole", self.file], json.loads)]

    def reference(self, folder):
        return [AutoTokenizer.from_pretrained(folder)(self.text).input_ids]


class TokenizerOfClass(TokenizerFolder):
    """A tokenizer whose class has own code in transformers, which replaces parts of tokenizer.json: only the other files are changed."""

    def __init__(self, name, make_tokenizer, **config):
        super().__init__(name, make_tokenizer, **config)
        self.json_files = self.json_files[:1] + self.json_files[2:]


class ChatText(TokenizerFolder):
    """Text of a chat by a tokenizer's folder."""

    def __init__(self):
        super().__init__("of chats", None, eos_token="<|im_end|>", bos_token="<|end|>")
        self.json_files = self.json_files[:1] + self.json_files[2:]
        self.name = "chat template"

    def make(self, folder):
        self.make_tokenizer = lambda: byte_tokenizer(folder)
        super().make(folder)

    def commands(self, folder):
        return [(["data", "show", f"tokenizer.path={folder}", f"data.train={self.chat}", "data.prompt=chat", "data.sequence_length=96"], shown_text)]

    def reference(self, folder):
        return [AutoTokenizer.from_pretrained(folder).apply_chat_template(self.messages, tokenize=False).rstrip("\n")]


def shown_text(out):
    """Text of the first document that `data show` prints, without marks of learned tokens."""
    return "\n".join(out.rstrip("\n").split("\n")[1:]).replace("⟦", "").replace("⟧", "").rstrip("\n")


class ChatRows(Subject):
    """Text of a chat, with changed fields of the row."""
    changes_files = False
    row = {"messages": [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Add 1 and 2.", "name": "eve"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]},
        {"role": "tool", "content": "3"}, {"role": "assistant", "content": "It is 3."}], "id": 7}

    def __init__(self):
        self.name = "rows of chats"
        extra = {"tools": [[{"type": "function", "function": {"name": "x"}}]], "chat_template_kwargs": [{"style": "x"}], "system": ["Be rude."], "images": [["a.png"]],
                 "weight": [0], "text": ["other"], "prompt": ["other"], "conversations": [[{"from": "human", "value": "x"}]], "source": ["web"]}
        self.json_files = (("rows.jsonl", 4, extra, 0),)

    def make(self, folder):
        byte_tokenizer(folder, chat_template=CHATML)
        self.pristine = folder
        write_rows(folder / "rows.jsonl", [self.row])

    def commands(self, folder):
        return [(["data", "show", f"tokenizer.path={self.pristine}", f"data.train={folder / 'rows.jsonl'}", "data.prompt=chat", "data.sequence_length=256"], shown_text)]

    def reference(self, folder):
        row = json.loads((folder / "rows.jsonl").read_text())
        return [AutoTokenizer.from_pretrained(self.pristine).apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False, **(
            row.get("chat_template_kwargs") or {})).rstrip("\n")]


class TrainedRows(Subject):
    """Loss of the first step on rows. The program reports each field that does not affect it."""
    changes_files = False
    has_reference = False
    must_report_unused = True

    def __init__(self, name, rows, extra, *settings):
        self.name, self.rows, self.settings = f"rows of {name}", rows, settings
        self.json_files = (("rows.jsonl", 3, extra, 0),)

    def make(self, folder):
        self.pristine = folder
        byte_tokenizer(folder, chat_template=CHATML)
        random_model(AutoModelForCausalLM, dict(small.LLAMA, vocab_size=VOCABULARY, eos_token_id=END), folder)
        write_rows(folder / "rows.jsonl", self.rows)

    def commands(self, folder):
        (folder / "run").mkdir(exist_ok=True)

        def read(_):
            lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
            return [[line["loss"], line["grad_norm"]] for line in lines if "loss" in line]
        return [(["train", f"model.path={self.pristine}", f"data.train={folder / 'rows.jsonl'}", f"output_dir={folder / 'run'}", "data.cache_dir=" + str(
            folder / "cache"), "data.sequence_length=96", "max_steps=1", "per_device_train_batch_size=2", "logging_steps=1", "use_cpu=true", "save_strategy=no",
            *self.settings], read)]


MODELS = {
    "gpt2": small.GPT2, "gpt2-tied": dict(small.GPT2, tie_word_embeddings=True), "llama": small.LLAMA, "llama-tied": dict(small.LLAMA, tie_word_embeddings=True),
    "llama-rope": small.rope_v5(small.LLAMA, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    "llama-yarn": small.rope_v5(small.LLAMA, rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=2.0, mscale=0.7,
                                mscale_all_dim=0.3, truncate=False),
    "mistral": small.MISTRAL, "qwen2": dict(small.QWEN2, use_sliding_window=True, sliding_window=6, max_window_layers=1), "qwen3": small.QWEN3,
    "mixtral": small.MIXTRAL, "qwen3_moe": small.QWEN3_MOE, "qwen2_moe": small.QWEN2_MOE, "olmoe": small.OLMOE, "glm4_moe": small.GLM4_MOE, "gpt_oss": small.GPT_OSS,
    "gemma": small.GEMMA, "gemma2": small.GEMMA2, "gemma3_text": small.GEMMA3, "phi3": small.PHI3, "gpt_neox": small.GPT_NEOX, "gpt_neo": small.GPT_NEO,
    "olmo2": small.OLMO2, "olmo3": small.OLMO3, "glm": small.GLM, "glm4": small.GLM4,
}


def all_subjects():
    made = [Decoder(name, config) for name, config in MODELS.items()]
    made += [EncoderDecoder("t5", small.T5), EncoderDecoder("t5-gated", small.T5_V1_1)]
    made += [Classifier(name, config) for name, config in {"bert": small.BERT, "roberta": small.ROBERTA, "distilbert": small.DISTILBERT,
                                                           "llama": small.LLAMA, "qwen2": small.QWEN2}.items()]
    made += [Generation(), Adapter("llama", small.LLAMA, r=4, target_modules=["q_proj", "up_proj"], lora_alpha=6, bias="none"),
             Adapter("dora", small.QWEN2, r=3, target_modules="all-linear", use_dora=True, use_rslora=True),
             Adapter("modules", small.LLAMA, r=3, modules_to_save=["lm_head"], rank_pattern={"k_proj": 2}, target_modules=["k_proj", "v_proj"])]
    made += [TokenizerFolder("llama 3", families.llama3, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"),
             TokenizerFolder("bert", families.bert, unk_token="[UNK]", pad_token="[PAD]"),
             TokenizerFolder("sentencepiece", lambda: families.sentencepiece_bpe("normalizer"), bos_token="<s>", eos_token="</s>", unk_token="<unk>"),
             TokenizerFolder("unigram", lambda: families.unigram(False), eos_token="</s>", unk_token="<unk>", pad_token="<pad>"), ChatText()]
    made += [TokenizerOfClass("of LlamaTokenizer", lambda: families.sentencepiece_bpe("pre_tokenizer"), tokenizer_class="LlamaTokenizer", bos_token="<s>",
                              eos_token="</s>", unk_token="<unk>", add_bos_token=True, add_eos_token=False, legacy=True),
             TokenizerOfClass("of Qwen2Tokenizer", families.qwen2, tokenizer_class="Qwen2Tokenizer", add_prefix_space=False, split_special_tokens=False,
                              eos_token="<|endoftext|>"),
             TokenizerOfClass("of BertTokenizer", bert_with_marks, tokenizer_class="BertTokenizer", do_lower_case=True, strip_accents=None,
                             tokenize_chinese_chars=True, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")]
    made += [ChatRows(), TrainedRows("preferences", [{"prompt": "Is 7 odd?\n", "chosen": " yes, it is", "rejected": " no", "id": 3}],
                                     {"system": ["Be kind."], "margin": [0.5], "tools": [[{"type": "function"}]], "score_chosen": [9], "images": [["a.png"]]},
                                     "task.type=preference", "preference.loss_type=ipo"),
             TrainedRows("classes", [{"text": "It is light.", "label": "low", "id": 3}, {"text": "It is not.", "label": "high"}],
                         {"label_text": ["low"], "text_pair": ["other"], "weight": [0], "labels": ["high"], "sentence": ["x"]}, "task.type=sequence_classification"),
             TrainedRows("pairs", [{"prompt": "Is it light?\n", "completion": " Yes, it is.", "id": 3}],
                         {"system": ["Be kind."], "weight": [0], "input": ["more"], "images": [["a.png"]]}, "data.prompt=pairs",
                         "data.instruction_field=prompt", "data.output_field=completion")]
    return made
