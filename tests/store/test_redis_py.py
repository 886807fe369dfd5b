"""redis-py: both versions of the protocol, cluster mode, blocking, messages, passwords."""

import socket
import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import Domain, Store

# Without it the client tries a refused password again, for seconds.
AT_ONCE = {"retry": Retry(NoBackoff(), 0)}


def own_address():
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only says which address it would use.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


@pytest.fixture(params=[2, 3])
def client(store, request):
    return redis.Redis(port=store.port, protocol=request.param, decode_responses=True)


def test_strings_hashes_and_lists(client):
    assert client.set("a", 1, ex=100) and client.get("a") == "1" and 99 <= client.ttl("a") <= 100
    assert client.set("a", 2, nx=True) is None and client.set("a", 5, xx=True, get=True) == "1"
    assert client.incr("a", 3) == 8 and client.mget("a", "none") == ["8", None]
    assert client.hset("h", mapping={"x": 1, "y": 2}) == 2 and client.hgetall("h") == {"x": "1", "y": "2"}
    assert client.rpush("l", *"abc") == 3 and client.lrange("l", 0, -1) == list("abc")
    assert client.lpop("l", 2) == ["a", "b"] and client.type("l") == "list"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.get("l")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("ZADD", "z", 1, "a")


def test_all_keys_are_found_by_a_scan(client):
    pipeline = client.pipeline(transaction=False)
    for n in range(5000):
        pipeline.set(f"key:{n}", n)
    pipeline.execute()
    assert sorted(client.scan_iter("key:*", count=100)) == sorted(f"key:{n}" for n in range(5000))
    assert client.dbsize() == 5000
    client.hset("h", mapping={str(n): n for n in range(3000)})
    assert len(dict(client.hscan_iter("h"))) == 3000


def test_a_blocked_client_is_woken(client, store):
    got = []
    waiter = threading.Thread(target=lambda: got.append(client.blpop(["q", "r"], timeout=20)))
    waiter.start()
    other = redis.Redis(port=store.port)
    while other.info("clients")["blocked_clients"] != 1:
        pass
    other.rpush("r", "x")
    waiter.join(20)
    assert [tuple(pair) for pair in got] == [("r", "x")]
    assert client.blpop("q", timeout=0.05) is None


def test_messages(client):
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    listener.psubscribe("n*")
    listener.get_message(timeout=5), listener.get_message(timeout=5)
    assert client.publish("news", "hello") == 2
    kinds = [listener.get_message(timeout=5) for _ in range(2)]
    assert [(m["type"], m["channel"], m["data"]) for m in kinds] == [
        ("message", "news", "hello"),
        ("pmessage", "news", "hello"),
    ]


def test_a_large_value(client, store):
    raw = redis.Redis(port=store.port)
    value = bytes(range(256)) * (1 << 16)
    raw.set("large", value)
    assert raw.get("large") == value and raw.strlen("large") == len(value)


def test_cluster_mode(store):
    cluster = redis.RedisCluster(host="127.0.0.1", port=store.port, decode_responses=True)
    for n in range(100):
        cluster.set(f"key{n}", n)
    assert [cluster.get(f"key{n}") for n in range(100)] == [str(n) for n in range(100)]
    assert cluster.mget_nonatomic("key1", "key2") == ["1", "2"]
    assert len(cluster.keys("key*")) == 100


def test_a_password(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    store = Store("--password-file", str(secret))
    try:
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=store.port, **AT_ONCE).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=store.port, password="wrong", **AT_ONCE).ping()
        for protocol in [2, 3]:
            assert redis.Redis(port=store.port, password="open sesame", protocol=protocol).ping()
    finally:
        store.end()


def test_a_store_of_a_domain_by_tls_and_password(tmp_path):
    domain = Domain("lab")
    try:
        domain.run("domain", "new", "lab")
        (tmp_path / "ca.pem").write_text(domain.run("domain", "show", "lab", "--ca"))
        (tmp_path / "secret").write_text("open sesame\n")
        port = domain.start("node", "--store-password-file", str(tmp_path / "secret"))

        def connect(host="localhost", **options):
            tls = {"ssl": True, "ssl_ca_certs": str(tmp_path / "ca.pem")}
            return redis.Redis(host=host, port=port, **tls, **AT_ONCE, **options)

        for protocol in [2, 3]:
            with connect(password="open sesame", protocol=protocol) as client:
                value = bytes(range(256)) * 4096
                assert client.set("x", value) and client.get("x") == value
        for protocol, reason in [(2, "Authentication required"), (3, "HELLO must be called with the client already")]:
            with pytest.raises(redis.AuthenticationError, match=reason):
                connect(protocol=protocol).ping()
            with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
                connect(password="wrong", protocol=protocol).ping()
        # A client that trusts other authorities does not speak with the store.
        with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            redis.Redis(host="localhost", port=port, ssl=True, password="open sesame", **AT_ONCE).ping()
        outside = own_address()
        if outside is not None:
            # From beyond loopback, and the store says what to do.
            with pytest.raises(redis.RedisError, match="speaks TLS only: use rediss://"):
                redis.Redis(host=outside, port=port, password="open sesame", **AT_ONCE).ping()
            assert connect(host=outside, password="open sesame").ping()
    finally:
        domain.end()


def test_streams_of_shards_through_any_node(shards):
    """A stream lives at the node of its name; every node passes commands on, also those that wait."""
    import json
    import subprocess

    from conftest import PROGRAM

    for number in range(6):
        name = f"stream{number}"
        client = shards.client(number % 3)
        stream = lambda verb, *words: client.execute_command("PHALANX.STREAM", verb, name, *words)  # noqa: E731
        assert stream("PRODUCER", "sim", "-", "-")[0] == b"OPENED"
        answer = stream("BEGIN", "sim", "1", "0", "2", "8", "-", "0", "x")
        assert answer[0] == b"ADMITTED"
        assert shards.client((number + 1) % 3).execute_command(
            "AI.TENSORSET", answer[1] + b".x", "FLOAT", "2", "VALUES", "1", "2"
        )
        assert stream("COMPLETE", "sim", "1", "0") == [b"ACKNOWLEDGED"]
        other = shards.client((number + 2) % 3)
        assert json.loads(other.execute_command("PHALANX.STREAM", "INFO", name)[1])["stream"]["samples"] == 2
    watch = [PROGRAM, "--output", "json", "store", "watch", "--once", "--domain", "shared"]
    shown = subprocess.run(watch, env=shards.domain.environment, capture_output=True, text=True, check=True)
    streams = json.loads(shown.stdout)["streams"]
    assert [stream["name"] for stream in streams] == [f"stream{number}" for number in range(6)]
    one = [PROGRAM, "store", "seal", "stream3", "--at", shards.addresses[0]]
    sealed = subprocess.run(one, capture_output=True, text=True, check=True)
    assert sealed.stdout == "stream stream3 has ended with 2 samples\n"


def test_a_full_store_refuses_and_goes_on():
    store = Store("--memory", "10MiB")
    try:
        client = redis.Redis(port=store.port)
        client.set("a", bytes(6 << 20))
        for size in [6 << 20, 64 << 20]:
            with pytest.raises(redis.OutOfMemoryError):
                client.set("b", bytes(size))
        assert client.exists("a", "b") == 1
        client.delete("a")
        assert client.set("b", bytes(6 << 20))
    finally:
        store.end()


def test_a_client_can_end_the_server(store):
    redis.Redis(port=store.port, **AT_ONCE).shutdown()
    assert store.process.wait(timeout=20) == 0


def test_streams_are_watched_and_sealed(store):
    """`phalanx store watch` shows what changes when it does, and ends with Ctrl-C; `store seal` ends a stream."""
    import json
    import signal
    import subprocess

    from conftest import PROGRAM

    at = ["--at", store.address]
    client = redis.Redis(port=store.port)
    watch = [PROGRAM, "--output", "json", "store", "watch", *at]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline()) == {"streams": []}
        client.execute_command("PHALANX.STREAM", "PRODUCER", "data", "sim-1", "-", "-")
        shown = json.loads(process.stdout.readline())["streams"][0]
        assert (shown["name"], shown["stream"]["producers"][0]["id"]) == ("data", "sim-1")
        begin = ["BEGIN", "data", "sim-1", "1", "0", "2", "8", "-", "0", "x"]
        assert client.execute_command("PHALANX.STREAM", *begin)[0] == b"ADMITTED"
        client.execute_command("AI.TENSORSET", "{data.sim-1.1.0}.x", "FLOAT", "2", "VALUES", "1", "2")
        completed = client.execute_command("PHALANX.STREAM", "COMPLETE", "data", "sim-1", "1", "0")
        assert completed == [b"ACKNOWLEDGED"]
        while json.loads(process.stdout.readline())["streams"][0]["stream"]["samples"] != 2:
            pass
        sealed = subprocess.run([PROGRAM, "store", "seal", "data", *at], capture_output=True, text=True, check=True)
        assert sealed.stdout == "stream data has ended with 2 samples\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    once = subprocess.run([PROGRAM, "store", "watch", "data", "--once", *at], capture_output=True, text=True, check=True)
    assert "stream    data (ended)" in once.stdout and "sim-1 open, 1 uploads" in once.stdout
    missing = subprocess.run([PROGRAM, "store", "watch", "none", "--once", *at], capture_output=True, text=True)
    assert missing.returncode == 2 and "there is no stream none" in missing.stderr
