"""Data, models and runs in an object store, on a local S3 server: kills during saves, lost connections, two concurrent runs."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

import azure
import canary
from azure import AzureServer
from harness import CONFIG, ProgramTest, environment, lockstep, long, losses, self_signed, start, wait_for
from stores import AUTHORIZATION, SECRET, GoogleServer, Proxy, Refusing, Server, free_port, python_with_moto, store_environment



KILLS = 6  # of a run in Azure Blob Storage


def digest(data):
    return hashlib.sha256(data).hexdigest()


def setUpModule():
    Stores.server = Server()
    unittest.addModuleCleanup(Stores.server.stop)


class Stores(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.put_folder(cls.folder / "corpus", "corpus")
        cls.server.put_folder(cls.folder / "tokenizer", "tokenizer")

    def env(self, cache="one", port=None):
        return store_environment(port or self.server.port, self.folder / "caches" / cache)

    def train_there(self, output, *more, cache="one", steps=4, **options):
        """Trains to s3://work/OUTPUT, with a separate cache for downloads and working files."""
        return self.run_ok(
            *self.train_arguments(f"s3://work/{output}", *more, steps=steps),
            f"data.cache_dir={self.folder}/caches/{cache}/data", env=self.env(cache), **options)

    def files_of(self, output, step):
        """Name -> digest of the files of a step, for each committed checkpoint of that step."""
        found = {}
        for key in self.server.keys(f"{output}/checkpoint-{step}/"):
            folder, name = key.split("/")[-2:]
            found.setdefault(folder, {})[name] = digest(self.server.ask("GET", key))
        return [files for files in found.values() if "manifest.json" in files]

    def local_files(self, output, step):
        folder = self.folder / output / f"checkpoint-{step}"
        return {path.name: digest(path.read_bytes()) for path in folder.iterdir()}

    def assert_same_run(self, output, local, step):
        """Checks that weights and optimizer state are byte-identical."""
        there, here = self.files_of(output, step), self.local_files(local, step)
        self.assertEqual(len(there), 1)
        tensors = [name for name in here if name.endswith(".safetensors")]
        self.assertGreater(len(tensors), 1)
        for name in tensors:
            self.assertEqual(there[0][name], here[name], name)
        self.assertEqual(set(there[0]), set(here))

    def local_run(self):
        """The same run on a local disk, trained once."""
        if not (self.folder / "local").exists():
            self.train("local", "save_steps=1", steps=4)
        return "local"


class WholeRun(Stores):
    def test_data_model_and_output_there_give_the_run_on_a_disk(self):
        self.train("first", steps=2)
        self.server.put_folder(self.folder / "first", "first")
        told = self.run_ok(
            *self.train_arguments(
                "s3://work/run", "model.path=s3://work/first", "tokenizer.path=s3://work/tokenizer",
                "data.train=s3://work/corpus/tr*.txt", "data.validation=s3://work/corpus/validation.txt",
                "save_steps=2", "save_total_limit=1", ranks=2, steps=4),
            env=self.env())
        self.train("here", "model.path=first", "save_steps=2", ranks=2, steps=4)
        self.assert_same_run("run", "here", 4)
        self.assertEqual(self.files_of("run", 2), [])  # removed by save_total_limit
        keys = self.server.keys("run/")
        for name in ("metrics.jsonl", "config.yaml", "config.json", "tokenizer.json", "model.safetensors"):
            self.assertIn(f"run/{name}", keys)
        for name in ("model.safetensors", "config.json"):
            self.assertEqual(
                digest(self.server.ask("GET", f"run/{name}")), digest((self.folder / "here" / name).read_bytes()))
        copy = self.folder / "copied"
        copy.mkdir()
        (copy / "metrics.jsonl").write_bytes(self.server.ask("GET", "run/metrics.jsonl"))
        self.assertEqual(losses(copy), losses(self.folder / "here"))
        # The configuration contains the user's paths and no credentials.
        configuration = self.server.ask("GET", "run/config.yaml").decode()
        self.assertIn("s3://work/run", configuration)
        for key in keys:
            self.assertNotIn(SECRET.encode(), self.server.ask("GET", key), key)
        self.assertNotIn(SECRET, told.out + told.err)
        # Another machine without a cache uses the stored files as local ones.
        env = self.env("reader")
        for model in ("s3://work/run", "s3://work/run/checkpoint-4"):
            wrote = self.run_ok("generate", "--model", model, "--prompt", "Once", "--max-new-tokens", "4", env=env)
            here = self.run_ok("generate", "--model", "here", "--prompt", "Once", "--max-new-tokens", "4")
            self.assertEqual(wrote.out, here.out)
        told = self.run_ok("eval", "--model", "s3://work/run", "data.validation=s3://work/corpus/validation.txt",
                           "data.sequence_length=32", env=env)
        self.assertIn("loss", told.out)
        self.run_ok("export", "--model", "s3://work/run", "--output", "exported", "--gguf", "f16", env=env)
        told = self.run_fails(2, "export", "--model", "s3://work/run", "--output", "s3://work/exported", "--gguf", "f16", env=env)
        self.assertIn("is not a local folder", told.err)

    def test_a_run_there_is_replaced_only_on_request(self):
        self.train_there("twice", "save_steps=2", steps=4)
        self.server.ask("PUT", "twice/notes.txt", b"mine")
        keys = self.server.keys("twice/checkpoint-")
        for cache in ("one", "another"):  # any files left in the local working folder
            told = self.run_fails(2, *self.train_arguments("s3://work/twice"), f"data.cache_dir={self.folder}/caches/{cache}/data",
                                  env=self.env(cache))
            self.assertIn("the output folder s3://work/twice already holds a run: checkpoint-2, checkpoint-4", told.err)
        self.assertEqual(self.server.keys("twice/checkpoint-"), keys)
        self.train_there("twice", "save_steps=3", "overwrite_output_dir=true", steps=3)
        self.assertEqual(self.files_of("twice", 2) + self.files_of("twice", 4), [])
        self.assertEqual(len(self.files_of("twice", 3)), 1)
        self.assertEqual(self.server.ask("GET", "twice/notes.txt"), b"mine")
        told = self.run_fails(2, *self.train_arguments("s3://work/twice", "model.path=s3://work/twice"), env=self.env())
        self.assertIn("the run would replace its own source", told.err)

    @long
    def test_rows_and_columns_are_read_from_there(self):
        rows = [{"text": f"Line {i} of a text that is told in rows."} for i in range(400)]
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (self.folder / "rows.jsonl").write_bytes(lines)
        self.server.ask("PUT", "rows/part-0.jsonl", lines[: lines.index(b"\n", len(lines) // 2) + 1])
        self.server.ask("PUT", "rows/part-1.jsonl", lines[lines.index(b"\n", len(lines) // 2) + 1 :])
        self.train("rows", "data.train=rows.jsonl", steps=3)
        write = ("import json, sys, pyarrow as pa, pyarrow.parquet as pq; "
                 "pq.write_table(pa.Table.from_pylist([json.loads(l) for l in open(sys.argv[1])]), sys.argv[2])")
        words = [python_with_moto(), "-c", write, self.folder / "rows.jsonl", self.folder / "rows.parquet"]
        places = ["rows", "rows/*.jsonl"]
        if subprocess.run(words, capture_output=True).returncode == 0:  # only if pyarrow is installed
            self.server.ask("PUT", "columns/rows.parquet", (self.folder / "rows.parquet").read_bytes())
            places.append("columns/rows.parquet")
        for number, place in enumerate(places):
            self.train(f"rows-{number}", f"data.train=s3://work/{place}", steps=3, env=self.env())
            self.assertEqual(losses(self.folder / f"rows-{number}"), losses(self.folder / "rows"), place)


class Resuming(Stores):
    def test_bit_exact_resume_on_another_machine(self):
        self.train_there("again", "save_steps=1", steps=2)
        self.train_there("again", "save_steps=1", "resume_from_checkpoint=true", cache="two")
        self.assert_same_run("again", self.local_run(), 4)
        folder = self.folder / "again-metrics"
        folder.mkdir()
        (folder / "metrics.jsonl").write_bytes(self.server.ask("GET", "again/metrics.jsonl"))
        self.assertEqual(losses(folder), losses(self.folder / "local"))

    @long
    def test_resume_from_a_named_checkpoint(self):
        self.train_there("named", "save_steps=1", steps=3)
        self.train_there("other", "save_steps=1", "resume_from_checkpoint=s3://work/named/checkpoint-2", cache="two")
        self.assert_same_run("other", self.local_run(), 4)

    @long
    def test_damaged_checkpoint_is_skipped(self):
        self.train_there("hurt", "save_steps=1", steps=3)
        key = next(key for key in self.server.keys("hurt/checkpoint-3/") if key.endswith("model.safetensors"))
        data = bytearray(self.server.ask("GET", key))
        data[-5] ^= 1
        self.server.ask("PUT", key, bytes(data))
        told = self.train_there("hurt", "save_steps=1", "resume_from_checkpoint=true", cache="two")
        self.assertIn("skipped", told.err)
        self.assert_same_run("hurt", self.local_run(), 4)


class Kills(Stores):
    def test_kills_during_saves(self):
        self.kill_at_each_of(2)

    @long
    def test_kills_during_saves_many(self):
        self.kill_at_each_of(24)

    def kill_at_each_of(self, kills):
        """Kills a run at each of `kills`: the newest committed checkpoint loads, and the resumed run equals the undisturbed one."""
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        seen = []
        proxy.judge = lambda method, path: seen.append((method, path))
        self.kill_at(proxy, f"counted-{kills}", None)
        writes = [i for i, (method, _) in enumerate(seen) if method != "GET" and method != "HEAD"]
        self.assertGreater(len(writes), 20)
        places = [writes[len(writes) * (2 * i + 1) // (2 * kills)] for i in range(kills)]
        for number, place in enumerate(places):
            with self.subTest(place=seen[place]):
                self.kill_at(proxy, f"killed-{kills}-{number}", place)
                told = self.train_there(f"killed-{kills}-{number}", "save_steps=1", "resume_from_checkpoint=true", cache="two")
                self.assertNotIn("skipped checkpoint", told.err)
                self.assert_same_run(f"killed-{kills}-{number}", self.local_run(), 4)
                # Interrupted saves leave no objects.
                for step in range(1, 5):
                    folders = {k.split("/")[2] for k in self.server.keys(f"killed-{kills}-{number}/checkpoint-{step}/")}
                    self.assertEqual(len(folders), len(self.files_of(f"killed-{kills}-{number}", step)))

    def test_conditional_put_through_the_proxy(self):
        """Checks that the proxy enforces the condition; otherwise the kill tests would not show that each commit has its own name."""
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        proxy.judge = lambda method, path: "if absent"
        there = f"http://127.0.0.1:{proxy.port}/work/conditional/manifest.json"
        for answer, data in ((200, b"first"), (412, b"second")):
            headers = {"Content-Type": "application/octet-stream", "Authorization": AUTHORIZATION}
            request = urllib.request.Request(there, data=data, method="PUT", headers=headers)
            try:
                code = urllib.request.urlopen(request, timeout=60).status
            except urllib.error.HTTPError as error:
                code = error.code
            self.assertEqual(code, answer)
        self.assertEqual(self.server.ask("GET", "conditional/manifest.json"), b"first")

    def kill_at(self, proxy, output, place):
        """Kills a run of four steps at request number `place`, counted from 0. Each commit is a conditional put."""
        lock, count, commits = threading.Lock(), [0], [0]
        process = [None]
        before = proxy.judge

        def judge(method, path):
            with lock:
                commit = method == "PUT" and path.endswith("/manifest.json")
                commits[0] += commit
                if place is None:
                    before(method, path)
                    return "if absent" if commit else None
                count[0] += 1
                if count[0] - 1 == place:
                    os.kill(process[0].pid, signal.SIGKILL)
                return "refuse" if count[0] > place else "if absent" if commit else None

        proxy.judge = judge
        shutil.rmtree(self.folder / "caches" / "killed", ignore_errors=True)
        process[0] = start(
            *self.train_arguments(f"s3://work/{output}", "save_steps=1", steps=4),
            f"data.cache_dir={self.folder}/caches/killed/data", cwd=self.folder, env=self.env("killed", proxy.port))
        out, err = process[0].communicate(timeout=120)
        self.assertEqual(process[0].returncode, 0 if place is None else -signal.SIGKILL, out + err)
        if place is None:
            self.assertEqual(commits[0], 4)
        proxy.judge = before


class LostConnections(Stores):
    @long
    def test_run_survives_lost_connections(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        lock, count = threading.Lock(), [0]

        def judge(method, path):
            with lock:
                count[0] += 1
                return {0: "refuse", 4: 100}.get(count[0] % 9)

        proxy.judge = judge
        self.run_ok(
            *self.train_arguments("s3://work/lossy", "data.train=s3://work/corpus/train.txt", "save_steps=2", steps=4),
            f"data.cache_dir={self.folder}/caches/lossy/data", env=self.env("lossy", proxy.port))
        self.assertGreater(count[0], 20)
        self.assert_same_run("lossy", self.local_run(), 4)

    @long
    def test_download_resumes(self):
        data = ("All that is told is told once more.\n" * 700000).encode()  # several reads long
        self.server.ask("PUT", "large.txt", data)
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        lost = [0]

        def judge(method, path):
            if method == "GET" and "large.txt" in path:
                lost[0] += 1
                return (3 << 20, None, None, None, "refuse")[min(lost[0], 5) - 1]  # cut off in the middle, three whole, and lost

        proxy.judge = judge
        arguments = ["data", "show", "tokenizer.path=tokenizer", "data.train=s3://work/large.txt"]
        told = lockstep(*arguments, cwd=self.folder, env=self.env("large", proxy.port))
        self.assertEqual(told.code, 3, told)
        self.assertIn("s3://work/large.txt", told.err)
        partial, = (self.folder / "caches" / "large").rglob("large.txt.partial")
        self.assertGreater(partial.stat().st_size, 16 << 20)
        with open(partial, "r+b") as file:  # as after a power loss: of what was not synced, the size alone is there
            file.seek(16 << 20)
            file.write(bytes(partial.stat().st_size - (16 << 20)))
        proxy.judge = lambda method, path: None
        told = self.run_ok(*arguments, env=self.env("large", proxy.port))
        self.assertRegex(told.err, r"fetching s3://work/large.txt, resumed at byte 16777216")
        copies = list((self.folder / "caches" / "large").rglob("large.txt"))
        self.assertEqual([digest(copy.read_bytes()) for copy in copies], [digest(data)])
        # The file is downloaded once, and again after it changed.
        self.assertNotIn("fetching", self.run_ok(*arguments, env=self.env("large", proxy.port)).err)
        self.server.ask("PUT", "large.txt", data + b"And again.\n")
        self.assertIn("fetching", self.run_ok(*arguments, env=self.env("large", proxy.port)).err)

    @long
    def test_multipart_uploads_survive_lost_connections(self):
        (self.folder / "wide.json").write_text(json.dumps({**CONFIG, "n_embd": 512}))
        self.train("wide", "model.path=wide.json", steps=1)
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        lock, count = threading.Lock(), [0]

        def judge(method, path):
            with lock:
                count[0] += "partNumber" in path
                return {2: "refuse", 5: 60}.get(count[0] % 7) if "partNumber" in path else None

        proxy.judge = judge
        self.run_ok(
            *self.train_arguments("s3://work/wide", "model.path=wide.json", steps=1),
            f"data.cache_dir={self.folder}/caches/wide/data", env=self.env("wide", proxy.port))
        self.assertGreater(count[0], 7)
        self.assertEqual(
            digest(self.server.ask("GET", "wide/model.safetensors")),
            digest((self.folder / "wide" / "model.safetensors").read_bytes()))


class TwoRuns(Stores):
    @long
    def test_one_of_two_concurrent_runs_gets_the_folder(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        both, seen = threading.Barrier(2), set()

        def judge(method, path):
            if method == "PUT" and ".lockstep/00000001-" in path and path not in seen:
                seen.add(path)
                try:
                    both.wait(20)  # each has checked the lock and found it free
                except threading.BrokenBarrierError:
                    pass

        proxy.judge = judge
        runs = [start(
            *self.train_arguments("s3://work/both", steps=100000), f"data.cache_dir={self.folder}/caches/both-{i}/data",
            cwd=self.folder, env=self.env(f"both-{i}", proxy.port)) for i in range(2)]
        wait_for(lambda: any(run.poll() is not None for run in runs))
        both.abort()
        lost, had = sorted(runs, key=lambda run: run.poll() is None)
        self.assertIsNone(had.poll())
        out, err = lost.communicate(timeout=60)
        self.assertEqual(lost.returncode, 3, out + err)
        self.assertIn("s3://work/both is in use by another run", err)
        had.send_signal(signal.SIGTERM)
        out, err = had.communicate(timeout=120)
        self.assertEqual(had.returncode, 75, out + err)
        holds = self.server.keys("both/.lockstep/")
        self.assertEqual(len(holds), 1, holds)

    @long
    def test_the_second_is_refused_while_the_first_lives(self):
        process = start(
            *self.train_arguments("s3://work/busy", "save_steps=1000", steps=100000),
            f"data.cache_dir={self.folder}/caches/busy/data", cwd=self.folder, env=self.env("busy"))
        try:
            wait_for(lambda: self.server.keys("busy/.lockstep/"))
            told = self.run_fails(
                3, *self.train_arguments("s3://work/busy", "data.cache_dir=caches/other/data"), env=self.env("other"))
            self.assertIn("s3://work/busy is in use by another run: process", told.err)
            # From the same machine and the same working folder, concurrently.
            told = self.run_fails(
                3, *self.train_arguments("s3://work/busy", f"data.cache_dir={self.folder}/caches/busy/data"),
                env=self.env("busy"))
            self.assertIn("in use", told.err)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75)
        self.train_there("busy", "overwrite_output_dir=true", cache="three")

    @long
    def test_commit_after_a_takeover_is_ignored(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        held, release = threading.Event(), threading.Event()

        def judge(method, path):
            if method == "PUT" and re.search("checkpoint-2/.*/manifest.json", path) and not held.is_set():
                process.send_signal(signal.SIGSTOP)  # during its commit
                held.set()
                release.wait(120)
                return "if absent"  # the object is still absent, so the condition cannot exclude the run

        proxy.judge = judge
        process = start(
            *self.train_arguments("s3://work/late", "save_steps=1", "save_total_limit=1", steps=4),
            f"data.cache_dir={self.folder}/caches/late/data", cwd=self.folder, env=self.env("late", proxy.port))
        self.assertTrue(held.wait(60))
        told = self.train_there(
            "late", "save_steps=3", "save_total_limit=5", "resume_from_checkpoint=true", cache="taker", steps=3)
        self.assertIn("this run takes s3://work/late", told.err)
        self.assertIn("after step 1", told.err)
        release.set()
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
        self.assertTrue(any(k.endswith("manifest.json") for k in self.server.keys("late/checkpoint-2/")))
        self.assertEqual(process.returncode, 4, out + err)
        self.assertIn("was taken by process", err)
        self.assertTrue(self.files_of("late", 1))  # save_total_limit=1 would have removed it
        told = self.train_there("late", "save_steps=1", "resume_from_checkpoint=true", cache="four")
        self.assertIn("after step 3", told.err)
        self.assert_same_run("late", self.local_run(), 4)
        self.assertEqual(self.server.keys("late/checkpoint-2/"), [])


class Google(ProgramTest):
    def test_data_model_and_output_in_gs(self):
        server = GoogleServer()
        self.addCleanup(server.stop)
        env = environment(STORAGE_EMULATOR_HOST=server.address, XDG_CACHE_HOME=str(self.folder / "google"))
        for name in ("corpus", "tokenizer"):
            server.put_folder(self.folder / name, name)
        words = ("tokenizer.path=gs://work/tokenizer", "data.train=gs://work/corpus/tr*.txt", "save_steps=1", "save_total_limit=2")
        self.run_ok(*self.train_arguments("gs://work/run", *words, steps=2), env=env)
        env["XDG_CACHE_HOME"] = str(self.folder / "elsewhere")  # another machine resumes
        self.run_ok(*self.train_arguments("gs://work/run", *words, "resume_from_checkpoint=true", steps=4), env=env)
        self.train("on-disk", "save_steps=1", steps=4)
        keys = server.keys("run/")
        self.assertEqual({key.split("/")[1] for key in keys if "/checkpoint-" in key}, {"checkpoint-3", "checkpoint-4"})
        for name in ("model.safetensors", "config.json"):
            self.assertEqual(digest(server.get(f"run/{name}")), digest((self.folder / "on-disk" / name).read_bytes()))
        key = next(key for key in keys if "/checkpoint-4/" in key and key.endswith("manifest.json"))
        self.assertIn("run/metrics.jsonl", keys)
        wrote = self.run_ok("generate", "--model", "gs://work/run", "--prompt", "Once", "--max-new-tokens", "4", env=env)
        here = self.run_ok("generate", "--model", "on-disk", "--prompt", "Once", "--max-new-tokens", "4")
        self.assertEqual(wrote.out, here.out, key)
        told = self.run_fails(3, "generate", "--model", "gs://missing/run", "--prompt", "Once", env=env)
        self.assertIn("bucket missing does not exist", told.err)


class Azure(ProgramTest):
    """Uses the tests' own server (azure.py): no emulator is available from Debian or PyPI."""

    def setUp(self):
        self.server = AzureServer()
        self.addCleanup(self.server.stop)
        for name in ("corpus", "tokenizer"):
            self.server.put_folder(self.folder / name, name)

    def env(self, cache, server=None, **credentials):
        credentials = credentials or {"AZURE_STORAGE_KEY": azure.KEY}
        return environment(AZURE_STORAGE_ACCOUNT=azure.ACCOUNT, AZURE_STORAGE_SERVICE_ENDPOINT=server or self.server.address,
                           XDG_CACHE_HOME=str(self.folder / "caches" / cache), **credentials)

    def words(self, output, *more, steps):
        return self.train_arguments(f"az://work/{output}", "tokenizer.path=az://work/tokenizer", "data.train=az://work/corpus/tr*.txt",
                                    "save_steps=1", "save_total_limit=2", *more, steps=steps)

    def test_data_model_and_output_in_az(self):
        self.run_ok(*self.words("run", steps=2), env=self.env("one"))
        told = self.run_ok(*self.words("run", "resume_from_checkpoint=true", steps=4), env=self.env("two"))  # another machine
        self.train("on-disk", "save_steps=1", steps=4)
        keys = [key for key in self.server.blobs if key.startswith("run/") and not key.endswith("/")]
        self.assertEqual({key.split("/")[1] for key in keys if "/checkpoint-" in key}, {"checkpoint-3", "checkpoint-4"})
        for name in ("model.safetensors", "config.json"):
            self.assertEqual(digest(self.server.blobs[f"run/{name}"]["data"]), digest((self.folder / "on-disk" / name).read_bytes()))
        (self.folder / "copy").mkdir()
        (self.folder / "copy" / "metrics.jsonl").write_bytes(self.server.blobs["run/metrics.jsonl"]["data"])
        self.assertEqual(losses(self.folder / "copy"), losses(self.folder / "on-disk"))
        self.assertEqual([key for key in keys if "beside" in key], [])
        for key in keys:
            self.assertNotIn(azure.KEY.encode(), self.server.blobs[key]["data"], key)
        self.assertNotIn(azure.KEY, told.out + told.err)
        wrote = self.run_ok("generate", "--model", "az://work/run", "--prompt", "Once", "--max-new-tokens", "4", env=self.env("three"))
        here = self.run_ok("generate", "--model", "on-disk", "--prompt", "Once", "--max-new-tokens", "4")
        self.assertEqual(wrote.out, here.out)

    @long
    def test_kills_during_saves(self):
        """A replaced object is complete at any time, although Arrow's stream starts with an empty object."""
        self.run_ok(*self.words("counted", steps=3), env=self.env("counted"))
        writes = [i for i, (method, _) in enumerate(self.server.asked) if method in ("PUT", "DELETE")]
        self.train("undisturbed", "save_steps=1", steps=4)
        for number in range(KILLS):
            place, output = writes[len(writes) * (2 * number + 1) // (2 * KILLS)], f"killed-{number}"
            process, begun = [None], len(self.server.asked)

            def judge(method, path):
                if len(self.server.asked) - begun > place:
                    process[0].kill()
                return len(self.server.asked) - begun <= place

            with self.subTest(place=self.server.asked[place]):
                self.server.judge = judge
                process[0] = start(*self.words(output, steps=3), cwd=self.folder, env=self.env(output))
                process[0].communicate(timeout=120)
                self.server.judge = lambda method, path: True
                metrics = self.server.blobs.get(f"{output}/metrics.jsonl")
                self.assertTrue(metrics is None or metrics["data"].endswith(b"}\n"))
                self.run_ok(*self.words(output, "resume_from_checkpoint=true", steps=4), env=self.env(output + "-again"))
                self.assertEqual(digest(self.server.blobs[f"{output}/model.safetensors"]["data"]),
                                 digest((self.folder / "undisturbed" / "model.safetensors").read_bytes()))

    @long
    def test_run_survives_lost_connections(self):
        self.server.judge = lambda method, path: len(self.server.asked) % 31
        self.run_ok(*self.words("lossy", steps=3), env=self.env("lossy"))
        self.train("on-a-disk", "save_steps=1", steps=3)
        self.assertEqual(digest(self.server.blobs["lossy/model.safetensors"]["data"]),
                         digest((self.folder / "on-a-disk" / "model.safetensors").read_bytes()))

    def test_errors_have_remedies(self):
        def refused(code, place, *words, **keys):
            told = self.run_fails(code, *self.train_arguments("run", f"data.train={place}"), env=self.env("bad", **keys))
            for word in words:
                self.assertIn(word, told.err)
            self.assertNotIn(azure.KEY, told.out + told.err)

        refused(3, "az://wrong/corpus/train.txt", "bucket wrong does not exist", "AZURE_STORAGE_ACCOUNT")
        refused(4, "az://work/corpus/none.txt", "az://work/corpus/none.txt does not contain any file")
        refused(3, "az://work/corpus/train.txt", "AZURE_STORAGE_SAS_TOKEN", AZURE_STORAGE_KEY="AAAA")
        refused(3, "az://work/corpus/train.txt", "AZURE_STORAGE_SAS_TOKEN", AZURE_STORAGE_SAS_TOKEN="sv=2024-08-04&sig=wrong")
    def test_no_part_of_a_sas_token_is_written(self):
        """Arrow puts the URL of a request, with the token, into its messages."""
        token = "sv=2024-08-04&ss=b&srt=sco&sp=rwdlac&sig=" + canary.in_url("AZURE_STORAGE_SAS_TOKEN")
        for name, server in (("wrong", None), ("unreachable", f"http://127.0.0.1:{free_port()}/{azure.ACCOUNT}")):
            with self.subTest(name):
                env = self.env(name, server, AZURE_STORAGE_SAS_TOKEN=token)
                logs = self.folder / f"logs-{name}"
                words = self.train_arguments("az://work/run")
                at = words.index("--nproc")
                launch = ["launch", "--standalone", "--nproc-per-node=1", f"--log-dir={logs}", "--tee=3", "--propagate-exit-code", "train"]
                told = self.run_fails(3, *launch, *words[1:at], *words[at + 2:], env=env)
                written = [path.read_text(errors="replace") for path in logs.rglob("*") if path.is_file()]
                self.assertTrue(any("az://work/run" in text for text in written), written)
                for text in (told.out, told.err, *written):
                    canary.expect_none("a log", text)
                    self.assertNotIn("rwdlac", text)

    def test_a_sas_token_is_accepted(self):
        self.run_ok(*self.train_arguments("sas", "data.train=az://work/corpus/train.txt"),
                    env=self.env("sas", AZURE_STORAGE_SAS_TOKEN="sv=2024-08-04&sig=" + urllib.parse.quote(self.server.sas)))


class BadInput(Stores):
    def refused(self, code, *words, env=None, **keys):
        values = {"data.train": "s3://work/corpus/train.txt", **{k.replace("__", "."): v for k, v in keys.items()}}
        told = self.run_fails(
            code, *self.train_arguments("run"), *(f"{k}={v}" for k, v in values.items()), env=env or self.env("bad"))
        for word in words:
            self.assertIn(word, told.err)
        self.assertNotIn(SECRET, told.out + told.err)

    def test_errors_have_remedies(self):
        self.refused(3, "bucket wrong does not exist", data__train="s3://wrong/corpus/train.txt")
        self.refused(4, "s3://work/nothing/*.txt does not contain any file", data__train="s3://work/nothing/*.txt")
        self.refused(4, "s3://work/corpus/tran.txt does not contain any file", data__train="s3://work/corpus/tran.txt")
        self.refused(4, "no objects in s3://work/no-model", model__path="s3://work/no-model")
        self.refused(2, "the bucket is missing", "AWS_ACCESS_KEY_ID", data__train="s3://")
        self.refused(3, "bucket wrong does not exist", output_dir="s3://wrong/run")
        self.refused(3, "s3://work/corpus/train.txt", "AWS_ENDPOINT_URL", env=self.env("bad", free_port()))

    @long
    def test_unknown_certificate(self):
        certificate, key = self_signed(self.folder)
        server = Server(certificate=certificate, key=key)
        self.addCleanup(server.stop)
        server.ask("PUT", "corpus/train.txt", (self.folder / "corpus" / "train.txt").read_bytes())
        env = self.env("https", server.address)
        env.pop("AWS_CA_BUNDLE", None)
        self.refused(3, "SSL_CERT_FILE", env={k: v for k, v in env.items() if k != "SSL_CERT_FILE"})
        self.train("https", "data.train=s3://work/corpus/train.txt", steps=1, env={**env, "SSL_CERT_FILE": certificate})

    def test_denied_access(self):
        strict = Refusing()
        self.addCleanup(strict.stop)
        env = self.env("bad", strict.port)
        self.refused(3, "AWS_ACCESS_KEY_ID", env=env)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            del env[name]
        env["HOME"] = str(self.folder)  # without the user's credentials
        self.refused(3, "AWS_ACCESS_KEY_ID", env=env)


if __name__ == "__main__":
    unittest.main()
