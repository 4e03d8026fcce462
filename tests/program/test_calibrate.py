"""Measuring a machine, and what reads the file of it."""

import shutil
import unittest

from harness import ProgramTest, environment, long


@long  # a machine is measured
class Calibrate(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.told = cls.run_ok_in(cls.folder, "calibrate", "--seconds", 0.002, "--write", "new/machine.yaml").out

    def test_the_file_is_read_by_plan_and_train(self):
        for part in ("products in float32", "products in bfloat16", "memory: ", "passes of small models", "the worst is"):
            self.assertIn(part, self.told)
        self.assertTrue(self.told.endswith("written: new/machine.yaml\n"), self.told)
        text = (self.folder / "new" / "machine.yaml").read_text()
        self.assertIn("1 ranks at a time", text)
        self.assertIn("short_sides32", text)
        plan = self.run_ok("plan", "--model", "gpt2-tiny", "--cluster", "new/machine.yaml", "data.sequence_length=64").out
        self.assertIn("tokens/s", plan)
        run = self.train("timed", "--cluster", "new/machine.yaml")
        self.assertRegex(run.err + run.out, r"predicted: [\d.e-]+ s a step, \d+ tokens/s, .* \(figures: new/machine.yaml\)")

    def test_the_usual_file_is_found_and_one_that_is_broken_is_told_of(self):
        usual = self.folder / "caches" / "lockstep" / "machine.yaml"
        usual.parent.mkdir(parents=True)
        shutil.copy(self.folder / "new" / "machine.yaml", usual)
        env = environment(XDG_CACHE_HOME=str(self.folder / "caches"))
        run = self.train("usual", env=env)
        self.assertIn(f"(figures: {usual})", run.err + run.out)
        usual.write_text("nodes: 7\n")
        run = self.train("broken", env=env)
        self.assertIn(f"{usual} is not used", run.err)
        self.assertIn("lockstep calibrate", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
