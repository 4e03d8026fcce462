"""Plans, model families and methods for the GPU tests. Tests on real GPUs compare them with one rank or the CPU; tests on emulated GPUs
count their operations."""

import json
import re

from encoders import BERT, DISTILBERT, ROBERTA, byte_pieces, word_pieces, write_folder
from harness import SOURCE, judged_pairs
from test_t5 import write_pairs

LLAMA = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0,
}
MIXTRAL = dict(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
GPT2 = {  # with dropout, also in attention
    "model_type": "gpt2", "vocab_size": 512, "n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 64, "bos_token_id": 0,
    "eos_token_id": 0,
}
CONFIGS = {"llama.json": LLAMA, "mixtral.json": MIXTRAL, "gpt2.json": GPT2}

FILES = {what: [f"parallel.offload_{what}.device=nvme", f"parallel.offload_{what}.path=state"] for what in ("param", "optimizer")}

# Plan -> arguments.
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

LORA = ["model.path=base", "lora.r=4", "lora.target_modules=all-linear", "learning_rate=1e-2"]
ROWS = ["data.validation=null", "data.sequence_length=48", "learning_rate=1e-2"]
# Method -> arguments. `base` is the folder of a Llama model; write_rows writes the data files.
METHODS = {
    "lora": LORA,
    "lora-nf4": [*LORA, "quantization.bits=4", "quantization.double_quant=true"],
    "lora-8-bit": [*LORA, "quantization.bits=8"],
    "classifier": ["task.type=sequence_classification", "data.train=corpus/labelled.csv", *ROWS],
    "dpo": ["task.type=preference", "data.train=pairs-judged.jsonl", *ROWS],
    "packed": ["model.path=llama.json", "data.packing=documents", "data.text_documents=line"],
    "recomputed": ["model.path=llama.json", "parallel.recompute=full"],
    "averaged": ["model.path=llama.json", "gradient_accumulation_steps=3"],
    **{name: ["model.path=llama.json", f"training.optim={name}"] for name in (
        "adamw_8bit", "lion_32bit", "adam_mini", "muon", "adafactor", "sgd", "schedule_free_adamw", "ademamix")},
}

PAIRS = ["data.validation=null", "data.prompt=pairs", "data.instruction_field=source", "data.output_field=target"]
ENCODERS = {"bert": BERT, "distilbert": DISTILBERT, "roberta": ROBERTA}


def families():
    """Family -> config.json, from the table of families that every plan is tested with on CPUs, with the test tokenizer's vocabulary size."""
    folder = SOURCE / "tests" / "parallel"
    text = (folder / "plans.h").read_text() + (folder / "family_plans_test.cpp").read_text()
    found = {}
    for body in re.findall(r'R"\((\{"model_type".*?\})\)"', text, re.DOTALL):
        config = json.loads(body)
        config.update({"padded_vocab_size" if "padded_vocab_size" in config else "vocab_size": 512})
        config.update({name: 64 for name in ("max_position_embeddings", "n_positions") if name in config})
        if config["model_type"] not in ENCODERS:  # these have their own tokenizers
            found.setdefault(config["model_type"], config)
    return {**found, **ENCODERS}


def words_of_families(folder):
    """Family -> training arguments. Writes the family's files into the folder of a ProgramTest."""
    write_pairs(folder / "pairs.jsonl", 80, 1)
    of_words = word_pieces((folder / "corpus" / "train.txt").read_text())
    of_bytes = byte_pieces(json.loads((folder / "tokenizer" / "tokenizer.json").read_text()))
    found = {}
    for family, config in families().items():
        if family in ENCODERS:
            if not (folder / family).exists():
                write_folder(folder / family, config, of_bytes if family == "roberta" else of_words)
            found[family] = [f"model.path={family}", "tokenizer.path=null"]
        else:  # another test uses llama.json
            (folder / f"family-{family}.json").write_text(json.dumps(config))
            found[family] = [f"model.path=family-{family}.json"]
        if family == "t5":
            found[family] += ["data.train=pairs.jsonl", *PAIRS]
    return found


def write_rows(folder):
    """Writes the data files of METHODS from the corpus of a ProgramTest."""
    (folder / "pairs-judged.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in judged_pairs(folder)))


def shares_rows(words):
    """True if both ranks compute each row together."""
    return any(word.startswith(("parallel.tensor", "parallel.context=", "parallel.pipeline")) for word in words)
