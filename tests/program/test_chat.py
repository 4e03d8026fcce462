"""Chat data: equal losses under two plans, the displayed loss mask, and generation with the saved chat template."""

import json
import os
import pty
import shutil
import subprocess
import time
import unittest

from harness import CONFIG, PROGRAM, SOURCE, ProgramTest, environment, long, losses


def read_terminal(file):
    """Returns new output; an empty string once the writer has closed the terminal."""
    try:
        return os.read(file, 4096)
    except OSError:
        return b""


class Chat(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("chats.jsonl", "chatml.jinja"):
            shutil.copy(SOURCE / "examples" / "files" / name, cls.folder)
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "n_positions": 160}))
        cls.words = ["data.prompt=chat", "data.chat_template=chatml.jinja", "tokenizer.path=tokenizer"]

    def train(self, output, *more, ranks=1):
        return self.run_ok(
            "train", "--nproc", ranks, "model.path=model.json", "data.train=chats.jsonl", f"output_dir={output}", "max_steps=3",
            "per_device_train_batch_size=2", "data.sequence_length=96", "logging_steps=1", "use_cpu=true", *self.words, *more)

    def test_plans_give_the_same_losses_and_the_template_is_saved(self):
        told = self.train("one")
        self.assertRegex(told.err, r"data.train: 4 documents in \d+ sequences of 96 tokens, [\d.]+% padding")
        self.assertRegex(told.err, r"\d documents are longer than a sequence, and cut off")
        recognized = self.train("two", "data.prompt=auto", "parallel.context=2", ranks=2).err
        self.assertEqual(recognized.count("data.train: rows are chats (messages): data.prompt=chat\n"), 1)
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "two"), 1e-5)
        answer = self.run_ok("generate", "--model", "one", "--chat", "--prompt", "Where is the dog?", "--max-new-tokens", "4")
        self.assertNotIn("Where is the dog?", answer.out)
        self.assertTrue((self.folder / "one" / "chat_template.jinja").exists())

    def test_adapter_contains_its_chat_template(self):
        self.train("base", "data.chat_template=chatml.jinja")
        (self.folder / "base" / "chat_template.jinja").unlink()
        self.train("adapter", "model.path=base", "lora.r=2")
        told = self.run_fails(2, "generate", "--model", "base", "--chat", "--prompt", "Where is the dog?").err
        self.assertIn("the tokenizer has no chat template", told)
        answer = self.run_ok("generate", "--model", "base", "--adapter", "adapter", "--chat", "--prompt", "Where is the dog?", "--max-new-tokens", 4)
        self.assertNotIn("Where is the dog?", answer.out)
        self.assertIn("eval_loss", self.run_ok(
            "eval", "--model", "base", "--adapter", "adapter", "--data", "chats.jsonl", "data.prompt=chat", "data.sequence_length=96").out)
        self.run_ok("export", "--model", "base", "--adapter", "adapter", "--merge", "--output", "merged")
        merged = self.run_ok("generate", "--model", "merged", "--chat", "--prompt", "Where is the dog?", "--max-new-tokens", 4)
        self.assertEqual(merged.out, answer.out)

    def test_the_mask_is_shown(self):
        began = time.monotonic()
        shown = self.run_ok("data", "show", "data.train=chats.jsonl", "--rows", "2", *self.words).out
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("<|im_start|>assistant\n⟦A red ball.<|im_end|>⟧\n", shown)
        self.assertIn("⟦It is empty.<|im_end|>⟧", shown)
        self.assertNotIn("garden", shown)
        self.run_ok("data", "show", "data.train=chats.jsonl", "--skip", "2", "--html", "page.html", *self.words)
        self.assertIn("assistant\n<b>It is in the garden.&lt;|im_end|&gt;</b>", (self.folder / "page.html").read_text())

    def on_terminal(self, **variables):
        ours, theirs = pty.openpty()
        words = [PROGRAM, "data", "show", "data.train=chats.jsonl", "--rows", "1", *self.words]
        own = {k: v for k, v in environment(TERM="xterm").items() if k != "NO_COLOR"}
        process = subprocess.Popen(words, cwd=self.folder, stdout=theirs, env={**own, **variables})
        os.close(theirs)
        shown = b""
        while part := read_terminal(ours):
            shown += part
        self.assertEqual(process.wait(), 0)
        os.close(ours)
        return shown.decode()

    def test_the_mask_has_colours_on_a_terminal(self):
        shown = self.on_terminal()
        self.assertIn("\x1b[32mA red ball.<|im_end|>\x1b[0m", shown)
        self.assertNotIn("⟦", shown)
        self.assertIn("\x1b[32m", self.on_terminal(NO_COLOR=""))
        for variable in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            shown = self.on_terminal(**variable)
            self.assertNotIn("\x1b", shown)
            self.assertIn("⟦A red ball.<|im_end|>⟧", shown)

    def test_each_line_is_answered_with_its_history(self):
        self.train("talker")
        words = ["generate", "talker", "--chat", "--max-new-tokens", "4", "--system", "Be brief."]

        def first(*messages):
            return self.run_ok("generate", "talker", json.dumps(list(messages)), *words[2:]).out[:-1]
        one = {"role": "user", "content": "Where is the dog?"}
        two = {"role": "user", "content": "And the cat?"}
        answer = first(one)
        again = first(one, {"role": "assistant", "content": answer}, two)
        told = self.run_ok(*words, stdin=b"Where is the dog?\n\nAnd the cat?\n")
        self.assertEqual(told.out, f"{answer}\n{again}\n")
        # The oldest messages are removed if the model has too few positions.
        full = self.run_ok(*words, stdin=b"Where is the dog in the garden?\n" * 12)
        self.assertIn("160 positions: its oldest messages are removed", full.err)
        self.assertEqual(self.run_ok(*words, stdin=b"").out, "")
        self.assertIn("a prompt is required", self.run_fails(2, "generate", "talker").err)

    @long
    def test_a_conversation_on_a_terminal(self):
        self.train("speaker")
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, "generate", "speaker", "--chat", "--max-new-tokens", "2"], cwd=self.folder,
                                   stdin=theirs, stdout=theirs, env=environment())
        os.close(theirs)
        shown = ""
        for prompts, line in enumerate((b"Where is the dog?\n", b"And the cat?\n", b"\x04"), 1):
            while shown.count("> ") < prompts:
                part = read_terminal(ours)
                self.assertTrue(part, f"ended after {shown!r}")
                shown += part.decode(errors="replace")
            os.write(ours, line)
        while part := read_terminal(ours):
            shown += part.decode(errors="replace")
        self.assertEqual(process.wait(), 0)
        os.close(ours)
        self.assertIn("> And the cat?", shown)

    def test_invalid_chats_are_reported(self):
        (self.folder / "bad.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
        result = self.run_fails(4, "data", "show", "data.train=bad.jsonl", *self.words)
        self.assertIn("bad.jsonl, line 1: there is no assistant message", result.err)
        result = self.run_fails(2, "data", "show", "data.train=chats.jsonl", "data.prompt=chat", "tokenizer.path=tokenizer")
        self.assertIn("the tokenizer has no chat template", result.err)
        result = self.run_fails(4, "data", "show", "data.train=chats.jsonl", "data.prompt=none", "tokenizer.path=tokenizer")
        self.assertIn("for chats, set data.prompt=chat", result.err)


class Settings(ProgramTest):
    """generation_config.json of a model folder, for `lockstep generate`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_ok_in(cls.folder, *cls.train_arguments(cls, "run", "save_strategy=no", steps=2))
        cls.file = cls.folder / "run" / "generation_config.json"

    def generate(self, *more, **settings):
        self.file.write_text(json.dumps(settings))
        return self.run_ok("generate", "--model", "run", "--prompt", "The cat", *more)

    def test_the_settings_apply_where_the_user_gives_none(self):
        options = ["--temperature", "0.7", "--top-k", "5", "--top-p", "0.8", "--max-new-tokens", "12"]
        expected = self.generate(*options)
        self.assertNotIn("generation_config.json", expected.err)
        settings = {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.8, "max_new_tokens": 12}
        taken = self.generate(**settings)
        self.assertEqual(taken.out, expected.out)
        self.assertIn("generation_config.json: max_new_tokens 12; temperature 0.7; top_k 5; top_p 0.8\n", taken.err)
        self.assertEqual(self.generate(*options, do_sample=True, temperature=2.0, top_k=3, top_p=0.1, max_new_tokens=3).out, expected.out)
        greedy = self.generate("--max-new-tokens", "12")
        self.assertEqual(self.generate("--max-new-tokens", "12", temperature=0.7, top_k=5).out, greedy.out)  # without do_sample
        self.assertNotEqual(greedy.out, expected.out)
        self.assertIn("not supported: repetition_penalty", self.generate(repetition_penalty=1.2).err)

    def test_each_of_the_tokens_ends_a_text(self):
        self.assertEqual(self.generate("--max-new-tokens", "9", eos_token_id=list(range(CONFIG["vocab_size"]))).out,
                         self.generate("--max-new-tokens", "1").out)

    def test_what_is_wrong_is_named(self):
        for settings, told in (({"eos_token_id": "x"}, "eos_token_id is not an integer or a list of integers"), ({"top_p": "x"}, "top_p is not a number")):
            self.file.write_text(json.dumps(settings))
            self.assertIn(told, self.run_fails(4, "generate", "--model", "run", "--prompt", "The cat").err)


if __name__ == "__main__":
    unittest.main()
