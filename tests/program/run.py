#!/usr/bin/env python3
"""Runs the tests of one file for CTest: only those marked `@long` (harness.py), or all others.

  tests/program/run.py short|long test_x.py
  tests/program/run.py list test_x.py...     prints "test_x short" and "test_x long" for the kinds that each file contains

Exits with 77, CTest's code for a skipped test, if all tests were skipped.
"""

import importlib
import os
import pathlib
import sys
import unittest

SKIPPED = 77


class Loader(unittest.TestLoader):
    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted

    def getTestCaseNames(self, case):
        is_long = getattr(case, "long", False)
        return [
            name
            for name in super().getTestCaseNames(case)
            if (is_long or getattr(getattr(case, name), "long", False)) == (self.wanted == "long")
        ]


def load(wanted, path):
    path = pathlib.Path(path)
    sys.path.insert(0, str(path.resolve().parent))
    return Loader(wanted).loadTestsFromModule(importlib.import_module(path.stem))


def list_kinds(paths):
    os.environ.setdefault("LOCKSTEP_PROGRAM", "none")  # harness.py requires it; no program is run
    for path in paths:
        for wanted in ("short", "long"):
            if load(wanted, path).countTestCases() > 0:
                print(pathlib.Path(path).stem, wanted)
    return 0


def run(wanted, path):
    tests = load(wanted, path)
    if tests.countTestCases() == 0:
        print(f"{path}: no {wanted} tests")
        return 1
    result = unittest.TextTestRunner().run(tests)
    for test, reason in result.skipped:
        print(f"SKIPPED {test.id()}: {reason}")
    if not result.wasSuccessful():
        return 1
    # A class or module that is skipped as a whole is counted in `skipped` but not in `testsRun`.
    skipped = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    return SKIPPED if result.skipped and skipped == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(list_kinds(sys.argv[2:]) if sys.argv[1] == "list" else run(sys.argv[1], sys.argv[2]))
