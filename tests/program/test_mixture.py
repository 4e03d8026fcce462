"""Weighted mixtures of data sources: the same samples on any number of ranks and after a resume."""

import json
import shutil
import unittest

from harness import SOURCE, ProgramTest, long, losses, metrics


class Mixture(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (cls.folder / "corpus" / "train.txt").read_text()
        (cls.folder / "a.txt").write_text(text[:20000])
        (cls.folder / "b.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in text[20000:23000].splitlines() if line))
        rows = [{"instruction": f"Add {i}", "input": "1", "output": str(i + 1)} for i in range(12)]
        (cls.folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def words(self, output, mixture, *more):
        return ["train", "model.path=model.json", "tokenizer.path=tokenizer", f"output_dir={output}", "use_cpu=true", "logging_steps=1",
                "data.sequence_length=16", "seed=5", f"data.mixture={mixture}", *more]

    def test_one_rank_three_ranks_and_a_resume(self):
        mixture = "[{name: books, files: [a.txt], weight: 3}, {name: lines, files: b.jsonl, weight: 1, max_epochs: 2}, {files: sums.jsonl, weight: 0}]"
        held = "data.validation_fraction=0.1"
        told = self.run_ok(*self.words("one", mixture, held, "max_steps=7", "per_device_train_batch_size=6", "save_steps=3", "eval_strategy=steps",
                                       "eval_steps=7")).err
        self.assertRegex(told, r"books: 75% of the samples, \d+ sequences, read [\d.]+ times per epoch")
        self.assertIn("at most 2 times in total", told)
        self.assertIn("sources with weight 0 are skipped", told)
        self.run_ok(*self.words("three", mixture, held, "max_steps=7", "per_device_train_batch_size=2"), "--nproc", "3")
        self.assert_close(losses(self.folder / "one"), losses(self.folder / "three"), 1e-5)
        self.run_ok(*self.words("resumed", mixture, held, "max_steps=7", "per_device_train_batch_size=3", "resume_from_checkpoint=one/checkpoint-3"),
                    "--nproc", "2")
        self.assert_close(losses(self.folder / "one")[3:], losses(self.folder / "resumed"), 1e-5)
        steps = [line for line in metrics(self.folder / "one") if "loss" in line]
        self.assertAlmostEqual(steps[1]["mixture/books"], 0.75)  # 9 of 12
        # The written configuration starts the same run.
        self.run_ok("train", "-c", "one/config.yaml", "output_dir=again")
        self.assertEqual(losses(self.folder / "again"), losses(self.folder / "one"))
        # Different weights are different data, so resuming fails.
        told = self.run_fails(2, *self.words("other", mixture.replace("3}", "2}"), held, "max_steps=7", "per_device_train_batch_size=6",
                                             "resume_from_checkpoint=one/checkpoint-3")).err
        self.assertIn("data.mixture", told)

    def test_instructions_are_mixed_too(self):
        (self.folder / "other.jsonl").write_text(json.dumps({"instruction": "Say it.", "output": "it"}) + "\n")
        mixture = "[{name: sums, files: [sums.jsonl], weight: 0.5}, {name: other, files: [other.jsonl], weight: 0.5}]"
        words = ["data.prompt=alpaca", "data.long_documents=split", "data.sequence_length=64", "max_steps=3"]
        self.run_ok(*self.words("rows-one", mixture, *words, "per_device_train_batch_size=4"))
        self.run_ok(*self.words("rows-two", mixture, *words, "per_device_train_batch_size=2"), "--nproc", "2")
        self.assert_close(losses(self.folder / "rows-one"), losses(self.folder / "rows-two"), 1e-5)
        shown = self.run_ok("data", "show", f"data.mixture={mixture}", "data.prompt=alpaca", "tokenizer.path=tokenizer", "--rows", "1").out
        self.assertIn("Say it.", shown)

    def test_chats_are_mixed(self):
        shutil.copy(SOURCE / "examples" / "files" / "chatml.jinja", self.folder)
        for name, word in (("short", "yes"), ("long", "it is a red ball that lies in the garden")):
            chats = [{"messages": [{"role": "user", "content": f"Number {i}?"}, {"role": "assistant", "content": word}]} for i in range(9)]
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        mixture = "[{name: short, files: [short.jsonl], weight: 1}, {name: long, files: [long.jsonl], weight: 3}]"
        words = ["data.prompt=chat", "data.chat_template=chatml.jinja", "data.sequence_length=64", "data.packing=none", "max_steps=4"]
        self.run_ok(*self.words("chats-one", mixture, *words, "per_device_train_batch_size=4", "save_steps=2"))
        self.run_ok(*self.words("chats-two", mixture, *words, "per_device_train_batch_size=2"), "--nproc", "2")
        self.assert_close(losses(self.folder / "chats-one"), losses(self.folder / "chats-two"), 1e-5)
        self.run_ok(*self.words("chats-on", mixture, *words, "per_device_train_batch_size=4", "resume_from_checkpoint=chats-one/checkpoint-2"))
        self.assertEqual(losses(self.folder / "chats-one")[2:], losses(self.folder / "chats-on"))
        last = [line for line in metrics(self.folder / "chats-one") if "loss" in line][-1]
        self.assertAlmostEqual(last["mixture/long"], 0.75)

    @long
    def test_rows_with_labels_are_mixed(self):
        rows = (self.folder / "corpus" / "labelled.csv").read_text().splitlines()
        for name, part in (("first.csv", rows[1:41]), ("second.csv", rows[41:61]), ("dev.csv", rows[61:75])):
            (self.folder / name).write_text("\n".join([rows[0], *part]) + "\n")
        mixture = "[{name: first, files: [first.csv], weight: 1}, {name: second, files: [second.csv], weight: 2, max_epochs: 9}]"
        for task in ("sequence_classification", "generative_classification"):
            words = [f"task.type={task}", "data.validation=dev.csv", "data.sequence_length=48", "max_steps=5", "data.packing=none"]
            one = self.run_ok(*self.words(f"{task}-one", mixture, *words, "per_device_train_batch_size=6", "save_steps=2"))
            self.assertIn("second: 66.67% of the samples, 20 sequences", one.err)
            self.run_ok(*self.words(f"{task}-two", mixture, *words, "per_device_train_batch_size=3"), "--nproc", "2")
            self.assert_close(losses(self.folder / f"{task}-one"), losses(self.folder / f"{task}-two"), 1e-5)
            reports = [(self.folder / f"{task}-{ranks}" / "classification_report.txt").read_text() for ranks in ("one", "two")]
            self.assertEqual(*reports)
            self.run_ok(*self.words(f"{task}-on", mixture, *words, "per_device_train_batch_size=6", f"resume_from_checkpoint={task}-one/checkpoint-2"))
            self.assertEqual(losses(self.folder / f"{task}-one")[2:], losses(self.folder / f"{task}-on"))
            last = [line for line in metrics(self.folder / f"{task}-one") if "loss" in line][-1]
            self.assertAlmostEqual(last["mixture/second"], 2 / 3)
        # Each source contributes validation rows; one source has a label that the other does not.
        (self.folder / "third.csv").write_text("text,label\n" + "".join(f"row {i},other\n" for i in range(40)))
        mixture = "[{name: first, files: [first.csv]}, {name: third, files: [third.csv]}]"
        self.run_ok(*self.words("held", mixture, "task.type=sequence_classification", "data.validation_fraction=0.1", "data.sequence_length=48", "max_steps=2"))
        kept = [json.loads(line)["label"] for line in (self.folder / "held" / "predictions.jsonl").read_text().splitlines()]
        self.assertEqual((len(kept), kept.count("other")), (8, 4))
        (self.folder / "odd.csv").write_text("text,label\nfine,unheard\n")
        told = self.run_fails(4, *self.words("none", "[{name: first, files: [first.csv]}, {name: odd, files: [odd.csv]}]", "task.type=sequence_classification",
                                             "task.labels=[praise,complaint,question,request]", "max_steps=1")).err
        self.assertIn("odd.csv, line 2", told)

    def test_invalid_mixtures_fail_before_training(self):
        def told(mixture, *more, code=2):
            error = self.run_fails(code, *self.words("none", mixture, "max_steps=2", *more)).err
            self.assertLess(error.count("\n"), 25)
            return error

        self.assertIn("the weights sum to 0", told("[{name: a, files: [a.txt], weight: 0}]"))
        self.assertIn("weight -1 must be at least 0", told("[{name: a, files: [a.txt], weight: -1}, {files: [b.jsonl]}]"))
        self.assertIn("source 'a' is listed twice", told("[{name: a, files: [a.txt]}, {name: a, files: [b.jsonl]}]"))
        self.assertIn("did you mean 'weight'?", told("[{name: a, files: [a.txt], wieght: 1}]").lower())
        self.assertIn("has no files", told("[{name: a, weight: 1}]"))
        self.assertIn("weight: heavy is not a number", told("[{name: a, files: [a.txt], weight: heavy}]"))
        self.assertIn("max_epochs 0 must be at least 1", told("[{name: a, files: [a.txt], max_epochs: 0}]"))
        self.assertIn("is not a list of maps", told("a.txt"))
        self.assertIn("data.train is also set", told("[{files: [a.txt]}]", "data.train=a.txt"))
        self.assertIn("not supported with task.type=preference", told("[{files: [a.txt]}]", "task.type=preference"))
        missing = told("[{name: lost, files: [nowhere.txt]}]", code=4)
        self.assertIn("data.mixture, source 'lost'", missing)
        self.assertIn("nowhere.txt", missing)
        few = told("[{name: a, files: [b.jsonl], max_epochs: 1}]", "max_steps=500", "per_device_train_batch_size=4")
        self.assertIn("the run needs", few)
        self.assertIn("max_epochs", few)


if __name__ == "__main__":
    unittest.main()
