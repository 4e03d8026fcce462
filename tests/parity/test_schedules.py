"""Compares the learning-rate schedules with transformers.

tests/optim/schedule_golden.json contains transformers' values for a table of cases. The C++ test
(tests/optim/schedule_test.cpp) compares Lockstep with the file, and this test checks that the file still equals the values
of the installed transformers. To rewrite the file:

    .deps/python/bin/python tests/parity/test_schedules.py
"""

import json
import math
import pathlib
import types

import torch
import transformers

GOLDEN = pathlib.Path(__file__).parent.parent / "optim" / "schedule_golden.json"
RATE, TOTAL = 3e-4, 37

CASES = [  # type, arguments, warm-up (steps, or a ratio below 1)
    ("linear", {}, 0),
    ("linear", {}, 5),
    ("linear", {}, 0.1),
    ("linear", {}, 37),
    ("linear", {}, 50),
    ("cosine", {}, 0),
    ("cosine", {"num_cycles": 1.7}, 4),
    ("cosine_with_restarts", {}, 3),
    ("cosine_with_restarts", {"num_cycles": 3}, 0.05),
    ("polynomial", {}, 4),
    ("polynomial", {"power": 2.5, "lr_end": 1e-5}, 0),
    ("constant", {}, 7),
    ("constant_with_warmup", {}, 7),
    ("inverse_sqrt", {}, 6),
    ("inverse_sqrt", {}, 0),
    ("inverse_sqrt", {"timescale": 20}, 6),
    ("cosine_with_min_lr", {"min_lr": 3e-5}, 5),
    ("cosine_with_min_lr", {"min_lr_rate": 0.2, "num_cycles": 1.0}, 0),
    ("cosine_warmup_with_min_lr", {"min_lr": 3e-5}, 5),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.01}, 5),
    ("warmup_stable_decay", {"num_decay_steps": 10}, 5),
    (
        "warmup_stable_decay",
        {"num_decay_steps": 8, "warmup_type": "cosine", "decay_type": "linear", "min_lr_ratio": 0.1},
        6,
    ),
    (
        "warmup_stable_decay",
        {
            "num_decay_steps": 8,
            "num_stable_steps": 12,
            "warmup_type": "1-sqrt",
            "decay_type": "1-sqrt",
            "min_lr_ratio": 0.05,
        },
        0.15,
    ),
]

METRICS = [3.0, 2.9, 2.95, 2.9, 2.91, 2.9, 2.92, 2.5, 2.6, 2.6, 2.6, 2.6, 2.4999, 2.7, 2.8, 2.8, 2.8, 2.8, 2.9, 3.0]
PLATEAU_CASES = [
    {},
    {"patience": 1},
    {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 5e-5},
    {"patience": 2, "mode": "max", "threshold": 0.05},
    {"patience": 1, "threshold_mode": "abs", "threshold": 0.5, "factor": 0.2},
    {"patience": 1, "threshold_mode": "abs", "mode": "max", "threshold": 0.2, "eps": 1e-4},
]
GREEDY_CASES = [
    {"patience": 0, "min_lr": 1e-5},
    {"patience": 1, "factor": 0.5, "min_lr": 5e-5, "max_lr": 4e-4, "warmup": 1, "cooldown": 1},
    {"patience": 0, "factor": 0.3, "min_lr": 1e-4, "reset_start": 3, "mode": "max", "threshold_mode": "rel", "threshold": 0.01},
    {"patience": 0, "factor": 0.8, "min_lr": 1e-5, "smooth": True, "window_size": 3},
]


def rates(name, arguments, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    steps = transformers.TrainingArguments.get_warmup_steps(
        types.SimpleNamespace(warmup_steps=warmup), TOTAL
    )
    scheduler = transformers.get_scheduler(
        name, optimizer, steps, TOTAL, scheduler_specific_kwargs=dict(arguments)
    )
    values = []
    for _ in range(TOTAL + 4):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def metric_rates(name, arguments):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = transformers.get_scheduler(
        name, optimizer, scheduler_specific_kwargs=dict(arguments)
    )
    values = []
    for metric in METRICS:
        scheduler.step(metric)
        values.append(optimizer.param_groups[0]["lr"])
    return values


def golden():
    return {
        "learning_rate": RATE,
        "total_steps": TOTAL,
        "schedules": [
            {"type": name, "kwargs": kwargs, "warmup": warmup, "rates": rates(name, kwargs, warmup)}
            for name, kwargs, warmup in CASES
        ],
        "metrics": METRICS,
        "plateaus": [
            {"type": name, "kwargs": kwargs, "rates": metric_rates(name, kwargs)}
            for name, cases in (("reduce_lr_on_plateau", PLATEAU_CASES), ("greedy", GREEDY_CASES))
            for kwargs in cases
        ],
    }


def close(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-20)
    return a == b


def test_golden_table_equals_transformers():
    assert close(json.loads(GOLDEN.read_text()), golden())


if __name__ == "__main__":
    table = golden()
    for key in ("schedules", "plateaus"):  # one case per line
        table[key] = [json.dumps(case) for case in table[key]]
    text = json.dumps(table, indent=1)
    for key in ("schedules", "plateaus"):
        for case in table[key]:
            text = text.replace(json.dumps(case), case)
    GOLDEN.write_text(text + "\n")
