#!/usr/bin/env python3
"""Draws a run as SVG: its loss curve and its last line of terminal output; or the curves of several runs.

    tools/draw_run.py RUN... OUTPUT.svg [--title TEXT]     RUN: an output_dir, whose metrics.jsonl is read

Uses only the Python standard library. The colors are readable on white and on black.
"""

import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 44, 66
INK, CURVES = "#7d8590", ("#2f81f7", "#d29922", "#3fb950", "#db61a2")


def read(run):
    """Logged training lines and evaluation lines."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line]


def ticks(low, high, wanted):
    """About `wanted` round numbers between low and high."""
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
    """Terminal output for the last logged step."""
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


def read_whole(run):
    lines, evaluations = read(run)
    if len(lines) < 2:
        raise SystemExit(f"draw_run: {run / 'metrics.jsonl'} has {len(lines)} logged steps; log at least two (logging_steps)")
    return lines, evaluations


def draw(runs, title):
    read_runs = [read_whole(run) for run in runs]
    losses = [line["loss"] for lines, _ in read_runs for line in lines]
    last = max(lines[-1]["step"] for lines, _ in read_runs)
    low, high = math.floor(min(losses)), math.ceil(max(losses))

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

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
    for step in ticks(0, last, 6):
        parts.append(text(x(step), HEIGHT - BOTTOM + 18, f"{step:g}"))
    for place, (run, (lines, evaluations)) in enumerate(zip(runs, read_runs)):
        color = CURVES[place % len(CURVES)]
        points = " ".join(f"{x(line['step']):.1f},{y(line['loss']):.1f}" for line in lines)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(line["step"]):.1f}" cy="{y(line["eval_loss"]):.1f}" r="3" fill="none" stroke="{INK}"/>'
                  for line in evaluations if low <= line["eval_loss"] <= high]
        if len(runs) > 1:
            parts.append(text(WIDTH - RIGHT, TOP + 16 * (place + 1), run.name, "end", f'fill="{color}"'))
    told = progress(read_runs[0][0]) if len(runs) == 1 else "   ".join(
        f"{run.name}: {lines[-1]['loss']:.3f}" for run, (lines, _) in zip(runs, read_runs))
    parts.append(text(LEFT, HEIGHT - 16, told, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="run", nargs="+", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--title", default="loss")
    options = parser.parse_args()
    options.output.write_text(draw(options.runs, options.title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
