#!/usr/bin/env python3
"""Generates the table of supported features per model family from the tests: a column is a test, a row one of its cases.

  tools/support_table.py FOLDER            write the table to docs/models.md; FOLDER is a build folder with tests
  tools/support_table.py FOLDER --check    fail if docs/models.md differs
"""

import argparse
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- by tools/support_table.py -->\n", "<!-- end -->\n"
COLUMNS = [  # column, test program, suite, test
    ("train", "nn_test", "Nn/EveryFamily", "LearnsAloneToCopy"),
    ("tensor", "parallel_test", "FamilyPlans", "Tensor"),
    ("sequence", "parallel_test", "FamilyPlans", "Sequence"),
    ("context", "parallel_test", "FamilyPlans", "Context"),
    ("pipeline", "parallel_test", "FamilyPlans", "Pipeline"),
    ("expert", "parallel_test", "FamilyOfExperts", "Spread"),
    ("ZeRO", "parallel_test", "FamilyPlans", "Zero"),
    ("LoRA", "parallel_test", "FamilyPlans", "LowRank"),
    ("4-bit", "parallel_test", "FamilyPlans", "FourBit"),
    ("classification", "parallel_test", "FamilyPlans", "Classifier"),
    ("documents in a row", "parallel_test", "FamilyOfOneStack", "Documents"),
    ("generate", "nn_test", "Nn/EveryDecoder", "GeneratesWithTheCacheAsWithout"),
]


def tests_of(program):
    """Names of a program's tests: {(suite, test, case)}."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    found, suite = set(), ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = name.rstrip(".").removeprefix("Long/").removeprefix("Parallel/")
        elif "/" in name:
            found.add((suite, *name.split("/", 1)))
    return found


def table(folder):
    tests = {program: tests_of(folder / program) for program in {column[1] for column in COLUMNS}}
    families = sorted({case for program, of in ((column[1], column[2:]) for column in COLUMNS)
                       for suite, test, case in tests[program] if (suite, test) == of})
    lines = ["| family | " + " | ".join(column[0] for column in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for family in families:
        marks = ["yes" if (suite, test, family) in tests[program] else "" for _, program, suite, test in COLUMNS]
        lines.append(f"| {family} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text, made = PAGE.read_text(), table(arguments.folder)
    found = re.search(re.escape(BEGIN) + "(.*?)" + re.escape(END), text, re.S)
    if found is None:
        sys.exit(f"{PAGE.name} has no markers for the table: {BEGIN.strip()} ... {END.strip()}")
    if not arguments.check:
        PAGE.write_text(text[:found.start(1)] + made + text[found.end(1):])
    elif found[1] != made:
        sys.exit(f"docs/models.md differs from the tests; run: tools/support_table.py {arguments.folder}")


if __name__ == "__main__":
    main()
