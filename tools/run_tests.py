#!/usr/bin/env python3
"""Runs the CTest tests that need neither a GPU nor Python packages (`make parity` runs those) and are not labelled `long`
(`-L long`: only those), then prints the ten slowest and all skipped tests. One and a half times as many tests as cores run at
once, because processes of a test wait for each other, plus one test that mostly waits for a timer: it takes one of CTest's
slots, others take two (cmake/Module.cmake).

With --again, one or two failed tests run once more, alone, and are named if they pass then: such a test depends on what runs
alongside it and must be fixed, but hides nothing else. More than two failures fail at once.

  tools/run_tests.py FOLDER [--cores N] [--again] [--may-skip FILE] [CTest's own options: -R name -L label]
"""

import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

MOST_AGAIN = 2


def report_skipped(cases, may_skip):
    """Prints the skipped tests with their reasons; returns those that `may_skip` does not list, none if it is None."""
    skipped = {}
    for case in cases:
        if case.get("status") in ("notrun", "skipped"):
            output = case.findtext("system-out") or ""
            reasons = re.findall(r"SKIPPED [^:]+: (.+)|Skipped\n(.+)", output)
            skipped[case.get("name")] = next((first or second for first, second in reasons), "no reason is given")
    for name, reason in sorted(skipped.items()):
        print(f"skipped: {name}: {reason}")
    print(f"{len(cases) - len(skipped)} tests run, {len(skipped)} skipped")
    if may_skip is None:
        return []
    listed = [line.split("#")[0].strip() for line in may_skip.read_text().splitlines()]
    unexpected = sorted(name for name in skipped if not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed))
    for name in unexpected:
        print(f"FAILED: {name} was skipped, and {may_skip} does not list it")
    return unexpected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--may-skip", type=pathlib.Path, help="fail if a test that this file does not list is skipped")
    arguments, options = parser.parse_known_args()
    folder, again = arguments.folder, arguments.again
    results = (folder / "tests.xml").absolute()
    excluded = "gpu|engines" if "long" in options else "gpu|long|engines"
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "--label-exclude", excluded,
               "--exclude-regex", r"^launch\.Python\.", "-j", str(3 * arguments.cores + 1)]
    code = subprocess.run([*command, "--output-junit", str(results), *options]).returncode
    if not results.exists():
        return code
    cases = list(xml.parse(results).iter("testcase"))
    print(f"the slowest of {len(cases)}, in seconds:")
    for case in sorted(cases, key=lambda case: -float(case.get("time", 0)))[:10]:
        print(f"  {float(case.get('time', 0)):6.1f}  {case.get('name')}")
    failed = [case.get("name") for case in cases if case.get("status") == "fail"]
    unexpected = report_skipped(cases, arguments.may_skip)
    if code != 0 and again and 0 < len(failed) <= MOST_AGAIN:
        # Selects by name, because CTest's --rerun-failed uses numbers that change with the excluded
        # labels.
        names = "|".join(re.sub(r"\W", ".", name) for name in failed)
        code = subprocess.run(["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "-R", f"^({names})$"]).returncode
        if code == 0:
            print(f"PASSED ONLY WHEN RUN AGAIN, ALONE, and to be fixed: {', '.join(failed)}")
    return code or (1 if unexpected else 0)


if __name__ == "__main__":
    sys.exit(main())
