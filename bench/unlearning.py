#!/usr/bin/env python3
"""Compares TOFU's evaluation of a small Llama on two cores of this machine: `lockstep eval task.type=unlearning` on two ranks, and a loop of
transformers that does the same work as open-unlearning in one process with two threads. Measures the time and checks that the results are equal.

    python3 bench/unlearning.py --program build/release/lockstep --data ../shared/data/unlearning/tofu [--batch 32] [--new-tokens 200]
        [--steps 60] [--repeats 3] [--rows N] [--python .deps/peers/bin/python]

The model is first trained on the rows for some steps, so that its generated answers end as real answers do. The loop's time starts after its model is
loaded; Lockstep's is that of the whole command. The loop omits ROUGE, whose time is negligible. Exits with 1 if the mean likelihoods of answers
differ.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from preference import started
from run import HERE, PYTHON, RANKS, Machine

sys.path.insert(0, str(HERE.parent / "tools"))
from unlearn_demo import NAMES, take_data  # noqa: E402

VOCABULARY, LENGTH = 4096, 512
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 688,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2 * LENGTH,
         "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
SHOWN = ("forget_Q_A_Prob", "retain_Q_A_Prob", "forget_Q_A_PERT_Prob", "ra_Q_A_Prob", "wf_Q_A_Prob")


def make_model(a, machine, folder):
    (folder / "texts.txt").write_text("\n".join(
        " ".join(str(value) for value in json.loads(line).values()) for name in NAMES
        for line in (folder / "tofu" / f"{name}.jsonl").read_text().splitlines()))
    (folder / "model.json").write_text(json.dumps(MODEL))
    started(machine, [a.program, "tokenizer", "train", "--files", "texts.txt", "--vocab-size", VOCABULARY, "--output", "tokenizer"], folder)
    started(machine, [
        a.program, "unlearn", "--nproc", RANKS, "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=Finetune",
        "unlearning.retain=[tofu/retain99.jsonl,tofu/forget01.jsonl]", f"data.sequence_length={LENGTH}", "output_dir=model", "overwrite_output_dir=true",
        f"max_steps={a.steps}", "learning_rate=2e-3", "per_device_train_batch_size=8", "save_strategy=no", "use_cpu=true"], folder)


def lockstep(a, machine, folder, out):
    seconds, _ = started(machine, [
        a.program, "eval", "task.type=unlearning", "--nproc", RANKS, "--model", "model", "--output", out, "unlearning.data_dir=tofu",
        "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01", f"unlearning.max_new_tokens={a.new_tokens}",
        f"data.sequence_length={LENGTH}", f"per_device_eval_batch_size={a.batch}", "use_cpu=true"], folder)
    results = json.loads((out / "TOFU_EVAL.json").read_text())
    return {"seconds": seconds, **{name: results[name]["agg_value"] for name in SHOWN}}


def loop(a, machine, folder, out):
    started(machine, [a.python, HERE / "peers" / "unlearning.py", "--model", "model", "--data", "tofu", "--out", out / "loop.json", "--batch",
                      a.batch, "--new-tokens", a.new_tokens, "--length", LENGTH, "--threads", RANKS], folder)
    return json.loads((out / "loop.json").read_text())


SIDES = {"Lockstep": lockstep, "loop of transformers": loop}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with TOFU's files")
    parser.add_argument("--python", type=pathlib.Path, default=PYTHON)
    for name, default in (("batch", 32), ("new-tokens", 200), ("steps", 60), ("repeats", 3), ("rows", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    # Not resolved, because the Python of a virtual environment is a link to one outside it.
    a.program, a.python = a.program.absolute(), a.python.absolute()
    machine = Machine()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        folder = pathlib.Path(scratch)
        (folder / "tofu").mkdir()
        take_data(a.data, folder / "tofu")
        for path in (folder / "tofu").iterdir() if a.rows else ():
            path.write_text("".join(path.read_text().splitlines(keepends=True)[: a.rows]))
        make_model(a, machine, folder)
        results = {side: [] for side in SIDES}
        for repeat in range(a.repeats):
            for side, measure in SIDES.items():
                out = folder / f"{side.split()[0]}-{repeat}"
                out.mkdir()
                results[side].append(measure(a, machine, folder, out))
    seconds = {side: statistics.median(run["seconds"] for run in runs) for side, runs in results.items()}
    print(f"\nTOFU's suite, at most {a.new_tokens} new tokens, batches of {a.batch}")
    for side, runs in results.items():
        print(f"  {side:<22} {seconds[side]:>8.1f} s  " + "  ".join(f"{name} {runs[0][name]:.4f}" for name in SHOWN[:2]))
    ours, theirs = (results[side][0] for side in SIDES)
    apart = [name for name in SHOWN if abs(ours[name] - theirs[name]) > 1e-3]
    print(f"  {seconds['loop of transformers'] / seconds['Lockstep']:.1f} times faster; load average {os.getloadavg()[0]:.1f}"
          + (f"; not alike: {', '.join(apart)}" if apart else ""))
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
