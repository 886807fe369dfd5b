"""Runs are pushed to a directory, S3, Azure and Google Cloud, and pulled from there."""

import contextlib
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading

import pytest

import places
from conftest import PROGRAM

MIB = 1 << 20
# Larger than what is sent at once: it goes in eight parts, four of them at a time.
LARGE = 64 * MIB
# More than four parts are on their way then, so one at least is there.
MIDDLE = 36 * MIB


@pytest.fixture(scope="session")
def s3():
    server = places.S3Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    if places.azurite() is None:
        if os.environ.get("PHALANX_REQUIRE_AZURITE"):
            pytest.fail("there is no Azurite")
        pytest.skip("there is no Azurite")
    directory = tmp_path_factory.mktemp("azurite")
    server = places.AzureServer(directory)
    yield server
    server.stop()
    shutil.rmtree(directory)


def server_of(kind, request, tmp_path):
    prefix = "team/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    if kind == "google":
        return places.Google(request.getfixturevalue("s3"), prefix, tmp_path)
    return request.getfixturevalue(kind).place(prefix)


@pytest.fixture(params=["directory", "s3", "azure", "google"])
def place(request, tmp_path):
    if request.param == "directory":
        return places.Directory(tmp_path / "place")
    return server_of(request.param, request, tmp_path)


@pytest.fixture(params=["s3", "azure", "google"])
def server_place(request, tmp_path):
    return server_of(request.param, request, tmp_path)


@pytest.fixture(autouse=True)
def tidy(tmp_path):
    """Files of these tests are large."""
    yield
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run, made once."""
    from conftest import Runs

    runs = Runs(tmp_path_factory.mktemp("trained"))
    run = runs.train("first", "epochs = 1\ncheckpoint_every = 8")
    (run / "plots").mkdir()
    (run / "plots" / "a b#1%.svg").write_text("<svg/>")
    return run


@pytest.fixture
def run(trained, tmp_path):
    run = tmp_path / "here" / "runs" / "first"
    shutil.copytree(trained, run)
    return run


@pytest.fixture
def large(run):
    """A file that is sent last, in parts."""
    path = run / "zz" / "large.bin"
    path.parent.mkdir()
    path.write_bytes(os.urandom(LARGE))
    return path


def clean_env(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_", "PHALANX_ARTIFACTS"))}
    return kept | more


def call(place, cwd, *args, port=None, code=0, env=None):
    command = [PROGRAM, *map(str, args), "--output", "json"]
    env = clean_env(**place.env(port), **(env or {}))
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout) if code == 0 and done.stdout else done.stderr


def start(place, cwd, *args, port):
    command = [PROGRAM, *map(str, args), "--output", "json"]
    return subprocess.Popen(command, cwd=cwd, env=clean_env(**place.env(port)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files(run):
    """What is pushed of a run, by path."""
    ours = ("lock", ".push", "live.json")
    found = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(ours)}


def test_a_run_is_pushed_and_pulled_elsewhere_byte_for_byte(place, run, large, tmp_path):
    here, there = run.parents[1], tmp_path / "there"
    there.mkdir()
    pushed = call(place, here, "run", "push", "first", "--to", place.url)
    local = files(run)
    assert {file["path"]: (file["size"], file["sha256"]) for file in pushed["files"]} == {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in local.items()}
    assert pushed["sent_files"] == len(local) and pushed["manifest"] == "manifest-1.json"
    assert "checkpoints/step-000008/manifest.json" in local and "plots/a b#1%.svg" in local
    for name in ("model.safetensors", "zz/large.bin"):
        assert place.get(f"{pushed['uid']}/{name}") == local[name]
    pulled = call(place, there, "run", "pull", "first", "--from", place.url)
    assert pulled["run"] == "runs/first" and pulled["received_files"] == len(local)
    assert files(there / "runs" / "first") == local
    assert not list(there.rglob("*.part")) and not list(there.rglob(".pull*"))
    by_uid = call(place, there, "run", "pull", pushed["uid"], "copy", "--from", place.url)
    assert by_uid["received_bytes"] == sum(map(len, local.values()))
    assert files(there / "copy") == local
    # What was pulled is a run that can be used.
    assert [found["id"] for found in call(place, there, "run", "list")] == ["first"]
    call(place, there, "run", "resume", "first", "--steps", "20")
    # Nothing is received again that is there.
    assert call(place, there, "run", "pull", "first", "copy", "--from", place.url)["received_files"] == 0


def test_only_what_changed_is_sent_again(place, run):
    here = run.parents[1]
    first = call(place, here, "run", "push", "first", "--to", place.url)
    again = call(place, here, "run", "push", "first", "--to", place.url)
    assert (again["sent_files"], again["sent_bytes"], again["manifest"]) == (0, 0, "manifest-1.json")
    assert again["files"] == first["files"]
    (run / "plots" / "new.svg").write_text("<svg>new</svg>")
    (run / "run.toml").write_text((run / "run.toml").read_text() + "\n# changed\n")
    third = call(place, here, "run", "push", "first", "--to", place.url)
    # The new one, the changed one, and the events about both.
    assert (third["sent_files"], third["manifest"]) == (3, "manifest-2.json")
    kept = {file["path"] for file in call(place, here, "run", "push", "first", "--to", place.url, "--no-checkpoints")["files"]}
    assert kept == {file["path"] for file in third["files"]}


def test_events_and_the_ledger_say_where_files_are(place, run):
    here = run.parents[1]
    pushed = call(place, here, "run", "push", "first", "--to", place.url)
    call(place, here, "run", "push", "first", "--to", place.url)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    told = [event["value"] for event in events if event["event"] == "artifact"]
    others = [file for file in pushed["files"] if file["path"] != "events.jsonl"]
    assert sorted(told, key=lambda file: file["path"]) == others
    call(place, here, "run", "list")
    rows = sqlite3.connect(here / "runs" / "ledger.sqlite").execute("select path, url, size, sha256 from artifact where url is not null order by path")
    assert [dict(zip(("path", "url", "size", "sha256"), row)) for row in rows] == others
    assert all(file["url"].startswith(f"{place.url}/{pushed['uid']}/") for file in others)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_push_that_was_ended_goes_on_where_it_was(server_place, run, large, tmp_path, how):
    place, here = server_place, run.parents[1]
    proxy = places.Throttle(place.port, up=MIDDLE)
    process = start(place, here, "run", "push", "first", "--to", place.url, port=proxy.port)
    assert proxy.reached.wait(60)
    process.send_signal(how)
    _, told = process.communicate(timeout=30)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 1)
    if how == signal.SIGINT:
        assert "interrupted" in told and "hint: push it again" in told
    proxy.close()
    # Half a push is none.
    assert not [key for key in place.keys() if "manifest-" in key.rsplit("/", 1)[-1] and key.count("/") == 1]
    assert "there is no run `first`" in call(place, tmp_path, "run", "pull", "first", "--from", place.url, code=2)
    proxy = places.Throttle(place.port)
    pushed = call(place, here, "run", "push", "first", "--to", place.url, port=proxy.port)
    proxy.close()
    # Small files and the parts that were there are not sent again: one part of eight at least.
    assert pushed["sent_files"] == 2, "the large file and the events"
    assert pushed["sent_bytes"] <= LARGE - 8 * MIB + MIB
    assert proxy.passed["up"] <= LARGE - 8 * MIB + MIB
    assert not (run / ".push").exists()
    call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url)
    assert files(tmp_path / "copy") == files(run)


def test_a_push_into_a_directory_that_was_killed_goes_on(run, large, tmp_path):
    place, here = places.Directory(tmp_path / "place"), run.parents[1]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 * MIB, 20 * MIB))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # The system kills it in the middle of the large file.
    killed = subprocess.run([PROGRAM, "run", "push", "first", "--to", place.url], cwd=here, env=clean_env(), preexec_fn=limit, capture_output=True)
    assert killed.returncode != 0
    assert "there is no run" in call(place, tmp_path, "run", "pull", "first", "--from", place.url, code=2)
    pushed = call(place, here, "run", "push", "first", "--to", place.url)
    assert pushed["sent_files"] == 2, "the large file and the events"
    assert sorted(place.keys(pushed["uid"])) == sorted([f"{pushed['uid']}/manifest-1.json"] + [f"{pushed['uid']}/{name}".replace("#", "%23").replace("%.", "%25.") for name in files(run)])
    call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url)
    assert files(tmp_path / "copy") == files(run)


def test_an_upload_of_old_content_is_ended(s3, run, large):
    place, here = s3.place("team/old-content"), run.parents[1]
    proxy = places.Throttle(place.port, up=MIDDLE)
    process = start(place, here, "run", "push", "first", "--to", place.url, port=proxy.port)
    assert proxy.reached.wait(60)
    process.kill()
    process.communicate()
    proxy.close()
    assert [upload["Key"].rsplit("/", 1)[1] for upload in place.unfinished() if place.prefix in upload["Key"]] == ["large.bin"]
    large.write_bytes(os.urandom(20 * MIB))
    pushed = call(place, here, "run", "push", "first", "--to", place.url)
    assert not [upload for upload in place.unfinished() if place.prefix in upload["Key"]]
    assert place.get(f"{pushed['uid']}/zz/large.bin") == large.read_bytes()


def test_a_pull_that_was_killed_goes_on(server_place, run, large, tmp_path):
    place, there = server_place, tmp_path / "there"
    there.mkdir()
    call(place, run.parents[1], "run", "push", "first", "--to", place.url)
    proxy = places.Throttle(place.port, down=MIDDLE)
    process = start(place, there, "run", "pull", "first", "--from", place.url, port=proxy.port)
    assert proxy.reached.wait(60)
    process.kill()
    process.communicate()
    proxy.close()
    half = there / "runs" / "first"
    assert not (half / "run.toml").exists() and not (half / "zz" / "large.bin").exists()
    assert call(place, there, "run", "list") == []
    pulled = call(place, there, "run", "pull", "first", "--from", place.url)
    assert pulled["received_files"] < pulled["files"]
    assert files(half) == files(run)


def test_memory_is_bounded(s3, run, large, tmp_path):
    place = s3.place("team/memory")
    large.write_bytes(os.urandom(MIB) * 320)
    # The limit is on what the program may allocate, in KiB.
    limited = ["sh", "-c", f"ulimit -d {200 << 10} && exec \"$@\"", "sh", PROGRAM]
    for verb in (["run", "push", "first", "--to", place.url], ["run", "pull", "first", str(tmp_path / "copy"), "--from", place.url]):
        done = subprocess.run([*limited, *verb], cwd=run.parents[1], env=clean_env(**place.env()), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert files(tmp_path / "copy") == files(run)


def test_a_damaged_object_is_refused_and_pushed_again(place, run, tmp_path):
    here = run.parents[1]
    pushed = call(place, here, "run", "push", "first", "--to", place.url)
    content = bytearray(place.get(f"{pushed['uid']}/model.safetensors"))
    content[len(content) // 2] ^= 1
    place.put(f"{pushed['uid']}/model.safetensors", bytes(content))
    told = call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url, code=3)
    assert f"{place.url}/{pushed['uid']}/model.safetensors is damaged" in told and "hint:" in told
    assert not (tmp_path / "copy" / "model.safetensors").exists() and not (tmp_path / "copy" / "run.toml").exists()
    place.put(f"{pushed['uid']}/model.safetensors", bytes(content[:-1]))
    assert "is damaged" in call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url, code=3)
    again = call(place, here, "run", "push", "first", "--to", place.url)
    assert again["sent_files"] == 1
    call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url)
    assert files(tmp_path / "copy") == files(run)


def test_names_that_lead_elsewhere_are_refused(place, run, tmp_path):
    pushed = call(place, run.parents[1], "run", "push", "first", "--to", place.url)
    uid, target = pushed["uid"], tmp_path / "target"
    manifest = json.loads(place.get(f"{uid}/manifest-1.json"))
    outside = tmp_path / "outside"
    outside.mkdir()
    place.env()
    before = sorted(str(path) for path in tmp_path.rglob("*") if "place" not in path.parts)
    hostile = ["../outside/x", "a/../../outside/x", str(outside / "x"), "/x", "..", "a//x", "x\0y", "a\\..\\x", ".", "lock", ".pull.json", "\x1b[2Jx"]
    for number, name in enumerate(hostile, start=2):
        entry = dict(manifest["files"][0], path=name)
        place.put(f"{uid}/manifest-{number}.json", json.dumps(manifest | {"files": [entry]}).encode())
        told = call(place, tmp_path, "run", "pull", uid, target, "--from", place.url, code=3)
        assert f"manifest-{number}.json is not believed" in told and "cannot be taken" in told, name
        assert "\x1b" not in told
    for number, change in enumerate([{"version": 9}, {"run": {"uid": "f" * 32, "name": "first"}}, {"run": {"uid": uid, "name": "../first"}}], start=100):
        place.put(f"{uid}/manifest-{number}.json", json.dumps(manifest | change).encode())
        assert "is not believed" in call(place, tmp_path, "run", "pull", uid, target, "--from", place.url, code=3)
    assert sorted(str(path) for path in tmp_path.rglob("*") if "place" not in path.parts) == before


def test_links_in_the_target_are_not_followed(place, run, tmp_path):
    call(place, run.parents[1], "run", "push", "first", "--to", place.url)
    outside, target = tmp_path / "outside", tmp_path / "copy"
    outside.mkdir()
    call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url)
    shutil.rmtree(target / "checkpoints" / "step-000008")
    (target / "checkpoints" / "step-000008").symlink_to(outside)
    told = call(place, tmp_path, "run", "pull", "first", "copy", "--from", place.url, code=2)
    assert "symbolic link" in told and not list(outside.iterdir())


def test_other_directories_stay_as_they_are(place, run, tmp_path):
    call(place, run.parents[1], "run", "push", "first", "--to", place.url)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    told = call(place, tmp_path, "run", "pull", "first", "full", "--from", place.url, code=2)
    assert "is not empty" in told and "hint: give another directory" in told
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_one_of_eight_claims_wins(place, tmp_path):
    for round in range(3):
        claims = [[PROGRAM, "run", "claim", "nightly", "--to", place.url, "--owner", f"host{n}", "--for", "1h", "--output", "json"] for n in range(8)]
        env = clean_env(**place.env())
        started = [subprocess.Popen(claim, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for claim in claims]
        ended = [(process, *process.communicate(timeout=60)) for process in started]
        assert sorted(process.returncode for process, _, _ in ended) == [0] + [1] * 7, ended
        won = next(json.loads(out) for process, out, _ in ended if process.returncode == 0)
        assert all(f"nightly is held by {won['owner']} until" in err for process, _, err in ended if process.returncode == 1)
        # Others cannot give it back, the owner can; then it is free.
        assert "is not held by other" in call(place, tmp_path, "run", "release", "nightly", "--to", place.url, "--owner", "other", code=3)
        call(place, tmp_path, "run", "release", "nightly", "--to", place.url, "--owner", won["owner"])
    versions = [key for key in place.keys("lease/nightly/")]
    assert len(versions) == 6, "each of three was won once and released once"


def test_a_finished_training_is_pushed(place, runs, tmp_path):
    runs.run_file("epochs = 1")
    trained = subprocess.run([PROGRAM, "train", "run.toml", "--run-dir", "runs/first"], cwd=tmp_path, env=clean_env(**place.env(), PHALANX_ARTIFACTS=place.url), capture_output=True, text=True, timeout=120)
    assert trained.returncode == 0 and f"to {place.url}/" in trained.stderr, trained.stderr
    call(place, tmp_path, "run", "pull", "first", "copy", env={"PHALANX_ARTIFACTS": place.url})
    copy = files(tmp_path / "copy")
    assert copy == {name: content for name, content in files(tmp_path / "runs" / "first").items() if not name.startswith("checkpoints/")}
    assert {"model.safetensors", "run.toml", "metrics.jsonl", "events.jsonl"} <= copy.keys()


def test_a_training_whose_push_fails_succeeds_with_a_warning(runs, tmp_path):
    runs.run_file("epochs = 1")
    closed = places.socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    env = clean_env(PHALANX_ARTIFACTS="s3://models/x", AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y")
    trained = subprocess.run([PROGRAM, "train", "run.toml", "--run-dir", "runs/first"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert trained.returncode == 0
    assert "the run was not pushed" in trained.stderr and "`phalanx run push runs/first` repeats it" in trained.stderr
    wrong = subprocess.run([PROGRAM, "train", "run.toml", "--run-dir", "runs/second"], cwd=tmp_path, env=clean_env(PHALANX_ARTIFACTS="s4://x"), capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "`s4://x` is no place for artifacts" in wrong.stderr
    assert not (tmp_path / "runs" / "second").exists()


def test_what_is_missing_is_named(s3, azure, run, tmp_path):
    here, place = run.parents[1], s3.place("x")
    nowhere = places.Directory(tmp_path / "nowhere")
    push = ["run", "push", "first", "--to"]
    told = call(nowhere, here, *push, "s3://models/x", code=2)
    assert "no credentials for s3://models/x" in told and "AWS_ACCESS_KEY_ID" in told
    told = call(nowhere, here, *push, "az://models/x", code=2)
    assert "no credentials for az://models/x" in told and "AZURE_STORAGE_ACCOUNT_KEY" in told
    told = call(nowhere, here, *push, "az://models/x", code=2, env={"AZURE_STORAGE_ACCOUNT_KEY": "eA=="})
    assert "az://models/x" in told and "AZURE_STORAGE_ACCOUNT_NAME" in told
    told = call(nowhere, here, *push, "gs://models/x", code=2)
    assert "no credentials for gs://models/x" in told and "GOOGLE_APPLICATION_CREDENTIALS" in told
    told = call(place, here, *push, "s3://missing/x", code=3)
    assert "s3://missing/x" in told and "NoSuchBucket" in told and "hint: make the bucket of s3://missing/x first" in told
    refused = azure.place("x")
    refused.env = lambda port: azure.place("x").env(port) | {"AZURE_STORAGE_ACCOUNT_KEY": "eHg="}
    told = call(refused, here, *push, refused.url, code=3)
    assert "AuthorizationFailure" in told and "hint: these credentials may not use az://models/x, or are wrong" in told
    told = call(azure.place("x"), here, *push, "az://missing/x", code=3)
    assert "ContainerNotFound" in told and "hint: make the container of az://missing/x first" in told
    told = call(nowhere, here, *push, "ftp://models", code=2)
    assert "`ftp://models` is no place for artifacts" in told and "s3://BUCKET/PREFIX" in told
    assert "PHALANX_ARTIFACTS" in call(nowhere, here, "run", "push", "first", code=2)
    assert "it is inside of the run" in call(nowhere, here, *push, "runs/first/place", code=2)
    told = call(nowhere, here, *push, "s3://models/x", code=2, env={"AWS_ACCESS_KEY_ID": "x"})
    assert "s3://models/x" in told and "AWS_SECRET_ACCESS_KEY" in told
    told = call(nowhere, here, "run", "pull", "first", "--from", nowhere.url, code=3)
    assert "could not open" in told and not (tmp_path / "nowhere").exists()
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    told = call(nowhere, here, *push, "s3://models/x", code=3, env=keys | {"AWS_ENDPOINT_URL": "http://198.51.100.1:9"})
    assert "is not encrypted" in told and "AWS_ALLOW_HTTP" in told
    told = call(place, here, "run", "pull", "nobody", "--from", place.url, code=2)
    assert "there is no run `nobody` in" in told


def test_a_run_that_is_trained_is_not_pushed(runs, tmp_path):
    place = places.Directory(tmp_path / "place")
    runs.run_file("steps = 100000000")
    process = runs.start("train", "run.toml", "--run-dir", "runs/first")
    with contextlib.closing(process.stderr):
        process.stderr.readline()
        told = call(place, tmp_path, "run", "push", "first", "--to", place.url, code=2)
        process.kill()
    process.wait()
    assert "trains in" in told
