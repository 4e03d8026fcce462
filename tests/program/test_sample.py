"""The sample corpus: deterministic for a seed, of the requested size, in all formats that training accepts."""

import csv
import json
import unittest

from harness import ProgramTest


class Sample(ProgramTest):
    def files(self, folder):
        return {path.name: path.read_bytes() for path in sorted((self.folder / folder).iterdir())}

    def test_a_seed_makes_the_files(self):
        for folder, seed in (("first", 1), ("again", 1), ("other", 2)):
            self.run_ok("sample", "--output", folder, "--size", "0.2", "--seed", seed)
        self.assertEqual(self.files("first"), self.files("again"))
        self.assertNotEqual(self.files("first")["train.txt"], self.files("other")["train.txt"])
        total = sum(map(len, self.files("first").values()))
        self.assertAlmostEqual(total, 0.2e6, delta=0.06e6)
        self.assertEqual(
            set(self.files("first")),
            {"train.txt", "validation.txt", "test.txt", "instructions.jsonl", "instructions_validation.jsonl",
             "labelled.csv", "labelled_validation.csv"})

    def test_what_is_in_them(self):
        folder = self.folder / "corpus"
        for line in (folder / "instructions.jsonl").read_text().splitlines():
            self.assertLessEqual({"instruction", "input", "output"}, set(json.loads(line)))
        with open(folder / "labelled.csv", newline="") as file:
            labels = {row["label"] for row in csv.DictReader(file)}
        self.assertGreater(len(labels), 1)
        train = set((folder / "train.txt").read_text().strip().split("\n\n"))
        held_out = set((folder / "validation.txt").read_text().strip().split("\n\n"))
        self.assertGreater(len(held_out), 5)
        self.assertEqual(train & held_out, set())

    def test_a_folder_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        result = self.run_fails(3, "sample", "--output", "file/corpus")
        self.assertIn("file", result.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
