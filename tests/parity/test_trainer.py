"""Compares the course of a run with transformers' Trainer: logs, evaluations, checkpoints, learning rates and losses.

Both train the same model of float32 weights on rows of equal length, in order. The tests list what is compared.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import datasets
import pytest
import safetensors.torch
import torch
import transformers

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
LENGTH, ROWS, WORDS = 9, 90, 60
COMMON = {"learning_rate": 1e-2, "logging_steps": 1, "adam_epsilon": 1e-4, "per_device_train_batch_size": 16, "num_train_epochs": 3,
          "train_sampling_strategy": "sequential", "use_cpu": True, "report_to": "none"}


@dataclasses.dataclass
class Course:
    """Course of a run, read from trainer_state.json and the output folder."""
    code: int
    text: str
    state: dict
    saved: list
    folder: pathlib.Path

    def values(self, name):
        return [(line["step"], line[name]) for line in self.state["log_history"] if name in line]

    def steps(self, name):
        return [line["step"] for line in self.state["log_history"] if name in line]


def saved_steps(folder):
    return sorted(int(each.name.partition("-")[2]) for each in folder.glob("checkpoint-*") if each.is_dir())


class Sides:
    def __init__(self, folder):
        self.folder = folder
        generator = torch.Generator().manual_seed(3)
        words = [f"w{number}" for number in range(WORDS)]
        vocabulary = {word: number for number, word in enumerate(["<end>", "<unk>", *words])}
        self.rows = {}
        for name, count in (("train", ROWS), ("valid", 23)):
            # Each word mostly follows from the one before, so that the loss falls.
            rows = []
            for _ in range(count):
                row = [int(torch.randint(WORDS, (), generator=generator))]
                while len(row) < LENGTH:
                    is_noise = torch.rand((), generator=generator) < 0.2
                    row.append(int(torch.randint(WORDS, (), generator=generator)) if is_noise else (row[-1] * 7 + 3) % WORDS)
                rows.append(row)
            (folder / f"{name}.txt").write_text("".join(" ".join(f"w{word}" for word in row) + "\n" for row in rows))
            self.rows[name] = datasets.Dataset.from_list([{"input_ids": [word + 2 for word in row], "labels": [word + 2 for word in row]}
                                                          for row in rows])
        torch.manual_seed(1)
        config = transformers.LlamaConfig(vocab_size=len(vocabulary), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0,
                                          eos_token_id=0, tie_word_embeddings=False)
        transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
        from tokenizers import Tokenizer, models, pre_tokenizers
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>").save_pretrained(
            folder / "model")
        self.count = 0

    def lockstep(self, arguments, output=None):
        self.count += 1
        output = output or f"ours{self.count}"
        def text_of(value):  # without quotation marks, which Hydra's syntax does not need here
            return value if isinstance(value, str) else json.dumps(value).replace('"', "")
        words = [f"{key}={text_of(value)}" for key, value in {**COMMON, **arguments}.items()]
        done = subprocess.run(
            [PROGRAM, "train", "model.path=model", "data.train=train.txt", "data.validation=valid.txt",
             f"data.sequence_length={LENGTH}", "data.packing=none", "data.text_documents=line", "data.append_eos=false",
             "data.cache_dir=cache", f"output_dir={output}", *words],
            cwd=self.folder, capture_output=True, text=True)
        folder = self.folder / output
        state = folder / "trainer_state.json"
        return Course(done.returncode, done.stdout + done.stderr, json.loads(state.read_text()) if state.exists() else {},
                      saved_steps(folder), folder)

    def trainer(self, arguments, output=None, callbacks=(), rows=None, **extra):
        self.count += 1
        folder = self.folder / (output or f"theirs{self.count}")
        options = {**COMMON, **arguments}
        resume = options.pop("resume_from_checkpoint", None)
        early = {key: options.pop(key) for key in ("early_stopping_patience", "early_stopping_threshold") if key in options}
        trainer = transformers.Trainer(
            model=transformers.LlamaForCausalLM.from_pretrained(self.folder / "model", dtype=torch.float32),
            args=transformers.TrainingArguments(output_dir=str(folder), disable_tqdm=True, **options),
            train_dataset=rows or self.rows["train"], eval_dataset=self.rows["valid"],
            callbacks=[*callbacks, *([transformers.EarlyStoppingCallback(**early)] if early else [])], **extra)
        trainer.train(resume_from_checkpoint=str(self.folder / resume) if resume else None)
        return Course(0, "", json.loads(json.dumps(dataclasses.asdict(trainer.state))), saved_steps(folder), folder)

    def both(self, arguments):
        ours = self.lockstep(arguments)
        assert ours.code == 0, ours.text
        return ours, self.trainer(arguments)


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    return Sides(tmp_path_factory.mktemp("trainer"))


def assert_same(ours, theirs, *names):
    for name in names:
        found, wanted = ours.values(name), theirs.values(name)
        assert [step for step, _ in found] == [step for step, _ in wanted], name
        assert [value for _, value in found] == pytest.approx([value for _, value in wanted], rel=1e-4, abs=1e-8), name


def name_of_best(course):
    path = course.state["best_model_checkpoint"]
    return path and pathlib.Path(path).name


def epochs(course):
    return [(line["step"], line["epoch"]) for line in course.state["log_history"] if "loss" in line]


WORST = {"metric_for_best_model": "loss", "greater_is_better": True}  # the best evaluation is the first one
STEPS = {"eval_strategy": "steps", "save_strategy": "steps"}
COURSES = {
    "last evaluation by steps": {**STEPS, "eval_steps": 4, "save_steps": 4, "load_best_model_at_end": True},
    "last evaluation by epochs": {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "max_steps": 8},
    "one evaluation": {"eval_strategy": "steps", "eval_steps": 100},
    "evaluation after a delay": {"eval_strategy": "steps", "eval_steps": 100, "eval_delay": 19},
    "the best is not saved": {**STEPS, "eval_steps": 2, "save_steps": 18, "load_best_model_at_end": True},
    "limit 2": {**STEPS, "eval_steps": 3, "save_steps": 3, "load_best_model_at_end": True, "save_total_limit": 2, **WORST},
    "limit 3": {**STEPS, "eval_steps": 3, "save_steps": 3, "load_best_model_at_end": True, "save_total_limit": 3, **WORST},
    "the best is kept without being loaded": {**STEPS, "eval_steps": 3, "save_steps": 3, "save_total_limit": 2, **WORST},
    "no metric": {**STEPS, "eval_steps": 3, "save_steps": 3, "save_total_limit": 2},
    "no checkpoints": {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "no", **WORST},
    "save the best": {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "best", **WORST},
    "early stop by steps": {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 5, "early_stopping_patience": 2, **WORST},
    "early stop by epochs": {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "epoch", "early_stopping_patience": 2, **WORST},
    "limit of 0": {**STEPS, "eval_steps": 9, "save_steps": 9, "save_total_limit": 0},
    "intervals of 0": {**STEPS, "logging_steps": 6, "eval_steps": 0, "save_steps": 0},
    "no clipping": {"max_grad_norm": -1, "warmup_steps": 2.5},
    "a part of an epoch": {"num_train_epochs": 1.5, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 5},
    "full batches": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "num_train_epochs": 2,
                     "dataloader_drop_last": True},
    "full batches of a long step": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 30, "num_train_epochs": 2,
                                    "dataloader_drop_last": True},
    "cosine with a warm-up from a rate": {"lr_scheduler_type": "cosine_warmup_with_min_lr", "warmup_steps": 4,
                                          "lr_scheduler_kwargs": {"min_lr_rate": 0.1, "warmup_lr_rate": 0.3}},
    "greedy": {"eval_strategy": "steps", "eval_steps": 1, "lr_scheduler_type": "greedy",
               "lr_scheduler_kwargs": {"patience": 2, "min_lr": 1e-4, "factor": 0.7, "threshold": 0.02}},
    "plateau": {"eval_strategy": "steps", "eval_steps": 6, "eval_on_start": True, "lr_scheduler_type": "reduce_lr_on_plateau",
                "lr_scheduler_kwargs": {"patience": 0, "mode": "max", "factor": 0.5}, "optim": "sgd", "learning_rate": 0.05},
}


@pytest.mark.parametrize("name", COURSES)
def test_course_equals_trainer(sides, name):
    """The steps of evaluations, the checkpoints that are left, the best one, losses and learning rates."""
    ours, theirs = sides.both(COURSES[name])
    assert_same(ours, theirs, "eval_loss", "loss", "learning_rate")
    assert epochs(ours) == [(step, pytest.approx(epoch, abs=1e-9)) for step, epoch in epochs(theirs)]
    assert ours.saved == theirs.saved
    assert ours.state["best_global_step"] == theirs.state["best_global_step"]
    if theirs.state["best_global_step"] in (None, *theirs.saved):  # otherwise they differ: see docs/differences.md
        assert name_of_best(ours) == name_of_best(theirs)
    best = theirs.state["best_metric"]
    assert ours.state["best_metric"] == (None if best is None else pytest.approx(best, rel=1e-4))


def test_the_best_checkpoint_is_found_after_a_resume_elsewhere(sides):
    arguments = {**STEPS, "eval_steps": 5, "save_steps": 5, "load_best_model_at_end": True, **WORST}
    assert sides.lockstep(arguments, "first").code == 0
    resumed = sides.lockstep({**arguments, "resume_from_checkpoint": "first/checkpoint-10"}, "second")
    assert resumed.code == 0, resumed.text
    assert "loaded the best model: checkpoint-5" in resumed.text
    assert resumed.state["best_model_checkpoint"] == "first/checkpoint-5"
    weights = [safetensors.torch.load_file(sides.folder / folder / "model.safetensors") for folder in ("second", "first/checkpoint-5")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    # A second resume elsewhere still knows the folder; a checkpoint that was deleted is not an error.
    again = {**arguments, "resume_from_checkpoint": "second/checkpoint-15"}
    assert "loaded the best model: checkpoint-5" in sides.lockstep(again, "third").text
    shutil.rmtree(sides.folder / "first" / "checkpoint-5")
    without = sides.lockstep(again, "fourth")
    assert without.code == 0, without.text
    assert "the best checkpoint first/checkpoint-5 no longer exists" in without.text.replace(str(sides.folder) + "/", "")
    theirs = sides.trainer(arguments, "their_first")
    found = sides.trainer({**arguments, "resume_from_checkpoint": "their_first/checkpoint-10"}, "their_second")
    assert name_of_best(theirs) == name_of_best(found) == "checkpoint-5"
    assert found.saved == resumed.saved


def test_the_best_saved_evaluation_is_loaded_where_the_best_is_not_saved(sides):
    """Trainer keeps the weights of the last step here, without a message."""
    arguments = {**STEPS, "eval_steps": 2, "save_steps": 4, "load_best_model_at_end": True, **WORST}
    ours, theirs = sides.both(arguments)
    assert name_of_best(theirs) is None and name_of_best(ours) == "checkpoint-4"
    assert "loaded the best model: checkpoint-4" in ours.text
    assert "the evaluation after step 2 was better" in ours.text
    weights = [safetensors.torch.load_file(ours.folder / name / "model.safetensors") for name in (".", "checkpoint-4")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    # Trainer removes the last checkpoint at the end; here the run can be resumed with more steps.
    assert (ours.saved, theirs.saved) == ([4, 8, 12, 16, 18], [4, 8, 12, 16, 18])
    one, other = sides.both({**arguments, "eval_steps": 4, "save_total_limit": 1})
    assert (one.saved, other.saved) == ([4, 18], [4])


def test_data_skip_begins_the_current_epoch_again(sides):
    arguments = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 5, "save_strategy": "steps", "save_steps": 7}
    sides.lockstep(arguments, "skip")
    sides.trainer(arguments, "their_skip")
    again = {**arguments, "ignore_data_skip": True}
    ours = sides.lockstep({**again, "resume_from_checkpoint": "skip/checkpoint-7"})
    theirs = sides.trainer({**again, "resume_from_checkpoint": "their_skip/checkpoint-7"})
    assert epochs(ours) == [(step, pytest.approx(epoch, abs=1e-9)) for step, epoch in epochs(theirs)]
    assert_same(ours, theirs, "loss")


def test_files_of_all_arguments_are_read(sides):
    """to_dict() of transformers has some arguments under their old and their new name."""
    arguments = transformers.TrainingArguments(output_dir="whole", use_cpu=True, report_to="none", max_steps=2, save_strategy="no",
                                               gradient_checkpointing=True).to_dict()
    assert arguments["activation_checkpointing"] == arguments["gradient_checkpointing"] is True
    file = {**arguments, "model_name_or_path": "model", "train_file": "train.txt", "block_size": LENGTH}
    (sides.folder / "whole.json").write_text(json.dumps(file))
    done = subprocess.run([PROGRAM, "train", "whole.json", "data.cache_dir=cache"], cwd=sides.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (sides.folder / "two.json").write_text(json.dumps({**file, "gradient_checkpointing": False}))
    done = subprocess.run([PROGRAM, "train", "two.json"], cwd=sides.folder, capture_output=True, text=True)
    assert done.returncode == 2 and "give it once" in done.stderr, done.stderr
