"""Memory reports, the out-of-memory error, and the end of a job whose rank was killed."""

import json
import os
import pathlib
import signal
import time
import unittest

from harness import PROGRAM, ProgramTest, environment, losses, processes_of, ranks_of, start, wait_for

KINDS = ["parameters", "gradients", "optimizer", "activations", "gathered", "buffers", "other", "peak"]


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Memory(ProgramTest):
    def test_memory_report_by_kind_and_phase(self):
        result = self.train("told", "--log-memory", "parallel.zero_stage=3", "logging_steps=2", ranks=2, steps=4)
        tables = result.err.split("by kind:\n")[1:]
        self.assertEqual(len(tables), 2, result)
        for table in tables:
            lines = table.splitlines()
            self.assertEqual(lines[0].split(), KINDS)
            phases = {line[:14].strip() for line in lines[1:5]}
            self.assertEqual(phases, {"between steps", "forward", "backward", "update"})
        self.assertIn("the fullest of 2", result.err)
        silent = self.train("silent", steps=2)
        self.assertNotIn("by kind", silent.err)

    def test_out_of_memory_report(self):
        # Measures what the process maps apart from tensors. The program reserves an eighth of the limit as addresses for tensors.
        plenty = 16 << 30
        process = start(*self.train_arguments("small", steps=1000000), cwd=self.folder, address_space=plenty)
        wait_for(lambda: len(losses(self.folder / "small")) >= 2)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        process.kill()
        process.communicate()
        peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmPeak"))) << 10
        mapped = peak - plenty // 8
        wide = json.loads((self.folder / "model.json").read_text())
        wide.update(n_embd=256, n_layer=6, n_head=4)
        (self.folder / "wide.json").write_text(json.dumps(wide))
        words = self.train_arguments(
            "full", "--force", "model.path=wide.json", "data.sequence_length=64", "per_device_train_batch_size=256")
        limit = mapped + (700 << 20)  # enough for the states and the activations of some layers
        process = start(*words, cwd=self.folder, address_space=limit)
        _, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 5, said)
        self.assertIn("training step 1", said)
        self.assertIn("memory of rank 0 so far:", said)
        for kind in KINDS:
            self.assertIn(kind, said)
        changes = [line for line in said.splitlines() if "saves about" in line]
        self.assertTrue(1 <= len(changes) <= 3, said)
        self.assertIn("per_device_train_batch_size=128", said)

    def test_a_rank_killed_in_the_middle_of_a_gather_ends_the_others(self):
        process = start(
            *self.train_arguments("gather", "parallel.zero_stage=3", ranks=3, steps=1000000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "gather")) >= 3)
        ranks = ranks_of("output_dir=gather")
        victim = ranks[1]
        os.kill(victim, signal.SIGSTOP)
        wait_for(lambda: state_of(victim) == "T")
        time.sleep(0.5)  # by now the other ranks wait for this one in a gather
        done = len(losses(self.folder / "gather"))
        time.sleep(0.3)
        self.assertEqual(len(losses(self.folder / "gather")), done)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: not processes_of("output_dir=gather"), seconds=10)
        _, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"rank\s*:?\s*1")
        self.assertIn("SIGKILL", err)


class Bench(ProgramTest):
    SIZES = ["--layers", "1", "--width", "32", "--vocabulary", "101", "--length", "16", "--steps", "2", "--cpu"]

    def rows_of(self, what):
        out = self.run_ok("bench", what, "--nproc", "2", *self.SIZES).out
        return {line[:44].strip(): line.split() for line in out.splitlines() if " ms" in line}, out

    def test_the_stages_side_by_side(self):
        rows, out = self.rows_of("zero")
        self.assertEqual(
            list(rows),
            ["stage 0", "stage 1", "stage 2", "stage 2, offload", "stage 3", "stage 3, offload"])
        self.assertEqual(len({row[-1] for row in rows.values()}), 1, out)  # equal losses
        self.assertIn("fastest first: ", out)

    def test_one_process_threads_and_processes_side_by_side(self):
        rows, out = self.rows_of("dp-vs-ddp")
        self.assertEqual(
            list(rows), ["DataParallel, one process", "ranks as threads (--in-process)", "ranks as processes"])
        found = [float(row[-1]) for row in rows.values()]
        self.assertLess(max(found) - min(found), 0.02, out)
        self.run_fails(2, "bench", "zero", "--rows", "0")
        self.run_fails(2, "bench", "everything")


if __name__ == "__main__":
    unittest.main(verbosity=2)
