"""Compares models with Hugging Face: logits, every gradient, twenty AdamW steps, greedy generation, and the saved folder.

One process of parity_driver (tests/parity/driver.cpp) runs all cases; each is a random model with an unusual setting.
"""

import contextlib
import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, T5ForConditionalGeneration

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep"))
DRIVER = PROGRAM.parent / "parity_driver"
STEPS, NEW_TOKENS = 20, 64
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()

GPT2 = dict(model_type="gpt2", vocab_size=101, n_embd=24, n_layer=2, n_head=3, n_positions=96, bos_token_id=0,
            eos_token_id=None, initializer_range=0.1)
LLAMA = dict(model_type="llama", vocab_size=97, hidden_size=24, intermediate_size=44, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=None,
             head_dim=8, initializer_range=0.1)
MISTRAL = dict(LLAMA, model_type="mistral", sliding_window=5)
QWEN2 = dict(LLAMA, model_type="qwen2")
QWEN3 = dict(LLAMA, model_type="qwen3", head_dim=10)
MIXTRAL = dict(LLAMA, model_type="mixtral", intermediate_size=20, num_local_experts=4, num_experts_per_tok=2)
QWEN3_MOE = dict(LLAMA, model_type="qwen3_moe", head_dim=10, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=14)
QWEN2_MOE = dict({key: value for key, value in QWEN3_MOE.items() if key != "head_dim"}, model_type="qwen2_moe",
                 shared_expert_intermediate_size=18)
OLMOE = {key: value for key, value in LLAMA.items() if key != "head_dim"} | dict(
    model_type="olmoe", intermediate_size=14, num_experts=6, num_experts_per_tok=2, pad_token_id=None)
GLM4_MOE = dict(LLAMA, model_type="glm4_moe", num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=14)
GPT_OSS = dict(LLAMA, model_type="gpt_oss", head_dim=10, intermediate_size=14, num_local_experts=5, num_experts_per_tok=2,
               sliding_window=6, swiglu_limit=0.4)
SHORT = dict(LLAMA, max_position_embeddings=16)  # sequences are longer than the trained positions


def rope(base=SHORT, **scaling):
    """Old format, which transformers reads and no longer writes."""
    return dict(base, rope_theta=500.0, rope_scaling=scaling)


def rope_v5(base=SHORT, **parameters):
    return dict(base, rope_parameters=dict(parameters, rope_theta=500.0))


T5 = dict(model_type="t5", vocab_size=89, d_model=24, d_kv=6, d_ff=44, num_layers=2, num_decoder_layers=2, num_heads=3,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, dropout_rate=0.1, initializer_factor=0.7,
          feed_forward_proj="relu", pad_token_id=0, eos_token_id=None, decoder_start_token_id=0, is_encoder_decoder=True)
T5_V1_1 = dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)

GEMMA = dict(LLAMA, model_type="gemma", tie_word_embeddings=True, pad_token_id=0, head_dim=10)
GEMMA2 = dict(GEMMA, model_type="gemma2", sliding_window=6, query_pre_attn_scalar=9, attn_logit_softcapping=0.8,
              final_logit_softcapping=2.0)
GEMMA3 = dict(GEMMA, model_type="gemma3_text", sliding_window=6, sliding_window_pattern=2, query_pre_attn_scalar=9,
              rope_theta=3000.0, rope_local_base_freq=20.0)
PHI3 = dict(LLAMA, model_type="phi3", pad_token_id=7, hidden_size=32, sliding_window=6)
GPT_NEOX = dict(model_type="gpt_neox", vocab_size=97, hidden_size=24, intermediate_size=44, num_hidden_layers=2,
                num_attention_heads=3, max_position_embeddings=128, bos_token_id=0, eos_token_id=None, rotary_pct=0.5,
                rotary_emb_base=500, initializer_range=0.1)
GPT_NEO = dict(model_type="gpt_neo", vocab_size=97, hidden_size=24, num_layers=3, num_heads=3, max_position_embeddings=96,
               attention_types=[[["global", "local"], 1], [["local"], 1]], window_size=6, bos_token_id=0,
               eos_token_id=None, initializer_range=0.1)
OLMO2 = dict(LLAMA, model_type="olmo2", pad_token_id=1, hidden_size=32)
OLMO3 = dict(OLMO2, model_type="olmo3", sliding_window=6, layer_types=["sliding_attention", "full_attention"])
GLM = dict(LLAMA, model_type="glm", pad_token_id=3, head_dim=12)
GLM4 = dict(GLM, model_type="glm4")

BERT = dict(model_type="bert", vocab_size=97, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=40, type_vocab_size=2, pad_token_id=0, initializer_range=0.1)
ROBERTA = dict(BERT, model_type="roberta", max_position_embeddings=44, type_vocab_size=1, pad_token_id=3, bos_token_id=0,
               eos_token_id=2, layer_norm_eps=1e-5)
DISTILBERT = dict(model_type="distilbert", vocab_size=97, dim=24, hidden_dim=44, n_layers=2, n_heads=4,
                  max_position_embeddings=40, pad_token_id=0, initializer_range=0.1)

LONGROPE = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.5, 1.6], long_factor=[2.0, 3.0, 3.5, 9.0])
CASES = {
    "gpt2": GPT2,
    "gpt2-one-layer-untied": dict(GPT2, n_layer=1, tie_word_embeddings=False, n_inner=50),
    "gpt2-scale-flags": dict(GPT2, scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False),
    "gpt2-upcast": dict(GPT2, reorder_and_upcast_attn=True, activation_function="gelu"),
    "gpt2-bfloat16": GPT2,
    "llama": LLAMA,
    "llama-one-layer-one-key": dict(LLAMA, num_hidden_layers=1, num_key_value_heads=1, vocab_size=51),
    "llama-biases-tied": dict(LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, hidden_act="gelu"),
    "llama-padding": dict(LLAMA, pad_token_id=5, tie_word_embeddings=True),
    "llama-wide-heads": dict(LLAMA, head_dim=10, num_key_value_heads=None, hidden_act="gelu_pytorch_tanh"),
    "llama-bfloat16": LLAMA,
    "activation-gelu-fast": dict(GPT2, activation_function="gelu_fast"),
    "activation-relu": dict(GPT2, activation_function="relu", n_inner=40),
    "activation-relu2": dict(LLAMA, hidden_act="relu2"),
    "activation-quick-gelu": dict(MISTRAL, hidden_act="quick_gelu"),
    "activation-mish": dict(QWEN2, hidden_act="mish"),
    "activation-hardswish": dict(LLAMA, hidden_act="hardswish", num_hidden_layers=1),
    "rope-linear": rope(rope_type="linear", factor=2.5),
    "rope-linear-old-name": rope(type="linear", factor=3),
    "rope-linear-v5": rope_v5(rope_type="linear", factor=2.5),
    "rope-dynamic": rope(rope_type="dynamic", factor=2.0),
    "rope-dynamic-short": rope(LLAMA, rope_type="dynamic", factor=4.0),
    "rope-llama3": rope(LLAMA, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=16),
    "rope-llama3-v5": rope_v5(LLAMA, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                              original_max_position_embeddings=32),
    "rope-yarn": rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    "rope-yarn-mscale": rope_v5(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0,
                                beta_slow=2.0, mscale=0.7, mscale_all_dim=0.3, truncate=False),
    "rope-yarn-attention-factor": rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16,
                                       attention_factor=0.9),
    "rope-longrope-long": rope(LLAMA, **LONGROPE, original_max_position_embeddings=8),
    "rope-longrope-crossing": rope(LLAMA, **LONGROPE, original_max_position_embeddings=40, factor=3.0),
    "rope-longrope-v5": rope_v5(LLAMA, **LONGROPE, original_max_position_embeddings=64),
    "rope-partial": rope(LLAMA, rope_type="linear", factor=1.5) | dict(partial_rotary_factor=0.5),
    "mistral-window": MISTRAL,
    "mistral-full-untied": dict(MISTRAL, sliding_window=None, num_key_value_heads=1),
    "mistral-bfloat16": MISTRAL,
    "qwen2": dict(QWEN2, tie_word_embeddings=True),
    "qwen2-window-layers": dict(QWEN2, num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen2-layer-types": dict(QWEN2, use_sliding_window=True, sliding_window=4, max_window_layers=2,
                              layer_types=["sliding_attention", "full_attention"]),
    "qwen2-bfloat16": QWEN2,
    "qwen3": dict(QWEN3, tie_word_embeddings=True),
    "qwen3-biases-untied": dict(QWEN3, attention_bias=True, num_key_value_heads=1, rms_norm_eps=1e-5),
    "qwen3-window-layers": dict(QWEN3, num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3-yarn": rope(dict(QWEN3, max_position_embeddings=16), rope_type="yarn", factor=4.0,
                       original_max_position_embeddings=16),
    "qwen3-bfloat16": QWEN3,
    "mixtral": MIXTRAL,
    "mixtral-window-tied": dict(MIXTRAL, sliding_window=5, num_experts_per_tok=3, tie_word_embeddings=True),
    "mixtral-fused": MIXTRAL,
    "mixtral-bfloat16": MIXTRAL,
    "qwen3_moe": dict(QWEN3_MOE, norm_topk_prob=True, tie_word_embeddings=True),
    "qwen3_moe-layers-of-mlp": dict(QWEN3_MOE, num_hidden_layers=3, mlp_only_layers=[1], attention_bias=True),
    "qwen3_moe-every-second-window": dict(QWEN3_MOE, num_hidden_layers=3, decoder_sparse_step=2, use_sliding_window=True,
                                          sliding_window=5, max_window_layers=2),
    "qwen3_moe-fused": QWEN3_MOE,
    "olmoe": OLMOE,
    "olmoe-clipped-normalized": dict(OLMOE, clip_qkv=0.3, norm_topk_prob=True, num_key_value_heads=None),
    "gemma": GEMMA,
    "gemma-one-key-old-activation": dict(GEMMA, num_key_value_heads=1, hidden_act="gelu", tie_word_embeddings=False),
    "gemma-bfloat16": GEMMA,
    "gemma2": GEMMA2,
    "gemma2-no-caps": dict(GEMMA2, attn_logit_softcapping=None, final_logit_softcapping=None, num_hidden_layers=3,
                           layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "gemma2-bfloat16": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3-linear": dict(GEMMA3, rope_scaling=dict(rope_type="linear", factor=3.0), final_logit_softcapping=3.0),
    "gemma3-v5": {**{key: value for key, value in GEMMA3.items() if not key.startswith(("rope", "sliding_window_p"))},
                  "layer_types": ["sliding_attention", "full_attention"],
                  "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0},
                                      "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}},
    "gemma3-bfloat16": GEMMA3,
    "phi3": PHI3,
    "phi3-partial-full": dict(PHI3, partial_rotary_factor=0.5, sliding_window=None, num_key_value_heads=None,
                              tie_word_embeddings=True),
    "phi3-longrope-long": dict(PHI3, original_max_position_embeddings=4, max_position_embeddings=64,
                               rope_scaling=dict(LONGROPE)),
    "phi3-longrope-partial": dict(PHI3, partial_rotary_factor=0.5, original_max_position_embeddings=100,
                                  max_position_embeddings=400,
                                  rope_scaling=dict(rope_type="longrope", short_factor=[1.0, 1.5], long_factor=[2.0, 9.0])),
    "phi3-bfloat16": PHI3,
    "gpt-neox": GPT_NEOX,
    "gpt-neox-in-turn": dict(GPT_NEOX, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new",
                             num_hidden_layers=3),
    "gpt-neox-v5-tied": {**{key: value for key, value in GPT_NEOX.items() if not key.startswith("rotary")},
                         "tie_word_embeddings": True,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 90.0, "partial_rotary_factor": 0.75}},
    "gpt-neox-bfloat16": dict(GPT_NEOX, attention_bias=False),
    "gpt-neo": GPT_NEO,
    "gpt-neo-untied": dict(GPT_NEO, tie_word_embeddings=False, intermediate_size=50, num_layers=2,
                           attention_types=[[["local", "global"], 1]]),
    "gpt-neo-bfloat16": GPT_NEO,
    "olmo2": OLMO2,
    "olmo2-biases-one-key": dict(OLMO2, attention_bias=True, num_key_value_heads=1, tie_word_embeddings=True),
    "olmo2-bfloat16": OLMO2,
    "olmo3": OLMO3,
    "olmo3-yarn": dict(OLMO3, rope_theta=900.0, rope_scaling=dict(rope_type="yarn", factor=4.0,
                                                                 original_max_position_embeddings=16)),
    "glm": GLM,
    "glm-plain": dict(GLM, attention_bias=False, partial_rotary_factor=1.0, num_key_value_heads=4, tie_word_embeddings=True),
    "glm4": GLM4,
    "glm4-v5": dict(GLM4, rope_parameters=dict(rope_type="default", rope_theta=700.0, partial_rotary_factor=0.5)),
    "glm4-bfloat16": GLM4,
    "t5": T5,
    "t5-v1-1": T5_V1_1,
    "t5-one-layer-three": dict(T5, num_layers=1, num_decoder_layers=3, decoder_start_token_id=5, num_heads=2, d_kv=16),
    "t5-three-layers-one": dict(T5_V1_1, num_layers=3, num_decoder_layers=1, feed_forward_proj="gated-silu", d_model=20),
    "t5-far": dict(T5, relative_attention_num_buckets=32, relative_attention_max_distance=18, feed_forward_proj="gelu_new"),
    "t5-bfloat16": T5,
    "qwen2_moe": QWEN2_MOE,
    "qwen2_moe-windows-normalized": dict(QWEN2_MOE, qkv_bias=False, norm_topk_prob=True, use_sliding_window=True, sliding_window=6,
                                         num_hidden_layers=3, mlp_only_layers=[1], tie_word_embeddings=True),
    "qwen2_moe-bfloat16": QWEN2_MOE,
    "glm4_moe": dict(GLM4_MOE, n_group=3, topk_group=2, routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True),
    "glm4_moe-plain-tied": dict(GLM4_MOE, head_dim=12, norm_topk_prob=False, n_shared_experts=2, first_k_dense_replace=2,
                                tie_word_embeddings=True, pad_token_id=5, num_experts_per_tok=3,
                                rope_parameters=dict(rope_type="default", rope_theta=700.0, partial_rotary_factor=0.5)),
    "glm4_moe-fused": dict(GLM4_MOE, first_k_dense_replace=0, num_hidden_layers=1),
    "glm4_moe-bfloat16": dict(GLM4_MOE, n_group=2, topk_group=1),
    "gpt-oss": GPT_OSS,
    "gpt-oss-plain": dict(GPT_OSS, attention_bias=False, num_hidden_layers=3, num_key_value_heads=4, swiglu_alpha=1.1,
                          swiglu_limit=7.0, num_experts_per_tok=5, tie_word_embeddings=True, hidden_size=30,
                          rope_parameters=dict(rope_type="default", rope_theta=700.0)),
    "gpt-oss-one-layer-yarn": dict(rope(GPT_OSS, rope_type="yarn", factor=4.0, original_max_position_embeddings=16,
                                        truncate=False), num_hidden_layers=1, layer_types=["full_attention"]),
    "gpt-oss-bfloat16": dict(GPT_OSS, swiglu_limit=7.0),  # near a small limit, rounding makes the gradient jump
    "bert": BERT,
    "bert-one-layer-three-segments": dict(BERT, num_hidden_layers=1, type_vocab_size=3, hidden_act="relu", vocab_size=53,
                                          layer_norm_eps=1e-5, tie_word_embeddings=False),
    "bert-old-names": BERT,
    "bert-bfloat16": BERT,
    "roberta": ROBERTA,
    "roberta-activation": dict(ROBERTA, hidden_act="gelu_new", num_hidden_layers=3, num_attention_heads=1,
                               tie_word_embeddings=False),
    "distilbert": DISTILBERT,
    "distilbert-one-layer-padded-elsewhere": dict(DISTILBERT, n_layers=1, pad_token_id=11, activation="relu", n_heads=1,
                                                  tie_word_embeddings=False),
}
SOURCE_LENGTH = 27
MIXTURES = ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "glm4_moe", "gpt-oss")
UNTIED_BIASES = {"cls.predictions.bias", "lm_head.bias"}  # parameters of transformers that it does not use
KEY_BIASES = ("key.bias", "k_lin.bias")
ENCODERS = ("bert", "roberta", "distilbert")
SHARDED = {"roberta", "gpt2", "llama", "mistral-window", "qwen2", "phi3", "gpt-neox", "t5", "mixtral"}
RANDOM_NORMS = ("bert", "roberta", "distilbert", "gemma", "phi3", "gpt-neo", "olmo", "glm")
BARE = {"gpt2-scale-flags"}  # names without the prefix, as in the first GPT-2 files


@contextlib.contextmanager
def partial_rotation(name):
    """Adds partial rotary positions to transformers' Llama, as in its Phi."""
    module = transformers.models.llama.modeling_llama
    whole = module.apply_rotary_pos_emb

    def partial(q, k, cos, sin, **options):
        size = cos.shape[-1]
        rotated = whole(q[..., :size], k[..., :size], cos, sin, **options)
        return tuple(torch.cat((part, x[..., size:]), -1) for part, x in zip(rotated, (q, k)))

    if name == "rope-partial":
        module.apply_rotary_pos_emb = partial
    try:
        yield
    finally:
        module.apply_rotary_pos_emb = whole


def is_low(name):
    return name.endswith("bfloat16")


def is_encoder_decoder(name):
    return name.startswith("t5")


def kind(name):
    return (T5ForConditionalGeneration if is_encoder_decoder(name) else
            AutoModelForMaskedLM if name.startswith(ENCODERS) else AutoModelForCausalLM)


def old_names(tensors):
    """Names as in the first BERT files: without the prefix, norms with gamma and beta, the head's bias twice."""
    tensors = {key.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"): value.clone() for key, value in tensors.items()}
    width = tensors["embeddings.word_embeddings.weight"].shape[1]
    return tensors | {"embeddings.position_ids": torch.arange(40)[None], "cls.seq_relationship.weight": torch.ones(2, width),
                      "pooler.dense.weight": torch.ones(width, width)}


def computed_by(name):
    """transformers implementation that supports the case: eager attention for float32 scores and caps, eager experts because its grouped
    products need sizes in multiples of 16 bytes."""
    is_eager = name == "gpt2-upcast" or name.startswith(("gemma2", "gpt-neo-", "gpt-oss")) or name == "gpt-neo"
    experts = {"experts_implementation": "eager"} if name.startswith(MIXTURES) else {}
    return {"attn_implementation": "eager" if is_eager else "sdpa", **experts}


def open_model(folder, name):
    dtype = torch.bfloat16 if is_low(name) else torch.float32
    return kind(name).from_pretrained(folder, dtype=dtype, **computed_by(name)).eval()


def file_name(key, name):
    """Name in files, where transformers uses another name in memory."""
    return key.replace("lm_head", "embed_out") if name.startswith("gpt-neox") else key


def lowered(model):
    """Converts to bfloat16 except what transformers keeps in float32."""
    kept = {key: value.clone() for key, value in model.named_buffers() if key.endswith("e_score_correction_bias")}
    model = model.bfloat16()
    for key, value in kept.items():
        model.get_submodule(key.rpartition(".")[0]).e_score_correction_bias = value
    return model


def make_case(folder, name, settings):
    """Writes a model folder with random weights and the driver's inputs. `settings` is the config.json."""
    torch.manual_seed(sum(map(ord, name)))
    model_folder = folder / "model"
    model_folder.mkdir(parents=True)
    (model_folder / "config.json").write_text(json.dumps(settings))
    with partial_rotation(name):
        config = AutoConfig.from_pretrained(model_folder)
        model = T5ForConditionalGeneration(config) if is_encoder_decoder(name) else kind(name).from_config(config)
    if settings.get("tie_word_embeddings") is False and is_encoder_decoder(name):
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith("bias"):
                value.normal_(0, 0.1)
            elif key.endswith("sinks"):
                value.normal_(0, 1)
            if name.startswith(RANDOM_NORMS) and value.dim() == 1 and key.endswith("weight"):
                value.add_(torch.randn_like(value), alpha=0.2)
            elif key.endswith(("q_norm.weight", "k_norm.weight")):
                value.normal_(1, 0.2)
        for key, value in model.named_buffers():
            if key.endswith("e_score_correction_bias"):  # the selected experts differ from those with the highest scores
                value.normal_(0, 0.2)
    if is_low(name):
        model = lowered(model)
    if name in BARE:
        save_file({key.removeprefix("transformer."): value for key, value in model.state_dict().items()
                   if key != "lm_head.weight"}, model_folder / "model.safetensors", {"format": "pt"})
    elif name == "bert-old-names":
        save_file(old_names(model.state_dict()), model_folder / "model.safetensors", {"format": "pt"})
    elif name == "t5-v1-1":  # as in its first files: the embedding under all its names
        save_file({key: value.clone() for key, value in model.state_dict().items()}, model_folder / "model.safetensors",
                  {"format": "pt"})
    elif name.endswith("-fused"):  # one tensor for all experts of a layer, as in memory
        model.save_pretrained(model_folder, save_original_format=False)
        (model_folder / "config.json").write_text(json.dumps(settings))
    else:
        model.save_pretrained(model_folder, max_shard_size="15KB" if name in SHARDED else "1GB")
        (model_folder / "config.json").write_text(json.dumps(settings))
    vocabulary = settings["vocab_size"]
    ids = torch.randint(0, vocabulary, (3, 21))
    labels = ids.clone()
    labels[0, 3:6] = -100
    labels[2, :10] = -100
    given = {}
    if is_encoder_decoder(name):
        mask = torch.ones(3, SOURCE_LENGTH, dtype=torch.long)
        mask[1, 11:] = 0
        mask[2, 26:] = 0
        given = {"source": torch.randint(0, vocabulary, (3, SOURCE_LENGTH)), "source_mask": mask,
                 "sources": torch.randint(0, vocabulary, (STEPS, 2, 13))}
    batches = torch.randint(0, vocabulary, (STEPS, 2, 17))
    if name.startswith(ENCODERS):
        pad = settings["pad_token_id"]  # RoBERTa's positions depend on it, so no text contains it
        ids[ids == pad] = batches[batches == pad] = pad + 1
        mask = torch.ones(3, 21, dtype=torch.long)
        mask[0, 13:] = mask[2, 20:] = 0
        ids[mask == 0], labels = pad, labels.masked_fill(mask == 0, -100)
        types = torch.randint(0, settings.get("type_vocab_size", 1), (3, 21))
        given = {"attention_mask": mask, "token_type_ids": types}
    save_file({**given, "ids": ids, "labels": labels, "batches": batches,
               "prompt": torch.randint(0, vocabulary, (7,)), "new_tokens": torch.tensor([NEW_TOKENS])},
              folder / "input.safetensors")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, settings in CASES.items():
        make_case(root / name, name, settings)
    result = subprocess.run([DRIVER, *(root / name for name in CASES)], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    return root


@pytest.fixture(params=CASES)
def case(request, cases):
    name = request.param
    folder = cases / name
    with partial_rotation(name):
        yield name, folder, load_file(folder / "input.safetensors"), load_file(folder / "output.safetensors")


def given_to(model, given):
    """Further inputs of a case: a source and its mask, or a mask and segments."""
    names = {"source", "source_mask"} & given.keys() or {"attention_mask", "token_type_ids"} & given.keys()
    return {name: given[name] for name in names if name != "token_type_ids" or model.config.model_type != "distilbert"}


def run_model(model, ids, source=None, source_mask=None, **options):
    if source is None:
        return model(ids, **options)
    return model(input_ids=source, attention_mask=source_mask, decoder_input_ids=ids)


def summed_loss(model, ids, labels, **given):
    logits = run_model(model, ids, **given).logits.float()
    if model.config.model_type in ENCODERS:
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return logits, torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def check_close(what, ours, theirs, name):
    """Checks that values agree within 1e-4 of the tensor's largest value, or 1e-7. For bfloat16, whose rounding depends on the processor,
    within 8 % of its norm."""
    assert ours.shape == theirs.shape, what
    ours, theirs = ours.double(), theirs.double()
    if is_low(name):
        assert (ours - theirs).norm() <= 0.08 * theirs.norm() + 1e-3, what
    else:
        assert (ours - theirs).abs().max() <= max(1e-4 * theirs.abs().max(), 1e-7), what


def by_expert(name, tensors):
    """Splits fused expert tensors into one per expert, as in files. None stands for zeros."""
    result = {}
    for key, value in tensors.items():
        module, found, fused = key.partition(".mlp.experts.")
        if found and name.startswith("gpt-oss"):  # files contain the stacks, Lockstep one tensor per expert
            part, kind = (fused.removesuffix("_bias"), "bias") if fused.endswith("_bias") else (fused, "weight")
            result |= {f"{module}.mlp.experts.{expert}.{part}.{kind}": tensor for expert, tensor in enumerate(value)}
            continue
        if not found:
            result[key.replace(".mlp.gate.", ".block_sparse_moe.gate.") if name.startswith("mixtral") else key] = value
            continue
        place, (gate, up, down) = ("block_sparse_moe", ("w1", "w3", "w2")) if name.startswith("mixtral") else (
            "mlp", ("gate_proj", "up_proj", "down_proj"))
        for expert, matrix in enumerate(value):
            parts = zip((gate, up), matrix.chunk(2)) if fused == "gate_up_proj" else [(down, matrix)]
            result |= {f"{module}.{place}.experts.{expert}.{part}.weight": tensor for part, tensor in parts}
    return result


def test_logits_and_gradients(case):
    name, folder, given, ours = case
    model = open_model(folder / "model", name)
    logits, loss = summed_loss(model, given["ids"], given["labels"], **given_to(model, given))
    loss.backward()
    real = given.get("attention_mask", torch.ones_like(given["ids"])).bool()
    check_close("logits", ours["logits"][real], logits.detach()[real], name)
    assert abs(ours["loss"].item() - loss.item()) <= (1e-2 if is_low(name) else 1e-5) * loss.item()
    gradients = by_expert(name, {file_name(key, name): value.grad for key, value in model.named_parameters()
                                 if key not in UNTIED_BIASES or value.grad is not None})
    for key in [key for key in gradients if name.startswith(ENCODERS) and key.endswith(KEY_BIASES)]:
        assert gradients.pop(key).abs().max() <= (1e-1 if is_low(name) else 1e-5)  # only rounding, and Lockstep omits it
    assert {key[len("grad."):] for key in ours if key.startswith("grad.")} == set(gradients)
    for key, value in gradients.items():
        if is_low(name) and key.endswith("k_proj.bias"):
            continue  # shifting all keys changes almost nothing, so the gradient is mostly rounding
        check_close(key, ours["grad." + key], value, name)


def test_twenty_steps(case):
    name, folder, given, ours = case
    if is_low(name):
        pytest.skip("bfloat16 parameters without master weights are not trained")
    model = open_model(folder / "model", name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for step, batch in enumerate(given["batches"]):
        source = given["sources"][step] if "sources" in given else None
        targets = batch.numel() - (0 if name.startswith(ENCODERS) else len(batch))
        loss = summed_loss(model, batch, batch, **({"source": source} if source is not None else {}))[1] / targets
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (ours["losses"] - torch.tensor(losses, dtype=torch.double)).abs().max() <= 1e-4


def test_greedy_generation(case):
    name, folder, given, ours = case
    if name.startswith(ENCODERS):
        pytest.skip("an encoder cannot generate text")
    model = open_model(folder / "model", name)
    prompt = given["prompt"][None]
    if is_low(name):
        return check_low_generation(model, prompt, ours["generated"], is_encoder_decoder(name))
    # transformers' cache has as many layers as the encoder, so it fails if the decoder has more.
    caches = CASES[name].get("num_decoder_layers", 0) <= CASES[name].get("num_layers", 0)
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW_TOKENS, do_sample=False,
                            use_cache=caches, pad_token_id=0)
    first = 1 if is_encoder_decoder(name) else prompt.shape[1]  # skips the decoder's start token
    assert ours["generated"].tolist() == theirs[0, first:].tolist()


def check_low_generation(model, prompt, generated, has_encoder):
    """bfloat16 can decide near ties either way. Each token must be among the most likely of the same weights in float32, within the rounding error
    (0.04 of the spread) of both logits."""
    start = torch.tensor([[model.config.decoder_start_token_id]]) if has_encoder else prompt
    text = torch.cat((start, generated[None]), 1)
    logits = run_model(model.float(), text, prompt if has_encoder else None).logits[0, start.shape[1] - 1:-1]
    chosen = logits.gather(1, generated[:, None])[:, 0]
    assert ((logits.amax(1) - chosen) <= 0.08 * logits.std(1)).all()


def test_saved_folder_opens(case):
    name, folder, given, ours = case
    model, info = kind(name).from_pretrained(
        folder / "saved", output_loading_info=True, **computed_by(name))
    unread = UNTIED_BIASES if CASES[name].get("tie_word_embeddings") is False else set()
    assert not info["missing_keys"] - unread and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert model.dtype == (torch.bfloat16 if is_low(name) else torch.float32)
    original = open_model(folder / "model", name)
    with torch.no_grad():
        ours, theirs = (run_model(m, given["ids"], **given_to(m, given)).logits
                        for m in (model.eval(), original))
        # Equal weights may lie differently in memory, where a library's product rounds differently.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    original_weights = original.state_dict()
    for key, value in model.state_dict().items():
        assert key in unread or torch.equal(value, original_weights[key]), key
    settings = json.loads((folder / "saved" / "config.json").read_text())
    assert {key: settings[key] for key in CASES[name]} == CASES[name]


def test_mxfp4_experts(tmp_path):
    """Compares an MXFP4 folder with transformers on the dequantized values."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    settings = dict(GPT_OSS, hidden_size=64, intermediate_size=32)
    make_case(tmp_path, "gpt-oss-packed", settings)
    plain, packed = load_file(tmp_path / "model/model.safetensors"), {}
    for name in [name for name in plain if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = plain[name].shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(120, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain[name] = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.float32).contiguous()
    save_file({**{name: value for name, value in plain.items() if f"{name}_blocks" not in packed}, **packed},
              tmp_path / "model/model.safetensors", {"format": "pt"})
    (tmp_path / "model/config.json").write_text(json.dumps(settings | {"quantization_config": {"quant_method": "mxfp4"}}))
    subprocess.run([DRIVER, tmp_path], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    saved = load_file(tmp_path / "saved/model.safetensors")
    assert saved.keys() == plain.keys()
    assert all(torch.equal(saved[name], value) for name, value in plain.items())
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())
    given, ours = load_file(tmp_path / "input.safetensors"), load_file(tmp_path / "output.safetensors")
    logits = open_model(tmp_path / "saved", "gpt-oss")(given["ids"]).logits
    check_close("logits", ours["logits"], logits.detach(), "gpt-oss-packed")


CHATGLM_NAMES = {"model.embed_tokens": "embedding.word_embeddings", "model.norm": "encoder.final_layernorm",
                 "lm_head": "output_layer", "model.layers": "encoder.layers", "self_attn.o_proj": "self_attention.dense",
                 "mlp.gate_up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h"}


def as_chatglm(tensors):
    """GLM's tensors under ChatGLM's names, with fused queries, keys and values."""
    result = {}
    for key, value in tensors.items():
        if ".q_proj." in key:
            value = torch.cat([tensors[key.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
            key = key.replace("self_attn.q_proj", "self_attention.query_key_value")
        elif ".k_proj." in key or ".v_proj." in key:
            continue
        for theirs, ours in CHATGLM_NAMES.items():
            key = key.replace(theirs, ours)
        result["transformer." + key] = value
    return result


@pytest.mark.parametrize("ratio", [1, 50])
def test_chatglm_folder_equals_glm(tmp_path, ratio):
    """Compares a folder with ChatGLM's names with transformers' GLM with the same values."""
    settings = {key: value for key, value in GLM.items() if key != "pad_token_id"} | dict(
        attention_bias=True, rms_norm_eps=1e-5, rope_theta=1e4 * ratio, partial_rotary_factor=0.5, pad_token_id=None)
    make_case(tmp_path, "glm-as-chatglm", settings)
    model = open_model(tmp_path / "model", "glm")
    inv_freq = {"transformer.rotary_pos_emb.inv_freq": torch.ones(3)}
    save_file({key: value.clone() for key, value in (as_chatglm(model.state_dict()) | inv_freq).items()},
              tmp_path / "model/model.safetensors", {"format": "pt"})
    (tmp_path / "model/config.json").write_text(json.dumps(dict(
        model_type="chatglm", padded_vocab_size=settings["vocab_size"], hidden_size=settings["hidden_size"],
        ffn_hidden_size=settings["intermediate_size"], num_layers=settings["num_hidden_layers"],
        num_attention_heads=settings["num_attention_heads"], multi_query_attention=True,
        multi_query_group_num=settings["num_key_value_heads"], kv_channels=settings["head_dim"], add_qkv_bias=True,
        layernorm_epsilon=1e-5, rope_ratio=ratio, attention_dropout=0.0, hidden_dropout=0.0, eos_token_id=None)))
    result = subprocess.run([DRIVER, tmp_path], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0 and "warning" not in result.stderr.lower(), result.stderr
    given, ours = load_file(tmp_path / "input.safetensors"), load_file(tmp_path / "output.safetensors")
    logits, loss = summed_loss(model, given["ids"], given["labels"])
    loss.backward()
    check_close("logits", ours["logits"], logits.detach(), "chatglm")
    gradients = as_chatglm({key: value.grad for key, value in model.named_parameters()})
    assert {key.removeprefix("grad.") for key in ours if key.startswith("grad.")} == gradients.keys()
    for key, value in gradients.items():
        check_close(key, ours["grad." + key], value, "chatglm")
    theirs = model.generate(given["prompt"][None], attention_mask=torch.ones(1, 7, dtype=torch.long), do_sample=False,
                            max_new_tokens=NEW_TOKENS, pad_token_id=0)
    assert ours["generated"].tolist() == theirs[0, 7:].tolist()
    saved = load_file(tmp_path / "saved/model.safetensors")
    assert saved.keys() | inv_freq.keys() == load_file(tmp_path / "model/model.safetensors").keys()
