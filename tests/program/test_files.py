"""Files that a run writes to output_dir."""

import json
import signal
import stat
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, environment, losses, metrics, run, wait_for


class Files(ProgramTest):
    def test_files_of_a_run(self):
        result = self.train("run", "eval_strategy=steps", "eval_steps=3", "save_steps=3", ranks=2)
        run = self.folder / "run"
        self.assertEqual(result.out, "")
        lines = metrics(run)
        steps = [line["step"] for line in lines if "loss" in line]
        self.assertEqual(steps, [1, 2, 3, 4, 5, 6])
        for key in ("epoch", "learning_rate", "grad_norm", "tokens", "tokens_per_s", "step_s", "peak_memory_bytes"):
            self.assertIn(key, lines[0])
        self.assertEqual(lines[0]["tokens"], 2 * 8 * 32)
        evaluations = [line for line in lines if "eval_loss" in line]
        self.assertEqual([line["step"] for line in evaluations], [3, 6])
        self.assertIn("eval_perplexity", evaluations[0])
        state = json.loads((run / "trainer_state.json").read_text())
        self.assertEqual(state["global_step"], 6)
        results = json.loads((run / "train_results.json").read_text())
        self.assertGreater(results["train_runtime"], 0)
        self.assertGreater(results["train_samples_per_second"], 0)
        for name in ("config.yaml", "config.json", "model.safetensors", "tokenizer.json"):
            self.assertTrue((run / name).exists(), name)
        self.assertEqual(
            sorted(p.name for p in run.glob("checkpoint-*")), ["checkpoint-3", "checkpoint-6"])

    def test_permissions_are_those_of_the_umask(self):
        for umask in (0o077, 0o002):
            folder = self.folder / f"umask-{umask:o}"
            words = self.train_arguments(folder / "run", f"data.cache_dir={folder}/cache", "save_steps=2", "report_to=tensorboard", steps=2)
            launched = ["launch", "--standalone", f"--log-dir={folder}/logs", "--tee=3", "train", *words[3:]]
            done = run([PROGRAM, *launched], cwd=self.folder, env=environment(), umask=umask, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            paths = [path for path in folder.rglob("*") if path.name != "step"]  # progress of a worker, for its launcher only
            self.assertTrue({"model.safetensors", "stderr.log", "metrics.jsonl", ".lockstep-lock"} <= {path.name for path in paths})
            for path in paths:
                mode = stat.S_IMODE(path.stat().st_mode)
                expected = 0o700 if path.parent == folder / "logs" else (0o777 if path.is_dir() else 0o666) & ~umask
                self.assertEqual(mode, expected, f"{path}: {mode:o}")

    def test_what_controls_a_run_is_private_at_any_umask(self):
        words = self.train_arguments("private", "monitor.page=true", steps=100000)
        process = subprocess.Popen(
            [PROGRAM, *map(str, words)], cwd=self.folder, env=environment(), umask=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        private = [self.folder / "private" / name for name in (".lockstep-page", ".lockstep-control")]
        wait_for(lambda: losses(self.folder / "private") and all(path.exists() for path in private))
        for path in private:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 75)

    def test_requested_trackers(self):
        self.train(
            "tracked", "report_to=[tensorboard,wandb]", "logging_dir=board", "project=stories", "run_name=first", steps=2)
        board = list((self.folder / "board").glob("events.out.tfevents.*"))
        self.assertEqual(len(board), 1)
        self.assertIn(b"train/loss", board[0].read_bytes())
        self.assertIn(b"learning_rate", board[0].read_bytes())
        run = list((self.folder / "tracked" / "wandb").glob("offline-run-*/*.wandb"))
        self.assertEqual(len(run), 1)
        self.assertIn(b"stories", run[0].read_bytes())

    def test_preset_uses_the_eos_token_of_its_tokenizer(self):
        self.run_ok(
            "tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "400",
            "--special-tokens", "<unused>", "<|endoftext|>", "--output", "late")
        tokenizer = json.loads((self.folder / "late" / "tokenizer.json").read_text())
        end = json.loads((self.folder / "late" / "tokenizer_config.json").read_text())["eos_token"]
        self.train("preset", "model.path=null", "model.preset=gpt2-tiny", "tokenizer.path=late", steps=1)
        config = json.loads((self.folder / "preset" / "config.json").read_text())
        self.assertEqual(config["eos_token_id"], next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == end))

    def test_the_resolved_configuration_gives_the_same_run(self):
        self.train("first", "per_device_train_batch_size=4")
        text = (self.folder / "first" / "config.yaml").read_text()
        (self.folder / "again.yaml").write_text(text)
        self.run_ok("train", "-c", "again.yaml", "output_dir=second")
        self.assertEqual(losses(self.folder / "first"), losses(self.folder / "second"))

    def test_save_total_limit_removes_old_checkpoints(self):
        self.train("limited", "save_steps=2", "save_total_limit=1")
        names = [p.name for p in (self.folder / "limited").glob("checkpoint-*")]
        self.assertEqual(names, ["checkpoint-6"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
