"""A signal during an evaluation: the ranks leave it together, save, and evaluate after the resume."""

import json
import os
import pty
import signal
import subprocess
import threading
import unittest

from harness import PROGRAM, ProgramTest, environment, losses, metrics, wait_for

SEQUENCES = 3000  # of the evaluation, one a batch: a signal arrives long before its end


def copy_terminal(terminal, path):
    """Appends what is written to the terminal to a file, until its writer has ended."""
    with open(path, "ab", buffering=0) as file:
        while True:
            try:
                file.write(os.read(terminal, 4096))
            except OSError:
                os.close(terminal)
                return


class Interruption(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (cls.folder / "corpus" / "validation.txt").read_text()
        times = 1 + SEQUENCES * 32 * 3 // len(text)
        (cls.folder / "long.txt").write_text(text * times)

    def arguments(self, name, *more, ranks=1, steps=3):
        return self.train_arguments(
            name, "data.validation=long.txt", "per_device_eval_batch_size=1", "eval_strategy=steps", "eval_steps=2",
            *more, ranks=ranks, steps=steps)

    def begin(self, name, *more, until="evaluating ", **options):
        """Starts a run on a terminal and returns it when the terminal shows the text. What it shows is in NAME.err."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [PROGRAM, *map(str, self.arguments(name, *more, **options))], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=theirs, start_new_session=True, env=environment(TERM="xterm"))
        os.close(theirs)
        path = self.folder / f"{name}.err"
        path.touch()
        process.reader = threading.Thread(target=copy_terminal, args=(ours, path))
        process.reader.start()
        self.addCleanup(process.kill)
        wait_for(lambda: until in path.read_text() or process.poll() is not None, seconds=120)
        self.assertIsNone(process.poll(), path.read_text())
        return process

    def end(self, process, name):
        """Waits for its end; returns its exit code and what the terminal showed."""
        code = process.wait(timeout=120)
        process.reader.join()
        return code, (self.folder / f"{name}.err").read_text()

    def stops(self, process, name, by):
        process.send_signal(by)
        code, err = self.end(process, name)
        self.assertEqual(code, 75, err)
        self.assertIn("stopped by a signal after step 2, whose evaluation is done again after the resume", err)
        self.assertEqual(self.evaluations(name), [])
        self.assertTrue((self.folder / name / "checkpoint-2" / "manifest.json").exists())
        return err

    def evaluations(self, name):
        return [line["step"] for line in metrics(self.folder / name) if "eval_loss" in line]

    def test_is_left_and_done_after_the_resume(self):
        self.run_ok(*self.arguments("whole"))
        for ranks in (1, 2):
            name = f"left-{ranks}"
            err = self.stops(self.begin(name, ranks=ranks), name, signal.SIGTERM)
            self.assertEqual(err.count("SIGTERM received: stopping after this step and saving"), 1, err)
            self.run_ok(*self.arguments(name, "resume_from_checkpoint=true", ranks=ranks))
            self.assertEqual(self.evaluations(name), [2, 3])
            self.assertEqual(len(losses(self.folder / name)), 3)
            if ranks == 1:
                self.assertEqual(losses(self.folder / name), losses(self.folder / "whole"))
                found = [[line["eval_loss"] for line in metrics(self.folder / each) if "eval_loss" in line]
                         for each in (name, "whole")]
                self.assertEqual(found[0], found[1])

    def test_the_first_ctrl_c_is_acknowledged(self):
        for ranks in (1, 2):
            name = f"asked-{ranks}"
            err = self.stops(self.begin(name, ranks=ranks), name, signal.SIGINT)
            self.assertEqual(err.count(
                "stopping after this step and saving; press Ctrl-C again to stop without saving"), 1, err)

    def test_under_plans_in_which_ranks_share_batches(self):
        for plan in ("parallel.tensor=2", "parallel.pipeline=2"):
            name = plan[9:-2]
            self.stops(self.begin(name, plan, ranks=2), name, signal.SIGTERM)

    def test_a_request_to_save_is_answered_at_once_and_the_evaluation_is_done_again(self):
        for ranks in (1, 2):
            name = f"saved-{ranks}"
            process = self.begin(name, ranks=ranks)
            process.send_signal(signal.SIGUSR1)
            code, err = self.end(process, name)
            self.assertEqual(code, 0, err)
            state = json.loads((self.folder / name / "checkpoint-2" / "trainer_state.json").read_text())
            self.assertEqual([line for line in state["log_history"] if "eval_loss" in line], [])
            self.assertEqual(self.evaluations(name), [2, 3])

    def test_the_last_evaluation_is_left_too_and_what_no_checkpoint_has_is_saved(self):
        more = ["eval_strategy=no", "do_eval=true", "save_strategy=no"]
        process = self.begin("last", *more, steps=2)
        process.send_signal(signal.SIGTERM)
        code, err = self.end(process, "last")
        self.assertEqual(code, 75, err)
        self.assertEqual(self.evaluations("last"), [])
        self.assertFalse((self.folder / "last" / "model.safetensors").exists())
        self.run_ok(*self.arguments("last", *more, "resume_from_checkpoint=true", steps=2))
        self.assertEqual(self.evaluations("last"), [2])
        self.assertTrue((self.folder / "last" / "model.safetensors").exists())

    def test_nothing_is_drawn_after_the_summary_of_a_stopped_run(self):
        for ranks in (1, 2):
            name = f"drawn-{ranks}"
            process = self.begin(name, "eval_strategy=no", ranks=ranks, steps=100000, until="tok/s")
            process.send_signal(signal.SIGINT)
            code, err = self.end(process, name)
            self.assertEqual(code, 75, err)
            self.assertIn("saving checkpoint-", err)
            summary, stopped, after = err.rpartition("stopped by a signal")
            self.assertTrue(stopped, err)
            self.assertNotIn("saving checkpoint-", after)


if __name__ == "__main__":
    unittest.main(verbosity=2)
