"""The Python wheel: built, installed into a fresh environment next to a torch, and used."""

import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import unittest
import zipfile

from harness import PROGRAM, SOURCE, ProgramTest, long

sys.path.insert(0, str(SOURCE / "tools"))
import elf  # noqa: E402
import make_wheel  # noqa: E402

BUILD = pathlib.Path(PROGRAM).parent


def run(*command, **options):
    """Runs a command without environment variables that could locate libtorch."""
    options.setdefault("env", {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"})
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Wheel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.libtorch = pathlib.Path(make_wheel.cache_of(BUILD)["LIBTORCH"])
        cls.wheel = pathlib.Path(run(sys.executable, SOURCE / "tools/make_wheel.py", BUILD, "--output", cls.folder).strip())

    def fresh_environment(self, name):
        """Virtual environment with the wheel and without torch; returns its Python and site-packages."""
        folder = self.folder / name
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        python = folder / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps",
            "--disable-pip-version-check", self.wheel)
        return python, pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def put_torch_beside(self, site):
        (site / "torch").symlink_to(self.libtorch)
        if (self.libtorch.parent / "nvidia").exists():
            (site / "nvidia").symlink_to(self.libtorch.parent / "nvidia")

    def test_trains_and_generates_with_an_installed_torch(self):
        python, site = self.fresh_environment("beside")
        self.put_torch_beside(site)
        run(python, "-m", "lockstep", *self.train_arguments("run", ranks=2, steps=2), cwd=self.folder)
        text = run(python.parent / "lockstep", "generate", "--model", "run", "--prompt", "Once", "--max-new-tokens", "4",
                   cwd=self.folder)
        self.assertTrue(text.startswith("Once"), text)
        # Files that the loader reads contain no path of the build machine.
        for path in [*(site / "lockstep" / "bin").iterdir(), *(site / "lockstep" / "lib").glob("*.so")]:
            for folder in elf.Elf(path).runpath():
                self.assertTrue(folder.startswith("$ORIGIN/"), f"{path}: {folder}")

    def test_unsuitable_torch_is_reported(self):
        python, site = self.fresh_environment("unsuitable")
        version = make_wheel.torch_version(self.libtorch)

        def refused(program):
            done = subprocess.run([program, "generate", "--help"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            return done.stderr

        text = refused(python.parent / "lockstep")
        self.assertEqual(
            text, f"lockstep: this package requires torch {version}, and no torch is installed: run `pip install torch=={version}`\n")
        (site / "torch" / "lib").mkdir(parents=True)
        (site / "torch" / "lib" / "libtorch_cpu.so").touch()
        (site / "torch" / "version.py").write_text("__version__ = '1.2.3+cu9'\n")
        text = refused(python.parent / "lockstep")
        self.assertTrue(text.startswith(f"lockstep: this package requires torch {version}, but torch 1.2.3 is installed in "), text)
        script = (
            "import lockstep\n"
            "print(lockstep.run(['generate', '--help'], check=False))\n"
            "try:\n    lockstep.run(['generate', '--help'])\n"
            "except lockstep.Failure as failure:\n    print(failure.code, failure)\n")
        lines = run(python, "-c", script).splitlines()
        self.assertEqual(lines[0], "3")
        self.assertIn("ended with 3: this package requires torch", lines[1])

    @long
    def test_it_finds_a_torch_elsewhere(self):
        python, site = self.fresh_environment("elsewhere")
        (site / "other.pth").write_text(f"{self.libtorch.parent}\n")
        script = (
            "import lockstep, pathlib\n"
            "print(lockstep.libtorch_path())\n"
            "print(pathlib.Path(lockstep.library_path(), 'lib/cmake/lockstep/lockstepConfig.cmake').exists())\n"
            "print(lockstep.launch(['--nproc-per-node', 2, 'train', '--help'], capture_output=True))\n"
            "print(lockstep.run(['generate', '--help'], capture_output=True))\n"
            "try:\n    lockstep.run(['train', 'model.path=missing'], capture_output=True)\n"
            "except lockstep.Failure as failure:\n    print(failure.code, failure)\n")
        lines = run(python, "-c", script).splitlines()
        self.assertEqual(lines[:4], [str(self.libtorch), "True", "0", "0"])
        self.assertEqual(lines[4], "2 `lockstep train model.path=missing` ended with 2: usage or configuration")

    def test_record_lists_the_contents(self):
        with zipfile.ZipFile(self.wheel) as archive:
            self.assertIsNone(archive.testzip())
            record = next(name for name in archive.namelist() if name.endswith("RECORD"))
            told = dict(line.split(",")[:2] for line in archive.read(record).decode().splitlines())
            self.assertEqual(set(told), set(archive.namelist()))
            for name, digest in told.items():
                if name != record:
                    seen = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
                    self.assertEqual(digest, "sha256=" + seen, name)
            text = archive.read(record.replace("RECORD", "METADATA")).decode()
        self.assertIn("lockstep/share/lockstep/deploy/kubernetes/runtime.yaml", told)
        self.assertIn(f"Requires-Dist: torch=={make_wheel.torch_version(self.libtorch)}\n", text)

    def test_unsuitable_search_path_is_refused(self):
        copy = self.folder / "copy"
        copy.write_bytes(pathlib.Path(PROGRAM).read_bytes())
        file = elf.Elf(copy)
        with self.assertRaisesRegex(ValueError, "does not fit"):
            file.set_runpath(["/long" * 100])
        file.set_runpath(["$ORIGIN"])
        file.save()
        self.assertEqual(elf.Elf(copy).runpath(), ["$ORIGIN"])
        self.assertIn("libc.so.6", elf.Elf(copy).needed())
        text = self.folder / "model.json"
        with self.assertRaisesRegex(ValueError, "no 64-bit"):
            elf.Elf(text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
