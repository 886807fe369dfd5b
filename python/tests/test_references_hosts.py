"""Results that calls on other hosts take: network namespaces stand for the hosts."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any, Dict, Iterator, List

import pytest

# 32 MB: what the calls themselves and their records take is little beside it.
NUMBERS = 4_000_000
BYTES = NUMBERS * 8

_NUMBERS = itertools.count()


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Host:
    """A network namespace with one device, and directories of Phalanx of its own."""

    def __init__(self, folder: pathlib.Path, label: str) -> None:
        self.name = f"phxpy{os.getpid() % 100_000}{next(_NUMBERS)}"
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        kinds = ("RUNTIME", "STATE", "CACHE")
        self.environment = {
            **os.environ,
            **{f"PHALANX_{kind}_DIR": str(folder / label / kind) for kind in kinds},
            "PHALANX_CONFIG_DIR": str(folder / "config"),
        }

    def command(self, *words: str) -> "List[str]":
        return ["ip", "netns", "exec", self.name, sys.executable, *words]

    def counters(self) -> "Dict[str, int]":
        """Bytes that its device has received and sent."""
        links = json.loads(_ip("-n", self.name, "-s", "-j", "link", "show", "dev", "eth0"))
        return {way: int(links[0]["stats64"][way]["bytes"]) for way in ("rx", "tx")}


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> "Iterator[List[Host]]":
    """Three hosts on one switch, 10.78.0.1 to 10.78.0.3."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns"], capture_output=True).returncode != 0:
        pytest.skip("network namespaces need root and iproute2")
    switch = Host(tmp_path, "switch")
    made = [switch]
    try:
        _ip("-n", switch.name, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch.name, "link", "set", "br0", "up")
        for number in (1, 2, 3):
            host = Host(tmp_path, f"host{number}")
            made.append(host)
            port = f"port{number}"
            peer = ("type", "veth", "peer", "name", port, "netns", switch.name)
            _ip("link", "add", "eth0", "netns", host.name, *peer)
            _ip("-n", switch.name, "link", "set", port, "master", "br0", "up")
            _ip("-n", host.name, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
        yield made[1:]
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


PROGRAM = """
    import sys
    import numpy as np
    from phalanx import Domain
    from phalanx.jobs import Executor

    COUNT = int(sys.argv[1])

    def make(count):
        return np.arange(count, dtype="float64")

    def total(x, factor):
        return float(x.sum()) * factor, int(x[-1])

    with Executor(Domain("lab", connect=["10.78.0.1:7000"])) as executor:
        # Only the first node has this much memory, only the second has two cores.
        made = executor.options(memory=2 << 30).submit(make, COUNT)
        user = executor.options(cores=2)
        answers = [user.submit(total, made, factor) for factor in (1, 2, 3)]
        for factor, answer in enumerate(answers, start=1):
            assert answer.result(timeout=60) == (COUNT * (COUNT - 1) / 2 * factor, COUNT - 1)
        print("used", flush=True)
        sys.stdin.readline()
        assert made.result(timeout=60)[12345] == 12345
    print("done", flush=True)
"""


def _node(host: Host, *options: str) -> "subprocess.Popen[str]":
    calls = f"--allow-python={sys.executable}"
    words = ["-m", "phalanx", "--output", "quiet", "node", "--domain", "lab", "--no-mdns", calls, *options]
    node = subprocess.Popen(host.command(*words), env=host.environment, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None and node.stdout.readline()
    return node


def test_a_result_goes_straight_from_its_holder_to_its_user_and_once(hosts: "List[Host]") -> None:
    holder, user, main = hosts
    words = [sys.executable, "-m", "phalanx", "domain", "new", "lab"]
    subprocess.run(words, env=main.environment, check=True, capture_output=True)
    nodes = [
        _node(holder, "--bind", "10.78.0.1:7000", "--cores", "1", "--memory", "3GiB"),
        _node(user, "--connect", "10.78.0.1:7000", "--cores", "2", "--memory", "1GiB"),
    ]
    program = main.command("-c", textwrap.dedent(PROGRAM), str(NUMBERS))
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    try:
        with subprocess.Popen(program, env=main.environment, **pipes) as process:
            assert process.stdout.readline() == "used\n"
            sent, received, passed = holder.counters()["tx"], user.counters()["rx"], main.counters()
            # Three calls took it, and it was moved once.
            assert BYTES <= sent < 1.5 * BYTES and BYTES <= received < 1.5 * BYTES
            assert passed["rx"] < BYTES / 4 and passed["tx"] < BYTES / 4
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            # The program asked for it: it came to this host, too.
            assert main.counters()["rx"] >= BYTES
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(timeout=20)
