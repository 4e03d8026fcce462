"""Reads a run with the trackers' own readers and servers: TensorBoard (scalars, text, hyperparameters, histograms), MLflow's server and client,
OpenTelemetry's schema."""

import base64
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import mlflow
import numpy
import pytest
from google.protobuf import json_format
from mlflow.entities import RunStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from safetensors.numpy import load_file
from small_runs import folder, metrics, train
from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, TENSORS, EventAccumulator
from tensorboard.plugins.hparams import metadata


def test_tensorboard_reads_a_run(folder):
    train(folder, "run", "report_to=tensorboard", "logging_dir=board", 'monitor.samples=["One day"]', "monitor.sample_tokens=4")
    board = EventAccumulator(str(folder / "board"), size_guidance={TENSORS: 0})
    board.Reload()
    lines = metrics(folder / "run")
    scalars = {event.step: event.value for event in board.Scalars("train/loss")}
    expected = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert scalars.keys() == expected.keys()
    assert all(abs(scalars[step] - expected[step]) < 1e-6 * expected[step] for step in expected)
    sample, = board.Tensors("samples/1")
    assert sample.step == 3 and b"One day" in sample.tensor_proto.string_val[0]
    content = board.summary_metadata["_hparams_/session_start_info"].plugin_data
    assert content.plugin_name == metadata.PLUGIN_NAME
    hparams = metadata.parse_session_start_info_plugin_data(content.content).hparams
    assert hparams["training.learning_rate"].number_value == 0.25
    assert hparams["training.max_steps"].number_value == 3
    assert hparams["training.use_cpu"].bool_value is True
    assert hparams["training.lr_scheduler_type"].string_value == "constant"
    end = metadata.parse_session_end_info_plugin_data(board.summary_metadata["_hparams_/session_end_info"].plugin_data.content)
    assert end.status == 1  # success


PLANS = {
    "one": (1, []),
    "replicated": (2, []),
    "shared": (4, ["parallel.tensor=2", "parallel.zero_stage=3"]),
    "hybrid": (4, ["parallel.zero_stage=2", "parallel.shard_ranks=2"]),
    "staged": (4, ["parallel.pipeline=2", "parallel.context=2", "gradient_accumulation_steps=2"]),
}


def histograms_of(path):
    board = EventAccumulator(str(path), size_guidance={HISTOGRAMS: 0})
    board.Reload()
    return {tag: {event.step: event.histogram_value for event in board.Histograms(tag)} for tag in board.Tags()["histograms"]}


def expect_counts_of(found, values):
    """Checks that the histogram counts `values`: the cumulative counts agree except for values that rounding moves over a limit."""
    values = numpy.sort(values.astype(numpy.float64).ravel())
    assert found.num == values.size
    numpy.testing.assert_allclose([found.min, found.max], [values[0], values[-1]], rtol=1e-5, atol=1e-7)
    numpy.testing.assert_allclose([found.sum, found.sum_squares], [values.sum(), (values ** 2).sum()], rtol=1e-5, atol=1e-4)
    below = numpy.searchsorted(values, found.bucket_limit, side="right")
    assert numpy.abs(numpy.cumsum(found.bucket) - below).max() <= 2


@pytest.mark.parametrize("plan", PLANS)
def test_tensorboard_reads_histograms_of_every_plan(folder, plan):
    """Weights are compared with the checkpoint, gradients with those of one rank, which plain SGD shows as differences of weights."""
    ranks, words = PLANS[plan]
    batch = 8 // (1 if plan == "one" else {"replicated": 2, "shared": 2, "hybrid": 4, "staged": 2}[plan])
    train(folder, f"bins-{plan}", "report_to=tensorboard", f"logging_dir=bins-board-{plan}", "monitor.histograms=2", "optim=sgd",
          "max_grad_norm=0", "save_steps=1", f"per_device_train_batch_size={batch}", *words, ranks=ranks, steps=4)
    found = histograms_of(folder / f"bins-board-{plan}")
    states = {step: load_file(folder / f"bins-{plan}" / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2, 3, 4)}
    names = {tag.split("/", 1)[1] for tag in found}
    assert {f"{kind}/{name}" for name in states[4] for kind in ("weights", "gradients")} <= found.keys(), names ^ states[4].keys()
    for name in states[4]:
        assert set(found[f"weights/{name}"]) == {2, 4}
        for step in (2, 4):
            expect_counts_of(found[f"weights/{name}"][step], states[step][name])
            gradient = (states[step - 1][name].astype(numpy.float64) - states[step][name]) / 0.25
            counted = found[f"gradients/{name}"][step]
            assert counted.num == gradient.size
            numpy.testing.assert_allclose(counted.sum_squares, (gradient ** 2).sum(), rtol=1e-3, atol=1e-9)
            numpy.testing.assert_allclose([counted.min, counted.max], [gradient.min(), gradient.max()], rtol=1e-2, atol=1e-5)


def expect_run_in_mlflow(address, run):
    client = mlflow.MlflowClient(tracking_uri=address)
    shown, = client.search_runs([client.get_experiment_by_name("stories: short").experiment_id])
    assert shown.info.status == RunStatus.to_string(RunStatus.FINISHED) and shown.info.end_time >= shown.info.start_time
    assert shown.info.run_name == "first" and shown.data.tags["team"] == "a"
    assert shown.data.params["training.learning_rate"] == "0.25" and shown.data.params["training.max_steps"] == "3"
    lines = metrics(run)
    for key, name in (("train/loss", "loss"), ("eval/loss", "eval_loss"), ("train/tokens", "tokens")):
        history = {m.step: m.value for m in client.get_metric_history(shown.info.run_id, key)}
        assert history == {line["step"]: line[name] for line in lines if name in line}


def test_mlflow_reads_a_folder_of_runs(folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # required by newer versions
    address = f"file://{folder}/mlruns"
    # The run continues an experiment that MLflow created.
    mlflow.MlflowClient(tracking_uri=address).create_experiment("stories: short")
    train(folder, "kept", "report_to=mlflow", "run_name=first", MLFLOW_TRACKING_URI=address, MLFLOW_EXPERIMENT_NAME="stories: short",
          MLFLOW_TAGS='{"team": "a"}')
    expect_run_in_mlflow(address, folder / "kept")
    train(folder, "more", "report_to=mlflow", "run_name=first", MLFLOW_TRACKING_URI=address, MLFLOW_EXPERIMENT_NAME="made by us, \u00fc: 2")
    client = mlflow.MlflowClient(tracking_uri=address)
    assert len(client.search_runs([client.get_experiment_by_name("made by us, \u00fc: 2").experiment_id])) == 1


def test_mlflow_shows_a_run(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
         "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        def answers():
            try:
                return urllib.request.urlopen(f"{address}/health", timeout=5).status == 200
            except OSError:
                return False

        limit = time.monotonic() + 180
        while not answers():
            assert time.monotonic() < limit and server.poll() is None
            time.sleep(0.5)
        train(folder, "told", "report_to=mlflow", "run_name=first", MLFLOW_TRACKING_URI=address, MLFLOW_EXPERIMENT_NAME="stories: short",
              MLFLOW_TAGS='{"team": "a"}')
        assert not (folder / "told" / "mlflow-outbox.jsonl").exists()
        expect_run_in_mlflow(address, folder / "told")
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def test_opentelemetry_spans_fit_the_schema(folder):
    got = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    train(folder, "spans", f"monitor.otlp=http://127.0.0.1:{server.server_port}")
    server.shutdown()
    spans = []
    for request in got:
        # OTLP's JSON is protobuf's JSON except for hexadecimal ids.
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
        parsed = json_format.ParseDict(request, ExportTraceServiceRequest())  # raises on unknown fields
        attributes = {a.key: a.value.string_value for a in parsed.resource_spans[0].resource.attributes}
        assert attributes["service.name"] == "lockstep" and attributes["lockstep.run"] == "spans"
        spans += parsed.resource_spans[0].scope_spans[0].spans
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert [a.value.int_value for span in spans for a in span.attributes if a.key == "lockstep.step"] == [1, 2, 3]
