"""A rank that stands still is named."""

import os
import random
import re
import signal
import unittest

from harness import ProgramTest, losses, processes_of, ranks_of, start, wait_for


class Hang(ProgramTest):
    def stop_a_rank(self, name, ranks, *more):
        process = start(
            *self.train_arguments(name, "ddp_timeout=2", *more, ranks=ranks, steps=100000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / name)) >= 2 + random.randrange(20))
        victim = random.randrange(ranks)
        os.kill(ranks_of(f"output_dir={name}")[victim], signal.SIGSTOP)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 7, err)
        said = re.findall(r"failed: (.*no answer.*)", err)
        self.assertTrue(said, err)
        for text in said:
            self.assertTrue(text.rstrip().endswith(f"rank {victim}"), (victim, text, err))
        root = err[err.index("Root Cause"):]
        self.assertRegex(root, rf"rank +: {victim} ")
        self.assertIn("it hangs", root)
        self.assertIn(" number ", root)
        self.assertEqual(processes_of(f"output_dir={name}"), [])

    def test_the_stopped_rank_is_the_one_that_all_name(self):
        for trial, ranks in enumerate((3, 4, 5)):
            self.stop_a_rank(f"stopped-{trial}", ranks)

    def test_in_groups_of_ranks_as_well(self):
        self.stop_a_rank("mesh", 4, "parallel.tensor=2")
        self.stop_a_rank("stages", 4, "parallel.pipeline=2", "gradient_accumulation_steps=2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
