"""A disk that fails at each change of a job's files in turn: its records, checkpoints, caches, outboxes, locks and logs.

The changes are counted below all writers (tests/soak/interposer.c). LOCKSTEP_DISK_FAULTS sets the number of failures that the long test
injects; `all` injects one at each change.
"""

import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import unittest

import azure
from azure import AzureServer
from harness import SOURCE, ProgramTest, environment, free_port, lockstep, long, losses

sys.path.insert(0, str(SOURCE / "tests" / "soak"))
from world import World  # noqa: E402

STEPS, SAVED = 5, ("checkpoint-2", "checkpoint-4", "checkpoint-5")
NEVER = 2**62


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def steps_of(path):
    """Steps in the complete lines of a record."""
    return [json.loads(line)["step"] for line in path.read_text().split("\n")[:-1]] if path.exists() else []


class Disk(ProgramTest):
    """Test whose folder `disk` fails as the test says."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk = cls.folder / "disk"
        cls.world = World(cls.folder, cls.disk)
        if not cls.world.is_there:
            raise unittest.SkipTest("no C compiler, which builds the interposed library")
        cls.world.set("counts", 1)

    @classmethod
    def on_disk(cls, *words, env, first=NEVER, last=NEVER, failure=0):
        """Runs the program on a disk whose changes from number `first` to `last` fail."""
        for field, value in (("operations", 0), ("first_failure", first), ("last_failure", last), ("failure", failure)):
            cls.world.set(field, value)
        return lockstep(*words, cwd=cls.folder, env={**env, **cls.world.variables})

    def is_named(self, path, failure, told):
        """True if an error or a warning names the file or its folder, and the failure."""
        # A temporary file has the name of the file that it becomes, and a suffix.
        names = [re.sub(r"(\.tmp-|\.partial|\.[-0-9a-f]+\.saving).*", "", part) for part in path.relative_to(self.disk).parts]
        problems = "\n".join(re.findall(r".*(?:error|warning): .*", told.err))
        return any(re.search(rf"\b{re.escape(name)}\b.*: {os.strerror(failure)}", problems) for name in names)


class FailingDisk(Disk):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.disk / "run"
        # A tracker that does not answer: what is to be sent is stored in an outbox.
        cls.env = environment(MLFLOW_TRACKING_URI=f"http://127.0.0.1:{free_port()}")
        told = cls.job()
        assert told.code == 0, told
        cls.changes = cls.world.get("operations")
        cls.losses = losses(cls.output)
        cls.models = {name: digest(cls.output / name / "model.safetensors") for name in (".", *SAVED)}
        cls.files = cls.files_of_run()

    @classmethod
    def job(cls, *more, **fault):
        words = cls.train_arguments(cls, "disk/run", "data.cache_dir=disk/cache", "save_steps=2", "report_to=mlflow", steps=STEPS)
        at = words.index("--nproc")
        launch = ["launch", "--standalone", "--nproc-per-node=2", "--log-dir=disk/logs", "--tee=3", "--propagate-exit-code"]
        return cls.on_disk(*launch, "train", *words[1:at], *words[at + 2:], *more, env=cls.env, **fault)

    @classmethod
    def files_of_run(cls):
        return sorted(str(path.relative_to(cls.output)) for path in cls.output.rglob("*") if path.is_file() and "outbox" not in path.name)

    def inject(self, number, failure, *, stays):
        """Runs the job with a failure of one change, or of it and all later ones, then again without."""
        shutil.rmtree(self.disk, ignore_errors=True)
        told = self.job(first=number, last=NEVER if stays else number, failure=failure)
        path = pathlib.Path(self.world.failed_path())
        with self.subTest(change=number, path=str(path), error=os.strerror(failure), stays=stays):
            # If all changes fail, the error names one of them: a temporary file that is not removed is not an error.
            is_named = re.search(f"(?:error|warning): .*disk/.*: {os.strerror(failure)}", told.err) if stays else (
                path.name and self.is_named(path, failure, told))
            self.assertIn(told.code, (0, 2, 3, 4), told)
            if told.code != 0:
                self.assertTrue(is_named, told)
            elif not is_named:  # nothing is missing
                self.assertEqual(losses(self.output), self.losses)
                self.assertEqual(self.files_of_run(), self.files)
                self.assertEqual(steps_of(self.output / "events.jsonl")[-1], STEPS)
            self.expect_undamaged(told)
            again = self.job("resume_from_checkpoint=true")
            self.assertEqual(again.code, 0, (told, again))
            self.assertEqual(digest(self.output / "model.safetensors"), self.models["."], (told, again))
            self.expect_undamaged(again)
            if told.code != 0:  # a job that continues after a failed write of its metrics loses the rest of them
                self.assertEqual(steps_of(self.output / "metrics.jsonl")[-1], STEPS)

    def expect_undamaged(self, told):
        """Compares committed checkpoints and the lines of the records with those of the undisturbed job."""
        for name in SAVED:
            if (self.output / name).exists():
                self.assertEqual(digest(self.output / name / "model.safetensors"), self.models[name], told)
        for line in (self.output / "metrics.jsonl").read_text().split("\n")[:-1] if (self.output / "metrics.jsonl").exists() else ():
            record = json.loads(line)
            if "loss" in record:
                self.assertEqual(record["loss"], self.losses[record["step"] - 1], told)
        found = steps_of(self.output / "ranks.jsonl")
        self.assertEqual(found, sorted(found), told)
        steps_of(self.output / "events.jsonl")  # each line is whole

    def test_some_changes(self):
        for number, stays in ((self.changes // 20, False), (self.changes // 3, True), (self.changes // 2, False), (self.changes - 20, True)):
            self.inject(number, errno.ENOSPC, stays=stays)

    @long
    def test_many_changes(self):
        wanted = os.environ.get("LOCKSTEP_DISK_FAULTS", "40")
        every = 1 if wanted == "all" else max(1, self.changes // int(wanted))
        for number in range(1, self.changes + 1, every):
            self.inject(number, (errno.EIO, errno.ENOSPC)[number // every % 2], stays=number // every % 4 < 2)


class FetchedFiles(Disk):
    @long
    def test_every_change_of_a_download(self):
        server = AzureServer()
        self.addCleanup(server.stop)
        server.put_folder(self.folder / "corpus", "corpus")
        env = environment(AZURE_STORAGE_ACCOUNT=azure.ACCOUNT, AZURE_STORAGE_KEY=azure.KEY, AZURE_STORAGE_SERVICE_ENDPOINT=server.address,
                          XDG_CACHE_HOME=str(self.disk))

        def show(**fault):
            words = ["tokenizer.path=tokenizer", "data.sequence_length=32", "data.train=az://work/corpus/validation.txt", "--rows", 1]
            return self.on_disk("data", "show", "model.path=model.json", *words, env=env, **fault)

        whole = show()
        self.assertEqual(whole.code, 0, whole)
        changes = self.world.get("operations")
        self.assertGreater(changes, 5)
        for number in range(1, changes + 1):
            shutil.rmtree(self.disk)
            told = show(first=number, last=number, failure=errno.EIO)
            path = pathlib.Path(self.world.failed_path())
            with self.subTest(change=number, path=str(path)):
                self.assertIn(told.code, (3, 4), told)
                self.assertTrue(self.is_named(path, errno.EIO, told), told)
                again = show()
                self.assertEqual((again.code, again.out), (0, whole.out))


if __name__ == "__main__":
    unittest.main()
