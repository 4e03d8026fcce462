#!/usr/bin/env python3
"""Builds targets with Ninja, and shows the progress in files and the approximate remaining time.

  tools/build.py FOLDER [-j N] [TARGET...]     the last line contains the wall time and the processor time
  tools/build.py FOLDER --times                time of the last builds by module, and the ten slowest files
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import time

HEADERS = 60_000  # cost of libtorch's headers, in bytes of Lockstep's code
STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-j", "--jobs", default="2")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("targets", nargs="*", default=[])
    return parser.parse_intermixed_args()


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def weight(folder, output):
    """Estimated work in bytes: the size of a file, or of the files that a unity file includes."""
    source = folder / output.removesuffix(".o")
    united = re.findall(r'#include "([^"]+)"', source.read_text()) if source.exists() else []
    # A file that was renamed since the last configuration is missing: Ninja reconfigures.
    return HEADERS + sum(path.stat().st_size for path in map(pathlib.Path, united) if path.exists())


def missing(folder, targets):
    """Output -> weight, for object files that do not exist yet."""
    commands = subprocess.run(
        ["ninja", "-C", str(folder), "-t", "commands", *targets], capture_output=True, text=True
    ).stdout
    outputs = {output for output in re.findall(r" -o (\S+\.(?:o|gch))\b", commands) if not (folder / output).exists()}
    return {output: weight(folder, output) for output in outputs}


def build(options):
    command = ["ninja", "-C", str(options.folder), "-j", options.jobs, *options.targets]
    left = missing(options.folder, options.targets)
    total, began, on_terminal = sum(left.values()), time.monotonic(), sys.stdout.isatty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shown = False
    for line in process.stdout:
        match = STEP.match(line)
        if not match:
            if not line.startswith(("ninja: Entering", "ninja: no work")):
                print(("\n" if shown else "") + line, end="", flush=True)
                shown = False
            continue
        left.pop(match[3].split(" ")[-1], None)
        passed, done = time.monotonic() - began, total - sum(left.values())
        guess = f", about {duration(passed * sum(left.values()) / done)} left" if passed > 10 and done > 0 and left else ""
        text = f"building: {match[1]} of {match[2]} steps in {duration(passed)}{guess}"
        if on_terminal:
            print(f"\r\x1b[K{text}", end="", flush=True)
            shown = True
        elif passed > 10 or match[1] == match[2]:
            print(text, flush=True)
    code = process.wait()
    passed = time.monotonic() - began
    if shown:
        print()
    if code == 0 and passed > 10:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"built in {duration(passed)}, of processor time {duration(used.ru_utime + used.ru_stime)}")
    return code


def show_times(folder):
    """Prints the time of the last build of each output: wall time, which on a busy machine exceeds processor time."""
    outputs = {}
    for line in (folder / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        outputs[output] = (int(end) - int(begin)) / 1000
    modules = {}
    for output, seconds in outputs.items():
        match = re.match(r"(?:.*/)?CMakeFiles/(?:lockstep_)?([^/]+)\.dir/", output)
        module = match[1] if match else "linking and other"
        modules[module] = modules.get(module, 0) + seconds
    print(f"all steps together: {duration(sum(outputs.values()))}\nby module:")
    for module, seconds in sorted(modules.items(), key=lambda item: -item[1]):
        if seconds >= 1:
            print(f"  {seconds:7.1f} s  {module}")
    print("the ten slowest files:")
    for output, seconds in sorted(outputs.items(), key=lambda item: -item[1])[:10]:
        print(f"  {seconds:7.1f} s  {output}")
    return 0


def main():
    options = parse()
    return show_times(options.folder) if options.times else build(options)


if __name__ == "__main__":
    sys.exit(main())
