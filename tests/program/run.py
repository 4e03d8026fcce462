#!/usr/bin/env python3
"""Runs the tests of one file for CTest: those that are marked `@long` (harness.py) alone, or the others.

  tests/program/run.py short|long test_x.py
"""

import importlib
import pathlib
import sys
import unittest


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


if __name__ == "__main__":
    module = importlib.import_module(pathlib.Path(sys.argv[2]).stem)
    unittest.main(module, argv=sys.argv[:1], testLoader=Loader(sys.argv[1]))
