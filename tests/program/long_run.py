"""Writes the record of a long run without training: the given number of steps and metrics, in the program's format."""

import json
import math
import random

NAMES = ["loss", "learning_rate", "grad_norm", "tokens", "tokens_per_s", "step_s", "peak_share", "peak_memory_bytes"]


def names_of(metrics):
    return (NAMES + [f"figure_{number}" for number in range(metrics)])[:metrics]


def write(folder, steps, metrics, seed=1):
    """Writes metrics.jsonl and events.jsonl of a finished run. Returns the steps of the lowest and the highest loss, which every curve must show."""
    drawn = random.Random(seed)
    folder.mkdir(parents=True)
    least, greatest = drawn.sample(range(1, steps + 1), 2)
    names = names_of(metrics)
    noise = [[drawn.gauss(1, 0.1) for _ in range(997)] for _ in names]
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            slope = 1 + 8 / math.sqrt(step)
            loss = 0.001 if step == least else 1000.0 if step == greatest else slope * noise[0][step % 997]
            rest = "".join(f', "{name}": {slope * noise[i][(step * (i + 2)) % 997]!r}' for i, name in enumerate(names[1:], start=1))
            file.write(f'{{"step": {step}, "epoch": {step / steps!r}, "loss": {loss!r}{rest}}}\n')
    began = {"time": 1e9, "step": 0, "event": "began", "model": "made", "plan": "one rank", "ranks": 1, "steps": steps, "round": 0, "origins": {}}
    finished = {"time": 1e9 + steps, "step": steps, "event": "finished", "in_steps_s": steps * 0.9}
    (folder / "events.jsonl").write_text(f"{json.dumps(began)}\n{json.dumps(finished)}\n")
    return least, greatest
