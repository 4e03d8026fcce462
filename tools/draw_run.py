#!/usr/bin/env python3
"""Draws a run as SVG: the curve of its loss, and the line that the terminal showed at its end.

    tools/draw_run.py RUN OUTPUT.svg [--title TEXT]     RUN: an output_dir, whose metrics.jsonl is read

Python's standard library alone. Colors that are read on white and on black.
"""

import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 44, 66
INK, CURVE = "#7d8590", "#2f81f7"


def read(run):
    """The lines of training, and those of evaluations."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line]


def ticks(low, high, wanted):
    """Round numbers from low to high, about so many."""
    rough = (high - low) / max(1, wanted) or 1
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = math.ceil(low / step - 1e-9) * step
    return [first + step * i for i in range(int((high - first) / step + 1e-9) + 1)]


def count(value):
    """12345 as 12.3k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def progress(lines):
    """What stood in the terminal after the last logged step."""
    last = lines[-1]
    parts = [f"step {last['step']}/{last['step']}", f"loss {last['loss']:.4f}"]
    for key, form in (("learning_rate", "lr {:.2e}"), ("grad_norm", "norm {:.3g}")):
        if key in last:
            parts.append(form.format(last[key]))
    if "tokens_per_s" in last:
        parts.append(f"{count(last['tokens_per_s'])} tok/s")
    if "peak_memory_bytes" in last:
        parts.append(f"{last['peak_memory_bytes'] / 2**20:.0f} MiB")
    return "   ".join(parts)


def draw(run, title):
    lines, evaluations = read(run)
    if len(lines) < 2:
        raise SystemExit(f"draw_run: {run / 'metrics.jsonl'} has {len(lines)} logged steps: log at least two (logging_steps)")
    steps, losses = [line["step"] for line in lines], [line["loss"] for line in lines]
    low, high = math.floor(min(losses)), math.ceil(max(losses))

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps[-1]

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    def text(at_x, at_y, words, anchor="middle", extra=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" xml:space="preserve" {extra}>{escape(words)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="ui-monospace, monospace" '
        f'font-size="12" fill="{INK}" role="img" aria-label="{escape(title)}">',
        text(LEFT, 22, title, "start", 'font-size="14"')]
    for loss in ticks(low, high, 5):
        parts.append(f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="0.25"/>')
        parts.append(text(LEFT - 8, y(loss) + 4, f"{loss:g}", "end"))
    for step in ticks(0, steps[-1], 6):
        parts.append(text(x(step), HEIGHT - BOTTOM + 18, f"{step:g}"))
    points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in zip(steps, losses))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{CURVE}" stroke-width="2"/>')
    parts += [f'<circle cx="{x(line["step"]):.1f}" cy="{y(line["eval_loss"]):.1f}" r="3" fill="none" stroke="{INK}"/>'
              for line in evaluations if low <= line["eval_loss"] <= high]
    parts.append(text(LEFT, HEIGHT - 16, progress(lines), "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--title", default="loss")
    options = parser.parse_args()
    options.output.write_text(draw(options.run, options.title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
