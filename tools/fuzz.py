#!/usr/bin/env python3
"""Fuzzes what reads bytes of unknown origin (tests/fuzz): libFuzzer with ASan and UBSan, memory limited.

  tools/fuzz.py BUILD                       replay every seed and every input that ever found a defect, nothing else
  tools/fuzz.py BUILD --seconds 20          and then 20 s each
  tools/fuzz.py BUILD --hours 4             and then 4 hours shared by all
  tools/fuzz.py BUILD --inputs 10000000     and then so many each
  tools/fuzz.py BUILD --wild ...            beginning with files of other packages as well, their tests' among them
  tools/fuzz.py BUILD --parsers yaml,http   those alone
  tools/fuzz.py BUILD --input FILE --parsers yaml    one input

What was learned is kept in BUILD/corpus for the next time. A defect's input is left in BUILD/found, and the exit code is 1.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import seeds  # noqa: E402

# Memory of a parser, and of one allocation of it, in MB: what is larger is a defect. A second for one input is one, too, but for
# patterns, whose time is bounded by themselves.
LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=256", "-timeout=10", "-max_len=16384"]
SLOW = {"regex": "-timeout=60", "tokenizer": "-timeout=60"}


class Fuzzer:
    def __init__(self, build, is_wild=False, seed=0):
        self.build, self.is_wild, self.seed = build.resolve(), is_wild, seed
        self.program = self.build / "fuzz_parsers"
        self.environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0:abort_on_error=0:max_allocation_size_mb=256",
                            "UBSAN_OPTIONS": "print_stacktrace=1"}

    def names(self):
        told = subprocess.run([self.program], capture_output=True, text=True, env={**self.environment, "LOCKSTEP_FUZZ_PARSER": ""})
        return re.findall(r"^parser (\w+)$", told.stderr, re.M)

    def run(self, parser, *arguments):
        limits = [SLOW[parser] if parser in SLOW and limit.startswith("-timeout") else limit for limit in LIMITS]
        found = self.build / "found"
        found.mkdir(exist_ok=True)
        done = subprocess.run(
            [self.program, *limits, f"-artifact_prefix={found}/{parser}-", "-print_final_stats=1", *arguments],
            env={**self.environment, "LOCKSTEP_FUZZ_PARSER": parser}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        executed = re.search(r"number_of_executed_units: *(\d+)", text)
        covered = re.findall(r"cov: (\d+)", text)
        return done.returncode, int(executed.group(1)) if executed else 0, int(covered[-1]) if covered else 0, text

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

    def fuzz(self, parser, seconds, inputs=0):
        folder = self.corpus(parser)
        given = sorted(p for p in folder.iterdir() if p.name.startswith(("seed-", "found-", "wild-")))
        code, executed, covered, text = self.run(parser, *map(str, given)) if given else (0, 0, 0, "")
        if code == 0 and (seconds > 0 or inputs > 0):
            code, executed, covered, text = self.run(parser, f"-max_total_time={seconds}", f"-runs={inputs or -1}",
                                                     f"-seed={self.seed}", str(folder))
        return parser, code, executed or len(given), covered, text


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
        code, _, _, text = fuzzer.run(names[0], str(options.input))
        print(text)
        return 1 if code else 0
    missing = sorted(set(names) - set(seeds.SEEDS))
    if missing:
        sys.exit(f"fuzz: {missing[0]} has no seeds in tests/fuzz/seeds.py")
    seconds = options.seconds or int(options.hours * 3600 * options.j / len(names))
    failed, inputs = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for name, code, executed, covered, text in pool.map(lambda each: fuzzer.fuzz(each, seconds, options.inputs), names):
            inputs += executed
            print(f"{name:16} {executed:12,} inputs {covered:7,} edges  {'a defect' if code else 'sound'}", flush=True)
            if code:
                failed.append(name)
                print("\n".join(text.splitlines()[-60:]), flush=True)
    print(f"{inputs:,} inputs, {len(names)} parsers, {len(failed)} with a defect{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
