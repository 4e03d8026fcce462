"""Signals that request a checkpoint, and background saves."""

import os
import signal
import unittest

from harness import ProgramTest, losses, processes_of, start, wait_for


class SaveSignals(ProgramTest):
    def begin(self, name, *more, ranks=2):
        process = start(*self.train_arguments(name, *more, ranks=ranks, steps=400), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / name)) >= 3)
        return process

    def checkpoints(self, name):
        return sorted(int(p.name[11:]) for p in (self.folder / name).glob("checkpoint-*") if "." not in p.name)

    def test_usr1_saves_and_continues(self):
        for ranks in (1, 2):
            name = f"saved-{ranks}"
            process = self.begin(name, ranks=ranks)
            process.send_signal(signal.SIGUSR1)
            first = wait_for(lambda: self.checkpoints(name))
            self.assertLess(first[0], 400)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 75, err)

    def test_usr2_saves_and_stops_and_the_run_can_be_resumed(self):
        process = self.begin("stopped")
        process.send_signal(signal.SIGUSR2)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, err)
        step = self.checkpoints("stopped")[-1]
        result = self.run_ok(*self.train_arguments(
            "stopped", "resume_from_checkpoint=true", ranks=2, steps=step + 1))
        self.assertIn(f"after step {step}", result.err)

    def test_closed_terminal_saves_and_stops_except_under_nohup(self):
        for ranks in (1, 2):
            name = f"hung-up-{ranks}"
            process = self.begin(name, ranks=ranks)
            process.send_signal(signal.SIGHUP)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 75, err)
            self.assertTrue(self.checkpoints(name))
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            try:
                process = self.begin(f"nohup-{ranks}", ranks=ranks)
            finally:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
            process.send_signal(signal.SIGHUP)
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)

    def test_configured_signals(self):
        process = self.begin("ignored", "checkpoint.on_usr1=ignore", "checkpoint.on_usr2=save")
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: len(losses(self.folder / "ignored")) >= 10)
        self.assertEqual(self.checkpoints("ignored"), [])
        process.send_signal(signal.SIGUSR2)
        wait_for(lambda: self.checkpoints("ignored"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75)


class Background(ProgramTest):
    def test_background_saves_are_identical(self):
        for ranks in (1, 2):
            arguments = ["save_steps=2", "save_total_limit=2", "bf16=true", "log_level=debug"]
            waited = self.train(f"waited-{ranks}", "checkpoint.async=false", *arguments, ranks=ranks, steps=9)
            self.assertNotIn("in the background", waited.err)
            result = self.train(f"background-{ranks}", *arguments, ranks=ranks, steps=9)
            self.assertRegex(result.err, r"training waited [\d.e-]+ s for 5 checkpoints, written in the background")
            for name in ("checkpoint-8", "checkpoint-9"):
                a, b = (self.folder / f"{kind}-{ranks}" / name for kind in ("waited", "background"))
                for file in a.glob("*.safetensors"):
                    self.assertEqual(file.read_bytes(), (b / file.name).read_bytes(), file)
            names = sorted(p.name for p in (self.folder / f"background-{ranks}").glob("checkpoint-*"))
            self.assertEqual(names, ["checkpoint-8", "checkpoint-9"])

    def test_latest_checkpoint_loads_after_a_kill_at_any_time(self):
        name = "killed"
        arguments = ["save_steps=1", "save_total_limit=2", "resume_from_checkpoint=true"]
        for trial in range(4):
            process = start(*self.train_arguments(name, *arguments, ranks=2, steps=100000), cwd=self.folder)
            seen = len(losses(self.folder / name))
            wait_for(lambda: len(losses(self.folder / name)) >= seen + 5 + 3 * trial)
            process.kill()
            process.communicate(timeout=30)
            wait_for(lambda: not processes_of(f"output_dir={name}"))  # the ranks end soon after, and release the lock
        done = max(int(p.name[11:]) for p in (self.folder / name).glob("checkpoint-*") if "." not in p.name)
        result = self.run_ok(*self.train_arguments(name, *arguments, ranks=2, steps=done + 2))
        self.assertNotIn("damaged", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
