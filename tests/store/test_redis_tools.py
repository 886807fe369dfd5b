"""redis-cli and redis-benchmark as they are, and errors as a real Redis words them."""

import csv
import io
import shutil
import subprocess
import time

import pytest

from conftest import free_port

pytestmark = pytest.mark.skipif(not shutil.which("redis-benchmark"), reason="Redis's tools are not installed")


@pytest.fixture(scope="module")
def redis_port():
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while "PONG" not in cli(port, "PING"):
        assert time.monotonic() < until and server.poll() is None
    yield port
    server.terminate()
    server.wait(20)


def cli(port, *words, given=None):
    done = subprocess.run(
        ["redis-cli", "-p", str(port), *words], input=given, capture_output=True, timeout=60, text=True
    )
    return done.stdout + done.stderr


def test_redis_cli(store):
    assert cli(store.port, "SET", "a", "1") == "OK\n"
    assert cli(store.port, "-3", "HSET", "h", "x", "1", "y", "2") == "2\n"
    assert "x" in cli(store.port, "-3", "HGETALL", "h")
    assert "redis_version:" in cli(store.port, "INFO")
    for n in range(20):
        cli(store.port, "RPUSH", f"l{n}", *map(str, range(n + 1)))
    assert len(cli(store.port, "--scan", "--pattern", "l*").split()) == 20
    assert "Biggest" in cli(store.port, "--bigkeys")
    assert cli(store.port, given="GET a\nINCR a\n") == "1\n2\n"


def test_redis_cli_inserts_a_hundred_thousand_commands(store):
    requests = "".join(f"*3\r\n$3\r\nSET\r\n${len(str(n))}\r\n{n}\r\n$1\r\nx\r\n" for n in range(100_000))
    said = cli(store.port, "--pipe", given=requests)
    assert "errors: 0, replies: 100000" in said, said
    assert cli(store.port, "DBSIZE") == "100000\n"


@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_benchmark(store, pipeline):
    tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,hset,lrange_100,mset"
    command = ["redis-benchmark", "-p", str(store.port), "-t", tests, "-n", "2000", "-P", str(pipeline), "--csv"]
    done = subprocess.run(command, capture_output=True, timeout=120, text=True)
    assert done.returncode == 0 and "rror" not in done.stderr, done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout)))[1:]
    assert len(rows) >= 12 and all(float(row[1]) > 0 for row in rows), done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["NOSUCH"],
        ["nosuch", "a", "b c"],
        ["NOSUCH", *(f"argument-{n}-{'x' * 30}" for n in range(10))],
        ["GET"],
        ["GET", "a", "b"],
        ["SET", "a"],
        ["SET", "a", "1", "NOSUCH"],
        ["HSET", "h", "f"],
        ["INCR", "text"],
        ["LPUSH", "text", "x"],
        ["EXPIRE", "text", "soon"],
        ["CONFIG", "NOSUCH"],
        ["CLIENT", "NOSUCH"],
        ["OBJECT", "NOSUCH"],
        ["RENAME", "none", "other"],
        ["SETRANGE", "text", "-1", "x"],
        ["LSET", "none", "0", "x"],
        ["AUTH", "password"],
        ["HELLO", "9"],
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_errors_are_those_of_redis(store, redis_port, words):
    for port in (store.port, redis_port):
        cli(port, "SET", "text", "some text")
    ours, theirs = cli(store.port, *words), cli(redis_port, *words)
    assert theirs and ours == theirs


@pytest.mark.parametrize("words", [["ZADD", "z", "1", "a"], ["SADD", "s", "a"], ["MULTI"], ["EVAL", "return 1", "0"]])
def test_commands_that_are_missing_are_unknown_as_in_redis(store, redis_port, words):
    unknown = "NOSUCH" + "X" * (len(words[0]) - 6) if len(words[0]) > 6 else "NOSUCH"
    said = cli(redis_port, unknown, *words[1:])
    assert cli(store.port, *words) == said.replace(unknown, words[0])
