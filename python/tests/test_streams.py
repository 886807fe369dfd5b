"""Streams of a store: producers, readers, trainers, processes that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest

from phalanx.errors import InputError, StoreError, StoreFull, StoreKeyError, StoreTimeout
from phalanx.store import Dataset, Store, serve

PATIENCE = 60


@pytest.fixture
def store() -> Iterator[Store]:
    with serve() as server, server.store() as client:
        yield client


def upload(first: int, count: int) -> Dict[str, Any]:
    numbers = np.arange(first, first + count, dtype="float32")
    return {"x": np.stack([numbers, numbers + 0.5], axis=1), "y": numbers.astype("int64")}


def produce(store: Store, uploads: int = 5, name: str = "sim", **options: Any) -> None:
    with store.producer("data", name, timeout=PATIENCE, **options) as producer:
        for number in range(producer.next, uploads):
            assert producer.put(upload(number * 10, 10)) == number


def values(batch: Any) -> List[int]:
    assert np.array_equal(batch["x"][:, 1], batch["x"][:, 0] + 0.5)
    assert np.array_equal(batch["x"][:, 0].astype("int64"), batch["y"])
    return [int(value) for value in batch["y"]]


def test_every_sample_is_in_every_pass_once_and_batches_can_be_written(store: Store) -> None:
    produce(store, expected_producers=1)
    with store.reader("data", "run", mode="static", batch=8, seed=3, passes=2, timeout=PATIENCE) as reader:
        batches = list(reader)
        assert reader.fields() == {"x": ("float32", (2,)), "y": ("int64", ())}
        assert reader.ending is not None and "PassesDone" in reader.ending
    assert [len(batch["y"]) for batch in batches] == [8, 8, 8, 8, 8, 8, 2] * 2
    for some in (batches[:7], batches[7:]):
        assert sorted(value for batch in some for value in values(batch)) == list(range(50))
    assert values(batches[0]) != values(batches[7])
    batches[0]["x"] += 1


def test_ranks_share_the_same_global_batches(store: Store) -> None:
    produce(store, expected_producers=1)
    options = {"mode": "static", "batch": 8, "seed": 4, "passes": 1, "timeout": PATIENCE}
    whole = [values(batch) for batch in store.reader("data", "one", **options)]
    for ranks in (2, 4):
        name = f"run{ranks}"
        readers = [store.reader("data", name, rank=rank, ranks=ranks, **options) for rank in range(ranks)]
        shares = zip(*(list(reader) for reader in readers))
        assert [[value for share in step for value in values(share)] for step in shares] == whole


def test_a_run_resumes_in_the_middle_of_a_pass(store: Store) -> None:
    produce(store)
    options = {"mode": "grow", "batch": 7, "seed": 5, "passes": 2, "timeout": PATIENCE}
    whole = [values(batch) for batch in store.reader("data", "whole", **options)]
    first = []
    for batch in store.reader("data", "run", **options):
        first.append(values(batch))
        if len(first) == 3:
            state = batch.state
            break
    rest = [values(batch) for batch in store.reader("data", "run", resume=state, **options)]
    assert first + rest == whole


def test_each_sample_once_with_bounded_memory(store: Store) -> None:
    told: List[str] = []
    row = 2 * 4 + 8
    thread = threading.Thread(
        target=produce,
        args=(store, 40),
        kwargs={"retention": "free", "budget": row * 30, "expected_producers": 1, "on_wait": told.append},
    )
    thread.start()
    seen: List[int] = []
    while "data" not in store.streams():
        pass
    with store.reader("data", "run", mode="once", window=10, batch=5, seed=1, timeout=PATIENCE) as reader:
        for batch in reader:
            seen += values(batch)
            assert store.stream_info("data")["stream"]["stored"] <= row * 30
    thread.join()
    assert sorted(seen) == list(range(400))
    assert told and told[0].startswith("waiting: ")


def test_datasets_of_a_list_are_samples(store: Store) -> None:
    for number in range(3):
        dataset = Dataset(f"step{number}")
        for name, array in upload(number * 10, 10).items():
            dataset.add_tensor(name, array)
        store.put_dataset(dataset)
        store.append("data", dataset)
    store.seal("data")
    batches = store.reader("data", "run", mode="static", batch=4, passes=1, timeout=PATIENCE)
    assert sorted(value for batch in batches for value in values(batch)) == list(range(30))


def test_a_producer_waits_for_room_in_a_full_store_within_its_own_time() -> None:
    large = {"x": np.ones((5, 1 << 20), "uint8")}
    with serve(memory=8 << 20) as small, small.store(patience=PATIENCE) as client, small.store(patience=0.7) as hasty:
        client.put("a", np.zeros(5 << 20, "uint8"))
        # Each ends when the shorter of both times is over.
        for name, owner, timeout in [("a", client, 0.7), ("b", hasty, None), ("c", hasty, PATIENCE)]:
            with owner.producer("data", name, timeout=timeout) as producer:
                began = time.monotonic()
                with pytest.raises(StoreFull, match="there is no room"):
                    producer.put(large)
                assert 0.7 <= time.monotonic() - began < PATIENCE / 2
                assert producer.next == 0
        with client.producer("waits", "sim") as producer:
            putting = threading.Thread(target=producer.put, args=(large,))
            putting.start()
            until = time.monotonic() + PATIENCE
            while b"blocked_clients:1" not in hasty.command("INFO", "clients"):
                assert putting.is_alive() and time.monotonic() < until
            hasty.delete("a")
            putting.join(PATIENCE)
            assert not putting.is_alive() and producer.next == 1


def test_errors_say_what_is_wrong(store: Store) -> None:
    with pytest.raises(InputError, match="no mode"):
        store.reader("data", "run", mode="all", batch=1)
    with pytest.raises(InputError, match="window"):
        store.reader("data", "run", mode="once", batch=1)
    with pytest.raises(InputError, match="is no name"):
        store.producer("data", "a b")
    with pytest.raises(StoreKeyError, match="no such stream"):
        store.stream_info("none")
    reader = store.reader("data", "run", batch=1, timeout=0.1)
    with pytest.raises(StoreTimeout, match="0 of 1 samples have arrived"):
        next(iter(reader))
    with store.producer("data", "sim") as producer:
        with pytest.raises(InputError, match="different numbers of samples"):
            producer.put({"x": np.zeros(3), "y": np.zeros(2)})
        producer.put(upload(0, 2))
        with pytest.raises(StoreError, match="has no tensor y"):
            producer.put({"x": upload(0, 2)["x"]})
    assert store.delete_stream("data") and not store.delete_stream("data")


PRODUCER = """
    import sys
    import numpy as np
    from phalanx.store import Store

    address, name, first, uploads, dies = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    with Store(address).producer("data", name, expected_producers=2, timeout=60) as producer:
        print(producer.next, flush=True)
        for number in range(producer.next, uploads):
            numbers = np.arange(first + number * 10, first + number * 10 + 10, dtype="float32")
            producer.put({"x": np.stack([numbers, numbers + 0.5], axis=1), "y": numbers.astype("int64")})
            if number == dies:
                print("here", flush=True)
                sys.stdin.read()
"""

TRAINER = """
    import json, sys
    from phalanx.store import Store

    address, name, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])
    reader = Store(address).reader(
        "data", "run", mode="static", batch=16, seed=2, passes=2, trainer=name, timeout=60)
    for count, batch in enumerate(reader):
        where = [batch.state["pass"], batch.state["step"]]
        print(json.dumps([where, [int(value) for value in batch["y"]]]), flush=True)
        if count == dies:
            sys.stdin.read()
    print(json.dumps("end"), flush=True)
"""


def start(program: str, *args: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(process: "subprocess.Popen[str]") -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_processes_that_are_killed_lose_and_double_no_sample(store: Store) -> None:
    """Producers and trainers are killed and started again, others join: every sample once in every pass."""
    import json

    dying = start(PRODUCER, store.address, "a", 0, 20, 7)
    other = start(PRODUCER, store.address, "b", 1000, 20, -1)
    assert dying.stdout is not None
    assert [dying.stdout.readline() for _ in range(2)] == ["0\n", "here\n"]
    kill(dying)
    again = start(PRODUCER, store.address, "a", 0, 20, -1)
    assert again.communicate(timeout=PATIENCE)[0] == "8\n"
    other.communicate(timeout=PATIENCE)
    expected = sorted([*range(200), *range(1000, 1200)])
    assert store.stream_info("data")["stream"]["ended"]

    lost = start(TRAINER, store.address, "t2", 3)
    assert lost.stdout is not None
    printed = [lost.stdout.readline() for _ in range(4)]
    joined = start(TRAINER, store.address, "t1", -1)
    kill(lost)
    late = start(TRAINER, store.address, "t3", -1)
    outputs = [printed, *(one.communicate(timeout=PATIENCE)[0].splitlines() for one in (joined, late))]
    # A step that was not committed when the group changed is done again by the new group: its last share counts.
    by_step: Dict[Any, Dict[int, List[int]]] = {}
    for trainer, lines in enumerate(outputs):
        for text in lines:
            if text.strip() and json.loads(text) != "end":
                (number, step), samples = json.loads(text)
                by_step.setdefault((number, step), {})[trainer] = samples
    for number in (0, 1):
        steps = {step: shares for (other_pass, step), shares in by_step.items() if other_pass == number}
        assert sorted(steps) == list(range(1, 26))
        used: List[int] = []
        for shares in steps.values():
            parts = [sample for trainer, share in shares.items() if trainer > 0 for sample in share]
            # What the trainer that was killed did counts unless its step was repeated.
            used += parts if len(parts) == 16 else parts + shares.get(0, [])
        assert sorted(used) == expected, f"pass {number}"


def serve_process(directory: Any, port: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "phalanx", "--output", "quiet", "store", "serve", "--bind", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--persist", str(directory), "--durability", "every-write"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    # It says its address when it listens.
    assert process.stdout.readline().strip() == f"127.0.0.1:{port}"
    return process


def test_a_store_that_is_killed_loses_no_sample_that_counted(tmp_path: Any) -> None:
    """A store with a journal is killed again and again while samples are produced and used."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = serve_process(tmp_path, port)
    store = Store(f"127.0.0.1:{port}")
    thread = threading.Thread(
        target=produce, args=(store, 60), kwargs={"retention": "free", "budget": 16 * 40, "expected_producers": 1}
    )
    thread.start()
    seen: List[int] = []
    while "data" not in store.streams():
        pass
    options: Any = {"mode": "once", "window": 20, "batch": 10, "seed": 1, "timeout": PATIENCE}
    with store.reader("data", "run", **options) as reader:
        for count, batch in enumerate(reader):
            seen += values(batch)
            if count % 15 == 7:
                kill(server)
                server = serve_process(tmp_path, port)
    thread.join()
    assert sorted(seen) == list(range(600))
    assert Store(f"127.0.0.1:{port}").stream_info("data")["stream"]["ended"]
    kill(server)
