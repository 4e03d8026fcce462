"""Monitoring and control of runs: tables, the control socket, the terminal view, and the page in a browser."""

import http.client
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
import urllib.parse

import browser
import long_run
from harness import (
    PROGRAM,
    SOURCE,
    ProgramTest,
    environment,
    long,
    losses,
    metrics,
    ranks_of,
    start,
    wait_for,
)

NEEDS_BROWSER = unittest.skipUnless(browser.find(), "Chromium is not installed (apt-get install chromium)")


def events(run, name=None):
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if name in (None, line["event"])]


class Runs(ProgramTest):
    def test_runs_and_compare(self):
        self.train("runs/a", "eval_strategy=steps", "eval_steps=3", "save_steps=3", ranks=2)
        self.train("runs/deep/b", "seed=7")
        self.run_fails(
            6, *self.train_arguments("runs/c", "learning_rate=1e30", "warmup_steps=0", "max_grad_norm=0"))
        began = events(self.folder / "runs/a", "began")[0]
        self.assertEqual((began["ranks"], began["plan"], began["steps"]), (2, "data 2", 6))
        self.assertEqual(began["origins"]["training.max_steps"], "command line: max_steps=6")
        self.assertEqual([e["checkpoint"] for e in events(self.folder / "runs/a", "saved")], ["checkpoint-3", "checkpoint-6"])
        table = self.run_ok("runs", "runs").out
        self.assertEqual(len(table.splitlines()), 4, table)
        self.assertRegex(table, r"(?m)^a +model\.json +data 2 +6/6 .* eval_loss \d\.\d+ .*\d+% +finished$")
        self.assertRegex(table, r"(?m)^deep/b .* one rank +6/6 .* finished$")
        self.assertRegex(table, r"(?m)^c .* failed: ")
        runs = [json.loads(line) for line in self.run_ok("runs", "runs", "--json").out.splitlines()]
        self.assertEqual([run["end"] for run in runs if run["folder"] == "runs/a"], ["finished"])
        text = self.run_ok("compare", "runs/a", "runs/deep/b").out
        self.assertRegex(text, r"training\.seed +42 +7")
        self.assertRegex(text, r"ranks +2 +1")
        self.assertIn("data: the same", text)
        self.assertIn("the first difference is at step 1", text)
        same = json.loads(self.run_ok("compare", "runs/a", "runs/a", "--json").out)
        self.assertEqual((same["configuration"], same["first_other_loss"], same["common_losses"]), ({}, None, 6))
        self.run_fails(2, "runs", "nowhere")
        self.run_fails(2, "compare", "runs/a", "corpus")


    def test_a_record_that_is_nested_deeply_is_read_without_the_line(self):
        words = ["save_steps=2", "resume_from_checkpoint=true"]
        self.train("nested/run", *words, steps=2)
        for name in ("events.jsonl", "metrics.jsonl", "ranks.jsonl"):
            with (self.folder / "nested/run" / name).open("a") as file:
                file.write('{"step": 2, "event": "act", "act": "set", "a": ' + "[" * 200_000 + "]" * 200_000 + "}\n")
        self.assertIn("finished", self.run_ok("runs", "nested").out)
        self.run_ok("runs", "nested", "--json")
        self.run_ok("compare", "nested/run", "nested/run")
        self.train("nested/run", *words, steps=4)
        self.assertEqual(len(losses(self.folder / "nested/run")), 4)


class Control(ProgramTest):
    def begin(self, name, *more, ranks=2):
        process = start(*self.train_arguments(name, *more, ranks=ranks, steps=4000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / name)) >= 3)
        return process

    def ctl(self, name, *words):
        return self.run_ok("ctl", name, *words).out

    def test_ctl_acts_on_all_ranks_between_steps(self):
        process = self.begin("steered", "training.log_level=warning")
        run = self.folder / "steered"
        self.assertRegex(self.ctl("steered", "status"), r"^step \d+ of 4000, ")
        self.assertEqual(json.loads(self.ctl("steered", "status", "--json"))["ranks"], 2)
        self.assertIn("steered  ", self.run_ok("runs", ".").out)
        self.assertRegex(self.run_ok("runs", "steered").out, "running\n$")
        step = int(re.fullmatch(r"saved checkpoint-(\d+)\n", self.ctl("steered", "save"))[1])
        self.assertTrue((run / f"checkpoint-{step}").is_dir())  # committed, although it is saved in the background
        self.assertEqual([(e["step"], e["checkpoint"]) for e in events(run, "saved")], [(step, f"checkpoint-{step}")])
        evaluated = int(re.fullmatch(r"eval  step (\d+)/4000  eval_loss \d\.\d+  perplexity .* s\)\n", self.ctl("steered", "eval"))[1])
        self.assertEqual([line["step"] for line in metrics(run) if "eval_loss" in line], [evaluated])
        self.ctl("steered", "log", "info")
        self.ctl("steered", "trace", "1")
        traces = wait_for(lambda: list(run.glob("trace-*.json")))
        self.assertIn("traceEvents", traces[0].read_text())
        told = self.ctl("steered", "set", "logging_steps=7")
        since = int(re.fullmatch(r"logging every 7 steps since step (\d+)\n", told)[1])
        wait_for(lambda: metrics(run)[-1]["step"] > since + 7)
        self.assertEqual([line["step"] for line in metrics(run) if line["step"] > since and "loss" in line and line["step"] % 7], [])
        self.run_fails(2, "ctl", "steered", "set", "learning_rate=1e-4")
        self.run_fails(2, "ctl", "steered", "set", "seed=3", "--force")
        self.assertRegex(self.ctl("steered", "stop"), r"^saved checkpoint-\d+ and stopped")
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, err)
        self.assertFalse((run / ".lockstep-control").exists())
        self.assertEqual([e["act"] for e in events(run, "act")], ["save", "eval", "log", "trace", "set logging_steps", "stop"])
        self.assertEqual(events(run)[-1]["event"], "stopped")
        self.assertIn("stopped by lockstep ctl", self.run_ok("runs", ".").out)
        self.run_fails(3, "ctl", "steered", "status")

    @long
    def test_resume_restores_a_changed_learning_rate(self):
        process = self.begin("set", "save_steps=20", "lr_scheduler_type=cosine")
        run = self.folder / "set"
        wait_for(lambda: (run / "checkpoint-20").exists())
        self.ctl("set", "set", "learning_rate=1e-2", "--force")
        act = events(run, "act")[0]
        wait_for(lambda: len(losses(run)) >= act["step"] + 25)
        self.ctl("set", "stop")
        process.communicate(timeout=60)
        lines = {line["step"]: line for line in metrics(run)}
        before, after = lines[act["step"]]["learning_rate"], lines[act["step"] + 1]["learning_rate"]
        self.assertAlmostEqual(after / before, 10, places=2)
        last = max(lines)
        # A run resumed from a checkpoint before the change repeats the original losses.
        for folder in run.glob("checkpoint-*"):
            if int(folder.name[11:]) > act["step"]:
                shutil.rmtree(folder)
        again = start(*self.train_arguments(
            "set", "save_steps=20", "lr_scheduler_type=cosine", "resume_from_checkpoint=true", ranks=2, steps=4000),
            cwd=self.folder)
        wait_for(lambda: metrics(run)[-1]["step"] >= last and events(run)[-1]["event"] != "stopped")
        again.send_signal(signal.SIGTERM)
        again.communicate(timeout=60)
        for line in metrics(run):
            if line["step"] in lines:
                for key in ("loss", "learning_rate"):
                    self.assertEqual(line[key], lines[line["step"]][key], (line, act))


class Samples(ProgramTest):
    PROMPTS = ["One day", "The little girl and her friend went"]

    @long
    def test_samples_equal_the_saved_models_output(self):
        plans = {
            "one": (1, []),
            "shared": (4, ["parallel.tensor=2", "parallel.zero_stage=3"]),
            "cut": (4, ["parallel.pipeline=2", "parallel.context=2", "gradient_accumulation_steps=2"]),
        }
        for name, (ranks, plan) in plans.items():
            self.train(
                name, *plan, f"monitor.samples={json.dumps(self.PROMPTS)}", "monitor.sample_tokens=7",
                "eval_strategy=steps", "eval_steps=3", "save_steps=6", "report_to=[tensorboard,wandb]", ranks=ranks)
            told = events(self.folder / name, "samples")
            self.assertEqual([event["step"] for event in told], [3, 6], name)
            for sample, prompt in zip(told[-1]["samples"], self.PROMPTS, strict=True):
                written = self.run_ok(
                    "generate", "--model", f"{name}/checkpoint-6", "--prompt", prompt, "--max-new-tokens", 7).out
                self.assertEqual(sample["prompt"] + sample["text"] + "\n", written, name)
            for tracker in ("runs/*/events*", "wandb/offline-run-*/run-*.wandb"):
                file, = (self.folder / name).glob(tracker)
                self.assertIn(b"samples/2", file.read_bytes())

    def test_invalid_sample_settings_fail_before_training(self):
        refused = {
            "evaluations": [],
            "no tokens": ["eval_strategy=steps", 'monitor.samples=[""]'],
            "at least 1": ["eval_strategy=steps", "monitor.sample_tokens=0"],
        }
        for told, more in refused.items():
            result = self.run_fails(2, *self.train_arguments("refused", 'monitor.samples=["One"]', *more))
            self.assertIn(told, result.err)
        result = self.run_fails(2, *self.train_arguments(
            "refused", f"monitor.samples={json.dumps(['One day ' * 60])}", "eval_strategy=steps"))
        self.assertIn("64 positions", result.err)


class Terminal(ProgramTest):
    """`lockstep monitor --tui` in a pseudo-terminal."""

    def open(self, *folders, rows=24, columns=80, **more):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen(
            [PROGRAM, "monitor", "--tui", *folders], cwd=self.folder, stdin=theirs, stdout=theirs, stderr=theirs,
            env=environment(TERM="xterm", LC_ALL="C", **more), start_new_session=True)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process, ours

    def read_until(self, end, *words, seconds=60):
        seen, limit = b"", time.monotonic() + seconds
        while not all(word.encode() in seen for word in words):
            ready, _, _ = select.select([end], [], [], max(0, limit - time.monotonic()))
            self.assertTrue(ready, seen)
            seen += os.read(end, 1 << 16)
        return seen.decode(errors="replace")

    def test_curves_ranks_and_events_are_shown_and_q_ends(self):
        self.train("tui/one", ranks=2, steps=20)
        self.train("tui/two", "seed=5", steps=8)
        process, end = self.open("tui")
        shown = self.read_until(end, "tui/one", "finished", "rank 0", "rank 1", "loss (n, p", "q: end")
        self.assertIn("step 20/20", shown)
        self.assertRegex(shown, "[\u2801-\u28ff]{3}")  # a curve
        os.write(end, b"n")
        self.read_until(end, "learning_rate (n")
        os.write(end, b"\x1b[B\x1bOB")  # the down key, in both modes of a terminal
        self.read_until(end, "two")  # the screen's difference from tui/one; only changes are sent
        os.write(end, b"q")
        self.assertEqual(process.wait(60), 0)
        process, end = self.open("tui", rows=8, columns=30)
        self.read_until(end, "too small")
        os.write(end, b"q")
        self.assertEqual(process.wait(60), 0)
        self.assertIn("--tui requires a terminal", self.run_fails(2, "monitor", "--tui", "tui").err)
        process, end = self.open("nowhere")
        self.read_until(end, "nowhere")
        self.assertEqual(process.wait(60), 2)


class Page(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        plans = {"one": (2, ["parallel.pipeline=2", "gradient_accumulation_steps=4"]), "two": (1, [])}
        for seed, (name, (ranks, plan)) in enumerate(plans.items(), start=1):
            cls.run_ok_in(cls.folder, *cls.train_arguments(
                cls, f"page/{name}", f"seed={seed}", "eval_strategy=steps", "eval_steps=10", "save_steps=10",
                'monitor.samples=["One day"]', "monitor.sample_tokens=5", *plan, "--trace", f"page/{name}/trace-3.json",
                ranks=ranks, steps=40))

    def serve(self, *folders):
        process = start("monitor", *folders, cwd=self.folder)
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        return urllib.parse.urlsplit(process.stdout.readline().strip())

    def get(self, address, path, **headers):
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def test_page_requires_its_token_and_follows_a_run(self):
        shutil.copytree(self.folder / "page" / "one", self.folder / "copied", ignore=shutil.ignore_patterns("*.safetensors"))
        with open(self.folder / "copied" / "metrics.jsonl", "a") as file:
            file.write('{"step": 41, "lo')
        (self.folder / "copied" / "empty").mkdir()
        address = self.serve("copied")
        self.assertEqual(address.hostname, "127.0.0.1")
        self.assertEqual(self.get(address, "/api/runs")[0], 401)
        status, headers, _ = self.get(address, f"/?{address.query}")
        self.assertEqual(status, 303)
        cookie = headers["Set-Cookie"].split(";")[0]
        self.assertEqual(self.get(address, "/", Cookie=cookie, Host="evil.example")[0], 403)
        self.assertEqual(self.get(address, "/api/runs", Cookie=cookie, Origin="http://evil.example")[0], 403)
        status, headers, body = self.get(address, "/", Cookie=cookie)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        run, = json.loads(self.get(address, "/api/runs", Cookie=cookie)[2])
        self.assertEqual((run["last_step"], run["end"], run["bad_lines"]), (40, "finished", 0))
        with open(self.folder / "copied" / "metrics.jsonl", "a") as file:
            file.write('ss": 1.25}\n')
        series = json.loads(self.get(address, "/api/series?ids=0&names=loss&from=40", Cookie=cookie)[2])
        self.assertEqual(series["0"]["loss"][0], [40, 41])
        self.assertEqual(series["0"]["loss"][1][1], 1.25)
        token = address.query.removeprefix("token=")
        served = self.get(address, "/metrics", Authorization=f"Bearer {token}")[2]
        self.assertIn("lockstep_loss{", served)
        # Grafana's dashboard uses no other metrics.
        board = json.loads((SOURCE / "deploy" / "grafana" / "lockstep.json").read_text())
        asked = {name for panel in board["panels"] for target in panel["targets"]
                 for name in re.findall(r"lockstep_\w+", target["expr"])}
        self.assertGreater(len(asked), 8)
        self.assertEqual(asked - set(re.findall(r"^(lockstep_\w+)\{run=", served, re.M)), set())
        self.run_fails(2, "monitor", "nowhere")

    def test_downsampling_of_a_long_run_keeps_extremes(self):
        least, greatest = long_run.write(self.folder / "long", 50000, 20)
        address = self.serve("long")
        token = {"Authorization": "Bearer " + address.query.removeprefix("token=")}
        run, = json.loads(self.get(address, "/api/runs", **token)[2])
        self.assertEqual((run["last_step"], run["end"], run["bad_lines"], len(run["metrics"])), (50000, "finished", 0, 21))  # and the epoch
        names = ",".join(run["metrics"])
        curves = json.loads(self.get(address, f"/api/series?ids=0&names={names}&points=100", **token)[2])["0"]
        self.assertEqual(curves.keys(), set(run["metrics"]))
        for steps, values in curves.values():
            self.assertLessEqual(len(steps), 4 * 100)
            self.assertEqual((steps[0], steps[-1], steps), (1, 50000, sorted(set(steps))))
        shown = dict(zip(*curves["loss"]))
        self.assertEqual((shown[least], shown[greatest]), (0.001, 1000))
        part = json.loads(self.get(address, f"/api/series?ids=0&names=loss&points=100&from={least}&to={least + 99}", **token)[2])
        self.assertEqual(part["0"]["loss"][0], list(range(least, min(50000, least + 99) + 1)))  # close to every step is returned

    def test_live_view_with_stacks(self):
        process = start(*self.train_arguments("live", ranks=2, steps=4000), cwd=self.folder)
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        wait_for(lambda: len(losses(self.folder / "live")) >= 3)
        address = self.serve("live")
        cookie = {"Authorization": "Bearer " + address.query.removeprefix("token=")}
        self.assertTrue(json.loads(self.get(address, "/api/run?id=0", **cookie)[2])["live"])
        text = json.loads(self.get(address, "/api/live?id=0", **cookie)[2])["text"]
        self.assertRegex(text, r"rank 0.*: step \d+")
        self.assertIn("rank 1", text)
        text = json.loads(self.get(address, "/api/live?id=0&stacks=1", **cookie)[2])["text"]
        self.assertIn("stacks of rank 1", text)
        times = wait_for(lambda: (lambda t: t if t["steps"] else None)(json.loads(self.get(address, "/api/ranks?id=0", **cookie)[2])))
        self.assertEqual((times["ranks"], len(times["step_s"]), len(times["step_s"][0])), (2, 2, len(times["steps"])))
        slow = r"(rank [01] is slowed by its \w+: .* \d\.\d\d times the usual time|no rank is slower)"
        self.assertRegex(times["slow"], slow)
        self.assertRegex(self.run_ok("monitor", "--text", "--once", "live").out, rf"until step \d+: {slow}")
        self.assertEqual(self.get(address, "/api/trace?id=0&step=3", **cookie)[0], 404)

    def test_a_run_serves_its_own_page(self):
        process = start(*self.train_arguments("own", "monitor.page=true", ranks=2, steps=4000), cwd=self.folder)
        line = next(line for line in process.stderr if "monitor page" in line)
        file = self.folder / "own" / ".lockstep-page"
        self.assertIn(str(file.relative_to(self.folder)), line)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        address = urllib.parse.urlsplit(file.read_text().strip())
        token = address.query.removeprefix("token=")
        self.assertEqual(len(token), 32)
        wait_for(lambda: len(losses(self.folder / "own")) >= 3)
        cookie = self.get(address, f"/?{address.query}")[1]["Set-Cookie"].split(";")[0]
        run, = json.loads(self.get(address, "/api/runs", Cookie=cookie)[2])
        self.assertTrue(run["running"])
        process.send_signal(signal.SIGTERM)
        self.assertNotIn(token, "".join(process.communicate(timeout=60)))
        self.assertEqual(process.returncode, 75)
        self.assertFalse(file.exists())

    def test_a_record_that_cannot_be_read_hides_no_other_run(self):
        self.train("many/whole", steps=2)
        damaged = self.folder / "many" / "damaged"
        damaged.mkdir()
        (damaged / "metrics.jsonl").write_text('{"step": 1, "loss": 1}\n')
        unreadable = pathlib.Path("/sys/class/net/lo/speed")  # fails to be read, also for root
        if not unreadable.is_file():
            self.skipTest(f"no {unreadable}")
        (damaged / "events.jsonl").symlink_to(unreadable)
        listed = self.run_ok("runs", "many").out
        self.assertRegex(listed, r"damaged .* cannot be read: ")
        self.assertRegex(listed, r"whole .* finished")
        address = self.serve("many")
        token = {"Authorization": "Bearer " + address.query.removeprefix("token=")}
        status, _, body = self.get(address, "/api/runs", **token)
        self.assertEqual(status, 200, body)
        ends = {run["name"].split("/")[-1]: run["end"] for run in json.loads(body)}
        self.assertEqual(ends["whole"], "finished")
        self.assertRegex(ends["damaged"], "^cannot be read: ")
        status, _, body = self.get(address, "/metrics", **token)
        self.assertEqual(status, 200, body)
        self.assertIn('lockstep_step{run="many/whole"} 2', body)

    def open(self, *folders):
        page = browser.Browser(browser.find())
        self.addCleanup(page.close)
        page.size(1200, 900)
        page.call("Page.navigate", url=self.serve(*folders).geturl())
        page.wait_for("document.body && document.body.dataset.ready")
        self.addCleanup(lambda: self.assertEqual({urllib.parse.urlsplit(url).hostname for url in page.requests} - {None}, {"127.0.0.1"}))
        return page

    @NEEDS_BROWSER
    @long
    def test_a_killed_rank_shows_within_seconds(self):
        for rank, told in ((1, "failed: .*rank 1 has ended"), (0, "ended unexpectedly")):
            name = f"killed/{rank}"
            process = start(*self.train_arguments(name, ranks=2, steps=100000), cwd=self.folder)
            self.addCleanup(process.communicate)
            self.addCleanup(process.terminate)
            wait_for(lambda: len(losses(self.folder / name)) >= 3)
            page = self.open(name)
            end = "document.querySelector('tr[data-run] td:last-child')"
            self.assertEqual(page.value(f"{end}.textContent"), "running")
            page.wait_for("/^[0-9:dh ]+$/.test(document.querySelector('tr[data-run] td:nth-child(9)').textContent)")  # remaining time
            path = "document.querySelector('path[data-series=\"0:loss\"]').getAttribute('d')"
            page.wait_for(f"{path} !== {json.dumps(page.value(path))}")  # the curve grows
            page.wait_for("/rank 1.*: step \\d/.test(document.querySelector('[data-part=\"live-0\"] pre').textContent)")
            page.value("document.querySelector('[data-part=\"live-0\"] button').click()")
            page.wait_for("document.querySelector('[data-part=\"live-0\"]').textContent.includes('stacks of rank 1')")
            places = [json.loads(line) for line in (self.folder / name / ".lockstep-ranks").read_text().splitlines()]
            os.kill(places[rank]["process"], signal.SIGKILL)
            page.wait_for(f"/{told}/.test({end}.textContent) && {end}.className === 'bad'", seconds=5)
            page.wait_for("!document.querySelector('[data-part=\"live-0\"]')?.checkVisibility()")

    @NEEDS_BROWSER
    @long
    def test_events_are_shown(self):
        train = self.train_arguments(
            "eventful", "fp16=true", "precision.loss_scale.initial_power=22", "checkpoint.compare_replicas=5", "save_steps=10", steps=60)
        at = train.index("--nproc")
        job = start("launch", "--nproc-per-node=2", "--max-restarts=1", "train", *train[1:at], *train[at + 2:], cwd=self.folder)
        run = self.folder / "eventful"
        wait_for(lambda: (run / "checkpoint-20").exists())
        os.kill(ranks_of("output_dir=eventful")[1], signal.SIGKILL)
        _, err = job.communicate(timeout=120)
        self.assertEqual(job.returncode, 0, err)
        self.assertTrue(events(run, "overflow"))
        self.assertEqual([e["round"] for e in events(run, "began")], [0, 1])
        self.assertTrue({5, 15} <= {e["step"] for e in events(run, "compared replicas")})
        page = self.open("eventful")
        told = page.value("[...document.querySelectorAll('[data-part=events-0] tbody tr')].map(row => [...row.children].slice(1).map(cell => cell.textContent))")
        for name, text in (("began", "one rank|data 2"), ("overflow", "NaN or Inf"), ("saved", "^checkpoint-20: training waited"), ("compared replicas", "bit-identical"),
                           ("restarted", "2 ranks on"), ("finished", "")):
            self.assertTrue([row for row in told if row[1] == name and re.search(text, row[2])], (name, told))
        marks = page.value("[...document.querySelectorAll('[data-chart=\"loss+eval_loss\"] path title')].map(title => title.textContent)")
        for name in ("overflow", "saved: checkpoint-20", "restarted"):
            self.assertTrue([mark for mark in marks if re.search(rf"^eventful, step \d+: {name}", mark)], (name, marks))
        self.assertEqual(page.complaints, [])

    @NEEDS_BROWSER
    @long
    def test_64_runs_are_one_list(self):
        for number in range(64):
            shutil.copytree(
                self.folder / "page" / "two", self.folder / "many" / f"{number:02}",
                ignore=shutil.ignore_patterns("*.safetensors", "checkpoint-*"))
        page = self.open("many")
        self.assertEqual(page.value("[...document.querySelectorAll('tr[data-run] td:nth-child(2)')].map(cell => cell.textContent)"),
                         [f"many/{number:02}" for number in range(64)])
        lines = "document.querySelectorAll('[data-chart=\"loss+eval_loss\"] path[data-series]').length"
        self.assertEqual(page.value(lines), 2 * 8)  # the first eight
        page.value("[...document.querySelectorAll('tr[data-run] input:not(:checked)')].forEach(box => box.click())")
        page.wait_for(f"{lines} === 2 * 64")
        self.assertEqual(page.complaints, [])

    @NEEDS_BROWSER
    def test_in_a_browser(self):
        page = self.open("page")
        self.assertEqual(page.value("location.search"), "")  # the page removes the token from the address
        self.assertEqual(page.value("document.querySelectorAll('tr[data-run]').length"), 2)
        charts = page.value("[...document.querySelectorAll('[data-chart]')].map(c => c.dataset.chart)")
        charts = [name for name in charts if name != "roofline_share"]  # drawn only on measured machines
        self.assertEqual(
            charts[:7],
            ["loss+eval_loss", "learning_rate", "grad_norm", "tokens_per_s", "peak_share", "step_s", "peak_memory_bytes"])
        self.assertRegex(page.value("document.querySelector('tr[data-run] td:nth-child(10)').textContent"), r"^\d+%$")  # goodput
        told = [json.loads(line) for line in (self.folder / "page" / "one" / "ranks.jsonl").read_text().splitlines()]
        self.assertEqual((told[-1]["step"], sum(line["steps"] for line in told)), (40, 40))  # including the last step
        lines = "document.querySelectorAll('[data-chart=\"loss+eval_loss\"] path[data-series]').length"
        self.assertEqual(page.value(lines), 4)
        path = "document.querySelector('path[data-series=\"0:loss\"]').getAttribute('d')"
        plain = page.value(path)
        self.assertEqual(plain.count("L"), 39)
        self.assertIn("training.seed", page.value("document.querySelector('[data-part=difference]').textContent"))
        self.assertIn("command line: max_steps=40", page.value("document.querySelector('[data-part=configuration-0]').textContent"))
        self.assertRegex(page.value("document.querySelector('[data-chart=\"loss+eval_loss\"] p').textContent"), r"^page/one loss [\d.]+, page/one eval_loss [\d.]+, page/two loss")
        page.key("l")  # a logarithmic axis
        page.wait_for(f"{path} !== {json.dumps(plain)}")
        page.key("l")
        page.wait_for(f"{path} === {json.dumps(plain)}")
        page.key("+")  # smoothed by the server
        page.wait_for(f"{path} !== {json.dumps(plain)}")
        page.key("-")
        page.wait_for(f"{path} === {json.dumps(plain)}")
        page.key("2")  # one run alone
        page.wait_for(f"{lines} === 2")
        page.wait_for("document.querySelector('[data-part=difference]') === null")
        box = page.value("(r => [r.x, r.y, r.width, r.height])(document.querySelector('[data-chart] svg').getBoundingClientRect())")
        across = lambda share: (box[0] + share * box[2], box[1] + box[3] / 2)
        page.mouse("mousePressed", *across(0.4))
        page.mouse("mouseMoved", *across(0.6))
        self.assertRegex(page.value("document.querySelector('[data-chart] p').textContent"), r"page/one loss: [\d.]+ at \d+")
        page.mouse("mouseReleased", *across(0.7))
        page.wait_for(f"{path}.split('L').length < 20")
        page.key("0")
        page.wait_for(f"{path}.split('L').length === 40")
        chart = "document.querySelector('[data-chart=\"loss+eval_loss\"]')"
        self.assertRegex(page.value(f"{chart}.querySelector('svg').getAttribute('aria-label')"), r"page/one loss is [\d.]+ at step 40, between")
        page.value(f"{chart}.querySelector('svg').focus()")
        page.key("Home")  # the focused chart handles the key; nothing scrolls
        self.assertRegex(page.value(f"{chart}.querySelector('p').textContent"), r"page/one loss: [\d.]+ at 1\b")
        page.key("ArrowRight")
        self.assertRegex(page.value(f"{chart}.querySelector('p').textContent"), r"page/one loss: [\d.]+ at 2\b")
        self.assertEqual(page.value("state.from"), 0)
        page.value("document.activeElement.blur()")
        exported = page.value("svgText(cards.get('loss+eval_loss'))")
        self.assertTrue(exported.startswith("<svg") and "data-series" in exported, exported[:200])
        table = page.value("csvText(cards.get('loss+eval_loss'))").splitlines()
        self.assertEqual(table[0], "run,metric,step,value")
        self.assertEqual(len(table), 1 + 40 + 4)
        page.wait_for("document.querySelectorAll('[data-ranks=\"0\"] rect.heat').length > 30")
        ranks = "document.querySelector('[data-ranks=\"0\"]')"
        self.assertIn("One day", page.value(f"{ranks}.textContent"))
        self.assertTrue(page.value("[...document.querySelectorAll('[data-chart] svg text')].every("
                                   "text => text.getBoundingClientRect().right <= text.closest('svg').getBoundingClientRect().right + 0.5)"))
        self.assertEqual(page.value(f"{ranks}.querySelectorAll('tbody svg.shares').length"), 2 + 14)  # ranks; kinds, twice
        timeline = f"{ranks}.querySelectorAll('[data-part=timeline-0] svg rect')"
        page.wait_for(f"{timeline}.length === 2 * 16")  # 4 micro-batches, forward and backward, on 2 ranks; as many predicted
        heat = f"{ranks}.querySelector('rect.heat').parentNode.getAttribute('aria-label')"
        self.assertIn("compute per step", page.value(heat))
        page.value(f"(s => {{ s.value = 'communication'; s.dispatchEvent(new Event('change')); }})({ranks}.querySelector('select'))")
        self.assertIn("time waiting for other ranks of 2 ranks", page.value(heat))
        page.size(360, 700)  # a phone: only elements that scroll by themselves may be wider
        page.wait_for("document.documentElement.scrollWidth <= 360")
        colors = []
        for scheme in ("dark", "light"):
            page.scheme(scheme)
            colors.append(page.value("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(colors, ["rgb(18, 21, 27)", "rgb(255, 255, 255)"])
        self.assertEqual(page.complaints, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
