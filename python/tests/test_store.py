"""The store: tensors, datasets, lists, waits, processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from phalanx.errors import (
    ForkError,
    InputError,
    MachineError,
    StoreError,
    StoreFull,
    StoreKeyError,
    StoreLost,
    StoreTimeout,
)
from phalanx.store import Dataset, Server, Store, serve

PATIENCE = 60
# Large enough for shared memory.
LARGE = (512, 1024)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    with server.store(prefix="") as client:
        client.command("FLUSHDB")
        yield client


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
)
def test_tensors_come_back_as_they_were_stored(server: Server, dtype: str, shared_memory: bool) -> None:
    with server.store(prefix="", shared_memory=shared_memory) as client:
        for shape in [(3,), (2, 1, 4), LARGE]:
            value = np.random.default_rng(0).integers(0, 2, size=shape).astype(dtype)
            client.put("x", value)
            found = client.get("x")
            assert found.dtype == value.dtype and found.shape == shape
            assert np.array_equal(found, value)


def test_a_view_stays_as_it_was_read(store: Store) -> None:
    for shape in [(4,), LARGE]:
        store.put("x", np.zeros(shape))
        view = store.get("x")
        with pytest.raises(ValueError):
            view[0] = 1
        store.put("x", np.ones(shape))
        store.delete("x")
        for _ in range(20):
            store.put("other", np.full(shape, 2.0))
        assert not view.any()
        assert not store.exists("x")


def test_views_outlive_client_and_store() -> None:
    with serve() as running:
        client = running.store()
        client.put("x", np.ones(LARGE))
        view = client.get("x")
        client.close()
        with pytest.raises(InputError):
            client.get("x")
    assert view.sum() == LARGE[0] * LARGE[1]


def test_arrays_of_many_kinds(store: Store) -> None:
    base = np.arange(24.0).reshape(4, 6)
    for value in [base, base[::2, 1:], base.T, base.astype(">f8"), base.tolist(), np.float32(3), 7, memoryview(base)]:
        store.put("x", value)
        assert np.array_equal(store.get("x"), np.atleast_1d(np.asarray(value)))
    for refused in [np.zeros(0), np.array(["a"]), np.zeros(2, "complex64"), object()]:
        with pytest.raises(InputError):
            store.put("x", refused)


def test_tensors_of_frameworks(store: Store) -> None:
    torch = pytest.importorskip("torch")
    store.put("x", torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_())
    assert store.get("x").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_getting_into_memory(store: Store) -> None:
    store.put("x", np.arange(6.0))
    room = np.zeros(12)
    assert store.get("x", out=room[::2]) is not None
    assert room.tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    with pytest.raises(InputError):
        store.get("x", out=np.zeros(5))
    with pytest.raises(InputError):
        store.get("x", out=np.zeros(6, "float32"))
    mine = store.get("x", copy=True)
    mine[0] = 9
    assert store.get("x")[0] == 0


def test_many_tensors_at_once(store: Store) -> None:
    many = {f"x{n}": np.full(LARGE if n == 2 else (n + 1,), float(n)) for n in range(5)}
    store.put_all(many)
    found = store.get_all(many)
    assert list(found) == list(many)
    assert all(np.array_equal(found[name], value) for name, value in many.items())
    with pytest.raises(StoreKeyError, match='"missing"'):
        store.get_all(["x0", "missing"])


def test_copies_and_renames(store: Store) -> None:
    store.put("a", [1.0, 2.0])
    store.copy("a", "b")
    store.rename("a", "c")
    assert (store.exists("a"), store.get("b").tolist(), store.get("c").tolist()) == (False, [1, 2], [1, 2])
    assert (store.delete("b"), store.delete("b")) == (True, False)
    for missing in [lambda: store.get("b"), lambda: store.copy("b", "d"), lambda: store.rename("b", "d")]:
        with pytest.raises(StoreKeyError):
            missing()
        with pytest.raises(KeyError):
            missing()


def test_datasets(store: Store) -> None:
    step = Dataset("step", {"u": np.ones(LARGE), "v": [1, 2, 3]})
    step.add_metadata("names", "a", "ü", "")
    step.add_metadata("count", 1, 2**40)
    step.add_metadata("time", 0.5)
    for kind in ["float32", "int32", "uint32", "uint64"]:
        step.add_metadata(kind, np.dtype(kind).type(7))
    assert not store.dataset_exists("step")
    store.put_dataset(step)
    assert store.dataset_exists("step")
    found = store.get_dataset("step")
    assert list(found.tensors) == ["u", "v"] and found["v"].tolist() == [1, 2, 3]
    assert found.metadata == {**step.metadata} and found.metadata["names"] == ["a", "ü", ""]
    assert {field: found.metadata_type(field) for field in found.metadata} == {
        field: step.metadata_type(field) for field in step.metadata
    }
    assert not found["u"].flags.writeable and store.get_dataset("step", copy=True)["u"].flags.writeable
    store.copy_dataset("step", "other")
    store.rename_dataset("other", "third")
    assert store.get_dataset("third")["v"].tolist() == [1, 2, 3]
    assert store.delete_dataset("step") and not store.delete_dataset("step")
    with pytest.raises(StoreKeyError):
        store.get_dataset("step")
    with pytest.raises(InputError):
        step.add_metadata("time", "late")
    with pytest.raises(InputError):
        step.add_metadata("what", object())  # type: ignore[arg-type]


def test_lists(store: Store) -> None:
    assert store.length("steps") == 0 and store.datasets("steps") == []
    for number in range(4):
        store.put_dataset(Dataset(f"step_{number}", {"u": [number]}))
        assert store.append("steps", f"step_{number}") == number + 1
    names = lambda *range_: [found.name for found in store.datasets("steps", *range_)]
    assert names() == ["step_0", "step_1", "step_2", "step_3"]
    assert (names(1, 2), names(-1), names(7, 9)) == (["step_1", "step_2"], ["step_3"], [])
    assert store.elements("steps", -2) == ["{step_2}", "{step_3}"]
    store.copy_list("steps", "copied")
    store.rename_list("copied", "renamed")
    assert (store.length("copied"), store.length("renamed")) == (0, 4)
    assert store.delete_list("renamed") and store.dataset_exists("step_0")
    with pytest.raises(StoreKeyError):
        store.copy_list("copied", "again")


def test_prefixes(server: Server, store: Store) -> None:
    with server.store(prefix="a") as a:
        a.put("x", [1.0])
        a.put_dataset(Dataset("d", {"u": [2.0]}))
        a.append("l", "d")
        keys = sorted(bytes(key) for key in store.command("KEYS", "*"))
        assert keys == [b"a.l", b"a.x", b"a.{d}.meta", b"a.{d}.u"]
        b = a.with_prefix("b", reads="a", prefixed=["tensors"])
        assert b.get("x").tolist() == [1.0] and not b.dataset_exists("d")
        b.put("x", [3.0])
        assert a.get("x").tolist() == [1.0] and store.get("b.x").tolist() == [3.0]
    with pytest.raises(InputError, match="tensor"):
        server.store(prefix="a", prefixed=["tensor"])


def test_prefixes_of_a_launcher(server: Server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSDB", server.address)
    monkeypatch.setenv("SSKEYOUT", "me")
    monkeypatch.setenv("SSKEYIN", "first,second")
    store.put("first.x", [1.0])
    with Store() as launched:
        assert launched.get("x").tolist() == [1.0]
        launched.put("x", [2.0])
    assert store.get("me.x").tolist() == [2.0]


def test_waits_are_woken(store: Store) -> None:
    waits = {
        "tensor": (lambda: store.wait("x", PATIENCE), lambda: store.put("x", [1.0])),
        "dataset": (lambda: store.wait_for_dataset("d", PATIENCE), lambda: store.put_dataset(Dataset("d", {"u": [1]}))),
        "length": (lambda: store.wait_for_length("l", 1), lambda: store.append("l", "d")),
        "key": (lambda: store.wait_for_key("k", PATIENCE), lambda: store.command("SET", "k", "v")),
    }
    for wait, come in waits.values():
        waiter = threading.Thread(target=wait)
        waiter.start()
        come()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
        wait()


def test_waits_end_in_time(store: Store) -> None:
    began = time.monotonic()
    for wait in [store.wait, store.wait_for_dataset, store.wait_for_key]:
        with pytest.raises(StoreTimeout):
            wait("missing", 0.15)
    with pytest.raises(TimeoutError):
        store.wait_for_length("missing", 1, 0.15)
    assert time.monotonic() - began >= 0.6
    with pytest.raises(InputError):
        store.wait("x", -1.0)


def test_wrong_kinds_and_addresses(server: Server, store: Store) -> None:
    store.command("SET", "text", "a")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.get("text")
    with pytest.raises(StoreError):
        store.command("NO SUCH COMMAND")
    with pytest.raises(InputError):
        Store("no address")
    with pytest.raises(StoreLost) as lost:
        Store("127.0.0.1:1")
    assert isinstance(lost.value, ConnectionError) and "phalanx store serve" in str(lost.value)


def test_a_full_store_says_so() -> None:
    with serve(memory=4 << 20) as small, small.store() as client:
        # What can never fit is not waited for.
        with pytest.raises(StoreFull):
            client.put("x", np.zeros(16 << 20, "uint8"))
        client.put("x", np.zeros(1 << 10, "uint8"))
        assert client.exists("x")


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_put_waits_until_another_thread_frees_room(shared_memory: bool) -> None:
    with serve(memory=8 << 20) as small, small.store(shared_memory=shared_memory) as client, small.store() as other:
        client.put("a", np.zeros(5 << 20, "uint8"))
        putting = threading.Thread(target=client.put, args=("b", np.ones(5 << 20, "uint8")))
        putting.start()
        until = time.monotonic() + PATIENCE
        while b"blocked_clients:1" not in other.command("INFO", "clients"):
            assert putting.is_alive() and time.monotonic() < until
        other.delete("a")
        putting.join(PATIENCE)
        assert not putting.is_alive()
        assert other.get("b").sum() == 5 << 20


def test_a_full_store_says_what_holds_the_memory_when_the_patience_is_over() -> None:
    array = np.zeros(5 << 20, "uint8")
    with serve(memory=8 << 20) as small, small.store(patience=0.4) as client:
        client.put("a", array)
        again: Store = pickle.loads(pickle.dumps(client))
        for store in [client, client.with_prefix("p"), again]:
            began = time.monotonic()
            with pytest.raises(StoreFull, match="there is no room .*: 1 keys hold 52.* of 8388608 bytes in memory"):
                store.put("b", array)
            assert 0.4 <= time.monotonic() - began < 20
        with small.store(patience=0) as hasty, pytest.raises(StoreFull):
            hasty.put("b", array)
        for wrong in [-1.0, float("nan")]:
            with pytest.raises(InputError, match="seconds"):
                small.store(patience=wrong)


def test_a_store_beyond_loopback_needs_a_password() -> None:
    with pytest.raises(InputError, match="password"):
        serve("0.0.0.0:0")
    with serve("0.0.0.0:0", password="secret") as exposed:
        port = exposed.address.rpartition(":")[2]
        with Store(f"127.0.0.1:{port}", password="secret") as client:
            client.put("x", [1.0])
        with pytest.raises(StoreError):
            Store(f"127.0.0.1:{port}", password="wrong")


def test_unix_sockets(tmp_path: Any) -> None:
    path = str(tmp_path / "store.sock")
    with serve(unix=path) as running, Store(f"unix://{path}", prefix="") as client:
        client.put("x", np.ones(LARGE))
        assert running.store().get("x").sum() == LARGE[0] * LARGE[1]


def test_a_lost_store_is_found_again(store: Store) -> None:
    with serve() as first:
        port = first.address
        client = first.store()
        client.put("x", [1.0])
    with pytest.raises(StoreError):
        client.get("x")
    with serve(port):
        with pytest.raises(StoreKeyError):
            client.get("x")


def test_threads_share_a_client(store: Store) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            shape = LARGE if turn % 5 == 0 else (8,)
            store.put(f"x{number}", np.full(shape, float(number)))
            found = store.get(f"x{number}")
            if found.shape != shape or not (found == number).all():
                problems.append((number, turn))

    problems: "list[Any]" = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert problems == [] and not any(thread.is_alive() for thread in threads)


def _in_child(client: Store, answers: Any) -> None:
    try:
        client.get("x")
        answers.put("worked")
    except ForkError as error:
        answers.put(str(error))
    with Store(client.address, prefix="") as own:
        answers.put(float(own.get("x").sum()))


def test_a_forked_process_connects_anew(store: Store) -> None:
    store.put("x", np.ones(LARGE))
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(store, answers))
    child.start()
    assert "forked" in answers.get(timeout=PATIENCE)
    assert answers.get(timeout=PATIENCE) == LARGE[0] * LARGE[1]
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert store.get("x").sum() == LARGE[0] * LARGE[1]


def test_a_store_can_be_sent_to_another_process(store: Store) -> None:
    store.put("a.x", [1.0])
    with pickle.loads(pickle.dumps(store.with_prefix("a"))) as sent:
        assert sent.get("x").tolist() == [1.0]


@pytest.mark.parametrize("wait", ["client.wait('never')", "client.put('b', large)"])
def test_ctrl_c_ends_a_wait_at_once(wait: str) -> None:
    code = """
    import os, signal, threading, time
    import numpy as np
    from phalanx.store import serve
    large = np.ones(5 << 20, "uint8")
    with serve(memory=8 << 20) as running, running.store(patience=10**6) as client:
        client.put("a", large)
        def interrupt():
            # Begins when the other thread waits: then the store has one client more.
            asks = running.store()
            while b"blocked_clients:1" not in asks.command("INFO", "clients"):
                pass
            global sent
            sent = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            WAIT
        except KeyboardInterrupt:
            print(time.monotonic() - sent)
        client.delete("a")
        client.put("b", large)
    """
    program = textwrap.dedent(code).replace("WAIT", wait)

    def seconds() -> float:
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
        assert ran.returncode == 0, ran.stderr
        return float(ran.stdout)

    # The fastest of a few: a busy machine may delay any one of them.
    assert min(seconds() for _ in range(3)) < 0.5


def test_a_program_that_forgets_to_close_ends() -> None:
    code = "from phalanx.store import serve; s = serve(); c = s.store(); c.put('x', [1.0]); v = c.get('x'); print(v[0])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1.0\n", "")


def test_a_killed_client_leaves_the_store_alone(server: Server, store: Store) -> None:
    code = f"""
    import os, numpy as np
    from phalanx.store import Store
    store = Store({server.address!r}, prefix="")
    store.put("x", np.ones({LARGE}))
    view = store.get("x")
    print("ready", flush=True)
    import signal; signal.pause()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(PATIENCE)
    child.stdout.close()
    assert store.get("x").sum() == LARGE[0] * LARGE[1]


def test_a_store_in_a_directory_has_everything_again(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    array = np.arange(100_000, dtype=np.float32)
    with serve(persist=kept, durability="every-write", spill=str(tmp_path)) as server, server.store() as store:
        store.put("x", array)
        with pytest.raises(MachineError, match="another process is using"):
            serve(persist=kept)
    with serve(persist=kept) as server, server.store() as store:
        assert np.array_equal(store.get("x"), array)
    with pytest.raises(InputError, match="no durability"):
        serve(persist=kept, durability="sometimes")
