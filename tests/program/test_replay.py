"""`lockstep replay` repeats steps from a checkpoint and compares them with the log; the log of a run contains its time breakdown."""

import json
import unittest

from harness import ProgramTest, losses, metrics


class Replay(ProgramTest):
    def events(self, run, name):
        lines = (self.folder / run / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def test_replay_is_bit_exact(self):
        self.train("run", "save_steps=4", "save_strategy=steps", ranks=2, steps=10)
        result = self.run_ok("replay", "run/checkpoint-4", "--step", "7")
        self.assertIn("step 7: loss", result.out)
        self.assertIn("3 of 3 recorded lines are reproduced bit for bit", result.out)
        # The folder of the run is unchanged; the repeated steps are written to a subfolder.
        self.assertEqual(len([line for line in metrics(self.folder / "run") if "loss" in line]), 10)
        self.assertEqual([line["step"] for line in metrics(self.folder / "run/replay-7")], [5, 6, 7])
        self.assertFalse((self.folder / "run/replay-7/model.safetensors").exists())
        # Repeats only the next step, then on one rank.
        self.assertIn("1 of 1 recorded lines", self.run_ok("replay", "run/checkpoint-8/").out)
        one = self.run_ok("replay", "run/checkpoint-4", "--step", "7", "--nproc", "1", "per_device_train_batch_size=16")
        self.assertIn("within 1e-5 (on another number of ranks)", one.out)

    def test_differing_steps_are_reported(self):
        self.train("flipped", "save_steps=3", "save_strategy=steps", ranks=1, steps=6)
        path = self.folder / "flipped" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if line.get("step") == 5 and "loss" in line:
                line["loss"] *= 1 + 1e-12  # as after a bit flip
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = self.run_fails(6, "replay", "flipped/checkpoint-3", "--step", "6")
        self.assertIn("2 of 3 recorded lines are reproduced", result.out)
        self.assertRegex(result.out, r"step 5: .*recorded were")

    def test_lines_that_hold_several_steps_are_compared_as_their_mean(self):
        self.train("means", "save_steps=4", "save_strategy=steps", "logging_steps=3", ranks=1, steps=12)
        for _ in range(2):  # the second replaces what the first left
            result = self.run_ok("replay", "means/checkpoint-4", "--step", "12")
            self.assertIn("2 of 2 recorded lines are reproduced bit for bit", result.out)  # 7 to 9, 10 to 12

    def test_invalid_checkpoints_are_refused(self):
        self.assertIn("checkpoint-STEP", self.run_fails(2, "replay", "model.json").err)
        self.assertIn("the folder of a checkpoint is required", self.run_fails(2, "replay").err)
        self.train("short", "save_strategy=steps", "save_steps=2", ranks=1, steps=4)
        self.assertIn("step 5 is not a step of", self.run_fails(2, "replay", "short/checkpoint-2", "--step", 5).err)

    def test_time_breakdown_at_the_end_of_a_run(self):
        result = self.train("told", "eval_strategy=steps", "eval_steps=2", "save_steps=3", "log_level=debug", ranks=2, steps=6)
        self.assertRegex(result.err, r"goodput [\d.]+%: of [\d.]+ s, .* went into steps")
        time = self.events("told", "time")[-1]
        parts = sum(time[key] for key in ("steps_s", "starting_s", "saving_s", "evaluating_s", "comparing_s"))
        self.assertLessEqual(parts, time["all_s"] * 1.001)
        self.assertGreater(time["evaluating_s"], 0)
        self.assertAlmostEqual(time["goodput"], time["steps_s"] / time["all_s"], places=6)

    def test_unusually_large_gradient_is_reported(self):
        # The model learns this text quickly. The symbols in the middle occur nowhere else, and a few steps read them.
        known = "the cat sat on the mat and the dog sat on the log\n"
        strange = "".join(chr(33 + (17 * i * i + 5 * i) % 90) for i in range(160)) + "\n"
        (self.folder / "known.txt").write_text(known * 300 + strange + known * 300)
        arguments = [a for a in self.train_arguments("calm", steps=500) if not str(a).startswith(("data.train=", "learning_rate="))]
        result = self.run_ok(*arguments, "data.train=known.txt", "per_device_train_batch_size=1", "learning_rate=3e-3",
                             "lr_scheduler_type=constant")
        told = self.events("calm", "spike")
        self.assertGreater(len(told), 0)
        for event in told:
            self.assertGreater(event["grad_norm"], 3 * event["quantile_99"])
            self.assertRegex(result.err, rf"step {event['step']}: gradient norm .*lockstep replay calm/checkpoint-STEP")
        self.assertLess(len(told), 20)


class Products(ProgramTest):
    def test_checked_products_do_not_change_a_run(self):
        for name, words in (("float32", []), ("bfloat16", ["bf16=true"])):
            self.train(name, *words, steps=5)
            done = self.train(f"{name}-checked", "training.check_products=true", *words, steps=5)
            self.assertNotIn("sums to", done.err)
            self.assert_close(losses(self.folder / name), losses(self.folder / f"{name}-checked"), 1e-5 if not words else 2e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
