"""Pipeline parallelism: the same losses, checkpoints for any number of stages, and failures."""

import json
import os
import signal
import time
import unittest

from harness import ProgramTest, long, losses, metrics, processes_of, ranks_of, start, wait_for

LAYERS = 5


class Pipeline(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        config = json.loads((cls.folder / "model.json").read_text())
        config["n_layer"] = LAYERS
        (cls.folder / "deep.json").write_text(json.dumps(config))

    def deep(self, output, *more, ranks=1, steps=6):
        """Trains with four micro-batches per step on any mesh of `ranks`."""
        return self.train_arguments(
            output, "model.path=deep.json", "per_device_train_batch_size=2",
            "gradient_accumulation_steps=4", "eval_strategy=steps", "eval_steps=3", *more,
            ranks=ranks, steps=steps)

    def evaluations(self, output):
        return [line["eval_loss"] for line in metrics(self.folder / output) if "eval_loss" in line]

    def test_every_schedule_learns_what_one_rank_learns(self):
        self.run_ok(*self.deep("one"))
        expected = losses(self.folder / "one")
        self.assertEqual(len(expected), 6)
        plans = {
            "two": (2, ["parallel.pipeline=2"]),
            "three": (3, ["parallel.pipeline=3", "parallel.schedule=zb-h1", "parallel.split='2,2,1'"]),
            "virtual": (2, ["parallel.pipeline=2", "parallel.schedule=interleaved",
                            "parallel.virtual_stages=2"]),
            "in_one_process": (2, ["--in-process", "parallel.pipeline=2", "parallel.schedule=naive"]),
            "shape_of_a_v": (2, ["parallel.pipeline=2", "parallel.schedule=zb-v"]),
        }
        for name, (ranks, words) in plans.items():
            self.run_ok(*self.deep(name, *words, ranks=ranks))
            self.assert_close(losses(self.folder / name), expected, 1e-5)
            self.assert_close(self.evaluations(name), self.evaluations("one"), 1e-5)

    def test_data_parallel_stages(self):
        self.run_ok(*self.deep("flat"))
        self.run_ok(*self.deep(
            "grid", "parallel.pipeline=2", "gradient_accumulation_steps=2", ranks=4))
        self.assert_close(losses(self.folder / "grid"), losses(self.folder / "flat"), 1e-5)
        self.assert_close(self.evaluations("grid"), self.evaluations("flat"), 1e-5)

    @long
    def test_checkpoint_resumes_on_any_number_of_stages(self):
        self.run_ok(*self.deep("whole", "save_steps=3"))
        self.run_ok(*self.deep("staged", "parallel.pipeline=3", "save_steps=3", ranks=3))
        expected = losses(self.folder / "whole")
        for name, ranks in (("on_two", 2), ("on_one", 1)):
            self.run_ok(*self.deep(
                name, f"parallel.pipeline={ranks}", "resume_from_checkpoint=staged/checkpoint-3",
                ranks=ranks))
            self.assert_close(losses(self.folder / name)[-3:], expected[3:], 1e-5)
        # A folder saved by a pipeline is an ordinary model.
        report = self.run_ok(
            "eval", "--model", "staged", "--data", "corpus/validation.txt", "--json",
            "data.cache_dir=cache", "data.sequence_length=32", "use_cpu=true")
        self.assertLessEqual(
            abs(json.loads(report.out)["eval_loss"] - self.evaluations("staged")[-1]), 1e-4)

    def test_a_trace_of_a_step(self):
        result = self.run_ok(*self.deep(
            "traced", "parallel.pipeline=2", "--trace", "trace.json", ranks=4, steps=4))
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        actions = [e for e in events if e.get("cat") == "action"]
        self.assertEqual({e["pid"] for e in actions}, {0, 1, 2, 3})
        for stage in (0, 1):  # of both data-parallel copies; each micro-batch forward and backward
            names = sorted(e["name"] for e in actions if e["name"].startswith(str(stage)))
            self.assertEqual(names, sorted(2 * [f"{stage}{k}{m}" for k in "FB" for m in range(4)]))
        reductions = [e for e in events if e["name"].startswith("all_reduce") and e["ph"] == "X"]
        self.assertTrue(reductions)
        self.assertTrue(all(e["args"]["bytes"] > 0 for e in reductions))
        self.assertIn("bubble", result.err)
        self.assertIn("pipeline 1, data 1", result.err)
        for rank in range(4):  # ranks exchange the loss divisor and wait for it after the passes
            told, = [e for e in events if e["name"] == "all_gather the step's counts" and e["pid"] == rank]
            last = max(e["ts"] + e["dur"] for e in actions if e["pid"] == rank)
            self.assertLess(told["ts"], min(e["ts"] for e in actions if e["pid"] == rank))
            self.assertGreaterEqual(told["ts"] + told["dur"] - 1e3 * told["args"]["waited_ms"], last - 1)

    def test_trace_names_gathered_blocks(self):
        self.run_ok(*self.deep("gathered", "parallel.zero_stage=3", "--trace", "zero.json", ranks=2, steps=3))
        names = {e["name"] for e in json.loads((self.folder / "zero.json").read_text())["traceEvents"]}
        for unit in ["embedding", "layer 0", f"layer {LAYERS - 1}"]:
            self.assertIn(f"all_gather {unit}", names)
            self.assertIn(f"reduce_scatter {unit}", names)

    def test_a_file_of_actions(self):
        (self.folder / "actions.txt").write_text(
            "0F0 0F1 0F2 0F3 0I0 0W0 0B1 0I2 0I3 0W3 0W2\n1F0 1B0 1F1 1I1 1F2 1W1 1B2 1F3 1B3\n")
        self.run_ok(*self.deep("listed"))
        self.run_ok(*self.deep(
            "by_file", "parallel.pipeline=2", "parallel.schedule=./actions.txt", ranks=2))
        self.assert_close(losses(self.folder / "by_file"), losses(self.folder / "listed"), 1e-5)

    @long
    def test_impossible_plans_fail_before_training(self):
        (self.folder / "stuck.txt").write_text("0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3\n"
                                               "1F1 1B1 1F0 1B0 1F2 1B2 1F3 1B3\n")
        told = self.run_fails(2, *self.deep("bad", "parallel.pipeline=6", ranks=6)).err
        self.assertEqual(told.count("6 pipeline stages for a model with 5 layers"), 1, told)  # reported once, not per rank
        cases = [
            (6, ["parallel.pipeline=6", "--dry-run"], ["6 pipeline stages for a model with 5 layers"]),
            (4, ["parallel.pipeline=2", "parallel.zero_stage=3", "--dry-run"],
             ["in every micro-batch", "parallel.zero_in_pipeline=true"]),
            (2, ["parallel.pipeline=2", "parallel.schedule=./stuck.txt"], ["deadlock: no rank can continue", "rank 1 is at 1F1 and waits for 0F1"]),
            (2, ["parallel.pipeline=2", "parallel.split='3,3'"], ["parallel.split=3,3", "5 layers"]),
            (2, ["parallel.pipeline=3"], ["pipeline 3"]),
            (2, ["parallel.pipeline=2", "parallel.virtual_stages=2"], ["1f1b"]),
        ]
        for ranks, words, expected in cases:
            result = self.run_fails(2, *self.deep("bad", *words, ranks=ranks))
            for text in expected:
                self.assertIn(text, result.err, words)
            self.assertEqual(losses(self.folder / "bad"), [])

    def test_a_stage_that_dies_is_named(self):
        process = start(*self.deep("killed", "parallel.pipeline=3", ranks=3, steps=10000),
                        cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "killed")) >= 2)
        ranks = ranks_of("output_dir=killed")
        os.kill(ranks[2], signal.SIGKILL)
        killed = time.monotonic()
        _, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - killed, 3)  # one second, with a margin for slow machines
        self.assertIn("SIGKILL", err)
        self.assertIn("rank      : 2", err)
        self.assertEqual(processes_of("output_dir=killed"), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
