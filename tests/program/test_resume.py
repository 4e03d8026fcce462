"""A run that stops goes on as if nothing had happened."""

import signal
import unittest

from harness import ProgramTest, losses, metrics, processes_of, start, wait_for


class Resume(ProgramTest):
    def test_on_the_same_ranks_to_the_bit_and_on_others_closely(self):
        for precision, exact in (("bf16=false", 1e-5), ("bf16=true", 2e-2)):
            label = precision.replace("=", "-")
            whole = f"whole-{label}"
            self.train(whole, precision, "per_device_train_batch_size=4", "save_steps=3", ranks=2)
            for ranks, batch in ((2, 4), (1, 8), (4, 2)):
                name = f"resumed-{label}-{ranks}"
                checkpoint = self.folder / whole / "checkpoint-3"
                self.train(
                    name, precision, f"per_device_train_batch_size={batch}",
                    f"resume_from_checkpoint={checkpoint}", ranks=ranks)
                expected, resumed = losses(self.folder / whole)[3:], losses(self.folder / name)
                if ranks == 2:
                    self.assertEqual(resumed, expected)
                    self.assertEqual(
                        (self.folder / name / "model.safetensors").read_bytes(),
                        (self.folder / whole / "model.safetensors").read_bytes())
                else:
                    self.assert_close(resumed, expected, exact)

    def test_goes_on_in_the_same_folder_and_file(self):
        arguments = self.train_arguments("same", "save_steps=2", "resume_from_checkpoint=true", steps=4)
        self.run_ok(*arguments)  # there is nothing to resume yet
        before = metrics(self.folder / "same")
        self.run_ok(*self.train_arguments("same", "save_steps=2", "resume_from_checkpoint=true", steps=6))
        after = metrics(self.folder / "same")
        self.assertEqual(after[:len(before)], before)
        self.assertEqual([line["step"] for line in after if "loss" in line], [1, 2, 3, 4, 5, 6])

    def test_sigterm_saves_exits_75_and_the_run_goes_on_as_if_nothing_had_been(self):
        self.train("undisturbed", ranks=2, steps=40)
        arguments = self.train_arguments("stopped", ranks=2, steps=40)
        process = start(*arguments, cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "stopped")) >= 5)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, err)
        self.assertIn("resume_from_checkpoint", err)
        self.assertEqual(processes_of("output_dir=stopped"), [])
        self.run_ok(*arguments, "resume_from_checkpoint=true")
        self.assertEqual(losses(self.folder / "stopped"), losses(self.folder / "undisturbed"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
