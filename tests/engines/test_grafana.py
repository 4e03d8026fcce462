"""deploy/grafana: compares the dashboard with Grafana's types (`pip install grafana-foundation-sdk`, generated from its schemas), and runs its
queries on a Prometheus (Debian: prometheus) that scrapes `lockstep monitor` with the page's token."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import SOURCE, ProgramTest, free_port, start, wait_for  # noqa: E402
from test_kubernetes import differences  # noqa: E402

BOARD = json.loads((SOURCE / "deploy/grafana/lockstep.json").read_text())
SCRAPE = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: lockstep
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["{address}"]}}]
"""


class Schema(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("grafana_foundation_sdk") is None, "grafana-foundation-sdk is not installed (pip install)")
    def test_grafana_knows_all_that_stands_in_it(self):
        from grafana_foundation_sdk.cog import plugins
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models import dashboard
        plugins.register_default_plugins()

        def as_grafana_writes_it(board):
            return json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(board)))

        self.assertEqual(list(differences(BOARD, as_grafana_writes_it(BOARD))), [])
        wrong = json.loads(json.dumps(BOARD))
        wrong["panels"][0]["fieldConfig"]["defaults"]["unitt"] = "short"
        self.assertEqual(len(list(differences(wrong, as_grafana_writes_it(wrong)))), 1)


@unittest.skipIf(shutil.which("prometheus") is None, "Prometheus is not installed (Debian: prometheus)")
class Queries(ProgramTest):
    def ask(self, path, **words):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=10) as answer:
            told = json.loads(answer.read())
        self.assertEqual(told["status"], "success", told)
        return told["data"]

    def test_prometheus_has_an_answer_for_each_of_its_queries(self):
        run = start(*self.train_arguments("run", "eval_strategy=steps", "eval_steps=5", steps=100000), cwd=self.folder)
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)
        wait_for(lambda: (self.folder / "run/metrics.jsonl").exists() and "eval_loss" in (self.folder / "run/metrics.jsonl").read_text())
        monitor = start("monitor", "run", cwd=self.folder)
        self.addCleanup(monitor.communicate)
        self.addCleanup(monitor.terminate)
        page = urllib.parse.urlsplit(monitor.stdout.readline().strip())
        (self.folder / "prometheus.yml").write_text(SCRAPE.format(token=page.query.removeprefix("token="), address=page.netloc))
        self.port = free_port()
        server = subprocess.Popen(
            ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def is_scraped():
            try:
                return len(self.ask("query", query="count_over_time(lockstep_step[1m]) > 3")["result"])
            except OSError:
                return False

        wait_for(is_scraped, 60)
        self.assertEqual(self.ask("query", query="up")["result"][0]["value"][1], "1")
        names = self.ask("label/run/values", **{"match[]": "lockstep_step"})  # the query of the dashboard's variable, as Grafana sends it
        self.assertEqual(len(names), 1)
        for panel in BOARD["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$run", names[0])
                found = self.ask("query", query=query)["result"]
                self.assertEqual([line["metric"]["run"] for line in found], names, query)
        now = time.time()
        self.assertTrue(self.ask("query_range", query="lockstep_loss", start=now - 60, end=now, step=1)["result"][0]["values"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
