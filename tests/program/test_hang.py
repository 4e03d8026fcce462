"""A hung rank is identified by its peers when their timeout expires, and long before that by its launcher.

LOCKSTEP_HANG_TRIALS=N sets the number of stopped ranks; `make hangs` runs 200.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from harness import (
    PROGRAM,
    SOURCE,
    ProgramTest,
    environment,
    long,
    losses,
    processes_of,
    ranks_of,
    start,
    wait_for,
)

sys.path.insert(0, str(SOURCE / "tests" / "null_gpu"))
import pretend  # noqa: E402

NULL_GPU = pathlib.Path(PROGRAM).resolve().parent / "null_gpu"
TRIALS = int(os.environ.get("LOCKSTEP_HANG_TRIALS", "6"))
LIMIT = 2.0  # seconds without progress; the program's default is 30


class Stderr:
    """Standard error of a run, readable while it runs."""

    def __init__(self, folder, name):
        self.path = folder / f"{name}.err"

    def __enter__(self):
        self.file = open(self.path, "wb")
        return self

    def __exit__(self, *_):
        self.file.close()

    def text(self):
        return self.path.read_text(errors="replace")


class Hang(ProgramTest):
    def begin(self, name, ranks, *more):
        return start(
            *self.train_arguments(name, *more, ranks=ranks, steps=1000000), "save_strategy=no", "eval_strategy=no",
            cwd=self.folder)

    def stop_a_rank(self, name, ranks, *more):
        process = start(
            *self.train_arguments(name, "ddp_timeout=2", *more, ranks=ranks, steps=100000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / name)) >= 2 + random.randrange(20))
        victim = random.randrange(ranks)
        os.kill(ranks_of(f"output_dir={name}")[victim], signal.SIGSTOP)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 7, err)
        root = err[err.index("Root Cause"):]
        self.assertRegex(root, rf"rank +: {victim} ")
        self.assertIn("hanging", root)
        self.assertIn(" number ", root)
        self.assertIn("stopped", root)
        self.assertRegex(root, r"#0 \S+")  # its stack
        self.assertEqual(processes_of(f"output_dir={name}"), [])
        return victim, err

    def stop_and_be_named_by_peers(self, name, ranks, *more):
        victim, err = self.stop_a_rank(name, ranks, *more)
        said = re.findall(r"failed: (.*no answer.*)", err)
        self.assertTrue(said, err)
        for text in said:
            self.assertTrue(text.rstrip().endswith(f"rank {victim}"), (victim, text, err))

    @long
    def test_all_peers_name_the_stopped_rank(self):
        for trial, ranks in enumerate((3, 5)):
            self.stop_and_be_named_by_peers(f"stopped-{trial}", ranks)

    @long
    def test_all_peers_name_the_stopped_rank_of_a_group(self):
        self.stop_and_be_named_by_peers("mesh", 4, "parallel.tensor=2")
        self.stop_and_be_named_by_peers("stages", 4, "parallel.pipeline=2", "gradient_accumulation_steps=2")

    def test_gloo(self):
        self.stop_a_rank("gloo", 3, "ddp_backend=gloo")

    @long
    def test_launcher_names_stopped_ranks(self):
        """Stops ranks sequentially and continues each one after it was named. No other rank may ever be named."""
        plans = [
            (3, "shared", ()), (3, "gloo", ("ddp_backend=gloo",)),
            (4, "tensor", ("parallel.tensor=2",)), (4, "gloo-zero", ("ddp_backend=gloo", "parallel.zero_stage=3")),
            (4, "pipeline", ("parallel.pipeline=2", "gradient_accumulation_steps=2")), (5, "odd", ()),
            (6, "gloo-six", ("ddp_backend=gloo",)), (8, "zero", ("parallel.zero_stage=2",)),
        ]
        if pretend.libraries(NULL_GPU):  # c10d's NCCL backend, on emulated GPUs
            plans += [(3, "nccl", ("use_cpu=false",)), (4, "nccl-zero", ("use_cpu=false", "parallel.zero_stage=2")),
                      (4, "nccl-tensor", ("use_cpu=false", "parallel.tensor=2"))]
        chosen = os.environ.get("LOCKSTEP_HANG_PLANS", "")
        right, seconds = 0, []
        runs = ([plan for plan in plans if re.search(chosen, plan[1])] if chosen else
                [plans[i] for i in (0, 3)] if TRIALS < 16 else plans)
        for index, (ranks, name, more) in enumerate(runs):
            trials = TRIALS // len(runs) + (1 if index < TRIALS % len(runs) else 0)
            found, waited = self.stop_in_turn(name, ranks, trials, more)
            right += found
            seconds += waited
            print(f"{name}: {ranks} ranks, {found} of {trials} named correctly", flush=True)
        seconds.sort()
        print(f"{right} of {TRIALS} named correctly, after {seconds[len(seconds) // 2]:.1f} s (median), "
              f"{seconds[-1]:.1f} s (longest), limit {LIMIT} s", flush=True)
        self.assertEqual(right, TRIALS)

    def stop_in_turn(self, name, ranks, trials, more):
        right, seconds = 0, []
        with Stderr(self.folder, name) as said:
            arguments = self.train_arguments(
                name, f"hang_report={LIMIT}", "save_strategy=no", "eval_strategy=no", *more, ranks=ranks, steps=10**7)
            on_gpus = pretend.variables(NULL_GPU, self.folder / f"{name}.gpus", ranks) if "use_cpu=false" in more else {}
            process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=said.file, env=environment(**on_gpus))
            try:
                wait_for(lambda: len(losses(self.folder / name)) >= 5, 120)
                processes = ranks_of(f"output_dir={name}")
                for _ in range(trials):
                    self.assertIsNone(process.poll(), said.text())
                    time.sleep(random.uniform(0.0, 0.6))
                    before = len(said.text())
                    victim = random.randrange(ranks)
                    began = time.monotonic()
                    os.kill(processes[victim], signal.SIGSTOP)
                    try:
                        named = wait_for(lambda: re.findall(r"rank (\d+) hangs:", said.text()[before:]), 60)
                        seconds.append(time.monotonic() - began)
                        text = wait_for(
                            lambda: "stacks of rank" in said.text()[before:] and said.text()[before:], 30)
                    finally:
                        os.kill(processes[victim], signal.SIGCONT)
                    # The report contains the process, its state, the collective in which other ranks wait for it, and its stack.
                    whole = (f"process {processes[victim]} stopped" in text and "graph of waits:" in text
                             and re.search(r"#0 \S+", text)
                             and re.search(rf"for rank {victim}[ :].* number \d+ of group .*shape \[", text))
                    ok = named == [str(victim)] and whole
                    if not ok:
                        print(f"{name}: stopped rank {victim}, output:\n{text}", flush=True)
                    right += bool(ok)
                    wait_for(lambda: f"rank {victim} resumed after" in said.text()[before:], 60)
            finally:
                for pid in ranks_of(f"output_dir={name}").values():
                    os.kill(pid, signal.SIGCONT)
                process.terminate()
                process.wait(timeout=120)
        return right, seconds

    @long
    def test_hang_timeout_kills_the_rank_and_resumes(self):
        name = "ended"
        process = start(
            "launch", "--nproc-per-node", "2", "--max-restarts", "1", PROGRAM,
            *self.train_arguments(name, "hang_report=1", "hang_timeout=2", "save_steps=5",
                                  "resume_from_checkpoint=true", ranks=2, steps=60), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / name)) >= 8)
        os.kill(ranks_of(f"output_dir={name}")[1], signal.SIGSTOP)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("rank 1 hangs:", err)
        self.assertIn("it hung for longer than training.hang_timeout", err)
        self.assertIn("restart 1 of 1", err)
        self.assertEqual(len(losses(self.folder / name)), 60)

    def test_stacks_and_live_view_of_a_hung_rank(self):
        name = "looked-at"
        process = self.begin(name, 3)
        try:
            wait_for(lambda: len(losses(self.folder / name)) >= 3)
            processes = ranks_of(f"output_dir={name}")
            os.kill(processes[0], signal.SIGSTOP)  # the rank that answers `ctl status`
            time.sleep(0.5)
            for words in (("ctl", name, "stacks"), ("ctl", "stacks", name)):
                told = self.run_ok(*words).out
                for rank in range(3):
                    self.assertRegex(told, rf"(?m)^rank {rank} \(pipeline 0, data {rank}.*step \d+, ")
                    self.assertIn(f"stacks of rank {rank}:", told)
                self.assertIn("graph of waits:", told)
                self.assertRegex(told, r"waits? for ranks? 0\b")
                self.assertRegex(told, r"#\d+ .*lockstep::")
            live = self.run_ok("monitor", "--text", "--once", name).out
            self.assertRegex(live, rf"rank 0 .*process {processes[0]} stopped")
            self.assertNotIn("#0", live)
            os.kill(processes[0], signal.SIGCONT)
        finally:
            for pid in ranks_of(f"output_dir={name}").values():
                os.kill(pid, signal.SIGCONT)
            process.terminate()
            process.communicate(timeout=120)
        self.assertFalse((self.folder / name / ".lockstep-ranks").exists())
        result = self.run_fails(3, "ctl", name, "stacks")
        self.assertIn("no run trains into", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
