"""Compares ten steps of preference tuning with Hugging Face's TRL: losses, gradient norms, metrics and the final weights."""

import json
import os
import pathlib
import sys

import pytest
import safetensors.torch
import torch
import transformers

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import datasets  # noqa: E402
import trl  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOConfig, ORPOTrainer  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import test_preference as program  # noqa: E402
from harness import metrics  # noqa: E402

STEPS, BATCH = 10, 4
EPSILON = 1e-5  # AdamW divides gradients by their size; a smaller epsilon would amplify rounding
OF_PAIRS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
LLAMA = dict(vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
# Lockstep's settings (preference.*), TRL's trainer and its arguments, metrics.
CASES = {
    "dpo": ({}, "dpo", {}, OF_PAIRS),
    "ipo": ({"objective": "ipo", "beta": 0.3}, "dpo", {"loss_type": ["ipo"], "beta": 0.3}, OF_PAIRS),
    **{f"dpo {loss}": ({"loss_type": loss, "beta": 0.2, "label_smoothing": smoothing}, "dpo",
                       {"loss_type": [loss], "beta": 0.2, "label_smoothing": smoothing}, OF_PAIRS)
       for loss, smoothing in [("hinge", 0), ("exo_pair", 0.01), ("nca_pair", 0), ("robust", 0.1), ("bco_pair", 0), ("sppo_hard", 0),
                               ("apo_zero", 0), ("apo_down", 0), ("discopop", 0), ("sigmoid_norm", 0)]},
    "cut": ({}, "dpo", {"max_length": 20}, OF_PAIRS),
    "dpo of chats": ({}, "dpo", {"max_length": 64}, OF_PAIRS),
    "ipo of continued chats": ({"objective": "ipo"}, "dpo", {"loss_type": ["ipo"], "max_length": 64}, OF_PAIRS),
    "kto": ({"objective": "kto", "desirable_weight": 3}, "kto", {"desirable_weight": 3.0},
            ["kl", "rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected"]),
    "kto apo": ({"objective": "kto", "loss_type": "apo_zero_unpaired"}, "kto", {"loss_type": "apo_zero_unpaired"},
                ["rewards/chosen", "rewards/rejected"]),
    "simpo": ({"objective": "simpo", "simpo_gamma": 0.7}, "cpo",
              {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.7, "cpo_alpha": 0.0}, OF_PAIRS),
    "cpo": ({"objective": "cpo", "cpo_alpha": 0.5}, "cpo", {"cpo_alpha": 0.5}, [*OF_PAIRS, "nll_loss"]),
    "orpo": ({"objective": "orpo", "beta": 0.4}, "orpo", {"beta": 0.4},
             [*OF_PAIRS, "nll_loss", "log_odds_ratio", "log_odds_chosen"]),
    "reward": ({"center_rewards_coefficient": 0.05}, "reward", {"center_rewards_coefficient": 0.05},
               ["accuracy", "margin", "mean_reward"]),
}
# Its generation prompt equals the start of an answer.
CHATS = ("{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
         "{% if add_generation_prompt %}assistant: {% endif %}")
TRAINERS = {
    "dpo": (trl.DPOTrainer, trl.DPOConfig), "kto": (trl.KTOTrainer, trl.KTOConfig), "cpo": (CPOTrainer, CPOConfig),
    "orpo": (ORPOTrainer, ORPOConfig), "reward": (trl.RewardTrainer, trl.RewardConfig)}


@pytest.fixture(scope="module")
def runs():
    program.Preference.setUpClass()
    runs = program.Preference()
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    for parameter in model.parameters():  # weights large enough that answers differ
        parameter.data.mul_(3 if parameter.dim() == 2 else 1)
    model.save_pretrained(runs.folder / "model")
    transformers.LlamaForSequenceClassification(
        transformers.LlamaConfig(**LLAMA, num_labels=1, pad_token_id=1)).save_pretrained(runs.folder / "reward_model")
    for folder in ("model", "reward_model"):
        for file in (runs.folder / "tokenizer").iterdir():
            (runs.folder / folder / file.name).write_bytes(file.read_bytes())
    # TRL gives a single last row its own answer; Lockstep joins it to the rows before.
    judged = (runs.folder / "judged.jsonl").read_text().splitlines(keepends=True)
    (runs.folder / "judged_in_fours.jsonl").write_text("".join(judged[:30]))
    # TRL's CPO and ORPO trainers keep rows whose prompt leaves no room for an answer.
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs.folder / "model")
    pairs = (runs.folder / "pairs.jsonl").read_text().splitlines(keepends=True)
    (runs.folder / "fitting.jsonl").write_text("".join(
        line for line in pairs if len(tokenizer(json.loads(line)["prompt"])["input_ids"]) < 44))
    (runs.folder / "chats.jinja").write_text(CHATS)
    (runs.folder / "chats.jsonl").write_text("".join(
        json.dumps({"prompt": [{"role": "user", "content": row["prompt"]}],
                    **{key: [{"role": "assistant", "content": row[key]}] for key in ("chosen", "rejected")}}) + "\n"
        for row in map(json.loads, pairs)))
    # Prompts that end with a message of the assistant.
    (runs.folder / "continued_chats.jsonl").write_text("".join(
        json.dumps({**row, "prompt": [*row["prompt"], {"role": "assistant", "content": "the"}]}) + "\n"
        for row in map(json.loads, (runs.folder / "chats.jsonl").read_text().splitlines())))
    yield runs
    program.Preference.tearDownClass()


def tuned_by_trl(runs, kind, arguments, data, folder):
    trainer_type, config_type = TRAINERS[kind]
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs.folder / "model")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = CHATS
    if kind in ("cpo", "orpo"):
        tokenizer.bos_token = None  # these trainers add it to prompts even if the tokenizer does not
    rows = datasets.Dataset.from_list([json.loads(line) for line in (runs.folder / data).read_text().splitlines()])
    config = config_type(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=1e-3, lr_scheduler_type="constant",
        adam_epsilon=EPSILON, logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False, train_sampling_strategy="sequential",
        disable_tqdm=True, gradient_checkpointing=False, **{"max_length": 48, **arguments})
    if kind == "reward":
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(1)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(runs.folder / "reward_model", dtype=torch.float32)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(runs.folder / "model", dtype=torch.float32)
    trainer = trainer_type(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line], dict(trainer.model.named_parameters())


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_equal_trl(runs, name):
    ours, kind, theirs, names = CASES[name]
    is_chat = name.endswith("chats")
    data = name.partition(" of ")[2].replace(" ", "_") + ".jsonl" if is_chat else {"kto": "judged_in_fours.jsonl", "dpo": "pairs.jsonl"}.get(kind, "fitting.jsonl")
    output = name.replace(" ", "_")
    runs.run_ok(
        "train", *(["model.path=reward_model", "task.type=reward_model"] if kind == "reward" else
                   ["model.path=model", "task.type=preference"]), f"data.train={data}", "data.cache_dir=cache", f"output_dir={output}",
        f"data.sequence_length={theirs.get('max_length', 48)}", f"max_steps={STEPS}", f"per_device_train_batch_size={BATCH}",
        f"adam_epsilon={EPSILON}", "learning_rate=1e-3", "lr_scheduler_type=constant", "logging_steps=1", "train_sampling_strategy=sequential", "use_cpu=true",
        "monitor.peak_tflops=1", *(["data.chat_template=chats.jinja"] if is_chat else []), *(f"preference.{key}={value}" for key, value in ours.items()))
    found = [line for line in metrics(runs.folder / output) if "loss" in line]
    wanted, weights = tuned_by_trl(runs, kind, theirs, data, runs.folder / f"trl_{output}")
    assert len(found) == len(wanted) == STEPS
    assert [line["loss"] for line in found] != [found[0]["loss"]] * STEPS
    # DiscoPOP's weight is a logistic function of the margin divided by 0.05, which amplifies rounding twentyfold.
    tolerance = 1e-4 if "discopop" in name else 1e-5
    for key in ["loss", "grad_norm", *names]:
        for step, (a, b) in enumerate(zip(found, wanted)):
            if key in a or key in b:
                # Margins are differences of log-probability sums of about 44 and have the rounding of these sums.
                assert a[key] == pytest.approx(b[key], rel=tolerance, abs=1e-5), f"{key}, step {step + 1}"
    tensors = safetensors.torch.load_file(runs.folder / output / "model.safetensors")
    for key, tensor in weights.items():
        torch.testing.assert_close(tensors[key], tensor.detach(), atol=1e-5, rtol=0, msg=lambda text: f"{key}: {text}")
