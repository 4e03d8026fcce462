"""Input that other programs interpret is either used or refused by name; training never silently uses random weights or learns no token."""

import json
import math
import re
import shutil
import struct
import unittest

from harness import SOURCE, ProgramTest, environment, judged_pairs, losses, metrics

CHATML = SOURCE / "examples" / "files" / "chatml.jinja"


def read_tensors(path):
    """Name -> (dtype, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class NothingSilent(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copy(CHATML, cls.folder)
        cls.run_ok_in(cls.folder, "train", "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
                      "data.sequence_length=32", "output_dir=trained", "max_steps=2", "use_cpu=true")

    def copy(self, name, *left_out):
        """Copies the trained model's folder without the files `left_out`."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in (self.folder / "trained").iterdir():
            if file.is_file() and file.name not in left_out and (file.suffix != ".jsonl"):
                shutil.copy(file, folder)
        return folder

    def write(self, name, rows):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return name

    def train_on(self, name, output, *more):
        return ["train", "model.path=trained", f"data.train={name}", f"output_dir={output}", "max_steps=2", "logging_steps=1", "use_cpu=true",
                "data.cache_dir=cache", "data.sequence_length=64", *more]

    # ---- model folders

    def test_weights_under_names_that_are_not_read_are_refused(self):
        weights = (self.folder / "trained" / "model.safetensors").read_bytes()
        names = {"model-00001-of-00002.safetensors": "complete the download", "consolidated.safetensors": "convert the folder",
                 "adapter_model.safetensors": "--adapter", "pytorch_model.bin": "save the model again", "model-q8.gguf": "GGUF"}
        for name, hint in names.items():
            folder = self.copy("renamed", "model.safetensors")
            (folder / name).write_bytes(weights)
            for command in (["eval", "--model", "renamed", "--data", "corpus/test.txt"], ["generate", "--model", "renamed", "--prompt", "a"],
                            self.train_on("corpus/train.txt", "renamed-run", "model.path=renamed")):
                error = self.run_fails(4, *command).err
                self.assertIn(name, error)
                self.assertIn(hint, error)

    def test_only_training_starts_from_random_weights_and_says_so(self):
        self.copy("bare", "model.safetensors")
        for command in (["eval", "--model", "bare", "--data", "corpus/test.txt"], ["generate", "--model", "bare", "--prompt", "a"]):
            self.assertIn("bare: no weights", self.run_fails(4, *command).err)
        self.assertIn("has no weights", self.run_fails(2, "export", "--model", "bare", "--output", "bare-out", "--bits", "4").err)
        started = self.run_ok(*self.train_on("corpus/train.txt", "bare-run", "model.path=bare"))
        self.assertIn("bare has no weights: training starts from random weights (seed 42)", started.err)

    def test_a_hub_model_whose_cache_lacks_weights_is_an_incomplete_download(self):
        snapshot = self.folder / "hub" / "hub" / "models--org--tiny" / "snapshots" / "abc"
        shutil.copytree(self.copy("bare", "model.safetensors"), snapshot)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("abc")
        env = environment(HF_HOME=str(self.folder / "hub"))
        for command in (["eval", "--model", "org/tiny", "--data", "corpus/test.txt"],
                        self.train_on("corpus/train.txt", "hub-run", "model.path=org/tiny")):
            error = self.run_fails(4, *command, env=env).err
            self.assertIn("hf download org/tiny", error)

    def evaluate(self, folder, *more):
        return json.loads(self.run_ok("eval", "--model", folder, "--data", "corpus/test.txt", "data.sequence_length=32", "--json", *more).out)

    def test_a_head_that_differs_from_the_tied_embedding_is_used(self):
        folder = self.copy("headed")
        tensors = read_tensors(folder / "model.safetensors")
        name, (dtype, shape, data) = next((n, t) for n, t in tensors.items() if n.endswith("wte.weight"))
        values = [v * 1.5 for v in struct.unpack(f"<{len(data) // 4}f", data)]
        tensors["lm_head.weight"] = (dtype, shape, struct.pack(f"<{len(values)}f", *values))
        write_tensors(folder / "model.safetensors", tensors)
        result = self.run_ok("eval", "--model", "headed", "--data", "corpus/test.txt", "data.sequence_length=32", "--json")
        self.assertIn("lm_head.weight differs from", result.err)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
        untied = self.evaluate("headed")["eval_loss"]
        self.assertEqual(json.loads(result.out)["eval_loss"], untied)
        self.assertNotAlmostEqual(untied, self.evaluate("trained")["eval_loss"], places=4)
        # An equal copy remains tied.
        tensors["lm_head.weight"] = (dtype, shape, data)
        write_tensors(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps(config))
        same = self.run_ok("eval", "--model", "headed", "--data", "corpus/test.txt", "data.sequence_length=32", "--json")
        self.assertNotIn("differs", same.err)
        self.assertEqual(json.loads(same.out)["eval_loss"], self.evaluate("trained")["eval_loss"])

    def test_nan_weights_end_an_evaluation(self):
        folder = self.copy("nan")
        tensors = read_tensors(folder / "model.safetensors")
        name, (dtype, shape, data) = next((n, t) for n, t in tensors.items() if n.endswith("ln_f.weight"))
        tensors[name] = (dtype, shape, struct.pack("<f", math.nan) * (len(data) // 4))
        write_tensors(folder / "model.safetensors", tensors)
        result = self.run_fails(6, "eval", "--model", "nan", "--data", "corpus/test.txt", "data.sequence_length=32")
        self.assertIn("the loss is nan", result.err)

    def test_a_single_tensor_of_another_type_does_not_change_the_computation(self):
        losses_found = []
        for kind in ("F32", "BF16"):
            folder = self.copy(f"rounded-{kind}")
            tensors = read_tensors(folder / "model.safetensors")
            name, (_, shape, data) = next((n, t) for n, t in tensors.items() if n.endswith("ln_f.weight"))
            halves = [data[at + 2:at + 4] for at in range(0, len(data), 4)]  # the upper half of a float32 is a bfloat16
            tensors[name] = (kind, shape, b"".join(half if kind == "BF16" else b"\0\0" + half for half in halves))
            write_tensors(folder / "model.safetensors", tensors)
            losses_found.append(self.evaluate(folder.name)["eval_loss"])
        self.assertEqual(*losses_found)

    def test_only_training_starts_a_classifier_randomly(self):
        rows = [{"text": f"It is {word}.", "label": label} for word, label in (("light", "a"), ("dark", "b"), ("both", "c"))] * 2
        self.run_ok(*self.train_on(self.write("classes.jsonl", rows), "classes", "task.type=sequence_classification"))
        predict = ["predict", "--model", "classes", "--text", "It is light."]
        config = self.folder / "classes" / "config.json"
        weights = self.folder / "classes" / "model.safetensors"
        whole, tensors = json.loads(config.read_text()), read_tensors(weights)
        self.assertEqual(len(json.loads(self.run_ok(*predict).out)["probabilities"]), 3)
        config.write_text(json.dumps({**whole, "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}))
        self.assertIn("score.weight", self.run_fails(4, *predict).err)
        config.write_text(json.dumps(whole))
        write_tensors(weights, {name: tensor for name, tensor in tensors.items() if name != "score.weight"})
        self.assertIn("score.weight", self.run_fails(4, *predict).err)
        dtype, shape, data = tensors["score.weight"]
        write_tensors(weights, {**tensors, "score.weight": (dtype, shape, struct.pack("<f", math.nan) * (len(data) // 4))})
        self.assertIn("scores are NaN", self.run_fails(6, *predict).err)

    def test_keys_and_files_that_are_not_used_are_listed(self):
        folder = self.copy("noted")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "n_hed": 4, "use_cache": False, "summary_type": "x"}))
        (folder / "adapter_config.json").write_text("{}")
        (folder / "quantize_config.json").write_text("{}")
        (folder / "README.md").write_text("# A model\n")
        told = self.run_ok("eval", "--model", "noted", "--data", "corpus/test.txt", "data.sequence_length=32").err
        self.assertIn("config.json: keys that gpt2 does not use: n_hed\n", told)
        self.assertIn("noted: files that are neither used nor saved with the model: quantize_config.json\n", told)
        self.assertIn("the adapter is applied only if it is named: --adapter noted", told)
        told = self.run_ok("eval", "--model", "trained", "--data", "corpus/test.txt", "data.sequence_length=32").err
        self.assertNotIn("used", told)

    def test_generation_settings_without_support_are_listed(self):
        folder = self.copy("settings")
        (folder / "generation_config.json").write_text(json.dumps({
            "suppress_tokens": [1], "stop_strings": None, "repetition_penalty": 1.0, "use_cache": True, "new_setting": 3}))
        told = self.run_ok("generate", "--model", "settings", "--prompt", "a", "--max-new-tokens", 1, "--device-map", "cpu").err
        self.assertIn("not supported: new_setting, suppress_tokens\n", told)

    def test_other_files_of_a_folder_are_saved_unchanged(self):
        folder = self.copy("complete")
        others = {"preprocessor_config.json": '{"size": 3}', "processor_config.json": "{ }", "tokenizer.model": "pieces", "LICENSE": "terms",
                  "modeling_own.py": "raise SystemExit", "chat_template.json": '{"chat_template": "x"}', "chat_template.jinja": "{{ messages }}",
                  "generation_config.json": '{"eos_token_id": [0, 3],  "new_setting": 3}', "special_tokens_map.json": '{ "eos_token": "<|endoftext|>" }'}
        for name, text in others.items():
            (folder / name).write_text(text)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "own_key": {"a": [1, None]}, "auto_map": {"AutoModel": "modeling_own.Own"}}))
        self.run_ok(*self.train_on("corpus/train.txt", "complete-run", "model.path=complete"))
        self.run_ok("export", "--model", "complete", "--output", "complete-export", "--dtype", "bfloat16")
        for saved in ("complete-run", "complete-run/checkpoint-2", "complete-export"):
            for name in (*others, "tokenizer.json", "tokenizer_config.json"):
                self.assertEqual((self.folder / saved / name).read_bytes(), (folder / name).read_bytes(), f"{saved}: {name}")
            kept = json.loads((self.folder / saved / "config.json").read_text())
            for key, value in json.loads((folder / "config.json").read_text()).items():
                if key not in ("dtype", "torch_dtype"):
                    self.assertEqual(kept[key], value, f"{saved}: {key}")

    def test_special_tokens_have_the_precedence_of_transformers(self):
        folder = self.copy("named")
        (folder / "chat_template.jinja").write_text("{{ eos_token }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
        settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"eos_token": "one"}
        (folder / "special_tokens_map.json").write_text('{"eos_token": "two"}')
        chat = self.write("named.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}])
        for more, first in (({}, "two"), ({"added_tokens_decoder": {}}, "one")):
            (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **more}))
            shown = self.run_ok("data", "show", "tokenizer.path=named", f"data.train={chat}", "data.prompt=chat", "data.sequence_length=32").out
            self.assertIn(f"\n{first}", shown)

    def test_unknown_sections_of_a_tokenizer_are_refused(self):
        folder = self.copy("misspelled")
        whole = json.loads((folder / "tokenizer.json").read_text())
        whole["pretokenizer"] = whole.pop("pre_tokenizer")
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        (self.folder / "line.txt").write_text("a")
        error = self.run_fails(4, "tokenize", "--model", "misspelled", "line.txt").err
        self.assertIn('the unknown section "pretokenizer". Did you mean \'pre_tokenizer\'?', error)

    # ---- updates

    def test_a_first_update_that_changes_nothing_is_reported(self):
        told = self.run_ok(*self.train_on("corpus/train.txt", "unchanged", "learning_rate=1e-50")).err
        self.assertEqual(told.count("changed no weight"), 1)
        self.assertIn("step 1 changed no weight: at a learning rate of 1e-50", told)
        events = [json.loads(line) for line in (self.folder / "unchanged" / "events.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["event"] == "unchanged weights"], [1])
        for more in (("learning_rate=1e-3", "bf16=true"), ("learning_rate=1e-4", "lr_scheduler_type=linear", "warmup_steps=1"), ("learning_rate=1e-3", "optim=sgd")):
            self.assertNotIn("changed no weight", self.run_ok(*self.train_on("corpus/train.txt", "changed", "overwrite_output_dir=true", *more)).err)

    # ---- rows

    def learned_text(self, row, template="chatml.jinja"):
        """Chat text that `data show` prints, with learned tokens marked."""
        return self.run_ok("data", "show", "model.path=trained", f"data.train={self.write('one.jsonl', [row])}", "data.prompt=chat",
                           f"data.chat_template={template}", "data.sequence_length=128").out

    def test_null_keys_of_messages_are_dropped(self):
        with_null = {"messages": [{"role": "user", "content": "a", "name": None}, {"role": "assistant", "content": None, "tool_calls": None},
                                  {"role": "user", "content": "b"}, {"role": "assistant", "content": "yes"}]}
        without = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant"},
                                {"role": "user", "content": "b"}, {"role": "assistant", "content": "yes"}]}
        shown = self.learned_text(with_null, self.tool_template())
        self.assertNotIn("None", shown)
        self.assertEqual(shown, self.learned_text(without, self.tool_template()))

    def test_a_message_of_weight_0_is_not_learned(self):
        def row(**more):
            return {"messages": [{"role": "user", "content": "first"}, {"role": "assistant", "content": "alpha", **more},
                                 {"role": "user", "content": "second"}, {"role": "assistant", "content": "omega"}]}

        plain = self.learned_text(row())
        for key in ({"weight": 1}, {"train": True}):
            self.assertEqual(plain, self.learned_text(row(**key)))
        for key in ({"weight": 0}, {"train": False}):
            self.assertNotEqual(plain, self.learned_text(row(**key)))
        self.assertEqual(self.learned_text(row(weight=0)), self.learned_text(row(train=False)))
        for key, hint in (({"weight": 0.5}, "must be 0 or 1"), ({"train": "no"}, "must be true or false")):
            error = self.run_fails(4, *self.train_on(self.write("bad.jsonl", [row(**key)]), "bad", "data.prompt=chat",
                                                     "data.chat_template=chatml.jinja")).err
            self.assertIn("bad.jsonl, line 1", error)
            self.assertIn(hint, error)

    def test_rows_without_a_learned_token(self):
        chats = [{"messages": [{"role": "user", "content": "a long question " * 20}, {"role": "assistant", "content": "yes"}]}] * 6
        short = [{"messages": [{"role": "user", "content": "why"}, {"role": "assistant", "content": "because it is so"}]}] * 6
        arguments = ("data.prompt=chat", "data.chat_template=chatml.jinja", "data.long_documents=truncate", "data.sequence_length=48")
        error = self.run_fails(4, *self.train_on(self.write("cut.jsonl", chats), "cut", *arguments)).err
        self.assertIn("data.train: none of 6 documents has a token to learn", error)
        self.assertIn("data.sequence_length=48", error)
        mixed = self.run_ok(*self.train_on(self.write("mixed.jsonl", chats + short), "mixed", *arguments))
        self.assertIn("data.train: 6 of 12 documents have no token to learn", mixed.err)
        error = self.run_fails(4, "eval", "--model", "trained", "--data", "cut.jsonl", *arguments).err
        self.assertIn("none of 6 documents has a token to learn", error)

    def test_unused_fields_are_listed(self):
        chats = self.write("listed.jsonl", [{"id": i, "messages": [{"role": "user", "content": f"Question {i}"}, {"role": "assistant", "content": "yes"}],
                                             "source": "web", "note": None} for i in range(3)])
        words = self.train_on(chats, "listed", "data.prompt=chat", "data.chat_template=chatml.jinja")
        self.assertIn("data.train: fields messages used; id, source unused", self.run_ok(*words).err)
        again = self.run_ok(*self.train_on(chats, "listed-again", "data.prompt=chat", "data.chat_template=chatml.jinja")).err
        self.assertIn("tokenized before", again)
        self.assertIn("data.train: fields messages used; id, source unused", again)
        pairs = self.write("listed-pairs.jsonl", [{"id": i, "prompt": f"Is {i} odd?", "chosen": " yes", "rejected": " no"} for i in range(4)])
        told = self.run_ok(*self.train_on(pairs, "listed-pairs", "task.type=preference")).err
        self.assertIn("data.train: fields prompt, chosen, rejected used; id unused", told)
        (self.folder / "listed.csv").write_text('text,label,"a, note"\n"so, it is",yes,1\n"no ""way""",no,2\n')
        told = self.run_ok(*self.train_on("listed.csv", "listed-csv", "task.type=sequence_classification")).err
        self.assertIn("data.train: fields text, label used; a, note unused", told)
        texts = self.write("listed-texts.jsonl", [{"text": "One two three four."}] * 3)
        self.assertNotIn("fields", self.run_ok(*self.train_on(texts, "listed-texts")).err)

    def test_unread_fields_of_preference_rows_are_refused(self):
        row = {"chosen": "yes it is", "rejected": "no it is not", "prompt": "is it"}
        for more, name in (({"system": "be kind"}, "system"), ({"images": ["a.png"]}, "images"), ({"tools": [{"type": "function"}]}, "tools")):
            error = self.run_fails(4, *self.train_on(self.write("extra.jsonl", [{**row, **more}] * 4), "extra", "task.type=preference")).err
            self.assertIn(f'the field "{name}" is not', error)
        question = {"question": "is it", "chosen": "yes it is", "rejected": "no it is not"}
        error = self.run_fails(4, *self.train_on(self.write("question.jsonl", [question] * 4), "extra", "task.type=preference")).err
        self.assertIn('rename it to "prompt"', error)

    def preference_loss(self, rows, output):
        self.run_ok(*self.train_on(self.write(f"{output}.jsonl", rows), output, "task.type=preference", "preference.loss_type=ipo",
                                   f"data.chat_template={self.tool_template()}", "data.sequence_length=64", "learning_rate=1e-3"))
        return losses(self.folder / output)

    def tool_template(self):
        path = self.folder / "tools.jinja"
        path.write_text("{% if tools %}T{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m['role'] }}>{% for c in m['tool_calls'] or [] %}"
                        "{{ c['function'] | tojson }}{% endfor %}{{ m['content'] or '' }}{% if style %}{{ style }}{% endif %}</s>{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}")
        return "tools.jinja"

    def test_tools_and_key_order_in_preference_rows(self):
        def rows(function, **more):
            call = [{"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}]
            return [{"prompt": [{"role": "user", "content": "go"}], "chosen": call, "rejected": [{"role": "assistant", "content": "no"}], **more}] * 4

        ordered = self.preference_loss(rows({"name": "get", "arguments": {"b": 1, "a": 2}}), "ordered")
        sorted_keys = self.preference_loss(rows({"arguments": {"a": 2, "b": 1}, "name": "get"}), "sorted")
        self.assertNotEqual(ordered, sorted_keys)
        with_tools = self.preference_loss(rows({"name": "get", "arguments": {}}, tools=[{"type": "function"}]), "tools")
        self.assertNotEqual(with_tools, self.preference_loss(rows({"name": "get", "arguments": {}}), "toolless"))
        styled = self.preference_loss(rows({"name": "get", "arguments": {}}, chat_template_kwargs={"style": "!!"}), "styled")
        self.assertNotEqual(styled, with_tools)

    def test_margins_are_used_by_reward_models_only(self):
        pairs = judged_pairs(self.folder)
        reward = ("task.type=reward_model", "learning_rate=1e-3")
        for name, rows in (("plain", pairs), ("zero", [{**row, "margin": 0.0} for row in pairs]), ("wide", [{**row, "margin": 2} for row in pairs])):
            self.run_ok(*self.train_on(self.write(f"{name}.jsonl", rows), f"reward-{name}", *reward))
        self.assertEqual(losses(self.folder / "reward-plain"), losses(self.folder / "reward-zero"))
        # -log sigmoid(c - r - 2), with nearly equal rewards in the first step.
        self.assertAlmostEqual(losses(self.folder / "reward-wide")[0], math.log(1 + math.exp(2)), delta=0.1)
        error = self.run_fails(4, *self.train_on("wide.jsonl", "dpo-wide", "task.type=preference")).err
        self.assertIn('wide.jsonl, line 1: the field "margin" is used by reward models only', error)
        error = self.run_fails(4, *self.train_on(self.write("bad-margin.jsonl", [{**pairs[0], "margin": "x"}]), "bad-margin", *reward)).err
        self.assertIn('the margin is "x"', error)

    def added_tokens(self, name, **files):
        """Number of tokens of a text with a token that only the files next to tokenizer.json define."""
        folder = self.folder / name
        shutil.copytree(self.folder / "tokenizer", folder)
        for file, content in files.items():
            path = folder / f"{file}.json"
            known = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**known, **content}))
        (self.folder / "marked.txt").write_text("a<|im_start|>b")
        shown = self.run_ok("data", "show", "model.path=model.json", f"tokenizer.path={name}", "data.train=marked.txt", "model.resize_embeddings=true",
                            "data.append_eos=false").out
        return int(re.search(r"document 1: (\d+) tokens", shown)[1])

    def test_added_tokens_of_neighbouring_files(self):
        token = {"content": "<|im_start|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        plain = self.added_tokens("tokens-none")
        self.assertGreater(plain, 3)
        for name, files in (("map", {"tokenizer_config": {"additional_special_tokens": ["<|im_start|>"]}}),
                            ("decoder", {"tokenizer_config": {"added_tokens_decoder": {"512": token}}}),
                            ("added", {"added_tokens": {"<|im_start|>": 512}}),
                            ("eos", {"tokenizer_config": {"eos_token": "<|im_start|>"}})):
            self.assertEqual(self.added_tokens(f"tokens-{name}", **files), 3, name)

    # ---- caches

    def test_reference_scores_are_those_of_the_model_with_its_adapter(self):
        self.write("pairs.jsonl", judged_pairs(self.folder))
        base = ("task.type=preference", "data.sequence_length=64", "learning_rate=1e-3", "per_device_train_batch_size=4")
        self.run_ok(*self.train_on("corpus/train.txt", "adapter-a", "lora.r=2", "lora.init_lora_weights=false", "learning_rate=1e-2", "training.seed=1"))
        self.run_ok(*self.train_on("corpus/train.txt", "adapter-b", "lora.r=2", "lora.init_lora_weights=false", "learning_rate=1e-2", "training.seed=2"))
        runs = (("whole", ()), ("on-a", ("lora.adapter=adapter-a",)), ("on-b", ("lora.adapter=adapter-b",)),
                ("drawn", ("lora.r=2", "lora.init_lora_weights=false")), ("drawn-2", ("lora.r=2", "lora.init_lora_weights=false", "training.seed=5")),
                ("packed", ("lora.r=2", "quantization.bits=8")))
        for name, more in runs:
            # Dropout is off for the reference and the model: the first DPO loss is exactly -log sigmoid(0) if both are the same model.
            self.run_ok(*self.train_on("pairs.jsonl", f"dpo-{name}", *base, *more))
            self.assertAlmostEqual(losses(self.folder / f"dpo-{name}")[0], math.log(2), places=4, msg=name)

    # ---- data folders and keys of other programs

    def test_saved_data_set_folder(self):
        folder = self.folder / "saved"
        folder.mkdir()
        rows = [{"text": f"row {i} of the set"} for i in range(8)]
        (folder / "data-00000-of-00001.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "dataset_info.json").write_text('{\n  "features": {"text": {"dtype": "string"}}\n}')
        (folder / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.jsonl"}]}')
        (folder / "README.md").write_text("# A data set\n")
        (folder / "notes.bin").write_bytes(b"x")
        result = self.run_ok(*self.train_on("saved", "saved-run", "data.sequence_length=16"))
        self.assertIn("skipped 1 files of saved with unknown names: notes.bin", result.err)
        both = self.folder / "both"
        both.mkdir()
        (both / "dataset_dict.json").write_text('{"splits": ["train"]}')
        shutil.copytree(folder, both / "train")
        error = self.run_fails(4, *self.train_on("both", "both-run")).err
        self.assertIn("contains the splits train", error)
        self.assertIn("data.train=both/train", error)

    def test_a_plateau_follows_the_metric_that_was_chosen(self):
        arguments = ("data.validation=corpus/validation.txt", "eval_strategy=steps", "eval_steps=1", "lr_scheduler_type=reduce_lr_on_plateau",
                     "lr_scheduler_kwargs={mode: max, patience: 0, factor: 0.5}", "learning_rate=1e-3", "max_steps=4")
        self.run_ok(*self.train_on("corpus/train.txt", "by-loss", *arguments))
        self.run_ok(*self.train_on("corpus/train.txt", "by-accuracy", *arguments, "metric_for_best_model=token_accuracy"))
        def rates(run):
            return [line["learning_rate"] for line in metrics(self.folder / run) if "learning_rate" in line]

        self.assertNotEqual(rates("by-loss"), rates("by-accuracy"))

    def test_accelerators_number_of_steps_is_refused(self):
        error = self.run_fails(2, *self.train_on("corpus/train.txt", "steps", "accelerator_config={gradient_accumulation_kwargs: {num_steps: 3}}")).err
        self.assertIn("gradient_accumulation_steps", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
