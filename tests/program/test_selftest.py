"""The self-test on two CPU ranks."""

import json
import unittest

from harness import ProgramTest, environment


class Selftest(ProgramTest):
    def test_everything_passes_and_is_written(self):
        scratch = self.folder / "scratch"
        scratch.mkdir()
        result = self.run_ok(
            "selftest", "--use-cpu", "--nproc", 2, "--json", "found.json", env=environment(TMPDIR=str(scratch)))
        self.assertIn("on 2 ranks of the CPU", result.out)
        found = json.loads((self.folder / "found.json").read_text())
        checks = {check["name"]: check for check in found["checks"] if check["group"] != "machine"}
        self.assertEqual([name for name, check in checks.items() if not check["passed"]], [])
        carried = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all")
        of_pairs = [f"{kind}, ranks 0 and 1" for kind in (*carried, "to each other")]
        operations = [f"{name}, {of}" for of in ("float32", "bfloat16") for name in (
            "linear", "RMSNorm", "RMSNorm of a sum", "LayerNorm", "GELU", "SwiGLU", "RoPE", "attention", "attention of groups",
            "attention in windows", "attention of documents", "embedding", "token loss", "AdamW")]
        plans = ["data parallelism", "ZeRO 3", "tensor parallelism", "pipeline parallelism", "context parallelism",
                 "context parallelism, Ulysses", "offload of the optimizer", "offload of parameters", "captured steps", "saved and read"]
        rest = ["dropout", "squares of gradients", "weights of 4 bits", "weights of 8 bits", "rounding to 8-bit floats"]
        self.assertEqual(set(carried + tuple(of_pairs + operations + plans + rest)) - set(checks), set())
        for name in (*carried, *of_pairs):
            self.assertGreater(checks[name]["bytes_a_second"], 0)
        self.assertIn("machine", {check["group"] for check in found["checks"]})
        self.assertLess(len(result.out.splitlines()), 50)  # one screen
        self.assertEqual(list(scratch.iterdir()), [])

    def test_unknown_arguments(self):
        self.assertIn("unknown option 'all'", self.run_fails(2, "selftest", "all").err)


if __name__ == "__main__":
    unittest.main()
