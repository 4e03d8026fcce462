"""Reads offline runs with W&B's own program: `wandb sync` 0.17, the last version with a reader in Python, sends them to a server that records
the requests. wandb has a separate environment (tools/setup.sh parity)."""

import http.server
import json
import os
import pathlib
import subprocess
import threading

import pytest
from small_runs import folder, metrics, train

WANDB = pathlib.Path(os.environ.get("LOCKSTEP_WANDB", ".deps/wandb/bin")).resolve()
pytestmark = pytest.mark.skipif(not (WANDB / "wandb").exists(), reason="wandb is not installed in .deps/wandb; `tools/setup.sh parity` installs it")


class Server(http.server.ThreadingHTTPServer):
    """Server with the part of W&B's API that `wandb sync` uses: runs with their rows, and artifacts."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs, self.artifacts = {}, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def graphql(self, query, variables):
        if "upsertBucket" in query:
            shown = self.runs.setdefault(variables.get("name"), {"rows": [], "exits": [], "resumed": False})
            shown.update({key: value for key, value in variables.items() if value is not None})
            project = {"name": variables.get("project"), "entity": {"name": "me"}}
            bucket = {"id": "b", "name": variables.get("name"), "displayName": variables.get("displayName"), "project": project, "sweepName": None}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "RunResumeStatus" in query:
            known = self.runs.get(variables["name"])
            if known is None:
                return {"model": None}
            known["resumed"] = True
            tail = json.dumps([json.dumps(known["rows"][-1])])
            return {"model": {"id": "p", "name": "p", "entity": {"id": "e", "name": "me"}, "bucket": {
                "id": "b", "name": variables["name"], "summaryMetrics": "{}", "displayName": None, "logLineCount": 0,
                "historyLineCount": len(known["rows"]), "eventsLineCount": 0, "historyTail": tail, "eventsTail": "[]",
                "config": "{}", "tags": [], "wandbConfig": '{"t": 1}'}}}
        if "createArtifact(" in query:
            self.artifacts.append(variables)
            return {"createArtifact": {"artifact": {"id": "a", "state": "COMMITTED", "artifactSequence": {"id": "s", "latestArtifact": None}}}}
        return {}

    def stream(self, run, body):
        shown = self.runs[run]
        history = body.get("files", {}).get("wandb-history.jsonl")
        if history:
            assert history["offset"] == len(shown["rows"])  # no row may be skipped
            shown["rows"] += [json.loads(line) for line in history["content"]]
        if "exitcode" in body:
            shown["exits"].append(body["exitcode"])


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {}
        if self.path.endswith("/graphql"):
            answer = {"data": self.server.graphql(body["query"], body.get("variables") or {})}
        elif self.path.endswith("/file_stream"):
            self.server.stream(self.path.split("/")[-2], body)
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def environment(folder, server):
    return {**os.environ, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "a" * 40, "WANDB_DIR": str(folder),
            "HOME": str(folder), "WANDB_ERROR_REPORTING": "false", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "upb"}


def sync(folder, server, runs, *words):
    done = subprocess.run([WANDB / "wandb", "sync", *words, *runs], cwd=folder, env=environment(folder, server), capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("done.") == len(runs), done


def parts(run):
    """Folders of a run's attempts, ordered by id."""
    found = {}
    for each in sorted((run / "wandb").glob("offline-run-*")):
        found.setdefault(each.name.split("-", 3)[3], []).append(each)
    return found


def test_a_run_its_ranks_and_its_resume(folder):
    words = ("report_to=wandb", "run_name=first", "project=stories", "monitor.wandb_ranks=true", "save_steps=3", "save_total_limit=1")
    train(folder, "synced", *words, ranks=2, WANDB_LOG_MODEL="checkpoint", WANDB_TAGS="a,b")
    lines = metrics(folder / "synced")
    train(folder, "synced", *words, "resume_from_checkpoint=true", ranks=2, steps=6, WANDB_LOG_MODEL="checkpoint")
    attempts = parts(folder / "synced")
    name, = (key for key in attempts if "-rank" not in key)
    assert attempts.keys() == {name, f"{name}-rank0", f"{name}-rank1"} and all(len(each) == 2 for each in attempts.values())

    server = Server()
    sync(folder, server, [each[0] for each in attempts.values()])
    shown = server.runs[name]
    assert (shown["project"], shown["displayName"], shown["groupName"], shown["tags"]) == ("stories", "first", f"first-{name}", ["a", "b"])
    assert json.loads(shown["config"])["training"]["value"]["learning_rate"] == 0.25
    assert not shown["resumed"] and shown["exits"] == [0]
    for key, found in (("train/loss", "loss"), ("eval/loss", "eval_loss"), ("train/tokens", "tokens")):
        told = {row["train/global_step"]: row[key] for row in shown["rows"] if key in row}
        assert told == {line["step"]: line[found] for line in lines if found in line}
    for rank in range(2):
        of_rank = server.runs[f"{name}-rank{rank}"]
        assert (of_rank["groupName"], of_rank["jobType"], of_rank["displayName"]) == (f"first-{name}", "rank", f"first-rank{rank}")
        assert [row["train/global_step"] for row in of_rank["rows"]][-1] == 3  # the last step was logged
        assert all(row["train/step_s"] > 0 and row["train/memory_bytes"] > 0 for row in of_rank["rows"])

    sync(folder, server, [each[1] for each in attempts.values()], "--append")
    assert shown["resumed"] and shown["exits"] == [0, 0]
    steps = [row["_step"] for row in shown["rows"]]
    assert steps == sorted(set(steps))  # W&B drops rows whose step does not increase
    told = {row["train/global_step"]: row["train/loss"] for row in shown["rows"] if "train/loss" in row}
    assert told == {line["step"]: line["loss"] for line in metrics(folder / "synced") if "loss" in line}
    assert [row["train/global_step"] for row in server.runs[f"{name}-rank1"]["rows"]][-1] == 6

    # Each checkpoint is a version of one artifact, whose files remain after the checkpoint was removed.
    assert not (folder / "synced" / "checkpoint-3").exists()
    assert [artifact["artifactCollectionNames"] for artifact in server.artifacts] == [["model-first"]] * 2
    for artifact, at, attempt in zip(server.artifacts, (3, 6), attempts[name]):
        assert artifact["artifactTypeName"] == "model"
        assert {alias["alias"] for alias in artifact["aliases"]} >= {"latest", f"checkpoint_global_step_{at}"}
        assert json.loads(artifact["metadata"])["train/global_step"] == at
        kept = attempt / "artifacts" / f"checkpoint-{at}"
        code = f"import wandb; a = wandb.Artifact('model-first', 'model'); a.add_dir({str(kept)!r}); print(a.digest)"
        made = subprocess.run([WANDB / "python", "-c", code], env=environment(folder, server), capture_output=True, text=True, check=True)
        assert artifact["digest"] == made.stdout.split()[-1]
        assert (kept / "model.safetensors").exists() and (kept / "config.json").exists()


def test_failed_and_resumable_runs_are_marked(folder):
    server = Server()
    with pytest.raises(subprocess.CalledProcessError):
        train(folder, "failed", "report_to=wandb", "learning_rate=1e30", "max_grad_norm=0", WANDB_RUN_ID="failing")
    sync(folder, server, [each for runs in parts(folder / "failed").values() for each in runs])
    assert server.runs["failing"]["exits"] == [1]
