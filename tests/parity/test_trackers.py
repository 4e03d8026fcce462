"""What the trackers' own readers make of the files of a run: TensorBoard's of scalars, texts and hyperparameters."""

import json
import os
import pathlib
import subprocess

from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
from tensorboard.plugins.hparams import metadata

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_embd": 16, "n_layer": 1, "n_head": 2,
         "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}


def test_tensorboard_reads_a_run(tmp_path):
    def run(*words):
        subprocess.run([PROGRAM, *words], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    run("sample", "--output", "corpus", "--size", "0.1")
    run("tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "300", "--output", "tokenizer")
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    run("train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
        "data.validation=corpus/validation.txt", "data.sequence_length=16", "output_dir=run", "max_steps=3", "logging_steps=1",
        "eval_strategy=steps", "eval_steps=3", "learning_rate=0.25", "lr_scheduler_type=constant", "use_cpu=true",
        "report_to=tensorboard", "logging_dir=board", 'monitor.samples=["One day"]', "monitor.sample_tokens=4")
    board = EventAccumulator(str(tmp_path / "board"), size_guidance={TENSORS: 0})
    board.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scalars = {event.step: event.value for event in board.Scalars("train/loss")}
    expected = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert scalars.keys() == expected.keys()
    assert all(abs(scalars[step] - expected[step]) < 1e-6 * expected[step] for step in expected)
    sample, = board.Tensors("samples/1")
    assert sample.step == 3 and b"One day" in sample.tensor_proto.string_val[0]
    content = board.summary_metadata["_hparams_/session_start_info"].plugin_data
    assert content.plugin_name == metadata.PLUGIN_NAME
    hparams = metadata.parse_session_start_info_plugin_data(content.content).hparams
    assert hparams["training.learning_rate"].number_value == 0.25
    assert hparams["training.max_steps"].number_value == 3
    assert hparams["training.use_cpu"].bool_value is True
    assert hparams["training.lr_scheduler_type"].string_value == "constant"
    end = metadata.parse_session_end_info_plugin_data(board.summary_metadata["_hparams_/session_end_info"].plugin_data.content)
    assert end.status == 1  # success
