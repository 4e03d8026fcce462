#!/usr/bin/env python3
"""Runs CTest's tests that need neither a GPU nor Python's packages (`make parity` runs those) and are not labelled `long`
(`-L long`: those alone), and prints the ten that took longest. Half as many again as there are cores run at once, for a
test's processes wait for one another; and beside them one that mostly waits for a clock: it takes one of CTest's slots, and
others two (cmake/Module.cmake).

With --again a test or two that failed are run once more, alone, and named if they pass then: such a test depends on what
runs beside it and is to be mended, but hides nothing of what else was tested. More than two are a failure at once.

  tools/run_tests.py FOLDER [--cores N] [--again] [CTest's own options: -R name -L label]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

MOST_AGAIN = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true")
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
    if code != 0 and again and 0 < len(failed) <= MOST_AGAIN:
        # Selects by name, because CTest's --rerun-failed uses numbers that change with the excluded
        # labels.
        names = "|".join(re.sub(r"\W", ".", name) for name in failed)
        code = subprocess.run(["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "-R", f"^({names})$"]).returncode
        if code == 0:
            print(f"PASSED ONLY WHEN RUN AGAIN, ALONE, and to be mended: {', '.join(failed)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
