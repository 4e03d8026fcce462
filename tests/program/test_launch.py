"""`lockstep launch` with Lockstep commands: jobs that continue after a loss, and the arguments of every launcher."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import unittest

import canary
from harness import (
    PROGRAM,
    ProgramTest,
    environment,
    free_port,
    listens,
    lockstep,
    long,
    losses,
    metrics,
    processes_of,
    ranks_of,
    start,
    wait_for,
)


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Elastic(ProgramTest):
    STEPS = 150

    def arguments(self, launch, output, *more, batch=2):
        train = self.train_arguments(
            output, f"per_device_train_batch_size={batch}", "save_steps=4", *more, steps=self.STEPS)
        at = train.index("--nproc")
        return ["launch", *launch, "train", *train[1:at], *train[at + 2:]]

    def undisturbed(self, name, *more, ranks, batch=2):
        self.train(name, "overwrite_output_dir=true", f"per_device_train_batch_size={batch}", *more, ranks=ranks, steps=self.STEPS)
        return losses(self.folder / name)

    def steps(self, output):
        return [line["step"] for line in metrics(self.folder / output) if "loss" in line]

    def reached(self, output, step):
        wait_for(lambda: (self.steps(output) or [0])[-1] >= step, seconds=120)

    def saved(self, output):
        """Names of committed checkpoints; checkpoints are written while training continues."""
        return [p.name for p in (self.folder / output).glob("checkpoint-*") if "." not in p.name]

    def worker(self, output, rank):
        return ranks_of(f"output_dir={output}")[rank]

    def finish(self, process):
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, err)
        return err

    def test_resumes_from_the_last_checkpoint_after_a_lost_worker(self):
        job = start(
            *self.arguments(["--nproc-per-node=2", "--max-restarts=1"], "killed"), cwd=self.folder)
        self.reached("killed", 10)
        wait_for(lambda: self.saved("killed"))
        os.kill(self.worker("killed", 1), signal.SIGKILL)
        err = self.finish(job)
        self.assertIn("SIGKILL", err)
        self.assertRegex(err, r"resuming from killed/checkpoint-\d+ after step \d+")
        self.assertEqual(self.steps("killed"), list(range(1, self.STEPS + 1)))
        self.assertEqual(losses(self.folder / "killed"), self.undisturbed("whole-2", ranks=2))
        self.assertEqual(processes_of("output_dir=killed"), [])

    def node(self, output, port, workers):
        launch = [
            "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-conf=last_call_timeout=600", "--max-restarts=1", f"--nproc-per-node={workers}"]
        return start(*self.arguments(launch, output), cwd=self.folder)

    def two_nodes(self, output):
        """Starts two nodes: the first hosts the job with 3 ranks and waits for the second with 1. World size 4, 2 sequences per rank."""
        port = free_port()
        first = self.node(output, port, 3)
        wait_for(lambda: listens(int(port)))
        return port, first, self.node(output, port, 1)

    @long
    def test_continues_without_a_lost_node_and_adds_a_new_one(self):
        port, first, second = self.two_nodes("elastic")
        self.reached("elastic", 6)
        wait_for(lambda: self.saved("elastic"))
        os.kill(second.pid, signal.SIGKILL)
        second.communicate(timeout=60)
        lost_at = self.steps("elastic")[-1]
        self.reached("elastic", lost_at + 6)  # on three ranks, which split 8 sequences unevenly
        third = self.node("elastic", port, 1)
        err = self.finish(first)
        self.finish(third)
        self.assertIn("was lost", err)
        self.assertIn("continues with 3, with the same 8 sequences", err)
        self.assertIn(" joins", err)
        self.assertEqual(len(re.findall(r"resuming from elastic/checkpoint-\d+", err)), 2, err)
        self.assertEqual(self.steps("elastic"), list(range(1, self.STEPS + 1)))
        self.assert_close(losses(self.folder / "elastic"), self.undisturbed("whole-4", ranks=4), 1e-5)
        wait_for(lambda: not processes_of("output_dir=elastic"))

    @long
    def test_continues_without_the_lost_host_and_adds_a_new_node(self):
        port, host, second = self.two_nodes("heir")
        self.reached("heir", 6)
        wait_for(lambda: self.saved("heir"))
        os.kill(host.pid, signal.SIGKILL)
        host.communicate(timeout=60)
        lost_at = self.steps("heir")[-1]
        self.reached("heir", lost_at + 6)
        third = self.node("heir", port, 3)  # the endpoint is on this machine, where the standby coordinator also listens
        err = self.finish(second)
        self.finish(third)
        self.assertIn("this node hosts the job now", err)
        self.assertIn("continues with 1, with the same 8 sequences", err)
        self.assertRegex(err, r"the coordinator's node 127\.0\.0\.1 was lost: .*; \S+ \(127\.0\.0\.1\) hosts it now")
        self.assertIn(" joins", err)
        self.assertEqual(self.steps("heir"), list(range(1, self.STEPS + 1)))
        self.assert_close(losses(self.folder / "heir"), self.undisturbed("whole-4", ranks=4), 1e-5)
        wait_for(lambda: not processes_of("output_dir=heir"))

    @long
    def test_stopped_host_ends_after_failover(self):
        port, host, second = self.two_nodes("still")
        self.reached("still", 6)
        wait_for(lambda: self.saved("still"))
        machine = [host.pid, *(pid for pid in ranks_of("output_dir=still").values() if parent_of(pid) == host.pid)]
        self.assertEqual(len(machine), 4)
        for pid in machine:
            os.kill(pid, signal.SIGSTOP)
        lost_at = self.steps("still")[-1]
        self.reached("still", lost_at + 6)
        for pid in machine:
            os.kill(pid, signal.SIGCONT)
        self.assertIn("takes over", self.finish(second))  # output_dir, although a stopped rank holds its lock
        self.assertRegex(self.finish(host), "the job continued without this coordinator|hosts it now")
        self.assertEqual(self.steps("still"), list(range(1, self.STEPS + 1)))
        self.assert_close(losses(self.folder / "still"), self.undisturbed("whole-4", ranks=4), 1e-5)

    def test_a_killed_launcher_leaves_no_process_and_no_file(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        job = start(*self.arguments(["--nproc-per-node=2"], "lost"), cwd=self.folder, env=environment(TMPDIR=str(temporary)))
        self.reached("lost", 2)
        self.assertTrue(list(temporary.iterdir()))
        job.kill()
        job.communicate(timeout=60)
        wait_for(lambda: not processes_of("output_dir=lost"))
        wait_for(lambda: not list(temporary.iterdir()))

    @long
    def test_checkpoints_of_an_earlier_job_are_not_resumed(self):
        self.train("reused", "save_steps=2", steps=4)
        job = start(
            *self.arguments(
                ["--nproc-per-node=1", "--max-restarts=1"], "reused", "seed=7",
                "save_steps=1000", "overwrite_output_dir=true"),
            cwd=self.folder)
        self.reached("reused", 6)
        os.kill(self.worker("reused", 0), signal.SIGKILL)
        err = self.finish(job)
        self.assertIn("no checkpoint in reused: starting", err)
        self.assertEqual(
            losses(self.folder / "reused"), self.undisturbed("whole-1", "seed=7", ranks=1))


class Words(ProgramTest):
    holds_credentials = (".deepspeed_env",)

    def launch(self, *words):
        train = self.train_arguments("said", "overwrite_output_dir=true", steps=2)
        at = train.index("--nproc")
        return self.run_ok("launch", *words, "train", *train[1:at], *train[at + 2:])

    @long
    def test_arguments_of_every_launcher(self):
        for words in (
                ["--nproc-per-node=2"],
                ["--compat", "torch.distributed.launch", "--nproc-per-node=2"],
                ["--num_processes=2", "--cpu"],
                ["--num_gpus=2"]):
            result = self.launch(*words)
            self.assertIn("2 ranks on cpu", result.err, words)

    def test_both_spellings_of_a_local_rank_are_accepted(self):
        for words in (["--local-rank=0"], ["--local_rank", "0"], ["--local-rank", "0"], ["--local_rank=0"]):
            self.train("said", "overwrite_output_dir=true", *words, steps=1)

    def test_symlink_with_the_name_of_a_launcher(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HOME": str(self.folder)}
        for name in ("torchrun", "accelerate", "deepspeed"):
            (self.folder / name).symlink_to(PROGRAM)
        for name, words, ranks in (
                ("torchrun", ["--nproc_per_node", "2", "--no-python"], 2),
                ("torchrun", ["--standalone", "--no-python"], 1),
                ("accelerate", ["launch", "--cpu", "--num_processes", "2", "--no_python"], 2),
                ("deepspeed", ["--num_gpus=2", "--no_python", "--no_local_rank"], 2)):
            done = subprocess.run(
                [self.folder / name, *words, "sh", "-c", "echo rank $RANK of $WORLD_SIZE"],
                capture_output=True, text=True, timeout=60, env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"rank {ranks - 1} of {ranks}\n", done.stdout, name)

    def test_pdsh_gets_no_secret_in_its_arguments(self):
        """Transports of the test write their arguments, which every user of a machine can list, and end."""
        tools, home = self.folder / "tools", self.folder / "home"
        tools.mkdir()
        home.mkdir()
        for name, takes in (("pdsh", ""), ("ssh", "read line")):
            (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.folder}/asked"\n{takes}\n')
            (tools / name).chmod(0o755)
        (self.folder / "hosts").write_text("one slots=1\ntwo slots=1\n")

        def asked(*words, code=0, **more):
            (self.folder / "asked").write_text("")
            env = environment(HOME=str(home), PATH=f"{tools}:{os.environ['PATH']}", **more)
            env = {name: value for name, value in env.items() if not name.startswith("MLFLOW")}  # these are passed on, secrets among them
            told = lockstep("launch", "--hostfile", "hosts", "--launcher", "pdsh", "--rdzv-insecure", *words, "x.py", cwd=self.folder, env=env)
            self.assertEqual(told.code, code, told)
            return (self.folder / "asked").read_text(), told.err

        text, _ = asked(NCCL_DEBUG="WARN")
        self.assertRegex(text, "^pdsh .*cd [^;&]* && export NCCL_DEBUG=WARN && [^;]* exec ")
        (home / ".deepspeed_env").write_text(f"HF_TOKEN={shlex.quote(canary.value('HF_TOKEN'))}\n")
        text, err = asked()
        self.assertEqual([line.split()[0] for line in text.splitlines() if line[:3] in ("ssh", "pds")], ["ssh", "ssh"])
        canary.expect_none("a list of arguments", text)
        self.assertIn("using ssh", err)
        text, err = asked("--launcher_args=-l me", code=2)
        self.assertEqual(text, "")
        self.assertIn("would show the variables of .deepspeed_env", err)

    def test_doctor_measures_the_ranks(self):
        result = self.run_ok("doctor", "--nproc", 2, "--output", self.folder)
        self.assertRegex(result.out, r"all-reduce +[\d.]+ GB/s between 2 ranks")

    def test_bad_arguments_are_reported_on_one_screen(self):
        for words, texts in (
                (["--nproc-per-nodx=2", "x.py"], ["no launcher accepts", "--help"]),
                (["--compat", "torchrun", "--nproc_per_nodes=2", "x.py"], ["Did you mean 'nproc-per-node'?"]),
                (["--nproc-per-node", "none", "x.py"], ["must be a number, auto, gpu or cpu"]),
                ([], ["a program to launch is required"])):
            result = self.run_fails(2, "launch", *words)
            for text in texts:
                self.assertIn(text, result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
