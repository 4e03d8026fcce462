"""Runs the commands of test_gpu.py on emulated GPUs that compute nothing (tests/null_gpu/README.md). Each command must complete; values
are not compared. Skipped if the emulated GPUs are not built."""

import pathlib
import sys
import tempfile
import threading
import unittest

import test_gpu
from harness import SOURCE, ProgramTest, environment
from test_null_gpu import LIBRARIES

sys.path.insert(0, str(SOURCE / "tests" / "null_gpu"))
import pretend  # noqa: E402


@unittest.skipUnless(pretend.libraries(LIBRARIES), f"no null GPU in {LIBRARIES}; building it requires nvcc and the CUDA headers")
class OnPretendedGpus(test_gpu.OnGpus, ProgramTest):
    gpus = 2
    computes = False
    of_thread = threading.local()

    def environment(self):
        return environment(**pretend.variables(LIBRARIES, self.of_thread.reports, self.gpus))

    def on_gpus(self, *arguments, code=0):
        """Checks that no call is refused and no operation runs out of order."""
        self.of_thread.reports = pathlib.Path(tempfile.mkdtemp(prefix="reports-", dir=self.folder))
        result = super().on_gpus(*arguments, code=code)
        for report in pretend.read_reports(self.of_thread.reports) if code == 0 else []:
            self.assertEqual(report["refused"], [], result)
        return result


if __name__ == "__main__":
    unittest.main(verbosity=2)
