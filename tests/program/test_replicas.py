"""`checkpoint.in_memory_replicas=1`: in-memory checkpoints that outlive the ranks, so that a lost rank or node costs only the current step."""

import json
import os
import re
import signal
import unittest

from harness import ProgramTest, free_port, listens, long, losses, metrics, processes_of, ranks_of, start, wait_for


class Replicas(ProgramTest):
    STEPS = 240  # enough that no run ends before its rank is killed, even on a busy machine

    def launch(self, options, output, *more):
        """Starts a run that writes no checkpoints except the in-memory ones."""
        train = self.train_arguments(
            output, "checkpoint.in_memory_replicas=1", "save_strategy=no", *more, steps=self.STEPS)
        at = train.index("--nproc")
        return start("launch", "--max-restarts=9", *options, "train", *train[1:at], *train[at + 2:], cwd=self.folder)

    def step(self, output):
        return ([line["step"] for line in metrics(self.folder / output) if "loss" in line] or [0])[-1]

    def reached(self, output, step):
        wait_for(lambda: self.step(output) >= step, seconds=120)

    def finish(self, process):
        _, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, err)
        return err

    def check(self, output, err, times):
        """Checks that each resume starts from the last logged step, or from the one before if the rank was lost before it had saved that step."""
        told, resumed = 0, []
        for line in err.splitlines():
            if line.lstrip().startswith("|"):
                continue  # the lost rank's last output, quoted in a report
            if match := re.search(r"\bstep +(\d+)/", line):
                told = int(match[1])
            if match := re.search(r"resuming from \S+ after step (\d+)", line):
                resumed.append((told, int(match[1])))
        self.assertEqual(len(resumed), times, err)
        for told, step in resumed:
            self.assertGreater(told, 0, err)
            self.assertGreaterEqual(step, told - 1, err)
        self.assertEqual([line["step"] for line in metrics(self.folder / output) if "loss" in line], list(range(1, self.STEPS + 1)))
        wait_for(lambda: not processes_of(f"output_dir={output}"))

    def undisturbed(self, name, *more, ranks):
        self.train(name, *more, "save_strategy=no", ranks=ranks, steps=self.STEPS)
        return losses(self.folder / name)

    def lose_ranks(self, name, *words, ranks, rank):
        """Kills a rank twice and checks that the losses are bit-identical to those of an undisturbed run."""
        job = self.launch([f"--nproc-per-node={ranks}"], name, *words)
        for more in (8, 12):
            self.reached(name, self.step(name) + more)  # the second kill hits a restarted rank
            os.kill(wait_for(lambda: ranks_of(f"output_dir={name}").get(rank)), signal.SIGKILL)
        self.check(name, self.finish(job), times=2)
        self.assertEqual(losses(self.folder / name), self.undisturbed(f"{name}-whole", *words, ranks=ranks))

    def test_a_lost_rank_costs_the_step_under_way(self):
        self.lose_ranks("zero-2", "per_device_train_batch_size=2", "parallel.zero_stage=2", ranks=3, rank=1)
        newest = max((self.folder / "zero-2").glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
        told = json.loads((newest / "trainer_state.json").read_text())
        self.assertEqual([line["step"] for line in told["log_history"]], list(range(1, int(newest.name.partition("-")[2]) + 1)))

    @long
    def test_under_every_strategy(self):
        plans = {
            "zero-0": (3, []), "zero-1": (2, ["parallel.zero_stage=1"]), "zero-3": (3, ["parallel.zero_stage=3"]),
            "pipeline": (2, ["parallel.pipeline=2", "gradient_accumulation_steps=2"]), "tensor": (2, ["parallel.tensor=2"]),
            "three": (4, ["parallel.pipeline=2", "parallel.tensor=2", "gradient_accumulation_steps=2", "bf16=true"]),
            "muon": (2, ["optim=muon", "parallel.zero_stage=1"]), "half": (2, ["fp16=true", "parallel.zero_stage=2"])}
        for name, (ranks, words) in plans.items():
            with self.subTest(name):
                self.lose_ranks(name, "per_device_train_batch_size=2", *words, ranks=ranks, rank=ranks - 1)

    def machines(self, output, workers, *words):
        """Starts one launcher per simulated node; killing it loses its memory. The first launcher hosts the job."""
        port, agents = free_port(), []
        for count in workers:
            agents.append(self.launch(
                [f"--nnodes=1:{len(workers)}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                 "--rdzv-conf=last_call_timeout=600", f"--nproc-per-node={count}"], output, *words))
            wait_for(lambda: listens(int(port)))
        return agents

    def lose_machine(self, name, workers, lost, *words):
        agents = self.machines(name, workers, *words)
        self.reached(name, 8)
        agents[lost].kill()
        agents[lost].communicate(timeout=60)
        left = [agent for number, agent in enumerate(agents) if number != lost]
        said = [self.finish(agent) for agent in left]
        # The node with rank 0 logs the steps; the lost host may have been that node.
        both = next(text for text in said if "resuming" in text)
        self.assertIn("was kept in memory", both)
        if lost != 0:
            self.check(name, both, times=1)
        ranks = sum(workers)
        whole = self.undisturbed(f"{name}-whole", *words, ranks=ranks)
        self.assert_close(losses(self.folder / name), whole, 1e-5)

    def test_lost_node_costs_the_current_step(self):
        self.lose_machine("machine", [2, 1], 1, "per_device_train_batch_size=2", "parallel.zero_stage=3")

    @long
    def test_loss_of_any_node(self):
        self.lose_machine("host", [2, 1], 0, "per_device_train_batch_size=2", "parallel.zero_stage=1")
        self.lose_machine("middle", [1, 3, 1], 1, "per_device_train_batch_size=2")
        self.lose_machine("last", [1, 1, 1], 2, "per_device_train_batch_size=2", "parallel.zero_stage=2")

    def test_in_memory_checkpoint_is_preferred_to_an_older_one_on_disk(self):
        name = "fourth"
        job = self.launch(
            ["--nproc-per-node=2"], name, "checkpoint.replica_steps=4", "save_strategy=steps", "save_steps=6", "save_total_limit=1")
        self.reached(name, 10)
        os.kill(ranks_of(f"output_dir={name}")[0], signal.SIGKILL)
        err = self.finish(job)
        resumed = int(re.search(r"resuming from \S+ after step (\d+)", err)[1])
        self.assertTrue(resumed % 4 == 0 or resumed % 6 == 0, err)
        self.assertGreaterEqual(resumed, 8)
        self.assertEqual([line["step"] for line in metrics(self.folder / name) if "loss" in line], list(range(1, self.STEPS + 1)))

    def test_replicas_without_a_launcher_are_ignored_with_a_warning(self):
        done = self.train("alone", "checkpoint.in_memory_replicas=1", steps=2)
        self.assertIn("checkpoint.in_memory_replicas=1 is ignored: no launcher provides memory for it", done.err)
        failed = self.run_fails(2, *self.train_arguments("two", "checkpoint.in_memory_replicas=2", "checkpoint.replica_steps=0"))
        self.assertIn("checkpoint.in_memory_replicas", failed.err)
        self.assertIn("checkpoint.replica_steps", failed.err)


if __name__ == "__main__":
    unittest.main()
