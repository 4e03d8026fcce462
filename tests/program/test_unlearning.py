"""Unlearning: every method, plans, resuming, benchmarks, and refused settings."""

import functools
import json
import shutil
import unittest

from harness import CONFIG, SOURCE, ProgramTest, lockstep, long, losses, metrics


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Unlearning(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = [json.loads(line) for line in (cls.folder / "corpus" / "instructions.jsonl").read_text().splitlines()][:32]
        rows = [{"question": f"{row['input'][:20]}?", "answer": row["output"][: 6 + i % 20], "other": "I do not know."}
                for i, row in enumerate(made)]
        # No batch size divides the numbers of rows.
        write_lines(cls.folder / "forget.jsonl", rows[:11])
        write_lines(cls.folder / "retain.jsonl", rows[11:])
        (cls.folder / "idk.txt").write_text("I do not know.\nThat is beyond me.\n")
        (cls.folder / "model.json").write_text(json.dumps({**CONFIG, "attn_pdrop": 0.1}))

    def unlearn(self, output, method, *more, ranks=1, cache="cache", fails=None):
        keeps = [] if method in ("GradAscent", "CEU") else ["unlearning.retain=retain.jsonl"]
        run = self.run_ok if fails is None else functools.partial(self.run_fails, fails)
        return run(
            "unlearn", "--nproc", ranks, "model.path=model.json", "tokenizer.path=tokenizer", f"unlearning.method={method}",
            "unlearning.forget=forget.jsonl", *keeps, "data.sequence_length=48", f"data.cache_dir={cache}",
            f"output_dir={output}", "max_steps=4", "logging_steps=1", "learning_rate=3e-3", "lr_scheduler_type=constant",
            "monitor.peak_tflops=1", "use_cpu=true", *more)

    def assert_alike(self, found, wanted):
        lines, others = metrics(self.folder / found), metrics(self.folder / wanted)
        for name in ("loss", "grad_norm", "forget_loss"):
            values = [line[name] for line in lines if name in line]
            self.assertEqual(len(values), 4, name)
            self.assert_close(values, [line[name] for line in others if name in line], 5e-5)

    def test_every_plan_gives_the_losses_of_one_rank(self):
        refusals = "unlearning.refusals=idk.txt"
        first = self.unlearn("npo", "NPO", "per_device_train_batch_size=4", cache="cache_npo")
        self.assertIn("11 rows to forget, 21 to keep (NLL)", first.err)
        self.assertIn("scored 11 answers with the reference", first.err)
        self.assertNotIn("rows are skipped", first.err)
        self.unlearn("npo_two", "NPO", "per_device_train_batch_size=2", "parallel.zero_stage=3", ranks=2, cache="cache_two")
        self.assert_alike("npo_two", "npo")
        self.unlearn("dpo", "DPO", "per_device_train_batch_size=4", refusals)
        self.unlearn("dpo_pipe", "DPO", "per_device_train_batch_size=2", "gradient_accumulation_steps=2", refusals,
                     "parallel.pipeline=2", ranks=2, cache="cache_pipe")
        self.assert_alike("dpo_pipe", "dpo")
        kl = ["unlearning.alpha=1", "unlearning.retain_loss=KL", "unlearning.beta=3"]
        self.unlearn("undial", "UNDIAL", "per_device_train_batch_size=4", *kl)
        self.unlearn("undial_two", "UNDIAL", "per_device_train_batch_size=1", "gradient_accumulation_steps=2",
                     "parallel.zero_stage=2", *kl, ranks=2)
        self.unlearn("undial_unpacked", "UNDIAL", "per_device_train_batch_size=4", "data.packing=none", *kl)
        for name in ("undial_two", "undial_unpacked"):
            self.assert_alike(name, "undial")

    def test_zero_gradients_are_reported(self):
        saturated = self.unlearn("saturated", "SimNPO", "unlearning.delta=-1000", "unlearning.alpha=0").err
        self.assertIn("step 1: the gradient is exactly 0", saturated)
        self.assertEqual(saturated.count("exactly 0"), 1)
        events = [json.loads(line) for line in (self.folder / "saturated" / "events.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["event"] == "zero gradient"], [1])

    @long
    def test_every_method_runs(self):
        for method in ("GradAscent", "GradDiff", "SimNPO", "CEU", "WGA", "SatImp"):
            with self.subTest(method=method):
                self.unlearn(method, method, "per_device_train_batch_size=4", "max_steps=2")
                self.assertEqual(len(losses(self.folder / method)), 2)
        write_lines(self.folder / "texts.jsonl", [{"text": "One day a cat sat on a mat. " * 9}] * 3)
        told = self.unlearn("texts", "NPO", "unlearning.text_key=text", "unlearning.forget=texts.jsonl",
                            "unlearning.retain=texts.jsonl", "max_steps=1").err
        self.assertRegex(told, r"unlearning.method=NPO: (\d+) rows to forget, \1 to keep")
        self.unlearn("alternate", "DPO", "unlearning.alternate_key=other", "unlearning.anchor=retain", "max_steps=1")

    @long
    def test_rmu_steers_a_layer(self):
        words = [r"unlearning.module_regex=transformer\.h\.2", "model.path=deep.json"]
        (self.folder / "deep.json").write_text(json.dumps({**CONFIG, "n_layer": 5, "attn_pdrop": 0.1}))
        told = self.unlearn("rmu", "RMU", "per_device_train_batch_size=4", *words).err
        self.assertIn("runs up to layer 2 of 5", told)
        self.assertIn("21 to keep (EMBED_DIFF)", told)
        for name, ranks, more in (("zero", 2, ["per_device_train_batch_size=2", "parallel.zero_stage=3"]),
                                  ("pipe", 2, ["per_device_train_batch_size=2", "gradient_accumulation_steps=2",
                                               "parallel.pipeline=2"]),
                                  ("tensor", 2, ["per_device_train_batch_size=4", "parallel.tensor=2",
                                                 "parallel.sequence_parallel=true"])):
            self.unlearn(f"rmu_{name}", "RMU", *more, *words, ranks=ranks)
            self.assert_alike(f"rmu_{name}", "rmu")
        # The whole model is saved; layers after the steered one are unchanged.
        self.run_ok("train", "model.path=deep.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
                    "data.sequence_length=48", "max_steps=1", "output_dir=deep", "use_cpu=true", "data.cache_dir=cache")
        words = [words[0], "model.path=deep", r"unlearning.trainable_params_regex=['transformer\.h\.(1|2)\.mlp\.c_proj\.weight']"]
        self.unlearn("steered", "RMU", "save_steps=2", "unlearning.compatibility=upstream", *words)
        before, after = self.tensors("deep"), self.tensors("steered")
        self.assertEqual(before.keys(), after.keys())
        changed = {name for name in before if before[name] != after[name]}
        self.assertEqual(changed, {f"transformer.h.{i}.mlp.c_proj.weight" for i in (1, 2)})
        self.unlearn("parts", "RMU", "save_steps=2", "max_steps=2", "unlearning.compatibility=upstream", *words)
        self.unlearn("parts", "RMU", "save_steps=2", "resume_from_checkpoint=true", "unlearning.compatibility=upstream", *words)
        self.assertEqual(self.tensors("parts"), after)
        self.assertEqual(losses(self.folder / "parts"), losses(self.folder / "steered"))
        # With an adapter, adapter_config.json records the trained layers.
        self.unlearn("rmu_lora", "RMU", "per_device_train_batch_size=4", "lora.r=2", words[0], "model.path=deep")
        self.unlearn("rmu_lora_two", "RMU", "per_device_train_batch_size=2", "lora.r=2", "parallel.zero_stage=2", words[0],
                     "model.path=deep", ranks=2)
        self.assert_alike("rmu_lora_two", "rmu_lora")
        self.assertEqual(json.loads((self.folder / "rmu_lora" / "adapter_config.json").read_text())["layers_to_transform"],
                         [0, 1, 2])
        self.assertLess(abs(metrics(self.folder / "rmu_lora")[0]["retain_loss"]), 1)

    @long
    def test_retain_loss_as_a_constraint(self):
        bound = ["unlearning.retain_loss_eps=0.2", "unlearning.dual_step_size=0.3"]
        by_step = [*bound, "unlearning.dual_warmup_epochs=0", "unlearning.retain_loss=KL", "unlearning.alpha=2"]
        self.unlearn("pdu", "PDU", "per_device_train_batch_size=4", *by_step)
        weights = [line["retain_preference"] for line in metrics(self.folder / "pdu") if "retain_preference" in line]
        self.assertAlmostEqual(weights[0], 2, delta=1e-9)
        losses_kept = [line["retain_loss"] for line in metrics(self.folder / "pdu") if "retain_loss" in line]
        for before, after, loss in zip(weights, weights[1:], losses_kept):
            self.assertAlmostEqual(after, max(0, before + 0.3 * (loss - 0.2)), delta=1e-6)
        for name, more, ranks in (("zero", ["per_device_train_batch_size=2", "parallel.zero_stage=3"], 2),
                                  ("tensor", ["per_device_train_batch_size=4", "parallel.tensor=2"], 2),
                                  ("pipe", ["per_device_train_batch_size=2", "gradient_accumulation_steps=2",
                                            "parallel.pipeline=2"], 2)):
            self.unlearn(f"pdu_{name}", "PDU", *more, *by_step, ranks=ranks)
            self.assert_alike(f"pdu_{name}", "pdu")
        # The multiplier is updated at the end of epochs (of three steps) by a pass over all rows; a resumed run continues exactly.
        by_epoch = [*bound, "unlearning.dual_warmup_epochs=1", "unlearning.dual_update_upon=epoch", "save_steps=3",
                    "max_steps=5", "unlearning.compatibility=upstream"]
        self.unlearn("epochs", "PDU", "per_device_train_batch_size=4", *by_epoch)
        weights = [line["retain_preference"] for line in metrics(self.folder / "epochs") if "retain_preference" in line]
        self.assertEqual(weights[:3], [1, 1, 1])
        self.assertGreater(weights[3], 1.1)
        self.assertAlmostEqual(weights[3], weights[4], delta=1e-12)  # it is reported as the sum over the rows divided by their number
        self.unlearn("pdu_parts", "PDU", "per_device_train_batch_size=4", *by_epoch, "max_steps=3")
        self.unlearn("pdu_parts", "PDU", "per_device_train_batch_size=4", *by_epoch, "resume_from_checkpoint=true")
        self.assertEqual(losses(self.folder / "pdu_parts"), losses(self.folder / "epochs"))
        told = lockstep("unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=PDU",
                        "unlearning.forget=forget.jsonl", "unlearning.retain=retain.jsonl", "output_dir=none", cwd=self.folder)
        self.assertEqual(told.code, 2, told)
        self.assertIn("unlearning.retain_loss_eps", told.err)

    def test_texts_may_follow_prefixes(self):
        write_lines(self.folder / "completions.jsonl", [{"prompt": "One day a cat", "gt": f"sat on mat {i}."} for i in range(5)]
                    + [{"gt": "A dog ran."}])
        words = ["unlearning.forget=completions.jsonl", "unlearning.retain=completions.jsonl", "unlearning.text_key=gt",
                 "unlearning.prefix_key=prompt", "unlearning.insert_space=true", "max_steps=2"]
        told = self.unlearn("completed", "GradDiff", *words).err
        self.assertIn("6 rows to forget, 6 to keep", told)
        self.assertEqual(len(losses(self.folder / "completed")), 2)
        told = lockstep("unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=GradAscent",
                        "unlearning.forget=completions.jsonl", "unlearning.prefix_key=prompt", "output_dir=none", cwd=self.folder)
        self.assertEqual(told.code, 2, told)
        self.assertIn("only used with unlearning.text_key", told.err)

    def tensors(self, folder):
        data = (self.folder / folder / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {name: data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
                for name, entry in header.items()}

    def test_upstream_means_of_micro_batches(self):
        words = ["unlearning.compatibility=upstream", "unlearning.retain_loss=KL", "per_device_train_batch_size=2"]
        self.unlearn("upstream", "GradDiff", "gradient_accumulation_steps=2", *words)
        self.unlearn("upstream_two", "GradDiff", *words, ranks=2)
        self.assert_alike("upstream_two", "upstream")
        self.unlearn("fixed", "GradDiff", "gradient_accumulation_steps=2", "unlearning.retain_loss=KL",
                     "per_device_train_batch_size=2")
        self.assertNotAlmostEqual(losses(self.folder / "fixed")[-1], losses(self.folder / "upstream")[-1], delta=1e-3)

    def test_an_adapter_is_compared_to_the_model_without_it(self):
        words = ["lora.r=2", "unlearning.retain_loss=KL", "per_device_train_batch_size=4"]
        self.unlearn("lora", "NPO", *words)
        self.unlearn("lora_two", "NPO", "lora.r=2", "unlearning.retain_loss=KL", "per_device_train_batch_size=2",
                     "parallel.zero_stage=2", ranks=2, cache="cache_lora")
        self.assert_alike("lora_two", "lora")
        for method, more in (("NPO", []), ("GradDiff", ["unlearning.retain_loss=KL"])):  # reference scores precomputed, and computed in each step
            done = self.unlearn("no", method, "lora.r=2", "lora.init_lora_weights=pissa", *more, fails=2)
            self.assertIn("with pissa, the model without its adapter is not the base model", done.err)
        (self.folder / "plain.json").write_text(json.dumps({**CONFIG, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}))
        for adapter in (["lora.r=2"], []):
            name = f"plain-{len(adapter)}"
            self.unlearn(name, "NPO", *adapter, *words[1:], "model.path=plain.json", "max_steps=1", cache="cache_plain")
            self.assertAlmostEqual(metrics(self.folder / name)[0]["retain_loss"], 0, delta=1e-6)

    def test_resume_is_exact(self):
        words = ["per_device_train_batch_size=5", "unlearning.refusals=idk.txt", "save_steps=2", "unlearning.retain_loss=KL"]
        self.unlearn("whole", "DPO", *words)
        self.unlearn("dpo_parts", "DPO", *words, "max_steps=2")
        self.unlearn("dpo_parts", "DPO", *words, "resume_from_checkpoint=true")
        self.assertEqual(losses(self.folder / "dpo_parts"), losses(self.folder / "whole"))

    def test_finetuning_lowers_and_unlearning_raises_the_loss(self):
        learned = self.run_ok(
            "unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=Finetune",
            "unlearning.retain=forget.jsonl", "data.sequence_length=48", "data.cache_dir=cache", "output_dir=learned",
            "max_steps=30", "logging_steps=1", "learning_rate=1e-2", "per_device_train_batch_size=11", "use_cpu=true",
            "warmup_epochs=2")
        self.assertIn("0 rows to forget, 11 to keep", learned.err)
        self.assertLess(losses(self.folder / "learned")[-1], 0.6 * losses(self.folder / "learned")[0])
        self.unlearn("forgotten", "GradAscent", "model.path=learned", "learning_rate=1e-3", "max_steps=6")
        forgotten = [line["forget_loss"] for line in metrics(self.folder / "forgotten") if "forget_loss" in line]
        self.assertLess(forgotten[-1], forgotten[0])  # the logged loss is -(-log p)

    def write_tofu(self):
        """Writes a small TOFU suite: forget set, retain set and holdout set."""
        folder = self.folder / "tofu"
        folder.mkdir(exist_ok=True)

        def rows(name, count, *keys):
            made = [{"question": f"Who is {name} {i}?", "answer": f"The {name} of {i}.",
                     "paraphrased_answer": f"It is {name} {i}.", "perturbed_answer": [f"It is {i + k}." for k in (1, 2, 3)]}
                    for i in range(count)]
            return [{key: row[key] for key in ("question", "answer", *keys)} for row in made]

        both = ("paraphrased_answer", "perturbed_answer")
        for name, made in (("forget01_perturbed", rows("a", 7, *both)), ("forget01", rows("a", 7)), ("retain99", rows("b", 9)),
                           ("retain_perturbed", rows("b", 5, *both)), ("real_authors_perturbed", rows("c", 3, both[1])),
                           ("world_facts_perturbed", rows("d", 4, both[1])), ("holdout01", rows("e", 6))):
            write_lines(folder / f"{name}.jsonl", made)

    def evaluate(self, model, output, *more, ranks=1):
        return self.run_ok(
            "eval", "task.type=unlearning", "--model", model, "--output", output, "unlearning.data_dir=tofu", "--nproc", ranks,
            "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01", "unlearning.max_new_tokens=6",
            "per_device_eval_batch_size=3", "use_cpu=true", *more)

    @long
    def test_metrics_are_equal_on_any_number_of_ranks(self):
        self.write_tofu()
        for name, files, steps in (("full", "[tofu/forget01.jsonl,tofu/retain99.jsonl]", 60), ("kept", "tofu/retain99.jsonl", 40)):
            self.run_ok("unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=Finetune",
                        f"unlearning.retain={files}", "data.sequence_length=32", "data.cache_dir=cache", f"output_dir={name}",
                        f"max_steps={steps}", "learning_rate=1e-2", "per_device_train_batch_size=16", "use_cpu=true")
        kept = self.evaluate("kept", "kept_eval")
        self.assertIn("forget_quality is null", kept.err)
        logs = "unlearning.retain_logs_path=kept_eval/TOFU_EVAL.json"
        every = "unlearning.metrics=[forget_quality,model_utility,privleak,extraction_strength,exact_memorization,mia_loss]"
        self.evaluate("full", "full_eval", logs, every)
        results = json.loads((self.folder / "full_eval" / "TOFU_EVAL.json").read_text())
        for more, ranks in ((["parallel.tensor=1"], 3), (["parallel.tensor=2"], 2)):
            self.evaluate("full", f"full_{ranks}", logs, every, *more, ranks=ranks)
            found = json.loads((self.folder / f"full_{ranks}" / "TOFU_EVAL.json").read_text())
            if ranks == 3:
                self.assertEqual(found, results)
            self.assertEqual(found.keys(), results.keys())
            for key, value in results.items():
                if key != "model_hash":
                    self.assertAlmostEqual(found[key]["agg_value"], value["agg_value"], delta=1e-4, msg=key)
        self.assertGreater(results["forget_Q_A_PARA_Prob"]["agg_value"], 0)
        self.assertEqual(len(results["forget_Q_A_PERT_Prob"]["value_by_index"]["0"]["prob"]), 3)
        self.assertEqual(set(results["retain_Q_A_ROUGE"]["value_by_index"]["4"]), {
            "rouge1_recall", "rougeL_f1", "rougeL_recall", "input", "ground_truth", "generation"})
        self.assertEqual(results["retain_Q_A_ROUGE"]["value_by_index"]["4"]["ground_truth"], "The b of 4.")
        self.assertLess(results["forget_quality"]["agg_value"], 0.5)  # the model was trained on the forget set
        self.assertGreater(results["exact_memorization"]["agg_value"], 0.5)
        summary = json.loads((self.folder / "full_eval" / "TOFU_SUMMARY.json").read_text())
        self.assertEqual(summary["model_utility"], results["model_utility"]["agg_value"])
        itself = self.evaluate("kept", "again", logs, "unlearning.metrics=[forget_quality]")
        self.assertIn("1.0", itself.out)
        stale = lockstep("eval", "task.type=unlearning", "--model", "full", "--output", "kept_eval", "unlearning.data_dir=tofu",
                         "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01", "use_cpu=true", cwd=self.folder)
        self.assertEqual(stale.code, 2, stale)
        self.assertIn("belongs to another model", stale.err)
        # A model with an adapter counts as another model.
        self.unlearn("low_rank", "GradAscent", "model.path=full", "lora.r=2", "max_steps=1")
        stale = lockstep("eval", "task.type=unlearning", "--model", "full", "--adapter", "low_rank", "--output", "full_eval",
                         "unlearning.data_dir=tofu", "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01",
                         "use_cpu=true", cwd=self.folder)
        self.assertIn("belongs to another model", stale.err)

    @long
    def test_muses_metrics_and_attacks(self):
        self.write_tofu()
        folder = self.folder / "muse"
        for name, rows in (
            ("knowmem/forget_qa", [{"question": f"Who is a {i}?", "answer": f"The a of {i}."} for i in range(5)]),
            ("knowmem/forget_qa_icl", [{"question": "Who is z?", "answer": "The z."}]),
            ("knowmem/retain_qa", [{"question": f"Who is b {i}?", "answer": f"The b of {i}."} for i in range(4)]),
            ("knowmem/retain_qa_icl", [{"question": "Who is y?", "answer": "The y."}]),
            ("verbmem/forget", [{"prompt": f"One day a cat {i} sat", "gt": f"on a mat of {i}."} for i in range(7)]),
            ("privleak/forget", [{"text": f"One day a cat {i} sat on a mat of {i}."} for i in range(7)]),
            ("privleak/holdout", [{"text": f"A dog {i} ran over {i} hills."} for i in range(6)]),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_lines(folder / f"{name}.jsonl", rows)
        whole = folder / "verbmem" / "forget.jsonl"  # in several files, as Hub data sets
        for part, rows in enumerate((whole.read_text().splitlines()[:4], whole.read_text().splitlines()[4:])):
            (folder / "verbmem" / f"forget-0000{part}-of-00002.jsonl").write_text("".join(row + "\n" for row in rows))
        whole.unlink()
        for name, steps in (("knows", 60), ("other", 1)):
            self.run_ok("unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=Finetune",
                        "unlearning.retain=muse/privleak/forget.jsonl", "unlearning.text_key=text", "data.sequence_length=48",
                        "data.cache_dir=cache", f"output_dir={name}", f"max_steps={steps}", "learning_rate=1e-2",
                        "per_device_train_batch_size=16", "use_cpu=true")

        def muse(model, output, *more, ranks=1):
            return self.run_ok("eval", "task.type=unlearning", "--model", model, "--output", output, "unlearning.data_dir=muse",
                               "--nproc", ranks, "unlearning.benchmark=muse", "unlearning.max_new_tokens=9",
                               "per_device_eval_batch_size=3", "data.sequence_length=60", "unlearning.user_start='Q: '",
                               "unlearning.answer_start='A: '", "use_cpu=true", *more)

        muse("other", "muse_other", "unlearning.metrics=[mia_min_k]")
        every = ("unlearning.metrics=[forget_knowmem_ROUGE,retain_knowmem_ROUGE,forget_verbmem_ROUGE,privleak,"
                 "extraction_strength,exact_memorization,mia_loss,mia_zlib,mia_min_k_plus_plus,mia_gradnorm,mia_reference]")
        words = [every, "unlearning.mia_reference_path=other", "unlearning.retain_logs_path=muse_other/MUSE_EVAL.json"]
        muse("knows", "muse_one", *words)
        muse("knows", "muse_three", *words, ranks=3)
        found, again = (json.loads((self.folder / name / "MUSE_EVAL.json").read_text()) for name in ("muse_one", "muse_three"))
        self.assertEqual(found, again)
        first = found["forget_verbmem_ROUGE"]["value_by_index"]["3"]
        self.assertEqual(first["input"], "One day a cat 3 sat")
        self.assertEqual(first["ground_truth"], "on a mat of 3.")
        self.assertIn("Who is z?", found["forget_knowmem_ROUGE"]["value_by_index"]["0"]["input"])
        self.assertEqual(found["forget_knowmem_ROUGE"]["value_by_index"]["0"]["ground_truth"], "The a of 0.")
        for attack in ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus", "mia_gradnorm", "mia_reference"):
            self.assertEqual(len(found[attack]["forget"]["value_by_index"]), 7)
            if attack != "mia_min_k_plus_plus":
                self.assertGreater(found[attack]["agg_value"], 0.5, attack)  # members of the training data
        self.assertLessEqual(found["privleak"]["agg_value"], 0)
        summary = json.loads((self.folder / "muse_one" / "MUSE_SUMMARY.json").read_text())
        self.assertEqual(summary["forget_verbmem_ROUGE"], found["forget_verbmem_ROUGE"]["agg_value"])
        for words, told in ((["unlearning.metrics=[model_utility]"], "not a metric of unlearning.benchmark=muse"),
                            (["unlearning.metrics=[mia_reference]"], "unlearning.mia_reference_path"),
                            (["unlearning.data_dir=tofu"], "verbmem/forget.jsonl")):
            result = lockstep("eval", "task.type=unlearning", "--model", "knows", "--output", "bad", "unlearning.data_dir=muse",
                              "unlearning.benchmark=muse", "use_cpu=true", *words, cwd=self.folder)
            self.assertNotEqual(result.code, 0)
            self.assertIn(told, result.err)

    @long
    def test_evaluation_during_training(self):
        self.write_tofu()
        suite = ["unlearning.data_dir=tofu", "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01",
                 "unlearning.max_new_tokens=6", "per_device_eval_batch_size=3", "data.sequence_length=48"]
        self.run_ok("unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "unlearning.method=Finetune",
                    "unlearning.retain=[tofu/forget01.jsonl,tofu/retain99.jsonl]", "data.sequence_length=48",
                    "data.cache_dir=cache", "output_dir=learned_tofu", "max_steps=30", "learning_rate=1e-2",
                    "per_device_train_batch_size=16", "use_cpu=true")
        self.evaluate("learned_tofu", "before", "data.sequence_length=48")
        words = ["unlearning.forget=tofu/forget01.jsonl", "unlearning.retain=tofu/retain99.jsonl", "model.path=learned_tofu",
                 "eval_strategy=steps", "eval_steps=2", "eval_on_start=true", "save_strategy=steps", "save_steps=2",
                 "load_best_model_at_end=true", "metric_for_best_model=forget_Q_A_Prob", "learning_rate=1e-3",
                 "unlearning.retain_logs_path=before/TOFU_EVAL.json", *suite]
        self.unlearn("measured", "GradDiff", "per_device_train_batch_size=4", *words)
        folder = self.folder / "measured"
        self.assertFalse((folder / ".evaluated").exists())
        lines = [line for line in metrics(folder) if "eval_model_utility" in line]
        self.assertEqual([line["step"] for line in lines], [0, 2, 4])
        first = json.loads((folder / "evals" / "checkpoint-0" / "TOFU_EVAL.json").read_text())
        before = json.loads((self.folder / "before" / "TOFU_EVAL.json").read_text())
        for key in ("forget_Q_A_Prob", "model_utility", "extraction_strength", "forget_truth_ratio"):
            self.assertAlmostEqual(first[key]["agg_value"], before[key]["agg_value"], delta=1e-5, msg=key)
        self.assertEqual(lines[0]["eval_forget_quality"], 1)  # the model is its own reference
        # The saved model gives the same metrics.
        self.evaluate("measured/checkpoint-2", "second", "data.sequence_length=48", "unlearning.retain_logs_path=before/TOFU_EVAL.json")
        second = json.loads((folder / "evals" / "checkpoint-2" / "TOFU_SUMMARY.json").read_text())
        self.assertEqual(second, json.loads((self.folder / "second" / "TOFU_SUMMARY.json").read_text()))
        state = json.loads((folder / "checkpoint-4" / "trainer_state.json").read_text())
        best = min(lines[1:], key=lambda line: line["eval_forget_Q_A_Prob"])
        self.assertEqual(state["best_global_step"], best["step"])
        for name, told in (("unlearning_path.svg", "log10 forget_quality"), ("truth_ratios.svg", "retain model")):
            self.assertIn(told, (folder / name).read_text())
        # Under any plan, and when resumed.
        for name, plan in (("zero", ["parallel.zero_stage=3", "per_device_train_batch_size=2"]),
                           ("pipe", ["parallel.pipeline=2", "per_device_train_batch_size=4"])):
            self.unlearn(f"measured_{name}", "GradDiff", *plan, *words, ranks=2)
            for line, other in zip(lines, [line for line in metrics(self.folder / f"measured_{name}")
                                           if "eval_model_utility" in line], strict=True):
                for key in ("eval_loss", "eval_forget_Q_A_Prob", "eval_model_utility"):
                    self.assertAlmostEqual(line[key], other[key], delta=1e-3, msg=(name, key))
        self.unlearn("measured_lora", "GradDiff", "lora.r=2", *words, "max_steps=2")
        self.assertTrue((self.folder / "measured_lora" / "evals" / "checkpoint-2" / "TOFU_SUMMARY.json").exists())
        ended = self.unlearn("measured_rmu", "RMU", r"unlearning.module_regex=transformer\.h\.0", *words)
        self.assertIn("evals", [path.name for path in (self.folder / "measured_rmu").iterdir()], ended)

    @long
    def test_verify_and_estimate(self):
        words = ["task.type=unlearning", "unlearning.method=NPO"]
        out = self.run_ok("verify", "--model", "model.json", "--nproc", 2, "parallel.context=2", "data.sequence_length=13",
                          "use_cpu=true", *words).out
        self.assertIn("equal within", out)
        # Methods with a reference distribution are verified against a reference split as in the plan.
        for more in (["unlearning.method=GradDiff", "unlearning.retain_loss=KL", "parallel.tensor=2"],
                     ["unlearning.method=UNDIAL", "unlearning.alpha=1", "parallel.pipeline=2"],
                     ["unlearning.method=PDU", "unlearning.retain_loss_eps=1", "unlearning.retain_loss=KL", "parallel.zero_stage=3"]):
            out = self.run_ok("verify", "--model", "model.json", "--nproc", 2, "data.sequence_length=13", "use_cpu=true",
                              "task.type=unlearning", *more).out
            self.assertIn("equal within", out)
        told = lockstep("verify", "--model", "model.json", "--nproc", 2, "use_cpu=true", "task.type=unlearning",
                        "unlearning.method=NPO", "unlearning.compatibility=upstream", cwd=self.folder)
        self.assertEqual(told.code, 2, told)
        self.assertIn("averages over micro-batches", told.err)

        def estimate(*more):
            return json.loads(self.run_ok("estimate", "--model", "gpt2", "--gpu", "a100-40gb", "--json", *more).out)

        plain = estimate("per_device_train_batch_size=4")
        self.assertEqual(estimate(*words, "per_device_train_batch_size=2"), plain)
        self.assertNotEqual(estimate(*words, "unlearning.retain_loss=KL", "per_device_train_batch_size=2"), plain)
        rmu = ["task.type=unlearning", "unlearning.method=RMU", r"unlearning.module_regex=transformer\.h\.1"]
        out = self.run_ok("verify", "--model", "model.json", "--nproc", 2, "parallel.pipeline=2", "data.sequence_length=13",
                          "use_cpu=true", *rmu).out
        self.assertIn("equal within", out)
        self.assertNotEqual(estimate(*rmu, "per_device_train_batch_size=2"), plain)

    def test_launching_upstream_script_prints_the_equivalent_command(self):
        theirs = self.folder / "theirs"
        shutil.copytree(SOURCE / "examples" / "files" / "configs", theirs / "configs")
        (theirs / "src").mkdir()
        (theirs / "src" / "train.py").write_text("print('their trainer runs')\n")
        words = ["--config-name=unlearn.yaml", "experiment=short", "task_name=a b", "model.model_args.x=1"]
        for launcher in (["--num_processes", "1"], ["--standalone", "--nproc-per-node", "1"], ["--num_gpus", "1"]):
            result = self.run_ok_in(theirs, "launch", *launcher, "src/train.py", *words)
            self.assertIn("their trainer runs", result.out)
            self.assertIn("use \"unlearn -cp configs -cn unlearn.yaml experiment=short 'task_name=a b' model.model_args.x=1\" "
                          "instead of train.py and its arguments", result.err)
        shutil.rmtree(theirs / "configs")
        alone = self.run_ok_in(theirs, "launch", "--nproc-per-node", "1", "src/train.py", *words)
        self.assertNotIn("-cp configs", alone.err)

    @long
    def test_invalid_settings_are_reported(self):
        common = ["unlearn", "model.path=model.json", "tokenizer.path=tokenizer", "output_dir=bad", "use_cpu=true",
                  "data.cache_dir=cache", "max_steps=1"]
        forget = "unlearning.forget=forget.jsonl"
        self.write_tofu()
        measured = ["eval_strategy=epoch", "unlearning.data_dir=tofu", "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01"]
        shutil.copy(self.folder / "tofu" / "holdout01.jsonl", self.folder / "tofu" / "holdout01_perturbed.jsonl")
        (self.folder / "others.json").write_text(json.dumps({"forget_truth_ratio": {"value_by_index": {str(i): {"score": 0.5} for i in range(2)}}}))
        shutil.copytree(self.folder / "tokenizer", self.folder / "endless")
        (self.folder / "endless" / "config.json").write_text((self.folder / "model.json").read_text())
        path = self.folder / "endless" / "tokenizer_config.json"
        path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if not key.endswith("_token")}))
        for words, told in (
            ([], ["no unlearning.method is set"]),
            (["unlearning.method=NPO", forget], ["requires a retain set"]),
            (["unlearning.method=NOP", forget], ["NOP is not one of GradAscent"]),
            (["unlearning.method=GradAscent", forget, "unlearning.beta=1"], ["not used with unlearning.method=GradAscent"]),
            (["unlearning.method=DPO", forget, "unlearning.retain=retain.jsonl"], ["unlearning.refusals"]),
            (["unlearning.method=CEU", forget, "unlearning.question_key=quest"], ["forget.jsonl, line 1", "question"]),
            (["unlearning.method=CEU", forget, "unlearning.chat_template=true"], ["no chat_template"]),
            (["unlearning.method=CEU", forget, "eval_strategy=epoch"], ["unlearning.data_dir"]),
            (["unlearning.method=CEU", forget, "eval_strategy=epoch", "unlearning.data_dir=nowhere"],
             ["forget10_perturbed.jsonl", "nowhere"]),
            (["unlearning.method=CEU", forget, "eval_strategy=steps", "save_strategy=best", "unlearning.data_dir=nowhere"],
             ["training.metric_for_best_model", "model_utility"]),
            (["unlearning.method=RMU", forget, "unlearning.retain=retain.jsonl"],
             ["unlearning.module_regex", "transformer.h.0"]),
            (["unlearning.method=RMU", forget, "unlearning.retain=retain.jsonl", "unlearning.retain_loss=KL"], ["EMBED_DIFF"]),
            (["unlearning.method=NPO", forget, "unlearning.retain=retain.jsonl", "unlearning.retain_loss=EMBED_DIFF"],
             ["EMBED_DIFF is only used with RMU"]),
            (["unlearning.method=RMU", forget, "unlearning.retain=retain.jsonl", r"unlearning.module_regex=transformer\.h\.1",
              "unlearning.trainable_params_regex=[nothing]"], ["trainable_params_regex", "matches no parameter"]),
            (["unlearning.method=CEU", forget, "data.sequence_length=5"],
             ["unlearning.forget: no tokens are left of 11 answers", "data.sequence_length=5"]),
            (["unlearning.method=CEU", forget, *measured, "unlearning.retain_logs_path=nowhere.json"],
             ["unlearning.retain_logs_path: nowhere.json does not exist", "TOFU_EVAL.json"]),
            (["unlearning.method=CEU", forget, *measured, "unlearning.retain_logs_path=others.json"],
             ["others.json has 2 rows, but forget_split has 7"]),
            (["unlearning.method=CEU", forget, *measured, "unlearning.forget_split=holdout01"],
             ["holdout01_perturbed.jsonl, line 1 has no field \"paraphrased_answer\"", "unlearning.metrics=[forget_Q_A_Prob"]),
            (["unlearning.method=CEU", forget, "model.path=endless", "tokenizer.path=endless"], ["the tokenizer has no EOS token"]),
        ):
            result = lockstep(*common, *words, cwd=self.folder)
            self.assertIn(result.code, (2, 4), words)
            for word in told:
                self.assertIn(word, result.err)
            self.assertLess(result.err.count("\n"), 24, words)  # one screen, before training
            self.assertEqual(losses(self.folder / "bad"), [])
        dry = lockstep(*common, "unlearning.method=RMU", forget, "unlearning.retain=retain.jsonl", "--dry-run", cwd=self.folder)
        self.assertIn("unlearning.module_regex", dry.err)
        dry = self.run_ok(*common, "unlearning.method=CEU", forget, "--dry-run").out
        self.assertIn("unlearning.method=CEU: 11 rows to forget", dry)


if __name__ == "__main__":
    unittest.main(verbosity=2)
