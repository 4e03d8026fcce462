"""Failures are reported immediately, with their cause, and leave no process running."""

import json
import os
import resource
import signal
import subprocess
import time
import unittest

from harness import PROGRAM, ProgramTest, environment, losses, processes_of, ranks_of, start, wait_for


class Failures(ProgramTest):
    def test_killed_rank_is_named_and_ends_the_job(self):
        process = start(*self.train_arguments("killed", ranks=3, steps=10000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "killed")) >= 2)
        ranks = ranks_of("output_dir=killed")
        self.assertGreaterEqual(set(ranks), {0, 1, 2})
        victim = ranks[1]
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        out, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - killed, 3)  # one second, with a margin for slow machines
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertIn("rank", err)
        self.assertIn("SIGKILL", err)
        self.assertEqual(processes_of("output_dir=killed"), [])

    def test_nan_loss_stops_with_a_name(self):
        result = self.run_fails(
            6, *self.train_arguments("diverged", "learning_rate=1e30", "warmup_steps=0", "max_grad_norm=0"))
        self.assertIn("transformer.", result.err)
        self.assertIn("learning_rate", result.err)

    def test_metrics_on_a_full_disk_do_not_end_the_run(self):
        (self.folder / "full").mkdir()
        (self.folder / "full" / "metrics.jsonl").symlink_to("/dev/full")
        result = self.train("full", steps=4)
        self.assertEqual(result.err.count("No space left on device"), 1, result.err)
        self.assertIn("training continues without the remaining metrics", result.err)
        self.assertTrue((self.folder / "full" / "model.safetensors").exists())

    def test_closed_output_streams_do_not_end_the_run(self):
        for ranks in (1, 2):
            words = [PROGRAM, *map(str, self.train_arguments(f"closed-{ranks}", ranks=ranks, steps=4))]
            done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], cwd=self.folder, env=environment(), timeout=120)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(len(losses(self.folder / f"closed-{ranks}")), 4)
        words = [PROGRAM, *map(str, self.train_arguments("head", ranks=2, steps=60))]
        reader = subprocess.Popen(words, cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        reader.stdout.readline()
        reader.stdout.close()
        self.assertEqual(reader.wait(timeout=120), 0)
        self.assertEqual(len(losses(self.folder / "head")), 60)

    def test_file_size_limit_error_names_the_file(self):
        for ranks in (1, 2):
            result = self.limited(f"limit-{ranks}", ranks)
            self.assertEqual(result.returncode, 4, result.stderr)
            self.assertRegex(result.stderr, r"checkpoint-4\S*: File too large")

    def limited(self, name, ranks):
        return subprocess.run(
            [PROGRAM, *map(str, self.train_arguments(name, "save_steps=4", ranks=ranks, steps=8))], cwd=self.folder, env=environment(),
            capture_output=True, text=True, timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (350_000, 350_000)))

    def test_truncated_token_file_is_named(self):
        process = start(
            *self.train_arguments("cut", "data.cache_dir=cut-cache", ranks=2, steps=100000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "cut")) >= 2)
        for file in (self.folder / "cut-cache").glob("*.tokens"):
            os.truncate(file, 4096)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGBUS, err)
        self.assertRegex(err, r"\.tokens was truncated while it was read")

    def test_missing_temporary_folder(self):
        failed = self.run_fails(3, *self.train_arguments("no-tmp", ranks=2), env=environment(TMPDIR=str(self.folder / "nowhere")))
        self.assertIn("set TMPDIR to a writable folder", failed.err)

    def test_no_temporary_folder_is_left(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        env = environment(TMPDIR=str(temporary))
        folders = lambda: [path.name for path in temporary.glob("lockstep-*") if path.name != f"lockstep-{os.getuid()}"]
        failed = self.run_fails(4, *self.train_arguments("nothing", "data.train=nothing-here.txt", ranks=2), env=env)
        self.assertIn("error_file: <N/A>", failed.err)
        self.assertEqual(folders(), [])
        process = start(*self.train_arguments("ended", ranks=2, steps=100000), cwd=self.folder, env=env)
        wait_for(lambda: len(losses(self.folder / "ended")) >= 2)
        self.assertEqual(len(folders()), 1)
        process.kill()
        process.communicate(timeout=60)
        wait_for(lambda: not folders())

    def test_bad_input_is_reported(self):
        cases = [
            (2, ["learning_rat=1"], ["learning_rat", "learning_rate"]),
            (2, ["model.path=model.json", "model.preset=gpt2"], ["model.p"]),
            (2, ["per_device_train_batch_size=0"], ["per_device_train_batch_size"]),
            (4, ["data.train=nothing-here.txt"], ["nothing-here.txt"]),
            (2, ["eval_strategy=sometimes"], ["eval_strategy"]),
            (4, ["data.train=empty.txt"], ["empty"]),
            (2, ["data.sequence_length=4096"], ["64"]),
            (2, ["tensor=2"], ["unknown key. Did you mean 'parallel.tensor'?;"]),
            (2, ["--tensor", "2"], ["Did you mean '--parallel.tensor'?"]),
            (2, ["train_batch_size=4"], ["Did you mean 'per_device_train_batch_size'?"]),
            (2, ["--nproc", 100000], ["at most 4096 ranks per machine"]),
            (2, ["lr_scheduler_type=Linaer"], ["Did you mean 'linear'?"]),
            (2, ["nothing_like_it=4"], ["unknown key;"]),
            (2, ["learning_rate=inf"], ["at least 0, and finite"]),
            (2, ["output_dir=model.json"], ["Not a directory", "part of the path is a file"]),
            (4, ["resume_from_checkpoint=nowhere"], ["checkpoint nowhere does not exist"]),
        ]
        (self.folder / "empty.txt").write_text("")
        for code, words, expected in cases:
            result = self.run_fails(code, *self.train_arguments("bad", *words))
            for text in expected:
                self.assertIn(text, result.err, words)

    def test_a_tokenizer_larger_than_the_embedding(self):
        config = json.loads((self.folder / "model.json").read_text())
        config["vocab_size"] = 300
        (self.folder / "narrow.json").write_text(json.dumps(config))
        result = self.run_fails(4, *self.train_arguments("narrow", "model.path=narrow.json"))
        self.assertIn("resize_embeddings", result.err)
        self.train("wide", "model.path=narrow.json", "model.resize_embeddings=true", steps=2)
        saved = json.loads((self.folder / "wide" / "config.json").read_text())
        self.assertEqual(saved["vocab_size"], 512)


if __name__ == "__main__":
    unittest.main(verbosity=2)
