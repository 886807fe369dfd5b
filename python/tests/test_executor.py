"""Functions that nodes call: results, arrays, exceptions, deaths, cancelling, options, the end."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from typing import Any, Iterator, List

import numpy as np
import pytest
from phalanx import ConfigError, ForkError, InputError
from phalanx._pickling import dump_function
from phalanx.errors import JobExpired, JobFailed
from phalanx.jobs import CallFuture, Executor, RemoteTraceback

PATIENCE = 60


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Executor(local=2) as pool:
        yield pool


@pytest.fixture
def single() -> Iterator[Executor]:
    with Executor(local=1) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)


class Stumbled(Exception):
    """An exception of this program that cannot be made again from its arguments."""

    def __init__(self, where: str, how_often: int) -> None:
        super().__init__(f"{where} {how_often} times")


def hold(started: str) -> None:
    """Writes the id of this process to a file and never ends."""
    path = pathlib.Path(started)
    path.with_suffix(".new").write_text(f"{os.getpid()} {os.getppid()}")
    path.with_suffix(".new").rename(path)
    threading.Event().wait()


def wait_for(path: pathlib.Path, future: "CallFuture[Any]") -> str:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert not future.done(), future.exception()
        assert time.monotonic() < until, future.why()
        threading.Event().wait(0.005)
    return path.read_text()


def test_functions_closures_and_methods_are_called(pool: Executor) -> None:
    factor = 3
    assert pool.submit(lambda x, *, y: x * factor + y, 4, y=1).result(PATIENCE) == 13
    assert pool.submit("abc".upper).result(PATIENCE) == "ABC"
    assert pool.submit(functools.partial(pow, 2), 5).result(PATIENCE) == 32
    assert pool.submit(os.getpid).result(PATIENCE) != os.getpid()


def test_map_gives_results_in_order(pool: Executor) -> None:
    assert list(pool.map(pow, range(5), [2] * 5)) == [0, 1, 4, 9, 16]
    assert list(pool.map(pow, range(50), [2] * 50, chunksize=7)) == [x * x for x in range(50)]
    assert list(pool.map(pow, [], [])) == []
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(pow, [1], [1], chunksize=0)


def test_map_gives_up_after_its_timeout(single: Executor, tmp_path: pathlib.Path) -> None:
    results = single.map(hold, [str(tmp_path / "a"), str(tmp_path / "b")], timeout=0.2)
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)


def test_as_completed_and_wait_take_the_futures(pool: Executor) -> None:
    calls = [pool.submit(lambda x: x, number) for number in range(20)]
    done = concurrent.futures.as_completed(calls, timeout=PATIENCE)
    assert sorted(future.result() for future in done) == list(range(20))
    finished, unfinished = concurrent.futures.wait([pool.submit(abs, -1), pool.submit(abs, -2)], PATIENCE)
    assert {future.result() for future in finished} == {1, 2} and not unfinished


def test_two_thousand_calls_all_arrive(pool: Executor) -> None:
    calls = [pool.submit(lambda x: x, number) for number in range(2000)]
    assert [call.result(PATIENCE) for call in calls] == list(range(2000))


def test_a_function_is_called_as_it_is_when_it_is_submitted(pool: Executor) -> None:
    numbers = [1]
    state = 1

    def total() -> int:
        return sum(numbers) + state

    assert pool.submit(total).result(PATIENCE) == 2
    numbers.append(10)
    assert pool.submit(total).result(PATIENCE) == 12
    state = 100
    assert pool.submit(total).result(PATIENCE) == 111


@pytest.mark.parametrize("captures", ["atoms", "functions", "lists"])
def test_a_function_is_pickled_again_only_if_it_may_have_changed(captures: str) -> None:
    def helper(x: int) -> int:
        return x

    values: "dict[str, Any]" = {"atoms": (1, "a", None), "functions": helper, "lists": [1]}
    value = values[captures]
    made: "List[bytes]" = []

    def make(_hash: bytes, pickled: bytes) -> bytes:
        made.append(pickled)
        return pickled

    def function() -> Any:
        return value, os.sep

    first = dump_function(function, make)
    assert dump_function(function, make) == first
    assert len(made) == (2 if captures == "lists" else 1)
    value = (2, "b")
    assert dump_function(function, make) != first


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex128"])
def test_arrays_go_there_and_back(pool: Executor, shape: Any, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, size=shape).astype(dtype)
    y = pool.submit(lambda x: x, x).result(PATIENCE)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(x, y)


def test_arrays_of_strange_strides_go_there_and_back(pool: Executor) -> None:
    x = np.arange(240_000).reshape(400, 600)[::-3, 1::2].T
    np.testing.assert_array_equal(pool.submit(lambda x: x + 1, x).result(PATIENCE), x + 1)


def test_16_mb_go_both_ways_beside_the_pickles(pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: "List[int]" = []
    whole = pickle.dumps

    def measured(*args: Any, **kwargs: Any) -> bytes:
        pickled = whole(*args, **kwargs)
        lengths.append(len(pickled))
        return pickled

    monkeypatch.setattr(pickle, "dumps", measured)
    x = np.arange(2 << 20, dtype="float64")
    y = pool.submit(lambda x: x + 1, x).result(PATIENCE)
    np.testing.assert_array_equal(y, x + 1)
    assert lengths and max(lengths) < 4096
    assert not y.flags.owndata and not y.flags.writeable


def test_an_array_may_be_written_after_submit(pool: Executor) -> None:
    calls = []
    for size in (10, 1_000_000):
        x = np.zeros(size)
        for number in range(5):
            x[:] = number
            calls.append((number, size, pool.submit(np.sum, x)))
    assert all(call.result(PATIENCE) == number * size for number, size, call in calls)


def test_an_array_that_a_function_keeps_is_not_overwritten(single: Executor) -> None:
    def keep(x: Any) -> bool:
        kept = sys.__dict__.setdefault("_kept", [])
        kept.append((float(x[0]), x))
        return all((x == first).all() for first, x in kept)

    calls = [single.submit(keep, np.full(100_000, float(number))) for number in range(20)]
    assert all(call.result(PATIENCE) for call in calls)


def segments_here() -> int:
    """How many pieces of shared memory this process has mapped."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    return len({line.split()[5] for line in maps.splitlines() if "/memfd:phalanx-" in line})


def test_parts_of_arguments_come_back_as_they_are(pool: Executor) -> None:
    x = np.random.default_rng(0).random((500, 400))
    parts = pool.submit(lambda x: (x, x[100:], x[::2, ::-1], x.T, x.ravel()[7:400]), x).result(PATIENCE)
    for part, expected in zip(parts, (x, x[100:], x[::2, ::-1], x.T, x.ravel()[7:400])):
        np.testing.assert_array_equal(part, expected)


def test_results_outlive_later_calls_and_the_processes_that_made_them(tmp_path: pathlib.Path) -> None:
    with Executor(local=1) as pool:
        kept = [(n, pool.submit(np.full, 300_000, float(n)).result(PATIENCE)) for n in range(10)]
        kept += [(n, pool.submit(lambda x: x, np.full(300_000, float(n))).result(PATIENCE)) for n in range(10)]
        call = pool.submit(hold, str(tmp_path / "began"))
        for process in wait_for(tmp_path / "began", call).split():
            os.kill(int(process), signal.SIGKILL)
        again = [np.full(300_000, -1.0) for _ in range(10)]
        waiting = [pool.submit(np.sum, x) for x in again]
        assert all((array == n).all() for n, array in kept)
        del waiting, call
        pool.shutdown(cancel_futures=True)
    assert all((array == n).all() for n, array in kept)


def test_arrays_of_a_forked_process_stay_as_they_are(single: Executor) -> None:
    x = single.submit(np.full, 300_000, 7.0).result(PATIENCE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0 if (x == 7.0).all() else 1)
    os.close(reading)
    del x
    for _ in range(30):
        single.submit(np.full, 300_000, -1.0).result(PATIENCE)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


def test_shared_memory_is_used_again(single: Executor) -> None:
    x, before = np.zeros(500_000), segments_here()
    for number in range(100):
        x[0] = number
        assert single.submit(lambda x: x + 1, x).result(PATIENCE)[0] == number + 1
    assert segments_here() <= before + 8
    assert single.submit(segments_here).result(PATIENCE) <= 8


def test_memory_that_a_function_let_go_of_is_used_again(single: Executor) -> None:
    def keep_the_last(x: Any) -> float:
        before = sys.__dict__.get("_last")
        sys.__dict__["_last"] = x
        return 0.0 if before is None else float(before.sum())

    before = segments_here()
    sums = [single.submit(keep_the_last, np.full(200_000, float(n))).result(PATIENCE) for n in range(60)]
    assert sums == [0.0, *(200_000.0 * n for n in range(59))]
    assert segments_here() <= before + 8


def test_arrays_stay_whole_while_workers_are_killed() -> None:
    def check(x: Any, number: int, dies: bool) -> Any:
        assert (x == number).all()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return x * 2

    with Executor(local=2) as pool:
        dies = np.random.default_rng(3).random(60) < 0.2
        tries = pool.options(attempts=1)
        calls = [tries.submit(check, np.full(100_000 + n, float(n)), n, bool(dies[n])) for n in range(60)]
        for number, call in enumerate(calls):
            if dies[number]:
                with pytest.raises(JobFailed, match="worker ended"):
                    call.result(PATIENCE)
            else:
                result = call.result(PATIENCE)
                assert len(result) == 100_000 + number and (result == 2 * number).all()


def test_an_exception_comes_back_with_its_remote_traceback(pool: Executor) -> None:
    def stumble() -> None:
        raise KeyError("somewhere")

    for function, args in [(stumble, ()), (lambda x: stumble(), (np.zeros(100_000),))]:
        with pytest.raises(KeyError, match="somewhere") as caught:
            pool.submit(function, *args).result(PATIENCE)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "in stumble" in str(caught.value.__cause__)
        assert "worker.py" not in str(caught.value.__cause__)


def test_an_exception_that_cannot_be_made_again_is_told(pool: Executor) -> None:
    def stumble() -> None:
        raise Stumbled("on the stairs", 3)

    with pytest.raises(JobFailed, match="Stumbled: on the stairs 3 times") as caught:
        pool.submit(stumble).result(PATIENCE)
    assert "in stumble" in str(caught.value.__cause__)


def test_what_cannot_be_pickled_says_so(pool: Executor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pool.submit(len, threading.Lock())
    with pytest.raises(TypeError, match="returned lock, which cannot be pickled"):
        pool.submit(lambda: threading.Lock()).result(PATIENCE)
    assert pool.submit(len, "ab").result(PATIENCE) == 2


def test_a_call_whose_worker_is_killed_runs_again_as_often_as_it_may(pool: Executor, tmp_path: pathlib.Path) -> None:
    def die_once(folder: str) -> str:
        mark = pathlib.Path(folder) / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    assert pool.options(attempts=3).submit(die_once, str(tmp_path)).result(PATIENCE) == "alive"
    with pytest.raises(JobFailed, match="worker ended during the call"):
        pool.options(attempts=1).submit(os._exit, 3).result(PATIENCE)
    with pytest.raises(RuntimeError, match="ended its process"):
        pool.submit(exit, 3).result(PATIENCE)
    assert pool.submit(len, "ab").result(PATIENCE) == 2


def test_a_call_whose_node_is_killed_runs_elsewhere(tmp_path: pathlib.Path) -> None:
    def work(folder: str) -> str:
        mark = pathlib.Path(folder) / "began"
        if not mark.exists():
            hold(str(mark))
        return "done elsewhere"

    with Executor(local=2) as pool:
        call = pool.submit(work, str(tmp_path))
        _worker, node = wait_for(tmp_path / "began", call).split()
        os.kill(int(node), signal.SIGKILL)
        assert call.result(PATIENCE) == "done elsewhere"


def test_a_call_that_runs_is_cancelled(single: Executor, tmp_path: pathlib.Path) -> None:
    call = single.submit(hold, str(tmp_path / "began"))
    worker = int(wait_for(tmp_path / "began", call).split()[0])
    assert call.cancel() and call.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        call.result(PATIENCE)
    # The core that it had is free again, and its process is gone.
    assert single.submit(abs, -1).result(PATIENCE) == 1
    assert not pathlib.Path(f"/proc/{worker}").exists()


class Nodes:
    """A domain, and nodes of it that a test starts."""

    def __init__(self) -> None:
        self.domain = f"test-{uuid.uuid4().hex[:12]}"
        self._running: "List[subprocess.Popen[bytes]]" = []

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "phalanx", "node", "--domain", self.domain, "--output", "quiet", *arguments]
        node = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._running.append(node)
        assert node.stdout is not None and node.stdout.readline()

    def close(self) -> None:
        for node in self._running:
            node.kill()
            node.wait()
            if node.stdout is not None:
                node.stdout.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()


def test_results_outlive_the_link_to_the_node_that_made_them(nodes: Nodes) -> None:
    nodes.start(f"--allow-python={sys.executable}", "--cores", "1")
    with Executor(nodes.domain) as first:
        kept = [(n, first.submit(np.full, 300_000, float(n)).result(PATIENCE)) for n in range(5)]
    # The same worker goes on for another program.
    with Executor(nodes.domain) as second:
        for _ in range(30):
            second.submit(np.full, 300_000, -1.0).result(PATIENCE)
    assert all((array == n).all() for n, array in kept)


def test_higher_priorities_go_first(nodes: Nodes, tmp_path: pathlib.Path) -> None:
    def note(file: str, text: str) -> None:
        with open(file, "a") as out:
            out.write(text)

    with Executor(nodes.domain) as pool:
        order = str(tmp_path / "order")
        calls = [pool.options(priority=p).submit(note, order, str(p)) for p in (0, 2, 1, 3)]
        assert all(call.why().startswith("waiting") for call in calls)
        nodes.start("--cores", "1", f"--allow-python={sys.executable}")
        concurrent.futures.wait(calls, PATIENCE)
    assert pathlib.Path(order).read_text() == "3210"


def test_a_deadline_ends_a_call(single: Executor, tmp_path: pathlib.Path) -> None:
    with pytest.raises(JobExpired):
        single.options(deadline=0.3).submit(hold, str(tmp_path / "began")).result(PATIENCE)
    assert single.submit(abs, -1).result(PATIENCE) == 1


def test_options_add_up_and_are_checked(single: Executor) -> None:
    assert single.submit(abs, -1).result(PATIENCE) == 1
    wide = single.options(cores=2).options(priority=1)
    call = wide.submit(abs, -1)
    assert "needs 2 cores" in call.why()
    call.cancel()
    with pytest.raises(InputError, match="at least 1"):
        single.options(cores=0)
    with pytest.raises(ConfigError, match="both"):
        Executor("lab", local=1)


def test_a_call_says_why_it_waits(nodes: Nodes) -> None:
    pool = Executor(nodes.domain)
    call = pool.submit(abs, -1)
    assert call.why() == "waiting: no computing node in this domain yet"
    nodes.start()
    until = time.monotonic() + PATIENCE
    while "handles" not in call.why():
        assert time.monotonic() < until, call.why()
    assert call.why() == 'waiting: no node of this domain handles "python"'
    pool.shutdown(cancel_futures=True)
    assert call.cancelled() and call.why() == "cancelled"


def test_threads_and_callbacks_submit(pool: Executor) -> None:
    results: "List[int]" = []
    all_done = threading.Event()

    def again(call: Any) -> None:
        results.append(call.result())
        if len(results) < 40:
            pool.submit(lambda x: x, len(results)).add_done_callback(again)
        else:
            all_done.set()

    pool.submit(lambda x: x, 0).add_done_callback(again)
    sums: "List[int]" = []

    def many(offset: int) -> None:
        sums.append(sum(pool.map(abs, range(offset, offset + 100))))

    threads = [threading.Thread(target=many, args=(1000 * number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    assert sorted(sums) == [sum(range(1000 * n, 1000 * n + 100)) for n in range(4)]
    assert all_done.wait(PATIENCE) and results == list(range(40))


def test_after_shutdown_nothing_is_submitted(tmp_path: pathlib.Path) -> None:
    pool = Executor(local=1)
    call = pool.submit(abs, -1)
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, -1)
    assert call.result(PATIENCE) == 1
    pool.shutdown()


def run(code: str, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_functions_and_classes_of_the_main_module_work() -> None:
    done = run("""
        from phalanx.jobs import Executor

        class Box:
            def __init__(self, value):
                self.value = value

        class Broken(Exception):
            pass

        def double(box):
            return Box(helper(box.value))

        def helper(x):
            if x < 0:
                raise Broken(x)
            return 2 * x

        with Executor(local=1) as pool:
            box = pool.submit(double, Box(21)).result(60)
            print(type(box) is Box, box.value)
            try:
                pool.submit(double, Box(-1)).result(60)
            except Broken as error:
                print("broken", error)
    """)
    assert done.stdout == "True 42\nbroken -1\n", done.stderr


def test_a_program_ends_while_calls_wait_and_run() -> None:
    done = run("""
        import time
        from phalanx.jobs import Executor
        pool = Executor(local=1)
        pool.submit(abs, -1).result(60)
        calls = [pool.submit(time.sleep, 600)]
        calls += [pool.submit(abs, -1) for _ in range(100)]
        nowhere = Executor("no-such-domain").submit(abs, -1)
        print("end", flush=True)
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_forked_process_is_told(single: Executor) -> None:
    call = single.submit(time.sleep, 600)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for act in (call.result, lambda: single.submit(abs, -1)):
            try:
                act()
            except ForkError:
                told.append("fork")
            except BaseException as error:
                told.append(repr(error))
        os.write(write, " ".join(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told_by_child:
        assert told_by_child.read() == "fork fork"
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    "wait",
    [
        "call.result()",
        "list(pool.map(time.sleep, [600]))",
        "list(concurrent.futures.as_completed([call]))",
        "pool.shutdown()",
    ],
)
def test_ctrl_c_ends_every_wait_within_200_ms(wait: str) -> None:
    code = f"""
        import concurrent.futures, os, signal, threading, time
        from phalanx.jobs import Executor
        pool = Executor(f"no-nodes-{{os.getpid()}}")
        call = pool.submit(abs, -1)

        def interrupt():
            global sent
            time.sleep(0.3)
            sent = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        try:
            {wait}
        except KeyboardInterrupt:
            print(time.monotonic() - sent)
    """
    tries = [run(code) for _ in range(3)]
    assert all(done.stdout for done in tries), tries[0].stderr
    # The fastest of a few: a busy machine may delay any one of them.
    assert min(float(done.stdout) for done in tries) < 0.2


def test_the_hot_path_needs_no_numpy() -> None:
    done = run("""
        import sys
        from phalanx.jobs import Executor
        with Executor(local=1) as pool:
            print(pool.submit(lambda: "numpy" in __import__("sys").modules).result(60), "numpy" in sys.modules)
    """)
    assert done.stdout == "False False\n", done.stderr
