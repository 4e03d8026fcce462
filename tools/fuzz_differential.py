#!/usr/bin/env python3
"""Compares Lockstep's parsers with Python's libraries on the fuzzer's corpus: what Lockstep accepts the library must accept, and, for formats that
both support completely, the reverse.

  .deps/python/bin/python tools/fuzz_differential.py BUILD [--parsers json,safetensors] [--most 20000]

BUILD is the build folder of `make fuzz`, with its corpus. PARSERS lists the intended differences with their reasons; any other difference exits
with 1. Tokenizers and chat templates have their own random tests against Hugging Face's library and Jinja (tests/parity).
"""

import argparse
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys


def of_json(text):
    json.loads(text.decode("utf-8"), parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))


def of_safetensors(text):
    import safetensors
    safetensors.deserialize(text)


def of_csv(text):
    # Readers of individual fields check for valid UTF-8.
    list(csv.reader(io.StringIO(text.decode("utf-8", "replace").removeprefix("\ufeff"), newline=""), strict=True))


# Parser -> the library's reader; reasons for which Lockstep rejects what the library accepts (words
# of the error); reasons for which the library rejects what Lockstep accepts.
PARSERS = {
    "json": (of_json, [r"twice|again", r"deep|nest", r"UTF-8|surrogate|\\ud[89a-f]", r"number|range|large|out of"], []),
    "safetensors": (of_safetensors, [r".*"], [r"header too large"]),
    "csv": (of_csv, [r".*"], [r"field larger"]),
}


def ours(program, parser, files):
    """File -> reason of its rejection; None if it is accepted."""
    environment = {**os.environ, "LOCKSTEP_FUZZ_PARSER": parser, "LOCKSTEP_FUZZ_TELL": "1",
                   "ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=256"}
    told = {}
    for at in range(0, len(files), 500):
        some = files[at:at + 500]
        done = subprocess.run([program, "-detect_leaks=0", *map(str, some)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/tmp")
        said = re.findall(r"^told (\d+) (taken|refused)(.*)$", done.stdout.decode(errors="replace"), re.M)
        said = said[-len(some):]
        if done.returncode != 0 or [int(size) for size, _, _ in said] != [path.stat().st_size for path in some]:
            sys.exit(f"{parser}: output is missing\n{done.stdout.decode(errors='replace')[-2000:]}")
        told.update({path: None if word == "taken" else why for path, (_, word, why) in zip(some, said)})
    return told


def compare(parser, told):
    read, we_refuse, they_refuse = PARSERS[parser]
    both, neither, odd = 0, 0, []
    only_ours, only_theirs = 0, 0
    for path, why in told.items():
        try:
            read(path.read_bytes())
            theirs = None
        except Exception as error:  # a library may throw any exception
            theirs = f"{type(error).__name__}: {error}"
        if why is None and theirs is None:
            both += 1
        elif why is not None and theirs is not None:
            neither += 1
        elif why is None:
            only_ours += 1
            if not any(re.search(reason, theirs) for reason in they_refuse):
                odd.append(f"{path}: Lockstep accepts it, but the library reports: {theirs}")
        else:
            only_theirs += 1
            if not any(re.search(reason, why, re.I) for reason in we_refuse):
                odd.append(f"{path}: the library accepts it, but Lockstep reports: {why}")
    print(f"{parser:14} {len(told):7,} inputs: {both:,} taken by both, {neither:,} by neither, {only_ours:,} by us alone, "
          f"{only_theirs:,} by them alone; {len(odd)} without a reason", flush=True)
    return odd


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--parsers", default=",".join(PARSERS))
    parser.add_argument("--most", type=int, default=20000)
    options = parser.parse_args()
    odd = []
    for name in options.parsers.split(","):
        files = sorted((options.build / "corpus" / name).glob("*"))[:options.most]
        odd += compare(name, ours(options.build.resolve() / "fuzz_parsers", name, files)) if files else []
    print("\n".join(odd[:30]))
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
