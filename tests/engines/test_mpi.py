"""`mpirun` starts the launcher without options, one task per node or one per rank (Debian: openmpi-bin, mpich)."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import PROGRAM, ProgramTest, losses  # noqa: E402


class Mpi(ProgramTest):
    PROGRAM = "mpirun.openmpi"
    OPTIONS = ["--oversubscribe", "-x", "MASTER_ADDR"]

    @classmethod
    def setUpClass(cls):
        if shutil.which(cls.PROGRAM) is None:
            raise unittest.SkipTest(f"{cls.PROGRAM} is not installed (Debian: openmpi-bin, mpich)")
        super().setUpClass()

    def train_with_mpi(self, output, tasks, *words):
        environment = {**os.environ, "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MASTER_ADDR": "127.0.0.1"}
        training = [str(word) for word in self.train_arguments(output) if word not in ("train", "--nproc", 1)]
        done = subprocess.run(
            [self.PROGRAM, *self.OPTIONS, "-n", str(tasks), "lockstep", "launch", *words, "train", *training],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return losses(self.folder / output)

    def test_two_tasks_are_two_ranks(self):
        self.train("one", "per_device_train_batch_size=16")
        self.assert_close(losses(self.folder / "one"), self.train_with_mpi("two", 2), 1e-5)

    def test_one_task_starts_all_ranks(self):
        self.train("alone", "per_device_train_batch_size=16")
        self.assert_close(losses(self.folder / "alone"), self.train_with_mpi("agent", 1, "--nproc-per-node", "2"), 1e-5)


class Mpich(Mpi):
    PROGRAM = "mpirun.mpich"
    OPTIONS = []  # mpich passes the environment to all tasks


if __name__ == "__main__":
    unittest.main(verbosity=2)
