"""Invalid data is reported before training, on one screen, with the file, the row and the remedy."""

import base64
import json
import os
import shutil
import unittest

from harness import CONFIG, SOURCE, ProgramTest, lockstep, losses, start

# A Parquet file of 390 bytes with 1,024 rows that all refer to one text of 4 MiB.
PARQUET = base64.b64decode(
    "UEFSMRUEFYiAgAQVugJMFQIVABIAACi1L/2ASAQAQABsAAAoAABAAGEBAPj/OdACAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIA"
    "EGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYQIAEGECABBhAgAQYSEAAGFhYWEV"
    "ABUWFSgsFYAQFRAVBhUGHAAAACi1L/0gC1kAAAMAAACAEAEBgBAAFQQZLDUAGAZzY2hlbWEVAgAVDCUCGAR0ZXh0JQBMHAAAABaAEBkcGRwmABwVDBk1AAYQ"
    "GRgEdGV4dBUMFoAQFuqAgAQWrgMm5gImCCksFQQVABUCABUAFRAVAgA8FoCAgIAgGQYZJgCAEAAAABbqgIAEFoAQJggWrgMAKCBwYXJxdWV0LWNwcC1hcnJv"
    "dyB2ZXJzaW9uIDI1LjAuMRkcHAAAAKMAAABQQVIx")


class BadData(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copy(SOURCE / "examples" / "files" / "chatml.jinja", cls.folder)
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "n_positions": 160}))
        rows = [f"{'good' if i % 2 else 'bad'} row {i},{'yes' if i % 2 else 'no'}" for i in range(12)]
        (cls.folder / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")

    def told(self, *words, code=4):
        """Error output of a run that must fail before training."""
        error = self.run_fails(code, "train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=none", "max_steps=1", "use_cpu=true",
                               *words).err
        self.assertLess(error.count("\n"), 24)
        self.assertEqual(losses(self.folder / "none"), [])
        return error

    def labelled(self, *words, **more):
        return self.told("task.type=sequence_classification", *words, **more)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def chat(self, *words, **more):
        return self.told("data.prompt=chat", "data.sequence_length=64", *words, **more)

    def test_a_pipe_instead_of_a_file(self):
        pipes = self.folder / "pipes"
        pipes.mkdir()
        for name in ("f.txt", "f.jsonl", "f.parquet", "f.yaml", "config.json"):
            os.mkfifo(pipes / name)
        whole = self.folder / "whole"
        whole.mkdir()
        shutil.copy(self.folder / "model.json", whole / "config.json")
        os.mkfifo(whole / "model.safetensors")
        for words in (["data.train=pipes/f.txt"], ["data.train=pipes/f.txt", "data.validation_fraction=0.1"],
                      ["data.train=pipes/f.jsonl"], ["data.train=pipes/f.parquet"],
                      ["data.train=corpus/train.txt", "model.path=pipes"],
                      ["data.train=corpus/train.txt", "model.path=whole"],
                      ["-c", "pipes/f.yaml", "data.train=corpus/train.txt"]):
            result = lockstep("train", "model.path=model.json", "tokenizer.path=tokenizer", "data.sequence_length=32", "output_dir=none",
                              "max_steps=1", "use_cpu=true", *words, cwd=self.folder, timeout=60)
            self.assertIn(result.code, (2, 4), result)
            self.assertRegex(result.err, r"(pipes/\S+|whole/model.safetensors)'? is not a (regular )?file")

    def test_unknown_label_in_evaluation_data(self):
        dev = self.write("unseen.csv", "text,label\nfine,yes\nodd,maybe\nodd,yess\n")
        for task in ("sequence_classification", "generative_classification"):
            error = self.told(f"task.type={task}", "data.train=train.csv", f"data.validation={dev}")
            self.assertIn("unseen.csv, line 3: \"maybe\"", error)
            self.assertIn("unseen.csv, line 4: \"yess\". Did you mean 'yes'?", error)
            self.assertIn("the classes are no, yes", error)

    def test_class_without_rows_and_empty_label(self):
        result = self.run_ok("train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=empty-class", "max_steps=1", "use_cpu=true",
                             "task.type=sequence_classification", "data.train=train.csv", "task.labels=[no,yes,maybe]", "data.sequence_length=16")
        self.assertIn("no training row has the label maybe: a classifier never learns it", result.err)
        error = self.labelled(f"data.train={self.write('empty.csv', 'text,label' + chr(10) + 'a,yes' + chr(10) + 'b,' + chr(10))}")
        self.assertIn("empty.csv, line 3", error)
        self.assertIn("there is only one label", self.labelled("data.train=train.csv", "task.labels=[yes]", code=2))
        one = self.write("one.csv", "text,label\na,yes\nb,yes\n")
        self.assertIn("every row has the label \"yes\"", self.labelled(f"data.train={one}"))

    def test_a_missing_column_has_the_nearest_name(self):
        error = self.labelled("data.train=train.csv", "data.label_field=lable")
        self.assertIn("train.csv, line 1 (the header) has no field \"lable\". Did you mean 'label'?", error)
        error = self.labelled("data.train=train.csv", "data.text_field='text,titel'")
        self.assertIn("has no field \"titel\"", error)
        self.write("rows.jsonl", '{"sentence": "a", "label": "x"}\n{"sentense": "b", "label": "y"}\n')
        error = self.labelled("data.train=rows.jsonl", "data.text_field=sentence")
        self.assertIn("rows.jsonl, line 2 has no field \"sentence\". Did you mean 'sentense'?", error)
        self.write("plain.jsonl", '{"txt": "a"}\n')
        self.assertIn("plain.jsonl, line 1 has no field \"text\". Did you mean 'txt'?", self.told("data.train=plain.jsonl"))

    def test_mixed_types(self):
        self.write("lists.jsonl", '{"text": "x", "label": ["a"]}\n{"text": "y", "label": "b"}\n{"text": "z", "label": "c"}\n')
        self.assertIn("lists.jsonl, line 1: [a]", self.labelled("data.train=lists.jsonl"))
        self.write("numbers.csv", "text,label\nx,1.5\ny,two\nz,3\n")
        self.assertIn("numbers.csv, line 3: \"two\"", self.labelled("data.train=numbers.csv"))
        self.write("names.csv", "text,label\nx,3\ny,two\nz,4\n")
        error = self.labelled("data.train=names.csv")
        self.assertIn("1 row with a label that is no number, while 2 others have numbers", error)
        self.assertIn("names.csv, line 3: \"two\"", error)
        self.write("mostly.csv", "text,label\nx,one\ny,two\nz,4\n")
        self.assertIn("mostly.csv, line 4: \"4\"", self.labelled("data.train=mostly.csv"))
        self.run_ok("train", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=named", "max_steps=1", "use_cpu=true",
                    "data.train=names.csv", "task.problem_type=single_label_classification", "data.sequence_length=16")
        self.write("number.jsonl", '{"text": "a"}\n{"text": 5}\n')
        self.assertIn("number.jsonl, line 2", self.told("data.train=number.jsonl"))
        self.write("broken.jsonl", '{"text": "a"}\n{"text": \n')
        self.assertIn("broken.jsonl is not JSON at line 2", self.told("data.train=broken.jsonl"))

    def test_a_parquet_file_that_is_cut_off(self):
        (self.folder / "cut.parquet").write_bytes(b"PAR1" + bytes(range(200)))
        for words in ([], ["task.type=sequence_classification"]):
            error = self.told("data.train=cut.parquet", *words)
            self.assertIn("cut.parquet", error)
            self.assertIn("truncated, damaged", error)

    def test_forbidden_calls_in_a_template(self):
        self.write("chats.jsonl", json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
        for text, named in (("{% include 'other.jinja' %}", "unknown block 'include'"), ("{{ messages.__class__ }}", "__class__"),
                            ("{{ open('/etc/passwd') }}", "open"), ("{{ messages.append(1) }}", "templates may not change values"),
                            ("{% for i in range(1000000000) %}{{ i }}{% endfor %}", "100000")):
            error = self.chat("data.train=chats.jsonl", f"data.chat_template={self.write('evil.jinja', text)}")
            self.assertIn("evil.jinja", error)
            self.assertIn(named, error)

    def test_chat_without_assistant_text(self):
        rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, {"messages": [{"role": "user", "content": "a"}]}]
        self.write("mute.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.assertIn("mute.jsonl, line 2: there is no assistant message", self.chat("data.train=mute.jsonl", "data.chat_template=chatml.jinja"))
        silent = self.write("silent.jinja", "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
        self.assertIn("mute.jsonl, line 1: the chat template renders no text of the assistant",
                      self.chat("data.train=mute.jsonl", f"data.chat_template={silent}"))

    def test_weights_that_sum_to_zero(self):
        for task in ([], ["task.type=sequence_classification"]):
            error = self.told("data.mixture=[{name: a, files: [train.csv], weight: 0}]", *task, code=2)
            self.assertIn("data.mixture", error)
            self.assertIn("the weights sum to 0", error)
        self.assertIn("nothing would be learned", self.labelled("data.train=train.csv", "task.class_weights=[0,0]", code=2))


class Expanding(ProgramTest):
    """Small files that would take gigabytes, with 3 GiB of addresses."""

    def refused(self, code, *words):
        process = start(*words, cwd=self.folder, address_space=3 << 30)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, out + err)
        return err

    def show(self, *words, code=4):
        return self.refused(code, "data", "show", "tokenizer.path=tokenizer", "data.sequence_length=32", *words, "--rows", "1")

    def test_the_limit_lets_usual_data_pass(self):
        self.show("data.train=corpus/train.txt", code=0)

    def test_a_parquet_file(self):
        (self.folder / "rows.parquet").write_bytes(PARQUET)
        self.assertIn("rows.parquet: the file expands to more than 1,000 times its size and 64 MiB", self.show("data.train=rows.parquet"))

    def test_a_chat_template(self):
        (self.folder / "large.jinja").write_text("{{ ('a'*10000000).join(['']*100000) }}")
        (self.folder / "chat.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
        error = self.show("data.train=chat.jsonl", "data.prompt=chat", "data.chat_template=large.jinja")
        self.assertIn("a string of more than 64 MiB", error)

    def test_the_description_of_a_model(self):
        (self.folder / "large.json").write_text('{"a": [' + "[]," * (8 << 20) + "[]]}")
        error = self.refused(4, "estimate", "model.path=large.json", "data.sequence_length=32")
        self.assertIn("but the maximum is 16777216", error)


if __name__ == "__main__":
    unittest.main()
