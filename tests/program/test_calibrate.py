"""`lockstep calibrate`, and the commands that use its file."""

import unittest

from harness import ProgramTest, environment, long, losses


@long  # measures this machine
class Calibrate(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.env = environment(XDG_CACHE_HOME=str(cls.folder / "caches"))
        cls.told = cls.run_ok_in(cls.folder, "calibrate", "--seconds", 0.002, env=cls.env, timeout=600).out
        [cls.usual] = (cls.folder / "caches" / "lockstep").glob("machine-1x1-*.yaml")

    def test_the_file_is_read_by_plan_and_train(self):
        for part in ("products in float32", "products in bfloat16", "memory: ", "passes of small models", "the largest error is"):
            self.assertIn(part, self.told)
        self.assertTrue(self.told.endswith(f"written: {self.usual}\n"), self.told)
        text = self.usual.read_text()
        (self.folder / "machine.yaml").write_text(text)
        self.assertIn("1 ranks at a time", text)
        self.assertIn("short_sides32", text)
        plan = self.run_ok("plan", "--model", "gpt2-tiny", "--cluster", "machine.yaml", "data.sequence_length=64").out
        self.assertIn("tokens/s", plan)
        run = self.train("timed", "--cluster", "machine.yaml")
        self.assertRegex(run.err + run.out,
                         r"predicted time: [\d.e-]+ s per step \(-\d+% \+\d+%\), \d+ tokens/s \(figures: machine.yaml\)")

    def test_default_file_and_broken_file(self):
        run = self.train("usual", env=self.env)
        self.assertIn(f"(figures: {self.usual})", run.err + run.out)
        # The file does not apply to other numbers of ranks or threads.
        run = self.train("others", ranks=2, env=self.env)
        self.assertNotIn("predicted time", run.err + run.out)
        text = self.usual.read_text()
        self.usual.write_text("nodes: 7\n")
        run = self.train("broken", env=self.env)
        self.usual.write_text(text)
        self.assertIn(f"{self.usual} is ignored", run.err)
        self.assertIn("lockstep calibrate", run.err)

    def test_measurement_between_steps_on_request(self):
        cache = self.folder / "none"
        env = environment(XDG_CACHE_HOME=str(cache))
        del env["LOCKSTEP_MEASURE_MACHINE"]
        words = ["data.sequence_length=32", "model.path=model.json", "monitor.measure_machine=true"]
        steps = 20
        while True:  # until a run is long enough
            first = self.train("first", "overwrite_output_dir=true", *words, ranks=2, steps=steps, env=env)
            said = first.err + first.out
            self.assertNotIn("predicted time", said)
            if "measured this machine in" in said:
                break
            self.assertFalse(list(cache.glob("lockstep/machine-*.yaml")))
            self.assertLess(steps, 100000, said)
            steps *= 8
        again = self.train("again", *words, ranks=2, env=env)
        kept = list(cache.glob("lockstep/machine-2x1-*.yaml"))
        if "are discarded" in said:  # other processes used the processors
            self.assertEqual(kept, [])
            self.assertNotIn("predicted time", again.err + again.out)
            return
        self.assertEqual(len(kept), 1, said)
        self.assertIn("between its steps", kept[0].read_text())
        self.assertRegex(again.err + again.out, r"predicted time: [\d.e-]+ s per step .*machine-2x1-")
        # The measurement does not change the training results.
        env["LOCKSTEP_MEASURE_MACHINE"] = "0"
        plain = self.train("plain", *words, ranks=2, steps=steps, env=env)
        self.assertEqual(losses(self.folder / "first")[-20:], losses(self.folder / "plain")[-20:], plain.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
