"""Training gives the same result on any number of ranks."""

import os
import unittest

from harness import ProgramTest, environment, losses, metrics


class Ranks(ProgramTest):
    def test_every_split_of_a_batch_of_8_gives_the_same_losses(self):
        self.train("one", "per_device_train_batch_size=8", steps=20)
        splits = {"two": (2, 4, 1), "four": (4, 2, 1), "accumulated": (2, 2, 2)}
        for name, (ranks, batch, accumulation) in splits.items():
            self.train(
                name, f"per_device_train_batch_size={batch}",
                f"gradient_accumulation_steps={accumulation}", ranks=ranks, steps=20)
            self.assert_close(losses(self.folder / name), losses(self.folder / "one"), 1e-5)
        self.assertLess(losses(self.folder / "one")[-1], losses(self.folder / "one")[0])

    def test_cuda_graph_settings_do_not_change_cpu_losses(self):
        for name, more in (("plain", []), ("captured", ["parallel.cuda_graphs=auto"])):  # with dropout
            told = self.train(name, *more, ranks=2)
            self.assertNotIn("are not captured", told.err)
        self.assertEqual(losses(self.folder / "plain"), losses(self.folder / "captured"))
        self.assertIn("are not captured in CUDA graphs: the optimizer lion", self.train(
            "lion", "parallel.cuda_graphs=auto", "training.optim=lion_32bit", steps=1).err)

    def test_ranks_of_more_threads_than_processors(self):
        self.train("one-thread", ranks=2, steps=4)
        threads = len(os.sched_getaffinity(0))
        told = self.train("threads", ranks=2, steps=4, env=environment(OMP_NUM_THREADS=str(threads + 1)))
        self.assertIn("threads take turns", told.err)
        self.assert_close(losses(self.folder / "threads"), losses(self.folder / "one-thread"), 1e-5)

    def test_three_ranks_and_a_batch_that_does_not_divide_the_epoch(self):
        # One full epoch; its last step may be smaller.
        self.train("three", "per_device_train_batch_size=7", "max_steps=-1", "num_train_epochs=1", ranks=3)
        lines = [line for line in metrics(self.folder / "three") if "loss" in line]
        self.assertEqual(lines[-1]["epoch"], 1.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
