"""Installs the wheel into an empty environment: pip downloads its dependencies from the registry, and the quick start's commands run up to
generated text. Downloads gigabytes unless pip has cached them. The duration is printed but not asserted."""

import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import PROGRAM, SOURCE, ProgramTest  # noqa: E402

NO_REGISTRY = ("No matching distribution found", "Could not find a version", "connection broken", "No space left on device")


def first_commands():
    """Commands of docs/quick_start.md up to the first generated text."""
    text = "\n".join(re.findall(r"^```sh\n(.*?)^```", (SOURCE / "docs/quick_start.md").read_text(), re.M | re.S))
    return text[: text.index("\n", text.index("lockstep generate")) + 1]


class Pip(ProgramTest):
    def test_the_quick_start_from_pip_install_to_a_sentence(self):
        made = subprocess.run(
            [sys.executable, SOURCE / "tools/make_wheel.py", pathlib.Path(PROGRAM).parent, "--output", self.folder / "dist"],
            capture_output=True, text=True, check=True).stdout.strip()
        begun = time.monotonic()
        # Keeps only the variables that locate the registry, and none that could locate libtorch.
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "HOME"}
        env = {**kept, "PATH": "/usr/bin:/bin"}
        own = self.folder / "own"
        subprocess.run([sys.executable, "-m", "venv", own], env=env, check=True)
        installed = subprocess.run([own / "bin/pip", "install", "-q", made], env=env, capture_output=True, text=True, check=False)
        if installed.returncode != 0 and any(words in installed.stderr for words in NO_REGISTRY):
            self.skipTest(f"pip cannot download torch: {installed.stderr[-300:]}")
        self.assertEqual(installed.returncode, 0, installed.stderr)
        there = time.monotonic()
        work = self.folder / "work"
        work.mkdir()
        told = subprocess.run(["bash", "-euc", first_commands()], cwd=work, env={**env, "PATH": f"{own}/bin:/usr/bin:/bin"}, timeout=300,
                              capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stderr[-3000:])
        sentence = told.stdout[told.stdout.rindex("Once upon a time") :]
        self.assertGreater(len(sentence.split()), 6, told.stdout[-1000:])
        print(f"pip {there - begun:.0f} s, the quick start {time.monotonic() - there:.0f} s: {sentence.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
