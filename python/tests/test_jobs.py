"""Jobs: handlers of this process, their errors, cancelling, deadlines, closing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import uuid
from typing import Iterator

import numpy as np
import pytest
from phalanx.errors import JobCancelled, JobExpired, JobFailed, PhalanxError
from phalanx.jobs import Job, Main, Node, Solution

PATIENCE = 60


@pytest.fixture
def domain() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def main(domain: str) -> Iterator[Main]:
    with Main(domain) as main:
        yield main


def test_a_job_is_solved_with_its_arrays(domain: str, main: Main) -> None:
    def scale(job: Job) -> Solution:
        return Solution(job.payload[::-1], {"twice": job.arrays["x"] * 2})

    x = np.arange(12, dtype="float32").reshape(3, 4)
    with Node({"scale": scale}, domain):
        solution = main.submit("scale", b"abc", {"x": x}).result(PATIENCE)
    assert solution.payload == b"cba"
    np.testing.assert_array_equal(solution.arrays["twice"], x * 2)


def test_arrays_of_strange_strides_arrive_whole(domain: str, main: Main) -> None:
    x = np.arange(60, dtype="int64").reshape(5, 12)[::-2, 1::3].T
    with Node({"echo": lambda job: Solution(arrays=job.arrays)}, domain):
        solution = main.submit("echo", arrays={"x": x, "empty": np.zeros((0, 3))}).result(PATIENCE)
    np.testing.assert_array_equal(solution.arrays["x"], x)
    assert solution.arrays["empty"].shape == (0, 3)
    with pytest.raises(ValueError):
        solution.arrays["x"][0] = 1  # shares the memory of the message


def test_many_jobs_are_solved_once_each(domain: str, main: Main) -> None:
    seen: "list[bytes]" = []

    def note(job: Job) -> bytes:
        seen.append(job.payload)
        return job.payload

    with Node({"note": note}, domain, slots=2):
        futures = [main.submit("note", str(number).encode()) for number in range(2000)]
        assert [future.result(PATIENCE).payload for future in futures] == [b"%d" % n for n in range(2000)]
    assert len(seen) == len(set(seen)) == 2000


def test_an_exception_comes_back_with_its_traceback(domain: str, main: Main) -> None:
    def divide(job: Job) -> bytes:
        return bytes(1 // len(job.payload))

    with Node({"divide": divide}, domain):
        future = main.submit("divide")
        with pytest.raises(JobFailed, match="ZeroDivisionError") as caught:
            future.result(PATIENCE)
        assert "in divide" in caught.value.reason
        assert main.submit("divide", b"12").result(PATIENCE).payload == b""


def test_a_job_that_runs_is_cancelled(domain: str, main: Main) -> None:
    running, ended = threading.Event(), threading.Event()

    def work(job: Job) -> bytes:
        running.set()
        while not job.is_cancelled:
            threading.Event().wait(0.01)
        ended.set()
        return b""

    with Node({"work": work}, domain):
        future = main.submit("work")
        assert running.wait(PATIENCE)
        assert future.cancel()
        assert future.cancelled()
        assert ended.wait(PATIENCE)


def test_a_deadline_ends_a_job_that_no_node_solves(main: Main) -> None:
    with pytest.raises(JobExpired):
        main.submit("unheard-of", deadline=0.1).result(PATIENCE)


def test_closing_ends_what_waits(domain: str) -> None:
    main = Main(domain)
    future = main.submit("unheard-of")
    main.close()
    with pytest.raises(BaseException) as caught:
        future.result(PATIENCE)
    assert type(caught.value).__name__ in ("CancelledError", "JobCancelled")
    with pytest.raises(PhalanxError, match="closed"):
        main.submit("unheard-of")


def test_one_job_is_taken_at_a_call(domain: str, main: Main) -> None:
    futures = [main.submit("count", b"%d" % number) for number in range(2)]
    node = Node({"count": lambda job: job.payload}, domain, start=False)
    assert node.solve_one().payload == b"0"
    assert futures[0].result(PATIENCE).payload == b"0"
    assert not futures[1].done()
    assert node.solve_one().payload == b"1"
    assert futures[1].result(PATIENCE).payload == b"1"
    node.close()
    with pytest.raises((PhalanxError, JobCancelled)):
        node.solve_one()


@pytest.mark.parametrize("waits", ["main.submit('x').result()", "main.submit('x').result(600)", "node.solve_one()"])
def test_ctrl_c_ends_every_wait(domain: str, waits: str) -> None:
    program = f"""
        from phalanx.jobs import Main, Node
        main = Main({domain!r})
        node = Node({{"y": bytes}}, {domain!r}, start=False)
        print("ready", flush=True)
        {waits}
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(2)
        assert process.wait(PATIENCE) != 0
        assert "KeyboardInterrupt" in process.stderr.read()


def test_a_program_ends_while_nodes_run(domain: str) -> None:
    program = f"""
        from phalanx.jobs import Main, Node
        node = Node({{"y": lambda job: b""}}, {domain!r}, slots=2)
        main = Main({domain!r})
        futures = [main.submit("y") for _ in range(100)]
        print("end", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
