"""The self-test, on two ranks of this machine's processors."""

import json
import unittest

from harness import ProgramTest


class Selftest(ProgramTest):
    def test_everything_passes_and_is_written(self):
        result = self.run_ok("selftest", "--use-cpu", "--nproc", 2, "--json", "found.json")
        self.assertIn("on 2 ranks of the CPU", result.out)
        found = json.loads((self.folder / "found.json").read_text())
        checks = {check["name"]: check for check in found["checks"] if check["group"] != "machine"}
        self.assertEqual([name for name, check in checks.items() if not check["passed"]], [])
        for name in ("attention in windows, bfloat16", "AdamW", "ranks 0 and 1", "context parallelism", "captured steps"):
            self.assertIn(name, checks)
        self.assertGreater(checks["all-reduce"]["bytes_a_second"], 0)

    def test_what_it_does_not_know(self):
        self.assertIn("'all' is no option", self.run_fails(2, "selftest", "all").err)


if __name__ == "__main__":
    unittest.main()
