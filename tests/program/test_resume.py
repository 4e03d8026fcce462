"""A stopped run resumes as if it had not been stopped."""

import json
import shutil
import signal
import unittest

from harness import ProgramTest, long, losses, metrics, processes_of, start, wait_for


class Resume(ProgramTest):
    @long
    def test_infinite_evaluation_is_not_the_best(self):
        words = ["learning_rate=1000", "warmup_steps=0", "lr_scheduler_type=constant", "eval_strategy=steps", "eval_steps=1",
                 "save_steps=1", "metric_for_best_model=perplexity"]
        self.train("endless", *words, steps=2)
        evaluated = [line["eval_perplexity"] for line in metrics(self.folder / "endless") if "eval_perplexity" in line]
        self.assertEqual(evaluated, [None, None])  # infinite, which JSON cannot express
        self.train("endless", *words, "resume_from_checkpoint=true", steps=3)
        self.assertEqual(len(losses(self.folder / "endless")), 3)

    def test_bit_exact_on_the_same_ranks_and_close_on_others(self):
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

    def test_continues_in_the_same_folder_and_file(self):
        arguments = self.train_arguments("same", "save_steps=2", "resume_from_checkpoint=true", steps=4)
        self.run_ok(*arguments)  # no checkpoint exists yet, so the run starts
        before = metrics(self.folder / "same")
        self.run_ok(*self.train_arguments("same", "save_steps=2", "resume_from_checkpoint=true", steps=6))
        after = metrics(self.folder / "same")
        self.assertEqual(after[:len(before)], before)
        self.assertEqual([line["step"] for line in after if "loss" in line], [1, 2, 3, 4, 5, 6])

    def test_a_record_that_is_damaged_or_huge_does_not_forbid_a_resume(self):
        run = self.folder / "damaged"
        words = ["save_steps=2", "save_total_limit=1", "resume_from_checkpoint=true"]
        self.train("damaged", *words, steps=2)
        zeros = b"\0" * 4096
        kept = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "ranks.jsonl")}
        for name, text in kept.items():
            (run / name).write_bytes(text + zeros + text[:20] + text.split(b"\n")[0] + b"\n")
        with (run / "events.jsonl").open("ab") as file:
            file.write(zeros + b'\n{"step": 3, "event": "act", "act": "set"}\n')
        result = self.train("damaged", *words, steps=4)
        for name, text in kept.items():
            self.assertIn(f"{name} has damaged lines", result.err)
            self.assertTrue((run / name).read_bytes().startswith(text + b'{"step": '))
            self.assertTrue((run / f"{name}.damaged").read_bytes().startswith(zeros))
        self.assertEqual(len(losses(run)), 4)
        for name in kept:  # longer than a file that is read whole may be
            end = (run / name).read_bytes()
            with (run / name).open("wb") as file:
                file.seek(3 << 30)
                file.write(b"\n" + end)
        result = self.train("damaged", *words, steps=6)
        self.assertIn("resuming from", result.err)
        self.assertGreater((run / "metrics.jsonl").stat().st_size, 3 << 30)

    @long
    def test_sigterm_saves_and_exits_75(self):
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


class Identity(ProgramTest):
    def setUp(self):
        if not (self.folder / "run").exists():
            self.train("run", "save_steps=2", steps=4)

    def resume(self, name, *more):
        return self.train_arguments(name, f"resume_from_checkpoint={self.folder}/run/checkpoint-2", *more, steps=4)

    def test_other_data_are_refused_by_name(self):
        (self.folder / "other.txt").write_text("other text " * 3000)
        cases = [
            (["data.train=other.txt"], "the training data's hash"),
            (["data.sequence_length=16"], "data.sequence_length: 32 there, 16 here"),
            (["data.packing=false"], 'data.packing: "concatenate" there, "none" here'),
        ]
        for words, text in cases:
            result = self.run_fails(2, *self.resume("refused", *words))
            self.assertIn(text, result.err)
            self.assertIn("checkpoint.allow_other_data", result.err)
        for key in ("ignore_data_skip=true", "checkpoint.allow_other_data=true"):
            result = self.run_ok(*self.resume(key.split("=")[0], "data.sequence_length=16", key))
            self.assertIn("16 here", result.err)

    def test_the_same_data_under_another_name_are_the_same(self):
        (self.folder / "copy.txt").write_bytes((self.folder / "corpus/train.txt").read_bytes())
        result = self.run_ok(*self.resume("copied", "data.train=copy.txt"))
        self.assertNotIn("there,", result.err)

    def test_other_settings_are_reported(self):
        result = self.run_ok(*self.resume("told", "seed=9", "adam_beta2=0.5"))
        self.assertIn("training.seed: 42 there, 9 here", result.err)
        self.assertIn("training.adam_beta2: 0.999 there, 0.5 here", result.err)

    def test_older_checkpoint_without_identity_is_resumed(self):
        folder = self.folder / "old" / "checkpoint-2"
        shutil.copytree(self.folder / "run" / "checkpoint-2", folder)
        state = json.loads((folder / "state.json").read_text())
        del state["identity"]
        text = json.dumps(state)
        manifest = json.loads((folder / "manifest.json").read_text())
        record = manifest["files"]["state.json"]
        size = record["size"]
        (folder / "state.json").write_text(text + " " * (size - len(text)))
        (folder / "manifest.json").write_text(json.dumps(manifest))
        result = self.run_ok(*self.train_arguments(
            "older", "checkpoint.verify=false", f"resume_from_checkpoint={folder}", steps=4))
        self.assertIn("was saved without its data's identity", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
