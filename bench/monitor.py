#!/usr/bin/env python3
"""Measures the cost of monitoring a run, and the time until the page of a long run is shown.

    python3 bench/monitor.py --program build/release/lockstep [--seconds 200] [--model small]
    python3 bench/monitor.py --program build/release/lockstep --runs [--pairs 20] [--steps 40]
    python3 bench/monitor.py --program build/release/lockstep --open [--long 1000000] [--metrics 20]

Runs use bfloat16, whose steps are the shortest. "On" logs every step, with TensorBoard, W&B, spans sent to a collector, the socket of `lockstep ctl`
and the progress lines; "off" has none of these. There are three figures, because none covers everything:

blocks  ratio of step times within one run, in which logging is switched on and off (`lockstep ctl RUN set logging_steps=N`) in alternating
        blocks of 3 s (ABBA). It covers trackers and log lines, including their effect on concurrent computation. Consecutive blocks differ far
        less than runs. Spans and the socket cannot be switched and are on in both.

within  fraction of a step that rank 0 spends on reporting, from the spans of the "on" runs. It is exact to microseconds regardless of other
        load, but does not include what the trackers' threads take from concurrent computation.
beside  (--runs) ratios of step time and of processor time of pairs of runs, on against off, with alternating order. It covers everything, but runs
        differ by more than the target. So the mean of the middle half of the pairs is printed with the interval of 90 % of resampled sets;
        the target is shown to be met only if the whole interval is below it.

Exits with 1 if a figure is above the target: for `within` the value, otherwise the whole interval.

--heartbeats measures the cost of the ranks' heartbeats (the state that each rank records, and the checks of its sockets), which cannot be switched
off: their share of the samples of `perf record` over a run, and the share of the reporting threads.

--open writes the record of a run of the given number of steps and metrics. It measures the time from the start of `lockstep monitor` to the answer
to the page's first request (all curves), and, if a Chromium is installed, from opening the address to the drawn curves: first downsampled, then
with all steps.
"""

import argparse
import http.client
import http.server
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from run import BATCH, LENGTH, MODELS, RANKS, Lockstep, Machine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "program"))
import browser  # noqa: E402
import long_run  # noqa: E402

TARGET = 0.003
OPEN_TARGET = 1.0  # seconds
# Symbols, and names of threads.
SAMPLES = {"heartbeats": re.compile(r"lockstep::(RankStatus|begin_phase|rank_status\b)|lockstep-links"), "threads that report": re.compile(r"lockstep-(send|ctl)")}
TARGETS = {"heartbeats": 0.001, "threads that report": TARGET}
FIRST_STEPS = 5  # include one-time setup
BLOCK = 3.0  # seconds
NEVER = 1 << 30  # steps between two lines: never logs
OFF = ["logging_strategy=no", "report_to=none", "monitor.control=false", "monitor.progress=none"]
ON = ["logging_strategy=steps", "logging_steps=1", "report_to=[tensorboard,wandb]", "monitor.control=true", "monitor.progress=plain"]


class Collector(http.server.ThreadingHTTPServer):
    """Receives spans, and stores the starts of steps and the ends of their last phases, in nanoseconds."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps, self.begins = [], {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reporting_share(self):
        """Fraction of the time between steps that no phase covers; then clears the record."""
        steps, self.steps = sorted(self.steps)[FIRST_STEPS:], []
        pairs = list(zip(steps, steps[1:]))
        return statistics.median((after[0] - step[1]) / (after[0] - step[0]) for step, after in pairs)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        for step in spans:
            ends = [int(span["endTimeUnixNano"]) for span in spans if span.get("parentSpanId") == step["spanId"]]
            if step["name"] == "step":
                number = next(a["value"]["intValue"] for a in step["attributes"] if a["key"] == "lockstep.step")
                self.server.begins[int(number)] = int(step["startTimeUnixNano"])
            if step["name"] == "step" and ends:
                self.server.steps.append((int(step["startTimeUnixNano"]), max(ends)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def command_of(lockstep, model, steps, words, folder):
    return [
        lockstep.program, "train", "--nproc", RANKS, f"model.path={lockstep.config(model)}",
        f"tokenizer.path={lockstep.folder}/tokenizer", f"data.train={lockstep.folder}/sample/train.txt",
        f"data.sequence_length={LENGTH}", f"data.cache_dir={lockstep.folder}/cache", f"output_dir={folder}/run", "overwrite_output_dir=true", f"max_steps={steps}",
        f"per_device_train_batch_size={BATCH}", "learning_rate=1e-4", "bf16=true", "use_cpu=true", "monitor.peak_tflops=1", "save_strategy=no", *words]


def train(lockstep, model, steps, words, folder, before=()):
    """Wall and processor seconds per step."""
    command = [*before, *command_of(lockstep, model, steps, words, folder)]
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = lockstep.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = process.communicate()[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{text[-3000:]}")
    processors = after.ru_utime + after.ru_stime - began.ru_utime - began.ru_stime
    return json.loads((folder / "run" / "train_results.json").read_text())["train_runtime"] / steps, processors / steps


def middle(logs):
    """Mean of the middle half."""
    ordered, quarter = sorted(logs), len(logs) // 4
    return statistics.fmean(ordered[quarter:len(ordered) - quarter])


def ratio_of(logs):
    """Ratio, and the interval of 90 % of the resampled ratios."""
    drawn = random.Random(0)
    again = sorted(middle(drawn.choices(logs, k=len(logs))) for _ in range(4000))
    return [math.exp(x) for x in (middle(logs), again[200], again[3799])]


def ask_run(folder, **request):
    """Response of the run at its control socket (src/watch/control/server.h)."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(folder / ".lockstep-control"))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile() as answer:
            return json.loads(answer.readline())


def seconds_of(begins, first, end):
    """Mean step time from `first` to before `end`, without the slowest and the fastest twentieth."""
    times = sorted((begins[step + 1] - begins[step]) / 1e9 for step in range(first, end) if step in begins and step + 1 in begins)
    cut = len(times) // 20
    return statistics.fmean(times[cut : len(times) - cut])


def blocks(arguments, lockstep, scratch):
    collector, folder = Collector(), pathlib.Path(scratch)
    words = [*ON, f"monitor.otlp=http://127.0.0.1:{collector.server_port}"]
    print(f"load average {os.getloadavg()[0]:.1f}")
    process = lockstep.machine.start(command_of(lockstep, MODELS[arguments.model], 10**6, words, folder), stdout=subprocess.DEVNULL,
                                     stderr=(folder / "log").open("w"))
    switched = []  # (first step, True if it logs)
    try:
        while len(collector.begins) < FIRST_STEPS:
            if process.poll() is not None:
                sys.exit(f"the run ended:\n{(folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)
        ends = time.monotonic() + arguments.seconds
        while time.monotonic() < ends:
            is_on = len(switched) % 4 in (0, 3)
            told = ask_run(folder / "run", act="set", logging_steps=1 if is_on else NEVER)
            assert told["ok"], told
            switched.append((int(told["text"].rpartition(" ")[2]), is_on))
            time.sleep(BLOCK)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    if len(switched) < 5 or switched[-1][0] - switched[0][0] < 8 * len(switched):
        sys.exit(f"{len(switched)} blocks of {BLOCK:.0f} s had {switched[-1][0] - switched[0][0]} steps: too few; use more --seconds or an idle machine")
    took = []
    for (first, is_on), (end, _) in zip(switched, switched[1:]):
        took.append((is_on, seconds_of(collector.begins, first + 1, end - 1)))
    pairs = [(one, other) for one, other in zip(took[::2], took[1::2])]
    logs = [math.log(dict(pair)[True] / dict(pair)[False]) for pair in pairs]
    steps = switched[-1][0] - switched[0][0]
    print(f"blocks: {len(pairs)} pairs of {BLOCK:.0f} s, {steps} steps of {statistics.median(s for on, s in took if on) * 1e3:.2f} ms on, "
          f"{statistics.median(s for on, s in took if not on) * 1e3:.2f} ms off (medians)")
    ratio, low, high = ratio_of(logs)
    print(f"blocks: time on against off {ratio:.4f} ({low:.4f} to {high:.4f}; target {1 + TARGET}): {verdict_of(low, high)}")
    logged = {collector.begins.get(step) for (first, is_on), (end, _) in zip(switched, switched[1:]) if is_on for step in range(first, end)}
    collector.steps = [step for step in collector.steps if step[0] in logged]
    share = collector.reporting_share()
    print(f"within: {share:.4%} of a logged step (target {TARGET:.1%})")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return low > 1 + TARGET or share > TARGET


def verdict_of(low, high):
    return "met" if high <= 1 + TARGET else "missed" if low > 1 + TARGET else "not resolved; use more runs or an idle machine"


def cost(arguments, lockstep, scratch):
    collector = Collector()
    sides = {"on": [*ON, f"monitor.otlp=http://127.0.0.1:{collector.server_port}"], "off": OFF}
    print(f"load average {os.getloadavg()[0]:.1f}")
    wall, processors, within = [], [], []
    for pair in range(arguments.pairs):
        took = {}
        for side in ("on", "off") if pair % 2 == 0 else ("off", "on"):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                took[side] = train(lockstep, MODELS[arguments.model], arguments.steps, sides[side], pathlib.Path(folder))
        wall.append(math.log(took["on"][0] / took["off"][0]))
        processors.append(math.log(took["on"][1] / took["off"][1]))
        within.append(collector.reporting_share())
        print(f"  pair {pair + 1:>2}: {took['on'][0] * 1e3:.2f} ms on, {took['off'][0] * 1e3:.2f} ms off, {math.exp(wall[-1]):.4f}; "
              f"processors {math.exp(processors[-1]):.4f}; within {within[-1]:.4%}", flush=True)
    share = statistics.median(within)
    print(f"within: {share:.4%} of a step ({min(within):.4%} to {max(within):.4%}; target {TARGET:.1%})")
    missed = share > TARGET
    for name, logs in (("time", wall), ("processor time", processors)):
        ratio, low, high = ratio_of(logs)
        print(f"beside: {name} on against off {ratio:.4f} ({low:.4f} to {high:.4f}, {len(logs)} pairs; target {1 + TARGET}): {verdict_of(low, high)}")
        missed = missed or (name == "time" and low > 1 + TARGET)
    print(f"load average {os.getloadavg()[0]:.1f}")
    return missed


def heartbeats(arguments, lockstep, scratch):
    if not shutil.which("perf"):
        sys.exit("perf is not installed (Debian: linux-perf)")
    collector, data, missed = Collector(), pathlib.Path(scratch) / "perf.data", False
    for words in ([], ["ddp_backend=gloo"]):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            train(lockstep, MODELS[arguments.model], arguments.steps, [*ON, f"monitor.otlp=http://127.0.0.1:{collector.server_port}", *words],
                  pathlib.Path(folder), before=["perf", "record", "-q", "-F", "4999", "-o", data])
        told = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym"], capture_output=True, text=True, check=True).stdout.splitlines()
        share = {name: sum(1 for line in told if pattern.search(line)) / len(told) for name, pattern in SAMPLES.items()}
        print(f"{words[0] if words else 'ranks that share memory'}, of {len(told)} samples: "
              + ", ".join(f"{name} {share[name]:.4%} (target {TARGETS[name]:.1%})" for name in SAMPLES), flush=True)
        missed = missed or any(share[name] > TARGETS[name] for name in SAMPLES)
    return missed


def ask(address, path, token):
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    body = connection.getresponse().read()
    connection.close()
    return body


def opening(arguments, scratch):
    """Seconds until the first curves are sent, and until they are drawn. The file is in the page cache, as during a run."""
    run = pathlib.Path(scratch) / "long"
    long_run.write(run, arguments.long, arguments.metrics)
    print(f"{arguments.long} steps of {arguments.metrics} metrics: {(run / 'metrics.jsonl').stat().st_size >> 20} MiB; load average {os.getloadavg()[0]:.1f}")
    answered, whole, drawn, redrawn = [], [], [], []
    for _ in range(arguments.times):
        begin = time.monotonic()
        server = subprocess.Popen([arguments.program, "monitor", run], stdout=subprocess.PIPE, text=True)
        address = urllib.parse.urlsplit(server.stdout.readline().strip())
        token = address.query.removeprefix("token=")
        runs = json.loads(ask(address, "/api/runs", token))
        series = ask(address, f"/api/series?ids=0&names={','.join(runs[0]['metrics'])}&points=640", token)
        answered.append(time.monotonic() - begin)
        while json.loads(ask(address, "/api/runs", token))[0]["partial"]:
            time.sleep(0.02)
        series = ask(address, f"/api/series?ids=0&names={','.join(runs[0]['metrics'])}&points=640", token)
        whole.append(time.monotonic() - begin)
        server.terminate()
        server.wait()
    print(f"first answer after {statistics.median(answered):.2f} s, all steps after {statistics.median(whole):.2f} s "
          f"(medians of {len(answered)}, {len(series) >> 10} KiB of curves; target {OPEN_TARGET} s)")
    if browser.find():
        page = browser.Browser(browser.find())
        for _ in range(arguments.times):
            server = subprocess.Popen([arguments.program, "monitor", run], stdout=subprocess.PIPE, text=True)
            address = server.stdout.readline().strip()
            page.call("Page.navigate", url="about:blank")
            begin = time.monotonic()
            page.call("Page.navigate", url=address)
            page.wait_for("document.body && document.body.dataset.ready", seconds=120)
            drawn.append(time.monotonic() - begin)
            page.wait_for("!document.getElementById('state').textContent.startsWith('reading')", seconds=120)
            redrawn.append(time.monotonic() - begin)
            server.terminate()
            server.wait()
        page.close()
        print(f"drawn by Chromium after {statistics.median(drawn):.2f} s, all steps after {statistics.median(redrawn):.2f} s "
              f"(medians of {len(drawn)}; target {OPEN_TARGET} s)")
    return statistics.median(drawn or answered) > OPEN_TARGET


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--heartbeats", action="store_true")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--long", type=int, default=1000000)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        if arguments.open:
            missed = opening(arguments, scratch)
        else:
            measure = heartbeats if arguments.heartbeats else cost if arguments.runs else blocks
            missed = measure(arguments, Lockstep(arguments.program, pathlib.Path(scratch), Machine()), scratch)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
