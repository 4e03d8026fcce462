"""Parquet and Arrow files give the rows, order and values that `datasets` reads; memory does not grow with the size of a file."""

import datetime
import json
import os
import pathlib
import random
import subprocess
import sys

import datasets
import pyarrow.parquet
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import harness  # noqa: E402

ROWS = 157  # no row group or shard size divides it


def rows_of(seed):
    draw = random.Random(seed)
    words = ["bus", "é", "日本", "\"so\"", "a\tb", "line\nend", "", "😀", "\\", "x" * 300]
    return [{
        "text": f"{i} " + " ".join(draw.choices(words, k=draw.randrange(6))),
        "messages": [{
            "role": draw.choice(["user", "assistant"]),
            "content": draw.choice(words),
            "count": draw.choice([0, -1, 2**53, None]),
            "share": draw.choice([0.1, -2.5e-9, 1e300, None]),
            "sure": draw.choice([True, False, None]),
            "day": datetime.date(1969, 12, 31) + datetime.timedelta(days=draw.randrange(20000)),
            "tags": draw.choices(words, k=draw.randrange(3)),
        } for _ in range(draw.randrange(1, 4))],
    } for i in range(ROWS)]


@pytest.fixture(scope="module")
def program():
    harness.ProgramTest.setUpClass()
    folder = harness.ProgramTest.scratch
    (folder / "dump.jinja").write_text("{% for message in messages %}{{ message | tojson }}{% endfor %}")
    yield harness.ProgramTest()
    harness.ProgramTest.tearDownClass()


def as_parquet(rows, folder):
    for shard in range(3):
        rows.shard(3, shard, contiguous=True).to_parquet(folder / f"part-{shard}.parquet", batch_size=23)


def as_arrow_file(rows, folder):
    rows.save_to_disk(folder, num_shards=2)


FORMS = {"parquet": as_parquet, "arrow": as_arrow_file}


def shown(program, files, *words):
    out = program.run_ok("data", "show", f"data.train={files}", "tokenizer.path=tokenizer", "--rows", ROWS + 5, *words).out
    documents = out.split("document ")[1:]
    return [each.split(" of them learned\n", 1)[1] for each in documents]


@pytest.mark.parametrize("form", FORMS)
def test_rows_order_and_values(program, form):
    folder = program.folder / form
    folder.mkdir()
    FORMS[form](datasets.Dataset.from_list(rows_of(7)), folder)
    read = (datasets.load_dataset("parquet", data_files=sorted(map(str, folder.glob("*.parquet"))), split="train") if form == "parquet"
            else datasets.load_from_disk(str(folder)))
    found = shown(program, f"{folder}/*.{form}", "data.prompt=chat", "data.chat_template=dump.jinja", "data.chat_loss=all")
    assert len(found) == len(read) == ROWS
    for text, row in zip(found, read):
        wanted = "".join(
            json.dumps({key: str(value) if key == "day" else value for key, value in message.items() if value is not None}, ensure_ascii=False)
            for message in row["messages"])  # null keys are dropped, as transformers does
        decoder, at, ours, theirs = json.JSONDecoder(), 0, [], []
        text = text.strip().replace("⟦", "").replace("⟧", "")
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            ours.append(value)
        at = 0
        while at < len(wanted):
            value, at = decoder.raw_decode(wanted, at)
            theirs.append(value)
        assert ours == theirs


def peak_of(program, files, output):
    """Largest resident size of any process of a run that tokenizes the files."""
    command = [harness.PROGRAM, "train", "model.path=model.json", "tokenizer.path=tokenizer", f"data.train={files}", f"output_dir={output}",
               f"data.cache_dir={output}-cache", "max_steps=1", "data.sequence_length=32", "use_cpu=true"]
    process = subprocess.Popen(command, cwd=program.folder, env=harness.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, error.decode()
    return usage.ru_maxrss * 1024


def test_memory_does_not_grow_with_the_file(program):
    draw = random.Random(1)
    words = (program.folder / "corpus" / "train.txt").read_text().split()
    texts = [" ".join(draw.choices(words, k=200)) for _ in range(2000)]

    def write(name, times):
        table = pyarrow.table({"text": texts * times})
        pyarrow.parquet.write_table(table, program.folder / name, compression="none", use_dictionary=False, row_group_size=500)
        return (program.folder / name).stat().st_size

    small, large = write("small.parquet", 1), write("large.parquet", 40)
    assert large - small > 60 << 20
    assert peak_of(program, "large.parquet", "large") - peak_of(program, "small.parquet", "small") < large - small  # mapped pages of the tokens count


def questions(name, count, *keys):
    made = [{"question": f"Who is {name} {i}?", "answer": f"The {name} of {i}.", "paraphrased_answer": f"It is {name} {i}.",
             "perturbed_answer": [f"It is {i + k}." for k in (1, 2, 3)]} for i in range(count)]
    return [{key: row[key] for key in ("question", "answer", *keys)} for row in made]


BOTH = ("paraphrased_answer", "perturbed_answer")
TOFU = {"forget01": questions("a", 7), "retain99": questions("b", 9), "forget01_perturbed": questions("a", 7, *BOTH),
        "retain_perturbed": questions("b", 5, *BOTH), "real_authors_perturbed": questions("c", 3, BOTH[1]),
        "world_facts_perturbed": questions("d", 4, BOTH[1]), "holdout01": questions("e", 6)}


def test_unlearning_data_sets(program):
    """Forget, retain and evaluation sets in single and in several files give the losses and results of JSON lines."""
    results = []
    for form in ("jsonl", "parquet"):
        folder = program.folder / f"tofu-{form}"
        folder.mkdir()
        for name, rows in TOFU.items():
            made = datasets.Dataset.from_list(rows)
            if form == "jsonl":
                made.to_json(folder / f"{name}.jsonl")
            elif name.endswith("_perturbed"):
                for part in range(2):
                    made.shard(2, part, contiguous=True).to_parquet(folder / f"{name}-0000{part}-of-00002.parquet")
            else:
                made.to_parquet(folder / f"{name}.parquet")
        run = f"unlearned-{form}"
        program.run_ok(
            "unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=NPO", f"unlearning.forget={folder}/forget01.{form}",
            f"unlearning.retain={folder}/retain99.{form}", "data.sequence_length=48", f"data.cache_dir=cache-{form}", f"output_dir={run}", "max_steps=3",
            "logging_steps=1", "per_device_train_batch_size=3", "learning_rate=1e-3", "use_cpu=true")
        program.run_ok("eval", "task.type=unlearning", "--model", run, "--output", f"{run}/evals", f"unlearning.data_dir={folder}",
                       "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01", "unlearning.max_new_tokens=4", "data.sequence_length=48",
                       "use_cpu=true")
        results.append((harness.losses(program.folder / run), json.loads((program.folder / run / "evals" / "TOFU_EVAL.json").read_text())))
    assert len(results[0][0]) == 3
    assert results[0] == results[1]


TASKS = {
    "sequence_classification": [{"text": f"row {i} is {'good' if i % 2 else 'bad'}", "label": ["no", "yes"][i % 2]} for i in range(12)],
    "preference": [{"prompt": f"Number {i}? ", "chosen": f"It is {i}.", "rejected": f"It is {i + 1}."} for i in range(12)],
}


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_other_tasks(program, task):
    rows = datasets.Dataset.from_list(TASKS[task])
    rows.to_json(program.folder / f"{task}.jsonl")
    rows.to_parquet(program.folder / f"{task}.parquet", batch_size=5)
    words = ["train", f"task.type={task}", "model.path=model.json", "tokenizer.path=tokenizer", "data.sequence_length=32", "max_steps=3",
             "logging_steps=1", "per_device_train_batch_size=4", "use_cpu=true"]
    for form in ("jsonl", "parquet"):
        program.run_ok(*words, f"data.train={task}.{form}", f"output_dir={task}-{form}", f"data.cache_dir=cache-{task}-{form}")
    found = [harness.losses(program.folder / f"{task}-{form}") for form in ("jsonl", "parquet")]
    assert len(found[0]) == 3
    assert found[0] == found[1]
    # A file that was truncated while it was copied, at any position.
    whole = (program.folder / f"{task}.parquet").read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 6):
        (program.folder / "cut.parquet").write_bytes(whole[:length])
        told = program.run_fails(4, *words, "data.train=cut.parquet", "output_dir=none").err
        assert "cut.parquet" in told and "the file is truncated" in told, told
        assert not (program.folder / "none" / "metrics.jsonl").exists()
