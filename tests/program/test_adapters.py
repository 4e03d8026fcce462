"""Adapters: files of a run, resuming, parallel plans, merging, and refused settings."""

import json
import shutil
import struct
import unittest

from harness import ProgramTest, long, losses

LORA = ["lora.r=3", "lora.target_modules=all-linear", "lora.lora_dropout=0.2", "save_steps=3"]


def tensors_of(path):
    """Header of a safetensors file."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


class Adapters(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train(cls(), "base", steps=4)
        cls.train(cls(), "run", "model.path=base", "learning_rate=1e-2", *LORA)

    def runTest(self):
        pass

    def adapter(self, folder):
        return (self.folder / folder / "adapter_model.safetensors").read_bytes()

    def test_the_folders_hold_the_adapter_alone(self):
        for folder in ("run", "run/checkpoint-3"):
            names = {path.name for path in (self.folder / folder).iterdir()}
            self.assertLessEqual({"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"}, names)
            self.assertFalse({name for name in names if name.startswith("model") or name == "config.json"})
        tensors = tensors_of(self.folder / "run" / "adapter_model.safetensors")
        self.assertEqual(len(tensors), 2 * 2 * 4)
        self.assertEqual(tensors["base_model.model.transformer.h.1.mlp.c_fc.lora_B.weight"]["shape"], [128, 3])
        moments = tensors_of(self.folder / "run" / "checkpoint-3" / "optimizer-00001-of-00001.safetensors")
        self.assertTrue(all(".lora_" in name for name in moments), moments.keys())
        self.assertIn("trained in an adapter", self.train("again", "model.path=base", *LORA, steps=1).err)

    def test_other_plans_give_the_same_losses(self):
        wanted = losses(self.folder / "run")
        self.assertGreater(max(wanted) - min(wanted), 1e-3)
        for name, ranks, plan in (
            ("tensor", 2, ["parallel.tensor=2", "parallel.sequence_parallel=true"]),
            ("pipeline", 2, ["parallel.pipeline=2", "parallel.schedule=zb-h1", "gradient_accumulation_steps=2",
                             "per_device_train_batch_size=4"]),
            ("shards", 2, ["parallel.zero_stage=3", "per_device_train_batch_size=4", "parallel.recompute=full"]),
        ):
            self.train(name, "model.path=base", "learning_rate=1e-2", *LORA, *plan, ranks=ranks)
            self.assert_close(losses(self.folder / name), wanted, 1e-5)

    def test_the_folder_of_an_adapter_is_a_model(self):
        words = ["--data", "corpus/validation.txt", "data.sequence_length=32", "--json", "use_cpu=true"]
        both = json.loads(self.run_ok("eval", "--model", "base", "--adapter", "run", *words).out)["eval_loss"]
        for model in ("run", "run/checkpoint-6"):
            self.assertEqual(json.loads(self.run_ok("eval", "--model", model, *words).out)["eval_loss"], both)
        self.assertEqual(self.run_ok("generate", "run", "The cat", "--max-new-tokens", 4).out,
                         self.run_ok("generate", "--model", "base", "--adapter", "run", "--prompt", "The cat", "--max-new-tokens", 4).out)
        told = self.run_ok("export", "--model", "run", "--output", "merged-run").out
        self.assertRegex(told, r"merged-run: .*base with run merged, in float32\n")
        self.assertAlmostEqual(json.loads(self.run_ok("eval", "--model", "merged-run", *words).out)["eval_loss"], both, places=5)
        self.train("further", "model.path=run", "learning_rate=1e-3", steps=1)
        self.assertIn("adapter: run", (self.folder / "further" / "config.yaml").read_text())

    def test_the_base_of_an_adapter_is_found_or_named(self):
        shutil.copytree(self.folder / "run", self.folder / "moved" / "run")
        file = self.folder / "moved" / "run" / "adapter_config.json"
        config = json.loads(file.read_text())

        def generate(base, code):
            file.write_text(json.dumps({**config, "base_model_name_or_path": base}))
            words = ["generate", "moved/run", "The", "--max-new-tokens", 1]
            return self.run_fails(code, *words).err if code else self.run_ok(*words).out
        generate("../../base", 0)  # from the adapter's folder
        generate("base", 0)  # from the current folder, as in PEFT
        self.assertIn("moved/run is an adapter of /not/there", generate("/not/there", 2))
        self.assertIn("--adapter moved/run", generate("/not/there", 2))
        self.assertIn("hf download somebody/model", generate("somebody/model", 2))
        self.assertIn("names no base model", generate("", 2))
        self.assertIn("--adapter gives another", self.run_fails(2, "generate", "run", "x", "--adapter", "run").err)
        self.assertIn("keys of lora are set too", self.run_fails(2, *self.train_arguments("bad", "model.path=run", "lora.r=2")).err)

    def test_one_file_for_llama_cpp(self):
        for kind in ("f16", "q8_0"):
            done = self.run_ok("export", "--model", "base", "--adapter", "run", "--merge", "--gguf", kind, "--output", f"gguf/{kind}.gguf")
            self.assertIn(f"as GGUF in {kind}", done.out)
        whole, packed = ((self.folder / "gguf" / f"{kind}.gguf").read_bytes() for kind in ("f16", "q8_0"))
        self.assertLess(len(packed), 0.75 * len(whole))
        for data in (whole, packed):
            self.assertEqual(data[:4], b"GGUF")
            self.assertEqual(struct.unpack("<IQ", data[4:16]), (3, 4 + 2 * 12))  # two embeddings, two tensors of the last norm, 12 per block
            self.assertIn(b"blk.1.ffn_down.bias", data)
            self.assertIn(b"tokenizer.ggml.merges", data)
        self.run_ok("export", "--model", "base", "--gguf", "f16", "--output", "gguf/base.gguf")
        self.assertNotEqual((self.folder / "gguf" / "base.gguf").read_bytes(), whole)
        for words, told in ((["--gguf", "q2_k", "--output", "x.gguf"], "q4_k_m"), (["--gguf", "f16", "--output", "gguf"], "gguf/model.gguf"),
                            (["--gguf", "f16", "--bits", "4", "--output", "x.gguf"], "--bits")):
            self.assertIn(told, self.run_fails(2, "export", "--model", "base", *words).err)
        self.assertFalse((self.folder / "x.gguf").exists())

    def test_resume_is_bit_exact(self):
        self.train("resumed", "model.path=base", "learning_rate=1e-2", "resume_from_checkpoint=run/checkpoint-3", *LORA)
        self.assertEqual(self.adapter("resumed"), self.adapter("run"))

    def test_initialization_from_the_weights(self):
        """PiSSA and orthogonal initialization: the initial model equals the base model. Covers plans, quantized weights, resuming and merging."""
        words = ["--data", "corpus/validation.txt", "--json", "data.sequence_length=32", "use_cpu=true"]
        def loss(*which):
            return json.loads(self.run_ok("eval", "--model", *which, *words).out)["eval_loss"]
        run = ["model.path=base", "learning_rate=1e-2", "lora.r=4", "lora.target_modules=[c_fc,c_proj]"]
        pissa = [*run, "lora.init_lora_weights=pissa"]
        self.train("usual", *run, steps=1)
        start = losses(self.folder / "usual")[0]
        self.train("pissa", *pissa, "save_steps=3")
        wanted = losses(self.folder / "pissa")
        self.assertLess(abs(wanted[0] - start), 1e-5)
        self.train("pissa-2", *pissa, "parallel.tensor=2", ranks=2)
        self.assert_close(losses(self.folder / "pissa-2"), wanted, 1e-5)
        self.train("pissa-again", *pissa, "resume_from_checkpoint=pissa/checkpoint-3")
        self.assertEqual(self.adapter("pissa-again"), self.adapter("pissa"))
        self.run_ok("export", "--model", "base", "--adapter", "pissa", "--merge", "--output", "pissa-merged")
        self.assertAlmostEqual(loss("base", "--adapter", "pissa"), loss("pissa-merged"), delta=1e-5)
        self.train("orthogonal", *run, "lora.init_lora_weights=orthogonal", steps=1)
        self.assertLess(abs(losses(self.folder / "orthogonal")[0] - start), 1e-5)
        self.train("packed", *pissa, "quantization.bits=4", steps=1)  # the remaining weights are then packed
        self.assertLess(abs(losses(self.folder / "packed")[0] - start), 1e-2)
        self.assertIn("--adapter-weight", self.run_fails(
            2, "eval", "--model", "base", "--adapter", "pissa", "--adapter-weight", "2", *words).err)
        self.run_ok("export", "--model", "base", "--bits", "4", "--output", "base-4")
        self.assertIn("the remaining weights are then packed", self.run_fails(2, *self.train_arguments("x", *pissa, "model.path=base-4")).err)

    @long
    def test_use_merge_and_further_training(self):
        words = ["--data", "corpus/validation.txt", "--json", "data.sequence_length=32", "use_cpu=true"]
        self.run_ok("export", "--model", "base", "--adapter", "run", "--merge", "--output", "merged")
        beside, merged, base = (
            json.loads(self.run_ok("eval", "--model", *which, *words).out)["eval_loss"]
            for which in (["base", "--adapter", "run"], ["merged"], ["base"]))
        self.assertAlmostEqual(beside, merged, delta=1e-5)
        self.assertGreater(abs(beside - base), 1e-4)
        prompt = ["--prompt", "The", "--max-new-tokens", "4"]
        self.assertEqual(
            self.run_ok("generate", "--model", "base", "--adapter", "run", *prompt).out,
            self.run_ok("generate", "--model", "merged", *prompt).out)
        self.train("further", "model.path=base", "lora.adapter=run", "learning_rate=0", steps=1)
        self.assertEqual(self.adapter("further"), self.adapter("run"))
        self.assertIn("with other weights", self.run_fails(
            4, *self.train_arguments("other", "model.path=merged", "lora.adapter=run")).err)

    @long
    def test_embedding_head_and_token_rows(self):
        words = ["--data", "corpus/validation.txt", "--json", "data.sequence_length=32", "use_cpu=true"]
        def loss(*which):
            return json.loads(self.run_ok("eval", "--model", *which, *words).out)["eval_loss"]
        tables = ["lora.target_modules=[c_attn,wte,wpe]", "lora.ensure_weight_tying=true"]
        rows = ["lora.target_modules=[c_attn]", "lora.trainable_token_indices=[5,17,300]"]
        for name, more, count in (("tables", tables, 8), ("rows", rows, 5)):
            run = ["model.path=base", "learning_rate=1e-2", "lora.r=3", "lora.lora_dropout=0.2", *more, "save_steps=3"]
            self.train(name, *run)
            self.assertEqual(len(tensors_of(self.folder / name / "adapter_model.safetensors")), count)
            self.train(f"{name}-again", *run, f"resume_from_checkpoint={name}/checkpoint-3")
            self.assertEqual(self.adapter(f"{name}-again"), self.adapter(name))
            self.train(f"{name}-2", *run, "parallel.pipeline=2", "gradient_accumulation_steps=2", "per_device_train_batch_size=4", ranks=2)
            self.assert_close(losses(self.folder / f"{name}-2"), losses(self.folder / name), 1e-5)
            self.run_ok("export", "--model", "base", "--adapter", name, "--merge", "--output", f"{name}-merged")
            self.assertAlmostEqual(loss("base", "--adapter", name), loss(f"{name}-merged"), delta=1e-5)
            self.assertGreater(abs(loss("base", "--adapter", name) - loss("base")), 1e-4)
        self.train("head", "model.path=base", "lora.r=2", "lora.target_modules=[lm_head]", steps=1)
        self.assertIn("ensure_weight_tying", self.run_fails(
            2, "export", "--model", "base", "--adapter", "head", "--merge", "--output", "x").err)

    @long
    def test_weighted_combination_of_adapters(self):
        """Adapters with different ranks, targets and scales give the same result unmerged and merged, on ranks that split layers or shard weights."""
        self.train("other", "model.path=base", "learning_rate=1e-2", "lora.r=2", "lora.use_rslora=true",
                   "lora.target_modules=[c_attn]", "seed=5", steps=2)
        both = ["--adapter", "run", "--adapter", "other", "--adapter-weight", "0.5", "--adapter-weight", "-1.5"]
        words = ["--data", "corpus/validation.txt", "--json", "data.sequence_length=32", "use_cpu=true"]
        def loss(*which):
            return json.loads(self.run_ok("eval", "--model", *which, *words).out)["eval_loss"]
        self.run_ok("export", "--model", "base", "--merge", *both, "--output", "both")
        merged = loss("both")
        self.assertAlmostEqual(loss("base", *both), merged, delta=1e-5)
        self.assertAlmostEqual(loss("base", *both, "--nproc", "2", "parallel.tensor=2"), merged, delta=1e-5)
        self.assertAlmostEqual(loss("base", *both, "--nproc", "2", "parallel.zero_stage=3"), merged, delta=1e-5)
        for part in (both[:2], both[:4]):
            self.assertGreater(abs(loss("base", *part) - merged), 1e-5)
        prompt = ["--prompt", "The", "--max-new-tokens", "4"]
        self.assertEqual(
            self.run_ok("generate", "--model", "base", *both, *prompt).out,
            self.run_ok("generate", "--model", "both", *prompt).out)
        for more, told in (
            (["--adapter-weight", "1"], "3 --adapter-weight for 2 --adapter"),
            (["--adapter-combination", "linear"], "adapters of ranks 3 and 2"),
        ):
            self.assertIn(told, self.run_fails(2, "generate", "--model", "base", *both, *more, *prompt).err)
            self.assertIn(told, self.run_fails(2, "eval", "--model", "base", *both, *more, *words).err)
        for more, told in (
            (["--adapter-weight", "x"], "'x' is not a number"),
            (["--adapter-combination", "svd"], "not cat or linear"),
            (["lora.r=3"], "remove these keys"),
        ):
            self.assertIn(told, self.run_fails(2, "eval", "--model", "base", *both, *more, *words).err)

    def test_a_classifier_keeps_its_labels(self):
        rows = ["data.train=corpus/labelled.csv", "data.validation=corpus/labelled_validation.csv"]
        self.train("labels", "model.path=base", "task.type=sequence_classification", *rows, "lora.r=2", steps=2)
        words = ["--data", "corpus/labelled_validation.csv", "--json", "use_cpu=true", "data.sequence_length=32"]
        self.run_ok("export", "--model", "base", "--adapter", "labels", "--merge", "--output", "labels-merged")
        beside, merged = (json.loads(self.run_ok("eval", "--model", *which, *words).out)
                          for which in (["base", "--adapter", "labels"], ["labels-merged"]))
        self.assertIn("praise", beside["classification_report"])
        self.assertEqual(beside["confusion_matrix"], merged["confusion_matrix"])
        self.assertAlmostEqual(beside["eval_loss"], merged["eval_loss"], delta=1e-5)
        answer = json.loads(self.run_ok(
            "predict", "--model", "base", "--adapter", "labels", "--text", "It is light.", "use_cpu=true").out)
        self.assertIn("praise", json.dumps(answer))

    @long
    def test_regression_and_multi_label_adapters(self):
        """The adapter's problem type is used; its base is a language model and has none."""
        texts = [line for line in (self.folder / "corpus" / "train.txt").read_text().splitlines() if line][:40]
        (self.folder / "numbers.jsonl").write_text("".join(
            json.dumps({"text": text, "label": len(text) / 100}) + "\n" for text in texts))
        (self.folder / "several.jsonl").write_text("".join(
            json.dumps({"text": text, "label": [name for name in ("the", "and", "he") if name in text]}) + "\n" for text in texts))
        for name, problem in (("numbers", "regression"), ("several", "multi_label_classification")):
            self.train(name, "model.path=base", "task.type=sequence_classification", f"task.problem_type={problem}",
                       f"data.train={name}.jsonl", f"data.validation={name}.jsonl", "lora.r=2", steps=2)
            report = json.loads(self.run_ok(
                "eval", "--model", "base", "--adapter", name, "--data", f"{name}.jsonl", "--json", "use_cpu=true").out)
            self.assertEqual(report["eval_samples"], 40)
            self.assertIn("eval_mse" if name == "numbers" else "eval_hamming_loss", report)
            lines = self.run_ok("predict", "--model", "base", "--adapter", name, "--input", f"{name}.jsonl", "use_cpu=true").out.splitlines()
            prediction = json.loads(lines[0])["prediction"]
            self.assertIsInstance(prediction, float if name == "numbers" else list)
        (self.folder / "single.jsonl").write_text("".join(json.dumps({"text": text, "label": "the"}) + "\n" for text in texts))
        other = self.run_fails(2, "eval", "--model", "base", "--adapter", "several", "--data", "single.jsonl",
                               "task.problem_type=single_label_classification", "use_cpu=true")
        self.assertIn("was trained for multi_label_classification", other.err)

    @long
    def test_prediction_of_unlabelled_rows(self):
        rows = ["data.train=corpus/labelled.csv", "data.validation=corpus/labelled_validation.csv"]
        self.train("answers", "model.path=base", "task.type=sequence_classification", *rows, "lora.r=2", steps=1)
        (self.folder / "hidden.jsonl").write_text("".join(json.dumps({"text": text, "label": -1}) + "\n" for text in ("It is light.", "Is it?")))
        words = ["eval", "--model", "base", "--adapter", "answers", "data.test=hidden.jsonl", "--output", "hidden", "use_cpu=true"]
        told = self.run_ok(*words).out
        self.assertRegex(told, r"eval_samples +0\n")
        self.assertNotIn("eval_loss", told)
        self.assertNotIn("mse", told)
        self.assertEqual(json.loads(self.run_ok(*words, "--json").out)["eval_samples"], 0)
        self.assertEqual(len((self.folder / "hidden" / "predictions.jsonl").read_text().splitlines()), 2)
        self.assertFalse((self.folder / "hidden" / "report.html").exists())

    @long
    def test_the_adapters_folder_is_not_written_over(self):
        before = sorted(path.name for path in (self.folder / "run").iterdir())
        told = self.run_fails(2, "export", "--model", "base", "--adapter", "run", "--merge", "--output", "run").err
        self.assertIn("is the adapter itself", told)
        self.assertEqual(sorted(path.name for path in (self.folder / "run").iterdir()), before)

    def test_invalid_settings_fail_before_training(self):
        for words, told in (
            (["lora.target_modules=[c_atn]"], "Did you mean 'c_attn'?"),
            (["lora.r=33"], "use at most 32"),
            (["lora.adapter=run", "lora.r=3"], "lora.adapter"),
            (["lora.rank=3"], "unknown key"),
            (["lora.lora_dropout=1"], "at least 0 and below 1"),
        ):
            self.assertIn(told, self.run_fails(2, *self.train_arguments("bad", "model.path=base", *words)).err)
        told = self.train("dry", "model.path=base", "lora.r=2", "--dry-run").out
        self.assertIn("2 linears, 512 trained parameters", told)
        self.assertIn("adapter_config.json", self.run_fails(
            2, "generate", "--model", "base", "--adapter", "corpus", "--prompt", "x").err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
