"""Runs every command in the documentation: the ```sh blocks of each page, in order, in a separate folder for each page.

Each folder starts with the files that `lockstep sample --examples` writes. `lockstep` is on the PATH. A script replaces `make` and only
checks that the target exists, because CI runs the targets. Another script replaces `ssh` and runs its command on this machine. Users run
the commands of a "```sh machines" block on every machine; the test runs each as two nodes at once, on addresses of this machine.

The tutorials run in one folder, in order. A ```text block after commands shows parts of their output. Its lines must occur in the output
in this order. Numbers with a decimal point may differ.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import PROGRAM, SOURCE, environment, free_port, lockstep, long

FRONT = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md"]
GUIDES = sorted([*(SOURCE / "docs").glob("*.md"), *(SOURCE / "docs" / "guides").glob("*.md")])
TUTORIALS = sorted((SOURCE / "docs" / "tutorials").glob("*.md"))
PAGES = [*FRONT, *GUIDES, *TUTORIALS]
MAKE = """#!/bin/sh
for word; do case $word in *=*) ;; *) set -- "$word"; exec /usr/bin/make -C {source} -n "$1" >/dev/null;; esac; done
"""
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec sh -c "$3"
"""


def commands_of(page):
    blocks = re.findall(r"^```sh( machines)?\n(.*?)^```", page.read_text(), re.M | re.S)
    return [on_two_machines(text) if machines else text for machines, text in blocks]


def on_two_machines(text):
    """Runs each command as node 0 in the background and as node 1, both on this machine with a free port."""
    script = []
    for command in (line for line in text.splitlines() if line and not line.startswith("#")):
        port = free_port()
        first = re.sub(r"10\.0\.0\.1(:\d+)?", lambda m: "127.0.0.1" + (f":{port}" if m[1] else ""), command)
        first = re.sub(r"--master-port \d+", f"--master-port {port}", first)
        # The test has two nodes, so the rendezvous does not wait for more.
        first = first.replace("--nnodes 2:8", "--nnodes 2:8 --rdzv-conf last_call_timeout=1")
        second = first.replace("--node-rank 0", "--node-rank 1")
        one_machine_starts_all = "--hostfile" in command
        script.append(first if one_machine_starts_all else f"{first} & {second}; wait $!")
    return "\n".join(script)


def shown_as_pattern(text):
    """A pattern of the lines, in order. Numbers with a decimal point, and the space before them, may differ."""
    lines = [re.sub(r"(\\ )+(\d+\\\.\d+)", lambda _: r"\s+[\d.]+", re.escape(line)) for line in text.splitlines() if line]
    return re.compile(".*".join(lines), re.S)


class Documentation(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.base = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-docs-"))
        tools = cls.base / "bin"
        tools.mkdir()
        (tools / "lockstep").symlink_to(PROGRAM)
        (tools / "make").write_text(MAKE.format(source=SOURCE))
        (tools / "ssh").write_text(SSH)
        for tool in ("make", "ssh"):
            (tools / tool).chmod(0o755)
        cls.path = f"{tools}:{os.environ['PATH']}"
        start = cls.base / "start"
        result = lockstep("sample", "--examples", start)
        assert result.code == 0, result
        shutil.copy(shutil.which("env"), start / "my_program")  # stands for a compiled program; prints its environment variables

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base, ignore_errors=True)

    def test_the_pages_that_are_read_first(self):
        self.run_pages(FRONT)

    @long
    def test_every_other_page(self):
        self.run_pages(GUIDES)

    @long
    def test_the_tutorials_print_what_they_show(self):
        folder = self.base / "tutorials"
        folder.mkdir()
        for page in TUTORIALS:
            blocks = re.findall(r"^```(sh|sh machines|text)\n(.*?)^```", page.read_text(), re.M | re.S)
            output = ""
            for kind, text in blocks:
                with self.subTest(page=page.name, text=text):
                    if kind == "text":
                        self.assertRegex(output, shown_as_pattern(text))
                        continue
                    done = self.run_script(folder, on_two_machines(text) if kind == "sh machines" else text)
                    output = done.stdout
                    self.assertEqual(done.returncode, 0, output[-3000:])

    def run_pages(self, pages):
        for page in pages:
            blocks = commands_of(page)
            if not blocks:
                continue
            with self.subTest(page=page.name):
                folder = self.base / page.stem
                shutil.copytree(self.base / "start", folder)
                done = self.run_script(folder, "\n".join(blocks))
                self.assertEqual(done.returncode, 0, f"{page}\n{done.stdout[-6000:]}")

    def run_script(self, folder, script):
        """Runs a script; its standard output and error output are one text, as on a terminal."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
            env=environment(PATH=self.path, XDG_CACHE_HOME=str(folder / ".cache")))

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_pages_are_short_lines_of_current_facts(self):
        for page in PAGES:
            prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
            for line in prose.splitlines():
                self.assertTrue(len(line) <= 200 or line.startswith(("|", "![")), f"{page.name}: {line}")
                self.assertNotRegex(line, r"\bmissed\)|\(wanted|\bwas before\b", page.name)

    def test_source_files_named_in_pages_exist(self):
        for page in PAGES:
            for path in re.findall(r"`((?:tests|examples|tools|src)/[\w./]+)`", page.read_text()):
                self.assertTrue((SOURCE / path).exists(), f"{page.name}: {path}")

    def test_the_readme_shows_the_example_that_is_compiled(self):
        shown = re.search(r"```cpp\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)[1]
        self.assertIn(shown, (SOURCE / "examples" / "ten_lines.cpp").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
