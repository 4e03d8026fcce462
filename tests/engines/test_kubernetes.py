"""Checks the files of deploy/kubernetes, the output of `lockstep submit`, and the posted TrainJob status with the operators' own models, which
are generated from their schemas: `pip install kubeflow-trainer-api kubeflow-training`."""

import importlib.util
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import SOURCE, ProgramTest  # noqa: E402

OBSTACLE = next(
    (f"{module} is not installed (pip install kubeflow-trainer-api kubeflow-training)"
     for module in ("kubeflow_trainer_api", "kubeflow", "yaml") if importlib.util.find_spec(module) is None), None)


class Answer:
    def __init__(self, document):
        self.data = json.dumps(document)


def parsed(document):
    """Round trip through the operator's model, which drops unknown fields."""
    from kubeflow.training.api_client import ApiClient
    from kubeflow_trainer_api import models
    if document["kind"] == "PyTorchJob":
        client = ApiClient()
        return client.sanitize_for_serialization(client.deserialize(Answer(document), "KubeflowOrgV1PyTorchJob"))
    names = {"TrainJob": "TrainerV1alpha1TrainJob", "JobSet": "JobsetV1alpha2JobSet",
             "ClusterTrainingRuntime": "TrainerV1alpha1ClusterTrainingRuntime"}
    return getattr(models, names[document["kind"]]).from_dict(document).to_dict()


def differences(written, read, place=""):
    """Entries of `written` that `read` lacks. Ignores quantities that became strings or gained a decimal point."""
    if isinstance(written, dict):
        for name, value in written.items():
            if name in read:
                yield from differences(value, read[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is not known"
    elif isinstance(written, list):
        if len(written) != len(read):
            yield f"{place} has {len(written)} entries, and {len(read)} were read"
        for number, (one, other) in enumerate(zip(written, read)):
            yield from differences(one, other, f"{place}[{number}]")
    elif str(written) != str(read) and str(written) + ".0" != str(read):
        yield f"{place} {written!r} was read as {read!r}"


@unittest.skipIf(OBSTACLE, OBSTACLE)
class Kubernetes(ProgramTest):
    def check(self, text, kinds):
        import yaml
        documents = list(yaml.safe_load_all(text))
        self.assertEqual([document["kind"] for document in documents], kinds)
        for document in documents:
            self.assertEqual(list(differences(document, parsed(document))), [])

    def test_files(self):
        for name, kind in (("jobset", "JobSet"), ("pytorchjob", "PyTorchJob"), ("runtime", "ClusterTrainingRuntime"),
                           ("trainjob", "TrainJob")):
            self.check((SOURCE / f"deploy/kubernetes/{name}.yaml").read_text(), [kind])

    def test_what_submit_prints(self):
        told = self.run_ok("submit", "--on", "kubernetes", "--nodes", "2", "--ranks-per-node", "8", "--image", "lockstep:1",
                           "model.preset=gpt2", "tokenizer.path=tokenizer", "data.train=corpus/train.txt", "output_dir=run",
                           "max_steps=10")
        self.check(told.out, ["TrainJob"])

    def test_the_check_finds_what_is_wrong(self):
        import yaml
        document = yaml.safe_load((SOURCE / "deploy/kubernetes/jobset.yaml").read_text())
        document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartsPolicy"] = "Never"
        self.assertIn("restartsPolicy is not known", " ".join(differences(document, parsed(document))))

    def test_a_status(self):
        """Checks the status as tests/program/test_trackers.py receives it."""
        from kubeflow_trainer_api.models import TrainerV1alpha1UpdateTrainJobStatusRequest as Request
        body = {"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "2.5"}],
                                  "lastUpdatedTime": "2026-01-02T03:04:05Z", "estimatedRemainingSeconds": 12}}
        read = Request.from_dict(body)
        self.assertEqual(read.trainer_status.progress_percentage, 40)
        self.assertEqual(read.trainer_status.last_updated_time.year, 2026)
        self.assertEqual(read.to_dict()["trainerStatus"]["metrics"], body["trainerStatus"]["metrics"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
