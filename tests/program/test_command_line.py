"""Tests the help by section, the list of models, shell completion and the files of the documentation's examples."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import unittest

from harness import PROGRAM, ProgramTest, environment, long


class Help(ProgramTest):
    def test_help_shows_the_most_used_options(self):
        told = self.run_ok("train", "--help").out
        for word in ("--nproc", "model.path", "data.train", "learning_rate", "lora.r", "parallel.tensor", "output_dir"):
            self.assertIn(f"\n  {word}", told)
        self.assertNotIn("lora.use_dora", told)
        self.assertLess(len(told.splitlines()), 200)
        self.assertIn("`lockstep train --help SECTION`: model, lora, quantization", told)
        self.assertEqual(told, self.run_ok("help", "train").out)
        self.assertEqual(told, self.run_ok("train", "-h").out)

    def test_help_of_a_section_a_key_and_everything(self):
        lora = self.run_ok("train", "--help", "lora").out
        self.assertTrue(lora.startswith("lora: "), lora)
        self.assertIn("lora.use_dora", lora)
        self.assertNotIn("model.path", lora)
        self.assertEqual(lora, self.run_ok("help", "train", "lora").out)
        self.assertEqual(lora, self.run_ok("eval", "--help=lora").out)
        self.assertTrue(self.run_ok("train", "--help", "learning_rate").out.startswith("  training.learning_rate"))
        every = self.run_ok("train", "--help", "all").out
        for section in ("model", "lora", "training", "monitor"):
            self.assertIn(f"\n{section}: ", every)
        self.assertIn("--config-path", every)

    def test_an_unknown_section_has_a_suggestion(self):
        told = self.run_fails(2, "train", "--help", "lorra").err
        self.assertIn("unknown section 'lorra'. Did you mean 'lora'?", told)
        self.assertIn("model, lora, quantization", told)

    @long
    def test_each_command_has_a_short_help_with_its_own_keys(self):
        for command, word in (("unlearn", "unlearning.method"), ("eval", "data.validation"), ("predict", "data.test"), ("verify", "parallel.tensor"),
                              ("plan", "--gpus"), ("estimate", "parallel.zero_stage"), ("submit", "--on"), ("data", "data.chat_template"),
                              ("replay", "--step"), ("generate", "--prompt"), ("export", "--gguf")):
            told = self.run_ok("help", command).out
            self.assertIn(f"lockstep {command}", told)
            self.assertIn(word, told)

    def test_unknown_options_have_suggestions(self):
        told = self.run_fails(2, "generate", "--model", "m", "--max-tokens", "5").err
        self.assertIn("unknown option --max-tokens. Did you mean '--max-new-tokens'?", told)
        self.assertNotIn("Did you mean", self.run_fails(2, "train", "--dtype", "bfloat16").err)
        self.assertIn("Did you mean '--lora.r'?", self.run_fails(2, "train", "--lora.rr", "8").err)


@long
class Hints(ProgramTest):
    """Messages that name the next command or setting."""

    def test_after_the_end_of_a_run(self):
        self.train("run", ranks=2, steps=2)
        told = self.run_fails(3, "ctl", "run", "save").err
        self.assertIn("run has ended at step 2: finished", told)
        self.assertIn("resume_from_checkpoint=true", told)
        told = self.train("run", "resume_from_checkpoint=true", steps=3).err
        self.assertIn("; gradient_accumulation_steps=2 keeps 16 sequences per step", told)

    def test_names_that_are_near(self):
        (self.folder / "retain99_first200.jsonl").write_text('{"question": "a", "answer": "b"}\n')
        told = self.run_fails(4, *self.train_arguments("x", "data.train=retain99.jsonl")).err
        self.assertIn("Did you mean 'retain99_first200.jsonl'?", told)
        (self.folder / "sorts.csv").write_text("text,category\na b,x\nc d,y\n")
        told = self.run_fails(4, *self.train_arguments("x", "data.train=sorts.csv", "data.validation=null", "task.type=sequence_classification")).err
        self.assertIn("set data.label_field=category", told)
        told = self.run_fails(4, "generate", "gpt2-folder", "x").err
        self.assertIn("hf download ORGANISATION/gpt2-folder", told)
        self.assertIn("hf download openai-community/gpt2-xl", self.run_fails(4, "generate", "gpt2-xl", "x", env=environment(HF_HUB_CACHE="none")).err)

    def test_more_positions_than_the_model_has(self):
        (self.folder / "llama.json").write_text(json.dumps({
            "model_type": "llama", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 16}))
        words = ["model.path=llama.json", "data.sequence_length=32"]
        self.assertIn("data.sequence_length=32 exceeds the model's 16 positions", self.train("far", *words, steps=1).err)
        self.assertNotIn("positions", self.train("near", words[0], "data.sequence_length=16", steps=1).err)


class Models(ProgramTest):
    def test_the_tables_and_the_json_agree(self):
        told = self.run_ok("models").out
        listed = json.loads(self.run_ok("models", "--json").out)
        presets = {preset["name"]: preset for preset in listed["presets"]}
        self.assertEqual(presets["gpt2"]["family"], "gpt2")
        self.assertEqual(presets["gpt2"]["parameters"], 124439808)
        families = {family["family"]: family for family in listed["families"]}
        self.assertTrue({"gpt2", "llama", "qwen3", "t5", "bert", "gpt_oss"} <= set(families))
        self.assertEqual(families["llama"]["gguf"], "llama")
        self.assertEqual(families["bert"]["kind"], "encoder")
        self.assertFalse(families["bert"]["generation"])
        self.assertTrue(families["mixtral"]["expert_parallelism"])
        self.assertIsNone(families["bert"]["gguf"])
        for name in [*presets, *families]:
            self.assertRegex(told, rf"(?m)^{re.escape(name)} ")

    def test_each_preset_can_be_estimated(self):
        name = json.loads(self.run_ok("models", "--json").out)["presets"][-1]["name"]
        self.assertIn("parameters", self.run_ok("estimate", "--model", name).out)


class Completion(ProgramTest):
    """Candidates, and their use by the shells that are installed."""

    def candidates(self, *words):
        return [line.split("\t")[0] for line in self.run_ok(*words).out.splitlines()]

    def test_commands_keys_values_and_options(self):
        self.assertEqual(self.candidates("--complete", "tr"), ["train"])
        self.assertIn("help", self.candidates("--complete", ""))
        self.assertEqual(self.candidates("train", "--complete", "model.pa"), ["model.path="])
        self.assertEqual(self.candidates("train", "--complete", "mod"), ["model."])
        self.assertEqual(self.candidates("train", "--complete", "learning_rate"), ["learning_rate=", "learning_rates="])
        self.assertEqual(self.candidates("train", "--complete", "task.type=pre"), ["task.type=preference"])
        self.assertEqual(self.candidates("train", "--complete", "--task.type", "pre"), ["preference"])
        self.assertEqual(self.candidates("unlearn", "--complete", "bf16="), ["bf16=true", "bf16=false"])
        self.assertIn("model.preset=gpt2-tiny", self.candidates("train", "--complete", "model.preset=gpt2-"))
        self.assertEqual(self.candidates("train", "--complete", "--dry"), ["--dry-run"])
        self.assertEqual(self.candidates("train", "--complete", "--help", "lo"), ["lora"])
        self.assertEqual(self.candidates("help", "--complete", "train", "lo"), ["lora"])
        self.assertEqual(self.candidates("help", "--complete", "ev"), ["eval"])
        self.assertEqual(self.candidates("generate", "--complete", "--max"), ["--max-new-tokens", "--max_new_tokens"])
        self.assertEqual(self.candidates("export", "--complete", "--gguf", "q4_"), ["q4_0", "q4_k_m"])
        self.assertEqual(self.candidates("tokenizer", "--complete", ""), ["train"])
        self.assertEqual(self.candidates("tokenizer", "--complete", "train", "--vocab"), ["--vocab-size"])
        self.assertEqual(self.candidates("data", "--complete", "sh"), ["show"])
        self.assertEqual(self.candidates("data", "--complete", "show", "data.pro"), ["data.prompt="])
        self.assertEqual(self.candidates("completion", "--complete", ""), ["bash", "zsh", "fish"])
        self.assertIn("--nproc-per-node", self.candidates("launch", "--complete", "--nproc"))
        self.assertEqual(self.candidates("launch", "--complete", "--nproc-per-node", "2", "train.py", "--l"), [])
        self.assertEqual(self.candidates("doctor", "--complete", "--no"), ["--no-all-reduce"])
        self.assertEqual(self.candidates("train", "--complete", "data.train=cor"), [])  # the shell completes the file

    @long
    def test_every_command_completes_without_running(self):
        for command in self.candidates("--complete", ""):
            if command != "help":
                found = self.candidates(command, "--complete", "--")
                self.assertTrue(all(word.startswith("--") for word in found), command)

    def bash(self, line):
        """Candidates of bash for the line, from the completion function."""
        script = ('source <("$1" completion bash); COMP_LINE=$2; COMP_POINT=${#2}; _lockstep; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", PROGRAM, line.replace("lockstep", PROGRAM, 1)],
                              capture_output=True, text=True, env=environment(), cwd=self.folder, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.bash("lockstep tra"), ["train"])
        self.assertEqual(self.bash("lockstep train model.pa"), ["model.path="])
        self.assertEqual(self.bash("lockstep train task.type=pref"), ["preference"])
        self.assertEqual(self.bash("lockstep train --optim adamw_torch_f"), ["adamw_torch_fused"])
        self.assertEqual(self.bash("lockstep help train quan"), ["quantization"])

    def press_tab(self, *shell, setup):
        """Completes a key and then a file name in an interactive shell."""
        ours, theirs = pty.openpty()
        (self.folder / "bin").mkdir(exist_ok=True)
        link = self.folder / "bin" / "lockstep"
        if not link.exists():
            link.symlink_to(PROGRAM)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        process = subprocess.Popen(shell, stdin=theirs, stdout=theirs, stderr=theirs, cwd=self.folder, start_new_session=True,
                                   env=environment(PATH=path, TERM="dumb", PS1="$ "))
        self.addCleanup(process.kill)
        os.close(theirs)
        seen = ""

        def wait_for(text):
            nonlocal seen
            while text not in seen:
                self.assertTrue(select.select([ours], [], [], 60)[0], f"no {text!r} in {seen!r}")
                seen += os.read(ours, 4096).decode(errors="replace")
        os.write(ours, f"{setup}; echo re''ady\n".encode())
        wait_for("ready")
        os.write(ours, b"lockstep train model.pa\t")
        wait_for("model.path=")
        os.write(ours, b"corp\t")
        wait_for("model.path=corpus")
        os.write(ours, b"\x15exit\n")
        process.wait(60)
        os.close(ours)

    def test_bash_on_a_terminal(self):
        self.press_tab("bash", "--norc", "--noprofile", "-i", setup="source <(lockstep completion bash)")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_on_a_terminal(self):
        self.press_tab("zsh", "-f", "-i", setup="autoload -U compinit; compinit -D -u; source <(lockstep completion zsh)")

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        script = f'alias lockstep {PROGRAM}; {PROGRAM} completion fish | source; complete -C "{PROGRAM} train model.pa"'
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, env=environment(), check=True)
        self.assertIn("model.path=", done.stdout)


class Examples(ProgramTest):
    def test_the_files_of_the_documentation(self):
        told = self.run_ok("sample", "--examples", "examples").out
        for name in ("corpus.txt", "gpt2-folder/config.json", "gpt2-folder/tokenizer.json", "chats.jsonl", "pairs.jsonl", "tofu/retain99.jsonl"):
            self.assertIn(f"examples/{name}\n", told)
            self.assertTrue((self.folder / "examples" / name).is_file())
        self.assertEqual(sorted(path.name for path in (self.folder / "examples").glob(".*")), [])
        self.run_ok_in(self.folder / "examples", "train", "model.path=gpt2-folder", "data.train=corpus.txt", "data.sequence_length=32",
                       "output_dir=run", "max_steps=1", "per_device_train_batch_size=2", "use_cpu=true")

    def test_existing_files_are_kept(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "chats.jsonl").write_text("mine")
        self.assertIn("mine/chats.jsonl exists", self.run_fails(2, "sample", "--examples", "mine").err)
        self.assertEqual(sorted(path.name for path in (self.folder / "mine").iterdir()), ["chats.jsonl"])
        self.assertIn("--output or --examples is required", self.run_fails(2, "sample").err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
