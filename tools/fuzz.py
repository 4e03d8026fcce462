#!/usr/bin/env python3
"""Fuzzes what reads bytes of unknown origin (tests/fuzz): libFuzzer with ASan and UBSan, memory limited.

  tools/fuzz.py BUILD                       replay every seed and every input that ever found a defect, nothing else
  tools/fuzz.py BUILD --seconds 20          and then 20 s each
  tools/fuzz.py BUILD --hours 4             and then 4 hours shared by all
  tools/fuzz.py BUILD --inputs 10000000     a campaign: so many new inputs of each, and of those that read few (LARGE) for so long. What was
                                            read is counted in BUILD/corpus/campaign.json, and the same program goes on where it was
                                            interrupted; --hours bounds this run of it
  tools/fuzz.py BUILD --wild ...            beginning with files of other packages as well, their tests' among them
  tools/fuzz.py BUILD --parsers yaml,http   those alone
  tools/fuzz.py BUILD --input FILE --parsers yaml    one input

What was learned is kept in BUILD/corpus for the next time. A defect's input is left in BUILD/found, and the exit code is 1.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import seeds  # noqa: E402

# Memory of a parser, and of one allocation of it, in MB: what is larger is a defect. A second for one input is one, too, but for
# patterns, whose time is bounded by themselves.
LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=256", "-timeout=10", "-max_len=16384", "-print_funcs=0"]
SLOW = {"regex": "-timeout=60", "tokenizer": "-timeout=60"}
# Of a campaign: the time of those that are large, talk over sockets or bound their time themselves, in seconds; the longest input of the
# others; and after how many seconds what was read is noted.
LARGE = {"tokenizer": 3600, **dict.fromkeys(("configuration", "command_line", "deepspeed", "regex", "strangers", "member"), 600)}
SHORT = "-max_len=2048"
SLICE = 60
CHECKS = "detect_leaks=1:allocator_may_return_null=0:abort_on_error=0:max_allocation_size_mb=256"
# While new inputs are read, memory that was freed waits behind 1 MiB of others, so that it is still in the processor's cache when it
# comes back, and who asked for it is not noted: twice as many inputs. A defect's input is read again without these.
QUICK = CHECKS + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1"

Done = collections.namedtuple("Done", "parser code inputs seconds edges text")


class Fuzzer:
    def __init__(self, build, is_wild=False, seed=0):
        self.build, self.is_wild, self.seed = build.resolve(), is_wild, seed
        self.program = self.build / "fuzz_parsers"
        self.environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}

    def names(self):
        told = subprocess.run([self.program], capture_output=True, text=True, env={**self.environment, "LOCKSTEP_FUZZ_PARSER": ""})
        return re.findall(r"^parser (\w+)$", told.stderr, re.M)

    def run(self, parser, *arguments, checks=CHECKS):
        limits = [SLOW[parser] if parser in SLOW and limit.startswith("-timeout") else limit for limit in LIMITS]
        found = self.build / "found"
        found.mkdir(exist_ok=True)
        began = time.monotonic()
        done = subprocess.run(
            [self.program, *limits, f"-artifact_prefix={found}/{parser}-", "-print_final_stats=1", *arguments],
            env={**self.environment, "ASAN_OPTIONS": checks, "LOCKSTEP_FUZZ_PARSER": parser}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        executed = re.search(r"number_of_executed_units: *(\d+)", text)
        covered = re.findall(r"cov: (\d+)", text)
        return Done(parser, done.returncode, int(executed.group(1)) if executed else 0, time.monotonic() - began,
                    int(covered[-1]) if covered else 0, text)

    def learn(self, parser, *arguments):
        """New inputs, and what is learned of them into the corpus; what is told of a defect is of its input alone."""
        done = self.run(parser, "-entropic_scale_per_exec_time=1", *arguments, str(self.build / "corpus" / parser), checks=QUICK)
        kept = re.findall(r"Test unit written to (.*)", done.text)
        again = self.run(parser, kept[-1]) if kept else done
        return done._replace(text=again.text) if again.code else done

    def corpus(self, parser):
        """Its folder, with the seeds in it."""
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
    """So many inputs of each parser in all runs of one program together; of LARGE so many seconds."""

    def __init__(self, fuzzer, inputs, until):
        self.fuzzer, self.inputs, self.until = fuzzer, inputs, until
        self.path, self.lock = fuzzer.build / "corpus" / "campaign.json", threading.Lock()
        program = hashlib.sha256(fuzzer.program.read_bytes()).hexdigest()[:16]
        self.read = json.loads(self.path.read_text()) if self.path.exists() else {}
        if self.read.get("program") != program:
            self.read = {"program": program, "inputs": {}, "seconds": {}}

    def note(self, parser, inputs, seconds):
        with self.lock:
            for kind, more in (("inputs", inputs), ("seconds", seconds)):
                self.read[kind][parser] = self.read[kind].get(parser, 0) + more
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.read, indent=1))
            new.replace(self.path)

    def fuzz(self, parser):
        """As Fuzzer.fuzz; what is told is of the whole campaign."""
        folder, edges = self.fuzzer.corpus(parser), 0
        while True:
            inputs, seconds = (self.read[kind].get(parser, 0) for kind in ("inputs", "seconds"))
            left = min(LARGE[parser] - seconds if parser in LARGE else SLICE, SLICE, self.until - time.monotonic())
            if left < 1 or (parser not in LARGE and inputs >= self.inputs):
                return Done(parser, 0, inputs, seconds, edges, "")
            known = len(list(folder.iterdir()))  # those are read again each time, and not counted
            bounds = [] if parser in LARGE else [SHORT, f"-runs={known + self.inputs - inputs}"]
            done = self.fuzzer.learn(parser, f"-max_total_time={int(left)}", *bounds)
            edges = done.edges
            self.note(parser, max(0, done.inputs - known), done.seconds)
            if done.code:
                return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn; 0: another each time")
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
                failed.append(done.parser)
                print("\n".join(done.text.splitlines()[-60:]), flush=True)
    print(f"{inputs:,} inputs, {len(names)} parsers, {len(failed)} with a defect{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
