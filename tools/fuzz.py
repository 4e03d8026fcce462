#!/usr/bin/env python3
"""Fuzzes the parsers of untrusted bytes (tests/fuzz) with libFuzzer, ASan and UBSan, with limited memory.

  tools/fuzz.py BUILD                       replay every seed and every input that once exposed a defect, and stop
  tools/fuzz.py BUILD --seconds 20          then fuzz each parser for 20 s
  tools/fuzz.py BUILD --hours 4             then fuzz all parsers for 4 hours together
  tools/fuzz.py BUILD --inputs 10000000     campaign: fuzz each parser with this number of new inputs, and slow parsers (LARGE) for a fixed
                                            time. Progress is counted in BUILD/corpus/campaign.json, and the same program resumes after an
                                            interruption (Ctrl-C, SIGTERM); --hours limits this run
  tools/fuzz.py BUILD --wild ...            start also with files of other packages, including their test data
  tools/fuzz.py BUILD --parsers yaml,http   only these parsers
  tools/fuzz.py BUILD --input FILE --parsers yaml    replay one input

The corpus is kept in BUILD/corpus for the next run. Inputs that expose a defect are written to BUILD/found, and the exit code is 1.
"""

import argparse
import base64
import collections
import concurrent.futures
import functools
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import seeds  # noqa: E402

# Memory limits of a parser and of one allocation, in MB; exceeding one is a defect. An input that
# takes more than ten seconds is a defect too, except for regular expressions, whose work is bounded
# separately. libFuzzer measures wall time, including time spent waiting for a core, so new inputs
# get ten times the limit, and each slow input is read again alone and measured in processor time
# (limit: ten minutes of wall time).
LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=256", "-max_len=16384", "-print_funcs=0"]
TIMES = {"regex": 60, "template": 60, "tokenizer": 60}  # these limit their work themselves
TIME, START, PATIENCE, STUCK = 10, 3, 10, 600
INTERRUPTED = (72, -signal.SIGINT)  # 72: libFuzzer was interrupted
# Limits of a campaign: processor time in seconds of parsers that are large, use sockets or bound
# their own time; longest input of the others in bytes (longer if a seed is longer); seconds between
# progress notes.
LARGE = {"tokenizer": 3600, **dict.fromkeys(("configuration", "command_line", "deepspeed", "regex", "strangers", "member"), 600)}
SHORT, SHORT_AT_MOST = 512, 2048
SLICE = 120
CHECKS = "detect_leaks=1:allocator_may_return_null=0:abort_on_error=0:max_allocation_size_mb=256"
# While reading new inputs, the quarantine of freed memory is 1 MiB, so that it stays in the CPU
# cache, and allocation stacks are not recorded: twice as many inputs per second. The input of a
# defect is read again without these options to get line numbers.
QUICK = CHECKS + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1:symbolize=0"

Done = collections.namedtuple("Done", "parser code inputs seconds edges text")


class Fuzzer:
    def __init__(self, build, is_wild=False, seed=0):
        self.build, self.is_wild, self.seed = build.resolve(), is_wild, seed
        self.program = self.build / "fuzz_parsers"
        self.environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}
        self.running = set()

    def names(self):
        told = subprocess.run([self.program], capture_output=True, text=True, env={**self.environment, "LOCKSTEP_FUZZ_PARSER": ""})
        return re.findall(r"^parser (\w+)$", told.stderr, re.M)

    def run(self, parser, *arguments, checks=CHECKS, before=()):
        """Runs the fuzzer. Done.seconds is processor time. With `before`, no signal interrupts it."""
        found = self.build / "found"
        found.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [*before, self.program, f"-timeout={TIMES.get(parser, TIME)}", *LIMITS, f"-artifact_prefix={found}/{parser}-", "-print_final_stats=1", *arguments],
            env={**self.environment, "ASAN_OPTIONS": checks, "LOCKSTEP_FUZZ_PARSER": parser}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=bool(before))
        if not before:
            self.running.add(process)
        text = process.stdout.read().decode(errors="replace")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.running.discard(process)
        executed = re.search(r"number_of_executed_units: *(\d+)", text)
        covered = re.findall(r"cov: (\d+)", text)
        return Done(parser, process.returncode, int(executed.group(1)) if executed else 0, used.ru_utime + used.ru_stime,
                    int(covered[-1]) if covered else 0, text)

    def interrupt(self):
        """Interrupts the running fuzzer, whose inputs are still counted."""
        for process in list(self.running):
            process.send_signal(signal.SIGINT)

    def alone(self, parser, path):
        """Replays one input and measures its processor time."""
        seconds = TIMES.get(parser, TIME)
        done = self.run(parser, f"-timeout={STUCK}", path, before=["prlimit", f"--cpu={seconds + START}:{seconds + 2 * START}"])
        told = f"\nslow: it took more than {seconds} s of processor time" if done.code == -signal.SIGXCPU else ""
        return done._replace(text=done.text + told)

    def learn(self, parser, *arguments):
        """Fuzzes new inputs and merges useful ones into the corpus. A defect is reported from a replay of its input alone."""
        patience = f"-timeout={PATIENCE * TIMES.get(parser, TIME)}"
        done = self.run(parser, "-entropic_scale_per_exec_time=1", patience, *arguments, str(self.build / "corpus" / parser), checks=QUICK)
        if done.code in INTERRUPTED:
            return done._replace(code=0)
        for path in map(pathlib.Path, re.findall(r"Test unit written to (.*)", done.text)):
            again = self.alone(parser, path)
            if again.code:
                return done._replace(code=again.code, text=again.text)
            if path.name.startswith((f"{parser}-timeout-", f"{parser}-slow-unit-")):  # other processes may have used the core
                path.unlink()
                done = done._replace(code=0)
        return done

    def corpus(self, parser):
        """Corpus folder of the parser, with the seeds in it."""
        folder = self.build / "corpus" / parser
        folder.mkdir(parents=True, exist_ok=True)
        for kind, inputs in (("seed", seeds.SEEDS.get(parser, [])), ("found", seeds.FOUND.get(parser, []))):
            for i, text in enumerate(inputs):
                (folder / f"{kind}-{i}").write_bytes(text)
        for i, text in enumerate(seeds.wild(parser) if self.is_wild else []):
            (folder / f"wild-{i}").write_bytes(text)
        return folder

    def fuzz(self, parser, seconds):
        folder = self.corpus(parser)
        given = sorted(p for p in folder.iterdir() if p.name.startswith(("seed-", "found-", "wild-")))
        done = self.run(parser, *map(str, given))._replace(inputs=len(given))
        if done.code == 0 and seconds > 0:
            done = self.learn(parser, f"-max_total_time={seconds}", f"-seed={self.seed}")
        return done


class Campaign:
    """A number of inputs per parser, or of seconds for those in LARGE, summed over all runs of the same program."""

    def __init__(self, fuzzer, inputs, until):
        self.fuzzer, self.inputs, self.until = fuzzer, inputs, until
        self.is_over = False
        self.path, self.lock = fuzzer.build / "corpus" / "campaign.json", threading.Lock()
        program = hashlib.sha256(fuzzer.program.read_bytes()).hexdigest()[:16]
        self.read = json.loads(self.path.read_text()) if self.path.exists() else {}
        if self.read.get("program") != program:
            self.read = {"program": program, "inputs": {}, "seconds": {}}

    def end(self, *_):
        """Signal handler: counts the running inputs and starts no more."""
        self.is_over = True
        self.fuzzer.interrupt()

    def note(self, parser, inputs, seconds):
        with self.lock:
            for kind, more in (("inputs", inputs), ("seconds", seconds)):
                self.read[kind][parser] = self.read[kind].get(parser, 0) + more
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.read, indent=1))
            new.replace(self.path)

    def longest(self, parser):
        given = map(len, seeds.SEEDS[parser] + seeds.FOUND.get(parser, []))
        return min(max(SHORT, *given), SHORT_AT_MOST)

    def fuzz(self, parser):
        """Like Fuzzer.fuzz, with the totals of the whole campaign."""
        folder, edges = self.fuzzer.corpus(parser), 0
        while True:
            inputs, seconds = (self.read[kind].get(parser, 0) for kind in ("inputs", "seconds"))
            left = min(LARGE[parser] - seconds if parser in LARGE else SLICE, SLICE, self.until - time.monotonic())
            if left < 1 or self.is_over or (parser not in LARGE and inputs >= self.inputs):
                return Done(parser, 0, inputs, seconds, edges, "")
            known = len(list(folder.iterdir()))  # these are read again each time, and not counted
            bounds = [] if parser in LARGE else [f"-max_len={self.longest(parser)}", f"-runs={known + self.inputs - inputs}"]
            done = self.fuzzer.learn(parser, f"-max_total_time={int(left)}", *bounds)
            edges = done.edges
            self.note(parser, max(0, done.inputs - known), done.seconds)
            if done.code:
                return done


def in_short(done):
    """Reason, place and input of a defect, at the end of the output, because logs may be truncated at the start."""
    told = re.findall(r"^(?:does not hold|an internal error|slow|SUMMARY|.*runtime error|.*ERROR): .*", done.text, re.M)
    places = re.findall(r" in (lockstep::.*)", done.text)[:4]
    paths = [pathlib.Path(path) for path in re.findall(r"^(?:Running:|.*Test unit written to) (.*)", done.text, re.M)]
    inputs = [f"{path.name}, in base64: {base64.b64encode(path.read_bytes()[:4096]).decode()}" for path in paths[-1:] if path.is_file()]
    return "\n".join([f"{done.parser}: exit code {done.code}", *told, *places, *inputs])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="random seed; 0: different in each run")
    parser.add_argument("--wild", action="store_true")
    parser.add_argument("--parsers", default="")
    parser.add_argument("--input", type=pathlib.Path)
    parser.add_argument("-j", type=int, default=os.cpu_count())
    options = parser.parse_args()
    fuzzer = Fuzzer(options.build, options.wild, options.seed)
    known = fuzzer.names()
    names = options.parsers.split(",") if options.parsers else known
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"fuzz: no parser '{unknown[0]}': one of {', '.join(known)}")
    if options.input:
        done = fuzzer.run(names[0], str(options.input))
        print(done.text)
        return 1 if done.code else 0
    missing = sorted(set(names) - set(seeds.SEEDS))
    if missing:
        sys.exit(f"fuzz: {missing[0]} has no seeds in tests/fuzz/seeds.py")
    if options.inputs:
        campaign = Campaign(fuzzer, options.inputs, time.monotonic() + options.hours * 3600 if options.hours else math.inf)
        work = campaign.fuzz
        signal.signal(signal.SIGINT, campaign.end)
        signal.signal(signal.SIGTERM, campaign.end)
    else:
        seconds = options.seconds or int(options.hours * 3600 * options.j / len(names))
        work = functools.partial(fuzzer.fuzz, seconds=seconds)
    failed, inputs = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for done in pool.map(work, names):
            inputs += done.inputs
            print(f"{done.parser:16} {done.inputs:12,} inputs {done.inputs / max(done.seconds, 0.01):9,.0f}/s {done.edges:7,} edges  "
                  f"{'a defect' if done.code else 'sound'}", flush=True)
            if done.code:
                failed.append(done)
                print("\n".join(done.text.splitlines()[-60:]), flush=True)
    for done in failed:
        print(in_short(done))
    print(f"{inputs:,} inputs, {len(names)} parsers, {len(failed)} with a defect{': ' + ', '.join(done.parser for done in failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
