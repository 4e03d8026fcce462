#!/usr/bin/env python3
"""Runs CTest's tests that need neither a GPU nor Python's packages (`make parity` runs those) and are not labelled `long`
(`-L long`: those alone), and prints the ten that took longest. `make test` runs half as many more at once as there are
cores: they wait for one another's processes and clocks a quarter of the time.

With --again a test or two that failed are run once more, alone, and named if they pass then: such a test depends on what
runs beside it and is to be mended, but hides nothing of what else was tested. More than two are a failure at once.

  tools/run_tests.py FOLDER [--again] [CTest's own options: -j 2 -R name -L label]
"""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

MOST_AGAIN = 2


def main():
    folder, options = pathlib.Path(sys.argv[1]), sys.argv[2:]
    again = "--again" in options
    options = [option for option in options if option != "--again"]
    results = (folder / "tests.xml").absolute()
    excluded = "gpu|engines" if "long" in options else "gpu|long|engines"
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "--label-exclude", excluded,
               "--exclude-regex", r"^launch\.Python\."]
    code = subprocess.run([*command, "--output-junit", str(results), *options]).returncode
    if not results.exists():
        return code
    cases = list(xml.parse(results).iter("testcase"))
    print(f"the slowest of {len(cases)}, in seconds:")
    for case in sorted(cases, key=lambda case: -float(case.get("time", 0)))[:10]:
        print(f"  {float(case.get('time', 0)):6.1f}  {case.get('name')}")
    failed = [case.get("name") for case in cases if case.get("status") == "fail"]
    if code != 0 and again and 0 < len(failed) <= MOST_AGAIN:
        # By name: CTest's own --rerun-failed goes by numbers, which are others without the excluded labels.
        names = "|".join(re.sub(r"\W", ".", name) for name in failed)
        code = subprocess.run(["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "-R", f"^({names})$"]).returncode
        if code == 0:
            print(f"PASSED ONLY WHEN RUN AGAIN, ALONE, and to be mended: {', '.join(failed)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
