#!/usr/bin/env python3
"""What watching a run costs: steps of the small model of the benchmark with all that can be watched on, and with all of it off.

    python3 bench/monitor.py --program build/release/lockstep [--pairs 20] [--steps 40] [--model small]

On is every step logged, with TensorBoard, W&B, spans for a collector that answers, the socket of `lockstep ctl` and the progress
lines; off is none of these. A pair is a run of each, in turns the one and the other first, so that what else the machine does falls
on both; a pair's figure is the ratio of their times a step, first steps and all. Told are the median of the pairs and their middle
half. Exits with 1 where the median is above the target, which a machine that does nothing else is needed for.
"""

import argparse
import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

from run import BATCH, LENGTH, MODELS, RANKS, Lockstep, Machine

TARGET = 1.003
OFF = ["logging_strategy=no", "report_to=none", "monitor.control=false", "monitor.progress=none"]
ON = ["logging_strategy=steps", "logging_steps=1", "report_to=[tensorboard,wandb]", "monitor.control=true", "monitor.progress=plain"]


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans, and forgets them."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def seconds_a_step(lockstep, model, steps, words, folder):
    command = [
        lockstep.program, "train", "--nproc", RANKS, f"model.path={lockstep.config(model)}",
        f"tokenizer.path={lockstep.folder}/tokenizer", f"data.train={lockstep.folder}/sample/train.txt",
        f"data.sequence_length={LENGTH}", f"data.cache_dir={lockstep.folder}/cache", f"output_dir={folder}/run", f"max_steps={steps}",
        f"per_device_train_batch_size={BATCH}", "learning_rate=1e-4", "use_cpu=true", "monitor.peak_tflops=1", "save_strategy=no", *words]
    process = lockstep.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = process.communicate()[1]
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{text[-3000:]}")
    return json.loads((folder / "run" / "train_results.json").read_text())["train_runtime"] / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--model", choices=MODELS, default="small")
    arguments = parser.parse_args()
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    sides = {"on": [*ON, f"monitor.otlp=http://127.0.0.1:{collector.server_port}"], "off": OFF}
    print(f"load average {os.getloadavg()[0]:.1f}")
    ratios, times = [], {"on": [], "off": []}
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        lockstep = Lockstep(arguments.program.resolve(), pathlib.Path(scratch), Machine())
        for pair in range(arguments.pairs):
            for side in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    times[side].append(
                        seconds_a_step(lockstep, MODELS[arguments.model], arguments.steps, sides[side], pathlib.Path(folder)))
            ratios.append(times["on"][-1] / times["off"][-1])
            print(f"  pair {pair + 1:>2}: {times['on'][-1] * 1e3:.2f} ms on, {times['off'][-1] * 1e3:.2f} ms off, {ratios[-1]:.4f}", flush=True)
    ratio = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratio, ratio, ratio)
    print(f"on against off: {ratio:.4f} (middle half {low:.4f} to {high:.4f}, {len(ratios)} pairs; target {TARGET}); "
          f"load average {os.getloadavg()[0]:.1f}")
    sys.exit(1 if ratio > TARGET else 0)


if __name__ == "__main__":
    main()
