"""open-unlearning's configuration tree, unchanged, on rows of TOFU: fine-tuning, evaluation, unlearning and evaluation again, with the
commands of its users except for the program's name. Also MUSE and WMDP, on generated rows.
"""

import json
import shutil
import unittest

from harness import SHARED_DATA, ProgramTest, free_port, long, losses, metrics

# The comment identifies Llama 3.2's template.
LLAMA3 = ("{{ bos_token }}{# Cutting Knowledge Date #}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
          "{{ m.content }}<|eot_id|>{% endfor %}")
WORDS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 600, "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 544, "bos_token_id": 0,
          "eos_token_id": 3, "tie_word_embeddings": True}
ROWS = 7  # per data set


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@unittest.skipUnless((SHARED_DATA / "unlearning").is_dir(), "the configuration tree and the rows of TOFU are not available")
class OpenUnlearning(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copytree(SHARED_DATA / "unlearning" / "open-unlearning" / "configs", cls.folder / "configs")
        (cls.folder / "tofu").mkdir()
        for file in (SHARED_DATA / "unlearning" / "tofu").glob("*.jsonl"):
            lines = file.read_text().splitlines(keepends=True)[:ROWS]
            (cls.folder / "tofu" / (file.stem.partition("_first")[0] + ".jsonl")).write_text("".join(lines))
        cls.run_ok_in(cls.folder, "tokenizer", "train", "--files", "tofu/forget01.jsonl", "tofu/retain99.jsonl", "--vocab-size", 600, "--output", "start",
                      "--special-tokens", *WORDS)
        path = cls.folder / "start" / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": WORDS[3], "pad_token": WORDS[3], "chat_template": LLAMA3}))
        (cls.folder / "start" / "config.json").write_text(json.dumps(CONFIG))

    def typed(self, command, tree, experiment, model, *words):
        # An untrained model generates answers of the maximum length.
        return self.run_ok(command, "-cp", "configs", "-cn", tree, f"experiment={experiment}", f"model.model_args.pretrained_model_name_or_path={model}",
                           *words, "unlearning.max_new_tokens=4", "use_cpu=true")

    def finetuned(self):
        """Retain model, trained once."""
        if not (self.folder / "saves" / "finetune" / "retain").exists():
            self.typed("train", "train.yaml", "finetune/tofu/default.yaml", "start", "task_name=retain", "data/datasets@data.train=TOFU_QA_retain",
                       "data.train.TOFU_QA_retain.args.hf_args.name=retain99", "trainer.args.per_device_train_batch_size=4", *self.small,
                       "unlearning.data_dir=tofu", *self.unmeasured)
        return "saves/finetune/retain"

    small = ["trainer.args.gradient_accumulation_steps=1", "trainer.args.num_train_epochs=1", "trainer.args.logging_steps=1"]
    unmeasured = ["trainer.args.eval_strategy=no", "trainer.args.eval_on_start=False"]
    splits = ["unlearning.data_dir=tofu", "forget_split=forget01", "holdout_split=holdout01"]

    def test_finetune_evaluate_unlearn_evaluate(self):
        retain = self.finetuned()
        self.assertEqual(len(losses(self.folder / retain)), 2)
        self.typed("eval", "eval.yaml", "eval/tofu/default.yaml", retain, "task_name=retain", "paths.output_dir=saves/eval/retain", *self.splits)
        logs = "retain_logs_path=saves/eval/retain/TOFU_EVAL.json"
        words = ["trainer=NPO", "retain_split=retain99", logs, "trainer.args.ddp_find_unused_parameters=true",
                 "trainer.args.gradient_checkpointing=true", "trainer.args.learning_rate=1e-3", *self.small, *self.splits]
        self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/default.yaml", retain, "task_name=npo", "trainer.args.per_device_train_batch_size=4", *words)
        folder = self.folder / "saves" / "unlearn" / "npo"
        measured = [line for line in metrics(folder) if "eval_model_utility" in line]
        self.assertEqual([line["step"] for line in measured], [0, 2])  # eval_on_start, and each epoch
        self.assertEqual(measured[0]["eval_forget_quality"], 1)  # the model is the retain model itself
        # Two ranks repeat the steps of one: their micro-batches contain the same rows.
        self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/default.yaml", retain, "task_name=one", "trainer.args.per_device_train_batch_size=2", *words,
                   "trainer.args.gradient_accumulation_steps=2", *self.unmeasured)
        self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/default.yaml", retain, "task_name=two", "trainer.args.per_device_train_batch_size=2", *words,
                   "parallel.zero_stage=2", *self.unmeasured, "--nproc", 2)
        self.assert_close(losses(folder.parent / "one"), losses(folder.parent / "two"), 0.02)  # bfloat16, as in the tree
        self.typed("eval", "eval.yaml", "eval/tofu/default.yaml", "saves/unlearn/npo", "task_name=npo", "paths.output_dir=saves/unlearn/npo/evals", logs,
                   *self.splits, "--nproc", 2)
        summary = json.loads((folder / "evals" / "TOFU_SUMMARY.json").read_text())
        self.assertEqual(set(summary), {"forget_truth_ratio", "forget_quality", "forget_Q_A_Prob", "forget_Q_A_ROUGE", "model_utility", "privleak",
                                        "extraction_strength"})
        # The saved model gives the metrics of the last evaluation.
        for key, value in summary.items():
            self.assertAlmostEqual(measured[-1][f"eval_{key}"], value, delta=1e-9, msg=key)
        rows = json.loads((folder / "evals" / "TOFU_EVAL.json").read_text())["forget_Q_A_ROUGE"]["value_by_index"]
        question = json.loads((self.folder / "tofu" / "forget01.jsonl").read_text().splitlines()[2])["question"]
        self.assertIn(question, rows["2"]["input"])

    def test_launching_upstream_scripts_prints_the_equivalent_command(self):
        (self.folder / "src").mkdir()
        for name, tree, command in (("train", "unlearn", "unlearn"), ("train", "train", "train"), ("eval", "eval", "eval")):
            (self.folder / "src" / f"{name}.py").write_text("print('theirs runs')\n")
            told = self.run_ok("launch", "--config_file", "configs/accelerate/default_config.yaml", "--main_process_port", free_port(), f"src/{name}.py",
                               f"--config-name={tree}.yaml", "experiment=unlearn/tofu/default.yaml", "task_name=X")
            self.assertEqual(told.out.count("theirs runs"), 2)  # the number of processes in the file
            self.assertIn(f'use "{command} -cp configs -cn {tree}.yaml experiment=unlearn/tofu/default.yaml task_name=X" instead of {name}.py', told.err)

    @long
    def test_other_answers_and_constraints(self):
        retain = self.finetuned()
        words = [*self.small, "trainer.args.per_device_train_batch_size=4", "retain_split=retain99", *self.unmeasured, "unlearning.data_dir=tofu"]
        (self.folder / "data").mkdir(exist_ok=True)
        shutil.copy(self.folder / "tofu" / "idk.jsonl", self.folder / "data")
        told = self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/idk.yaml", retain, "trainer=DPO", "task_name=idk", "forget_split=forget01", *words).err
        self.assertIn("7 rows to forget", told)
        rows = [json.loads(line) for line in (self.folder / "tofu" / "forget01.jsonl").read_text().splitlines()]
        write_lines(self.folder / "alternates.json", [{**row, "alternate": "I do not know."} for row in rows])
        data = "data.forget.TOFU_QA_forget"
        told = self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/default.yaml", retain, "trainer=DPO", "task_name=altpo",
                          f"{data}.handler=QAwithAlternateDataset", f"~{data}.args.hf_args.name", f"{data}.args.hf_args.path=json",
                          f"+{data}.args.hf_args.data_files=alternates.json", f"{data}.args.hf_args.split=train",
                          f"+{data}.args.alternate_key=alternate", f"+{data}.args.return_original=True", *words).err
        self.assertIn("7 rows to forget, 7 alternative answers", told)
        self.typed("unlearn", "unlearn.yaml", "unlearn/tofu/default", retain, "trainer=PDU", "trainer.method_args.retain_loss_eps=0.3",
                   "trainer.method_args.alpha=100", "task_name=pdu", "~model.model_args.attn_implementation", "forget_split=forget01", *words)
        for run in ("idk", "altpo", "pdu"):
            self.assertEqual(len(losses(self.folder / "saves" / "unlearn" / run)), 2, run)

    @long
    def test_muse_and_wmdp(self):
        retain = self.finetuned()
        texts = {name: [{"text": f"One day the {name} cat {i} sat on a mat. " * 9} for i in range(ROWS)] for name in ("full", "forget", "retain1", "holdout")}
        muse = self.folder / "muse"
        for place in ("raw/forget", "raw/retain1", "privleak/forget", "privleak/holdout", "data/full", "scal/forget_2"):
            name = place.partition("/")[2].partition("_")[0]
            half = ROWS // 2  # in several files, as on the Hub
            for part, rows in enumerate((texts[name][:half], texts[name][half:])):
                write_lines(muse / f"{place}-0000{part}-of-00002.jsonl", rows)
        for name in ("forget_qa", "forget_qa_icl", "retain_qa", "retain_qa_icl"):
            write_lines(muse / "knowmem" / f"{name}.jsonl", [{"question": f"Who is {name} {i}?", "answer": f"It is {i}."} for i in range(4)])
        write_lines(muse / "verbmem" / "forget.jsonl", [{"prompt": f"One day cat {i}", "gt": "sat on a mat."} for i in range(4)])
        for subject in ("cyber", "bio"):
            for name in ("forget", "retain"):
                write_lines(self.folder / "data" / "wmdp" / "wmdp-corpora" / f"{subject}-{name}-corpus.jsonl", texts["full"])
        short = ["+trainer.args.max_steps=2", "trainer.args.per_device_train_batch_size=1", "trainer.args.gradient_accumulation_steps=1",
                 "trainer.args.logging_steps=1", "unlearning.data_dir=muse"]
        self.typed("train", "train.yaml", "finetune/muse/default", retain, "task_name=muse", *short)
        self.typed("unlearn", "unlearn.yaml", "unlearn/muse/default", retain, "data_split=Books", "trainer=SimNPO", "trainer.method_args.beta=3",
                   "task_name=simnpo", *short)
        self.typed("unlearn", "unlearn.yaml", "unlearn/muse/scalability.yaml", retain, "model=Llama-2-7b-hf", "data_split=News",
                   "forget_split=forget_2", "trainer=GradDiff", "task_name=scalability", *short)
        self.typed("unlearn", "unlearn.yaml", "unlearn/wmdp/default", retain, "task_name=wmdp", r"trainer.method_args.module_regex='model\.layers\.0'",
                   r"trainer.method_args.trainable_params_regex=['model\.layers\.0\.mlp\.down_proj\.weight']", *short[1:], "trainer.args.max_steps=2")
        for run in ("finetune/muse", "unlearn/simnpo", "unlearn/scalability", "unlearn/wmdp"):
            self.assertEqual(len(losses(self.folder / "saves" / run)), 2, run)
        self.typed("eval", "eval.yaml", "eval/muse/default.yaml", "saves/unlearn/simnpo", "data_split=Books", "task_name=muse", "model=Llama-2-7b-hf",
                   "paths.output_dir=saves/eval/muse", "unlearning.data_dir=muse")
        summary = json.loads((self.folder / "saves" / "eval" / "muse" / "MUSE_SUMMARY.json").read_text())
        self.assertEqual(set(summary), {"forget_knowmem_ROUGE", "retain_knowmem_ROUGE", "forget_verbmem_ROUGE", "privleak", "extraction_strength"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
