"""What the package does to its process: import time, signals, forks, the end of the interpreter, the command."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import phalanx


def python(code, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, **options
    )


PREPARE = """
import os, signal, sys, threading, time
import numpy as np
import phalanx
x = np.random.default_rng(0).normal(size=(256, 784)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
"""


def test_the_import_is_fast_and_light():
    code = """
    import sys, time
    began = time.perf_counter()
    import phalanx
    took = time.perf_counter() - began
    heavy = [name for name in ("numpy", "torch", "phalanx._phalanx") if name in sys.modules]
    print(took, heavy)
    """
    tries = [python(code).stdout.split(maxsplit=1) for _ in range(5)]
    assert {heavy for _, heavy in tries} == {"[]\n"}
    assert min(float(took) for took, _ in tries) < 0.05


def interrupted(body):
    """Runs code that waits in `wait()`, interrupts it, and gives how many seconds that took."""
    code = (
        PREPARE
        + textwrap.dedent(body)
        + textwrap.dedent("""
    def interrupt():
        started.wait()
        global sent
        sent = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        wait()
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - sent)
    """)
    )
    told = python("started = __import__('threading').Event()\n" + code)
    found = re.search(r"interrupted ([\d.e-]+)", told.stdout)
    assert found, told.stdout + told.stderr
    return float(found.group(1))


@pytest.mark.parametrize(
    "body",
    [
        """
        def wait():
            phalanx.fit("mlp", (x, y), epochs=10**9, progress=lambda now: started.set())
        """,
        """
        def loss(output, target):
            started.set()
            return 1.0, np.zeros_like(output)

        def wait():
            phalanx.fit("mlp", (x, y), loss=loss, epochs=10**9)
        """,
        """
        def wait():
            phalanx.fit("mlp", (x, y), epochs=10**9, local=2, progress=lambda now: now["step"] and started.set())
        """,
        """
        def wait():
            phalanx.fit("mlp", (x, y), replicas=2, nodes="no-nodes-here", progress=lambda now: started.set())
        """,
        """
        import socket

        # Accepts and never answers.
        listener = socket.create_server(("127.0.0.1", 0))
        peers = []

        def accept():
            peers.append(listener.accept())
            started.set()

        threading.Thread(target=accept, daemon=True).start()

        def wait():
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            phalanx.nodes(phalanx.Domain("no-nodes-here", connect=[address]), patience=60)
        """,
    ],
    ids=["here", "loss", "local", "waiting", "nodes"],
)
def test_ctrl_c_ends_every_wait_within_200_ms(body):
    # The fastest of a few: a busy machine may delay any one of them.
    assert min(interrupted(body) for _ in range(3)) < 0.2


def test_an_interrupted_run_goes_on_later(tmp_path):
    code = PREPARE + textwrap.dedent("""
    def at(now):
        if now["step"] > 20:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        phalanx.fit("mlp", (x, y), epochs=10**6, run_dir=sys.argv[1], progress=at)
    except KeyboardInterrupt:
        print("interrupted")
    """)
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, timeout=60
    )
    assert told.stdout == "interrupted\n", told.stderr
    run = phalanx.Run.open(tmp_path / "run")
    assert run.steps > 20 and not run.finished
    steps = run.steps + 5
    assert run.resume(steps=steps).steps == steps


def test_a_forked_process_gets_an_error():
    told = python(
        PREPARE
        + """
import phalanx._fit
child = os.fork()
if child == 0:
    # Not used before the fork: works.
    run = phalanx.fit("mlp", (x, y))
    os._exit(0 if run.steps == 8 else 1)
assert os.waitpid(child, 0)[1] == 0
run = phalanx.fit("mlp", (x, y))
child = os.fork()
if child == 0:
    try:
        run.predict(x)
    except phalanx.ForkError as error:
        os._exit(0 if "spawn" in error.hint else 2)
    os._exit(1)
print(os.waitpid(child, 0)[1])
"""
    )
    assert told.stdout == "0\n", told.stderr


def test_the_interpreter_may_end_while_a_run_goes_on():
    told = python(
        PREPARE
        + """
def train():
    phalanx.fit("mlp", (x, y), epochs=10**9, progress=lambda now: begun.set())

begun = threading.Event()
threading.Thread(target=train, daemon=True).start()
begun.wait()
print("end")
"""
    )
    assert (told.returncode, told.stdout) == (0, "end\n"), told.stderr
    assert "panicked" not in told.stderr and "Fatal" not in told.stderr


def test_other_threads_run_while_the_library_works():
    told = python(
        PREPARE
        + """
counted = 0
done = False

def count():
    global counted
    while not done:
        counted += 1
        time.sleep(0.001)

counter = threading.Thread(target=count)
counter.start()
began = time.monotonic()
phalanx.fit("mlp", (x, y), epochs=60)
took = time.monotonic() - began
done = True
counter.join()
print(counted / took > 100, counted, took)
"""
    )
    assert told.stdout.startswith("True"), told.stdout + told.stderr


@pytest.mark.parametrize("start", [[sys.executable, "-m", "phalanx"], ["phalanx"]], ids=["module", "script"])
def test_the_command_is_the_whole_command_line(start, tmp_path):
    if start == ["phalanx"]:
        start = [os.path.join(os.path.dirname(sys.executable), "phalanx")]
    said = subprocess.run([*start, "--version"], capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, f"phalanx {phalanx.__version__}\n")
    said = subprocess.run([*start, "train", "nowhere.toml"], capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 2 and said.stderr.startswith("error: ")
    said = subprocess.run([*start, "train", "--bogus"], capture_output=True, text=True)
    assert said.returncode == 2 and "--bogus" in said.stderr


def test_the_command_starts_local_nodes_and_jobs(tmp_path):
    # A directory that would hide the package from `python -m`.
    (tmp_path / "phalanx").mkdir()
    (tmp_path / "phalanx" / "__init__.py").write_text("raise ImportError('the wrong one')")
    script = os.path.join(os.path.dirname(sys.executable), "phalanx")
    command = [script, "job", "submit", "--local", "2", "--kind", "exec", "--wait", "--output", "json"]
    said = subprocess.run([*command, "--", "echo", "hello"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert said.returncode == 0, said.stderr
    assert "hello" in said.stdout


def test_ctrl_c_ends_a_command():
    domain = f"ctrl-c-{os.getpid()}"
    command = ["node", "--domain", domain, "--bind", "127.0.0.1:0", "--no-mdns", "--output", "quiet"]
    with subprocess.Popen([sys.executable, "-m", "phalanx", *command], stdout=subprocess.PIPE, text=True) as node:
        # It prints its id when it runs.
        assert "-" in node.stdout.readline()
        assert node.poll() is None
        node.send_signal(signal.SIGINT)
        node.wait(timeout=30)
