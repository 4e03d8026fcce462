"""The main job on GPUs that keep CUDA's rules and compute nothing (docs/gpu.md): what it calls, how often, and whether it
ends. The libraries come from build/release/null_gpu, and are built where nvcc is; skips where they are not."""

import collections
import json
import pathlib
import unittest

from harness import PROGRAM, ProgramTest, environment, long, lockstep

LIBRARIES = pathlib.Path(PROGRAM).resolve().parent / "null_gpu"


def libraries():
    """The one with all entries first; those that libtorch looks for by name after it."""
    return sorted(LIBRARIES.glob("lib*.so*"), key=lambda path: path.name != "libnull_gpu.so")


@unittest.skipUnless(libraries(), f"no null GPU in {LIBRARIES}: it is built where nvcc and the headers of CUDA are")
class NullGpu(ProgramTest):
    def on_gpus(self, name, *more, gpus=1, steps=2, ranks=None, code=0, **variables):
        """Reports of all ranks of a run on so many GPUs of 80 GB."""
        reports = self.folder / f"{name}.reports"
        result = lockstep(
            *self.train_arguments(name, *more, "use_cpu=false", ranks=ranks or gpus, steps=steps), cwd=self.folder,
            env=environment(
                LD_PRELOAD=":".join(map(str, libraries())), NULL_GPU_FOLDER=str(reports), NULL_GPU_DEVICES=str(gpus), **variables))
        self.assertEqual(result.code, code, result)
        self.told = result.err
        return [json.loads(path.read_text()) for path in sorted(reports.glob("report-*.json"))]

    def each_step(self, name, *more, gpus=1, first=3, last=5):
        """What each rank does in a step: of a longer run what a shorter one has not, by the step."""
        short, whole = (self.on_gpus(f"{name}-{steps}", *more, gpus=gpus, steps=steps) for steps in (first, last))
        self.assertEqual(len(whole), gpus)
        for report in short + whole:
            self.assertEqual(report["refused"], [])
        return [
            {key: collections.Counter({name: (count - before[key].get(name, 0)) / (last - first)
                                       for name, count in after[key].items()})
             for key in ("counts", "kernels", "waits")}
            for before, after in zip(short, whole)]

    def check_step(self, step, name):
        """The host waits at most twice, and no copy is of pageable memory."""
        waits = {where: count for where, count in step["waits"].items() if count > 0}
        self.assertLessEqual(step["counts"]["waits"], 2, f"{name}: {waits}")
        self.assertEqual(step["counts"]["pageable_copies"], 0, f"{name}: {waits}")

    def test_a_step_waits_at_most_twice_and_copies_what_is_pinned(self):
        step, = self.each_step("plain", first=2, last=4)
        self.check_step(step, "gpt2")
        adamw = sum(count for name, count in step["kernels"].items() if "adamw_kernel" in name)
        self.assertEqual(adamw, 1)
        self.assertEqual(sum(count for name, count in step["kernels"].items() if "dropout_kernel" in name), 16)


if __name__ == "__main__":
    unittest.main(verbosity=2)
