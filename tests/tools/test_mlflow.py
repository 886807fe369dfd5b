"""The real MLflow client logs runs through us and reads them back."""

import json
import math
import pathlib
import signal
import subprocess
import time

import mlflow
import pytest
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from conftest import PROGRAM


class Server:
    def __init__(self, runs):
        self.runs = runs
        self.start()

    def start(self):
        self.runs.mkdir(exist_ok=True)
        start = [PROGRAM, "dashboard", str(self.runs), "--bind", "127.0.0.1:0", "--no-domain", "--output", "quiet"]
        self.process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip().rstrip("/")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    server = Server(tmp_path / "runs")
    yield server
    server.kill()


def test_a_program_logs_with_the_fluent_interface(server, tmp_path):
    mlflow.set_tracking_uri(server.url)
    mlflow.set_experiment("digits")
    (tmp_path / "notes.txt").write_text("a note")
    with mlflow.start_run(run_name="first", tags={"team": "a"}) as run:
        mlflow.log_params({"lr": 0.1, "a.b/c d": "x # 'y' \"z\""})
        for step in range(5):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"epoch": 1, "broken": math.nan, "endless": math.inf}, step=4)
        mlflow.log_artifact(tmp_path / "notes.txt")
        mlflow.log_text("deep", "some/where/deep.txt")
        mlflow.log_dict({"a": 1}, "some/config.json")
    found = mlflow.get_run(run.info.run_id)
    assert found.info.status == "FINISHED" and found.info.run_name == "first"
    assert found.info.end_time >= found.info.start_time > 1_700_000_000_000
    assert found.data.params == {"lr": "0.1", "a.b/c d": "x # 'y' \"z\""}
    assert found.data.tags["team"] == "a"
    assert found.data.metrics["loss"] == 0.2 and found.data.metrics["epoch"] == 1
    assert math.isnan(found.data.metrics["broken"]) and found.data.metrics["endless"] == math.inf
    client = MlflowClient(server.url)
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(step, 1 / (step + 1)) for step in range(5)]
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["notes.txt", "some"]
    assert {file.path for file in client.list_artifacts(run.info.run_id, "some")} == {"some/where", "some/config.json"}
    local = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="some/where/deep.txt", dst_path=tmp_path)
    assert pathlib.Path(local).read_text() == "deep"
    found = mlflow.search_runs(experiment_names=["digits"], filter_string="metrics.loss < 0.5 and tags.team = 'a'", output_format="list")
    assert [run.info.run_name for run in found] == ["first"]


def test_batches_pages_and_changes(server):
    client = MlflowClient(server.url)
    experiment = client.create_experiment("many", tags={"kind": "test"})
    assert client.get_experiment(experiment).name == "many"
    assert client.get_experiment_by_name("nothing") is None
    assert [found.name for found in client.search_experiments()] == ["many", "Default"]
    with pytest.raises(MlflowException) as refused:
        client.create_experiment("many")
    assert refused.value.error_code == "RESOURCE_ALREADY_EXISTS"
    now = int(time.time() * 1000)
    runs = []
    for index in range(7):
        run = client.create_run(experiment, run_name=f"r{index}").info.run_id
        points = [Metric("loss", index + step, now + step, step) for step in range(1000)]
        client.log_batch(run, metrics=points, params=[Param("index", str(index))], tags=[RunTag("even", str(index % 2 == 0))])
        runs.append(run)
    assert len(client.get_metric_history(runs[3], "loss")) == 1000
    assert client.get_run(runs[3]).data.metrics["loss"] == 1002
    first = client.search_runs([experiment], order_by=["metrics.loss DESC"], max_results=4)
    rest = client.search_runs([experiment], order_by=["metrics.loss DESC"], max_results=4, page_token=first.token)
    assert [run.data.params["index"] for run in [*first, *rest]] == ["6", "5", "4", "3", "2", "1", "0"] and not rest.token
    with pytest.raises(MlflowException):
        client.log_param(runs[0], "index", "9")
    with pytest.raises(MlflowException):
        client.search_runs([experiment], filter_string="nonsense")
    with pytest.raises(MlflowException) as missing:
        client.get_run("0" * 32)
    assert missing.value.error_code == "RESOURCE_DOES_NOT_EXIST"
    client.set_tag(runs[0], "even", "no")
    client.delete_tag(runs[1], "even")
    client.update_run(runs[0], name="renamed")
    client.set_terminated(runs[0], "FAILED")
    changed = client.get_run(runs[0])
    assert (changed.info.run_name, changed.info.status, changed.data.tags["even"]) == ("renamed", "FAILED", "no")
    assert "even" not in client.get_run(runs[1]).data.tags
    client.delete_run(runs[2])
    assert len(client.search_runs([experiment])) == 6
    client.restore_run(runs[2])
    assert len(client.search_runs([experiment])) == 7


def test_runs_outlive_the_server_and_are_runs_of_ours(server, runs):
    client = MlflowClient(server.url)
    run = client.create_run("0", run_name="kept").info.run_id
    client.log_metric(run, "acc", 0.5, step=1)
    client.log_param(run, "lr", "0.1")
    server.kill()
    server.start()
    client = MlflowClient(server.url)
    client.log_metric(run, "acc", 0.75, step=2)
    client.set_terminated(run)
    assert [point.value for point in client.get_metric_history(run, "acc")] == [0.5, 0.75]
    listed = json.loads(runs.phalanx("run", "list", "--output", "json"))
    # One line for all, or one for each.
    listed = listed if isinstance(listed, list) else [listed]
    assert [found["state"] for found in listed] == ["finished"]
    plotted = json.loads(runs.phalanx("run", "plot", listed[0]["path"], "--metric", "acc", "--output", "json"))
    assert list(plotted["metrics"]["acc"].values()) == [[[1.0, 0.5], [2.0, 0.75]]]


def test_paths_of_artifacts_lead_nowhere_else(server, tmp_path):
    import http.client

    client = MlflowClient(server.url)
    run = client.create_run("0").info.run_id
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    host = server.url.removeprefix("http://")
    base = f"/api/2.0/mlflow-artifacts/artifacts/{run}"
    for path in [f"{base}/../../../secret.txt", f"{base}/%2e%2e/%2e%2e/%2e%2e/secret.txt", f"{base}/..%2f..%2f..%2fsecret.txt", f"{base}/a%00b", f"{base}/a%5cb"]:
        for method in ("GET", "PUT", "DELETE"):
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.putrequest(method, path, skip_host=False)
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            answer = connection.getresponse()
            assert answer.status in (400, 404), (method, path, answer.status)
            assert b"secret" != answer.read()
    assert secret.read_text() == "secret"
