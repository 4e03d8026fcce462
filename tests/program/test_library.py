"""Builds and runs examples/vision against an installed Lockstep, on one rank and on two."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import PROGRAM, SOURCE, environment, long, losses

sys.path.insert(0, str(SOURCE / "tests" / "null_gpu"))
import pretend  # noqa: E402

BUILD = pathlib.Path(PROGRAM).parent
PAGE = SOURCE / "docs" / "library.md"


def run(*command, **variables):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=600, check=False, env=environment(**variables))


@long  # compiles a separate project
class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-library-"))
        # Fixed paths, so that ccache recognizes the compilation.
        cls.prefix, cls.build = BUILD / "installed", BUILD / "vision"
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        for command in (
            ["cmake", "--install", BUILD, "--prefix", cls.prefix],
            ["cmake", "-S", SOURCE / "examples" / "vision", "-B", cls.build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", *launcher],
            ["cmake", "--build", cls.build],
        ):
            done = run(*command)
            assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        cls.launch = [cls.prefix / "bin" / "lockstep", "launch", "--nproc-per-node", "2"]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def train(self, *command):
        done = run(*command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_two_ranks_train_as_one(self):
        one, two = self.folder / "one", self.folder / "two"
        self.train(self.build / "vision", one)
        self.train(*self.launch, self.build / "vision", two)
        expected, seen = losses(one), losses(two)
        self.assertEqual(len(seen), 24)
        self.assertLess(expected[-1], 0.2 * expected[0])
        for a, b in zip(expected, seen):
            self.assertAlmostEqual(a, b, delta=1e-4)

        # A run that lost its last epoch resumes on another number of ranks.
        last = sorted(one.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[-1]
        shutil.rmtree(last)
        self.train(*self.launch, self.build / "vision", one)
        again = losses(one)
        self.assertEqual(len(again), 24)
        for a, b in zip(expected, again):
            self.assertAlmostEqual(a, b, delta=1e-4)
        self.assertTrue((last / "model.safetensors").exists())

    def test_a_failure_is_recorded_with_its_rank(self):
        occupied = self.folder / "file"
        occupied.write_text("")
        done = run(*self.launch, self.build / "vision", occupied)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 0", done.stderr)
        self.assertIn(str(occupied), done.stderr)

    def test_installation_without_libtorch_is_reported(self):
        done = run("cmake", "-S", SOURCE / "examples" / "vision", "-B", self.folder / "elsewhere",
                   f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DLOCKSTEP_LIBTORCH={self.folder}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("-DLOCKSTEP_LIBTORCH=FOLDER", done.stderr)

    def test_both_find_gpus(self):
        libraries = BUILD / "null_gpu"
        if not pretend.libraries(libraries):
            self.skipTest(f"no null GPU in {libraries}")
        for name, command in {"program": [self.launch[0], "selftest"], "project": [self.build / "vision", self.folder / "run"]}.items():
            with self.subTest(name):
                reports = self.folder / f"{name}.reports"
                done = run(*command, **pretend.variables(libraries, reports, 1))
                report, = pretend.read_reports(reports)  # each process that used a GPU left one report
                self.assertGreater(report["counts"]["launches"], 100, done)

    def test_the_page_shows_the_program_that_is_compiled(self):
        shown = re.search(r"```cpp\n(// Trains.*?)```", PAGE.read_text(), re.S)[1]
        self.assertEqual(shown, (SOURCE / "examples" / "vision" / "train.cpp").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
