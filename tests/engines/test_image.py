"""The Debian package, installed by the steps of deploy/Dockerfile in a fresh Debian, trains there as an ordinary user.

No Docker daemon is needed: the steps run in a chroot that debootstrap makes. What a daemon alone does (layers, the
network of a container) is not tested. Needs root, debootstrap and a Debian mirror, else it is skipped.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import CONFIG, PROGRAM, SOURCE, ProgramTest  # noqa: E402

BUILD = pathlib.Path(PROGRAM).parent
OBSTACLE = (
    "only root can make a chroot" if os.geteuid() != 0
    else "debootstrap is not installed" if shutil.which("debootstrap") is None
    else None)


def steps_of(text):
    """(word, rest) of each instruction, comments and line ends taken out."""
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return [line.split(maxsplit=1) for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@unittest.skipIf(OBSTACLE, OBSTACLE)
class Image(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-image-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.root.chmod(0o755)
        run(sys.executable, SOURCE / "tools/make_deb.py", BUILD, "--output", cls.folder)
        cls.variables, cls.settings = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, {}
        for word, rest in steps_of((SOURCE / "deploy/Dockerfile").read_text()):
            getattr(cls, f"do_{word.lower()}", lambda rest, word=word: cls.settings.update({word: rest}))(rest)

    @classmethod
    def do_from(cls, image):
        assert image == "debian:bookworm-slim", image
        run("debootstrap", "--variant=minbase", "bookworm", cls.root)

    @classmethod
    def do_copy(cls, words):
        pattern, place = words.split()
        for path in cls.folder.glob(pattern):
            shutil.copy(path, cls.root / place.lstrip("/"))

    @classmethod
    def do_run(cls, script):
        cls.inside("sh", "-c", script, user=None)

    @classmethod
    def do_env(cls, words):
        cls.variables.update(word.split("=", 1) for word in shlex.split(words))

    @classmethod
    def inside(cls, *command, user="1000:1000"):
        """In the chroot, with its own /proc, as that user. As a container's, the root folder belongs to root."""
        words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc=" + str(cls.root / "proc"), "chroot",
                 *([f"--userspec={user}"] if user else []), cls.root, *command]
        return run(*words, env=cls.variables)

    def test_it_trains_and_generates_as_an_ordinary_user(self):
        self.assertEqual(self.settings["USER"], "1000:1000")
        work = self.root / self.settings["WORKDIR"].strip("/")
        for name in ("corpus", "tokenizer"):
            shutil.copytree(self.folder / name, work / name)
        (work / "model.json").write_text(json.dumps(CONFIG))
        entry = json.loads(self.settings["ENTRYPOINT"])
        words = [*entry, "launch", "--nproc-per-node", "2", *(
            word for word in self.train_arguments("run", steps=2) if word not in ("--nproc", 1))]
        program = " ".join(map(shlex.quote, map(str, words)))
        health = json.loads(self.settings["HEALTHCHECK"].split("CMD ")[1])[0]
        # Asked of the launcher from within, as Docker does: it is process 1 of its namespace.
        begun = "until tr '\\0' '\\n' </proc/1/cmdline | grep -qx launch; do sleep 0.02; done"
        asking = f"for i in $(seq 200); do {health} 2>/dev/null && touch /tmp/healthy && break; sleep 0.05; done"
        watch = f"({begun}; {asking}) & exec {program}"
        self.inside("bash", "-c", f"cd {self.settings['WORKDIR']}\n{watch}")
        self.assertTrue((self.root / "tmp" / "healthy").exists())
        text = self.inside("bash", "-c", "cd /work && lockstep generate --model run --prompt Once --max-new-tokens 4")
        self.assertTrue(text.startswith("Once"), text)
        self.assertIn("usage", self.inside(*entry, *json.loads(self.settings["CMD"])).lower())


if __name__ == "__main__":
    unittest.main(verbosity=2)
