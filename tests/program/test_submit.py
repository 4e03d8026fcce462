"""`lockstep submit`: each engine's file is complete, and --send passes it to the engine's command, which a script replaces here. Real engines
are used in tests/engines."""

import os
import unittest

from harness import PROGRAM, ProgramTest, environment, losses
from test_docs import SSH

COMMANDS = {"slurm": ("sbatch", ".sbatch", []), "kubernetes": ("kubectl", ".yaml", ["create", "-f"]),
            "ray": ("ray", ".py", ["job", "submit", "--working-dir", ".", "--", "python"]), "ssh": ("bash", ".sh", [])}
# Records its arguments and exits with its own code.
ENGINE = "#!/bin/sh\nprintf '%s\\n' \"$@\" >given.txt\nexit 9\n"


class Submit(ProgramTest):
    def words(self, engine, *more):
        return ["submit", "--on", engine, "--nodes", "2", "--ranks-per-node", "1", "--hosts", "first,second", *more,
                *self.train_arguments("sent", steps=2)[3:]]

    def test_the_engines_command_gets_what_is_printed(self):
        for engine, (command, extension, before) in COMMANDS.items():
            with self.subTest(engine=engine):
                tools = self.folder / f"tools-{engine}"
                tools.mkdir()
                (tools / command).write_text(ENGINE)
                (tools / command).chmod(0o755)
                printed = self.run_ok(*self.words(engine)).out
                self.run_fails(9, *self.words(engine, "--send", "--name", "mine"), env=environment(PATH=f"{tools}:/usr/bin:/bin"))
                given = (self.folder / "given.txt").read_text().splitlines()
                self.assertEqual(given, [*before, f"submit-mine{extension}"])
                self.assertEqual((self.folder / given[-1]).read_text().replace("mine", "lockstep"), printed)

    def test_missing_engine(self):
        told = self.run_fails(3, *self.words("kubernetes", "--send"), env=environment(PATH="/nowhere"))
        self.assertIn("cannot run kubectl: No such file or directory", told.err)
        self.assertIn("submit-lockstep.yaml is written", told.err)

    def test_training_on_two_machines_by_ssh(self):
        """Both machines are this one."""
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "lockstep").symlink_to(PROGRAM)
        (tools / "ssh").write_text(SSH)
        (tools / "ssh").chmod(0o755)
        self.run_ok(*self.words("ssh", "--send", "--hosts", "127.0.0.1,localhost", "per_device_train_batch_size=2"),
                    env=environment(PATH=f"{tools}:{os.environ['PATH']}"))
        self.train("one", "per_device_train_batch_size=4", steps=2)
        self.assert_close(losses(self.folder / "sent"), losses(self.folder / "one"), 1e-5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
