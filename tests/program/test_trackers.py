"""Trackers: MLflow, OpenTelemetry and TrainJob status, on simulated servers. tests/parity uses real ones."""

import http.server
import json
import signal
import ssl
import threading
import unittest
import urllib.parse

import canary
from harness import ProgramTest, environment, free_port, lockstep, losses, metrics, self_signed, start, wait_for


FIRST, NEXT = canary.value("the first token"), canary.value("the next token")


class Server(http.server.ThreadingHTTPServer):
    """Server that records posted requests as (path, body), in order. Implements the part of MLflow that a run uses."""

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.posts, self.experiments, self.headers = [], {}, []
        self.status = 200
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def close(self):
        self.shutdown()
        self.server_close()

    def of(self, end):
        return [body for path, body in self.posts if path.endswith(end)]

    def answer(self, path, body):
        call = path.removeprefix("/api/2.0/mlflow/")
        if call == "experiments/create":
            self.experiments[body["name"]] = str(len(self.experiments) + 1)
            return {"experiment_id": self.experiments[body["name"]]}
        if call == "runs/create":
            return {"run": {"info": {"run_id": f"run{len(self.of('runs/create'))}"}}}
        return {}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def reply(self, status, answer):
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.server.headers.append(dict(self.headers))
        name = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["experiment_name"][0]
        if name in self.server.experiments:
            self.reply(200, {"experiment": {"experiment_id": self.server.experiments[name]}})
        else:
            self.reply(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})

    def do_POST(self):
        self.server.headers.append(dict(self.headers))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status != 200:
            self.reply(self.server.status, {})
            return
        self.server.posts.append((self.path, body))
        self.reply(200, self.server.answer(self.path, body))


class Mlflow(ProgramTest):
    def serve(self, port=0):
        server = Server(port)
        self.addCleanup(server.close)
        return server

    def expect_metrics(self, server, run):
        sent = [metric for body in server.of("log-batch") for metric in body.get("metrics", [])]
        self.assertEqual(
            [(m["step"], m["value"]) for m in sent if m["key"] == "train/loss"],
            [(line["step"], line["loss"]) for line in metrics(run) if "loss" in line])

    def test_run_is_logged_and_continues_after_a_resume(self):
        server = self.serve()
        env = environment(
            MLFLOW_TRACKING_URI=server.address + "/", MLFLOW_EXPERIMENT_NAME="stories & more", MLFLOW_TAGS='{"team": "a"}',
            MLFLOW_TRACKING_TOKEN=canary.value("MLFLOW_TRACKING_TOKEN"), OUR_TOKEN=canary.value("OUR_TOKEN"))
        words = ("report_to=[mlflow,tensorboard]", "run_name=first", "save_steps=5", "project=${oc.env:OUR_TOKEN}")
        process = start(*self.train_arguments("told", *words, ranks=2, steps=100000), cwd=self.folder, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_for(lambda: len(losses(self.folder / "told")) >= 10 and len(server.of("log-batch")) > 2)
        process.send_signal(signal.SIGTERM)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(server.of("runs/update")[-1]["status"], "KILLED")
        made, = server.of("runs/create")
        self.assertEqual((made["run_name"], made["experiment_id"], made["tags"]), ("first", "1", [{"key": "team", "value": "a"}]))
        self.assertEqual(server.headers[0]["Authorization"], "Bearer " + canary.value("MLFLOW_TRACKING_TOKEN"))
        parameters = {p["key"]: p["value"] for body in server.of("log-batch") for p in body.get("params", [])}
        self.assertEqual((parameters["training.learning_rate"], parameters["training.max_steps"]), ("0.001", "100000"))
        self.assertEqual(parameters["training.project"], "***")  # from an environment variable that holds a secret
        self.assertEqual(canary.files_with_credentials(self.folder / "told"), [])
        self.expect_metrics(server, self.folder / "told")
        last = metrics(self.folder / "told")[-1]["step"]
        again = self.train_arguments("told", *words, "resume_from_checkpoint=true", ranks=2, steps=last + 3)
        result = lockstep(*again, cwd=self.folder, env=env)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(server.of("runs/create")), 1)
        self.assertEqual([body["status"] for body in server.of("runs/update")], ["KILLED", "RUNNING", "FINISHED"])
        self.assertFalse((self.folder / "told" / "mlflow-outbox.jsonl").exists())

    def test_unreachable_server_is_reported_once(self):
        port = free_port()
        env = environment(MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}")
        result = lockstep(*self.train_arguments("down", "report_to=mlflow", steps=30), cwd=self.folder, env=env)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err.count("does not answer"), 1, result)
        self.assertIn("lockstep sync", result.err)
        self.run_fails(2, "sync", "down", env=environment())  # no tracking server is configured
        self.run_fails(3, "sync", "down", env=env)
        server = self.serve(port)
        self.run_ok("sync", "down", env=env)
        self.expect_metrics(server, self.folder / "down")
        self.assertEqual(server.of("runs/update")[-1]["status"], "FINISHED")
        self.run_ok("sync", "down", env=env)  # nothing is left to send
        self.assertEqual(len(server.of("runs/create")), 1)

    def test_a_server_that_comes_late_gets_everything(self):
        server = self.serve()
        server.status = 503
        env = environment(MLFLOW_TRACKING_URI=server.address)
        process = start(*self.train_arguments("late", "report_to=mlflow", "save_strategy=no", steps=100000), cwd=self.folder, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_for(lambda: len(losses(self.folder / "late")) >= 5)
        server.status = 200
        wait_for(lambda: server.of("log-batch"))
        self.run_ok("ctl", "late", "stop")
        process.communicate(timeout=60)
        self.expect_metrics(server, self.folder / "late")

    def test_failed_run_is_marked_failed(self):
        server = self.serve()
        env = environment(MLFLOW_TRACKING_URI=server.address)
        arguments = self.train_arguments("failed", "report_to=mlflow", "learning_rate=1e30", "warmup_steps=0", "max_grad_norm=0")
        self.run_fails(6, *arguments, env=env)
        self.assertEqual(server.of("runs/update")[-1]["status"], "FAILED")

    def test_invalid_tracking_uri_fails_before_training(self):
        for address in ({}, {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}, {"MLFLOW_TRACKING_URI": "file://elsewhere/mlruns"}, {"MLFLOW_TRACKING_URI": "databricks"}):
            result = self.run_fails(2, *self.train_arguments("refused", "report_to=mlflow"), env=environment(**address))
            self.assertIn("mlflow server", result.err)

    def test_mlflow_folder(self):
        env = environment(MLFLOW_TRACKING_URI="mlruns", MLFLOW_EXPERIMENT_NAME="it's \u00fcbel", USER="a")
        train = self.train_arguments("kept", "report_to=mlflow", "save_steps=5", steps=5)
        self.run_ok(*train, env=env)
        self.run_ok(*self.train_arguments("kept", "report_to=mlflow", "resume_from_checkpoint=true", steps=8), env=env)
        self.run_ok(*self.train_arguments("other", "report_to=mlflow", steps=2), env=env)
        experiment, = (path for path in (self.folder / "mlruns").iterdir())
        runs = {(path / "tags" / "mlflow.runName").read_text(): path for path in experiment.iterdir() if path.is_dir()}
        self.assertEqual(sorted(runs), ["kept", "other"])
        lines = (runs["kept"] / "metrics" / "train" / "loss").read_text().splitlines()
        self.assertEqual([(float(value), int(step)) for _, value, step in map(str.split, lines)],
                         [(line["loss"], line["step"]) for line in metrics(self.folder / "kept") if "loss" in line])
        self.assertIn("status: 3\n", (runs["kept"] / "meta.yaml").read_text())
        result = self.run_fails(2, *self.train_arguments("barred", "report_to=mlflow"), env={**env, "MLFLOW_TRACKING_URI": "kept/config.yaml/mlruns"})
        self.assertIn("kept/config.yaml/mlruns", result.err)


class OpenTelemetry(ProgramTest):
    def test_steps_and_their_phases_are_spans(self):
        server = Server()
        self.addCleanup(server.close)
        self.train("spans", f"monitor.otlp={server.address}", "save_steps=3", "eval_strategy=steps", "eval_steps=3", ranks=2)
        self.assertEqual({path for path, _ in server.posts}, {"/v1/traces"})
        spans = [span for _, body in server.posts for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        steps = [span for span in spans if span["name"] == "step"]
        self.assertEqual(len(steps), 6)
        self.assertEqual(len({span["spanId"] for span in spans}), len(spans))
        for number, step in enumerate(steps, start=1):
            values = {a["key"]: a["value"] for a in step["attributes"]}
            self.assertEqual(values["lockstep.step"], {"intValue": str(number)})
            self.assertAlmostEqual(values["lockstep.loss"]["doubleValue"], losses(self.folder / "spans")[number - 1], places=12)
            phases = [span for span in spans if span.get("parentSpanId") == step["spanId"]]
            self.assertEqual(
                [span["name"] for span in phases], ["waiting for data", "exchanging step counts", "forward and backward", "the optimizer"])
            for phase in phases:
                self.assertEqual(phase["traceId"], step["traceId"])
                self.assertLessEqual(int(step["startTimeUnixNano"]), int(phase["startTimeUnixNano"]) + 1000)
                self.assertLessEqual(int(phase["endTimeUnixNano"]), int(step["endTimeUnixNano"]) + 1000)
        between = [span["name"] for span in spans if span["name"] != "step" and "parentSpanId" not in span]
        self.assertIn("saving checkpoint-3", between)
        self.assertIn("evaluating", between)

    def test_a_collector_that_is_down_costs_nothing(self):
        port = free_port()
        result = self.train("dark", f"monitor.otlp=http://127.0.0.1:{port}")
        self.assertEqual(result.err.count("does not answer"), 1, result)
        server = Server(port)
        self.addCleanup(server.close)
        self.run_ok("sync", "dark")
        spans = [span for _, body in server.posts for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        self.assertEqual(len([span for span in spans if span["name"] == "step"]), 6)
        self.run_fails(2, *self.train_arguments("refused", "monitor.otlp=localhost:4318"))

    def test_the_credentials_of_a_collector_are_not_recorded(self):
        port = free_port()
        address = f"http://me:canary@127.0.0.1:{port}"
        result = self.train("secret", f"monitor.otlp={address}", "save_steps=3")
        self.assertNotIn("canary", result.out + result.err)
        written = [path.name for path in (self.folder / "secret").rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
        self.assertEqual(written, [])
        self.assertIn(f"http://***@127.0.0.1:{port}", (self.folder / "secret" / "config.yaml").read_text())
        self.assertIn("--otlp", self.run_fails(2, "sync", "secret").err)
        server = Server(port)
        self.addCleanup(server.close)
        self.run_ok("sync", "secret", "--otlp", address)
        self.assertEqual({path for path, _ in server.posts}, {"/v1/traces"})


class TrainJob(ProgramTest):
    """Status updates of a Kubeflow TrainJob over HTTPS, with a token that changes during the run."""

    holds_credentials = ("token",)

    def serve(self):
        certificate, key = self_signed(self.folder)
        server = Server()
        self.addCleanup(server.close)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        (self.folder / "token").write_text(f"{FIRST}\n")
        server.answer = lambda path, body: (self.folder / "token").write_text(f"{NEXT}\n") and {}
        return server, environment(
            KUBEFLOW_TRAINER_SERVER_URL=f"https://127.0.0.1:{server.server_port}/namespaces/me/trainjobs/mine/status",
            KUBEFLOW_TRAINER_SERVER_CA_CERT=certificate, KUBEFLOW_TRAINER_SERVER_TOKEN=str(self.folder / "token"))

    def test_status_has_percent_seconds_and_metrics(self):
        server, env = self.serve()
        result = self.train("run", env=env)
        self.assertNotIn("TrainJob", result.err)
        self.assertEqual({path for path, _ in server.posts}, {"/namespaces/me/trainjobs/mine/status"})
        told = [body["trainerStatus"] for _, body in server.posts]
        self.assertEqual({headers["Authorization"] for headers in server.headers}, {f"Bearer {FIRST}", f"Bearer {NEXT}"})
        self.assertGreaterEqual(len(told), 2)  # every five seconds and at the end
        self.assertLess(told[0]["progressPercentage"], 100)
        self.assertGreaterEqual(told[0].get("estimatedRemainingSeconds", 0), 0)  # absent until the speed is known
        self.assertEqual((told[-1]["progressPercentage"], told[-1]["estimatedRemainingSeconds"]), (100, 0))
        values = {metric["name"]: metric["value"] for metric in told[-1]["metrics"]}
        self.assertEqual(float(values["loss"]), losses(self.folder / "run")[-1])
        for status in told:
            self.assertRegex(status["lastUpdatedTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_refusing_or_unknown_server_causes_a_warning(self):
        server, env = self.serve()
        server.status = 403
        self.assertEqual(self.train("refused", env=env).err.count("the TrainJob's status cannot be updated"), 1)
        server.status = 200
        (self.folder / "none.pem").write_text("")
        strange = self.train("strange", env={**env, "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.folder / "none.pem")})
        self.assertEqual(strange.err.count("the TrainJob's status cannot be updated"), 1)
        self.train("off", env={**env, "DISABLE_KUBEFLOW_INTEGRATION": "true"})
        self.assertEqual(server.posts, [])


class Histograms(ProgramTest):
    def test_histograms_need_a_tracker_that_shows_them(self):
        self.assertIn("report_to=tensorboard", self.run_fails(2, *self.train_arguments("no", "monitor.histograms=2")).err)
        self.run_fails(2, *self.train_arguments("no", "monitor.histograms=-1", "report_to=tensorboard"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
