"""Programs that were written for SmartRedis: with our client, and with SmartRedis's own where it is installed."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
from typing import Any, Iterator, List

import numpy as np
import pytest

from phalanx.compat.smartredis import Client, ConfigOptions, Dataset, LLInfo, LogContext, SRObject
from phalanx.compat.smartredis import error as errors
from phalanx.store import Server, serve

PATIENCE = 60

# Says what each call gave: a value, or the names of the classes of what it raised.
PROGRAM = '''
import os
import numpy as np
from smartredis import Client, ConfigOptions, Dataset

client = Client(cluster=os.environ["MADE_FOR"] == "cluster")
ADDRESS = os.environ["SSDB"]


def tell(what, call):
    try:
        found = call()
    except Exception as error:
        print(what, "raised", [kind.__name__ for kind in type(error).__mro__[:3]])
    else:
        print(what, "gave", repr(found))


def stored(dataset):
    kept = {name: dataset.get_tensor(name).tolist() for name in sorted(dataset.get_tensor_names())}
    fields = {}
    for name in sorted(dataset.get_metadata_field_names()):
        kind = dataset.get_metadata_field_type(name)
        values = dataset.get_meta_strings(name) if kind is str else dataset.get_meta_scalars(name).tolist()
        # SmartRedis's own client calls every float a float64.
        fields[name] = (kind.__name__.replace("float32", "float64"), values)
    return dataset.get_name(), kept, fields


def function_of_two(a, b):
    return a + b


for kind in ["float64", "float32", "uint8", "uint16", "int8", "int16", "int32", "int64"]:
    client.put_tensor(kind, np.arange(6).astype(kind).reshape(2, 3))
    found = client.get_tensor(kind)
    found += 1
    tell(kind, lambda: (str(found.dtype), found.tolist(), found.flags.writeable))
client.put_tensor("strided", np.arange(12.0).reshape(3, 4)[:, ::2])
tell("strided", lambda: client.get_tensor("strided").tolist())
client.copy_tensor("float64", "copied")
client.rename_tensor("copied", "renamed")
tell("renamed", lambda: (client.tensor_exists("copied"), client.tensor_exists("renamed"), client.key_exists("renamed")))
client.delete_tensor("renamed")
tell("deleted", lambda: client.tensor_exists("renamed"))
tell("polled", lambda: (client.poll_tensor("float32", 10, 2), client.poll_tensor("renamed", 10, 2)))
tell("polled key", lambda: (client.poll_key("float32", 10, 2), client.poll_key("renamed", 10, 2)))
for value in [[1.0], np.zeros(2, bool), np.zeros(2, "uint32"), np.array(1.0), np.zeros(0)]:
    tell("refused", lambda: client.put_tensor("refused", value))
tell("a name", lambda: client.put_tensor(3, np.zeros(2)))

dataset = Dataset("first")
dataset.add_tensor("u", np.arange(6, dtype="int32").reshape(2, 3))
dataset.add_tensor("v", np.ones(4))
for value in (1.5, 2.5):
    dataset.add_meta_scalar("scalar", value)
dataset.add_meta_scalar("small", np.float32(0.5))
dataset.add_meta_scalar("int", 7)
for text in ("a", "b c"):
    dataset.add_meta_string("text", text)
tell("dataset", lambda: stored(dataset))
tell("described", lambda: (dataset.get_tensor_dims("u"), dataset.get_tensor_type("u")))
tell("twice", lambda: dataset.add_tensor("u", np.zeros(2)))
tell("mixed", lambda: dataset.add_meta_scalar("scalar", 1))
tell("mixed", lambda: dataset.add_meta_string("scalar", "x"))
tell("not one", lambda: dataset.add_meta_scalar("scalar", [1.0, 2.0]))
tell("wrong kind", lambda: dataset.get_meta_strings("scalar"))
tell("wrong kind", lambda: dataset.get_meta_scalars("text"))
for call in ("tensor", "tensor_dims", "tensor_type", "meta_scalars", "meta_strings", "metadata_field_type"):
    tell("missing " + call, lambda: getattr(dataset, "get_" + call)("missing"))
client.put_dataset(dataset)
read = client.get_dataset("first")
tell("read", lambda: stored(read))
client.copy_dataset("first", "second")
client.rename_dataset("second", "third")
third = client.get_dataset("third")
tell("third", lambda: (client.dataset_exists("second"), client.poll_dataset("third", 10, 2), stored(third)))
tell("no dataset", lambda: client.get_dataset("missing"))
tell("no dataset", lambda: client.delete_dataset("missing"))
tell("no dataset", lambda: client.copy_dataset("missing", "x"))
tell("no dataset", lambda: client.rename_dataset("missing", "x"))
tell("no dataset", lambda: (client.dataset_exists("missing"), client.poll_dataset("missing", 10, 2)))

for added in (dataset, third, dataset):
    client.append_to_list("list", added)
tell("list", lambda: client.get_list_length("list"))
tell("list", lambda: [found.get_name() for found in client.get_datasets_from_list("list")])
for first, last in ((0, 1), (-1, -1), (1, 5), (7, 9)):
    tell("range", lambda: [found.get_name() for found in client.get_dataset_list_range("list", first, last)])
client.copy_list("list", "copied list")
client.rename_list("copied list", "renamed list")
tell("lists", lambda: (client.get_list_length("copied list"), client.get_list_length("renamed list")))
for length in (0, 2, 3, 4):
    polls = (client.poll_list_length, client.poll_list_length_gte, client.poll_list_length_lte)
    tell("polled list", lambda: [poll("list", length, 10, 2) for poll in polls])
client.delete_list("list")
tell("no list", lambda: (client.get_list_length("list"), client.get_datasets_from_list("list")))
tell("no list", lambda: client.copy_list("list", "x"))
tell("no list", lambda: client.rename_list("list", "x"))
tell("no list", lambda: client.delete_list("list"))

client.set_model("model", b"of bytes", "TORCH", "CPU", tag="v1")
tell("model", lambda: (client.get_model("model"), client.model_exists("model"), client.poll_model("model", 10, 2)))
client.delete_model("model")
tell("model", lambda: client.model_exists("model"))
for call in (client.get_model, client.delete_model, client.get_script, client.delete_script):
    tell("no model", lambda: call("model"))
tell("model", lambda: client.run_model("model", ["float64"], ["y"]))
tell("model", lambda: client.set_model("model", b"", "CAFFE", "CPU"))
tell("model", lambda: client.set_model("model", b"", "TORCH", "TPU"))
tell("model", lambda: client.set_model_from_file("model", "/no/such/file", "TORCH"))
client.set_function("function", function_of_two)
tell("script", lambda: client.get_script("function"))
tell("script", lambda: client.set_function("function", "not callable"))
client.delete_script("function")
client.set_model_chunk_size(1 << 20)

for missing in (client.get_tensor, client.delete_tensor):
    tell("no tensor", lambda: missing("missing"))
tell("no tensor", lambda: client.copy_tensor("missing", "x"))
tell("no tensor", lambda: client.rename_tensor("missing", "x"))
tell("source", lambda: client.set_data_source("nobody"))
tell("prefix", lambda: client.use_tensor_ensemble_prefix("yes"))
tell("node", lambda: sorted(client.get_db_node_info([ADDRESS])[0]))
tell("node", lambda: client.get_db_node_info(["127.0.0.1:1"]))
tell("cluster", lambda: client.get_db_cluster_info([ADDRESS])[0]["cluster_state"])
tell("config", lambda: client.config_get("lua-time-limit", ADDRESS))
tell("config", lambda: client.config_get("no-such-setting", ADDRESS))
tell("config", lambda: client.config_set("lua-time-limit", "5000", ADDRESS))
tell("config", lambda: client.config_set("no-such-setting", "1", ADDRESS))
tell("save", lambda: client.save([ADDRESS]))

tell("options", lambda: ConfigOptions.create_from_environment("").get_string_option("SSDB") == ADDRESS)
tell("options", lambda: ConfigOptions.create_from_environment("none").get_string_option("SSDB"))
tell("options", lambda: ConfigOptions.create_from_environment("none").is_configured("SSDB"))
tell("options", lambda: ConfigOptions().get_string_option("SSDB"))
options = ConfigOptions.create_from_environment("")
options.override_integer_option("SR_CMD_TIMEOUT", 7)
tell("options", lambda: options.get_integer_option("SR_CMD_TIMEOUT"))
tell("client", lambda: Client(options, logger_name="named").tensor_exists("float64"))
tell("client", lambda: Client(None).tensor_exists("float64"))
tell("client", lambda: Client().tensor_exists("float64"))
tell("client", lambda: Client(ConfigOptions.create_from_environment("none")))
tell("client", lambda: Client("text"))
tell("client", lambda: Client(False, port=1))
tell("client", lambda: Client(False, address=ADDRESS).tensor_exists("float64"))
tell("flush", lambda: client.flush_db([ADDRESS]))
tell("flush", lambda: client.tensor_exists("float64"))
'''


def has_smartredis() -> bool:
    # Its own client reads garbage from arrays of NumPy 2.
    return importlib.util.find_spec("smartredis") is not None and int(np.__version__.split(".")[0]) < 2


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("SSDB", server.address)
    monkeypatch.setenv("SR_DB_TYPE", "Standalone")
    for name in ("SSKEYIN", "SSKEYOUT"):
        monkeypatch.delenv(name, raising=False)
    made = Client(cluster=False)
    made.flush_db([server.address])
    yield made


def environment(server: Server, **more: str) -> "dict[str, str]":
    return {**os.environ, "SSDB": server.address, "SR_LOG_LEVEL": "QUIET", **more}


def ran(server: Server, file: pathlib.Path, ours: bool, **more: str) -> List[str]:
    """What a program says, with our client or with SmartRedis's."""
    command = [sys.executable, *(["-m", "phalanx.compat"] if ours else []), str(file)]
    done = subprocess.run(
        command, env=environment(server, **more), capture_output=True, text=True, timeout=PATIENCE, cwd=file.parent
    )
    assert done.returncode == 0, done.stderr
    # SmartRedis's own client also prints the commands that it sends.
    return [line for line in done.stdout.splitlines() if " gave " in line or " raised " in line]


@pytest.mark.parametrize("made_for, kind", [("one", "Standalone"), ("cluster", "Clustered")])
def test_programs_say_the_same_with_either_client(
    server: Server, tmp_path: pathlib.Path, made_for: str, kind: str
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    settings = {"MADE_FOR": made_for, "SR_DB_TYPE": kind}
    ours = ran(server, file, True, **settings)
    assert len(ours) > 90
    assert "float32 gave ('float32', [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], True)" in ours
    assert not any("InternalError" in line for line in ours if "missing tensor_" not in line)
    if not has_smartredis():
        pytest.skip("SmartRedis, with NumPy 1, is not installed: only our client was tried")
    theirs = ran(server, file, False, **settings)
    assert ours == theirs


WRITER = """
import numpy as np
from smartredis import Client, Dataset
client = Client(cluster=False)
client.put_tensor("tensor", np.arange(300000, dtype="float32").reshape(3, -1))
dataset = Dataset("dataset")
dataset.add_tensor("u", np.arange(4))
dataset.add_meta_scalar("time", 0.5)
dataset.add_meta_string("name", "x")
client.put_dataset(dataset)
client.append_to_list("list", dataset)
print("done gave", client.get_list_length("list"))
"""

READER = """
from smartredis import Client
client = Client(cluster=False)
found = client.get_datasets_from_list("list")[0]
print("read gave", float(client.get_tensor("tensor").sum()), found.get_tensor("u").tolist(),
      found.get_meta_scalars("time").tolist(), found.get_meta_strings("name"))
"""


@pytest.mark.parametrize("prefix", ["", "member_0"])
@pytest.mark.parametrize("writes_ours", [True, False])
def test_both_clients_see_each_other_s_data(
    server: Server, client: Client, tmp_path: pathlib.Path, writes_ours: bool, prefix: str
) -> None:
    if not has_smartredis():
        pytest.skip("SmartRedis, with NumPy 1, is not installed")
    for name, text in (("writer.py", WRITER), ("reader.py", READER)):
        (tmp_path / name).write_text(text)
    settings = {"SSKEYOUT": prefix, "SSKEYIN": prefix} if prefix else {}
    assert ran(server, tmp_path / "writer.py", writes_ours, **settings) == ["done gave 1"]
    total = float(np.arange(300000, dtype="float32").reshape(3, -1).sum())
    read = ran(server, tmp_path / "reader.py", not writes_ours, **settings)
    assert read == [f"read gave {total} [0, 1, 2, 3] [0.5] ['x']"]
    assert client.key_exists(f"{prefix}.tensor" if prefix else "tensor")


def test_prefixes_of_ensembles(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSKEYOUT", "member_1")
    monkeypatch.setenv("SSKEYIN", "member_0,member_1")
    member = Client(cluster=False)
    member.put_tensor("x", np.ones(2))
    assert client.key_exists("member_1.x") and not member.tensor_exists("x")
    member.set_data_source("member_1")
    assert member.tensor_exists("x")
    with pytest.raises(errors.RedisReplyError):
        member.set_data_source("member_2")
    member.use_tensor_ensemble_prefix(False)
    member.put_tensor("y", np.ones(2))
    assert client.key_exists("y")
    member.set_model("m", b"x", "ONNX")
    assert client.key_exists("m")
    member.use_model_ensemble_prefix(True)
    member.set_model("m", b"x", "ONNX")
    assert client.key_exists("member_1.m") and member.get_model("m") == b"x"
    dataset = Dataset("d")
    dataset.add_tensor("u", np.ones(1))
    member.use_dataset_ensemble_prefix(False)
    member.put_dataset(dataset)
    member.use_list_ensemble_prefix(False)
    member.append_to_list("l", dataset)
    assert client.key_exists("{d}.meta") and client.get_list_length("l") == 1


def test_options_with_a_suffix(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSDB_other", server.address)
    monkeypatch.setenv("SR_DB_TYPE_other", "standalone")
    monkeypatch.setenv("SSKEYOUT_other", "member")
    monkeypatch.setenv("SSDB", "127.0.0.1:1")
    options = ConfigOptions.create_from_environment("other")
    Client(options, logger_name="x").put_tensor("x", np.ones(1))
    assert client.key_exists("member.x")
    with pytest.raises(errors.RedisConnectionError):
        Client(cluster=False)


def test_polling_is_woken(client: Client) -> None:
    found: "list[Any]" = []
    # A poll that looked only once an hour would not see it in time.
    waits = lambda: found.append(client.poll_list_length("l", 1, 3_600_000, 1))
    waiter = threading.Thread(target=waits)
    waiter.start()
    client.append_to_list("l", Dataset("d"))
    waiter.join(PATIENCE)
    assert found == [True]


def test_models_for_several_gpus(client: Client, server: Server) -> None:
    client.set_model_multigpu("m", b"abc", "TORCH", 1, 2)
    names = [f"m.GPU:{gpu}" for gpu in (1, 2)]
    assert all(client.model_exists(name) for name in ["m", *names])
    info = client.get_ai_info([server.address], "m.GPU:2")[0]
    assert (info["device"], info["backend"], info["calls"]) == ("GPU:2", "TORCH", "0")
    client.delete_model_multigpu("m", 1, 2)
    assert not any(client.model_exists(name) for name in ["m", *names])
    client.set_script_multigpu("s", "def f(x):\n    return x\n", 0, 1)
    assert client.get_script("s.GPU:0") == client.get_script("s")
    client.delete_script_multigpu("s", 0, 1)


def test_messages_go_to_logging(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    LogContext("here").log_warning(LLInfo, "careful")
    assert [(record.name, record.message) for record in caplog.records] == [("smartredis.here", "careful")]
    assert isinstance(client, SRObject)


def test_names_and_arguments_are_those_of_smartredis() -> None:
    if not has_smartredis():
        pytest.skip("SmartRedis, with NumPy 1, is not installed")
    code = """
    import inspect, smartredis, smartredis.error
    import phalanx.compat.smartredis as ours
    for kind in ("Client", "Dataset", "ConfigOptions", "LogContext"):
        theirs = getattr(smartredis, kind)
        for name, call in vars(theirs).items():
            hidden = name.startswith("_") or name in ("get_data", "set_data", "from_pybind", "set_configoptions",
                                                      "get_context", "set_context")
            if hidden:
                continue
            mine = getattr(getattr(ours, kind), name)
            wanted = list(inspect.signature(getattr(theirs, name)).parameters)
            have = list(inspect.signature(mine).parameters)
            if wanted != have and "more" not in have:
                print(kind, name, wanted, have)
    print([name for name in smartredis.__all__ if not hasattr(ours, name)])
    print([name for name in smartredis.error.__all__ if not hasattr(ours.error, name)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "['DatasetConverter']\n[]\n", done.stdout + done.stderr
