"""Plans on two GPUs: those that tests on real ones hold against one rank, and tests on pretended ones count."""

LLAMA = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0,
}
MIXTRAL = dict(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
GPT2 = {  # drops out, in attention too
    "model_type": "gpt2", "vocab_size": 512, "n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 64, "bos_token_id": 0,
    "eos_token_id": 0,
}
CONFIGS = {"llama.json": LLAMA, "mixtral.json": MIXTRAL, "gpt2.json": GPT2}

FILES = {what: [f"parallel.offload_{what}.device=nvme", f"parallel.offload_{what}.path=state"] for what in ("param", "optimizer")}

# Kind of plan -> its words.
PLANS = {
    "zero-0": ["parallel.zero_stage=0"],
    "zero-1": ["parallel.zero_stage=1"],
    "zero-2": ["parallel.zero_stage=2"],
    "zero-3": ["parallel.zero_stage=3"],
    "offload-optimizer": ["parallel.zero_stage=2", "parallel.offload_optimizer.device=cpu"],
    "offload-parameters": ["parallel.zero_stage=3", "parallel.offload_param.device=cpu", "parallel.offload_optimizer.device=cpu"],
    "optimizer-in-files": ["parallel.zero_stage=2", *FILES["optimizer"]],
    "all-in-files": ["parallel.zero_stage=3", *FILES["param"], *FILES["optimizer"]],
    "8-bit": ["parallel.zero_stage=2", "training.optim=adamw_8bit"],
    "tensor": ["parallel.tensor=2"],
    "sequence": ["parallel.tensor=2", "parallel.sequence_parallel=true"],
    "ring": ["parallel.context=2"],
    "ulysses": ["parallel.context=2", "parallel.context_attention=ulysses"],
    "gpipe": ["parallel.pipeline=2", "parallel.schedule=gpipe", "gradient_accumulation_steps=4"],
    "1f1b": ["parallel.pipeline=2", "parallel.schedule=1f1b", "gradient_accumulation_steps=4"],
    "interleaved": ["parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.virtual_stages=2",
                    "gradient_accumulation_steps=4"],
    "zb-h1": ["parallel.pipeline=2", "parallel.schedule=zb-h1", "gradient_accumulation_steps=4"],
    "zb-v": ["parallel.pipeline=2", "parallel.schedule=zb-v", "gradient_accumulation_steps=4"],
    "expert": ["model.path=mixtral.json", "parallel.expert=2", "parallel.zero_stage=1"],
}


def shares_rows(words):
    """Whether both ranks compute each row together."""
    return any(word.startswith(("parallel.tensor", "parallel.context=", "parallel.pipeline")) for word in words)
