"""Programs that were written for other tools, as they are."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from typing import Any

import phalanx
from phalanx.compat.amlip_py.node.AsyncEdgeNode import AsyncEdgeNode
from phalanx.compat.amlip_py.node.AsyncInferenceNode import AsyncInferenceNode
from phalanx.compat.amlip_py.node.ComputingNode import ComputingNode
from phalanx.compat.amlip_py.node.MainNode import MainNode
from phalanx.compat.amlip_py.node.StatusNode import StatusNode
from phalanx.compat.amlip_py.types.InferenceDataType import InferenceDataType
from phalanx.compat.amlip_py.types.InferenceSolutionDataType import InferenceSolutionDataType
from phalanx.compat.amlip_py.types.JobDataType import JobDataType
from phalanx.compat.amlip_py.types.JobSolutionDataType import JobSolutionDataType
from phalanx.compat.amlip_py.types.StatusDataType import NodeKind, StateKind
from phalanx.compat.py_utils.wait.BooleanWaitHandler import BooleanWaitHandler
from phalanx.compat.py_utils.wait.IntWaitHandler import AwakeReason, IntWaitHandler

PATIENCE = 60

MAIN = """
    import sys
    from amlip_py.node.AsyncMainNode import AsyncMainNode, SolutionListener
    from amlip_py.types.JobDataType import JobDataType
    from py_utils.wait.IntWaitHandler import IntWaitHandler

    waiter = IntWaitHandler(True)

    class Printer(SolutionListener):
        def solution_received(self, solution, task_id, server_id):
            print(task_id, solution.to_string(), str(server_id).rpartition("-")[0], flush=True)
            waiter.increase()

    node = AsyncMainNode("PyMain", listener=Printer(), domain=int(sys.argv[1]))
    for text in ("one", "two", "three"):
        node.request_job_solution(JobDataType(text))
    waiter.wait_equal(3)
"""

COMPUTING = """
    import signal, sys
    from amlip_py.node.AsyncComputingNode import AsyncComputingNode, JobReplier
    from amlip_py.types.JobSolutionDataType import JobSolutionDataType

    class Shouter(JobReplier):
        def process_job(self, job, task_id, client_id):
            return JobSolutionDataType(job.to_string().upper())

    node = AsyncComputingNode("PyComputing", listener=Shouter(), domain=int(sys.argv[1]))
    node.run()
    signal.signal(signal.SIGINT, lambda signum, frame: None)
    print("ready", flush=True)
    signal.pause()
    node.stop()
    print("stopped", flush=True)
"""


def number() -> int:
    return uuid.uuid4().int % 10**9


def start(folder: pathlib.Path, name: str, program: str, *arguments: str) -> "subprocess.Popen[str]":
    path = folder / name
    path.write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "phalanx.compat", str(path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_amlip_programs_run_as_they_are(tmp_path: pathlib.Path) -> None:
    domain = str(number())
    nodes = [start(tmp_path, f"computing_{n}.py", COMPUTING, domain) for n in range(2)]
    for node in nodes:
        assert node.stdout is not None and node.stdout.readline() == "ready\n"
    main = start(tmp_path, "main.py", MAIN, domain)
    out, err = main.communicate(timeout=PATIENCE)
    assert sorted(out.splitlines()) == ["0 ONE PyComputing", "1 TWO PyComputing", "2 THREE PyComputing"], err
    assert "serves amlip_py" in err
    for node in nodes:
        node.send_signal(signal.SIGINT)
        out, err = node.communicate(timeout=PATIENCE)
        assert (node.returncode, out) == (0, "stopped\n"), err


def test_what_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    program = start(tmp_path, "fiware.py", "import amlip_py.node.FiwareNode")
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 1
    assert "there is no `amlip_py.node.FiwareNode` here" in err


def test_a_missing_name_of_a_package_is_told(tmp_path: pathlib.Path) -> None:
    program = start(tmp_path, "experiment.py", "from smartsim import Experiment")
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 1
    assert "phalanx.compat does not have `smartsim.Experiment`" in err


def test_nodes_that_wait_for_each_other() -> None:
    domain = number()
    computing, main = ComputingNode("Computing", domain=domain), MainNode("Main", domain=domain)
    clients: "list[Any]" = []

    def solve_one() -> None:
        clients.append(computing.process_job(callback=lambda job: JobSolutionDataType(job.to_string() * 2)))

    solver = threading.Thread(target=solve_one)
    solver.start()
    solution, server = main.request_job_solution(JobDataType("ab"))
    solver.join(PATIENCE)
    assert (solution.to_string(), server, clients) == ("abab", computing.get_id(), [main.get_id()])
    main.close()
    computing.close()


def test_edge_and_inference_nodes() -> None:
    domain = number()
    heard: "list[Any]" = []
    done = BooleanWaitHandler(True, False)

    def hear(inference: Any, task: int, server: str) -> None:
        heard.append((inference.to_string(), task, server))
        done.open()

    inference = AsyncInferenceNode(
        "Inference", callback=lambda data, task, client: InferenceSolutionDataType(f"{data.data_size()}"), domain=domain
    )
    inference.run()
    edge = AsyncEdgeNode("Edge", callback=hear, domain=domain)
    task = edge.request_inference(InferenceDataType(b"\x00\xff12"))
    assert done.wait(PATIENCE * 1000) == AwakeReason.condition_met
    assert heard == [("4", task, inference.get_id())]
    kinds = {node.id: node.kind for node in phalanx.nodes(f"amlip-{domain}", patience=5)}
    assert (kinds[edge.get_id()], kinds[inference.get_id()]) == ("edge", "inference")
    edge.close()
    inference.stop()


def test_a_status_node_sees_nodes_come_and_go() -> None:
    domain = number()
    seen: "list[Any]" = []
    changed = IntWaitHandler(True)

    def note(status: Any) -> None:
        seen.append((status.get_id(), status.get_node_kind(), status.get_state()))
        changed.increase()

    watcher = StatusNode("Status", domain=domain)
    watcher.process_status_async(callback=note)
    main = MainNode("Main", domain=domain)
    name = main.get_id()

    def told(*states: StateKind) -> bool:
        return any((name, NodeKind.MAIN, state) in seen for state in states)

    assert changed.wait(lambda _: told(StateKind.RUNNING), PATIENCE * 1000) == AwakeReason.condition_met
    main.close()
    # A node that closes before its own side of the link is up says no goodbye, and counts as dropped.
    gone = (StateKind.STOPPED, StateKind.DROPPED)
    assert changed.wait(lambda _: told(*gone), PATIENCE * 1000) == AwakeReason.condition_met
    watcher.close()


def test_waiting_ends_in_time_or_when_disabled() -> None:
    waiter = IntWaitHandler(True)
    assert waiter.wait_equal(1, timeout=10) == AwakeReason.timeout
    waiter.disable()
    assert waiter.wait_equal(1) == AwakeReason.disabled
