"""The real SmartRedis client: every call it has, in both modes, over TCP and a Unix socket."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import redis
from smartredis import Client, ConfigOptions, Dataset
from conftest import ROOT, until
from smartredis.error import RedisReplyError, RedisRuntimeError

TYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16"]


def connect(address, mode, **variables):
    for name in ["SSKEYIN", "SSKEYOUT", "SR_SOCKET_TIMEOUT"]:
        os.environ.pop(name, None)
    os.environ.update({"SSDB": address, "SR_DB_TYPE": mode, "SR_LOG_LEVEL": "QUIET", **variables})
    return Client(ConfigOptions.create_from_environment(""), "test")


@pytest.fixture(params=["Standalone", "Clustered", "Unix", "Shards"])
def client(request):
    if request.param == "Shards":
        return connect(",".join(request.getfixturevalue("shards").addresses), "Clustered")
    store = request.getfixturevalue("store")
    if request.param == "Unix":
        return connect(f"unix://{store.unix}", "Standalone")
    return connect(store.address, request.param)


def test_tensors(client):
    random = np.random.default_rng(7)
    for dtype in TYPES:
        value = (random.random((3, 4, 5)) * 100).astype(dtype)
        client.put_tensor(dtype, value)
        got = client.get_tensor(dtype)
        assert got.dtype == value.dtype and np.array_equal(got, value)
    assert client.tensor_exists("int8") and client.key_exists("int8")
    assert client.poll_tensor("int8", 10, 3) and client.poll_key("int8", 10, 3)
    client.copy_tensor("int8", "copy")
    client.rename_tensor("copy", "renamed")
    assert not client.tensor_exists("copy")
    assert np.array_equal(client.get_tensor("renamed"), client.get_tensor("int8"))
    client.delete_tensor("renamed")
    assert not client.tensor_exists("renamed")
    assert not client.poll_tensor("renamed", 10, 2)
    with pytest.raises(RedisReplyError):
        client.get_tensor("renamed")
    with pytest.raises(RedisReplyError):
        client.rename_tensor("renamed", "other")


def test_a_large_tensor(client):
    value = np.random.default_rng(1).random((1000, 2500))
    client.put_tensor("large", value)
    assert np.array_equal(client.get_tensor("large"), value)


def dataset(name, n=0):
    made = Dataset(name)
    made.add_tensor("a", np.full((2, 3), n, dtype="float32"))
    made.add_tensor("b", np.arange(4) + n)
    made.add_meta_scalar("count", np.int64(n))
    made.add_meta_string("label", "x")
    made.add_meta_string("label", f"y{n}")
    return made


def check(got, n):
    assert sorted(got.get_tensor_names()) == ["a", "b"]
    assert np.array_equal(got.get_tensor("a"), np.full((2, 3), n, dtype="float32"))
    assert np.array_equal(got.get_tensor("b"), np.arange(4) + n)
    assert list(got.get_meta_scalars("count")) == [n]
    assert got.get_meta_strings("label") == ["x", f"y{n}"]


def test_datasets(client):
    client.put_dataset(dataset("d", 3))
    assert client.dataset_exists("d") and client.poll_dataset("d", 10, 3)
    check(client.get_dataset("d"), 3)
    client.copy_dataset("d", "e")
    client.rename_dataset("e", "f")
    assert not client.dataset_exists("e")
    check(client.get_dataset("f"), 3)
    client.delete_dataset("f")
    assert not client.dataset_exists("f")
    with pytest.raises((RedisReplyError, RedisRuntimeError)):
        client.get_dataset("f")


def test_lists(client):
    for n in range(5):
        made = dataset(f"d{n}", n)
        client.put_dataset(made)
        client.append_to_list("list", made)
    assert client.get_list_length("list") == 5
    assert client.poll_list_length("list", 5, 10, 3)
    assert client.poll_list_length_gte("list", 4, 10, 3)
    assert client.poll_list_length_lte("list", 6, 10, 3)
    assert not client.poll_list_length("list", 6, 10, 2)
    for n, got in enumerate(client.get_datasets_from_list("list")):
        check(got, n)
    for n, got in enumerate(client.get_dataset_list_range("list", 1, 3)):
        check(got, n + 1)
    client.copy_list("list", "copy")
    client.rename_list("copy", "renamed")
    assert client.get_list_length("renamed") == 5 and client.get_list_length("copy") == 0
    client.delete_list("renamed")
    assert client.get_list_length("renamed") == 0


def test_models_and_scripts(client):
    blob = os.urandom(100_000)
    client.set_model("m", blob, "ONNX", "CPU", batch_size=2, min_batch_size=1, tag="v1")
    assert client.model_exists("m")
    assert client.get_model("m") == blob
    client.set_model_chunk_size(30_000)
    client.set_model("chunked", blob, "TORCH", "CPU")
    assert client.get_model("chunked") == blob
    if os.environ["SR_DB_TYPE"] == "Standalone":
        address = os.environ["SSDB"]
        info = client.get_ai_info([address], "m", False)[0]
        assert (info["backend"], info["device"], info["tag"]) == ("ONNX", "CPU", "v1")
        assert client.get_ai_info([address], "m", True)[0]["calls"] == "0"
    client.put_tensor("in", np.ones((2, 2), dtype="float32"))
    with pytest.raises(RedisReplyError):
        client.run_model("m", ["in"], ["out"])
    client.delete_model("m")
    assert not client.model_exists("m")
    with pytest.raises(RedisReplyError):
        client.delete_model("m")
    source = "def double(x):\n    return 2 * x\n"
    client.set_script("s", source, "CPU")
    assert client.get_script("s") == source
    with pytest.raises(RedisReplyError):
        client.run_script("s", "double", ["in"], ["out"])
    client.delete_script("s")
    client.set_model_multigpu("gpu", blob, "TORCH", 0, 2)
    client.set_script_multigpu("script", source, 0, 2)
    assert client.model_exists("gpu")
    client.delete_model_multigpu("gpu", 0, 2)
    client.delete_script_multigpu("script", 0, 2)


def reference(name):
    """A model of one operator as an ONNX file, with tensors that PyTorch computed with it: inputs and the output."""
    path = ROOT / "tests" / "reference" / "ops" / f"{name}.onnx"
    data = path.with_suffix(".safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for key, told in json.loads(data[8:begin]).items():
        if told.get("dtype") == "F32":
            first, last = (begin + offset for offset in told["data_offsets"])
            tensors[key] = np.frombuffer(data[first:last], "float32").reshape(told["shape"])
    inputs = [tensors[key] for key in sorted(tensors) if key.startswith("input.")]
    return path, inputs, tensors["output.0"]


@pytest.mark.parametrize("name, count", [("linear_nobias", 1), ("add_same", 2)])
def test_a_model_runs(client, name, count):
    path, inputs, output = reference(name)
    assert len(inputs) == count
    client.set_model_from_file(name, str(path), "ONNX", "CPU")
    assert client.get_model(name) == path.read_bytes()
    client.set_model("blob", path.read_bytes(), "ONNX", "CPU", batch_size=8, min_batch_size=1)
    names = [f"{name}.{at}" for at in range(count)]
    for key, value in zip(names, inputs):
        client.put_tensor(key, value)
    for model in [name, "blob"]:
        client.run_model(model, names, ["y"])
        assert np.allclose(client.get_tensor("y"), output, atol=1e-5)
        client.delete_tensor("y")
    # A tensor that is missing, and a model that is, are errors; the model runs afterwards.
    with pytest.raises(RedisReplyError):
        client.run_model(name, ["missing"] * count, ["y"])
    with pytest.raises(RedisReplyError):
        client.run_model("missing", names, ["y"])
    client.run_model(name, names, ["y"])
    assert np.allclose(client.get_tensor("y"), output, atol=1e-5)


def test_models_and_scripts_of_several_gpus(client):
    """There are no GPUs: the processor takes their part, under the names that the client gives."""
    path, [value], output = reference("linear_nobias")
    client.put_tensor("x", value)
    client.set_model_multigpu("all", path.read_bytes(), "ONNX", 0, 2)
    client.set_model_from_file_multigpu("file", str(path), "ONNX", 0, 2)
    for model in ["all", "file"]:
        for rank in range(3):
            client.run_model_multigpu(model, rank, 0, 2, ["x"], [f"y{rank}"])
            assert np.allclose(client.get_tensor(f"y{rank}"), output, atol=1e-5)
            client.delete_tensor(f"y{rank}")
        client.delete_model_multigpu(model, 0, 2)
        assert not client.model_exists(model)
    # The client stores for GPUs from the first up to the number of GPUs, and so not for all that it runs on.
    client.set_model_multigpu("late", path.read_bytes(), "ONNX", 1, 2)
    client.run_model_multigpu("late", 0, 1, 2, ["x"], ["y"])
    assert np.allclose(client.get_tensor("y"), output, atol=1e-5)
    with pytest.raises(RedisReplyError):
        client.run_model_multigpu("late", 1, 1, 2, ["x"], ["y"])
    client.set_function_multigpu("script", double, 0, 2)
    with pytest.raises(RedisReplyError, match="does not run them"):
        client.run_script_multigpu("script", "double", ["x"], ["y"], 1, 0, 2)
    client.delete_script_multigpu("script", 0, 2)
    with pytest.raises(RedisReplyError):
        client.get_script("script")


def double(x):
    return 2 * x


def test_functions_and_scripts_from_files(client, tmp_path):
    client.set_function("function", double)
    assert client.get_script("function") == inspect.getsource(double)
    file = tmp_path / "double.py"
    file.write_text(inspect.getsource(double))
    client.set_script_from_file("file", str(file), "CPU")
    client.set_script_from_file_multigpu("file on gpus", str(file), 0, 1)
    client.put_tensor("x", np.ones(3, "float32"))
    for name in ["file", "file on gpus"]:
        assert client.get_script(name) == file.read_text()
    for name in ["function", "file"]:
        with pytest.raises(RedisReplyError, match="does not run them"):
            client.run_script(name, "double", ["x"], ["y"])
        client.delete_script(name)
        with pytest.raises(RedisReplyError):
            client.get_script(name)


def test_models_are_polled(client):
    assert not client.poll_model("m", 10, 2)
    client.set_model("m", b"any bytes", "TORCH", "CPU")
    assert client.poll_model("m", 10, 2)
    client.delete_model("m")
    assert not client.poll_model("m", 10, 2)


@pytest.mark.parametrize("mode", ["Standalone", "Clustered"])
def test_administration(store, mode):
    client = connect(store.address, mode)
    client.put_tensor("t", np.zeros(3))
    info = client.get_db_node_info([store.address])[0]
    assert info["Server"]["tcp_port"] == str(store.port) and "rdb_last_save_time" in info["Persistence"]
    assert client.config_get("lua-time-limit", store.address) == {"lua-time-limit": "5000"}
    assert client.config_get("no-such-thing", store.address) == {}
    client.config_set("lua-time-limit", "6000", store.address)
    assert client.config_get("lua-time-limit", store.address) == {"lua-time-limit": "6000"}
    with pytest.raises(RedisReplyError):
        client.config_set("no-such-thing", "1", store.address)
    client.save([store.address])
    if mode == "Clustered":
        assert client.get_db_cluster_info([store.address])[0]["cluster_state"] == "ok"
    client.flush_db([store.address])
    assert not client.tensor_exists("t")


def test_administration_of_shards(shards):
    """What is about one node is asked of every node that the client names."""
    client = connect(",".join(shards.addresses), "Clustered")
    for n in range(30):
        client.put_tensor(f"t{n}", np.full(3, n))
    ports = [info["Server"]["tcp_port"] for info in client.get_db_node_info(shards.addresses)]
    assert ports == [str(port) for port in shards.ports]
    for info in client.get_db_cluster_info(shards.addresses):
        assert (info["cluster_state"], info["cluster_size"]) == ("ok", "3")
    for address in shards.addresses:
        client.config_set("lua-time-limit", "7000", address)
        assert client.config_get("lua-time-limit", address) == {"lua-time-limit": "7000"}
    client.save(shards.addresses)
    sizes = [shards.client(index).dbsize() for index in range(3)]
    assert sum(sizes) == 30 and all(sizes)
    client.set_model("m", b"not a model", "ONNX", "CPU")
    # A model is at every node, so that it runs where its inputs are.
    assert [len(shards.client(index).keys("*m")) for index in range(3)] == [1, 1, 1]
    client.flush_db(shards.addresses)
    assert [shards.client(index).dbsize() for index in range(3)] == [0, 0, 0]


def samples_of(shards, stream, count):
    """All samples of a stream, as a client reads them that speaks to any node."""
    asked = np.arange(count, dtype="uint64").tobytes()
    word, parts, *elsewhere = shards.client(1).execute_command("PHALANX.STREAM", "GATHER", stream, asked, "x")
    assert word == b"ROWS"
    others = [elsewhere[at : at + 3] for at in range(0, len(elsewhere), 3)]
    numbers = lambda blob: np.frombuffer(blob, "uint64").astype(int)  # noqa: E731
    places = [place for _, asked, _ in others for place in numbers(asked)]
    here = [place for place in range(count) if place not in places]
    got = np.full(count, -1.0, "float32")
    got[here] = np.frombuffer(b"".join(parts), "float32")
    for number, (key, asked, rows) in enumerate(others):
        parts = shards.client(number % 3).execute_command("PHALANX.ROWS", key, rows)
        got[numbers(asked)] = np.frombuffer(b"".join(parts), "float32")
    return got.tolist()


def test_datasets_of_a_list_are_a_stream_whichever_shards_have_them(shards):
    client = connect(",".join(shards.addresses), "Clustered")
    info = lambda: json.loads(  # noqa: E731
        shards.client(2).execute_command("PHALANX.STREAM", "INFO", "training")[1]
    )
    settings = {"mode": {"Grow": {"min_samples": 1, "new_samples": 0}}, "seed": 1, "batch": 8}
    settings |= {"partial": "Keep", "passes": None}
    words = ["READER", "training", "run", "-", json.dumps(settings), "-", "-"]
    assert shards.client(0).execute_command("PHALANX.STREAM", *words)[0] == b"OPENED"
    for n in range(20):
        made = Dataset(f"s{n}")
        made.add_tensor("x", np.arange(4 * n, 4 * n + 4, dtype="float32"))
        client.put_dataset(made)
        client.append_to_list("training", made)
    assert all(shards.client(index).keys("{s*}.x") for index in range(3))
    until(lambda: info()["pending_datasets"] == 0)
    assert (info()["stream"]["samples"], info()["reports"]) == (80, [])
    assert samples_of(shards, "training", 80) == list(range(80))
    # A lost node is named, and the stream goes on with it.
    of_stream, lost = owner(shards, "training"), None
    for n in range(20, 60):
        made = Dataset(f"s{n}")
        made.add_tensor("x", np.arange(4 * n, 4 * n + 4, dtype="float32"))
        client.put_dataset(made)
        if owner(shards, "{" + f"s{n}" + "}") != of_stream:
            lost = owner(shards, "{" + f"s{n}" + "}")
            break
    shards.kill(lost)
    node = shards.client(of_stream)
    node.rpush("training", "{" + f"s{n}" + "}")
    wait = lambda: json.loads(  # noqa: E731
        node.execute_command("PHALANX.STREAM", "INFO", "training")[1]
    )["list_wait"]
    until(lambda: wait() and "DatasetNode" in wait())
    assert wait()["DatasetNode"]["part"] == f"{lost + 1}/3"
    shards.start(lost)
    until(lambda: wait() is None)
    asked = np.arange(80, 84, dtype="uint64").tobytes()
    _, _, key, _, rows = node.execute_command("PHALANX.STREAM", "GATHER", "training", asked, "x")
    parts = node.execute_command("PHALANX.ROWS", key, rows)
    assert np.frombuffer(b"".join(parts), "float32").tolist() == [4.0 * n + k for k in range(4)]


def owner(shards, key):
    slot = shards.client(0).execute_command("CLUSTER", "KEYSLOT", key)
    return next(index for index in range(3) if (index + 1) * 16384 // 3 > slot)


def test_a_killed_shard_that_comes_back_is_not_noticed_and_has_lost_nothing(shards):
    client = connect(",".join(shards.addresses), "Clustered")
    for n in range(60):
        client.put_tensor(f"t{n}", np.full(1000, n))
        if n % 10 == 0:
            client.put_dataset(dataset(f"d{n}", n))
            client.append_to_list("list", dataset(f"d{n}", n))
    for index in range(3):
        shards.kill(index)
        # From another process: a call of the client holds the interpreter's lock while it waits.
        shards.start_in(0.5, index)
        for n in range(60):
            assert np.array_equal(client.get_tensor(f"t{n}"), np.full(1000, n))
            client.put_tensor(f"after{index}.{n}", np.full(10, n))
    assert client.get_list_length("list") == 6
    for n, got in enumerate(client.get_datasets_from_list("list")):
        check(got, 10 * n)
    for index in range(3):
        assert np.array_equal(client.get_tensor(f"after{index}.59"), np.full(10, 59))


def test_prefixes(store):
    writer = connect(store.address, "Standalone", SSKEYOUT="uploader_0", SSKEYIN="uploader_0,uploader_1")
    writer.put_tensor("t", np.ones(2))
    writer.put_dataset(dataset("d", 1))
    reader = connect(store.address, "Clustered", SSKEYIN="uploader_1,uploader_0")
    reader.set_data_source("uploader_0")
    assert np.array_equal(reader.get_tensor("t"), np.ones(2))
    check(reader.get_dataset("d"), 1)


def put_everything(client):
    client.put_tensor("t", np.ones(2))
    client.put_dataset(dataset("d", 1))
    client.append_to_list("l", dataset("d", 1))
    client.set_model("m", b"any bytes", "TORCH", "CPU")
    client.set_script("s", "def f(x):\n    return x\n")


def test_prefixes_are_switched_by_kind(store):
    plain = redis.Redis(port=store.port)
    keys = lambda: sorted(key.decode() for key in plain.keys("*"))  # noqa: E731
    client = connect(store.address, "Standalone", SSKEYOUT="sim", SSKEYIN="sim")
    put_everything(client)
    of_dataset = lambda prefix: [f"{prefix}{{d}}.{part}" for part in ["a", "b", "meta"]]  # noqa: E731
    assert keys() == sorted([*of_dataset("sim."), "sim.l", "sim.t", "m", "s"])
    switches = {
        "use_tensor_ensemble_prefix": (False, ["t"], lambda: client.get_tensor("t")),
        "use_dataset_ensemble_prefix": (False, of_dataset(""), lambda: client.get_dataset("d")),
        "use_list_ensemble_prefix": (False, ["l"], lambda: client.get_datasets_from_list("l")),
        "use_model_ensemble_prefix": (True, ["sim.m", "sim.s"], lambda: (client.get_model("m"), client.get_script("s"))),
    }
    for name, (switched, wanted, read) in switches.items():
        before = keys()
        getattr(client, name)(switched)
        # What was stored before has its old name.
        if name == "use_list_ensemble_prefix":
            assert client.get_list_length("l") == 0
        else:
            with pytest.raises((RedisReplyError, RedisRuntimeError)):
                read()
        put_everything(client)
        assert sorted(set(keys()) - set(before)) == sorted(wanted)
        read()
        getattr(client, name)(not switched)
        read()
        plain.delete(*wanted)


@pytest.mark.parametrize("mode", ["Standalone", "Clustered"])
def test_a_killed_server_that_comes_back_is_not_noticed(store, mode):
    client = connect(store.address, mode)
    client.put_tensor("before", np.zeros(3))
    store.kill()
    # From another process: a call of the client holds the interpreter's lock while it waits.
    store.start_in(1.5)
    client.put_tensor("after", np.ones(1000))
    assert np.array_equal(client.get_tensor("after"), np.ones(1000))


# A client in a process of its own: its calls hold the interpreter's lock while they wait.
APPEND = """
import sys, numpy as np
from smartredis import Client, ConfigOptions, Dataset
client = Client(ConfigOptions.create_from_environment(""), "test")
made = Dataset("d")
made.add_tensor("a", np.zeros(3))
client.put_dataset(made)
print("ready", flush=True)
sys.stdin.readline()
client.append_to_list("list", made)
print("done", flush=True)
"""


@pytest.mark.parametrize("mode", ["Standalone", "Clustered"])
def test_an_append_that_is_repeated_because_its_reply_was_late_counts_once(store, mode):
    environment = {**os.environ, "SSDB": store.address, "SR_DB_TYPE": mode, "SR_LOG_LEVEL": "QUIET"}
    environment.pop("SR_SOCKET_TIMEOUT", None)
    program = [sys.executable, "-c", APPEND]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout.readline() == "ready\n"
        store.signal(signal.SIGSTOP)
        child.stdin.write("\n")
        child.stdin.flush()
        # The client gives up on a reply after 250 ms and sends the command again a second later.
        time.sleep(1.7)
        store.signal(signal.SIGCONT)
        assert child.stdout.readline() == "done\n"
    assert connect(store.address, mode).get_list_length("list") == 1


def test_a_list_is_a_stream(store):
    """Datasets that SmartRedis appends are uploads of the stream of the list's name, in order, each once."""
    client = connect(store.address, "Standalone")
    plain = redis.Redis(port=store.port)
    stream = lambda verb, *words: plain.execute_command("PHALANX.STREAM", verb, "training_data", *words)  # noqa: E731

    def append(number):
        made = Dataset(f"step{number}")
        made.add_tensor("x", np.arange(number * 4, number * 4 + 4, dtype="float32").reshape(4, 1))
        made.add_tensor("y", np.arange(number * 4, number * 4 + 4))
        client.put_dataset(made)
        client.append_to_list("training_data", made)

    append(0)
    mode = {"Grow": {"min_samples": 8, "new_samples": 0}}
    settings = {"mode": mode, "seed": 3, "batch": 4, "partial": "Keep", "passes": None}
    assert stream("READER", "run", "-", json.dumps(settings), "-", "-")[0] == b"OPENED"
    waits = stream("PASS", "run", "-", 0, "-", 0)
    assert waits[0] == b"WAIT" and waits[1] == b"samples"
    assert waits[2].startswith(b"waiting: 4 of 8 samples have arrived, 1 producer is open (list)")
    append(1)
    append(2)
    sealed = stream("PASS", "run", "-", 0, "-", 10000)
    # The pass began when its eight samples were there.
    assert sealed[0] == b"SEALED" and json.loads(sealed[1])["horizon"] == 8
    fields = json.loads(stream("FIELDS", 0)[1])
    assert [(field["name"], field["sample_shape"]) for field in fields] == [("x", [1]), ("y", [])]
    wanted = np.array([11, 0, 5, 6], dtype="<u8")
    rows = b"".join(stream("GATHER", wanted.tobytes(), "x")[1])
    assert np.frombuffer(rows, dtype="float32").tolist() == [11, 0, 5, 6]
    assert stream("SEAL") == b"OK"
    # Programs that append to a list do not learn that the stream has ended.
    append(3)
    info = json.loads(stream("INFO")[1])
    assert info["stream"]["samples"] == 12 and "left out" in info["reports"][-1][1]
