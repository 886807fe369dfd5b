"""Agents that connect networks which cannot reach each other."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import uuid
from typing import Iterator

import phalanx
import pytest
from phalanx.compat.amlip_py.node.ClientNode import ClientNode
from phalanx.compat.amlip_py.node.RepeaterNode import RepeaterNode
from phalanx.compat.amlip_py.types.Address import Address

PATIENCE = 60

SERVER = """
    import sys
    from amlip_py.node.ServerNode import ServerNode
    from amlip_py.types.Address import Address
    from amlip_swig import TransportProtocol_udp

    ServerNode("server", [Address(port=12121, external_port=12121, ip="10.73.1.2",
                                  transport_protocol=TransportProtocol_udp)], domain=7)
    print("ready", flush=True)
    sys.stdin.read()
"""

CLIENT = """
    import sys
    from amlip_py.node.ClientNode import ClientNode
    from amlip_py.types.Address import Address

    ClientNode("client", [Address(port=12121, ip="10.73.1.2")], domain=7)
    print("ready", flush=True)
    sys.stdin.read()
"""

COMPUTING = """
    import sys
    from amlip_py.node.AsyncComputingNode import AsyncComputingNode, JobReplier
    from amlip_py.types.JobSolutionDataType import JobSolutionDataType

    class Shouter(JobReplier):
        def process_job(self, job, task_id, client_id):
            return JobSolutionDataType(job.to_string().upper())

    node = AsyncComputingNode("computing", listener=Shouter(), domain=7)
    node.run()
    print("ready", flush=True)
    sys.stdin.read()
    node.stop()
"""

MAIN = """
    from amlip_py.node.MainNode import MainNode
    from amlip_py.types.JobDataType import JobDataType

    solution, server = MainNode("main", domain=7).request_job_solution(JobDataType("across"))
    print(solution.to_string(), str(server).rpartition("-")[0])
"""

CAN_NAMESPACES = os.geteuid() == 0 and shutil.which("ip") is not None


class Networks:
    """Two hosts with a network of their own each, and a third that both reach."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.hosts = {side: f"px-{side}-{uuid.uuid4().hex[:6]}" for side in ("left", "middle")}
        for name in self.hosts.values():
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        left, middle = self.hosts["left"], self.hosts["middle"]
        self.ip("-n", left, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", middle)
        for name, address in ((left, "10.73.1.1/24"), (middle, "10.73.1.2/24")):
            self.ip("-n", name, "addr", "add", address, "dev", "veth0")
            self.ip("-n", name, "link", "set", "veth0", "up")
        self.running: list[subprocess.Popen[str]] = []

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, host: str, machine: str, program: str) -> subprocess.Popen[str]:
        """Runs a program on a host, as a machine with a runtime directory of its own."""
        file = self.folder / f"{machine}-{uuid.uuid4().hex[:6]}.py"
        file.write_text(textwrap.dedent(program))
        runtime = self.folder / f"runtime-{machine}"
        runtime.mkdir(exist_ok=True)
        environment = {**os.environ, "PHALANX_CONFIG_DIR": str(self.folder), "PHALANX_RUNTIME_DIR": str(runtime)}
        words = ["ip", "netns", "exec", self.hosts[host], sys.executable, "-m", "phalanx.compat", str(file)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.running.append(process)
        return process

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        for name in self.hosts.values():
            self.ip("netns", "delete", name)


@pytest.fixture
def networks(tmp_path: pathlib.Path) -> Iterator[Networks]:
    made = Networks(tmp_path)
    yield made
    made.close()


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.skipif(not CAN_NAMESPACES, reason="network namespaces need root and `ip`")
def test_a_job_crosses_from_one_network_to_another(networks: Networks) -> None:
    environment = {**os.environ, "PHALANX_CONFIG_DIR": str(networks.folder)}
    subprocess.run(
        [sys.executable, "-m", "phalanx", "domain", "new", "amlip-7", "--output", "quiet"],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    ready(networks.start("middle", "server", SERVER))
    ready(networks.start("left", "client", CLIENT))
    ready(networks.start("middle", "server", COMPUTING))
    output, _ = networks.start("left", "client", MAIN).communicate(timeout=PATIENCE)
    assert output == "ACROSS computing\n"


def test_agents_without_a_key_say_how_to_make_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CONFIG_DIR", str(tmp_path))
    address = Address(port=0, domain="localhost")
    with pytest.raises(phalanx.ConfigError, match="phalanx domain new amlip-3"):
        ClientNode("client", [address], domain=3)
    with pytest.raises(phalanx.ConfigError, match="none on this machine"):
        RepeaterNode("repeater", [address])
    with pytest.raises(phalanx.ConfigError, match="phalanx domain new lab"):
        phalanx.Relay("127.0.0.1:0", ["lab"])
    with pytest.raises(phalanx.ConfigError, match="do not connect to other repeaters"):
        RepeaterNode("repeater", [address], [address])


def test_a_relay_listens_and_closes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CONFIG_DIR", str(tmp_path))
    command = [sys.executable, "-m", "phalanx", "domain", "new", "lab", "--output", "quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with phalanx.Relay("127.0.0.1:0", ["lab"]) as relay:
        assert relay.address.startswith("127.0.0.1:")
    with pytest.raises(phalanx.InputError, match="no address"):
        phalanx.Relay("nowhere", ["lab"])
