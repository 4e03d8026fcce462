#!/usr/bin/env python3
"""Runs tests and the fuzzer's inputs with sanitizers: the modules without libtorch, and comm.

  tools/sanitizers.py targets address|thread          print the targets to build
  tools/sanitizers.py run address|thread BUILD [-j N]  run them; exits with 1 if a test fails or a sanitizer reports an error

address: ASan with leak detection and UBSan, for code that reads untrusted bytes or communicates, in the build of `make fuzz` or of GCC. Modules
that only compute with integers (mesh, schedule, plan, metrics) are omitted.
thread: TSan for the modules that have threads, with the tests that cmake/Module.cmake names. comm's ranks are threads that share one mapping of
their memory; TSan does not see libtorch's own accesses (tests/tsan.supp).
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULES = {
    "address": ["base", "config", "text", "jinja", "model", "data", "monitor", "watch", "launch"],
    "thread": ["base", "data", "comm", "launch"],
}
# Tests that sanitizer builds skip, with the reasons.
SLOW = "it takes half a minute without optimization, and the fuzzer reads such inputs"
LEFT_OUT = {
    "text": {"*.IsQuickOn*": "it bounds a time"},
    "jinja": {"Template.IsBounded": SLOW},
    "model": {"ModelConfig.DamagedTexts*": SLOW},
    "comm": {
        "SharedMemory.ProcessesReadEachOthersMemory": "it forks after starting threads, which TSan does not support",
        "SharedMemory.AKilledProcessIsSeen": "likewise",
    },
    "launch": {
        "FailureList.FitsIntoAMessage*": SLOW,
        "Nodes.*": "their workers use libtorch, in network namespaces",
        "JobStore.AThousand*": "the clients use libtorch",
        "Python.*": "only `make parity` has the torch package",
    },
}


def programs(kind):
    return [f"{module}_test" for module in MODULES[kind]] + (["fuzz_parsers"] if kind == "address" else [])


REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error:")
FAILURE = re.compile(r"Failure$|FAILED|Sanitizer|runtime error:")


def excerpt(output):
    """Returns the lines around failures and reports, and the last lines."""
    lines = output.splitlines()
    near = {n for at, line in enumerate(lines) if FAILURE.search(line) for n in range(at - 2, at + 40)}
    return [line for n, line in enumerate(lines) if n in near or n >= len(lines) - 20][:300]


def command(build, program):
    if program == "fuzz_parsers":
        return [sys.executable, str(ROOT / "tools" / "fuzz.py"), str(build), "-j", "1"]
    left_out = LEFT_OUT.get(program.removesuffix("_test"), {})
    return [str(build / program), "--gtest_brief=1", f"--gtest_filter=-{':'.join(left_out)}"]


def run(build, program):
    environment = {
        **os.environ,
        # The program itself reports the SIGBUS of a truncated file.
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:handle_sigbus=0:max_allocation_size_mb=4096",
        "UBSAN_OPTIONS": "print_stacktrace=1", "LSAN_OPTIONS": "print_suppressions=0",
        "TSAN_OPTIONS": f"second_deadlock_stack=1:handle_sigbus=0:suppressions={ROOT / 'tests' / 'tsan.supp'}"}
    began = time.monotonic()
    done = subprocess.run(command(build, program), cwd=build, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace", text=True)
    return program, done.returncode, time.monotonic() - began, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("targets", "run"))
    parser.add_argument("kind", choices=sorted(MODULES))
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.what == "targets":
        print(" ".join(programs(options.kind)))
        return 0
    if options.build is None:
        parser.error("`run` requires the build folder")
    failed, again = [], []
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        names = reversed(programs(options.kind))  # the slowest are last
        build = options.build.resolve()
        for program, code, seconds, said in pool.map(lambda name: run(build, name), names):
            print(f"{program:14} {seconds:6.1f} s  {'sound' if code == 0 else 'a defect'}", flush=True)
            if code:
                failed.append(program)
                print("\n".join(excerpt(said)), flush=True)
                # Without a sanitizer's report a test failed, perhaps because other programs used the processors.
                again.extend([] if REPORT.search(said) else [program])
    for program in again:
        _, code, seconds, said = run(build, program)
        print(f"{program:14} {seconds:6.1f} s  {'sound' if code == 0 else 'a defect'}, run again alone", flush=True)
        if code == 0:
            failed.remove(program)
        else:
            print("\n".join(excerpt(said)), flush=True)
    if failed:
        print(f"sanitizers ({options.kind}): {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
