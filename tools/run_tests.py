#!/usr/bin/env python3
"""Runs CTest's tests that need neither a GPU nor Python's packages (`make parity` runs those) and are not labelled `long`,
and prints the ten that took longest. `make test` runs half as many more at once as there are cores: they wait for one
another's processes and clocks a quarter of the time.

  tools/run_tests.py FOLDER [CTest's own options: -j 2 -R name -L label]
"""

import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml


def main():
    folder, options = pathlib.Path(sys.argv[1]), sys.argv[2:]
    results = (folder / "tests.xml").absolute()
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error", "--label-exclude", "gpu|long|engines",
               "--exclude-regex", r"^launch\.Python\."]
    code = subprocess.run([*command, "--output-junit", str(results), *options]).returncode
    if results.exists():
        cases = [(float(case.get("time", 0)), case.get("name")) for case in xml.parse(results).iter("testcase")]
        print(f"the slowest of {len(cases)}, in seconds:")
        for seconds, name in sorted(cases, reverse=True)[:10]:
            print(f"  {seconds:6.1f}  {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
