"""Output of a run on a terminal, in a log, and on standard output."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shlex
import struct
import subprocess
import termios
import time
import unittest

from harness import PROGRAM, ProgramTest, environment, judged_pairs, metrics


def screen(drawn):
    """The lines that a terminal shows after it has drawn this text, without the live line's earlier states."""
    lines = []
    for line in drawn.replace("\r\n", "\n").split("\n"):
        lines.append(line.rpartition("\r\x1b[K")[2])
    return lines


class TerminalTest(ProgramTest):
    def on_terminal(self, *arguments, columns=100, stdout=None, **more):
        """Runs the program with standard error, and standard output unless given, on a pseudo-terminal; returns what is drawn."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)], cwd=self.folder, stdin=theirs, stdout=stdout or theirs, stderr=theirs,
            env=environment(TERM="xterm", LC_ALL="C", **more), start_new_session=True)
        os.close(theirs)
        drawn, limit = b"", time.monotonic() + 120
        while True:
            ready, _, _ = select.select([ours], [], [], max(0, limit - time.monotonic()))
            self.assertTrue(ready, drawn)
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the last process closed the terminal
                break
            if not piece:
                break
            drawn += piece
        os.close(ours)
        self.assertEqual(process.wait(60), 0, drawn.decode())
        return drawn.decode()

    def write_lines(self, name, rows):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


EVALUATION = r"(?m)^eval  step (\d+)/6  eval_loss (\d\.\d{3})  perplexity \d+\.\d*  accuracy 0\.\d{3}(  best)?  \(\d+(\.\d)? s\)$"


class Evaluations(TerminalTest):
    def arguments(self, name, *more, ranks=1):
        return self.train_arguments(name, "eval_strategy=steps", "eval_steps=3", "save_steps=3", *more, ranks=ranks)

    def test_each_evaluation_has_a_line_in_a_log_and_on_a_terminal(self):
        for ranks in (1, 2):
            for drawn in (self.run_ok(*self.arguments(f"log{ranks}", ranks=ranks)).err,
                          "\n".join(screen(self.on_terminal(*self.arguments(f"terminal{ranks}", ranks=ranks))))):
                found = re.findall(EVALUATION, drawn)
                self.assertEqual([(step, best) for step, _, best, _ in found], [("3", "  best"), ("6", "  best")], drawn)
                recorded = [line["eval_loss"] for line in metrics(self.folder / f"log{ranks}") if "eval_loss" in line]
                for (_, loss, _, _), exact in zip(found, recorded):
                    self.assertAlmostEqual(float(loss), exact, delta=6e-4)

    def test_the_best_model_is_named_when_it_is_loaded(self):
        told = self.run_ok(*self.arguments("best", "load_best_model_at_end=true")).err
        self.assertRegex(told, r"(?m)^loaded the best model: checkpoint-6 \(eval_loss \d\.\d+\)$")

    def test_preference_steps_and_evaluations_show_their_figures(self):
        self.write_lines("pairs.jsonl", judged_pairs(self.folder))
        told = self.run_ok(*self.arguments(
            "dpo", "task.type=preference", "data.train=pairs.jsonl", "data.validation=pairs.jsonl", "data.sequence_length=64")).err
        self.assertRegex(told, r"(?m)^step 6/6 .*  rewards/accuracies \d\.\d{3}  +rewards/margins -?[\d.e-]+")
        self.assertRegex(told, r"(?m)^eval  step 6/6  eval_loss \d\.\d+  rewards/accuracies \d\.\d{3}  rewards/margins -?[\d.e-]+ .*s\)$")
        self.assertNotIn("logps", told)

    def test_classification_has_the_same_line(self):
        told = self.run_ok(*self.arguments(
            "classes", "task.type=sequence_classification", "data.train=corpus/labelled.csv",
            "data.validation=corpus/labelled_validation.csv")).err
        self.assertRegex(told, r"(?m)^step 6/6  loss \d\.\d+ +accuracy \d\.\d{3}")
        self.assertRegex(told, r"(?m)^eval  step 3/6  epoch 0\.\d+  train_loss \d\.\d+  train_accuracy \d\.\d+  eval_loss \d\.\d+  accuracy \d\.\d{3}")


class Steps(TerminalTest):
    def test_logged_steps_stay_on_a_terminal_with_the_mean_loss(self):
        drawn = self.on_terminal(*self.train_arguments("kept", "logging_steps=2", "monitor.progress=auto"))
        lines = [line for line in screen(drawn) if line.startswith("step ")]
        self.assertEqual([line.split("  ")[0] for line in lines], ["step 2/6", "step 4/6", "step 6/6"], drawn)
        for line, recorded in zip(lines, metrics(self.folder / "kept")):
            self.assertIn(f"loss {recorded['loss']:.4f}", line)
        self.assertGreaterEqual(drawn.count("\r\x1b[K"), 4)  # a live line

    def test_a_bar_is_one_line(self):
        for name in ("bar", "line"):
            lines = screen(self.on_terminal(*self.train_arguments(f"style-{name}", f"monitor.progress={name}")))
            self.assertEqual(len([line for line in lines if line.startswith("step ")]), 1, lines)

    def test_json_is_one_object_per_line_on_standard_output(self):
        told = self.run_ok(*self.train_arguments(
            "json", "monitor.progress=json", "eval_strategy=steps", "eval_steps=3", ranks=2))
        rows = [json.loads(line) for line in told.out.splitlines()]
        self.assertEqual(rows[:-1], metrics(self.folder / "json"))
        self.assertIn("train_runtime", rows[-1])
        self.assertNotRegex(told.err, r"(?m)^(step|eval) ")

    def test_none_prints_no_steps(self):
        told = self.run_ok(*self.train_arguments("none", "monitor.progress=none", "eval_strategy=steps", "eval_steps=3"))
        self.assertNotRegex(told.out + told.err, r"(?m)^(step|eval) ")

    def test_a_pipe_receives_the_log_as_lines(self):
        """`lockstep train ... | tee log`: standard error is a terminal, and standard output a pipe."""
        reading, writing = os.pipe()
        with os.fdopen(reading) as pipe, os.fdopen(writing, "w") as end:
            # The run prints less than the pipe holds, so it does not wait for a reader.
            drawn = self.on_terminal(*self.train_arguments("piped", "logging_steps=3"), stdout=end)
            end.close()
            log = pipe.read()
        self.assertEqual(drawn, "")
        self.assertNotIn("\x1b", log)
        self.assertEqual(re.findall(r"(?m)^step \d/6", log), ["step 3/6", "step 6/6"], log)


class FirstAndLastLines(TerminalTest):
    def test_the_first_lines_say_model_task_plan_batch_and_memory(self):
        told = self.train("planned", "parallel.tensor=2", "parallel.zero_stage=1", "bf16=true", ranks=4, steps=2).err
        for line in (r"model: model\.json \(gpt2\), 43\.9k parameters",
                     r"task: language modeling",
                     r"plan: 4 ranks on cpu; data 2 x tensor 2, ZeRO 1, bfloat16",
                     r"batch: 16 sequences per step \(2 data ranks x 8 x 1 micro-batch\); 2 steps, [\d.]+ epochs of \d+ sequences of 32 tokens",
                     r"predicted memory: \d+ MiB per rank \([\d.]+ \wiB free\)"):
            self.assertRegex(told, rf"(?m)^\[rank 0\] {line}$")

    def test_rows_without_text_are_counted(self):
        self.write_lines("holes.jsonl", [{"text": "One day a dog ran. " * 9 if i % 3 else ""} for i in range(60)])
        told = self.train("holes", "data.train=holes.jsonl", steps=1).err
        self.assertRegex(told, r"(?m)^data\.train: 1 file, 40 documents, \d+ tokens, 20 without text skipped in ")

    def test_adapters_on_packed_weights_are_in_the_plan(self):
        self.train("base", steps=1)
        told = self.train("adapted", "model.path=base", "lora.r=2", "quantization.bits=4", steps=1).err
        self.assertRegex(told, r"(?m)^plan: 1 rank on cpu; LoRA r=2 on NF4, float32$")
        self.assertRegex(told, r"(?m)^saved adapter: adapted$")

    def last_command(self, told):
        """Returns the command that the run proposes, as arguments of the program."""
        command = re.search(r"(?m)^try it: lockstep (.*)$", told)
        self.assertTrue(command, told)
        return shlex.split(command[1])

    def test_the_last_lines_say_where_the_model_is_and_how_to_use_it(self):
        told = self.run_ok(*self.train_arguments(
            "ended", "eval_strategy=steps", "eval_steps=3", "save_steps=3", "load_best_model_at_end=true")).err
        self.assertRegex(told, r"(?m)^saved model: ended$")
        self.assertRegex(told, r"(?m)^result: eval_loss \d\.\d+ after step 6; best \d\.\d+ after step 6$")
        self.assertRegex(told, r"(?m)^checkpoints: checkpoint-6, checkpoint-3$")
        self.assertTrue(self.run_ok(*self.last_command(told), "--max-new-tokens", 2).out)
        adapter = self.train("tuned", "model.path=ended", "lora.r=2", steps=1).err
        self.assertTrue(self.run_ok(*self.last_command(adapter), "--max-new-tokens", 2).out)
        classes = self.train(
            "labels", "task.type=sequence_classification", "data.train=corpus/labelled.csv",
            "data.validation=corpus/labelled_validation.csv", steps=1).err
        self.assertTrue(self.run_ok(*self.last_command(classes)).out)

    def test_accounts_of_the_machine_are_in_the_files_and_in_a_debug_log(self):
        told = self.train("quiet", "save_steps=2").err
        for word in ("goodput", "training waited", "measured"):
            self.assertNotIn(word, told)
        events = [json.loads(line) for line in (self.folder / "quiet" / "events.jsonl").read_text().splitlines()]
        [measured] = [event for event in events if event["event"] == "measured"]
        self.assertGreater(measured["bytes"], 0)
        self.assertGreater(measured["predicted_bytes"], 0)
        self.assertGreater(measured["step_s"], 0)
        self.assertIn("time", [event["event"] for event in events])
        told = self.train("verbose", "save_steps=2", "log_level=debug").err
        for word in ("goodput", "training waited", "measured"):
            self.assertIn(word, told)


if __name__ == "__main__":
    unittest.main()
